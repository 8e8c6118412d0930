/* Golden files that say nothing about layouts: text, sampling, models. Each has one checker, which goes through the whole file and counts
 * its cases; a row of golden.c says which. */
#ifndef TREADLE_TESTS_GOLDEN_RECORDING_H
#define TREADLE_TESTS_GOLDEN_RECORDING_H

#include "golden_support/golden.h"

typedef struct golden_recording {
  const char *file; /* name without folder and ending: "tokenizers" */
  const json_t *root;
  FILE *out; /* a line for each difference */
  golden_counts *counts;
} golden_recording;

/* Counts a case. A difference is a line: where it is, then the words. */
void golden_count(golden_recording *r, golden_counts one);
void golden_say(golden_recording *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

void golden_check_tokenizers(golden_recording *r); /* golden_tokenizers.c */

#endif
