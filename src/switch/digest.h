/* Digests, inside. */
#ifndef TREADLE_SWITCH_DIGEST_H
#define TREADLE_SWITCH_DIGEST_H

#include "base/status.h"

#include <stdint.h>

/* As treadle_switch_digest, for each entry (tensor of the checkpoint) of the model: sums[entries]. Of n ranks that hold an
 * element, number turn % n is asked: so that with turn = 0, 1, ... below the number of ranks every copy is. Collective. */
treadle_status treadle_switch_digest_entries(treadle_switch *sw, int64_t turn, uint64_t *sums);

#endif
