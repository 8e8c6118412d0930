/* treadle switch: loads a model in the training layout, moves it to the inference layout and back, some
 * times, and says how that went.
 *
 * A cycle: (with --offload, first of all everything to the host;) noise on the pages that nobody holds (--check), to
 * infer, compare, one memcpy of the bytes that were copied for the rate, noise, (--forward: to forward, compare,) to
 * train, compare. In the first cycle, before the way back: the updates (--update). The memcpy copies the very bytes that it finds there, so it changes nothing.
 *
 * After a failure inside the switch there is no MPI call any more. */
#include "cli/handle_file.h"
#include "cli/prove.h"
#include "cli/switch_job.h"

#include "base/alloc.h"
#include "base/utf8.h"
#include "treadle_builtin.h"

#include <math.h>
#include <string.h>

enum { KV_BLOCK = 256 << 10 };

/* No rank was ever above its own bound, by its books or by its file. Gathers the figures of all ranks. */
static treadle_status check_peaks(treadle_job *job, treadle_rank_figures *figures) {
  treadle_status status = TREADLE_OK, mine = TREADLE_OK;
  treadle_rank_figures *own = &figures[job->session.rank];
  treadle_job_figures(job, own);
  if (own->peak_bytes > own->bound_bytes || own->held_bytes > own->pool_bound_bytes)
    mine = treadle_fail(
        TREADLE_DIFFERENT,
        "rank %d: a peak of %zu bytes is over its bound of %zu, or %zu bytes in its file over %zu",
        job->session.rank, own->peak_bytes, own->bound_bytes, own->held_bytes, own->pool_bound_bytes);
  treadle_rank_figures sent = *own;
  TRY(treadle_group_gather(job->session.group, &sent, sizeof sent, figures));
  TRY(treadle_session_agree(&job->session, mine));
out:
  return status;
}

/* ---- Cycles ---------------------------------------------------------------------------------- */

static treadle_status go_back(treadle_job *job, int64_t cycle, bool last) {
  treadle_status status = TREADLE_OK;
  bool checks = job->asked->check;
  double forward = 0;
  if (checks) treadle_switch_noise(job->sw, (uint64_t)cycle * 2 + 1);
  if (job->asked->forward) {
    TRY(treadle_job_arrow(job, TREADLE_FORWARD, cycle, &forward));
    TRY(treadle_job_check(job, cycle, false));
  }
  TRY(treadle_job_arrow(job, TREADLE_TRAIN, cycle, &job->to_train[cycle]));
  job->to_train[cycle] += forward;
  TRY(treadle_job_check(job, cycle, last));
out:
  return status;
}

static treadle_status run_cycle(treadle_job *job, int64_t cycle) {
  treadle_status status = TREADLE_OK;
  bool checks = job->asked->check, one_way = job->asked->cycles == 0;
  bool last = one_way || cycle + 1 == job->asked->cycles;
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
  double seconds;
  if (job->session.rank == 0) treadle_progress("cycle %lld", (long long)cycle + 1);
  if (cycle == 0 && job->options.host) TRY(treadle_job_arrow(job, TREADLE_HOST, cycle, &seconds));
  if (checks) treadle_switch_noise(job->sw, (uint64_t)cycle * 2);
  TRY(treadle_job_arrow(job, TREADLE_INFER, cycle, &job->to_infer[cycle]));
  if (cycle == 0 && job->asked->handle_file)
    TRY(treadle_session_agree(
        &job->session, treadle_handle_file_write(job->asked->handle_file, job->session.rank, job->sw)));
  treadle_switch_get_stats(job->sw, &stats);
  job->to_infer_stats = stats;
  job->own_seconds[cycle] = stats.seconds;
  TRY(treadle_job_check(job, cycle, cycle == 0));
  if (cycle == 0 && !checks) TRY(treadle_session_agree(&job->session, treadle_job_snapshot(job)));
  TRY(treadle_job_memcpy(job, &job->memcpy[cycle], &job->own_memcpy[cycle]));
  job->rate[cycle] = job->memcpy[cycle] / job->to_infer[cycle];
  job->timed = cycle + 1;
  if (cycle == 0 && job->asked->update) TRY(treadle_job_updates(job));
  if (!one_way) TRY(go_back(job, cycle, last));
out:
  return status;
}

/* The largest over ranks, of one cycle. */
static treadle_status gather_parts(treadle_job *job) {
  treadle_status status = TREADLE_OK;
  treadle_switch_seconds own = job->parts,
                         *all = treadle_alloc_array((size_t)job->session.size, sizeof *all);
  double *parts[] = {&job->parts.offload, &job->parts.waves, &job->parts.wait, &job->parts.bind,
                     &job->parts.load};
  enum { PARTS = sizeof parts / sizeof parts[0] };
  TRY(treadle_session_agree(&job->session,
                            all ? TREADLE_OK : treadle_fail(TREADLE_NO_MEMORY, "no memory for figures")));
  TRY(treadle_group_gather(job->session.group, &own, sizeof own, all));
  for (int i = 0; i < PARTS; i++) *parts[i] = 0;
  for (int rank = 0; rank < job->session.size; rank++) {
    const double one[PARTS] = {all[rank].offload, all[rank].waves, all[rank].wait, all[rank].bind,
                               all[rank].load};
    for (int i = 0; i < PARTS; i++)
      if (job->timed && one[i] / (double)job->timed > *parts[i]) *parts[i] = one[i] / (double)job->timed;
  }
out:
  treadle_free(all);
  return status;
}

