/* src/engine/nn/rope.h: frequencies of each type against its formula in double and some recorded numbers; tables; rotations; refusals. */
#include "nn/rope.h"

#include "io/json.h"
#include "nn/values.h"
#include "test.h"

#include <math.h>

static json_t *parse(const char *text) {
  json_t *root;
  assert_ok(treadle_json_parse("test", text, strlen(text), &root));
  return root;
}

static treadle_rope read_rope(const char *text, treadle_rope_spec spec) {
  treadle_rope rope;
  json_t *config = parse(text);
  assert_ok(treadle_rope_read(config, &spec, &rope));
  json_decref(config);
  return rope;
}

static void assert_close(double made, double wanted, double relative) {
  if (!(fabs(made - wanted) <= relative * fabs(wanted))) fail_msg("%.9g, not %.9g", made, wanted);
}

/* ---- Frequencies ---- */

static void plain_types(void **state) {
  (void)state;
  treadle_rope rope = read_rope("{\"hidden_size\": 512, \"num_attention_heads\": 8, \"rope_theta\": 1e6}",
                                (treadle_rope_spec){0});
  assert_int_equal(rope.pairs, 32);
  for (int i = 0; i < 32; i++) assert_close((double)rope.inverse[i], pow(1e6, -i / 32.0), 2e-7);
  assert_true(rope.inverse[0] == 1.0f && rope.attention_factor == 1.0f && rope.softmax_factor == 1.0);
  treadle_rope_release(&rope);

  /* rope_parameters before rope_theta beside it; head_dim before hidden_size; a part of the head */
  rope =
      read_rope("{\"hidden_size\": 512, \"num_attention_heads\": 8, \"head_dim\": 128, \"rope_theta\": 7.0,"
                "\"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 4, \"rope_theta\": 500000.0,"
                "\"partial_rotary_factor\": 0.5}, \"partial_rotary_factor\": 1.0, \"rope_scaling\": null}",
                (treadle_rope_spec){.theta = 3.0});
  assert_int_equal(rope.pairs, 32);
  for (int i = 0; i < 32; i++) assert_close((double)rope.inverse[i], pow(500000.0, -i / 32.0) / 4.0, 2e-7);
  treadle_rope_release(&rope);

  /* What only the family says. */
  rope = read_rope("{}", (treadle_rope_spec){.head_dim = 16, .theta = 2e6, .partial = 0.25});
  assert_int_equal(rope.pairs, 2);
  assert_close((double)rope.inverse[1], pow(2e6, -0.5), 2e-7);
  treadle_rope_release(&rope);
  rope = read_rope("{\"head_dim\": 8}", (treadle_rope_spec){0});
  assert_close((double)rope.inverse[1], 0.1, 2e-7);
  treadle_rope_release(&rope);
}

static void llama3(void **state) {
  (void)state;
  treadle_rope rope =
      read_rope("{\"head_dim\": 128, \"rope_theta\": 500000.0, \"rope_scaling\": {\"factor\": 8.0,"
                "\"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0,"
                "\"original_max_position_embeddings\": 8192, \"rope_type\": \"llama3\"}}",
                (treadle_rope_spec){0});
  int kept = 0, stretched = 0;
  for (int i = 0; i < 64; i++) {
    double inverse = pow(500000.0, -i / 64.0), wave = 2.0 * acos(-1.0) / inverse, wanted;
    if (wave < 8192.0 / 4.0)
      wanted = inverse, kept++;
    else if (wave > 8192.0)
      wanted = inverse / 8.0, stretched++;
    else {
      double smooth = (8192.0 / wave - 1.0) / 3.0;
      wanted = (1.0 - smooth) * inverse / 8.0 + smooth * inverse;
    }
    assert_close((double)rope.inverse[i], wanted, 2e-6);
  }
  assert_true(kept == 29 && stretched == 29); /* and 6 between */
  treadle_rope_release(&rope);
}

/* DeepSeek-V3's own numbers. */
#define YARN                                                                                               \
  "\"factor\": 40, \"original_max_position_embeddings\": 4096, \"beta_fast\": 32, \"beta_slow\": 1"

