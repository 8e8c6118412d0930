/* The digest: a sum over all canonical elements of a hash of tensor, index and value.
 *
 * A sum does not depend on who adds what, so each rank adds the elements it answers for: those of cells of
 * which it is the first holder. Cells of a tensor are disjoint and cover it, and are the same whoever asks,
 * so every element is added once, copies and padding never. */
#include "switch/digest.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/dtype.h"
#include "switch/switch.h"
#include "switch/value.h"

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

/* What this rank answers for, added to the sum of each entry. turn: which of its holders answers for a cell. */
static treadle_status add_own(const treadle_layout *layout, int64_t rank, const char *window,
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

/* What this rank answers for of the window of the present mode. */
static treadle_status add_present(treadle_switch *sw, int64_t turn, uint64_t *sums) {
  if (sw->mode == TREADLE_LOST) return treadle_fail(TREADLE_STATE, "digest: the weights are lost");
  if (sw->mode == TREADLE_HOST)
    return treadle_fail(TREADLE_STATE, "digest: in mode host no weights are on the device");
  treadle_mode side = sw->mode == TREADLE_INFER ? TREADLE_INFER : TREADLE_TRAIN;
  treadle_status status = treadle_foreign_show(sw);
  if (status != TREADLE_OK) return status;
  return add_own(sw->layouts[side], sw->group->rank, sw->windows[treadle_class_of(side)],
                 side == TREADLE_INFER ? &sw->plan->arrangement : NULL, turn, sums);
}

treadle_status treadle_switch_digest_entries(treadle_switch *sw, int64_t turn, uint64_t *sums) {
  enum { MOST = TREADLE_GROUP_PAYLOAD / sizeof(uint64_t) };
  treadle_status status = TREADLE_OK;
  treadle_group *group = sw->group;
  size_t count = (size_t)sw->layouts[0]->model->entry_count;
  double group_timeout = group->timeout_seconds;
  group->timeout_seconds = sw->timeout_seconds;
  memset(sums, 0, count * sizeof *sums);
  TRY(treadle_switch_agree(group, add_present(sw, turn, sums)));
  for (size_t at = 0; at < count; at += MOST) {
    size_t part = count - at < MOST ? count - at : MOST;
    TRY(treadle_group_say(group, sums + at, part * sizeof *sums));
    memset(sums + at, 0, part * sizeof *sums);
    for (int rank = 0; rank < group->size; rank++) {
      const uint64_t *said = treadle_group_said(group, rank);
      for (size_t i = 0; i < part; i++) sums[at + i] += said[i];
    }
  }
out:
  group->timeout_seconds = group_timeout;
  return status;
}

treadle_status treadle_switch_digest(treadle_switch *sw, uint64_t *digest_p) {
  TREADLE_NEED(sw);
  TREADLE_NEED(digest_p);
  treadle_status status = TREADLE_OK;
  treadle_group *group = sw->group;
  size_t count = (size_t)sw->layouts[0]->model->entry_count;
  uint64_t *sums = treadle_alloc_array(count + 1, sizeof *sums), mine = 0, sum = 0;
  double group_timeout = group->timeout_seconds;
  group->timeout_seconds = sw->timeout_seconds;
  *digest_p = 0;
  TRY(treadle_switch_agree(group, sums ? add_present(sw, 0, sums)
                                       : treadle_fail(TREADLE_NO_MEMORY, "digest: memory is out")));
  for (size_t i = 0; i < count; i++) mine += sums[i];
  TRY(treadle_group_say(group, &mine, sizeof mine));
  for (int rank = 0; rank < group->size; rank++) sum += *(const uint64_t *)treadle_group_said(group, rank);
  *digest_p = sum;
out:
  treadle_free(sums);
  group->timeout_seconds = group_timeout;
  return status;
}
