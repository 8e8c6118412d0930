/* Structs of the public headers that begin with struct_size: who was compiled with an older header has a smaller one, with a
 * newer header a larger one.
 *
 *   TRY(TREADLE_TAKE(options, &o));       options, which may be NULL, to a copy of this library's size. What the caller does
 *                                         not have is zero; what the library does not know must be zero
 *   TREADLE_NEED_SIZED(info_p);           an output: not NULL, and its struct_size is one
 *   TREADLE_GIVE(info_p, &info);          from a struct of the library's size to the caller's: what it has no room for is
 *                                         left out, what the library does not know becomes zero
 *
 * The library's own callers fill structs of its own size, as TREADLE_INIT does. */
#ifndef TREADLE_BASE_SIZED_H
#define TREADLE_BASE_SIZED_H

#include "base/argument.h"

enum {
  TREADLE_MOST_STRUCT = 4096
}; /* bytes that a struct_size may say: more is not a size, but what lay there before */

treadle_status treadle_sized_take(const char *function, const char *name, const void *given, void *copy_p,
                                  size_t bytes);
treadle_status treadle_sized_check(const char *function, const char *name, const void *given);
void treadle_sized_give(void *to_p, const void *from, size_t bytes);

#define TREADLE_TAKE(given, copy_p) treadle_sized_take(__func__, #given, given, copy_p, sizeof *(copy_p))
#define TREADLE_GIVE(to_p, from)    treadle_sized_give(to_p, from, sizeof *(from))

#define TREADLE_NEED_SIZED(pointer)                                                                        \
  do {                                                                                                     \
    treadle_status sized = treadle_sized_check(__func__, #pointer, pointer);                               \
    if (sized != TREADLE_OK) return sized;                                                                 \
  } while (0)
/* The same, of a function without a result. */
#define TREADLE_NEED_SIZED_ONLY(pointer)                                                                   \
  do {                                                                                                     \
    if (treadle_sized_check(__func__, #pointer, pointer) != TREADLE_OK) return;                            \
  } while (0)

#endif
