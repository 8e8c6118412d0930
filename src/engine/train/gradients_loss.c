/* What a loss says of the tokens of a micro batch, and its sums over all ranks. */
#include "train/gradients.h"

#include "group/group.h"

#include <math.h>
#include <stdio.h>

/* ---- Failures ------------------------------------------------------------------------------------------------ */

void treadle_train_note(treadle_train_work *w, treadle_status status) {
  if (!status || w->noted) return;
  w->noted = status;
  snprintf(w->message, sizeof w->message, "%s", treadle_error_message());
}

/* ---- "ppo" --------------------------------------------------------------------------------------------------- */

/* Tokens of a row that count. */
static int64_t counted_of(const treadle_train_work *w, size_t row) {
  return (row + 1 < w->count ? w->rows[row + 1].number : w->counted) - w->rows[row].number;
}

static void of_token(treadle_train_work *w, const treadle_train_place *place,
                     treadle_train_slopes *slopes) {
  const treadle_train_values *v = &w->values;
  const treadle_train_row *row = &w->rows[place->row];
  const int64_t at = row->first + (int64_t)place->token - row->prompt_count;
  const treadle_ppo_token token = {
      .logprob = (double)w->logprobs[place->number],
      .entropy = (double)(float)slopes->entropy,
      .old = (double)v->old[at],
      .ref = v->ref ? (double)v->ref[at] : 0,
      .rollout = v->rollout ? (double)v->rollout[at] : 0,
      .advantage = v->advantages ? v->advantages[at] : v->advantage[place->row],
      .weight = treadle_ppo_weight(&w->ppo, counted_of(w, place->row), w->tokens, w->sequences)};
  treadle_ppo_term *term = &w->terms[place->number];
  treadle_ppo_of_token(&w->ppo, &token, term);
  if (!isfinite(term->loss) || !isfinite(term->by_logprob) || !isfinite(token.old) ||
      !isfinite(token.ref) || !isfinite(token.rollout))
    treadle_train_note(w,
                       treadle_fail(TREADLE_REFUSED,
                                    "row %zu: loss 'ppo' of token %zu is %g with slope %g: log_prob %g, "
                                    "old %g, ref %g, rollout %g, "
                                    "advantage %g",
                                    place->row, place->token, term->loss, term->by_logprob, token.logprob,
                                    token.old, token.ref, token.rollout, token.advantage));
  slopes->by_logprob = term->by_logprob;
  slopes->by_entropy = term->by_entropy;
}

void treadle_train_slope(treadle_train_work *w, const treadle_train_place *place,
                         treadle_train_slopes *slopes) {
  if (w->loss == TREADLE_LOSS_PPO) of_token(w, place, slopes);
  if (w->loss == TREADLE_LOSS_OWN) {
    slopes->by_logprob = w->own[w->counted + (int64_t)place->number];
    slopes->by_entropy = w->own[2 * w->counted + (int64_t)place->number];
  }
}

/* ---- "value" ------------------------------------------------------------------------------------------------- */

double treadle_train_value_slope(treadle_train_work *w, const treadle_train_place *place) {
  const treadle_train_row *row = &w->rows[place->row];
  const int64_t at = row->first + (int64_t)place->token - row->prompt_count;
  const treadle_value_token token = {
      .value = (double)w->logprobs[place->number],
      .old = (double)w->values.old_values[at],
      .returns = (double)w->values.returns[at],
      .weight = treadle_ppo_weight(&w->value.weights, counted_of(w, place->row), w->tokens, w->sequences)};
  treadle_value_term *term = &w->value_terms[place->number];
  treadle_value_of_token(&w->value, &token, term);
  if (!isfinite(term->loss) || !isfinite(token.old) || !isfinite(token.returns))
    treadle_train_note(
        w, treadle_fail(TREADLE_REFUSED,
                        "row %zu: loss 'value' of token %zu is %g: value %g, old value %g, return %g",
                        place->row, place->token, term->loss, token.value, token.old, token.returns));
  return term->by_value;
}

/* ---- The caller's -------------------------------------------------------------------------------------------- */

