/* src/core/base/text.c: numbers, sizes, distances and the builder; and src/core/base/clock.c. */
#include "test.h"

#include "base/clock.h"
#include "base/text.h"

static void numbers(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int64_t value;
  } good[] = {{"0", 0},
              {"-0", 0},
              {"007", 7},
              {"9223372036854775807", INT64_MAX},
              {"-5", -5},
              {"42", 42},
              {"-9223372036854775808", INT64_MIN},
              {"-9223372036854775807", -INT64_MAX}};
  static const char *const bad[] = {"",
                                    "-",
                                    "+1",
                                    " 1",
                                    "1 ",
                                    "1.0",
                                    "0x10",
                                    "1e3",
                                    "--1",
                                    "a",
                                    "1a",
                                    "\n1",
                                    "9223372036854775808",
                                    "-9223372036854775809",
                                    "99999999999999999999"};
  for (size_t i = 0; i < TEST_COUNT(good); i++) {
    int64_t value = 1;
    if (!treadle_text_to_int64(good[i].text, &value) || value != good[i].value)
      fail_msg("'%s'", good[i].text);
  }
  for (size_t i = 0; i < TEST_COUNT(bad); i++) {
    int64_t value = 77;
    if (treadle_text_to_int64(bad[i], &value) || value != 77) fail_msg("'%s' was taken", bad[i]);
  }
}

static void sizes(void **state) {
  (void)state;
  static const struct {
    const char *text;
    size_t bytes;
  } good[] = {{"1", 1},
              {"17B", 17},
              {"64KiB", 65536},
              {"2GiB", (size_t)2 << 30},
              {"3MiB", 3 << 20},
              {"1TiB", (size_t)1 << 40},
              {"8388607TiB", (size_t)8388607 << 40},
              {"9223372036854775807", INT64_MAX}};
  static const char *const bad[] = {
      "",       "0",   "0KiB",  "-1",  "-1KiB", "1K",    "1kb",        "1 KiB",
      "1.5GiB", "GiB", "1KiBx", "1KB", "1PiB",  "1GiB ", "8388608TiB", "9223372036854775808"};
  for (size_t i = 0; i < TEST_COUNT(good); i++) {
    size_t bytes = 0;
    assert_ok(treadle_text_to_size("--cap", good[i].text, &bytes));
    if (bytes != good[i].bytes) fail_msg("'%s' gave %zu", good[i].text, bytes);
  }
  for (size_t i = 0; i < TEST_COUNT(bad); i++) {
    size_t bytes = 77;
    assert_refused("--cap: '", treadle_text_to_size("--cap", bad[i], &bytes));
    assert_int_equal(bytes, 77);
  }
  size_t bytes;
  assert_refused("more than 2^63 - 1 bytes", treadle_text_to_size("--cap", "9223372036854775808", &bytes));
  assert_refused("more than 2^63 - 1 bytes", treadle_text_to_size("--cap", "8388608TiB", &bytes));
}

static void sizes_as_text(void **state) {
  (void)state;
  const char *kept = treadle_text_of_size(1023);
  assert_string_equal(kept, "1023 B");
  assert_string_equal(treadle_text_of_size(0), "0 B");
  assert_string_equal(treadle_text_of_size(1024), "1.00 KiB");
  assert_string_equal(treadle_text_of_size((size_t)3 << 29), "1.50 GiB");
  assert_string_equal(treadle_text_of_size((1 << 20) - 1), "1.00 MiB");
  assert_string_equal(treadle_text_of_size((size_t)5 << 50), "5120.00 TiB");
  assert_string_equal(treadle_text_of_size(SIZE_MAX), "16777216.00 TiB");
  for (int i = 0; i < 9; i++) treadle_text_of_size(5);
  assert_string_equal(kept, "1023 B"); /* 15 calls later */
}

static void counts(void **state) {
  (void)state;
  assert_string_equal(treadle_text_of_count(1, "rank"), "1 rank");
  assert_string_equal(treadle_text_of_count(0, "rank"), "0 ranks");
  assert_string_equal(treadle_text_of_count(-1, "row"), "-1 rows");
  assert_string_equal(treadle_text_count_is(1, "KV head"), "1 KV head is");
  assert_string_equal(treadle_text_count_is(INT64_MAX, "layer"), "9223372036854775807 layers are");
}

