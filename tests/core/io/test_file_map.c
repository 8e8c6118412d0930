/* src/core/io/file_map.c: files that become shorter while they are mapped; whose handler gets what. */
#include "io/file_map.h"

#include "base/hash.h"
#include "io/file.h"
#include "io/safetensors.h"
#include "test.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { BYTES = 1 << 20 };

static const char *folder; /* of test_folder() */
static char path[200];

static int begin(void **state) {
  (void)state;
  static char bytes[BYTES];
  memset(bytes, 1, sizeof bytes);
  folder = test_folder();
  snprintf(path, sizeof path, "%s/file", folder);
  assert_ok(treadle_file_write(path, bytes, sizeof bytes));
  return 0;
}

static int end(void **state) {
  (void)state;
  test_remove(folder);
  return 0;
}

static int64_t add_up(const void *image, size_t from, size_t to) {
  int64_t sum = 0;
  for (size_t i = from; i < to; i++) sum += ((const volatile unsigned char *)image)[i];
  return sum;
}

static void becomes_shorter(void **state) {
  (void)state;
  const void *image, *other;
  size_t bytes;
  struct sigaction before, after;
  sigaction(SIGBUS, NULL, &before);
  assert_ok(treadle_file_map(path, &image, &bytes));
  assert_ok(treadle_file_map(path, &other, &bytes));
  assert_int_equal(add_up(image, 0, BYTES), BYTES);
  assert_int_equal(truncate(path, 10000), 0);
  assert_ok(treadle_file_intact(image)); /* nobody has read what is gone */
  assert_fails(TREADLE_DIFFERENT, "became shorter while it was read (1048576 bytes at first, now 10000)",
               treadle_file_unchanged(image));
  assert_int_equal(add_up(image, 0, BYTES), 10000);
  assert_fails(TREADLE_DIFFERENT, "became shorter while it was read (1048576 bytes at first, now 10000)",
               treadle_file_intact((const char *)image + 500000));
  assert_ok(treadle_file_intact(other));
  assert_ok(treadle_file_intact(NULL));
  assert_ok(treadle_file_intact(folder));
  treadle_file_unmap(image, bytes);
  assert_int_equal(add_up(other, 0, BYTES), 10000); /* the handler stays until the last is gone */
  assert_fails(TREADLE_DIFFERENT, "became shorter", treadle_file_intact(other));
  treadle_file_unmap(other, bytes);
  sigaction(SIGBUS, NULL, &after);
  assert_ptr_equal(before.sa_handler, after.sa_handler);
}

static void is_written_to(void **state) {
  (void)state;
  const void *image;
  size_t bytes;
  assert_ok(treadle_file_map(path, &image, &bytes));
  assert_ok(treadle_file_unchanged(image));
  int fd = open(path, O_WRONLY | O_APPEND);
  assert_int_equal(write(fd, "x", 1), 1);
  close(fd);
  assert_fails(TREADLE_DIFFERENT, "was written to since it was opened", treadle_file_unchanged(image));
  assert_ok(treadle_file_write(path, "x", 1)); /* another file of that name is none of the mapping's */
  assert_ok(treadle_file_unchanged(image));
  treadle_file_unmap(image, bytes);
}

/* A write from what is gone blames the file that became shorter. */
static void input_is_blamed(void **state) {
  (void)state;
  const void *image;
  size_t bytes;
  char out[200];
  treadle_file_writer *writer;
  snprintf(out, sizeof out, "%s/out", folder);
  assert_ok(treadle_file_map(path, &image, &bytes));
  assert_int_equal(truncate(path, 100000), 0);
  assert_ok(treadle_file_writer_create(out, &writer));
  assert_fails(TREADLE_DIFFERENT, "/file: became shorter",
               treadle_file_writer_append(writer, image, bytes));
  treadle_file_writer_destroy(writer);
  assert_false(treadle_file_exists(out));
  treadle_file_unmap(image, bytes);
}

/* ---- What is none of these mappings ------------------------------------------------------------- */

static volatile sig_atomic_t caught;
static void *hole; /* a mapping of the test's own, behind its file's end */

