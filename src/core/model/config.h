/* Fields of a config.json, checked. Messages name field and value, the caller puts the file in front. */
#ifndef TREADLE_MODEL_CONFIG_H
#define TREADLE_MODEL_CONFIG_H

#include "base/status.h"

#include <jansson.h>

#define TREADLE_MAX_SIZE ((int64_t)1 << 40) /* of any number in a config, and so of any axis */

/* A whole number from 0 to TREADLE_MAX_SIZE, or a boolean as 0 or 1. *found_p false: absent or null. Here and below, a name
 * may be OBJECT.FIELD. */
treadle_status treadle_config_number(const json_t *config, const char *name, int64_t *value_p,
                                     bool *found_p);
/* Is `member` in a list of whole numbers? With NAME.WORD: does WORD, or a number in its place, stand
 * at place `member` of the list?
 * *found_p false: absent or null. */
treadle_status treadle_config_member(const json_t *config, const char *name, int64_t member,
                                     bool *is_member_p, bool *found_p);
/* Is the field true or false? */
bool treadle_config_is_boolean(const json_t *config, const char *name);

treadle_status treadle_config_model_type(const json_t *config, const char **type_p);
/* Refuses what no model can have: an eps of norms, a base of rope, a factor or a length that is not above 0, in fp32. NULL: nothing
 * to check. */
treadle_status treadle_config_check_positive(const json_t *config);
/* dtype or torch_dtype, of `inner` (may be NULL) or else of config; fp32 when neither stands there, or
 * bf16 with MXFP4. */
treadle_status treadle_config_dtype(const json_t *config, const json_t *inner, treadle_dtype *dtype_p);
/* Of these fields the first that says something counts: *taken_p, and *other_p the first behind it that says something else; NULL: they
 * agree. Names are "dtype" or "torch_dtype". */
void treadle_config_dtypes_differ(const json_t *config, const json_t *inner, const char **taken_p,
                                  const char **other_p, const char **other_name_p);
/* Does one of them say it? */
bool treadle_config_has_dtype(const json_t *config, const json_t *inner);

#endif
