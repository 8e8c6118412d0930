/* The courier's two threads.
 *
 *   bell      sleeps on the node's `posted` (a futex, which cannot be polled), and wakes
 *   courier   polls the other nodes' sockets and the bell; all that it has is its alone
 *
 * What it sends goes into memory first and from there into sockets that never block. A node that takes nothing for so long that MOST_WAITING
 * bytes wait for it is gone. */
#include "group/courier.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/signals.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MOST_WAITING = 64 << 20, RECEIVED = 64 << 10 };
static const double BEAT = 50e-3, FLUSH = 1 /* seconds */;

typedef struct threads {
  pthread_t bell, courier;
  bool bell_runs, courier_runs;
  atomic_bool stop;
  int wake; /* an eventfd */
  struct pollfd *polls;
  pid_t process;
} threads;

/* ---- Sending ---- */

void treadle_courier_lose(treadle_courier *courier, int32_t node) {
  treadle_courier_peer *peer = &courier->peers[node];
  treadle_group *group = courier->group;
  if (peer->socket < 0) return;
  close(peer->socket);
  peer->socket = -1;
  treadle_mail_release(&peer->in);
  treadle_mail_release(&peer->out);
  for (int32_t i = group->nodes->first[node]; i < group->nodes->first[node + 1]; i++)
    atomic_store(&group->control->lines[group->nodes->list[i]].gone, 1);
  treadle_group_ring_all(group);
}

static bool is_cut(const treadle_courier *courier) {
  return atomic_load(&courier->group->control->cut) != 0;
}

static void flush(treadle_courier *courier, int32_t node) {
  treadle_courier_peer *peer = &courier->peers[node];
  if (is_cut(courier)) peer->out.begun = peer->out.count; /* it is lost */
  while (peer->socket >= 0 && peer->out.begun < peer->out.count) {
    ssize_t sent = send(peer->socket, peer->out.bytes + peer->out.begun, peer->out.count - peer->out.begun,
                        MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (sent <= 0) {
      treadle_courier_lose(courier, node);
      return;
    }
    peer->out.begun += (size_t)sent;
  }
  if (peer->out.begun == peer->out.count) peer->out.begun = peer->out.count = 0;
}

void treadle_courier_send(treadle_courier *courier, int32_t node, treadle_mail_head head,
                          const void *content, size_t bytes) {
  treadle_courier_peer *peer = &courier->peers[node];
  if (peer->socket < 0) return;
  head.node = courier->node;
  head.key = courier->key;
  if (peer->out.count - peer->out.begun > MOST_WAITING ||
      treadle_mail_add(&peer->out, head, content, bytes) != TREADLE_OK) {
    treadle_courier_lose(courier, node);
    return;
  }
  peer->sent = treadle_clock_seconds();
  flush(courier, node);
}

void treadle_courier_send_all(treadle_courier *courier, treadle_mail_head head, const void *content,
                              size_t bytes) {
  for (int32_t node = 0; node < courier->group->nodes->count; node++)
    if (node != courier->node) treadle_courier_send(courier, node, head, content, bytes);
}

/* ---- Receiving ---- */

bool treadle_courier_take(treadle_courier *courier, int32_t node, const treadle_mail_head *head,
                          const char *content) {
  treadle_courier_peer *peer = &courier->peers[node];
  if (head->node != node || head->epoch >> TREADLE_EPOCH_BITS) return false;
  if (head->type == TREADLE_MAIL_LINE) return treadle_courier_take_line(courier, head, content);
  if (head->type == TREADLE_MAIL_FAIL && (head->rank < 0 || head->rank >= courier->group->size))
    return false;
  if (head->type == TREADLE_MAIL_BYE) peer->said_bye = true;
  treadle_courier_hear(courier, head, content);
  return true;
}

static void receive(treadle_courier *courier, int32_t node) {
  treadle_courier_peer *peer = &courier->peers[node];
  while (peer->socket >= 0) {
    char *room = treadle_mail_room(&peer->in, RECEIVED);
    ssize_t got = room ? recv(peer->socket, room, RECEIVED, MSG_DONTWAIT) : 0;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got <= 0) {
      treadle_courier_lose(courier, node);
      return;
    }
    if (is_cut(courier)) continue;
    peer->in.count += (size_t)got;
    peer->heard = treadle_clock_seconds();
    for (bool whole = true; whole && peer->socket >= 0;) {
      treadle_mail_head head;
      const char *content = NULL;
      if (treadle_mail_next(&peer->in, courier->key, &whole, &head, &content) != TREADLE_OK ||
          (whole && !treadle_courier_take(courier, node, &head, content)))
        treadle_courier_lose(courier, node);
    }
  }
}

