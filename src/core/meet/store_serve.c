/* The thread of a store's rank 0: takes the others in, and answers them.
 *
 * Who connects is a guest until it has said hello. Guests that say nothing whole within SILENCE, or something that is not a message of this job, are
 * dropped; their number is limited, and one more takes the place of the oldest, once what all have said is read. So they hold up nobody:
 * a rank that lost its place to them connects again (store_client.c). A guest that is refused hears why. The last one that was dropped is named when ranks are missing
 * in the end. */
#include "meet/store_server.h"

#include "base/clock.h"
#include "base/text.h"
#include "group/shm.h" /* treadle_shm_poll_ms */

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

static const double SILENCE = 2, REST = 0.1; /* seconds */
static const double EARLY = 0.05;            /* before the time of the most hurried rank is over */

/* ---- Guests ---- */

static void drop(treadle_store_server *s, int position) {
  treadle_store_stream_end(&s->guests[position].stream, true);
  s->guest_count--;
  memmove(&s->guests[position], &s->guests[position + 1],
          (size_t)(s->guest_count - position) * sizeof *s->guests);
}

/* What one of them did, in words that follow its address. */
static void note(treadle_store_server *s, int position, const char *words) {
  char host[TREADLE_STORE_HOST];
  treadle_store_stream_name(s->guests[position].stream.socket, true, host);
  snprintf(s->note, sizeof s->note, "; a process at %s %.300s", host, words);
}

/* Sends a text of a status that is not OK. */
static void say(treadle_store_stream *stream, int type, uint32_t number, treadle_status status,
                const char *text) {
  size_t length = strlen(text);
  treadle_store_bytes *bytes = treadle_store_bytes_make(length);
  treadle_store_message head = treadle_store_say(type, stream->job);
  head.status = status;
  head.number = number;
  head.bytes = bytes ? length : 0;
  if (bytes) memcpy(bytes->data, text, length);
  treadle_store_stream_put(stream, &head, bytes);
  treadle_store_bytes_drop(bytes);
  (void)treadle_store_stream_send(stream);
}

/* Why this hello is refused; in words about its sender. */
static treadle_status check_hello(const treadle_store_server *s, const treadle_store_message *hello) {
  if (hello->type != TREADLE_STORE_HELLO) REFUSE("did not say hello first");
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
  for (int rank = 1; rank < s->ranks; rank++) {
    const treadle_store_message head =
        treadle_store_say(TREADLE_STORE_WELCOME, s->members[rank].stream.job);
    treadle_store_stream_put(&s->members[rank].stream, &head, NULL);
    (void)treadle_store_stream_send(&s->members[rank].stream);
  }
  pthread_cond_broadcast(&s->changed);
}

/* A rank has come, which has `left` seconds: the word on the meeting has to be with it by then. */
static void join(treadle_store_server *s, int position, double now) {
  treadle_store_stream *stream = &s->guests[position].stream;
  treadle_store_member *member = &s->members[stream->in.rank];
  double left = stream->in.seconds, soon = now + left - (left / 10 < EARLY ? left / 10 : EARLY);
  if (soon < s->deadline) s->deadline = soon;
  treadle_store_stream_next(stream);
  member->stream = *stream;
  member->came = true;
  member->poll = -1; /* not yet */
  *stream = (treadle_store_stream){.socket = -1};
  drop(s, position);
  if (++s->came == s->ranks - 1 && s->state == TREADLE_STORE_MEETING) welcome(s);
}

/* A guest that speaks as ranks do hears why it cannot stay. */
static void dismiss(treadle_store_server *s, int position, treadle_status status, const char *why) {
  treadle_store_guest *guest = &s->guests[position];
  say(&guest->stream, TREADLE_STORE_REFUSAL, 0, status, why);
  shutdown(guest->stream.socket, SHUT_WR);
  guest->refused = true;
}

static void hear_guest(treadle_store_server *s, int position, double now) {
  treadle_store_guest *guest = &s->guests[position];
  const treadle_store_limit limit = {.job = guest->stream.job};
  char waste[512], text[TREADLE_STORE_TEXT];
  bool whole;
  if (guest->refused) {
    ssize_t got = recv(guest->stream.socket, waste, sizeof waste, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) drop(s, position);
    return;
  }
  treadle_status status = treadle_store_stream_receive(&guest->stream, &limit, &whole);
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
  if (guest->stream.in_used > 0) note(s, position, treadle_error_message()); /* not who only looks */
  if (status != TREADLE_REFUSED || guest->stream.in.magic != TREADLE_STORE_MAGIC) {
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
  uint64_t number;
  if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number) return false;
  const treadle_store_message head = treadle_store_say(TREADLE_STORE_CHALLENGE, number);
  treadle_store_stream_put(stream, &head, NULL);
  stream->job = treadle_store_mix(s->job, number);
  return treadle_store_stream_send(stream) == TREADLE_OK && !stream->sends;
}

