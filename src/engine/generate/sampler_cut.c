/* Where top-k and top-p cut.
 *
 * Top-k: one pass keeps the values above the largest border known so far; when their buffer is full, a selection leaves the k
 * largest, and the border rises. With few candidates nearly all values cost one comparison.
 *
 * Top-p: weights so small that all of them together may be dropped are dropped first: of a vocabulary few are left. Those fall into
 * buckets by logit; whole buckets are dropped from the low end, as long as their sum allows, and the one in which the border
 * lies is sorted. */
#include "generate/sampler_cut.h"

#include "base/hash.h"

#include <math.h>
#include <stdlib.h>

enum { SPARE = 1024, BUCKETS = 2048, LANES = 8 };
#define MOST_DISTANCE 64.0 /* of buckets: weights are below 2^-92 */

/* ---- Top-k ---- */

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

double treadle_cut_border(const double *values, int64_t count, int64_t k, double *work) {
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

/* ---- Sums ---- */

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

void treadle_cut_below(treadle_cut_row *row, double least, int32_t *ids) {
  int64_t kept = 0;
  for (int64_t i = 0; i < row->count; i++) {
    double weight = row->weights[i], logit = row->logits[i];
    bool stays = weight >= least;
    ids[kept] = row->ids[i];
    row->logits[kept] = logit;
    row->weights[kept] = weight;
    kept += stays; /* no branch: where weights are random the processor would guess wrong */
  }
  row->ids = ids;
  row->count = kept;
}

void treadle_cut_count(treadle_cut_row *row, int64_t most, int32_t *ids, double *work) {
  double border = treadle_cut_border(row->logits, row->count, most, work);
  int64_t kept = 0, equal = most; /* equal: how many at the border stay */
  for (int64_t i = 0; i < row->count; i++) equal -= row->logits[i] > border;
  for (int64_t i = 0; i < row->count; i++) {
    double logit = row->logits[i];
    if (!(logit > border || (logit == border && equal-- > 0))) continue;
    ids[kept] = row->ids[i];
    row->logits[kept] = logit;
    row->weights[kept++] = row->weights[i];
  }
  row->ids = ids;
  row->count = kept;
}

/* ---- Top-p ---- */

/* Ascending logits; of equal ones, descending ids. */
static int compare(const void *left, const void *right) {
  const treadle_candidate *a = left, *b = right;
  if (a->logit != b->logit) return a->logit < b->logit ? -1 : 1;
  return (a->id < b->id) - (a->id > b->id);
}

/* Which bucket a logit falls into: bucket 0 has the largest. */
typedef struct treadle_cut_buckets {
  double largest, step; /* step: buckets of one logit */
} treadle_cut_buckets;

static int bucket_of(const treadle_cut_buckets *buckets, double logit) {
  double place = (buckets->largest - logit) * buckets->step;
  return place < BUCKETS - 1 ? (int)place : BUCKETS - 1;
}

static treadle_cut_buckets make_buckets(const treadle_cut_row *row, double scale) {
  double largest = row->logits[0], least = row->logits[0];
  for (int64_t i = 1; i < row->count; i++) {
    largest = row->logits[i] > largest ? row->logits[i] : largest;
    least = row->logits[i] < least ? row->logits[i] : least;
  }
  double distance = (largest - least) * scale < MOST_DISTANCE ? largest - least : MOST_DISTANCE / scale;
  return (treadle_cut_buckets){largest, distance > 0 ? (BUCKETS - 1) / distance : 0};
}

/* The bucket with the border. *below_p: the sum of the weights below it, to begin with that of those dropped before. */
static int find_bucket(const treadle_cut_row *row, const treadle_cut_buckets *buckets, double most,
                       double *below_p) {
  double mass[BUCKETS] = {0};
  for (int64_t i = 0; i < row->count; i++) mass[bucket_of(buckets, row->logits[i])] += row->weights[i];
  int bucket = BUCKETS - 1;
  while (bucket > 0 && *below_p + mass[bucket] <= most) *below_p += mass[bucket--];
  return bucket;
}

/* The first that stays. */
static treadle_candidate find_first(const treadle_cut_row *row, double total, double top_p, double dropped,
                                    const treadle_cut_buckets *buckets, treadle_candidate *work) {
  double most = 1 - top_p, below = dropped;
  int border = find_bucket(row, buckets, most * total, &below);
  int64_t count = 0;
  for (int64_t i = 0; i < row->count; i++)
    if (bucket_of(buckets, row->logits[i]) == border)
      work[count++] = (treadle_candidate){row->logits[i], row->ids[i], row->weights[i]};
  qsort(work, (size_t)count, sizeof *work, compare);
  double sum = below / total;
  for (int64_t i = 0; i < count - 1; i++) {
    sum += work[i].weight / total;
    if (!(sum <= most)) return work[i];
  }
  return work[count - 1];
}

void treadle_cut_mass(treadle_cut_row *row, double top_p, double scale, int32_t *ids,
                      treadle_candidate *work) {
  double total = treadle_cut_sum(row->weights, row->count);
  /* This many weights of this size are half of what may be dropped. */
  double small = (1 - top_p) * total / (2 * (double)row->count);
  int64_t count = row->count;
  treadle_cut_below(row, small, ids);
  double dropped = row->count == count ? 0 : total - treadle_cut_sum(row->weights, row->count);
  treadle_cut_buckets buckets = make_buckets(row, scale);
  treadle_candidate first = find_first(row, total, top_p, dropped, &buckets, work);
  int64_t kept = 0;
  for (int64_t i = 0; i < row->count; i++) {
    double logit = row->logits[i];
    if (!(logit > first.logit || (logit == first.logit && ids[i] <= first.id))) continue;
    ids[kept] = ids[i];
    row->logits[kept] = logit;
    row->weights[kept++] = row->weights[i];
  }
  row->count = kept;
}
