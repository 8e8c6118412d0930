/* Blocks of fp8, and values of elements, on a CUDA device. */
#include "memory/state_cuda.h"

/* ---- Blocks ---- */

static treadle_cuda_strip strip_of(const treadle_strip *s) {
  return (treadle_cuda_strip){.values = (uintptr_t)s->values.base,
                              .codes = (uintptr_t)s->codes.base,
                              .scales = (uintptr_t)s->scales.base,
                              .values_row = s->values.row_stride,
                              .values_column = s->values.column_stride,
                              .codes_row = s->codes.row_stride,
                              .codes_column = s->codes.column_stride,
                              .scales_column = s->scales.column_stride,
                              .rows = (uint32_t)s->rows,
                              .columns = (uint32_t)s->columns,
                              .width = (uint32_t)s->width,
                              .skip = (uint32_t)s->skip,
                              .dtype = (uint8_t)s->dtype,
                              .back = s->back};
}

enum { BLOCKS_AT_ONCE = 32 << 10, STRIPS_AT_ONCE = 4 << 10 };

/* `count` blocks of these strips, without the first `skip`, in the room. */
static void launch_blocks(treadle_cuda *cuda, const treadle_strip *strips, size_t strip_count, int64_t skip,
                          int64_t count) {
  const size_t strip_bytes = strip_count * sizeof(treadle_cuda_strip);
  char *room = treadle_cuda_room(cuda, strip_bytes + (size_t)count * sizeof(treadle_cuda_block));
  treadle_cuda_strip *made = (treadle_cuda_strip *)(void *)room;
  treadle_cuda_block *blocks = (treadle_cuda_block *)(void *)(room + strip_bytes);
  int64_t at = 0, put = 0;
  for (size_t i = 0; i < strip_count; i++) {
    made[i] = strip_of(&strips[i]);
    for (int64_t k = 0, all = treadle_strip_blocks(&strips[i]); k < all; k++, at++)
      if (at >= skip && put < count) blocks[put++] = (treadle_cuda_block){(uint32_t)i, (uint32_t)k};
  }
  treadle_cuda_blocks_args args = {
      .strips = (uintptr_t)made, .blocks = (uintptr_t)blocks, .count = (uint32_t)put};
  treadle_cuda_launch(cuda, cuda->blocks, put, &args);
}

void treadle_cuda_make_blocks(const treadle_device *device, const treadle_strip *strips, size_t count) {
  treadle_cuda *cuda = treadle_cuda_of(device);
  treadle_cuda_enter(cuda);
  for (size_t i = 0; i < count && !cuda->failed; i += STRIPS_AT_ONCE) {
    const size_t some = count - i < STRIPS_AT_ONCE ? count - i : STRIPS_AT_ONCE;
    int64_t blocks = 0;
    for (size_t k = 0; k < some; k++) blocks += treadle_strip_blocks(&strips[i + k]);
    for (int64_t skip = 0; skip < blocks; skip += BLOCKS_AT_ONCE)
      launch_blocks(cuda, strips + i, some, skip,
                    blocks - skip < BLOCKS_AT_ONCE ? blocks - skip : BLOCKS_AT_ONCE);
  }
  treadle_cuda_leave(cuda);
}

/* ---- Elements ---- */

static treadle_cuda_elements elements_of(const treadle_elements *e, const void *window) {
  treadle_cuda_elements made = {.window = (uintptr_t)window,
                                .tensor = e->tensor,
                                .at = e->at,
                                .index = e->index,
                                .ndim = (uint8_t)e->ndim,
                                .dtype = (uint8_t)e->dtype,
                                .near_one = e->near_one,
                                .add = e->add};
  for (int a = 0; a < e->ndim; a++) {
    made.size[a] = e->size[a];
    made.stride[a] = e->stride[a];
    made.weight[a] = e->weight[a];
  }
  return made;
}

void treadle_cuda_generate(const treadle_device *device, const treadle_elements *elements, void *window) {
  treadle_cuda *cuda = treadle_cuda_of(device);
  treadle_cuda_elements_args args = {.one = elements_of(elements, window), .count = 1};
  treadle_cuda_enter(cuda);
  treadle_cuda_launch(cuda, cuda->generate, cuda->blocks_at_once, &args);
  treadle_cuda_leave(cuda);
}

/* As many as have room: they and their sums. */
static treadle_status hash_some(treadle_cuda *cuda, const treadle_elements *elements,
                                const void *const *windows, size_t count, uint64_t *sums) {
  treadle_status status;
  const size_t bytes = count * sizeof(treadle_cuda_elements);
  char *room = treadle_cuda_room(cuda, bytes + count * sizeof *sums);
  treadle_cuda_elements *many = (treadle_cuda_elements *)(void *)room;
  uint64_t *made = (uint64_t *)(void *)(room + bytes);
  for (size_t i = 0; i < count; i++) many[i] = elements_of(&elements[i], windows[i]);
  memset(made, 0, count * sizeof *made);
  treadle_cuda_elements_args args = {
      .many = (uintptr_t)many, .sums = (uintptr_t)made, .count = (uint32_t)count};
  treadle_cuda_launch(cuda, cuda->hash, cuda->blocks_at_once, &args);
  TRY(treadle_cuda_fence(cuda));
  memcpy(sums, made, count * sizeof *sums);
out:
  return status;
}

treadle_status treadle_cuda_hash(const treadle_device *device, const treadle_elements *elements,
                                 const void *const *windows, size_t count, uint64_t *sums) {
  enum { AT_ONCE = 4096 };
  treadle_status status = TREADLE_OK;
  treadle_cuda *cuda = treadle_cuda_of(device);
  treadle_cuda_enter(cuda);
  TRY(treadle_cuda_say(cuda));
  for (size_t i = 0; i < count; i += AT_ONCE)
    TRY(hash_some(cuda, elements + i, windows + i, count - i < AT_ONCE ? count - i : AT_ONCE, sums + i));
out:
  treadle_cuda_leave(cuda);
  return status;
}
