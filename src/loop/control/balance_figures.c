/* What surrounds a division of rows: their work before it, and the way back and the sums of ranks after it. */
#include "base/alloc.h"
#include "base/argument.h"
#include "base/checked.h"
#include "base/limits.h"
#include "base/sized.h"
#include "control/balance.h"

/* Of a token in the layers of a model, in units in which it costs 1 to attend to one other token (verl's number for a
 * model of 7B). */
#define WORK_OF_TOKEN INT64_C(24576)

treadle_status treadle_balance_workload(const int64_t *lengths, size_t count, int64_t *loads) {
  if (count) TREADLE_NEED(lengths);
  if (count) TREADLE_NEED(loads);
  for (size_t i = 0; i < count; i++) {
    int64_t factor, load;
    if (!treadle_add_fits(lengths[i], WORK_OF_TOKEN, &factor) ||
        !treadle_mul_fits(lengths[i], factor, &load))
      REFUSE("row %zu has %lld tokens: 0 or more, whose work of %lld s + s^2 has 64 bits", i,
             (long long)lengths[i], (long long)WORK_OF_TOKEN);
    loads[i] = load;
  }
  return TREADLE_OK;
}

treadle_status treadle_balance_invert(const int64_t *order, size_t count, int64_t *inverse) {
  if (count > TREADLE_MAX_ROWS) REFUSE("%zu rows; at most %lld", count, (long long)TREADLE_MAX_ROWS);
  if (count) TREADLE_NEED(order);
  if (count) TREADLE_NEED(inverse);
  if (order == inverse && count) REFUSE("an order cannot be inverted in its own memory");
  for (size_t i = 0; i < count; i++) inverse[i] = -1;
  for (size_t i = 0; i < count; i++) {
    int64_t row = order[i];
    if (row < 0 || row >= (int64_t)count)
      REFUSE("place %zu of the order has row %lld; there are %zu", i, (long long)row, count);
    if (inverse[row] >= 0)
      REFUSE("places %lld and %zu of the order both have row %lld", (long long)inverse[row], i,
             (long long)row);
    inverse[row] = (int64_t)i;
  }
  return TREADLE_OK;
}

/* ---- Figures ---- */

/* The smallest and the largest sum of lengths over runs of rows: counts [parts], or all of `each`; order NULL: their own. */
static void find_ends(const int64_t *lengths, const int64_t *order, const int64_t *counts, int64_t each,
                      size_t parts, int64_t ends_p[2]) {
  int64_t at = 0;
  for (size_t p = 0; p < parts; p++) {
    int64_t sum = 0;
    for (int64_t end = at + (counts ? counts[p] : each); at < end; at++)
      sum += lengths[order ? order[at] : at];
    if (p == 0 || sum < ends_p[0]) ends_p[0] = sum;
    if (p == 0 || sum > ends_p[1]) ends_p[1] = sum;
  }
}

static treadle_status check_counts(const int64_t *counts, size_t parts, size_t count) {
  int64_t left = (int64_t)count;
  for (size_t p = 0; p < parts; p++) {
    if (counts[p] < 0 || counts[p] > left)
      REFUSE("part %zu has %lld rows; %lld of %zu are left", p, (long long)counts[p], (long long)left,
             count);
    left -= counts[p];
  }
  if (left) REFUSE("the parts lack %lld of %zu rows", (long long)left, count);
  return TREADLE_OK;
}

treadle_status treadle_balance_get_figures(const int64_t *lengths, size_t count, const int64_t *order,
                                           const int64_t *counts, size_t parts,
                                           treadle_balance_figures *figures_p) {
  treadle_status status;
  int64_t *inverse = NULL, sum, before[2] = {0}, after[2] = {0};
  TREADLE_NEED_SIZED(figures_p);
  TREADLE_NEED(lengths);
  TREADLE_NEED(order);
  TREADLE_NEED(counts);
  if (parts == 0 || count == 0 || count > TREADLE_MAX_ROWS || count % parts) /* verl's words */
    REFUSE("only support equal chunk: %zu rows do not divide into %zu parts", count, parts);
  TRY(treadle_balance_sum("lengths", lengths, count, &sum));
  TRY(check_counts(counts, parts, count));
  inverse = treadle_alloc_array(count, sizeof *inverse);
  if (!inverse) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the order of %zu rows", count));
  TRY(treadle_balance_invert(order, count, inverse)); /* it has each row once */
  find_ends(lengths, NULL, NULL, (int64_t)(count / parts), parts, before);
  find_ends(lengths, order, counts, 0, parts, after);
  const treadle_balance_figures figures = {.struct_size = sizeof figures,
                                           .min = before[0],
                                           .max = before[1],
                                           .minmax_diff = before[1] - before[0],
                                           .balanced_min = after[0],
                                           .balanced_max = after[1],
                                           .mean = (double)sum / (double)parts};
  TREADLE_GIVE(figures_p, &figures);
out:
  treadle_free(inverse);
  return status;
}
