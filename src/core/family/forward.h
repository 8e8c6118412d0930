/* `forward` of a family file: what the built-in engine computes with which tensor (docs/families.md, "What the engine computes").
 *
 * A role is a place of a tensor in a decoder; a fact is a number, a condition or a word beside it. Tables of both are in forward.c, as
 * the file has them. */
#ifndef TREADLE_FAMILY_FORWARD_H
#define TREADLE_FAMILY_FORWARD_H

#include "family/family.h"

typedef enum treadle_role {
  TREADLE_ROLE_EMBED,
  TREADLE_ROLE_FINAL_NORM,
  TREADLE_ROLE_HEAD,
  TREADLE_ROLE_SCORE, /* [1, H]: of a model with a score head, in place of the head */
  TREADLE_ROLE_SCORE_BIAS,
  TREADLE_ROLE_ATTENTION_NORM, /* before attention */
  TREADLE_ROLE_MLP_NORM,       /* before the MLP, or the experts */
  TREADLE_ROLE_Q,
  TREADLE_ROLE_Q_BIAS,
  TREADLE_ROLE_K,
  TREADLE_ROLE_K_BIAS,
  TREADLE_ROLE_V,
  TREADLE_ROLE_V_BIAS,
  TREADLE_ROLE_O,
  TREADLE_ROLE_O_BIAS,
  TREADLE_ROLE_Q_NORM, /* over a head */
  TREADLE_ROLE_K_NORM,
  TREADLE_ROLE_Q_DOWN, /* latent attention */
  TREADLE_ROLE_Q_DOWN_NORM,
  TREADLE_ROLE_Q_UP,
  TREADLE_ROLE_KV_DOWN,
  TREADLE_ROLE_KV_DOWN_NORM,
  TREADLE_ROLE_KV_UP,
  TREADLE_ROLE_GATE,
  TREADLE_ROLE_GATE_BIAS,
  TREADLE_ROLE_UP,
  TREADLE_ROLE_UP_BIAS,
  TREADLE_ROLE_DOWN,
  TREADLE_ROLE_DOWN_BIAS,
  TREADLE_ROLE_ROUTER,
  TREADLE_ROLE_ROUTER_BIAS, /* for the choice of experts alone */
  TREADLE_ROLE_EXPERT_GATE,
  TREADLE_ROLE_EXPERT_UP,
  TREADLE_ROLE_EXPERT_DOWN,
  TREADLE_ROLE_SHARED_GATE,
  TREADLE_ROLE_SHARED_UP,
  TREADLE_ROLE_SHARED_DOWN,
  TREADLE_ROLE_SHARED_SCALE, /* [1, H]: the sigmoid of it scales the shared expert */
  TREADLE_ROLES
} treadle_role;

typedef enum treadle_fact {
  TREADLE_FACT_MODEL,     /* word: decoder. Without it the engine does not compute the family */
  TREADLE_FACT_ATTENTION, /* word: gqa, mla */
  TREADLE_FACT_HEADS,
  TREADLE_FACT_KV_HEADS,
  TREADLE_FACT_HEAD_DIM,
  TREADLE_FACT_NOPE_DIM, /* of a head of latent attention, what is not rotated, */
  TREADLE_FACT_ROPE_DIM, /* and what is */
  TREADLE_FACT_VALUE_DIM,
  TREADLE_FACT_LATENT_DIM,
  TREADLE_FACT_ROTATE,      /* condition of a layer: it has rotary embedding */
  TREADLE_FACT_INTERLEAVED, /* condition: it turns neighbours */
  TREADLE_FACT_EPS,         /* number */
  TREADLE_FACT_EXPERTS,
  TREADLE_FACT_TOP,         /* experts of a token */
  TREADLE_FACT_ROUTING,     /* word: softmax, sigmoid */
  TREADLE_FACT_RENORMALISE, /* condition: the weights of a token's experts have the sum 1 */
  TREADLE_FACT_SCALE,       /* number: the weights are multiplied by it */
  TREADLE_FACT_GROUPS,
  TREADLE_FACT_TOP_GROUPS,
  TREADLE_FACT_GROUP_SCORE, /* word: max, top2 */
  TREADLE_FACT_GROUP_WHEN,  /* FIELD.WORD: experts are chosen in groups if the config's field is the word */
  TREADLE_FACTS
} treadle_fact;

typedef struct treadle_forward_section {
  treadle_name roles[TREADLE_ROLES]; /* text NULL: nothing is said */
  const char *facts[TREADLE_FACTS];  /* NULL: nothing is said */
  const char *file;                  /* for messages */
  int line;
} treadle_forward_section;

/* Why treadle's own engines do not generate with models of the family, or do not train them, as far as its file says
 * so. NULL: they do. A config can have more that they refuse: a sliding window, another activation. */
const char *treadle_family_not_generated(const treadle_family *family);
const char *treadle_family_not_trained(const treadle_family *family);

const char *treadle_role_text(treadle_role role); /* as the file has it: "q_norm" */
const char *treadle_fact_text(treadle_fact fact);

#endif
