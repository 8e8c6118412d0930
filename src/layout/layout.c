/* Layouts from text, and the functions of layout.h, which all types provide through their table. */
#include "layout/layout.h"

#include "base/checked.h"
#include "base/dtype.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/sized.h"
#include "base/text.h"
#include "layout/layout_types.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const treadle_layout_type *const types[] = {
    &treadle_layout_type_hf,      &treadle_layout_type_megatron, &treadle_layout_type_vllm,
    &treadle_layout_type_sglang,  &treadle_layout_type_fsdp,     &treadle_layout_type_fsdp2,
    &treadle_layout_type_zero1,   &treadle_layout_type_zero2,    &treadle_layout_type_zero3,
    &treadle_layout_type_distopt, &treadle_layout_type_pieces,   &treadle_layout_type_placements};
enum { KINDS = sizeof types / sizeof *types };

void treadle_normal_text(treadle_builder *normal, const char *key, const char *value) {
  const char *quote = strpbrk(value, ",\"") ? "\"" : "";
  treadle_builder_add(normal, "%s%s=%s%s%s", strchr(normal->text, ':') ? "," : ":", key, quote, value,
                      quote);
}

void treadle_normal_number(treadle_builder *normal, const char *key, int64_t value) {
  char number[24];
  snprintf(number, sizeof number, "%" PRId64, value);
  treadle_normal_text(normal, key, number);
}

void treadle_normal_size(treadle_builder *normal, const char *key, int64_t value) {
  if (value != 1) treadle_normal_number(normal, key, value);
}

treadle_status treadle_check_ranks(const treadle_layout *layout, const char *names, const int64_t *sizes,
                                   int count, int64_t *rest_p) {
  int64_t rest = layout->ranks; /* divided step by step, so that no product can overflow */
  for (int i = 0; i < count; i++) {
    if (rest % sizes[i] != 0) {
      char factors[128] = "";
      for (int k = 0, used = 0; k < count; k++)
        used +=
            snprintf(factors + used, sizeof factors - (size_t)used, "%s%" PRId64, k ? " * " : "", sizes[k]);
      return treadle_fail(TREADLE_REFUSED, "layout '%s': %" PRId64 " ranks are not divisible by %s = %s",
                          layout->text, layout->ranks, names, factors);
    }
    rest /= sizes[i];
  }
  if (rest_p) *rest_p = rest;
  return TREADLE_OK;
}

static const treadle_layout_type *find_type(const char *name, const char **nearest_p) {
  int best = 1 << 30;
  for (int i = 0; i < KINDS; i++) {
    if (strcmp(types[i]->name, name) == 0) return types[i];
    int distance = treadle_text_distance(name, types[i]->name);
    if (distance < best) best = distance, *nearest_p = types[i]->name;
  }
  return NULL;
}

static treadle_status read_dtype(treadle_layout *layout, treadle_settings *words,
                                 const treadle_layout_type *type) {
  const char *text = treadle_settings_get(words, "dtype");
  if (text && (!treadle_dtype_parse(text, &layout->dtype) || layout->dtype == TREADLE_INT32))
    return treadle_fail(TREADLE_REFUSED, "layout '%s': dtype=%s is none of fp32, bf16, fp16, fp8",
                        words->text, text);
  bool asked = layout->dtype == TREADLE_FP8_E4M3;
  if (asked && layout->model->block[0] == 0)
    return treadle_fail(
        TREADLE_REFUSED,
        "layout '%s': dtype=fp8, and %s has no quantization_config with quant_method fp8 and a "
        "weight_block_size",
        words->text, layout->model->path);
  if (asked && !type->holds_fp8)
    return treadle_fail(TREADLE_REFUSED, "layout '%s': dtype=fp8, but %s holds no fp8 weights", words->text,
                        type->name);
  layout->fp8 = asked || (!layout->dtype && layout->model->is_fp8 && type->holds_fp8);
  return TREADLE_OK;
}

