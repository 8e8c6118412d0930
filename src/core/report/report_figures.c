/* The figures of a report: sums over ranks, of one rank, of a pair of ranks. */
#include "base/sized.h"
#include "report/report.h"

#include <math.h>
#include <string.h>

const treadle_plan_info *treadle_report_figures(const treadle_report *report, int64_t rank) {
  return &report->infos[report->rank < 0 ? report->equal_ranks.of[rank] : 0];
}

size_t treadle_report_moved(const treadle_report *report, int64_t rank) {
  return report->blocks_in_part ? (size_t)report->rank_nets[rank].pulled_bytes
                                : treadle_report_figures(report, rank)->moved_bytes;
}

void treadle_report_add_up(treadle_report *report) {
  treadle_report_info *sum = &report->info;
  int64_t first = report->rank < 0 ? 0 : report->rank, end = report->rank < 0 ? sum->ranks : first + 1;
  size_t most = 0;
  int64_t least_room = INT64_MAX;
  for (int64_t rank = first; rank < end; rank++) {
    const treadle_plan_info *info = treadle_report_figures(report, rank);
    size_t moved = treadle_report_moved(report, rank);
    sum->moved_bytes += moved;
    sum->lower_bound_bytes += info->lower_bound_bytes;
    sum->resident_bytes += info->resident_bytes;
    sum->infer_bytes += info->infer_bytes;
    sum->copied_bytes += info->copied_bytes;
    sum->aliased_bytes += info->aliased_bytes;
    if (info->peak_bytes > sum->peak_bytes) sum->peak_bytes = info->peak_bytes;
    if (moved > most) most = moved;
    int64_t room = (int64_t)info->peak_bound_bytes - (int64_t)info->peak_bytes;
    if (room < least_room) {
      least_room = room;
      sum->tight_rank = rank;
      sum->bound_bytes = info->peak_bound_bytes;
    }
  }
  double model = (double)sum->model_bytes;
  sum->inbound_max = (double)most / model;
  sum->inbound_mean =
      report->rank < 0 ? (double)sum->moved_bytes / (double)sum->ranks / model : (double)NAN;
  sum->sets = report->equal_ranks.count;
  sum->has_inbound = report->pairs != NULL;
}

/* ---- What users ask ---------------------------------------------------------------------------- */

void treadle_report_get_info(const treadle_report *report, treadle_report_info *info_p) {
  static const treadle_report_info nothing = {0};
  TREADLE_NEED_SIZED_ONLY(info_p);
  TREADLE_GIVE(info_p, &nothing);
  TREADLE_NEED_ONLY(report);
  TREADLE_GIVE(info_p, &report->info);
}

static treadle_status check_rank(const treadle_report *report, int64_t rank) {
  if (report->rank >= 0 && rank != report->rank)
    return treadle_fail(TREADLE_REFUSED, "rank %lld: this report is of rank %lld alone", (long long)rank,
                        (long long)report->rank);
  if (rank >= 0 && rank < report->info.ranks) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED, "rank %lld of %lld: ranks are numbered from 0", (long long)rank,
                      (long long)report->info.ranks);
}

treadle_status treadle_report_rank(const treadle_report *report, int64_t rank, treadle_plan_info *info_p) {
  treadle_status status;
  TREADLE_NEED(report);
  TREADLE_NEED_SIZED(info_p);
  TRY(check_rank(report, rank));
  treadle_plan_info info = *treadle_report_figures(report, rank);
  if (report->rank_nets) {
    info.node_moved_bytes = (size_t)report->rank_nets[rank].moved_bytes;
    info.relayed_bytes = (size_t)report->rank_nets[rank].relayed_bytes;
    if (report->blocks_in_part) info.back_moved_bytes = (size_t)report->rank_nets[rank].back_pulled_bytes;
    info.moved_bytes = treadle_report_moved(report, rank);
  }
  TREADLE_GIVE(info_p, &info);
out:
  return status;
}

treadle_status treadle_report_inbound(const treadle_report *report, int64_t rank, size_t *bytes) {
  treadle_status status;
  TREADLE_NEED(report);
  TREADLE_NEED(bytes);
  TRY(check_rank(report, rank));
  if (!report->pairs)
    return treadle_fail(TREADLE_REFUSED, "bytes by pair are kept in reports over all ranks, %d at most",
                        TREADLE_KEPT_RANKS);
  memcpy(bytes, report->pairs + rank * report->info.ranks, (size_t)report->info.ranks * sizeof *bytes);
out:
  return status;
}
