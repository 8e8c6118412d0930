/* src/engine/nn/router.h against the rules written down again: sorting, in double. */
#include "nn/router.h"

#include "nn/values.h"
#include "test.h"

#include <math.h>

enum { MOST = 300 };

typedef struct ranked {
  double score;
  int number;
} ranked;

static int by_score(const void *a, const void *b) {
  const ranked *x = a, *y = b;
  if (x->score != y->score) return x->score < y->score ? 1 : -1;
  return x->number - y->number;
}

/* Marks the `chosen` best; among equals the lower number. */
static void mark_best(const double *scores, int count, int chosen, bool *marks) {
  ranked list[MOST];
  for (int i = 0; i < count; i++) list[i] = (ranked){scores[i], i};
  qsort(list, (size_t)count, sizeof *list, by_score);
  memset(marks, 0, (size_t)count * sizeof *marks);
  for (int i = 0; i < chosen; i++) marks[list[i].number] = true;
}

/* Weights of all experts, 0 of those that are not chosen. */
static void expected(const treadle_router *r, const double *scores, double *weights, bool *chosen) {
  double choice[MOST], groups[MOST], sum = r->type == TREADLE_ROUTER_NOAUX_TC ? 1e-20 : 0.0;
  bool taken[MOST];
  int each = r->type == TREADLE_ROUTER_SOFTMAX ? r->experts : r->experts / r->groups;
  for (int i = 0; i < r->experts; i++)
    choice[i] =
        (double)((float)scores[i] + (r->type == TREADLE_ROUTER_NOAUX_TC && r->bias ? r->bias[i] : 0.0f));
  if (r->type != TREADLE_ROUTER_SOFTMAX) {
    for (int g = 0; g < r->groups; g++) {
      double first = -INFINITY, second = -INFINITY;
      for (int i = g * each; i < (g + 1) * each; i++) {
        if (choice[i] > first)
          second = first, first = choice[i];
        else if (choice[i] > second)
          second = choice[i];
      }
      groups[g] = r->type == TREADLE_ROUTER_NOAUX_TC ? (double)((float)first + (float)second) : first;
    }
    mark_best(groups, r->groups, r->top_groups, taken);
    for (int i = 0; i < r->experts; i++)
      if (!taken[i / each]) choice[i] = -INFINITY;
  }
  mark_best(choice, r->experts, r->top_k, chosen);
  for (int i = 0; i < r->experts; i++) sum += chosen[i] ? scores[i] : 0.0;
  for (int i = 0; i < r->experts; i++)
    weights[i] = chosen[i] ? scores[i] / (r->renormalised ? sum : 1.0) * (double)r->scale : 0.0;
}

static treadle_router draw_router(treadle_random *random, float *bias) {
  treadle_router r = {.type = (treadle_router_type)treadle_random_below(random, 3),
                      .renormalised = treadle_random_below(random, 2),
                      .scale = treadle_random_below(random, 2) ? 1.0f : 2.5f};
  int each = (int)treadle_random_between(random, 2, 12);
  r.groups = (int)treadle_random_between(random, 1, 20);
  r.experts = each * r.groups;
  r.top_groups = (int)treadle_random_between(random, 1, r.groups);
  r.top_k = (int)treadle_random_between(random, 1, each * r.top_groups < 12 ? each * r.top_groups : 12);
  for (int i = 0; i < r.experts; i++) bias[i] = test_normal(random, 0.2f);
  if (treadle_random_below(random, 4)) r.bias = bias;
  return r;
}

static void by_the_rules(void **state) {
  (void)state;
  treadle_random random = {1};
  for (uint64_t seed = 0; seed < test_seeds(5000); seed++) {
    float bias[MOST], logits[MOST], scores[3 * MOST], rounded[MOST];
    double wide[MOST], weights[MOST];
    bool chosen[MOST];
    treadle_routed routed[MOST];
    treadle_router r = draw_router(&random, bias);
    assert_ok(treadle_router_check(&r));
    test_fill(&random, logits, (size_t)r.experts, 2.0f);
    /* Scores in fp32, as they are compared; equal ones often. */
    if (seed % 3 == 0) {
      for (int i = 0; i < r.experts; i++) logits[i] = floorf(logits[i]);
      r.bias = NULL;
    }
    if (r.type == TREADLE_ROUTER_NOAUX_TC) {
      for (int i = 0; i < r.experts; i++) rounded[i] = treadle_sigmoid(logits[i]);
    } else {
      treadle_row_ops_choose()->softmax(rounded, logits, r.experts);
    }
    for (int i = 0; i < r.experts; i++) wide[i] = (double)rounded[i];
    expected(&r, wide, weights, chosen);
    treadle_router_run(&r, treadle_row_ops_choose(), logits, scores, routed);
    int next = 0;
    for (int i = 0; i < r.experts; i++) {
      if (!chosen[i]) continue;
      if (next >= r.top_k || routed[next].expert != i)
        fail_msg("seed %llu: expert %d at %d is not there", (unsigned long long)seed, i, next);
      assert_true(fabs((double)routed[next].weight - weights[i]) <= 2e-6 * fabs(weights[i]));
      next++;
    }
    assert_int_equal(next, r.top_k);
  }
}