/* ---- Beats ---- */

static void keep_time(treadle_courier *courier) {
  double now = treadle_clock_seconds();
  double limit = (double)atomic_load(&courier->group->control->limit_ms) / 1e3;
  for (int32_t node = 0; node < courier->group->nodes->count; node++) {
    treadle_courier_peer *peer = &courier->peers[node];
    if (peer->socket < 0) continue;
    if (now - peer->sent >= BEAT)
      treadle_courier_send(courier, node, (treadle_mail_head){.type = TREADLE_MAIL_BEAT}, NULL, 0);
    if (now - peer->heard > limit) receive(courier, node); /* it may be this thread that was stopped */
    if (now - peer->heard > limit) treadle_courier_lose(courier, node);
  }
}

/* ---- The threads ---- */

static void *ring_bell(void *of) {
  treadle_courier *courier = of;
  threads *t = courier->threads;
  _Atomic uint32_t *posted = &courier->group->control->posted;
  uint32_t seen = 0;
  const struct timespec limit = {.tv_nsec = (long)(BEAT * 1e9)};
  while (!atomic_load(&t->stop)) {
    uint32_t now = atomic_load(posted);
    if (now != seen) {
      seen = now;
      ssize_t written = write(t->wake, &(uint64_t){1}, sizeof(uint64_t));
      (void)written; /* a counter that is full wakes, too */
    } else {
      syscall(SYS_futex, posted, FUTEX_WAIT, seen, &limit, NULL, 0);
    }
  }
  return NULL;
}

static void poll_all(treadle_courier *courier, double seconds) {
  threads *t = courier->threads;
  int32_t nodes = courier->group->nodes->count;
  uint64_t count;
  t->polls[nodes] = (struct pollfd){.fd = t->wake, .events = POLLIN};
  for (int32_t node = 0; node < nodes; node++) {
    const treadle_courier_peer *peer = &courier->peers[node];
    bool waits = peer->out.begun < peer->out.count;
    t->polls[node] = (struct pollfd){.fd = peer->socket, .events = (short)(POLLIN | (waits ? POLLOUT : 0))};
  }
  if (poll(t->polls, (nfds_t)nodes + 1, (int)(seconds * 1e3)) <= 0) return;
  if (t->polls[nodes].revents && read(t->wake, &count, sizeof count) < 0) count = 0;
  for (int32_t node = 0; node < nodes; node++) {
    short events = t->polls[node].revents;
    if (events & POLLOUT) flush(courier, node);
    if (events & (POLLIN | POLLHUP | POLLERR)) receive(courier, node);
  }
}

/* What this node's ranks have said last, and bye; as long as somebody takes it. */
static void say_bye(treadle_courier *courier) {
  double end = treadle_clock_seconds() + FLUSH;
  treadle_courier_post(courier);
  treadle_courier_send_all(courier, (treadle_mail_head){.type = TREADLE_MAIL_BYE}, NULL, 0);
  for (bool more = true; more && treadle_clock_seconds() < end;) {
    more = false;
    for (int32_t node = 0; node < courier->group->nodes->count; node++) {
      const treadle_courier_peer *peer = &courier->peers[node];
      more = more || (peer->socket >= 0 && peer->out.begun < peer->out.count);
    }
    if (more) poll_all(courier, 10e-3);
  }
}

static void *carry(void *of) {
  treadle_courier *courier = of;
  threads *t = courier->threads;
  while (!atomic_load(&t->stop)) {
    poll_all(courier, BEAT);
    treadle_courier_post(courier);
    treadle_courier_vote(courier);
    keep_time(courier);
  }
  say_bye(courier);
  return NULL;
}

/* ---- Its life ---- */

