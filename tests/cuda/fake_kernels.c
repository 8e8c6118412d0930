/* Modules, and the kernels: their own source, compiled for the host. Device addresses become near ones wherever a
 * kernel reads or writes. */
#include "cuda/fake_parts.h"

#include <stdlib.h>
#include <string.h>

static void *near(uint64_t address) {
  if (!fake_is_device(address)) return fake_pointer(fake_cuda_near(address));
  return fake_pointer(fake_is_reached(address) ? address + fake_space_bytes : address);
}

#define TREADLE_CUDA_AT(type, address) ((type *)near(address))
#include "memory/kernel_cuda.cu"

/* ---- What a launch of treadle_cuda_copy writes, reckoned from its items ---- */

static uint64_t value_bytes(const treadle_cuda_box *box) {
  const uint8_t dtype = box->to_dtype;
  if (dtype == TREADLE_CUDA_FP32 || dtype == TREADLE_CUDA_INT32) return 4;
  return dtype == TREADLE_CUDA_FP8_E4M3 ? 1 : 2;
}

/* Values of an axis in tile number `number` along it. */
static uint64_t side_of(uint32_t size, uint64_t number) {
  const uint64_t left = size - number * TREADLE_CUDA_TILE;
  return left < TREADLE_CUDA_TILE ? left : TREADLE_CUDA_TILE;
}

static uint64_t tile_bytes(const treadle_cuda_box *box, uint64_t number) {
  const uint32_t columns = box->size[box->ndim - 1], rows_of_box = box->size[box->ndim - 2];
  const uint64_t across = (columns + TREADLE_CUDA_TILE - 1) / TREADLE_CUDA_TILE;
  const uint64_t down = (rows_of_box + TREADLE_CUDA_TILE - 1) / TREADLE_CUDA_TILE;
  return side_of(columns, number % across) * side_of(rows_of_box, number / across % down) *
         value_bytes(box);
}

static uint64_t copied_bytes(const void *given, unsigned blocks) {
  treadle_cuda_copy_args args;
  memcpy(&args, given, sizeof args);
  const treadle_cuda_item *items = near(args.items);
  const treadle_cuda_box *boxes = near(args.boxes);
  uint64_t bytes = 0;
  for (uint32_t i = 0; blocks > 0 && i < args.count; i++) {
    const treadle_cuda_box *box = &boxes[items[i].box];
    if (box->kind == TREADLE_CUDA_TILES)
      bytes += tile_bytes(box, items[i].start);
    else
      bytes +=
          items[i].count * (uint64_t)box->width * (box->kind == TREADLE_CUDA_VALUES ? value_bytes(box) : 1);
  }
  return bytes;
}

/* ---- The kernels ---- */

struct fake_kernel {
  const char *name;
  void (*run)(const void *args, uint32_t blocks, uint32_t seed);
  uint64_t (*bytes)(const void *args, unsigned blocks); /* NULL: not counted */
  size_t args;
};

static const fake_kernel kernels[] = {
    {"treadle_cuda_copy", treadle_cuda_copy, copied_bytes, sizeof(treadle_cuda_copy_args)},
    {"treadle_cuda_blocks", treadle_cuda_blocks, NULL, sizeof(treadle_cuda_blocks_args)},
    {"treadle_cuda_generate", treadle_cuda_generate, NULL, sizeof(treadle_cuda_elements_args)},
    {"treadle_cuda_hash", treadle_cuda_hash, NULL, sizeof(treadle_cuda_elements_args)},
};
enum { KERNELS = sizeof kernels / sizeof *kernels };

static void run_kernel(const fake_work *w) {
  const CUresult error = fake_fails(FAKE_launch);
  if (error != CUDA_SUCCESS) {
    fake_stick(error);
    return;
  }
  const uint64_t bytes = w->kernel->bytes ? w->kernel->bytes(w->own, w->blocks) : 0;
  w->kernel->run(w->own, w->blocks, (uint32_t)w->number * 2654435761u);
  FAKE_LOCKED;
  fake_ledger.launches++;
  fake_ledger.kernel_bytes += bytes;
}

/* ---- Modules ---- */

struct CUfunc_st {
  const fake_kernel *kernel;
};

struct CUmod_st {
  fake_span span; /* its own bytes: a function is found by its address */
  struct CUfunc_st functions[KERNELS];
};

static fake_table modules;

