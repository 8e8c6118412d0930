/* The thread. It alone reads; what it hands over is its caller's. The lock is not held while others are called. */
#include "control/endpoint.h"

#include "base/clock.h"
#include "base/signals.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const double BEATS = 8, SLOWEST = 5, FLUSH = 1; /* beats in a time limit; seconds */

static double beat_of(const treadle_endpoint *e) {
  const double beat = e->options.limit / BEATS;
  return beat < SLOWEST ? beat : SLOWEST;
}

/* ---- Who is lost ---- */

void treadle_endpoint_lose(treadle_endpoint *e, int rank, const char *why) {
  treadle_endpoint_peer *peer = &e->peers[rank];
  pthread_mutex_lock(&e->lock);
  const bool news = !peer->lost;
  const treadle_endpoint_letter *bye = peer->bye;
  peer->lost = true;
  treadle_wire_close(&peer->out, false);
  treadle_endpoint_forget(peer);
  pthread_mutex_unlock(&e->lock);
  treadle_wire_close(&peer->in, false);
  treadle_endpoint_drop(peer->letter);
  peer->letter = NULL;
  if (!news) return;
  treadle_endpoint_loss loss = {.left = bye != NULL, .why = bye ? "it has left" : why};
  char said[TREADLE_GROUP_MESSAGE];
  if (bye && bye->head.status) {
    snprintf(said, sizeof said, "%.*s", (int)bye->length, bye->bytes);
    loss.status = (treadle_status)bye->head.status;
    loss.why = said;
  }
  e->options.lost(e->options.context, rank, &loss);
}

/* ---- Guests ---- */

static void take_in(treadle_endpoint *e, int listener) {
  const int socket = treadle_wire_accept(listener);
  if (socket < 0) return;
  if (e->guest_count == TREADLE_ENDPOINT_GUESTS) treadle_endpoint_drop_guest(e, 0);
  e->guests[e->guest_count++] = treadle_wire_on(socket);
}

/* ---- Time ---- */

/* What is known of a rank's connections; a beat is sent where one is due. */
static treadle_endpoint_peer beat(treadle_endpoint *e, int rank, double now) {
  treadle_endpoint_peer *peer = &e->peers[rank];
  pthread_mutex_lock(&e->lock);
  const bool due = peer->out.socket >= 0 && !peer->left && now - peer->sent >= beat_of(e);
  if (due && !peer->first) {
    (void)treadle_endpoint_put(e, rank, (treadle_endpoint_head){.frame.type = TREADLE_ENDPOINT_BEAT}, NULL);
    peer->sent = now;
    treadle_endpoint_flush(e, rank);
  }
  const treadle_endpoint_peer known = *peer;
  pthread_mutex_unlock(&e->lock);
  return known;
}

static bool is_silent(const treadle_endpoint *e, int rank, const treadle_endpoint_peer *known, double now) {
  const double heard = e->peers[rank].heard;
  return now - (heard > known->connected ? heard : known->connected) > e->options.limit;
}

static void keep_time(treadle_endpoint *e) {
  const double now = treadle_clock_seconds();
  char why[80];
  e->breaks = false;
  for (int rank = 0; rank < e->group->size; rank++) {
    const treadle_endpoint_peer known = beat(e, rank, now);
    if (known.lost || (known.in.socket < 0 && known.out.socket < 0 && !known.broken)) continue;
    /* What it said last may still be on its way, by a connection that is not taken in yet, perhaps; but if it lives, and had no memory for what was said, it
     * goes on speaking. */
    if (known.broken && now - known.broke > FLUSH && !e->peers[rank].letter)
      treadle_endpoint_lose(e, rank, "it has closed the connection");
    e->breaks = e->breaks || (known.broken && !e->peers[rank].lost);
    if (!is_silent(e, rank, &known, now)) continue;
    treadle_endpoint_hear(e, rank); /* it may be this thread that was stopped */
    if (!is_silent(e, rank, &known, now)) continue;
    snprintf(why, sizeof why, "it was silent for %g seconds", e->options.limit);
    treadle_endpoint_lose(e, rank, why);
  }
}

/* ---- The thread ---- */

enum { OWN = 3 }; /* wake and listeners, before two of each rank and the guests */