static void distances(void **state) {
  (void)state;
  assert_int_equal(treadle_text_distance("", ""), 0);
  assert_int_equal(treadle_text_distance("abc", ""), 3);
  assert_int_equal(treadle_text_distance("", "abc"), 3);
  assert_int_equal(treadle_text_distance("kitten", "sitting"), 3);
  assert_int_equal(treadle_text_distance("megatron", "megatorn"), 2);
  assert_int_equal(treadle_text_distance("qwen2", "qwen3"), 1);
  char many[1000];
  memset(many, 'x', sizeof many - 1);
  many[sizeof many - 1] = 0;
  assert_int_equal(treadle_text_distance(many, "x"), 254);
  assert_true(treadle_text_starts("megatron:tp=2", "megatron:"));
  assert_true(treadle_text_starts("x", ""));
  assert_false(treadle_text_starts("mega", "megatron"));
}

static void nearest_names(void **state) {
  (void)state;
  const char *const names[] = {"lr", "min_lr", "lr_decay_style", "save", NULL}, *const none[] = {NULL};
  assert_string_equal(treadle_nearest_name("lr_decay_stile", names), "lr_decay_style");
  assert_string_equal(treadle_nearest_name("minlr", names), "min_lr");
  assert_null(treadle_nearest_name("something else", names));
  assert_null(treadle_nearest_name("lr", none));
}

static void builder_builds(void **state) {
  (void)state;
  treadle_builder builder = {0};
  char want[4000] = "";
  for (int i = 0; i < 300; i++) {
    treadle_builder_add(&builder, "%d,%s", i, i % 2 ? "odd " : "");
    sprintf(want + strlen(want), "%d,%s", i, i % 2 ? "odd " : "");
  }
  assert_false(builder.failed);
  assert_string_equal(builder.text, want);
  assert_int_equal(builder.length, strlen(want));
  treadle_builder_release(&builder);
  assert_null(builder.text);

  treadle_builder_add(&builder, "%s", "kept");
  treadle_alloc_fail_at(1);
  treadle_builder_add(&builder, "%s", want);
  assert_true(builder.failed);
  treadle_builder_add(&builder, "more");
  assert_string_equal(builder.text, "kept");
  treadle_builder_release(&builder);
  assert_false(builder.failed);
}

static void builder_takes_bytes(void **state) {
  (void)state;
  treadle_builder builder = {0};
  treadle_builder_add_bytes(&builder, "a\0b", 3);
  treadle_builder_add(&builder, "c");
  treadle_builder_add_bytes(&builder, NULL, 0);
  assert_int_equal(builder.length, 4);
  assert_memory_equal(builder.text, "a\0bc", 5);
  treadle_alloc_fail_at(1);
  for (int i = 0; i < 100 && !builder.failed; i++) treadle_builder_add_bytes(&builder, "0123456789", 10);
  treadle_alloc_fail_at(0);
  assert_true(builder.failed);
  treadle_builder_release(&builder);
}

static void clocks_run(void **state) {
  (void)state;
  double wall = treadle_clock_seconds(), processor = treadle_clock_processor_seconds();
  size_t peak = treadle_clock_peak_rss_bytes();
  enum { BYTES = 64 << 20 };
  unsigned char *memory = treadle_alloc(BYTES);
  assert_non_null(memory);
  for (size_t i = 0; i < BYTES; i += 4096) ((volatile unsigned char *)memory)[i] = 1;
  assert_true(treadle_clock_seconds() > wall);
  assert_true(treadle_clock_processor_seconds() > processor);
  if (peak) assert_true(treadle_clock_peak_rss_bytes() >= peak + BYTES / 2);
  treadle_free(memory);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(numbers),        cmocka_unit_test(sizes),
      cmocka_unit_test(sizes_as_text),  cmocka_unit_test(counts),
      cmocka_unit_test(distances),      cmocka_unit_test(nearest_names),
      cmocka_unit_test(builder_builds), cmocka_unit_test(builder_takes_bytes),
      cmocka_unit_test(clocks_run)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
