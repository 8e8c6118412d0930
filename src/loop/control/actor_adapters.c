/* Adapters on their way into the infer weights. The switch moves the base as it lies. Before the arrow each rank gathers the adapters; once the base is
 * there, and before the engine binds it, the rank adds them to its own pieces, in place. So the weights that generate are those that the trainer
 * multiplies by, to the bit.
 *
 * The window then has other bits than the plan has moved there: it is never a source, and nothing of it is shared with the train window. */
#include "control/actor.h"

#include "layout/layout.h"
#include "model/model.h"

treadle_status treadle_actor_check_adapters(const treadle_layout *train, const treadle_layout *infer,
                                            const treadle_actor_options *o,
                                            const treadle_trainer_options *trainer) {
  const treadle_tensor *tensors = train->model->tensors;
  if (!trainer->lora_rank) return TREADLE_OK;
  if (train->owners.runs || infer->owners.runs)
    REFUSE("layouts '%s' and '%s': with lora_rank trainer and generator share their ranks", train->text,
           infer->text);
  if (o->keep == TREADLE_KEEP_INFER && o->offload_train_param != TREADLE_OFF)
    REFUSE(
        "keep=infer would train on merged weights: with lora_rank keep=host, or params stay on the device");
  if (infer->fp8)
    REFUSE("layout '%s' holds fp8, and adapters are added to bf16 or fp32 weights", infer->text);
  for (int32_t t = 0; t < train->model->tensor_count; t++)
    if (treadle_layout_dtype(train, &tensors[t]) != treadle_layout_dtype(infer, &tensors[t]))
      REFUSE("%s has one type in layout '%s' and another in '%s': with lora_rank both are the same",
             tensors[t].name, train->text, infer->text);
  return TREADLE_OK;
}

/* Once for each version: a bind that failed is tried again. */
static treadle_status bind(void *context, void *window, size_t bytes) {
  treadle_actor *a = context;
  const treadle_actor_side *side = &a->sides[TREADLE_ACTOR_GENERATES];
  const uint64_t version = treadle_switch_version(a->sw);
  treadle_status status = TREADLE_OK;
  if (a->merged != version) TRY(a->train.merge(a->train.engine, side->layout, side->rank, window));
  a->merged = version;
  TRY(a->hooks.bind(a->hooks.context, window, bytes));
out:
  return status;
}

static treadle_status unbind(void *context) {
  const treadle_actor *a = context;
  return a->hooks.unbind(a->hooks.context);
}

static void attach(void *context, const treadle_switch *sw) {
  const treadle_actor *a = context;
  a->hooks.attach(a->hooks.context, sw);
}

treadle_engine_hooks treadle_actor_hooks(treadle_actor *a) {
  treadle_engine_hooks hooks = a->hooks;
  if (!a->adapts) return hooks;
  hooks.context = a;
  hooks.bind = bind;
  if (hooks.unbind) hooks.unbind = unbind;
  if (hooks.attach) hooks.attach = attach;
  hooks.transforms = true;
  return hooks;
}

treadle_status treadle_actor_gather(treadle_actor *a) {
  if (!a->adapts || !a->has_weights) return TREADLE_OK;
  return a->train.gather(a->train.engine);
}