treadle_status treadle_layout_start(const treadle_model *model, const char *text, int64_t ranks,
                                    treadle_layout **layout_p) {
  *layout_p = NULL;
  if (ranks < 1 || ranks > INT64_C(1) << 30)
    return treadle_fail(TREADLE_REFUSED, "layout '%s': %" PRId64 " ranks; from 1 to 2^30 will do", text,
                        ranks);
  treadle_layout *layout = treadle_alloc(sizeof *layout);
  char *copy = treadle_alloc(strlen(text) + 1);
  if (!layout || !copy) {
    treadle_free(layout);
    treadle_free(copy);
    return treadle_fail(TREADLE_NO_MEMORY, "layout: memory is out");
  }
  memcpy(copy, text, strlen(text) + 1);
  layout->model = model;
  layout->text = copy;
  layout->ranks = ranks;
  layout->tp = 1;
  layout->order = (treadle_rank_order){1, 1};
  snprintf(layout->map_text, sizeof layout->map_text, "contiguous");
  *layout_p = layout;
  return TREADLE_OK;
}

static treadle_status check_options(const treadle_layout_options *options) {
  treadle_status status;
  TRY(treadle_check_enum("treadle_layout_create", "rank_map", (long long)options->rank_map,
                         TREADLE_BEST + 1));
  if (options->rank_map != TREADLE_CONTIGUOUS && !options->train)
    return treadle_refuse_null("treadle_layout_create", "train");
out:
  return status;
}

treadle_status treadle_layout_create(const treadle_model *model, const char *text, int64_t ranks,
                                     const treadle_layout_options *options, treadle_layout **layout_p) {
  TREADLE_NEED(layout_p);
  *layout_p = NULL;
  TREADLE_NEED(model);
  TREADLE_NEED(text);
  treadle_status status = TREADLE_OK;
  treadle_layout_options o;
  treadle_arena arena = {0};
  treadle_settings words;
  treadle_builder normal = {0};
  const char *nearest = "";
  treadle_layout *layout = NULL;
  TRY(TREADLE_TAKE(options, &o));
  TRY(check_options(&o));
  TRY(treadle_layout_start(model, text, ranks, &layout));
  TRY(treadle_settings_parse(text, &arena, &words));
  const treadle_layout_type *type = find_type(words.type, &nearest);
  if (!type) {
    status = treadle_fail(TREADLE_REFUSED,
                          "layout '%s': no type '%s' (nearest: %s; types: hf, megatron, "
                          "vllm, sglang, fsdp, fsdp2, zero1, zero2, zero3, distopt, pieces, placements)",
                          text, words.type, nearest);
    goto out;
  }
  if (words.file && type != &treadle_layout_type_pieces && type != &treadle_layout_type_placements) {
    status =
        treadle_fail(TREADLE_REFUSED, "layout '%s': only pieces and placements are read from a file", text);
    goto out;
  }
  treadle_builder_add(&normal, "%s", type->name);
  if (normal.failed) {
    status = treadle_fail(TREADLE_NO_MEMORY, "layout: memory is out");
    goto out;
  }
  TRY(read_dtype(layout, &words, type));
  TRY(type->create(layout, &words, &arena, &normal));
  TRY(treadle_settings_finish(&words, type->keys));
  if (layout->dtype) treadle_normal_text(&normal, "dtype", treadle_dtype_name(layout->dtype));
  if (normal.failed) {
    status = treadle_fail(TREADLE_NO_MEMORY, "layout: memory is out");
    goto out;
  }
  treadle_free(layout->text);
  layout->text = normal.text;
  normal = (treadle_builder){0};
  layout->digest = treadle_hash_more(treadle_hash_text(layout->text, layout->digest), (uint64_t)ranks);
  if (o.train) TRY(treadle_layout_map_ranks(layout, o.train, o.rank_map));
  *layout_p = layout;
out:
  if (status != TREADLE_OK) treadle_layout_destroy(layout);
  treadle_builder_release(&normal);
  treadle_arena_release(&arena);
  return status;
}

void treadle_layout_destroy(treadle_layout *layout) {
  if (!layout) return;
  if (layout->state) layout->ops->destroy(layout);
  treadle_free(layout->text);
  treadle_free(layout);
}

treadle_op treadle_fill_op(const treadle_piece *fill) {
  treadle_op op = {.source = -1,
                   .from_dtype = (uint8_t)fill->dtype,
                   .to_dtype = (uint8_t)fill->dtype,
                   .tensor = fill->tensor,
                   .storage = fill->storage,
                   .to = fill->offset,
                   .elems = treadle_box_elems(&fill->box)};
  for (int a = 0; a < TREADLE_MAX_AXES; a++) {
    if (a > 0 && fill->box.size[a] == 1) continue;
    op.size[op.ndim] = fill->box.size[a];
    op.from_stride[op.ndim] = op.to_stride[op.ndim] = fill->stride[a];
    op.ndim++;
  }
  return op;
}

