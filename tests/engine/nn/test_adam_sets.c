/* AdamW: the same bits from all sets of functions and for every cut of a run, and what rounding each operation by itself gives. */
#include "test.h"

#include "nn/adam.h"
#include "values.h"

#include <math.h>

enum { MOST = 200 };

typedef struct state {
  float master[MOST], exp_avg[MOST], exp_avg_sq[MOST], grad[MOST];
  uint16_t weights[MOST];
  float wide[MOST];
} state;

static const treadle_adam_factors factors[] = {
    {.scale = 0.37f,
     .decay = 0.999f,
     .mix = 0.1f,
     .keep_sq = 0.999f,
     .mix_sq = 0.001f,
     .root = 0.0316f,
     .eps = 1e-8f,
     .minus_step = -1e-2f},
    {.scale = 1,
     .decay = 1,
     .mix = 1,
     .keep_sq = 0.5f,
     .mix_sq = 0.5f,
     .root = 0.7f,
     .eps = 1e-3f,
     .minus_step = -0.1f},
};

static void draw(treadle_random *random, state *s) {
  test_fill(random, s->master, MOST, 1);
  test_fill(random, s->exp_avg, MOST, 0.01f);
  test_fill(random, s->grad, MOST, 0.1f);
  for (int i = 0; i < MOST; i++) s->exp_avg_sq[i] = s->exp_avg[i] * s->exp_avg[i];
  s->grad[3] = s->exp_avg[3] = s->exp_avg_sq[3] = 0;
  memset(s->weights, 0, sizeof s->weights);
  memset(s->wide, 0, sizeof s->wide);
}

/* kind: 0 bf16 weights, 1 fp32, 2 none. */
static void take(const treadle_adam_ops *ops, const treadle_adam_factors *f, state *s, int kind, int from,
                 int count) {
  const treadle_adam_run run = {s->master + from,
                                s->exp_avg + from,
                                s->exp_avg_sq + from,
                                s->grad + from,
                                kind == 0   ? (void *)(s->weights + from)
                                : kind == 1 ? (void *)(s->wide + from)
                                            : NULL,
                                kind == 0 ? TREADLE_BF16 : TREADLE_FP32,
                                count};
  ops->step(f, &run);
}

static void test_sets(void **state_p) {
  (void)state_p;
  int count;
  const treadle_adam_ops *const *list = treadle_adam_ops_list(&count);
  treadle_random random = {5};
  state start, wanted, got;
  for (size_t f = 0; f < TEST_COUNT(factors); f++)
    for (int kind = 0; kind < 3; kind++)
      for (int k = 0; k < count; k++) {
        if (!list[k]->supported()) continue;
        draw(&random, &start);
        wanted = got = start;
        take(list[0], &factors[f], &wanted, kind, 0, MOST);
        for (int at = 0, some = 1; at < MOST; at += some, some = some % 23 + 1) {
          if (some > MOST - at) some = MOST - at;
          take(list[k], &factors[f], &got, kind, at, some);
        }
        assert_memory_equal(&got, &wanted, sizeof got);
        assert_memory_not_equal(got.master, start.master, sizeof got.master);
      }
}

/* One operation after the other, each rounded to fp32 because it is stored. */
static void test_roundings(void **state_p) {
  (void)state_p;
  treadle_random random = {6};
  state s, got;
  for (size_t f = 0; f < TEST_COUNT(factors); f++) {
    const treadle_adam_factors *a = &factors[f];
    draw(&random, &s);
    got = s;
    take(treadle_adam_ops_for("auto"), a, &got, 0, 0, MOST);
    for (int i = 0; i < MOST; i++) {
      volatile float g = s.grad[i] * a->scale, apart = g - s.exp_avg[i], part, other;
      if (a->mix < 0.5f) {
        part = apart * a->mix;
        s.exp_avg[i] = s.exp_avg[i] + part;
      } else {
        other = 1 - a->mix;
        part = apart * other;
        s.exp_avg[i] = g - part;
      }
      part = s.exp_avg_sq[i] * a->keep_sq;
      other = g * a->mix_sq;
      other = other * g;
      s.exp_avg_sq[i] = part + other;
      part = sqrtf(s.exp_avg_sq[i]);
      part = part / a->root;
      part = part + a->eps;
      other = s.exp_avg[i] * a->minus_step;
      other = other / part;
      part = s.master[i] * a->decay;
      s.master[i] = part + other;
      s.weights[i] = treadle_bf16_of_float(s.master[i]);
    }
    assert_memory_equal(&got, &s, sizeof got);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sets),
      cmocka_unit_test(test_roundings),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
