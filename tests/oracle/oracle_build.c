/* Building a rank: tensors are added one by one, and each of their elements is set once. */
#include "oracle/oracle_parts.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNSET = -2 };

oracle_place oracle_in(const oracle_place *at, int64_t layer, const char *format, ...) {
  oracle_place in = *at;
  in.layer = layer;
  va_list values;
  va_start(values, format);
  vsnprintf(in.prefix, sizeof in.prefix, format, values);
  va_end(values);
  return in;
}

/* ---- Tensors of a rank ----------------------------------------------------------------------- */

oracle_window oracle_add_shape(const oracle_place *at, const char *name, int ndim, const int64_t *shape) {
  oracle_rank *rank = at->rank;
  if (rank->count == rank->room) {
    rank->room = rank->room ? 2 * rank->room : 64;
    rank->storages = realloc(rank->storages, (size_t)rank->room * sizeof *rank->storages);
    if (!rank->storages) abort();
  }
  oracle_storage *storage = &rank->storages[rank->count++];
  *storage = (oracle_storage){.chunk = at->chunk, .ndim = ndim, .elems = 1};
  snprintf(storage->name, sizeof storage->name, "%s%s", at->prefix, name);
  for (int i = 0; i < 3; i++) {
    storage->shape[i] = i < ndim ? shape[i] : 1;
    storage->elems *= storage->shape[i];
  }
  storage->tensor = oracle_memory((size_t)storage->elems, sizeof *storage->tensor);
  storage->index = oracle_memory((size_t)storage->elems, sizeof *storage->index);
  for (int64_t i = 0; i < storage->elems; i++) storage->tensor[i] = UNSET;
  return (oracle_window){.tensor = storage->tensor, .index = storage->index};
}

static void matrix_of_rows(oracle_window *window, int64_t rows, int64_t cols) {
  window->rows = rows;
  window->cols = cols ? cols : 1;
  window->row_step = window->cols;
  window->col_step = 1;
}

oracle_window oracle_add(const oracle_place *at, int64_t rows, int64_t cols, const char *format, ...) {
  char name[ORACLE_NAME];
  va_list values;
  va_start(values, format);
  vsnprintf(name, sizeof name, format, values);
  va_end(values);
  oracle_window window = oracle_add_shape(at, name, cols ? 2 : 1, (int64_t[]){rows, cols});
  matrix_of_rows(&window, rows, cols);
  return window;
}

oracle_window oracle_add_stack(const oracle_place *at, int64_t count, int64_t rows, int64_t cols,
                               const char *format, ...) {
  char name[ORACLE_NAME];
  va_list values;
  va_start(values, format);
  vsnprintf(name, sizeof name, format, values);
  va_end(values);
  oracle_window window = oracle_add_shape(at, name, cols ? 3 : 2, (int64_t[]){count, rows, cols});
  matrix_of_rows(&window, rows, cols);
  return window;
}

oracle_window oracle_add_conv(const oracle_place *at, int64_t channels, int64_t K, const char *name) {
  oracle_window window = oracle_add_shape(at, name, 3, (int64_t[]){channels, 1, K});
  matrix_of_rows(&window, channels, K);
  return window;
}

oracle_window oracle_step(oracle_window stack, int64_t i) {
  stack.first += i * stack.rows * stack.cols;
  return stack;
}

oracle_window oracle_transposed(oracle_window window) {
  oracle_window turned = window;
  turned.rows = window.cols;
  turned.cols = window.rows;
  turned.row_step = window.col_step;
  turned.col_step = window.row_step;
  return turned;
}

oracle_storage *oracle_last(const oracle_place *at) { return &at->rank->storages[at->rank->count - 1]; }

void oracle_rank_free(oracle_rank *rank) {
  for (int i = 0; i < rank->count; i++) {
    free(rank->storages[i].tensor);
    free(rank->storages[i].index);
  }
  free(rank->storages);
}

void oracle_coordinate(oracle_rank *rank, const char *name, int64_t index) {
  int i = 0;
  while (rank->at[i].name[0]) i++;
  assert(i < 15);
  snprintf(rank->at[i].name, sizeof rank->at[i].name, "%s", name);
  rank->at[i].index = index;
}

/* ---- Canonical matrices ---------------------------------------------------------------------- */

static int32_t find(const oracle_place *at, const char *name) {
  char full[ORACLE_NAME];
  oracle_layer_name(at->model, at->layer, name, full);
  return oracle_model_find(at->model, full);
}

static oracle_matrix whole(const oracle_model *model, int32_t tensor) {
  const oracle_tensor *hf = &model->tensors[tensor];
  int64_t cols = hf->shape[1] * hf->shape[2];
  return (oracle_matrix){tensor, 0, cols, 1, hf->shape[0], cols};
}

