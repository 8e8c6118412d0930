/* An arena: many small allocations, freed at once. A zeroed struct is a ready arena.
 *
 * Blocks grow from 4 KiB to 1 MiB. Memory is zeroed and aligned to 16 bytes. Not for use from two
 * threads at a time. */
#ifndef TREADLE_BASE_ARENA_H
#define TREADLE_BASE_ARENA_H

#include <stddef.h>

typedef struct treadle_arena {
  struct treadle_arena_block *block; /* the newest; each points to the one before */
  size_t used;                       /* bytes used of the newest block */
} treadle_arena;

void *treadle_arena_alloc(treadle_arena *arena, size_t bytes); /* NULL: memory is out */
void *treadle_arena_alloc_array(treadle_arena *arena, size_t count, size_t each_bytes);
char *treadle_arena_copy_text(treadle_arena *arena, const char *text);
char *treadle_arena_format(treadle_arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void treadle_arena_release(treadle_arena *arena); /* the arena is empty and ready afterwards */

#endif
