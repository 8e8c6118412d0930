/* The calls: rows of this rank's coordinate through the layers, and what their loss came to. */
#include "train/gradients.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/sized.h"
#include "base/utf8.h"
#include "group/group.h"

#include <stdio.h>
#include <string.h>

bool treadle_train_speaks(const treadle_train_stage *stage, const treadle_pass *pass) {
  return stage->number == stage->pipeline.stages - 1 && pass->context.index == 0 &&
         (!pass->ranks.stage || pass->ranks.stage->index == 0);
}

/* ---- Before ------------------------------------------------------------------------------------------------- */

treadle_status treadle_train_check_forward(const treadle_forward_options *f) {
  if (!f->micro_batch_size == !f->max_tokens_per_micro || f->micro_batch_size < 0 ||
      f->max_tokens_per_micro < 0)
    REFUSE("micro batches of %lld rows, or of %lld tokens: one of the two, above 0",
           (long long)f->micro_batch_size, (long long)f->max_tokens_per_micro);
  if (!(f->temperature >= 0) || f->temperature > 1e6)
    REFUSE("temperature %g: above 0, at most 1e6; 0: 1", f->temperature);
  return TREADLE_OK;
}

/* "nll" is of logits as they are. */
static treadle_status check_nll(const treadle_train_work *w) {
  const treadle_forward_options *f = &w->forward;
  if (f->entropies || f->never_count || (f->temperature != 0 && f->temperature != 1))
    REFUSE(
        "loss 'nll' is of logits as they are: without temperature, entropies and ids that are never drawn");
  return TREADLE_OK;
}

/* What is asked for must be what the head finds. */
static treadle_status check_head(const treadle_train_work *w) {
  static const char *const finds[] = {"log-probabilities", "values", "scores"};
  const treadle_transformer *d = w->t->transformer;
  const bool scores = d->head < 0;
  const char *name = w->loss == TREADLE_LOSS_OWN ? "of one's own" : w->options.name ? w->options.name : "";
  char what[64];
  if (w->loss ? scores == (w->loss == TREADLE_LOSS_VALUE) : scores == (w->find != TREADLE_FIND_LOGPROBS))
    return TREADLE_OK;
  snprintf(what, sizeof what, "%s%s", w->loss ? "loss " : "", w->loss ? name : finds[w->find]);
  if (scores)
    REFUSE("%s: %s has a score head (%s): it gives values and scores, and trains by loss value", what,
           d->model->path, d->model->tensors[d->score].name);
  REFUSE("%s: %s has the head of a language model (%s): it gives log-probabilities; open it with "
         "TREADLE_HEAD_SCORE for values and scores",
         what, d->model->path, d->model->tensors[d->head].name);
}

static treadle_status take_loss(treadle_train_work *w, const treadle_loss_options *options) {
  treadle_status status;
  TRY(TREADLE_TAKE(options, &w->options));
  const treadle_loss_options *o = &w->options;
  if (!o->name && !o->of_row) REFUSE("a loss needs a name, or of_row, which is NULL");
  if (o->name && o->of_row)
    REFUSE("loss '%s' has a name and of_row: one of the two", treadle_text_shown(o->name));
  w->loss = !o->name                        ? TREADLE_LOSS_OWN
            : strcmp(o->name, "nll") == 0   ? TREADLE_LOSS_NLL
            : strcmp(o->name, "ppo") == 0   ? TREADLE_LOSS_PPO
            : strcmp(o->name, "value") == 0 ? TREADLE_LOSS_VALUE
                                            : TREADLE_LOSS_NONE;
  if (w->loss == TREADLE_LOSS_NONE)
    REFUSE("loss '%s': nll, ppo or value; a loss of one's own has of_row and no name",
           treadle_text_shown(o->name));
  TRY(check_head(w));
  if (w->loss == TREADLE_LOSS_NLL) TRY(check_nll(w));
  if (w->loss == TREADLE_LOSS_PPO) TRY(treadle_ppo_read(o, &w->ppo));
  if (w->loss == TREADLE_LOSS_VALUE) TRY(treadle_value_read(o, &w->value));
  if (w->loss == TREADLE_LOSS_PPO && o->entropy_coeff != 0 && !w->forward.entropies)
    REFUSE("loss 'ppo': entropy_coeff is %g, and entropies are not asked for", o->entropy_coeff);
out:
  return status;
}

