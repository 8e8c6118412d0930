/* treadle plan: the report of a switch, as text or JSON, and whether it fits a budget. */
#include "cli/cli.h"
#include "cli/json_out.h"
#include "cli/report.h"

#include "base/dtype.h"
#include "base/text.h"
#include "base/utf8.h"

#include <string.h>

enum { JSON_ROW_RANKS = 4096 };

/* ---- JSON ------------------------------------------------------------------------------------ */

static void print_json(const treadle_report *report, const treadle_arguments *arguments) {
  treadle_json_out out = {.file = stdout};
  treadle_json_out_open(&out, NULL, '{');
  treadle_json_out_int(&out, "ranks", report->ranks);
  treadle_json_out_int(&out, "model_bytes", (int64_t)report->model_bytes);
  treadle_json_out_int(&out, "moved_bytes", (int64_t)report->moved_bytes);
  treadle_json_out_int(&out, "lower_bound_bytes", (int64_t)report->lower_bound_bytes);
  treadle_json_out_real(&out, "ratio", treadle_ratio(report->moved_bytes, report->lower_bound_bytes));
  treadle_json_out_int(&out, "resident_bytes", (int64_t)report->resident_bytes);
  treadle_json_out_int(&out, "infer_bytes", (int64_t)report->infer_bytes);
  treadle_json_out_int(&out, "copied_bytes", (int64_t)report->copied_bytes);
  treadle_json_out_int(&out, "aliased_bytes", (int64_t)report->aliased_bytes);
  treadle_json_out_int(&out, "waves", report->waves);
  treadle_json_out_int(&out, "cap", (int64_t)report->cap_bytes);
  treadle_json_out_int(&out, "cap_min", (int64_t)report->cap_min_bytes);
  treadle_json_out_int(&out, "peak_bytes", (int64_t)report->peak_bytes);
  treadle_json_out_int(&out, "peak_bound_bytes", (int64_t)report->bound_bytes);
  treadle_json_out_real(&out, "inbound_max_over_model", report->inbound_max);
  treadle_json_out_real(&out, "inbound_mean_over_model", report->inbound_mean);
  treadle_json_out_real(&out, "link_load_max_over_mean", report->link_load);
  treadle_json_out_real(&out, "plan_seconds", report->seconds);
  treadle_json_out_real(&out, "plan_cpu_seconds", report->processor_seconds);
  treadle_json_out_int(&out, "plan_peak_rss_bytes", (int64_t)report->rss_bytes);
  treadle_json_out_text(&out, "rank_map", report->rank_map);
  if (arguments->budget_bytes) {
    treadle_json_out_int(&out, "budget", (int64_t)arguments->budget_bytes);
    treadle_json_out_bool(&out, "fits", report->fits);
    treadle_json_out_int(&out, "budget_min", (int64_t)report->budget_min_bytes);
  }
  if (report->rank >= 0 || report->ranks <= JSON_ROW_RANKS || arguments->by_rank) {
    int64_t first = report->rank < 0 ? 0 : report->rank, end = report->rank < 0 ? report->ranks : first + 1;
    treadle_json_out_open(&out, "by_rank", '[');
    for (int64_t rank = first; rank < end; rank++) {
      const treadle_plan_info *info = treadle_report_rank(report, rank);
      treadle_json_out_open(&out, NULL, '{');
      treadle_json_out_int(&out, "rank", rank);
      treadle_json_out_int(&out, "train_bytes", (int64_t)info->from_bytes);
      treadle_json_out_int(&out, "infer_bytes", (int64_t)info->to_bytes);
      treadle_json_out_int(&out, "moved_bytes", (int64_t)info->moved_bytes);
      treadle_json_out_int(&out, "lower_bound_bytes", (int64_t)info->lower_bound_bytes);
      treadle_json_out_int(&out, "copied_bytes", (int64_t)info->copied_bytes);
      treadle_json_out_int(&out, "aliased_bytes", (int64_t)info->aliased_bytes);
      treadle_json_out_int(&out, "peak_bytes", (int64_t)info->peak_bytes);
      treadle_json_out_close(&out, '}');
    }
    treadle_json_out_close(&out, ']');
  }
  treadle_json_out_close(&out, '}');
}

