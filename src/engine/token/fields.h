/* Fields of JSON objects, with messages that name them. A field that is not there or null has its default, unless it is needed. */
#ifndef TREADLE_TOKEN_FIELDS_H
#define TREADLE_TOKEN_FIELDS_H

#include "base/status.h"

#include <jansson.h>

treadle_status treadle_field_bool(const json_t *object, const char *name, bool otherwise, bool *value_p);
/* NULL where it is not there. Texts live as long as the JSON. */
treadle_status treadle_field_text(const json_t *object, const char *name, const char **text_p);
treadle_status treadle_field_needed_text(const json_t *object, const char *name, const char **text_p);
treadle_status treadle_field_number(const json_t *object, const char *name, int64_t low, int64_t high,
                                    int64_t *value_p);
/* One character; 0 where it is not there. */
treadle_status treadle_field_character(const json_t *object, const char *name, uint32_t *code_p);
/* One of `words`, ended by NULL: its place; `otherwise` where it is not there, refused if that is below 0. */
treadle_status treadle_field_word(const json_t *object, const char *name, const char *const *words,
                                  int otherwise, int *word_p);
/* A list, NULL where it is not there. */
treadle_status treadle_field_list(const json_t *object, const char *name, const json_t **list_p);

#endif
