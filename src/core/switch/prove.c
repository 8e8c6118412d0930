/* Planted mistakes, and noise: random bytes on pages that nobody holds.
 *
 * A misplaced copy is written one element beside its place, where that stays inside the window and on the
 * pages that the copy touches anyway: the fault must be caught by coverage, not by luck of what it
 * overwrites. */
#include "base/alloc.h"
#include "base/argument.h"
#include "base/dtype.h"
#include "base/hash.h"
#include "switch/switch.h"

/* Where the last byte of an op's destination lies. */
static int64_t last_byte(const treadle_op *op) {
  int64_t last = op->to + (int64_t)treadle_dtype_bytes((treadle_dtype)op->to_dtype) - 1;
  for (int d = 0; d < op->ndim; d++) last += (op->size[d] - 1) * op->to_stride[d];
  return last;
}

static bool misplace(const treadle_op *op, int64_t page_bytes, int64_t window_bytes,
                     treadle_op *misplaced) {
  int64_t each = (int64_t)treadle_dtype_bytes((treadle_dtype)op->to_dtype);
  int64_t first = op->to, last = last_byte(op);
  *misplaced = *op;
  if ((last + each) / page_bytes == last / page_bytes && last + each < window_bytes)
    misplaced->to += each;
  else if (first >= each && (first - each) / page_bytes == first / page_bytes)
    misplaced->to -= each;
  return misplaced->to != op->to;
}

/* Own tensors have other memory of the caller around them. */
static bool stays_inside(const treadle_carry *c, treadle_side to, const treadle_op *op,
                         const treadle_op *misplaced) {
  const treadle_own_span *span = treadle_own_find(&c->own.spans[to], op->to);
  treadle_reach reach = treadle_op_writes(misplaced);
  return span == treadle_own_find(&c->own.spans[to], reach.first) &&
         span == treadle_own_find(&c->own.spans[to], reach.last);
}

/* Copies from `seed` on, the first that can be spoiled. */
static treadle_status plant_in_copy(treadle_carry *c, treadle_side to, treadle_fault fault, uint64_t seed) {
  const treadle_direction *direction = treadle_carry_direction(c, to);
  int64_t page = c->plan->page_bytes;
  int64_t window = page * treadle_carry_pages(c, to);
  for (size_t i = 0; i < direction->ops.count; i++) {
    size_t position = (seed + i) % direction->ops.count;
    const treadle_op *op = &direction->ops.items[position];
    if (op->source < 0) continue;
    if (fault == TREADLE_FAULT_MISPLACE && (!misplace(op, page, window, &c->faults.misplaced) ||
                                            !stays_inside(c, to, op, &c->faults.misplaced)))
      continue;
    c->faults.planted = fault;
    c->faults.at = position;
    return TREADLE_OK;
  }
  return treadle_fail(TREADLE_REFUSED, "rank %d has no copy that this fault could be planted in",
                      c->group->rank);
}

static treadle_status plant_in_block_row(treadle_carry *c, treadle_side to, treadle_fault fault,
                                         uint64_t seed) {
  const treadle_block_rows *block_rows = &treadle_carry_direction(c, to)->block_rows;
  for (size_t i = 0; i < block_rows->count; i++) {
    size_t position = (seed + i) % block_rows->count;
    if (fault == TREADLE_FAULT_BLOCK_ROW_LATE && block_rows->items[position].wave == c->plan->waves - 1)
      continue;
    c->faults.planted = fault;
    c->faults.at = position;
    return TREADLE_OK;
  }
  return treadle_fail(TREADLE_REFUSED, "rank %d has no fp8 blocks that this fault could be planted in",
                      c->group->rank);
}

static treadle_status plant_in_protocol(treadle_switch *sw, treadle_fault fault) {
  const treadle_plan *plan = sw->carry.plan;
  bool reclaims = sw->mode == TREADLE_TRAIN && plan->forward.first_reclaim < plan->waves;
  /* Over nodes a rank that is early may wait for messages and relays, and then is not. */
  bool alone = sw->group->size == 1 || treadle_group_node_count(sw->group) > 1;
  bool can = fault == TREADLE_FAULT_EARLY       ? reclaims && !alone
             : fault == TREADLE_FAULT_LATE_TWIN ? reclaims && sw->terms.copied[TREADLE_PARAMS]
             : fault == TREADLE_FAULT_ALIAS     ? plan->arrangement.pages > 0
                                                : sw->group->size > 1;
  if (!can)
    return treadle_fail(TREADLE_REFUSED, "rank %d has nothing that this fault could be planted in",
                        sw->group->rank);
  sw->carry.faults.planted = fault;
  return TREADLE_OK;
}

static treadle_status plant(treadle_switch *sw, treadle_fault fault, uint64_t seed) {
  sw->carry.faults.planted = TREADLE_FAULT_NONE;
  if (fault == TREADLE_FAULT_NONE) return TREADLE_OK;
  if (treadle_fault_is_of_block_rows(fault))
    return plant_in_block_row(&sw->carry, treadle_switch_next_side(sw), fault, seed);
  if (treadle_fault_is_of_copies(fault))
    return plant_in_copy(&sw->carry, treadle_switch_next_side(sw), fault, seed);
  return plant_in_protocol(sw, fault);
}

treadle_status treadle_switch_plant(treadle_switch *sw, treadle_fault fault, int rank, uint64_t seed) {
  treadle_status status;
  TREADLE_NEED(sw);
  TRY(TREADLE_CHECK_ENUM(fault, TREADLE_FAULT_BLOCK_ROW_SCALE + 1));
  if (rank < 0 || rank >= sw->group->size)
    return treadle_fail(TREADLE_REFUSED, "treadle_switch_plant: rank %d is none of the %d ranks", rank,
                        sw->group->size);
  if (rank != sw->group->rank) return TREADLE_OK;
  TRY(treadle_helm_take(sw->helm, "plant"));
  status = plant(sw, fault, seed);
  treadle_helm_leave(sw->helm);
out:
  return status;
}

void treadle_switch_noise(treadle_switch *sw, uint64_t seed) {
  enum { MOST = 128 << 10 };
  TREADLE_NEED_ONLY(sw);
  const int64_t page_bytes = sw->carry.plan->page_bytes;
  if (sw->mode == TREADLE_LOST || treadle_helm_take_device(sw->helm, &sw->device, "noise") != TREADLE_OK)
    return;
  uint64_t *words = treadle_alloc_array(MOST, sizeof *words);
  bool works = words != NULL;
  for (int64_t page = 0; works && page < sw->space.tables.physical; page++) {
    bool spare = sw->books.owner[page] == TREADLE_NOBODY || sw->books.owner[page] == TREADLE_KV;
    char *at = sw->space.base + page * page_bytes;
    for (int64_t i = 0; works && spare && i < page_bytes / 8; i += MOST) {
      int64_t count = page_bytes / 8 - i < MOST ? page_bytes / 8 - i : MOST;
      for (int64_t k = 0; k < count; k++) words[k] = treadle_mix64(seed + (uint64_t)(i + k));
      sw->device.ops->move(&sw->device, at + i * 8, words, (size_t)count * 8);
      works = sw->device.ops->fence(&sw->device) == TREADLE_OK;
    }
    seed += (uint64_t)page_bytes;
  }
  treadle_free(words);
  treadle_helm_leave(sw->helm);
}
