/* src/core/io/file.c: reading whole files, and writing them whole or not at all. The failures are real ones: a
 * folder without permission, a limit on the size of files that stands for a full disk. */
#include "test.h"

#include "io/file.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

static char path[256];

static const char *in(const char *folder, const char *name) {
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static int entries(const char *folder) {
  DIR *dir = opendir(folder);
  int count = 0;
  assert_non_null(dir);
  while (readdir(dir)) count++;
  closedir(dir);
  return count - 2; /* . and .. */
}

static void assert_holds(const char *file, const char *want) {
  char *bytes = NULL;
  size_t count = 0;
  assert_ok(treadle_file_read(file, 1 << 20, &bytes, &count));
  assert_int_equal(count, strlen(want));
  assert_string_equal(bytes, want); /* a 0 byte follows */
  treadle_free(bytes);
}

static void writes_and_reads(void **state) {
  (void)state;
  const char *folder = test_folder();
  assert_ok(treadle_file_write(in(folder, "a"), "first", 5));
  assert_holds(path, "first");
  const treadle_file_part parts[] = {{"sec", 3}, {NULL, 0}, {"ond", 3}};
  assert_ok(treadle_file_write_parts(path, parts, 3));
  assert_holds(path, "second");
  assert_ok(treadle_file_write(path, NULL, 0));
  assert_holds(path, "");
  assert_int_equal(entries(folder), 1);
  assert_true(treadle_file_exists(path) && !treadle_file_is_folder(path));
  assert_true(treadle_file_exists(folder) && treadle_file_is_folder(folder));
  assert_false(treadle_file_exists(in(folder, "b")));

  struct stat about;
  mode_t mask = umask(027);
  assert_ok(treadle_file_write(in(folder, "b"), "x", 1));
  umask(mask);
  assert_int_equal(stat(path, &about), 0);
  assert_int_equal(about.st_mode & 0777, 0640); /* as any program's file */

  assert_int_equal(chdir(folder), 0); /* a path without a folder */
  assert_ok(treadle_file_write("c", "here", 4));
  assert_holds("c", "here");
  assert_int_equal(chdir("/"), 0);
  test_remove(folder);
}

static void refuses_to_read(void **state) {
  (void)state;
  const char *folder = test_folder();
  char *bytes = NULL;
  size_t count = 0;
  assert_refused("is a folder, not a file", treadle_file_read(folder, 100, &bytes, &count));
  assert_fails(TREADLE_SYSTEM, "No such file", treadle_file_read(in(folder, "none"), 100, &bytes, &count));
  assert_refused("is a pipe or a device", treadle_file_read("/dev/null", 100, &bytes, &count));
  assert_int_equal(mkfifo(in(folder, "pipe"), 0600), 0);
  assert_refused("is a pipe or a device", treadle_file_read(path, 100, &bytes, &count));
  assert_ok(treadle_file_write(in(folder, "long"), "12345", 5));
  assert_refused("has 5 bytes, at most 4", treadle_file_read(path, 4, &bytes, &count));
  assert_ok(treadle_file_read(path, 5, &bytes, &count));
  treadle_free(bytes);
  bytes = NULL;

  assert_int_equal(chmod(path, 0), 0);
  bool root = geteuid() == 0;
  if (root) assert_int_equal(chmod(folder, 0755) | seteuid(65534), 0);
  assert_fails(TREADLE_SYSTEM, "Permission denied", treadle_file_read(path, 100, &bytes, &count));
  if (root) assert_int_equal(seteuid(0), 0);
  assert_null(bytes);
  test_remove(folder);
}

static void failure_leaves_nothing(void **state) {
  (void)state;
  const char *folder = test_folder();
  assert_fails(TREADLE_SYSTEM, "No such file", treadle_file_write(in(folder, "none/a"), "x", 1));
  assert_fails(TREADLE_SYSTEM, "cannot", treadle_file_write("", "x", 1));
  assert_int_equal(mkdir(in(folder, "folder"), 0755), 0);
  assert_refused("is a folder", treadle_file_write(path, "x", 1)); /* its name is taken */
  assert_int_equal(entries(folder), 1);

  /* No permission; root has to become somebody else to have none. */
  bool root = geteuid() == 0;
  assert_int_equal(chmod(folder, 0555), 0);
  if (root) assert_int_equal(seteuid(65534), 0);
  assert_fails(TREADLE_SYSTEM, "Permission denied", treadle_file_write(in(folder, "a"), "x", 1));
  if (root) assert_int_equal(seteuid(0), 0);
  assert_int_equal(chmod(folder, 0755), 0);
  assert_int_equal(entries(folder), 1);
  test_remove(folder);
}

/* A rename would put a plain file in their place. */
static void no_plain_file_is_replaced(void **state) {
  (void)state;
  char target[200], link[200];
  const char *folder = test_folder();
  treadle_file_writer *writer;
  struct stat about;
  snprintf(target, sizeof target, "%s/target", folder);
  snprintf(link, sizeof link, "%s/link", folder);
  assert_ok(treadle_file_write(target, "old", 3));
  assert_int_equal(symlink(target, link), 0);
  assert_refused("is a symbolic link", treadle_file_write(link, "x", 1));
  assert_int_equal(mkfifo(in(folder, "pipe"), 0600), 0);
  assert_refused("is a pipe", treadle_file_write(path, "x", 1));
  assert_refused("is a device", treadle_file_write("/dev/null", "x", 1));
  assert_int_equal(lstat(link, &about), 0);
  assert_true(S_ISLNK(about.st_mode));
  assert_int_equal(stat(target, &about), 0);
  assert_int_equal(about.st_size, 3);
  /* It takes the name while the file is written. */
  assert_ok(treadle_file_writer_create(in(folder, "late"), &writer));
  assert_int_equal(symlink(target, path), 0);
  assert_refused("is a symbolic link", treadle_file_writer_commit(writer));
  treadle_file_writer_destroy(writer);
  assert_int_equal(unlink(path), 0);
  assert_int_equal(entries(folder), 3);
  /* On the way there may be links. */
  char inside[300];
  assert_int_equal(mkdir(in(folder, "folder"), 0755), 0);
  assert_int_equal(symlink("folder", in(folder, "way")), 0);
  snprintf(inside, sizeof inside, "%s/a", path);
  assert_ok(treadle_file_write(inside, "x", 1));
  test_remove(folder);
}

/* The sum of a writer is that of its file, patches included, whatever the sizes of its parts. */
static void sums(void **state) {
  (void)state;
  static char bytes[300000];
  static const size_t sizes[] = {1, 65535, 65536, 65537, 7, 100000};
  const char *folder = test_folder();
  treadle_file_writer *writer;
  uint64_t said, found;
  int64_t count = 0, length;
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (char)(i * i >> 5);
  assert_ok(treadle_file_writer_create(in(folder, "a"), &writer));
  for (size_t i = 0; i < TEST_COUNT(sizes); i++) {
    assert_ok(treadle_file_writer_append(writer, bytes + i, sizes[i]));
    count += (int64_t)sizes[i];
  }
  assert_ok(treadle_file_writer_patch(writer, 65534, "abcd", 4));
  assert_ok(treadle_file_writer_patch(writer, count - 2, "ef", 2));
  assert_ok(treadle_file_writer_commit(writer));
  treadle_file_writer_sum(writer, &length, &said);
  assert_int_equal(length, count);
  treadle_file_writer_destroy(writer);
  assert_ok(treadle_file_sum(path, &length, &found));
  assert_int_equal(length, count);
  assert_true(said == found);
  test_remove(folder);
}

static void full_disk_leaves_old_file(void **state) {
  (void)state;
  static char large[100000];
  const char *folder = test_folder();
  assert_ok(treadle_file_write(in(folder, "a"), "old", 3));

  struct rlimit before, limit;
  signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  limit = before;
  limit.rlim_cur = 65536; /* the first write is cut short, the second fails */
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
  treadle_status status = treadle_file_write(path, large, sizeof large);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  assert_fails(TREADLE_SYSTEM, "cannot write: File too large", status);

  assert_holds(path, "old");
  assert_int_equal(entries(folder), 1);
  assert_ok(treadle_file_write(path, large, sizeof large));
  test_remove(folder);
}

static treadle_status read_once(const char *file) {
  char *bytes = NULL;
  size_t count;
  treadle_status status = treadle_file_read(file, 100, &bytes, &count);
  treadle_free(bytes);
  return status;
}

static void memory_is_out(void **state) {
  (void)state;
  const char *folder = test_folder();
  in(folder, "a");
  TEST_EACH_ALLOCATION(treadle_file_write(path, "x", 1));
  TEST_EACH_ALLOCATION(read_once(path));
  assert_int_equal(entries(folder), 1);
  test_remove(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(writes_and_reads),
                                     cmocka_unit_test(refuses_to_read),
                                     cmocka_unit_test(failure_leaves_nothing),
                                     cmocka_unit_test(no_plain_file_is_replaced),
                                     cmocka_unit_test(sums),
                                     cmocka_unit_test(full_disk_leaves_old_file),
                                     cmocka_unit_test(memory_is_out)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
