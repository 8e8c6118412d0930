#include "run/schedule.h"

#include <math.h>
#include <string.h>

static const double PI = 3.14159265358979323846;

double treadle_schedule_lr(const treadle_lr_schedule *schedule, int64_t done) {
  const double step = (double)done, steps = (double)schedule->steps;
  const double warmup =
      schedule->warmup_fraction * steps; /* not a whole number: Megatron does not round it */
  if (warmup > 0 && step <= warmup) return schedule->lr * step / warmup;
  if (schedule->style == TREADLE_LR_CONSTANT) return schedule->lr;
  if (step > steps) return schedule->min_lr;
  double ratio = (step - warmup) / (steps - warmup);
  double part = schedule->style == TREADLE_LR_LINEAR ? 1 - ratio : 0.5 * (cos(PI * ratio) + 1);
  return schedule->min_lr + part * (schedule->lr - schedule->min_lr);
}

bool treadle_lr_style_parse(const char *text, treadle_lr_style *style_p) {
  static const char *const names[] = {
      [TREADLE_LR_CONSTANT] = "constant", [TREADLE_LR_LINEAR] = "linear", [TREADLE_LR_COSINE] = "cosine"};
  for (int i = 0; i < (int)(sizeof names / sizeof *names); i++) {
    if (strcmp(names[i], text) != 0) continue;
    *style_p = (treadle_lr_style)i;
    return true;
  }
  return false;
}