static treadle_status check_own(const treadle_loss_row *row, const treadle_train_place *first) {
  for (int64_t i = 0; i < row->count; i++) {
    const double entropy = row->by_entropy ? row->by_entropy[i] : 0;
    if (!isfinite(row->losses[i]) || !isfinite(row->by_log_prob[i]) || !isfinite(entropy))
      REFUSE("row %lld: of_row gives for token %zu a loss of %g with slopes %g and %g: finite numbers",
             (long long)row->row, first[i].token, row->losses[i], row->by_log_prob[i], entropy);
  }
  return TREADLE_OK;
}

/* The tokens of one row are side by side. */
void treadle_train_own_loss(treadle_train_work *w, const treadle_train_step *batch) {
  for (int64_t at = 0, count; at < batch->counted && !w->noted; at += count) {
    const treadle_train_place *place = &batch->places[at];
    const int64_t number = (int64_t)place->number;
    count = counted_of(w, place->row);
    const treadle_loss_row row = {.row = (int64_t)place->row,
                                  .count = count,
                                  .log_probs = w->logprobs + number,
                                  .entropies = w->entropies ? w->entropies + number : NULL,
                                  .losses = w->own + number,
                                  .by_log_prob = w->own + w->counted + number,
                                  .by_entropy = w->entropies ? w->own + 2 * w->counted + number : NULL};
    treadle_status status = w->options.of_row(w->options.context, &row);
    if (!status)
      status = check_own(&row, place);
    else if (!treadle_status_is_failure(status))
      status = treadle_fail(TREADLE_REFUSED, "row %lld: of_row returns %d, which is not a treadle_status",
                            (long long)row.row, (int)status);
    treadle_train_note(w, status);
  }
}

/* ---- Sums over all ranks --------------------------------------------------------------------------------------- */

typedef struct sums {
  treadle_ppo_sums ppo;
  treadle_value_sums value;
} sums;

typedef struct found {
  int64_t coordinate; /* -1: another rank says it */
  sums sums;
  double nll;
} found;

/* Token after token, in the order of rows. */
static void add_own(const treadle_train_work *w, sums *all, double *nll) {
  for (int64_t i = 0; w->loss != TREADLE_LOSS_VALUE && i < w->counted; i++)
    *nll += w->loss == TREADLE_LOSS_NLL ? w->own[i] : -(double)w->logprobs[i];
  for (int64_t i = 0; w->loss == TREADLE_LOSS_PPO && i < w->counted; i++)
    treadle_ppo_add(&all->ppo, &w->terms[i]);
  for (int64_t i = 0; w->loss == TREADLE_LOSS_VALUE && i < w->counted; i++)
    treadle_value_add(&all->value, &w->value_terms[i]);
  for (int64_t i = 0; w->loss == TREADLE_LOSS_OWN && i < w->counted; i++) all->ppo.loss += w->own[i];
}

/* One coordinate goes on where the one before it has ended, so that sums have the bits of one rank's. The sum of -log p
 * is that of the coordinates' own sums. */
static treadle_status add_coordinate(treadle_train_work *w, int64_t coordinate, sums *all, double *nll) {
  treadle_trainer *t = w->t;
  found mine = {.sums = *all, .coordinate = -1};
  treadle_status status;
  if (treadle_train_speaks(&t->stage, t->pass) && t->data_rank == coordinate) {
    mine.coordinate = coordinate;
    add_own(w, &mine.sums, &mine.nll);
  }
  TRY(treadle_group_say(t->ranks.group, &mine, sizeof mine));
  const found *other = treadle_train_said(&t->ranks, coordinate);
  if (!other) goto out;
  *all = other->sums;
  *nll += other->nll;
out:
  return status;
}

treadle_status treadle_train_sum_loss(treadle_train_work *w, treadle_loss *loss_p) {
  sums all = {0};
  double nll = 0;
  treadle_status status = TREADLE_OK;
  if (w->t->ranks.board) {
    for (int64_t d = 0; d < w->t->data_ranks; d++) TRY(add_coordinate(w, d, &all, &nll));
  } else {
    add_own(w, &all, &nll);
  }
  if (w->loss == TREADLE_LOSS_VALUE)
    treadle_value_figures(&all.value, w->tokens, loss_p);
  else
    treadle_ppo_figures(&all.ppo, w->tokens, loss_p);
  loss_p->nll = nll;
  loss_p->tokens = w->tokens;
  if (!isfinite(loss_p->loss)) REFUSE("the loss of all rows is %g: a finite number", loss_p->loss);
out:
  return status;
}
