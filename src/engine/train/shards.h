/* FSDP2: shards of weights, gradients and state, gathered a unit at a time (shards.c). NULL stands for the shards of a layout that is not
 * sharded. */
#ifndef TREADLE_TRAIN_SHARDS_H
#define TREADLE_TRAIN_SHARDS_H

#include "train/back.h"
#include "train/ranks.h"
#include "train/windows.h"

typedef struct treadle_train_shards treadle_train_shards;

/* The parts of a trainer that shards work on; the arena has their memory. */
typedef struct treadle_train_shard_parts {
  const treadle_train_windows *windows;
  const treadle_train_ranks *ranks;
  treadle_back *back;
  treadle_arena *arena;
} treadle_train_shard_parts;

bool treadle_train_is_sharded(const treadle_layout *layout);
/* Finds the shards; `plans`: only how large they are. Close *shards_p whatever is returned. */
treadle_status treadle_train_open_shards(const treadle_train_shard_parts *of, bool plans,
                                         treadle_train_shards **shards_p);
void treadle_train_close_shards(treadle_train_shards *shards);
/* The layouts that passes compute in: of weights, and of gradients. */
const treadle_layout *treadle_train_whole(const treadle_train_shards *shards);
const treadle_layout *treadle_train_whole_grads(const treadle_train_shards *shards);
/* Weights and gradients lie in the place of their unit. */
treadle_status treadle_train_place_shards(const treadle_train_shards *shards);
/* Of the largest unit; 0: nothing is sharded. */
int64_t treadle_train_unit_bytes(const treadle_train_shards *shards, treadle_dtype dtype);
int64_t
treadle_train_unit_grad_bytes(const treadle_train_shards *shards); /* 0, too: weights do not train */
void treadle_train_place_gathered(treadle_train_shards *shards, char *gathered, float *sum);
char *treadle_train_gathered(const treadle_train_shards *shards);
int64_t treadle_train_shard_block(void); /* elements of `sum` */
/* Bytes of a rank's part of the board. */
uint64_t treadle_train_shard_board(const treadle_train_shards *shards);
/* All ranks meet on the board, which is there now. Collective. */
treadle_status treadle_train_join_shards(treadle_train_shards *shards);

/* A unit is a layer, by its number, or one of these. */
int32_t treadle_train_unit_embed(const treadle_transformer *transformer);
int32_t treadle_train_unit_head(const treadle_transformer *transformer);
/* Its weights are gathered. Nothing to do, as for all that follows, where nothing is sharded. */
void treadle_train_need(treadle_train_shards *shards, int32_t unit);
void treadle_train_forget_unit(treadle_train_shards *shards); /* weights have changed */
/* All ranks gather out of these from now on, once all have shown theirs. */
void treadle_train_show_shards(treadle_train_shards *shards, const void *weights);
/* Around its backward: gradients begin at 0; then all ranks add up their shards. */
void treadle_train_begin_unit(treadle_train_shards *shards, int32_t unit);
treadle_status treadle_train_end_unit(treadle_train_shards *shards, int32_t unit);
/* A micro batch that this rank does not have. */
treadle_status treadle_train_idle_batch(treadle_train_shards *shards);
/* Does this rank answer for its shard, or one of another copy of the model? */
bool treadle_train_answers(const treadle_train_shards *shards);

#endif
