/* The thread of a store's rank 0: takes the others in, and answers them.
 *
 * Who connects is a guest until it has said hello. Guests that say nothing whole within SILENCE, or something that is not a message of this job, are
 * dropped; their number is limited, and one more takes the place of the oldest, once what all have said is read. So they hold up nobody:
 * a rank that lost its place to them connects again (store_client.c). A guest that is refused hears why. The last one that was dropped is named when ranks are missing
 * in the end. */
#include "meet/store_server.h"

#include "base/clock.h"
#include "base/text.h"
#include "wire/connect.h"
#include "wire/wait.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static const double SILENCE = 2, REST = 0.1; /* seconds */
static const double EARLY = 0.05;            /* before the time of the most hurried rank is over */

/* ---- Guests ---- */

static void drop(treadle_store_server *s, int position) {
  treadle_wire_close(&s->guests[position].stream.wire, true);
  s->guest_count--;
  memmove(&s->guests[position], &s->guests[position + 1],
          (size_t)(s->guest_count - position) * sizeof *s->guests);
}

/* What one of them did, in words that follow its address. */
static void note(treadle_store_server *s, int position, const char *words) {
  char host[TREADLE_WIRE_HOST];
  treadle_wire_name(s->guests[position].stream.wire.socket, true, host, NULL);
  snprintf(s->note, sizeof s->note, "; a process at %s %.300s", host, words);
}

/* A message, with a value that is shared or with a text. Who cannot be told anything, because memory is out, shall see that it is over. */
static void say(treadle_store_stream *stream, treadle_store_message head, treadle_wire_bytes *value,
                const char *text) {
  const treadle_frame_rule rule = treadle_store_rule(stream->job, 0);
  treadle_status status = value ? treadle_wire_say_shared(&stream->wire, &rule, &head, value)
                                : treadle_wire_say(&stream->wire, &rule, &head, text, strlen(text));
  if (status != TREADLE_OK) treadle_wire_finish(&stream->wire);
  (void)treadle_wire_send(&stream->wire);
}

/* Why there is no store for it, or no more. */
static void refuse(treadle_store_stream *stream, treadle_status status, const char *text) {
  say(stream, (treadle_store_message){.frame.type = TREADLE_STORE_REFUSAL, .status = status}, NULL, text);
}

/* Why this hello is refused; in words about its sender. */
static treadle_status check_hello(const treadle_store_server *s, const treadle_store_message *hello) {
  if (hello->frame.type != TREADLE_STORE_HELLO) REFUSE("did not say hello first");
  if (hello->ranks != s->ranks)
    REFUSE("wants a store of %s; rank 0 has one of %d", treadle_text_of_count(hello->ranks, "rank"),
           s->ranks);
  if (hello->rank < 1 || hello->rank >= s->ranks)
    REFUSE("wants to be rank %d of %d%s", hello->rank, s->ranks,
           hello->rank == 0 ? ", as this one is" : "");
  if (s->members[hello->rank].came)
    REFUSE("wants to be rank %d, which another process is already", hello->rank);
  return TREADLE_OK;
}

static void welcome(treadle_store_server *s) {
  s->state = TREADLE_STORE_OPEN;
  for (int rank = 1; rank < s->ranks; rank++)
    say(&s->members[rank].stream, (treadle_store_message){.frame.type = TREADLE_STORE_WELCOME}, NULL, "");
  pthread_cond_broadcast(&s->changed);
}

/* A rank has come, which has `left` seconds: the word on the meeting has to be with it by then. */
static void join(treadle_store_server *s, int position, double now) {
  treadle_store_stream *stream = &s->guests[position].stream;
  treadle_store_member *member = &s->members[stream->in.rank];
  double left = stream->in.seconds, soon = now + left - (left / 10 < EARLY ? left / 10 : EARLY);
  if (soon < s->deadline) s->deadline = soon;
  member->stream = *stream;
  member->came = true;
  member->poll = -1; /* not yet */
  *stream = (treadle_store_stream){.wire.socket = -1};
  drop(s, position);
  if (++s->came == s->ranks - 1 && s->state == TREADLE_STORE_MEETING) welcome(s);
}

/* A guest that speaks as ranks do hears why it cannot stay. */
static void dismiss(treadle_store_server *s, int position, treadle_status status, const char *why) {
  treadle_store_guest *guest = &s->guests[position];
  refuse(&guest->stream, status, why);
  treadle_wire_finish(&guest->stream.wire);
  guest->refused = true;
}

