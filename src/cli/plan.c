/* treadle plan: the report of a switch, as text or JSON, and whether it fits a budget. */
#include "cli/cli.h"
#include "cli/device_choice.h"
#include "cli/json_out.h"
#include "cli/plan_config.h"

#include "base/clock.h"
#include "base/nodes.h"
#include "base/text.h"
#include "base/utf8.h"
#include "treadle_tools.h"

#include <math.h>

enum { JSON_ROW_RANKS = 4096, SHOWN_RANKS = 16 };

/* What is printed of. */
typedef struct plan_output {
  const treadle_arguments *arguments; /* with what --config says */
  treadle_plan_config config;
  treadle_model *model;
  treadle_layout *from, *to;
  treadle_report *report;
  treadle_nodes nodes;            /* none where --nodes is not given */
  treadle_report_options options; /* of the report */
  treadle_report_info info;
  double seconds, processor_seconds; /* for layouts and report */
  size_t rss_bytes;                  /* growth of the peak resident size meanwhile */
} plan_output;

static int64_t first_rank(const plan_output *output) {
  return output->options.one_rank ? output->options.rank : 0;
}
static int64_t end_rank(const plan_output *output) {
  return output->options.one_rank ? output->options.rank + 1 : output->info.ranks;
}

/* The nodes that are shown: all, or that of the rank. */
static int32_t first_node(const plan_output *output) {
  return output->options.one_rank ? output->nodes.of[output->options.rank] : 0;
}
static int32_t end_node(const plan_output *output) {
  return output->options.one_rank ? first_node(output) + 1 : output->info.nodes;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static treadle_status print_json_nodes(const plan_output *output, treadle_json_out *out) {
  treadle_status status = TREADLE_OK;
  const treadle_report_info *report = &output->info;
  if (output->nodes.count == 0) return TREADLE_OK;
  bool one = output->options.one_rank;
  treadle_json_out_int(out, "nodes", report->nodes);
  treadle_json_out_int(out, "node_moved_bytes", (int64_t)report->node_moved_bytes);
  treadle_json_out_int(out, "node_lower_bound_bytes", (int64_t)report->node_lower_bound_bytes);
  treadle_json_out_real(out, "node_ratio",
                        one ? (double)NAN
                            : treadle_ratio(report->node_moved_bytes, report->node_lower_bound_bytes));
  treadle_json_out_int(out, "node_inbound_max_bytes", (int64_t)report->node_inbound_max_bytes);
  treadle_json_out_int(out, "node_outbound_max_bytes", (int64_t)report->node_outbound_max_bytes);
  treadle_json_out_real(out, "node_link_load_max_over_mean", report->node_link_load);
  treadle_json_out_int(out, "relayed_bytes", (int64_t)report->relayed_bytes);
  treadle_json_out_int(out, "staging_bytes", (int64_t)report->staging_bytes);
  treadle_json_out_open(out, "by_node", '[');
  for (int32_t node = first_node(output); node < end_node(output); node++) {
    treadle_node_info info = TREADLE_INIT(treadle_node_info);
    TRY(treadle_report_node(output->report, node, &info));
    treadle_json_out_open(out, NULL, '{');
    treadle_json_out_int(out, "node", node);
    treadle_json_out_int(out, "ranks", info.ranks);
    treadle_json_out_int(out, "moved_bytes", (int64_t)info.moved_bytes);
    treadle_json_out_int(out, "lower_bound_bytes", (int64_t)info.lower_bound_bytes);
    treadle_json_out_int(out, "sent_bytes", (int64_t)info.sent_bytes);
    treadle_json_out_close(out, '}');
  }
  treadle_json_out_close(out, ']');
out:
  return status;
}

static treadle_status print_json(const plan_output *output) {
  treadle_status status = TREADLE_OK;
  const treadle_report_info *report = &output->info;
  const treadle_arguments *arguments = output->arguments;
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
  treadle_json_out_real(&out, "plan_seconds", output->seconds);
  treadle_json_out_real(&out, "plan_cpu_seconds", output->processor_seconds);
  treadle_json_out_int(&out, "plan_peak_rss_bytes", (int64_t)output->rss_bytes);
  treadle_json_out_text(&out, "rank_map", treadle_pair_rank_map(output->from, output->to));
  treadle_plan_config_print_json(&output->config, &out);
  TRY(print_json_nodes(output, &out));
  if (arguments->memory.budget_bytes) {
    treadle_json_out_int(&out, "budget", (int64_t)arguments->memory.budget_bytes);
    treadle_json_out_bool(&out, "fits", report->fits);
    treadle_json_out_int(&out, "budget_min", (int64_t)report->budget_min_bytes);
  }
  if (output->options.one_rank || report->ranks <= JSON_ROW_RANKS || arguments->plan.by_rank) {
    treadle_json_out_open(&out, "by_rank", '[');
    for (int64_t rank = first_rank(output); rank < end_rank(output); rank++) {
      treadle_plan_info one = TREADLE_INIT(treadle_plan_info), *info = &one;
      TRY(treadle_report_rank(output->report, rank, info));
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
out:
  return status;
}

/* ---- Text ------------------------------------------------------------------------------------ */

static void format_shape(int ndim, const int64_t *shape, char *text, size_t capacity) {
  size_t length = 0;
  *text = 0;
  for (int dim = 0; dim < ndim && length < capacity; dim++)
    length += (size_t)snprintf(text + length, capacity - length, "%s%lld", dim ? ", " : "",
                               (long long)shape[dim]);
}

/* One line: in how many parts a layout cuts a tensor, and how many ranks have each. */
static void print_cut(const char *side, const treadle_cut_info *cut) {
  char shape[96];
  format_shape(cut->ndim, cut->part_shape, shape, sizeof shape);
  printf("  %-15s %lld part%s%s [%s], %s", side, (long long)cut->parts, cut->parts == 1 ? "" : "s",
         cut->parts == 1 ? "" : " of at most", shape, treadle_text_of_size(cut->part_bytes));
  printf(cut->holders_min == cut->holders_max ? ", on %lld rank%s each\n"
                                              : ", on %lld rank%s or more each\n",
         (long long)cut->holders_min, cut->holders_min == 1 ? "" : "s");
}

static treadle_status print_largest(const plan_output *output) {
  treadle_status status;
  treadle_cut_info from = TREADLE_INIT(treadle_cut_info), to = TREADLE_INIT(treadle_cut_info);
  char shape[96];
  TRY(treadle_layout_largest_cut(output->from, &from));
  TRY(treadle_layout_largest_cut(output->to, &to));
  if (!from.tensor) return TREADLE_OK;
  format_shape(from.ndim, from.shape, shape, sizeof shape);
  printf("\nlargest tensor    %s [%s], %s\n", treadle_text_shown(from.tensor), shape,
         treadle_text_of_size(from.bytes));
  print_cut("from", &from);
  print_cut("to", &to);
out:
  return status;
}

static treadle_status print_ranks(const plan_output *output) {
  treadle_status status = TREADLE_OK;
  int64_t first = first_rank(output), end = end_rank(output),
          shown = end - first > SHOWN_RANKS ? first + SHOWN_RANKS : end;
  printf("\n%6s %11s %11s %11s %11s %6s %11s %11s %11s %11s\n", "rank", "from", "to", "moved",
         "lower bound", "ratio", "copied", "aliased", "peak", "peak bound");
  for (int64_t rank = first; rank < shown; rank++) {
    treadle_plan_info one = TREADLE_INIT(treadle_plan_info), *info = &one;
    TRY(treadle_report_rank(output->report, rank, info));
    printf("%6lld %11s %11s %11s %11s %6.3f %11s %11s %11s %11s\n", (long long)rank,
           treadle_text_of_size(info->from_bytes), treadle_text_of_size(info->to_bytes),
           treadle_text_of_size(info->moved_bytes), treadle_text_of_size(info->lower_bound_bytes),
           treadle_ratio(info->moved_bytes, info->lower_bound_bytes),
           treadle_text_of_size(info->copied_bytes), treadle_text_of_size(info->aliased_bytes),
           treadle_text_of_size(info->peak_bytes), treadle_text_of_size(info->peak_bound_bytes));
  }
  if (shown < end)
    printf("   ... and %lld more, of %d sets of equal ranks; --rank R shows one, --json --by-rank all\n",
           (long long)(end - shown), (int)output->info.sets);
out:
  return status;
}

static treadle_status print_pairs(const plan_output *output) {
  treadle_status status = TREADLE_OK;
  size_t inbound[SHOWN_RANKS];
  int64_t ranks = output->info.ranks;
  if (!output->info.has_inbound || ranks < 2 || ranks > SHOWN_RANKS) return TREADLE_OK;
  printf("\nbytes by pair: what a rank (row) pulls from another (column)\n      ");
  for (int64_t peer = 0; peer < ranks; peer++) printf(" %10lld", (long long)peer);
  printf("\n");
  for (int64_t rank = 0; rank < ranks; rank++) {
    TRY(treadle_report_inbound(output->report, rank, inbound));
    printf("%6lld", (long long)rank);
    for (int64_t peer = 0; peer < ranks; peer++)
      printf(" %10s", inbound[peer] ? treadle_text_of_size(inbound[peer]) : "-");
    printf("\n");
  }
out:
  return status;
}

static treadle_status print_nodes(const plan_output *output) {
  treadle_status status = TREADLE_OK;
  const treadle_report_info *report = &output->info;
  int32_t first, shown;
  if (output->nodes.count == 0) return TREADLE_OK;
  printf("\nbetween nodes     %s (%zu)", treadle_text_of_size(report->node_moved_bytes),
         report->node_moved_bytes);
  if (output->options.one_rank) {
    printf(" to the rank; lower bound of its node %s\n",
           treadle_text_of_size(report->node_lower_bound_bytes));
  } else {
    printf("; lower bound %s, ratio %.3f\n", treadle_text_of_size(report->node_lower_bound_bytes),
           treadle_ratio(report->node_moved_bytes, report->node_lower_bound_bytes));
    printf("node links        the busiest node has %.4g times the average\n", report->node_link_load);
  }
  printf("relayed           %s, read from ranks of the same node that have it from others\n",
         treadle_text_of_size(report->relayed_bytes));
  printf("staging           %s at most on a rank\n", treadle_text_of_size(report->staging_bytes));
  first = first_node(output);
  shown = end_node(output) - first > SHOWN_RANKS ? first + SHOWN_RANKS : end_node(output);
  printf("\n%6s %7s %11s %11s %6s %11s\n", "node", "ranks", "moved", "lower bound", "ratio", "sent");
  for (int32_t node = first; node < shown; node++) {
    treadle_node_info info = TREADLE_INIT(treadle_node_info);
    TRY(treadle_report_node(output->report, node, &info));
    printf("%6d %7lld %11s %11s %6.3f %11s\n", node, (long long)info.ranks,
           treadle_text_of_size(info.moved_bytes), treadle_text_of_size(info.lower_bound_bytes),
           treadle_ratio(info.moved_bytes, info.lower_bound_bytes), treadle_text_of_size(info.sent_bytes));
  }
  if (shown < end_node(output)) printf("   ... and %d more; --json shows all\n", end_node(output) - shown);
out:
  return status;
}

/* Whether a smaller page would do, as text; tries one, since no rule gives it. */
static void print_page_advice(const plan_output *output) {
  enum { SMALL_PAGE = 64 << 10 };
  if (output->info.page_bytes <= SMALL_PAGE) return;
  treadle_report_options options = output->options;
  treadle_report *report;
  treadle_report_info small = TREADLE_INIT(treadle_report_info);
  options.page_bytes = SMALL_PAGE;
  treadle_status status = treadle_report_create(output->from, output->to, &options, &report);
  treadle_progress_end();
  if (status) return;
  treadle_report_get_info(report, &small);
  if (small.fits)
    printf("  --page-size 64KiB, with which %s is enough\n", treadle_text_of_size(small.budget_min_bytes));
  else if (small.budget_min_bytes < output->info.budget_min_bytes)
    printf("  --page-size 64KiB helps, but still needs %s\n", treadle_text_of_size(small.budget_min_bytes));
  treadle_report_destroy(report);
}

static void print_fit(const plan_output *output) {
  const treadle_report_info *report = &output->info;
  const treadle_report_options *given = &output->options;
  size_t window = report->from_bytes > report->to_bytes ? report->from_bytes : report->to_bytes;
  if (!given->budget_bytes) return;
  printf("\nbudget            %s: %s\n", treadle_text_of_size(given->budget_bytes),
         report->fits ? "fits" : "does not fit");
  if (report->fits) {
    printf("  the smallest budget is %s\n", treadle_text_of_size(report->budget_min_bytes));
    return;
  }
  printf("  the largest window takes %s, and the cap at least %s. What would make it fit:\n",
         treadle_text_of_size(window), treadle_text_of_size(report->cap_min_bytes));
  printf("  --budget %zu (%s) or more\n", report->budget_min_bytes,
         treadle_text_of_size(report->budget_min_bytes));
  if (given->cap_bytes > report->cap_min_bytes)
    printf("  --cap %zu (%s): the budget is then %s\n", report->cap_min_bytes,
           treadle_text_of_size(report->cap_min_bytes),
           treadle_text_of_size(window + report->cap_min_bytes));
  print_page_advice(output);
  printf("  a larger tp or pp in %s, whose window is the larger one\n",
         treadle_text_shown(
             treadle_layout_text(report->from_bytes > report->to_bytes ? output->from : output->to)));
}

static treadle_status print_text(const plan_output *output) {
  treadle_status status = TREADLE_OK;
  const treadle_report_info *report = &output->info;
  const treadle_model *model = output->model;
  treadle_plan_config_print(&output->config, output->arguments->plan.config);
  printf("model             %s, %s parameters, %s\n", treadle_text_shown(treadle_model_family(model)),
         treadle_count_of(treadle_model_elems(model)).text, treadle_text_of_size(report->model_bytes));
  printf("from              %s\n", treadle_text_shown(treadle_layout_text(output->from)));
  printf("to                %s\n", treadle_text_shown(treadle_layout_text(output->to)));
  printf("ranks             %lld, rank map %s", (long long)report->ranks,
         treadle_pair_rank_map(output->from, output->to));
  if (output->options.one_rank) printf("; all figures are of rank %lld", (long long)output->options.rank);
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
  if (!output->options.one_rank)
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
  printf("planned in        %.3g s, %s more memory\n", output->seconds,
         treadle_text_of_size(output->rss_bytes));
  TRY(print_largest(output));
  TRY(print_ranks(output));
  TRY(print_nodes(output));
  TRY(print_pairs(output));
  print_fit(output);
out:
  return status;
}

/* Model, layouts and report; what the last two took. */
static treadle_status make(plan_output *output) {
  treadle_status status;
  const treadle_arguments *arguments = output->arguments;
  treadle_pair_texts texts = {arguments->layouts.from, arguments->layouts.to,
                              (treadle_rank_map)arguments->ranks.map, NULL};
  TRY(treadle_open_model(&arguments->model, arguments->model.path, true, &output->model));
  double begin = treadle_clock_seconds(), processor_begin = treadle_clock_process_seconds();
  size_t rss_begin = treadle_clock_peak_rss_bytes();
  if (arguments->ranks.nodes > 0) {
    TRY(treadle_nodes_split(arguments->ranks.count, arguments->ranks.nodes, &output->nodes));
    texts.node_of = output->options.node_of = output->nodes.of;
  }
  status = treadle_open_layouts(output->model, &texts, arguments->ranks.count, &output->from, &output->to);
  if (!status) status = treadle_report_create(output->from, output->to, &output->options, &output->report);
  if (status && arguments->plan.config) treadle_fail_in(status, "%s: ", arguments->plan.config);
  if (status) goto out;
  output->seconds = treadle_clock_seconds() - begin;
  output->processor_seconds = treadle_clock_process_seconds() - processor_begin;
  output->rss_bytes = treadle_clock_peak_rss_bytes() - rss_begin;
  treadle_report_get_info(output->report, &output->info);
out:
  treadle_progress_end();
  return status;
}

static treadle_status set_options(plan_output *output) {
  const treadle_arguments *arguments = output->arguments;
  bool cuda;
  treadle_status status;
  TRY(treadle_device_is_cuda(arguments->memory.device, &cuda));
  output->options = (treadle_report_options){.struct_size = sizeof output->options,
                                             .page_bytes = arguments->memory.page_bytes,
                                             .cap_bytes = arguments->memory.cap_bytes,
                                             .budget_bytes = arguments->memory.budget_bytes,
                                             .alias = arguments->memory.alias == 0,
                                             .one_rank = arguments->ranks.rank >= 0,
                                             .rank = arguments->ranks.rank < 0 ? 0 : arguments->ranks.rank,
                                             .memory = cuda ? TREADLE_MEMORY_CUDA : TREADLE_MEMORY_HOST,
                                             .watch = treadle_progress_watch};
out:
  return status;
}

int treadle_command_plan(const treadle_arguments *given) {
  treadle_status status = TREADLE_OK;
  treadle_arguments arguments = *given;
  plan_output output = {.arguments = &arguments, .info = TREADLE_INIT(treadle_report_info)};
  TRY(treadle_plan_config_read(&output.config, &arguments));
  TRY(set_options(&output));
  TRY(make(&output));
  TRY(arguments.json ? print_json(&output) : print_text(&output));
out:;
  int exit_status = status             ? treadle_report_refusal("plan", status)
                    : output.info.fits ? TREADLE_EXIT_OK
                                       : TREADLE_EXIT_FAILED;
  treadle_report_destroy(output.report);
  treadle_layout_destroy(output.from);
  treadle_layout_destroy(output.to);
  treadle_nodes_release(&output.nodes);
  treadle_model_close(output.model);
  treadle_plan_config_release(&output.config);
  return treadle_finish_output("plan", exit_status);
}
