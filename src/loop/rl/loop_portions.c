/* Samples of a step in portions: while the next ones are drawn, pools that need nothing but samples work on those that have come. The dock says
 * which these are. Advantages and updates wait for all, and take them in their order: the bits are those of a step that is drawn at once. */
#include "rl/stages.h"

#include "base/alloc.h"
#include "treadle_control.h"

/* What others do with the samples alone. */
static const treadle_rl_stage_number readers[] = {TREADLE_STAGE_RM_SCORE, TREADLE_STAGE_REFERENCE,
                                                  TREADLE_STAGE_VALUES};
enum { READERS = sizeof readers / sizeof *readers };

/* ids: with their prompts. */
static const char *const drawn[] = {"ids"};

static int64_t samples_of(const treadle_train_settings *s) {
  return s->training.global_batch_size * s->rl.batches.n_samples_per_prompt;
}

int64_t treadle_rl_portion_of(const treadle_rl_stages *s) {
  const int64_t each = s->settings->rl.batches.rollout_dispatch_size;
  for (int i = 0; each && each < samples_of(s->settings) && i < READERS; i++)
    if (treadle_rl_stage_is_beside(s, readers[i])) return each;
  return 0;
}

/* Starts those that go on beside the policy's, with these rows. */
static treadle_status start(treadle_rl_stages *s, treadle_rl_stage_number stage,
                            const treadle_row_range *rows) {
  return treadle_rl_stage_is_beside(s, stage) ? treadle_rl_stage_start_rows(s, stage, rows) : TREADLE_OK;
}

static treadle_status open_dock(const treadle_rl_stages *s, treadle_dock **dock_p) {
  const char *names[READERS];
  for (int i = 0; i < READERS; i++) names[i] = treadle_rl_stage_name(readers[i]);
  const treadle_dock_spec spec = {.struct_size = sizeof spec,
                                  .rows = samples_of(s->settings),
                                  .group = s->settings->rl.batches.n_samples_per_prompt,
                                  .columns = drawn,
                                  .column_count = 1,
                                  .consumers = names,
                                  .consumer_count = READERS};
  return treadle_dock_create(&spec, dock_p);
}

/* Each stage takes what is ready for it: numbers [samples of the step]. */
static treadle_status start_ready(treadle_rl_stages *s, treadle_dock *dock, int64_t *numbers) {
  size_t count;
  treadle_status status = TREADLE_OK;
  for (int i = 0; i < READERS; i++) {
    const treadle_dock_request ask = {.struct_size = sizeof ask,
                                      .consumer = treadle_rl_stage_name(readers[i]),
                                      .columns = drawn,
                                      .column_count = 1,
                                      .groups = true,
                                      .in_order = true};
    TRY(treadle_dock_take(dock, &ask, numbers, &count));
    const treadle_row_range rows = {numbers[0], numbers[0] + (int64_t)count};
    if (count) TRY(start(s, readers[i], &rows));
  }
out:
  return status;
}

/* One portion after the other. */
static treadle_status draw_portions(treadle_rl_stages *s, int64_t each, double *seconds_p) {
  const int64_t all = samples_of(s->settings);
  int64_t *numbers = treadle_alloc_array((size_t)all, sizeof *numbers);
  treadle_rl_outcome outcome;
  treadle_dock *dock = NULL;
  treadle_status status = TREADLE_OK;
  if (!numbers) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for a dock of %lld rows", (long long)all));
  TRY(open_dock(s, &dock));
  for (treadle_row_range rows = {0, each}; rows.first < all; rows.first = rows.end, rows.end += each) {
    if (rows.end > all) rows.end = all;
    TRY(treadle_rl_stage_start_rows(s, TREADLE_STAGE_GENERATE, &rows));
    TRY(treadle_rl_stage_wait(s, TREADLE_STAGE_GENERATE, &outcome));
    *seconds_p += outcome.seconds;
    if (*s->stopped) goto out;
    for (int64_t r = rows.first; r < rows.end; r++) numbers[r - rows.first] = r;
    TRY(treadle_dock_put(dock, drawn, 1, numbers, (size_t)(rows.end - rows.first)));
    TRY(start_ready(s, dock, numbers));
  }
out:
  treadle_dock_destroy(dock);
  treadle_free(numbers);
  return status;
}

treadle_status treadle_rl_stages_draw(treadle_rl_stages *s, double *seconds_p) {
  const int64_t each = treadle_rl_portion_of(s);
  treadle_rl_outcome outcome;
  treadle_status status;
  if (each) return draw_portions(s, each, seconds_p);
  TRY(treadle_rl_stage_run(s, TREADLE_STAGE_GENERATE, &outcome));
  *seconds_p += outcome.seconds;
  for (int i = 0; !*s->stopped && i < READERS; i++) TRY(start(s, readers[i], &(treadle_row_range){0}));
out:
  return status;
}
