/* The net "threads": ranks are threads of one process, messages wait in memory under one lock. All of a message's life is in move():
 * a receive looks for what was sent to it, and copies. TSan sees who touches what. */
#include "net/net_threads.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/sized.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

enum { MOST_PARTS = 64 };

typedef struct net net;

typedef struct message {
  struct message *next;   /* in an inbox */
  struct message *behind; /* among a rank's requests */
  int from, to;
  bool receives;
  bool ended;
  bool copied; /* of a send: it is nobody's request, and its bytes lie in its one part */
  uint64_t tag;
  double ready;   /* not before that time */
  size_t flipped; /* 1 + which byte comes changed */
  size_t bytes, received;
  int count;
  treadle_net_part parts[];
} message;

struct treadle_net_hub {
  pthread_mutex_t lock;
  int ranks;
  struct {
    net *net;             /* NULL: not open */
    pthread_cond_t rings; /* something has changed for this rank */
    uint64_t changes;
    message *inbox; /* sent to it, not yet received; the oldest first */
  } * of;           /* [ranks] */
  struct {
    bool cut;
    treadle_net_fault fault; /* kind 0: none */
  } * pairs;                 /* [ranks * ranks], from and to */
};

struct net {
  treadle_net_hub *hub;
  bool own_hub;
  int rank;
  uint64_t seen;     /* changes that a move has looked at */
  message *requests; /* of this rank, sends and receives */
  bool *connected;   /* [ranks] */
};

/* ---- The hub ---- */

treadle_status treadle_net_hub_create(int ranks, treadle_net_hub **hub_p) {
  treadle_net_hub *hub = *hub_p = NULL;
  hub = treadle_alloc(sizeof *hub);
  if (!hub) return treadle_fail(TREADLE_NO_MEMORY, "net threads: memory is out");
  hub->ranks = ranks;
  hub->of = treadle_alloc_array((size_t)ranks, sizeof *hub->of);
  hub->pairs = treadle_alloc_array((size_t)ranks * (size_t)ranks, sizeof *hub->pairs);
  if (!hub->of || !hub->pairs) {
    treadle_free(hub->of);
    treadle_free(hub->pairs);
    treadle_free(hub);
    return treadle_fail(TREADLE_NO_MEMORY, "net threads: memory is out");
  }
  pthread_mutex_init(&hub->lock, NULL);
  pthread_condattr_t how;
  pthread_condattr_init(&how);
  pthread_condattr_setclock(&how, CLOCK_MONOTONIC);
  for (int rank = 0; rank < ranks; rank++) pthread_cond_init(&hub->of[rank].rings, &how);
  pthread_condattr_destroy(&how);
  *hub_p = hub;
  return TREADLE_OK;
}

void treadle_net_hub_destroy(treadle_net_hub *hub) {
  if (!hub) return;
  for (int rank = 0; rank < hub->ranks; rank++) {
    for (message *m = hub->of[rank].inbox, *next; m; m = next) {
      next = m->next;
      treadle_free(m);
    }
    pthread_cond_destroy(&hub->of[rank].rings);
  }
  pthread_mutex_destroy(&hub->lock);
  treadle_free(hub->of);
  treadle_free(hub->pairs);
  treadle_free(hub);
}

static size_t pair_of(const treadle_net_hub *hub, int from, int to) {
  return (size_t)from * (size_t)hub->ranks + (size_t)to;
}

static void ring(treadle_net_hub *hub, int rank) {
  hub->of[rank].changes++;
  pthread_cond_signal(&hub->of[rank].rings);
}

static void cut(treadle_net_hub *hub, int a, int b) {
  hub->pairs[pair_of(hub, a, b)].cut = hub->pairs[pair_of(hub, b, a)].cut = true;
  ring(hub, a);
  ring(hub, b);
}

void treadle_net_hub_plant(treadle_net_hub *hub, const treadle_net_fault *fault) {
  pthread_mutex_lock(&hub->lock);
  hub->pairs[pair_of(hub, fault->from, fault->to)].fault = *fault;
  pthread_mutex_unlock(&hub->lock);
}

/* ---- Messages, under the lock ---- */

static void append(message **list, message *m) {
  while (*list) list = &(*list)->next;
  m->next = NULL;
  *list = m;
}

static void take_out(message **list, const message *m) {
  while (*list && *list != m) list = &(*list)->next;
  if (*list) *list = m->next;
}

