/* The files that the model came in: the same names, and in each the same order. What stays coded stays as it is, with its
 * scales; what is decoded loses them, and what becomes fp8 gets them right behind it. */
#include "convert/target_parts.h"

#include "base/dtype.h"

#include <stdlib.h>
#include <string.h>

static treadle_status no_memory(const treadle_target *target) {
  return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its files", target->text);
}

static int32_t index_of(const treadle_checkpoint *checkpoint, const treadle_stored *stored) {
  return (int32_t)(stored - checkpoint->tensors);
}

/* ---- What their tensors consist of -------------------------------------------------------------- */

/* A box of a canonical tensor in a stored one; of what becomes fp8, the values that it is made of. */
static treadle_piece piece_of(const treadle_target *target, int32_t index,
                              const treadle_stored_box *place) {
  const treadle_tensor *tensor = &target->model->tensors[index];
  treadle_dtype dtype = treadle_layout_dtype(target->layout, tensor);
  if (dtype == TREADLE_FP8_E4M3) dtype = TREADLE_FP32;
  int64_t size = (int64_t)treadle_dtype_bytes(dtype);
  treadle_piece piece = {
      .tensor = index, .dtype = dtype, .box = treadle_box_whole(tensor), .offset = place->at * size};
  for (int a = 0; a < tensor->naxes; a++) {
    piece.box.start[a] = place->start[a];
    piece.box.size[a] = place->size[a];
    piece.stride[a] = place->stride[a] * size;
  }
  return piece;
}

static void take_place(treadle_target *target, int pass, int32_t tensor, const treadle_stored_box *place) {
  const treadle_checkpoint *checkpoint = target->model->checkpoint;
  int32_t at = index_of(checkpoint, place->stored);
  target->own[at].coding = place->coding;
  if (place->scales) {
    treadle_original *scales = &target->own[index_of(checkpoint, place->scales)];
    scales->is_scales = true;
    scales->weight = at;
  }
  if (place->coding == TREADLE_CODED_MXFP4)
    target->own[at].entry = target->model->tensors[tensor].first_entry;
  else if (pass == 0)
    target->own_first[at + 2]++;
  else
    target->own_pieces.items[target->own_first[at + 1]++] = piece_of(target, tensor, place);
}

/* The places of the model's tensors in the files, the other way round. They are counted, then put where they belong:
 * own_first has counts, then begins, one further on. */
static treadle_status take_pieces(treadle_target *target) {
  const treadle_model *model = target->model;
  const treadle_files *files = model->files;
  size_t count = (size_t)model->checkpoint->count;
  target->own_first = treadle_arena_alloc_array(&target->arena, count + 3, sizeof *target->own_first);
  if (!target->own_first) return no_memory(target);
  for (int pass = 0; pass < 2; pass++) {
    for (int32_t t = 0; t < model->tensor_count; t++) {
      const treadle_box whole = treadle_box_whole(&model->tensors[t]);
      treadle_stored_box place;
      if (model->tensors[t].scale_of >= 0) continue; /* they come with their weights */
      for (int32_t next = 0; treadle_model_stored(model, t, whole.start, whole.size, &next, &place);)
        take_place(target, pass, t, &place);
    }
    for (int32_t a = 0; a < model->tied_count; a++) { /* a copy looks like its original */
      int32_t t = model->tied[a].tensor, next = 0;
      const treadle_box whole = treadle_box_whole(&model->tensors[t]);
      treadle_stored_box place;
      if (!files->tied[a] || !treadle_model_stored(model, t, whole.start, whole.size, &next, &place))
        continue;
      place.stored = files->tied[a];
      take_place(target, pass, t, &place);
    }
    if (pass == 1) break;
    for (size_t i = 0; i <= count; i++) target->own_first[i + 2] += target->own_first[i + 1];
    size_t total = (size_t)target->own_first[count + 1];
    target->own_pieces.items = treadle_alloc_array(total + 1, sizeof *target->own_pieces.items);
    if (!target->own_pieces.items) return no_memory(target);
    target->own_pieces.count = target->own_pieces.capacity = total;
  }
  return TREADLE_OK;
}

/* ---- What becomes of them ----------------------------------------------------------------------- */

