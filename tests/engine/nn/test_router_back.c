/* Backward of routing against differences of what the loss comes to when a logit moves a little, while the choice stays. */
#include "test.h"

#include "nn/router_back.h"

#include <math.h>

enum { EXPERTS = 12, TOP = 3 };

typedef struct loss {
  treadle_router router;
  float by_weight[TOP], by_probability[EXPERTS], z;
} loss;

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* In double: weights of the chosen experts, then probabilities, then the z loss. */
static double value_of(const loss *l, const double *logits, const treadle_routed *routed) {
  const treadle_router *r = &l->router;
  const bool softmax = r->type != TREADLE_ROUTER_NOAUX_TC;
  double p[EXPERTS], exps = 0, all = 0, chosen = 0, value = 0;
  for (int i = 0; i < EXPERTS; i++) exps += exp(logits[i]);
  for (int i = 0; i < EXPERTS; i++) {
    p[i] = softmax ? exp(logits[i]) / exps : sigmoid(logits[i]);
    all += p[i];
  }
  for (int k = 0; k < TOP; k++) chosen += p[routed[k].expert];
  for (int k = 0; k < TOP; k++)
    value += (double)l->by_weight[k] * (double)r->scale *
             (r->renormalised ? p[routed[k].expert] / chosen : p[routed[k].expert]);
  for (int i = 0; i < EXPERTS; i++) value += (double)l->by_probability[i] * (softmax ? p[i] : p[i] / all);
  return value + (double)l->z * log(exps) * log(exps);
}

static void check(const loss *l, const float *logits) {
  const treadle_row_ops *ops = treadle_row_ops_for("plain");
  float scores[3 * EXPERTS], slopes[EXPERTS];
  treadle_routed routed[TOP];
  treadle_router_run(&l->router, ops, logits, scores, routed);
  const treadle_router_token token = {routed, l->by_weight, {l->by_probability, l->z}};
  memcpy(slopes, logits, sizeof slopes);
  const double losses = treadle_router_back(&l->router, ops, &token, slopes, scores);
  double moved[EXPERTS], expected = 0, zero[TOP] = {0};
  loss own = *l;
  for (int i = 0; i < EXPERTS; i++) moved[i] = (double)logits[i];
  for (int k = 0; k < TOP; k++) own.by_weight[k] = (float)zero[k];
  expected = value_of(&own, moved, routed); /* of the router's own losses alone */
  assert_true(fabs(losses - expected) <= 1e-5 * (1 + fabs(expected)));
  for (int i = 0; i < EXPERTS; i++) {
    const double step = 1e-5, at = moved[i];
    moved[i] = at + step;
    const double more = value_of(l, moved, routed);
    moved[i] = at - step;
    const double less = value_of(l, moved, routed);
    moved[i] = at;
    const double slope = (more - less) / (2 * step);
    if (!(fabs(slope - (double)slopes[i]) <= 2e-5 * (1 + fabs(slope))))
      fail_msg("type %d, logit %d: %g, and differences say %g", (int)l->router.type, i, (double)slopes[i],
               slope);
  }
}

static void test_slopes(void **state) {
  (void)state;
  static const float bias[EXPERTS] = {0.3f, -0.2f, 0, 0.1f, 0, 0, 0.5f, -0.4f, 0, 0.2f, 0, -0.1f};
  const treadle_router routers[] = {
      {.type = TREADLE_ROUTER_SOFTMAX, .experts = EXPERTS, .top_k = TOP, .renormalised = true, .scale = 1},
      {.type = TREADLE_ROUTER_SOFTMAX, .experts = EXPERTS, .top_k = TOP, .scale = 2.5f},
      {.type = TREADLE_ROUTER_GROUP_LIMITED,
       .experts = EXPERTS,
       .top_k = TOP,
       .groups = 4,
       .top_groups = 2,
       .scale = 16},
      {.type = TREADLE_ROUTER_NOAUX_TC,
       .experts = EXPERTS,
       .top_k = TOP,
       .groups = 4,
       .top_groups = 2,
       .renormalised = true,
       .scale = 2.5f,
       .bias = bias},
  };
  uint64_t seed = 11;
  for (size_t r = 0; r < sizeof routers / sizeof *routers; r++)
    for (int turn = 0; turn < 20; turn++) {
      loss l = {.router = routers[r], .z = turn % 2 ? 0.05f : 0};
      float logits[EXPERTS];
      float *const all[] = {logits, l.by_weight, l.by_probability};
      const int counts[] = {EXPERTS, TOP, turn % 3 ? EXPERTS : 0};
      for (int a = 0; a < 3; a++)
        for (int i = 0; i < counts[a]; i++) {
          seed = seed * 6364136223846793005u + 1442695040888963407u;
          all[a][i] = (float)((double)(seed >> 33) / 2147483648.0 * 4 - 2);
        }
      check(&l, logits);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_slopes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
