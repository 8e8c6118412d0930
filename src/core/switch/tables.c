/* Page tables, as each rank publishes them: made once, mapped by the others of the node, checked before anything is read through them. */
#include "switch/tables.h"

#include <string.h>
#include <unistd.h>

enum { MAGIC = 0x7461626c };

/* ---- This rank's ---- */

/* How far storage tensors are moved is in the tables where any may be. */
static int64_t shifts_of(const treadle_plan *plan) {
  return plan->alias ? plan->arrangement.storage_count : 0;
}

/* Pages of the infer window's other set. */
static int64_t other_pages(const treadle_plan *plan, const treadle_page_tables *place) {
  return place->other ? plan->to_pages : 0;
}

size_t treadle_tables_bytes(const treadle_plan *plan, const treadle_page_tables *place) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  size_t bytes =
      sizeof(treadle_tables) + (size_t)shifts_of(plan) * sizeof(int64_t) +
      (size_t)(plan->from_pages + plan->to_pages + place->staging_pages + other_pages(plan, place)) *
          sizeof(int32_t);
  return (bytes + page - 1) / page * page;
}

/* The page tables lie in a small pool of their own, which the others map. */
treadle_status treadle_tables_make(treadle_space *space, const treadle_plan *plan) {
  treadle_status status = TREADLE_OK;
  const treadle_page_tables *place = &space->tables;
  const treadle_arrangement *arrangement = &plan->arrangement;
  int64_t page = sysconf(_SC_PAGESIZE), shifts = shifts_of(plan);
  int64_t bytes = (int64_t)treadle_tables_bytes(plan, place);
  TRY(treadle_pool_create(bytes / page, page, bytes, &space->table_pool));
  treadle_tables *tables = treadle_pool_base(space->table_pool);
  tables->page_bytes = plan->page_bytes;
  tables->physical_pages = place->physical;
  tables->shifts = shifts;
  tables->pages[TREADLE_SIDE_TRAIN] = plan->from_pages;
  tables->pages[TREADLE_SIDE_INFER] = plan->to_pages;
  tables->staging = place->staging_pages;
  tables->other = other_pages(plan, place);
  for (int64_t i = 0; i < shifts; i++) tables->shift[i] = arrangement->shift ? arrangement->shift[i] : 0;
  int32_t *table = (int32_t *)(void *)(tables->shift + shifts);
  memcpy(table, place->page[TREADLE_PARAMS], (size_t)plan->from_pages * sizeof(int32_t));
  memcpy(table + plan->from_pages, place->page[TREADLE_INFER_PARAMS],
         (size_t)plan->to_pages * sizeof(int32_t));
  memcpy(table + plan->from_pages + plan->to_pages, place->staging,
         (size_t)tables->staging * sizeof(int32_t));
  if (tables->other > 0)
    memcpy(table + plan->from_pages + plan->to_pages + tables->staging, place->other,
           (size_t)tables->other * sizeof(int32_t));
  tables->magic = MAGIC;
out:
  return status;
}

/* ---- Those of others ---- */

/* Where the physical pages stand in a rank's tables. */
static const int32_t *table_of(const treadle_tables *tables) {
  return (const int32_t *)(const void *)(tables->shift + tables->shifts);
}

/* A rank's tables lead to pages of its pool, whatever it has written there. */
static treadle_status check_tables(const treadle_space *space, const treadle_carry *c, int rank) {
  const treadle_tables *tables = space->shared_tables[rank].base;
  size_t bytes = space->shared_tables[rank].bytes;
  int64_t room = bytes < sizeof *tables ? 0 : (int64_t)((bytes - sizeof *tables) / sizeof(int32_t));
  bool good =
      room > 0 && tables->magic == MAGIC && tables->page_bytes == c->plan->page_bytes &&
      tables->physical_pages == (int64_t)space->shared_pools[rank].bytes / c->plan->page_bytes &&
      tables->shifts >= 0 && tables->shifts <= room / 2 && tables->pages[0] >= 0 && tables->pages[1] >= 0 &&
      tables->pages[0] <= room - 2 * tables->shifts &&
      tables->pages[1] <= room - 2 * tables->shifts - tables->pages[0] && tables->staging >= 0 &&
      tables->staging <= room - 2 * tables->shifts - tables->pages[0] - tables->pages[1] &&
      tables->other == (c->terms.doubled ? tables->pages[1] : 0) &&
      tables->other <= room - 2 * tables->shifts - tables->pages[0] - tables->pages[1] - tables->staging &&
      tables->present >= 0 && tables->present <= c->terms.doubled;
  int64_t windows = good ? tables->pages[0] + tables->pages[1] : 0;
  for (int64_t i = 0; good && i < windows + tables->staging + tables->other; i++) {
    int32_t least = i < windows && c->staging.of[0] ? -1 : 0; /* holes */
    good = table_of(tables)[i] >= least && table_of(tables)[i] < tables->physical_pages;
  }
  return good ? TREADLE_OK
              : treadle_fail(TREADLE_PEER, "switch: rank %d has published page tables that cannot be right",
                             rank);
}

