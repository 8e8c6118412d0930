/* From a row of logits to the next token. Work rows are in double: a float and a penalty give one value on every machine, and
 * 150,000 of them lie in a cache. Where nothing changes or cuts a row, greedy choice reads the row alone. */
#include "generate/sampler.h"

#include "base/alloc.h"
#include "generate/exponential.h"
#include "generate/sampler_cut.h"
#include "nn/row_stats.h"

#include <assert.h>
#include <math.h>

struct treadle_sampler {
  int64_t vocabulary;
  double *logits, *weights; /* [vocabulary] */
  int32_t *all, *ids;       /* [vocabulary] 0, 1, 2, ..; those that are left */
  treadle_candidate *work;  /* [vocabulary] to select and sort in */
};

treadle_status treadle_sampler_create(int64_t vocabulary, treadle_sampler **sampler_p) {
  assert(vocabulary > 0);
  treadle_sampler *sampler = treadle_alloc(sizeof *sampler);
  if (!sampler) goto failed;
  *sampler = (treadle_sampler){.vocabulary = vocabulary,
                               .logits = treadle_alloc_array((size_t)vocabulary, sizeof *sampler->logits),
                               .weights = treadle_alloc_array((size_t)vocabulary, sizeof *sampler->weights),
                               .all = treadle_alloc_array((size_t)vocabulary, sizeof *sampler->all),
                               .ids = treadle_alloc_array((size_t)vocabulary, sizeof *sampler->ids),
                               .work = treadle_alloc_array((size_t)vocabulary, sizeof *sampler->work)};
  if (sampler->logits && sampler->weights && sampler->all && sampler->ids && sampler->work) {
    for (int64_t i = 0; i < vocabulary; i++) sampler->all[i] = (int32_t)i;
    *sampler_p = sampler;
    return TREADLE_OK;
  }
failed:
  treadle_sampler_destroy(sampler);
  return treadle_fail(TREADLE_NO_MEMORY, "no memory to sample from %lld logits", (long long)vocabulary);
}

void treadle_sampler_destroy(treadle_sampler *sampler) {
  if (!sampler) return;
  treadle_free(sampler->logits);
  treadle_free(sampler->weights);
  treadle_free(sampler->all);
  treadle_free(sampler->ids);
  treadle_free(sampler->work);
  treadle_free(sampler);
}

int64_t treadle_sampler_bytes(int64_t vocabulary) {
  return (int64_t)sizeof(treadle_sampler) +
         vocabulary * (int64_t)(2 * sizeof(double) + 2 * sizeof(int32_t) + sizeof(treadle_candidate));
}

/* ---- The row ---- */

static bool has_penalties(const treadle_sampler_row *row) {
  const treadle_sampling_values *s = row->sampling;
  return row->counts && row->counts->count > 0 &&
         (s->repetition_penalty != 1 || s->frequency_penalty != 0 || s->presence_penalty != 0);
}

/* Refused where its logits cannot be compared. */
static treadle_status look_at(const float *logits, int64_t count, treadle_row_stats *stats_p) {
  *stats_p = treadle_row_stats_of(logits, count);
  for (int64_t i = 0; stats_p->has_bad && i < count; i++)
    if (!(logits[i] < INFINITY))
      REFUSE("the logit of token %lld is %s: weights or activations are not finite", (long long)i,
             isnan(logits[i]) ? "NaN" : "infinite");
  return TREADLE_OK;
}

static bool has_bans(const treadle_sampler_row *row) {
  return row->banned_count > 0 || row->never_count > 0;
}

static void ban(treadle_sampler *sampler, const int32_t *ids, int64_t count) {
  for (int64_t i = 0; i < count; i++)
    if (ids[i] >= 0 && ids[i] < sampler->vocabulary) sampler->logits[ids[i]] = -INFINITY;
}

/* Copies the row, with what bans and penalties make of it. */
static void load_row(treadle_sampler *sampler, const treadle_sampler_row *row) {
  const treadle_sampling_values *s = row->sampling;
  double *to = sampler->logits;
  for (int64_t i = 0; i < sampler->vocabulary; i++) to[i] = (double)row->logits[i];
  ban(sampler, row->banned, row->banned_count);
  ban(sampler, row->never, row->never_count);
  if (!has_penalties(row)) return;
  for (int64_t i = 0; i < row->counts->capacity; i++) {
    treadle_token_count item = row->counts->items[i];
    if (item.token < 0 || item.token >= sampler->vocabulary || to[item.token] == -INFINITY) continue;
    double x = to[item.token];
    x = x > 0 ? x / s->repetition_penalty : x * s->repetition_penalty;
    x -= s->frequency_penalty * item.generated;
    if (item.generated > 0) x -= s->presence_penalty;
    to[item.token] = x;
  }
}

