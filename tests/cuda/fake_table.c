#include "cuda/fake_parts.h"

#include <stdlib.h>
#include <string.h>

static uint64_t end_of(const fake_span *s) { return s->at + s->bytes; }

size_t fake_table_from(const fake_table *table, uint64_t at) {
  size_t low = 0, high = table->count;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (end_of(table->spans[middle]) <= at)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

void *fake_table_find(const fake_table *table, uint64_t at) {
  const size_t i = fake_table_from(table, at);
  return i < table->count && table->spans[i]->at <= at ? table->spans[i] : NULL;
}

bool fake_table_is_free(const fake_table *table, uint64_t at, uint64_t bytes) {
  const size_t i = fake_table_from(table, at);
  return i == table->count || at + bytes <= table->spans[i]->at;
}

bool fake_table_fills(const fake_table *table, uint64_t at, uint64_t bytes, size_t *first_p,
                      size_t *end_p) {
  size_t i = *first_p = fake_table_from(table, at);
  uint64_t reached = at;
  while (i < table->count && reached < at + bytes && table->spans[i]->at == reached)
    reached = end_of(table->spans[i++]);
  *end_p = i;
  return bytes > 0 && reached == at + bytes;
}

void fake_table_add(fake_table *table, fake_span *span) {
  if (table->count == table->room) {
    table->room = table->room ? 2 * table->room : 64;
    table->spans = realloc(table->spans, table->room * sizeof *table->spans);
    if (!table->spans) abort();
  }
  const size_t i = fake_table_from(table, span->at);
  memmove(table->spans + i + 1, table->spans + i, (table->count - i) * sizeof *table->spans);
  table->spans[i] = span;
  table->count++;
}

void fake_table_remove(fake_table *table, size_t first, size_t end) {
  memmove(table->spans + first, table->spans + end, (table->count - end) * sizeof *table->spans);
  table->count -= end - first;
}
