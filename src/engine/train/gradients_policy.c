/* Log-probabilities of the tokens of a policy, and gradients of a loss that the caller makes of them. */
#include "train/gradients.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/sized.h"
#include "group/group.h"

#include <string.h>

/* Values of tokens, from the last stages that have them, one of each replica, to all. Each says a piece of its own at a time. */
static treadle_status share_values(const treadle_train_work *w, float *values, size_t counted) {
  enum { PIECE = 1000 };
  typedef struct said {
    uint64_t first, count;
    float values[PIECE];
  } said;
  treadle_trainer *t = w->t;
  const bool speaks = treadle_train_speaks(t);
  size_t at = w->numbers[w->from], end = w->numbers[w->from + w->count], left = counted;
  treadle_status status = TREADLE_OK;
  if (!t->ranks.board) return TREADLE_OK;
  while (left) {
    said mine = {.first = at, .count = speaks ? (end - at < PIECE ? end - at : PIECE) : 0};
    memcpy(mine.values, values + at, (size_t)mine.count * sizeof *values);
    TRY(treadle_group_say(t->ranks.group, &mine, sizeof mine));
    at += (size_t)mine.count;
    for (int rank = 0; rank < treadle_group_size(t->ranks.group); rank++) {
      const said *other = treadle_group_said(t->ranks.group, rank);
      if (other->count > left)
        return treadle_fail(TREADLE_PEER, "rank %d has more values than there are", rank);
      memcpy(values + other->first, other->values, (size_t)other->count * sizeof *values);
      left -= (size_t)other->count;
    }
  }
out:
  return status;
}

static treadle_status check_policy(const treadle_policy *p, bool backward, const float *entropies) {
  if (!(p->temperature >= 0) || p->temperature > 1e6)
    REFUSE("temperature %g: above 0, at most 1e6; 0: 1", p->temperature);
  if (backward && !p->differentiate) REFUSE("gradients of a policy need differentiate, which is NULL");
  if (!p->entropy && entropies) REFUSE("entropies are to be written, and policy.entropy is false");
  return TREADLE_OK;
}

/* ---- What tokens were drawn from ---- */

static bool contains(const int32_t *ids, size_t count, int32_t id) {
  size_t low = 0;
  while (low < count) {
    const size_t middle = low + (count - low) / 2;
    if (ids[middle] == id) return true;
    if (ids[middle] < id)
      low = middle + 1;
    else
      count = middle;
  }
  return false;
}

/* Ascending ids of the vocabulary. */
static bool are_ids(const int32_t *ids, size_t count, int64_t vocabulary) {
  for (size_t i = 0; i < count; i++)
    if (ids[i] < (i ? ids[i - 1] + 1 : 0) || ids[i] >= vocabulary) return false;
  return true;
}

static treadle_status check_token(const treadle_train_work *w, size_t row, size_t token, size_t number) {
  const treadle_policy *p = w->policy;
  const int64_t vocabulary = w->t->transformer->vocabulary;
  const int32_t id = w->rows[row].ids[token];
  const size_t from = p->kept_first ? p->kept_first[number] : 0,
               end = p->kept_first ? p->kept_first[number + 1] : 0;
  if (end < from || (end > from && !p->kept))
    REFUSE("row %zu: token %zu was drawn from ids %zu to before %zu: NULL, or no such", row, token, from,
           end);
  if (end > from && !are_ids(p->kept + from, end - from, vocabulary))
    REFUSE("row %zu: the ids that token %zu was drawn from do not ascend, or are not of the vocabulary, 0 "
           "to %lld",
           row, token, (long long)vocabulary - 1);
  if (end > from ? !contains(p->kept + from, end - from, id) : contains(p->never, p->never_count, id))
    REFUSE("row %zu: token %zu is %d, which is none of the ids that it was drawn from", row, token, id);
  return TREADLE_OK;
}

