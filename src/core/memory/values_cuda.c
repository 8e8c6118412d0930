/* Blocks of fp8, and values of elements, on a CUDA device. */
#include "memory/state_cuda.h"

/* ---- Blocks ---- */

static void run_block(const treadle_device *device, treadle_cuda_block block) {
  treadle_cuda *cuda = treadle_cuda_of(device);
  treadle_cuda_blocks_args args = {.one = block, .count = 1};
  treadle_cuda_enter(cuda);
  treadle_cuda_launch(cuda, cuda->blocks, 1, &args);
  treadle_cuda_leave(cuda);
}

static treadle_cuda_block block_of(treadle_matrix values, treadle_dtype dtype, treadle_matrix codes,
                                   const float *scale, int64_t rows, int64_t columns) {
  return (treadle_cuda_block){.values = (uintptr_t)values.base,
                              .codes = (uintptr_t)codes.base,
                              .scale = (uintptr_t)scale,
                              .values_row = values.row_stride,
                              .values_column = values.column_stride,
                              .codes_row = codes.row_stride,
                              .codes_column = codes.column_stride,
                              .rows = (uint32_t)rows,
                              .columns = (uint32_t)columns,
                              .dtype = (uint8_t)dtype};
}

void treadle_cuda_quantise(const treadle_device *device, treadle_matrix codes, float *scale,
                           treadle_matrix values, treadle_dtype dtype, int64_t rows, int64_t columns) {
  run_block(device, block_of(values, dtype, codes, scale, rows, columns));
}

void treadle_cuda_dequantise(const treadle_device *device, treadle_matrix values, treadle_dtype dtype,
                             treadle_matrix codes, const float *scale, int64_t rows, int64_t columns) {
  treadle_cuda_block block = block_of(values, dtype, codes, scale, rows, columns);
  block.back = 1;
  run_block(device, block);
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
