/* The steps of `treadle switch`. Ranks agree after each local step (treadle_session_agree), so that all take the same way
 * out. */
#include "cli/compare.h"
#include "cli/device_choice.h"
#include "cli/handle_file.h"
#include "cli/hold.h"
#include "cli/switch_job.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/real.h"
#include "base/text.h"

#include <string.h>

/* ---- Before the first switch ----------------------------------------------------------------- */

/* What this rank takes beside the switch: copies that windows are compared with. */
static size_t copies_of(const treadle_job *job) {
  size_t train = treadle_layout_window_bytes(job->train, job->session.rank),
         infer = treadle_layout_window_bytes(job->infer, job->session.rank);
  bool checks = job->asked->check != TREADLE_CHECK_NONE;
  return infer + (checks ? train : 0) + (checks && job->asked->doubles ? infer : 0);
}

int treadle_job_nodes(const treadle_job *job) {
  int nodes = 0;
  for (int rank = 0; rank < job->session.size; rank++) {
    int node = treadle_group_node(job->session.group, rank);
    if (node >= nodes) nodes = node + 1;
  }
  return nodes;
}

/* Both layouts; rank map `best` looks at the group's nodes. */
static treadle_status open_layouts(treadle_job *job) {
  treadle_status status = TREADLE_OK;
  const treadle_arguments *arguments = job->arguments;
  int32_t *node_of = treadle_alloc_array((size_t)job->session.size, sizeof *node_of);
  if (!node_of)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for the nodes of %d ranks", job->session.size);
  for (int rank = 0; rank < job->session.size; rank++)
    node_of[rank] = treadle_group_node(job->session.group, rank);
  const treadle_pair_texts texts = {arguments->layouts.train, arguments->layouts.infer,
                                    (treadle_rank_map)arguments->ranks.map, node_of};
  TRY(treadle_open_layouts(job->model, &texts, job->session.size, &job->train, &job->infer));
  job->rank_map = treadle_pair_rank_map(job->train, job->infer);
out:
  treadle_free(node_of);
  return status;
}

/* What goes with --update. */
static treadle_status read_updates(treadle_job *job) {
  const treadle_switch_arguments *asked = job->asked;
  if ((asked->delta || asked->changed || asked->doubles) && !asked->update)
    return treadle_fail(TREADLE_REFUSED, "%s is for updates: give --update N, too",
                        asked->doubles ? "--double on"
                        : asked->delta ? "--delta on"
                                       : "--changed");
  if (asked->doubles && asked->handle_file)
    return treadle_fail(
        TREADLE_REFUSED,
        "--double on gives each version pages of its own, and --handle-file shows one version alone: "
        "leave out one of them");
  if (asked->changed &&
      (!treadle_text_to_real(asked->changed, &job->changed) || job->changed < 0 || job->changed > 1))
    return treadle_fail(TREADLE_REFUSED, "--changed is '%s', and must be a number from 0 to 1",
                        asked->changed);
  return TREADLE_OK;
}

