/* What every test includes: cmocka, and checks of statuses that print treadle's message when they fail. */
#ifndef TREADLE_TEST_H
#define TREADLE_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>

#include "base/alloc.h"
#include "seeds.h"
#include "treadle.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Is a sanitizer there that has memory and addresses of its own? gcc and clang say so in different ways. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TEST_SANITIZED 1
#endif
#endif
#ifndef TEST_SANITIZED
#define TEST_SANITIZED 0
#endif

#define TEST_COUNT(array) (sizeof(array) / sizeof *(array))

/* The call is TREADLE_OK. */
#define assert_ok(call) test_status(TREADLE_OK, (call), NULL, #call, __FILE__, __LINE__)
/* The call fails with `wanted`, and the message has the words `part`. */
#define assert_fails(wanted, part, call) test_status(wanted, (call), part, #call, __FILE__, __LINE__)
#define assert_refused(part, call)       assert_fails(TREADLE_REFUSED, part, call)

static inline void test_status(treadle_status wanted, treadle_status got, const char *part,
                               const char *call, const char *file, int line) {
  const char *message = got == TREADLE_OK ? "" : treadle_error_message();
  if (got == wanted && (!part || strstr(message, part))) return;
  fprintf(stderr, "%s:%d: %s\n  wanted %s%s%s\n  got    %s: %s\n", file, line, call,
          treadle_status_text(wanted), part ? " with: " : "", part ? part : "", treadle_status_text(got),
          message);
  _fail(file, line);
}

/* Runs `body`, an expression of type treadle_status, with each allocation failing in turn, until it gets
 * through. Every failure has to be TREADLE_NO_MEMORY; leaks are the sanitizer's to find. */
#define TEST_EACH_ALLOCATION(body)                                                                         \
  do {                                                                                                     \
    for (long test_n = 1;; test_n++) {                                                                     \
      treadle_alloc_fail_at(test_n);                                                                       \
      long test_before = treadle_alloc_count();                                                            \
      treadle_status test_got = (body);                                                                    \
      long test_used = treadle_alloc_count() - test_before;                                                \
      treadle_alloc_fail_at(0);                                                                            \
      if (test_used < test_n) {                                                                            \
        test_status(TREADLE_OK, test_got, NULL, #body, __FILE__, __LINE__);                                \
        break;                                                                                             \
      }                                                                                                    \
      test_status(TREADLE_NO_MEMORY, test_got, "memory", #body, __FILE__, __LINE__);                       \
    }                                                                                                      \
  } while (0)

/* How many descriptors the process has, and a few more, always as many. */
static inline int test_open_files(void) {
  int count = 0;
  DIR *folder = opendir("/proc/self/fd");
  assert_non_null(folder);
  while (readdir(folder)) count++;
  closedir(folder);
  return count;
}

/* A new empty folder under /tmp, in a static buffer; the test removes what it made with test_remove(). */
static inline const char *test_folder(void) {
  static char path[32]; /* no longer than the rooms that it is copied into */
  strcpy(path, "/tmp/treadle-test-XXXXXX");
  assert_non_null(mkdtemp(path));
  return path;
}

/* Writes a file of a folder; its path, in a static buffer. */
static inline const char *test_write(const char *folder, const char *name, const char *text) {
  static char path[128];
  assert_true((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) < sizeof path);
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  assert_true(fputs(text, file) >= 0);
  assert_int_equal(fclose(file), 0);
  return path;
}

/* Copies a family of families/ into a folder: a test that fails each allocation in turn has no time to read
 * them all. */
static inline void test_copy_family(const char *folder, const char *family) {
  char command[400];
  snprintf(command, sizeof command, "cp '%s/families/%s.yaml' '%s'", TREADLE_SOURCE_DIR, family, folder);
  assert_int_equal(system(command), 0);
}

/* Removes a folder of test_folder() with all that is in it. */
static inline void test_remove(const char *folder) {
  char command[300];
  assert_true(strncmp(folder, "/tmp/treadle-test-", 18) == 0);
  snprintf(command, sizeof command, "chmod -R u+rwx '%s'; rm -rf '%s'", folder, folder);
  assert_int_equal(system(command), 0);
}

#endif
