/* Rank 0 of a shared-memory group: takes the others in. The conversation is in shm_meet.c. */
#include "group/shm.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/text.h"
#include "base/thread_watch.h"
#include "wire/wait.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { STRANGERS = 64, SILENCE = 2 /* seconds */ };
static const double EARLY = 0.05; /* seconds before a joiner's time is over */

static const char *rank_name(int rank, char *room, size_t bytes) {
  snprintf(room, bytes, "rank %d", rank);
  return room;
}

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
  stranger strangers[STRANGERS]; /* the first is the oldest */
  struct pollfd *polls;
  char note[TREADLE_SHM_TEXT]; /* about the last stranger */
  double deadline;
} hub;

/* Its socket is closed, or is a rank's. */
static void take_out(hub *h, int position) {
  h->stranger_count--;
  memmove(&h->strangers[position], &h->strangers[position + 1],
          (size_t)(h->stranger_count - position) * sizeof *h->strangers);
}

static void drop(hub *h, int position) {
  close(h->strangers[position].socket);
  take_out(h, position);
}

static treadle_status hub_open(hub *h) {
  treadle_status status = TREADLE_OK;
  struct sockaddr_un address;
  socklen_t length;
  TRY(treadle_shm_address(h->name, &address, &length));
  h->listener = treadle_shm_socket();
  if (h->listener < 0 || bind(h->listener, (struct sockaddr *)&address, length) != 0 ||
      listen(h->listener, 128) != 0) {
    if (errno == EADDRINUSE)
      return treadle_fail(TREADLE_REFUSED, "group '%s': the name is in use on this machine", h->name);
    return treadle_fail(TREADLE_SYSTEM, "group '%s': no local socket: %s", h->name, strerror(errno));
  }
  h->shm->control_descriptor = memfd_create("treadle-control", MFD_CLOEXEC);
  if (h->shm->control_descriptor < 0 ||
      ftruncate(h->shm->control_descriptor, (off_t)h->shm->control_bytes) != 0 ||
      fallocate(h->shm->control_descriptor, 0, 0, (off_t)h->shm->control_bytes) !=
          0) /* else a touch is SIGBUS */
    return treadle_fail(TREADLE_SYSTEM, "group '%s': no control block: %s", h->name, strerror(errno));
  TRY(treadle_shm_map_control(h->shm));
out:
  return status;
}

/* Why this hello is refused; TREADLE_OK when it is not. */
static treadle_status check_hello(const hub *h, const treadle_shm_message *m, pid_t pid) {
  if (m->magic != TREADLE_SHM_MAGIC || m->type != TREADLE_SHM_HELLO)
    return treadle_fail(TREADLE_REFUSED, "process %d sent something that is not a message of treadle",
                        (int)pid);
  if (m->version != TREADLE_SHM_VERSION)
    return treadle_fail(TREADLE_REFUSED, "process %d speaks version %u, rank 0 version %d", (int)pid,
                        m->version, TREADLE_SHM_VERSION);
  if (m->size != h->shm->size)
    return treadle_fail(TREADLE_REFUSED, "process %d wants a group of %s, rank 0 one of %d", (int)pid,
                        treadle_text_of_count(m->size, "rank"), h->shm->size);
  if (m->rank < 1 || m->rank >= h->shm->size)
    return treadle_fail(TREADLE_REFUSED, "process %d wants to be rank %d of %d", (int)pid, m->rank,
                        h->shm->size);
  if (h->shm->sockets[m->rank] >= 0)
    return treadle_fail(TREADLE_REFUSED, "process %d wants to be rank %d, which process %d is already",
                        (int)pid, m->rank, (int)atomic_load(&h->shm->control->lines[m->rank].pid));
  if (m->pid != pid)
    return treadle_fail(TREADLE_REFUSED,
                        "rank %d calls itself process %d and is %d here: all ranks must be in one process "
                        "namespace (container)",
                        m->rank, m->pid, (int)pid);
  return TREADLE_OK;
}

/* A joiner has `left` seconds: the word on the meeting has to be with it by then. */
static void hurry(hub *h, double left) {
  double soon = treadle_clock_seconds() + left - (left / 10 < EARLY ? left / 10 : EARLY);
  if (soon < h->deadline) h->deadline = soon;
}

static treadle_status take_in(hub *h, int socket) {
  treadle_status status = TREADLE_OK;
  treadle_shm_message m;
  pid_t pid;
  uid_t uid;
  TRY(treadle_shm_receive(socket, &m, sizeof m, NULL, NULL, 0, "a process"));
  TRY(treadle_shm_peer(socket, &pid, &uid));
  TRY(check_hello(h, &m, pid));
  atomic_store(&h->shm->control->lines[m.rank].pid, pid);
  atomic_store(&h->shm->control->lines[m.rank].start_time, m.start_time);
  h->shm->sockets[m.rank] = socket;
  h->joined++;
  hurry(h, m.left);
out:
  return status;
}

