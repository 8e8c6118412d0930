/* One direction of the plan, wave by wave, and the proof that it wrote every byte once.
 *
 * Wave w: wait until every rank has finished wave need[w], the last one that reads the pages that we overwrite in wave w; ask the device
 * for the ops, a range at a time; publish that w is done when all that was asked for is. Reads wait for nobody: the old mode's bytes are there
 * since the ranks met. need[w] is always an earlier wave, so there is no cycle of waits.
 *
 * A range ends where something else comes first: a message, a word of another rank, what the range itself has written; and where it has
 * many bytes, since between ranges messages move on, and whoever cancels is heard.
 *
 * Coverage cannot be switched off. Whoever runs an op counts what it wrote: a mark made from the box that was really written, how often, and
 * the bytes. At the end every op must have run once, and the sums must be those of the plan, which has proved that they are the
 * whole window. */
#include "switch/net.h"
#include "switch/run_lists.h"

#include "base/clock.h"
#include "base/dtype.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* "tensor 'model.layers.3.mlp.up_proj.weight' in wave 12" */
static const char *op_words(const treadle_switch *sw, const treadle_op *op, char *room, size_t bytes) {
  const char *name = op->tensor < 0 ? "(a fill)" : sw->layouts[0]->model->tensors[op->tensor].name;
  snprintf(room, bytes, "tensor '%s' in wave %d", name, op->wave);
  return room;
}

const char *treadle_switch_words(const treadle_switch *sw, treadle_mode to, int32_t wave, char *room,
                                 size_t bytes) {
  const treadle_direction *direction = treadle_switch_direction(sw, to);
  const treadle_model *model = sw->layouts[0]->model;
  int32_t tensor = -1;
  if (wave >= sw->plan->waves) {
    snprintf(room, bytes, "after its last wave");
    return room;
  }
  for (int32_t i = direction->wave_first[wave]; i < direction->wave_first[wave + 1] && tensor < 0; i++)
    tensor = direction->ops.items[i].tensor;
  for (int32_t i = direction->block_row_first[wave]; i < direction->block_row_first[wave + 1] && tensor < 0;
       i++)
    tensor = direction->block_rows.items[i].tensor;
  snprintf(room, bytes, "wave %d (tensor '%s')", wave,
           tensor < 0 ? "none here" : model->tensors[tensor].name);
  return room;
}

/* ---- Waves ---- */

static treadle_status wait_for_wave(treadle_switch *sw, treadle_mode to, int32_t wave, int32_t need,
                                    uint64_t epoch) {
  treadle_status status = TREADLE_OK;
  treadle_group *group = sw->group;
  char what[400], words[360];
  if (need < 0 || sw->faults.planted == TREADLE_FAULT_EARLY) return TREADLE_OK;
  uint64_t value = treadle_done_of(epoch, need);
  snprintf(what, sizeof what, "%s, which needs wave %d",
           treadle_switch_words(sw, to, wave, words, sizeof words), need);
  double begin = treadle_clock_seconds(), deadline = begin + group->timeout_seconds;
  for (int rank = 0; rank < group->size; rank++)
    if (rank != group->rank && treadle_group_is_near(group, rank))
      TRY(treadle_word_wait(sw, rank, TREADLE_WORD_DONE, value, epoch, deadline, what));
  sw->stats.wait_seconds += treadle_clock_seconds() - begin;
out:
  return status;
}

/* A relay is read when what its source pulls has arrived there. */
static treadle_status wait_for_arrival(treadle_switch *sw, const treadle_op *op, uint64_t epoch) {
  char what[80];
  snprintf(what, sizeof what, "what came to it from other nodes in wave %d", op->wave);
  double begin = treadle_clock_seconds();
  treadle_status status =
      treadle_word_wait(sw, op->source, TREADLE_WORD_ARRIVED, treadle_done_of(epoch, op->wave), epoch,
                        begin + sw->group->timeout_seconds, what);
  sw->stats.wait_seconds += treadle_clock_seconds() - begin;
  return status;
}