static treadle_status read_input(treadle_job *job) {
  treadle_status status = TREADLE_OK;
  const treadle_arguments *arguments = job->arguments;
  const treadle_switch_arguments *asked = job->asked;
  TRY(read_updates(job));
  TRY(treadle_device_choose(arguments->memory.device, job->session.group, &job->options.memory));
  if (asked->own && job->options.memory.kind != TREADLE_MEMORY_HOST)
    TRY(treadle_fail(TREADLE_REFUSED,
                     "--own: the command's own memory is host memory, and with --device %s the weights "
                     "are on the device: leave out --own, or give --device cpu",
                     arguments->memory.device));
  if (asked->offload) TRY(treadle_hold_parse(asked->offload, &job->options));
  if (asked->update && asked->offload && job->options.offload_train_param != TREADLE_OFF)
    TRY(treadle_fail(TREADLE_REFUSED,
                     "--update needs params that stay on the device: leave params out of --offload"));
  if (asked->update) job->options.offload_train_param = TREADLE_OFF;
  if (asked->fault)
    TRY(treadle_fault_read(asked->fault, job->session.size, treadle_job_nodes(job), &job->fault));
  if (asked->fault && asked->timeline)
    TRY(treadle_fail(TREADLE_REFUSED,
                     "--fault ends the run in the first switch, so --timeline has no cycle to draw: "
                     "leave out one of them"));
  if (asked->forward && asked->cycles == 0)
    TRY(treadle_fail(TREADLE_REFUSED,
                     "--forward is for the way back, and --cycles 0 has none: leave out one of them"));
  if (asked->fault && asked->handle_file)
    TRY(treadle_fail(TREADLE_REFUSED,
                     "--fault ends the run in the first switch, so --handle-file has no weights to "
                     "show: leave out one of them"));
  if (asked->timeline) TRY(treadle_timeline_check(asked->timeline));
  if (asked->handle_file) TRY(treadle_handle_file_check(asked->handle_file, job->session.rank));
  TRY(treadle_open_model(&arguments->model, arguments->model.path, job->session.rank == 0, &job->model));
  TRY(treadle_need_weights(job->model, arguments->model.path, job->session.rank == 0));
  TRY(open_layouts(job));
  if (asked->offload) treadle_hold_size(job->train, job->session.rank, &job->options);
  job->options.other_bytes = copies_of(job);
  for (int mode = 0; mode < 2; mode++)
    if (asked->own >> mode & 1)
      TRY(treadle_own_memory_add(&job->own, (treadle_mode)mode, mode ? job->infer : job->train,
                                 job->session.rank));
  treadle_own_memory_give(&job->own, &job->options);

  size_t cycles = asked->cycles ? (size_t)asked->cycles : 1;
  double **times[] = {&job->to_infer, &job->to_train,    &job->memcpy,
                      &job->rate,     &job->own_seconds, &job->own_memcpy};
  for (size_t i = 0; i < sizeof times / sizeof times[0]; i++)
    if (!(*times[i] = treadle_alloc_array(cycles, sizeof **times[i])))
      TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu cycles", cycles));
  job->to_next = treadle_alloc_array((size_t)asked->update + 1, sizeof *job->to_next);
  job->unbound = treadle_alloc_array((size_t)asked->update + 1, sizeof *job->unbound);
  if (!job->to_next || !job->unbound)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for %lld updates", (long long)asked->update));
out:
  return treadle_as_refusal(status);
}

/* Loads the train window, and makes the copies that later windows are compared with. */
static treadle_status load(treadle_job *job) {
  treadle_status status = TREADLE_OK;
  int rank = job->session.rank;
  size_t train_bytes = treadle_layout_window_bytes(job->train, rank), infer_bytes;
  (void)treadle_switch_window(job->sw, TREADLE_INFER_PARAMS, &infer_bytes);
  TRY(treadle_load_params(job->sw, job->train, rank));
  TRY(treadle_hold_fill(job->sw, rank));

  job->infer_copy = treadle_alloc(infer_bytes + 1); /* a rank may hold nothing */
  if (job->asked->check) job->train_copy = treadle_alloc(train_bytes + 1);
  if (job->asked->check && job->asked->doubles) job->served_copy = treadle_alloc(infer_bytes + 1);
  if (!job->infer_copy || (job->asked->check && !job->train_copy) ||
      (job->asked->check && job->asked->doubles && !job->served_copy))
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for copies of the windows, %s and %s",
                     treadle_text_of_size(train_bytes), treadle_text_of_size(infer_bytes)));
  if (job->asked->check) {
    TRY(treadle_switch_read(job->sw, TREADLE_PARAMS, 0, train_bytes, job->train_copy));
    /* A direct cut of the file, as the infer window is arranged. */
    TRY(treadle_plan_expect(treadle_switch_plan(job->sw), job->infer_copy));
  }
out:
  return status;
}

/* ---- A stand-in for an inference engine ---- */

static treadle_status bind_engine(void *context, void *window, size_t bytes) {
  treadle_job *job = context;
  if (job->bound_engines != 0 || (bytes > 0 && !window))
    return treadle_fail(TREADLE_STATE, "the engine is bound twice, or to nothing");
  job->bound_engines = 1;
  return TREADLE_OK;
}

static treadle_status unbind_engine(void *context) {
  treadle_job *job = context;
  if (job->bound_engines != 1) return treadle_fail(TREADLE_STATE, "the engine is not bound");
  atomic_store(&job->serving, false);
  job->bound_engines = 0;
  return TREADLE_OK;
}

