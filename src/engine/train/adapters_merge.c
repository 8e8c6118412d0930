/* Merged matrices, by tiles of outer products (nn/outer.h): an element of B A is a chain over rank, as adapter/merge.c has it. */
#include "train/adapters.h"

#include "base/dtype.h"

#include <string.h>

static const treadle_outer_ops *ops_of(const treadle_train_adapters *a) {
  return treadle_outer_ops_for(a->back->pass->options.kernels);
}

static int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

int64_t treadle_train_panel_values(const treadle_train_adapters *a) {
  const treadle_outer_ops *ops = ops_of(a);
  return round_up(a->widest, ops->columns) * round_up(a->adapter->rank, ops->rows);
}

typedef struct merging {
  const treadle_train_adapters *a;
  const treadle_train_target *target;
  const treadle_weight *w;
  const treadle_outer_ops *ops;
} merging;

static const float *window_of(const treadle_train_adapters *a) {
  return (const float *)(const void *)a->windows->trained;
}

/* A in panels: [panel][rank][columns of a tile]. */
static void pack(void *context, int32_t index, int32_t count) {
  const merging *m = context;
  const int64_t width = m->ops->columns, columns = m->w->column_count, rank = m->a->adapter->rank;
  const int64_t all = (columns + width - 1) / width, end = all * (index + 1) / count;
  const float *from = window_of(m->a) + m->target->at_a;
  for (int64_t panel = all * index / count; panel < end; panel++) {
    float *to = m->a->panels + panel * rank * width;
    const int64_t first = panel * width, some = columns - first < width ? columns - first : width;
    for (int64_t k = 0; k < rank; k++, to += width) {
      memcpy(to, from + k * columns + first, (size_t)some * sizeof *to);
      if (some < width) memset(to + some, 0, (size_t)(width - some) * sizeof *to);
    }
  }
}

/* Row `row` of those here, before and after. */
static const char *base_row(const merging *m, int64_t row) {
  const int64_t each = (int64_t)treadle_dtype_bytes(m->w->dtype);
  int32_t s = 0;
  while (row >= m->target->base[s].rows) row -= m->target->base[s++].rows;
  return (const char *)treadle_pass_at(m->a->back->pass, &m->target->base[s]) +
         row * m->target->base[s].stride * each;
}

static void merge_tile(const merging *m, int64_t row, int64_t rows, const float *b) {
  const treadle_row_ops *ops = m->a->back->pass->row_ops;
  const int64_t width = m->ops->columns, columns = m->w->column_count, rank = m->a->adapter->rank;
  const int64_t each = (int64_t)treadle_dtype_bytes(m->w->dtype);
  float sums[TREADLE_OUTER_ROWS_MOST * TREADLE_OUTER_COLUMNS_MOST], line[TREADLE_OUTER_COLUMNS_MOST];
  const char *from[TREADLE_OUTER_ROWS_MOST];
  char *to = m->a->merged + m->target->merged[0].at + (size_t)(row * columns * each);
  for (int64_t i = 0; i < rows; i++) from[i] = base_row(m, row + i);
  for (int64_t first = 0; first < columns; first += width) {
    const int64_t some = columns - first < width ? columns - first : width;
    m->ops->tile(sums, width, false, b, m->a->panels + first * rank, rank);
    for (int64_t i = 0; i < rows; i++) {
      ops->widen(line, from[i] + first * each, m->w->dtype, some);
      ops->add_scaled(line, sums + i * width, m->a->adapter->scale, some);
      ops->narrow(to + (i * columns + first) * each, m->w->dtype, line, some);
    }
  }
}

/* Each thread has some tiles of rows. */
static void merge(void *context, int32_t index, int32_t count) {
  const merging *m = context;
  const int64_t tile = m->ops->rows, rank = m->a->adapter->rank, all = (m->w->row_count + tile - 1) / tile;
  const float *own = window_of(m->a) + m->target->at_b;
  float b[TREADLE_ADAPTER_RANK_MOST * TREADLE_OUTER_ROWS_MOST];
  for (int64_t number = all * index / count; number < all * (index + 1) / count; number++) {
    const int64_t row = number * tile, rows = m->w->row_count - row < tile ? m->w->row_count - row : tile;
    for (int64_t k = 0; k < rank; k++)
      for (int64_t i = 0; i < tile; i++) b[k * tile + i] = i < rows ? own[(row + i) * rank + k] : 0;
    merge_tile(m, row, rows, b);
  }
}

static void merge_unit(treadle_train_adapters *a, int32_t unit) {
  for (int role = 0; role < TREADLE_ROLES; role++) {
    merging m = {.a = a, .target = &a->targets[unit][role], .ops = ops_of(a)};
    if (m.target->number < 0) continue;
    m.w = treadle_train_target_weight(a, unit, role);
    a->present = unit;
    for (int32_t s = 0; s < m.w->segment_count; s++) m.target->merged[s].copy = a->merged;
    treadle_team_run(a->back->pass->team, pack, &m);
    treadle_team_run(a->back->pass->team, merge, &m);
  }
}

void treadle_train_merge(treadle_train_adapters *a, int32_t unit) {
  if (!a) return;
  if (!a->base_alone && a->present != unit) merge_unit(a, unit);
  if (unit >= a->back->transformer->layers || a->renewed == unit) return;
  treadle_pass_renew_layer(a->back->pass, unit);
  a->renewed = unit;
}

void treadle_train_forget_merged(treadle_train_adapters *a) {
  if (a) a->present = a->renewed = -1;
}
