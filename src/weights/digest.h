/* The digest: a sum over all canonical elements of a hash of tensor, index and value.
 *
 * A sum does not depend on who adds what, so each rank adds the elements it answers for: those of cells of
 * which it is the first holder. Cells of a tensor are disjoint and cover it, and are the same whoever asks,
 * so every element is added once, copies and padding never. */
#ifndef TREADLE_WEIGHTS_DIGEST_H
#define TREADLE_WEIGHTS_DIGEST_H

#include "memory/device.h"
#include "plan/plan.h"

/* Adds what a rank answers for to the sum of each entry: sums[entries]. turn: which of its holders answers for a cell, of n
 * holders number turn % n. arrangement: of the window; NULL: as its layout has it. device: whose memory the
 * window is. */
treadle_status treadle_digest_add(const treadle_layout *layout, int64_t rank, const treadle_device *device,
                                  const char *window, const treadle_arrangement *arrangement, int64_t turn,
                                  uint64_t *sums);

#endif