treadle_dtype treadle_layout_dtype(const treadle_layout *layout, const treadle_tensor *tensor) {
  if (layout->dtypes) return layout->dtypes[tensor - layout->model->tensors];
  if (tensor->scale >= 0 && layout->fp8) return TREADLE_FP8_E4M3;
  treadle_dtype own = tensor->dtype == TREADLE_FP8_E4M3 ? TREADLE_BF16 : tensor->dtype; /* dequantised */
  return layout->dtype && layout->dtype != TREADLE_FP8_E4M3 && !tensor->fixed_dtype ? layout->dtype : own;
}

treadle_status treadle_storage_measure(const treadle_layout *layout, const char *name,
                                       treadle_storage *storage) {
  char shape[100] = "";
  size_t used = 0;
  int64_t elems;
  if (treadle_product_fits(storage->shape, storage->ndim, &elems) && elems <= TREADLE_MAX_WINDOW_BYTES) {
    storage->bytes = elems * (int64_t)treadle_dtype_bytes(storage->dtype);
    return TREADLE_OK;
  }
  for (int d = 0; d < storage->ndim; d++)
    used += (size_t)snprintf(shape + used, sizeof shape - used, "%s%" PRId64, d ? " x " : "",
                             storage->shape[d]);
  return treadle_fail(
      TREADLE_REFUSED,
      "layout '%s': %s would be a storage tensor of %s elements; a window has 2^54 bytes at "
      "most",
      layout->text, name, shape);
}

treadle_status treadle_storage_place(const treadle_layout *layout, const char *name,
                                     treadle_storage *storage, int64_t count, int64_t *end) {
  int64_t each, all, behind;
  storage->offset = *end;
  if (treadle_round_up_fits(storage->bytes, TREADLE_STORAGE_ALIGNMENT, &each) &&
      treadle_mul_fits(each, count, &all) && treadle_add_fits(*end, all, &behind) &&
      behind <= TREADLE_MAX_WINDOW_BYTES) {
    *end = behind;
    return TREADLE_OK;
  }
  return treadle_fail(TREADLE_REFUSED,
                      "layout '%s': with %s, %" PRId64 " times %" PRId64 " bytes, a window of %" PRId64
                      " bytes grows beyond 2^54",
                      layout->text, name, count, storage->bytes, *end);
}

const char *treadle_layout_text(const treadle_layout *layout) {
  TREADLE_NEED_OR(layout, NULL);
  return layout->text;
}

int64_t treadle_layout_ranks(const treadle_layout *layout) {
  TREADLE_NEED_OR(layout, -1);
  return layout->ranks;
}

bool treadle_layout_is_train(const treadle_layout *layout) {
  TREADLE_NEED_OR(layout, false);
  return layout->is_train;
}

const char *treadle_layout_rank_map(const treadle_layout *layout) {
  TREADLE_NEED_OR(layout, NULL);
  return layout->map_text;
}

static treadle_status check_rank(const treadle_layout *layout, int64_t rank) {
  if (rank < 0 || rank >= layout->ranks)
    return treadle_fail(TREADLE_REFUSED, "layout '%s': rank %" PRId64 " is not one of %" PRId64 " ranks",
                        layout->text, rank, layout->ranks);
  return TREADLE_OK;
}

size_t treadle_layout_window_bytes(const treadle_layout *layout, int64_t rank) {
  TREADLE_NEED_OR(layout, 0);
  if (check_rank(layout, rank) != TREADLE_OK) return 0;
  return (size_t)layout->ops->window_bytes(layout, rank);
}

int32_t treadle_layout_storage_count(const treadle_layout *layout, int64_t rank) {
  TREADLE_NEED_OR(layout, -1);
  if (check_rank(layout, rank) != TREADLE_OK) return -1;
  return layout->ops->public_count(layout, rank);
}

const treadle_storage *treadle_layout_public(const treadle_layout *layout, int64_t rank, int32_t number,
                                             int32_t *storage_p, int64_t *expert_p) {
  int32_t count, low = 0;
  const treadle_storage *storages = layout->ops->storages(layout, rank, &count);
  if (number < 0 || number >= layout->ops->public_count(layout, rank)) return NULL;
  for (int32_t high = count; high - low > 1;) { /* the last one that begins at or before the number */
    int32_t middle = low + (high - low) / 2;
    if (storages[middle].public_first <= number)
      low = middle;
    else
      high = middle;
  }
  low -= storages[low].run_at;
  int32_t in = number - storages[low].public_first;
  *expert_p = in / storages[low].run;
  *storage_p = low + in % storages[low].run;
  return &storages[*storage_p];
}