treadle_status treadle_switch_settle(treadle_switch *sw, uint64_t epoch, const char *what) {
  treadle_status status = TREADLE_OK;
  const treadle_ticket ticket = sw->device.ops->mark(&sw->device);
  double deadline = 0;
  for (bool passed = false;;) {
    TRY(sw->device.ops->passed(&sw->device, ticket, &passed));
    if (passed) break;
    TRY(treadle_net_move(sw));
    TRY(treadle_epoch_check(sw, epoch));
    const double now = treadle_clock_seconds();
    if (deadline == 0) deadline = now + sw->group->timeout_seconds;
    if (now > deadline)
      TRY(treadle_fail(TREADLE_TIMEOUT, "rank %d: its device has not done %s in %.1f s", sw->group->rank,
                       what, sw->group->timeout_seconds));
  }
out:
  return status;
}

/* Copied by the processor's hand, as it were: an op that came in a message, or one with a planted fault. */
static void note(treadle_switch *sw, const treadle_op *op, size_t position) {
  treadle_written *written = &sw->run.written[position];
  written->times++;
  written->bytes += op->elems * (int64_t)treadle_dtype_bytes((treadle_dtype)op->to_dtype);
  written->mark += treadle_op_mark(op);
}

/* What the ops of a wave have written, whichever way it came. */
static void count_wave(treadle_switch *sw, const treadle_direction *direction, int32_t wave) {
  for (int32_t i = direction->wave_first[wave]; i < direction->wave_first[wave + 1]; i++) {
    const treadle_op *op = &direction->ops.items[i];
    const treadle_written *written = &sw->run.written[i];
    *(op->source < 0 ? &sw->stats.filled_bytes : &sw->stats.copied_bytes) += (size_t)written->bytes;
    if (op->source < 0 || op->source == sw->group->rank) continue;
    const size_t moved = (size_t)(treadle_op_moved(op) * written->times);
    sw->stats.pulled_bytes += moved;
    if (treadle_net_is(sw, op->source) && !op->twin) sw->stats.node_moved_bytes += moved;
    if (op->twin) sw->stats.relayed_bytes += moved;
  }
}

/* The same of an op that reads a message, and its planted faults; from NULL: it came right into the window. */
static treadle_status carry_in(treadle_switch *sw, const treadle_op *op, size_t position,
                               const treadle_paged *from) {
  treadle_mode to = sw->net.to;
  treadle_fault fault = treadle_fault_is_of_copies(sw->faults.planted) && sw->faults.at == position
                            ? sw->faults.planted
                            : TREADLE_FAULT_NONE;
  const treadle_op *planned = &treadle_switch_direction(sw, to)->ops.items[position];
  treadle_op copy = *op;
  if (fault == TREADLE_FAULT_DROP) return TREADLE_OK;
  if (fault == TREADLE_FAULT_MISPLACE) planned = &sw->faults.misplaced;
  copy.to = planned->to;
  for (int times = fault == TREADLE_FAULT_DOUBLE ? 2 : 1; times > 0; times--) {
    if (from) treadle_own_copy_into(sw, to, &copy, from);
    note(sw, planned, position);
  }
  return TREADLE_OK;
}

/* What comes from other nodes in a wave; then other ranks of this node may read it. */
static treadle_status take_in(treadle_switch *sw, int32_t wave, uint64_t epoch, bool *arrived_p) {
  treadle_status status = TREADLE_OK;
  *arrived_p = true;
  if (!treadle_net_is_busy(sw)) return TREADLE_OK;
  TRY(treadle_net_unpack(sw, wave, carry_in));
  if (sw->net.to == TREADLE_INFER) TRY(treadle_staging_relay(sw, wave, epoch));
  TRY(treadle_switch_block_rows_run(sw, sw->net.to, wave, TREADLE_TURN_FAR));
  TRY(treadle_switch_settle(sw, epoch, "what came from other nodes"));
  treadle_word_say(sw->group, TREADLE_WORD_ARRIVED, treadle_done_of(epoch, wave));
out:
  return status;
}

