#include "pass/replica.h"

#include "base/alloc.h"
#include "base/hash.h"

/* By rank: a number that is equal for ranks that are alike; how many alike ranks are before it, `least` - 1 at most; where `least` ranks
 * at least are alike. */
typedef struct alike {
  uint64_t *where; /* [ranks] */
  int64_t *nth;    /* [ranks] */
  int64_t ranks, least;
} alike;

static void release(alike *a) {
  treadle_free(a->where);
  treadle_free(a->nth);
  *a = (alike){0};
}

static treadle_status init(alike *a, int64_t ranks) {
  *a = (alike){.where = treadle_alloc_array((size_t)ranks, sizeof *a->where),
               .nth = treadle_alloc_array((size_t)ranks, sizeof *a->nth),
               .ranks = ranks};
  if (a->where && a->nth) return TREADLE_OK;
  release(a);
  return treadle_fail(TREADLE_NO_MEMORY, "no memory for %lld ranks", (long long)ranks);
}

static void count(alike *a) {
  a->least = a->ranks;
  for (int64_t i = 0; i < a->ranks; i++) {
    int64_t same = 0;
    a->nth[i] = 0;
    for (int64_t k = 0; k < a->ranks; k++) {
      same += a->where[k] == a->where[i];
      if (k < i) a->nth[i] += a->where[k] == a->where[i];
    }
    if (same < a->least) a->least = same;
  }
  for (int64_t i = 0; i < a->ranks; i++)
    if (a->nth[i] >= a->least) a->nth[i] = a->least - 1;
}

/* Ranks with equal pieces have equal coordinates. The k-th rank of each coordinate is in replica k. */
static treadle_status find_replicas(const treadle_layout *layout, alike *a) {
  treadle_status status;
  TRY(init(a, layout->ranks));
  for (int64_t i = 0; i < layout->ranks; i++) a->where[i] = treadle_layout_place(layout, i);
  count(a);
out:
  return status;
}

/* The k-th rank of each dense part of a replica is in group k. */
static treadle_status find_groups(const treadle_layout *layout, const alike *replicas, alike *a) {
  treadle_status status;
  TRY(init(a, layout->ranks));
  for (int64_t i = 0; i < layout->ranks; i++)
    a->where[i] = treadle_hash_more(treadle_layout_dense_place(layout, i), (uint64_t)replicas->nth[i]);
  count(a);
out:
  return status;
}

static treadle_status find_ranks(const treadle_layout *layout, int64_t rank, treadle_replica *r) {
  alike replicas;
  treadle_status status;
  TRY(find_replicas(layout, &replicas));
  r->count = replicas.least;
  r->number = replicas.nth[rank];
  r->group_count = 1;
  for (int64_t i = 0; i < layout->ranks && !status; i++) {
    if (replicas.nth[i] != r->number) continue;
    if (r->rank_count == TREADLE_REPLICA_RANKS) {
      status = treadle_fail(TREADLE_REFUSED, "%s: more than %d ranks compute together", layout->text,
                            TREADLE_REPLICA_RANKS);
      break;
    }
    if (i == rank) r->position = r->rank_count;
    r->ranks[r->rank_count++] = (int)i;
  }
  r->place = (treadle_replica_place){.number = r->number, .count = r->count, .leads = r->position == 0};
  release(&replicas);
out:
  return status;
}

/* The first rank of a rank's group. */
static int64_t first_of(const alike *replicas, const alike *groups, int64_t rank) {
  int64_t i = 0;
  while (replicas->nth[i] != replicas->nth[rank] || groups->nth[i] != groups->nth[rank]) i++;
  return i;
}