static int shift_of(int64_t page_bytes) { return __builtin_ctzll((unsigned long long)page_bytes); }

/* The next `pages` pages of a rank's tables, as a window. */
static treadle_status view_next(const treadle_space *space, const treadle_carry *c, int rank,
                                const int32_t **table_p, int64_t pages, treadle_paged *paged_p) {
  const treadle_view_of window = {
      .table = *table_p, .pages = pages, .page_shift = shift_of(c->plan->page_bytes)};
  *table_p += pages;
  const treadle_status status = treadle_peer_view(c->device, &space->shared_pools[rank], &window, paged_p);
  if (status != TREADLE_OK) return treadle_fail_in(status, "rank %d: ", rank);
  if (rank == c->group->rank) paged_p->into = space->base;
  return TREADLE_OK;
}

static treadle_status make_views(const treadle_space *space, treadle_carry *c) {
  treadle_status status = TREADLE_OK;
  for (int rank = 0; rank < c->group->size; rank++) {
    if (!treadle_group_is_near(c->group, rank)) continue;
    TRY(check_tables(space, c, rank));
    const treadle_tables *tables = space->shared_tables[rank].base;
    const int32_t *table = table_of(tables);
    treadle_paged staging, *first = &c->views[TREADLE_SIDE_INFER][rank], *second = &c->others[rank];
    TRY(view_next(space, c, rank, &table, tables->pages[TREADLE_SIDE_TRAIN],
                  &c->views[TREADLE_SIDE_TRAIN][rank]));
    TRY(view_next(space, c, rank, &table, tables->pages[TREADLE_SIDE_INFER],
                  tables->present ? second : first));
    TRY(view_next(space, c, rank, &table, tables->staging, &staging));
    TRY(treadle_staging_take(c, rank, staging, tables->staging));
    TRY(view_next(space, c, rank, &table, tables->other, tables->present ? first : second));
  }
out:
  return status;
}

static treadle_status publish_pool(treadle_space *space, const treadle_carry *c) {
  const treadle_offer offer = {
      .device = c->device, .pool = space->pool, .base = space->base, .bytes = space->bytes};
  return c->group->link->publish(c->group, &offer, space->shared_pools);
}

static treadle_status publish_tables(treadle_space *space, const treadle_carry *c) {
  const treadle_pool *pool = space->table_pool;
  const treadle_offer offer = {.device = treadle_device_host(),
                               .pool = pool,
                               .base = treadle_pool_base(pool),
                               .bytes = treadle_pool_bytes(pool),
                               .whole = true};
  return c->group->link->publish(c->group, &offer, space->shared_tables);
}

/* The way back reads the others' infer windows as they have arranged them. */
static treadle_status place_peers(const treadle_space *space, treadle_carry *c) {
  treadle_status status = TREADLE_OK;
  for (int rank = 0; rank < c->group->size && c->plan->alias; rank++) {
    const treadle_tables *tables = space->shared_tables[rank].base;
    if (rank == c->group->rank || !treadle_group_is_near(c->group, rank)) continue;
    TRY(treadle_plan_place_peers(c->plan, rank, tables->shift, (int32_t)tables->shifts,
                                 tables->pages[TREADLE_SIDE_INFER]));
  }
  if (c->plan->alias) TRY(treadle_plan_check_placed(c->plan));
out:
  return status;
}

treadle_status treadle_tables_share(treadle_space *space, treadle_carry *c) {
  treadle_status status = TREADLE_OK;
  TRY(treadle_group_agree(c->group, publish_pool(space, c)));
  TRY(treadle_group_agree(c->group, publish_tables(space, c)));
  TRY(treadle_group_agree(c->group, make_views(space, c)));
  TRY(treadle_group_agree(c->group, place_peers(space, c)));
out:
  return status;
}

void treadle_tables_unshare(treadle_space *space, const treadle_carry *c) {
  const treadle_link *link = c->group->link;
  if (space->shared_pools) link->withdraw(c->group, c->device, space->shared_pools);
  if (space->shared_tables) link->withdraw(c->group, treadle_device_host(), space->shared_tables);
}