/* A run that this machine has no memory for is refused input: with less to hold it may be done. */
static treadle_status create(treadle_job *job) {
  treadle_status status =
      treadle_switch_create(job->session.group, job->train, job->infer, &job->options, &job->sw);
  if (status != TREADLE_NO_MEMORY) return status;
  return treadle_fail(TREADLE_REFUSED, "%s; a smaller model (--scale-down N) needs less%s%s",
                      treadle_error_message(), job->options.host ? ", or a run without --offload" : "",
                      job->asked->check ? ", or one without --check" : "");
}

treadle_status treadle_job_prepare(treadle_job *job) {
  treadle_status status = TREADLE_OK;
  treadle_session *session = &job->session;
  const treadle_engine_hooks engine = {
      .struct_size = sizeof engine, .context = job, .bind = bind_engine, .unbind = unbind_engine};
  job->options.engine = &engine;
  if (job->asked->timeline) {
    TRY(treadle_session_agree(session, treadle_timeline_create(&job->timeline)));
    treadle_timeline_name(job->timeline, "train");
    job->options.watch = treadle_timeline_watch;
    job->options.watch_context = job->timeline;
  }
  TRY(treadle_session_agree(session, read_input(job)));
  TRY(treadle_session_agree(session, create(job)));
  job->plan = TREADLE_INIT(treadle_plan_info);
  treadle_plan_get_info(treadle_switch_plan(job->sw), &job->plan);
  if (session->rank == 0) treadle_progress("loading the weights");
  TRY(treadle_session_agree(session, load(job)));
  job->options.other_bytes = 0; /* taken: further switches (--check=prove) have no more of it */
  TRY(treadle_switch_digest(job->sw, &job->digest));
out:
  job->options.engine = NULL; /* the switch has its copy */
  return status;
}

void treadle_job_release(treadle_job *job) {
  treadle_switch_destroy(job->sw);
  treadle_own_memory_release(&job->own);
  treadle_layout_destroy(job->train);
  treadle_layout_destroy(job->infer);
  treadle_model_close(job->model);
  treadle_timeline_destroy(job->timeline);
  void *memory[] = {job->infer_copy, job->train_copy, job->to_infer,    job->to_train,
                    job->memcpy,     job->rate,       job->own_seconds, job->own_memcpy,
                    job->to_next,    job->unbound,    job->served_copy};
  for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++) treadle_free(memory[i]);
}

/* ---- Timing ---------------------------------------------------------------------------------- */

treadle_status treadle_job_largest(const treadle_job *job, double mine, double *largest_p) {
  treadle_status status = TREADLE_OK;
  double *all = treadle_alloc_array((size_t)job->session.size, sizeof *all);
  if (!all) return treadle_fail(TREADLE_NO_MEMORY, "no memory for the times of all ranks");
  TRY(treadle_group_gather(job->session.group, &mine, sizeof mine, all));
  *largest_p = all[0];
  for (int rank = 1; rank < job->session.size; rank++)
    if (all[rank] > *largest_p) *largest_p = all[rank];
out:
  treadle_free(all);
  return status;
}

/* A KV cache and training state that was to leave are never on the device together. */
static treadle_status check_kv(const treadle_job *job) {
  const treadle_choice flags[] = {job->options.offload_train_param, job->options.offload_train_grad,
                                  job->options.offload_train_optimizer};
  static const char *const names[] = {"params", "gradients", "optimizer state"};
  size_t kv = treadle_switch_resident(job->sw, TREADLE_KV);
  for (int c = 0; c < 3 && kv > 0; c++) {
    bool leaves = flags[c] == TREADLE_ON || (c == TREADLE_PARAMS && flags[c] == TREADLE_DEFAULT);
    size_t bytes = treadle_switch_resident(job->sw, (treadle_class)c);
    if (leaves && bytes > 0)
      return treadle_fail(TREADLE_DIFFERENT,
                          "rank %d: %zu bytes of %s are on the device beside a KV cache of %zu",
                          job->session.rank, bytes, names[c], kv);
  }
  return TREADLE_OK;
}

