/* treadle switch: loads a model in the training layout, moves it to the inference layout and back, some
 * times, and says how that went.
 *
 * A cycle: noise in the inference window (--check), to infer, compare, one memcpy of the same bytes for the
 * rate, noise in the training window, to train, compare. Noise goes only to pages that the two windows do
 * not share. The memcpy copies the very bytes that are there, so it changes nothing.
 *
 * Ranks agree after each local step (treadle_session_agree), so that all take the same way out. After a
 * failure inside the switch there is no MPI call any more. */
#include "cli/cli.h"
#include "cli/compare.h"
#include "cli/prove.h"
#include "cli/report.h"
#include "cli/session.h"
#include "cli/switch_report.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/text.h"
#include "switch/load.h"
#include "switch/prove.h"

#include <math.h>
#include <string.h>

typedef struct switch_run {
  const treadle_arguments *arguments;
  treadle_session session;
  treadle_model *model;
  treadle_layout *train, *infer;
  const char *rank_map;
  treadle_switch_options options;
  treadle_switch *sw;
  treadle_plan_info plan;
  void *infer_copy; /* what the infer window holds in mode INFER; with --check, a direct cut of the file */
  void *train_copy; /* --check: what the train window held at first */
  uint64_t digest;
  int64_t timed;                        /* how many switches to infer were timed, and what they took: */
  double *to_infer, *to_train, *memcpy; /* barrier to barrier, largest over ranks */
  double *rate;                         /* memcpy over to_infer of the same cycle */
  double *own, *own_memcpy;             /* of this rank alone */
} switch_run;

/* ---- Before the first switch ----------------------------------------------------------------- */

static treadle_status read_input(switch_run *run) {
  treadle_status status = TREADLE_OK;
  const treadle_arguments *arguments = run->arguments;
  TRY(treadle_open_model(arguments, arguments->model, run->session.rank == 0, &run->model));
  TRY(treadle_layout_create(run->model, arguments->train, run->session.size, &run->train));
  TRY(treadle_layout_create(run->model, arguments->infer, run->session.size, &run->infer));
  TRY(treadle_map_ranks(run->train, run->infer, (treadle_rank_map)arguments->rank_map, &run->rank_map));

  size_t cycles = arguments->cycles ? (size_t)arguments->cycles : 1;
  double **times[] = {&run->to_infer, &run->to_train, &run->memcpy,
                      &run->rate,     &run->own,      &run->own_memcpy};
  for (size_t i = 0; i < sizeof times / sizeof times[0]; i++)
    if (!(*times[i] = treadle_alloc_array(cycles, sizeof **times[i])))
      TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu cycles", cycles));
out:
  return status == TREADLE_SYSTEM ? TREADLE_REFUSED
                                  : status; /* a file that does not open is refused input */
}

/* Loads the train window, and makes the copies that later windows are compared with. */
static treadle_status load(switch_run *run) {
  treadle_status status = TREADLE_OK;
  int rank = run->session.rank;
  size_t train_bytes = treadle_layout_window_bytes(run->train, rank);
  size_t infer_bytes = treadle_layout_window_bytes(run->infer, rank);
  TRY(treadle_layout_load(run->train, rank, treadle_switch_train_window(run->sw)));

  run->infer_copy = treadle_alloc(infer_bytes + 1); /* a rank may hold nothing */
  if (run->arguments->check) run->train_copy = treadle_alloc(train_bytes + 1);
  if (!run->infer_copy || (run->arguments->check && !run->train_copy))
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for copies of the windows, %s and %s",
                     treadle_text_of_size(train_bytes), treadle_text_of_size(infer_bytes)));
  if (run->arguments->check) {
    if (train_bytes) memcpy(run->train_copy, treadle_switch_train_window(run->sw), train_bytes);
    TRY(treadle_layout_load_from(run->infer, run->train, rank, run->infer_copy));
  }
out:
  return status;
}

