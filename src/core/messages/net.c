/* Bytes between nodes. */
#include "messages/net.h"

#include "base/dtype.h"
#include "layout/blocks.h"
#include "messages/far_inputs.h"

#include <stdatomic.h>

static const int64_t full_side =
    (int64_t)TREADLE_NET_FLIGHT * TREADLE_NET_MESSAGE; /* of staging, each way */

int64_t treadle_net_staging(int64_t received, int64_t sent) {
  return (received < full_side ? received : full_side) + (sent < full_side ? sent : full_side);
}

static bool is_far(const treadle_nodes *nodes, int64_t rank, int32_t source) {
  return source >= 0 && nodes->of[source] != nodes->of[rank];
}

int64_t treadle_net_op_bytes(const treadle_nodes *nodes, int64_t rank, const treadle_op *op) {
  return is_far(nodes, rank, op->source) ? treadle_op_moved(op) : 0;
}

int64_t treadle_net_part_bytes(const treadle_nodes *nodes, int64_t rank, const treadle_block_row *block_row,
                               const treadle_block_row_part *part) {
  return is_far(nodes, rank, part->op.source) ? block_row->count * part->moved : 0;
}

int64_t treadle_net_received(const treadle_direction *direction, const treadle_nodes *nodes, int64_t rank,
                             int32_t waves) {
  int64_t most = 0;
  for (int32_t wave = 0; wave < waves && nodes; wave++) {
    int64_t bytes = 0;
    for (int32_t i = direction->wave_first[wave]; i < direction->wave_first[wave + 1]; i++)
      bytes += treadle_net_op_bytes(nodes, rank, &direction->ops.items[i]);
    for (int32_t i = direction->block_row_first[wave]; i < direction->block_row_first[wave + 1]; i++) {
      const treadle_block_row *block_row = &direction->block_rows.items[i];
      for (int64_t k = 0; k < block_row->parts; k++)
        bytes += treadle_net_part_bytes(nodes, rank, block_row,
                                        &direction->block_row_parts.items[block_row->part_first + k]);
    }
    if (bytes > most) most = bytes;
  }
  return most;
}

/* ---- Of all ranks ---- */

treadle_status treadle_net_load_create(const treadle_lanes *lanes, bool back, const treadle_nodes *nodes,
                                       treadle_net_load *load) {
  size_t ranks = (size_t)nodes->ranks;
  *load = (treadle_net_load){.lanes = lanes,
                             .from = back ? lanes->to : lanes->from,
                             .to = back ? lanes->from : lanes->to,
                             .nodes = nodes,
                             .keeps_waves = treadle_has_block_rows(lanes->from, lanes->to)};
  load->moved = treadle_alloc_array(ranks, sizeof *load->moved);
  load->relayed = treadle_alloc_array(ranks, sizeof *load->relayed);
  load->sent = treadle_alloc_array((size_t)nodes->count, sizeof *load->sent);
  load->in_waves = treadle_alloc_array(ranks * (size_t)lanes->waves, sizeof *load->in_waves);
  load->received = treadle_alloc_array(ranks, sizeof *load->received);
  load->sides = treadle_alloc_array(ranks, sizeof *load->sides);
  load->pulled = treadle_alloc_array(ranks, sizeof *load->pulled);
  load->area = treadle_alloc_array(ranks, sizeof *load->area);
  if (load->moved && load->relayed && load->sent && load->in_waves && load->received && load->sides &&
      load->pulled && load->area)
    return TREADLE_OK;
  treadle_net_load_release(load);
  return treadle_fail(TREADLE_NO_MEMORY, "no memory for bytes between nodes");
}

void treadle_net_load_release(treadle_net_load *load) {
  treadle_free(load->moved);
  treadle_free(load->relayed);
  treadle_free(load->sent);
  treadle_free(load->in_waves);
  treadle_free(load->received);
  treadle_free(load->sides);
  treadle_free(load->pulled);
  treadle_free(load->area);
  *load = (treadle_net_load){0};
}

typedef struct load_sink { /* of one rank */
  treadle_sink sink;
  treadle_net_load *load;
  int64_t rank;
  int64_t *by_wave,
      *inputs; /* [waves] bytes received, and those of inputs; NULL: waves are not counted any more */
} load_sink;

enum { RECEIVED = 1, SENT = 2 };