oracle_matrix oracle_hf(const oracle_place *at, const char *format, ...) {
  char name[ORACLE_NAME];
  va_list values;
  va_start(values, format);
  vsnprintf(name, sizeof name, format, values);
  va_end(values);
  int32_t tensor = find(at, name);
  assert(tensor >= 0);
  return whole(at->model, tensor);
}

oracle_matrix oracle_hf_or_zeros(const oracle_place *at, int64_t rows, int64_t cols, const char *format,
                                 ...) {
  char name[ORACLE_NAME];
  va_list values;
  va_start(values, format);
  vsnprintf(name, sizeof name, format, values);
  va_end(values);
  int32_t tensor = find(at, name);
  return tensor >= 0 ? whole(at->model, tensor)
                     : (oracle_matrix){ORACLE_PADDING, 0, cols, 1, rows, cols ? cols : 1};
}

/* 4.6; packed (4.9): gate_up_proj [E, H, 2 Im] has gate and up in turn, of Qwen3-VL side by side;
 * down_proj [E, Im, H]. */
oracle_matrix oracle_expert(const oracle_place *at, int64_t expert, oracle_part part) {
  const oracle_model *m = at->model;
  if ((m->packed || m->halves) && part == ORACLE_DOWN) {
    int32_t down = find(at, "mlp.experts.down_proj");
    return (oracle_matrix){down, expert * m->Im * m->H, 1, m->H, m->H, m->Im};
  }
  if (m->halves) {
    int32_t gate_up = find(at, "mlp.experts.gate_up_proj");
    int64_t first = expert * m->H * 2 * m->Im + (part == ORACLE_UP ? m->Im : 0);
    return (oracle_matrix){gate_up, first, 1, 2 * m->Im, m->Im, m->H};
  }
  if (m->packed) {
    int32_t gate_up = find(at, "mlp.experts.gate_up_proj");
    int64_t first = expert * m->H * 2 * m->Im + (part == ORACLE_UP ? 1 : 0);
    return (oracle_matrix){gate_up, first, 2, 2 * m->Im, m->Im, m->H};
  }
  const oracle_names *n = oracle_expert_names(m);
  const char *name = part == ORACLE_GATE ? n->gate : part == ORACLE_UP ? n->up : n->down;
  int64_t rows = part == ORACLE_DOWN ? m->H : m->Im, cols = part == ORACLE_DOWN ? m->Im : m->H;
  return oracle_hf_or_zeros(at, rows, cols, "%s.experts.%d.%s.weight", n->block, (int)expert, name);
}

oracle_matrix oracle_expert_bias(const oracle_place *at, int64_t expert, oracle_part part) {
  const oracle_model *m = at->model;
  assert(m->packed);
  if (part == ORACLE_DOWN)
    return (oracle_matrix){find(at, "mlp.experts.down_proj_bias"), expert * m->H, 1, 0, m->H, 1};
  int64_t first = expert * 2 * m->Im + (part == ORACLE_UP ? 1 : 0);
  return (oracle_matrix){find(at, "mlp.experts.gate_up_proj_bias"), first, 2, 0, m->Im, 1};
}

oracle_matrix oracle_shared(const oracle_place *at, oracle_part part) {
  const oracle_model *m = at->model;
  const char *name = part == ORACLE_GATE ? "gate" : part == ORACLE_UP ? "up" : "down";
  int64_t rows = part == ORACLE_DOWN ? m->H : m->Is, cols = part == ORACLE_DOWN ? m->Is : m->H;
  return oracle_hf_or_zeros(at, rows, cols, "mlp.%s.%s_proj.weight", oracle_expert_names(m)->shared, name);
}

void oracle_add_whole(const oracle_place *at, int32_t tensor) {
  const oracle_tensor *hf = &at->model->tensors[tensor];
  oracle_window window = oracle_add_shape(at, hf->name, hf->ndim, hf->shape);
  matrix_of_rows(&window, hf->shape[0], hf->shape[1] * hf->shape[2]);
  oracle_rule_whole(at, window, whole(at->model, tensor));
}

/* ---- Elements -------------------------------------------------------------------------------- */

void oracle_set(const oracle_model *model, oracle_window window, int64_t row, int64_t col,
                oracle_matrix from, int64_t hf_row, int64_t hf_col) {
  assert(row >= 0 && row < window.rows && col >= 0 && col < window.cols);
  int64_t i = window.first + row * window.row_step + col * window.col_step;
  assert(window.tensor[i] == UNSET);
  window.tensor[i] = from.tensor;
  if (from.tensor == ORACLE_PADDING) return;
  assert(hf_row >= 0 && hf_row < from.rows && hf_col >= 0 && hf_col < from.cols);
  window.index[i] = from.first + hf_row * from.row_step + hf_col * from.col_step;
  assert(window.index[i] < model->tensors[from.tensor].elems);
}
