/* Random layouts of every family and type, held against the oracle element by element, without a plan; and what one
 * refuses, the other does. TREADLE_LAYOUTS sets how many (2000), TREADLE_SEED the first seed (1); TREADLE_LIST=1
 * lists all differences rather than stop at the first.
 * ctest: timeout=900 */
#include "layout/agree.h"
#include "plan/draw.h"

#include "test.h"

#include <inttypes.h>

enum { FAMILIES = 32, KINDS = 12 };

typedef struct tally {
  int64_t family[FAMILIES], type[KINDS], refused[KINDS], differences, excused;
  bool listing;
} tally;

static void report(tally *t, uint64_t seed, const char *config, const char *text, int64_t ranks,
                   const char *why) {
  t->differences++;
  if (!t->listing)
    fail_msg("seed %" PRIu64 ": %s on %" PRId64 " ranks: '%s': %s", seed, config, ranks, text, why);
  printf("%" PRIu64 "\t%s\t%s\t%s\t%" PRId64 "\n", seed, why, text, config, ranks);
}

static void one(tally *t, uint64_t seed) {
  treadle_random random = {seed * 104729 + 7};
  char config[DRAW_CONFIG], text[DRAW_TEXT], why[AGREE_WHY] = "";
  int family = 0, type = 0, types = 0;
  while (draw_families[family]) family++;
  while (strcmp(draw_kinds[types], "placements") != 0) types++;
  family = (int)treadle_random_below(&random, family);
  draw_config(&random, family, 12000, config);
  int64_t ranks = treadle_random_between(&random, 1, 16);
  json_t *json = json_loads(config, 0, NULL);
  treadle_model *model = NULL;
  if (treadle_model_from_config("config", json, NULL, &model) != TREADLE_OK)
    fail_msg("seed %" PRIu64 ": %s: %s", seed, config, treadle_error_message());
  oracle_model *oracle = oracle_model_new(json, why);
  assert_non_null(oracle);
  do type = (int)treadle_random_below(&random, types);
  while (!agree_knows(model, draw_kinds[type]) || !draw_fits(oracle, draw_kinds[type]));
  treadle_layout *layout = NULL;
  oracle_layout *truth = NULL;
  for (int tries = 0; tries < 4 && !layout; tries++) {
    draw_layout(&random, oracle, draw_kinds[type], ranks, text);
    treadle_status status = treadle_layout_create(model, text, ranks, NULL, &layout);
    truth = oracle_layout_new(oracle, text, ranks, 1, why);
    if (status != TREADLE_OK && truth && agree_excused(treadle_error_message())) {
      t->excused++;
      break;
    }
    if ((status == TREADLE_OK) != (truth != NULL)) {
      char both[AGREE_WHY];
      snprintf(both, sizeof both, "library: %.200s; oracle: %.200s",
               status == TREADLE_OK ? "accepted" : treadle_error_message(), truth ? "accepted" : why);
      report(t, seed, config, text, ranks, both);
      break;
    }
    t->refused[type] += status != TREADLE_OK;
  }
  if (layout && truth) {
    agree_trim(layout, truth);
    t->family[family]++;
    t->type[type]++;
    if (!agree_layouts(model, layout, truth, why)) report(t, seed, config, text, ranks, why);
  }
  oracle_layout_free(truth);
  treadle_layout_destroy(layout);
  oracle_model_free(oracle);
  treadle_model_close(model);
  json_decref(json);
}

static void random_layouts(void **state) {
  (void)state;
  const char *count_text = getenv("TREADLE_LAYOUTS"), *seed_text = getenv("TREADLE_SEED");
  int64_t count = count_text ? atoll(count_text) : (int64_t)test_seeds(2000),
          seed = seed_text ? atoll(seed_text) : 1;
  tally t = {.listing = getenv("TREADLE_LIST") != NULL};
  for (int64_t i = 0; i < count; i++) one(&t, (uint64_t)(seed + i));
  for (int f = 0; draw_families[f]; f++) printf("  %-18s %5" PRId64 "\n", draw_families[f], t.family[f]);
  for (int k = 0; draw_kinds[k]; k++)
    printf("  %-18s %5" PRId64 "  refused by both %" PRId64 "\n", draw_kinds[k], t.type[k], t.refused[k]);
  printf("  refused by the library alone, as documented: %" PRId64 "\n", t.excused);
  assert_int_equal(t.differences, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(random_layouts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
