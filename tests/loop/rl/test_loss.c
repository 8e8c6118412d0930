/* Advantages, KL, losses: the numbers of verl's and MindSpeed-RL's own tests, and derivatives by differences. */
#include "test.h"

#include "base/random.h"
#include "rl/advantages.h"
#include "rl/dapo.h"
#include "rl/kl_control.h"
#include "rl/mini_batches.h"
#include "rl/statistics.h"
#include "train/ppo.h"

#include <math.h>

#define NEAR(a, b) assert_true(fabs((a) - (b)) < 1e-5)

/* ---- Advantages ---- */

enum { MOST = 8 };

/* Of samples with one token each. */
static void find(treadle_rl_estimator estimator, bool by_std, const double *scores, const int64_t *groups,
                 size_t count, double *advantages) {
  size_t first[MOST + 1];
  double returns[MOST], of_samples[MOST];
  for (size_t i = 0; i <= count; i++) first[i] = i;
  const treadle_rl_scored scored = {
      .samples = count, .group = groups, .first = first, .token_rewards = scores, .scores = scores};
  const treadle_rl_estimator_options options = {.estimator = estimator, .by_std = by_std, .gamma = 1};
  assert_ok(treadle_rl_advantages(&options, &scored, advantages, returns, of_samples));
  for (size_t i = 0; i < count; i++) NEAR(advantages[i], of_samples[i]);
}

static void groups(void **state) {
  (void)state;
  double a[MOST];
  find(TREADLE_RL_GROUP_NORM, true, (const double[]){1.5, 3.0, 0.7, 2.3}, (const int64_t[]){0, 0, 1, 1}, 4,
       a);
  for (int i = 0; i < 4; i++) NEAR(a[i], i % 2 ? 0.707106 : -0.707106);
  find(TREADLE_RL_GRPO, false, (const double[]){1.5, 3.0, 0.7, 2.3}, (const int64_t[]){0, 0, 1, 1}, 4, a);
  NEAR(a[0], -0.75);
  NEAR(a[3], 0.8);
  find(TREADLE_RL_GROUP_NORM, true, (const double[]){1, 0, 0, 1, 5}, (const int64_t[]){0, 0, 0, 0, 1}, 5,
       a);
  NEAR(a[0], 0.866024);
  NEAR(a[1], -0.866024);
  NEAR(a[4], 4.999995);
  find(TREADLE_RL_RLOO, true, (const double[]){1, 2, 3, 0, 1}, (const int64_t[]){0, 0, 0, 1, 1}, 5, a);
  const double rloo[] = {-1.5, 0, 1.5, -1, 1};
  for (int i = 0; i < 5; i++) NEAR(a[i], rloo[i]);
}

static void plus_plus(void **state) {
  (void)state;
  static const double rewards[] = {.2, 0, 1}, scores[] = {1.2};
  static const int64_t group[] = {0};
  static const size_t first[] = {0, 3};
  double advantages[3], returns[3], of_samples[1];
  const treadle_rl_scored scored = {1, group, first, rewards, scores, NULL};
  const treadle_rl_estimator_options options = {.estimator = TREADLE_RL_REINFORCE_PLUS_PLUS, .gamma = 0.5};
  assert_ok(treadle_rl_advantages(&options, &scored, advantages, returns, of_samples));
  const double wanted[] = {.45, .5, 1}, white[] = {-.657596, -.493197, 1.150793};
  for (int i = 0; i < 3; i++) {
    NEAR(returns[i], wanted[i]);
    NEAR(advantages[i], white[i]);
  }
  static const double bad[] = {NAN, INFINITY, -1e39, 1e300};
  for (size_t i = 0; i < TEST_COUNT(bad); i++) {
    const treadle_rl_scored odd = {1, group, first, rewards, bad + i, NULL};
    const treadle_rl_estimator_options plain = {.by_std = true};
    assert_refused("sample 0: its reward is",
                   treadle_rl_advantages(&plain, &odd, advantages, returns, of_samples));
  }
}

/* ---- Statistics ---- */

