/* The files of a saved batch, and their limits. docs/batches.md has the format. */
#ifndef TREADLE_BATCH_FILES_H
#define TREADLE_BATCH_FILES_H

#define TREADLE_BATCH_ABOUT   "batch.json"
#define TREADLE_BATCH_NUMBERS "columns.safetensors"
#define TREADLE_BATCH_TEXTS   "texts.jsonl"
#define TREADLE_BATCH_FORMAT  "treadle_batch" /* the key of batch.json with the number of the format */
#define TREADLE_BATCH_OFFSETS ".offsets"
enum { TREADLE_BATCH_VERSION = 1 };

#endif
