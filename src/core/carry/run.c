/* One direction of the plan, wave by wave, and the proof that it wrote every byte once.
 *
 * Wave w: wait until every rank has finished wave need[w], the last one that reads the pages that we overwrite in wave w; ask the device
 * for the ops, a range at a time; publish that w is done when all that was asked for is (flight.c), and go on with the next one meanwhile. Reads wait for nobody: the other window's bytes are there
 * since the ranks met. need[w] is always an earlier wave, so there is no cycle of waits.
 *
 * A range ends where something else comes first: a message, a word of another rank, what the range itself has written; and where it has
 * many bytes, since between ranges messages move on, and whoever cancels is heard.
 *
 * Coverage cannot be switched off. Whoever runs an op counts what it wrote: a mark made from the box that was really written, how often, and
 * the bytes. At the end every op must have run once, and the sums must be those of the plan, which has proved that they are the
 * whole window. */
#include "carry/carry_parts.h"
#include "carry/net.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/dtype.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* "tensor 'model.layers.3.mlp.up_proj.weight' in wave 12" */
static const char *op_words(const treadle_carry *c, const treadle_op *op, char *room, size_t bytes) {
  const char *name = op->tensor < 0 ? "(a fill)" : c->plan->from->model->tensors[op->tensor].name;
  snprintf(room, bytes, "tensor '%s' in wave %d", name, op->wave);
  return room;
}