static void hear_guest(treadle_store_server *s, int position, double now) {
  treadle_store_guest *guest = &s->guests[position];
  char text[TREADLE_STORE_TEXT];
  bool whole;
  if (guest->refused) {
    if (treadle_wire_waste(&guest->stream.wire) != TREADLE_OK) drop(s, position);
    return;
  }
  treadle_status status = treadle_store_hear(&guest->stream, 0, &whole);
  if (status == TREADLE_OK && !whole) return;
  if (status == TREADLE_OK) status = check_hello(s, &guest->stream.in);
  if (status == TREADLE_OK && s->state == TREADLE_STORE_FAILED) {
    dismiss(s, position, s->status, s->why);
    return;
  }
  if (status == TREADLE_OK) {
    join(s, position, now);
    return;
  }
  if (status == TREADLE_PEER &&
      treadle_wire_buffer_used(&guest->stream.wire.in) > 0) /* not who only looks */
    note(s, position, "has left or died");
  if (status == TREADLE_REFUSED) note(s, position, treadle_error_message());
  if (status != TREADLE_REFUSED || guest->stream.in.frame.magic != TREADLE_STORE_MAGIC) {
    drop(s, position);
    return;
  }
  snprintf(text, sizeof text, "%s: refused: this process %.300s", s->what, treadle_error_message());
  dismiss(s, position, TREADLE_REFUSED, text);
}

/* Nobody goes whose hello is here. */
static void hear_guests(treadle_store_server *s, double now) {
  for (int i = s->guest_count - 1; i >= 0; i--)
    hear_guest(s, i, now); /* from the end: dropping moves those behind */
}

/* The first word on a connection. A socket that is new has room for it. */
static bool challenge(const treadle_store_server *s, treadle_store_stream *stream) {
  treadle_store_message head = {.frame.type = TREADLE_STORE_CHALLENGE};
  if (getrandom(&head.challenge, sizeof head.challenge, 0) != (ssize_t)sizeof head.challenge) return false;
  say(stream, head, NULL, "");
  stream->job = treadle_store_mix(s->job, head.challenge);
  return !stream->wire.error && !treadle_wire_waiting(&stream->wire);
}

static void take_in(treadle_store_server *s, double now) {
  int socket = treadle_wire_accept(s->listener);
  if (socket < 0) {
    bool out = treadle_wire_is_out(errno);
    if (out) snprintf(s->note, sizeof s->note, "; somebody was not taken in: %s", strerror(errno));
    if (out) hear_guests(s, now);
    if (out && s->guest_count > 0)
      drop(s, 0);
    else if (out)
      s->rests = now + REST;
    return;
  }
  if (s->guest_count == TREADLE_STORE_GUESTS) hear_guests(s, now);
  if (s->guest_count == TREADLE_STORE_GUESTS) {
    note(s, 0, "was dropped for one that came later");
    drop(s, 0);
  }
  treadle_store_guest *guest = &s->guests[s->guest_count++];
  *guest = (treadle_store_guest){.stream.wire = treadle_wire_on(socket), .until = now + SILENCE};
  if (!challenge(s, &guest->stream)) drop(s, s->guest_count - 1);
}

/* ---- Ranks ---- */

/* The value, or a status and a text. */
static void answer(treadle_store_member *member, treadle_status status, treadle_wire_bytes *value,
                   const char *text) {
  member->asks = false;
  say(&member->stream,
      (treadle_store_message){
          .frame.type = TREADLE_STORE_ANSWER, .number = member->number, .status = status},
      value, text);
}

void treadle_store_server_answer(treadle_store_server *s) {
  for (int rank = 1; rank < s->ranks; rank++) {
    treadle_store_member *member = &s->members[rank];
    treadle_wire_bytes *value = member->asks ? treadle_store_map_get(&s->map, member->key) : NULL;
    if (value) answer(member, TREADLE_OK, value, NULL);
  }
}

static void obey(treadle_store_server *s, treadle_store_member *member, double now) {
  const treadle_store_message *m = &member->stream.in;
  const char *key = member->stream.content, *value = key + m->key_bytes;
  treadle_status status = TREADLE_OK;
  memcpy(member->key, key, m->key_bytes);
  member->key[m->key_bytes] = 0;
  member->number = m->number;
  member->asks = m->frame.type == TREADLE_STORE_GET;
  member->until = now + m->seconds;
  if (m->frame.type == TREADLE_STORE_SET)
    status = treadle_store_map_set(&s->map, member->key, value, (size_t)m->frame.bytes - m->key_bytes);
  else if (m->frame.type != TREADLE_STORE_GET)
    status = treadle_fail(TREADLE_REFUSED, "a message of type %d is not a request", (int)m->frame.type);
  treadle_wire_buffer_release(&member->stream.wire.in); /* there may be many ranks, and long values */
  if (!member->asks) answer(member, status, NULL, status == TREADLE_OK ? "" : treadle_error_message());
  treadle_store_server_answer(s);
  pthread_cond_broadcast(&s->changed);
}

static void lose(treadle_store_server *s, int rank) {
  char why[TREADLE_STORE_TEXT];
  treadle_store_member *member = &s->members[rank];
  treadle_wire_close(&member->stream.wire, true);
  member->gone = true;
  member->asks = false;
  s->gone++;
  if (s->state == TREADLE_STORE_MEETING) {
    snprintf(why, sizeof why, "%s: rank %d came, then left or died", s->what, rank);
    treadle_store_server_fail(s, TREADLE_PEER, why);
  }
  pthread_cond_broadcast(&s->changed);
}

