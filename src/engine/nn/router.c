/* A choice of k among n goes k times through all n: k is small, and ties and NaN need no thought. */
#include "nn/router.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

static const struct {
  const char *name;
  treadle_router_type type;
} names[] = {
    {"softmax", TREADLE_ROUTER_SOFTMAX},
    {"greedy", TREADLE_ROUTER_SOFTMAX},
    {"group_limited_greedy", TREADLE_ROUTER_GROUP_LIMITED},
    {"noaux_tc", TREADLE_ROUTER_NOAUX_TC},
};

treadle_status treadle_router_type_parse(const char *text, treadle_router_type *type_p) {
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (strcmp(text, names[i].name) != 0) continue;
    *type_p = names[i].type;
    return TREADLE_OK;
  }
  REFUSE("\"%.40s\" is not a known routing: softmax, greedy, group_limited_greedy and noaux_tc are", text);
}

static treadle_status check_groups(const treadle_router *r) {
  if (r->groups < 1 || r->groups > r->experts || r->experts % r->groups)
    REFUSE("%d experts in %d groups: groups are equal, and none is empty", r->experts, r->groups);
  if (r->groups > TREADLE_ROUTER_MAX_CHOSEN)
    REFUSE("%d groups of experts: at most %d", r->groups, TREADLE_ROUTER_MAX_CHOSEN);
  if (r->top_groups < 1 || r->top_groups > r->groups)
    REFUSE("%d of %d groups: at least one is taken, and at most all", r->top_groups, r->groups);
  int each = r->experts / r->groups;
  if (r->top_k > r->top_groups * each)
    REFUSE("%d experts of each token: %d groups of %d do not have that many", r->top_k, r->top_groups,
           each);
  if (r->type == TREADLE_ROUTER_NOAUX_TC && each < 2)
    REFUSE("%d experts in %d groups: noaux_tc adds the two best of a group", r->experts, r->groups);
  return TREADLE_OK;
}

treadle_status treadle_router_check(const treadle_router *r) {
  if (r->experts < 1 || r->experts > TREADLE_ROUTER_MAX_EXPERTS)
    REFUSE("%d experts: a router takes 1 to %d", r->experts, TREADLE_ROUTER_MAX_EXPERTS);
  if (r->top_k < 1 || r->top_k > r->experts || r->top_k > TREADLE_ROUTER_MAX_CHOSEN)
    REFUSE("%d of %d experts of each token: at least 1, at most all and %d", r->top_k, r->experts,
           TREADLE_ROUTER_MAX_CHOSEN);
  if (!isfinite(r->scale)) REFUSE("routed_scaling_factor is not finite");
  return r->type == TREADLE_ROUTER_SOFTMAX ? TREADLE_OK : check_groups(r);
}

/* Is a better than b? NaN is worse than all. */
static bool better(float a, float b) { return a > b || (isnan(b) && !isnan(a)); }

/* The place of the best of `count` values that is not yet taken, the first among equals. taken: ascending. */
static int best_of(const float *values, int count, const int *taken, int taken_count) {
  int best = -1;
  for (int i = 0, next = 0; i < count; i++) {
    if (next < taken_count && taken[next] == i)
      next++;
    else if (best < 0 || better(values[i], values[best]))
      best = i;
  }
  return best;
}

static void insert_ascending(int *list, int count, int value) {
  for (; count > 0 && list[count - 1] > value; count--) list[count] = list[count - 1];
  list[count] = value;
}

/* The `chosen_count` best places, ascending. */
static void choose(const float *values, int count, int chosen_count, int *chosen) {
  for (int i = 0; i < chosen_count; i++) insert_ascending(chosen, i, best_of(values, count, chosen, i));
}

/* What a group is chosen by: its largest value, or the sum of its two largest. */
static float group_score(const treadle_router *r, const float *values, int each) {
  int best[2];
  best[0] = best_of(values, each, NULL, 0);
  if (r->type == TREADLE_ROUTER_GROUP_LIMITED) return values[best[0]];
  best[1] = best_of(values, each, best, 1);
  return values[best[0]] + values[best[1]];
}

