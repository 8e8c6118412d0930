/* A worker group: calls reach all ranks; what fails on one rank fails on all, wherever in a method it does, and the group goes on; rank 0 may be
 * busy for longer than the group's time limit, but not leave without a word.
 * ctest: label=threads */
#include "group/ranks.h"
#include "test.h"

#include "base/alloc.h"
#include "control/worker_group.h"

#include <time.h>

enum { RANKS = 3, MUCH = 20000 }; /* bytes: several pieces */

static void pause_for(double seconds) {
  const time_t whole = (time_t)seconds;
  nanosleep(&(struct timespec){whole, (long)((seconds - (double)whole) * 1e9)}, NULL);
}

/* A rank whose checks fail leaves, so that the others do not wait for it. */
typedef struct guarded {
  ranks_body body;
  void *context;
} guarded;

static int guard(treadle_group *group, void *context) {
  const guarded *g = context;
  int result = g->body(group, g->context);
  if (result) treadle_group_fail(group);
  return result;
}

static void run(double limit, uint64_t delays, ranks_body body, void *context) {
  ranks_as_threads(RANKS, limit, delays, guard, &(guarded){body, context});
}

/* ---- Methods ---- */

typedef struct worker {
  treadle_group *group;
  int calls; /* that reached a method */
} worker;

/* All ranks' shares of a number: what takes them all. */
static treadle_status add_up(const worker *w, int64_t mine, int64_t *sum_p) {
  treadle_status status;
  *sum_p = 0;
  TRY(treadle_group_say(w->group, &mine, sizeof mine));
  for (int rank = 0; rank < treadle_group_size(w->group); rank++)
    *sum_p += *(const int64_t *)treadle_group_said(w->group, rank);
out:
  return status;
}

/* factor, bytes -> the sum over ranks of factor * rank + bytes */
static treadle_status add(void *context, treadle_message *in, treadle_message *out) {
  worker *w = context;
  int64_t factor, sum;
  const void *bytes;
  size_t length;
  treadle_status status;
  w->calls++;
  TRY(treadle_message_int(in, "factor", &factor));
  TRY(treadle_message_bytes(in, "bytes", &bytes, &length));
  for (size_t i = 0; i < length; i++)
    if (((const char *)bytes)[i] != (char)(i % 251)) TRY(treadle_fail(TREADLE_DIFFERENT, "byte %zu", i));
  TRY(add_up(w, factor * treadle_group_rank(w->group) + (int64_t)length, &sum));
  treadle_message_put_int(out, sum);
out:
  return status;
}

/* Before what it does together the one rank fails, and says so. */
static treadle_status fail_before(void *context, treadle_message *in, treadle_message *out) {
  worker *w = context;
  int64_t which, sum;
  treadle_status status;
  w->calls++;
  TRY(treadle_message_int(in, "which", &which));
  if (which == treadle_group_rank(w->group)) status = treadle_fail(TREADLE_SYSTEM, "not today");
  TRY(treadle_group_agree(w->group, status));
  TRY(add_up(w, 1, &sum));
  treadle_message_put_int(out, sum);
out:
  return status;
}

static treadle_status fail_after(void *context, treadle_message *in, treadle_message *out) {
  worker *w = context;
  int64_t which, sum;
  treadle_status status;
  w->calls++;
  TRY(treadle_message_int(in, "which", &which));
  TRY(add_up(w, 1, &sum));
  if (which == treadle_group_rank(w->group)) TRY(treadle_fail(TREADLE_SYSTEM, "not today"));
  treadle_message_put_int(out, sum);
out:
  return status;
}

/* The one rank has no memory for its answer. */
static treadle_status answer_too_much(void *context, treadle_message *in, treadle_message *out) {
  worker *w = context;
  int64_t which;
  treadle_status status;
  w->calls++;
  TRY(treadle_message_int(in, "which", &which));
  if (which == treadle_group_rank(w->group)) (void)treadle_message_grow(out, SIZE_MAX - 4);
out:
  return status;
}

static const treadle_worker_method methods[] = {{"add", add, false},
                                                {"fail_before", fail_before, false},
                                                {"fail_after", fail_after, false},
                                                {"answer_too_much", answer_too_much, false},
                                                {NULL, NULL, false}};

/* ---- Calls of rank 0 ---- */

typedef struct scene {
  treadle_worker_group workers;
  worker worker;
  treadle_message in, out;
} scene;

static void open_scene(scene *s, treadle_group *group) {
  *s = (scene){.worker = {.group = group}};
  s->workers = (treadle_worker_group){.group = group, .methods = methods, .worker = &s->worker};
}

static void close_scene(scene *s) {
  treadle_message_release(&s->in);
  treadle_message_release(&s->out);
  treadle_worker_group_release(&s->workers);
}

