/* treadle inspect: what treadle sees in a Hugging Face directory or a config.json. */
#include "cli/cli.h"
#include "cli/json_out.h"

#include "base/dtype.h"
#include "base/text.h"
#include "base/utf8.h"
#include "treadle_loop.h"
#include "treadle_tools.h"

/* ---- JSON ------------------------------------------------------------------------------------ */

static treadle_status print_tensor_json(treadle_json_out *out, const treadle_model *model, int32_t number) {
  treadle_status status;
  treadle_tensor_info tensor = TREADLE_INIT(treadle_tensor_info);
  TRY(treadle_model_tensor(model, number, &tensor));
  treadle_json_out_open(out, NULL, '{');
  treadle_json_out_text(out, "name", tensor.name);
  treadle_json_out_open(out, "shape", '[');
  for (int dim = 0; dim < tensor.ndim; dim++) treadle_json_out_int(out, NULL, tensor.shape[dim]);
  treadle_json_out_close(out, ']');
  treadle_json_out_text(out, "dtype", treadle_dtype_name(tensor.dtype));
  treadle_json_out_close(out, '}');
out:
  return status;
}

static treadle_status print_json(const treadle_model *model, const treadle_model_info *info) {
  treadle_status status = TREADLE_OK;
  treadle_json_out out = {.file = stdout};
  treadle_json_out_open(&out, NULL, '{');
  treadle_json_out_text(&out, "family", info->family);
  treadle_json_out_int(&out, "layers", info->layers);
  treadle_json_out_int(&out, "elems", info->elems);
  treadle_json_out_int(&out, "bytes", info->bytes);
  treadle_json_out_bool(&out, "weights", treadle_model_has_weights(model));
  treadle_json_out_open(&out, "dims", '{');
  for (int32_t i = 0; i < info->dims; i++) {
    const char *name;
    int64_t value;
    TRY(treadle_model_dim(model, i, &name, &value));
    if (name) treadle_json_out_int(&out, name, value);
  }
  treadle_json_out_close(&out, '}');
  treadle_json_out_open(&out, "files", '[');
  for (int32_t i = 0; i < info->files; i++) treadle_json_out_text(&out, NULL, treadle_model_file(model, i));
  treadle_json_out_close(&out, ']');
  treadle_json_out_int(&out, "mtp_layers", info->mtp_layers);
  treadle_json_out_int(&out, "carried", info->carried);
  treadle_json_out_int(&out, "skipped", info->skipped);
  treadle_json_out_open(&out, "tensors", '[');
  for (int32_t i = 0; i < info->tensors; i++) TRY(print_tensor_json(&out, model, i));
  treadle_json_out_close(&out, ']');
  treadle_json_out_open(&out, "tied", '{');
  for (int32_t i = info->tensors; i < treadle_model_tensor_count(model); i++) {
    treadle_tensor_info tied = TREADLE_INIT(treadle_tensor_info);
    TRY(treadle_model_tensor(model, i, &tied));
    treadle_json_out_text(&out, tied.name, tied.same_as);
  }
  treadle_json_out_close(&out, '}');
  treadle_json_out_close(&out, '}');
out:
  return status;
}

/* ---- Text ------------------------------------------------------------------------------------ */

/* One line a pattern: how often it is there, in which shape, and what all of them take. */
static treadle_status print_kinds(const treadle_model *model, const treadle_model_info *info) {
  treadle_status status = TREADLE_OK;
  printf("\n%-48s %6s  %-24s %-5s %12s\n", "tensor", "count", "shape", "type", "all");
  for (int32_t i = 0; i < info->patterns; i++) {
    treadle_pattern_info pattern = TREADLE_INIT(treadle_pattern_info);
    char shape[96] = "";
    size_t length = 0;
    TRY(treadle_model_pattern(model, i, &pattern));
    if (!pattern.count) continue;
    for (int dim = 0; dim < pattern.ndim && length < sizeof shape; dim++)
      length += (size_t)snprintf(shape + length, sizeof shape - length, "%s%lld", dim ? ", " : "[",
                                 (long long)pattern.shape[dim]);
    if (length < sizeof shape) snprintf(shape + length, sizeof shape - length, length ? "]" : "[]");
    printf("%-48s %6d  %-24s %-5s %12s\n", treadle_text_shown(pattern.name), (int)pattern.count, shape,
           pattern.dtype ? treadle_dtype_name(pattern.dtype) : "mixed",
           treadle_text_of_size((size_t)pattern.bytes));
  }
  for (int32_t i = info->tensors; i < treadle_model_tensor_count(model); i++) {
    treadle_tensor_info tied = TREADLE_INIT(treadle_tensor_info);
    TRY(treadle_model_tensor(model, i, &tied));
    printf("%-48s        tied: the same as %s\n", treadle_text_shown(tied.name),
           treadle_text_shown(tied.same_as));
  }
out:
  return status;
}

