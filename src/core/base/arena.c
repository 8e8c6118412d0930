/* An arena is a chain of blocks, each twice the size of the one before up to 1 MiB; the newest is filled
 * from its start. A request that is larger than the next block gets a block of its own size.
 *
 * Blocks come zeroed from treadle_alloc() and bytes are given out once, so nothing is cleared here. */
#include "base/arena.h"

#include "base/alloc.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { ALIGN = 16, FIRST_BYTES = 4 << 10, LARGEST_BYTES = 1 << 20 };

struct treadle_arena_block {
  struct treadle_arena_block *before;
  size_t bytes; /* of data */
  _Alignas(ALIGN) unsigned char data[];
};

static size_t next_block_bytes(const treadle_arena *arena) {
  if (!arena->block) return FIRST_BYTES;
  return arena->block->bytes < LARGEST_BYTES / 2 ? arena->block->bytes * 2 : LARGEST_BYTES;
}

void *treadle_arena_alloc(treadle_arena *arena, size_t bytes) {
  if (bytes > SIZE_MAX / 2) return NULL;
  bytes = (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
  if (!arena->block || bytes > arena->block->bytes - arena->used) {
    size_t block_bytes = next_block_bytes(arena);
    if (block_bytes < bytes) block_bytes = bytes;
    struct treadle_arena_block *block = treadle_alloc(sizeof *block + block_bytes);
    if (!block) return NULL;
    block->before = arena->block;
    block->bytes = block_bytes;
    arena->block = block;
    arena->used = 0;
  }
  void *memory = arena->block->data + arena->used;
  arena->used += bytes;
  return memory;
}

void *treadle_arena_alloc_array(treadle_arena *arena, size_t count, size_t each_bytes) {
  if (each_bytes && count > SIZE_MAX / each_bytes) return NULL;
  return treadle_arena_alloc(arena, count * each_bytes);
}

char *treadle_arena_copy_text(treadle_arena *arena, const char *text) {
  size_t bytes = strlen(text) + 1;
  char *copy = treadle_arena_alloc(arena, bytes);
  if (copy) memcpy(copy, text, bytes);
  return copy;
}

char *treadle_arena_format(treadle_arena *arena, const char *format, ...) {
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  int length = vsnprintf(NULL, 0, format, arguments);
  char *text = length < 0 ? NULL : treadle_arena_alloc(arena, (size_t)length + 1);
  if (text) vsnprintf(text, (size_t)length + 1, format, again);
  va_end(again);
  va_end(arguments);
  return text;
}

void treadle_arena_release(treadle_arena *arena) {
  for (struct treadle_arena_block *block = arena->block, *before; block; block = before) {
    before = block->before;
    treadle_free(block);
  }
  *arena = (treadle_arena){0};
}
