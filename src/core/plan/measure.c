/* Numbers of plans: how many waves, the smallest cap, bytes and peaks, with or without the ops. */
#include "base/dtype.h"
#include "base/larger.h"
#include "base/sized.h"
#include "plan/alias.h"
#include "plan/sinks.h"
#include "plan/tally.h"
#include "plan/tracks.h"

#include <string.h>

int32_t treadle_plan_waves(const treadle_layout *from, const treadle_layout *to, int64_t page_bytes,
                           int64_t cap_bytes) {
  int64_t bytes = treadle_larger(treadle_layout_window_max(from), treadle_layout_window_max(to));
  bytes = (bytes + page_bytes - 1) / page_bytes * page_bytes;
  int64_t waves = cap_bytes > 0 ? (8 * bytes + cap_bytes - 1) / cap_bytes : TREADLE_MAX_WAVES;
  if (waves < 1) return 1;
  return waves > TREADLE_MAX_WAVES ? TREADLE_MAX_WAVES : (int32_t)waves;
}

void treadle_plan_get_info(const treadle_plan *plan, treadle_plan_info *info_p) {
  static const treadle_plan_info nothing = {0};
  TREADLE_NEED_SIZED_ONLY(info_p);
  TREADLE_GIVE(info_p, &nothing);
  TREADLE_NEED_ONLY(plan);
  int64_t aliased = plan->arrangement.pages * plan->page_bytes;
  const treadle_plan_info info = {
      .from_bytes = (size_t)(plan->from_pages * plan->page_bytes),
      .to_bytes = (size_t)(plan->plain_to_pages * plan->page_bytes),
      .padding_bytes = (size_t)plan->arrangement.padding_bytes,
      .moved_bytes = (size_t)plan->forward.moved_bytes,
      .lower_bound_bytes = (size_t)plan->forward.lower_bound_bytes,
      .resident_bytes = (size_t)plan->forward.resident_bytes,
      .back_moved_bytes = (size_t)plan->back.moved_bytes,
      .back_lower_bound_bytes = (size_t)plan->back.lower_bound_bytes,
      .waves = plan->waves,
      .page_bytes = (size_t)plan->page_bytes,
      .cap_bytes = (size_t)plan->cap_bytes,
      .cap_min_bytes = (size_t)plan->cap_min_bytes,
      .peak_bytes = (size_t)(plan->physical_pages * plan->page_bytes),
      .peak_bound_bytes = (size_t)treadle_plan_bound(plan),
      .infer_bytes = (size_t)plan->forward.written_bytes,
      .copied_bytes = (size_t)(plan->forward.written_bytes - plan->forward.fill_bytes - aliased),
      .aliased_bytes = (size_t)aliased,
      .digest = plan->digest,
      .lossless = plan->lossless,
      .node_moved_bytes = (size_t)plan->forward.node_moved_bytes,
      .back_node_moved_bytes = (size_t)plan->back.node_moved_bytes,
      .relayed_bytes = (size_t)plan->forward.relayed_bytes,
  };
  TREADLE_GIVE(info_p, &info);
}

void treadle_plan_inbound(const treadle_plan *plan, size_t *bytes) {
  TREADLE_NEED_ONLY(plan);
  TREADLE_NEED_ONLY(bytes);
  memset(bytes, 0, (size_t)plan->from->ranks * sizeof *bytes);
  for (size_t i = 0; i < plan->forward.ops.count; i++) {
    const treadle_op *op = &plan->forward.ops.items[i];
    if (op->source < 0 || op->source == plan->rank) continue;
    bytes[op->source] += (size_t)treadle_op_moved(op);
  }
  for (size_t i = 0; i < plan->forward.block_rows.count; i++) {
    const treadle_block_row *block_row = &plan->forward.block_rows.items[i];
    for (int64_t k = block_row->part_first; k < block_row->part_first + block_row->parts; k++) {
      const treadle_block_row_part *part = &plan->forward.block_row_parts.items[k];
      if (part->op.source != plan->rank) bytes[part->op.source] += (size_t)(block_row->count * part->moved);
    }
  }
}

/* Both directions, for pages and bytes. */
static treadle_status walk_all(treadle_plan *plan, const treadle_lanes *lanes,
                               treadle_window_lives *lives) {
  treadle_status status = TREADLE_OK;
  treadle_op_sink forward = treadle_op_sink_make(plan, lives->to, false, &plan->forward);
  treadle_op_sink back = treadle_op_sink_make(plan, lives->from, true, &plan->back);
  TRY(treadle_direction_walk(lanes, plan->from, plan->to, plan->rank, &forward.sink));
  TRY(treadle_layout_inbound(plan->from, plan->to, plan->rank, plan->cuts_of_all,
                             &plan->forward.lower_bound_bytes));
  if (plan->keep_params) goto out;
  TRY(treadle_direction_walk(lanes, plan->to, plan->from, plan->rank, &back.sink));
  TRY(treadle_layout_inbound(plan->to, plan->from, plan->rank, plan->cuts_of_all,
                             &plan->back.lower_bound_bytes));
out:
  treadle_op_sink_release(&forward);
  treadle_op_sink_release(&back);
  return status;
}

