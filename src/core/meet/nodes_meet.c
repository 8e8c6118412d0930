/* Ranks meet by a store (nodes_meet.h says what they leave there). */
#include "meet/nodes_meet.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/text.h"
#include "base/thread_watch.h"
#include "base/utf8.h"
#include "group/group.h"
#include "meet/store_tcp.h"
#include "wire/host_address.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum {
  KEY = 250,
  PROBED = 6,
  TABLE = sizeof(treadle_meeting_table) + TREADLE_GROUP_MAX * sizeof(treadle_meeting_row)
};
static const double LEAST = 1e-3;           /* what a store is given to look for a key */
static const double PROBE = 0.05;           /* the same when ranks are missing, for PROBED of them, */
static const double SHARE = 0.1;            /* and no more than this of all the time */
static const double SLICE = 0.05, MOST = 2; /* from one look for another number to the next, in seconds */
static const double GRACE = 0.1;            /* for rank 0's last word */

typedef struct meet {
  treadle_store store;
  const char *job;
  const treadle_meeting_options *options;
  uint64_t number;          /* N */
  char key[KEY];            /* the one that is used now */
  treadle_description *all; /* rank 0: [size] as far as they have come; others: [1] */
  double probe;             /* PROBE, or less where there is little time */
  void *room;               /* a table, */
  size_t bytes;             /* of this many bytes */
} meet;

static treadle_status draw(void *to, size_t bytes) {
  if (getrandom(to, bytes, 0) == (ssize_t)bytes) return TREADLE_OK;
  return treadle_fail(TREADLE_SYSTEM, "group: there are no random numbers: %s", strerror(errno));
}

static treadle_status draw_nonce(uint64_t *nonce_p) {
  treadle_status status = draw(nonce_p, sizeof *nonce_p);
  if (*nonce_p == 0) *nonce_p = 1;
  return status;
}

/* ---- Keys ---- */

static void key_of(meet *m, const char *name) {
  snprintf(m->key, sizeof m->key, "treadle/%s/%016" PRIx64 "/%s", m->job, m->number, name);
}

static void key_of_rank(meet *m, int rank) {
  char name[16];
  snprintf(name, sizeof name, "%d", rank);
  key_of(m, name);
}

static treadle_status set(const meet *m, const void *bytes, size_t count) {
  treadle_status status = m->store.set(m->store.context, m->key, bytes, count);
  return status == TREADLE_OK ? status : treadle_fail_in(status, "the store's set of '%s': ", m->key);
}

/* Until `end`; looks once when that is over. */
static treadle_status get(const meet *m, double end, void *to, size_t room, size_t *count_p) {
  double left = end - treadle_clock_seconds();
  *count_p = 0;
  treadle_status status =
      m->store.get(m->store.context, m->key, left > LEAST ? left : LEAST, to, room, count_p);
  if (status != TREADLE_OK) return treadle_fail_in(status, "the store's get of '%s': ", m->key);
  if (*count_p > room)
    return treadle_fail(TREADLE_REFUSED,
                        "the store has %zu bytes under '%s', and there should be %zu at most", *count_p,
                        m->key, room);
  return status;
}

/* ---- This rank ---- */

static treadle_status find_host(const meet *m, char *host) {
  const char *given = m->options->host ? m->options->host : treadle_store_host(&m->store);
  if (!given)
    treadle_host_address_find(host, TREADLE_MEETING_HOST);
  else if (treadle_meeting_is_host(given, TREADLE_MEETING_HOST + 1))
    snprintf(host, TREADLE_MEETING_HOST, "%s", given);
  else
    return treadle_fail(TREADLE_REFUSED, "'%.80s' is not an address of a machine as numbers",
                        treadle_text_shown(given));
  return TREADLE_OK;
}

static treadle_status check_options(const treadle_meeting_options *o) {
  if (o->number < -1 || o->nodes < 0 || (o->number >= 0 && o->nodes))
    return treadle_fail(TREADLE_REFUSED,
                        "group: node %d of %d; a node has a number from 0, or -1: it is found", o->number,
                        o->nodes);
  if (o->nodes > o->size || (o->nodes && o->size % o->nodes))
    return treadle_fail(TREADLE_REFUSED, "nodes: %s cannot be divided evenly among %s",
                        treadle_text_of_count(o->size, "rank"), treadle_text_of_count(o->nodes, "node"));
  return TREADLE_OK;
}

