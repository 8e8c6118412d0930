/* treadle score: log-probabilities of texts. */
#include "cli/engine_job.h"
#include "cli/json_out.h"
#include "cli/request_options.h"

#include "base/dtype.h"
#include "treadle_tools.h"

#include <math.h>
#include <string.h>

static treadle_status read_temperature(const char *text, float *temperature_p) {
  double number = 1;
  treadle_status status = TREADLE_OK;
  if (text) TRY(treadle_read_number("--temperature", text, &number));
  *temperature_p = (float)number;
  if (!(*temperature_p > 0) || !isfinite(*temperature_p))
    return treadle_fail(TREADLE_REFUSED, "--temperature is '%s', and must be a number of fp32 above 0",
                        text);
out:
  return status;
}

static void print(const treadle_engine_job *job, const treadle_arguments *a,
                  const treadle_score_figures *f) {
  treadle_generator_info info = TREADLE_INIT(treadle_generator_info);
  double perplexity = f->predicted ? exp(f->nll / (double)f->predicted) : NAN;
  char digest[32];
  if (treadle_generator_get_info(job->engine, &info)) return;
  snprintf(digest, sizeof digest, "%016llx", (unsigned long long)f->digest);
  if (!a->json) {
    fprintf(stderr, "%lld text%s, %lld token%s, perplexity %.4f, %.0f tokens/s, digest %s\n",
            (long long)f->texts, f->texts == 1 ? "" : "s", (long long)f->tokens, f->tokens == 1 ? "" : "s",
            perplexity, (double)f->tokens / f->seconds, digest);
    if (a->score.check)
      fprintf(stderr, "checked %lld log-probabilities: %lld differ\n", (long long)f->checked,
              (long long)f->different);
    return;
  }
  treadle_json_out out = {.file = stdout};
  treadle_json_out_open(&out, NULL, '{');
  treadle_json_out_int(&out, "texts", f->texts);
  treadle_json_out_int(&out, "tokens", f->tokens);
  treadle_json_out_real(&out, "nll", f->nll);
  treadle_json_out_real(&out, "perplexity", perplexity);
  treadle_json_out_real(&out, "seconds", f->seconds);
  treadle_json_out_real(&out, "tokens_per_second", f->seconds > 0 ? (double)f->tokens / f->seconds : 0);
  treadle_json_out_text(&out, "layout", treadle_layout_text(job->layout));
  treadle_json_out_text(&out, "weights_source", treadle_weights_name(treadle_model_weights(job->model)));
  treadle_json_out_text(&out, "dtype", treadle_dtype_name(info.dtype));
  treadle_json_out_bool(&out, "exact", info.exact);
  treadle_json_out_text(&out, "kernels", info.kernels);
  treadle_json_out_int(&out, "checked", f->checked);
  treadle_json_out_int(&out, "different", f->different);
  treadle_json_out_text(&out, "digest", digest);
  treadle_json_out_close(&out, '}');
}

/* What is there before the engine is: options, input, and whether the output can be written. */
static treadle_status prepare(treadle_engine_job *job, const treadle_arguments *a,
                              treadle_score_lines_options *options) {
  treadle_status status;
  TRY(read_temperature(a->sampling.temperature, &options->temperature));
  if (a->score.logits && a->files.out && strcmp(a->score.logits, a->files.out) == 0)
    return treadle_fail(TREADLE_REFUSED, "--logits and --out are the same file: %s", a->files.out);
  TRY(treadle_engine_job_read(job, a->files.in));
  TRY(treadle_as_refusal(treadle_engine_job_text(job, a)));
  options->tokenizer = job->tokenizer;
  options->chat = job->chat;
  TRY(treadle_as_refusal(treadle_engine_job_write(job, a)));
  if (a->score.logits && job->session.rank == 0)
    TRY(treadle_as_refusal(treadle_output_ask(a->score.logits)));
out:
  return status;
}

static const treadle_observer observer = {.struct_size = sizeof observer,
                                          .progress = treadle_progress_doing};

int treadle_command_score(const treadle_arguments *a) {
  treadle_engine_job job = {0};
  treadle_score_lines_options options = {.struct_size = sizeof options,
                                         .what = a->files.in,
                                         .check = a->score.check != TREADLE_CHECK_NONE,
                                         .answer = treadle_engine_job_answer,
                                         .context = &job,
                                         .observer = &observer,
                                         .top = a->score.top,
                                         .logits_file = a->score.logits};
  treadle_score_figures figures = TREADLE_INIT(treadle_score_figures);
  treadle_session *session = &job.session;
  treadle_status status;
  TRY(treadle_session_start(session, "score", 60));
  if (session->rank > 0) options.observer = NULL;
  TRY(treadle_session_agree(session, prepare(&job, a, &options)));
  TRY(treadle_engine_job_open(&job, a, "hf"));
  status = treadle_generator_score_lines(job.engine, job.lines, job.line_bytes, &options, &figures);
  treadle_progress_end();
  TRY(treadle_session_agree(session, status));
  TRY(treadle_session_agree(session, treadle_engine_job_finish(&job, a)));
  if (session->rank == 0) print(&job, a, &figures);
out:;
  int exit_status = treadle_engine_job_end(&job, status);
  return exit_status == TREADLE_EXIT_OK && figures.different ? TREADLE_EXIT_FAILED : exit_status;
}
