/* Who worked when: what a rank records and gives as bytes, lines of trace.jsonl read back by jansson, a run that goes on, and clocks of two nodes. */
#include "test.h"

#include "base/clock.h"
#include "run/trace.h"

#include <jansson.h>
#include <math.h>

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

/* ---- Recording ---- */

static void record(treadle_trace *trace, const char *role, const char *method) {
  treadle_trace_begin(trace, role, method, 4096);
  treadle_trace_end(trace, 8192);
}

static void take(treadle_trace *trace, treadle_trace_part *part) {
  size_t length;
  const void *bytes = treadle_trace_take(trace, &length);
  assert_ok(treadle_trace_read(bytes, length, part));
}

static void test_record(void **state) {
  (void)state;
  const double zero = treadle_clock_seconds();
  treadle_trace *trace;
  treadle_trace_part part;
  assert_ok(treadle_trace_create(3, zero, &trace));
  take(trace, &part);
  assert_int_equal(part.count, 0);
  record(trace, "Critic", "update_critic");
  record(trace, "RewardModel", "a_method_with_a_name_that_is_longer_than_the_room_for_one");
  const double after = treadle_clock_seconds() - zero;
  take(trace, &part);
  assert_int_equal(part.count, 2);
  assert_int_equal(part.rank, 3);
  assert_int_equal(part.lost, 0);
  const treadle_trace_call a = treadle_trace_at(&part, 0), b = treadle_trace_at(&part, 1);
  assert_string_equal(a.role, "Critic");
  assert_string_equal(a.method, "update_critic");
  assert_int_equal(a.rank, 3);
  assert_int_equal(a.bytes_before, 4096);
  assert_int_equal(a.bytes_after, 8192);
  assert_true(0 <= a.start && a.start <= a.end && a.end <= b.start && b.start <= b.end && b.end <= after);
  assert_string_equal(b.method, "a_method_with_a_name_that_is_longer_than_the_ro");
  take(trace, &part); /* it was taken */
  assert_int_equal(part.count, 0);
  treadle_trace_end(trace, 0); /* nothing had begun */
  record(trace, "Critic", "rest_critic");
  take(trace, &part);
  assert_int_equal(part.count, 1);
  assert_string_equal(treadle_trace_at(&part, 0).method, "rest_critic");
  treadle_trace_destroy(trace);
}

/* A clock whose run starts later than now: no time is below 0. */
static void test_before_start(void **state) {
  (void)state;
  treadle_trace *trace;
  treadle_trace_part part;
  assert_ok(treadle_trace_create(0, treadle_clock_seconds() + 1000, &trace));
  record(trace, "Critic", "rest_critic");
  take(trace, &part);
  assert_true(treadle_trace_at(&part, 0).start == 0 && treadle_trace_at(&part, 0).end == 0);
  treadle_trace_destroy(trace);
}

static void test_full(void **state) {
  (void)state;
  treadle_trace *trace;
  treadle_trace_part part;
  assert_ok(treadle_trace_create(0, treadle_clock_seconds(), &trace));
  for (int i = 0; i < TREADLE_TRACE_ROOM; i++) record(trace, "Critic", "first");
  for (int i = 0; i < 3; i++) record(trace, "Critic", "later");
  take(trace, &part);
  assert_int_equal(part.count, TREADLE_TRACE_ROOM);
  assert_int_equal(part.lost, 3);
  assert_true(part.lost_seconds >= 0);
  assert_string_equal(treadle_trace_at(&part, TREADLE_TRACE_ROOM - 1).method, "first");
  record(trace, "Critic", "next");
  take(trace, &part);
  assert_int_equal(part.count, 1);
  assert_int_equal(part.lost, 0);
  treadle_trace_destroy(trace);
}

/* ---- Bytes ---- */

typedef struct taken {
  char bytes[4096];
  size_t length;
} taken;

/* As many calls of rank 1 as there are spans. */
static void make_taken(const double spans[][2], size_t count, taken *t) {
  treadle_trace *trace;
  assert_ok(treadle_trace_create(1, treadle_clock_seconds(), &trace));
  for (size_t i = 0; i < count; i++) record(trace, "Critic", "update_critic");
  const void *bytes = treadle_trace_take(trace, &t->length);
  assert_true(t->length <= sizeof t->bytes);
  memcpy(t->bytes, bytes, t->length);
  treadle_trace_destroy(trace);
  for (size_t i = 0; i < count; i++) {
    treadle_trace_call c;
    char *at = t->bytes + t->length - (count - i) * sizeof c;
    memcpy(&c, at, sizeof c);
    c.start = spans[i][0];
    c.end = spans[i][1];
    memcpy(at, &c, sizeof c);
  }
}

