/* The arguments of treadle_switch_create: NULL, enums, the time limit. agree.c checks sizes, what the ranks must agree on, and
 * what must fit the layouts. */
#include "base/sized.h"
#include "switch/switch.h"

static const char *const function = "treadle_switch_create";

enum { CHOICES = TREADLE_ON + 1, KEEPS = TREADLE_KEEP_HOST + 1 };

static treadle_status check_options(const treadle_switch_options *options) {
  treadle_status status = TREADLE_OK;
  const struct {
    const char *name;
    long long value;
    int count;
  } enums[] = {{"offload_train_param", options->offload_train_param, CHOICES},
               {"offload_train_grad", options->offload_train_grad, CHOICES},
               {"offload_train_optimizer", options->offload_train_optimizer, CHOICES},
               {"keep", options->keep, KEEPS}};
  for (size_t i = 0; i < sizeof enums / sizeof *enums; i++)
    TRY(treadle_check_enum(function, enums[i].name, enums[i].value, enums[i].count));
  if (options->timeout_seconds != 0) /* 0: the default */
    TRY(treadle_check_seconds(function, "timeout_seconds", options->timeout_seconds));
out:
  return status;
}

treadle_status treadle_switch_check_arguments(const treadle_layout *train, const treadle_layout *infer,
                                              const treadle_switch_options *options,
                                              treadle_switch **switch_p, treadle_switch_options *o,
                                              treadle_engine_hooks *engine) {
  treadle_status status = TREADLE_OK;
  *o = TREADLE_INIT(treadle_switch_options);
  *engine = TREADLE_INIT(treadle_engine_hooks);
  if (!train) return treadle_refuse_null(function, "train");
  if (!infer) return treadle_refuse_null(function, "infer");
  if (!switch_p) return treadle_refuse_null(function, "switch_p");
  TRY(treadle_sized_take(function, "options", options, o, sizeof *o));
  TRY(treadle_sized_take(function, "options.engine", o->engine, engine, sizeof *engine));
  TRY(check_options(o));
out:
  if (status) *o = TREADLE_INIT(treadle_switch_options);
  return status;
}
