/* metrics.jsonl and TensorBoard's file, read back: lines by jansson, records by a reader of its own that shares nothing with the writer. */
#include "test.h"

#include "run/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>

static const char *folder;

static int make_folder(void **state) {
  (void)state;
  folder = test_folder();
  return 0;
}

static int remove_folder(void **state) {
  (void)state;
  test_remove(folder);
  return 0;
}

static const char *path_of(const char *name) {
  static char path[200];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static size_t read_file(const char *path, char *text, size_t room) {
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  size_t count = fread(text, 1, room - 1, file);
  fclose(file);
  assert_true(count < room - 1);
  text[count] = 0;
  return count;
}

static void append_file(const char *path, const char *text) {
  FILE *file = fopen(path, "ab");
  assert_non_null(file);
  assert_true(fputs(text, file) >= 0);
  fclose(file);
}

static void write_steps(int64_t after, int64_t first, int64_t last) {
  treadle_metrics *metrics;
  assert_ok(treadle_metrics_open(folder, after, &metrics));
  for (int64_t step = first; step <= last; step++) {
    const treadle_metric values[] = {{"train/loss", 1.0 / (double)step, false}, {"train/skipped", 0, true}};
    assert_ok(treadle_metrics_write(metrics, step, values, TEST_COUNT(values)));
  }
  treadle_metrics_close(metrics);
}

/* ---- metrics.jsonl ---- */

static void test_numbers(void **state) {
  (void)state;
  static const double numbers[] = {0.1, 1.0 / 3, 5e-324, 1.7976931348623157e308, -0.0, 3, 1e22, -2.5};
  treadle_metrics *metrics;
  char text[4096];
  assert_ok(treadle_metrics_open(folder, -1, &metrics));
  for (size_t i = 0; i < TEST_COUNT(numbers); i++) {
    const treadle_metric value = {"train/loss", numbers[i], false};
    assert_ok(treadle_metrics_write(metrics, (int64_t)i, &value, 1));
  }
  const treadle_metric rest[] = {{"val/loss", NAN, false},
                                 {"perf/total_num_tokens", 9007199254740991, true}};
  assert_ok(treadle_metrics_write(metrics, 8, rest, 2));
  treadle_metrics_close(metrics);
  read_file(path_of("metrics.jsonl"), text, sizeof text);
  char *line = strtok(text, "\n");
  for (size_t i = 0; i < TEST_COUNT(numbers); i++, line = strtok(NULL, "\n")) {
    json_t *root = json_loads(line, 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(root, "step")), i);
    double read = json_real_value(json_object_get(root, "train/loss"));
    assert_memory_equal(&read, &numbers[i], sizeof read);
    json_decref(root);
  }
  assert_string_equal(line, "{\"step\":8,\"val/loss\":null,\"perf/total_num_tokens\":9007199254740991}");
  assert_null(strtok(NULL, "\n"));
}

static void test_resume(void **state) {
  (void)state;
  char text[4096], wanted[4096];
  write_steps(-1, 1, 5);
  read_file(path_of("metrics.jsonl"), wanted, sizeof wanted);
  append_file(path_of("metrics.jsonl"), "{\"step\":6,\"train/lo"); /* a write that was killed */
  write_steps(3, 4, 5);
  read_file(path_of("metrics.jsonl"), text, sizeof text);
  assert_string_equal(text, wanted);
  append_file(path_of("metrics.jsonl"), "{\"step\":6,\"train/lo");
  write_steps(9, 0, -1); /* all whole lines are kept */
  read_file(path_of("metrics.jsonl"), text, sizeof text);
  assert_string_equal(text, wanted);
  append_file(path_of("metrics.jsonl"), "[]\n");
  treadle_metrics *metrics;
  assert_refused("metrics.jsonl, line 6", treadle_metrics_open(folder, 9, &metrics));
  assert_null(metrics);
  write_steps(-1, 7, 7);
  read_file(path_of("metrics.jsonl"), text, sizeof text);
  assert_string_equal(text, "{\"step\":7,\"train/loss\":0.14285714285714285,\"train/skipped\":0}\n");
}

static void test_refused(void **state) {
  (void)state;
  treadle_metrics *metrics;
  char text[4096], before[4096];
  assert_fails(TREADLE_SYSTEM, "metrics.jsonl", treadle_metrics_open("/nonexistent/folder", -1, &metrics));
  write_steps(-1, 1, 2);
  read_file(path_of("metrics.jsonl"), before, sizeof before);
  assert_ok(treadle_metrics_open(folder, 2, &metrics));
  struct rlimit was, few = {strlen(before) + 10, 0};
  void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
  few.rlim_max = was.rlim_max;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0); /* stands for a full disk */
  const treadle_metric value = {"train/loss", 0.1, false};
  treadle_status full = treadle_metrics_write(metrics, 3, &value, 1);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
  signal(SIGXFSZ, handler);
  assert_int_equal(full, TREADLE_SYSTEM);
  read_file(path_of("metrics.jsonl"), text, sizeof text);
  assert_string_equal(text, before); /* nothing of the line */
  treadle_metrics_close(metrics);
}

static treadle_status open_and_write(void) {
  treadle_metrics *metrics = NULL;
  const treadle_metric value = {"train/loss", 1, false};
  treadle_status status = treadle_metrics_open(folder, 0, &metrics);
  if (!status) status = treadle_metrics_write(metrics, 1, &value, 1);
  treadle_metrics_close(metrics);
  return status;
}

