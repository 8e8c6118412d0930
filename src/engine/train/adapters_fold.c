/* All adapters on each rank, and merged in place into the window of a rank of another layout, such as the one that generates. Elements are
 * those of adapters_merge.c, to the bit. */
#include "train/adapters_derived.h"
#include "train/trainer.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/dtype.h"

#include <string.h>

/* ---- Gathering ------------------------------------------------------------------------------------------------- */

/* The window of adapters of a rank. */
static const char *window_of(const treadle_train_adapters *a, const treadle_train_ranks *ranks,
                             int64_t rank) {
  if (rank == a->windows->rank) return a->windows->trained;
  return (const char *)treadle_board_part(ranks->board, (int)rank) + ranks->adapters_at;
}

static void take_cell(const treadle_train_adapters *a, const treadle_train_ranks *ranks,
                      const treadle_cell *cell, float *to, int64_t columns) {
  const treadle_layout *layout = a->windows->grad_layout;
  const int64_t own = treadle_cell_find(layout, cell, a->windows->rank), holder = own < 0 ? 0 : own;
  const int64_t *stride;
  const char *from = window_of(a, ranks, treadle_cell_rank(layout, cell, holder));
  from += treadle_cell_locate(layout, cell, holder, &stride);
  to += cell->box.start[0] * columns + cell->box.start[1];
  for (int64_t row = 0; row < cell->box.size[0]; row++, to += columns, from += stride[0])
    memcpy(to, from, (size_t)cell->box.size[1] * sizeof *to);
}

static treadle_status take_tensor(const treadle_train_adapters *a, const treadle_train_ranks *ranks,
                                  int32_t tensor, float *to) {
  const treadle_tensor *t = &a->adapter->model->tensors[tensor];
  const treadle_box whole = treadle_box_whole(t);
  treadle_cells cells = {0};
  treadle_status status;
  TRY(treadle_layout_cells(a->windows->grad_layout, tensor, &whole, &cells));
  for (size_t i = 0; i < cells.count; i++) take_cell(a, ranks, &cells.items[i], to, t->shape[1]);
out:
  treadle_array_release(&cells);
  return status;
}

/* Nobody reads before all have made their last step, and nobody goes on before all have read. */
treadle_status treadle_train_gather_adapters(const treadle_train_adapters *a,
                                             const treadle_train_ranks *ranks, float *all) {
  treadle_status status;
  TRY(treadle_train_agree(ranks, TREADLE_OK));
  for (int32_t i = 0; i < a->adapter->count && !status; i++) {
    const treadle_adapter_matrix *m = &a->adapter->matrices[i];
    status = take_tensor(a, ranks, m->a, all + m->at_a);
    if (!status) status = take_tensor(a, ranks, m->b, all + m->at_b);
  }
  TRY(treadle_train_agree(ranks, status));
out:
  return status;
}

/* ---- Merging --------------------------------------------------------------------------------------------------- */

typedef struct folding {
  const treadle_train_adapters *a;
  const treadle_adapter_matrix *matrix;
  const treadle_outer_ops *ops;
  const treadle_weight *w;
  const float *all;
  char *window;
  float *panels; /* of each thread: [rank, columns of a tile], then [rank, rows of a tile] */
} folding;

static int64_t panel_of(const folding *f) {
  return f->a->adapter->rank * (f->ops->columns + TREADLE_OUTER_ROWS_MOST);
}

/* Rows of the matrix from `row` on that follow each other at `to`; of each `some` columns. */
typedef struct fold_rows {
  int64_t row, count, some, stride; /* stride: bytes */
  char *to;
} fold_rows;

static void fold_tile(const folding *f, const float *panel, float *b, const fold_rows *r) {
  const treadle_row_ops *ops = f->a->back->pass->row_ops;
  const int64_t rank = f->a->adapter->rank, tile = f->ops->rows, width = f->ops->columns;
  const float *from = f->all + f->matrix->at_b + r->row * rank;
  float sums[TREADLE_OUTER_ROWS_MOST * TREADLE_OUTER_COLUMNS_MOST], line[TREADLE_OUTER_COLUMNS_MOST];
  char *to = r->to;
  for (int64_t k = 0; k < rank; k++)
    for (int64_t i = 0; i < tile; i++) b[k * tile + i] = i < r->count ? from[i * rank + k] : 0;
  f->ops->tile(sums, width, false, b, panel, rank);
  for (int64_t i = 0; i < r->count; i++, to += r->stride) {
    ops->widen(line, to, f->w->dtype, r->some);
    ops->add_scaled(line, sums + i * width, f->a->adapter->scale, r->some);
    ops->narrow(to, f->w->dtype, line, r->some);
  }
}