/* ---- Text ------------------------------------------------------------------------------------ */

/* The Hugging Face shape of a box: the product of the sizes of each dimension's axes. */
static void format_shape(const treadle_tensor *tensor, const treadle_box *box, char *text,
                         size_t capacity) {
  size_t length = 0;
  for (int dim = 0; dim < tensor->ndim && length < capacity; dim++) {
    int64_t size = 1;
    for (int axis = 0; axis < tensor->naxes; axis++)
      if (tensor->axis_dim[axis] == dim) size *= box->size[axis];
    int more = snprintf(text + length, capacity - length, "%s%lld", dim ? ", " : "", (long long)size);
    length += (size_t)more;
  }
}

/* One line: in how many parts a layout cuts a tensor, and how many ranks have each. */
static treadle_status print_cut(const char *side, const treadle_layout *layout, int32_t number) {
  treadle_status status = TREADLE_OK;
  treadle_cells cells = {0};
  const treadle_tensor *tensor = &layout->model->tensors[number];
  treadle_box whole = treadle_box_whole(tensor);
  TRY(treadle_layout_cells(layout, number, &whole, &cells));
  int64_t smallest = 0, largest = 0, elems_max = 0;
  char shape[96] = "";
  for (size_t i = 0; i < cells.count; i++) {
    const treadle_cell *cell = &cells.items[i];
    if (i == 0 || cell->holders < smallest) smallest = cell->holders;
    if (cell->holders > largest) largest = cell->holders;
    if (treadle_box_elems(&cell->box) > elems_max) {
      elems_max = treadle_box_elems(&cell->box);
      format_shape(tensor, &cell->box, shape, sizeof shape);
    }
  }
  size_t bytes = (size_t)elems_max * treadle_dtype_bytes(treadle_layout_dtype(layout, tensor));
  printf("  %-15s %zu part%s%s [%s], %s", side, cells.count, cells.count == 1 ? "" : "s",
         cells.count == 1 ? "" : " of at most", shape, treadle_text_of_size(bytes));
  printf(smallest == largest ? ", on %lld rank%s each\n" : ", on %lld rank%s or more each\n",
         (long long)smallest, smallest == 1 ? "" : "s");
out:
  treadle_array_release(&cells);
  return status;
}

static treadle_status print_largest(const treadle_report *report) {
  treadle_status status = TREADLE_OK;
  const treadle_model *model = report->from->model;
  int32_t largest = 0;
  int64_t most = -1;
  for (int32_t i = 0; i < model->tensor_count; i++) {
    int64_t bytes = model->tensors[i].elems * (int64_t)treadle_dtype_bytes(model->tensors[i].dtype);
    if (bytes > most) {
      most = bytes;
      largest = i;
    }
  }
  if (most < 0) return TREADLE_OK;
  const treadle_tensor *tensor = &model->tensors[largest];
  treadle_box whole = treadle_box_whole(tensor);
  char shape[96] = "";
  format_shape(tensor, &whole, shape, sizeof shape);
  printf("\nlargest tensor    %s [%s], %s\n", treadle_text_shown(tensor->name), shape,
         treadle_text_of_size((size_t)most));
  TRY(print_cut("from", report->from, largest));
  TRY(print_cut("to", report->to, largest));
out:
  return status;
}