static treadle_status prepare(switch_run *run) {
  treadle_status status = TREADLE_OK;
  treadle_session *session = &run->session;
  TRY(treadle_session_agree(session, read_input(run)));
  TRY(treadle_session_agree(
      session, treadle_switch_create(session->group, run->train, run->infer, &run->options, &run->sw)));
  treadle_plan_get_info(treadle_switch_plan(run->sw), &run->plan);
  if (session->rank == 0) treadle_progress("loading the weights");
  TRY(treadle_session_agree(session, load(run)));
  TRY(treadle_switch_digest(run->sw, &run->digest));
out:
  return status;
}

/* ---- Timing ---------------------------------------------------------------------------------- */

/* The largest of all ranks' values. */
static treadle_status find_largest(const switch_run *run, double mine, double *largest_p) {
  treadle_status status = TREADLE_OK;
  double *all = treadle_alloc_array((size_t)run->session.size, sizeof *all);
  if (!all) return treadle_fail(TREADLE_NO_MEMORY, "no memory for the times of all ranks");
  TRY(treadle_group_gather(run->session.group, &mine, sizeof mine, all));
  *largest_p = all[0];
  for (int rank = 1; rank < run->session.size; rank++)
    if (all[rank] > *largest_p) *largest_p = all[rank];
out:
  treadle_free(all);
  return status;
}

/* Switches, from barrier to barrier. */
static treadle_status time_switch(switch_run *run, treadle_status (*go)(treadle_switch *sw),
                                  double *seconds_p) {
  treadle_status status = TREADLE_OK;
  TRY(treadle_group_barrier(run->session.group));
  double begin = treadle_clock_seconds();
  TRY(go(run->sw));
  TRY(treadle_group_barrier(run->session.group));
  TRY(find_largest(run, treadle_clock_seconds() - begin, seconds_p));
out:
  return status;
}

/* One memcpy into the infer window of the bytes that it holds, on all ranks at once. */
static treadle_status time_memcpy(switch_run *run, double *seconds_p, double *own_p) {
  treadle_status status = TREADLE_OK;
  size_t bytes = treadle_layout_window_bytes(run->infer, run->session.rank);
  TRY(treadle_group_barrier(run->session.group));
  double begin = treadle_clock_seconds();
  if (bytes) memcpy(treadle_switch_infer_window(run->sw), run->infer_copy, bytes);
  TRY(treadle_group_barrier(run->session.group)); /* waits for others, as a switch does */
  *own_p = treadle_clock_seconds() - begin;
  TRY(find_largest(run, *own_p, seconds_p));
out:
  return status;
}

/* ---- Checking -------------------------------------------------------------------------------- */

/* Compares the window of the present mode with its copy (--check), and the digest with the first one. */
static treadle_status check(switch_run *run, int64_t cycle, bool with_digest) {
  treadle_status status = TREADLE_OK, mine = TREADLE_OK;
  bool infer = treadle_switch_mode(run->sw) == TREADLE_INFER;
  char when[64];
  uint64_t digest = run->digest;
  snprintf(when, sizeof when, "cycle %lld, after switching to %s", (long long)cycle + 1,
           infer ? "infer" : "train");
  if (run->arguments->check)
    mine = treadle_compare_window(infer ? run->infer : run->train, run->model, run->session.rank,
                                  infer ? treadle_switch_infer_window(run->sw)
                                        : treadle_switch_train_window(run->sw),
                                  infer ? run->infer_copy : run->train_copy, when);
  TRY(treadle_session_agree(&run->session, mine));
  if (run->plan.lossless && (run->arguments->check || with_digest)) /* rounding changes values */
    TRY(treadle_switch_digest(run->sw, &digest));
  if (digest != run->digest)
    mine = treadle_fail(TREADLE_DIFFERENT, "%s, the digest of the weights is %016llx instead of %016llx",
                        when, (unsigned long long)digest, (unsigned long long)run->digest);
  TRY(treadle_session_agree(&run->session, mine));
out:
  return status;
}