/* What goes wrong here is part of the description, so that all hear of it. */
static treadle_status describe(const meet *m, treadle_description *d) {
  treadle_status status = TREADLE_OK;
  const treadle_meeting_options *o = m->options;
  memset(d, 0, sizeof *d);
  d->rank = o->rank;
  d->size = o->size;
  d->number = o->number;
  d->nodes = o->nodes;
  d->user = (uint32_t)geteuid();
  TRY(draw_nonce(&d->nonce));
  status = check_options(o);
  if (status == TREADLE_OK) status = treadle_node_here(&d->node);
  if (status == TREADLE_OK) status = find_host(m, d->host);
  d->status = status;
  if (status != TREADLE_OK) snprintf(d->text, sizeof d->text, "%s", treadle_error_message());
  status = TREADLE_OK;
out:
  treadle_meeting_seal(d, TREADLE_MEETING_RANK, sizeof *d);
  return status;
}

/* ---- Rank 0 ---- */

static treadle_status call_ranks(meet *m) {
  treadle_status status = TREADLE_OK;
  treadle_meeting_call call = {0};
  TRY(draw_nonce(&call.nonce));
  m->number = call.nonce;
  treadle_meeting_seal(&call, TREADLE_MEETING_CALL, sizeof call);
  snprintf(m->key, sizeof m->key, "treadle/%s/meeting", m->job);
  TRY(set(m, &call, sizeof call));
out:
  return status;
}

static treadle_status read_rank(meet *m, int rank, double end, treadle_description *d) {
  unsigned char bytes[sizeof *d];
  size_t count;
  key_of_rank(m, rank);
  treadle_status status = get(m, end, bytes, sizeof bytes, &count);
  if (status != TREADLE_OK) return status;
  status = treadle_meeting_read_description(bytes, count, d);
  if (status != TREADLE_OK) treadle_fail_in(status, "rank %d ", rank);
  return status;
}

/* Names the ranks that have left nothing; `known` is one; -1: none is known. */
static treadle_status miss(meet *m, int known) {
  char list[80] = "";
  treadle_description d;
  for (int rank = known < 0 ? 1 : known, probed = 0; rank < m->options->size && probed < PROBED; rank++) {
    if (rank != known) probed++;
    if (rank == known || read_rank(m, rank, treadle_clock_seconds() + m->probe, &d) == TREADLE_TIMEOUT)
      snprintf(list + strlen(list), sizeof list - strlen(list), "%s%d", *list ? ", " : "", rank);
  }
  if (!*list) return treadle_fail(TREADLE_TIMEOUT, "group '%s': rank 0 left no table in time", m->job);
  return treadle_fail(TREADLE_TIMEOUT, "group '%s': rank %s did not come in time", m->job, list);
}

static treadle_status read_all(meet *m) {
  treadle_status status = TREADLE_OK;
  double end = m->options->deadline - m->probe * PROBED; /* so that the others hear who is missing */
  TRY(treadle_meeting_check(&m->all[0], &m->all[0], 0));
  for (int rank = 1; rank < m->options->size; rank++) {
    TRY(treadle_thread_ask("ranks that meet"));
    status = read_rank(m, rank, end, &m->all[rank]);
    if (status == TREADLE_TIMEOUT) return miss(m, rank);
    TRY(status);
    TRY(treadle_meeting_check(&m->all[0], &m->all[rank], rank));
  }
out:
  return status;
}

/* After a failure: who has come will know the table by its own number. */
static void read_rest(meet *m) {
  for (int rank = 1, missing = 0; rank < m->options->size && missing < PROBED; rank++) {
    if (m->all[rank].nonce) continue;
    treadle_status status = read_rank(m, rank, treadle_clock_seconds() + m->probe, &m->all[rank]);
    missing += status != TREADLE_OK;
  }
}

