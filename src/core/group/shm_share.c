/* Handing descriptors around, through the hub.
 *
 *   1. Each rank says how many bytes it gives, and in how many descriptors. Rank 0 collects that, and tells all.
 *   2. The descriptors of all ranks, in the order of the ranks, are one list, which is cut every TREADLE_SHM_DESCRIPTORS. For each cut in turn,
 *      the ranks that have a part of it export that and send it to rank 0, which sends the whole cut to all. Each rank imports what is of others.
 *
 * So whatever pools there are, a process has the descriptors of one cut open for that. Each closes what it has made or received of a cut before
 * it goes on to the next.
 *
 * When a rank is missing, rank 0 tells the others, and the group is over. A rank that cannot export says so in place of its part: all fail, and
 * the group goes on. That one rank cannot import is its own failure; it takes part in the messages to the end. */
#include "group/shm.h"

#include "base/clock.h"
#include "base/larger.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 64, CUT = TREADLE_SHM_DESCRIPTORS };

/* From a rank to the hub: its own, count 1. From the hub: ranks first .. first + count - 1. */
typedef struct sizes {
  uint32_t magic;
  int32_t status, first, count;
  uint64_t share; /* which call */
  uint64_t bytes[RANKS];
  int64_t descriptors[RANKS]; /* how many there are of them */
  char text[TREADLE_SHM_TEXT];
} sizes;

/* With the descriptors of a cut, or of a rank's part of it; or why there are none. */
typedef struct parcel {
  uint32_t magic;
  int32_t status, over, pad; /* over: the group is */
  uint64_t share;
  int64_t cut;
  char text[TREADLE_SHM_TEXT];
} parcel;

/* A call of publish. */
typedef struct share {
  treadle_shm *shm;
  int rank;
  const treadle_offer *mine;
  treadle_peer_memory *all;
  double deadline;
  bool over;             /* the group is */
  treadle_status import; /* how that went; its message is the present one */
} share;

/* ---- Messages ---- */

static treadle_status send_to(const share *s, int rank, void *message, size_t bytes, const int *descriptors,
                              int count) {
  char who[24];
  snprintf(who, sizeof who, "rank %d", rank);
  return treadle_shm_send(s->shm->sockets[s->rank == 0 ? rank : 0], message, bytes, descriptors, count,
                          s->deadline, who);
}

static treadle_status receive_from(const share *s, int rank, void *message, size_t bytes, int *descriptors,
                                   int *count_p) {
  char who[24];
  snprintf(who, sizeof who, "rank %d", rank);
  return treadle_shm_receive(s->shm->sockets[s->rank == 0 ? rank : 0], message, bytes, descriptors, count_p,
                             s->deadline, who);
}

static treadle_status other_memory(int rank) {
  return treadle_fail(TREADLE_PEER, "rank %d shared other memory than was expected", rank);
}

/* What a message says of its sender's success. */
static treadle_status verdict(int32_t status, char text[TREADLE_SHM_TEXT]) {
  text[TREADLE_SHM_TEXT - 1] = 0;
  return status == TREADLE_OK ? TREADLE_OK : treadle_fail((treadle_status)status, "%s", text);
}

/* The first failure is the one that is said. */
static void note(int32_t *status_p, char text[TREADLE_SHM_TEXT], treadle_status status) {
  if (*status_p != TREADLE_OK || status == TREADLE_OK) return;
  *status_p = (int32_t)status;
  snprintf(text, TREADLE_SHM_TEXT, "%s", treadle_error_message());
}

/* ---- Sizes ---- */

static sizes make_sizes(const share *s, int first, int count, treadle_status status) {
  sizes m = {.magic = TREADLE_SHM_MAGIC, .first = first, .count = count, .share = s->shm->shares};
  note(&m.status, m.text, status);
  for (int i = 0; i < count && status == TREADLE_OK; i++) {
    m.bytes[i] = s->all[first + i].bytes;
    m.descriptors[i] = s->shm->counts[first + i];
  }
  return m;
}

static treadle_status receive_sizes(const share *s, int from, int first, int count) {
  treadle_status status = TREADLE_OK;
  sizes m;
  TRY(receive_from(s, from, &m, sizeof m, NULL, NULL));
  if (m.magic != TREADLE_SHM_MAGIC || m.share != s->shm->shares) return other_memory(from);
  TRY(verdict(m.status, m.text));
  if (m.first != first || m.count != count) return other_memory(from);
  for (int i = 0; i < count; i++) {
    if (m.descriptors[i] < 0 || m.descriptors[i] > INT32_MAX || (m.bytes[i] == 0 && m.descriptors[i] > 0))
      return other_memory(from);
    s->all[first + i].bytes = m.bytes[i];
    s->shm->counts[first + i] = m.descriptors[i];
  }
out:
  return status;
}

