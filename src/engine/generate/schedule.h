/* Which sequences go on, and with which rows: continuous batching.
 *
 * A sequence is one sample of one request: its tokens, how many of them have keys and values in the cache, and the blocks where these
 * lie. In each step every running sequence gets the rows that it lacks: one while it generates, more while its prompt is read. All
 * prompts of a step together get at most `chunk` rows, so that a long one does not hold up the others. Waiting sequences start in their
 * order, while there are places in the batch and blocks.
 *
 * If a running sequence needs a block and there is none, the last one that started gives its blocks up and waits again, as the first.
 * Its tokens stay, and its keys and values are computed again, to the same bits.
 *
 * Nothing here knows of time or of other ranks: the same calls give the same steps on every rank of a replica. */
#ifndef TREADLE_GENERATE_SCHEDULE_H
#define TREADLE_GENERATE_SCHEDULE_H

#include "base/array.h"
#include "generate/cache.h"
#include "pass/pass.h"

typedef struct treadle_sequence {
  int64_t number;                          /* the caller's */
  TREADLE_ARRAY(int32_t) tokens;           /* prompt and new ones */
  int64_t computed;                        /* this many have keys and values */
  TREADLE_ARRAY(int32_t) table;            /* blocks */
  TREADLE_ARRAY(treadle_hash_pair) hashes; /* of full blocks, as far as they were asked for */
  int64_t rows;                            /* of the present step */
  struct treadle_sequence *next;           /* among those that wait */
} treadle_sequence;

typedef struct treadle_schedule {
  treadle_cache *cache;
  int32_t batch; /* sequences at most */
  int64_t chunk; /* rows of prompts in a step, at most */
  uint64_t seed; /* of hashes: changed by the caller between two steps, when the weights have changed */
  treadle_sequence **running; /* [batch] in the order in which they started */
  int32_t running_count;
  treadle_sequence *first, *last; /* who wait */
  int64_t preemptions, hit_tokens;
  /* the step */
  int32_t *tokens;
  treadle_pass_span *stretches;
  treadle_sequence **stepping; /* whose stretch it is */
} treadle_schedule;

treadle_status treadle_schedule_init(treadle_schedule *schedule, treadle_cache *cache, int32_t batch,
                                     int64_t chunk);
void treadle_schedule_release(treadle_schedule *schedule);

/* Puts a sequence with its tokens at the end of those who wait. It stays the caller's. */
void treadle_schedule_add(treadle_schedule *schedule, treadle_sequence *sequence);
/* Fills a step; one without rows: nobody is left. The longest sequence must fit into the cache alone. */
treadle_status treadle_schedule_step(treadle_schedule *schedule, treadle_pass_step *step_p);
/* After a step has run: its rows are computed. */
void treadle_schedule_done(treadle_schedule *schedule, const treadle_pass_step *step);
/* What the cache has is nobody's any more: running sequences wait again, in their order and before all others, and all that they had is
 * computed again. Between two steps; before the next one the seed is changed. */
void treadle_schedule_restart(treadle_schedule *schedule);
/* A running sequence has ended: its blocks are free. */
void treadle_schedule_end(treadle_schedule *schedule, treadle_sequence *sequence);

/* Frees what a sequence holds, but not its blocks. */
void treadle_sequence_release(treadle_sequence *sequence);

static inline int32_t treadle_schedule_blocks(const treadle_cache *cache, int64_t tokens) {
  return (int32_t)((tokens + cache->block_tokens - 1) / cache->block_tokens);
}

#endif
