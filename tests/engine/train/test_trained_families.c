/* Which families treadle's own engines compute (treadle_family_info), held against what they do with a tiny model of each. */
#include "test.h"

#include "treadle_builtin.h"
#include "treadle_tools.h"

#include <string.h>

/* Refused with these words, or not refused where `why` is NULL. */
static void assert_is_so(const char *family, const char *what, const char *why, treadle_status status,
                         const char *words) {
  if (!why && status) fail_msg("%s is to be %s: %s", family, what, treadle_error_message());
  if (why && status != TREADLE_REFUSED) fail_msg("%s is not to be %s (%s), and is", family, what, why);
  if (why && !strstr(treadle_error_message(), words))
    fail_msg("%s is not %s for another reason than '%s': %s", family, what, words, treadle_error_message());
}

static void check_family(const char *folder, const treadle_family_info *family, int32_t type) {
  static const char not_computed[] = "treadle's engine does not compute the family";
  const treadle_make_options make = {.struct_size = sizeof make,
                                     .model_type = family->model_types[type],
                                     .layers = 4,
                                     .hidden = 128,
                                     .vocab = 96};
  treadle_model *model;
  treadle_layout *layout;
  treadle_generator *generator;
  treadle_trainer *trainer;
  char path[400];
  snprintf(path, sizeof path, "%s/%s-%d", folder, family->name, type);
  assert_ok(treadle_make_model(path, &make, &model));
  assert_ok(treadle_layout_create(model, "hf", 1, NULL, &layout));
  treadle_status status = treadle_generator_create(NULL, layout, NULL, &generator);
  assert_is_so(family->name, "generated with", family->not_generated, status, not_computed);
  status = treadle_trainer_create(NULL, layout, NULL, &trainer);
  assert_is_so(family->name, "trained", family->not_trained, status,
               family->not_generated ? not_computed : family->not_trained);
  treadle_generator_destroy(generator);
  treadle_trainer_destroy(trainer);
  treadle_layout_destroy(layout);
  treadle_model_close(model);
}

static void every_family(void **state) {
  (void)state;
  const char *folder = test_folder();
  treadle_families *families;
  int32_t generated = 0, trained = 0;
  assert_ok(treadle_families_open(NULL, &families));
  for (int32_t i = 0; i < treadle_families_count(families); i++) {
    treadle_family_info family = TREADLE_INIT(treadle_family_info);
    assert_ok(treadle_families_get(families, i, &family));
    for (int32_t type = 0; family.model_types[type]; type++) check_family(folder, &family, type);
    generated += !family.not_generated;
    trained += !family.not_trained;
  }
  assert_true(generated == trained && trained >= 4);
  treadle_families_close(families);
  test_remove(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_family)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