static int list_polls(treadle_endpoint *e) {
  int count = 0;
  e->polls[count++] = (struct pollfd){.fd = e->wake, .events = POLLIN};
  for (int i = 0; i < 2; i++) e->polls[count++] = (struct pollfd){.fd = e->listeners[i], .events = POLLIN};
  pthread_mutex_lock(&e->lock);
  for (int rank = 0; rank < e->group->size; rank++) {
    const treadle_endpoint_peer *peer = &e->peers[rank];
    const short events = peer->out.socket >= 0 && peer->first ? POLLOUT : 0;
    e->polls[count++] = (struct pollfd){.fd = peer->in.socket, .events = POLLIN};
    e->polls[count++] = (struct pollfd){.fd = peer->out.socket, .events = events};
  }
  pthread_mutex_unlock(&e->lock);
  for (int i = 0; i < e->guest_count; i++)
    e->polls[count++] = (struct pollfd){.fd = e->guests[i].socket, .events = POLLIN};
  return count;
}

/* A connection to a rank that breaks, where nothing is read: what that rank says last comes by its own. */
static void look_out(treadle_endpoint *e, int rank, short events) {
  treadle_endpoint_peer *peer = &e->peers[rank];
  pthread_mutex_lock(&e->lock);
  if (events & POLLOUT) treadle_endpoint_flush(e, rank);
  if (peer->out.socket >= 0 && events & (POLLERR | POLLHUP)) {
    treadle_wire_close(&peer->out, false);
    treadle_endpoint_forget(peer);
    peer->broken = true;
    peer->broke = treadle_clock_seconds();
  }
  pthread_mutex_unlock(&e->lock);
}

static void turn(treadle_endpoint *e, double seconds) {
  const int ranks = e->group->size, guests = e->guest_count, count = list_polls(e);
  uint64_t rings;
  if (poll(e->polls, (nfds_t)count, (int)(seconds * 1e3) + 1) > 0) {
    if (e->polls[0].revents && read(e->wake, &rings, sizeof rings) < 0) rings = 0;
    for (int rank = 0; rank < ranks; rank++) {
      if (e->polls[OWN + 2 * rank].revents) treadle_endpoint_hear(e, rank);
      if (e->polls[OWN + 2 * rank + 1].revents) look_out(e, rank, e->polls[OWN + 2 * rank + 1].revents);
    }
    for (int i = guests - 1; i >= 0; i--) /* from the end: the last takes a dropped one's place */
      if (e->polls[OWN + 2 * ranks + i].revents) treadle_endpoint_hear_guest(e, i);
    for (int i = 0; i < 2; i++)
      if (e->listeners[i] >= 0 && e->polls[1 + i].revents) take_in(e, e->listeners[i]);
  }
  keep_time(e);
}

static bool has_unsent(treadle_endpoint *e) {
  bool unsent = false;
  pthread_mutex_lock(&e->lock);
  for (int rank = 0; rank < e->group->size; rank++)
    unsent = unsent || (e->peers[rank].out.socket >= 0 && e->peers[rank].first);
  pthread_mutex_unlock(&e->lock);
  return unsent;
}

static void *run(void *of) {
  treadle_endpoint *e = of;
  while (!atomic_load(&e->stop)) turn(e, e->breaks && beat_of(e) > FLUSH ? FLUSH : beat_of(e));
  for (double end = treadle_clock_seconds() + FLUSH; has_unsent(e) && treadle_clock_seconds() < end;)
    turn(e, 10e-3);
  return NULL;
}

treadle_status treadle_endpoint_start(treadle_endpoint *e) {
  sigset_t before;
  treadle_signals_block(&before);
  const int error = pthread_create(&e->thread, NULL, run, e);
  treadle_signals_restore(&before);
  e->runs = error == 0;
  if (error)
    return treadle_fail(TREADLE_SYSTEM, "no thread for the messages of this rank: %s", strerror(error));
  return TREADLE_OK;
}

void treadle_endpoint_stop(treadle_endpoint *e) {
  if (!e->runs || e->process != getpid()) return; /* a child made by fork has no threads */
  atomic_store(&e->stop, true);
  ssize_t written = write(e->wake, &(uint64_t){1}, sizeof(uint64_t));
  (void)written;
  pthread_join(e->thread, NULL);
  e->runs = false;
}
