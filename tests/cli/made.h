/* Small Hugging Face checkpoints of any family, with hash weights. */
#ifndef TESTS_CLI_MADE_H
#define TESTS_CLI_MADE_H

#include <stdbool.h>

typedef struct made_options {
  int shards;  /* 0: one file without index */
  bool copies; /* tied names are stored, too, and a buffer that no engine loads */
} made_options;

/* Makes a new folder with config.json, a tokenizer and the weights of a config (as JSON text). Tensors lie in the files
 * in an order that is not the model's. */
void made_checkpoint(const char *folder, const char *config, const made_options *options);

#endif