static treadle_status note_residency(treadle_job *job) {
  treadle_status status = TREADLE_OK;
  treadle_residency *row = &job->rows[job->row_count];
  if (job->row_count == TREADLE_RESIDENCY_ROWS) return TREADLE_OK;
  row->after = treadle_switch_mode(job->sw);
  for (int c = 0; c < TREADLE_CLASSES; c++) {
    double largest;
    TRY(treadle_job_largest(job, (double)treadle_switch_resident(job->sw, (treadle_class)c), &largest));
    row->bytes[c] = (size_t)largest;
  }
  job->row_count++;
out:
  return status;
}

static treadle_status take(treadle_job *job, treadle_mode mode) {
  treadle_status status = TREADLE_OK;
  if (treadle_interrupt_asked(&job->interrupt)) { /* between arrows: others may be in this one already */
    TRY(treadle_switch_start(job->sw, mode));
    (void)treadle_switch_cancel(job->sw);
    return treadle_switch_wait(job->sw);
  }
  status = mode == TREADLE_INFER     ? treadle_switch_to_infer(job->sw)
           : mode == TREADLE_TRAIN   ? treadle_switch_to_train(job->sw)
           : mode == TREADLE_FORWARD ? treadle_switch_to_forward(job->sw)
                                     : treadle_switch_to_host(job->sw);
out:
  return status;
}

treadle_status treadle_job_arrow(treadle_job *job, treadle_mode mode, int64_t cycle, double *seconds_p) {
  treadle_status status = TREADLE_OK;
  static const char *const ways[] = {"to train", "to infer", "", "to forward", "to host"};
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
  TRY(treadle_group_barrier(job->session.group));
  if (job->timeline) treadle_timeline_name(job->timeline, ways[mode]);
  double begin = treadle_clock_seconds();
  TRY(take(job, mode));
  if (job->timeline) treadle_timeline_name(job->timeline, treadle_mode_text(mode));
  TRY(treadle_group_barrier(job->session.group));
  TRY(treadle_job_largest(job, treadle_clock_seconds() - begin, seconds_p));
  treadle_switch_get_stats(job->sw, &stats);
  job->parts.offload += stats.offload_seconds;
  job->parts.waves += stats.wave_seconds;
  job->parts.wait += stats.wait_seconds;
  job->parts.bind += stats.bind_seconds;
  job->parts.load += stats.load_seconds;
  TRY(treadle_session_agree(&job->session, check_kv(job)));
  if (cycle == 0) TRY(note_residency(job));
out:
  return status;
}

/* On a device a flat copy in its memory, by whatever is fastest. */
static treadle_status copy_flat(const treadle_job *job, double *seconds_p) {
  return treadle_switch_flat_copy(job->sw, job->plan.copied_bytes, seconds_p);
}

/* A memcpy for each run of pages of the infer window that are not shared with the train window: those may not be
 * written, and are not copied by a switch. */
static treadle_status copy_again(const treadle_job *job) {
  const treadle_plan *plan = treadle_switch_plan(job->sw);
  treadle_status status = TREADLE_OK;
  size_t bytes, page = job->plan.page_bytes;
  (void)treadle_switch_window(job->sw, TREADLE_INFER_PARAMS, &bytes);
  size_t pages = (bytes + page - 1) / page;
  for (size_t i = 0, end; i < pages; i = end + 1) {
    for (end = i; end < pages && !treadle_plan_shares(plan, (int64_t)end); end++) {
    }
    size_t first = i * page, last = end * page < bytes ? end * page : bytes;
    if (last > first)
      TRY(treadle_switch_write(job->sw, TREADLE_INFER_PARAMS, first, last - first,
                               (const char *)job->infer_copy + first));
  }
out:
  return status;
}

treadle_status treadle_job_memcpy(treadle_job *job, double *seconds_p, double *own_p) {
  treadle_status status = TREADLE_OK;
  TRY(treadle_group_barrier(job->session.group));
  double begin = treadle_clock_seconds();
  const bool device = job->options.memory.kind != TREADLE_MEMORY_HOST;
  treadle_status mine = device ? copy_flat(job, own_p) : copy_again(job);
  TRY(treadle_group_barrier(job->session.group)); /* waits for others, as a switch does */
  if (!device) *own_p = treadle_clock_seconds() - begin;
  TRY(treadle_session_agree(&job->session, mine));
  TRY(treadle_job_largest(job, *own_p, seconds_p));
out:
  return status;
}