static void yarn(void **state) {
  (void)state;
  treadle_rope rope =
      read_rope("{\"max_position_embeddings\": 163840, \"rope_theta\": 10000, \"rope_scaling\": {" YARN
                ", \"mscale\": 1.0, \"mscale_all_dim\": 1.0, \"type\": \"yarn\"}}",
                (treadle_rope_spec){.head_dim = 64, .interleaved = true});
  /* 64 ln(4096 / (32 * 2 pi)) / (2 ln 10000) = 10.47 and 64 ln(4096 / 2 pi) / (2 ln 10000) = 22.51: 10 and 23 */
  for (int i = 0; i < 32; i++) {
    double ramp = fmin(fmax((i - 10.0) / 13.0, 0.0), 1.0), inverse = pow(10000.0, -i / 32.0);
    assert_close((double)rope.inverse[i], inverse / 40.0 * ramp + inverse * (1.0 - ramp), 1e-6);
  }
  assert_true(rope.interleaved && rope.attention_factor == 1.0f);
  assert_close(rope.softmax_factor, 1.3688879454113936 * 1.3688879454113936, 1e-12); /* 0.1 ln 40 + 1 */
  treadle_rope_release(&rope);

  /* Borders that are no whole numbers; the factor that the paper has. */
  rope = read_rope("{\"rope_theta\": 10000, \"rope_parameters\": {" YARN
                   ", \"truncate\": false, \"rope_type\": \"yarn\"}}",
                   (treadle_rope_spec){.head_dim = 64});
  treadle_rope without =
      read_rope("{\"rope_parameters\": {\"factor\": 40, \"original_max_position_embeddings\": 4096,"
                "\"truncate\": false, \"rope_type\": \"yarn\", \"beta_fast\": 0}}",
                (treadle_rope_spec){.head_dim = 64});
  test_same_bits("yarn without betas", without.inverse, rope.inverse, 32);
  treadle_rope_release(&without);
  double low = 64.0 * log(4096.0 / (64.0 * acos(-1.0))) / (2.0 * log(10000.0));
  double high = 64.0 * log(4096.0 / (2.0 * acos(-1.0))) / (2.0 * log(10000.0));
  for (int i = 0; i < 32; i++) {
    double ramp = fmin(fmax((i - low) / (high - low), 0.0), 1.0), inverse = pow(10000.0, -i / 32.0);
    assert_close((double)rope.inverse[i], inverse / 40.0 * ramp + inverse * (1.0 - ramp), 2e-6);
  }
  assert_close((double)rope.attention_factor, 1.3688879454113936, 1e-7);
  assert_true(rope.softmax_factor == 1.0);
  treadle_rope_release(&rope);

  rope = read_rope(
      "{\"max_position_embeddings\": 163840, \"rope_scaling\": {\"factor\": null, \"rope_type\": \"yarn\","
      "\"original_max_position_embeddings\": 4096, \"mscale\": 0.707, \"mscale_all_dim\": 0.5}}",
      (treadle_rope_spec){.head_dim = 64});
  assert_close(rope.factor, 40.0, 0.0);
  assert_close((double)rope.attention_factor, (0.0707 * log(40.0) + 1.0) / (0.05 * log(40.0) + 1.0), 1e-7);
  treadle_rope_release(&rope);
  rope = read_rope("{\"rope_scaling\": {" YARN
                   ", \"rope_type\": \"yarn\", \"attention_factor\": 1.25, \"mscale\": 2.0}}",
                   (treadle_rope_spec){.head_dim = 64});
  assert_true(rope.attention_factor == 1.25f);
  treadle_rope_release(&rope);

  /* original_max_position_embeddings beside the section goes before the one in it. */
  rope = read_rope("{\"original_max_position_embeddings\": 64, \"rope_scaling\": {" YARN
                   ", \"type\": \"yarn\"}}",
                   (treadle_rope_spec){.head_dim = 64});
  treadle_rope other =
      read_rope("{\"rope_scaling\": {\"factor\": 40, \"original_max_position_embeddings\": 64,"
                "\"type\": \"yarn\"}}",
                (treadle_rope_spec){.head_dim = 64});
  test_same_bits("yarn", rope.inverse, other.inverse, 32);
  treadle_rope_release(&rope);
  treadle_rope_release(&other);
}

/* ---- Tables and rotation ---- */