/* Both directions, for pages alone. What is known of plain windows is not looked for. */
static treadle_status walk_pages(treadle_plan *plan, const treadle_lanes *lanes,
                                 const treadle_window_tracks *tracks, treadle_window_lives *lives) {
  treadle_status status = TREADLE_OK;
  treadle_page_sink forward = treadle_page_sink_make(lives->to, plan->page_bytes, &plan->arrangement);
  treadle_page_sink back = treadle_page_sink_make(lives->from, plan->page_bytes, NULL);
  const treadle_track_target target = {lives->to, &plan->arrangement};
  forward.sink.cuts.all = back.sink.cuts.all = plan->cuts_of_all;
  if (tracks && !plan->arrangement.shift)
    memcpy(lives->to, tracks->to, (size_t)lives->to_count * sizeof *tracks->to);
  else if (tracks)
    TRY(treadle_tracks_play_to(tracks, plan->rank, plan->cuts_of_all, plan->waves, &target, 1));
  else
    TRY(treadle_direction_walk(lanes, plan->from, plan->to, plan->rank, &forward.sink));
  if (tracks)
    memcpy(lives->from, tracks->from, (size_t)lives->from_count * sizeof *tracks->from);
  else if (!plan->keep_params)
    TRY(treadle_direction_walk(lanes, plan->to, plan->from, plan->rank, &back.sink));
out:
  return status;
}

static void take_bytes(const treadle_plan_info *like, treadle_plan_info *info) {
  info->moved_bytes = like->moved_bytes;
  info->lower_bound_bytes = like->lower_bound_bytes;
  info->resident_bytes = like->resident_bytes;
  info->back_moved_bytes = like->back_moved_bytes;
  info->back_lower_bound_bytes = like->back_lower_bound_bytes;
  info->infer_bytes = like->infer_bytes;
  info->copied_bytes = like->copied_bytes + like->aliased_bytes - info->aliased_bytes;
}

treadle_status treadle_plan_measure_on(const treadle_plan_base *plan_base, int32_t waves, int64_t cap_bytes,
                                       const treadle_window_tracks *tracks, const treadle_plan_info *like,
                                       treadle_plan_info *info_p) {
  treadle_status status = TREADLE_OK;
  treadle_lanes made = {0};
  treadle_window_lives lives = {0};
  const treadle_arrangement *arrangement = treadle_plan_base_choose(plan_base, cap_bytes);
  treadle_plan plan = {.from = plan_base->from,
                       .to = plan_base->to,
                       .rank = plan_base->rank,
                       .nodes = plan_base->options.nodes,
                       .alias = plan_base->options.alias,
                       .keep_params = plan_base->options.keep_params,
                       .cuts_of_all = plan_base->options.cuts_of_all,
                       .waves = waves,
                       .page_bytes = plan_base->options.page_bytes,
                       .cap_min_bytes = plan_base->cap_min_bytes,
                       .cap_bytes = cap_bytes,
                       .from_pages = arrangement->from_pages,
                       .to_pages = arrangement->to_pages,
                       .plain_to_pages = plan_base->arrangements[0].to_pages,
                       .arrangement = *arrangement,
                       .lossless = treadle_plan_is_lossless(plan_base->from, plan_base->to)};
  if (!tracks) TRY(treadle_lanes_create(plan.from, plan.to, plan.page_bytes, &made));
  treadle_lanes lanes = tracks ? *tracks->lanes : made;
  lanes.waves = waves;
  TRY(treadle_window_lives_create(plan.from_pages, plan.to_pages, &lives));
  lives.arrangement = &plan.arrangement;
  lives.kept = plan.keep_params;
  if (tracks && !like && !plan.keep_params) TRY(treadle_tally(&plan, &lanes, tracks));
  if (like || (tracks && !plan.keep_params))
    TRY(walk_pages(&plan, &lanes, tracks, &lives));
  else
    TRY(walk_all(&plan, &lanes, &lives));
  treadle_window_lives_settle(&lives);
  TRY(treadle_window_lives_share(&lives, waves, NULL, NULL, NULL, NULL, &plan.physical_pages));
  *info_p = TREADLE_INIT(treadle_plan_info);
  treadle_plan_get_info(&plan, info_p);
  if (like) take_bytes(like, info_p);
out:
  treadle_window_lives_release(&lives);
  treadle_lanes_release(&made);
  return status;
}

typedef struct pull_sink { /* adds up bytes by source */
  treadle_sink sink;
  int64_t rank;
  size_t *inbound;
} pull_sink;

static treadle_status take_pull(treadle_sink *sink, const treadle_op *op) {
  pull_sink *s = (pull_sink *)sink;
  if (op->source >= 0 && op->source != s->rank) s->inbound[op->source] += (size_t)treadle_op_moved(op);
  return TREADLE_OK;
}

static treadle_status take_pulled_block_row(treadle_sink *sink, const treadle_block_row *block_row,
                                            const treadle_block_row_part *parts) {
  pull_sink *s = (pull_sink *)sink;
  for (int64_t i = 0; i < block_row->parts; i++)
    if (parts[i].op.source != s->rank)
      s->inbound[parts[i].op.source] += (size_t)(block_row->count * parts[i].moved);
  return TREADLE_OK;
}

/* Sources do not depend on waves, and one wave is the cheapest. */
treadle_status treadle_plan_add_inbound(const treadle_lanes *lanes, const treadle_nodes *nodes,
                                        int64_t rank, treadle_cuts_of_all *all, size_t *inbound) {
  treadle_lanes one = *lanes;
  pull_sink sink = {
      {.take = take_pull, .take_block_row = take_pulled_block_row, .cuts.all = all, .nodes = nodes},
      rank,
      inbound};
  one.waves = 1;
  return treadle_direction_walk(&one, one.from, one.to, rank, &sink.sink);
}
