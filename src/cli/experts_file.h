/* Experts of tokens from a file, as score, generate and grad write them. */
#ifndef TREADLE_CLI_EXPERTS_FILE_H
#define TREADLE_CLI_EXPERTS_FILE_H

#include "treadle_batch.h"

/* Adds the column experts: of each row of the batch the key "experts" of a line, [tokens but the last, layers with experts, experts of a token].
 * Other keys of a line are not looked at. Refused: another number of lines than rows; lists of other shapes. */
treadle_status treadle_experts_read(const char *path, treadle_batch *rows);

#endif