treadle_status treadle_layout_storage(const treadle_layout *layout, int64_t rank, int32_t storage,
                                      treadle_storage_info *info_p) {
  TREADLE_NEED(layout);
  TREADLE_NEED_SIZED(info_p);
  treadle_status status = check_rank(layout, rank);
  if (status != TREADLE_OK) return status;
  int32_t index;
  int64_t expert;
  const treadle_storage *found = treadle_layout_public(layout, rank, storage, &index, &expert);
  if (!found)
    return treadle_fail(TREADLE_REFUSED,
                        "layout '%s': rank %" PRId64 " has %d storage tensors, no number %d", layout->text,
                        rank, layout->ops->public_count(layout, rank), storage);
  treadle_storage_info info = {.chunk = found->chunk,
                               .ndim = found->ndim,
                               .dtype = found->dtype,
                               .derived = found->derived,
                               .bytes = (size_t)found->bytes};
  layout->ops->storage_name(layout, rank, found, expert, info.name, sizeof info.name);
  memcpy(info.shape, found->shape, sizeof info.shape);
  info.offset_bytes = (size_t)(found->offset + (found->by_expert ? expert * found->slot_stride : 0));
  if (layout->ops->local_shape) {
    layout->ops->local_shape(layout, rank, found, info.shape);
    info.bytes = treadle_dtype_bytes(found->dtype);
    for (int d = 0; d < found->ndim; d++) info.bytes *= (size_t)info.shape[d];
  }
  TREADLE_GIVE(info_p, &info);
  return TREADLE_OK;
}

int32_t treadle_layout_find(const treadle_layout *layout, int64_t rank, const char *name) {
  TREADLE_NEED_OR(layout, -1);
  TREADLE_NEED_OR(name, -1);
  if (check_rank(layout, rank) != TREADLE_OK) return -1;
  char own[sizeof(((treadle_storage_info *)NULL)->name)];
  int32_t index;
  int64_t expert;
  for (int32_t i = 0; i < layout->ops->public_count(layout, rank); i++) {
    const treadle_storage *storage = treadle_layout_public(layout, rank, i, &index, &expert);
    layout->ops->storage_name(layout, rank, storage, expert, own, sizeof own);
    if (strcmp(own, name) == 0) return i;
  }
  treadle_fail(TREADLE_REFUSED, "layout '%s': rank %" PRId64 " has no storage tensor '%s'", layout->text,
               rank, name);
  return -1;
}

treadle_status treadle_layout_pieces(const treadle_layout *layout, int64_t rank, treadle_pieces *pieces) {
  treadle_status status = check_rank(layout, rank);
  return status != TREADLE_OK ? status : layout->ops->pieces(layout, rank, pieces);
}

treadle_status treadle_layout_pieces_in(const treadle_layout *layout, int64_t rank, int32_t storage,
                                        treadle_pieces *pieces) {
  if (layout->ops->pieces_in) return layout->ops->pieces_in(layout, rank, storage, pieces);
  treadle_status status = TREADLE_OK;
  size_t kept = pieces->count;
  TRY(treadle_layout_pieces(layout, rank, pieces));
  for (size_t i = kept; i < pieces->count; i++)
    if (pieces->items[i].storage == storage) pieces->items[kept++] = pieces->items[i];
  pieces->count = kept;
out:
  return status;
}

treadle_status treadle_piece_lists_make(const treadle_pieces *pieces, int32_t tensors,
                                        treadle_piece_lists *lists) {
  lists->first = treadle_alloc_array((size_t)tensors + 1, sizeof *lists->first);
  lists->next = treadle_alloc_array(pieces->count + 1, sizeof *lists->next);
  if (!lists->first || !lists->next) return treadle_fail(TREADLE_NO_MEMORY, "layout: memory is out");
  for (int32_t t = 0; t < tensors; t++) lists->first[t] = -1;
  for (size_t i = pieces->count; i-- > 0;) {
    int32_t tensor = pieces->items[i].tensor;
    lists->next[i] = -1;
    if (tensor < 0) continue;
    lists->next[i] = lists->first[tensor];
    lists->first[tensor] = (int32_t)i;
  }
  return TREADLE_OK;
}

