/* What `treadle switch` found, as a table or as JSON. */
#include "cli/switch_report.h"

#include "base/text.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "cli/json_out.h"

#include <stdlib.h>
#include <string.h>

static int compare_doubles(const void *left, const void *right) {
  double a = *(const double *)left, b = *(const double *)right;
  return a < b ? -1 : a > b;
}

double treadle_median(double *times, int64_t count) {
  if (count > 2) {
    times += 2;
    count -= 2;
  }
  qsort(times, (size_t)count, sizeof *times, compare_doubles);
  return count % 2 ? times[count / 2] : (times[count / 2 - 1] + times[count / 2]) / 2;
}

/* Sums over ranks; the largest peak, slab, time and flight; the bound of the rank with the least room. */
static treadle_rank_figures sum_figures(const treadle_switch_report *report) {
  treadle_rank_figures sum = {0};
  int64_t room = INT64_MAX;
  for (int rank = 0; rank < report->ranks; rank++) {
    const treadle_rank_figures *one = &report->figures[rank];
    sum.moved_bytes += one->moved_bytes;
    sum.lower_bound_bytes += one->lower_bound_bytes;
    sum.infer_bytes += one->infer_bytes;
    sum.copied_bytes += one->copied_bytes;
    sum.aliased_bytes += one->aliased_bytes;
    sum.staged_bytes += one->staged_bytes;
    sum.own_bytes += one->own_bytes;
    sum.served_bytes += one->served_bytes;
    sum.kernel_launches += one->kernel_launches;
    sum.table_bytes += one->table_bytes;
    if (one->slab_bytes > sum.slab_bytes) sum.slab_bytes = one->slab_bytes;
    if (one->copy_seconds > sum.copy_seconds) sum.copy_seconds = one->copy_seconds;
    if (one->waves_in_flight > sum.waves_in_flight) sum.waves_in_flight = one->waves_in_flight;
    if (one->bound_bytes == 0) continue; /* a rank that a fault took away */
    if (one->peak_bytes > sum.peak_bytes) sum.peak_bytes = one->peak_bytes;
    int64_t rank_room = (int64_t)one->bound_bytes - (int64_t)one->peak_bytes;
    if (rank_room < room) {
      room = rank_room;
      sum.bound_bytes = one->bound_bytes;
    }
  }
  sum.seconds = report->to_infer;
  sum.memcpy_seconds = report->memcpy;
  return sum;
}

static void print_row(const char *name, const treadle_rank_figures *row) {
  printf("%5s %11s %11s %6.3f %9.6f %7.2f %6.2f %11s %11s\n", name, treadle_text_of_size(row->moved_bytes),
         treadle_text_of_size(row->lower_bound_bytes),
         treadle_ratio(row->moved_bytes, row->lower_bound_bytes), row->seconds,
         row->seconds > 0 ? (double)row->copied_bytes / row->seconds / 1e9 : 0.0,
         row->seconds > 0 ? row->memcpy_seconds / row->seconds : 0.0, treadle_text_of_size(row->peak_bytes),
         treadle_text_of_size(row->bound_bytes));
}

static void print_rows(const treadle_switch_report *report) {
  if (report->row_count == 0) return;
  printf("\ndevice bytes by class after each arrow (each of the rank that has most of it):\n%9s %11s %11s "
         "%11s %11s %11s\n",
         "now in", "params", "grads", "optimizer", "infer", "kv");
  for (int i = 0; i < report->row_count; i++) {
    const treadle_residency *row = &report->rows[i];
    printf("%9s", treadle_mode_text(row->after));
    for (int c = 0; c < TREADLE_WORK; c++)
      printf(" %11s", treadle_text_of_size(row->bytes[c])); /* no engine */
    printf("\n");
  }
  if (report->host_bytes > 0)
    printf("host memory for what leaves the device: %s on the rank with most\n",
           treadle_text_of_size(report->host_bytes));
  printf("\n");
}

