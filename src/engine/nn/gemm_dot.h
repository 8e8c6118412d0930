/* The loops that kernels of vectors share (gemm_avx2.c, gemm_avx512.c): lanes along the inner dimension, so that rows of weights are
 * read as they lie, and one row of x is added in the same order as many.
 *
 * A file that includes this has defined
 *   DOT_CODE, DOT_PART      attributes of functions, and of those that are made part of their callers
 *   dot_vec                 a register of DOT_LANES fp32; dot_zero, dot_load, dot_store, dot_add_product(w, x, sum)
 *   DOT_COLUMNS             rows of weights that are taken together: a panel, 4 or 8
 *   DOT_NEAR                bytes of packed x that are to stay in the second-level cache while panels go by
 *   dot_widen(v, from, dtype)       the weights of one step as vectors; how many: dot_vectors(dtype)
 *   dot_pack_step(to, from, inner)  the x of one step, rounded where it is to be, in the same order of elements
 *   dot_reduce(v[DOT_COLUMNS])      the sums over lanes of as many vectors, as one dot_out; dot_out_load, dot_out_store, dot_out_add
 *
 * A leaf is cut into steps of dot_vectors * DOT_LANES elements. Where that does not divide it, the last step is the last elements of the
 * leaf, of which those that an earlier step had are 0 in packed x; a leaf shorter than a step is followed by zeros. So every
 * element is added by the same instructions.
 *
 * Up to three rows of x are taken together. Few rows: weights are widened in registers. Many: those of a panel are widened
 * once, a run of the leaf at a time, into a buffer that stays in the nearest cache (`wide`), and all rows go over it. */
#include "nn/gemm_parts.h"

#include <immintrin.h>

enum {
  DOT_ROWS = 3,                 /* rows of x together */
  DOT_FEW = 12,                 /* rows of x, from which on weights are widened in memory */
  DOT_MANY = 96,                /* rows of x at most, before the next panel */
  DOT_RUN = 4096 / DOT_COLUMNS, /* elements of a row of weights that are widened at a time: 16 KiB in all */
};

/* ---- Packed x: [row][leaf][step][lanes of its vectors], rows a little apart from powers of two ---- */

typedef struct dot_form {
  int64_t step, steps; /* elements of a step; steps of a leaf */
  int64_t leaf, row;   /* elements */
} dot_form;

static dot_form dot_form_of(treadle_gemm_inner inner) {
  dot_form f = {.step = dot_vectors(inner.dtype) * DOT_LANES};
  f.steps = (inner.leaf + f.step - 1) / f.step;
  f.leaf = f.steps * f.step;
  f.row = f.leaf * inner.range.leaves + 16;
  return f;
}

static bool dot_takes(treadle_dtype dtype, int32_t leaf) {
  return (dtype == TREADLE_BF16 || dtype == TREADLE_FP32) && leaf > 0;
}

static size_t dot_packed_bytes(treadle_gemm_inner inner, int64_t rows) {
  return (size_t)(dot_form_of(inner).row * rows) * sizeof(float);
}

/* Where a step begins in its leaf. */
static inline int64_t dot_step_at(const dot_form *f, int64_t leaf, int64_t step) {
  int64_t at = step * f->step;
  return at + f->step <= leaf ? at : leaf > f->step ? leaf - f->step : 0;
}

DOT_CODE static void dot_pack_leaf(float *to, const float *x, const dot_form *f, treadle_gemm_inner inner) {
  for (int64_t step = 0; step < f->steps; step++) {
    int64_t at = dot_step_at(f, inner.leaf, step), done = step * f->step - at;
    if (done == 0 && at + f->step <= inner.leaf) {
      dot_pack_step(to + step * f->step, x + at, inner);
      continue;
    }
    float part[2 * DOT_LANES] = {0};
    for (int64_t k = done; k < f->step && at + k < inner.leaf; k++) part[k] = x[at + k];
    dot_pack_step(to + step * f->step, part, inner);
  }
}

DOT_CODE static void dot_pack(const treadle_gemm_source *source, void *packed, int32_t index,
                              int32_t count) {
  dot_form f = dot_form_of(source->inner);
  int64_t row, end = treadle_gemm_part(source->rows, index, count, &row);
  for (; row < end; row++)
    for (int32_t leaf = 0; leaf < source->inner.range.leaves; leaf++)
      dot_pack_leaf((float *)packed + row * f.row + leaf * f.leaf,
                    source->x + row * source->stride + (int64_t)leaf * source->inner.leaf, &f,
                    source->inner);
}

