/* What a checkpoint says of itself, so that damage shows: global_step_K/digests.json.
 *
 *   {"step": K,
 *    "parts": {"actor/huggingface": "0123456789abcdef", ...},
 *    "files": {"data.json": {"bytes": 123, "crc32": "01234567"}, ...}}
 *
 * Of a part it is the digest of its values, as weights/digest.h has it, whatever the layout; the files are those that
 * are no safetensors. Values are those that a model reads from the files of a part, so that a file of another part, or of another
 * checkpoint, shows as well. */
#ifndef TREADLE_RUN_CHECKPOINT_DIGESTS_H
#define TREADLE_RUN_CHECKPOINT_DIGESTS_H

#include "treadle.h"

#define TREADLE_DIGESTS_FILE "digests.json"
#define TREADLE_DIGESTS_NONE                                                                               \
  "has no " TREADLE_DIGESTS_FILE                                                                           \
  ", as checkpoints of older versions have none: whether it is damaged is not known"

/* Writes it, in the folder of a checkpoint that has everything else. Collective; group: NULL is one rank. families: of
 * treadle_model_options. */
treadle_status treadle_checkpoint_digests_write(treadle_group *group, const char *folder, int64_t step,
                                                const char *families);
/* Is the checkpoint what it says? TREADLE_DIFFERENT: not; the message names part or file. *known_p false: it says
 * nothing, as those of older versions do. Collective. */
treadle_status treadle_checkpoint_digests_verify(treadle_group *group, const char *folder,
                                                 const char *families, bool *known_p);

#endif