static void tables(void **state) {
  (void)state;
  for (int interleaved = 0; interleaved < 2; interleaved++) {
    treadle_rope rope = read_rope("{\"rope_scaling\": {" YARN ", \"rope_type\": \"yarn\"}}",
                                  (treadle_rope_spec){.head_dim = 24, .interleaved = interleaved});
    assert_ok(treadle_rope_extend(&rope, 10));
    assert_ok(treadle_rope_extend(&rope, 3));
    assert_int_equal(rope.positions, 10);
    assert_ok(treadle_rope_extend(&rope, 5000));
    int64_t width = interleaved ? 24 : 12;
    assert_int_equal(treadle_rope_bytes(&rope, 5000), 2 * 5000 * width * 4);
    for (int64_t position = 0; position < 5000; position += position < 20 ? 1 : 83)
      for (int64_t i = 0; i < width; i++) {
        int64_t pair = interleaved ? i / 2 : i;
        float angle = (float)position * rope.inverse[pair];
        float c = (float)cos((double)angle) * rope.attention_factor,
              s = (float)sin((double)angle) * rope.attention_factor;
        if (interleaved && i % 2 == 0) s = -s;
        assert_true(rope.cosine[position * width + i] == c && rope.sine[position * width + i] == s);
      }
    assert_refused("positions", treadle_rope_extend(&rope, TREADLE_ROPE_MAX_POSITIONS + 1));
    treadle_rope_release(&rope);
  }
}

static void rotations(void **state) {
  (void)state;
  enum { HEAD = 40, HEADS = 3, STRIDE = 43 };
  treadle_random random = {5};
  for (int round = 0; round < 40; round++) {
    bool interleaved = round % 2;
    int64_t rotated = 2 * treadle_random_between(&random, 1, HEAD / 2),
            position = treadle_random_below(&random, 300);
    treadle_rope rope = read_rope("{}", (treadle_rope_spec){.head_dim = HEAD,
                                                            .partial = ((double)rotated + 0.5) / HEAD > 1.0
                                                                           ? 1.0
                                                                           : ((double)rotated + 0.5) / HEAD,
                                                            .interleaved = interleaved});
    assert_int_equal(2 * rope.pairs, rotated);
    assert_ok(treadle_rope_extend(&rope, 300));
    float x[HEADS * STRIDE], was[HEADS * STRIDE];
    test_fill(&random, x, HEADS * STRIDE, 1.0f);
    memcpy(was, x, sizeof x);
    treadle_rope_apply(&rope, treadle_row_ops_choose(), x, STRIDE, HEADS, position);
    for (int64_t head = 0; head < HEADS; head++)
      for (int64_t i = 0; i < rope.pairs; i++) {
        int64_t at = head * STRIDE + (interleaved ? 2 * i : i), to = at + (interleaved ? 1 : rope.pairs);
        double angle = (double)((float)position * rope.inverse[i]), a = (double)was[at],
               b = (double)was[to];
        assert_true(fabs((double)x[at] - (a * cos(angle) - b * sin(angle))) < 1e-6);
        assert_true(fabs((double)x[to] - (b * cos(angle) + a * sin(angle))) < 1e-6);
        was[at] = x[at];
        was[to] = x[to];
      }
    assert_memory_equal(x, was, sizeof x); /* what is not rotated stays */
    treadle_rope_release(&rope);
  }
}

/* ---- What is refused ---- */