/* Copies the bytes of one list of parts to those of another, as many as both have. */
static void copy_parts(const message *from, const message *to) {
  int i = 0, j = 0;
  for (size_t at = 0, put = 0; i < from->count && j < to->count;) {
    size_t left = from->parts[i].bytes - at, room = to->parts[j].bytes - put,
           bytes = left < room ? left : room;
    if (bytes) memcpy((char *)to->parts[j].at + put, (const char *)from->parts[i].at + at, bytes);
    at += bytes, put += bytes;
    if (at == from->parts[i].bytes) i++, at = 0;
    if (put == to->parts[j].bytes) j++, put = 0;
  }
}

static void flip(const message *m, size_t byte) {
  for (int i = 0; i < m->count; i++) {
    if (byte < m->parts[i].bytes) {
      ((unsigned char *)m->parts[i].at)[byte] ^= 0x10;
      return;
    }
    byte -= m->parts[i].bytes;
  }
}

/* Looks for the message of a receive. */
static bool find_sent(treadle_net_hub *hub, message *to) {
  message **at = &hub->of[to->to].inbox;
  while (*at && !((*at)->from == to->from && (*at)->tag == to->tag)) at = &(*at)->next;
  message *from = *at;
  if (!from || from->ready > treadle_clock_seconds()) return false;
  *at = from->next;
  copy_parts(from, to);
  if (from->flipped) flip(to, from->flipped - 1);
  to->received = from->bytes;
  to->ended = true;
  if (from->copied) {
    treadle_free(from);
  } else {
    from->ended = true;
    ring(hub, from->from);
  }
  return true;
}

/* Moves on what this rank receives. Says whether anything moved; *next_p: when a late message is ready. */
static bool move(net *n, double *next_p) {
  bool moved = false;
  n->seen = n->hub->of[n->rank].changes;
  for (message *m = n->requests; m; m = m->behind)
    if (m->receives && !m->ended && find_sent(n->hub, m)) moved = true;
  *next_p = 0;
  for (const message *m = n->hub->of[n->rank].inbox; m; m = m->next)
    if (m->ready > 0 && (*next_p == 0 || m->ready < *next_p)) *next_p = m->ready;
  return moved;
}

/* A planted fault may be due for a message. False: it does not come. */
static bool apply_fault(treadle_net_hub *hub, message *m) {
  treadle_net_fault *fault = &hub->pairs[pair_of(hub, m->from, m->to)].fault;
  treadle_net_fault_kind kind = fault->kind;
  if (!kind || fault->after-- > 0) return true;
  switch (kind) {
  case TREADLE_NET_DROP: m->ended = true; break;
  case TREADLE_NET_DELAY: m->ready = treadle_clock_seconds() + fault->seconds; break;
  case TREADLE_NET_FLIP: m->flipped = m->bytes ? 1 + (size_t)(fault->seconds * (double)m->bytes) : 0; break;
  case TREADLE_NET_CUT: cut(hub, m->from, m->to); break;
  }
  fault->kind = 0;
  return kind != TREADLE_NET_DROP && kind != TREADLE_NET_CUT;
}

/* ---- Requests ---- */

static treadle_status no_memory(void) {
  return treadle_fail(TREADLE_NO_MEMORY, "net threads: memory is out");
}

static int peer_of(const message *m) { return m->receives ? m->from : m->to; }

static bool is_cut(const net *n, int peer) { return n->hub->pairs[pair_of(n->hub, n->rank, peer)].cut; }

static treadle_status lost(int peer) {
  return treadle_fail(TREADLE_PEER, "net threads: rank %d cannot be reached any more", peer);
}

static treadle_status make(const net *n, int peer, uint64_t tag, const treadle_net_part *parts, int count,
                           message **m_p) {
  treadle_status status = TREADLE_OK;
  size_t bytes;
  *m_p = NULL;
  TRY(treadle_net_check_message(&treadle_net_threads, peer, n->hub->ranks, tag, parts, count, &bytes));
  if (!n->connected[peer]) TRY(treadle_fail(TREADLE_STATE, "net threads: rank %d is not connected", peer));
  message *m = treadle_alloc(sizeof *m + (size_t)count * sizeof *m->parts);
  if (!m) TRY(no_memory());
  *m = (message){.tag = tag, .bytes = bytes, .count = count};
  if (count) memcpy(m->parts, parts, (size_t)count * sizeof *parts);
  *m_p = m;
out:
  return status;
}

/* What goes through the inbox when the request ends at once: one part, behind the struct. */
static message *copy_of(const message *m) {
  message *copy = treadle_alloc(sizeof *copy + sizeof *copy->parts + m->bytes);
  if (!copy) return NULL;
  *copy = *m;
  copy->copied = true;
  copy->count = 1;
  copy->parts[0] = (treadle_net_part){copy->parts + 1, m->bytes};
  copy_parts(m, copy);
  return copy;
}