static void test_read(void **state) {
  (void)state;
  static const double good[][2] = {{1, 2}, {2, 2}},
                      wrong[][1][2] = {{{2, 1}}, {{-1, 1}}, {{NAN, 1}}, {{0, INFINITY}}};
  taken t;
  treadle_trace_part part;
  char shifted[sizeof t.bytes + 1];
  make_taken(good, 2, &t);
  memcpy(shifted + 1, t.bytes, t.length); /* it need not be aligned */
  assert_ok(treadle_trace_read(shifted + 1, t.length, &part));
  assert_true(treadle_trace_at(&part, 1).start == 2);
  for (size_t length = 0; length < t.length; length++)
    assert_fails(TREADLE_PEER, "not what a rank has recorded", treadle_trace_read(t.bytes, length, &part));
  assert_fails(TREADLE_PEER, "recorded", treadle_trace_read(t.bytes, t.length + 1, &part));
  memset(t.bytes + t.length - sizeof(treadle_trace_call), 'x',
         TREADLE_TRACE_ROLE); /* a text without an end */
  assert_fails(TREADLE_PEER, "recorded", treadle_trace_read(t.bytes, t.length, &part));
  for (size_t i = 0; i < TEST_COUNT(wrong); i++) {
    make_taken(wrong[i], 1, &t);
    assert_fails(TREADLE_PEER, "recorded", treadle_trace_read(t.bytes, t.length, &part));
  }
}

static void test_busy(void **state) {
  (void)state;
  static const double spans[][2] = {{1, 2}, {3, 5}, {6, 6.5}, {9, 20}};
  taken t;
  treadle_trace_part part;
  make_taken(spans, TEST_COUNT(spans), &t);
  assert_ok(treadle_trace_read(t.bytes, t.length, &part));
  assert_true(treadle_trace_busy(&part, 0, 30) == 14.5);
  assert_true(treadle_trace_busy(&part, 4, 10) == 2.5); /* what is cut at both ends */
  assert_true(treadle_trace_busy(&part, 7, 8) == 0);
  assert_true(treadle_trace_busy(&part, 12, 13) == 1);
  part.lost_seconds = 2;
  assert_true(treadle_trace_busy(&part, 7, 10) == 3);
  assert_true(treadle_trace_busy(&part, 12, 13) == 1); /* no rank works longer than the span is */
}

/* ---- The file ---- */

static json_t *line_at(size_t which) {
  char path[200], line[1000];
  snprintf(path, sizeof path, "%s/trace.jsonl", folder);
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  bool found = true;
  for (size_t i = 0; found && i <= which; i++) found = fgets(line, sizeof line, file);
  fclose(file);
  return found ? json_loads(line, 0, NULL) : NULL;
}

static void check_line(size_t which, int64_t step, double start) {
  json_t *line = line_at(which);
  assert_non_null(line);
  assert_int_equal(json_integer_value(json_object_get(line, "step")), step);
  assert_true(fabs(json_real_value(json_object_get(line, "start")) - start) < 1e-6);
  json_decref(line);
}

static void write_spans(int64_t after, int64_t step, double began, const double spans[][2], size_t count,
                        double kept) {
  treadle_trace_file *file;
  treadle_trace_part part;
  taken t;
  make_taken(spans, count, &t);
  assert_ok(treadle_trace_read(t.bytes, t.length, &part));
  assert_ok(treadle_trace_open(folder, after, &file));
  assert_true(fabs(treadle_trace_kept(file) - kept) < 1e-6);
  treadle_trace_add(file, &part, step, began);
  treadle_trace_add(file, &part, step, began); /* of two ranks */
  assert_int_equal(treadle_trace_lost(file), 0);
  treadle_trace_add(file, &(treadle_trace_part){.lost = 3}, step, began);
  assert_int_equal(treadle_trace_lost(file), 3);
  assert_ok(treadle_trace_write(file));
  assert_ok(treadle_trace_write(file)); /* nothing more */
  treadle_trace_close(file);
}

/* What was done before a step began is of the step before; steps rise from line to line, so that those after a checkpoint can be cut off. */
static void test_file(void **state) {
  (void)state;
  static const double one[][2] = {{0.25, 0.5}, {1, 2}}, two[][2] = {{2.5, 3}, {3.5, 4}, {5, 6}};
  write_spans(-1, 1, 0.75, one, 2, 0);
  for (size_t i = 0; i < 4; i++) check_line(i, i / 2, i / 2 ? 1 : 0.25);
  assert_null(line_at(4));
  json_t *line = line_at(3);
  assert_string_equal(json_string_value(json_object_get(line, "role")), "Critic");
  assert_string_equal(json_string_value(json_object_get(line, "method")), "update_critic");
  assert_int_equal(json_integer_value(json_object_get(line, "rank")), 1);
  assert_true(json_real_value(json_object_get(line, "end")) == 2);
  assert_int_equal(json_integer_value(json_object_get(line, "bytes_before")), 4096);
  assert_int_equal(json_integer_value(json_object_get(line, "bytes_after")), 8192);
  json_decref(line);
  write_spans(1, 2, 3.25, two, 3, 2);
  check_line(4, 1, 2.5);
  check_line(6, 2, 3.5);
  check_line(9, 2, 5);
  /* From step 1 again: its lines stay, and the time goes on from its end. */
  write_spans(1, 2, 3.25, two, 3, 3);
  check_line(5, 1, 2.5);
  check_line(6, 1, 2.5);
  check_line(8, 2, 3.5);
  write_spans(-1, 1, 0.75, one, 2, 0); /* anew: nothing is kept */
  assert_null(line_at(4));
}