/* No rank was ever above its own bound, by its books or by its file. Gathers the figures of all ranks. */
static treadle_status check_peaks(switch_run *run, treadle_rank_figures *figures) {
  treadle_status status = TREADLE_OK, mine = TREADLE_OK;
  treadle_switch_stats stats;
  treadle_switch_get_stats(run->sw, &stats);
  treadle_rank_figures *own = &figures[run->session.rank];
  own->moved_bytes = run->plan.moved_bytes; /* coverage has proved that this was carried out */
  own->lower_bound_bytes = run->plan.lower_bound_bytes;
  own->peak_bytes = stats.peak_bytes;
  own->held_bytes = stats.pool_bytes;
  own->bound_bytes = run->plan.peak_bound_bytes;
  if (own->peak_bytes > own->bound_bytes || own->held_bytes > own->bound_bytes)
    mine = treadle_fail(TREADLE_DIFFERENT,
                        "rank %d: a peak of %zu bytes, %zu in its file, is over its bound of %zu",
                        run->session.rank, own->peak_bytes, own->held_bytes, own->bound_bytes);
  treadle_rank_figures sent = *own;
  TRY(treadle_group_gather(run->session.group, &sent, sizeof sent, figures));
  TRY(treadle_session_agree(&run->session, mine));
out:
  return status;
}

/* ---- Cycles ---------------------------------------------------------------------------------- */

static treadle_status run_cycle(switch_run *run, int64_t cycle, treadle_rank_figures *own) {
  treadle_status status = TREADLE_OK;
  bool checks = run->arguments->check, one_way = run->arguments->cycles == 0;
  bool last = one_way || cycle + 1 == run->arguments->cycles;
  uint64_t seed = (uint64_t)cycle * 2;
  treadle_switch_stats stats;
  if (run->session.rank == 0) treadle_progress("cycle %lld", (long long)cycle + 1);

  if (checks) treadle_switch_noise(run->sw, seed);
  TRY(time_switch(run, treadle_switch_to_infer, &run->to_infer[cycle]));
  treadle_switch_get_stats(run->sw, &stats);
  run->own[cycle] = stats.seconds;
  own->copied_bytes = stats.copied_bytes;
  TRY(check(run, cycle, cycle == 0));
  size_t bytes = treadle_layout_window_bytes(run->infer, run->session.rank);
  if (cycle == 0 && !checks && bytes) memcpy(run->infer_copy, treadle_switch_infer_window(run->sw), bytes);
  TRY(time_memcpy(run, &run->memcpy[cycle], &run->own_memcpy[cycle]));
  run->rate[cycle] = run->memcpy[cycle] / run->to_infer[cycle];
  run->timed = cycle + 1;
  if (one_way) goto out;

  if (checks) treadle_switch_noise(run->sw, seed + 1);
  TRY(time_switch(run, treadle_switch_to_train, &run->to_train[cycle]));
  TRY(check(run, cycle, last));
out:
  return status;
}

static void print_report(switch_run *run, const treadle_rank_figures *figures, bool pass) {
  bool timed = run->timed > 0;
  treadle_switch_report report = {
      .model = run->model,
      .train = treadle_layout_text(run->train),
      .infer = treadle_layout_text(run->infer),
      .rank_map = run->rank_map,
      .cycles = run->arguments->cycles,
      .ranks = run->session.size,
      .figures = figures,
      .to_infer = timed ? treadle_median(run->to_infer, run->timed) : (double)NAN,
      .to_train = timed && run->arguments->cycles ? treadle_median(run->to_train, run->timed) : (double)NAN,
      .memcpy = timed ? treadle_median(run->memcpy, run->timed) : (double)NAN,
      .rate = timed ? treadle_median(run->rate, run->timed) : (double)NAN,
      .cap_bytes = run->plan.cap_bytes,
      .page_bytes = run->plan.page_bytes,
      .waves = run->plan.waves,
      .pass = pass,
      .compared = run->arguments->check != TREADLE_CHECK_NONE,
      .lossless = run->plan.lossless,
      .digest = run->digest,
  };
  if (run->arguments->json)
    treadle_switch_report_json(&report);
  else
    treadle_switch_report_text(&report);
}