static void note_full(treadle_net_load *load, int64_t rank, uint8_t side) {
  if ((atomic_fetch_or(&load->sides[rank], side) | side) == (RECEIVED | SENT))
    atomic_store(&load->full, true);
}

static void add_to_wave(load_sink *s, int32_t source, int32_t wave, int64_t bytes) {
  _Atomic uint32_t *sent = &s->load->in_waves[(int64_t)source * s->load->lanes->waves + wave];
  s->by_wave[wave] += bytes;
  if (atomic_load_explicit(sent, memory_order_relaxed) >= full_side) return;
  uint32_t more = (uint32_t)(bytes < full_side ? bytes : full_side);
  if (atomic_fetch_add_explicit(sent, more, memory_order_relaxed) + more >= full_side)
    note_full(s->load, source, SENT);
}

static void add(load_sink *s, int32_t source, int32_t wave, int64_t bytes) {
  if (bytes == 0) return;
  s->load->moved[s->rank] += bytes;
  atomic_fetch_add_explicit(&s->load->sent[s->load->nodes->of[source]], bytes, memory_order_relaxed);
  if (s->by_wave) add_to_wave(s, source, wave, bytes);
}

static treadle_status take_op(treadle_sink *sink, const treadle_op *op) {
  load_sink *s = (load_sink *)sink;
  if (op->source >= 0 && op->source != s->rank) s->load->pulled[s->rank] += treadle_op_moved(op);
  if (op->twin && op->source != s->rank) s->load->relayed[s->rank] += treadle_op_moved(op);
  add(s, op->source, op->wave, treadle_net_op_bytes(s->load->nodes, s->rank, op));
  return TREADLE_OK;
}

static treadle_status take_block_row(treadle_sink *sink, const treadle_block_row *block_row,
                                     const treadle_block_row_part *parts) {
  load_sink *s = (load_sink *)sink;
  const treadle_far_input_sources sources = {s->load->nodes, s->rank};
  s->inputs[block_row->wave] += block_row->count * treadle_far_inputs_each(&sources, block_row, parts);
  s->load->pulled[s->rank] += treadle_block_row_moved(block_row, parts);
  for (int64_t i = 0; i < block_row->parts; i++)
    add(s, parts[i].op.source, block_row->wave,
        treadle_net_part_bytes(s->load->nodes, s->rank, block_row, &parts[i]));
  return TREADLE_OK;
}

treadle_status treadle_net_load_add(treadle_net_load *load, int64_t rank) {
  treadle_status status = TREADLE_OK;
  treadle_lanes lanes = *load->lanes;
  load_sink s = {.sink = {.take = take_op,
                          .take_block_row = take_block_row,
                          .cuts.all = load->cuts,
                          .nodes = load->nodes},
                 .load = load,
                 .rank = rank};
  if (atomic_load(&load->full) && !load->keeps_waves) {
    lanes.waves = 1;
  } else {
    s.by_wave = treadle_alloc_array((size_t)lanes.waves, sizeof *s.by_wave);
    s.inputs = treadle_alloc_array((size_t)lanes.waves, sizeof *s.inputs);
    if (!s.by_wave || !s.inputs) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for bytes between nodes"));
  }
  TRY(treadle_direction_walk(&lanes, load->from, load->to, rank, &s.sink));
  for (int32_t wave = 0; s.by_wave && wave < lanes.waves; wave++) {
    if (s.by_wave[wave] > load->received[rank]) load->received[rank] = s.by_wave[wave];
    if (s.inputs[wave] > load->area[rank]) load->area[rank] = s.inputs[wave];
  }
  if (load->received[rank] >= full_side) note_full(load, rank, RECEIVED);
out:
  treadle_free(s.by_wave);
  treadle_free(s.inputs);
  return status;
}

int64_t treadle_net_load_staging(const treadle_net_load *load) {
  int64_t staging = 0;
  if (load->full && !load->keeps_waves) return treadle_net_staging(full_side, full_side);
  for (int64_t rank = 0; rank < load->nodes->ranks; rank++) {
    int64_t sent = 0;
    for (int32_t wave = 0; wave < load->lanes->waves; wave++) {
      int64_t bytes = load->in_waves[rank * load->lanes->waves + wave];
      if (bytes > sent) sent = bytes;
    }
    int64_t of_rank = treadle_net_staging(load->received[rank], sent) + load->area[rank];
    if (of_rank > staging) staging = of_rank;
  }
  return staging;
}
