/* How the ranks make their memory, once they have agreed on a plan (agree.c).
 *
 *   build     each rank: pool, windows, page tables, counters            -> agree
 *   share     pools and tables of the others are mapped                  -> agree */
#include "switch/switch.h"

#include "base/alloc.h"

#include <string.h>
#include <unistd.h>

enum { DEFAULT_TIMEOUT = 60, TABLES_MAGIC = 0x7461626c };

/* ---- Build ---- */

static treadle_status no_memory(void) { return treadle_fail(TREADLE_NO_MEMORY, "switch: memory is out"); }

/* The page tables lie in a small pool of their own, which the others map. */
static treadle_status make_tables(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  const treadle_plan *plan = sw->plan;
  int64_t page = sysconf(_SC_PAGESIZE);
  int64_t bytes =
      (int64_t)(sizeof(treadle_tables) + (size_t)(plan->from_pages + plan->to_pages) * sizeof(int32_t));
  int64_t pages = (bytes + page - 1) / page;
  TRY(treadle_pool_create(pages, page, pages * page, &sw->table_pool));
  treadle_tables *tables = treadle_pool_base(sw->table_pool);
  tables->page_bytes = plan->page_bytes;
  tables->physical_pages = plan->physical_pages;
  tables->pages[TREADLE_TRAIN] = plan->from_pages;
  tables->pages[TREADLE_INFER] = plan->to_pages;
  memcpy(tables->table, plan->from_page, (size_t)plan->from_pages * sizeof(int32_t));
  memcpy(tables->table + plan->from_pages, plan->to_page, (size_t)plan->to_pages * sizeof(int32_t));
  tables->magic = TABLES_MAGIC;
out:
  return status;
}

static treadle_status build(treadle_switch *sw, int64_t bound) {
  treadle_status status = TREADLE_OK;
  const treadle_plan *plan = sw->plan;
  size_t ranks = (size_t)sw->group->size;
  size_t forward = plan->forward.ops.count, back = plan->back.ops.count;
  sw->pools = treadle_alloc_array(ranks, sizeof *sw->pools);
  sw->tables = treadle_alloc_array(ranks, sizeof *sw->tables);
  sw->views[0] = treadle_alloc_array(ranks, sizeof *sw->views[0]);
  sw->views[1] = treadle_alloc_array(ranks, sizeof *sw->views[1]);
  sw->written = treadle_alloc_array((forward > back ? forward : back) + 1, sizeof *sw->written);
  if (!sw->pools || !sw->tables || !sw->views[0] || !sw->views[1] || !sw->written) return no_memory();
  TRY(treadle_switch_bands_create(sw));
  TRY(treadle_account_create(sw));
  TRY(treadle_pool_create(plan->physical_pages, plan->page_bytes, bound, &sw->pool));
  TRY(treadle_pool_map(sw->pool, plan->from_page, plan->from_pages, &sw->windows[TREADLE_TRAIN]));
  TRY(treadle_pool_map(sw->pool, plan->to_page, plan->to_pages, &sw->windows[TREADLE_INFER]));
  TRY(make_tables(sw));
  memset(sw->written, 0, ((forward > back ? forward : back) + 1) * sizeof *sw->written); /* touched */
out:
  return status;
}

/* ---- Share ---- */

/* A rank's tables lead to pages of its pool, whatever it has written there. */
static treadle_status check_tables(const treadle_switch *sw, int rank) {
  const treadle_tables *tables = sw->tables[rank].base;
  size_t bytes = sw->tables[rank].bytes;
  int64_t room = bytes < sizeof *tables ? 0 : (int64_t)((bytes - sizeof *tables) / sizeof(int32_t));
  bool good = room > 0 && tables->magic == TABLES_MAGIC && tables->page_bytes == sw->plan->page_bytes &&
              tables->physical_pages * tables->page_bytes == (int64_t)sw->pools[rank].bytes &&
              tables->pages[0] >= 0 && tables->pages[1] >= 0 && tables->pages[0] <= room &&
              tables->pages[1] <= room - tables->pages[0];
  for (int64_t i = 0; good && i < tables->pages[0] + tables->pages[1]; i++)
    good = tables->table[i] >= 0 && tables->table[i] < tables->physical_pages;
  return good ? TREADLE_OK
              : treadle_fail(TREADLE_PEER, "switch: rank %d has page tables that are none", rank);
}

static int shift_of(int64_t page_bytes) { return __builtin_ctzll((unsigned long long)page_bytes); }

static treadle_status make_views(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  for (int rank = 0; rank < sw->group->size; rank++) {
    TRY(check_tables(sw, rank));
    const treadle_tables *tables = sw->tables[rank].base;
    treadle_view view = {.base = (char *)(uintptr_t)sw->pools[rank].base,
                         .page_shift = shift_of(sw->plan->page_bytes)};
    view.table = tables->table;
    sw->views[TREADLE_TRAIN][rank] = view;
    view.table += tables->pages[TREADLE_TRAIN];
    sw->views[TREADLE_INFER][rank] = view;
  }
out:
  return status;
}

static treadle_status share_one(treadle_switch *sw, const treadle_pool *pool, treadle_shared *all) {
  return sw->group->ops->share(sw->group, treadle_pool_descriptor(pool), treadle_pool_base(pool),
                               treadle_pool_bytes(pool), all);
}

static treadle_status share(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  TRY(treadle_switch_agree(sw->group, share_one(sw, sw->pool, sw->pools)));
  TRY(treadle_switch_agree(sw->group, share_one(sw, sw->table_pool, sw->tables)));
  TRY(treadle_switch_agree(sw->group, make_views(sw)));
out:
  return status;
}

/* ---- All of it ---- */

treadle_status treadle_switch_create(treadle_group *group, const treadle_layout *train,
                                     const treadle_layout *infer, const treadle_switch_options *options,
                                     treadle_switch **switch_p) {
  treadle_status status = TREADLE_OK;
  const treadle_switch_options o = options ? *options : (treadle_switch_options){0};
  double group_timeout = group->timeout_seconds;
  int64_t bound;
  *switch_p = NULL;
  group->timeout_seconds = o.timeout_seconds > 0 ? o.timeout_seconds : DEFAULT_TIMEOUT;
  treadle_switch *sw = treadle_alloc(sizeof *sw);
  TRY(treadle_switch_agree(group, sw ? TREADLE_OK : no_memory()));
  *sw = (treadle_switch){.group = group,
                         .layouts = {train, infer},
                         .mover = treadle_copy_choose(),
                         .timeout_seconds = group->timeout_seconds,
                         .one_way = o.one_way};
  TRY(treadle_switch_plan_together(sw, &o, &bound));
  TRY(treadle_switch_agree(group, build(sw, bound)));
  TRY(share(sw));
  *switch_p = sw;
out:
  if (status != TREADLE_OK) {
    if (sw && sw->group)
      treadle_switch_destroy(sw);
    else
      treadle_free(sw);
  }
  group->timeout_seconds = group_timeout;
  return status;
}
