/* A list lies in a small pool of its own: a head, then the items. The pool is gone when all have read it. */
#include "carry/handover.h"

#include "base/alloc.h"
#include "memory/books.h"

#include <string.h>
#include <unistd.h>

typedef struct list_head {
  int64_t count, each; /* items, and bytes of one */
} list_head;

static treadle_status make_list(const void *items, size_t count, size_t each, int ranks,
                                treadle_handover *h) {
  treadle_status status = TREADLE_OK;
  int64_t page = sysconf(_SC_PAGESIZE), bytes = (int64_t)(sizeof(list_head) + count * each);
  bytes = (bytes + page - 1) / page * page;
  h->all = treadle_alloc_array((size_t)ranks, sizeof *h->all);
  if (!h->all) return treadle_memory_is_out();
  TRY(treadle_pool_create(bytes / page, page, bytes, &h->pool));
  list_head *head = treadle_pool_base(h->pool);
  *head = (list_head){(int64_t)count, (int64_t)each};
  if (count > 0) memcpy(head + 1, items, count * each);
out:
  return status;
}

static treadle_status check_lists(const treadle_group *group, const treadle_handover *h, size_t each) {
  for (int rank = 0; rank < group->size; rank++) {
    const treadle_peer_memory *shared = &h->all[rank];
    if (!treadle_group_is_near(group, rank)) continue;
    const list_head *head = shared->base;
    if (shared->bytes < sizeof *head || head->each != (int64_t)each || head->count < 0 ||
        head->count > (int64_t)((shared->bytes - sizeof *head) / each))
      return treadle_fail(TREADLE_PEER, "switch: rank %d has published a list that cannot be right", rank);
  }
  return TREADLE_OK;
}

treadle_status treadle_hand_over(treadle_group *group, const void *items, size_t count, size_t each,
                                 treadle_handover *h) {
  treadle_status status = TREADLE_OK;
  *h = (treadle_handover){0};
  TRY(treadle_group_agree(group, make_list(items, count, each, group->size, h)));
  const treadle_offer offer = {.device = treadle_device_host(),
                               .pool = h->pool,
                               .base = treadle_pool_base(h->pool),
                               .bytes = treadle_pool_bytes(h->pool),
                               .whole = true};
  TRY(treadle_group_agree(group, group->link->publish(group, &offer, h->all)));
  TRY(treadle_group_agree(group, check_lists(group, h, each)));
out:
  return status;
}

const void *treadle_handed(const treadle_handover *h, int rank, size_t *count_p) {
  const list_head *head = h->all[rank].base;
  *count_p = head ? (size_t)head->count : 0;
  return head ? head + 1 : NULL;
}

void treadle_handover_end(treadle_group *group, treadle_handover *h) {
  if (h->all) group->link->withdraw(group, treadle_device_host(), h->all);
  treadle_free(h->all);
  treadle_pool_destroy(h->pool);
  *h = (treadle_handover){0};
}