static void print_parts(const treadle_switch_report *report, const treadle_rank_figures *sum) {
  const treadle_switch_seconds *parts = &report->parts;
  printf("of %s of infer weights, copied: %s (%.4g), on pages that both layouts share: %s (%.4g)\n",
         treadle_text_of_size(sum->infer_bytes), treadle_text_of_size(sum->copied_bytes),
         treadle_ratio(sum->copied_bytes, sum->infer_bytes), treadle_text_of_size(sum->aliased_bytes),
         treadle_ratio(sum->aliased_bytes, sum->infer_bytes));
  if (sum->own_bytes > 0)
    printf("own tensors of all ranks: %s; staged for other ranks: %s\n",
           treadle_text_of_size(sum->own_bytes), treadle_text_of_size(sum->staged_bytes));
  printf(
      "\nseconds of a cycle, by part (largest over ranks, means):\n%9s %9s %9s %9s %9s\n%9.6f %9.6f %9.6f "
      "%9.6f %9.6f\n",
      "offload", "waves", "waiting", "bind", "load", parts->offload, parts->waves, parts->wait, parts->bind,
      parts->load);
}

static void print_fault(const treadle_fault_report *fault, int ranks) {
  printf("fault %s\n%d of %d ranks survived it, %d of them returned, the slowest after %.3f s\n"
         "their training state is %s; left behind (descriptors, mappings): %lld\n",
         treadle_text_shown(fault->injected), fault->survivors, ranks, fault->returned, fault->max_seconds,
         fault->digest_unchanged ? "unchanged" : "not what it was", (long long)fault->leaked);
}

/* What was measured; nothing of it is there after a fault. */
static void print_figures(const treadle_switch_report *report) {
  treadle_rank_figures sum = sum_figures(report);
  printf("%5s %11s %11s %6s %9s %7s %6s %11s %11s\n", "rank", "moved", "lower bound", "ratio", "seconds",
         "GB/s", "memcpy", "peak", "peak bound");
  for (int rank = 0; rank < report->ranks; rank++) {
    char name[16];
    snprintf(name, sizeof name, "%d", rank);
    print_row(name, &report->figures[rank]);
  }
  print_row("all", &sum);
  printf("\nmoved: bytes pulled from other ranks; lower bound: bytes that were not there already\n"
         "memcpy: the speed over that of one memcpy of the same bytes; peak: of the fullest rank and "
         "moment\n");
  printf("to infer in %.6f s", report->to_infer);
  if (report->cycles > 0) printf(", back to train in %.6f s", report->to_train);
  printf(", memcpy %.6f s (largest over ranks, medians)\n", report->memcpy);
  if (report->updates)
    printf("%lld update%s to the next version, each in %.6f s, without an engine for %.6f s (medians)\n",
           (long long)report->updates, report->updates == 1 ? "" : "s", report->to_next, report->unbound);
  if (report->updates && report->serves)
    printf("meanwhile %s of the old version were read and compared\n",
           treadle_text_of_size(sum.served_bytes));
  print_parts(report, &sum);
  treadle_switch_nodes_text(report);
  print_rows(report);
}

/* ", on devices cuda:0, cuda:1", one of each rank. */
static void print_devices(const treadle_switch_report *report) {
  if (strcmp(report->device, "cpu") == 0) return;
  printf(", on device%s", report->ranks == 1 ? "" : "s");
  for (int rank = 0; rank < report->ranks; rank++)
    printf("%s %s:%d", rank ? "," : "", report->device, report->figures[rank].device);
}

void treadle_switch_report_text(const treadle_switch_report *report) {
  printf("%s, %s parameters, %s, on %s", treadle_text_shown(treadle_model_family(report->model)),
         treadle_count_of(treadle_model_elems(report->model)).text,
         treadle_text_of_size((size_t)treadle_model_bytes(report->model)),
         treadle_text_of_count(report->ranks, "rank"));
  print_devices(report);
  printf("\n%s -> %s, rank map %s\n", treadle_text_shown(report->train), treadle_text_shown(report->infer),
         report->rank_map);
  printf("%lld cycle%s, %d wave%s, cap %s, pages of %s\n\n", (long long)report->cycles,
         report->cycles == 1 ? "" : "s", (int)report->waves, report->waves == 1 ? "" : "s",
         treadle_text_of_size(report->cap_bytes), treadle_text_of_size(report->page_bytes));
  if (report->fault)
    print_fault(report->fault, report->ranks);
  else
    print_figures(report);
  printf("digest %016llx%s%s\n", (unsigned long long)report->digest,
         report->pass && report->lossless ? ", the same in both layouts" : "",
         report->pass && report->compared ? ", every byte compared" : "");
  printf("%s\n", report->pass ? "PASS" : "FAIL");
}

