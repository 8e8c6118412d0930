/* What data.json of a checkpoint says of the run that wrote it, read again when a run goes on. Refused by file and name. */
#ifndef TREADLE_TRAIN_SAVED_VALUES_H
#define TREADLE_TRAIN_SAVED_VALUES_H

#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* A whole number, 0 at least. */
treadle_status treadle_saved_number(const json_t *root, const char *path, const char *name,
                                    int64_t *number_p);
/* How many there were of something: steps, prompts. At most as many as the keys of steps and prompts allow. */
#define TREADLE_SAVED_MOST (INT64_C(1) << 40)
treadle_status treadle_saved_count(const json_t *root, const char *path, const char *name,
                                   int64_t *count_p);
/* 16 digits. */
treadle_status treadle_saved_digest(const json_t *root, const char *path, const char *name,
                                    uint64_t *digest_p);
/* A number that must be as this run has it. `else_what` is what would come of another one: "its samples would be others". */
treadle_status treadle_saved_check_same(const json_t *root, const char *path, const char *name, int64_t now,
                                        const char *else_what);
/* Whether data are shuffled: checkpoints from before the key have none, and theirs were. */
treadle_status treadle_saved_check_order(const json_t *root, const char *path, bool no_shuffle,
                                         const char *else_what);

#endif