static treadle_status take_memory(treadle_train_work *w) {
  const size_t counted = (size_t)w->counted;
  const size_t own = 1 + counted * (w->loss == TREADLE_LOSS_OWN ? 3 : w->loss == TREADLE_LOSS_NLL ? 1 : 0);
  w->logprobs = treadle_alloc_array(2 * counted + 1, sizeof *w->logprobs);
  w->entropies = w->forward.entropies && w->logprobs ? w->logprobs + counted : NULL;
  w->terms = treadle_alloc_array(w->loss == TREADLE_LOSS_PPO ? counted + 1 : 1, sizeof *w->terms);
  w->value_terms =
      treadle_alloc_array(w->loss == TREADLE_LOSS_VALUE ? counted + 1 : 1, sizeof *w->value_terms);
  w->own = treadle_alloc_array(own, sizeof *w->own);
  if (!w->logprobs || !w->terms || !w->value_terms || !w->own)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu log-probabilities", counted);
  memset(w->logprobs, 0, (2 * counted + 1) * sizeof *w->logprobs);
  memset(w->own, 0, own * sizeof *w->own);
  return TREADLE_OK;
}

/* Columns of `out`: what the head finds, and entropies. */
static const char *const made[] = {"log_probs", "values", "score", "entropies"};
static const char *const of_experts[] = {"experts", "experts_differing"};
enum { ENTROPIES = 3 };

/* A score head has no distribution: how one would be drawn from means nothing. */
static treadle_status forget_draws(treadle_forward_options *f) {
  if (f->entropies) REFUSE("entropies are of log-probabilities, and a score head gives none");
  f->temperature = 1;
  f->never = NULL;
  f->never_count = 0;
  f->replay_experts = f->experts = false;
  return TREADLE_OK;
}

/* Columns that `out` must not have yet. */
static treadle_status check_out(const treadle_train_work *w, const treadle_batch *batch,
                                const treadle_batch *out) {
  for (size_t i = 0; i < sizeof made / sizeof *made; i++)
    if ((i == w->find || (i == ENTROPIES && w->forward.entropies)) && treadle_batch_has(out, made[i]))
      REFUSE("out has a column '%s' already", made[i]);
  for (size_t i = 0; w->find == TREADLE_FIND_LOGPROBS && i < sizeof of_experts / sizeof *of_experts; i++)
    if (treadle_batch_has(out, of_experts[i])) REFUSE("out has a column '%s' already", of_experts[i]);
  if (treadle_batch_rows(out) != treadle_batch_rows(batch))
    REFUSE("out has %lld rows, the batch %lld", (long long)treadle_batch_rows(out),
           (long long)treadle_batch_rows(batch));
  return TREADLE_OK;
}

/* What can fail on one rank alone. */
static treadle_status prepare(treadle_train_work *w, const treadle_batch *batch,
                              const treadle_forward_options *forward, const treadle_loss_options *loss,
                              const treadle_batch *out) {
  treadle_status status;
  if (!treadle_pass_window(w->t->pass))
    TRY(treadle_fail(TREADLE_STATE, "the trainer has no weights: load them first"));
  if (w->backward) TRY(treadle_train_need_gradients(&w->t->windows, "treadle_trainer_gradients"));
  TRY(TREADLE_TAKE(forward, &w->forward));
  TRY(treadle_train_check_forward(&w->forward));
  TRY(loss ? take_loss(w, loss) : check_head(w));
  if (w->find != TREADLE_FIND_LOGPROBS) TRY(forget_draws(&w->forward));
  if (out) TRY(check_out(w, batch, out));
  TRY(treadle_train_take_batch(w, batch));
  if (w->loss == TREADLE_LOSS_NLL && w->values.kept)
    REFUSE("loss 'nll' is of logits as they are, and the batch has columns kept_counts and kept");
  TRY(treadle_train_check_rows(w));
  TRY(treadle_train_take_choices(w, batch));
  TRY(take_memory(w));
out:
  return status;
}

/* ---- The calls ------------------------------------------------------------------------------------------------ */

static treadle_status give(const treadle_train_work *w, const treadle_batch *batch, treadle_batch *out) {
  treadle_status status = TREADLE_OK;
  if (!out || !treadle_train_speaks(&w->t->stage, w->t->pass)) return TREADLE_OK;
  if (w->find == TREADLE_FIND_SCORES) return treadle_train_give_scores(w, out);
  TRY(treadle_train_give(w, made[w->find], w->logprobs, batch, out));
  if (w->entropies) TRY(treadle_train_give(w, made[ENTROPIES], w->entropies, batch, out));
  TRY(treadle_train_give_choices(w, out));
out:
  return status;
}

/* Rows through the layers, once all ranks are ready to. */
static treadle_status run(treadle_train_work *w) {
  treadle_status status;
  TRY(treadle_train_count(w));
  if (w->loss == TREADLE_LOSS_NLL && !w->tokens) REFUSE("no token of all rows counts");
  TRY(treadle_train_agree(&w->t->ranks, treadle_train_run_step(w)));
  TRY(treadle_train_join_choices(w));
out:
  return status;
}

