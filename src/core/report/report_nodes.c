/* The figures of a report between nodes. Who sends what follows from each rank's number and node, so every rank is walked, in both
 * directions: bytes are those of the first one, staging is what both need. Where the first one fills it, the second one says nothing more.
 * Lower bounds are those of one node of all that have the same pieces. */
#include "base/alloc.h"
#include "base/hash_index.h"
#include "base/parallel.h"
#include "base/sized.h"
#include "layout/blocks.h"
#include "layout/inbound_nodes.h"
#include "messages/far_inputs.h"
#include "messages/net.h"
#include "report/report.h"
#include "messages/sends.h"

#include <math.h>

typedef struct turn {
  treadle_report *report;
  treadle_net_load *load;
  const int32_t *nodes; /* [count] whose bounds are wanted; NULL: all */
  const char *doing;
  int32_t count;
} turn;

static treadle_status tell(void *of, int32_t begun) {
  const turn *t = of;
  return treadle_tell(&t->report->watch, t->doing, begun, t->count);
}

static treadle_status walk_rank(void *of, int32_t rank) {
  const turn *t = of;
  return treadle_net_load_add(t->load, rank);
}

static treadle_status bound_node(void *of, int32_t number) {
  const turn *t = of;
  treadle_report *report = t->report;
  int32_t node = t->nodes ? t->nodes[number] : number;
  int64_t bytes;
  treadle_status status =
      treadle_layout_inbound_node(report->from, report->to, &report->nodes, node, &bytes);
  if (status == TREADLE_OK) report->by_node[node].lower_bound_bytes = (size_t)bytes;
  return status;
}

static void note_staging(treadle_report *report, int64_t bytes) {
  if ((size_t)bytes > report->info.staging_bytes) report->info.staging_bytes = (size_t)bytes;
}

/* The lower bounds of all nodes. */
static treadle_status bound_nodes(treadle_report *report) {
  treadle_status status = TREADLE_OK;
  const treadle_nodes *nodes = &report->nodes;
  treadle_hash_index set_of = {0};
  int32_t *set = treadle_alloc_array((size_t)nodes->count, sizeof *set),
          *first = treadle_alloc_array((size_t)nodes->count, sizeof *first); /* node of each set */
  turn t = {.report = report, .nodes = first, .doing = "lower bound of equal nodes"};
  if (!set || !first) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for a report"));
  for (int32_t node = 0; node < nodes->count; node++) {
    uint64_t place;
    TRY(treadle_node_place(report->from, report->to, nodes, node, &place));
    TRY(treadle_hash_index_put(&set_of, place, t.count, &set[node]));
    if (set[node] == t.count) first[t.count++] = node;
  }
  TRY(treadle_parallel(t.count, bound_node, &t, tell));
  for (int32_t node = 0; node < nodes->count; node++)
    report->by_node[node].lower_bound_bytes = report->by_node[first[set[node]]].lower_bound_bytes;
out:
  treadle_hash_index_release(&set_of);
  treadle_free(set);
  treadle_free(first);
  return status;
}

/* One direction of all ranks. */
static treadle_status walk_all(treadle_report *report, treadle_lanes *lanes, bool back, bool *full_p) {
  treadle_status status = TREADLE_OK;
  treadle_net_load load = {0};
  turn t = {.report = report,
            .load = &load,
            .doing = back ? "bytes between nodes, back: rank" : "bytes between nodes: rank",
            .count = (int32_t)report->info.ranks};
  treadle_cuts_of_all cuts = 0; /* a report's limit for each direction: no rank is like another one here */
  TRY(treadle_net_load_create(lanes, back, &report->nodes, &load));
  load.cuts = &cuts;
  TRY(treadle_parallel(t.count, walk_rank, &t, tell));
  note_staging(report, treadle_net_load_staging(&load));
  *full_p = load.full && !load.keeps_waves;
  for (int64_t rank = 0; rank < report->info.ranks; rank++) {
    treadle_rank_net *of = &report->rank_nets[rank];
    *(back ? &of->back_pulled_bytes : &of->pulled_bytes) = load.pulled[rank];
    if (back) continue;
    of->moved_bytes = load.moved[rank];
    of->relayed_bytes = load.relayed[rank];
    report->by_node[report->nodes.of[rank]].moved_bytes += (size_t)load.moved[rank];
  }
  for (int32_t node = 0; node < report->nodes.count && !back; node++)
    report->by_node[node].sent_bytes = (size_t)load.sent[node];
out:
  treadle_net_load_release(&load);
  return status;
}

static void add_up(treadle_report *report) {
  treadle_report_info *info = &report->info;
  double most = 0, sum = 0;
  for (int32_t i = 0; i < report->nodes.count; i++) {
    const treadle_node_info *node = &report->by_node[i];
    size_t load = node->moved_bytes > node->sent_bytes ? node->moved_bytes : node->sent_bytes;
    info->node_moved_bytes += node->moved_bytes;
    info->node_lower_bound_bytes += node->lower_bound_bytes;
    if (node->moved_bytes > info->node_inbound_max_bytes) info->node_inbound_max_bytes = node->moved_bytes;
    if (node->sent_bytes > info->node_outbound_max_bytes) info->node_outbound_max_bytes = node->sent_bytes;
    if ((double)load > most) most = (double)load;
    sum += (double)load;
  }
  info->node_link_load = sum > 0 ? most / (sum / report->nodes.count) : 1;
  for (int64_t rank = 0; rank < info->ranks; rank++)
    info->relayed_bytes += (size_t)report->rank_nets[rank].relayed_bytes;
}

