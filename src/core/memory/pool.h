/* A pool: physical pages of one rank, in a file without a name (memfd), and windows over them.
 *
 * The plan has settled which physical page each page of each window lies on (plan/plan.h), so a pool is
 * created with all pages it will ever use, touched once, and both windows are mapped for good: addresses
 * are stable, a switch maps nothing. Peers map the whole file, read only, in one piece, and follow the
 * owner's page tables. (A window of which there are two versions is the exception: treadle_pool_remap.)
 *
 * Who owns which page is in the books (memory/books.h). The pool refuses to be larger than its budget. */
#ifndef TREADLE_MEMORY_POOL_H
#define TREADLE_MEMORY_POOL_H

#include "base/status.h"
#include "treadle_device.h"

#include <stdbool.h>
#include <stdint.h>

/* The processor's large pages: where windows and pools begin, so that they may be made of these. */
enum { TREADLE_HUGE_PAGE = 2 << 20 };

/* Creates and touches `pages` pages. Refused when pages * page_bytes is over budget_bytes; page_bytes is a
 * power of two of at least the system's page size. A pool of 0 pages is legal. */
treadle_status treadle_pool_create(int64_t pages, int64_t page_bytes, int64_t budget_bytes,
                                   treadle_pool **pool_p);
void treadle_pool_destroy(treadle_pool *pool);

/* Are pools of such pages made of the processor's pages of 2 MiB, where the system finds them? */
bool treadle_pool_is_huge(int64_t page_bytes);

size_t treadle_pool_bytes(const treadle_pool *pool);      /* pages * page_bytes */
size_t treadle_pool_held_bytes(const treadle_pool *pool); /* st_blocks of the file */
void *treadle_pool_base(const treadle_pool *pool); /* all pages, in physical order; NULL when empty */

/* Maps `pages` pages, page i on physical page table[i], at one stable address, populated. Adjacent physical
 * pages share a mapping; more mappings than the system allows is refused with the numbers. Ended with the
 * pool. *base_p is NULL for no pages. */
treadle_status treadle_pool_map(treadle_pool *pool, const int32_t *table, int64_t pages, void **base_p);

/* The same window, at its address, on other physical pages, as many as it has. Who reads it meanwhile finds the old or the new page at each
 * address, and never none. After a failure some may be new. */
treadle_status treadle_pool_remap(treadle_pool *pool, void *base, const int32_t *table, int64_t pages);

/* The same from a second window, `shadow`, which lies on those pages: its page tables go to the first one, a table at a time, so that nothing is
 * entered anew. Where the system does not move tables it is as slow as treadle_pool_remap. The shadow may not be used until it is mapped again. */
treadle_status treadle_pool_follow(treadle_pool *pool, void *base, void *shadow, const int32_t *table,
                                   int64_t pages);

/* Closes a window to writers, as a whole, or opens it again: quickly, by parking its page tables (parking.h). It is one mapping. The first call
 * takes an address range as large as the window, which is the pool's. TREADLE_SYSTEM: the pool has no such window. */
treadle_status treadle_pool_close_window(treadle_pool *pool, void *base, size_t bytes, bool closed);

/* Gives the pages whose class is `nobody` back to the system; what they hold is zeros then. [pages] classes. */
treadle_status treadle_pool_trim(treadle_pool *pool, const uint8_t *classes, uint8_t nobody);

/* A descriptor of the file, in which all of the pool is: one, or none for an empty pool. reading: the file is opened once more, for that alone.
 * The caller closes it. */
int64_t treadle_pool_export_count(const treadle_pool *pool);
treadle_status treadle_pool_export(const treadle_pool *pool, int64_t first, int count, bool reading,
                                   int *descriptors);

/* Maps a peer's pool (all of it, read only, populated) from a descriptor; ended by treadle_pool_unmap_peer.
 */
treadle_status treadle_pool_map_peer(int descriptor, size_t bytes, void **base_p);
/* Maps a window of a peer's pool, page i on physical page table[i], read only, at one address. It is not populated: what is read
 * is entered then. TREADLE_PEER when the table leads beyond the pool. Ended by treadle_pool_unmap_peer. NULL for no pages. */
treadle_status treadle_pool_map_peer_window(int descriptor, const int32_t *table, int64_t pages,
                                            int64_t page_bytes, void **base_p);
void treadle_pool_unmap_peer(void *base, size_t bytes);

#endif