/* One byte of what this wave has copied is flipped, where that was asked for. */
static treadle_status corrupt(treadle_switch *sw, treadle_mode to, int32_t wave) {
  treadle_status status = TREADLE_OK;
  treadle_injection *injection = &sw->faults.injection;
  const treadle_direction *direction = treadle_switch_direction(sw, to);
  if (injection->what != TREADLE_INJECT_CORRUPT || wave < injection->wave) return TREADLE_OK;
  for (int32_t i = direction->wave_first[wave]; i < direction->wave_first[wave + 1]; i++) {
    if (direction->ops.items[i].source < 0) continue;
    const treadle_paged into = treadle_own_view(sw, to, direction->ops.items[i].to);
    char *at = treadle_paged_into(&into, direction->ops.items[i].to), byte;
    sw->device.ops->move(&sw->device, &byte, at, 1);
    TRY(sw->device.ops->fence(&sw->device));
    byte ^= 0x10;
    sw->device.ops->move(&sw->device, at, &byte, 1);
    TRY(sw->device.ops->fence(&sw->device));
    injection->what = TREADLE_INJECT_NOTHING;
    break;
  }
out:
  return status;
}

/* Ops that are asked for together. */
typedef struct range {
  treadle_switch *sw;
  treadle_mode to;
  int32_t wave;
  uint64_t epoch;
  size_t first, count;
  int64_t bytes;
  bool arrived;  /* messages of the wave have been taken in */
  bool own;      /* its twins have begun */
  int32_t relay; /* the rank whose relays are read, -1: none yet */
} range;

enum { RANGE_BYTES = 4 << 20 };

/* Asks for what was collected. */
static treadle_status ask(range *r) {
  treadle_status status = TREADLE_OK;
  treadle_switch *sw = r->sw;
  const int64_t bytes = r->bytes;
  if (r->count > 0) {
    TRY(treadle_helm_check(sw));
    sw->device.ops->run(&sw->device, treadle_switch_list_of(sw, r->to), r->first, r->count,
                        sw->run.written + r->first);
  }
  r->first += r->count;
  r->count = 0;
  r->bytes = 0;
  TRY(treadle_net_move_beside(sw, (size_t)bytes));
out:
  return status;
}

/* What has to be there before the op; what was collected is asked for first, then. */
static treadle_status ask_before(range *r, const treadle_op *op, size_t position) {
  treadle_status status = TREADLE_OK;
  treadle_switch *sw = r->sw;
  const int rank = sw->group->rank;
  const bool staged =
      !op->twin && treadle_staging_has(sw, r->to, position) &&
      treadle_word_of(sw->group, op->source, TREADLE_WORD_STAGED) < treadle_done_of(r->epoch, r->wave);
  const bool relays = op->twin && op->source != rank && op->source != r->relay,
             twins = op->twin && op->source == rank && !r->own, takes = op->twin && !r->arrived;
  if (!staged && !relays && !twins && !takes) return TREADLE_OK;
  TRY(ask(r));
  if (staged) TRY(treadle_staging_wait(sw, op->source, r->wave, r->epoch));
  if (takes) TRY(take_in(sw, r->wave, r->epoch, &r->arrived));
  if (relays) TRY(wait_for_arrival(sw, op, r->epoch));
  if (relays) r->relay = op->source;
  if (twins) r->own = true;
out:
  return status;
}

/* A planted fault of a copy; those of messages are in carry_in, those of block rows in run_block_rows.c. */
static treadle_status ask_spoiled(range *r, const treadle_op *planned, size_t position) {
  treadle_status status = TREADLE_OK;
  treadle_switch *sw = r->sw;
  const treadle_fault fault = sw->faults.planted;
  treadle_op op = fault == TREADLE_FAULT_MISPLACE ? sw->faults.misplaced : *planned;
  const treadle_paged into = treadle_own_view(sw, r->to, op.to);
  TRY(ask(r));
  r->first++;
  if (fault == TREADLE_FAULT_DROP) goto out;
  const treadle_op noted = op;
  const treadle_paged from = treadle_switch_source_of(sw, r->to, position, &op);
  for (int times = fault == TREADLE_FAULT_DOUBLE ? 2 : 1; times > 0; times--) {
    sw->device.ops->copy(&sw->device, &op, op.source < 0 ? NULL : &from, &into);
    note(sw, &noted, position);
  }
out:
  return status;
}

