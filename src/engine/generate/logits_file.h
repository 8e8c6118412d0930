/* A safetensors file with the logits of texts that are scored: a tensor logits.LINE for each, fp32 [tokens, vocabulary], LINE from 0.
 * It grows row by row, in the order of texts and tokens, and appears when it is whole. */
#ifndef TREADLE_GENERATE_LOGITS_FILE_H
#define TREADLE_GENERATE_LOGITS_FILE_H

#include "generate/score_lines.h"
#include "io/safetensors.h"

/* Begins the file; the lines have their tokens. Rows are appended as bytes (treadle_safetensors_append, _finish, _destroy). */
treadle_status treadle_logits_file_create(const char *path, const treadle_score_lines *lines,
                                          int64_t vocabulary, treadle_safetensors_writer **writer_p);

#endif
