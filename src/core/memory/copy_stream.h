/* Rows by way of stores that go past the cache. The twin in plain code is a loop of memcpy. */
#ifndef TREADLE_MEMORY_COPY_STREAM_H
#define TREADLE_MEMORY_COPY_STREAM_H

#include <stdbool.h>
#include <stddef.h>

bool treadle_stream_supported(void);

/* Copies `rows` rows of `row` bytes; the row after the one at p begins at p + stride. Any alignment. The
 * bytes are seen by others after treadle_stream_fence(). Only where supported. */
void treadle_stream_rows(char *to, size_t to_stride, const char *from, size_t from_stride, size_t row,
                         size_t rows);
/* One short row out of the cache: past it where it is whole lines, else like memcpy. */
void treadle_stream_lines(char *to, const char *from, size_t bytes);
void treadle_stream_fence(void);

#endif