/* The experts of the best groups move to the front of `values`; groups[i] is then the group of the i-th run of `each` values.
 * Returns how many values there are. */
static int keep_groups(const treadle_router *r, float *values, float *scores, int *groups) {
  int each = r->experts / r->groups;
  size_t run_bytes = (size_t)each * sizeof *values;
  for (int g = 0; g < r->groups; g++) scores[g] = group_score(r, values + (ptrdiff_t)g * each, each);
  choose(scores, r->groups, r->top_groups, groups);
  for (int g = 0; g < r->top_groups; g++) /* ascending, so never over what is still to move */
    memmove(values + (ptrdiff_t)g * each, values + (ptrdiff_t)groups[g] * each, run_bytes);
  return r->top_groups * each;
}

void treadle_router_score(const treadle_router *r, const treadle_row_ops *ops, const float *logits,
                          float *scores) {
  if (r->type != TREADLE_ROUTER_NOAUX_TC) {
    ops->softmax(scores, logits, r->experts);
    return;
  }
  for (int i = 0; i < r->experts; i++) scores[i] = treadle_sigmoid(logits[i]);
}

/* The scores that are weights, and in `values` those that experts are chosen by. */
static void score(const treadle_router *r, const treadle_row_ops *ops, const float *logits, float *scores,
                  float *values) {
  const bool biased = r->type == TREADLE_ROUTER_NOAUX_TC && r->bias;
  treadle_router_score(r, ops, logits, scores);
  for (int i = 0; i < r->experts; i++) values[i] = biased ? scores[i] + r->bias[i] : scores[i];
}

static bool all_finite(const float *values, int count) {
  bool finite = true;
  for (int i = 0; i < count; i++) finite = finite && isfinite(values[i]);
  return finite;
}

/* The weights of chosen experts, from all scores. */
static void weigh(const treadle_router *router, const float *scores, bool finite, treadle_routed *routed) {
  float sum = 0.0f;
  for (int i = 0; i < router->top_k; i++) {
    routed[i].weight = scores[routed[i].expert];
    sum = sum + routed[i].weight;
  }
  if (router->type == TREADLE_ROUTER_NOAUX_TC) sum = sum + 1e-20f;
  for (int i = 0; i < router->top_k; i++) {
    if (router->renormalised) routed[i].weight = routed[i].weight / sum;
    routed[i].weight = finite ? routed[i].weight * router->scale : NAN;
  }
}

/* As score, and whether all numbers are finite. */
static bool score_finite(const treadle_router *router, const treadle_row_ops *ops, const float *logits,
                         float *scores) {
  float *values = scores + router->experts;
  score(router, ops, logits, scores, values);
  return all_finite(logits, router->experts) && all_finite(values, router->experts);
}

void treadle_router_weigh(const treadle_router *router, const treadle_row_ops *ops, const float *logits,
                          float *scores, treadle_routed *routed) {
  const bool finite = score_finite(router, ops, logits, scores);
  weigh(router, scores, finite, routed);
}

void treadle_router_run(const treadle_router *router, const treadle_row_ops *ops, const float *logits,
                        float *scores, treadle_routed *routed) {
  int chosen[TREADLE_ROUTER_MAX_CHOSEN], groups[TREADLE_ROUTER_MAX_CHOSEN];
  int count = router->experts, each = router->experts;
  float *values = scores + router->experts;
  groups[0] = 0;
  const bool finite = score_finite(router, ops, logits, scores);
  if (router->type != TREADLE_ROUTER_SOFTMAX) {
    each = router->experts / router->groups;
    count = keep_groups(router, values, values + router->experts, groups);
  }
  choose(values, count, router->top_k, chosen);
  for (int i = 0; i < router->top_k; i++)
    routed[i].expert = groups[chosen[i] / each] * each + chosen[i] % each;
  weigh(router, scores, finite, routed);
}
