/* src/core/convert/folder.c, records.c: new folders, those of a run that was killed, those of others; room. */
#include "convert/folder.h"

#include "io/file.h"
#include "test.h"

#include <sys/stat.h>

static const char *base; /* of test_folder() */
static char out[100];

static const char *at(const char *name) {
  static char paths[4][400];
  static int next;
  char *path = paths[next++ % 4];
  snprintf(path, sizeof paths[0], "%s/%s", base, name);
  return path;
}

static void put(const char *name) { assert_ok(treadle_file_write(at(name), "text", 4)); }

static treadle_out_folder folder_of(uint64_t digest) {
  return (treadle_out_folder){
      .path = out, .digest = digest, .in = digest, .from = "hf", .to = "megatron", .ranks = 1};
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
  treadle_out_folder_release(&folder);
  assert_false(treadle_file_exists(at("out"))); /* looking leaves nothing */
  assert_ok(treadle_out_folder_look(&folder));
  assert_ok(treadle_out_folder_begin(&folder));
  assert_true(treadle_file_exists(at("out/treadle-convert.json")));
  assert_ok(treadle_out_folder_make(&folder, "a/b/c"));
  assert_true(treadle_file_is_folder(at("out/a/b")));
  put("out/a/b/c");
  assert_ok(treadle_out_folder_finish(&folder));
  treadle_out_folder_release(&folder);
  assert_false(treadle_file_exists(at("out/treadle-convert.json")));
  assert_false(treadle_file_exists(at("out/" TREADLE_LOCK_FILE)));
  folder = folder_of(1);
  assert_refused("is not empty (it has a)", treadle_out_folder_look(&folder));
  treadle_out_folder_release(&folder);
}

/* A file as a conversion writes it, and its line in the list. */
static void write_whole(treadle_out_folder *folder, const char *name, const char *text) {
  char path[200];
  treadle_record record = {.path = name, .bytes = -1};
  snprintf(path, sizeof path, "out/%s", name);
  assert_ok(treadle_out_folder_make(folder, name));
  assert_ok(treadle_out_folder_note(folder, &record));
  assert_ok(treadle_file_write(at(path), text, strlen(text)));
  assert_ok(treadle_file_sum(at(path), &record.bytes, &record.sum));
  assert_ok(treadle_out_folder_note(folder, &record));
}

static bool is_whole(const treadle_out_folder *folder, const char *name) {
  const treadle_record *record;
  assert_ok(treadle_out_folder_whole(folder, name, &record));
  return record != NULL;
}

static void taken_up(void **state) {
  (void)state;
  treadle_out_folder killed = folder_of(1), other = folder_of(2), again = folder_of(1);
  assert_ok(treadle_out_folder_look(&killed));
  assert_refused("another treadle writes here", treadle_out_folder_look(&again));
  assert_ok(treadle_out_folder_begin(&killed));
  write_whole(&killed, "a/whole.pt", "text");
  write_whole(&killed, "a/changed.pt", "text");
  write_whole(&killed, "a/shorter.pt", "text");
  write_whole(&killed, "gone.pt", "text");
  put("out/a/changed.pt");
  assert_ok(treadle_file_write(at("out/a/changed.pt"), "tExt", 4));
  assert_ok(treadle_file_write(at("out/a/shorter.pt"), "tex", 3));
  assert_int_equal(unlink(at("out/gone.pt")), 0);
  put("out/a/half.pt.123-4.tmp");
  put("out/a/mine.tmp");
  assert_refused("another treadle writes here", treadle_out_folder_look(&other));
  close(killed.lock.fd), killed.lock.open = false; /* as the system does */
  assert_refused("of other files or layouts", treadle_out_folder_look(&other));
  treadle_out_folder_release(&other);
  assert_ok(treadle_out_folder_look(&again));
  assert_true(again.resumed && !again.again);
  assert_ok(treadle_out_folder_begin(&again));
  assert_true(is_whole(&again, "a/whole.pt"));
  assert_false(is_whole(&again, "a/changed.pt"));
  assert_false(is_whole(&again, "a/shorter.pt"));
  assert_false(is_whole(&again, "gone.pt"));
  assert_false(is_whole(&again, "never.pt"));
  assert_true(treadle_file_exists(at("out/a/mine.tmp")));
  assert_false(treadle_file_exists(at("out/a/half.pt.123-4.tmp")));
  treadle_out_folder_release(&again);
  treadle_records_release(&killed.records);
}