static void print_ranks(const treadle_report *report) {
  int64_t first = report->rank < 0 ? 0 : report->rank, end = report->rank < 0 ? report->ranks : first + 1;
  int64_t shown = end - first > TREADLE_SHOWN_RANKS ? first + TREADLE_SHOWN_RANKS : end;
  printf("\n%6s %11s %11s %11s %11s %6s %11s %11s %11s %11s\n", "rank", "from", "to", "moved",
         "lower bound", "ratio", "copied", "aliased", "peak", "peak bound");
  for (int64_t rank = first; rank < shown; rank++) {
    const treadle_plan_info *info = treadle_report_rank(report, rank);
    printf("%6lld %11s %11s %11s %11s %6.3f %11s %11s %11s %11s\n", (long long)rank,
           treadle_text_of_size(info->from_bytes), treadle_text_of_size(info->to_bytes),
           treadle_text_of_size(info->moved_bytes), treadle_text_of_size(info->lower_bound_bytes),
           treadle_ratio(info->moved_bytes, info->lower_bound_bytes),
           treadle_text_of_size(info->copied_bytes), treadle_text_of_size(info->aliased_bytes),
           treadle_text_of_size(info->peak_bytes), treadle_text_of_size(info->peak_bound_bytes));
  }
  if (shown < end)
    printf("   ... and %lld more, of %d kinds in all; --rank R shows one, --json --by-rank all\n",
           (long long)(end - shown), (int)report->kinds.count);
}

static void print_pairs(const treadle_report *report) {
  if (!report->pairs || report->ranks < 2) return;
  printf("\nbytes by pair: what a rank (row) pulls from another (column)\n      ");
  for (int64_t peer = 0; peer < report->ranks; peer++) printf(" %10lld", (long long)peer);
  printf("\n");
  for (int64_t rank = 0; rank < report->ranks; rank++) {
    printf("%6lld", (long long)rank);
    for (int64_t peer = 0; peer < report->ranks; peer++) {
      size_t bytes = report->pairs[rank * report->ranks + peer];
      printf(" %10s", bytes ? treadle_text_of_size(bytes) : "-");
    }
    printf("\n");
  }
}

/* Whether a smaller page would do, as text; tries one, since no rule gives it. */
static void print_page_advice(const treadle_report *report, const treadle_report_options *given) {
  enum { SMALL_PAGE = 64 << 10 };
  if (report->page_bytes <= SMALL_PAGE) return;
  treadle_report_options options = *given;
  treadle_report small;
  options.page_bytes = SMALL_PAGE;
  if (!treadle_report_make(report->from->model, &options, &small)) {
    if (small.fits)
      printf("  --page-size 64KiB, with which %s is enough\n",
             treadle_text_of_size(small.budget_min_bytes));
    else if (small.budget_min_bytes < report->budget_min_bytes)
      printf("  --page-size 64KiB helps, but still needs %s\n",
             treadle_text_of_size(small.budget_min_bytes));
  }
  treadle_report_release(&small);
}

static void print_fit(const treadle_report *report, const treadle_report_options *given) {
  if (!given->budget_bytes) return;
  printf("\nbudget            %s: %s\n", treadle_text_of_size(given->budget_bytes),
         report->fits ? "fits" : "does not fit");
  if (report->fits) {
    printf("  the smallest budget is %s\n", treadle_text_of_size(report->budget_min_bytes));
    return;
  }
  printf("  the largest window takes %s, and the cap at least %s. What would make it fit:\n",
         treadle_text_of_size(report->window_max_bytes), treadle_text_of_size(report->cap_min_bytes));
  printf("  --budget %zu (%s) or more\n", report->budget_min_bytes,
         treadle_text_of_size(report->budget_min_bytes));
  if (given->cap_bytes > report->cap_min_bytes)
    printf("  --cap %zu (%s): the budget is then %s\n", report->cap_min_bytes,
           treadle_text_of_size(report->cap_min_bytes),
           treadle_text_of_size(report->window_max_bytes + report->cap_min_bytes));
  print_page_advice(report, given);
  size_t from = 0, to = 0;
  for (int32_t kind = 0; kind < (report->rank < 0 ? report->kinds.count : 1); kind++) {
    if (report->infos[kind].from_bytes > from) from = report->infos[kind].from_bytes;
    if (report->infos[kind].to_bytes > to) to = report->infos[kind].to_bytes;
  }
  printf("  a larger tp or pp in %s, whose window is the larger one\n",
         treadle_text_shown(treadle_layout_text(from > to ? report->from : report->to)));
}