/* A stranger speaks: it is taken in, or told why not and dropped. */
static void hub_hear(hub *h, int position) {
  int socket = h->strangers[position].socket;
  treadle_status status = take_in(h, socket);
  if (status == TREADLE_OK) {
    take_out(h, position);
    return;
  }
  snprintf(h->note, sizeof h->note, "; refused: %.300s", treadle_error_message());
  treadle_fail_in(status, "group '%s': ", h->name);
  treadle_shm_message refusal = treadle_shm_say(TREADLE_SHM_WELCOME, h->shm, 0, status);
  (void)treadle_shm_send(socket, &refusal, sizeof refusal, NULL, 0, 0, "a process");
  drop(h, position);
}

/* Nobody goes whose hello is here. */
static void hear_all(hub *h) {
  for (int i = h->stranger_count - 1; i >= 0; i--) { /* from the end: dropping moves those behind */
    struct pollfd one = {.fd = h->strangers[i].socket, .events = POLLIN};
    if (poll(&one, 1, 0) > 0) hub_hear(h, i);
  }
}

static void hub_accept(hub *h) {
  int socket = accept4(h->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  bool out = socket < 0 && (errno == EMFILE || errno == ENFILE);
  pid_t pid;
  uid_t uid;
  if (socket < 0 && !out) return;
  if (!out && (treadle_shm_peer(socket, &pid, &uid) != TREADLE_OK || uid != geteuid())) {
    snprintf(h->note, sizeof h->note, "; a process of another user knocked");
    close(socket);
    return;
  }
  if (out || h->stranger_count == STRANGERS) hear_all(h);
  if (h->stranger_count == STRANGERS || (out && h->stranger_count > 0)) drop(h, 0);
  if (!out) h->strangers[h->stranger_count++] = (stranger){socket, treadle_clock_seconds() + SILENCE};
}

static treadle_status say_missing(const hub *h) {
  treadle_builder ranks = {0};
  for (int rank = 1; rank < h->shm->size; rank++)
    if (h->shm->sockets[rank] < 0) treadle_builder_add(&ranks, "%s%d", ranks.length ? ", " : "", rank);
  treadle_status status = treadle_fail(TREADLE_TIMEOUT, "group '%s': rank %.200s did not join in time%s",
                                       h->name, ranks.text ? ranks.text : "?", h->note);
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
  double slice =
      treadle_thread_is_watched() ? TREADLE_ASK_EVERY : 0.1; /* strangers' silence is looked at */
  double left = h->deadline - now < slice ? h->deadline - now : slice;
  int ready = poll(h->polls, (nfds_t)count, treadle_wire_poll_ms(left));
  if (ready < 0 && errno != EINTR) return treadle_fail(TREADLE_SYSTEM, "poll: %s", strerror(errno));
  for (int i = h->stranger_count - 1; i >= 0; i--) { /* from the end: dropping moves those behind */
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
  treadle_shm_message m = treadle_shm_say(TREADLE_SHM_WELCOME, h->shm, 0, TREADLE_OK);
  char who[24];
  for (int rank = 1; rank < h->shm->size; rank++)
    TRY(treadle_shm_send(h->shm->sockets[rank], &m, sizeof m, &h->shm->control_descriptor, 1, h->deadline,
                         rank_name(rank, who, sizeof who)));
  for (int rank = 1; rank < h->shm->size; rank++) {
    treadle_shm_message ready;
    rank_name(rank, who, sizeof who);
    TRY(treadle_shm_receive(h->shm->sockets[rank], &ready, sizeof ready, NULL, NULL, h->deadline, who));
    TRY(treadle_shm_verdict(&ready, TREADLE_SHM_READY, who));
  }
out:
  if (status != TREADLE_OK) treadle_fail_in(status, "group '%s': ", h->name);
  return status;
}

/* To all who were taken in: go, or why not. That one does not hear it is not news. */
static void say_last_word(const treadle_shm *shm, treadle_status status) {
  treadle_shm_message last = treadle_shm_say(TREADLE_SHM_GO, shm, 0, status);
  for (int rank = 1; rank < shm->size; rank++)
    if (shm->sockets[rank] >= 0)
      (void)treadle_shm_send(shm->sockets[rank], &last, sizeof last, NULL, 0, 0, "a rank");
  if (status != TREADLE_OK) treadle_fail(status, "%s", last.text);
}

treadle_status treadle_shm_host(treadle_shm *shm, const char *name, double deadline) {
  treadle_status status = TREADLE_OK;
  hub h = {.shm = shm, .name = name, .listener = -1, .deadline = deadline};
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
    TRY(treadle_thread_ask("ranks that join"));
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
