/* What has changed in a run of elements since it was last sent, as bytes: a delta.
 *
 * Who sent `old` and now has `now` writes a delta; who has `old` applies it and then has `now`, bit for bit. Elements are bytes
 * here: a NaN with another payload has changed, and -0 is not 0. Elements have 1, 2 or 4 bytes; no pointer needs to be aligned.
 *
 * Of these forms the shortest is taken:
 *
 *   nothing changed   no byte at all
 *   dense             0, then all values
 *   gaps              1, then for each changed element: how many unchanged ones lie before it, as a number, and its value
 *   runs              2, then for each run of changed elements: how many unchanged ones lie before it, and its length less one,
 *                     as numbers, and its values
 *
 * A number is written in 7 bits a byte, the low ones first; the high bit of a byte says that more follow. A delta does not say
 * how long it is, nor of how many elements of which size: both sides know that, or say it beside it. Pure: no I/O, no state. */
#ifndef TREADLE_MOVE_DELTA_H
#define TREADLE_MOVE_DELTA_H

#include "treadle.h"

#include <stddef.h>

/* Bytes of the longest delta of `count` elements of `each` bytes: dense, and what stands before it. */
size_t treadle_delta_most(size_t count, size_t each);

/* Writes the delta from `old` to `now`, each `count` elements of `each` bytes, to `to`, which has room for treadle_delta_most() and
 * overlaps neither. How many bytes it wrote: 0 where nothing has changed. The same input gives the same bytes on every machine. */
size_t treadle_delta_write(const void *old, const void *now, size_t count, size_t each, void *to);

/* Applies the delta of `bytes` bytes at `from` to `values`: `count` elements of `each` bytes, which hold what it was made from.
 * Any bytes may come: where they are no delta of this many elements, it refuses them with the reason, and has written nothing. That
 * the values are those which the delta was made from, it cannot see. */
treadle_status treadle_delta_apply(const void *from, size_t bytes, size_t count, size_t each, void *values);

#endif
