/* Values of JSON with their types checked: what readers of requests and configs share. Messages begin with "`what`: `key`". A value may be
 * NULL: the key is not there, and that is refused. */
#ifndef TREADLE_GENERATE_JSON_VALUES_H
#define TREADLE_GENERATE_JSON_VALUES_H

#include "generate/sampling.h"

treadle_status treadle_json_real(const char *what, const char *key, const json_t *value, double *real_p);
treadle_status treadle_json_whole(const char *what, const char *key, const json_t *value, int64_t *whole_p);
treadle_status treadle_json_truth(const char *what, const char *key, const json_t *value, bool *truth_p);
/* Copied into the arena. */
treadle_status treadle_json_text(const char *what, const char *key, const json_t *value,
                                 treadle_arena *arena, treadle_text *text_p);
/* A list of ids from 0 on, or one. */
treadle_status treadle_json_tokens(const char *what, const char *key, const json_t *value,
                                   treadle_arena *arena, int32_t **tokens_p, int64_t *count_p);

#endif