static void catch_one(int number, siginfo_t *info, void *context) {
  (void)number, (void)context;
  caught += info->si_addr == hole;
  mmap(hole, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

static void *map_hole(void) {
  int fd = open(path, O_RDONLY);
  hole = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, BYTES);
  close(fd);
  return hole;
}

static void others_are_handed_on(void **state) {
  (void)state;
  const void *image;
  size_t bytes;
  struct sigaction mine = {.sa_sigaction = catch_one, .sa_flags = SA_SIGINFO}, before, now;
  sigaction(SIGBUS, &mine, &before);
  assert_ok(treadle_file_map(path, &image, &bytes));
  assert_int_equal(add_up(map_hole(), 0, 1), 0);
  assert_int_equal(caught, 1);
  assert_ok(treadle_file_intact(image));
  treadle_file_unmap(image, bytes);
  sigaction(SIGBUS, &before, &now);
  assert_ptr_equal(now.sa_sigaction, catch_one);
  munmap(hole, 4096);
}

/* Without a handler of the program's, a fault of its own, or a signal that somebody sends, ends it as ever. */
static void nobody_else_is_saved(void **state) {
  (void)state;
  for (int sent = 0; sent < 2; sent++) {
    int ended;
    pid_t pid = fork();
    if (pid == 0) {
      const void *image;
      size_t bytes;
      signal(SIGBUS, SIG_DFL);
      if (treadle_file_map(path, &image, &bytes)) _exit(1);
      if (sent)
        raise(SIGBUS);
      else
        add_up(map_hole(), 0, 1);
      _exit(0);
    }
    assert_int_equal(waitpid(pid, &ended, 0), pid);
    assert_true(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGBUS);
  }
}

/* ---- Threads ----------------------------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 50 };

/* Maps a file of its own, whose end goes, beside others that do the same. */
static void *map_and_lose(void *argument) {
  char own[300];
  static char zeros[40000];
  intptr_t number = (intptr_t)argument;
  snprintf(own, sizeof own, "%s/%d", folder, (int)number);
  for (int i = 0; i < ROUNDS; i++) {
    const void *image;
    size_t bytes;
    if (treadle_file_write(own, zeros, sizeof zeros) || treadle_file_map(own, &image, &bytes))
      return argument;
    if (i % 2 && truncate(own, 5000)) return argument;
    volatile uint64_t sum = treadle_hash_bytes(image, bytes, 0);
    (void)sum;
    if ((treadle_file_intact(image) != TREADLE_OK) != i % 2) return argument;
    treadle_file_unmap(image, bytes);
  }
  return NULL;
}

static void in_threads(void **state) {
  (void)state;
  pthread_t threads[THREADS];
  for (intptr_t t = 0; t < THREADS; t++)
    assert_int_equal(pthread_create(&threads[t], NULL, map_and_lose, (void *)(t + 1)), 0);
  for (int t = 0; t < THREADS; t++) {
    void *failed;
    pthread_join(threads[t], &failed);
    assert_null(failed);
  }
}

/* ---- Readers ----------------------------------------------------------------------------------- */

/* A checkpoint that is cut off after it was opened. */
static void a_checkpoint(void **state) {
  (void)state;
  static char values[100000];
  treadle_stored tensor = {.name = "a", .dtype = TREADLE_FP32, .ndim = 1, .shape = {25000}, .data = values};
  treadle_checkpoint *checkpoint;
  char file[200];
  snprintf(file, sizeof file, "%s/model.safetensors", folder);
  assert_ok(treadle_safetensors_write(file, &tensor, 1));
  assert_ok(treadle_checkpoint_open(file, &checkpoint));
  assert_ok(treadle_checkpoint_unchanged(checkpoint));
  assert_int_equal(truncate(file, 50000), 0);
  add_up(checkpoint->tensors[0].data, 0, checkpoint->tensors[0].bytes);
  assert_fails(TREADLE_DIFFERENT, "model.safetensors: became shorter",
               treadle_checkpoint_unchanged(checkpoint));
  treadle_checkpoint_close(checkpoint);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(becomes_shorter, begin, end),
                                     cmocka_unit_test_setup_teardown(is_written_to, begin, end),
                                     cmocka_unit_test_setup_teardown(input_is_blamed, begin, end),
                                     cmocka_unit_test_setup_teardown(others_are_handed_on, begin, end),
                                     cmocka_unit_test_setup_teardown(nobody_else_is_saved, begin, end),
                                     cmocka_unit_test_setup_teardown(in_threads, begin, end),
                                     cmocka_unit_test_setup_teardown(a_checkpoint, begin, end)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