static int ranks_from(const share *s, int first) {
  return s->shm->size - first < RANKS ? s->shm->size - first : RANKS;
}

static treadle_status give_sizes(const share *s, treadle_status collected) {
  treadle_status status = TREADLE_OK;
  for (int first = 0; first < s->shm->size; first += RANKS) {
    sizes m = make_sizes(s, first, ranks_from(s, first), collected);
    for (int rank = 1; rank < s->shm->size; rank++) TRY(send_to(s, rank, &m, sizeof m, NULL, 0));
    if (collected != TREADLE_OK) break;
  }
out:
  return status;
}

static treadle_status agree_on_sizes(const share *s) {
  treadle_status status = TREADLE_OK;
  if (s->rank == 0) {
    for (int rank = 1; rank < s->shm->size && status == TREADLE_OK; rank++)
      status = receive_sizes(s, rank, rank, 1);
    const treadle_status given = give_sizes(s, status);
    return status != TREADLE_OK ? status : given;
  }
  sizes mine = make_sizes(s, s->rank, 1, TREADLE_OK);
  TRY(send_to(s, 0, &mine, sizeof mine, NULL, 0));
  for (int first = 0; first < s->shm->size; first += RANKS)
    TRY(receive_sizes(s, 0, first, ranks_from(s, first)));
out:
  return status;
}

/* ---- Cuts ---- */

/* What a rank has of a cut: descriptors first .. first + count - 1 of its own, from place `at` on. */
typedef struct part {
  int rank;
  int64_t first, before; /* before: descriptors of the ranks up to this one */
  int count, at;
} part;

static const part none = {.rank = -1};

/* The part of the next rank that has one; false: there are no more. */
static bool next_part(const share *s, int64_t cut, part *p) {
  const int64_t begin = cut * CUT, end = begin + CUT;
  while (++p->rank < s->shm->size) {
    const int64_t start = p->before, stop = p->before += s->shm->counts[p->rank];
    const int64_t from = treadle_larger(begin, start), to = end < stop ? end : stop;
    if (to <= from) continue;
    p->first = from - start;
    p->count = (int)(to - from);
    p->at = (int)(from - begin);
    return true;
  }
  return false;
}

static int64_t count_cuts(const share *s) {
  int64_t sum = 0;
  for (int rank = 0; rank < s->shm->size; rank++) sum += s->shm->counts[rank];
  return (sum + CUT - 1) / CUT;
}

static void close_all(const int *descriptors, int count) {
  for (int i = 0; i < count; i++) close(descriptors[i]);
}

static parcel make_parcel(const share *s, int64_t cut) {
  return (parcel){.magic = TREADLE_SHM_MAGIC, .share = s->shm->shares, .cut = cut};
}

/* This rank's part; none of it after a failure, which the parcel has then. Returns how many there are. */
static int export_part(const share *s, const part *p, parcel *m, int *descriptors) {
  treadle_status status =
      s->mine->device->ops->export_part(s->mine->pool, p->first, p->count, false, descriptors);
  if (status != TREADLE_OK) status = treadle_fail_in(status, "rank %d: ", s->rank);
  note(&m->status, m->text, status);
  return status == TREADLE_OK ? p->count : 0;
}

/* Fails when there is no such parcel; that one says that the sender failed is in the parcel. *got_p: descriptors that came, to be closed. */
static treadle_status receive_parcel(const share *s, int from, int64_t cut, int wanted, parcel *m,
                                     int *descriptors, int *got_p) {
  treadle_status status = TREADLE_OK;
  int got = CUT, received[CUT];
  *got_p = 0;
  TRY(receive_from(s, from, m, sizeof *m, received, &got));
  if (m->magic == TREADLE_SHM_MAGIC && m->share == s->shm->shares && m->cut == cut &&
      got == (m->status == TREADLE_OK ? wanted : 0)) {
    memcpy(descriptors, received, (size_t)got * sizeof *received);
    *got_p = got;
    return TREADLE_OK;
  }
  close_all(received, got);
  status = other_memory(from);
out:
  return status;
}

static void import_cut(share *s, int64_t cut, const int *descriptors) {
  for (part p = none; s->import == TREADLE_OK && next_part(s, cut, &p);) {
    if (p.rank == s->rank) continue;
    s->import =
        s->mine->device->ops->import_part(s->all[p.rank].imported, p.first, p.count, descriptors + p.at);
    if (s->import != TREADLE_OK) s->import = treadle_fail_in(s->import, "rank %d: ", p.rank);
  }
}

