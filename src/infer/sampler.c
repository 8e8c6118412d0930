/* From a row of logits to the next token. Work rows are in double: a float and a penalty give one value on every machine, and
 * 150,000 of them lie in a cache. Where nothing changes or cuts a row, greedy choice reads the row alone. */
#include "infer/sampler.h"

#include "base/alloc.h"
#include "infer/exponential.h"
#include "infer/sampler_cut.h"

#include <assert.h>
#include <math.h>

enum { LANES = 8 };

struct treadle_sampler {
  int64_t vocabulary;
  double *logits, *weights; /* [vocabulary] */
  int32_t *ids;             /* [vocabulary] */
  treadle_candidate *work;  /* [vocabulary] to select and sort in */
};

treadle_status treadle_sampler_create(int64_t vocabulary, treadle_sampler **sampler_p) {
  assert(vocabulary > 0);
  treadle_sampler *sampler = treadle_alloc(sizeof *sampler);
  if (!sampler) goto failed;
  *sampler = (treadle_sampler){.vocabulary = vocabulary,
                               .logits = treadle_alloc_array((size_t)vocabulary, sizeof *sampler->logits),
                               .weights = treadle_alloc_array((size_t)vocabulary, sizeof *sampler->weights),
                               .ids = treadle_alloc_array((size_t)vocabulary, sizeof *sampler->ids),
                               .work = treadle_alloc_array((size_t)vocabulary, sizeof *sampler->work)};
  if (sampler->logits && sampler->weights && sampler->ids && sampler->work) {
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
  treadle_free(sampler->ids);
  treadle_free(sampler->work);
  treadle_free(sampler);
}

int64_t treadle_sampler_bytes(int64_t vocabulary) {
  return (int64_t)sizeof(treadle_sampler) +
         vocabulary * (int64_t)(2 * sizeof(double) + sizeof(int32_t) + sizeof(treadle_candidate));
}

/* ---- The row ---- */

static bool has_penalties(const treadle_sampler_row *row) {
  const treadle_sampling *s = row->sampling;
  return row->counts && row->counts->count > 0 &&
         (s->repetition_penalty != 1 || s->frequency_penalty != 0 || s->presence_penalty != 0);
}

/* Largest logit of the row; refused where it cannot be compared. */
static treadle_status find_largest(const float *logits, int64_t count, float *largest_p) {
  float lane[LANES], largest = -INFINITY;
  int bad[LANES] = {0}, any = 0;
  int64_t i = 0;
  for (int k = 0; k < LANES; k++) lane[k] = -INFINITY;
  for (; i + LANES <= count; i += LANES)
    for (int k = 0; k < LANES; k++) {
      float x = logits[i + k];
      lane[k] = x > lane[k] ? x : lane[k];
      bad[k] |= !(x < INFINITY);
    }
  for (int k = 0; i < count; i++, k++) {
    lane[k] = logits[i] > lane[k] ? logits[i] : lane[k];
    bad[k] |= !(logits[i] < INFINITY);
  }
  for (int k = 0; k < LANES; k++) {
    largest = lane[k] > largest ? lane[k] : largest;
    any |= bad[k];
  }
  for (i = 0; any && i < count; i++)
    if (!(logits[i] < INFINITY))
      REFUSE("the logit of token %lld is %s: weights or activations are not finite", (long long)i,
             isnan(logits[i]) ? "NaN" : "infinite");
  *largest_p = largest;
  return TREADLE_OK;
}

/* Copies the row, with what bans and penalties make of it. */
static void load_row(treadle_sampler *sampler, const treadle_sampler_row *row) {
  const treadle_sampling *s = row->sampling;
  double *to = sampler->logits;
  for (int64_t i = 0; i < sampler->vocabulary; i++) to[i] = (double)row->logits[i];
  for (int64_t i = 0; i < row->banned_count; i++)
    if (row->banned[i] >= 0 && row->banned[i] < sampler->vocabulary) to[row->banned[i]] = -INFINITY;
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

static treadle_status largest_of_loaded(const treadle_sampler *sampler, double *largest_p) {
  double lane[LANES], largest = -INFINITY;
  const double *x = sampler->logits;
  int64_t i = 0;
  for (int k = 0; k < LANES; k++) lane[k] = -INFINITY;
  for (; i + LANES <= sampler->vocabulary; i += LANES)
    for (int k = 0; k < LANES; k++) lane[k] = x[i + k] > lane[k] ? x[i + k] : lane[k];
  for (int k = 0; i < sampler->vocabulary; i++, k++) lane[k] = x[i] > lane[k] ? x[i] : lane[k];
  for (int k = 0; k < LANES; k++) largest = lane[k] > largest ? lane[k] : largest;
  if (largest == -INFINITY)
    REFUSE("no token can be chosen: all logits are -inf, or their tokens are banned");
  if (largest == INFINITY) REFUSE("the penalties make a logit infinite");
  *largest_p = largest;
  return TREADLE_OK;
}

/* ---- What is left ---- */

/* Moves the tokens with logits from `border` on to the front. */
static int64_t gather(treadle_sampler *sampler, double border) {
  int64_t count = 0;
  for (int64_t i = 0; i < sampler->vocabulary; i++) {
    if (!(sampler->logits[i] >= border && sampler->logits[i] > -INFINITY)) continue;
    sampler->logits[count] = sampler->logits[i];
    sampler->ids[count++] = (int32_t)i;
  }
  return count;
}

static void move(treadle_sampler *sampler, int64_t to, int64_t from) {
  sampler->logits[to] = sampler->logits[from];
  sampler->weights[to] = sampler->weights[from];
  sampler->ids[to] = sampler->ids[from];
}

/* The largest weight is 1: a probability is below min_p times the largest where its weight is below min_p. */
static int64_t cut_min(treadle_sampler *sampler, int64_t count, double min_p) {
  int64_t kept = 0;
  for (int64_t i = 0; i < count; i++)
    if (sampler->weights[i] >= min_p) move(sampler, kept++, i);
  return kept;
}

static int64_t cut_top_p(treadle_sampler *sampler, int64_t count, double largest,
                         const treadle_sampling *s) {
  treadle_cut_row row = {.logits = sampler->logits,
                         .weights = sampler->weights,
                         .ids = sampler->ids,
                         .count = count,
                         .largest = largest,
                         .scale = 1 / s->temperature};
  treadle_candidate first = treadle_cut_mass(&row, s->top_p, sampler->work);
  int64_t kept = 0;
  for (int64_t i = 0; i < count; i++)
    if (sampler->logits[i] > first.logit ||
        (sampler->logits[i] == first.logit && sampler->ids[i] <= first.id))
      move(sampler, kept++, i);
  return kept;
}

/* One token with the whole probability. */
static void keep_one(treadle_sampler *sampler, int32_t id, treadle_candidates *candidates_p) {
  sampler->ids[0] = id;
  sampler->weights[0] = 1;
  *candidates_p =
      (treadle_candidates){.ids = sampler->ids, .weights = sampler->weights, .count = 1, .total = 1};
}

treadle_status treadle_sampler_keep(treadle_sampler *sampler, const treadle_sampler_row *row,
                                    treadle_candidates *candidates_p) {
  const treadle_sampling *s = row->sampling;
  treadle_status status;
  float unused;
  double largest = 0;
  TRY(find_largest(row->logits, sampler->vocabulary, &unused));
  load_row(sampler, row);
  TRY(largest_of_loaded(sampler, &largest));
  if (treadle_sampling_is_greedy(s)) {
    int64_t best = 0;
    while (sampler->logits[best] != largest) best++;
    keep_one(sampler, (int32_t)best, candidates_p);
    return TREADLE_OK;
  }
  bool cuts_k = s->top_k > 0 && s->top_k < sampler->vocabulary;
  double border = cuts_k ? treadle_cut_largest(sampler->logits, sampler->vocabulary, s->top_k,
                                               (double *)(void *)sampler->work)
                         : -INFINITY;
  /* Min-p before top-k and top-k before min-p leave the same: one keeps all above a border, and so does the other. */
  int64_t count = gather(sampler, border);
  treadle_exponentials(sampler->weights, sampler->logits, largest, 1 / s->temperature, count);
  if (s->min_p > 0) count = cut_min(sampler, count, s->min_p);
  if (s->top_p < 1) count = cut_top_p(sampler, count, largest, s);
  *candidates_p = (treadle_candidates){.ids = sampler->ids,
                                       .weights = sampler->weights,
                                       .count = count,
                                       .total = treadle_cut_sum(sampler->weights, count)};
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
  if (treadle_sampling_is_greedy(row->sampling) && !has_penalties(row) && row->banned_count == 0) {
    float largest = 0;
    int32_t best = 0;
    TRY(find_largest(row->logits, sampler->vocabulary, &largest));
    if (largest > -INFINITY) {
      while (row->logits[best] != largest) best++;
      *token_p = best;
      return TREADLE_OK;
    }
  }
  TRY(treadle_sampler_keep(sampler, row, &candidates));
  *token_p = treadle_sampler_pick(&candidates, uniform);
out:
  return status;
}