static void write_rows(treadle_json_out *out, const treadle_switch_report *report) {
  static const char *const keys[TREADLE_CLASSES] = {"params", "grads", "optimizer",  "infer",
                                                    "kv",     "work",  "train_work", "reference"};
  treadle_json_out_open(out, "residency", '[');
  for (int i = 0; i < report->row_count; i++) {
    treadle_json_out_open(out, NULL, '{');
    treadle_json_out_text(out, "after", treadle_mode_text(report->rows[i].after));
    for (int c = 0; c < TREADLE_CLASSES; c++) /* work memory, a reference: only where there is some */
      if (c < TREADLE_WORK || report->rows[i].bytes[c])
        treadle_json_out_int(out, keys[c], (int64_t)report->rows[i].bytes[c]);
    treadle_json_out_close(out, '}');
  }
  treadle_json_out_close(out, ']');
}

static void write_fault(treadle_json_out *out, const treadle_fault_report *fault) {
  treadle_json_out_open(out, "fault", '{');
  treadle_json_out_text(out, "injected", fault->injected);
  treadle_json_out_int(out, "survivors", fault->survivors);
  treadle_json_out_int(out, "returned", fault->returned);
  treadle_json_out_real(out, "max_seconds", fault->max_seconds);
  treadle_json_out_bool(out, "digest_unchanged", fault->digest_unchanged);
  treadle_json_out_int(out, "leaked", fault->leaked);
  treadle_json_out_close(out, '}');
}

void treadle_switch_report_json(const treadle_switch_report *report) {
  treadle_rank_figures sum = sum_figures(report);
  char digest[24];
  snprintf(digest, sizeof digest, "%016llx", (unsigned long long)report->digest);
  treadle_json_out out = {.file = stdout};
  treadle_json_out_open(&out, NULL, '{');
  treadle_json_out_int(&out, "cycles", report->cycles);
  treadle_json_out_real(&out, "seconds_to_infer", report->to_infer);
  treadle_json_out_real(&out, "seconds_to_train", report->to_train);
  if (report->updates) {
    treadle_json_out_int(&out, "updates", report->updates);
    treadle_json_out_real(&out, "seconds_to_update", report->to_next);
    treadle_json_out_real(&out, "unbound_seconds", report->unbound);
    if (report->serves) treadle_json_out_int(&out, "served_bytes", (int64_t)sum.served_bytes);
  }
  treadle_json_out_real(&out, "memcpy_seconds", report->memcpy);
  treadle_json_out_real(&out, "rate_over_memcpy", report->rate);
  treadle_json_out_real(&out, "offload_seconds", report->parts.offload);
  treadle_json_out_real(&out, "load_seconds", report->parts.load);
  treadle_json_out_int(&out, "infer_bytes", (int64_t)sum.infer_bytes);
  treadle_json_out_int(&out, "copied_bytes", (int64_t)sum.copied_bytes);
  treadle_json_out_int(&out, "aliased_bytes", (int64_t)sum.aliased_bytes);
  treadle_json_out_int(&out, "staged_bytes", (int64_t)sum.staged_bytes);
  treadle_json_out_int(&out, "moved_bytes", (int64_t)sum.moved_bytes);
  treadle_json_out_int(&out, "lower_bound_bytes", (int64_t)sum.lower_bound_bytes);
  treadle_json_out_real(&out, "ratio", treadle_ratio(sum.moved_bytes, sum.lower_bound_bytes));
  treadle_json_out_int(&out, "peak_bytes", (int64_t)sum.peak_bytes);
  treadle_json_out_int(&out, "peak_bound_bytes", (int64_t)sum.bound_bytes);
  treadle_json_out_text(&out, "device", report->device);
  treadle_json_out_real(&out, "copy_seconds", sum.copy_seconds);
  treadle_json_out_int(&out, "kernel_launches", (int64_t)sum.kernel_launches);
  treadle_json_out_int(&out, "waves_in_flight", sum.waves_in_flight);
  treadle_json_out_int(&out, "table_bytes", (int64_t)sum.table_bytes);
  treadle_json_out_int(&out, "slab_bytes", (int64_t)sum.slab_bytes);
  if (report->net) treadle_switch_nodes_json(report, &out);
  treadle_json_out_text(&out, "weights_source", treadle_weights_name(treadle_model_weights(report->model)));
  treadle_json_out_text(&out, "check", report->pass ? "pass" : "fail");
  treadle_json_out_text(&out, "digest", digest);
  write_rows(&out, report);
  if (report->fault) write_fault(&out, report->fault);
  treadle_json_out_close(&out, '}');
}
