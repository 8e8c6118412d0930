/* What vLLM and SGLang have in common: attention, MLP and expert tensors of a layer (rules 8 and 9), expert
 * placement (rules 6.2, 6.3) and where replicas of an engine sit. */
#ifndef TREADLE_TESTS_ORACLE_ENGINES_H
#define TREADLE_TESTS_ORACLE_ENGINES_H

#include "oracle/oracle_parts.h"

/* Which experts a rank has, slot by slot, layer by layer. */
typedef struct oracle_slots {
  int64_t physical; /* slots of all ranks together; E without redundant experts */
  int64_t layers;   /* rows of the map; 0: the initial map for every layer */
  int64_t *map;     /* [layers][physical] logical experts */
  int64_t ep;       /* ranks that share them; 1: each has all */
  bool round_robin;
} oracle_slots;

/* `redundant` more slots than experts; path NULL: the initial map, physical i is expert i % E. */
bool oracle_slots_make(const oracle_model *model, int64_t ep, int64_t redundant, const char *path,
                       oracle_slots *slots, char *why);
void oracle_slots_free(oracle_slots *slots);
/* How many slots a rank has, and the expert in one of them. */
int64_t oracle_slots_count(const oracle_slots *slots, int64_t rank);
int64_t oracle_slots_expert(const oracle_model *model, const oracle_slots *slots, int64_t layer,
                            int64_t rank, int64_t slot);

typedef struct oracle_engine { /* a rank of an engine, and how its tensors are cut */
  bool sglang, old_names;
  oracle_shard attention, dense, shared, moe, embedding, head, full;
  int64_t embedding_rows, head_rows, full_rows; /* padded vocabulary; full: cut over all of tp */
  const oracle_slots *slots;
  int64_t ep_rank;
  bool transposed; /* w13 and w2 stored [E, in, out] */
  bool fused;      /* the shared expert is one more routed expert */
} oracle_engine;

/* Each adds its tensors under the place's prefix, of the place's layer. */
void oracle_engine_vector(const oracle_place *at, const char *name, const char *hf);
void oracle_engine_attention(const oracle_place *at, const oracle_engine *e, const char *self_attn);
void oracle_engine_qk_norms(const oracle_place *at, const char *self_attn);
/* SmolLM3 runs on the engines' Transformers backend: Hugging Face's modules, each cut by itself; vLLM fuses some. */
void oracle_engine_modules(const oracle_place *at, const oracle_engine *e);
void oracle_engine_fused_modules(const oracle_place *at, const oracle_engine *e);
void oracle_engine_mla(const oracle_place *at, const oracle_engine *e);
void oracle_engine_linear(const oracle_place *at, const oracle_engine *e);
void oracle_engine_dense(const oracle_place *at, const oracle_engine *e);
void oracle_engine_router(const oracle_place *at);
void oracle_engine_shared(const oracle_place *at, const oracle_engine *e);
void oracle_engine_shared_gate(const oracle_place *at);
void oracle_engine_experts(const oracle_place *at, const oracle_engine *e);
/* DeepSeek-OCR in SGLang: each expert a module of its own, cut as a dense MLP. */
void oracle_engine_experts_apart(const oracle_place *at, const oracle_engine *e);
void oracle_engine_norms(const oracle_place *at);
/* W_UK_T and W_UV, or w_kc and w_vc, behind all parameters. */
void oracle_engine_derived(const oracle_place *at, const oracle_engine *e);
void oracle_engine_embedding(const oracle_place *at, const oracle_engine *e, const char *name);
void oracle_engine_head(const oracle_place *at, const oracle_engine *e, const char *name);

/* Layout rank i sits on this physical rank (see oracle_layout_new). */
int64_t oracle_physical_rank(int64_t i, int64_t tp, int64_t strides);
bool oracle_check_ranks(const oracle_layout *layout, int64_t engine, int64_t tp, int64_t strides,
                        char *why);
/* May everything but the experts' number be cut so? all_moe: no layer has a dense MLP. */
bool oracle_check_engine(const oracle_model *model, int64_t attention, int64_t dense, int64_t shared,
                         int64_t moe, bool all_moe, char *why);

#endif
