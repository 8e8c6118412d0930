#include "memory/books.h"

#include "base/alloc.h"
#include "base/status.h"

#include <string.h>

treadle_status treadle_books_open(treadle_books *books) {
  const size_t pages = (size_t)books->tables->physical;
  books->owner = treadle_alloc(pages + 1);
  if (!books->owner) return treadle_memory_is_out();
  memset(books->owner, TREADLE_NOBODY, pages);
  memset(books->held, 0, sizeof books->held);
  books->held[TREADLE_NOBODY] = (int64_t)pages;
  return TREADLE_OK;
}

void treadle_books_release(treadle_books *books) {
  treadle_free(books->owner);
  books->owner = NULL;
}

void treadle_books_set(treadle_books *books, int32_t physical, int owner) {
  books->held[books->owner[physical]]--;
  books->owner[physical] = (uint8_t)owner;
  books->held[owner]++;
}

void treadle_books_take(treadle_books *books, treadle_class which) {
  const treadle_page_tables *tables = books->tables;
  for (int64_t i = 0; i < tables->pages[which]; i++) {
    const int32_t page = tables->page[which][i];
    if (page < 0) continue;
    if (which == TREADLE_INFER_PARAMS && books->params_stay && books->owner[page] == TREADLE_PARAMS)
      continue;
    treadle_books_set(books, page, which);
  }
}

void treadle_books_leave(treadle_books *books, treadle_class which) {
  const treadle_page_tables *tables = books->tables;
  for (int64_t i = 0; i < tables->pages[which]; i++) {
    const int32_t page = tables->page[which][i];
    if (page >= 0 && books->owner[page] == which) treadle_books_set(books, page, TREADLE_NOBODY);
  }
}

void treadle_books_leave_all(treadle_books *books) {
  for (int c = 0; c < TREADLE_CLASSES; c++) treadle_books_leave(books, (treadle_class)c);
}

void treadle_books_leave_other(treadle_books *books) {
  const treadle_page_tables *tables = books->tables;
  for (int64_t i = 0; i < tables->pages[TREADLE_INFER_PARAMS]; i++)
    if (books->owner[tables->other[i]] == TREADLE_INFER_PARAMS)
      treadle_books_set(books, tables->other[i], TREADLE_NOBODY);
}

void treadle_books_staging(treadle_books *books, bool there) {
  const treadle_page_tables *tables = books->tables;
  for (int64_t i = 0; i < tables->staging_pages; i++) {
    const int32_t page = tables->staging[i];
    if (there || books->owner[page] == TREADLE_WORK)
      treadle_books_set(books, page, there ? TREADLE_WORK : (int)TREADLE_NOBODY);
  }
}

void treadle_books_train_work(treadle_books *books, size_t bytes) {
  const treadle_page_tables *tables = books->tables;
  const int64_t pages = ((int64_t)bytes + books->page_bytes - 1) / books->page_bytes;
  treadle_books_leave(books, TREADLE_TRAIN_WORK);
  for (int64_t i = 0; i < pages && i < tables->pages[TREADLE_TRAIN_WORK]; i++)
    treadle_books_set(books, tables->page[TREADLE_TRAIN_WORK][i], TREADLE_TRAIN_WORK);
}

size_t treadle_books_held(const treadle_books *books, treadle_class which) {
  return (size_t)(books->held[which] * books->page_bytes);
}

size_t treadle_books_held_beside_kv(const treadle_books *books) {
  const int64_t held = books->tables->physical - books->held[TREADLE_NOBODY] - books->held[TREADLE_KV];
  return (size_t)(held * books->page_bytes);
}

void treadle_books_tell(const treadle_books *books) {
  size_t bytes[TREADLE_CLASSES];
  if (!books->watch) return;
  for (int c = 0; c < TREADLE_CLASSES; c++) bytes[c] = treadle_books_held(books, (treadle_class)c);
  books->watch(books->watch_context, bytes, TREADLE_CLASSES);
}
