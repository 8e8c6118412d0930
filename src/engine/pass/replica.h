/* Which ranks compute together. A replica is a set of ranks that together hold the whole model, and whose parts another replica
 * holds again; replicas share the requests. In a replica, layers that the same ranks hold one after another are a chunk (a pipeline
 * stage, or a virtual one): its ranks compute it together, then hand the rows to those of the next.
 *
 * All of it follows from the layout's pieces. Ranks may hold the same parts and yet be needed: data parallel ranks with different
 * experts. As it is found, all ranks of a replica compute the same rows, these ranks twice, to the same bits. Divided into groups, the
 * k-th rank of each dense part is in group k. Each group has rows of its own, and only experts take the rows of all groups. */
#ifndef TREADLE_PASS_REPLICA_H
#define TREADLE_PASS_REPLICA_H

#include "pass/transformer.h"
#include "pass/weights.h"
#include "treadle_engine.h"

enum { TREADLE_REPLICA_RANKS = 64 };

typedef uint64_t treadle_rank_bits; /* of the replica's ranks, by position */

typedef struct treadle_chunk_span {
  int32_t first_layer, end_layer;
  treadle_rank_bits ranks;
} treadle_chunk_span;

/* Whose rows a rank has: those of one group of ranks, of all groups in all replicas, in the order of their first ranks. */
typedef struct treadle_replica_place {
  int64_t number, count;
  bool leads; /* the rank is the first of its group */
} treadle_replica_place;

typedef struct treadle_replica {
  int64_t count, number; /* of replicas in the layout; which one this rank is in */
  int rank_count;
  int ranks[TREADLE_REPLICA_RANKS];  /* of the layout, ascending */
  int position;                      /* of this rank in them */
  int group_count;                   /* 1: all ranks have the same rows */
  int groups[TREADLE_REPLICA_RANKS]; /* by position: the rank's group */
  treadle_replica_place place;
  int32_t chunk_count;
  const treadle_chunk_span *chunks; /* in the order of layers */
  treadle_rank_bits embed,
      head; /* who has rows of the embedding that the first chunk uses, and of the head */
  treadle_rank_bits embed_copies; /* who else has rows of the embedding: for a tied head, or a draft */
} treadle_replica;

/* The ranks of this rank's group. */
static inline treadle_rank_bits treadle_replica_members(const treadle_replica *replica) {
  treadle_rank_bits bits = 0;
  for (int i = 0; i < replica->rank_count; i++)
    if (replica->groups[i] == replica->groups[replica->position]) bits |= (treadle_rank_bits)1 << i;
  return bits;
}

/* The place of a rank where replicas are divided into groups. By the layout alone. */
treadle_status treadle_replica_place_of(const treadle_layout *layout, int64_t rank,
                                        treadle_replica_place *place_p);
/* Rows of `rows` that are a group's: groups have rows that follow each other, as many as the others or one more. */
static inline treadle_row_range treadle_replica_rows(const treadle_replica_place *place, int64_t rows) {
  return (treadle_row_range){rows * place->number / place->count,
                             rows * (place->number + 1) / place->count};
}

/* Refused: layouts whose ranks are not replicas of each other, more than TREADLE_REPLICA_RANKS ranks in one, layers whose parts are
 * on no rank. Memory is the arena's. */
treadle_status treadle_replica_find(const treadle_transformer *transformer, const treadle_layout *layout,
                                    int64_t rank, treadle_arena *arena, treadle_replica *replica_p);
/* Then: divides it into groups. */
treadle_status treadle_replica_divide(const treadle_layout *layout, int64_t rank, treadle_replica *replica);

#endif