static void release(treadle_courier *courier) {
  threads *t = courier->threads;
  for (int32_t node = 0; courier->peers && node < courier->group->nodes->count; node++) {
    treadle_courier_peer *peer = &courier->peers[node];
    if (peer->socket >= 0) close(peer->socket);
    treadle_mail_release(&peer->in);
    treadle_mail_release(&peer->out);
  }
  if (t && t->wake >= 0) close(t->wake);
  if (t) treadle_free(t->polls);
  treadle_free(t);
  treadle_free(courier->peers);
  treadle_free(courier->sent);
  treadle_free(courier->bells);
  treadle_free(courier);
}

static treadle_status launch(treadle_courier *courier) {
  threads *t = courier->threads;
  sigset_t before;
  treadle_signals_block(&before);
  int error = pthread_create(&t->courier, NULL, carry, courier);
  t->courier_runs = error == 0;
  if (error == 0) error = pthread_create(&t->bell, NULL, ring_bell, courier);
  t->bell_runs = error == 0 && t->courier_runs;
  treadle_signals_restore(&before);
  if (error != 0)
    return treadle_fail(TREADLE_SYSTEM, "group: no thread for its courier: %s", strerror(error));
  return TREADLE_OK;
}

static treadle_status make(treadle_group *group, treadle_courier **courier_p) {
  size_t nodes = (size_t)group->nodes->count, ranks = (size_t)group->size;
  treadle_courier *courier = treadle_alloc(sizeof *courier);
  *courier_p = courier;
  if (!courier) goto no_memory;
  *courier = (treadle_courier){.group = group, .node = group->nodes->of[group->rank]};
  courier->peers = treadle_alloc_array(nodes, sizeof *courier->peers);
  courier->sent = treadle_alloc_array(ranks, sizeof *courier->sent);
  courier->bells = treadle_alloc_array(ranks, sizeof *courier->bells);
  threads *t = courier->threads = treadle_alloc(sizeof *t);
  if (t) *t = (threads){.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .process = getpid()};
  if (t) t->polls = treadle_alloc_array(nodes + 1, sizeof *t->polls);
  if (!courier->peers || !courier->sent || !courier->bells || !t || !t->polls) goto no_memory;
  if (t->wake < 0)
    return treadle_fail(TREADLE_SYSTEM, "group: no event for its courier: %s", strerror(errno));
  return TREADLE_OK;
no_memory:
  return treadle_fail(TREADLE_NO_MEMORY, "group: memory is out");
}

treadle_status treadle_courier_start(treadle_group *group, treadle_group *near, uint64_t key,
                                     const int *sockets, treadle_courier **courier_p) {
  treadle_status status = TREADLE_OK;
  treadle_courier *courier = NULL;
  *courier_p = NULL;
  TRY(make(group, &courier));
  courier->near = near;
  courier->key = key;
  for (int32_t node = 0; node < group->nodes->count; node++)
    courier->peers[node] = (treadle_courier_peer){
        .socket = sockets[node], .heard = treadle_clock_seconds(), .sent = treadle_clock_seconds()};
  for (int rank = 0; rank < group->size; rank++)
    courier->bells[rank] = atomic_load(&group->control->lines[rank].bell) - 1; /* all are new */
  atomic_store(&group->control->courier, 1);
  TRY(launch(courier));
  *courier_p = courier;
out:
  if (status != TREADLE_OK) {
    if (courier && courier->threads && ((threads *)courier->threads)->courier_runs) {
      treadle_courier_stop(courier);
    } else {
      for (int32_t node = 0; node < group->nodes->count; node++)
        if (sockets[node] >= 0) close(sockets[node]);
      if (courier && courier->peers)
        for (int32_t node = 0; node < group->nodes->count; node++) courier->peers[node].socket = -1;
      if (courier) release(courier);
    }
  }
  return status;
}

void treadle_courier_stop(treadle_courier *courier) {
  if (!courier) return;
  threads *t = courier->threads;
  if (t->process == getpid()) { /* a child made by fork has no threads */
    atomic_store(&t->stop, true);
    if (t->bell_runs) pthread_join(t->bell, NULL);
    ssize_t written = write(t->wake, &(uint64_t){1}, sizeof(uint64_t));
    (void)written;
    if (t->courier_runs) pthread_join(t->courier, NULL);
  }
  release(courier);
}