const char *treadle_carry_words(const treadle_carry *c, treadle_side to, int32_t wave, char *room,
                                size_t bytes) {
  const treadle_direction *direction = treadle_carry_direction(c, to);
  const treadle_model *model = c->plan->from->model;
  int32_t tensor = -1;
  if (wave >= c->plan->waves) {
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

static treadle_status wait_for_wave(treadle_carry *c, int32_t wave, int32_t need) {
  treadle_status status = TREADLE_OK;
  treadle_group *group = c->group;
  char what[400], words[360];
  if (need < 0 || c->faults.planted == TREADLE_FAULT_EARLY) return TREADLE_OK;
  uint64_t value = treadle_done_of(c->epoch, need);
  snprintf(what, sizeof what, "%s, which needs wave %d",
           treadle_carry_words(c, c->to, wave, words, sizeof words), need);
  TRY(treadle_flight_land(c, need));
  double begin = treadle_clock_seconds(), deadline = begin + group->timeout_seconds;
  for (int rank = 0; rank < group->size; rank++)
    if (rank != group->rank && treadle_group_is_near(group, rank))
      TRY(treadle_word_wait(c, rank, TREADLE_WORD_DONE, value, c->epoch, deadline, what));
  c->figures->wait_seconds += treadle_clock_seconds() - begin;
out:
  return status;
}

/* A relay is read when what its source pulls has arrived there. */
static treadle_status wait_for_arrival(treadle_carry *c, const treadle_op *op) {
  char what[80];
  snprintf(what, sizeof what, "what came to it from other nodes in wave %d", op->wave);
  double begin = treadle_clock_seconds();
  treadle_status status =
      treadle_word_wait(c, op->source, TREADLE_WORD_ARRIVED, treadle_done_of(c->epoch, op->wave), c->epoch,
                        begin + c->group->timeout_seconds, what);
  c->figures->wait_seconds += treadle_clock_seconds() - begin;
  return status;
}

/* Copied by the processor's hand, as it were: an op that came in a message, or one with a planted fault. */
static void note(treadle_carry *c, const treadle_op *op, size_t position) {
  treadle_written *written = &c->run.written[position];
  written->times++;
  written->bytes += op->elems * (int64_t)treadle_dtype_bytes((treadle_dtype)op->to_dtype);
  written->mark += treadle_op_mark(op);
}

/* What the ops of a wave have written, whichever way it came. */
static void count_wave(treadle_carry *c, const treadle_direction *direction, int32_t wave) {
  for (int32_t i = direction->wave_first[wave]; i < direction->wave_first[wave + 1]; i++) {
    const treadle_op *op = &direction->ops.items[i];
    const treadle_written *written = &c->run.written[i];
    *(op->source < 0 ? &c->figures->filled_bytes : &c->figures->copied_bytes) += (size_t)written->bytes;
    if (op->source < 0 || op->source == c->group->rank) continue;
    const size_t moved = (size_t)(treadle_op_moved(op) * written->times);
    c->figures->pulled_bytes += moved;
    if (treadle_net_is(c, op->source) && !op->twin) c->figures->node_moved_bytes += moved;
    if (op->twin) c->figures->relayed_bytes += moved;
  }
}

/* The same of an op that reads a message, and its planted faults; from NULL: it came right into the window. */
static treadle_status carry_in(treadle_carry *c, const treadle_op *op, size_t position,
                               const treadle_paged *from) {
  treadle_fault fault = treadle_fault_is_of_copies(c->faults.planted) && c->faults.at == position
                            ? c->faults.planted
                            : TREADLE_FAULT_NONE;
  const treadle_op *planned = &treadle_carry_direction(c, c->to)->ops.items[position];
  treadle_op copy = *op;
  if (fault == TREADLE_FAULT_DROP) return TREADLE_OK;
  if (fault == TREADLE_FAULT_MISPLACE) planned = &c->faults.misplaced;
  copy.to = planned->to;
  for (int times = fault == TREADLE_FAULT_DOUBLE ? 2 : 1; times > 0; times--) {
    if (from) treadle_own_copy_into(c, c->net.copies, c->to, &copy, from);
    note(c, planned, position);
  }
  return TREADLE_OK;
}

/* What comes from other nodes in a wave; then other ranks of this node may read it. */
static treadle_status take_in(treadle_carry *c, int32_t wave, bool *arrived_p) {
  treadle_status status = TREADLE_OK;
  *arrived_p = true;
  if (!treadle_net_is_busy(c)) return TREADLE_OK;
  TRY(treadle_net_unpack(c, wave, carry_in));
  if (c->to == TREADLE_SIDE_INFER) TRY(treadle_staging_relay(c, wave));
  TRY(treadle_carry_block_rows_run(c, wave, TREADLE_TURN_FAR));
  TRY(treadle_carry_settle(c, "what came from other nodes"));
  treadle_word_say(c->group, TREADLE_WORD_ARRIVED, treadle_done_of(c->epoch, wave));
out:
  return status;
}

/* Ops that are asked for together. */
typedef struct range {
  treadle_carry *c;
  int32_t wave;
  size_t first, count;
  int64_t bytes;
  bool arrived;  /* messages of the wave have been taken in */
  bool own;      /* its twins have begun */
  int32_t relay; /* the rank whose relays are read, -1: none yet */
} range;

enum { RANGE_BYTES = 4 << 20, RANGE_OF_DEVICE = 64 << 20 };

/* Asks for what was collected. */
static treadle_status ask(range *r) {
  treadle_status status = TREADLE_OK;
  treadle_carry *c = r->c;
  const int64_t bytes = r->bytes;
  if (r->count > 0) {
    TRY(treadle_carry_look(c));
    c->device->ops->run(c->device, treadle_carry_list(c), r->first, r->count, c->run.written + r->first);
  }
  r->first += r->count;
  r->count = 0;
  r->bytes = 0;
  TRY(treadle_net_move_beside(c, (size_t)bytes));
out:
  return status;
}

/* What has to be there before the op; what was collected is asked for first, then. */
static treadle_status ask_before(range *r, const treadle_op *op, size_t position) {
  treadle_status status = TREADLE_OK;
  treadle_carry *c = r->c;
  const int rank = c->group->rank;
  const bool staged =
      !op->twin && treadle_staging_has(c, c->to, position) &&
      treadle_word_of(c->group, op->source, TREADLE_WORD_STAGED) < treadle_done_of(c->epoch, r->wave);
  const bool relays = op->twin && op->source != rank && op->source != r->relay,
             twins = op->twin && op->source == rank && !r->own, takes = op->twin && !r->arrived;
  if (!staged && !relays && !twins && !takes) return TREADLE_OK;
  TRY(ask(r));
  if (staged) TRY(treadle_staging_wait(c, op->source, r->wave));
  if (takes) TRY(take_in(c, r->wave, &r->arrived));
  if (relays) TRY(wait_for_arrival(c, op));
  if (relays) r->relay = op->source;
  if (twins) r->own = true;
out:
  return status;
}

/* A planted fault of a copy; those of messages are in carry_in, those of block rows in block_rows.c. */
static treadle_status ask_spoiled(range *r, const treadle_op *planned, size_t position) {
  treadle_status status = TREADLE_OK;
  treadle_carry *c = r->c;
  const treadle_fault fault = c->faults.planted;
  treadle_op op = fault == TREADLE_FAULT_MISPLACE ? c->faults.misplaced : *planned;
  const treadle_paged into = treadle_own_view(c, c->to, op.to);
  TRY(ask(r));
  r->first++;
  if (fault == TREADLE_FAULT_DROP) goto out;
  const treadle_op noted = op;
  const treadle_paged from = treadle_carry_source_of(c, c->to, position, &op);
  for (int times = fault == TREADLE_FAULT_DOUBLE ? 2 : 1; times > 0; times--) {
    c->device->ops->copy(c->device, &op, &from, &into, 1);
    note(c, &noted, position);
  }
out:
  return status;
}

/* Bytes of a range. A device is asked, and not waited for. */
static int64_t most_at_once(const treadle_carry *c) {
  if (treadle_device_is_host(c->device)) return treadle_net_is_busy(c) ? TREADLE_NET_MESSAGE : RANGE_BYTES;
  return treadle_net_is_busy(c) ? RANGE_OF_DEVICE : INT64_MAX;
}

static treadle_status run_ops(range *r) {
  treadle_status status = TREADLE_OK;
  treadle_carry *c = r->c;
  const treadle_direction *direction = treadle_carry_direction(c, c->to);
  const int64_t most = most_at_once(c);
  r->first = (size_t)direction->wave_first[r->wave];
  for (size_t i = r->first; i < (size_t)direction->wave_first[r->wave + 1]; i++) {
    const treadle_op *op = &direction->ops.items[i];
    if (treadle_net_is(c, op->source) && !op->twin) { /* it comes in a message */
      TRY(ask(r));
      r->first++;
      continue;
    }
    TRY(ask_before(r, op, i));
    if (treadle_fault_is_of_copies(c->faults.planted) && c->faults.at == i) {
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

treadle_status treadle_carry_finish(treadle_carry *c, int32_t wave) {
  treadle_status status = TREADLE_OK;
  count_wave(c, treadle_carry_direction(c, c->to), wave);
  TRY(c->hooks->after(c->context, wave));
  if (c->net.out[c->to].ordered.reads_others) TRY(treadle_net_pack(c, wave));
  treadle_word_say(c->group, TREADLE_WORD_DONE, treadle_done_of(c->epoch, wave));
out:
  return status;
}

static treadle_status run_wave(treadle_carry *c, int32_t wave) {
  treadle_status status = TREADLE_OK;
  const treadle_direction *direction = treadle_carry_direction(c, c->to);
  range r = {.c = c, .wave = wave, .relay = -1};
  TRY(treadle_flight_look(c));
  TRY(treadle_carry_check(c, c->epoch));
  TRY(c->hooks->before(c->context, wave));
  TRY(wait_for_wave(c, wave, direction->need[wave]));
  TRY(treadle_net_pack(c, direction->need[wave]));
  TRY(treadle_turns_check(c, wave));
  TRY(c->hooks->reclaim(c->context, wave));
  if (c->to == TREADLE_SIDE_INFER) TRY(treadle_staging_fill(c, wave));
  treadle_net_open(c, wave);
  TRY(treadle_carry_block_rows_run(c, wave, TREADLE_TURN_NEAR));
  TRY(treadle_net_move(c));
  TRY(run_ops(&r));
  if (!r.arrived) TRY(take_in(c, wave, &r.arrived));
  TRY(treadle_carry_block_rows_run(c, wave, TREADLE_TURN_TWIN));
  TRY(treadle_flight_start(c, wave));
out:
  return status;
}

/* ---- Coverage ---- */

static treadle_status find_difference(const treadle_carry *c, const treadle_direction *direction) {
  for (size_t i = 0; i < direction->ops.count; i++) {
    const treadle_op *op = &direction->ops.items[i];
    const treadle_written *written = &c->run.written[i];
    char words[400];
    op_words(c, op, words, sizeof words);
    if (written->times == 0)
      return treadle_fail(TREADLE_DIFFERENT, "coverage: rank %d: %s was not written (bytes %" PRId64 "..)",
                          treadle_group_called(c->group, c->group->rank), words, op->to);
    if (written->times > 1)
      return treadle_fail(TREADLE_DIFFERENT,
                          "coverage: rank %d: %s was written %" PRId64 " times (bytes %" PRId64 "..)",
                          treadle_group_called(c->group, c->group->rank), words, written->times, op->to);
    if (written->mark != treadle_op_mark(op))
      return treadle_fail(TREADLE_DIFFERENT,
                          "coverage: rank %d: %s was not written at its place (bytes %" PRId64 "..)",
                          treadle_group_called(c->group, c->group->rank), words, op->to);
  }
  return TREADLE_OK;
}

static treadle_status check_coverage(const treadle_carry *c, const treadle_direction *direction) {
  treadle_status status = TREADLE_OK;
  uint64_t sum = 0;
  bool once = true;
  int64_t aliased = 0;
  TRY(treadle_carry_block_rows_check(c, &sum));
  for (size_t i = 0; i < direction->ops.count; i++) {
    sum += c->run.written[i].mark;
    once = once && c->run.written[i].times == 1;
  }
  /* What is not copied because both windows lie on it. */
  TRY(treadle_alias_mark(c->plan, c->to == TREADLE_SIDE_TRAIN, c->pages[TREADLE_SIDE_TRAIN],
                         c->pages[TREADLE_SIDE_INFER], &sum, &aliased));
  size_t bytes = c->figures->copied_bytes + c->figures->filled_bytes + (size_t)aliased;
  if (once && sum == direction->coverage && bytes == (size_t)direction->written_bytes) goto out;
  TRY(find_difference(c, direction));
  status = treadle_fail(TREADLE_DIFFERENT,
                        "coverage: rank %d wrote %zu bytes, mark %016" PRIx64 "; the plan has %" PRId64
                        " bytes, mark %016" PRIx64,
                        c->group->rank, bytes, sum, direction->written_bytes, direction->coverage);
out:
  return status;
}

/* What the device has done in this run. */
static void note_device(const treadle_carry *c, const treadle_device_figures *before) {
  treadle_switch_stats *stats = c->figures;
  treadle_device_figures now;
  c->device->ops->figures(c->device, &now);
  stats->copy_seconds = now.seconds - before->seconds;
  stats->kernel_launches = now.launches - before->launches;
  stats->table_bytes = now.table_bytes;
  stats->slab_bytes = now.slab_bytes;
  stats->waves_in_flight = c->run.flight.most;
}

treadle_status treadle_carry_run(treadle_carry *c, treadle_side to, uint64_t epoch) {
  treadle_status status = TREADLE_OK;
  const treadle_direction *direction = treadle_carry_direction(c, to);
  memset(c->run.written, 0, direction->ops.count * sizeof *c->run.written);
  treadle_switch_stats *stats = c->figures;
  stats->copied_bytes = stats->pulled_bytes = stats->filled_bytes = 0;
  stats->node_moved_bytes = stats->node_sent_bytes = stats->relayed_bytes = 0;
  stats->dense_bytes = stats->delta_bytes = 0;
  c->to = to;
  c->epoch = epoch;
  treadle_carry_block_rows_begin(c);
  treadle_net_begin(c);
  treadle_device_figures before;
  c->device->ops->figures(c->device, &before);
  double begin = treadle_clock_seconds(), others = stats->wait_seconds + stats->offload_seconds;
  c->run.flight = (treadle_flight){0};
  for (int32_t wave = 0; wave < c->plan->waves; wave++) TRY(run_wave(c, wave));
  TRY(treadle_flight_land(c, c->plan->waves - 1));
  TRY(treadle_net_finish(c));
  note_device(c, &before);
  stats->net_seconds = c->net.seconds;
  stats->net_pack_seconds = c->net.pack_seconds;
  stats->net_wire_seconds = c->net.wire_seconds;
  stats->net_unpack_seconds = c->net.unpack_seconds;
  stats->net_window_bytes = c->net.window_bytes;
  stats->node_sent_bytes = c->net.sent_bytes;
  stats->dense_bytes = c->net.delta.dense_bytes;
  stats->delta_bytes = c->net.delta.delta_bytes;
  stats->wave_seconds =
      treadle_clock_seconds() - begin - (stats->wait_seconds + stats->offload_seconds - others);
  TRY(check_coverage(c, direction));
out:
  if (status != TREADLE_OK)
    c->run.flight = (treadle_flight){.most = c->run.flight.most}; /* nobody finishes them */
  return status;
}

/* ---- Its life ---- */

treadle_status treadle_carry_create(treadle_carry *c) {
  treadle_status status = TREADLE_OK;
  const size_t forward = c->plan->forward.ops.count, back = c->plan->back.ops.count,
               most = (forward > back ? forward : back) + 1;
  c->run.written = treadle_alloc_array(most, sizeof *c->run.written);
  c->run.staged = treadle_alloc(sizeof *c->run.staged);
  c->net.copies = treadle_alloc(sizeof *c->net.copies);
  if (!c->run.written || !c->run.staged || !c->net.copies) return treadle_memory_is_out();
  memset(c->run.written, 0, most * sizeof *c->run.written); /* touched */
  TRY(treadle_carry_block_rows_create(c));
out:
  return status;
}

void treadle_carry_release(treadle_carry *c) {
  treadle_free(c->run.written);
  treadle_free(c->run.staged);
  treadle_free(c->net.copies);
  treadle_carry_block_rows_release(c);
  treadle_turns_release(c);
  treadle_staging_release(c);
  for (int side = 0; side < 2; side++) treadle_free(c->views[side]);
  treadle_free(c->others);
}
