/* A model, ranks and layouts in a few words, for fuzz targets whose bytes are text:
 *
 *   qwen3_moe vocab_size=4294967296 quantization_config={"quant_method": "fp8", "weight_block_size": [2, 2]}
 *   ranks=4 rank=1 page=4096 cap=0 alias=1 map=2
 *   megatron:tp=2,ep=2
 *   vllm:tp=2,ep=on
 *
 * The first line is a model_type and what is changed in a small config that all families can read; the second has numbers; each
 * line after it is a layout. */
#ifndef TREADLE_TESTS_FUZZ_DESCRIBED_H
#define TREADLE_TESTS_FUZZ_DESCRIBED_H

#include "treadle.h"

enum { DESCRIBED_LAYOUTS = 2 };

typedef struct described {
  treadle_model *model; /* NULL: refused, or no model that a fuzzer has time for */
  int64_t ranks, rank, page, cap, alias, map, waves;
  const char *layouts[DESCRIBED_LAYOUTS]; /* "" where the line is missing */
  char *text;
} described;

/* Reads them; a status other than TREADLE_REFUSED and TREADLE_OK from the library ends the process. Ended by described_release(). */
void described_read(const uint8_t *bytes, size_t count, described *d);
void described_release(described *d);

#endif