/* ---- A run of a leaf: the sums of a panel and up to three rows, lane by lane ---- */

typedef struct dot_sums {
  dot_vec of[DOT_COLUMNS][DOT_ROWS];
} dot_sums;

/* Widened weights: [vector][DOT_COLUMNS][lanes]. */
DOT_PART void dot_add_wide(dot_sums *sums, const float *w, const float *x, int64_t x_row, int64_t vectors,
                           int rows) {
  dot_sums s = *sums;
  for (int64_t v = 0; v < vectors; v++, x += DOT_LANES, w += DOT_COLUMNS * DOT_LANES) {
    dot_vec at[DOT_ROWS];
#pragma GCC unroll 3
    for (int row = 0; row < rows; row++) at[row] = dot_load(x + row * x_row);
#pragma GCC unroll 8
    for (int column = 0; column < DOT_COLUMNS; column++) {
      dot_vec wide = dot_load(w + column * DOT_LANES);
      __asm__("" : "+v"(wide)); /* loaded once */
#pragma GCC unroll 3
      for (int row = 0; row < rows; row++)
        s.of[column][row] = dot_add_product(wide, at[row], s.of[column][row]);
    }
  }
  *sums = s;
}

/* What the loops of one panel have in common. */
typedef struct dot_job {
  const treadle_gemm_product *p;
  dot_form f;
  treadle_gemm_panel panel;
  const float *x; /* packed, of the first row of this pass */
  float *y;       /* of the first row, column and node */
  int64_t rows;   /* of this pass */
  int32_t leaf;   /* of the range */
  treadle_leaf_step step;
  int64_t begin, end; /* steps of the leaf that have been widened */
  treadle_gemm_ahead ahead;
  int64_t lines; /* of the panel to come, for each leaf of this one */
} dot_job;

/* Row `column` of the panel; the last one stands for those that it lacks. */
DOT_PART const char *dot_row(const dot_job *j, int64_t column) {
  int64_t row = treadle_smaller(column, j->panel.rows - 1);
  int64_t leaf = (int64_t)j->leaf * j->p->inner.leaf * (j->p->inner.dtype == TREADLE_BF16 ? 2 : 4);
  return j->panel.weights + row * j->panel.stride + leaf;
}

/* All of a leaf that is a step or more, without a buffer. */
DOT_PART void dot_add_leaf(dot_sums *sums, const dot_job *j, const float *x, treadle_dtype dtype,
                           int rows) {
  const int vectors = dot_vectors(dtype);
  const int64_t each = dtype == TREADLE_BF16 ? 2 : 4;
  dot_sums s = *sums;
  const char *w[DOT_COLUMNS];
#pragma GCC unroll 8
  for (int column = 0; column < DOT_COLUMNS; column++) w[column] = dot_row(j, column);
  for (int64_t step = 0; step < j->f.steps; step++, x += vectors * DOT_LANES) {
    int64_t at = dot_step_at(&j->f, j->p->inner.leaf, step) * each;
#pragma GCC unroll 8
    for (int column = 0; column < DOT_COLUMNS; column++) {
      dot_vec wide[2];
      dot_widen(wide, w[column] + at, dtype);
      _mm_prefetch(w[column] + at + DOT_COLUMNS * j->panel.stride, _MM_HINT_T0);
#pragma GCC unroll 2
      for (int v = 0; v < vectors; v++)
#pragma GCC unroll 3
        for (int row = 0; row < rows; row++)
          s.of[column][row] =
              dot_add_product(wide[v], dot_load(x + row * j->f.row + v * DOT_LANES), s.of[column][row]);
    }
  }
  *sums = s;
}

/* ---- Sums of leaves: those of a row of x and a panel, DOT_COLUMNS numbers, are a row here ---- */

typedef struct dot_stack {
  float waiting[TREADLE_LEAF_HEIGHT_MAX][DOT_MANY][DOT_COLUMNS];
  int32_t height;
} dot_stack;

DOT_PART void dot_write(const dot_job *j, int64_t row, dot_out value) {
  float *y = j->y + row * j->p->stride, all[DOT_COLUMNS];
  if (j->panel.rows == DOT_COLUMNS) {
    dot_out_store(y, value);
    return;
  }
  dot_out_store(all, value);
  memcpy(y, all, (size_t)j->panel.rows * sizeof *y);
}

