/* Which matrices have adapters, and how these lie: in a rank's window one target after the other, of each A and then B. Ranks have the
 * pieces of A and B that go with theirs of the matrix; with fsdp2 each rank has all of them. */
#include "train/adapters.h"

#include "base/dtype.h"
#include "base/larger.h"

#include <string.h>

static treadle_status no_memory(void) { return treadle_fail(TREADLE_NO_MEMORY, "no memory for adapters"); }

/* ---- Targets ------------------------------------------------------------------------------------------------ */

static bool is_trained(treadle_role role) {
  return role == TREADLE_ROLE_Q || role == TREADLE_ROLE_K || role == TREADLE_ROLE_V ||
         role == TREADLE_ROLE_O || role == TREADLE_ROLE_Q_DOWN || role == TREADLE_ROLE_Q_UP ||
         role == TREADLE_ROLE_KV_DOWN || role == TREADLE_ROLE_KV_UP || role == TREADLE_ROLE_GATE ||
         role == TREADLE_ROLE_UP || role == TREADLE_ROLE_DOWN || role == TREADLE_ROLE_SHARED_GATE ||
         role == TREADLE_ROLE_SHARED_UP || role == TREADLE_ROLE_SHARED_DOWN || role == TREADLE_ROLE_HEAD;
}

/* The matrix of a role in a unit; -1: it has none. */
static int32_t tensor_of(const treadle_transformer *d, int32_t unit, int role) {
  if (role == TREADLE_ROLE_HEAD) return unit == treadle_train_unit_head(d) ? d->head : -1;
  return unit < d->layers ? d->layer[unit].tensor[role] : -1;
}

/* Where the targets of a matrix are. */
static int32_t unit_of(const treadle_transformer *d, int32_t tensor) {
  const int32_t layer = d->model->tensors[tensor].layer;
  return layer < 0 ? treadle_train_unit_head(d) : layer;
}

/* Each target plays a role, and no tensor plays two. */
static treadle_status check_targets(const treadle_adapter *a, const treadle_transformer *d) {
  const treadle_tensor *tensors = d->model->tensors;
  if (d->head < 0)
    REFUSE("%s: adapters are of language models, and this one has a score head", d->model->path);
  for (int32_t i = 0; i < a->count; i++) {
    const int32_t tensor = a->matrices[i].tensor, unit = unit_of(d, tensor);
    bool found = false;
    for (int role = 0; role < TREADLE_ROLES; role++)
      found = found || (tensor_of(d, unit, role) == tensor && is_trained((treadle_role)role));
    if (!found)
      REFUSE(
          "%s: training does not take an adapter of it; it does of the projections of grouped and latent "
          "attention, of gate, up and down of MLPs, and of the head",
          tensors[tensor].name);
  }
  return TREADLE_OK;
}

static treadle_status take_target(treadle_train_adapters *a, int32_t unit, int role, size_t *at,
                                  treadle_arena *arena) {
  const treadle_weight *w = treadle_train_target_weight(a, unit, role);
  treadle_train_target *target = &a->targets[unit][role];
  int64_t row = 0;
  target->base = w->segments;
  target->merged = treadle_arena_alloc_array(arena, (size_t)w->segment_count, sizeof *target->merged);
  if (!target->merged) return no_memory();
  for (int32_t s = 0; s < w->segment_count; row += w->segments[s++].rows)
    target->merged[s] =
        (treadle_segment){.at = *at + (size_t)(row * w->column_count) * treadle_dtype_bytes(w->dtype),
                          .first = w->segments[s].first,
                          .rows = w->segments[s].rows,
                          .stride = w->column_count};
  *at += (size_t)(w->row_count * w->column_count) * treadle_dtype_bytes(w->dtype);
  *at = (*at + 63) / 64 * 64;
  a->widest = treadle_larger(a->widest, treadle_larger(w->row_count, w->column_count));
  return TREADLE_OK;
}

