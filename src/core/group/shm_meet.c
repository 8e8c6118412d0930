/* How the ranks of a shared-memory group find each other.
 *
 * Rank 0 is the hub: it opens an abstract local socket whose name is made of the user and the group's name,
 * and creates the control block. Then, for each of the others:
 *
 *     joiner                                  hub
 *     hello: rank, size, process     ->       checked; kept, or refused with a text
 *                                    <-       welcome: the control block       (when all are there)
 *     ready: mapped, or why not      ->
 *                                    <-       go: all are ready, or who is not
 *
 * Rank 0 fails for everybody: whoever was taken in gets its message. So it waits no longer than the most hurried of
 * those has time, a little less even (shm_hub.c), and these give it GRACE more for its word to come. Strangers (another user, no hello
 * within SILENCE, a hello that is none, the oldest where there are too many) are dropped and never hold up the others; the last of them is
 * named when ranks are missing in the end. A joiner that was disconnected without a word tries again while somebody listens: it was dropped among
 * strangers. */
#include "group/shm.h"

#include "base/clock.h"
#include "base/thread_watch.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const double GRACE = 0.08; /* seconds */

/* ---- What both sides say ---- */

treadle_shm_message treadle_shm_say(int type, const treadle_shm *shm, int rank, treadle_status status) {
  treadle_shm_message m = {.magic = TREADLE_SHM_MAGIC,
                           .version = TREADLE_SHM_VERSION,
                           .type = type,
                           .rank = rank,
                           .size = shm->size,
                           .pid = getpid(),
                           .status = status,
                           .start_time = treadle_shm_start_time(getpid()),
                           .bytes = shm->control_bytes};
  if (status != TREADLE_OK) snprintf(m.text, sizeof m.text, "%s", treadle_error_message());
  return m;
}

bool treadle_shm_is(const treadle_shm_message *m, int type) {
  return m->magic == TREADLE_SHM_MAGIC && m->version == TREADLE_SHM_VERSION && m->type == type;
}

treadle_status treadle_shm_verdict(treadle_shm_message *m, int type, const char *who) {
  m->text[sizeof m->text - 1] = 0;
  if (!treadle_shm_is(m, type))
    return treadle_fail(TREADLE_PEER, "%s sent a message that was not expected", who);
  if (m->status == TREADLE_OK) return TREADLE_OK;
  return treadle_fail((treadle_status)m->status, "%s", m->text);
}

treadle_status treadle_shm_address(const char *name, struct sockaddr_un *address, socklen_t *length_p) {
  size_t length = strlen(name);
  bool good = length > 0 && length < TREADLE_SHM_NAME;
  for (size_t i = 0; i < length; i++) good = good && isalnum((unsigned char)name[i]);
  if (!good)
    return treadle_fail(TREADLE_REFUSED, "group name '%.80s' is not 1 to %d letters and digits", name,
                        TREADLE_SHM_NAME - 1);
  *address = (struct sockaddr_un){.sun_family = AF_UNIX};
  int used = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "treadle-%u-%s",
                      (unsigned)geteuid(), name);
  *length_p = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)used);
  return TREADLE_OK;
}

