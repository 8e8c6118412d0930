#include "control/actor_switch.h"

#include "base/alloc.h"
#include "control/actor.h"

#include <string.h>

/* Somewhere: a plan only looks whether windows are given. */
static char somewhere[64];

static treadle_status no_memory(const treadle_layout *layout) {
  return treadle_fail(TREADLE_NO_MEMORY, "no memory for the forecast of %lld ranks",
                      (long long)layout->ranks);
}

/* Of a layout that all ranks have. */
static treadle_status measure_train(const treadle_layout *layout, const treadle_trainer_options *options,
                                    treadle_trainer_memory *by_rank) {
  treadle_trainer_options o = *options;
  treadle_trainer_memory *own = treadle_alloc_array((size_t)layout->ranks, sizeof *own);
  treadle_status status;
  if (!own) return no_memory(layout);
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

/* Alone on its ranks a trainer works in mode INFER, too, where a switch has no work memory for it: that lies in no window. */
treadle_status treadle_actor_train_memory(const treadle_layout *layout,
                                          const treadle_trainer_options *options,
                                          treadle_trainer_memory *by_rank) {
  treadle_trainer_memory *own = NULL;
  treadle_layout *alone = NULL;
  treadle_status status;
  if (!layout->owners.runs) return measure_train(layout, options, by_rank);
  TRY(treadle_actor_layout_alone(layout, &alone));
  own = treadle_alloc_array((size_t)alone->ranks, sizeof *own);
  if (!own) TRY(no_memory(alone));
  TRY(measure_train(alone, options, own));
  for (int64_t rank = 0; rank < alone->ranks; rank++) {
    own[rank].board += own[rank].work;
    own[rank].work = own[rank].forward = 0;
  }
  treadle_actor_spread(layout, own, sizeof *own, by_rank);
out:
  treadle_free(own);
  treadle_layout_destroy(alone);
  return status;
}

treadle_status treadle_actor_infer_memory(const treadle_layout *layout,
                                          const treadle_generator_options *options,
                                          treadle_generator_memory *by_rank) {
  treadle_generator_memory *own = NULL;
  treadle_layout *alone = NULL;
  treadle_status status;
  if (!layout->owners.runs) return treadle_generator_foresee(layout, options, by_rank);
  TRY(treadle_actor_layout_alone(layout, &alone));
  own = treadle_alloc_array((size_t)alone->ranks, sizeof *own);
  if (!own) TRY(no_memory(alone));
  TRY(treadle_generator_foresee(alone, options, own));
  treadle_actor_spread(layout, own, sizeof *own, by_rank);
out:
  treadle_free(own);
  treadle_layout_destroy(alone);
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
  if (!options->budget_bytes) return TREADLE_OK;
  if (options->budget_bytes <= outside)
    REFUSE("the budget of %zu bytes is too small: what lies in no window (what ranks exchange, and the "
           "work memory of a trainer on "
           "ranks of its own) takes %zu alone",
           options->budget_bytes, outside);
  to->budget_bytes = options->budget_bytes;
  to->outside_bytes = outside;
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