treadle_switch_report treadle_job_report(const treadle_job *job, const treadle_rank_figures *figures) {
  bool timed = job->timed > 0;
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
  if (job->sw) treadle_switch_get_stats(job->sw, &stats);
  return (treadle_switch_report){
      .model = job->model,
      .train = treadle_layout_text(job->train),
      .infer = treadle_layout_text(job->infer),
      .rank_map = job->rank_map,
      .device = job->options.memory.kind == TREADLE_MEMORY_CUDA ? "cuda" : "cpu",
      .cycles = job->asked->cycles,
      .updates = job->updated,
      .unbound = job->updated ? treadle_median(job->unbound, job->updated) : (double)NAN,
      .serves = job->asked->doubles && job->asked->check,
      .to_next = job->updated ? treadle_median(job->to_next, job->updated) : (double)NAN,
      .ranks = job->session.size,
      .figures = figures,
      .to_infer = timed ? treadle_median(job->to_infer, job->timed) : (double)NAN,
      .to_train = timed && job->asked->cycles ? treadle_median(job->to_train, job->timed) : (double)NAN,
      .memcpy = timed ? treadle_median(job->memcpy, job->timed) : (double)NAN,
      .rate = timed ? treadle_median(job->rate, job->timed) : (double)NAN,
      .parts = job->parts,
      .rows = job->rows,
      .row_count = job->row_count,
      .cap_bytes = job->plan.cap_bytes,
      .page_bytes = job->plan.page_bytes,
      .host_bytes = job->sw ? stats.host_bytes : 0,
      .waves = job->plan.waves,
      .compared = job->asked->check != TREADLE_CHECK_NONE,
      .lossless = job->plan.lossless,
      .digest = job->digest,
  };
}

/* The rank that held most draws the picture. */
static treadle_status draw_timeline(treadle_job *job) {
  treadle_status status = TREADLE_OK, mine = TREADLE_OK;
  treadle_session *session = &job->session;
  size_t own, *all = treadle_alloc_array((size_t)session->size, sizeof *all);
  int fullest = 0;
  enum { SHOWN = 61 }; /* bytes of each layout's text, in characters */
  char title[200], train[SHOWN], infer[SHOWN];
  if (!job->timeline) goto out;
  TRY(treadle_session_agree(session,
                            all ? TREADLE_OK : treadle_fail(TREADLE_NO_MEMORY, "no memory for figures")));
  own = treadle_timeline_peak(job->timeline);
  TRY(treadle_group_gather(session->group, &own, sizeof own, all));
  for (int rank = 1; rank < session->size; rank++)
    if (all[rank] > all[fullest]) fullest = rank;
  treadle_utf8_show(train, sizeof train, treadle_layout_text(job->train));
  treadle_utf8_show(infer, sizeof infer, treadle_layout_text(job->infer));
  snprintf(title, sizeof title, "device bytes of rank %d, the fullest: %s to %s", session->rank, train,
           infer);
  if (session->rank == fullest)
    mine = treadle_timeline_write(
        job->timeline, job->asked->timeline, title,
        (treadle_timeline_bounds){treadle_switch_bound(job->sw), treadle_switch_pool_bound(job->sw)});
  TRY(treadle_session_agree(session, mine));
out:
  treadle_free(all);
  return status;
}

static treadle_status prove(treadle_job *job) {
  treadle_status status = TREADLE_OK;
  treadle_session *session = &job->session;
  const treadle_plan_options plain = {.struct_size = sizeof plain, .page_bytes = job->plan.page_bytes};
  treadle_plan_info info = TREADLE_INIT(treadle_plan_info);
  treadle_plan *plan = NULL;
  double largest = 0;
  TRY(treadle_session_agree(session,
                            treadle_plan_create(job->train, job->infer, session->rank, &plain, &plan)));
  treadle_plan_get_info(plan, &info);
  TRY(treadle_job_largest(job, (double)info.cap_min_bytes, &largest));
  if (treadle_job_nodes(job) > 1) largest += 4 * (double)job->plan.page_bytes; /* messages lie in the cap */
  treadle_prove_input input = {.session = session,
                               .train = job->train,
                               .infer = job->infer,
                               .options = &job->options,
                               .cap_min_bytes = (size_t)largest,
                               .model = job->model,
                               .infer_copy = job->infer_copy,
                               .digest = job->digest,
                               .file = job->arguments->json ? stderr : stdout};
  treadle_switch_destroy(job->sw); /* its memory is needed */
  job->sw = NULL;
  TRY(treadle_prove_faults(&input));
out:
  treadle_plan_destroy(plan);
  return status;
}

static const char *net_of(const treadle_switch_arguments *asked) { return asked->net ? "ucx" : "tcp"; }