/* Leaves the table in m->room. */
static treadle_status make_table(meet *m, treadle_status failed) {
  treadle_status status = TREADLE_OK;
  int size = m->options->size;
  treadle_meeting_table t = {.status = failed, .size = size};
  int32_t *of = treadle_alloc_array((size_t)size, sizeof *of);
  char *rows = (char *)m->room + sizeof t;
  if (!of) return treadle_fail(TREADLE_NO_MEMORY, "group: memory is out");
  if (failed == TREADLE_OK) t.status = treadle_meeting_divide(m->all, size, of);
  if (t.status != TREADLE_OK) snprintf(t.text, sizeof t.text, "%s", treadle_error_message());
  TRY(draw(t.key, sizeof t.key));
  for (int rank = 0; rank < size; rank++) {
    treadle_meeting_row row;
    memset(&row, 0, sizeof row);
    row.nonce = m->all[rank].nonce;
    row.node = of[rank];
    memcpy(row.host, m->all[rank].host, sizeof row.host);
    memcpy(rows + (size_t)rank * sizeof row, &row, sizeof row);
  }
  memcpy(m->room, &t, sizeof t);
  m->bytes = sizeof t + (size_t)size * sizeof(treadle_meeting_row);
  treadle_meeting_seal(m->room, TREADLE_MEETING_TABLE, m->bytes);
out:
  treadle_free(of);
  return status;
}

static treadle_status lead(meet *m) {
  treadle_status status = TREADLE_OK, failed = TREADLE_OK;
  TRY(call_ranks(m));
  TRY(describe(m, &m->all[0]));
  failed = read_all(m);
  char why[TREADLE_MEETING_TEXT];
  snprintf(why, sizeof why, "%s", failed == TREADLE_OK ? "" : treadle_error_message());
  if (failed != TREADLE_OK && failed != TREADLE_CANCELLED) read_rest(m);
  if (failed != TREADLE_OK) treadle_fail(failed, "%s", why);
  TRY(make_table(m, failed));
  key_of(m, "table");
  status = set(m, m->room, m->bytes);
  if (failed != TREADLE_OK) status = treadle_fail(failed, "%s", why);
out:
  return status;
}

/* ---- The others ---- */

/* Rank 0's number, and under it this rank's description, when it is a new number. */
static treadle_status answer_call(meet *m, double end) {
  treadle_status status = TREADLE_OK;
  unsigned char bytes[sizeof(treadle_meeting_call)];
  treadle_meeting_call call;
  size_t count;
  snprintf(m->key, sizeof m->key, "treadle/%s/meeting", m->job);
  TRY(get(m, end, bytes, sizeof bytes, &count));
  status = treadle_meeting_read_call(bytes, count, &call);
  if (status != TREADLE_OK) treadle_fail_in(status, "group '%s': rank 0 ", m->job);
  if (!call.nonce || call.nonce == m->number) return status;
  m->number = call.nonce;
  key_of_rank(m, m->options->rank);
  treadle_status left = set(m, m->all, sizeof *m->all);
  if (left != TREADLE_OK) status = left;
out:
  return status;
}

/* Is it a table of this meeting? *mine_p. A table that is none is an older job's for all that is known, until the time is over. */
static treadle_status look_at_table(meet *m, bool *mine_p) {
  treadle_meeting_table t;
  const void *rows;
  *mine_p = false;
  treadle_status status = treadle_meeting_read_table(m->room, m->bytes, &t, &rows);
  if (status != TREADLE_OK) return treadle_fail_in(status, "rank 0 ");
  int rank = m->options->rank;
  uint64_t nonce = rank < t.size ? treadle_meeting_row_at(rows, rank).nonce : 0;
  *mine_p = nonce == m->all->nonce;
  if (*mine_p && t.status != TREADLE_OK) return treadle_fail((treadle_status)t.status, "%s", t.text);
  if (*mine_p && t.size != m->options->size)
    return treadle_fail(TREADLE_REFUSED, "rank %d has a number of ranks of %d, and rank 0 has %d", rank,
                        m->options->size, t.size);
  if (!*mine_p)
    return treadle_fail(TREADLE_TIMEOUT,
                        "what rank 0 has left is of %d ranks, not of this process: of an older job, or "
                        "another process is rank "
                        "%d, too%s%s",
                        t.size, rank, t.status == TREADLE_OK ? "" : "; it says: ", t.text);
  return TREADLE_OK;
}

