/* treadle inspect: what treadle sees in a Hugging Face directory or a config.json. */
#include "cli/cli.h"
#include "cli/json_out.h"

#include "base/dtype.h"
#include "base/text.h"
#include "base/utf8.h"
#include "io/json.h"
#include "model/stored.h"

#include <string.h>

/* ---- JSON ------------------------------------------------------------------------------------ */

static treadle_status print_json(const treadle_model *model) {
  treadle_status status = TREADLE_OK;
  treadle_json_out out = {.file = stdout};
  treadle_json_out_open(&out, NULL, '{');
  treadle_json_out_text(&out, "family", treadle_model_family(model));
  treadle_json_out_int(&out, "layers", model->layers);
  treadle_json_out_int(&out, "elems", treadle_model_elems(model));
  treadle_json_out_int(&out, "bytes", treadle_model_bytes(model));
  treadle_json_out_bool(&out, "weights", treadle_model_has_weights(model));
  treadle_json_out_open(&out, "dims", '{');
  for (int32_t i = 0; i < model->family->dim_count; i++) {
    int64_t value;
    bool found;
    TRY(treadle_model_lookup((void *)(uintptr_t)model, model->family->dim_names[i], NULL, &value, &found));
    if (found) treadle_json_out_int(&out, model->family->dim_names[i], value);
  }
  treadle_json_out_close(&out, '}');
  treadle_json_out_open(&out, "files", '[');
  for (int32_t i = 0; model->checkpoint && i < model->checkpoint->file_count; i++)
    treadle_json_out_text(&out, NULL, model->checkpoint->files[i]);
  treadle_json_out_close(&out, ']');
  treadle_json_out_int(&out, "mtp_layers", model->mtp_layers);
  treadle_json_out_int(&out, "carried", model->files ? model->files->carried_count : 0);
  treadle_json_out_int(&out, "skipped", model->files ? model->files->skipped_count : 0);
  treadle_json_out_open(&out, "tensors", '[');
  for (int32_t i = 0; i < model->entry_count; i++) {
    treadle_tensor_info tensor = TREADLE_INIT(treadle_tensor_info);
    TRY(treadle_model_tensor(model, i, &tensor));
    treadle_json_out_open(&out, NULL, '{');
    treadle_json_out_text(&out, "name", tensor.name);
    treadle_json_out_open(&out, "shape", '[');
    for (int dim = 0; dim < tensor.ndim; dim++) treadle_json_out_int(&out, NULL, tensor.shape[dim]);
    treadle_json_out_close(&out, ']');
    treadle_json_out_text(&out, "dtype", treadle_dtype_name(tensor.dtype));
    treadle_json_out_close(&out, '}');
  }
  treadle_json_out_close(&out, ']');
  treadle_json_out_open(&out, "tied", '{');
  for (int32_t i = 0; i < model->alias_count; i++)
    treadle_json_out_text(&out, model->aliases[i].name, model->tensors[model->aliases[i].tensor].name);
  treadle_json_out_close(&out, '}');
  treadle_json_out_close(&out, '}');
out:
  return status;
}

/* ---- Text ------------------------------------------------------------------------------------ */

