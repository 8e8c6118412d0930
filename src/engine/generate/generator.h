/* The engine: a transformer on the ranks of a layout, its cache, and a forward pass. What the files of generation and scoring share. */
#ifndef TREADLE_GENERATE_GENERATOR_H
#define TREADLE_GENERATE_GENERATOR_H

#include "generate/cache.h"
#include "generate/gate.h"
#include "generate/sampling.h"
#include "pass/pass.h"
#include "treadle_builtin.h"

struct treadle_generator {
  treadle_group *group;
  const treadle_layout *layout;
  treadle_transformer *transformer;
  treadle_replica replica;
  uint64_t number;          /* of the group's objects */
  treadle_board *board;     /* of the group; NULL: this rank is alone */
  uint64_t meetings, steps; /* of collect.h: all together; this rank's */
  treadle_pass *pass;
  treadle_cache cache;
  /* Another thread may bind: what it writes is under the gate's lock, or is read while the gate is held. */
  bool counted;            /* the cache has the blocks of the present memory */
  size_t kv_bytes;         /* of that memory */
  void *own_kv, *own_work; /* without a switch: taken at the first bind */
  /* With a switch (plug.c). */
  const treadle_switch *sw; /* NULL: there is none */
  int64_t *shift;           /* [storage tensors] */
  treadle_gate gate;
  uint64_t version; /* of the weights: how often they were bound; the switch's */
  uint64_t seed;    /* of the hashes of blocks: another one when what the cache has is nobody's */
  int64_t most_tokens;
  int32_t max_batch, prefill_chunk, threads;
  bool fast;
  treadle_dtype dtype;
  treadle_arena arena;
};

/* Device memory of this rank that lies in no window: what ranks exchange. */
size_t treadle_generator_outside_bytes(const treadle_generator *engine);
/* What the engine of a rank takes, without making it; *room_p: of its board. */

treadle_status treadle_generator_measure(const treadle_layout *layout,
                                         const treadle_generator_options *options, int rank,
                                         treadle_generator_memory *memory_p, treadle_pass_board *room_p);

/* Tells an observer what is done. TREADLE_CANCELLED, by the name of the call, where it wants to stop. */
treadle_status treadle_generator_tell(const treadle_observer *observer, const char *call, const char *doing,
                                      int64_t done, int64_t total);

/* What the cache has is nobody's any more. */
void treadle_generator_forget(treadle_generator *engine);
/* Before each call: TREADLE_STATE on all ranks where one has no weights. If a rank failed in the call before, all meet anew; after a bind, the
 * ranks count the blocks of the cache. Collective. */
treadle_status treadle_generator_need_weights(treadle_generator *engine, const char *what);

/* treadle_generator_score behind the check of arguments and weights, which all ranks have made. */
treadle_status treadle_generator_score_texts(treadle_generator *engine, const treadle_score_text *texts,
                                             size_t count, const treadle_score_options *options);

/* ---- plug.c ---- */

/* The weights are somewhere from now on, and the cache in `kv_bytes` bytes. No step is under way, and none will be before the gate is
 * opened. */
treadle_status treadle_generator_settle(treadle_generator *engine, const treadle_pass_windows *windows,
                                        size_t kv_bytes);
/* Refuses ids that the vocabulary does not have; `what` names them. */
treadle_status treadle_generator_check_tokens(const treadle_generator *engine, const int32_t *tokens,
                                              size_t count, const char *what);
/* The same of a text to score: its tokens, and room for them. */
treadle_status treadle_generator_check_text(const treadle_generator *engine, const treadle_score_text *text,
                                            const char *what);

/* Refuses a tokenizer with more ids than the vocabulary: it is another model's. NULL is none. */
treadle_status treadle_generator_check_tokenizer(const treadle_generator *engine,
                                                 const treadle_tokenizer *tokenizer);

/* ---- finite.c ---- */

/* Refuses a row of logits whose lse is not finite, by the name of the weight that makes it so. */
treadle_status treadle_generator_check_row(const treadle_generator *engine, const float *logits,
                                           float temperature, double lse);

/* ---- generator_ranks.c ---- */

/* Meets the other ranks of the group, which must have the same options and kernels. Collective. */
treadle_status treadle_generator_meet(treadle_generator *engine, const treadle_generator_options *options);
/* Did this rank fail in the midst of a call, or at the meeting after it? Others wait for it no more. */
bool treadle_generator_has_failed(const treadle_generator *engine);
/* Meets all ranks where one has failed, on another board; what the caches have is forgotten. Collective. */
treadle_status treadle_generator_meet_anew(treadle_generator *engine);
/* The gate's ranks, with a switch. */
void treadle_generator_join_gate(treadle_generator *engine);
/* All ranks fared well, or all fail. Collective. */
treadle_status treadle_generator_agree(const treadle_generator *engine, treadle_status status);
/* The same before a call; refused where ranks make another, or were given other values. Collective. */
treadle_status treadle_generator_agree_on(const treadle_generator *engine, treadle_status status,
                                          const treadle_group_call *call);
/* The least of all ranks' values. Collective. */
treadle_status treadle_generator_least(treadle_generator *engine, size_t *value);

/* What the model's folder says of sampling: generation_config.json where there is one (NULL: nobody asks); and which tokens end a text, in the
 * arena: the tokenizer's end token (NULL: no tokenizer), then those of generation_config.json, or of config.json where that has none. One
 * beyond the vocabulary is refused. */
treadle_status treadle_transformer_sampling(const treadle_transformer *transformer,
                                            const treadle_tokenizer *tokenizer, treadle_arena *arena,
                                            treadle_sampling_values *sampling_p, treadle_eos *eos_p);
/* Refuses what that would, before the work; draws: of sampling, too. */
treadle_status treadle_defaults_check(const treadle_transformer *transformer,
                                      const treadle_tokenizer *tokenizer, bool draws);

#endif