static void statistics(void **state) {
  (void)state;
  static const unsigned char ends[] = {1, 0, 1}, four[] = {1, 0, 0, 1}, one[] = {0, 1, 0};
  double variance, white[] = {1, 2};
  NEAR(treadle_rl_masked_mean((const double[]){1, 2, 3}, ends, 3), 2);
  NEAR(treadle_rl_masked_mean((const double[]){1, NAN, 3, 4}, four, 4), 2.5);
  assert_ok(treadle_rl_masked_variance((const double[]){1, 2, 3, 4, 5}, NULL, 5, &variance));
  NEAR(variance, 2.5);
  assert_refused("there is one", treadle_rl_masked_variance((const double[]){1, 2, 3}, one, 3, &variance));
  assert_ok(treadle_rl_whiten(white, 2));
  NEAR(white[0], -.7071067);
}

/* ---- KL ---- */

static void kl(void **state) {
  (void)state;
  NEAR(treadle_kl_value(TREADLE_KL_PLAIN, -3, -1), -2);
  NEAR(treadle_kl_value(TREADLE_KL_K2, -3, -1), 2);
  NEAR(treadle_kl_value(TREADLE_KL_K3, -3, -1), 4.389056);
  NEAR(treadle_kl_value(TREADLE_KL_ABS, .5, 1), .5);
  NEAR(treadle_kl_value(TREADLE_KL_MSE, .5, 1), .125);
  NEAR(treadle_kl_value(TREADLE_KL_LOW_VAR, .5, 1), 0.14872121810913086);
  NEAR(treadle_kl_value(TREADLE_KL_LOW_VAR, 1, .5), 0.10653066635131836);
  NEAR(treadle_kl_value(TREADLE_KL_LOW_VAR, -100, 0), 10); /* held */
  assert_true(treadle_kl_slope(TREADLE_KL_LOW_VAR, -100, 0) == 0);
  for (int kind = TREADLE_KL_PLAIN; kind <= TREADLE_KL_K3; kind++)
    for (double x = -1.3; x < 1; x += 0.37) {
      const double step = 1e-6;
      double by = (treadle_kl_value((treadle_kl_kind)kind, x + step, -.2) -
                   treadle_kl_value((treadle_kl_kind)kind, x - step, -.2)) /
                  (2 * step);
      NEAR(by, treadle_kl_slope((treadle_kl_kind)kind, x, -.2));
    }
  /* With a + the value is the same, and the slope that of k2. */
  for (int kind = TREADLE_KL_PLUS; kind < TREADLE_KL_END; kind++) {
    const treadle_kl_kind plain = (treadle_kl_kind)(kind - TREADLE_KL_PLUS);
    NEAR(treadle_kl_value((treadle_kl_kind)kind, -3, -1), treadle_kl_value(plain, -3, -1));
    NEAR(treadle_kl_slope((treadle_kl_kind)kind, -3, -1), -2);
  }
  const treadle_rl_kl_controller adaptive = {true, 0.1, 100}, fixed = {false, 0.1, 100};
  NEAR(treadle_rl_kl_control(&adaptive, 1, 0.2, 50), 1.1);
  NEAR(treadle_rl_kl_control(&adaptive, 1, 0.05, 50), 0.9);
  NEAR(treadle_rl_kl_control(&fixed, 1, 0.2, 50), 1);
}

/* ---- The loss ---- */

static treadle_ppo ppo(void) {
  return (treadle_ppo){.clip_low = 0.2, .clip_high = 0.2, .clip_c = 3, .norm_length = 10};
}

static double loss_at(const treadle_ppo *loss, double ratio, double advantage) {
  const treadle_ppo_token token = {.logprob = log(ratio), .advantage = advantage, .weight = 1};
  treadle_ppo_term result;
  treadle_ppo_of_token(loss, &token, &result);
  return result.pg;
}

static void clips(void **state) {
  (void)state;
  static const double ratios[] = {.5, 1, 1.5, 4}, up[] = {-.5, -1, -1.2, -1.2}, down[] = {.8, 1, 1.5, 3};
  const treadle_ppo loss = ppo();
  for (int i = 0; i < 4; i++) {
    NEAR(loss_at(&loss, ratios[i], 1), up[i]);
    NEAR(loss_at(&loss, ratios[i], -1), down[i]);
  }
}