static treadle_status run_ops(range *r) {
  treadle_status status = TREADLE_OK;
  treadle_switch *sw = r->sw;
  const treadle_direction *direction = treadle_switch_direction(sw, r->to);
  const int64_t most = treadle_net_is_busy(sw) ? TREADLE_NET_MESSAGE : RANGE_BYTES;
  r->first = (size_t)direction->wave_first[r->wave];
  for (size_t i = r->first; i < (size_t)direction->wave_first[r->wave + 1]; i++) {
    const treadle_op *op = &direction->ops.items[i];
    if (treadle_net_is(sw, op->source) && !op->twin) { /* it comes in a message */
      TRY(ask(r));
      r->first++;
      continue;
    }
    TRY(ask_before(r, op, i));
    if (treadle_fault_is_of_copies(sw->faults.planted) && sw->faults.at == i) {
      TRY(ask_spoiled(r, op, i));
      continue;
    }
    r->count++;
    r->bytes += op->elems * (int64_t)treadle_dtype_bytes((treadle_dtype)op->to_dtype);
    if (r->bytes >= most) TRY(ask(r));
  }
  TRY(ask(r));
out:
  return status;
}

static treadle_status run_wave(treadle_switch *sw, treadle_mode to, int32_t wave, uint64_t epoch) {
  treadle_status status = TREADLE_OK;
  const treadle_direction *direction = treadle_switch_direction(sw, to);
  range r = {.sw = sw, .to = to, .wave = wave, .epoch = epoch, .relay = -1};
  TRY(treadle_epoch_check(sw, epoch));
  TRY(treadle_switch_point(sw, TREADLE_AT_WAVE, wave));
  TRY(wait_for_wave(sw, to, wave, direction->need[wave], epoch));
  TRY(treadle_net_pack(sw, direction->need[wave]));
  if (wave == direction->first_reclaim) TRY(treadle_epoch_reclaim(sw, epoch));
  if (to == TREADLE_INFER && sw->faults.planted != TREADLE_FAULT_LATE_TWIN)
    TRY(treadle_twin_fill(sw, wave));
  TRY(treadle_account_wave(sw, to, wave, epoch));
  if (to == TREADLE_INFER) TRY(treadle_staging_fill(sw, wave, epoch));
  treadle_net_open(sw, wave);
  TRY(treadle_switch_block_rows_run(sw, to, wave, TREADLE_TURN_NEAR));
  TRY(treadle_net_move(sw));
  TRY(run_ops(&r));
  if (!r.arrived) TRY(take_in(sw, wave, epoch, &r.arrived));
  TRY(treadle_switch_block_rows_run(sw, to, wave, TREADLE_TURN_TWIN));
  TRY(treadle_switch_settle(sw, epoch, "its copies"));
  count_wave(sw, direction, wave);
  TRY(corrupt(sw, to, wave));
  if (sw->net.out[to].ordered.reads_others) TRY(treadle_net_pack(sw, wave));
  treadle_word_say(sw->group, TREADLE_WORD_DONE, treadle_done_of(epoch, wave));
  treadle_helm_tell(sw);
out:
  return status;
}

/* ---- Coverage ---- */

static treadle_status find_difference(const treadle_switch *sw, const treadle_direction *direction) {
  for (size_t i = 0; i < direction->ops.count; i++) {
    const treadle_op *op = &direction->ops.items[i];
    const treadle_written *written = &sw->run.written[i];
    char words[400];
    op_words(sw, op, words, sizeof words);
    if (written->times == 0)
      return treadle_fail(TREADLE_DIFFERENT, "coverage: rank %d: %s was not written (bytes %" PRId64 "..)",
                          sw->group->rank, words, op->to);
    if (written->times > 1)
      return treadle_fail(TREADLE_DIFFERENT,
                          "coverage: rank %d: %s was written %" PRId64 " times (bytes %" PRId64 "..)",
                          sw->group->rank, words, written->times, op->to);
    if (written->mark != treadle_op_mark(op))
      return treadle_fail(TREADLE_DIFFERENT,
                          "coverage: rank %d: %s was not written at its place (bytes %" PRId64 "..)",
                          sw->group->rank, words, op->to);
  }
  return TREADLE_OK;
}