/* The same conversion, of inputs that have changed: what was written goes, what is not its own stays. */
static void begun_again(void **state) {
  (void)state;
  treadle_out_folder first = folder_of(1), second = folder_of(2);
  second.in = first.in;
  assert_ok(treadle_out_folder_look(&first));
  assert_ok(treadle_out_folder_begin(&first));
  write_whole(&first, "a/whole.pt", "text");
  put("out/a/mine");
  treadle_out_folder_release(&first);
  assert_ok(treadle_out_folder_look(&second));
  assert_true(second.again && !second.resumed);
  assert_true(treadle_file_exists(at("out/a/whole.pt")));
  assert_ok(treadle_out_folder_begin(&second));
  assert_false(treadle_file_exists(at("out/a/whole.pt")));
  assert_true(treadle_file_exists(at("out/a/mine")));
  treadle_out_folder_spoil(&second);
  treadle_out_folder_release(&second);
  assert_false(treadle_file_exists(at("out/treadle-convert.json")));
}

/* A line that is torn, changed, of another journal, or leads out of the folder counts as never written; what comes behind
 * it counts. */
static void torn_lists(void **state) {
  (void)state;
  static const char *const spoils[] = {"truncate -s -7 '%s'", "sed -i 's/whole/Whole/' '%s'",
                                       "printf 'x' >> '%s'"};
  for (size_t i = 0; i < TEST_COUNT(spoils); i++) {
    char command[800], list[400];
    treadle_out_folder first = folder_of(1), second = folder_of(1);
    assert_ok(treadle_out_folder_look(&first));
    assert_ok(treadle_out_folder_begin(&first));
    write_whole(&first, "whole.pt", "text");
    snprintf(list, sizeof list, "%s", at("out/treadle-convert.0.done"));
    snprintf(command, sizeof command, spoils[i], list);
    assert_int_equal(system(command), 0);
    treadle_out_folder_release(&first);
    assert_ok(treadle_out_folder_look(&second));
    assert_int_equal(is_whole(&second, "whole.pt"), i == 2);
    write_whole(&second, "whole.pt", "text");
    write_whole(&second, "other.pt", "text");
    treadle_out_folder_release(&second);
    assert_ok(treadle_out_folder_look(&second));
    assert_true(is_whole(&second, "whole.pt") && is_whole(&second, "other.pt"));
    const treadle_record out_of_it = {.path = "../elsewhere", .bytes = -1};
    assert_ok(treadle_out_folder_note(&second, &out_of_it));
    put("elsewhere");
    assert_ok(treadle_records_undo(out));
    assert_true(treadle_file_exists(at("elsewhere")));
    assert_false(treadle_file_exists(at("out/whole.pt")));
    assert_int_equal(unlink(at("out/treadle-convert.json")), 0);
    treadle_out_folder_release(&second);
  }
}

static void what_is_no_journal(void **state) {
  (void)state;
  treadle_out_folder folder = folder_of(1);
  put("out");
  assert_refused("is a file, and the result is a folder", treadle_out_folder_look(&folder));
  assert_int_equal(unlink(at("out")), 0);
  assert_int_equal(mkdir(at("out"), 0777), 0);
  assert_ok(treadle_out_folder_look(&folder)); /* empty ones will do */
  treadle_out_folder_release(&folder);
  put("out/treadle-convert.json");
  assert_refused("treadle-convert.json", treadle_out_folder_look(&folder));
  treadle_out_folder_release(&folder);
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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(begun_ended_and_no_more, begin, end),
      cmocka_unit_test_setup_teardown(taken_up, begin, end),
      cmocka_unit_test_setup_teardown(begun_again, begin, end),
      cmocka_unit_test_setup_teardown(torn_lists, begin, end),
      cmocka_unit_test_setup_teardown(what_is_no_journal, begin, end),
      cmocka_unit_test_setup_teardown(room_is_asked_for, begin, end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
