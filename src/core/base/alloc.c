/* The door to the C library's memory. A test arms a countdown; the allocation that takes it to 0 fails.
 * One atomic counter a call is all it costs when nothing is armed. */
#include "base/alloc.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

static atomic_long allocations;  /* since the process began */
static atomic_long fail_at = -1; /* value of `allocations` that fails, -1: none */

static bool told_to_fail(void) {
  long number = atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed) + 1;
  return number == atomic_load_explicit(&fail_at, memory_order_relaxed);
}

void *treadle_alloc(size_t bytes) {
  if (told_to_fail()) return NULL;
  return calloc(1, bytes ? bytes : 1); /* NULL always means failure, also for 0 bytes */
}

void *treadle_alloc_array(size_t count, size_t each_bytes) {
  if (each_bytes && count > SIZE_MAX / each_bytes) return NULL;
  return treadle_alloc(count * each_bytes);
}

void *treadle_realloc(void *memory, size_t bytes) {
  if (told_to_fail()) return NULL;
  return realloc(memory, bytes ? bytes : 1);
}

/* The large pages that lie in it whole; a system without them says no. */
void treadle_alloc_hint(void *memory, size_t bytes) {
  enum { LARGE_PAGE = 2 << 20 };
  const uintptr_t begin = ((uintptr_t)memory + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
  const uintptr_t end = ((uintptr_t)memory + bytes) / LARGE_PAGE * LARGE_PAGE;
  if (memory && begin < end)
    (void)madvise((char *)memory + (begin - (uintptr_t)memory), end - begin, MADV_HUGEPAGE);
}

void treadle_free(void *memory) { free(memory); }

void treadle_alloc_fail_at(long n) {
  long now = atomic_load_explicit(&allocations, memory_order_relaxed);
  atomic_store_explicit(&fail_at, n > 0 ? now + n : -1, memory_order_relaxed);
}

long treadle_alloc_count(void) { return atomic_load_explicit(&allocations, memory_order_relaxed); }
