/* treadle make-model: a small Hugging Face checkpoint with hash weights, for the demo and for tests. */
#include "cli/cli.h"

#include "base/dtype.h"
#include "base/text.h"
#include "base/utf8.h"
#include "treadle_tools.h"

static treadle_status make(const treadle_arguments *arguments, treadle_model **model_p) {
  treadle_status status;
  treadle_make_options options = {.struct_size = sizeof options,
                                  .families = arguments->model.families,
                                  .config = arguments->model.path,
                                  .model_type = arguments->make_model.family,
                                  .layers = arguments->make_model.layers,
                                  .hidden = arguments->make_model.hidden,
                                  .vocab = arguments->make_model.vocab,
                                  .stacked = arguments->make_model.experts};
  TRY(treadle_scale_down_elems(&arguments->model, &options.scale_down));
  if (!arguments->model.path && arguments->model.scale_down)
    TRY(treadle_fail(TREADLE_REFUSED, "--scale-down needs --model config.json"));
  if (arguments->make_model.dtype && (!treadle_dtype_parse(arguments->make_model.dtype, &options.dtype) ||
                                      options.dtype >= TREADLE_FP8_E4M3))
    TRY(treadle_fail(TREADLE_REFUSED, "--dtype is '%s', and must be bf16, fp16 or fp32",
                     arguments->make_model.dtype));
  TRY(treadle_make_model(arguments->words[0], &options, model_p));
  treadle_say_scaled(&arguments->model, *model_p);
  treadle_say_open(*model_p);
  treadle_say_made_up(arguments->words[0]);
out:
  return status;
}

int treadle_command_make_model(const treadle_arguments *arguments) {
  treadle_model *model = NULL;
  treadle_status status = make(arguments, &model);
  if (!status)
    printf("%s: %s, %s parameters, %s\n", treadle_text_shown(arguments->words[0]),
           treadle_text_shown(treadle_model_family(model)),
           treadle_count_of(treadle_model_elems(model)).text,
           treadle_text_of_size((size_t)treadle_model_bytes(model)));
  int exit_status = status ? treadle_report_error("make-model", status) : TREADLE_EXIT_OK;
  treadle_model_close(model);
  return treadle_finish_output("make-model", exit_status);
}
