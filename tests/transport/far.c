/* Links that fetch. */
#include "transport/far.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { BUFFER = 1000 };

static _Atomic int64_t started, ended, failing;

void far_fail(int64_t n) { atomic_store(&failing, n); }
int64_t far_open(void) { return atomic_load(&started) - atomic_load(&ended); }
int64_t far_started(void) { return atomic_load(&started); }

/* As threads publish; `near` ranks, and this one, keep their addresses. */
static treadle_status publish(treadle_group *group, const treadle_offer *mine, treadle_peer_memory *all,
                              bool pairs) {
  treadle_status status = group->ops->link->publish(group, mine, all);
  for (int rank = 0; status == TREADLE_OK && rank < group->size; rank++) {
    if (rank == group->rank || (pairs && rank / 2 == group->rank / 2)) continue;
    all[rank].key = (uint64_t)(uintptr_t)all[rank].base;
    all[rank].base = NULL;
  }
  return status;
}

static treadle_status far_publish(treadle_group *group, const treadle_offer *mine,
                                  treadle_peer_memory *all) {
  return publish(group, mine, all, false);
}

static treadle_status pair_publish(treadle_group *group, const treadle_offer *mine,
                                   treadle_peer_memory *all) {
  return publish(group, mine, all, true);
}

static void withdraw(treadle_group *group, const treadle_device *device, treadle_peer_memory *all) {
  group->ops->link->withdraw(group, device, all);
}

static treadle_status start(treadle_group *group, treadle_fetch *fetch) {
  (void)group;
  if (atomic_load(&failing) > 0 && atomic_fetch_sub(&failing, 1) == 1)
    return treadle_fail(TREADLE_SYSTEM, "the line to rank %d is cut", fetch->rank);
  atomic_fetch_add(&started, 1);
  return TREADLE_OK;
}

/* One buffer full a test. progress: bytes that have come. */
static treadle_status test(treadle_group *group, treadle_fetch *fetch, bool *done_p) {
  char buffer[BUFFER];
  int64_t skip = fetch->progress;
  int32_t i = 0;
  for (; i < fetch->count && skip >= fetch->parts[i].bytes; i++) skip -= fetch->parts[i].bytes;
  *done_p = i == fetch->count;
  if (*done_p) {
    atomic_fetch_add(&ended, 1);
    return TREADLE_OK;
  }
  const treadle_part *part = &fetch->parts[i];
  int64_t bytes = part->bytes - skip < BUFFER ? part->bytes - skip : BUFFER;
  if (part->at < 0 || part->at + part->bytes > (int64_t)fetch->from.bytes)
    return treadle_fail(TREADLE_DIFFERENT, "rank %d asks for bytes that rank %d has not published",
                        group->rank, fetch->rank);
  memcpy(buffer, (const char *)(uintptr_t)fetch->from.key + part->at + skip, (size_t)bytes);
  memcpy((char *)fetch->to + fetch->progress, buffer, (size_t)bytes);
  fetch->progress += bytes;
  return TREADLE_OK;
}

static void wait(treadle_group *group, treadle_fetch *fetch, double seconds) {
  (void)group, (void)fetch, (void)seconds; /* there is always more at once */
}

static void cancel(treadle_group *group, treadle_fetch *fetch) {
  (void)group, (void)fetch;
  atomic_fetch_add(&ended, 1);
}

const treadle_link far_link = {"far", far_publish, withdraw, start, test, wait, cancel};
const treadle_link pair_link = {"pairs", pair_publish, withdraw, start, test, wait, cancel};