static void print_types(const treadle_model *model) {
  static const treadle_dtype dtypes[] = {TREADLE_FP32, TREADLE_BF16, TREADLE_FP16, TREADLE_FP8_E4M3,
                                         TREADLE_INT32};
  for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++) {
    int64_t elems = treadle_model_elems_of(model, dtypes[d]);
    if (elems)
      printf("%-14s %lld elements, %s\n", treadle_dtype_name(dtypes[d]), (long long)elems,
             treadle_text_of_size((size_t)elems * treadle_dtype_bytes(dtypes[d])));
  }
}

/* What the files hold besides canonical tensors. */
static void print_others(const treadle_model_info *info) {
  if (info->stacked) printf("stacked        %d tensors, as transformers has them\n", (int)info->stacked);
  if (info->scales) printf("scales         %d tensors, of fp8 blocks\n", (int)info->scales);
  if (info->carried)
    printf("carried        %d tensors of other parts: %s, ...\n", (int)info->carried,
           treadle_text_shown(info->carried_first));
  if (info->skipped)
    printf("skipped        %d buffers: %s%s\n", (int)info->skipped, treadle_text_shown(info->skipped_first),
           info->skipped > 1 ? ", ..." : "");
}

static treadle_status print_text(const treadle_model *model, const treadle_model_info *info) {
  treadle_status status = TREADLE_OK;
  printf("family         %s (%s)\n", treadle_text_shown(info->family),
         treadle_text_shown(info->family_path));
  printf("parameters     %lld in %d tensors, %s\n", (long long)info->elems, (int)info->tensors,
         treadle_text_of_size((size_t)info->bytes));
  print_types(model);
  printf("config         ");
  for (int32_t i = 0; i < info->dims; i++) {
    const char *name;
    int64_t value;
    TRY(treadle_model_dim(model, i, &name, &value));
    if (name) printf("%s=%lld ", treadle_text_shown(name), (long long)value);
  }
  printf("\n");
  if (!treadle_model_has_weights(model)) printf("files          none: a config.json alone\n");
  for (int32_t i = 0; i < info->files; i++)
    printf("%-14s %s\n", i ? "" : "files", treadle_text_shown(treadle_model_file(model, i)));
  print_others(info);
  TRY(print_kinds(model, info));
out:
  return status;
}

/* ---- Checkpoints ------------------------------------------------------------------------------- */

static void say_checkpoint(void *context, const char *checkpoint, bool known, const char *damage) {
  (void)context;
  if (damage)
    fprintf(stderr, "treadle inspect: %s\n", damage);
  else
    printf("%s: %s\n", treadle_text_shown(checkpoint),
           known ? "is what was saved"
                 : "has no digests.json, as checkpoints of older versions have none: whether it is damaged "
                   "is not known");
}

static void print_checkpoint(void *context, const char *checkpoint, bool known, const char *damage) {
  treadle_json_out *out = context;
  treadle_json_out_open(out, NULL, '{');
  treadle_json_out_text(out, "checkpoint", checkpoint);
  treadle_json_out_bool(out, "known", known);
  treadle_json_out_text(out, "damage", damage);
  treadle_json_out_close(out, '}');
  if (damage) fprintf(stderr, "treadle inspect: %s\n", damage);
}

static treadle_status check_checkpoints(const treadle_arguments *arguments, int64_t *damaged_p) {
  const char *folder = arguments->words[0];
  treadle_json_out out = {.file = stdout};
  treadle_status status;
  if (!arguments->json)
    return treadle_checkpoint_verify(folder, arguments->model.families, say_checkpoint, NULL, damaged_p);
  treadle_json_out_open(&out, NULL, '{');
  treadle_json_out_open(&out, "checkpoints", '[');
  TRY(treadle_checkpoint_verify(folder, arguments->model.families, print_checkpoint, &out, damaged_p));
  treadle_json_out_close(&out, ']');
  treadle_json_out_int(&out, "damaged", *damaged_p);
  treadle_json_out_close(&out, '}');
out:
  return status;
}

static int check(const treadle_arguments *arguments) {
  int64_t damaged = 0;
  treadle_status status = check_checkpoints(arguments, &damaged);
  if (status) return treadle_report_refusal("inspect", status);
  return treadle_finish_output("inspect", damaged ? TREADLE_EXIT_FAILED : TREADLE_EXIT_OK);
}

int treadle_command_inspect(const treadle_arguments *arguments) {
  treadle_status status = TREADLE_OK;
  treadle_model *model = NULL;
  if (arguments->inspect.check) return check(arguments);
  TRY(treadle_open_model(&arguments->model, arguments->words[0], true, &model));
  treadle_model_info info = TREADLE_INIT(treadle_model_info);
  treadle_model_get_info(model, &info);
  TRY(arguments->json ? print_json(model, &info) : print_text(model, &info));
out:;
  int exit_status = status ? treadle_report_refusal("inspect", status) : TREADLE_EXIT_OK;
  treadle_model_close(model);
  return treadle_finish_output("inspect", exit_status);
}