/* Of one that is not scales. */
static treadle_making making_of(const treadle_target *target, int32_t index) {
  const treadle_original *own = &target->own[index];
  int32_t first = target->own_first[index];
  bool coded = own->coding == TREADLE_CODED_FP8;
  if (own->carried || (coded && target->layout->fp8 && target->from_own)) return TREADLE_MADE_RAW;
  if (own->coding == TREADLE_CODED_MXFP4 || first == target->own_first[index + 1])
    return TREADLE_MADE_OF_VALUES;
  const treadle_tensor *tensor = &target->model->tensors[target->own_pieces.items[first].tensor];
  return treadle_layout_dtype(target->layout, tensor) == TREADLE_FP8_E4M3 ? TREADLE_MADE_CODES
                                                                          : TREADLE_MADE_OF_VALUES;
}

/* The name without "_blocks", or with "_scale_inv" behind it. */
static treadle_status rename_item(treadle_target *target, const treadle_stored *stored,
                                  treadle_out_entry *item) {
  static const char blocks[] = "_blocks";
  int length = (int)strlen(stored->name);
  bool scales = item->making == TREADLE_MADE_SCALES;
  item->name =
      treadle_arena_format(&target->arena, "%.*s%s", scales ? length : length - (int)strlen(blocks),
                           stored->name, scales ? "_scale_inv" : "");
  return item->name ? TREADLE_OK : no_memory(target);
}

/* Adds what becomes of one tensor: one item, none, or two. */
static treadle_status add_items(treadle_target *target, int32_t index, int32_t *count) {
  treadle_status status = TREADLE_OK;
  const treadle_original *own = &target->own[index];
  const treadle_stored *stored = &target->model->checkpoint->tensors[index];
  treadle_out_entry item = {.name = stored->name, .own = index, .entry = own->entry};
  if (own->is_scales) {
    treadle_making weight = making_of(target, own->weight);
    if (weight == TREADLE_MADE_OF_VALUES) return TREADLE_OK;
    item.making = weight == TREADLE_MADE_RAW ? TREADLE_MADE_RAW : TREADLE_MADE_SCALES;
    if (item.making == TREADLE_MADE_SCALES) {
      item.own = own->weight;
      if (stored->dtype != TREADLE_FP32) target->as_they_are = false; /* those that are made are fp32 */
    }
    target->items[(*count)++] = item;
    return TREADLE_OK;
  }
  item.making = making_of(target, index);
  target->decodes |= own->coding != TREADLE_CODED_PLAIN && item.making == TREADLE_MADE_OF_VALUES;
  if (own->entry >= 0) TRY(rename_item(target, stored, &item));
  target->items[(*count)++] = item;
  const treadle_stored about = treadle_out_entry_about(target, &item);
  if (about.dtype != stored->dtype) target->as_they_are = false;
  if (item.making == TREADLE_MADE_CODES && own->coding == TREADLE_CODED_PLAIN) {
    item.making = TREADLE_MADE_SCALES;
    TRY(rename_item(target, stored, &item));
    target->items[(*count)++] = item;
  }
out:
  return status;
}

typedef struct file_place {
  int32_t file, tensor;
  size_t begin, bytes;
} file_place;

static int compare_places(const void *a_, const void *b_) {
  const file_place *a = a_, *b = b_;
  if (a->file != b->file) return a->file < b->file ? -1 : 1;
  if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
  if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1; /* empty ones first */
  return a->tensor < b->tensor ? -1 : a->tensor > b->tensor;
}

treadle_status treadle_target_take_own(treadle_target *target) {
  treadle_status status = TREADLE_OK;
  const treadle_checkpoint *checkpoint = target->model->checkpoint;
  int32_t items = 0;
  file_place *places = treadle_alloc_array((size_t)checkpoint->count + 1, sizeof *places);
  if (!places) return no_memory(target);
  target->as_they_are = true;
  TRY(take_pieces(target));
  for (int32_t i = 0; i < checkpoint->count; i++) {
    const treadle_stored *stored = &checkpoint->tensors[i];
    places[i] = (file_place){stored->file, i, stored->begin, stored->bytes};
  }
  qsort(places, (size_t)checkpoint->count, sizeof *places, compare_places);
  target->file_count = checkpoint->file_count;
  for (int32_t f = 0, i = 0; f < checkpoint->file_count; f++) {
    for (; i < checkpoint->count && places[i].file == f; i++)
      TRY(add_items(target, places[i].tensor, &items));
    target->first_item[f + 1] = items;
    target->headers[f] = treadle_checkpoint_header(checkpoint, f);
    target->paths[f] = target->headers[f].file;
  }
out:
  treadle_free(places);
  return status;
}
