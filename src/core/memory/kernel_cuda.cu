/* The kernels of a CUDA device (kernel_cuda.h); as C, for the host, in tests and by a stand-in of the driver. Bit by
 * bit they do what treadle_copy_op, treadle_strip_make, treadle_elements_generate and
 * treadle_elements_hash do, which are their plain twins. Products and sums are never made in one rounding: nvcc
 * -fmad=false, and -ffp-contract=off. */
#include "memory/block_cuda.h"
#include "memory/copy_cuda.h"
#include "memory/elements_cuda.h"

KERNEL(treadle_cuda_copy, treadle_cuda_copy_args) {
  SHARED work w;
  SHARED tile room;
  for (uint32_t i = BLOCK; i < args.count; i += BLOCKS) {
    EACH(t) take_item(&w, &args, i, t);
    EACH(t) place_item(&w, t);
    if (w.box.kind != TREADLE_CUDA_TILES) {
      EACH(t) write_units(&w, t);
    } else {
#ifdef TREADLE_CUDA_RACE
      EACH(t) {
        read_tile(&room, &w, t);
        write_tile(&w, &room, t);
      }
#else
      EACH(t) read_tile(&room, &w, t);
      EACH(t) write_tile(&w, &room, t);
#endif
    }
    EACH(t) count_item(&w, &args, i, t);
  }
}

KERNEL(treadle_cuda_blocks, treadle_cuda_blocks_args) {
  SHARED block_work w;
  for (uint32_t i = BLOCK; i < args.count; i += BLOCKS) {
    EACH(t) take_strip(&w, &args, i, t);
    EACH(t) place_block(&w, &args, i, t);
    if (w.block.back) {
      EACH(t) write_values(&w, t);
      continue;
    }
    EACH(t) find_largest(&w, t);
    FOLD(t, half) fold_largest(&w, half, t);
    EACH(t) write_scale(&w, t);
    EACH(t) write_codes(&w, t);
  }
}

KERNEL(treadle_cuda_generate, treadle_cuda_elements_args) {
  SHARED elements_work w;
  EACH(t) take_elements(&w, &args, 0, t);
  EACH(t) count_chunks(&w, t);
  for (uint64_t i = BLOCK; i < w.chunks; i += BLOCKS) {
    EACH(t) place_chunk(&w, i, t);
    EACH(t) generate_chunk(&w, t);
  }
}

KERNEL(treadle_cuda_hash, treadle_cuda_elements_args) {
  SHARED elements_work w;
  uint64_t passed = 0; /* chunks of all blocks */
  for (uint32_t n = 0; n < args.count; n++) {
    EACH(t) take_elements(&w, &args, n, t);
    EACH(t) count_chunks(&w, t);
    const uint64_t chunks = w.chunks;
    for (uint64_t i = first_chunk(passed, BLOCK, BLOCKS); i < chunks; i += BLOCKS) {
      EACH(t) place_chunk(&w, i, t);
      EACH(t) hash_chunk(&w, t);
      FOLD(t, half) fold_sums(&w, half, t);
      EACH(t) add_sum(&w, &args, n, t);
    }
    passed += chunks;
  }
}