static treadle_status threads_send(void *of, int peer, uint64_t tag, const treadle_net_part *parts,
                                   int count, void **request_p) {
  treadle_status status = TREADLE_OK;
  net *n = of;
  message *m = NULL, *sent = NULL;
  *request_p = NULL;
  TRY(make(n, peer, tag, parts, count, &m));
  m->from = n->rank, m->to = peer;
  sent = m->bytes <= TREADLE_NET_COPIED ? copy_of(m) : m;
  if (!sent) TRY(no_memory());
  pthread_mutex_lock(&n->hub->lock);
  bool gone = is_cut(n, peer), comes = !gone && apply_fault(n->hub, sent);
  if (!gone) {
    if (sent != m) m->ended = true;
    m->behind = n->requests;
    n->requests = m;
  }
  if (comes) append(&n->hub->of[peer].inbox, sent), ring(n->hub, peer);
  pthread_mutex_unlock(&n->hub->lock);
  if (!comes && sent != m) treadle_free(sent);
  if (gone) TRY(lost(peer));
  *request_p = m;
out:
  if (status != TREADLE_OK) treadle_free(m);
  return status;
}

static treadle_status threads_receive(void *of, int peer, uint64_t tag, const treadle_net_part *parts,
                                      int count, void **request_p) {
  treadle_status status = TREADLE_OK;
  net *n = of;
  message *m = NULL;
  *request_p = NULL;
  TRY(make(n, peer, tag, parts, count, &m));
  m->from = peer, m->to = n->rank, m->receives = true;
  pthread_mutex_lock(&n->hub->lock);
  bool gone = is_cut(n, peer);
  if (!gone) {
    m->behind = n->requests;
    n->requests = m;
  }
  pthread_mutex_unlock(&n->hub->lock);
  if (gone) TRY(lost(peer));
  *request_p = m;
out:
  if (status != TREADLE_OK) treadle_free(m);
  return status;
}

/* It is nobody's any more, and its memory is not touched again. Under the lock. */
static void forget(net *n, message *m) {
  message **at = &n->requests;
  while (*at != m) at = &(*at)->behind;
  *at = m->behind;
  if (!m->receives && !m->ended) take_out(&n->hub->of[m->to].inbox, m);
}

static treadle_status threads_test(void *of, void *request, bool *done_p) {
  net *n = of;
  message *m = request;
  double next;
  *done_p = false;
  pthread_mutex_lock(&n->hub->lock);
  if (!m->ended) move(n, &next);
  bool ended = m->ended, gone = !ended && is_cut(n, peer_of(m));
  if (ended || gone) forget(n, m);
  pthread_mutex_unlock(&n->hub->lock);
  if (!ended && !gone) return TREADLE_OK;
  treadle_status status = TREADLE_OK;
  if (gone)
    status = lost(peer_of(m));
  else if (m->receives && m->received != m->bytes)
    status =
        treadle_fail(TREADLE_PEER, "net threads: message %llu of rank %d has %zu bytes; %zu were to come",
                     (unsigned long long)m->tag, m->from, m->received, m->bytes);
  *done_p = status == TREADLE_OK;
  treadle_free(m);
  return status;
}

static void threads_wait(void *of, double seconds) {
  net *n = of;
  treadle_net_hub *hub = n->hub;
  pthread_mutex_lock(&hub->lock);
  bool changed = n->seen != hub->of[n->rank].changes; /* since the last look */
  double next, now = treadle_clock_seconds(), until = now + seconds;
  if (!move(n, &next) && !changed) {
    if (next > 0 && next < until) until = next;
    const struct timespec limit = treadle_clock_timespec(until);
    while (n->seen == hub->of[n->rank].changes)
      if (pthread_cond_timedwait(&hub->of[n->rank].rings, &hub->lock, &limit)) break;
  }
  pthread_mutex_unlock(&hub->lock);
}

static void threads_cancel(void *of, void *request) {
  net *n = of;
  message *m = request;
  pthread_mutex_lock(&n->hub->lock);
  if (!m->receives && !m->ended) cut(n->hub, n->rank, m->to);
  forget(n, m);
  pthread_mutex_unlock(&n->hub->lock);
  treadle_free(m);
}

/* ---- Opening ---- */

