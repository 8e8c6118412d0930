/* Folders: made beside, given their name, removed with what is in them and nothing that links lead to. */
#include "test.h"

#include "io/file.h"
#include "io/folder.h"

#include <sys/stat.h>

static void put(const char *folder, const char *name) {
  char path[300];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  assert_ok(treadle_file_write(path, "x", 1));
}

static void test_commit(void **state) {
  (void)state;
  const char *folder = test_folder();
  char path[200], made[300], other[300], small[8];
  snprintf(path, sizeof path, "%s/whole", folder);
  assert_ok(treadle_folder_create_beside(path, made, sizeof made));
  assert_ok(treadle_folder_create_beside(path, other, sizeof other));
  assert_true(treadle_file_is_folder(made) && treadle_file_is_folder(other) && strcmp(made, other) != 0);
  put(made, "file");
  assert_ok(treadle_folder_commit(made, path));
  assert_false(treadle_file_exists(made));
  put(other, "other");
  assert_refused("the folder is not empty", treadle_folder_commit(other, path));
  assert_ok(treadle_folder_remove(path));
  assert_int_equal(mkdir(path, 0777), 0);
  assert_ok(treadle_folder_commit(other, path)); /* an empty one may be there */
  assert_fails(TREADLE_SYSTEM, "open the folder", treadle_folder_commit(other, path));
  assert_refused("too long", treadle_folder_create_beside(path, small, sizeof small));
  assert_fails(TREADLE_SYSTEM, "make the folder",
               treadle_folder_create_beside("/nonexistent/x", made, sizeof made));
  test_remove(folder);
}

static void test_remove_all(void **state) {
  (void)state;
  const char *folder = test_folder();
  char kept[200], gone[200], deep[300], link[300];
  snprintf(kept, sizeof kept, "%s/kept", folder);
  snprintf(gone, sizeof gone, "%s/gone", folder);
  snprintf(deep, sizeof deep, "%s/deep", gone);
  snprintf(link, sizeof link, "%s/link", gone);
  assert_true(mkdir(kept, 0777) == 0 && mkdir(gone, 0777) == 0 && mkdir(deep, 0777) == 0);
  put(kept, "file");
  put(deep, "file");
  assert_int_equal(symlink(kept, link), 0);
  assert_ok(treadle_folder_remove(gone));
  assert_ok(treadle_folder_remove(gone)); /* it is gone: fine */
  assert_false(treadle_file_exists(gone));
  snprintf(deep, sizeof deep, "%s/file/deep", kept);
  (void)treadle_fail(TREADLE_PEER, "the cause"); /* stays, although there is no such folder to remove */
  treadle_folder_drop(deep);
  assert_string_equal(treadle_error_message(), "the cause");
  assert_fails(TREADLE_SYSTEM, "cannot remove the folder", treadle_folder_remove(deep));
  treadle_arena arena = {0};
  treadle_folder_names names = {0};
  assert_ok(treadle_folder_list(kept, &arena, &names));
  assert_int_equal(names.count, 1);
  assert_string_equal(names.items[0], "file");
  assert_fails(TREADLE_SYSTEM, "cannot be listed", treadle_folder_list(gone, &arena, &names));
  treadle_array_release(&names);
  treadle_arena_release(&arena);
  test_remove(folder);
}

static void test_companions(void **state) {
  (void)state;
  static const char *const yes[] = {"config.json", "tokenizer.json", "vocab.txt", "merges.txt", "x.py"};
  static const char *const no[] = {
      "model.safetensors",  "model.safetensors.index.json", ".git", "pytorch_model.bin", "a.tmp",
      "treadle-shards.json"};
  for (size_t i = 0; i < TEST_COUNT(yes); i++) assert_true(treadle_folder_is_companion(yes[i]));
  for (size_t i = 0; i < TEST_COUNT(no); i++) assert_false(treadle_folder_is_companion(no[i]));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_commit), cmocka_unit_test(test_remove_all),
                                     cmocka_unit_test(test_companions)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