static treadle_status check_kept(const treadle_train_work *w) {
  const treadle_policy *p = w->policy;
  size_t number = 0;
  treadle_status status = TREADLE_OK;
  if (!p->kept_first && !p->never_count) return TREADLE_OK;
  if (p->never_count && !p->never) REFUSE("never_count is %zu, and never is NULL", p->never_count);
  if (!are_ids(p->never, p->never_count, w->t->transformer->vocabulary))
    REFUSE("the ids that are never drawn do not ascend, or are not of the vocabulary, 0 to %lld",
           (long long)w->t->transformer->vocabulary - 1);
  for (size_t r = 0; r < w->count; r++)
    for (size_t i = 1; i < w->rows[r].count; i++)
      if (w->rows[r].ids && w->rows[r].mask && w->rows[r].mask[i]) TRY(check_token(w, r, i, number++));
out:
  return status;
}

static treadle_status run_policy(treadle_train_work *w, const treadle_policy *policy, float *logprobs,
                                 float *entropies) {
  int64_t tokens;
  float *values = NULL;
  size_t counted = 0;
  treadle_status status;
  TRY(treadle_train_check_work(w));
  TREADLE_NEED(w->rows);
  for (size_t r = 0; r < w->count; r++)
    counted += w->rows[r].mask ? (size_t)treadle_train_counted(&w->rows[r]) : 0;
  w->policy = policy;
  w->numbers = treadle_alloc_array(w->count + 1, sizeof *w->numbers);
  values = treadle_alloc_array(2 * counted + 1, sizeof *values);
  status = w->numbers && values
               ? check_kept(w)
               : treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu log-probabilities", counted);
  TRY(treadle_train_agree(w->t, status));
  memset(values, 0, (2 * counted + 1) * sizeof *values);
  w->logprobs = values;
  w->entropies = policy->entropy ? values + counted : NULL;
  TRY(treadle_train_run(w, &tokens));
  TRY(share_values(w, values, counted));
  if (policy->entropy) TRY(share_values(w, values + counted, counted));
  if (logprobs) memcpy(logprobs, values, counted * sizeof *values);
  if (entropies) memcpy(entropies, values + counted, counted * sizeof *values);
out:
  treadle_free(w->numbers);
  treadle_free(values);
  return status;
}

treadle_status treadle_trainer_policy_gradients(treadle_trainer *t, const treadle_train_batch *batch,
                                                const treadle_policy *policy, float *logprobs,
                                                float *entropies) {
  treadle_train_batch b;
  treadle_policy p;
  treadle_status status;
  TREADLE_NEED(t);
  TREADLE_NEED(batch);
  TREADLE_NEED(policy);
  TRY(TREADLE_TAKE(batch, &b));
  TRY(TREADLE_TAKE(policy, &p));
  TRY(check_policy(&p, true, entropies));
  treadle_train_work w = treadle_train_work_of(t, &b, true);
  TRY(run_policy(&w, &p, logprobs, entropies));
out:
  return status;
}

treadle_status treadle_trainer_logprobs(treadle_trainer *t, const treadle_train_batch *batch,
                                        const treadle_policy *policy, const void *weights, float *logprobs,
                                        float *entropies) {
  treadle_train_batch b;
  treadle_policy p;
  treadle_status status;
  TREADLE_NEED(t);
  TREADLE_NEED(batch);
  TREADLE_NEED(policy);
  TREADLE_NEED(logprobs);
  TRY(TREADLE_TAKE(batch, &b));
  TRY(TREADLE_TAKE(policy, &p));
  TRY(check_policy(&p, false, entropies));
  treadle_train_work w = treadle_train_work_of(t, &b, false);
  TRY(treadle_train_check_work(&w));
  if (weights) status = treadle_train_bind_weights(t, weights);
  if (weights) TRY(treadle_train_agree(t, status));
  status = run_policy(&w, &p, logprobs, entropies);
  if (weights) { /* back to its own, whatever has come of it */
    treadle_status bound = treadle_train_bind(t);
    if (!status) status = treadle_train_agree(t, bound);
  }
out:
  return status;
}
