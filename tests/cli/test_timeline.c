/* src/cli/timeline.c, timeline_draw.c: what is kept of the samples, and a picture whatever they are. */
#include "cli/timeline.c" /* parts of the command, not of the library */
#include "cli/timeline_draw.c"

#include "cli/xml.h"
#include "test.h"

static char folder[32];

static void add(treadle_timeline *t, size_t params, size_t infer) {
  const size_t bytes[TREADLE_CLASSES] = {[TREADLE_PARAMS] = params, [TREADLE_INFER_PARAMS] = infer};
  treadle_timeline_watch(t, bytes, TREADLE_CLASSES);
}

static char *draw_and_read(treadle_timeline *t, const char *title, treadle_timeline_bounds bounds) {
  static char text[1 << 20];
  char path[100];
  snprintf(path, sizeof path, "%s/out.svg", folder);
  assert_ok(treadle_timeline_write(t, path, title, bounds));
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  text[fread(text, 1, sizeof text - 1, file)] = 0;
  fclose(file);
  xml_check(text);
  assert_null(strstr(text, "nan"));
  assert_null(strstr(text, "inf "));
  return text;
}

/* The fullest moment stays when samples are thinned out; what does not change is not a sample. */
static void peak_is_kept(void **state) {
  (void)state;
  treadle_timeline *t;
  assert_ok(treadle_timeline_create(&t));
  for (size_t i = 0; i < 3 * TREADLE_TIMELINE_SAMPLES; i++) {
    add(t, i == 1001 ? 999 : 1 + i % 2, 7); /* twos and ones in turn */
    assert_true(t->count <= TREADLE_TIMELINE_SAMPLES);
  }
  assert_int_equal(treadle_timeline_peak(t), 999 + 7);
  size_t count = t->count;
  add(t, 2, 7);
  add(t, 2, 7);
  assert_true(t->count <= count + 1);
  treadle_timeline_destroy(t);
}

static void title_is_escaped(void **state) {
  (void)state;
  treadle_timeline *t;
  assert_ok(treadle_timeline_create(&t));
  treadle_timeline_name(t, "train");
  add(t, 1 << 20, 0);
  treadle_timeline_name(t, "to infer");
  add(t, 1 << 20, 1 << 19);
  treadle_timeline_name(t, "infer");
  char *text = draw_and_read(t, "pieces:@a<b>&\001c\xff\xef\xbf\xbe to vllm",
                             (treadle_timeline_bounds){1 << 21, 1 << 22});
  assert_non_null(strstr(text, "pieces:@a&lt;b&gt;&amp;\\x01c\\xff\\xef\\xbf\\xbe to vllm"));
  assert_non_null(strstr(text, "bound of the switch (drawn thick where it holds) 2.00 MiB"));
  assert_non_null(strstr(text, "bound of the pool 4.00 MiB"));
  treadle_timeline_destroy(t);
}

/* No sample, no arrow, no bytes, more arrows than have room. */
static void any_run_is_a_picture(void **state) {
  (void)state;
  treadle_timeline *t;
  assert_ok(treadle_timeline_create(&t));
  treadle_timeline_name(t, "train");
  draw_and_read(t, "nothing yet", (treadle_timeline_bounds){0, 0});
  add(t, 0, 0);
  draw_and_read(t, "no bytes", (treadle_timeline_bounds){0, 0});
  for (int i = 0; i < 40; i++) {
    treadle_timeline_name(t, i % 2 ? "to train" : "to infer");
    add(t, i % 2 ? 4096 : 0, i % 2 ? 0 : 4096);
    treadle_timeline_name(t, i % 2 ? "train" : "infer");
  }
  char *text = draw_and_read(t, "many", (treadle_timeline_bounds){8192, 8192});
  assert_non_null(strstr(text, "later arrows are not drawn"));
  assert_non_null(strstr(text, "bound of the switch, and of the pool"));
  treadle_timeline_destroy(t);
}

static void paths_are_checked(void **state) {
  (void)state;
  char path[100];
  assert_ok(treadle_timeline_check("out.svg"));
  assert_int_equal(treadle_timeline_check(folder), TREADLE_REFUSED);
  assert_non_null(strstr(treadle_error_message(), "is a folder"));
  snprintf(path, sizeof path, "%s/none/out.svg", folder);
  assert_int_equal(treadle_timeline_check(path), TREADLE_REFUSED);
  assert_non_null(strstr(treadle_error_message(), "its folder"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(peak_is_kept),
      cmocka_unit_test(title_is_escaped),
      cmocka_unit_test(any_run_is_a_picture),
      cmocka_unit_test(paths_are_checked),
  };
  snprintf(folder, sizeof folder, "%s", test_folder());
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  test_remove(folder);
  return failed;
}
