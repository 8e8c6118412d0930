/* A transformer: what the family's `forward` says, made concrete by a config.json. Which tensor plays which role in each layer, the
 * sizes of heads, the numbers of norms, rotary embedding and routing. It knows no ranks and no layout.
 *
 * What the engine cannot compute is refused here, by name: a family without `forward`, another activation, sliding windows. */
#ifndef TREADLE_PASS_TRANSFORMER_H
#define TREADLE_PASS_TRANSFORMER_H

#include "family/forward.h"
#include "model/model.h"

typedef struct treadle_transformer_layer {
  int32_t tensor[TREADLE_ROLES]; /* canonical tensors; -1: the layer has none. Of experts the stacked one */
  bool rotates;                  /* queries and keys are turned by position */
  bool sparse;                   /* it has experts, and no MLP */
} treadle_transformer_layer;

typedef enum treadle_attention_kind { TREADLE_ATTENTION_GQA, TREADLE_ATTENTION_MLA } treadle_attention_kind;

/* How a token's experts are chosen (families' `forward`). */
typedef struct treadle_transformer_routing {
  int64_t experts, top; /* 0: no layer has experts */
  bool sigmoid;         /* scores are sigmoids; else a soft-max */
  bool renormalise;     /* weights are divided by their sum */
  float scale;
  int64_t groups, top_groups; /* groups 1: experts are not chosen in groups */
  bool group_top2;            /* a group's score is the sum of its two best; else the best */
} treadle_transformer_routing;

typedef struct treadle_transformer {
  const treadle_model *model;
  int64_t layers, hidden, vocabulary;
  treadle_attention_kind attention;
  int64_t heads, kv_heads;
  int64_t head_dim;            /* gqa: of q, k and v. mla: of q, nope_dim + rope_dim */
  int64_t nope_dim, rope_dim;  /* mla; gqa: 0 and head_dim */
  int64_t value_dim;           /* of a head's part of what o multiplies */
  int64_t latent_dim;          /* mla */
  int64_t intermediate;        /* of the MLP; 0: no layer has one */
  int64_t expert_intermediate; /* of an expert */
  int64_t shared_intermediate; /* of the shared expert; 0: there is none */
  bool interleaved;            /* rotary embedding turns neighbours */
  float eps;
  treadle_transformer_routing routing;
  int32_t embed, final_norm; /* canonical tensors */
  int32_t head, score,
      score_bias; /* of a language model, or of a critic or reward model; -1: it has none */
  treadle_transformer_layer *layer; /* [layers] */
  int64_t most_positions;           /* max_position_embeddings; 0: the config does not say */
  treadle_arena arena;
} treadle_transformer;

/* The model must outlive the transformer. On failure *transformer_p is NULL. */
treadle_status treadle_transformer_create(const treadle_model *model, treadle_transformer **transformer_p);
void treadle_transformer_destroy(treadle_transformer *transformer);

/* TREADLE_REFUSED, with the first difference, where two models of one family compute other things with the same tensors. The message begins with
 * the path of b's model. */
treadle_status treadle_transformer_compare(const treadle_transformer *a, const treadle_transformer *b);

/* How the experts that a token chose are recorded: of each layer that has experts, in order, `top` little-endian uint16, ascending. Where
 * those of a layer begin, and at the end (`layers`) the bytes of a token. */
static inline int64_t treadle_transformer_record_at(const treadle_transformer *transformer, int64_t layer) {
  int64_t sparse = 0;
  for (int64_t l = 0; l < layer; l++) sparse += transformer->layer[l].sparse;
  return sparse * 2 * transformer->routing.top;
}
static inline int64_t treadle_transformer_record_bytes(const treadle_transformer *transformer) {
  return treadle_transformer_record_at(transformer, transformer->layers);
}

/* Has the layer a shared expert? */
static inline bool treadle_transformer_shares(const treadle_transformer *transformer, int64_t layer) {
  return transformer->layer[layer].tensor[TREADLE_ROLE_SHARED_DOWN] >= 0;
}

/* The config that the family's fields are in: its object, or the whole. */
const struct json_t *treadle_transformer_config(const treadle_transformer *transformer);
/* A field of it, else of the whole; NULL: neither has it. */
const struct json_t *treadle_transformer_field(const treadle_transformer *transformer, const char *name);

/* Leaves of an inner dimension that a mesh may cut: as many as the least common multiple of the numbers up to 8 that divide
 * `parts`, which it counts in (heads, or elements). So each tp up to 8 that divides them cuts between leaves. */
enum { TREADLE_LEAVES_MOST = 840 };
int64_t treadle_transformer_leaves(int64_t parts);

#endif
