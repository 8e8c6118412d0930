/* Rows through the layers, and the mean loss of their tokens. */
#include "train/gradients.h"

#include "base/argument.h"
#include "base/sized.h"
#include "group/group.h"

treadle_status treadle_train_check_work(const treadle_train_work *w) {
  if (!treadle_pass_window(w->t->pass))
    return treadle_fail(TREADLE_STATE, "the trainer has no weights: load them first");
  if (!w->count || !w->micro_batch_size == !w->max_tokens || w->max_tokens < 0)
    REFUSE("%zu rows in micro batches of %zu rows, or of %lld tokens: 1 row at least, and one of the two",
           w->count, w->micro_batch_size, (long long)w->max_tokens);
  return TREADLE_OK;
}

treadle_status treadle_train_run(treadle_train_work *w, int64_t *tokens_p) {
  treadle_trainer *t = w->t;
  treadle_status status = treadle_train_check_rows(w, tokens_p);
  w->scale = *tokens_p ? (float)(1.0 / (double)*tokens_p) : 0;
  if (!status && w->policy) treadle_train_number_tokens(w);
  if (!status) status = treadle_train_take_share(w);
  TRY(treadle_train_agree(t, status));
  TRY(treadle_train_agree(t, treadle_train_run_step(w)));
out:
  return status;
}

treadle_train_work treadle_train_work_of(treadle_trainer *t, const treadle_train_batch *batch,
                                         bool backward) {
  return (treadle_train_work){.t = t,
                              .rows = batch->rows,
                              .count = batch->count,
                              .shared = batch->shared,
                              .micro_batch_size = batch->micro_batch_size,
                              .max_tokens = batch->max_tokens_per_micro,
                              .backward = backward};
}

bool treadle_train_speaks(const treadle_trainer *t) {
  return t->stage == t->pipeline.stages - 1 && (!t->pass->ranks.stage || t->pass->ranks.stage->index == 0);
}

/* ---- The mean loss ---------------------------------------------------------------------------------------- */

/* The sum of the losses that the last stages have, one of each replica. */
static treadle_status share_loss(treadle_train_work *w) {
  typedef struct found {
    double nll;
    int64_t replica; /* -1: another rank says it */
  } found;
  treadle_trainer *t = w->t;
  treadle_group *group = t->ranks.group;
  found mine = {.nll = w->nll, .replica = -1};
  treadle_status status;
  if (!t->ranks.board) return TREADLE_OK;
  if (treadle_train_speaks(t)) mine.replica = t->data_rank;
  TRY(treadle_group_say(group, &mine, sizeof mine));
  w->nll = 0;
  for (int64_t replica = 0; replica < t->data_ranks; replica++)
    for (int rank = 0; rank < treadle_group_size(group); rank++) {
      const found *other = treadle_group_said(group, rank);
      if (other->replica == replica) w->nll += other->nll;
    }
out:
  return status;
}

static treadle_status find(treadle_trainer *t, const treadle_train_batch *batch, bool backward,
                           treadle_loss *loss_p) {
  treadle_loss loss = TREADLE_INIT(treadle_loss);
  treadle_train_work w = treadle_train_work_of(t, batch, backward);
  treadle_status status;
  TRY(treadle_train_check_work(&w));
  TREADLE_NEED(batch->rows);
  TRY(treadle_train_run(&w, &loss.tokens));
  TRY(share_loss(&w));
  loss.nll = w.nll;
  TREADLE_GIVE(loss_p, &loss);
out:
  return status;
}

treadle_status treadle_trainer_gradients(treadle_trainer *t, const treadle_train_batch *batch,
                                         treadle_loss *loss_p) {
  treadle_train_batch b;
  treadle_status status;
  TREADLE_NEED(t);
  TREADLE_NEED(batch);
  TREADLE_NEED_SIZED(loss_p);
  TRY(TREADLE_TAKE(batch, &b));
  TRY(find(t, &b, true, loss_p));
out:
  return status;
}

treadle_status treadle_trainer_loss(treadle_trainer *t, const treadle_train_batch *batch,
                                    treadle_loss *loss_p) {
  treadle_train_batch b;
  treadle_status status;
  TREADLE_NEED(t);
  TREADLE_NEED(batch);
  TREADLE_NEED_SIZED(loss_p);
  TRY(TREADLE_TAKE(batch, &b));
  TRY(find(t, &b, false, loss_p));
out:
  return status;
}