static treadle_status find_targets(treadle_train_adapters *a, treadle_arena *arena) {
  const treadle_transformer *d = a->back->transformer;
  treadle_status status = TREADLE_OK;
  a->targets = treadle_arena_alloc_array(arena, (size_t)treadle_train_adapter_units(a), sizeof *a->targets);
  if (!a->targets) return no_memory();
  for (int32_t u = 0; u < treadle_train_adapter_units(a); u++) {
    size_t at = 0;
    for (int role = 0; role < TREADLE_ROLES; role++) {
      const int32_t tensor = tensor_of(d, u, role);
      a->targets[u][role].number = -1;
      if (tensor < 0 || a->adapter->of_tensor[tensor] < 0) continue;
      if (!treadle_is_there(treadle_train_target_weight(a, u, role))) continue;
      a->targets[u][role].number = a->adapter->of_tensor[tensor];
      TRY(take_target(a, u, role, &at, arena));
    }
    if (at > a->merged_bytes) a->merged_bytes = at;
  }
out:
  return status;
}

/* ---- The window --------------------------------------------------------------------------------------------- */

typedef TREADLE_ARRAY(treadle_explicit_piece) pieces;

static treadle_status add_piece(pieces *to, int64_t rank, const treadle_tensor *t, const int64_t start[2],
                                const int64_t size[2], int64_t at) {
  return treadle_array_push(to, ((treadle_explicit_piece){.rank = rank,
                                                          .storage = "adapters",
                                                          .storage_ndim = 2,
                                                          .dtype = TREADLE_FP32,
                                                          .tensor = t->name,
                                                          .start = {start[0], start[1]},
                                                          .size = {size[0], size[1]},
                                                          .offset = at,
                                                          .stride = {size[1], 1}}));
}

/* What a rank has of a target, from element *at of its window on. to: NULL: it is only counted. */
static treadle_status add_target(const treadle_adapter *a, int32_t number, int64_t rank,
                                 const treadle_weight *w, int64_t *at, pieces *to) {
  const treadle_adapter_matrix *m = &a->matrices[number];
  const treadle_tensor *tensors = a->model->tensors;
  const int64_t start[] = {0, w->first_column}, size[] = {a->rank, w->column_count};
  treadle_status status = TREADLE_OK;
  if (to) TRY(add_piece(to, rank, &tensors[m->a], start, size, *at));
  *at += a->rank * w->column_count;
  for (int32_t s = 0; s < w->segment_count; *at += a->rank * w->segments[s++].rows) {
    const int64_t first[] = {w->segments[s].first, 0}, rows[] = {w->segments[s].rows, a->rank};
    if (to) TRY(add_piece(to, rank, &tensors[m->b], first, rows, *at));
  }
out:
  return status;
}

/* A rank of the trainer, and whose part of the layout it computes with. */
typedef struct places {
  int64_t rank, computed;
} places;

/* The whole window of a rank, *elems_p elements. */
static treadle_status add_rank(const treadle_train_adapters *a, const treadle_layout *layout, places at,
                               treadle_arena *arena, pieces *to, int64_t *elems_p) {
  const size_t first = to ? to->count : 0;
  treadle_status status = TREADLE_OK;
  *elems_p = 0;
  for (int32_t i = 0; i < a->adapter->count; i++) {
    treadle_weight w;
    TRY(treadle_weight_find(layout, at.computed, a->adapter->matrices[i].tensor, -1, arena, &w));
    if (treadle_is_there(&w)) TRY(add_target(a->adapter, i, at.rank, &w, elems_p, to));
  }
  for (size_t p = first; to && p < to->count; p++) {
    to->items[p].storage_shape[0] = *elems_p / a->adapter->rank;
    to->items[p].storage_shape[1] = a->adapter->rank;
  }
out:
  return status;
}

/* Where this rank's targets begin in its window. */
static void place_targets(treadle_train_adapters *a) {
  const treadle_transformer *d = a->back->transformer;
  int64_t at = 0;
  for (int32_t i = 0; i < a->adapter->count; i++) {
    const int32_t unit = unit_of(d, a->adapter->matrices[i].tensor);
    for (int role = 0; role < TREADLE_ROLES; role++) {
      treadle_train_target *target = &a->targets[unit][role];
      if (target->number != i) continue;
      const treadle_weight *w = treadle_train_target_weight(a, unit, role);
      target->at_a = at;
      target->at_b = at + a->adapter->rank * w->column_count;
      at = target->at_b + a->adapter->rank * w->row_count;
    }
  }
}

