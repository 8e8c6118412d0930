/* treadle layout: the storage tensors of one rank, and the runs of elements they are made of. */
#include "cli/cli.h"
#include "cli/json_out.h"

#include "base/dtype.h"
#include "base/nodes.h"
#include "base/text.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_SOURCES = 8 }; /* tensors that are named of one storage tensor */

typedef struct layout_output {
  const treadle_model *model;
  const treadle_layout *layout;
  int64_t rank;
} layout_output;

/* The Hugging Face name of a tensor; NULL for a fill. */
static const char *tensor_name(const layout_output *output, int32_t tensor) {
  treadle_tensor_info info = TREADLE_INIT(treadle_tensor_info);
  if (tensor < 0 || treadle_model_tensor(output->model, tensor, &info)) return NULL;
  return info.name;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static treadle_status print_json_runs(const layout_output *output, int32_t storage, treadle_json_out *out) {
  treadle_run *runs = NULL;
  size_t count = 0;
  treadle_status status = treadle_layout_runs(output->layout, output->rank, storage, &runs, &count);
  if (status) return status;
  treadle_json_out_open(out, "runs", '[');
  for (size_t i = 0; i < count; i++) {
    treadle_json_out_open(out, NULL, '[');
    treadle_json_out_int(out, NULL, runs[i].local_start);
    treadle_json_out_text(
        out, NULL,
        runs[i].tensor == TREADLE_FILL_MINUS_INFINITY ? "-inf" : tensor_name(output, runs[i].tensor));
    treadle_json_out_int(out, NULL, runs[i].start);
    treadle_json_out_int(out, NULL, runs[i].stride);
    treadle_json_out_int(out, NULL, runs[i].count);
    treadle_json_out_close(out, ']');
  }
  treadle_json_out_close(out, ']');
  free(runs);
  return TREADLE_OK;
}

static treadle_status print_json(const layout_output *output, bool with_runs) {
  treadle_status status = TREADLE_OK;
  treadle_json_out out = {.file = stdout};
  treadle_json_out_open(&out, NULL, '{');
  treadle_json_out_int(&out, "rank", output->rank);
  treadle_json_out_open(&out, "tensors", '[');
  int32_t count = treadle_layout_storage_count(output->layout, output->rank);
  for (int32_t storage = 0; storage < count; storage++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    TRY(treadle_layout_storage(output->layout, output->rank, storage, &info));
    treadle_json_out_open(&out, NULL, '{');
    treadle_json_out_int(&out, "chunk", info.chunk);
    treadle_json_out_text(&out, "name", info.name);
    treadle_json_out_open(&out, "shape", '[');
    for (int dim = 0; dim < info.ndim; dim++) treadle_json_out_int(&out, NULL, info.shape[dim]);
    treadle_json_out_close(&out, ']');
    treadle_json_out_text(&out, "dtype", treadle_dtype_name(info.dtype));
    treadle_json_out_bool(&out, "derived", info.derived);
    if (with_runs) TRY(print_json_runs(output, storage, &out));
    treadle_json_out_close(&out, '}');
  }
  treadle_json_out_close(&out, ']');
  treadle_json_out_close(&out, '}');
out:
  if (status) treadle_json_out_fail(&out, treadle_error_message());
  return status;
}

/* ---- Text ------------------------------------------------------------------------------------ */

/* The different tensors of a storage tensor's runs, in order: "q_proj + k_proj" with their full names. */
static void print_sources(const layout_output *output, const treadle_run *runs, size_t count) {
  int32_t shown[MOST_SOURCES];
  int shown_count = 0;
  bool padded = false;
  for (size_t i = 0; i < count; i++) {
    bool known = false;
    for (int s = 0; s < shown_count; s++) known = known || shown[s] == runs[i].tensor;
    padded = padded || runs[i].tensor < 0;
    if (known || runs[i].tensor < 0 || shown_count == MOST_SOURCES) continue;
    printf("%s%s", shown_count ? " + " : "", treadle_text_shown(tensor_name(output, runs[i].tensor)));
    shown[shown_count++] = runs[i].tensor;
  }
  if (padded) printf("%spadding", shown_count ? " + " : "");
  printf("\n");
}

static void print_runs(const layout_output *output, const treadle_run *runs, size_t count) {
  for (size_t i = 0; i < count; i++) {
    const char *name = tensor_name(output, runs[i].tensor);
    if (name)
      printf("      %lld..%lld  from %s, %lld on, stride %lld\n", (long long)runs[i].local_start,
             (long long)(runs[i].local_start + runs[i].count), treadle_text_shown(name),
             (long long)runs[i].start, (long long)runs[i].stride);
    else
      printf("      %lld..%lld  padding%s\n", (long long)runs[i].local_start,
             (long long)(runs[i].local_start + runs[i].count),
             runs[i].tensor == TREADLE_FILL_MINUS_INFINITY ? " of -inf" : "");
  }
}

static treadle_status print_text(const layout_output *output, bool with_runs) {
  treadle_status status = TREADLE_OK;
  treadle_run *runs = NULL;
  size_t bytes = 0;
  int32_t count = treadle_layout_storage_count(output->layout, output->rank);
  printf("rank %lld of %lld in %s: %s, a window of %s\n\n", (long long)output->rank,
         (long long)treadle_layout_ranks(output->layout),
         treadle_text_shown(treadle_layout_text(output->layout)), treadle_text_of_count(count, "tensor"),
         treadle_text_of_size(treadle_layout_window_bytes(output->layout, output->rank)));
  if (!treadle_layout_holds(output->layout, output->rank)) {
    printf("this rank does not hold the layout (on=)\n");
    return TREADLE_OK;
  }
  for (int32_t storage = 0; storage < count; storage++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    char name[288], shape[96] = "";
    size_t length = 0, run_count = 0;
    TRY(treadle_layout_storage(output->layout, output->rank, storage, &info));
    status = treadle_layout_runs(output->layout, output->rank, storage, &runs, &run_count);
    bool many =
        status == TREADLE_REFUSED && !with_runs; /* too many to be listed, and nobody wants the list */
    if (!many) TRY(status);
    for (int dim = 0; dim < info.ndim && length < sizeof shape; dim++)
      length += (size_t)snprintf(shape + length, sizeof shape - length, "%s%lld", dim ? ", " : "",
                                 (long long)info.shape[dim]);
    if (info.chunk > 0)
      snprintf(name, sizeof name, "chunk %d: %s", (int)info.chunk, treadle_text_shown(info.name));
    else
      snprintf(name, sizeof name, "%s", treadle_text_shown(info.name));
    printf("%-52s [%s] %s%s, %s\n    = ", name, shape, treadle_dtype_name(info.dtype),
           info.derived ? ", derived" : "", treadle_text_of_size(info.bytes));
    if (many)
      printf("(too many runs to be looked at)\n");
    else
      print_sources(output, runs, run_count);
    if (with_runs) print_runs(output, runs, run_count);
    bytes += info.bytes;
    free(runs);
    runs = NULL;
  }
  printf("\ntotal %s\n", treadle_text_of_size(bytes));
  status = TREADLE_OK;
out:
  free(runs);
  return status;
}

int treadle_command_layout(const treadle_arguments *arguments) {
  treadle_status status = TREADLE_OK;
  treadle_model *model = NULL;
  treadle_layout *layout = NULL, *train = NULL;
  treadle_nodes nodes = {0};
  if (arguments->ranks.rank >= arguments->ranks.count)
    TRY(treadle_fail(TREADLE_REFUSED, "rank %lld of %lld: ranks are numbered from 0",
                     (long long)arguments->ranks.rank, (long long)arguments->ranks.count));
  if (arguments->ranks.map != TREADLE_CONTIGUOUS && !arguments->layouts.train)
    TRY(treadle_fail(TREADLE_REFUSED,
                     "--rank-map needs --train LAYOUT, the training layout that it looks at"));
  TRY(treadle_open_model(&arguments->model, arguments->model.path, true, &model));
  if (arguments->ranks.nodes > 0)
    TRY(treadle_nodes_split(arguments->ranks.count, arguments->ranks.nodes, &nodes));
  const treadle_pair_texts texts = {arguments->layouts.train, arguments->layout.shown,
                                    (treadle_rank_map)arguments->ranks.map, nodes.of};
  TRY(arguments->layouts.train
          ? treadle_open_layouts(model, &texts, arguments->ranks.count, &train, &layout)
          : treadle_layout_create(model, texts.to, arguments->ranks.count, NULL, &layout));
  layout_output output = {model, layout, arguments->ranks.rank};
  TRY(arguments->json ? print_json(&output, arguments->layout.runs)
                      : print_text(&output, arguments->layout.runs));
out:;
  int exit_status = status ? treadle_report_refusal("layout", status) : TREADLE_EXIT_OK;
  treadle_layout_destroy(train);
  treadle_layout_destroy(layout);
  treadle_nodes_release(&nodes);
  treadle_model_close(model);
  return treadle_finish_output("layout", exit_status);
}