/* The sums of a leaf go where the tree wants them. */
DOT_PART void dot_finish(const dot_job *j, dot_stack *stack, const dot_sums *s, int64_t first, int rows) {
  dot_out value[DOT_ROWS];
  int32_t height = stack->height;
#pragma GCC unroll 3
  for (int row = 0; row < rows; row++) {
    dot_vec v[DOT_COLUMNS];
#pragma GCC unroll 8
    for (int column = 0; column < DOT_COLUMNS; column++) v[column] = s->of[column][row];
    value[row] = dot_reduce(v);
  }
  for (int32_t merge = 0; merge < j->step.merges; merge++) {
    height--;
#pragma GCC unroll 3
    for (int row = 0; row < rows; row++)
      value[row] = dot_out_add(dot_out_load(stack->waiting[height][first + row]), value[row]);
  }
#pragma GCC unroll 3
  for (int row = 0; row < rows; row++) {
    if (j->step.ends)
      dot_write(j, first + row, value[row]);
    else
      dot_out_store(stack->waiting[height][first + row], value[row]);
  }
}

/* ---- A panel, few rows ---- */

DOT_PART void dot_few_rows(const dot_job *j, dot_stack *stack, int64_t first, treadle_dtype dtype,
                           int rows) {
  dot_sums s;
#pragma GCC unroll 24
  for (int i = 0; i < DOT_COLUMNS * DOT_ROWS; i++) s.of[i / DOT_ROWS][i % DOT_ROWS] = dot_zero();
  dot_add_leaf(&s, j, j->x + first * j->f.row + j->leaf * j->f.leaf, dtype, rows);
  dot_finish(j, stack, &s, first, rows);
}

DOT_PART void dot_few_typed(const dot_job *j, dot_stack *stack, treadle_dtype dtype) {
  for (int64_t first = 0; first < j->rows; first += DOT_ROWS) {
    if (j->rows - first >= 3)
      dot_few_rows(j, stack, first, dtype, 3);
    else if (j->rows - first == 2)
      dot_few_rows(j, stack, first, dtype, 2);
    else
      dot_few_rows(j, stack, first, dtype, 1);
  }
}

DOT_CODE static void dot_few(const dot_job *j, dot_stack *stack) {
  if (j->p->inner.dtype == TREADLE_BF16)
    dot_few_typed(j, stack, TREADLE_BF16);
  else
    dot_few_typed(j, stack, TREADLE_FP32);
}

/* ---- A panel, many rows ---- */

typedef struct dot_buffer {
  _Alignas(64) float wide[DOT_RUN * DOT_COLUMNS];
  _Alignas(64) float sums[DOT_MANY][DOT_COLUMNS *
                                    DOT_LANES]; /* between the runs of a leaf; rows in groups of three */
} dot_buffer;

DOT_PART void dot_store_wide(float *wide, int column, const char *from, treadle_dtype dtype) {
  dot_vec v[2];
  dot_widen(v, from, dtype);
#pragma GCC unroll 2
  for (int i = 0; i < dot_vectors(dtype); i++)
    dot_store(wide + (i * DOT_COLUMNS + column) * DOT_LANES, v[i]);
}

/* A leaf that is shorter than a step, followed by zeros. */
DOT_PART void dot_widen_short(float *wide, const dot_job *j, treadle_dtype dtype) {
  for (int column = 0; column < DOT_COLUMNS; column++) {
    char part[2 * DOT_LANES * sizeof(float)] = {0};
    memcpy(part, dot_row(j, column), (size_t)(j->p->inner.leaf * (dtype == TREADLE_BF16 ? 2 : 4)));
    dot_store_wide(wide, column, part, dtype);
  }
}

/* Steps [begin, end) of the leaf. */
DOT_PART void dot_widen_run(float *wide, const dot_job *j, treadle_dtype dtype) {
  const int64_t each = dtype == TREADLE_BF16 ? 2 : 4, last = j->p->inner.leaf - j->f.step;
  const char *w[DOT_COLUMNS];
  if (last < 0) {
    dot_widen_short(wide, j, dtype);
    return;
  }
#pragma GCC unroll 8
  for (int column = 0; column < DOT_COLUMNS; column++) w[column] = dot_row(j, column);
  for (int64_t step = j->begin; step < j->end;
       step++, wide += dot_vectors(dtype) * DOT_COLUMNS * DOT_LANES) {
    int64_t at = treadle_smaller(step * j->f.step, last) * each;
#pragma GCC unroll 8
    for (int column = 0; column < DOT_COLUMNS; column++)
      dot_store_wide(wide, column, w[column] + at, dtype);
  }
}

