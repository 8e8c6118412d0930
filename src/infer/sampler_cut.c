/* Where top-k and top-p cut.
 *
 * Top-k: one pass keeps the values above the largest border known so far; when their buffer is full, a selection leaves the k
 * largest, and the border rises. With few candidates nearly all values cost one comparison.
 *
 * Top-p: candidates fall into buckets by their distance to the largest logit. Whole buckets are dropped from the far end, as long as
 * their sum allows; the one in which the border lies is sorted. */
#include "infer/sampler_cut.h"

#include "base/hash.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

enum { SPARE = 1024, BUCKETS = 2048, BUCKETS_OF_ONE = 32, LANES = 8 };

/* Puts the k-th largest at work[k - 1], those that are not smaller before it. The choice of pivots changes no result. */
static void select_largest(double *work, int64_t count, int64_t k) {
  int64_t low = 0, high = count - 1, wanted = k - 1;
  while (low < high) {
    double pivot =
        work[low + (int64_t)(treadle_mix64((uint64_t)(high - low)) % (uint64_t)(high - low + 1))];
    int64_t i = low, j = high;
    while (i <= j) {
      while (work[i] > pivot) i++;
      while (work[j] < pivot) j--;
      if (i > j) break;
      double value = work[i];
      work[i++] = work[j];
      work[j--] = value;
    }
    if (wanted <= j)
      high = j;
    else if (wanted >= i)
      low = i;
    else
      return;
  }
}

double treadle_cut_largest(const double *values, int64_t count, int64_t k, double *work) {
  int64_t room = 2 * k + SPARE, kept = 0;
  double border = -INFINITY;
  for (int64_t i = 0; i < count; i++) {
    if (!(values[i] > border)) continue;
    work[kept++] = values[i];
    if (kept < room) continue;
    select_largest(work, kept, k);
    border = work[k - 1];
    kept = k;
  }
  if (kept < k) return -INFINITY;
  select_largest(work, kept, k);
  return work[k - 1];
}

double treadle_cut_sum_block(const double *weights, int64_t count) {
  double lane[LANES] = {0};
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES)
    for (int k = 0; k < LANES; k++) lane[k] += weights[i + k];
  for (int k = 0; i < count; i++, k++) lane[k] += weights[i];
  for (int half = LANES / 2; half > 0; half /= 2)
    for (int k = 0; k < half; k++) lane[k] += lane[k + half];
  return lane[0];
}

double treadle_cut_sum(const double *weights, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; i += TREADLE_CUT_BLOCK)
    sum +=
        treadle_cut_sum_block(weights + i, count - i < TREADLE_CUT_BLOCK ? count - i : TREADLE_CUT_BLOCK);
  return sum;
}

/* ---- Top-p ---- */

/* Ascending logits; of equal ones, descending ids. */
static int compare(const void *left, const void *right) {
  const treadle_candidate *a = left, *b = right;
  if (a->logit != b->logit) return a->logit < b->logit ? -1 : 1;
  return (a->id < b->id) - (a->id > b->id);
}

static int bucket_of(const treadle_cut_row *row, int64_t i) {
  double distance = (row->largest - row->logits[i]) * row->scale * BUCKETS_OF_ONE;
  return distance < BUCKETS - 1 ? (int)distance : BUCKETS - 1;
}

/* The bucket with the border. *below_p: the sum of probabilities that lie behind it. */
static int find_bucket(const treadle_cut_row *row, double total, double most, double *below_p) {
  double mass[BUCKETS] = {0};
  bool filled[BUCKETS] = {0};
  for (int64_t i = 0; i < row->count; i++) {
    int bucket = bucket_of(row, i);
    mass[bucket] += row->weights[i];
    filled[bucket] = true;
  }
  double below = 0;
  int bucket = BUCKETS - 1;
  while (bucket > 0 && (!filled[bucket] || (below + mass[bucket]) / total <= most)) below += mass[bucket--];
  *below_p = below / total;
  return bucket; /* bucket 0 has the largest */
}

treadle_candidate treadle_cut_mass(const treadle_cut_row *row, double top_p, treadle_candidate *work) {
  double total = treadle_cut_sum(row->weights, row->count), most = 1 - top_p, sum = 0;
  int border = find_bucket(row, total, most, &sum);
  int64_t count = 0;
  for (int64_t i = 0; i < row->count; i++)
    if (bucket_of(row, i) == border)
      work[count++] = (treadle_candidate){row->logits[i], row->ids[i], row->weights[i]};
  qsort(work, (size_t)count, sizeof *work, compare);
  for (int64_t i = 0; i < count - 1; i++) {
    sum += work[i].weight / total;
    if (!(sum <= most)) return work[i];
  }
  return work[count - 1];
}
