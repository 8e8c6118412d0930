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

enum { LINE = 16 /* elements: shares begin at whole lines of a cache */ };

treadle_row_range treadle_train_share(const treadle_train_optimizer *o, int64_t replica) {
  int64_t all = (int64_t)(o->windows->grad_bytes / sizeof(float)), lines = (all + LINE - 1) / LINE;
  if (!o->distributed) return (treadle_row_range){0, all};
  treadle_row_range share = {lines * replica / o->replicas * LINE,
                             lines * (replica + 1) / o->replicas * LINE};
  if (share.first > all) share.first = all;
  if (share.end > all) share.end = all;
  return share;
}

treadle_row_range treadle_train_own_share(const treadle_train_optimizer *o) {
  return treadle_train_share(o, o->replica);
}

/* ---- Runs ----------------------------------------------------------------------------------------------- */

/* Elements that follow each other in the window of gradients and in that of weights alike. */
typedef struct run_of {
  int64_t grad, count; /* elements */
  char *weights;
  treadle_dtype dtype;
  bool decays;
} run_of;

/* What of part `part` of storage tensor s lies in the share: of an expert, where each has a tensor of its own. */
static run_of run_in(const treadle_train_windows *w, int32_t s, int64_t part, treadle_row_range share) {
  int32_t count;
  const treadle_storage *weight = &treadle_layout_storages(w->trained_layout, w->rank, &count)[s],
                        *grad = &treadle_layout_storages(w->grad_layout, w->rank, &count)[s];
  int64_t first = (grad->offset + part * grad->slot_stride) / (int64_t)sizeof(float),
          end = first + grad->bytes / (int64_t)sizeof(float);
  int64_t begin = first > share.first ? first : share.first;
  if (end > share.end) end = share.end;
  if (w->changes && !w->changes[s]) end = begin;
  return (run_of){.grad = begin,
                  .count = end > begin ? end - begin : 0,
                  .weights = w->trained + weight->offset + part * weight->slot_stride +
                             (begin - first) * (int64_t)treadle_dtype_bytes(weight->dtype),
                  .dtype = weight->dtype,
                  .decays = grad->ndim > 1};
}

static int32_t storages_of(const treadle_train_windows *w) {
  int32_t count;
  treadle_layout_storages(w->trained_layout, w->rank, &count);
  return count;
}

/* How many parts a storage tensor has that run_in gives. */
static int64_t parts_of(const treadle_train_windows *w, int32_t s) {
  int32_t count;
  const treadle_storage *storage = &treadle_layout_storages(w->layout, w->rank, &count)[s];
  return storage->by_expert ? storage->slots : 1;
}

/* ---- The step ------------------------------------------------------------------------------------------- */

static void take_run(const treadle_train_optimizer *o, const treadle_optimizer_step *step, double scale,
                     const run_of *run, int64_t first) {
  const treadle_adam adam = {o->beta1, o->beta2, o->eps};
  const treadle_adam_step now = {.step = o->steps + 1,
                                 .lr = step->lr,
                                 .weight_decay = run->decays ? step->weight_decay : 0,
                                 .scale = scale};
  const treadle_adam_factors factors = treadle_adam_factors_of(&adam, &now);
  int64_t at = run->grad - first;
  float *weights = (float *)(void *)run->weights;
  const treadle_adam_run adam_run = {.master = o->master ? o->master + at : weights,
                                     .exp_avg = o->exp_avg + at,
                                     .exp_avg_sq = o->exp_avg_sq + at,
                                     .grad = treadle_train_grads(o->windows) + run->grad,
                                     .weights = o->master ? run->weights : NULL,
                                     .dtype = run->dtype,
                                     .count = run->count};
  treadle_adam_take(o->ops, o->team, &factors, &adam_run);
}

/* One share's weights, from the replica that took the step on them to all. */
static treadle_status bring_run(const treadle_train_optimizer *o, const run_of *run, int64_t replica) {
  treadle_exchange *replicas = o->ranks->replicas;
  int64_t bytes = run->count * (int64_t)treadle_dtype_bytes(run->dtype),
          most = (int64_t)(o->ranks->room.pieces * sizeof(float)), others;
  bool mine = replica == o->replica;
  treadle_status status = TREADLE_OK;
  for (int64_t at = 0; at < bytes; at += most) {
    int64_t some = bytes - at < most ? bytes - at : most;
    const int64_t floats = (some + (int64_t)sizeof(float) - 1) / (int64_t)sizeof(float);
    const treadle_exchange_part part = treadle_exchange_slot(1, 0, mine, 1, floats);
    if (mine) memcpy(treadle_exchange_room(replicas), run->weights + at, (size_t)some);
    TRY(treadle_parallel_slots(replicas, &part, "weights of the other replicas"));
    if (!mine) memcpy(run->weights + at, treadle_parallel_slot(replicas, 0, &others), (size_t)some);
  }
out:
  return status;
}

static treadle_status bring_shares(const treadle_train_optimizer *o) {
  treadle_status status = TREADLE_OK;
  for (int64_t replica = 0; o->distributed && o->ranks->replicas && replica < o->replicas; replica++)
    for (int32_t s = 0; s < storages_of(o->windows); s++)
      for (int64_t part = 0; part < parts_of(o->windows, s); part++) {
        run_of run = run_in(o->windows, s, part, treadle_train_share(o, replica));
        if (run.count) TRY(bring_run(o, &run, replica));
      }
out:
  return status;
}

static treadle_status take_step(const treadle_train_optimizer *o, const treadle_optimizer_step *step,
                                double norm) {
  const treadle_row_range share = treadle_train_own_share(o);
  double scale = treadle_adam_clip(norm, step->clip_grad);
  for (int32_t s = 0; s < storages_of(o->windows); s++)
    for (int64_t part = 0; part < parts_of(o->windows, s); part++) {
      run_of run = run_in(o->windows, s, part, share);
      if (run.count) take_run(o, step, scale, &run, share.first);
    }
  return bring_shares(o);
}

static treadle_status take_and_tell(treadle_trainer *t, const treadle_optimizer_step *step, double norm) {
  treadle_status status = take_step(&t->optimizer, step, norm);
  if (!status) status = treadle_train_move_biases(&t->routers);
  if (t->shards)
    treadle_train_forget_unit(t->shards);
  else
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

void treadle_train_take_master(treadle_train_optimizer *o) {
  const treadle_row_range share = treadle_train_own_share(o);
  if (!o->master) return;
  memcpy(o->master, treadle_train_grads(o->windows) + share.first,
         (size_t)(share.end - share.first) * sizeof *o->master);
}

void treadle_train_reset_optimizer(treadle_train_optimizer *o) {
  const treadle_row_range share = treadle_train_own_share(o);
  size_t bytes = (size_t)(share.end - share.first) * sizeof(float);
  if (!o->exp_avg) return;
  memset(o->exp_avg, 0, bytes);
  memset(o->exp_avg_sq, 0, bytes);
  o->steps = 0;
}
