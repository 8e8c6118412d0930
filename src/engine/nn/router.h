/* Which experts a token goes to, and with what weights, from the router's logits: the published rules, as transformers 5.23 has
 * them (its modeling files of each family).
 *
 *   softmax   p = soft-max of the logits; the top_k largest p. Renormalised: divided by their sum. Mixtral always; Qwen2-MoE and
 *             Qwen3-MoE by norm_topk_prob; DeepSeek-V2 ("greedy") never.
 *   group_limited_greedy   DeepSeek-V2: the same p, of the top_groups groups whose largest p is largest.
 *   noaux_tc  DeepSeek-V3, Kimi-K2, GLM-4-MoE: s = sigmoid of the logits, c = s + bias. Groups are chosen by the sum of
 *             their two largest c, experts in them by c; weights are s, renormalised by their sum + 1e-20.
 *
 * Weights are multiplied by `scale` (routed_scaling_factor) last. Among equal scores the expert, or group, with the lower number wins;
 * NaN loses to all. Sums are made in ascending order of expert number, in fp32. Where a logit or a bias is not finite all weights are
 * NaN, so that it shows. */
#ifndef TREADLE_NN_ROUTER_H
#define TREADLE_NN_ROUTER_H

#include "base/status.h"
#include "nn/rows.h"

enum { TREADLE_ROUTER_MAX_EXPERTS = 65536, TREADLE_ROUTER_MAX_CHOSEN = 1024 /* and groups */ };

typedef enum treadle_router_type {
  TREADLE_ROUTER_SOFTMAX,
  TREADLE_ROUTER_GROUP_LIMITED,
  TREADLE_ROUTER_NOAUX_TC,
} treadle_router_type;

typedef struct treadle_router {
  treadle_router_type type;
  int experts, top_k;     /* of each token top_k of the experts */
  int groups, top_groups; /* not of SOFTMAX; equal runs of experts */
  bool renormalised;
  float scale;       /* 1 where a model has none */
  const float *bias; /* NOAUX_TC: e_score_correction_bias [experts], or NULL for zeros */
} treadle_router;

typedef struct treadle_routed {
  int32_t expert;
  float weight;
} treadle_routed;

/* "softmax", "greedy" (the same), "group_limited_greedy", "noaux_tc"; others are refused with the name. */
treadle_status treadle_router_type_parse(const char *text, treadle_router_type *type_p);
/* Refuses numbers that do not fit together. */
treadle_status treadle_router_check(const treadle_router *router);

/* The scores that weights are made of, [experts], from logits: softmax, or sigmoid (NOAUX_TC). */
void treadle_router_score(const treadle_router *router, const treadle_row_ops *ops, const float *logits,
                          float *scores);
/* The experts of one token, ascending by number: routed[top_k]. scores: room for 3 * experts values. */
void treadle_router_run(const treadle_router *router, const treadle_row_ops *ops, const float *logits,
                        float *scores, treadle_routed *routed);
/* The weights of experts that are chosen already, ascending: those that run would give them. */
void treadle_router_weigh(const treadle_router *router, const treadle_row_ops *ops, const float *logits,
                          float *scores, treadle_routed *routed);

#endif