const treadle_nodes *treadle_report_nodes(const treadle_report *report) {
  return report->nodes.count > 1 ? &report->nodes : NULL;
}

treadle_status treadle_report_start_nodes(treadle_report *report, const int32_t *node_of) {
  treadle_status status = TREADLE_OK;
  report->info.nodes = 1;
  report->info.node_link_load = report->rank < 0 ? 1 : (double)NAN;
  if (!node_of) return TREADLE_OK;
  TRY(treadle_nodes_make(node_of, report->info.ranks, &report->nodes));
  report->info.nodes = report->nodes.count;
  report->blocks_in_part =
      report->rank < 0 && report->nodes.count > 1 && treadle_has_block_rows(report->from, report->to);
  report->by_node = treadle_alloc_array((size_t)report->nodes.count, sizeof *report->by_node);
  report->rank_nets = treadle_alloc_array((size_t)report->info.ranks, sizeof *report->rank_nets);
  if (!report->by_node || !report->rank_nets)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for a report"));
  for (int32_t i = 0; i < report->nodes.count; i++) {
    report->by_node[i] = TREADLE_INIT(treadle_node_info);
    report->by_node[i].ranks = treadle_nodes_size(&report->nodes, i);
  }
out:
  return status;
}

treadle_status treadle_report_add_nodes(treadle_report *report) {
  treadle_status status = TREADLE_OK;
  treadle_lanes lanes = report->lanes;
  bool full = false;
  if (report->nodes.count < 2) return TREADLE_OK;
  lanes.waves = report->info.waves;
  TRY(bound_nodes(report));
  for (int back = 0; back < 2 && !full; back++) TRY(walk_all(report, &lanes, back, &full));
  add_up(report);
out:
  return status;
}

/* What one rank sends in a direction: in all, and in its fullest wave. */
static treadle_status add_sends(const treadle_plan *plan, bool back, int64_t *sum_p, int64_t *fullest_p) {
  treadle_status status = TREADLE_OK;
  treadle_sends sends = {0};
  *sum_p = *fullest_p = 0;
  TRY(treadle_sends_make(plan, back, &sends));
  for (int32_t wave = 0; wave < plan->waves; wave++) {
    int64_t bytes = 0;
    for (int32_t i = sends.wave_first[wave]; i < sends.wave_first[wave + 1]; i++)
      bytes += treadle_op_moved(&sends.list.items[i].op);
    *sum_p += bytes;
    if (bytes > *fullest_p) *fullest_p = bytes;
  }
out:
  treadle_sends_release(&sends);
  return status;
}

treadle_status treadle_report_add_node(treadle_report *report, const treadle_plan *plan) {
  treadle_status status = TREADLE_OK;
  if (report->nodes.count < 2) return TREADLE_OK;
  treadle_report_info *info = &report->info;
  int32_t node = report->nodes.of[report->rank];
  treadle_rank_net *of = &report->rank_nets[report->rank];
  turn t = {.report = report};
  TRY(bound_node(&t, node));
  of->moved_bytes = plan->forward.node_moved_bytes;
  of->relayed_bytes = plan->forward.relayed_bytes;
  report->by_node[node].moved_bytes = (size_t)of->moved_bytes;
  for (int back = 0; back < 2; back++) {
    int64_t sent, fullest;
    const treadle_direction *direction = back ? &plan->back : &plan->forward;
    int64_t received = treadle_net_received(direction, plan->nodes, plan->rank, plan->waves);
    const treadle_far_input_sources sources = {plan->nodes, plan->rank};
    treadle_far_inputs inputs = {0};
    TRY(treadle_far_inputs_make(direction, plan->waves, &sources, &inputs));
    const int64_t area = inputs.bytes;
    treadle_far_inputs_release(&inputs);
    TRY(add_sends(plan, back, &sent, &fullest));
    note_staging(report, treadle_net_staging(received, fullest) + area);
    if (!back) report->by_node[node].sent_bytes = info->node_outbound_max_bytes = (size_t)sent;
  }
  info->node_moved_bytes = info->node_inbound_max_bytes = (size_t)of->moved_bytes;
  info->node_lower_bound_bytes = report->by_node[node].lower_bound_bytes;
  info->relayed_bytes = (size_t)of->relayed_bytes;
out:
  return status;
}

treadle_status treadle_report_node(const treadle_report *report, int32_t node, treadle_node_info *info_p) {
  TREADLE_NEED(report);
  TREADLE_NEED_SIZED(info_p);
  if (node < 0 || node >= report->info.nodes)
    return treadle_fail(TREADLE_REFUSED, "node %d of %d: nodes are numbered from 0", node,
                        report->info.nodes);
  treadle_node_info all = TREADLE_INIT(treadle_node_info);
  all.ranks = report->info.ranks;
  TREADLE_GIVE(info_p, report->by_node ? &report->by_node[node] : &all);
  return TREADLE_OK;
}
