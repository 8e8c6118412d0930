/* treadle data: rows of tasks that are made, not read. */
#include "cli/cli.h"
#include "cli/json_out.h"
#include "cli/request_options.h"

#include "treadle_loop.h"
#include "treadle_tools.h"

#include <string.h>

static const double noise_default = 0.3;

static treadle_status run(const treadle_arguments *a, treadle_sequence_figures *figures) {
  treadle_sequence_options options = {.struct_size = sizeof options,
                                      .noise = noise_default,
                                      .seed = a->sampling.seed < 0 ? 0 : (uint64_t)a->sampling.seed};
  treadle_status status = TREADLE_OK;
  if (strcmp(a->words[0], "sequence") != 0)
    return treadle_fail(TREADLE_REFUSED, "there is no task '%s'; there is: sequence", a->words[0]);
  if (!a->files.out) return treadle_fail(TREADLE_REFUSED, "needs --out DIR");
  if (a->data.noise) TRY(treadle_read_number("--noise", a->data.noise, &options.noise));
  TRY(treadle_data_sequence(a->files.out, &options, figures));
out:
  return status;
}

static void print(const treadle_arguments *a, const treadle_sequence_figures *f) {
  if (!a->json) {
    printf("%s: train.jsonl %s, test.jsonl %s, sft.jsonl %s\n", a->files.out,
           treadle_text_of_count(f->train, "prompt"), treadle_text_of_count(f->test, "prompt"),
           treadle_text_of_count(f->sft, "row"));
    return;
  }
  treadle_json_out out = {.file = stdout};
  treadle_json_out_open(&out, NULL, '{');
  treadle_json_out_text(&out, "out", a->files.out);
  treadle_json_out_int(&out, "train", f->train);
  treadle_json_out_int(&out, "test", f->test);
  treadle_json_out_int(&out, "sft", f->sft);
  treadle_json_out_close(&out, '}');
}

int treadle_command_data(const treadle_arguments *a) {
  treadle_sequence_figures figures = TREADLE_INIT(treadle_sequence_figures);
  treadle_status status = run(a, &figures);
  if (status) return treadle_report_refusal("data", status);
  print(a, &figures);
  return treadle_finish_output("data", TREADLE_EXIT_OK);
}
