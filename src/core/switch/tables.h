/* The pool and its windows, and the page tables that each rank publishes. */
#ifndef TREADLE_SWITCH_TABLES_H
#define TREADLE_SWITCH_TABLES_H

#include "carry/carry.h"
#include "group/link.h"
#include "memory/books.h"

/* What each rank publishes of its windows: a header, how far each storage tensor of the infer window is moved, then the
 * physical page of each page of the train window, then of the infer window (-1: there is none, since own tensors lie there), then
 * of staging, then of the infer window's other set, where there are two. */
typedef struct treadle_tables {
  uint64_t magic;
  int64_t page_bytes, physical_pages;
  int64_t shifts;   /* 0: none is moved */
  int64_t pages[2]; /* by mode: TREADLE_TRAIN, TREADLE_INFER */
  int64_t staging;  /* pages of it */
  int64_t other;    /* pages of the other set of the infer window; 0: there is one set */
  int64_t present;  /* which set has the present version: 0 the first, 1 the other one */
  int64_t shift[];  /* then int32_t physical pages */
} treadle_tables;

/* The pool and its windows (place.c, create.c), and what the others may be read through. */
typedef struct treadle_space {
  treadle_page_tables tables;
  treadle_pool *pool, *table_pool; /* table_pool: of host memory */
  char *base;                      /* all pages of the pool, in physical order */
  size_t bytes;                    /* of them */
  void *windows[TREADLE_CLASSES];
  treadle_peer_memory *shared_pools, *shared_tables; /* by rank */
  void *shadow;  /* where the next version is mapped beside the window */
  bool shadowed; /* it lies on the other set, and is entered */
} treadle_space;

/* Bytes of the tables that others read, in whole pages of the system. */
size_t treadle_tables_bytes(const treadle_plan *plan, const treadle_page_tables *place);
/* The tables lie in a small pool of their own, which the others map. */
treadle_status treadle_tables_make(treadle_space *space, const treadle_plan *plan);

/* Pools and tables of the others are mapped, and views of their windows made. Collective. */
treadle_status treadle_tables_share(treadle_space *space, treadle_carry *c);
/* Lets go of what others share with this rank. */
void treadle_tables_unshare(treadle_space *space, const treadle_carry *c);

#endif
