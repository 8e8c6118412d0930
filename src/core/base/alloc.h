/* Memory from the C library behind one door, so that tests can make the n-th allocation fail.
 *
 * treadle_alloc() gives zeroed memory. All return NULL when memory is out or when the test hook says so;
 * callers turn that into TREADLE_NO_MEMORY. Sizes are checked for overflow where they are products. */
#ifndef TREADLE_BASE_ALLOC_H
#define TREADLE_BASE_ALLOC_H

#include <stddef.h>

void *treadle_alloc(size_t bytes);
void *treadle_alloc_array(size_t count, size_t each_bytes);
void *treadle_realloc(void *memory, size_t bytes);
void treadle_free(void *memory);

/* Tells the system that memory, which was not touched before, will be used whole: it may then give large pages, whose first
 * touch is several times as fast. Small memory is left as it is; so are contents, always. */
void treadle_alloc_hint(void *memory, size_t bytes);

/* Test hook: the n-th allocation from now on fails (1 = the next one), once; 0 switches it off.
 * Global for the process and atomic. */
void treadle_alloc_fail_at(long n);
/* Number of allocations since the process began, for tests that want to fail each in turn. */
long treadle_alloc_count(void);

#endif
