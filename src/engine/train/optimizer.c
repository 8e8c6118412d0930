/* The optimizer: AdamW on fp32 masters and moments, element by element as the gradients lie. With bf16 weights the master is a window of its
 * own, and weights are what it rounds to; with fp32 the weights are the masters.
 *
 * With the distributed optimizer each data parallel rank has the state of its share of the gradients' window, takes the step on that, and
 * gets the weights of the others' shares. Elements do not depend on each other, so the bits are the same. */
#include "train/optimizer.h"

#include "base/argument.h"
#include "base/dtype.h"
#include "base/hash.h"
#include "base/sized.h"
#include "train/trainer.h"

#include <math.h>
#include <string.h>

/* ---- The step ------------------------------------------------------------------------------------------- */

typedef struct stepping {
  const treadle_train_optimizer *of;
  const treadle_optimizer_step *step;
  double scale;
} stepping;

static treadle_status take_run(void *context, const treadle_train_run *run) {
  const stepping *w = context;
  const treadle_train_optimizer *o = w->of;
  const treadle_adam adam = {o->beta1, o->beta2, o->eps};
  const treadle_adam_step now = {.step = o->steps + 1,
                                 .lr = w->step->lr,
                                 .weight_decay = run->decays ? w->step->weight_decay : 0,
                                 .scale = w->scale};
  const treadle_adam_factors factors = treadle_adam_factors_of(&adam, &now);
  float *weights = (float *)(void *)run->weights;
  const treadle_adam_run adam_run = {.master = o->master ? o->master + run->state : weights,
                                     .exp_avg = o->exp_avg + run->state,
                                     .exp_avg_sq = o->exp_avg_sq + run->state,
                                     .grad = treadle_train_grads(o->windows) + run->grad,
                                     .weights = o->master ? run->weights : NULL,
                                     .dtype = run->dtype,
                                     .count = run->count};
  if (run->changes) treadle_adam_take(o->ops, o->team, &factors, &adam_run);
  return TREADLE_OK;
}

static treadle_status take_step(const treadle_train_optimizer *o, const treadle_optimizer_step *step,
                                double norm) {
  stepping w = {o, step, treadle_adam_clip(norm, step->clip_grad)};
  treadle_status status;
  TRY(treadle_train_each_run(o, take_run, &w));
  TRY(treadle_train_bring_weights(o));
out:
  return status;
}

static treadle_status take_and_tell(treadle_trainer *t, const treadle_optimizer_step *step, double norm) {
  treadle_status status = take_step(&t->optimizer, step, norm);
  if (!status) status = treadle_train_move_biases(&t->routers);
  if (t->shards)
    treadle_train_forget_unit(t->shards);
  else if (!t->adapters)
    treadle_pass_renew(t->pass);
  treadle_train_forget_merged(t->adapters);
  treadle_train_tell(&t->ranks, status);
  return status;
}

/* What can fail on one rank alone. */
static treadle_status check_step(const treadle_train_optimizer *o, bool half_made,
                                 const treadle_optimizer_step *step, treadle_optimizer_step *step_p) {
  treadle_optimizer_step *s = step_p;
  treadle_status status;
  TRY(TREADLE_TAKE(step, s));
  if (!o->exp_avg)
    return treadle_fail(TREADLE_STATE, "treadle_trainer_step: the trainer was made without an optimizer");
  if (half_made)
    return treadle_fail(TREADLE_STATE,
                        "treadle_trainer_step: the last call of treadle_trainer_gradients failed");
  if (!(s->lr >= 0) || !(s->weight_decay >= 0) || !(s->clip_grad >= 0) || !isfinite(s->lr) ||
      !isfinite(s->weight_decay))
    REFUSE("lr %g, weight_decay %g, clip_grad %g: numbers from 0 on", s->lr, s->weight_decay, s->clip_grad);
out:
  return status;
}

/* All ranks take the same step. */
static treadle_status agree_on_step(const treadle_train_ranks *ranks, const treadle_optimizer_step *s,
                                    treadle_status status) {
  const double numbers[] = {s->lr, s->weight_decay, s->clip_grad};
  const treadle_group_call call = {.name = "treadle_trainer_step",
                                   .alike = {{.what = "lr, weight_decay and clip_grad",
                                              .hash = treadle_hash_bytes(numbers, sizeof numbers, 0)}},
                                   .count = 1};
  return treadle_train_agree_on(ranks, status, &call);
}

treadle_status treadle_trainer_step(treadle_trainer *t, const treadle_optimizer_step *step,
                                    treadle_optimizer_figures *result_p) {
  treadle_optimizer_step s = {0};
  treadle_optimizer_figures result = TREADLE_INIT(treadle_optimizer_figures);
  treadle_status status;
  TREADLE_NEED(t);
  TREADLE_NEED(step);
  TREADLE_NEED_SIZED(result_p);
  TRY(agree_on_step(&t->ranks, &s, check_step(&t->optimizer, t->half_made, step, &s)));
  TRY(treadle_trainer_norm(t, &result.grad_norm));
  result.skipped = !isfinite(result.grad_norm);
  if (!result.skipped) {
    TRY(treadle_train_agree(&t->ranks, take_and_tell(t, &s, result.grad_norm)));
    t->optimizer.steps++;
  }
  result.steps = t->optimizer.steps;
  TREADLE_GIVE(result_p, &result);
out:
  return status;
}

/* ---- What it begins with ---------------------------------------------------------------------------------- */

typedef struct taking_state {
  const treadle_train_optimizer *of;
  float *to;
} taking_state;

static treadle_status take_state(void *context, const treadle_train_run *run) {
  const taking_state *w = context;
  memcpy(w->to + run->state, treadle_train_grads(w->of->windows) + run->grad,
         (size_t)run->count * sizeof *w->to);
  return TREADLE_OK;
}

void treadle_train_take_state(const treadle_train_optimizer *o, float *to) {
  taking_state w = {o, to};
  (void)treadle_train_each_run(o, take_state, &w);
}

void treadle_train_reset_optimizer(treadle_train_optimizer *o) {
  const size_t bytes = (size_t)treadle_train_state_elements(o) * sizeof(float);
  if (!o->exp_avg) return;
  memset(o->exp_avg, 0, bytes);
  memset(o->exp_avg_sq, 0, bytes);
  o->steps = 0;
}