static void test_torn(void **state) {
  (void)state;
  static const double one[][2] = {{1, 2}};
  treadle_trace_file *file;
  char note[400];
  test_write(folder, "trace.jsonl",
             "{\"step\":1,\"end\":7.5}\n{\"step\":1,\"end\":1e300}\n{\"step\":2,\"ra");
  assert_ok(treadle_trace_open(folder, 5, &file));
  treadle_trace_note(file, note, sizeof note);
  assert_non_null(strstr(note, "trace.jsonl: its last line, 3, was not whole"));
  assert_true(treadle_trace_kept(file) == 7.5);
  treadle_trace_close(file);
  write_spans(5, 6, 0, one, 1, 7.5);
  check_line(2, 6, 1);
  test_write(folder, "trace.jsonl", "{\"step\":1}\n{\"step\":\"x\"}\n");
  assert_refused("trace.jsonl, line 2", treadle_trace_open(folder, 5, &file));
  assert_null(file);
  assert_fails(TREADLE_SYSTEM, "trace.jsonl", treadle_trace_open("/nonexistent/folder", -1, &file));
}

static treadle_status open_and_write(const taken *t) {
  treadle_trace *trace = NULL;
  treadle_trace_file *file = NULL;
  treadle_trace_part part;
  treadle_status status;
  TRY(treadle_trace_create(0, 0, &trace));
  treadle_trace_destroy(trace);
  TRY(treadle_trace_open(folder, 3, &file));
  TRY(treadle_trace_read(t->bytes, t->length, &part));
  treadle_trace_add(file, &part, 4, 0);
  TRY(treadle_trace_write(file));
out:
  treadle_trace_close(file);
  return status;
}

static void test_memory(void **state) {
  (void)state;
  static const double one[][2] = {{1, 2}};
  taken t;
  make_taken(one, 1, &t);
  test_write(folder, "trace.jsonl", "{\"step\":1,\"end\":7.5}\n");
  for (long n = 1, used = n; used >= n; n++) { /* a growing file gets by without some of it */
    const long before = treadle_alloc_count();
    treadle_alloc_fail_at(n);
    const treadle_status status = open_and_write(&t);
    treadle_alloc_fail_at(0);
    used = treadle_alloc_count() - before;
    assert_true(status == TREADLE_NO_MEMORY || status == TREADLE_OK);
    assert_true(used >= n || status == TREADLE_OK);
  }
}

/* ---- Clocks ---- */

static void test_offset(void **state) {
  (void)state;
  /* The own clock is ahead by 100: questions take 0.2 and answers 0.2; the others went slower, on one way or the other. */
  static const treadle_trace_trip trips[] = {
      {110, 10.2, 110.9}, {120, 20.5, 121.5}, {130, 30.2, 130.4}, {140, 40.7, 140.9}};
  assert_true(fabs(treadle_trace_offset(trips, 4) - 100) < 1e-9);
  assert_true(fabs(treadle_trace_offset(trips, 1) - 100.25) < 1e-9); /* off by at most half of 0.9 */
  assert_true(fabs(treadle_trace_offset(&trips[3], 1) - 99.75) < 1e-9);
  /* The own clock is behind by 7. */
  assert_true(fabs(treadle_trace_offset(&(treadle_trace_trip){3, 10.5, 4}, 1) + 7) < 1e-9);
  /* What cannot be a trip counts for nothing. */
  static const treadle_trace_trip odd[] = {{5, 0, 4}, {NAN, 0, 1}, {1, 0, NAN}, {10, 4, 12}};
  assert_true(treadle_trace_offset(odd, 4) == 7);
  assert_true(treadle_trace_offset(odd, 3) == 0);
  assert_true(treadle_trace_offset(NULL, 0) == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_record),
      cmocka_unit_test(test_before_start),
      cmocka_unit_test(test_full),
      cmocka_unit_test(test_read),
      cmocka_unit_test(test_busy),
      cmocka_unit_test_setup_teardown(test_file, make_folder, remove_folder),
      cmocka_unit_test_setup_teardown(test_torn, make_folder, remove_folder),
      cmocka_unit_test_setup_teardown(test_memory, make_folder, remove_folder),
      cmocka_unit_test(test_offset),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
