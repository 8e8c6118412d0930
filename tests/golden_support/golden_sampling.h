/* Comparing the sampler with sampling.json.gz of tests/golden/text: tokens that are left, and their probabilities. */
#ifndef TREADLE_TESTS_GOLDEN_SAMPLING_H
#define TREADLE_TESTS_GOLDEN_SAMPLING_H

#include "golden_support/golden.h"

/* Checks every case; each difference is a line on `differences`. False when the file cannot be read. */
bool golden_check_sampling(const char *path, FILE *differences, golden_counts *counts_p);

#endif