int treadle_shm_socket(void) { return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

/* ---- A joiner ---- */

/* Connects to the hub as soon as there is one. An older hub's name is nobody's any more, so it is looked up again each time. */
static treadle_status reach_hub(const treadle_shm_name *naming, double deadline, char *name,
                                int *socket_p) {
  treadle_status status = TREADLE_OK;
  struct sockaddr_un address;
  socklen_t length;
  for (long pause = 1000 * 1000;; pause = pause < 20 * 1000 * 1000 ? pause * 2 : pause) {
    TRY(treadle_thread_ask("rank 0, which opens the group"));
    TRY(naming->find(naming->context, deadline, name));
    TRY(treadle_shm_address(name, &address, &length));
    int socket = treadle_shm_socket();
    if (socket < 0)
      return treadle_fail(TREADLE_SYSTEM, "group '%s': no local socket: %s", name, strerror(errno));
    if (connect(socket, (struct sockaddr *)&address, length) == 0) {
      *socket_p = socket;
      return TREADLE_OK;
    }
    int why = errno;
    close(socket);
    if (why != ECONNREFUSED && why != EAGAIN && why != EINTR)
      return treadle_fail(TREADLE_SYSTEM, "group '%s': rank 0 cannot be reached: %s", name, strerror(why));
    if (treadle_clock_seconds() > deadline)
      return treadle_fail(TREADLE_TIMEOUT, "group '%s': rank 0 did not open it in time", name);
    double left = (deadline - treadle_clock_seconds()) * 1e9;
    nanosleep(&(struct timespec){.tv_nsec = left > (double)pause ? pause
                                            : left > 0           ? (long)left
                                                                 : 0},
              NULL);
  }
out:
  return status;
}

/* Says hello and waits for a word: of the control block, or why there will be none. A hub that hangs up without one has died, or had too many
 * strangers. */
static treadle_status ask(treadle_shm *shm, const char *name, int rank, double deadline,
                          treadle_shm_message *m, int *descriptor_p, int *count_p) {
  treadle_status status = TREADLE_OK;
  struct sockaddr_un address;
  socklen_t length;
  TRY(treadle_shm_address(name, &address, &length));
  for (;;) {
    treadle_shm_message hello = treadle_shm_say(TREADLE_SHM_HELLO, shm, rank, TREADLE_OK);
    hello.left = deadline - treadle_clock_seconds();
    *count_p = 1;
    status = treadle_shm_send(shm->sockets[0], &hello, sizeof hello, NULL, 0, deadline + GRACE, "rank 0");
    if (status == TREADLE_OK)
      status = treadle_shm_receive(shm->sockets[0], m, sizeof *m, descriptor_p, count_p, deadline + GRACE,
                                   "rank 0"); /* the hub knows better what is missing */
    if (status != TREADLE_PEER || treadle_clock_seconds() > deadline) break;
    int again = treadle_shm_socket();
    if (again >= 0 && connect(again, (struct sockaddr *)&address, length) != 0 && errno != EAGAIN) {
      close(again); /* nobody listens there any more; EAGAIN: many do it now, and sending says the same */
      again = -1;
    }
    if (again < 0) break;
    close(shm->sockets[0]);
    shm->sockets[0] = again;
    nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
  }
out:
  return status;
}

static treadle_status hear_welcome(treadle_shm *shm, const char *name, int rank, double deadline) {
  treadle_status status = TREADLE_OK;
  treadle_shm_message m;
  int descriptor, count;
  TRY(ask(shm, name, rank, deadline, &m, &descriptor, &count));
  if (count > 0) shm->control_descriptor = descriptor;
  if (treadle_shm_is(&m, TREADLE_SHM_GO)) TRY(treadle_shm_verdict(&m, TREADLE_SHM_GO, "rank 0"));
  TRY(treadle_shm_verdict(&m, TREADLE_SHM_WELCOME, "rank 0"));
  if (count != 1 || m.bytes != shm->control_bytes)
    status = treadle_fail(TREADLE_PEER,
                          "group '%s': rank 0 has another control block: is it another build?", name);
out:
  return status;
}

static treadle_status join(treadle_shm *shm, const treadle_shm_name *naming, int rank, double deadline) {
  treadle_status status = TREADLE_OK;
  char name[TREADLE_SHM_NAME];
  double last = deadline + GRACE; /* the hub knows better what is missing */
  pid_t pid;
  uid_t uid;
  TRY(reach_hub(naming, deadline, name, &shm->sockets[0]));
  TRY(treadle_shm_peer(shm->sockets[0], &pid, &uid));
  if (uid != geteuid())
    return treadle_fail(TREADLE_REFUSED, "group '%s': the name is held by a process of another user", name);
  TRY(hear_welcome(shm, name, rank, deadline));
  treadle_status mapped = treadle_shm_map_control(shm);
  treadle_shm_message ready = treadle_shm_say(TREADLE_SHM_READY, shm, rank, mapped), go;
  TRY(treadle_shm_send(shm->sockets[0], &ready, sizeof ready, NULL, 0, last, "rank 0"));
  TRY(treadle_shm_receive(shm->sockets[0], &go, sizeof go, NULL, NULL, last, "rank 0"));
  TRY(treadle_shm_verdict(&go, TREADLE_SHM_GO, "rank 0"));
out:
  return status;
}

static treadle_status host(treadle_shm *shm, const treadle_shm_name *naming, double deadline) {
  treadle_status status = TREADLE_OK;
  char name[TREADLE_SHM_NAME];
  TRY(naming->find(naming->context, deadline, name));
  TRY(treadle_shm_host(shm, name, deadline));
out:
  return status;
}

treadle_status treadle_shm_meet(treadle_shm *shm, const treadle_shm_name *naming, int rank, int size,
                                double deadline) {
  shm->size = size;
  shm->control_bytes = treadle_control_bytes(size);
  return rank == 0 ? host(shm, naming, deadline) : join(shm, naming, rank, deadline);
}
