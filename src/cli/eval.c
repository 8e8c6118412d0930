/* treadle eval: what a model's answers are worth. */
#include "base/text.h"
#include "cli/cli.h"
#include "cli/json_out.h"
#include "cli/session.h"

#include "base/real.h"
#include "treadle_loop.h"

#include <math.h>
#include <stdio.h>

/* What a person should know, beside the result. */
static void note(void *context, bool warns, const char *line) {
  (void)context;
  (void)warns;
  treadle_progress_end();
  fprintf(stderr, "treadle eval: %s\n", line);
}

static const treadle_observer observer = {
    .struct_size = sizeof observer, .progress = treadle_progress_doing, .note = note};

static treadle_status options_of(const treadle_arguments *a, treadle_eval_options *o) {
  *o = (treadle_eval_options){.struct_size = sizeof *o,
                              .model = a->words[0],
                              .data = a->eval.data,
                              .reward = a->eval.reward,
                              .reward_command = a->eval.reward_command,
                              .tokenizer = a->text.tokenizer,
                              .prompt_key = a->eval.prompt_key,
                              .answer_key = a->eval.answer_key,
                              .families = a->model.families,
                              .layout = a->layouts.engine,
                              .kernels = a->kernels.name,
                              .threads = (int32_t)a->kernels.threads,
                              .samples = a->sampling.samples > 0 ? a->sampling.samples : 1,
                              .temperature = 1,
                              .max_tokens = a->sampling.new_tokens > 0 ? a->sampling.new_tokens : 0,
                              .seed = a->sampling.seed >= 0 ? a->sampling.seed : 0,
                              .leave_unanswered_out = a->eval.no_answer == 1,
                              .weights = (treadle_weights)a->model.weights,
                              .observer = &observer};
  if (a->sampling.temperature && !treadle_text_to_real(a->sampling.temperature, &o->temperature))
    REFUSE("--temperature %s: not a number", a->sampling.temperature);
  return TREADLE_OK;
}

static void print(const treadle_eval_figures *f, bool json) {
  treadle_json_out out = {.file = stdout};
  char name[64];
  const long long n = (long long)f->samples;
  if (!json) {
    if (f->left_out)
      printf("%lld of %lld prompts %s no answer, and %s left out (--no-answer)\n", (long long)f->left_out,
             (long long)(f->left_out + f->rows), f->left_out == 1 ? "has" : "have",
             f->left_out == 1 ? "is" : "are");
    printf("%s, %s of each: mean@%lld %.4f, best@%lld/mean %.4f", treadle_text_of_count(f->rows, "prompt"),
           treadle_text_of_count(n, "sample"), n, f->mean, n, f->best);
    if (!isnan(f->majority)) printf(", maj@%lld/mean %.4f", n, f->majority);
    printf("; %.1f tokens a response, %.1f s\n", f->response_length, f->seconds);
    return;
  }
  treadle_json_out_open(&out, NULL, '{');
  treadle_json_out_int(&out, "rows", f->rows);
  treadle_json_out_int(&out, "left_out", f->left_out);
  treadle_json_out_int(&out, "n", f->samples);
  snprintf(name, sizeof name, "mean@%lld", n);
  treadle_json_out_exact(&out, name, f->mean);
  snprintf(name, sizeof name, "best@%lld/mean", n);
  treadle_json_out_exact(&out, name, f->best);
  snprintf(name, sizeof name, "maj@%lld/mean", n);
  treadle_json_out_exact(&out, name, f->majority);
  treadle_json_out_text(&out, "weights_source", treadle_weights_name(f->weights));
  treadle_json_out_exact(&out, "response_length", f->response_length);
  treadle_json_out_real(&out, "seconds", f->seconds);
  treadle_json_out_close(&out, '}');
}

int treadle_command_eval(const treadle_arguments *a) {
  treadle_session session = {0};
  treadle_eval_options options;
  treadle_eval_figures figures = TREADLE_INIT(treadle_eval_figures);
  treadle_status status;
  TRY(treadle_session_start(&session, "eval", 600));
  TRY(treadle_session_agree(&session, options_of(a, &options)));
  TRY(treadle_session_agree(&session, treadle_eval(session.group, &options, &figures)));
  treadle_progress_end();
  if (session.rank == 0) print(&figures, a->json);
out:
  if (status && !session.said) treadle_session_abandon(&session, status);
  int exit_status = treadle_finish_output("eval", treadle_exit_status(status));
  treadle_session_end(&session);
  return exit_status;
}
