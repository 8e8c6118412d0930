/* src/core/report/report.c: reports add up, say the same as plans, and can be watched and cancelled. */
#include "test.h"

#include "plan/small.h"
#include "treadle_tools.h"

#include <math.h>

static const small_config config = {.V = 96, .H = 64, .L = 4, .nh = 8, .ng = 4, .hd = 8, .I = 96};

typedef struct seen {
  int32_t calls, most; /* most: the number of the call that says no; 0: none does */
} seen;

static bool watch(void *context, const char *doing, int64_t done, int64_t total) {
  seen *s = context;
  assert_in_range(done, 1, total);
  assert_true(*doing);
  return ++s->calls != s->most;
}

static void reports_say_what_plans_say(void **state) {
  (void)state;
  treadle_model *model = small_model(&config);
  treadle_layout *from, *to;
  treadle_report *report;
  seen s = {.most = 0};
  treadle_report_info info = TREADLE_INIT(treadle_report_info);
  const treadle_report_options options = {
      .struct_size = sizeof options, .page_bytes = 4096, .watch = watch, .watch_context = &s};
  assert_ok(treadle_layout_create(model, "megatron:tp=2,pp=2", 8, NULL, &from));
  assert_ok(treadle_layout_create(model, "vllm:tp=4", 8, NULL, &to));
  assert_ok(treadle_report_create(from, to, &options, &report));
  treadle_report_get_info(report, &info);
  assert_true(s.calls > 0 && info.fits && info.has_inbound && info.sets > 0);
  size_t moved = 0, peak = 0;
  for (int64_t rank = 0; rank < 8; rank++) {
    treadle_plan_info one = TREADLE_INIT(treadle_plan_info), planned = one;
    const treadle_plan_options terms = {
        .struct_size = sizeof terms, .page_bytes = 4096, .cap_bytes = info.cap_bytes, .waves = info.waves};
    treadle_plan *plan;
    size_t said[8], pulled[8];
    assert_ok(treadle_report_rank(report, rank, &one));
    assert_ok(treadle_report_inbound(report, rank, said));
    assert_ok(treadle_plan_create(from, to, rank, &terms, &plan));
    treadle_plan_get_info(plan, &planned);
    treadle_plan_inbound(plan, pulled);
    assert_memory_equal(said, pulled, sizeof said);
    assert_int_equal(one.moved_bytes, planned.moved_bytes);
    assert_int_equal(one.peak_bytes, planned.peak_bytes);
    moved += one.moved_bytes;
    if (one.peak_bytes > peak) peak = one.peak_bytes;
    treadle_plan_destroy(plan);
  }
  assert_int_equal(info.moved_bytes, moved);
  assert_int_equal(info.peak_bytes, peak);
  treadle_report_destroy(report);
  treadle_layout_destroy(from);
  treadle_layout_destroy(to);
  treadle_model_close(model);
}

/* A report that is cancelled at its n-th call says so and leaves nothing; one with fewer calls is whole. */
static void reports_are_cancelled(void **state) {
  (void)state;
  treadle_model *model = small_model(&config);
  treadle_layout *from, *to;
  treadle_report *report = NULL;
  assert_ok(treadle_layout_create(model, "megatron:tp=2,pp=2", 8, NULL, &from));
  assert_ok(treadle_layout_create(model, "vllm:tp=4", 8, NULL, &to));
  int32_t cancelled = 0;
  for (int32_t n = 1; !report; n++) {
    seen s = {.most = n};
    const treadle_report_options options = {
        .struct_size = sizeof options, .page_bytes = 4096, .watch = watch, .watch_context = &s};
    treadle_status status = treadle_report_create(from, to, &options, &report);
    assert_int_equal(status, s.calls < n ? TREADLE_OK : TREADLE_CANCELLED);
    assert_true((report != NULL) == (status == TREADLE_OK));
    if (status) assert_non_null(strstr(treadle_error_message(), "cancelled: "));
    cancelled += status != TREADLE_OK;
  }
  assert_in_range(cancelled, 1, 1000);
  treadle_report_destroy(report);
  treadle_layout_destroy(from);
  treadle_layout_destroy(to);
  treadle_model_close(model);
}

static void a_report_of_one_rank(void **state) {
  (void)state;
  treadle_model *model = small_model(&config);
  treadle_layout *from, *to;
  treadle_report *report;
  treadle_report_info info = TREADLE_INIT(treadle_report_info);
  treadle_plan_info one = TREADLE_INIT(treadle_plan_info);
  size_t bytes[8];
  const treadle_report_options options = {
      .struct_size = sizeof options, .page_bytes = 4096, .budget_bytes = 4096, .one_rank = true, .rank = 5};
  assert_ok(treadle_layout_create(model, "megatron:tp=2,pp=2", 8, NULL, &from));
  assert_ok(treadle_layout_create(model, "vllm:tp=4", 8, NULL, &to));
  assert_ok(treadle_report_create(from, to, &options, &report));
  treadle_report_get_info(report, &info);
  assert_false(info.fits); /* one page */
  assert_int_equal(info.cap_bytes, info.cap_min_bytes);
  assert_int_equal(info.tight_rank, 5);
  assert_true(isnan(info.link_load));
  assert_ok(treadle_report_rank(report, 5, &one));
  assert_refused("of rank 5 alone", treadle_report_rank(report, 4, &one));
  assert_refused("kept in reports over all ranks", treadle_report_inbound(report, 5, bytes));
  treadle_report_destroy(report);
  treadle_layout_destroy(from);
  treadle_layout_destroy(to);
  treadle_model_close(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(reports_say_what_plans_say),
                                     cmocka_unit_test(reports_are_cancelled),
                                     cmocka_unit_test(a_report_of_one_rank)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
