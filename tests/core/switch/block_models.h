/* Small models whose files hold fp8 in blocks, for tests of the switch. */
#ifndef TREADLE_TESTS_BLOCK_MODELS_H
#define TREADLE_TESTS_BLOCK_MODELS_H

#include "switch/switch.h"

typedef enum block_model {
  BLOCK_MODEL_LATENT, /* DeepSeek V3: attention has tensors that engines derive of blocks */
  BLOCK_MODEL_FINER,  /* Qwen3 MoE: vLLM cuts 96 rows of an expert inside of blocks of 32 */
  BLOCK_MODEL_SQUARE  /* DeepSeek V3.2: matrices of heads are one block each */
} block_model;

treadle_model *block_model_make(block_model which);
/* Does a window of that layout, which is not arranged, hold what it gets of one of `source` that was loaded? NULL: what it is loaded with. Says
 * the first tensor that differs. */
bool block_model_holds(const treadle_layout *layout, const treadle_layout *source, int rank,
                       const char *window);

#endif