void treadle_piece_lists_release(treadle_piece_lists *lists) {
  treadle_free(lists->first);
  treadle_free(lists->next);
  *lists = (treadle_piece_lists){0};
}

treadle_status treadle_layout_pieces_of(const treadle_layout *layout, int64_t rank, int32_t tensor,
                                        treadle_pieces *pieces) {
  return layout->ops->pieces_of(layout, rank, tensor, pieces);
}

const treadle_form *treadle_layout_forms(const treadle_layout *layout) {
  return layout->ops->forms ? layout->ops->forms(layout) : NULL;
}

treadle_status treadle_layout_bundles_of(const treadle_layout *layout, int64_t rank, int32_t tensor,
                                         treadle_pieces *pieces) {
  if (!treadle_layout_forms(layout)) return treadle_layout_pieces_of(layout, rank, tensor, pieces);
  size_t kept = pieces->count;
  treadle_status status = layout->ops->bundles_of(layout, rank, tensor, pieces);
  for (size_t i = kept; i < pieces->count; i++)
    if (pieces->items[i].tensor >= 0) pieces->items[kept++] = pieces->items[i];
  pieces->count = kept;
  return status;
}

treadle_status treadle_layout_cells(const treadle_layout *layout, int32_t tensor, const treadle_box *box,
                                    treadle_cells *cells) {
  return layout->ops->cells(layout, tensor, box, cells);
}

treadle_status treadle_layout_check_table(const treadle_layout *layout) {
  if (layout->ranks <= TREADLE_MAX_TABLE_RANKS) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED,
                      "layout '%s': a report over all of its %" PRId64
                      " ranks; at most %d will do, and one rank can be asked for alone",
                      layout->text, layout->ranks, TREADLE_MAX_TABLE_RANKS);
}

treadle_status treadle_refuse_cells(const treadle_layout *layout, int32_t tensor) {
  return treadle_fail(TREADLE_REFUSED,
                      "layout '%s': its %" PRId64
                      " ranks have %s in more than %d parts, too many for a plan",
                      layout->text, layout->ranks, layout->model->tensors[tensor].name, TREADLE_MAX_CELLS);
}

int64_t treadle_cell_rank(const treadle_layout *layout, const treadle_cell *cell, int64_t holder) {
  return layout->ops->cell_rank(layout, cell, holder);
}

int64_t treadle_cell_find(const treadle_layout *layout, const treadle_cell *cell, int64_t rank) {
  return layout->ops->cell_find(layout, cell, rank);
}

int64_t treadle_cell_locate(const treadle_layout *layout, const treadle_cell *cell, int64_t holder,
                            const int64_t **stride_p) {
  return layout->ops->cell_locate(layout, cell, holder, stride_p);
}

const treadle_storage *treadle_layout_storages(const treadle_layout *layout, int64_t rank,
                                               int32_t *count_p) {
  return layout->ops->storages(layout, rank, count_p);
}

int64_t treadle_layout_window_max(const treadle_layout *layout) {
  return layout->ops->window_bytes_max(layout);
}

uint64_t treadle_layout_placement(const treadle_layout *layout, int32_t tensor) {
  return layout->ops->placement(layout, tensor);
}

uint64_t treadle_layout_cells_like(const treadle_layout *layout, int32_t tensor) {
  return (layout->ops->cells_like ? layout->ops->cells_like : layout->ops->placement)(layout, tensor);
}

uint64_t treadle_layout_place(const treadle_layout *layout, int64_t rank) {
  return layout->ops->coordinate(layout, rank);
}

treadle_status treadle_layout_coordinate(const treadle_layout *layout, int64_t rank, const char *dimension,
                                         int64_t *index_p) {
  const treadle_mesh *mesh = layout->ops->mesh ? layout->ops->mesh(layout) : NULL;
  const treadle_dim *dim = mesh ? treadle_mesh_find(mesh, dimension) : NULL;
  if (!dim)
    return treadle_fail(TREADLE_REFUSED, "layout '%s' has no dimension '%s'", layout->text, dimension);
  *index_p = treadle_dim_index(dim, treadle_order_layout(&layout->order, rank));
  return TREADLE_OK;
}
