/* Hugging Face's modules in memory (transformers v5): what FSDP and ZeRO cut. */
#ifndef TREADLE_TESTS_ORACLE_MODULES_H
#define TREADLE_TESTS_ORACLE_MODULES_H

#include "oracle/oracle_parts.h"

/* All parameters in the order of named_parameters, whole, as the tensors of a rank that oracle_modules_free
 * ends; a tied head is the embedding, MTP layers are no part of these modules. Persistent buffers
 * (e_score_correction_bias) come last. */
typedef struct oracle_modules {
  oracle_rank rank;
  int parameters; /* buffers stand behind them */
  int64_t *layer; /* [rank.count] -1 outside decoder layers */
  int *cut;       /* [rank.count] the dimension that tensor parallelism cuts, -1: none */
} oracle_modules;

void oracle_modules_make(const oracle_model *model, oracle_modules *modules);
void oracle_modules_free(oracle_modules *modules);

#endif
