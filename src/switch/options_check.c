/* The arguments of treadle_switch_create: NULL, enums, the time limit. Sizes, what the ranks must agree on and what fits
 * the layouts are agree.c's. */
#include "base/argument.h"
#include "switch/switch.h"

enum { CHOICES = TREADLE_ON + 1, KEEPS = TREADLE_KEEP_HOST + 1 };

static treadle_status check_options(const treadle_switch_options *options) {
  static const char *const function = "treadle_switch_create";
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
  treadle_device device;
  TRY(treadle_device_open(&options->memory, &device));
  if (options->timeout_seconds != 0) /* 0: the default */
    TRY(treadle_check_seconds(function, "timeout_seconds", options->timeout_seconds));
out:
  return status;
}

treadle_status treadle_switch_check_arguments(const treadle_layout *train, const treadle_layout *infer,
                                              const treadle_switch_options *options,
                                              treadle_switch **switch_p) {
  if (!train) return treadle_refuse_null("treadle_switch_create", "train");
  if (!infer) return treadle_refuse_null("treadle_switch_create", "infer");
  if (!switch_p) return treadle_refuse_null("treadle_switch_create", "switch_p");
  return options ? check_options(options) : TREADLE_OK;
}
