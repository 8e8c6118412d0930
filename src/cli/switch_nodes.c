/* What a switch moved between nodes: sums over ranks, beside the lower bound of each node. */
#include "cli/switch_report.h"

#include "base/alloc.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/json_out.h"
#include "treadle_tools.h"

static treadle_status add_bounds(const treadle_layout *train, const treadle_layout *infer,
                                 const int32_t *node_of, size_t page_bytes, treadle_switch_node *nodes,
                                 int count) {
  treadle_status status = TREADLE_OK;
  treadle_report *report = NULL;
  const treadle_report_options options = {
      .struct_size = sizeof options, .page_bytes = page_bytes, .node_of = node_of};
  TRY(treadle_report_create(train, infer, &options, &report));
  for (int node = 0; node < count; node++) {
    treadle_node_info info = TREADLE_INIT(treadle_node_info);
    TRY(treadle_report_node(report, node, &info));
    nodes[node].lower_bound_bytes = info.lower_bound_bytes;
  }
out:
  treadle_report_destroy(report);
  return status;
}

treadle_status treadle_switch_nodes_make(const treadle_layout *train, const treadle_layout *infer,
                                         const treadle_rank_figures *figures, int ranks, size_t page_bytes,
                                         treadle_switch_node **nodes_p, int *count_p) {
  treadle_status status = TREADLE_OK;
  int count = 0;
  int32_t *node_of = treadle_alloc_array((size_t)ranks, sizeof *node_of);
  treadle_switch_node *nodes = treadle_alloc_array((size_t)ranks, sizeof *nodes);
  *nodes_p = nodes;
  *count_p = 0;
  if (!node_of || !nodes) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for figures of nodes"));
  for (int rank = 0; rank < ranks; rank++) {
    treadle_switch_node *node = &nodes[node_of[rank] = figures[rank].node];
    if (figures[rank].node >= count) count = figures[rank].node + 1;
    node->ranks++;
    node->moved_bytes += figures[rank].node_moved_bytes;
    node->sent_bytes += figures[rank].node_sent_bytes;
  }
  if (count > 1) TRY(add_bounds(train, infer, node_of, page_bytes, nodes, count));
  *count_p = count;
out:
  treadle_free(node_of);
  return status;
}

/* ---- Sums ---- */

typedef struct sums {
  size_t moved, bound, inbound, outbound, relayed, staging, dense, delta, into_windows;
  double load;
  const treadle_rank_figures *slowest; /* the rank that waited longest for messages */
} sums;

static sums add_up(const treadle_switch_report *report) {
  sums s = {0};
  size_t most = 0, all = 0;
  for (int node = 0; node < report->nodes; node++) {
    const treadle_switch_node *one = &report->by_node[node];
    size_t larger = one->moved_bytes > one->sent_bytes ? one->moved_bytes : one->sent_bytes;
    s.moved += one->moved_bytes;
    s.bound += one->lower_bound_bytes;
    if (one->moved_bytes > s.inbound) s.inbound = one->moved_bytes;
    if (one->sent_bytes > s.outbound) s.outbound = one->sent_bytes;
    if (larger > most) most = larger;
    all += larger;
  }
  s.load = all ? (double)most * report->nodes / (double)all : 1;
  for (int rank = 0; rank < report->ranks; rank++) {
    const treadle_rank_figures *one = &report->figures[rank];
    s.relayed += one->relayed_bytes;
    s.dense += one->dense_bytes;
    s.delta += one->delta_bytes;
    if (one->net_staging_bytes > s.staging) s.staging = one->net_staging_bytes;
    s.into_windows += one->net_window_bytes;
    if (!s.slowest || one->net_seconds > s.slowest->net_seconds) s.slowest = one;
  }
  return s;
}

void treadle_switch_nodes_text(const treadle_switch_report *report) {
  if (!report->net) return;
  const sums s = add_up(report);
  printf("\n%5s %6s %11s %11s %6s %11s\n", "node", "ranks", "moved", "lower bound", "ratio", "sent");
  for (int node = 0; node < report->nodes; node++) {
    const treadle_switch_node *one = &report->by_node[node];
    printf("%5d %6d %11s %11s %6.3f %11s\n", node, one->ranks, treadle_text_of_size(one->moved_bytes),
           treadle_text_of_size(one->lower_bound_bytes),
           treadle_ratio(one->moved_bytes, one->lower_bound_bytes), treadle_text_of_size(one->sent_bytes));
  }
  printf("between nodes, to infer: %s by %s, ratio %.3f; read from ranks of the same node instead: %s\n"
         "messages: %.6f s on the rank that waited longest for them (packing %.6f, wire %.6f, unpacking "
         "%.6f), "
         "%s of host memory; right into windows: %s\n",
         treadle_text_of_size(s.moved), report->net, treadle_ratio(s.moved, s.bound),
         treadle_text_of_size(s.relayed), s.slowest->net_seconds, s.slowest->net_pack_seconds,
         s.slowest->net_wire_seconds, s.slowest->net_unpack_seconds, treadle_text_of_size(s.staging),
         treadle_text_of_size(s.into_windows));
  if (s.dense)
    printf("the last update sent %s; without --delta on it would have been %s\n",
           treadle_text_of_size(s.delta), treadle_text_of_size(s.dense));
}

void treadle_switch_nodes_json(const treadle_switch_report *report, treadle_json_out *out) {
  const sums s = add_up(report);
  treadle_json_out_int(out, "nodes", report->nodes);
  treadle_json_out_int(out, "node_moved_bytes", (int64_t)s.moved);
  treadle_json_out_int(out, "node_lower_bound_bytes", (int64_t)s.bound);
  treadle_json_out_real(out, "node_ratio", treadle_ratio(s.moved, s.bound));
  treadle_json_out_int(out, "node_inbound_max_bytes", (int64_t)s.inbound);
  treadle_json_out_int(out, "node_outbound_max_bytes", (int64_t)s.outbound);
  treadle_json_out_real(out, "node_link_load_max_over_mean", s.load);
  treadle_json_out_int(out, "relayed_bytes", (int64_t)s.relayed);
  treadle_json_out_int(out, "staging_bytes", (int64_t)s.staging);
  treadle_json_out_open(out, "by_node", '[');
  for (int node = 0; node < report->nodes; node++) {
    const treadle_switch_node *one = &report->by_node[node];
    treadle_json_out_open(out, NULL, '{');
    treadle_json_out_int(out, "node", node);
    treadle_json_out_int(out, "ranks", one->ranks);
    treadle_json_out_int(out, "moved_bytes", (int64_t)one->moved_bytes);
    treadle_json_out_int(out, "lower_bound_bytes", (int64_t)one->lower_bound_bytes);
    treadle_json_out_int(out, "sent_bytes", (int64_t)one->sent_bytes);
    treadle_json_out_close(out, '}');
  }
  treadle_json_out_close(out, ']');
  treadle_json_out_text(out, "net", report->net);
  treadle_json_out_real(out, "net_seconds", s.slowest->net_seconds);
  treadle_json_out_real(out, "net_pack_seconds", s.slowest->net_pack_seconds);
  treadle_json_out_real(out, "net_wire_seconds", s.slowest->net_wire_seconds);
  treadle_json_out_real(out, "net_unpack_seconds", s.slowest->net_unpack_seconds);
  treadle_json_out_int(out, "net_window_bytes", (int64_t)s.into_windows);
  treadle_json_out_int(out, "dense_bytes", (int64_t)s.dense);
  treadle_json_out_int(out, "delta_bytes", (int64_t)s.delta);
  treadle_json_out_int(out, "staging_peak_bytes", (int64_t)s.staging);
}