static treadle_status threads_open(const treadle_net_options *given, void **net_p) {
  treadle_status status = TREADLE_OK;
  treadle_net_options options;
  net *n = NULL;
  *net_p = NULL;
  TRY(TREADLE_TAKE(given, &options));
  TRY(treadle_net_check_options("threads", &options));
  treadle_net_hub *hub = options.context;
  if (!hub && options.ranks > 1) REFUSE("net threads: %d ranks, and no hub in the context", options.ranks);
  if (hub && hub->ranks != options.ranks)
    REFUSE("net threads: %d ranks on a hub for %d", options.ranks, hub->ranks);
  n = treadle_alloc(sizeof *n);
  bool *connected = treadle_alloc_array((size_t)options.ranks, sizeof *connected);
  if (!n || !connected) {
    treadle_free(connected);
    TRY(no_memory());
  }
  *n = (net){.hub = hub, .own_hub = !hub, .rank = options.rank, .connected = connected};
  if (!hub) TRY(treadle_net_hub_create(1, &n->hub));
  pthread_mutex_lock(&n->hub->lock);
  bool taken = n->hub->of[n->rank].net;
  if (!taken) n->hub->of[n->rank].net = n;
  pthread_mutex_unlock(&n->hub->lock);
  if (taken) TRY(treadle_fail(TREADLE_STATE, "net threads: rank %d is there already", options.rank));
  *net_p = n;
out:
  if (status != TREADLE_OK && n) {
    treadle_free(n->connected);
    treadle_free(n);
  }
  return status;
}

typedef struct address {
  char magic[8];
  const void *hub;
  int64_t rank;
} address;

static const char address_magic[8] = "threads";

static treadle_status threads_address(void *of, void *room, size_t capacity, size_t *bytes_p) {
  const net *n = of;
  address mine = {.hub = n->hub, .rank = n->rank};
  *bytes_p = 0;
  memcpy(mine.magic, address_magic, sizeof mine.magic);
  if (capacity < sizeof mine)
    REFUSE("net threads: an address has %zu bytes; there is room for %zu", sizeof mine, capacity);
  memcpy(room, &mine, sizeof mine);
  *bytes_p = sizeof mine;
  return TREADLE_OK;
}

static treadle_status threads_connect(void *of, int peer, const void *bytes, size_t count) {
  net *n = of;
  address theirs;
  if (peer < 0 || peer >= n->hub->ranks || peer == n->rank)
    REFUSE("net threads: rank %d of %d connects to rank %d", n->rank, n->hub->ranks, peer);
  if (n->connected[peer])
    return treadle_fail(TREADLE_STATE, "net threads: rank %d is connected already", peer);
  if (count == sizeof theirs) memcpy(&theirs, bytes, sizeof theirs);
  if (count != sizeof theirs || memcmp(theirs.magic, address_magic, sizeof theirs.magic) != 0 ||
      theirs.hub != n->hub || theirs.rank != peer)
    REFUSE("net threads: what came as the address of rank %d is none of its", peer);
  n->connected[peer] = true;
  pthread_mutex_lock(&n->hub->lock);
  n->hub->pairs[pair_of(n->hub, n->rank, peer)].cut = false; /* of a net that was closed before */
  pthread_mutex_unlock(&n->hub->lock);
  return TREADLE_OK;
}

/* What was copied for others still comes. */
static void threads_close(void *of) {
  net *n = of;
  if (!n) return;
  treadle_net_hub *hub = n->hub;
  pthread_mutex_lock(&hub->lock);
  for (message *m; (m = n->requests);) {
    forget(n, m);
    treadle_free(m);
  }
  for (int rank = 0; rank < hub->ranks; rank++)
    if (rank != n->rank) cut(hub, n->rank, rank);
  for (message *m = hub->of[n->rank].inbox, *next; m; m = next) { /* to be read by nobody */
    next = m->next;
    if (m->copied)
      treadle_free(m);
    else
      m->next = NULL;
  }
  hub->of[n->rank].inbox = NULL;
  hub->of[n->rank].net = NULL;
  pthread_mutex_unlock(&hub->lock);
  if (n->own_hub) treadle_net_hub_destroy(hub);
  treadle_free(n->connected);
  treadle_free(n);
}

const treadle_net_ops treadle_net_threads = {
    .struct_size = sizeof(treadle_net_ops),
    .name = "threads",
    .memory = TREADLE_NET_HOST,
    .most_parts = MOST_PARTS,
    .open = threads_open,
    .address = threads_address,
    .connect = threads_connect,
    .send = threads_send,
    .receive = threads_receive,
    .test = threads_test,
    .wait = threads_wait,
    .cancel = threads_cancel,
    .close = threads_close,
};
