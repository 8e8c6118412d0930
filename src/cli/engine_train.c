#include "cli/engine_train.h"

static const size_t kv_default = (size_t)256 << 20;

/* A run that this machine has no memory for is refused input. */
static treadle_status create(treadle_engine_job *job, const treadle_arguments *a) {
  treadle_engine_hooks hooks = TREADLE_INIT(treadle_engine_hooks);
  treadle_switch_options options = {.struct_size = sizeof options,
                                    .one_way = true, /* nobody trains: the types may differ */
                                    .alias = true,
                                    .engine = &hooks,
                                    .kv_bytes = a->engine.kv_bytes ? a->engine.kv_bytes : kv_default};
  treadle_status status;
  TRY(treadle_generator_hooks_of(job->engine, &hooks));
  status = treadle_switch_create(job->session.group, job->train, job->layout, &options, &job->sw);
  if (status == TREADLE_NO_MEMORY)
    status =
        treadle_fail(TREADLE_REFUSED, "%s; with less --kv-memory it takes less", treadle_error_message());
out:
  return status;
}

treadle_status treadle_engine_train_open(treadle_engine_job *job, const treadle_arguments *a) {
  treadle_session *session = &job->session;
  treadle_status status;
  TRY(treadle_session_agree(
      session, treadle_layout_create(job->model, a->layouts.train, session->size, NULL, &job->train)));
  TRY(treadle_session_agree(session, create(job, a)));
  if (session->rank == 0) treadle_progress("loading the weights");
  TRY(treadle_session_agree(
      session, treadle_layout_load(job->train, session->rank, treadle_switch_train_window(job->sw))));
  TRY(treadle_switch_to_infer(job->sw));
out:
  return status;
}

void treadle_engine_train_close(treadle_engine_job *job) {
  treadle_switch_destroy(job->sw);
  treadle_layout_destroy(job->train);
}
