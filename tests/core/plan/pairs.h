/* Random pairs of layouts over random small models, and an interpreter that plays their plans.
 *
 * A pair follows from its seed alone; pair_describe gives what a person needs to play it again. The interpreter
 * keeps every rank's physical pages in plain memory, runs the waves of all ranks in any order that `need`
 * allows, byte by byte through the page tables, and compares with a direct cut by the oracle. */
#ifndef TREADLE_TESTS_PAIRS_H
#define TREADLE_TESTS_PAIRS_H

#include "oracle/oracle.h"
#include "plan/draw.h"
#include "plan/plan.h"

enum { PAIR_PAGE = 4096 }; /* bytes */

typedef struct pair_side {
  char text[DRAW_TEXT];   /* of the layout */
  char set[16], like[16]; /* one of draw_kinds; of given pieces: what they were */
  bool given;             /* the layout is handed over piece by piece */
  int64_t f;              /* rank map */
  treadle_layout *layout;
  oracle_layout *oracle;
} pair_side;

typedef struct pair {
  uint64_t seed;
  char config[DRAW_CONFIG]; /* as JSON */
  json_t *json;
  int64_t ranks;
  treadle_model *model;
  oracle_model *oracle;
  int32_t *tensors; /* [oracle->tensor_count] the library's canonical tensor of the oracle's */
  pair_side from, to;
  treadle_nodes nodes; /* of the ranks; zeroed: all are on one */
} pair;

/* Fills `tensors` of a pair that has both models. */
void pair_match(pair *p);

/* Makes the pair of a seed: draws until both layouts are legal. Fails the test when library and oracle do not
 * agree on what is legal. max_elems bounds the model. */
void pair_make(pair *p, uint64_t seed, int64_t max_elems);
void pair_release(pair *p);
/* The largest of all ranks; at least 1. */
int64_t pair_cap_min(const pair *p, int64_t page_bytes);
const char *pair_describe(const pair *p);

typedef struct pair_result {
  int64_t moved, bound, back_moved;
  int64_t node_moved, node_bound; /* forward, entering nodes; relayed: both ways */
  int64_t relayed;
  int64_t made,
      inputs; /* both ways: ops that another node's rank makes; what block rows read of other nodes */
  size_t block_rows; /* of all ranks, both ways */
  int32_t waves;
  bool lossless, returned; /* by the plan; do these values come back the same? */
} pair_result;

/* Plans, plays both directions and compares with what all the casts on the way make of the values; ends the test
 * at the first difference. cap_min: with the smallest cap; else with a random one. */
pair_result pair_play(pair *p, bool cap_min);

#endif
