/* Expressions of family files: whole numbers and names.
 *
 *   hidden_size / num_attention_heads        + - * / % ( ), / must divide exactly, * and + must not overflow
 *   head_dim ?? H / nh                       the left side, or the right one where a name is absent or null
 *   not tied or pp > 1                       and or not == != < <= > >=, 0 is false, true and false are 1
 * and 0
 *   l in mlp_only_layers                     is the number in a list of a config? 0 where the list is absent
 *   l in layer_types.full_attention          is this the word at the number's place in a list of words?
 *   l in compress_ratios.4                   is this the number at its place in a list of numbers?
 *   linear_attn_config.num_heads             a field of an object; lists too
 *
 * Names are looked up through the caller, so the same expressions serve config fields, shapes and
 * conditions of a layout. */
#ifndef TREADLE_FAMILY_EXPR_H
#define TREADLE_FAMILY_EXPR_H

#include "base/status.h"

#include <stdint.h>

/* Finds a name. TREADLE_OK with *found_p false when it is absent. With `member`, the name is that of a list, and the
 * value is whether *member is in it; with NAME.WORD, whether the list has WORD, or the number, at place *member. Names may
 * lead through objects: NAME.NAME. */
typedef treadle_status (*treadle_lookup)(void *context, const char *name, const int64_t *member,
                                         int64_t *value_p, bool *found_p);

/* `what` names the place in messages ("families/llama.yaml line 12"). */
treadle_status treadle_expr_evaluate(const char *what, const char *text, treadle_lookup lookup,
                                     void *context, int64_t *value_p);

/* Checks the grammar alone, and shows every name to `visit`, which may be NULL; its failure ends the check.
 */
typedef treadle_status (*treadle_visit)(void *context, const char *name);
treadle_status treadle_expr_check(const char *what, const char *text, treadle_visit visit, void *context);

/* Does an expression speak of a name? */
bool treadle_expr_names(const char *text, const char *name);

/* Is it a name and nothing else? */
bool treadle_expr_is_name(const char *text);

#endif
