/* How the ranks of a shared-memory group find each other.
 *
 * Rank 0 is the hub: it opens an abstract local socket whose name is made of the user and the group's name, and
 * creates the control block. Then, for each of the others:
 *
 *     joiner                                  hub
 *     hello: rank, size, process     ->       checked; kept, or refused with a text
 *                                    <-       welcome: the control block       (when all are there)
 *     ready: mapped, or why not      ->
 *                                    <-       go: all are ready, or who is not
 *
 * Rank 0 fails for everybody: whoever was taken in gets its message. Strangers (another user, no hello
 * within SILENCE, a hello that is none) are dropped and never hold up the others; the last of them is named
 * when ranks are missing in the end. */
#include "transport/shm.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/text.h"

#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { STRANGERS = 64, NAME_BYTES = 64 };
enum { SILENCE = 2, GRACE = 1 }; /* seconds */
enum { HELLO = 1, WELCOME, READY, GO };

typedef struct message {
  uint32_t magic, version;
  int32_t kind, rank, size, pid;
  int32_t status;
  uint64_t start_time, bytes;
  char text[TREADLE_SHM_TEXT];
} message;

static message make_message(int kind, const treadle_shm *shm, int rank, treadle_status status) {
  message m = {.magic = TREADLE_SHM_MAGIC,
               .version = TREADLE_SHM_VERSION,
               .kind = kind,
               .rank = rank,
               .size = shm->size,
               .pid = getpid(),
               .status = status,
               .start_time = treadle_shm_start_time(getpid()),
               .bytes = shm->control_bytes};
  if (status != TREADLE_OK) snprintf(m.text, sizeof m.text, "%s", treadle_error_message());
  return m;
}

static bool is_message(const message *m, int kind) {
  return m->magic == TREADLE_SHM_MAGIC && m->version == TREADLE_SHM_VERSION && m->kind == kind;
}

/* What the message says of its sender's success. */
static treadle_status verdict(message *m, int kind, const char *who) {
  m->text[sizeof m->text - 1] = 0;
  if (!is_message(m, kind)) return treadle_fail(TREADLE_PEER, "%s sent a message that was not expected", who);
  if (m->status == TREADLE_OK) return TREADLE_OK;
  return treadle_fail((treadle_status)m->status, "%s", m->text);
}

static treadle_status make_address(const char *name, struct sockaddr_un *address, socklen_t *length_p) {
  size_t length = strlen(name);
  bool good = length > 0 && length <= NAME_BYTES;
  for (size_t i = 0; i < length; i++) good = good && isalnum((unsigned char)name[i]);
  if (!good)
    return treadle_fail(TREADLE_REFUSED, "group name '%.80s' is not 1 to %d letters and digits", name, NAME_BYTES);
  *address = (struct sockaddr_un){.sun_family = AF_UNIX};
  int used = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "treadle-%u-%s", (unsigned)geteuid(),
                      name);
  *length_p = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)used);
  return TREADLE_OK;
}