static void take_in(treadle_store_server *s, double now) {
  int socket = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (socket < 0) {
    bool out = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
    if (out) snprintf(s->note, sizeof s->note, "; somebody was not taken in: %s", strerror(errno));
    if (out) hear_guests(s, now);
    if (out && s->guest_count > 0)
      drop(s, 0);
    else if (out)
      s->rests = now + REST;
    return;
  }
  (void)setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
  if (s->guest_count == TREADLE_STORE_GUESTS) hear_guests(s, now);
  if (s->guest_count == TREADLE_STORE_GUESTS) {
    note(s, 0, "was dropped for one that came later");
    drop(s, 0);
  }
  treadle_store_guest *guest = &s->guests[s->guest_count++];
  *guest = (treadle_store_guest){.until = now + SILENCE};
  treadle_store_stream_start(&guest->stream, socket);
  if (!challenge(s, &guest->stream)) drop(s, s->guest_count - 1);
}

/* ---- Ranks ---- */

static void answer(treadle_store_member *member, treadle_store_bytes *value) {
  treadle_store_message head = treadle_store_say(TREADLE_STORE_ANSWER, member->stream.job);
  head.number = member->number;
  head.bytes = value->bytes;
  member->asks = false;
  treadle_store_stream_put(&member->stream, &head, value);
  (void)treadle_store_stream_send(&member->stream);
}

void treadle_store_server_answer(treadle_store_server *s) {
  for (int rank = 1; rank < s->ranks; rank++) {
    treadle_store_member *member = &s->members[rank];
    treadle_store_bytes *value = member->asks ? treadle_store_map_get(&s->map, member->key) : NULL;
    if (value) answer(member, value);
  }
}

static void obey(treadle_store_server *s, treadle_store_member *member, double now) {
  const treadle_store_message *m = &member->stream.in;
  const char *behind = m->key_bytes ? member->stream.in_behind->data : "";
  treadle_status status = TREADLE_OK;
  memcpy(member->key, behind, m->key_bytes);
  member->key[m->key_bytes] = 0;
  member->number = m->number;
  member->asks = m->type == TREADLE_STORE_GET;
  member->until = now + m->seconds;
  if (m->type == TREADLE_STORE_SET)
    status = treadle_store_map_set(&s->map, member->key, behind + m->key_bytes, (size_t)m->bytes);
  else if (m->type != TREADLE_STORE_GET)
    status = treadle_fail(TREADLE_REFUSED, "a message of type %d is not a request", m->type);
  treadle_store_stream_next(&member->stream);
  if (!member->asks)
    say(&member->stream, TREADLE_STORE_ANSWER, member->number, status,
        status == TREADLE_OK ? "" : treadle_error_message());
  treadle_store_server_answer(s);
  pthread_cond_broadcast(&s->changed);
}

static void lose(treadle_store_server *s, int rank) {
  char why[TREADLE_STORE_TEXT];
  treadle_store_member *member = &s->members[rank];
  treadle_store_stream_end(&member->stream, true);
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
  const treadle_store_limit limit = {member->stream.job, TREADLE_STORE_KEY, TREADLE_STORE_VALUE};
  treadle_status status = treadle_store_stream_send(&member->stream);
  bool whole = false;
  if (status == TREADLE_OK && !member->stream.sends && (events & (POLLIN | POLLHUP | POLLERR)))
    status = treadle_store_stream_receive(&member->stream, &limit, &whole);
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
    if (s->members[rank].came && !s->members[rank].gone)
      say(&s->members[rank].stream, TREADLE_STORE_REFUSAL, 0, status, why);
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
    s->guests[i].poll = add_poll(s, s->guests[i].stream.socket, POLLIN);
    if (s->guests[i].until < until) until = s->guests[i].until;
  }
  for (int rank = 1; rank < s->ranks; rank++) {
    treadle_store_member *m = &s->members[rank];
    m->poll = m->came && !m->gone ? add_poll(s, m->stream.socket, m->stream.sends ? POLLOUT : POLLIN) : -1;
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
    if (m->asks && now >= m->until) {
      m->asks = false;
      say(&m->stream, TREADLE_STORE_ANSWER, m->number, TREADLE_TIMEOUT, "nobody has set it in time");
    }
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
    int ready = poll(s->polls, (nfds_t)s->poll_count, treadle_shm_poll_ms(until - now));
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