/* With shards each rank has all of them. */
static treadle_status make_layout(treadle_train_adapters *a, const treadle_train_adapter_parts *of) {
  const treadle_layout *computed = a->back->pass->layout;
  treadle_train_windows *w = of->windows;
  const int64_t own = of->shards ? 0 : w->rank;
  treadle_arena arena = {0};
  pieces all = {0};
  int64_t elems, end = 0;
  treadle_storage storage = {.ndim = 2, .dtype = TREADLE_FP32};
  treadle_status status = TREADLE_OK;
  for (int64_t rank = 0; rank < w->layout->ranks && !of->plans; rank++)
    TRY(add_rank(a, computed, (places){rank, of->shards ? 0 : rank}, &arena, &all, &elems));
  if (!of->plans)
    TRY(treadle_layout_from_pieces(a->adapter->model, w->layout->ranks, all.items, all.count,
                                   &w->grad_layout));
  TRY(add_rank(a, computed, (places){own, own}, &arena, NULL, &elems));
  if (!elems)
    TRY(treadle_fail(
        TREADLE_REFUSED,
        "layout '%s': rank %lld has none of the matrices that adapters are of, and would train "
        "nothing; name matrices of its layers, too (target_modules), or divide the model less",
        w->layout->text, (long long)w->rank));
  storage.shape[0] = elems / a->adapter->rank;
  storage.shape[1] = a->adapter->rank;
  storage.bytes = elems * (int64_t)sizeof(float);
  TRY(treadle_storage_place(w->layout, "adapters", &storage, 1, &end));
  w->trained_layout = w->grad_layout;
  w->adapter_bytes = (size_t)end;
out:
  treadle_array_release(&all);
  treadle_arena_release(&arena);
  return status;
}

/* Each element of all gradients is the first rank's that has it. */
treadle_status treadle_train_each_adapter(const treadle_train_adapters *a,
                                          void (*look)(void *context, const float *values, int64_t count),
                                          void *context) {
  const treadle_layout *layout = a->windows->grad_layout;
  treadle_cells cells = {0};
  treadle_status status = TREADLE_OK;
  for (int32_t t = 0; t < a->adapter->model->tensor_count; t++) {
    const treadle_box whole = treadle_box_whole(&a->adapter->model->tensors[t]);
    cells.count = 0;
    TRY(treadle_layout_cells(layout, t, &whole, &cells));
    for (size_t c = 0; c < cells.count; c++) {
      const treadle_cell *cell = &cells.items[c];
      const int64_t *stride;
      if (treadle_cell_find(layout, cell, a->windows->rank) != 0) continue;
      const char *at = a->windows->grads + treadle_cell_locate(layout, cell, 0, &stride);
      for (int64_t row = 0; row < cell->box.size[0]; row++, at += stride[0])
        look(context, (const float *)(const void *)at, cell->box.size[1]);
    }
  }
out:
  treadle_array_release(&cells);
  return status;
}

/* ---- The whole ---------------------------------------------------------------------------------------------- */

treadle_status treadle_train_open_adapters(const treadle_train_adapter_parts *of, treadle_adapter *adapter,
                                           treadle_train_adapters **adapters_p) {
  treadle_train_adapters *a = treadle_arena_alloc(of->arena, sizeof *a);
  treadle_status status;
  if (!a) {
    treadle_adapter_destroy(adapter);
    return no_memory();
  }
  *adapters_p = a;
  *a = (treadle_train_adapters){.adapter = adapter,
                                .back = of->back,
                                .windows = of->windows,
                                .rows = of->back->rows,
                                .present = -1,
                                .renewed = -1};
  TRY(check_targets(adapter, of->back->transformer));
  TRY(find_targets(a, of->arena));
  place_targets(a);
  TRY(make_layout(a, of));
  treadle_train_leave_adapters(a, false);
out:
  return status;
}

void treadle_train_close_adapters(treadle_train_adapters *a) {
  if (a) treadle_adapter_destroy(a->adapter);
}

void treadle_train_leave_adapters(treadle_train_adapters *a, bool base_alone) {
  if (!a) return;
  a->base_alone = base_alone;
  for (int32_t u = 0; u < treadle_train_adapter_units(a); u++)
    for (int role = 0; role < TREADLE_ROLES; role++) {
      const treadle_train_target *target = &a->targets[u][role];
      if (target->number < 0) continue;
      treadle_train_target_weight(a, u, role)->segments = base_alone ? target->base : target->merged;
    }
  a->back->own_head = a->back->pass->head; /* no context parallel rank has adapters */
}
