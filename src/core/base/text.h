/* Texts: numbers, sizes, and one builder.
 *
 * A size is a whole number with an optional unit B, KiB, MiB, GiB, TiB ("64KiB", "2GiB"). */
#ifndef TREADLE_BASE_TEXT_H
#define TREADLE_BASE_TEXT_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* A whole decimal number and nothing else; false when it is not one or does not fit. */
bool treadle_text_to_int64(const char *text, int64_t *value_p);

/* A size in bytes; `what` names the option in the message. Refuses 0, negatives and overflow. */
treadle_status treadle_text_to_size(const char *what, const char *text, size_t *bytes_p);

/* "1.50 GiB" and the like, into one of 16 buffers of the calling thread, used in turn. */
const char *treadle_text_of_size(size_t bytes);

/* "1 rank", "3 ranks"; "1 rank is", "3 ranks are": a count of things whose plural ends in s. Into such buffers, too; at most 32 bytes of noun
 * are shown. */
const char *treadle_text_of_count(int64_t count, const char *noun);
const char *treadle_text_count_is(int64_t count, const char *noun);

bool treadle_text_starts(const char *text, const char *prefix);

/* How many single-character edits (insert, delete, replace) turn one text into the other: for "did you
 * mean". */
int treadle_text_distance(const char *a, const char *b);
/* Of `names` (ended by NULL), the nearest to `name`, or NULL when none is near. */
const char *treadle_nearest_name(const char *name, const char *const *names);

/* A growing text. A zeroed struct is an empty one. `text` is NULL or ends with 0. After memory ran out
 * `failed` is set, further calls do nothing, and the caller checks once at the end. */
typedef struct treadle_builder {
  char *text;
  size_t length, capacity;
  bool failed;
} treadle_builder;

void treadle_builder_add(treadle_builder *builder, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The same for bytes, zeros too. */
void treadle_builder_add_bytes(treadle_builder *builder, const char *bytes, size_t count);
void treadle_builder_release(treadle_builder *builder);

#endif
