/* The digest: a sum over all canonical elements of a hash of tensor, index and value.
 *
 * A sum does not depend on who adds what, so each rank adds the elements it answers for: those of cells of
 * which it is the first holder. Cells of a tensor are disjoint and cover it, and are the same whoever asks,
 * so every element is added once, copies and padding never. */
#ifndef TREADLE_WEIGHTS_DIGEST_H
#define TREADLE_WEIGHTS_DIGEST_H

#include "memory/device.h"
#include "messages/own.h"

/* Adds what a rank answers for to the sum of each entry: sums[entries]. turn: which of its holders answers for a cell, of n
 * holders number turn % n. `window` is device memory, what is in own tensors lies there. */
typedef struct treadle_rank_window {
  const treadle_layout *layout;
  int64_t rank;
  const treadle_device *device;
  const char *window;
  const treadle_arrangement *arrangement; /* NULL: as its layout has it */
  treadle_own_spans own;
} treadle_rank_window;
treadle_status treadle_digest_add(const treadle_rank_window *of, int64_t turn, uint64_t *sums);

/* The same of a model's files: adds a share of their values to *sum_p. Shares 0 to shares - 1 together are the digest
 * of windows that hold these values. digest_saved.c */
treadle_status treadle_digest_saved(const treadle_model *model, int share, int shares, uint64_t *sum_p);

#endif