/* Do two ranks of the replica, or more, have each dense part? If not in one replica, then there are no groups in any. */
static bool has_groups(const treadle_layout *layout, const treadle_replica *r) {
  uint64_t where[TREADLE_REPLICA_RANKS];
  for (int i = 0; i < r->rank_count; i++) where[i] = treadle_layout_dense_place(layout, r->ranks[i]);
  for (int i = 0; i < r->rank_count; i++) {
    int same = 0;
    for (int k = 0; k < r->rank_count; k++) same += where[k] == where[i];
    if (same == 1) return false;
  }
  return true;
}

treadle_status treadle_replica_divide(const treadle_layout *layout, int64_t rank, treadle_replica *r) {
  alike replicas = {0}, groups = {0};
  int64_t first;
  treadle_status status;
  if (!has_groups(layout, r)) return TREADLE_OK;
  TRY(find_replicas(layout, &replicas));
  TRY(find_groups(layout, &replicas, &groups));
  r->group_count = (int)groups.least;
  for (int i = 0; i < r->rank_count; i++) r->groups[i] = (int)groups.nth[r->ranks[i]];
  first = first_of(&replicas, &groups, rank);
  r->place = (treadle_replica_place){.count = r->count * groups.least, .leads = first == rank};
  for (int64_t i = 0; i < first; i++) r->place.number += first_of(&replicas, &groups, i) == i;
out:
  release(&replicas);
  release(&groups);
  return status;
}

treadle_status treadle_replica_place_of(const treadle_layout *layout, int64_t rank,
                                        treadle_replica_place *place_p) {
  treadle_replica r = {0};
  treadle_status status;
  TRY(find_ranks(layout, rank, &r));
  TRY(treadle_replica_divide(layout, rank, &r));
  *place_p = r.place;
out:
  return status;
}

/* Which ranks of the replica have rows of a tensor. */
static treadle_status find_holders(const treadle_layout *layout, const treadle_replica *r, int32_t tensor,
                                   treadle_rank_bits *bits_p) {
  treadle_pieces pieces = {0};
  treadle_status status = TREADLE_OK;
  *bits_p = 0;
  for (int i = 0; i < r->rank_count; i++) {
    pieces.count = 0;
    TRY(treadle_layout_pieces_of(layout, r->ranks[i], tensor, &pieces));
    if (pieces.count) *bits_p |= (treadle_rank_bits)1 << i;
  }
  if (!*bits_p)
    status = treadle_fail(TREADLE_REFUSED, "%s: no rank has %s", layout->text,
                          layout->model->tensors[tensor].name);
out:
  treadle_array_release(&pieces);
  return status;
}

treadle_status treadle_replica_find(const treadle_transformer *transformer, const treadle_layout *layout,
                                    int64_t rank, treadle_arena *arena, treadle_replica *replica_p) {
  treadle_replica *r = replica_p;
  treadle_chunk_span *chunks;
  treadle_status status;
  *r = (treadle_replica){0};
  TRY(find_ranks(layout, rank, r));
  chunks = treadle_arena_alloc_array(arena, (size_t)transformer->layers, sizeof *chunks);
  if (!chunks)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for %lld layers", (long long)transformer->layers);
  for (int32_t l = 0; l < transformer->layers; l++) {
    treadle_rank_bits bits;
    TRY(find_holders(layout, r, transformer->layer[l].tensor[TREADLE_ROLE_O], &bits));
    if (!r->chunk_count || chunks[r->chunk_count - 1].ranks != bits)
      chunks[r->chunk_count++] = (treadle_chunk_span){.first_layer = l, .ranks = bits};
    chunks[r->chunk_count - 1].end_layer = l + 1;
  }
  r->chunks = chunks;
  TRY(find_holders(layout, r, transformer->embed, &r->embed));
  TRY(find_holders(layout, r, transformer->head < 0 ? transformer->score : transformer->head, &r->head));
  r->embed_copies = r->embed & ~chunks[0].ranks;
  if (r->embed & chunks[0].ranks) r->embed &= chunks[0].ranks;
  if (r->head & chunks[r->chunk_count - 1].ranks) r->head &= chunks[r->chunk_count - 1].ranks;
out:
  return status;
}