static void fold_panel(const folding *f, float *panel, int64_t first, int64_t some) {
  const int64_t rank = f->a->adapter->rank, width = f->ops->columns, tile = f->ops->rows;
  const int64_t each = (int64_t)treadle_dtype_bytes(f->w->dtype);
  const float *from = f->all + f->matrix->at_a + f->w->first_column + first;
  for (int64_t k = 0; k < rank; k++) {
    memcpy(panel + k * width, from + k * f->matrix->columns, (size_t)some * sizeof *panel);
    if (some < width) memset(panel + k * width + some, 0, (size_t)(width - some) * sizeof *panel);
  }
  for (int32_t s = 0; s < f->w->segment_count; s++) {
    const treadle_segment *segment = &f->w->segments[s];
    for (int64_t row = 0; row < segment->rows; row += tile) {
      const fold_rows rows = {.row = segment->first + row,
                              .count = segment->rows - row < tile ? segment->rows - row : tile,
                              .some = some,
                              .stride = segment->stride * each,
                              .to = f->window + segment->at + (row * segment->stride + first) * each};
      fold_tile(f, panel, panel + rank * width, &rows);
    }
  }
}

/* Each thread has some panels of columns. */
static void fold(void *context, int32_t index, int32_t count) {
  const folding *f = context;
  const int64_t width = f->ops->columns, columns = f->w->column_count;
  float *panel = f->panels + index * panel_of(f);
  for (int64_t first = index * width; first < columns; first += count * width)
    fold_panel(f, panel, first, columns - first < width ? columns - first : width);
}

static treadle_status fold_matrix(folding *f, const treadle_layout *layout, int64_t rank) {
  const treadle_pass *p = f->a->back->pass;
  treadle_arena arena = {0};
  treadle_weight w;
  treadle_status status;
  TRY(treadle_weight_find(layout, rank, f->matrix->tensor, -1, &arena, &w));
  f->w = &w;
  if (treadle_is_there(&w) && w.dtype != p->options.dtype)
    TRY(treadle_fail(
        TREADLE_REFUSED,
        "layout '%s' has %s in %s, and its adapter trains beside %s: merged values need one type",
        layout->text, layout->model->tensors[f->matrix->tensor].name, treadle_dtype_name(w.dtype),
        treadle_dtype_name(p->options.dtype)));
  if (treadle_is_there(&w)) treadle_team_run(p->team, fold, f);
  TRY(treadle_train_take_derived(p->team, layout, rank, &w, f->matrix->tensor, f->window));
out:
  treadle_arena_release(&arena);
  return status;
}

treadle_status treadle_train_fold_adapters(const treadle_train_adapters *a, const float *all,
                                           const treadle_layout *layout, int64_t rank, char *window) {
  const treadle_pass *p = a->back->pass;
  folding f = {.a = a, .ops = treadle_outer_ops_for(p->options.kernels), .all = all, .window = window};
  treadle_status status = TREADLE_OK;
  f.panels = treadle_alloc_array((size_t)(p->options.threads * panel_of(&f)), sizeof *f.panels);
  if (!f.panels) return treadle_fail(TREADLE_NO_MEMORY, "no memory for adapters");
  for (int32_t i = 0; i < a->adapter->count; i++) {
    f.matrix = &a->adapter->matrices[i];
    TRY(fold_matrix(&f, layout, rank));
  }
out:
  treadle_free(f.panels);
  return status;
}

/* ---- The calls ------------------------------------------------------------------------------------------------- */

static treadle_status need_all(const treadle_train_adapters *a, const char *what) {
  if (a && a->gathers) return TREADLE_OK;
  return treadle_fail(TREADLE_STATE, "%s: the trainer was made without %s", what,
                      a ? "lora_gather" : "lora_rank");
}

treadle_status treadle_trainer_gather_adapters(treadle_trainer *t) {
  treadle_status status;
  TREADLE_NEED(t);
  TRY(treadle_train_agree_on(&t->ranks, need_all(t->adapters, __func__),
                             &(treadle_group_call){.name = __func__}));
  TRY(treadle_train_gather_adapters(t->adapters, &t->ranks, t->adapters->all));
out:
  return status;
}

treadle_status treadle_trainer_merge_adapters(treadle_trainer *t, const treadle_layout *layout,
                                              int64_t rank, void *window) {
  treadle_status status;
  TREADLE_NEED(t);
  TREADLE_NEED(layout);
  TREADLE_NEED(window);
  TRY(need_all(t->adapters, __func__));
  if (rank < 0 || rank >= layout->ranks)
    REFUSE("treadle_trainer_merge_adapters: rank %lld of layout '%s', which has %lld", (long long)rank,
           layout->text, (long long)layout->ranks);
  if (layout->model->digest != t->windows.layout->model->digest)
    REFUSE("treadle_trainer_merge_adapters: layout '%s' is of another model", layout->text);
  TRY(treadle_train_fold_adapters(t->adapters, t->adapters->all, layout, rank, window));
out:
  return status;
}
