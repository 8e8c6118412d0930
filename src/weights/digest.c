/* Digests of windows. */
#include "weights/digest.h"

#include "weights/value.h"

#include <string.h>

typedef struct adder {
  const char *window;
  uint64_t tensor;
  treadle_dtype dtype;
  int8_t add; /* what is stored is the value plus this */
  uint64_t sum;
} adder;

static uint32_t bits_of_half(treadle_dtype dtype, const char *at) {
  uint16_t half;
  memcpy(&half, at, sizeof half);
  if (dtype == TREADLE_BF16) return (uint32_t)half << 16;
  float value = treadle_fp16_to_float(half);
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static uint32_t bits_of_fp8(const char *at) {
  float value = treadle_fp8_to_float((uint8_t)*at);
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static inline uint32_t bits_at(treadle_dtype dtype, const char *at) {
  if (dtype == TREADLE_FP8_E4M3) return bits_of_fp8(at);
  if (dtype != TREADLE_FP32) return bits_of_half(dtype, at);
  uint32_t bits;
  memcpy(&bits, at, sizeof bits);
  return bits;
}

static inline uint64_t add_elems(const adder *a, const char *from, int64_t step, int64_t index,
                                 int64_t count, treadle_dtype dtype) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < count; i++)
    sum += treadle_value_hash(a->tensor, index + i, bits_at(dtype, from + i * step));
  return sum;
}

/* Values are hashed as the tensor has them. */
static void add_shifted(adder *a, const char *from, int64_t step, int64_t index, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    uint32_t bits = bits_at(a->dtype, from + i * step);
    float value;
    memcpy(&value, &bits, sizeof value);
    value -= (float)a->add;
    memcpy(&bits, &value, sizeof bits);
    a->sum += treadle_value_hash(a->tensor, index + i, bits);
  }
}

/* The same loop with type and step fixed for the compiler where it matters. */
static void add_run(void *context, int64_t index, int64_t at, int64_t step, int64_t count) {
  adder *a = context;
  const char *from = a->window + at;
  if (a->add) {
    add_shifted(a, from, step, index, count);
    return;
  }
  if (a->dtype == TREADLE_BF16 && step == 2)
    a->sum += add_elems(a, from, 2, index, count, TREADLE_BF16);
  else if (a->dtype == TREADLE_FP32 && step == 4)
    a->sum += add_elems(a, from, 4, index, count, TREADLE_FP32);
  else
    a->sum += add_elems(a, from, step, index, count, a->dtype);
}

treadle_status treadle_digest_add(const treadle_layout *layout, int64_t rank, const char *window,
                                  const treadle_arrangement *arrangement, int64_t turn, uint64_t *sums) {
  treadle_status status = TREADLE_OK;
  treadle_cells cells = {0};
  const treadle_model *model = layout->model;
  for (int32_t t = 0; t < model->tensor_count; t++) {
    const treadle_tensor *tensor = &model->tensors[t];
    const treadle_box whole = treadle_box_whole(tensor);
    cells.count = 0;
    TRY(treadle_layout_cells(layout, t, &whole, &cells));
    for (size_t i = 0; i < cells.count; i++) {
      const treadle_cell *cell = &cells.items[i];
      if (treadle_cell_find(layout, cell, rank) != turn % cell->holders) continue;
      const int64_t *stride;
      int64_t at = treadle_cell_locate(layout, cell, turn % cell->holders, &stride), experts = 1;
      if (arrangement) at = treadle_plan_place(arrangement, at);
      treadle_box box = cell->box;
      if (tensor->by_expert) {
        experts = box.size[0];
        box.size[0] = 1;
      }
      for (int64_t e = 0; e < experts; e++) { /* each is a tensor of its own */
        int64_t entry = tensor->first_entry + (tensor->by_expert ? box.start[0] : 0);
        adder a = {window, treadle_value_tensor(model->entries[entry].name), cell->dtype, cell->add, 0};
        treadle_value_each(tensor, box.start, box.size, at, stride, add_run, &a);
        sums[entry] += a.sum;
        box.start[0]++;
        at += stride[0];
      }
    }
  }
out:
  treadle_array_release(&cells);
  return status;
}