static void hear_member(treadle_store_server *s, int rank, short events, double now) {
  treadle_store_member *member = &s->members[rank];
  treadle_wire *wire = &member->stream.wire;
  treadle_status status = treadle_wire_send(wire);
  bool whole = false;
  if (status == TREADLE_OK && !treadle_wire_waiting(wire) && (events & (POLLIN | POLLHUP | POLLERR)))
    status = treadle_store_hear(&member->stream, TREADLE_STORE_KEY + TREADLE_STORE_VALUE, &whole);
  else if (status == TREADLE_OK && (events & (POLLHUP | POLLERR)))
    status = TREADLE_PEER;
  if (status == TREADLE_OK && whole) obey(s, member, now);
  if (status != TREADLE_OK) lose(s, rank);
}

/* ---- The meeting ---- */

void treadle_store_server_fail(treadle_store_server *s, treadle_status status, const char *why) {
  s->state = TREADLE_STORE_FAILED;
  s->status = status;
  snprintf(s->why, sizeof s->why, "%s", why);
  for (int rank = 1; rank < s->ranks; rank++)
    if (s->members[rank].came && !s->members[rank].gone) refuse(&s->members[rank].stream, status, why);
  pthread_cond_broadcast(&s->changed);
}

static void miss(treadle_store_server *s) {
  char why[TREADLE_STORE_TEXT];
  treadle_builder ranks = {0};
  for (int rank = 1; rank < s->ranks; rank++)
    if (!s->members[rank].came) treadle_builder_add(&ranks, "%s%d", ranks.length ? ", " : "", rank);
  snprintf(why, sizeof why, "%s: rank %.200s did not come in time%.300s", s->what,
           ranks.text ? ranks.text : "?", s->note);
  treadle_builder_release(&ranks);
  treadle_store_server_fail(s, TREADLE_TIMEOUT, why);
}

/* ---- The thread ---- */

static int add_poll(treadle_store_server *s, int descriptor, short events) {
  s->polls[s->poll_count] = (struct pollfd){.fd = descriptor, .events = events};
  return s->poll_count++;
}

/* Fills the polls: wake, listener, guests, ranks. Returns when it has to wake up anyway. */
static double prepare(treadle_store_server *s, double now) {
  double until = s->state == TREADLE_STORE_MEETING ? s->deadline : now + 3600;
  bool rests = now < s->rests;
  s->poll_count = 0;
  add_poll(s, s->wake, POLLIN);
  add_poll(s, s->listener, rests ? 0 : POLLIN);
  if (rests && s->rests < until) until = s->rests;
  for (int i = 0; i < s->guest_count; i++) {
    s->guests[i].poll = add_poll(s, s->guests[i].stream.wire.socket, POLLIN);
    if (s->guests[i].until < until) until = s->guests[i].until;
  }
  for (int rank = 1; rank < s->ranks; rank++) {
    treadle_store_member *m = &s->members[rank];
    const treadle_wire *wire = &m->stream.wire;
    m->poll =
        m->came && !m->gone ? add_poll(s, wire->socket, treadle_wire_waiting(wire) ? POLLOUT : POLLIN) : -1;
    if (m->asks && m->until < until) until = m->until;
  }
  return until;
}

static short seen(const treadle_store_server *s, int poll) { return poll < 0 ? 0 : s->polls[poll].revents; }

/* Looks at all that poll() has seen, and at the time. */
static void step(treadle_store_server *s) {
  double now = treadle_clock_seconds();
  for (int i = s->guest_count - 1; i >= 0; i--) { /* from the end: dropping moves those behind */
    if (seen(s, s->guests[i].poll)) {
      hear_guest(s, i, now);
    } else if (now > s->guests[i].until) {
      if (!s->guests[i].refused) note(s, i, "connected and said nothing, or half a message");
      drop(s, i);
    }
  }
  for (int rank = 1; rank < s->ranks; rank++) {
    treadle_store_member *m = &s->members[rank];
    if (seen(s, m->poll)) hear_member(s, rank, seen(s, m->poll), now);
    if (m->asks && now >= m->until) answer(m, TREADLE_TIMEOUT, NULL, "nobody has set it in time");
  }
  if (seen(s, 1) & POLLIN) take_in(s, now);
  if (s->state == TREADLE_STORE_MEETING && now >= s->deadline) miss(s);
}

void *treadle_store_serve(void *server) {
  treadle_store_server *s = server;
  pthread_mutex_lock(&s->lock);
  while (!s->ends) {
    double now = treadle_clock_seconds(), until = prepare(s, now);
    pthread_mutex_unlock(&s->lock);
    int ready = poll(s->polls, (nfds_t)s->poll_count, treadle_wire_poll_ms(until - now));
    pthread_mutex_lock(&s->lock);
    for (int i = 0; ready < 0 && i < s->poll_count; i++) s->polls[i].revents = 0;
    if (s->polls[0].revents) {
      uint64_t count;
      ssize_t got = read(s->wake, &count, sizeof count);
      (void)got;
    }
    step(s);
  }
  pthread_mutex_unlock(&s->lock);
  return NULL;
}