static void pause_until(double end) {
  double left = end - treadle_clock_seconds();
  const struct timespec span = treadle_clock_timespec(left > 0 ? left : 0);
  if (left > 0) nanosleep(&span, NULL);
}

/* One look at what rank 0 has left, for at most a slice of time. TREADLE_TIMEOUT, and refused, may be an older job's. */
static treadle_status look(meet *m, double slice, double last, bool *mine_p) {
  treadle_status status = TREADLE_OK;
  status = answer_call(m, last);
  if (status == TREADLE_TIMEOUT && !m->number)
    treadle_fail_in(status, "group '%s': rank 0 did not come in time: ", m->job);
  TRY(status);
  double now = treadle_clock_seconds(), end = now + slice < last ? now + slice : last;
  key_of(m, "table");
  status = get(m, end, m->room, TABLE, &m->bytes);
  if (status == TREADLE_TIMEOUT && treadle_clock_seconds() >= last) return miss(m, -1);
  TRY(status);
  TRY(look_at_table(m, mine_p));
out:
  return status;
}

static treadle_status follow(meet *m) {
  treadle_status status = TREADLE_OK;
  double last = m->options->deadline + GRACE;
  bool mine = false;
  TRY(describe(m, m->all));
  for (double slice = SLICE;; slice = slice < MOST ? slice * 2 : MOST) {
    TRY(treadle_thread_ask("ranks that meet"));
    double end = treadle_clock_seconds() + slice;
    status = look(m, slice, last, &mine);
    if (mine || (status != TREADLE_TIMEOUT && status != TREADLE_REFUSED)) break;
    if (treadle_clock_seconds() >= last) break;
    pause_until(end < last ? end : last);
  }
out:
  return status;
}

/* ---- Both ---- */

static treadle_status take_table(const meet *m, treadle_meeting *meeting) {
  treadle_status status = TREADLE_OK;
  treadle_meeting_table t;
  const void *rows;
  int size = m->options->size;
  int32_t *of = treadle_alloc_array((size_t)size, sizeof *of);
  meeting->hosts = treadle_alloc_array((size_t)size, sizeof *meeting->hosts);
  if (!of || !meeting->hosts) TRY(treadle_fail(TREADLE_NO_MEMORY, "group: memory is out"));
  TRY(treadle_meeting_read_table(m->room, m->bytes, &t, &rows));
  if (t.status != TREADLE_OK) TRY(treadle_fail((treadle_status)t.status, "%s", t.text));
  for (int rank = 0; rank < size; rank++) {
    const treadle_meeting_row row = treadle_meeting_row_at(rows, rank);
    status = treadle_meeting_check_row(&row, rank);
    if (status != TREADLE_OK) treadle_fail_in(status, "rank 0 ");
    TRY(status);
    of[rank] = row.node;
    memcpy(meeting->hosts[rank], row.host, sizeof row.host);
  }
  memcpy(meeting->key, t.key, sizeof t.key);
  TRY(treadle_nodes_make(of, size, &meeting->nodes));
out:
  treadle_free(of);
  return status;
}

void treadle_meeting_release(treadle_meeting *meeting) {
  treadle_nodes_release(&meeting->nodes);
  treadle_free(meeting->hosts);
  *meeting = (treadle_meeting){0};
}

treadle_status treadle_nodes_meet(const treadle_store *store, const treadle_meeting_options *options,
                                  treadle_meeting *meeting_p) {
  treadle_status status = TREADLE_OK;
  meet m = {.store = *store, .job = store->job ? store->job : "0", .options = options};
  *meeting_p = (treadle_meeting){0};
  double left = options->deadline - treadle_clock_seconds();
  m.probe = left * SHARE / PROBED < PROBE ? left * SHARE / PROBED : PROBE;
  m.room = treadle_alloc(TABLE);
  m.all = treadle_alloc_array(options->rank == 0 ? (size_t)options->size : 1, sizeof *m.all);
  if (!m.room || !m.all) TRY(treadle_fail(TREADLE_NO_MEMORY, "group: memory is out"));
  TRY(options->rank == 0 ? lead(&m) : follow(&m));
  TRY(take_table(&m, meeting_p));
out:
  treadle_free(m.room);
  treadle_free(m.all);
  if (status != TREADLE_OK) treadle_meeting_release(meeting_p);
  return status;
}
