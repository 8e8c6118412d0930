/* One direction of the plan, wave by wave, and the proof that it wrote every byte once.
 *
 * Wave w: wait until every rank has finished wave need[w], the last one that reads the pages that we overwrite in wave w; run the
 * ops in order; make the stores visible; publish that w is done. Reads wait for nobody: the old mode's bytes are there since the
 * ranks met. need[w] is always an earlier wave, so there is no cycle of waits.
 *
 * Coverage cannot be switched off. Each op counts what it wrote: a mark made from the box that was really written, how often, and
 * the bytes. At the end every op must have run once, and the sums must be those of the plan, which has proved that they are the
 * whole window. */
#include "switch/net.h"

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

/* What an op has written, whichever way it came. */
static void note(treadle_switch *sw, const treadle_op *op, size_t position) {
  sw->work.written[position].mark += treadle_op_mark(op);
  sw->work.written[position].times++;
  size_t bytes = (size_t)op->elems * treadle_dtype_bytes((treadle_dtype)op->to_dtype);
  if (op->source < 0)
    sw->stats.filled_bytes += bytes;
  else
    sw->stats.copied_bytes += bytes;
  if (op->source < 0 || op->source == sw->group->rank) return;
  sw->stats.pulled_bytes += (size_t)treadle_op_moved(op);
  if (treadle_net_is(sw, op->source) && !op->twin)
    sw->stats.node_moved_bytes += (size_t)treadle_op_moved(op);
  if (op->twin) sw->stats.relayed_bytes += (size_t)treadle_op_moved(op);
}

static treadle_status carry_out(treadle_switch *sw, treadle_mode to, const treadle_op *op,
                                size_t position) {
  treadle_status status = TREADLE_OK;
  const treadle_group *group = sw->group;
  treadle_mode old = to == TREADLE_INFER ? TREADLE_TRAIN : TREADLE_INFER;
  treadle_op near = *op;
  treadle_paged from = {0};
  const treadle_paged into = treadle_own_view(sw, to, op->to);
  if (treadle_staging_has(sw, to, position))
    TRY(treadle_staging_read(sw, position, treadle_epoch_now(group), &near, &from));
  else if (op->source == group->rank)
    from = treadle_own_view(sw, op->twin ? to : old, op->from);
  else if (op->source >= 0)
    from = sw->space.paged[op->twin ? to : old][op->source];
  sw->device.ops->copy(&sw->device, &near, op->source < 0 ? NULL : &from, &into);
  note(sw, op, position);
out:
  return status;
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
  sw->device.ops->fence(&sw->device);
  TRY(treadle_switch_block_rows_run(sw, sw->net.to, wave, TREADLE_TURN_FAR));
  sw->device.ops->fence(&sw->device);
  treadle_word_say(sw->group, TREADLE_WORD_ARRIVED, treadle_done_of(epoch, wave));
out:
  return status;
}

/* Where a planted fault of a copy lives; those of messages are in carry_in, those of block rows in run_block_rows.c. */
static treadle_status carry_out_spoiled(treadle_switch *sw, treadle_mode to, const treadle_op *op,
                                        size_t position) {
  treadle_status status = TREADLE_OK;
  if (sw->faults.planted == TREADLE_FAULT_DROP) return TREADLE_OK;
  TRY(carry_out(sw, to, sw->faults.planted == TREADLE_FAULT_MISPLACE ? &sw->faults.misplaced : op,
                position));
  if (sw->faults.planted == TREADLE_FAULT_DOUBLE) TRY(carry_out(sw, to, op, position));
out:
  return status;
}

/* One byte of what this wave has copied is flipped, where that was asked for. */
static void corrupt(treadle_switch *sw, treadle_mode to, int32_t wave) {
  treadle_injection *injection = &sw->faults.injection;
  const treadle_direction *direction = treadle_switch_direction(sw, to);
  if (injection->what != TREADLE_INJECT_CORRUPT || wave < injection->wave) return;
  for (int32_t i = direction->wave_first[wave]; i < direction->wave_first[wave + 1]; i++) {
    if (direction->ops.items[i].source < 0) continue;
    const treadle_paged into = treadle_own_view(sw, to, direction->ops.items[i].to);
    char *at = treadle_paged_into(&into, direction->ops.items[i].to), byte;
    sw->device.ops->move(&sw->device, &byte, at, 1);
    byte ^= 0x10;
    sw->device.ops->move(&sw->device, at, &byte, 1);
    sw->device.ops->fence(&sw->device);
    injection->what = TREADLE_INJECT_NOTHING;
    return;
  }
}

/* The op at hand; messages are taken in before the first relay, which may be what others wait for. */
static treadle_status run_op(treadle_switch *sw, treadle_mode to, size_t position, bool *arrived,
                             uint64_t epoch) {
  treadle_status status = TREADLE_OK;
  const treadle_op *op = &treadle_switch_direction(sw, to)->ops.items[position];
  if (treadle_net_is(sw, op->source) && !op->twin) return TREADLE_OK; /* it comes in a message */
  TRY(treadle_helm_check(sw));
  if (op->twin && !*arrived) TRY(take_in(sw, op->wave, epoch, arrived));
  if (op->twin && op->source != sw->group->rank) TRY(wait_for_arrival(sw, op, epoch));
  if (treadle_fault_is_of_copies(sw->faults.planted) && sw->faults.at == position)
    TRY(carry_out_spoiled(sw, to, op, position));
  else
    TRY(carry_out(sw, to, op, position));
  TRY(treadle_net_move_beside(sw, (size_t)op->elems * treadle_dtype_bytes((treadle_dtype)op->to_dtype)));
out:
  return status;
}

static treadle_status run_wave(treadle_switch *sw, treadle_mode to, int32_t wave, uint64_t epoch) {
  treadle_status status = TREADLE_OK;
  const treadle_direction *direction = treadle_switch_direction(sw, to);
  bool arrived = false;
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
  for (int32_t i = direction->wave_first[wave]; i < direction->wave_first[wave + 1]; i++)
    TRY(run_op(sw, to, (size_t)i, &arrived, epoch));
  if (!arrived) TRY(take_in(sw, wave, epoch, &arrived));
  TRY(treadle_switch_block_rows_run(sw, to, wave, TREADLE_TURN_TWIN));
  sw->device.ops->fence(&sw->device);
  corrupt(sw, to, wave);
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
    const treadle_written_bytes *written = &sw->work.written[i];
    char words[400];
    op_words(sw, op, words, sizeof words);
    if (written->times == 0)
      return treadle_fail(TREADLE_DIFFERENT, "coverage: rank %d: %s was not written (bytes %" PRId64 "..)",
                          sw->group->rank, words, op->to);
    if (written->times > 1)
      return treadle_fail(TREADLE_DIFFERENT,
                          "coverage: rank %d: %s was written %u times (bytes %" PRId64 "..)",
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
    sum += sw->work.written[i].mark;
    once = once && sw->work.written[i].times == 1;
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
  memset(sw->work.written, 0, direction->ops.count * sizeof *sw->work.written);
  memset(sw->work.block_rows, 0, direction->block_rows.count * sizeof *sw->work.block_rows);
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