static treadle_status call_add(scene *s, int64_t factor, size_t length) {
  char *bytes = calloc(1, length + 1);
  treadle_status status;
  for (size_t i = 0; i < length; i++) bytes[i] = (char)(i % 251);
  treadle_message_clear(&s->in);
  treadle_message_put_int(&s->in, factor);
  treadle_message_put_bytes(&s->in, bytes, length);
  free(bytes);
  status = treadle_worker_group_call(&s->workers, "add", &s->in, &s->out);
  int64_t sum, ranks = treadle_group_size(s->worker.group);
  if (status || (status = treadle_message_int(&s->out, "sum", &sum)) != TREADLE_OK) return status;
  if (sum == factor * ranks * (ranks - 1) / 2 + ranks * (int64_t)length) return TREADLE_OK;
  return treadle_fail(TREADLE_DIFFERENT, "the sum is %lld", (long long)sum);
}

static treadle_status call_failing(scene *s, const char *method, int64_t which) {
  treadle_message_clear(&s->in);
  treadle_message_put_int(&s->in, which);
  return treadle_worker_group_call(&s->workers, method, &s->in, &s->out);
}

/* ---- Calls ---- */

typedef struct seen {
  int before, after; /* how often a rank was told */
  char method[TREADLE_WORKER_NAME];
} seen;

static void see_before(void *context, const char *method) {
  seen *s = context;
  s->before++;
  snprintf(s->method, sizeof s->method, "%s", method);
}

static void see_after(void *context) {
  seen *s = context;
  if (s->after < s->before) s->after++;
}

/* Each rank is told of each method that it runs, also of one that fails; and of no other. */
static int watch_some(treadle_group *group, void *context) {
  scene s;
  seen told = {0};
  (void)context;
  open_scene(&s, group);
  s.workers.watch = (treadle_worker_watch){see_before, see_after, &told};
  if (treadle_group_rank(group) > 0) {
    RANK_OK(treadle_worker_group_serve(&s.workers));
  } else {
    RANK_OK(call_add(&s, 1, MUCH));
    RANK_FAILS(TREADLE_SYSTEM, "not today", call_failing(&s, "fail_after", 1));
    RANK_OK(treadle_worker_group_end(&s.workers, TREADLE_OK));
  }
  RANK_TRUE(told.before == 2 && told.after == 2 && strcmp(told.method, "fail_after") == 0);
  close_scene(&s);
  return 0;
}

static void test_watch(void **state) {
  (void)state;
  run(30, 0, watch_some, NULL);
}

static int call_some(treadle_group *group, void *context) {
  scene s;
  (void)context;
  open_scene(&s, group);
  if (treadle_group_rank(group) > 0) {
    RANK_FAILS(TREADLE_CANCELLED, "enough", treadle_worker_group_serve(&s.workers));
  } else {
    for (int i = 0; i < 20; i++) RANK_OK(call_add(&s, i, (size_t)(i % 4) * MUCH / 3));
    RANK_FAILS(TREADLE_CANCELLED, "enough",
               treadle_worker_group_end(&s.workers, treadle_fail(TREADLE_CANCELLED, "enough")));
  }
  RANK_TRUE(s.worker.calls == 20);
  close_scene(&s);
  return 0;
}

static void test_calls(void **state) {
  (void)state;
  run(30, 0, call_some, NULL);
  run(30, 5, call_some, NULL);
}

/* ---- Failures of one rank ---- */

static int fail_on_one(treadle_group *group, void *context) {
  static const struct {
    const char *method, *words;
    treadle_status status;
  } ways[] = {{"fail_before", "not today", TREADLE_SYSTEM},
              {"fail_after", "not today", TREADLE_SYSTEM},
              {"answer_too_much", "no memory for its result", TREADLE_NO_MEMORY}};
  scene s;
  (void)context;
  open_scene(&s, group);
  if (treadle_group_rank(group) > 0) {
    RANK_OK(treadle_worker_group_serve(&s.workers));
  } else {
    for (size_t i = 0; i < TEST_COUNT(ways); i++)
      for (int which = 0; which < RANKS; which++) {
        RANK_FAILS(ways[i].status, ways[i].words, call_failing(&s, ways[i].method, which));
        RANK_OK(call_add(&s, which, MUCH));
        RANK_OK(call_failing(&s, ways[i].method, -1)); /* and nobody fails */
      }
    RANK_OK(treadle_worker_group_end(&s.workers, TREADLE_OK));
  }
  RANK_TRUE(s.worker.calls == (int)TEST_COUNT(ways) * RANKS * 3);
  close_scene(&s);
  return 0;
}

static void test_one_fails(void **state) {
  (void)state;
  run(30, 0, fail_on_one, NULL);
  run(30, 3, fail_on_one, NULL);
}

