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
  if (peer->wire.socket < 0) return;
  treadle_wire_close(&peer->wire, false);
  for (int32_t i = group->nodes->first[node]; i < group->nodes->first[node + 1]; i++)
    atomic_store(&group->control->lines[group->nodes->list[i]].gone, 1);
  treadle_group_ring_all(group);
}

static bool is_cut(const treadle_courier *courier) {
  return atomic_load(&courier->group->control->cut) != 0;
}

static void flush(treadle_courier *courier, int32_t node) {
  treadle_wire *wire = &courier->peers[node].wire;
  if (is_cut(courier)) treadle_wire_buffer_drop(&wire->out, treadle_wire_waiting(wire)); /* it is lost */
  if (wire->socket < 0 || treadle_wire_send(wire) == TREADLE_OK) return;
  treadle_wire_buffer_drop(&wire->out, treadle_wire_waiting(wire));
  courier->peers[node].deaf = true;
}

void treadle_courier_send(treadle_courier *courier, int32_t node, treadle_mail_head head,
                          const void *content, size_t bytes) {
  treadle_courier_peer *peer = &courier->peers[node];
  const treadle_frame_rule rule = treadle_mail_rule(courier->key);
  if (peer->wire.socket < 0 || peer->deaf) return;
  head.node = courier->node;
  if (treadle_wire_waiting(&peer->wire) > MOST_WAITING ||
      treadle_wire_say(&peer->wire, &rule, &head, content, bytes) != TREADLE_OK) {
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
  if (head->frame.type == TREADLE_MAIL_LINE) return treadle_courier_take_line(courier, head, content);
  if (head->frame.type == TREADLE_MAIL_FAIL && (head->rank < 0 || head->rank >= courier->group->size))
    return false;
  if (head->frame.type == TREADLE_MAIL_BYE) peer->said_bye = true;
  treadle_courier_hear(courier, head, content);
  return true;
}

/* Everything that has come from it. */
static void take_all(treadle_courier *courier, int32_t node) {
  treadle_wire *wire = &courier->peers[node].wire;
  const treadle_frame_rule rule = treadle_mail_rule(courier->key);
  for (size_t lacks = 0; lacks == 0 && wire->socket >= 0;) {
    treadle_mail_head head;
    const char *content;
    if (treadle_wire_take(wire, &rule, &head, &content, &lacks) != TREADLE_OK ||
        (lacks == 0 && !treadle_courier_take(courier, node, &head, content)))
      treadle_courier_lose(courier, node);
  }
}

static void receive(treadle_courier *courier, int32_t node) {
  treadle_courier_peer *peer = &courier->peers[node];
  for (size_t got = 1; got > 0 && peer->wire.socket >= 0;) {
    if (treadle_wire_read(&peer->wire, NULL, 0, RECEIVED, &got) != TREADLE_OK) {
      treadle_courier_lose(courier, node);
    } else if (is_cut(courier)) {
      treadle_wire_buffer_drop(&peer->wire.in, treadle_wire_buffer_used(&peer->wire.in));
    } else if (got > 0) {
      peer->heard = treadle_clock_seconds();
      take_all(courier, node);
    }
  }
}

/* ---- Beats ---- */

static void keep_time(treadle_courier *courier) {
  double now = treadle_clock_seconds();
  double limit = (double)atomic_load(&courier->group->control->limit_ms) / 1e3;
  for (int32_t node = 0; node < courier->group->nodes->count; node++) {
    treadle_courier_peer *peer = &courier->peers[node];
    if (peer->wire.socket < 0) continue;
    if (now - peer->sent >= BEAT)
      treadle_courier_send(courier, node, (treadle_mail_head){.frame.type = TREADLE_MAIL_BEAT}, NULL, 0);
    if (now - peer->heard > limit) receive(courier, node); /* it may be this thread that was stopped */
    if (now - peer->heard > limit) treadle_courier_lose(courier, node);
  }
}

/* Nodes that take nothing any more are gone once what they have said last is heard: a rank that leaves a barrier may close the group before
 * others have what it said in it. Not where the sending fails: that may be in the middle of what a node says. */
static void lose_deaf(treadle_courier *courier) {
  for (int32_t node = 0; node < courier->group->nodes->count; node++) {
    if (!courier->peers[node].deaf) continue;
    receive(courier, node);
    treadle_courier_lose(courier, node);
  }
}

void treadle_courier_turn(treadle_courier *courier) {
  treadle_courier_post(courier);
  treadle_courier_vote(courier);
  keep_time(courier);
  lose_deaf(courier);
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
    const treadle_wire *wire = &courier->peers[node].wire;
    t->polls[node] = (struct pollfd){.fd = wire->socket, .events = treadle_wire_events(wire)};
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
  treadle_courier_send_all(courier, (treadle_mail_head){.frame.type = TREADLE_MAIL_BYE}, NULL, 0);
  for (bool more = true; more && treadle_clock_seconds() < end;) {
    more = false;
    for (int32_t node = 0; node < courier->group->nodes->count; node++) {
      const treadle_wire *wire = &courier->peers[node].wire;
      more = more || (wire->socket >= 0 && treadle_wire_waiting(wire));
    }
    if (more) poll_all(courier, 10e-3);
  }
}

static void *carry(void *of) {
  treadle_courier *courier = of;
  threads *t = courier->threads;
  while (!atomic_load(&t->stop)) {
    poll_all(courier, BEAT);
    treadle_courier_turn(courier);
  }
  say_bye(courier);
  return NULL;
}

/* ---- Its life ---- */

static void release(treadle_courier *courier) {
  threads *t = courier->threads;
  for (int32_t node = 0; courier->peers && node < courier->group->nodes->count; node++)
    treadle_wire_close(&courier->peers[node].wire, false);
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
    courier->peers[node] = (treadle_courier_peer){.wire = treadle_wire_on(sockets[node]),
                                                  .heard = treadle_clock_seconds(),
                                                  .sent = treadle_clock_seconds()};
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
      for (int32_t node = 0; node < group->nodes->count; node++) {
        if (sockets[node] >= 0) close(sockets[node]);
        if (courier && courier->peers) courier->peers[node].wire.socket = -1;
      }
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
