#include "train/adam.h"

#include <math.h>

enum {
  PART = 1 << 14
}; /* elements; parts begin at multiples, so that no two members write one line of a cache */

treadle_adam_factors treadle_adam_factors_of(const treadle_adam *adam, const treadle_adam_step *step) {
  return (treadle_adam_factors){
      .scale = (float)step->scale,
      .decay = (float)(1 - step->lr * step->weight_decay),
      .mix = (float)(1 - adam->beta1),
      .keep_sq = (float)adam->beta2,
      .mix_sq = (float)(1 - adam->beta2),
      .root = (float)sqrt(1 - pow(adam->beta2, (double)step->step)),
      .eps = (float)adam->eps,
      .minus_step = (float)(-(step->lr / (1 - pow(adam->beta1, (double)step->step)))),
  };
}

typedef struct taking {
  const treadle_adam_ops *ops;
  const treadle_adam_factors *factors;
  const treadle_adam_run *run;
} taking;

static void take_part(void *context, int32_t index, int32_t count) {
  const taking *t = context;
  treadle_adam_run part = *t->run;
  int64_t parts = (part.count + PART - 1) / PART;
  int64_t from = parts * index / count * PART, to = parts * (index + 1) / count * PART;
  if (to > part.count) to = part.count;
  if (from >= to) return;
  part.master += from;
  part.exp_avg += from;
  part.exp_avg_sq += from;
  part.grad += from;
  if (part.weights) part.weights = (char *)part.weights + from * (int64_t)treadle_dtype_bytes(part.dtype);
  part.count = to - from;
  t->ops->step(t->factors, &part);
}

void treadle_adam_take(const treadle_adam_ops *ops, treadle_team *team, const treadle_adam_factors *factors,
                       const treadle_adam_run *run) {
  taking t = {ops, factors, run};
  if (team)
    treadle_team_run(team, take_part, &t);
  else
    take_part(&t, 0, 1);
}

double treadle_adam_clip(double norm, double clip) {
  double factor = clip > 0 ? clip / (norm + 1e-6) : 1;
  return factor < 1 ? factor : 1;
}