/* One rank has no memory to receive a call: no rank runs it. Only receiving takes memory then. */
static int receive_without_memory(treadle_group *group, void *context) {
  scene s;
  (void)context;
  open_scene(&s, group);
  if (treadle_group_rank(group) > 0) {
    RANK_OK(treadle_worker_group_serve(&s.workers));
  } else {
    (void)treadle_message_grow(&s.in, 2 * MUCH); /* so it has its room, as it has for answers: */
    RANK_OK(call_add(&s, 1, 0));
    treadle_alloc_fail_at(1);
    treadle_status status = call_add(&s, 2, MUCH);
    treadle_alloc_fail_at(0);
    RANK_FAILS(TREADLE_NO_MEMORY, "no memory for a call of 20", status);
    RANK_TRUE(s.worker.calls == 1);
    RANK_OK(call_add(&s, 3, MUCH));
    RANK_OK(treadle_worker_group_end(&s.workers, TREADLE_OK));
  }
  RANK_TRUE(s.worker.calls == 2);
  close_scene(&s);
  return 0;
}

static void test_no_memory_to_receive(void **state) {
  (void)state;
  run(30, 0, receive_without_memory, NULL);
}

/* ---- Time ---- */

static int be_busy(treadle_group *group, void *context) {
  scene s;
  (void)context;
  open_scene(&s, group);
  if (treadle_group_rank(group) > 0) {
    RANK_OK(treadle_worker_group_serve(&s.workers));
  } else {
    for (int i = 0; i < 2; i++) {
      pause_for(1.7);
      RANK_OK(call_add(&s, i, MUCH));
    }
    pause_for(1.7);
    RANK_OK(treadle_worker_group_end(&s.workers, TREADLE_OK));
  }
  close_scene(&s);
  return 0;
}

static void test_rank_0_is_busy(void **state) {
  (void)state;
  run(1, 0, be_busy, NULL);
}

/* Rank 0 waits for the others as long as it always has. */
static int be_late(treadle_group *group, void *context) {
  scene s;
  (void)context;
  open_scene(&s, group);
  if (treadle_group_rank(group) == 1) return 0;
  if (treadle_group_rank(group) > 1)
    RANK_FAILS(TREADLE_TIMEOUT, "for rank 1", treadle_worker_group_serve(&s.workers));
  else
    RANK_FAILS(TREADLE_TIMEOUT, "for rank 1", call_add(&s, 1, 0));
  close_scene(&s);
  return 0;
}

static void test_a_rank_is_missing(void **state) {
  (void)state;
  run(0.3, 0, be_late, NULL);
}

/* It gives up, by a failure or in peace, and calls no end. */
static int leave(treadle_group *group, void *context) {
  const bool fails = *(const bool *)context;
  scene s;
  open_scene(&s, group);
  if (treadle_group_rank(group) > 0) {
    RANK_FAILS(TREADLE_PEER, fails ? "the next call: rank 0 failed: weary" : "rank 0 has left the group",
               treadle_worker_group_serve(&s.workers));
  } else {
    RANK_OK(call_add(&s, 1, MUCH));
    pause_for(0.05);
    if (fails) {
      treadle_fail(TREADLE_SYSTEM, "weary");
      treadle_group_fail(group);
    } else {
      atomic_store(&treadle_group_line(group)->left, TREADLE_LEFT_CLOSED); /* as treadle_group_close does */
      treadle_group_ring_all(group);
    }
  }
  close_scene(&s);
  return 0;
}

static void test_rank_0_leaves(void **state) {
  (void)state;
  run(30, 0, leave, &(bool){true});
  run(30, 0, leave, &(bool){false});
}

/* ---- Messages ---- */

/* More than there can be is refused at once, and a message that had no memory is as good as new when it is cleared. */
static void test_message_too_large(void **state) {
  static const size_t lengths[] = {SIZE_MAX, SIZE_MAX - 4, SIZE_MAX / 2 + 1, SIZE_MAX / 2};
  treadle_message m = {0};
  int64_t value;
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(lengths); i++) {
    treadle_message_put_int(&m, 7);
    assert_null(treadle_message_grow(&m, lengths[i]));
    assert_true(m.failed);
    treadle_message_clear(&m);
    assert_false(m.failed);
    treadle_message_put_int(&m, 8);
    assert_ok(treadle_message_int(&m, "value", &value));
    assert_int_equal(value, 8);
    treadle_message_clear(&m);
  }
  treadle_message_release(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_calls),          cmocka_unit_test(test_watch),
      cmocka_unit_test(test_one_fails),      cmocka_unit_test(test_no_memory_to_receive),
      cmocka_unit_test(test_rank_0_is_busy), cmocka_unit_test(test_a_rank_is_missing),
      cmocka_unit_test(test_rank_0_leaves),  cmocka_unit_test(test_message_too_large),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
