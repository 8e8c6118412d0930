/* The learning rate of each step, as Megatron's OptimizerParamScheduler (megatron/core/optimizer_param_scheduler.py) has it, counted in steps:
 * linear from 0 to lr while it warms up, and then by its style down to min_lr at the last step. */
#ifndef TREADLE_RUN_SCHEDULE_H
#define TREADLE_RUN_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum treadle_lr_style {
  TREADLE_LR_CONSTANT,
  TREADLE_LR_LINEAR,
  TREADLE_LR_COSINE
} treadle_lr_style;

typedef struct treadle_lr_schedule {
  treadle_lr_style style;
  double lr, min_lr;
  double warmup_fraction; /* of all steps, in [0, 1) */
  int64_t steps;          /* train_iters */
} treadle_lr_schedule;

/* The rate of a step before which `done` were taken: 0 for the first, whose rate is 0 where there is a warm-up. Skipped steps do not count, as
 * in Megatron. From `steps` on it is min_lr, but lr where the style is constant. */
double treadle_schedule_lr(const treadle_lr_schedule *schedule, int64_t done);

/* "constant", "linear", "cosine"; false: it is none of them. */
bool treadle_lr_style_parse(const char *text, treadle_lr_style *style_p);

#endif