/* Recorded by hand: two groups of three, the bias decides, and is not part of the weight. */
static void bias_only_chooses(void **state) {
  (void)state;
  const float logits[6] = {2.0f, 1.0f, -1.0f, 0.0f, 0.5f, -2.0f},
              bias[6] = {0.0f, 0.0f, 0.0f, 0.9f, 0.0f, 0.6f};
  treadle_router r = {.type = TREADLE_ROUTER_NOAUX_TC,
                      .experts = 6,
                      .top_k = 2,
                      .groups = 2,
                      .top_groups = 1,
                      .renormalised = true,
                      .scale = 2.0f,
                      .bias = bias};
  float scores[18];
  treadle_routed routed[2];
  treadle_router_run(&r, treadle_row_ops_choose(), logits, scores, routed);
  /* choices: .881 .731 .269 | 1.4 .622 .719: the second group, experts 3 and 5 with sigmoids .5 and .1192 */
  assert_int_equal(routed[0].expert, 3);
  assert_int_equal(routed[1].expert, 5);
  assert_true(fabsf(routed[0].weight - 2.0f * 0.5f / 0.6192029f) < 1e-6f);
  r.bias = NULL;
  treadle_router_run(&r, treadle_row_ops_choose(), logits, scores, routed);
  assert_true(routed[0].expert == 0 && routed[1].expert == 1);
}

/* Equal scores, NaN and infinity: the experts are different ones, ascending, and below the count. */
static void odd_scores(void **state) {
  (void)state;
  treadle_random random = {2};
  static const float odd[] = {NAN, INFINITY, -INFINITY, 0.0f};
  for (uint64_t seed = 0; seed < test_seeds(3000); seed++) {
    float bias[MOST], logits[MOST], scores[3 * MOST];
    treadle_routed routed[MOST];
    treadle_router r = draw_router(&random, bias);
    for (int i = 0; i < r.experts; i++) logits[i] = odd[treadle_random_below(&random, 4)];
    treadle_router_run(&r, treadle_row_ops_choose(), logits, scores, routed);
    for (int i = 0; i < r.top_k; i++) {
      assert_true(routed[i].expert >= 0 && routed[i].expert < r.experts);
      assert_true(i == 0 || routed[i].expert > routed[i - 1].expert);
    }
    for (int i = 0; i < r.experts; i++) logits[i] = 1.0f;
    r.bias = NULL;
    treadle_router_run(&r, treadle_row_ops_choose(), logits, scores, routed);
    for (int i = 0; i < r.top_k; i++) assert_int_equal(routed[i].expert, i);
  }
}

static void refused(void **state) {
  (void)state;
  treadle_router_type type;
  assert_ok(treadle_router_type_parse("greedy", &type));
  assert_int_equal(type, TREADLE_ROUTER_SOFTMAX);
  assert_ok(treadle_router_type_parse("group_limited_greedy", &type));
  assert_int_equal(type, TREADLE_ROUTER_GROUP_LIMITED);
  assert_ok(treadle_router_type_parse("noaux_tc", &type));
  assert_int_equal(type, TREADLE_ROUTER_NOAUX_TC);
  assert_refused("\"sinkhorn\"", treadle_router_type_parse("sinkhorn", &type));
  const treadle_router good = {.type = TREADLE_ROUTER_NOAUX_TC,
                               .experts = 8,
                               .top_k = 2,
                               .groups = 4,
                               .top_groups = 2,
                               .scale = 1.0f};
  treadle_router bad = good;
  assert_ok(treadle_router_check(&good));
  bad.groups = 3;
  assert_refused("8 experts in 3 groups", treadle_router_check(&bad));
  bad = good, bad.groups = 8;
  assert_refused("the two best", treadle_router_check(&bad));
  bad = good, bad.top_groups = 5;
  assert_refused("5 of 4 groups", treadle_router_check(&bad));
  bad = good, bad.top_k = 5;
  assert_refused("5 experts of each token", treadle_router_check(&bad));
  bad = good, bad.top_k = 9;
  assert_refused("9 of 8 experts", treadle_router_check(&bad));
  bad = good, bad.top_k = 0;
  assert_refused("0 of 8 experts", treadle_router_check(&bad));
  bad = good, bad.experts = 0;
  assert_refused("0 experts", treadle_router_check(&bad));
  bad = good, bad.scale = INFINITY;
  assert_refused("routed_scaling_factor", treadle_router_check(&bad));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(by_the_rules), cmocka_unit_test(bias_only_chooses),
                                     cmocka_unit_test(odd_scores), cmocka_unit_test(refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