/* Of the loaded row. Nothing but bans and penalties changes what was found before. */
static treadle_status find_largest(const treadle_sampler *sampler, const treadle_sampler_row *row,
                                   float before, double *largest_p) {
  double largest = (double)before;
  if (has_bans(row) || has_penalties(row))
    largest = treadle_row_largest_of(sampler->logits, sampler->vocabulary);
  if (largest == -INFINITY)
    REFUSE("no token can be chosen: all logits are -inf, or their tokens are banned");
  if (largest == INFINITY) REFUSE("the penalties make a logit infinite");
  *largest_p = largest;
  return TREADLE_OK;
}

/* ---- What is left ---- */

/* Leaves the tokens with logits from `border` on, and above -inf. */
static void cut_at(treadle_sampler *sampler, double border, treadle_cut_row *row) {
  int64_t kept = 0;
  for (int64_t i = 0; i < row->count; i++) {
    double logit = row->logits[i];
    if (!(logit >= border && logit > -INFINITY)) continue;
    sampler->ids[kept] = (int32_t)i;
    row->logits[kept++] = logit;
  }
  row->ids = sampler->ids;
  row->count = kept;
}

static void give(const treadle_cut_row *row, treadle_candidates *candidates_p) {
  *candidates_p = (treadle_candidates){.ids = row->ids,
                                       .weights = row->weights,
                                       .count = row->count,
                                       .total = treadle_cut_sum(row->weights, row->count)};
}

/* The lowest id of the largest logit, with the whole probability. */
static void keep_one(treadle_sampler *sampler, double largest, treadle_candidates *candidates_p) {
  int64_t best = 0;
  while (sampler->logits[best] != largest) best++;
  sampler->weights[0] = 1;
  const treadle_cut_row row = {.weights = sampler->weights, .ids = &sampler->all[best], .count = 1};
  give(&row, candidates_p);
}

treadle_status treadle_sampler_keep(treadle_sampler *sampler, const treadle_sampler_row *row,
                                    treadle_candidates *candidates_p) {
  const treadle_sampling_values *s = row->sampling;
  treadle_row_stats stats;
  treadle_status status;
  double largest = 0, scale = 1 / s->temperature, border = -INFINITY;
  TRY(look_at(row->logits, sampler->vocabulary, &stats));
  load_row(sampler, row);
  TRY(find_largest(sampler, row, stats.largest, &largest));
  if (treadle_sampling_is_greedy(s)) {
    keep_one(sampler, largest, candidates_p);
    return TREADLE_OK;
  }
  treadle_cut_row left = {sampler->logits, sampler->weights, sampler->all, sampler->vocabulary};
  if (s->top_k > 0 && s->top_k < sampler->vocabulary)
    border = treadle_cut_border(sampler->logits, left.count, s->top_k, (double *)(void *)sampler->work);
  /* Min-p before top-k and top-k before min-p leave the same: each keeps all above a border. */
  if (border > -INFINITY || stats.has_holes || has_bans(row)) cut_at(sampler, border, &left);
  treadle_exponentials(left.weights, left.logits, largest, scale, left.count);
  /* The largest weight is 1: a probability is below min_p times the largest where its weight is below min_p. */
  if (s->min_p > 0) treadle_cut_below(&left, s->min_p, sampler->ids);
  if (s->top_p < 1) treadle_cut_mass(&left, s->top_p, scale, sampler->ids, sampler->work);
  if (row->most > 0 && left.count > row->most)
    treadle_cut_count(&left, row->most, sampler->ids, (double *)(void *)sampler->work);
  give(&left, candidates_p);
out:
  return status;
}

/* ---- The choice ---- */

int32_t treadle_sampler_pick(const treadle_candidates *candidates, double uniform) {
  const double *weights = candidates->weights;
  double wanted = uniform * candidates->total, sum = 0;
  int64_t end = 0;
  while (end < candidates->count) {
    int64_t begin = end, left = candidates->count - begin;
    end += left < TREADLE_CUT_BLOCK ? left : TREADLE_CUT_BLOCK;
    double next = sum + treadle_cut_sum_block(weights + begin, end - begin);
    if (next > wanted) {
      for (int64_t i = begin; i < end; i++)
        if ((sum += weights[i]) > wanted) return candidates->ids[i];
      break;
    }
    sum = next;
  }
  /* Rounding has left the sum at what is wanted: the last one with a weight. */
  while (end > 1 && !(weights[end - 1] > 0)) end--;
  return candidates->ids[end - 1];
}

treadle_status treadle_sampler_choose(treadle_sampler *sampler, const treadle_sampler_row *row,
                                      double uniform, int32_t *token_p) {
  treadle_candidates candidates;
  treadle_status status;
  if (treadle_sampling_is_greedy(row->sampling) && !has_penalties(row) && !has_bans(row)) {
    treadle_row_stats stats;
    TRY(look_at(row->logits, sampler->vocabulary, &stats));
    if (stats.largest > -INFINITY) {
      *token_p = (int32_t)treadle_row_first(row->logits, stats.largest);
      return TREADLE_OK;
    }
  }
  TRY(treadle_sampler_keep(sampler, row, &candidates));
  *token_p = treadle_sampler_pick(&candidates, uniform);
out:
  return status;
}