static treadle_status find_loss(treadle_trainer *t, const treadle_batch *batch,
                                const treadle_forward_options *forward, const treadle_loss_options *loss,
                                bool backward, treadle_batch *out, treadle_loss *loss_p) {
  treadle_train_work w = {.t = t, .find = treadle_train_found_by(t->transformer), .backward = backward};
  treadle_loss found = TREADLE_INIT(treadle_loss);
  const char *name = backward ? "treadle_trainer_gradients" : "treadle_trainer_loss";
  treadle_status status;
  if (backward) t->half_made = true;
  TRY(treadle_train_agree_on_work(&w, name, prepare(&w, batch, forward, loss, out)));
  TRY(run(&w));
  TRY(treadle_train_sum_loss(&w, &found));
  found.experts_compared = w.choices.compared;
  found.experts_differing = w.choices.differing;
  if (backward) TRY(treadle_train_join_routers(&t->routers, &found));
  TRY(treadle_train_agree(&t->ranks, give(&w, batch, out)));
  TREADLE_GIVE(loss_p, &found);
  if (backward) t->half_made = false;
out:
  treadle_train_release_work(&w);
  return status;
}

treadle_status treadle_trainer_gradients(treadle_trainer *trainer, const treadle_batch *batch,
                                         const treadle_forward_options *forward,
                                         const treadle_loss_options *loss, treadle_batch *out,
                                         treadle_loss *loss_p) {
  TREADLE_NEED(trainer);
  TREADLE_NEED(batch);
  TREADLE_NEED(loss);
  TREADLE_NEED_SIZED(loss_p);
  return find_loss(trainer, batch, forward, loss, true, out, loss_p);
}

treadle_status treadle_trainer_loss(treadle_trainer *trainer, const treadle_batch *batch,
                                    const treadle_forward_options *forward,
                                    const treadle_loss_options *loss, treadle_loss *loss_p) {
  TREADLE_NEED(trainer);
  TREADLE_NEED(batch);
  TREADLE_NEED(loss);
  TREADLE_NEED_SIZED(loss_p);
  return find_loss(trainer, batch, forward, loss, false, NULL, loss_p);
}

/* With weights of the trainer's own, or others in their place. */
static treadle_status run_with(treadle_train_work *w, const void *weights) {
  treadle_trainer *t = w->t;
  treadle_status status, bound;
  if (!weights) return run(w);
  treadle_train_leave_adapters(t->adapters, true);
  TRY(treadle_train_agree(&t->ranks, treadle_train_bind_weights(t, weights)));
  status = run(w);
out:
  treadle_train_leave_adapters(t->adapters, false);
  bound = treadle_train_bind(t); /* back, whatever has come of it */
  if (!status) status = treadle_train_agree(&t->ranks, bound);
  return status;
}

/* Forward alone: what the work finds, into a column of `out`. */
static treadle_status find_column(treadle_train_work *w, const char *name, const treadle_batch *batch,
                                  const treadle_forward_options *forward, const void *weights,
                                  treadle_batch *out) {
  treadle_status status;
  TRY(treadle_train_agree_on_work(w, name, prepare(w, batch, forward, NULL, out)));
  TRY(run_with(w, weights));
  TRY(treadle_train_agree(&w->t->ranks, give(w, batch, out)));
out:
  treadle_train_release_work(w);
  return status;
}

treadle_status treadle_trainer_logprobs(treadle_trainer *t, const treadle_batch *batch,
                                        const treadle_forward_options *forward, const void *weights,
                                        treadle_batch *out) {
  treadle_train_work w = {.t = t, .find = TREADLE_FIND_LOGPROBS, .elsewhere = weights != NULL};
  TREADLE_NEED(t);
  TREADLE_NEED(batch);
  TREADLE_NEED(out);
  return find_column(&w, __func__, batch, forward, weights, out);
}

treadle_status treadle_trainer_values(treadle_trainer *t, const treadle_batch *batch,
                                      const treadle_forward_options *forward, treadle_batch *out) {
  treadle_train_work w = {.t = t, .find = TREADLE_FIND_VALUES};
  TREADLE_NEED(t);
  TREADLE_NEED(batch);
  TREADLE_NEED(out);
  return find_column(&w, __func__, batch, forward, NULL, out);
}

treadle_status treadle_trainer_scores(treadle_trainer *t, const treadle_batch *batch,
                                      const treadle_forward_options *forward, treadle_batch *out) {
  treadle_train_work w = {.t = t, .find = TREADLE_FIND_SCORES};
  TREADLE_NEED(t);
  TREADLE_NEED(batch);
  TREADLE_NEED(out);
  return find_column(&w, __func__, batch, forward, NULL, out);
}