static treadle_status print_text(const treadle_report *report, const treadle_report_options *given) {
  treadle_status status = TREADLE_OK;
  const treadle_model *model = report->from->model;
  printf("model             %s, %s parameters, %s\n", treadle_text_shown(treadle_model_family(model)),
         treadle_count_of(treadle_model_elems(model)).text, treadle_text_of_size(report->model_bytes));
  printf("from              %s\n", treadle_text_shown(treadle_layout_text(report->from)));
  printf("to                %s\n", treadle_text_shown(treadle_layout_text(report->to)));
  printf("ranks             %lld, rank map %s", (long long)report->ranks, report->rank_map);
  if (report->rank >= 0) printf("; all figures are of rank %lld", (long long)report->rank);
  printf("\n\nmoved             %s (%zu)\n", treadle_text_of_size(report->moved_bytes),
         report->moved_bytes);
  printf("lower bound       %s (%zu), ratio %.3f\n", treadle_text_of_size(report->lower_bound_bytes),
         report->lower_bound_bytes, treadle_ratio(report->moved_bytes, report->lower_bound_bytes));
  printf("already there     %s (%zu)\n", treadle_text_of_size(report->resident_bytes),
         report->resident_bytes);
  printf("to be written     %s of %s (%.4g), and %s on pages that both layouts share\n",
         treadle_text_of_size(report->copied_bytes), treadle_text_of_size(report->infer_bytes),
         report->infer_bytes ? (double)report->copied_bytes / (double)report->infer_bytes : 0,
         treadle_text_of_size(report->aliased_bytes));
  if (report->rank < 0)
    printf("inbound           at most %.4g of the model on a rank, on average %.4g\n"
           "link load         the busiest rank has %.4g times the average\n",
           report->inbound_max, report->inbound_mean, report->link_load);
  else
    printf("inbound           %.4g of the model\n", report->inbound_max);
  printf("waves             %d, with a cap of %s; the smallest cap is %s (%zu)\n", (int)report->waves,
         treadle_text_of_size(report->cap_bytes), treadle_text_of_size(report->cap_min_bytes),
         report->cap_min_bytes);
  printf("pages             of %s\n", treadle_text_of_size(report->page_bytes));
  printf("peak              %s; least room on rank %lld, which may have %s\n",
         treadle_text_of_size(report->peak_bytes), (long long)report->tight_rank,
         treadle_text_of_size(report->bound_bytes));
  printf("planned in        %.3g s, %s more memory\n", report->seconds,
         treadle_text_of_size(report->rss_bytes));
  TRY(print_largest(report));
  print_ranks(report);
  print_pairs(report);
  print_fit(report, given);
out:
  return status;
}

int treadle_command_plan(const treadle_arguments *arguments) {
  treadle_status status = TREADLE_OK;
  treadle_model *model = NULL;
  treadle_report report = {0};
  int exit_status;
  treadle_report_options options = {
      .from = arguments->from,
      .to = arguments->to,
      .ranks = arguments->ranks,
      .rank = arguments->rank,
      .rank_map = (treadle_rank_map)arguments->rank_map,
      .page_bytes = arguments->page_bytes,
      .cap_bytes = arguments->cap_bytes,
      .budget_bytes = arguments->budget_bytes,
      .alias = arguments->alias == 0,
  };
  TRY(treadle_open_model(arguments, arguments->model, true, &model));
  TRY(treadle_report_make(model, &options, &report));
  if (arguments->json)
    print_json(&report, arguments);
  else
    TRY(print_text(&report, &options));
out:
  exit_status = status        ? treadle_report_refusal("plan", status)
                : report.fits ? TREADLE_EXIT_OK
                              : TREADLE_EXIT_FAILED;
  treadle_report_release(&report);
  treadle_model_close(model);
  return treadle_finish_output("plan", exit_status);
}