/* The hub: collects the parts, and sends the cut to all. */
static treadle_status pass_as_hub(share *s, int64_t cut) {
  treadle_status status = TREADLE_OK, given = TREADLE_OK;
  parcel m = make_parcel(s, cut);
  int descriptors[CUT], count = 0;
  for (part p = none; !m.over && next_part(s, cut, &p);) {
    parcel theirs = {0};
    int got = 0;
    if (p.rank == 0) {
      got = export_part(s, &p, &m, descriptors + count);
    } else {
      status = receive_parcel(s, p.rank, cut, p.count, &theirs, descriptors + count, &got);
      m.over = status != TREADLE_OK;
      if (status == TREADLE_OK) status = verdict(theirs.status, theirs.text);
      note(&m.status, m.text, status);
    }
    count += got;
  }
  for (int rank = 1; rank < s->shm->size && given == TREADLE_OK; rank++)
    given = send_to(s, rank, &m, sizeof m, descriptors, m.status == TREADLE_OK ? count : 0);
  s->over = m.over || given != TREADLE_OK;
  status = m.status != TREADLE_OK ? verdict(m.status, m.text) : given;
  if (status == TREADLE_OK) import_cut(s, cut, descriptors);
  close_all(descriptors, count);
  return status;
}

static treadle_status send_part(share *s, int64_t cut, const part *p) {
  parcel m = make_parcel(s, cut);
  int descriptors[CUT];
  const int count = export_part(s, p, &m, descriptors);
  const treadle_status status = send_to(s, 0, &m, sizeof m, descriptors, count);
  close_all(descriptors, count);
  return status;
}

static treadle_status pass_as_peer(share *s, int64_t cut) {
  treadle_status status = TREADLE_OK;
  parcel m;
  int descriptors[CUT], got = 0, wanted = 0;
  s->over = true; /* if a message fails */
  for (part p = none; next_part(s, cut, &p); wanted += p.count)
    if (p.rank == s->rank) TRY(send_part(s, cut, &p));
  TRY(receive_parcel(s, 0, cut, wanted, &m, descriptors, &got));
  s->over = m.over;
  TRY(verdict(m.status, m.text));
  import_cut(s, cut, descriptors);
out:
  close_all(descriptors, got);
  return status;
}

/* ---- The row ---- */

static void begin_imports(share *s) {
  for (int rank = 0; rank < s->shm->size && s->import == TREADLE_OK; rank++) {
    treadle_peer_memory *theirs = &s->all[rank];
    if (rank == s->rank || theirs->bytes == 0) continue;
    s->import = s->mine->device->ops->import_begin(s->mine->device, s->shm->counts[rank], theirs->bytes,
                                                   NULL, &theirs->imported);
    if (s->import != TREADLE_OK) s->import = treadle_fail_in(s->import, "rank %d: ", rank);
  }
}

static treadle_status view_whole(const share *s) {
  for (int rank = 0; rank < s->shm->size; rank++) {
    treadle_peer_memory *theirs = &s->all[rank];
    treadle_paged paged;
    if (!theirs->imported) continue;
    const treadle_status status =
        s->mine->device->ops->view(theirs->imported, &(treadle_view_of){0}, &paged);
    if (status != TREADLE_OK) return treadle_fail_in(status, "rank %d: ", rank);
    theirs->base = paged.base;
  }
  return TREADLE_OK;
}

static void shm_withdraw(treadle_group *group, const treadle_device *device, treadle_peer_memory *all) {
  for (int rank = 0; rank < group->size; rank++) {
    device->ops->unimport(all[rank].imported);
    all[rank] = (treadle_peer_memory){0};
  }
}

/* Each rank imports by the functions of its own device: all have the same. */
static treadle_status shm_publish(treadle_group *group, const treadle_offer *mine,
                                  treadle_peer_memory *all) {
  treadle_status status = TREADLE_OK;
  treadle_shm *shm = group->state;
  share s = {.shm = shm,
             .rank = group->rank,
             .mine = mine,
             .all = all,
             .deadline = treadle_clock_seconds() + group->timeout_seconds,
             .over = true};
  shm->shares++;
  for (int rank = 0; rank < group->size; rank++) {
    shm->counts[rank] = 0;
    all[rank] = (treadle_peer_memory){0};
  }
  all[s.rank].bytes = mine->bytes;
  all[s.rank].number = mine->device->number;
  if (mine->bytes > 0 && mine->pool) shm->counts[s.rank] = mine->device->ops->export_count(mine->pool);
  TRY(agree_on_sizes(&s));
  s.over = false;
  all[s.rank].base = mine->base;
  begin_imports(&s);
  const int64_t cuts = count_cuts(&s);
  for (int64_t cut = 0; cut < cuts; cut++) TRY((s.rank == 0 ? pass_as_hub : pass_as_peer)(&s, cut));
  TRY(s.import); /* this rank's trouble alone; the messages are all done */
  if (mine->whole) TRY(view_whole(&s));
out:
  if (s.over) treadle_group_fail(group);
  if (status != TREADLE_OK) shm_withdraw(group, mine->device, all);
  return status;
}

const treadle_link treadle_shm_link = {"shared memory", shm_publish, shm_withdraw};