/* Those steps of up to three rows: from the sums of the run before to those of the next one, or of the leaf. */
DOT_PART void dot_add_run(const dot_job *j, dot_stack *stack, dot_buffer *b, int64_t first, int rows) {
  dot_sums s;
  float *kept = b->sums[first];
  const float *x = j->x + first * j->f.row + j->leaf * j->f.leaf + j->begin * j->f.step;
#pragma GCC unroll 24
  for (int i = 0; i < DOT_COLUMNS * DOT_ROWS; i++)
    s.of[i / DOT_ROWS][i % DOT_ROWS] = j->begin ? dot_load(kept + i * DOT_LANES) : dot_zero();
  dot_add_wide(&s, b->wide, x, j->f.row, (j->end - j->begin) * j->f.step / DOT_LANES, rows);
  if (j->end == j->f.steps) {
    dot_finish(j, stack, &s, first, rows);
    return;
  }
#pragma GCC unroll 24
  for (int i = 0; i < DOT_COLUMNS * DOT_ROWS; i++)
    dot_store(kept + i * DOT_LANES, s.of[i / DOT_ROWS][i % DOT_ROWS]);
}

DOT_CODE static void dot_many(dot_job *j, dot_stack *stack, dot_buffer *b) {
  for (j->begin = 0; j->begin < j->f.steps; j->begin = j->end) {
    j->end = treadle_smaller(j->begin + DOT_RUN / j->f.step, j->f.steps);
    if (j->p->inner.dtype == TREADLE_BF16)
      dot_widen_run(b->wide, j, TREADLE_BF16);
    else
      dot_widen_run(b->wide, j, TREADLE_FP32);
    for (int64_t first = 0; first < j->rows; first += DOT_ROWS) {
      treadle_gemm_fetch(&j->ahead, j->lines);
      if (j->rows - first >= 3)
        dot_add_run(j, stack, b, first, 3);
      else if (j->rows - first == 2)
        dot_add_run(j, stack, b, first, 2);
      else
        dot_add_run(j, stack, b, first, 1);
    }
  }
}

/* ---- The product ---- */

/* One panel of a pass. */
DOT_CODE static void dot_panel(dot_job *j, dot_stack *stack, dot_buffer *b) {
  const treadle_gemm_product *p = j->p;
  for (j->leaf = 0; j->leaf < p->inner.range.leaves; j->leaf++) {
    j->step = treadle_leaf_step_of(p->inner.range, p->inner.range.first + j->leaf);
    if (j->rows < DOT_FEW && p->inner.leaf >= j->f.step)
      dot_few(j, stack);
    else
      dot_many(j, stack, b);
    stack->height += j->step.ends ? -j->step.merges : 1 - j->step.merges;
    if (j->step.ends) j->y += p->node_stride;
  }
}

DOT_CODE static void dot_run(const treadle_gemm_product *p, int32_t index, int32_t count) {
  dot_job j = {.p = p, .f = dot_form_of(p->inner)};
  dot_stack stack;
  dot_buffer buffer;
  stack.height = 0;
  int64_t pass = DOT_NEAR / (j.f.row * (int64_t)sizeof(float)) / DOT_ROWS * DOT_ROWS;
  pass = pass < DOT_MANY / 4 ? DOT_MANY / 4 : treadle_smaller(pass, DOT_MANY);
  for (int64_t row = 0; row < p->rows; row += pass) {
    treadle_gemm_walk walk = treadle_gemm_panels(p, DOT_COLUMNS, index, count);
    j.rows = treadle_smaller(p->rows - row, pass);
    int64_t groups = (j.rows + DOT_ROWS - 1) / DOT_ROWS;
    j.x = (const float *)p->packed + row * j.f.row;
    while (treadle_gemm_next(&walk, &j.panel)) {
      j.y = p->y + row * p->stride + j.panel.column;
      j.ahead = treadle_gemm_ahead_of(&j.panel, p->inner);
      j.lines = j.ahead.rows * (j.ahead.bytes / 64 + 1) / (p->inner.range.leaves * groups) + 1;
      dot_panel(&j, &stack, &buffer);
    }
  }
}