/* Rank 0 says what went between nodes, where there are several. */
static treadle_status add_nodes(treadle_job *job, const treadle_rank_figures *figures,
                                treadle_switch_report *report) {
  treadle_status mine = TREADLE_OK;
  if (treadle_job_nodes(job) < 2) return TREADLE_OK;
  report->net = net_of(job->asked);
  if (job->session.rank == 0)
    mine = treadle_switch_nodes_make(job->train, job->infer, figures, job->session.size,
                                     job->plan.page_bytes, &job->nodes, &report->nodes);
  report->by_node = job->nodes;
  return treadle_session_agree(&job->session, mine);
}

/* All of it. A difference ends the cycles, and is part of the report. */
static treadle_status run_all(treadle_job *job) {
  treadle_status status = TREADLE_OK, found = TREADLE_OK;
  int64_t cycles = job->asked->cycles ? job->asked->cycles : 1;
  treadle_rank_figures *figures = treadle_alloc_array((size_t)job->session.size, sizeof *figures);
  TRY(treadle_session_agree(
      &job->session, figures ? TREADLE_OK : treadle_fail(TREADLE_NO_MEMORY, "no memory for figures")));
  treadle_rank_figures *own = &figures[job->session.rank];
  TRY(treadle_job_prepare(job));
  if (job->asked->fault) treadle_job_fault(job);
  treadle_interrupt_watch(&job->interrupt, job->sw);
  for (int64_t cycle = 0; cycle < cycles && !found; cycle++) found = run_cycle(job, cycle);
  treadle_interrupt_watch(&job->interrupt, NULL);
  if (found && (found != TREADLE_DIFFERENT || !job->session.said)) TRY(found);

  own->seconds = job->timed ? treadle_median(job->own_seconds, job->timed) : 0;
  own->memcpy_seconds = job->timed ? treadle_median(job->own_memcpy, job->timed) : 0;
  TRY(gather_parts(job));
  TRY(draw_timeline(job));
  status = check_peaks(job, figures);
  if (status && !job->session.said) goto out;
  if (!found) found = status;
  status = found;
  treadle_switch_report report = treadle_job_report(job, figures);
  TRY(add_nodes(job, figures, &report));
  if (!found && job->asked->check == TREADLE_CHECK_PROVE) {
    status = found = prove(job);
    if (found && (found != TREADLE_DIFFERENT || !job->session.said)) goto out;
  }
  report.pass = !found;
  if (job->session.rank == 0)
    (job->arguments->json ? treadle_switch_report_json : treadle_switch_report_text)(&report);
out:
  treadle_progress_end();
  treadle_free(figures);
  treadle_free(job->nodes);
  return status;
}

/* ---- The command ----------------------------------------------------------------------------- */

int treadle_command_switch(const treadle_arguments *arguments) {
  treadle_status status = TREADLE_OK;
  const treadle_switch_arguments *asked = &arguments->switching;
  treadle_job job = {.arguments = arguments,
                     .asked = asked,
                     .options = {.struct_size = sizeof job.options,
                                 .page_bytes = arguments->memory.page_bytes,
                                 .cap_bytes = arguments->memory.cap_bytes,
                                 .budget_bytes = arguments->memory.budget_bytes,
                                 .timeout_seconds = asked->timeout_seconds,
                                 .one_way = asked->cycles == 0,
                                 .keep = asked->keep ? TREADLE_KEEP_HOST : TREADLE_KEEP_INFER,
                                 .alias = arguments->memory.alias == 0 && asked->update == 0,
                                 .host = asked->offload != NULL,
                                 .kv_block_bytes = KV_BLOCK}};
  job.options.net_devices = asked->net_devices;
  job.options.delta = asked->delta;
  job.options.double_infer = asked->doubles;
  treadle_interrupt_start(&job.interrupt);
  const treadle_launch_options launch = {.meet = asked->meet,
                                         .job = asked->job,
                                         .nodes = asked->nodes,
                                         .rank = arguments->ranks.rank,
                                         .ranks = arguments->ranks.count,
                                         .seconds = asked->timeout_seconds};
  TRY(treadle_session_start_by(&job.session, "switch", &launch, asked->timeout_seconds));
  TRY(treadle_session_agree(&job.session, treadle_group_choose_net(job.session.group, net_of(asked))));
  TRY(run_all(&job));
out:
  if (status && !job.session.said) treadle_session_abandon(&job.session, status);
  treadle_job_release(&job);
  int exit_status = treadle_finish_output("switch", treadle_exit_status(status));
  treadle_session_end(&job.session);
  treadle_interrupt_stop(&job.interrupt);
  return exit_status;
}

/* The options were refused before MPI was started: the ranks meet so that only one says it. */
int treadle_command_switch_refuse(treadle_status status) {
  char message[1024];
  treadle_session session;
  snprintf(message, sizeof message, "%s", treadle_error_message());
  if (!treadle_session_start_by(&session, "switch", &(treadle_launch_options){.rank = -1}, 0) &&
      session.rank == 0)
    fprintf(stderr, "treadle switch: %s\n", message);
  treadle_session_end(&session);
  return treadle_exit_status(status);
}