static void test_memory(void **state) {
  (void)state;
  TEST_EACH_ALLOCATION(open_and_write());
}

/* ---- TensorBoard's file ---- */

typedef struct reader {
  const unsigned char *at, *end;
} reader;

static uint64_t fixed(reader *r, size_t bytes) {
  uint64_t value = 0;
  assert_true((size_t)(r->end - r->at) >= bytes);
  for (size_t i = 0; i < bytes; i++) value |= (uint64_t)*r->at++ << (8 * i);
  return value;
}

static uint64_t varint(reader *r) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    unsigned byte = (unsigned)fixed(r, 1);
    value |= (uint64_t)(byte & 0x7f) << shift;
    if (!(byte & 0x80)) return value;
  }
}

static reader inner(reader *r) {
  uint64_t count = varint(r);
  assert_true((uint64_t)(r->end - r->at) >= count);
  r->at += count;
  return (reader){r->at - count, r->at};
}

/* Castagnoli's polynomial, by long division of the bits as they are sent. */
static uint32_t crc_by_division(const unsigned char *bytes, size_t count) {
  uint32_t rest = 0xffffffff, turned = 0;
  for (size_t i = 0; i < count * 8; i++) {
    unsigned bit = bytes[i / 8] >> (i % 8) & 1;
    bool take = (rest >> 31) != bit;
    rest = rest << 1 ^ (take ? 0x1edc6f41u : 0);
  }
  for (int i = 0; i < 32; i++) turned |= (rest >> i & 1) << (31 - i);
  return ~turned;
}

static uint32_t masked(const unsigned char *bytes, size_t count) {
  uint32_t crc = crc_by_division(bytes, count);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

static reader next_event(reader *r) {
  const unsigned char *begin = r->at;
  uint64_t count = fixed(r, 8);
  assert_int_equal(fixed(r, 4), masked(begin, 8));
  reader event = {r->at, r->at + count};
  assert_true((uint64_t)(r->end - r->at) >= count);
  r->at += count;
  assert_int_equal(fixed(r, 4), masked(event.at, count));
  assert_int_equal(fixed(&event, 1), 0x09);
  uint64_t bits = fixed(&event, 8);
  double seconds;
  memcpy(&seconds, &bits, sizeof seconds);
  assert_true(seconds > 1.5e9);
  return event;
}

static void check_value(reader *summary, const char *name, float wanted) {
  assert_int_equal(fixed(summary, 1), 0x0a);
  reader value = inner(summary);
  assert_int_equal(fixed(&value, 1), 0x0a);
  reader tag = inner(&value);
  assert_int_equal(tag.end - tag.at, strlen(name));
  assert_memory_equal(tag.at, name, strlen(name));
  assert_int_equal(fixed(&value, 1), 0x15);
  uint32_t bits = (uint32_t)fixed(&value, 4);
  assert_memory_equal(&bits, &wanted, sizeof bits);
  assert_true(value.at == value.end);
}

static void expect_steps(const char *path, int64_t start, int64_t first, int64_t last) {
  char bytes[4096];
  size_t count = read_file(path, bytes, sizeof bytes);
  reader r = {(unsigned char *)bytes, (unsigned char *)bytes + count};
  reader event = next_event(&r);
  assert_int_equal(fixed(&event, 1), 0x1a);
  assert_memory_equal(event.at,
                      "\x0d"
                      "brain.Event:2",
                      14);
  if (start >= 0) {
    event = next_event(&r);
    assert_int_equal(fixed(&event, 1), 0x10);
    assert_int_equal(varint(&event), start);
    assert_memory_equal(event.at, "\x3a\x02\x08\x01", 4); /* session_log { status: START } */
  }
  for (int64_t step = first; step <= last; step++) {
    event = next_event(&r);
    assert_int_equal(fixed(&event, 1), 0x10);
    assert_int_equal(varint(&event), step);
    assert_int_equal(fixed(&event, 1), 0x2a);
    reader summary = inner(&event);
    assert_true(event.at == event.end);
    check_value(&summary, "train/loss", (float)(1.0 / (double)step));
    check_value(&summary, "train/skipped", 0);
    assert_true(summary.at == summary.end);
  }
  assert_true(r.at == r.end);
}

static void test_events(void **state) {
  (void)state;
  glob_t found;
  write_steps(-1, 198, 202);
  assert_int_equal(glob(path_of("events.out.tfevents.*"), 0, NULL, &found), 0);
  assert_int_equal(found.gl_pathc, 1);
  expect_steps(found.gl_pathv[0], -1, 198, 202);
  char first[300];
  snprintf(first, sizeof first, "%s", found.gl_pathv[0]);
  globfree(&found);
  write_steps(200, 201, 203); /* a file of its own */
  assert_int_equal(glob(path_of("events.out.tfevents.*"), 0, NULL, &found), 0);
  assert_int_equal(found.gl_pathc, 2);
  expect_steps(found.gl_pathv[strcmp(found.gl_pathv[0], first) == 0], 201, 201, 203);
  globfree(&found);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void) {
  const struct CMUnitTest tests[] = {TEST(test_numbers), TEST(test_resume), TEST(test_refused),
                                     TEST(test_memory), TEST(test_events)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
