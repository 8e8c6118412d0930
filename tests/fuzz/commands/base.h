/* What the fuzzer begins with: small good models of every family, checkpoints of them in several layouts, conversions that
 * were stopped, pieces, lists of tensors. Made once, the same on every machine; runs link to the files and spoil their links. */
#ifndef TREADLE_TESTS_FUZZ_COMMANDS_BASE_H
#define TREADLE_TESTS_FUZZ_COMMANDS_BASE_H

#include "commands/folder.h"
#include "plan/draw.h"

enum { FUZZ_ENGINES = 5, FUZZ_MODELS = 54, FUZZ_RECORDED = 3, FUZZ_CONFIGS = 64 };

typedef struct fuzz_model {
  char folder[32]; /* below the base: has hf, and what else could be made */
  char config[DRAW_CONFIG];
  char megatron[DRAW_TEXT];   /* the layout of folder/megatron; "" for none */
  char stopped_to[DRAW_TEXT]; /* where the conversion in folder/stopped goes; "" for none */
} fuzz_model;

typedef struct fuzz_base {
  char path[64];
  fuzz_model models[FUZZ_MODELS];
  char engines[FUZZ_ENGINES]
              [FUZZ_PATH]; /* folders of models that generate, with a tokenizer and a template */
  int config_count;        /* of real models, where the machine has them */
  char configs[FUZZ_CONFIGS][FUZZ_PATH];
} fuzz_base;

/* Torch's distributed checkpoints in tests/data/convert: NAME is a folder, NAME.json its config. */
extern const char *const fuzz_recorded[FUZZ_RECORDED];

void fuzz_base_make(fuzz_base *base, const char *path);

#endif
