/* Layouts from text. ranks.c has the functions of layout.h that types provide through their table. */
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
  int64_t all = layout->owners.count,
          rest = all; /* divided step by step, so that no product can overflow */
  for (int i = 0; i < count; i++) {
    if (rest % sizes[i] != 0) {
      char factors[128] = "";
      for (int k = 0, used = 0; k < count; k++)
        used +=
            snprintf(factors + used, sizeof factors - (size_t)used, "%s%" PRId64, k ? " * " : "", sizes[k]);
      int64_t product = 1;
      char instead[64] = "";
      for (int k = 0; k < count && product; k++)
        if (!treadle_mul_fits(product, sizes[k], &product)) product = 0;
      if (product)
        snprintf(instead, sizeof instead, "; take a multiple of %s, or other sizes",
                 treadle_text_of_count(product, "rank"));
      return treadle_fail(TREADLE_REFUSED, "layout '%s': %s%s%s %s not divisible by %s = %s%s",
                          layout->text, layout->owners.runs ? "the " : "",
                          treadle_text_of_count(all, "rank"), layout->owners.runs ? " of on" : "",
                          all == 1 ? "is" : "are", names, factors, instead);
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

/* Explicit pieces say for each rank what it has; they have no keys. */
static treadle_status read_owners(treadle_layout *layout, treadle_settings *words,
                                  const treadle_layout_type *type) {
  treadle_status status = TREADLE_OK;
  const char *text = type == &treadle_layout_type_pieces ? NULL : treadle_settings_get(words, "on");
  if (text) TRY(treadle_owners_parse(text, layout->ranks, words->text, &layout->owners));
out:
  return status;
}

static void print_owners(const treadle_layout *layout, treadle_builder *normal) {
  treadle_builder text = {0};
  if (!layout->owners.runs) return;
  treadle_owners_print(&layout->owners, &text);
  if (!text.failed) treadle_normal_text(normal, "on", text.text);
  normal->failed = normal->failed || text.failed;
  treadle_builder_release(&text);
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
        "weight_block_size; give fp32, bf16 or fp16",
        words->text, layout->model->path);
  if (asked && !type->holds_fp8)
    return treadle_fail(TREADLE_REFUSED,
                        "layout '%s': dtype=fp8, but %s holds no fp8 weights; give fp32, bf16 or fp16",
                        words->text, type->name);
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
  layout->owners = (treadle_owners){.count = ranks};
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
  treadle_nodes nodes = {0};
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
  TRY(read_owners(layout, &words, type));
  TRY(type->create(layout, &words, &arena, &normal));
  TRY(treadle_settings_finish(&words, type->keys));
  if (layout->dtype) treadle_normal_text(&normal, "dtype", treadle_dtype_name(layout->dtype));
  print_owners(layout, &normal);
  if (normal.failed) {
    status = treadle_fail(TREADLE_NO_MEMORY, "layout: memory is out");
    goto out;
  }
  treadle_free(layout->text);
  layout->text = normal.text;
  normal = (treadle_builder){0};
  layout->digest = treadle_hash_more(treadle_hash_text(layout->text, layout->digest), (uint64_t)ranks);
  if (o.rank_map == TREADLE_BEST && o.node_of) TRY(treadle_nodes_make(o.node_of, ranks, &nodes));
  if (o.train) TRY(treadle_layout_map_ranks(layout, o.train, o.rank_map, nodes.count ? &nodes : NULL));
  *layout_p = layout;
out:
  if (status != TREADLE_OK) treadle_layout_destroy(layout);
  treadle_nodes_release(&nodes);
  treadle_builder_release(&normal);
  treadle_arena_release(&arena);
  return status;
}

void treadle_layout_destroy(treadle_layout *layout) {
  if (!layout) return;
  if (layout->state) layout->ops->destroy(layout);
  treadle_owners_release(&layout->owners);
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
