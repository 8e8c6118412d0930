/* The digest of values in files: each tensor in blocks of a few MiB, which are shared out by turns. */
#include "weights/digest.h"

#include "base/alloc.h"
#include "memory/value.h"
#include "weights/box_elements.h"
#include "weights/load.h"

enum { BLOCK_ELEMS = 1 << 20 };

typedef struct reading {
  const treadle_model *model;
  int share, shares;
  int64_t block; /* so far, of all tensors */
  char *buffer;  /* [BLOCK_ELEMS] of fp32, which is the widest type */
  uint64_t sum;
} reading;

/* `box` is of one expert where the tensor is stacked. */
static treadle_status add_block(reading *r, int32_t number, const treadle_box *box) {
  const treadle_tensor *tensor = &r->model->tensors[number];
  const int64_t entry = tensor->first_entry + (tensor->by_expert ? box->start[0] : 0);
  treadle_piece piece = {.tensor = number, .dtype = tensor->dtype, .box = *box};
  treadle_status status;
  int64_t stride = (int64_t)treadle_dtype_bytes(tensor->dtype);
  for (int a = TREADLE_MAX_AXES - 1; a >= 0; a--) {
    piece.stride[a] = stride;
    stride *= box->size[a];
  }
  TRY(treadle_load_values(r->model, &piece, treadle_device_host(), r->buffer));
  TRY(treadle_device_host()->ops->fence(treadle_device_host()));
  treadle_elements elements = treadle_elements_of(tensor, box->start, box->size, 0, piece.stride);
  elements.tensor = treadle_value_tensor(r->model->entries[entry].name);
  elements.dtype = tensor->dtype;
  r->sum += treadle_elements_hash(&elements, r->buffer);
out:
  return status;
}

static treadle_status add_box(reading *r, int32_t number, const treadle_box *box, treadle_boxes *boxes) {
  const int64_t elems = treadle_box_elems(box);
  treadle_status status = TREADLE_OK;
  for (int64_t at = 0; at < elems; at += BLOCK_ELEMS) {
    if (r->block++ % r->shares != r->share) continue;
    boxes->count = 0;
    TRY(treadle_box_range(box, 0, r->model->tensors[number].naxes - 1, at,
                          at + BLOCK_ELEMS < elems ? at + BLOCK_ELEMS : elems, boxes));
    for (size_t i = 0; i < boxes->count; i++) TRY(add_block(r, number, &boxes->items[i]));
  }
out:
  return status;
}

treadle_status treadle_digest_saved(const treadle_model *model, int share, int shares, uint64_t *sum_p) {
  treadle_boxes boxes = {0};
  treadle_status status = TREADLE_OK;
  reading r = {.model = model, .share = share, .shares = shares};
  r.buffer = treadle_alloc_array(BLOCK_ELEMS, sizeof(float));
  if (!r.buffer) TRY(treadle_fail(TREADLE_NO_MEMORY, "digest: memory is out"));
  for (int32_t t = 0; t < model->tensor_count; t++) {
    const treadle_tensor *tensor = &model->tensors[t];
    treadle_box box = treadle_box_whole(tensor);
    const int64_t experts = tensor->by_expert ? box.size[0] : 1;
    if (tensor->by_expert) box.size[0] = 1;
    for (int64_t e = 0; e < experts; e++, box.start[0]++) TRY(add_box(&r, t, &box, &boxes));
  }
  *sum_p += r.sum;
out:
  treadle_array_release(&boxes);
  treadle_free(r.buffer);
  return status;
}
