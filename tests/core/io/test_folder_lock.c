/* src/core/io/folder_lock.c: one owner a folder, for as long as its process lives; what the file says; folders that are made
 * for it, and links. */
#include "io/folder_lock.h"

#include "base/alloc.h"
#include "io/file.h"
#include "test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* It goes with the process that has it, not with the file. */
static void left_by_a_kill(void **state) {
  (void)state;
  treadle_folder_lock lock;
  assert_int_equal(mkdir(at("out"), 0777), 0);
  put("out/" TREADLE_LOCK_FILE);
  assert_ok(treadle_folder_lock_take(out, false, &lock));
  treadle_folder_lock_end(&lock, true);
  assert_true(treadle_file_exists(at("out"))); /* it was there before */
  assert_false(treadle_file_exists(at("out/" TREADLE_LOCK_FILE)));
  assert_int_equal(symlink("elsewhere", at("out/" TREADLE_LOCK_FILE)), 0);
  assert_refused("is a symbolic link", treadle_folder_lock_take(out, false, &lock));
  assert_false(treadle_file_exists(at("out/elsewhere")));
}

/* The processes of one conversion hold it together: the last of them ends it. */
static void held_together(void **state) {
  (void)state;
  treadle_folder_lock first, second, third, other;
  assert_ok(treadle_folder_lock_take(out, false, &first));
  assert_refused("another treadle writes here", treadle_folder_lock_join(out, 1, &second));
  assert_ok(treadle_folder_lock_share(&first));
  assert_ok(treadle_folder_lock_join(out, 1, &second));
  assert_ok(treadle_folder_lock_join(out, 2, &third));
  assert_refused("another treadle writes here", treadle_folder_lock_join(out, 2, &other));
  assert_refused("another treadle writes here", treadle_folder_lock_take(out, false, &other));
  treadle_folder_lock_end(&first, false); /* killed */
  assert_refused("another treadle writes here", treadle_folder_lock_take(out, false, &other));
  treadle_folder_lock_end(&second, false);
  treadle_folder_lock_end(&third, false);
  assert_ok(treadle_folder_lock_take(out, false, &other));
  treadle_folder_lock_end(&other, true);
}

static void no_place_for_it(void **state) {
  (void)state;
  char inside[300];
  treadle_folder_lock lock;
  snprintf(inside, sizeof inside, "%s/none", out);
  assert_fails(TREADLE_SYSTEM, "cannot be made", treadle_folder_lock_take(inside, false, &lock));
  assert_false(treadle_file_exists(out));
}

/* The file names host, process and start; who comes second is told. */
static void says_who(void **state) {
  (void)state;
  treadle_folder_lock first, second;
  char words[200], host[100] = "", line[400], *text;
  size_t bytes;
  assert_int_equal(gethostname(host, sizeof host - 1), 0);
  assert_ok(treadle_folder_lock_take(out, false, &first));
  assert_true(treadle_folder_lock_holds(&first));
  treadle_folder_lock_note(&first, line, sizeof line);
  assert_string_equal(line, "");
  assert_ok(treadle_file_read(at("out/" TREADLE_LOCK_FILE), 1000, &text, &bytes));
  snprintf(words, sizeof words, "\"process\": %ld, \"start\": \"20", (long)getpid());
  assert_non_null(strstr(text, words));
  treadle_free(text);
  snprintf(words, sizeof words, "another treadle writes here: process %ld on %s, since 20", (long)getpid(),
           host);
  assert_refused(words, treadle_folder_lock_take(out, false, &second));
  assert_false(second.open);
  first.unlocked = true; /* as a file system without locks has it */
  first.error = ENOLCK;
  treadle_folder_lock_note(&first, line, sizeof line);
  assert_non_null(strstr(line, "its file system holds no locks"));
  assert_false(treadle_folder_lock_holds(&first));
  treadle_folder_lock_end(&first, true);
  assert_false(treadle_file_exists(out)); /* it was made for it */
}

/* Folders above are made where that is asked, and go again where nothing else came into them. */
static void folders_above(void **state) {
  (void)state;
  treadle_folder_lock lock;
  char deep[200];
  snprintf(deep, sizeof deep, "%s/a//b/c/", out);
  assert_ok(treadle_folder_lock_take(deep, true, &lock));
  assert_true(treadle_file_exists(at("out/a/b/c/" TREADLE_LOCK_FILE)));
  treadle_folder_lock_end(&lock, true);
  assert_false(treadle_file_exists(out));
  assert_ok(treadle_folder_lock_take(deep, true, &lock));
  put("out/a/mine");
  treadle_folder_lock_end(&lock, true);
  assert_false(treadle_file_exists(at("out/a/b")));
  assert_true(treadle_file_exists(at("out/a/mine")));
  assert_int_equal(unlink(at("out/a/mine")), 0);
  assert_int_equal(symlink("a", at("out/link")), 0);
  snprintf(deep, sizeof deep, "%s/link/", out);
  assert_refused("is a symbolic link", treadle_folder_lock_take(deep, true, &lock));
  snprintf(deep, sizeof deep, "%s/link/b", out); /* on the way it may be one */
  assert_ok(treadle_folder_lock_take(deep, true, &lock));
  treadle_folder_lock_end(&lock, true);
  put("out/file");
  snprintf(deep, sizeof deep, "%s/file", out);
  assert_refused("is a file, and the result is a folder", treadle_folder_lock_take(deep, true, &lock));
}

/* A folder that takes another name keeps its lock. */
static void moved(void **state) {
  (void)state;
  treadle_folder_lock lock, other;
  char to[200];
  snprintf(to, sizeof to, "%s/to", base);
  assert_ok(treadle_folder_lock_take(out, false, &lock));
  assert_int_equal(rename(out, to), 0);
  treadle_folder_lock_moved(&lock, to);
  assert_refused("another treadle writes here", treadle_folder_lock_take(to, false, &other));
  treadle_folder_lock_end(&lock, true);
  assert_true(treadle_file_is_folder(to));
  assert_false(treadle_file_exists(at("to/" TREADLE_LOCK_FILE)));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
  const struct CMUnitTest tests[] = {TEST(left_by_a_kill), TEST(held_together), TEST(no_place_for_it),
                                     TEST(says_who),       TEST(folders_above), TEST(moved)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
