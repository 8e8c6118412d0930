/* The engine: a transformer on the ranks of a layout, its cache, and a forward pass. What the files of generation and scoring share. */
#ifndef TREADLE_INFER_ENGINE_H
#define TREADLE_INFER_ENGINE_H

#include "infer/cache.h"
#include "infer/pass.h"
#include "infer/sampling.h"

struct treadle_engine {
  treadle_group *group;
  const treadle_layout *layout;
  treadle_transformer *transformer;
  treadle_replica replica;
  treadle_board *board;     /* of the group; NULL: this rank is alone */
  uint64_t meetings, steps; /* of collect.h: all together; this rank's */
  treadle_pass *pass;
  treadle_cache cache;
  char *kv; /* memory of the blocks, the engine's own */
  size_t kv_bytes;
  bool bound;
  uint64_t version; /* of the weights: how often they were bound */
  int64_t most_tokens;
  int32_t max_batch, prefill_chunk, threads;
  bool fast;
  treadle_dtype dtype;
  treadle_arena arena;
};

/* TREADLE_STATE where no weights are bound. */
treadle_status treadle_engine_need_weights(const treadle_engine *engine, const char *what);
/* Refuses ids that the vocabulary does not have; `what` names them. */
treadle_status treadle_engine_check_tokens(const treadle_engine *engine, const int32_t *tokens,
                                           size_t count, const char *what);
/* The same of a text to score: its tokens, and room for them. */
treadle_status treadle_engine_check_text(const treadle_engine *engine, const treadle_score_text *text,
                                         const char *what);

/* ---- engine_ranks.c ---- */

/* Refuses layouts that the engine does not compute in, by name. */
treadle_status treadle_engine_check_layout(const treadle_layout *layout);

/* Meets the other ranks of the group, which must have the same options and kernels. Collective. */
treadle_status treadle_engine_meet(treadle_engine *engine, const treadle_engine_options *options);
/* TREADLE_PEER where a rank has failed in a call before. */
treadle_status treadle_engine_check_ranks(const treadle_engine *engine, const char *what);
/* The least of all ranks' values. Collective. */
treadle_status treadle_engine_least(treadle_engine *engine, size_t *value);

/* What the model's folder says of sampling: generation_config.json where there is one, and the end tokens, else of config.json. */
treadle_status treadle_engine_sampling(const treadle_engine *engine, treadle_arena *arena,
                                       treadle_sampling *sampling_p, treadle_eos *eos_p);

#endif