/* One line a kind: how often it is there, in which shape, and what all of them take. */
static void print_kinds(const treadle_model *model) {
  printf("\n%-48s %6s  %-24s %-5s %12s\n", "tensor", "count", "shape", "type", "all");
  for (int32_t kind = 0; kind < model->family->kind_count; kind++) {
    const treadle_tensor *one = NULL;
    int32_t count = 0;
    size_t bytes = 0;
    bool mixed = false;
    for (int32_t i = 0; i < model->tensor_count; i++) {
      const treadle_tensor *tensor = &model->tensors[i];
      if (tensor->kind != kind) continue;
      if (!one) one = tensor;
      mixed = mixed || tensor->dtype != one->dtype;
      bytes += (size_t)tensor->elems * treadle_dtype_bytes(tensor->dtype);
      count++;
    }
    if (!one) continue;
    char shape[96] = "[";
    size_t length = 1;
    for (int dim = 0; dim < one->ndim && length < sizeof shape; dim++)
      length += (size_t)snprintf(shape + length, sizeof shape - length, "%s%lld", dim ? ", " : "",
                                 (long long)one->shape[dim]);
    if (length + 1 < sizeof shape) memcpy(shape + length, "]", 2);
    printf("%-48s %6d  %-24s %-5s %12s\n", treadle_text_shown(model->family->kinds[kind].name), (int)count,
           shape, mixed ? "mixed" : treadle_dtype_name(one->dtype), treadle_text_of_size(bytes));
  }
  for (int32_t i = 0; i < model->alias_count; i++)
    printf("%-48s        tied: the same as %s\n", treadle_text_shown(model->aliases[i].name),
           treadle_text_shown(model->tensors[model->aliases[i].tensor].name));
}

static void print_types(const treadle_model *model) {
  static const treadle_dtype dtypes[] = {TREADLE_FP32, TREADLE_BF16, TREADLE_FP16, TREADLE_FP8_E4M3};
  for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++) {
    int64_t elems = 0;
    for (int32_t i = 0; i < model->tensor_count; i++)
      if (model->tensors[i].dtype == dtypes[d]) elems += model->tensors[i].elems;
    if (elems)
      printf("%-14s %lld elements, %s\n", treadle_dtype_name(dtypes[d]), (long long)elems,
             treadle_text_of_size((size_t)elems * treadle_dtype_bytes(dtypes[d])));
  }
}

/* What the files hold besides canonical tensors. */
static void print_others(const treadle_files *files) {
  if (files->stacked_count)
    printf("stacked        %d tensors, as transformers has them\n", (int)files->stacked_count);
  if (files->scale_count) printf("scales         %d tensors, of fp8 blocks\n", (int)files->scale_count);
  for (int32_t i = 0; i < files->carried_count && i < 1; i++)
    printf("carried        %d tensors of other parts: %s, ...\n", (int)files->carried_count,
           treadle_text_shown(files->carried[i]->name));
  for (int32_t i = 0; i < files->skipped_count && i < 1; i++)
    printf("skipped        %d buffers: %s%s\n", (int)files->skipped_count,
           treadle_text_shown(files->skipped[i]->name), files->skipped_count > 1 ? ", ..." : "");
}

static treadle_status print_text(const treadle_model *model) {
  treadle_status status = TREADLE_OK;
  printf("family         %s (%s)\n", treadle_text_shown(model->family->name),
         treadle_text_shown(model->family->path));
  printf("parameters     %lld in %d tensors, %s\n", (long long)model->elems, (int)model->entry_count,
         treadle_text_of_size((size_t)model->bytes));
  print_types(model);
  printf("config         ");
  for (int32_t i = 0; i < model->family->dim_count; i++) {
    int64_t value;
    bool found;
    TRY(treadle_model_lookup((void *)(uintptr_t)model, model->family->dim_names[i], NULL, &value, &found));
    if (found) printf("%s=%lld ", treadle_text_shown(model->family->dim_names[i]), (long long)value);
  }
  printf("\n");
  if (!model->checkpoint) printf("files          none: a config.json alone\n");
  for (int32_t i = 0; model->checkpoint && i < model->checkpoint->file_count; i++)
    printf("%-14s %s\n", i ? "" : "files", treadle_text_shown(model->checkpoint->files[i]));
  if (model->files) print_others(model->files);
  print_kinds(model);
out:
  return status;
}

int treadle_command_inspect(const treadle_arguments *arguments) {
  treadle_status status = TREADLE_OK;
  treadle_model *model = NULL;
  TRY(treadle_open_model(arguments, arguments->words[0], true, &model));
  TRY(arguments->json ? print_json(model) : print_text(model));
out:;
  int exit_status = status ? treadle_report_refusal("inspect", status) : TREADLE_EXIT_OK;
  treadle_model_close(model);
  return treadle_finish_output("inspect", exit_status);
}