treadle_status treadle_job_snapshot(treadle_job *job) {
  size_t bytes;
  (void)treadle_switch_window(job->sw, TREADLE_INFER_PARAMS, &bytes);
  return treadle_switch_read(job->sw, TREADLE_INFER_PARAMS, 0, bytes, job->infer_copy);
}

/* ---- Checking -------------------------------------------------------------------------------- */

treadle_status treadle_job_check(treadle_job *job, int64_t cycle, bool with_digest) {
  treadle_status status = TREADLE_OK, mine = TREADLE_OK;
  treadle_mode mode = treadle_switch_mode(job->sw);
  bool infer = mode == TREADLE_INFER, holds_all = mode == TREADLE_TRAIN;
  char when[64];
  uint64_t digest = job->digest;
  const treadle_window_source window = {.sw = job->sw,
                                        .which = infer ? TREADLE_INFER_PARAMS : TREADLE_PARAMS};
  snprintf(when, sizeof when, "cycle %lld, after switching to %s", (long long)cycle + 1,
           treadle_mode_text(mode));
  if (job->asked->check)
    mine = treadle_compare_window(infer ? job->infer : job->train, job->model, job->session.rank,
                                  infer ? treadle_switch_plan(job->sw) : NULL, &window,
                                  infer ? job->infer_copy : job->train_copy, when);
  if (job->asked->check && !mine && holds_all)
    mine = treadle_hold_check(job->sw, &job->options, job->session.rank, when);
  TRY(treadle_session_agree(&job->session, mine));
  if (job->plan.lossless && (job->asked->check || with_digest)) /* rounding changes values */
    TRY(treadle_switch_digest(job->sw, &digest));
  if (digest != job->digest)
    mine = treadle_fail(TREADLE_DIFFERENT, "%s, the digest of the weights is %016llx instead of %016llx",
                        when, (unsigned long long)digest, (unsigned long long)job->digest);
  TRY(treadle_session_agree(&job->session, mine));
out:
  return status;
}

void treadle_job_figures(const treadle_job *job, treadle_rank_figures *own) {
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
  treadle_switch_get_stats(job->sw, &stats);
  own->moved_bytes = job->plan.moved_bytes; /* coverage has proved that this was carried out */
  own->lower_bound_bytes = job->plan.lower_bound_bytes;
  own->infer_bytes = job->plan.infer_bytes;
  own->copied_bytes = job->plan.copied_bytes;
  own->aliased_bytes = job->plan.aliased_bytes;
  own->peak_bytes = stats.peak_bytes;
  own->held_bytes = stats.pool_bytes;
  const treadle_switch_stats *last = job->timed ? &job->to_infer_stats : &stats;
  own->staged_bytes = last->staged_bytes;
  own->node = treadle_group_node(job->session.group, job->session.rank);
  own->device = job->options.memory.device;
  own->node_moved_bytes = last->node_moved_bytes;
  own->node_sent_bytes = last->node_sent_bytes;
  own->relayed_bytes = last->relayed_bytes;
  own->net_staging_bytes = last->net_staging_bytes;
  own->net_seconds = last->net_seconds;
  own->net_pack_seconds = last->net_pack_seconds;
  own->net_wire_seconds = last->net_wire_seconds;
  own->net_unpack_seconds = last->net_unpack_seconds;
  own->net_window_bytes = last->net_window_bytes;
  own->dense_bytes = job->updated ? job->update_stats.dense_bytes : last->dense_bytes;
  own->delta_bytes = job->updated ? job->update_stats.delta_bytes : last->delta_bytes;
  own->own_bytes = stats.own_bytes;
  own->copy_seconds = last->copy_seconds;
  own->kernel_launches = last->kernel_launches;
  own->waves_in_flight = last->waves_in_flight;
  own->table_bytes = last->table_bytes;
  own->slab_bytes = last->slab_bytes;
  own->served_bytes = job->served_bytes;
  own->bound_bytes = treadle_switch_bound(job->sw);
  own->pool_bound_bytes = treadle_switch_pool_bound(job->sw);
}
