#include "pass/replica.h"

#include "base/alloc.h"

/* Ranks with equal pieces have equal coordinates. The k-th rank of each coordinate is in replica k. */
static treadle_status find_ranks(const treadle_layout *layout, int64_t rank, treadle_replica *r) {
  int64_t ranks = layout->ranks, least = ranks, at = -1;
  uint64_t *where = treadle_alloc_array((size_t)ranks, sizeof *where);
  int64_t *nth = treadle_alloc_array((size_t)ranks, sizeof *nth);
  treadle_status status = TREADLE_OK;
  if (!where || !nth) {
    status = treadle_fail(TREADLE_NO_MEMORY, "no memory for %lld ranks", (long long)ranks);
    goto out;
  }
  for (int64_t i = 0; i < ranks; i++) {
    where[i] = treadle_layout_place(layout, i);
    for (int64_t k = 0; k < i; k++) nth[i] += where[k] == where[i];
  }
  for (int64_t i = 0; i < ranks; i++) {
    int64_t same = 0;
    for (int64_t k = 0; k < ranks; k++) same += where[k] == where[i];
    if (same < least) least = same;
  }
  r->count = least;
  r->number = nth[rank] < least ? nth[rank] : least - 1;
  for (int64_t i = 0; i < ranks; i++) {
    if ((nth[i] < least ? nth[i] : least - 1) != r->number) continue;
    if (r->rank_count == TREADLE_REPLICA_RANKS) {
      status = treadle_fail(TREADLE_REFUSED, "%s: more than %d ranks compute together", layout->text,
                            TREADLE_REPLICA_RANKS);
      goto out;
    }
    if (i == rank) at = r->rank_count;
    r->ranks[r->rank_count++] = (int)i;
  }
  r->position = (int)at;
out:
  treadle_free(where);
  treadle_free(nth);
  return status;
}

treadle_status treadle_replica_place_of(const treadle_layout *layout, int64_t rank,
                                        treadle_replica_place *place_p) {
  treadle_replica r = {0};
  treadle_status status;
  TRY(find_ranks(layout, rank, &r));
  *place_p = (treadle_replica_place){.number = r.number, .count = r.count, .leads = r.position == 0};
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
  if (r->embed & chunks[0].ranks) r->embed &= chunks[0].ranks;
  if (r->head & chunks[r->chunk_count - 1].ranks) r->head &= chunks[r->chunk_count - 1].ranks;
out:
  return status;
}