static void refused(void **state) {
  (void)state;
  static const struct {
    const char *config, *message;
  } cases[] = {
      {"{\"head_dim\": 64, \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}}",
       "rope_scaling.type is \"dynamic\""},
      {"{\"head_dim\": 64, \"rope_parameters\": {\"rope_type\": \"longrope\"}}",
       "rope_parameters.rope_type is \"longrope\""},
      {"{\"head_dim\": 64, \"rope_parameters\": {\"rope_type\": \"proportional\"}}", "\"proportional\""},
      {"{\"head_dim\": 64, \"rope_scaling\": {\"rope_type\": 3}}", "rope_scaling.rope_type is not a text"},
      {"{\"head_dim\": 64, \"rope_scaling\": {\"rope_type\": \"default\", \"mrope_section\": [1, 2]}}",
       "rope_scaling.mrope_section is not known"},
      {"{\"head_dim\": 64, \"rope_parameters\": {\"full_attention\": {\"rope_type\": \"default\"}}}",
       "rope_parameters.full_attention: rope for each type of layer"},
      {"{\"head_dim\": 64, \"rope_scaling\": 3}", "rope_scaling is not an object"},
      {"{\"head_dim\": 64, \"rope_scaling\": {\"type\": \"linear\"}}", "rope_scaling.factor is missing"},
      {"{\"head_dim\": 64, \"rope_scaling\": {\"type\": \"linear\", \"factor\": 0}}",
       "rope_scaling.factor is 0"},
      {"{\"head_dim\": 64, \"rope_scaling\": {\"type\": \"linear\", \"factor\": \"4\"}}",
       "rope_scaling.factor is not a number"},
      {"{\"head_dim\": 64, \"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8, \"high_freq_factor\": "
       "4}}",
       "rope_scaling.low_freq_factor is missing"},
      {"{\"head_dim\": 64, \"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, "
       "\"high_freq_factor\": 4}}",
       "original_max_position_embeddings is missing"},
      {"{\"head_dim\": 64, \"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, "
       "\"high_freq_factor\": 4}}",
       "are both 4"},
      {"{\"head_dim\": 64, \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 8}}",
       "original_max_position_embeddings is missing"},
      {"{\"head_dim\": 64, \"rope_scaling\": {\"type\": \"yarn\", \"original_max_position_embeddings\": "
       "8}}",
       "rope_scaling.factor is missing"},
      {"{\"head_dim\": 64, \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, "
       "\"original_max_position_embeddings\": 0}}",
       "original_max_position_embeddings is 0"},
      {"{\"head_dim\": 64, \"rope_scaling\": {" YARN ", \"type\": \"yarn\", \"truncate\": 1}}",
       "rope_scaling.truncate"},
      {"{\"head_dim\": 64, \"rope_scaling\": {" YARN ", \"type\": \"yarn\", \"attention_factor\": -1}}",
       "attention_factor"},
      {"{\"head_dim\": 64, \"rope_scaling\": {" YARN
       ", \"type\": \"yarn\", \"mscale\": 1, \"mscale_all_dim\": -10}}",
       "attention_factor"},
      {"{\"head_dim\": 64, \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, \"beta_fast\": -3, "
       "\"original_max_position_embeddings\": 64}}",
       "beta_fast"},
      {"{\"head_dim\": 64, \"rope_theta\": 1, \"rope_scaling\": {" YARN ", \"type\": \"yarn\"}}",
       "rope_theta is 1"},
      {"{\"head_dim\": 64, \"rope_theta\": 0}", "rope_theta is 0"},
      {"{\"head_dim\": 64, \"rope_theta\": -5}", "rope_theta is -5"},
      {"{\"head_dim\": 64, \"rope_theta\": 1e300}", "rope_theta is 1e+300"},
      {"{\"head_dim\": 64, \"rope_theta\": true}", "rope_theta is not a number"},
      {"{\"head_dim\": 64, \"partial_rotary_factor\": 0}", "partial_rotary_factor is 0"},
      {"{\"head_dim\": 64, \"partial_rotary_factor\": 1.5}", "partial_rotary_factor is 1.5"},
      {"{\"head_dim\": 64, \"partial_rotary_factor\": 0.05}", "no pairs"},
      {"{\"head_dim\": 63}", "no pairs"},
      {"{\"head_dim\": -4}", "head_dim is -4"},
      {"{\"head_dim\": 64.5}", "head_dim is 64.5"},
      {"{\"head_dim\": 64, \"rope_interleave\": 1}", "rope_interleave"},
      {"{\"hidden_size\": 64}", "head_dim is missing"},
  };
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    treadle_rope rope;
    json_t *config = parse(cases[i].config);
    assert_refused(cases[i].message, treadle_rope_read(config, &(treadle_rope_spec){0}, &rope));
    json_decref(config);
  }
}

static treadle_status read_and_extend(void) {
  treadle_status status;
  treadle_rope rope = {0};
  json_t *config = NULL;
  TRY(treadle_json_parse("test", "{\"head_dim\": 64}", 16, &config));
  TRY(treadle_rope_read(config, &(treadle_rope_spec){0}, &rope));
  TRY(treadle_rope_extend(&rope, 10));
  TRY(treadle_rope_extend(&rope, 20));
out:
  treadle_rope_release(&rope);
  json_decref(config);
  return status;
}

static void no_memory(void **state) {
  (void)state;
  TEST_EACH_ALLOCATION(read_and_extend());
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(plain_types), cmocka_unit_test(llama3),
                                     cmocka_unit_test(yarn),        cmocka_unit_test(tables),
                                     cmocka_unit_test(rotations),   cmocka_unit_test(refused),
                                     cmocka_unit_test(no_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