static struct CUmod_st *module_of(const void *part) {
  return fake_table_find(&modules, fake_address(part));
}

static bool is_image(const void *image) {
  const uint32_t fatbin = 0xba55ed50;
  return image && (memcmp(image, &fatbin, sizeof fatbin) == 0 ||
                   strncmp(image, FAKE_CUDA_MARKER, strlen(FAKE_CUDA_MARKER)) == 0);
}

FAKE_API CUresult cuModuleLoadData(CUmodule *module_p, const void *image) {
  FAKE_ENTER(cuModuleLoadData);
  FAKE_LOCKED;
  if (fake_current_device() < 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (!module_p || !is_image(image)) return CUDA_ERROR_INVALID_IMAGE;
  struct CUmod_st *m = calloc(1, sizeof *m);
  if (!m) abort();
  m->span = (fake_span){fake_address(m), sizeof *m};
  for (int i = 0; i < KERNELS; i++) m->functions[i].kernel = &kernels[i];
  fake_table_add(&modules, &m->span);
  fake_level_add(&fake_ledger.objects, 1);
  *module_p = m;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuModuleUnload(CUmodule module) {
  FAKE_ENTER(cuModuleUnload);
  FAKE_LOCKED;
  struct CUmod_st *m = module_of(module);
  if (!m) return CUDA_ERROR_INVALID_HANDLE;
  const size_t i = fake_table_from(&modules, m->span.at);
  fake_table_remove(&modules, i, i + 1);
  fake_level_add(&fake_ledger.objects, -1);
  free(m);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuModuleGetFunction(CUfunction *function_p, CUmodule module, const char *name) {
  FAKE_ENTER(cuModuleGetFunction);
  FAKE_LOCKED;
  struct CUmod_st *m = module_of(module);
  if (!m) return CUDA_ERROR_INVALID_HANDLE;
  for (int i = 0; i < KERNELS; i++)
    if (strcmp(kernels[i].name, name) == 0) {
      *function_p = &m->functions[i];
      return CUDA_SUCCESS;
    }
  return CUDA_ERROR_NOT_FOUND;
}

FAKE_API CUresult cuFuncLoad(CUfunction function) {
  FAKE_ENTER(cuFuncLoad);
  FAKE_LOCKED;
  return function ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* All others are 0. */
static const int attributes[][2] = {{CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, TREADLE_CUDA_THREADS},
                                    {CU_FUNC_ATTRIBUTE_NUM_REGS, 32},
                                    {CU_FUNC_ATTRIBUTE_PTX_VERSION, 90},
                                    {CU_FUNC_ATTRIBUTE_BINARY_VERSION, 90}};

FAKE_API CUresult cuFuncGetAttribute(int *value_p, CUfunction_attribute which, CUfunction function) {
  FAKE_ENTER(cuFuncGetAttribute);
  FAKE_LOCKED;
  if (!module_of(function)) return CUDA_ERROR_INVALID_HANDLE;
  *value_p = 0;
  for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
    if (attributes[i][0] == (int)which) *value_p = attributes[i][1];
  return CUDA_SUCCESS;
}

/* Arguments are copied now: the caller may change them when this returns. */
static CUresult launch(CUfunction function, unsigned blocks, CUstream stream, void *const *params) {
  struct CUstream_st *s;
  const CUresult result = fake_stream_takes(stream, &s);
  if (result != CUDA_SUCCESS) return result;
  if (!module_of(function)) return CUDA_ERROR_INVALID_HANDLE;
  if (!params || !params[0] || blocks == 0) return CUDA_ERROR_INVALID_VALUE;
  const fake_kernel *kernel = function->kernel;
  void *args = malloc(kernel->args);
  if (!args) abort();
  memcpy(args, params[0], kernel->args);
  fake_put(s, (fake_work){.run = run_kernel, .kernel = kernel, .blocks = blocks, .own = args});
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                 unsigned block_x, unsigned block_y, unsigned block_z,
                                 unsigned shared_bytes, CUstream stream, void **params, void **extra) {
  FAKE_ENTER(cuLaunchKernel);
  FAKE_LOCKED;
  if (grid_y != 1 || grid_z != 1 || block_y != 1 || block_z != 1) return CUDA_ERROR_INVALID_VALUE;
  if (block_x != TREADLE_CUDA_THREADS || shared_bytes != 0 || extra) return CUDA_ERROR_INVALID_VALUE;
  return launch(function, grid_x, stream, params);
}
