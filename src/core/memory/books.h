/* The books: which page of the pool each page of each window lies on, and who holds which page.
 *
 * A page has one owner at any time, a class or nobody, and is counted once. */
#ifndef TREADLE_MEMORY_BOOKS_H
#define TREADLE_MEMORY_BOOKS_H

#include "treadle.h"

#include "base/arena.h"
#include "base/status.h"

/* Of a switch, and of what carries for it. */
static inline treadle_status treadle_memory_is_out(void) {
  return treadle_fail(TREADLE_NO_MEMORY, "switch: memory is out");
}

enum { TREADLE_TRAIN_CLASSES = 3, TREADLE_NOBODY = TREADLE_CLASSES }; /* params, gradients, optimizer */

/* The windows of all classes on one pool: window page i of class c is physical page page[c][i]; -1: a hole, without a page, where
 * own tensors lie. Staging has pages and no window; in the books they are those of work memory, and they are nobody else's in
 * mode INFER, where an update needs them. */
typedef struct treadle_page_tables {
  int32_t *page[TREADLE_CLASSES];
  int32_t *staging;
  int64_t staging_pages;
  int32_t
      *other; /* physical page of each page of the infer window in its other set; NULL: there is one set */
  int64_t pages[TREADLE_CLASSES]; /* whole pages */
  size_t bytes[TREADLE_CLASSES];  /* of what is in them */
  int64_t physical;
  uint8_t *aliased; /* by physical page: both windows of params lie on it; NULL: none */
  treadle_arena arena;
} treadle_page_tables;

typedef struct treadle_books {
  const treadle_page_tables *tables;
  int64_t page_bytes;
  bool params_stay; /* a page that both windows of params lie on is held by params */
  void (*watch)(void *context, const size_t *bytes,
                int classes); /* treadle_switch_options; NULL: nobody does */
  void *watch_context;
  uint8_t *owner; /* by physical page: treadle_class, or TREADLE_NOBODY */
  int64_t held[TREADLE_CLASSES + 1];
} treadle_books;

/* Nobody holds a page; tables, and what is before `owner`, are there. */
treadle_status treadle_books_open(treadle_books *books);
void treadle_books_release(treadle_books *books);

void treadle_books_set(treadle_books *books, int32_t physical, int owner);
/* take: every page of the window gets its class as owner; with params_stay, pages that params hold stay with them. leave: pages that the class
 * owns get no owner. */
void treadle_books_take(treadle_books *books, treadle_class which);
void treadle_books_leave(treadle_books *books, treadle_class which);
void treadle_books_leave_all(treadle_books *books);
/* The pages of the infer window's other set are nobody's. */
void treadle_books_leave_other(treadle_books *books);
/* Pages of staging get an owner (work memory), or lose it. */
void treadle_books_staging(treadle_books *books, bool there);
/* The first `bytes` bytes of the trainer's work memory get their owner; what it has beyond them goes. */
void treadle_books_train_work(treadle_books *books, size_t bytes);
/* Bytes that a class holds; and all but a KV cache, which has what is free. */
size_t treadle_books_held(const treadle_books *books, treadle_class which);
size_t treadle_books_held_beside_kv(const treadle_books *books);
/* Tells who watches. */
void treadle_books_tell(const treadle_books *books);

#endif
