/* src/core/convert/steps.c: a conversion's steps are taken in their order, and it is taken up after it was cancelled. */
#include "test.h"

#include "cli/made.h"
#include "treadle_tools.h"

static const char config[] = "{\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 96,"
                             " \"num_hidden_layers\": 2, \"num_attention_heads\": 4,"
                             " \"num_key_value_heads\": 2, \"vocab_size\": 96,"
                             " \"torch_dtype\": \"bfloat16\", \"tie_word_embeddings\": false}";

typedef struct seen {
  int calls, most; /* most: the number of the call that says no; 0: none does */
  int64_t done, total;
} seen;

static bool watch(void *context, const char *doing, int64_t done, int64_t total) {
  seen *s = context;
  assert_true(*doing);
  assert_true(done > s->done && done <= total);
  s->done = done;
  s->total = total;
  return ++s->calls != s->most;
}

static char folder[32], in[96], out[96];

/* Into a folder of the test's own. */
static treadle_convert_options options_of(const char *name, seen *s) {
  snprintf(out, sizeof out, "%s/%s", folder, name);
  return (treadle_convert_options){.struct_size = sizeof(treadle_convert_options),
                                   .in = in,
                                   .out = out,
                                   .from = "hf",
                                   .to = "megatron:tp=2",
                                   .watch = watch,
                                   .watch_context = s};
}

static void steps_have_an_order(void **state) {
  (void)state;
  seen s = {0};
  treadle_convert *convert;
  treadle_convert_figures figures = TREADLE_INIT(treadle_convert_figures);
  treadle_convert_options options = options_of("ordered", &s);
  assert_ok(treadle_convert_open(&options, &convert));
  assert_fails(TREADLE_STATE, "write on rank 0 of 1", treadle_convert_write(convert));
  assert_fails(TREADLE_STATE, "whose conversion is open", treadle_convert_finish(convert));
  assert_ok(treadle_convert_compare(convert));
  assert_fails(TREADLE_STATE, "has compared", treadle_convert_compare(convert));
  assert_ok(treadle_convert_begin(convert));
  assert_fails(TREADLE_STATE, "has begun", treadle_convert_begin(convert));
  assert_ok(treadle_convert_write(convert));
  assert_fails(TREADLE_STATE, "is written", treadle_convert_write(convert));
  assert_ok(treadle_convert_finish(convert));
  assert_fails(TREADLE_STATE, "is finished", treadle_convert_finish(convert));
  treadle_convert_get_figures(convert, &figures);
  assert_int_equal(figures.bytes_written, s.done);
  assert_int_equal(figures.files, 2);
  assert_int_equal(figures.resumed, 0);
  treadle_convert_close(convert);
}

/* The other files of a conversion by two are another process's, and so are its first and last steps. */
static void other_ranks_write_alone(void **state) {
  (void)state;
  seen s = {0};
  treadle_convert *convert;
  treadle_convert_options options = options_of("other", &s);
  options.rank = 1;
  options.ranks = 2;
  assert_ok(treadle_convert_open(&options, &convert));
  assert_fails(TREADLE_STATE, "begin on rank 1 of 2", treadle_convert_begin(convert));
  assert_fails(TREADLE_STATE, "finish on rank 1 of 2", treadle_convert_finish(convert));
  assert_true(treadle_convert_write(convert) != TREADLE_OK); /* rank 0 has not begun */
  assert_fails(TREADLE_STATE, "has failed", treadle_convert_write(convert));
  treadle_convert_close(convert);
}

/* Cancelled at each of its calls: the next one goes on, and in the end the folder is whole. */
static void a_cancelled_one_is_taken_up(void **state) {
  (void)state;
  int cancelled = 0;
  int64_t resumed = 0;
  for (bool whole = false; !whole; cancelled++) {
    seen s = {.most = 20};
    treadle_convert *convert;
    treadle_convert_figures figures = TREADLE_INIT(treadle_convert_figures);
    treadle_convert_options options = options_of("cancelled", &s);
    assert_ok(treadle_convert_open(&options, &convert));
    assert_int_equal(treadle_convert_resumes(convert), cancelled > 0);
    assert_ok(treadle_convert_begin(convert));
    treadle_status status = treadle_convert_write(convert);
    whole = status == TREADLE_OK;
    if (!whole) assert_int_equal(status, TREADLE_CANCELLED);
    if (!whole) assert_non_null(strstr(treadle_error_message(), "cancelled: "));
    if (whole) assert_ok(treadle_convert_finish(convert));
    treadle_convert_get_figures(convert, &figures);
    assert_true(figures.resumed >= resumed);
    resumed = figures.resumed;
    treadle_convert_close(convert);
    assert_in_range(cancelled, 0, 100);
  }
  assert_true(cancelled > 1 && resumed > 0);
}

static int make_folder(void **state) {
  (void)state;
  snprintf(folder, sizeof folder, "%s", test_folder());
  snprintf(in, sizeof in, "%s/in", folder);
  made_checkpoint(in, config, &(made_options){0});
  return 0;
}

static int remove_folder(void **state) {
  (void)state;
  test_remove(folder);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(steps_have_an_order),
                                     cmocka_unit_test(a_cancelled_one_is_taken_up),
                                     cmocka_unit_test(other_ranks_write_alone)};
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
