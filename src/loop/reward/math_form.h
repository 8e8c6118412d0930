/* Answers to mathematical questions, in one form of those that LaTeX has for the same. */
#ifndef TREADLE_REWARD_MATH_FORM_H
#define TREADLE_REWARD_MATH_FORM_H

#include "base/text.h"

/* What the last \boxed{...} of a text holds (\fbox where there is no \boxed): its bytes, and where they begin; braces are balanced. "\boxed 5"
 * holds what stands before the next $. *box_p is NULL where there is none, or where it is not closed. */
size_t treadle_math_box(const char *text, size_t bytes, const char **box_p);

/* Adds the form of `text`, which may have no 0 bytes, to an empty builder. False: it has none (a \frac with nothing behind it, a \sqrt, two
 * units), and is itself alone. */
bool treadle_math_form(const char *text, treadle_builder *form);

/* Are they the same? Where one has no form, as they stand. */
treadle_status treadle_math_same(const char *a, const char *b, bool *same_p);

#endif
