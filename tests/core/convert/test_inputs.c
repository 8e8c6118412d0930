/* src/core/convert/inputs.c: what stands beside weights, stamps that change, and when they can be trusted. */
#include "convert/inputs.h"

#include "base/clock.h"
#include "io/file.h"
#include "test.h"

#include <fcntl.h>
#include <sys/stat.h>

static const char *base; /* of test_folder() */
static treadle_inputs inputs;

static const char *at(const char *name) {
  static char paths[4][400];
  static int next;
  char *path = paths[next++ % 4];
  snprintf(path, sizeof paths[0], "%s/%s", base, name);
  return path;
}

static void put(const char *name) { assert_ok(treadle_file_write(at(name), "text", 4)); }

static int begin(void **state) {
  (void)state;
  base = test_folder();
  inputs = (treadle_inputs){0};
  return 0;
}

static int end(void **state) {
  (void)state;
  treadle_inputs_release(&inputs);
  test_remove(base);
  return 0;
}

static void companions(void **state) {
  (void)state;
  static const struct {
    const char *name;
    bool carried;
  } files[] = {{"config.json", true},          {"tokenizer.model", true},
               {"model.safetensors", false},   {"model.safetensors.index.json", false},
               {"pytorch_model.bin", false},   {".hidden", false},
               {"treadle-shards.json", false}, {"merges.txt", true},
               {"treadle.lock", false},        {"treadle-convert.0.done", false}};
  assert_int_equal(mkdir(at("folder"), 0777), 0);
  assert_int_equal(mkfifo(at("pipe"), 0600), 0);
  for (size_t i = 0; i < TEST_COUNT(files); i++) put(files[i].name);
  assert_int_equal(symlink("merges.txt", at("link.txt")), 0);
  assert_ok(treadle_inputs_add_companions(&inputs, base));
  for (size_t i = 0; i < TEST_COUNT(files); i++) {
    int found = 0;
    for (size_t k = 0; k < inputs.items.count; k++)
      found += strcmp(inputs.items.items[k].companion, files[i].name) == 0;
    assert_int_equal(found, files[i].carried);
  }
  assert_int_equal(inputs.items.count, 4); /* the link, too */
}

static void what_changes(void **state) {
  (void)state;
  static const struct {
    const char *command, *words;
  } changes[] = {{"printf longer >'%s'", "became longer while it was read (4 bytes at first, now 6)"},
                 {": >'%s'", "became shorter while it was read (4 bytes at first, now 0)"},
                 {"sleep 0.02; printf TEXT >'%s'", "was written to"},
                 {"cp -p '%1$s' '%1$s.new'; mv '%1$s.new' '%1$s'", "was replaced by another file"},
                 {"rm '%s'", "went away"},
                 {"touch -r '%1$s' '%1$s.t'; printf TEXT >'%1$s'; sleep 0.02; touch -r '%1$s.t' '%1$s'",
                  "was changed while it was read"}};
  for (size_t i = 0; i < TEST_COUNT(changes); i++) {
    char command[900];
    put("file");
    treadle_inputs_release(&inputs);
    inputs = (treadle_inputs){0};
    assert_ok(treadle_inputs_add(&inputs, at("file"), NULL));
    assert_ok(treadle_inputs_check(&inputs));
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(command, sizeof command, changes[i].command, at("file"));
#pragma GCC diagnostic pop
    assert_int_equal(system(command), 0);
    assert_fails(TREADLE_DIFFERENT, changes[i].words, treadle_inputs_check(&inputs));
  }
}

/* A file that was just written, or whose times are of tomorrow, cannot be trusted yet; one of yesterday can. */
static void settling(void **state) {
  (void)state;
  assert_true(treadle_inputs_settled(&inputs));
  put("file");
  assert_ok(treadle_inputs_add(&inputs, at("file"), NULL));
  assert_false(treadle_inputs_settled(&inputs));
  assert_in_range(inputs.settled_at - treadle_clock_seconds() <= 2, 1, 1);
  assert_fails(TREADLE_DIFFERENT, "/file: was written to", treadle_inputs_say_torn(&inputs));
}

/* The sum depends on names and stamps, not on the order. */
static void sums(void **state) {
  (void)state;
  treadle_inputs other = {0};
  put("a");
  put("b");
  assert_ok(treadle_inputs_add(&inputs, at("a"), NULL));
  assert_ok(treadle_inputs_add(&inputs, at("b"), NULL));
  assert_ok(treadle_inputs_add(&other, at("b"), NULL));
  assert_ok(treadle_inputs_add(&other, at("a"), NULL));
  assert_true(treadle_inputs_digest(&inputs, 1) == treadle_inputs_digest(&other, 1));
  assert_true(treadle_inputs_digest(&inputs, 1) != treadle_inputs_digest(&other, 2));
  treadle_inputs_release(&other);
  other = (treadle_inputs){0};
  put("b"); /* another file of that name */
  assert_ok(treadle_inputs_add(&other, at("a"), NULL));
  assert_ok(treadle_inputs_add(&other, at("b"), NULL));
  assert_true(treadle_inputs_digest(&inputs, 1) != treadle_inputs_digest(&other, 1));
  treadle_inputs_release(&other);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(companions, begin, end),
      cmocka_unit_test_setup_teardown(what_changes, begin, end),
      cmocka_unit_test_setup_teardown(settling, begin, end),
      cmocka_unit_test_setup_teardown(sums, begin, end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