/* What is not copied because both windows lie on it. A planted mistake puts the first such page elsewhere. */
static treadle_status mark_aliased(const treadle_switch *sw, const treadle_direction *direction,
                                   uint64_t *sum, int64_t *bytes) {
  const treadle_arrangement *arrangement = &sw->plan->arrangement;
  int32_t *table = sw->space.tables.page[TREADLE_INFER_PARAMS];
  int64_t first = 0;
  while (first < arrangement->to_pages && (!arrangement->from_of || arrangement->from_of[first] < 0))
    first++;
  bool spoil = sw->faults.planted == TREADLE_FAULT_ALIAS && first < arrangement->to_pages;
  if (spoil) table[first] ^= 1;
  treadle_status status = treadle_alias_mark(sw->plan, direction == &sw->plan->back,
                                             sw->space.tables.page[TREADLE_PARAMS], table, sum, bytes);
  if (spoil) table[first] ^= 1;
  return status;
}

static treadle_status check_coverage(const treadle_switch *sw, const treadle_direction *direction) {
  treadle_status status = TREADLE_OK;
  uint64_t sum = 0;
  bool once = true;
  int64_t aliased = 0;
  TRY(treadle_switch_block_rows_check(sw, direction, &sum));
  for (size_t i = 0; i < direction->ops.count; i++) {
    sum += sw->run.written[i].mark;
    once = once && sw->run.written[i].times == 1;
  }
  TRY(mark_aliased(sw, direction, &sum, &aliased));
  size_t bytes = sw->stats.copied_bytes + sw->stats.filled_bytes + (size_t)aliased;
  if (once && sum == direction->coverage && bytes == (size_t)direction->written_bytes) goto out;
  TRY(find_difference(sw, direction));
  status = treadle_fail(TREADLE_DIFFERENT,
                        "coverage: rank %d wrote %zu bytes, mark %016" PRIx64 "; the plan has %" PRId64
                        " bytes, mark %016" PRIx64,
                        sw->group->rank, bytes, sum, direction->written_bytes, direction->coverage);
out:
  return status;
}

treadle_status treadle_switch_run(treadle_switch *sw, treadle_mode to, uint64_t epoch) {
  treadle_status status = TREADLE_OK;
  const treadle_direction *direction = treadle_switch_direction(sw, to);
  memset(sw->run.written, 0, direction->ops.count * sizeof *sw->run.written);
  memset(sw->run.blocks, 0, direction->block_rows.count * sizeof *sw->run.blocks);
  treadle_switch_stats *stats = &sw->stats;
  stats->copied_bytes = stats->pulled_bytes = stats->filled_bytes = 0;
  stats->node_moved_bytes = stats->node_sent_bytes = stats->relayed_bytes = 0;
  stats->dense_bytes = stats->delta_bytes = 0;
  treadle_net_begin(sw, to, epoch);
  double begin = treadle_clock_seconds(), others = stats->wait_seconds + stats->offload_seconds;
  for (int32_t wave = 0; wave < sw->plan->waves; wave++) TRY(run_wave(sw, to, wave, epoch));
  TRY(treadle_net_finish(sw));
  stats->net_seconds = sw->net.seconds;
  stats->net_pack_seconds = sw->net.pack_seconds;
  stats->net_wire_seconds = sw->net.wire_seconds;
  stats->net_unpack_seconds = sw->net.unpack_seconds;
  stats->net_window_bytes = sw->net.window_bytes;
  stats->node_sent_bytes = sw->net.sent_bytes;
  stats->dense_bytes = sw->net.delta.dense_bytes;
  stats->delta_bytes = sw->net.delta.delta_bytes;
  stats->wave_seconds =
      treadle_clock_seconds() - begin - (stats->wait_seconds + stats->offload_seconds - others);
  TRY(check_coverage(sw, direction));
out:
  return status;
}