static int open_socket(void) { return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

static const char *rank_name(int rank, char *room, size_t bytes) {
  snprintf(room, bytes, "rank %d", rank);
  return room;
}

/* ---- The hub ---- */

typedef struct stranger { /* connected, has not said hello */
  int socket;
  double until;
} stranger;

typedef struct hub {
  treadle_shm *shm;
  const char *name;
  int listener;
  int joined;
  int stranger_count;
  stranger strangers[STRANGERS];
  struct pollfd *polls;
  char note[TREADLE_SHM_TEXT]; /* about the last stranger */
  double deadline;
} hub;

static void drop(hub *h, int position) {
  close(h->strangers[position].socket);
  h->strangers[position] = h->strangers[--h->stranger_count];
}

static treadle_status hub_open(hub *h) {
  treadle_status status = TREADLE_OK;
  struct sockaddr_un address;
  socklen_t length;
  TRY(make_address(h->name, &address, &length));
  h->listener = open_socket();
  if (h->listener < 0 || bind(h->listener, (struct sockaddr *)&address, length) != 0 ||
      listen(h->listener, 128) != 0) {
    if (errno == EADDRINUSE)
      return treadle_fail(TREADLE_REFUSED, "group '%s': the name is in use on this machine", h->name);
    return treadle_fail(TREADLE_SYSTEM, "group '%s': no local socket: %s", h->name, strerror(errno));
  }
  h->shm->control_descriptor = memfd_create("treadle-control", MFD_CLOEXEC);
  if (h->shm->control_descriptor < 0 ||
      ftruncate(h->shm->control_descriptor, (off_t)h->shm->control_bytes) != 0)
    return treadle_fail(TREADLE_SYSTEM, "group '%s': no control block: %s", h->name, strerror(errno));
  TRY(treadle_shm_map_control(h->shm));
out:
  return status;
}

static void hub_accept(hub *h) {
  int socket = accept4(h->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  pid_t pid;
  uid_t uid;
  if (socket < 0) return;
  if (treadle_shm_peer(socket, &pid, &uid) != TREADLE_OK || uid != geteuid()) {
    snprintf(h->note, sizeof h->note, "; a process of another user knocked");
    close(socket);
    return;
  }
  if (h->stranger_count == STRANGERS) drop(h, 0);
  h->strangers[h->stranger_count++] = (stranger){socket, treadle_clock_seconds() + SILENCE};
}

/* Why this hello is refused; TREADLE_OK when it is not. */
static treadle_status check_hello(const hub *h, const message *m, pid_t pid) {
  if (m->magic != TREADLE_SHM_MAGIC || m->kind != HELLO)
    return treadle_fail(TREADLE_REFUSED, "process %d said what is none of treadle's messages", (int)pid);
  if (m->version != TREADLE_SHM_VERSION)
    return treadle_fail(TREADLE_REFUSED, "process %d speaks version %u, rank 0 version %d", (int)pid, m->version,
                        TREADLE_SHM_VERSION);
  if (m->size != h->shm->size)
    return treadle_fail(TREADLE_REFUSED, "process %d wants a group of %d ranks, rank 0 one of %d", (int)pid, m->size,
                        h->shm->size);
  if (m->rank < 1 || m->rank >= h->shm->size)
    return treadle_fail(TREADLE_REFUSED, "process %d wants to be rank %d of %d", (int)pid, m->rank, h->shm->size);
  if (h->shm->sockets[m->rank] >= 0)
    return treadle_fail(TREADLE_REFUSED, "process %d wants to be rank %d, which process %d is already", (int)pid,
                        m->rank, (int)atomic_load(&h->shm->control->lines[m->rank].pid));
  if (m->pid != pid)
    return treadle_fail(TREADLE_REFUSED,
                        "rank %d calls itself process %d and is %d here: all ranks must be in one process "
                        "namespace (container)",
                        m->rank, m->pid, (int)pid);
  return TREADLE_OK;
}

static treadle_status take_in(hub *h, int socket) {
  treadle_status status = TREADLE_OK;
  message m;
  pid_t pid;
  uid_t uid;
  TRY(treadle_shm_receive(socket, &m, sizeof m, NULL, 0, NULL, 0, "a process"));
  TRY(treadle_shm_peer(socket, &pid, &uid));
  TRY(check_hello(h, &m, pid));
  atomic_store(&h->shm->control->lines[m.rank].pid, pid);
  atomic_store(&h->shm->control->lines[m.rank].start_time, m.start_time);
  h->shm->sockets[m.rank] = socket;
  h->joined++;
out:
  return status;
}

/* A stranger speaks: it is taken in, or told why not and dropped. */
static void hub_hear(hub *h, int position) {
  int socket = h->strangers[position].socket;
  treadle_status status = take_in(h, socket);
  if (status == TREADLE_OK) {
    h->strangers[position] = h->strangers[--h->stranger_count];
    return;
  }
  snprintf(h->note, sizeof h->note, "; refused: %.300s", treadle_error_message());
  treadle_fail_in(status, "group '%s': ", h->name);
  message refusal = make_message(WELCOME, h->shm, 0, status);
  (void)treadle_shm_send(socket, &refusal, sizeof refusal, NULL, 0, 0, "a process");
  drop(h, position);
}

static treadle_status say_missing(const hub *h) {
  treadle_builder ranks = {0};
  for (int rank = 1; rank < h->shm->size; rank++)
    if (h->shm->sockets[rank] < 0) treadle_builder_add(&ranks, "%s%d", ranks.length ? ", " : "", rank);
  treadle_status status = treadle_fail(TREADLE_TIMEOUT, "group '%s': rank %.200s did not join in time%s", h->name,
                                       ranks.text ? ranks.text : "?", h->note);
  treadle_builder_release(&ranks);
  return status;
}

/* Waits for what comes next on any socket, and deals with it. */
static treadle_status hub_step(hub *h) {
  int count = 0, size = h->shm->size;
  double now = treadle_clock_seconds();
  h->polls[count++] = (struct pollfd){.fd = h->listener, .events = POLLIN};
  for (int rank = 1; rank < size; rank++) h->polls[count++] = (struct pollfd){.fd = h->shm->sockets[rank]};
  for (int i = 0; i < h->stranger_count; i++)
    h->polls[count++] = (struct pollfd){.fd = h->strangers[i].socket, .events = POLLIN};
  double left = h->deadline - now < 0.1 ? h->deadline - now : 0.1; /* strangers' silence is looked at */
  int ready = poll(h->polls, (nfds_t)count, left > 0 ? (int)(left * 1000) + 1 : 0);
  if (ready < 0 && errno != EINTR) return treadle_fail(TREADLE_SYSTEM, "poll: %s", strerror(errno));
  for (int i = h->stranger_count - 1; i >= 0; i--) { /* from the end: dropping moves the last one here */
    bool spoke = ready > 0 && h->polls[size + i].revents != 0;
    if (spoke) {
      hub_hear(h, i);
    } else if (now > h->strangers[i].until) {
      snprintf(h->note, sizeof h->note, "; a process knocked and said nothing");
      drop(h, i);
    }
  }
  for (int rank = 1; rank < size && ready > 0; rank++)
    if (h->polls[rank].fd >= 0 && (h->polls[rank].revents & (POLLHUP | POLLERR)))
      return treadle_fail(TREADLE_PEER, "group '%s': rank %d joined, then left or died", h->name, rank);
  if (ready > 0 && h->polls[0].revents) hub_accept(h);
  return TREADLE_OK;
}

/* All are there: hands out the control block, hears who could use it. */
static treadle_status hub_welcome(hub *h) {
  treadle_status status = TREADLE_OK;
  message m = make_message(WELCOME, h->shm, 0, TREADLE_OK);
  char who[24];
  for (int rank = 1; rank < h->shm->size; rank++)
    TRY(treadle_shm_send(h->shm->sockets[rank], &m, sizeof m, &h->shm->control_descriptor, 1, h->deadline,
                         rank_name(rank, who, sizeof who)));
  for (int rank = 1; rank < h->shm->size; rank++) {
    message ready;
    rank_name(rank, who, sizeof who);
    TRY(treadle_shm_receive(h->shm->sockets[rank], &ready, sizeof ready, NULL, 0, NULL, h->deadline, who));
    TRY(verdict(&ready, READY, who));
  }
out:
  if (status != TREADLE_OK) treadle_fail_in(status, "group '%s': ", h->name);
  return status;
}

/* To all who were taken in: go, or why not. That one does not hear it is no news. */
static void say_last_word(const treadle_shm *shm, treadle_status status) {
  message last = make_message(GO, shm, 0, status);
  for (int rank = 1; rank < shm->size; rank++)
    if (shm->sockets[rank] >= 0)
      (void)treadle_shm_send(shm->sockets[rank], &last, sizeof last, NULL, 0, 0, "a rank");
  if (status != TREADLE_OK) treadle_fail(status, "%s", last.text);
}

static treadle_status hub_meet(treadle_shm *shm, const char *name, double timeout_seconds) {
  treadle_status status = TREADLE_OK;
  hub h = {.shm = shm, .name = name, .listener = -1, .deadline = treadle_clock_seconds() + timeout_seconds};
  h.polls = treadle_alloc_array((size_t)shm->size + STRANGERS, sizeof *h.polls);
  if (!h.polls) return treadle_fail(TREADLE_NO_MEMORY, "group: memory is out");
  TRY(hub_open(&h));
  atomic_store(&shm->control->lines[0].pid, getpid());
  atomic_store(&shm->control->lines[0].start_time, treadle_shm_start_time(getpid()));
  while (h.joined < shm->size - 1) {
    if (treadle_clock_seconds() > h.deadline) {
      status = say_missing(&h);
      goto out;
    }
    TRY(hub_step(&h));
  }
  TRY(hub_welcome(&h));
out:
  say_last_word(shm, status);
  while (h.stranger_count > 0) drop(&h, 0);
  if (h.listener >= 0) close(h.listener);
  treadle_free(h.polls);
  return status;
}

/* ---- A joiner ---- */

/* Connects to the hub as soon as there is one. */
static treadle_status reach_hub(const char *name, double deadline, int *socket_p) {
  treadle_status status = TREADLE_OK;
  struct sockaddr_un address;
  socklen_t length;
  TRY(make_address(name, &address, &length));
  for (long pause = 1000 * 1000;; pause = pause < 20 * 1000 * 1000 ? pause * 2 : pause) {
    int socket = open_socket();
    if (socket < 0) return treadle_fail(TREADLE_SYSTEM, "group '%s': no local socket: %s", name, strerror(errno));
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
    nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
  }
out:
  return status;
}

/* Waits for the control block, or for the hub's word why there will be none. */
static treadle_status hear_welcome(treadle_shm *shm, const char *name, double deadline) {
  treadle_status status = TREADLE_OK;
  message m;
  int descriptors[1], count = 0;
  TRY(treadle_shm_receive(shm->sockets[0], &m, sizeof m, descriptors, 1, &count, deadline, "rank 0"));
  if (count > 0) shm->control_descriptor = descriptors[0];
  if (is_message(&m, GO)) TRY(verdict(&m, GO, "rank 0"));
  TRY(verdict(&m, WELCOME, "rank 0"));
  if (count != 1 || m.bytes != shm->control_bytes)
    status = treadle_fail(TREADLE_PEER, "group '%s': rank 0 has another control block: is it another build?", name);
out:
  return status;
}

static treadle_status join(treadle_shm *shm, const char *name, int rank, double timeout_seconds) {
  treadle_status status = TREADLE_OK;
  double deadline = treadle_clock_seconds() + timeout_seconds;
  double last = deadline + GRACE; /* the hub, whose time began later, knows better what is missing */
  pid_t pid;
  uid_t uid;
  TRY(reach_hub(name, deadline, &shm->sockets[0]));
  TRY(treadle_shm_peer(shm->sockets[0], &pid, &uid));
  if (uid != geteuid())
    return treadle_fail(TREADLE_REFUSED, "group '%s': the name is held by a process of another user", name);
  message hello = make_message(HELLO, shm, rank, TREADLE_OK);
  TRY(treadle_shm_send(shm->sockets[0], &hello, sizeof hello, NULL, 0, last, "rank 0"));
  TRY(hear_welcome(shm, name, last));
  treadle_status mapped = treadle_shm_map_control(shm);
  message ready = make_message(READY, shm, rank, mapped), go;
  TRY(treadle_shm_send(shm->sockets[0], &ready, sizeof ready, NULL, 0, last, "rank 0"));
  TRY(treadle_shm_receive(shm->sockets[0], &go, sizeof go, NULL, 0, NULL, last, "rank 0"));
  TRY(verdict(&go, GO, "rank 0"));
out:
  return status;
}

treadle_status treadle_shm_meet(treadle_shm *shm, const char *name, int rank, int size,
                                double timeout_seconds) {
  shm->size = size;
  shm->control_bytes = treadle_control_bytes(size);
  return rank == 0 ? hub_meet(shm, name, timeout_seconds) : join(shm, name, rank, timeout_seconds);
}
