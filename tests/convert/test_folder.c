/* src/convert/folder.c: new folders, those of a run that was killed, those of others; room; companions. */
#include "convert/folder.h"

#include "io/file.h"
#include "test.h"

#include <sys/stat.h>

static const char *base; /* of test_folder() */
static char out[100];

static const char *at(const char *name) {
  static char paths[4][200];
  static int next;
  char *path = paths[next++ % 4];
  snprintf(path, sizeof paths[0], "%s/%s", base, name);
  return path;
}

static void put(const char *name) { assert_ok(treadle_file_write(at(name), "text", 4)); }

static treadle_out_folder folder_of(uint64_t digest) {
  return (treadle_out_folder){.path = out, .digest = digest, .from = "hf", .to = "megatron"};
}

static int begin(void **state) {
  (void)state;
  base = test_folder();
  snprintf(out, sizeof out, "%s/out", base);
  return 0;
}

static int end(void **state) {
  (void)state;
  test_remove(base);
  return 0;
}

static void begun_ended_and_no_more(void **state) {
  (void)state;
  treadle_out_folder folder = folder_of(1);
  assert_ok(treadle_out_folder_look(&folder));
  assert_false(treadle_file_exists(at("out"))); /* looking makes nothing */
  assert_ok(treadle_out_folder_begin(&folder));
  assert_true(treadle_file_exists(at("out/treadle-convert.json")));
  assert_ok(treadle_out_folder_make(&folder, "a/b/c"));
  assert_true(treadle_file_is_folder(at("out/a/b")));
  put("out/a/b/c");
  assert_ok(treadle_out_folder_finish(&folder));
  treadle_out_folder_release(&folder);
  assert_false(treadle_file_exists(at("out/treadle-convert.json")));
  folder = folder_of(1);
  assert_refused("is not empty (it has a)", treadle_out_folder_look(&folder));
}

static void taken_up(void **state) {
  (void)state;
  treadle_out_folder killed = folder_of(1), other = folder_of(2), again = folder_of(1);
  assert_ok(treadle_out_folder_look(&killed));
  assert_ok(treadle_out_folder_begin(&killed));
  assert_ok(treadle_out_folder_make(&killed, "a/b"));
  put("out/a/whole.pt");
  put("out/a/half.pt.123-4.tmp");
  put("out/a/mine.tmp");
  assert_refused("of other files or layouts", treadle_out_folder_look(&other));
  assert_ok(treadle_out_folder_look(&again));
  assert_true(again.resumed);
  assert_refused("another process is writing to it", treadle_out_folder_begin(&again));
  treadle_out_folder_release(&killed);
  treadle_out_folder_release(&again);
  assert_ok(treadle_out_folder_begin(&again));
  assert_true(treadle_file_exists(at("out/a/whole.pt")));
  assert_true(treadle_file_exists(at("out/a/mine.tmp")));
  assert_false(treadle_file_exists(at("out/a/half.pt.123-4.tmp")));
  treadle_out_folder_release(&again);
}

static void what_is_no_journal(void **state) {
  (void)state;
  treadle_out_folder folder = folder_of(1);
  put("out");
  assert_refused("is a file, and the result is a folder", treadle_out_folder_look(&folder));
  assert_int_equal(unlink(at("out")), 0);
  assert_int_equal(mkdir(at("out"), 0777), 0);
  assert_ok(treadle_out_folder_look(&folder)); /* empty ones will do */
  put("out/treadle-convert.json");
  assert_refused("treadle-convert.json", treadle_out_folder_look(&folder));
}

static void room_is_asked_for(void **state) {
  (void)state;
  treadle_out_folder folder = folder_of(1);
  assert_ok(treadle_out_folder_look(&folder));
  assert_ok(treadle_out_folder_begin(&folder));
  assert_ok(treadle_out_folder_room(&folder, 0));
  assert_ok(treadle_out_folder_room(&folder, 1));
  assert_fails(TREADLE_SYSTEM, "are to be written", treadle_out_folder_room(&folder, INT64_MAX));
  treadle_out_folder_release(&folder);
}

static void companions_are_copied(void **state) {
  (void)state;
  static const struct {
    const char *name;
    bool copied;
  } files[] = {{"config.json", true},          {"tokenizer.model", true},
               {"model.safetensors", false},   {"model.safetensors.index.json", false},
               {"pytorch_model.bin", false},   {".hidden", false},
               {"treadle-shards.json", false}, {"merges.txt", true}};
  assert_int_equal(mkdir(at("in"), 0777), 0);
  assert_int_equal(mkdir(at("out"), 0777), 0);
  assert_int_equal(mkdir(at("in/folder"), 0777), 0);
  for (size_t i = 0; i < TEST_COUNT(files); i++) {
    char name[64];
    snprintf(name, sizeof name, "in/%s", files[i].name);
    put(name);
  }
  assert_ok(treadle_file_write(at("out/merges.txt"), "others", 6)); /* stays */
  assert_ok(treadle_copy_companions(at("in"), at("out")));
  for (size_t i = 0; i < TEST_COUNT(files); i++) {
    char name[64];
    snprintf(name, sizeof name, "out/%s", files[i].name);
    assert_int_equal(treadle_file_exists(at(name)), files[i].copied);
  }
  struct stat about;
  assert_int_equal(stat(at("out/merges.txt"), &about), 0);
  assert_int_equal(about.st_size, 6);
  assert_false(treadle_file_exists(at("out/folder")));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(begun_ended_and_no_more, begin, end),
      cmocka_unit_test_setup_teardown(taken_up, begin, end),
      cmocka_unit_test_setup_teardown(what_is_no_journal, begin, end),
      cmocka_unit_test_setup_teardown(room_is_asked_for, begin, end),
      cmocka_unit_test_setup_teardown(companions_are_copied, begin, end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