/* All of it. A difference ends the cycles, and is part of the report. */
static treadle_status run_all(switch_run *run) {
  treadle_status status = TREADLE_OK, found = TREADLE_OK;
  int64_t cycles = run->arguments->cycles ? run->arguments->cycles : 1;
  treadle_rank_figures *figures = treadle_alloc_array((size_t)run->session.size, sizeof *figures);
  TRY(treadle_session_agree(
      &run->session, figures ? TREADLE_OK : treadle_fail(TREADLE_NO_MEMORY, "no memory for figures")));
  treadle_rank_figures *own = &figures[run->session.rank];
  TRY(prepare(run));
  for (int64_t cycle = 0; cycle < cycles && !found; cycle++) found = run_cycle(run, cycle, own);
  if (found && (found != TREADLE_DIFFERENT || !run->session.said)) TRY(found);

  own->seconds = run->timed ? treadle_median(run->own, run->timed) : 0;
  own->memcpy_seconds = run->timed ? treadle_median(run->own_memcpy, run->timed) : 0;
  status = check_peaks(run, figures);
  if (status && !run->session.said) goto out;
  if (!found) found = status;
  status = found;
  if (!found && run->arguments->check == TREADLE_CHECK_PROVE) {
    treadle_prove_input input = {.session = &run->session,
                                 .train = run->train,
                                 .infer = run->infer,
                                 .options = &run->options,
                                 .model = run->model,
                                 .infer_copy = run->infer_copy,
                                 .digest = run->digest,
                                 .file = run->arguments->json ? stderr : stdout};
    treadle_switch_destroy(run->sw); /* its memory is needed */
    run->sw = NULL;
    status = found = treadle_prove_faults(&input);
    if (found && (found != TREADLE_DIFFERENT || !run->session.said)) goto out;
  }
  if (run->session.rank == 0) print_report(run, figures, !found);
out:
  treadle_progress_end();
  treadle_free(figures);
  return status;
}

/* ---- The command ----------------------------------------------------------------------------- */

static void release(switch_run *run) {
  treadle_switch_destroy(run->sw);
  treadle_layout_destroy(run->train);
  treadle_layout_destroy(run->infer);
  treadle_model_close(run->model);
  void *memory[] = {run->infer_copy, run->train_copy, run->to_infer, run->to_train,
                    run->memcpy,     run->rate,       run->own,      run->own_memcpy};
  for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++) treadle_free(memory[i]);
}

int treadle_command_switch(const treadle_arguments *arguments) {
  treadle_status status = TREADLE_OK;
  switch_run run = {.arguments = arguments,
                    .options = {.page_bytes = arguments->page_bytes,
                                .cap_bytes = arguments->cap_bytes,
                                .budget_bytes = arguments->budget_bytes,
                                .timeout_seconds = arguments->timeout_seconds,
                                .one_way = arguments->cycles == 0}};
  TRY(treadle_session_start(&run.session, "switch", arguments->timeout_seconds));
  TRY(run_all(&run));
out:
  if (status && !run.session.said) treadle_session_abandon(&run.session, status);
  release(&run);
  int exit_status = treadle_finish_output("switch", treadle_exit_status(status));
  treadle_session_end(&run.session);
  return exit_status;
}

/* The options were refused before MPI was started: the ranks meet so that only one says it. */
int treadle_command_switch_refuse(treadle_status status) {
  char message[512];
  treadle_session session;
  snprintf(message, sizeof message, "%s", treadle_error_message());
  if (!treadle_session_start(&session, "switch", 0) && session.rank == 0)
    fprintf(stderr, "treadle switch: %s\n", message);
  treadle_session_end(&session);
  return treadle_exit_status(status);
}
