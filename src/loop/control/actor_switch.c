#include "control/actor_switch.h"

#include "base/alloc.h"

#include <string.h>

/* Somewhere: a plan only looks whether windows are given. */
static char somewhere[64];

treadle_status treadle_actor_train_memory(const treadle_layout *layout,
                                          const treadle_trainer_options *options,
                                          treadle_trainer_memory *by_rank) {
  treadle_trainer_options o = *options;
  treadle_trainer_memory *own = treadle_alloc_array((size_t)layout->ranks, sizeof *own);
  treadle_status status;
  if (!own)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for the forecast of %lld ranks",
                        (long long)layout->ranks);
  o.params_window = o.grads_window = o.optimizer_window = o.work_window = NULL;
  TRY(treadle_trainer_foresee(layout, &o, own));
  o.params_window = o.work_window = somewhere;
  o.grads_window = o.forward_only ? NULL : somewhere;
  o.optimizer_window = o.optimizer ? somewhere : NULL;
  TRY(treadle_trainer_foresee(layout, &o, by_rank));
  for (int64_t rank = 0; rank < layout->ranks; rank++) {
    by_rank[rank].params = treadle_layout_window_bytes(layout, rank);
    by_rank[rank].grads = own[rank].grads;
    by_rank[rank].optimizer = own[rank].optimizer;
  }
out:
  treadle_free(own);
  return status;
}

treadle_status treadle_actor_switch_options(const treadle_actor_options *options,
                                            const treadle_trainer_memory *memory, size_t outside,
                                            treadle_switch_options *to) {
  *to = (treadle_switch_options){
      .struct_size = sizeof *to,
      .page_bytes = options->page_bytes,
      .cap_bytes = options->cap_bytes,
      .timeout_seconds = options->timeout_seconds,
      .grads_bytes = memory->grads,
      .optimizer_bytes = memory->optimizer,
      .train_work_bytes = memory->work,
      .forward_work_bytes = memory->forward,
      .reference_bytes = options->reference ? memory->params : 0,
      .offload_train_param = options->offload_train_param ? options->offload_train_param : TREADLE_ON,
      .offload_train_grad = options->offload_train_grad ? options->offload_train_grad : TREADLE_ON,
      .offload_train_optimizer =
          options->offload_train_optimizer ? options->offload_train_optimizer : TREADLE_ON,
      .keep =
          options->offload_train_param == TREADLE_OFF ? TREADLE_KEEP_INFER : options->keep, /* they stay */
      .kv_bytes = options->kv_bytes};
  size_t elsewhere = outside + memory->board;
  if (!options->budget_bytes) return TREADLE_OK;
  if (options->budget_bytes <= elsewhere)
    REFUSE("the budget of %zu bytes is too small: what ranks exchange takes %zu alone",
           options->budget_bytes, elsewhere);
  to->budget_bytes = options->budget_bytes - elsewhere;
  return TREADLE_OK;
}

treadle_status treadle_actor_check_reference(const treadle_layout *train, const treadle_layout *reference) {
  if (!reference) return TREADLE_OK;
  for (int64_t rank = 0; rank < train->ranks; rank++) {
    size_t mine = treadle_layout_window_bytes(train, rank),
           its = treadle_layout_window_bytes(reference, rank);
    if (mine != its)
      REFUSE("the reference of %s has %zu bytes on rank %lld, the policy of %s %zu: they must be models of "
             "one "
             "shape",
             reference->model->path, its, (long long)rank, train->model->path, mine);
  }
  return TREADLE_OK;
}