static double real(treadle_random *random) {
  return (double)treadle_random_below(random, 1 << 20) / (1 << 20);
}

static void slopes(void **state) {
  (void)state;
  treadle_random random = {7};
  for (int i = 0; i < 2000; i++) {
    treadle_ppo loss = ppo();
    loss.entropy_coeff = 0.01;
    loss.use_kl = i % 2;
    loss.kl_kind = (treadle_kl_kind)(i % 7);
    loss.kl_coef = 0.3;
    loss.importance_cap = i % 3 ? 0 : 2;
    treadle_ppo_token token = {.logprob = -real(&random) * 2,
                               .entropy = real(&random),
                               .old = -real(&random) * 2,
                               .ref = -real(&random) * 2,
                               .rollout = -real(&random) * 2,
                               .advantage = real(&random) * 2 - 1,
                               .weight = 0.25};
    treadle_ppo_term at, less, more;
    const double step = 1e-7;
    treadle_ppo_of_token(&loss, &token, &at);
    token.logprob -= step;
    treadle_ppo_of_token(&loss, &token, &less);
    token.logprob += 2 * step;
    treadle_ppo_of_token(&loss, &token, &more);
    if (less.clipped != more.clipped || less.clipped_lower != more.clipped_lower) continue; /* a kink */
    if (fabs(token.logprob - token.ref) < 1e-5) continue;
    assert_true(fabs((more.loss - less.loss) / (2 * step) - at.by_logprob) < 1e-5);
    NEAR(at.by_entropy, -0.25 * 0.01);
  }
}

/* Weights make what agg_loss of verl makes of a matrix with a mask. */
static void aggregations(void **state) {
  (void)state;
  static const int64_t lengths[] = {3, 1, 4};
  static const double values[3][4] = {{1, 2, 3, 0}, {5, 0, 0, 0}, {1, -1, 2, 2}};
  const double wanted[] = {(6 + 5 + 4) / 8., (6 + 5 + 4) / 3., (2 + 5 + 1) / 3., (.6 + .5 + .4) / 3};
  for (int mode = 0; mode < 4; mode++) {
    treadle_ppo loss = ppo();
    double sum = 0;
    loss.aggregation = (treadle_ppo_aggregation)mode;
    for (int s = 0; s < 3; s++)
      for (int t = 0; t < lengths[s]; t++)
        sum += treadle_ppo_weight(&loss, lengths[s], 8, 3) * values[s][t];
    NEAR(sum, wanted[mode]);
  }
}

/* ---- DAPO, mini batches, tests ---- */

static void overlong(void **state) {
  (void)state;
  NEAR(treadle_rl_overlong_penalty(80, 100, 20, 1), 0);
  NEAR(treadle_rl_overlong_penalty(90, 100, 20, 1), -.5);
  NEAR(treadle_rl_overlong_penalty(100, 100, 20, 2), -2);
}

static void orders(void **state) {
  (void)state;
  int64_t plain[6], a[6], b[6], again[6];
  int seen = 0;
  bool differ = false;
  assert_ok(treadle_rl_mini_order(6, false, 1, 0, 0, plain));
  assert_ok(treadle_rl_mini_order(6, true, 1, 0, 0, a));
  assert_ok(treadle_rl_mini_order(6, true, 1, 0, 1, b));
  assert_ok(treadle_rl_mini_order(6, true, 1, 0, 0, again));
  for (int i = 0; i < 6; i++) {
    assert_int_equal(plain[i], i);
    assert_int_equal(a[i], again[i]);
    seen |= 1 << a[i];
    differ = differ || a[i] != b[i];
  }
  assert_int_equal(seen, 63);
  assert_true(differ);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(groups),       cmocka_unit_test(plus_plus), cmocka_unit_test(statistics),
      cmocka_unit_test(kl),           cmocka_unit_test(clips),     cmocka_unit_test(slopes),
      cmocka_unit_test(aggregations), cmocka_unit_test(overlong),  cmocka_unit_test(orders),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
