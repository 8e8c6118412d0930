/* treadle generate: requests to answers, or the text of one prompt as it comes. */
#include "base/text.h"
#include "cli/engine_job.h"
#include "cli/json_out.h"
#include "cli/request_options.h"

#include "base/clock.h"
#include "base/dtype.h"
#include "treadle_tools.h"

#include <stdlib.h>
#include <string.h>

/* ---- Figures ----------------------------------------------------------------------------------------- */

static void print(const treadle_engine_job *job, const treadle_arguments *a,
                  const treadle_generate_figures *f) {
  treadle_generator_info info = TREADLE_INIT(treadle_generator_info);
  double rate = f->seconds > 0 ? (double)f->new_tokens / f->seconds : 0;
  char digest[32];
  if (treadle_generator_get_info(job->engine, &info)) return;
  snprintf(digest, sizeof digest, "%016llx", (unsigned long long)f->digest);
  if (!a->json) {
    fprintf(stderr, "%s, %s, %.1f tokens/s, digest %s\n", treadle_text_of_count(f->samples, "sample"),
            treadle_text_of_count(f->new_tokens, "new token"), rate, digest);
    return;
  }
  treadle_json_out out = {.file = stdout};
  treadle_json_out_open(&out, NULL, '{');
  treadle_json_out_int(&out, "requests", f->requests);
  treadle_json_out_int(&out, "samples", f->samples);
  treadle_json_out_int(&out, "prompt_tokens", f->prompt_tokens);
  treadle_json_out_int(&out, "new_tokens", f->new_tokens);
  treadle_json_out_real(&out, "seconds", f->seconds);
  treadle_json_out_real(&out, "tokens_per_second", rate);
  treadle_json_out_text(&out, "layout", treadle_layout_text(job->layout));
  treadle_json_out_text(&out, "weights_source", treadle_weights_name(treadle_model_weights(job->model)));
  treadle_json_out_text(&out, "dtype", treadle_dtype_name(info.dtype));
  treadle_json_out_bool(&out, "exact", info.exact);
  treadle_json_out_text(&out, "kernels", info.kernels);
  treadle_json_out_int(&out, "threads", info.threads);
  treadle_json_out_int(&out, "weights_bytes", (int64_t)job->window_bytes);
  treadle_json_out_int(&out, "packed_bytes", (int64_t)info.packed_bytes);
  treadle_json_out_int(&out, "work_bytes", (int64_t)info.work_bytes);
  treadle_json_out_int(&out, "kv_blocks", info.kv_blocks);
  treadle_json_out_int(&out, "kv_blocks_peak", info.kv_blocks_peak);
  treadle_json_out_int(&out, "kv_blocks_leaked", f->kv_blocks_leaked);
  treadle_json_out_int(&out, "preemptions", f->preemptions);
  treadle_json_out_int(&out, "prefix_hit_tokens", f->prefix_hit_tokens);
  treadle_json_out_int(&out, "version", (int64_t)info.version);
  treadle_json_out_text(&out, "digest", digest);
  treadle_json_out_close(&out, '}');
}

/* "samples 3 of 64, 4120 tokens, 412 tokens/s" */
static void tell(void *context, const char *doing, int64_t done, int64_t total) {
  const treadle_engine_job *job = context;
  double seconds = treadle_clock_seconds() - job->begin;
  treadle_progress("%s %lld of %lld, %lld tokens, %.0f tokens/s", doing, (long long)done, (long long)total,
                   (long long)job->tokens, seconds > 0 ? (double)job->tokens / seconds : 0);
}

/* Texts are generated where an engine for that would: layouts for training are scored in. */
static treadle_status check_layout(const char *layout) {
  static const char *const others[] = {"hf", "megatron"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    size_t length = strlen(others[i]);
    if (!layout || strncmp(layout, others[i], length) != 0) continue;
    if (layout[length] == ':' || !layout[length])
      return treadle_fail(
          TREADLE_REFUSED,
          "layout '%s': generate takes layouts of vllm and sglang; --train takes this one, and "
          "score does",
          layout);
  }
  return TREADLE_OK;
}

/* What is there before the engine is: options, input, and whether the output can be written. */
static treadle_status prepare(treadle_engine_job *job, const treadle_arguments *a,
                              treadle_generate_options *options, char **sampling_p) {
  treadle_status status;
  TRY(check_layout(a->layouts.engine));
  TRY(treadle_write_prompt(a, &job->lines));
  if (job->lines) job->line_bytes = strlen(job->lines);
  TRY(treadle_write_sampling(a, sampling_p));
  options->sampling = *sampling_p;
  if (a->files.in) TRY(treadle_engine_job_read(job, a->files.in));
  TRY(treadle_as_refusal(treadle_engine_job_text(job, a)));
  options->tokenizer = job->tokenizer;
  options->chat = job->chat;
  TRY(treadle_as_refusal(treadle_engine_job_write(job, a)));
out:
  return status;
}

static treadle_status say_unheard(const treadle_engine_job *job) {
  char line[4096];
  treadle_status status;
  if (job->session.rank > 0) return TREADLE_OK;
  TRY(treadle_model_unheard(job->model, line, sizeof line));
  if (line[0]) fprintf(stderr, "warning: %s\n", line);
out:
  return status;
}

int treadle_command_generate(const treadle_arguments *a) {
  treadle_engine_job job = {0};
  treadle_generate_options options = {.struct_size = sizeof options,
                                      .what = a->files.in ? a->files.in : "the prompt",
                                      .seed = a->sampling.seed,
                                      .scaled = a->generate.logprobs_of == 1,
                                      .answer = treadle_engine_job_answer,
                                      .context = &job,
                                      .talks = a->text.chat};
  const treadle_observer observer = {.struct_size = sizeof observer, .context = &job, .progress = tell};
  treadle_generate_figures figures = TREADLE_INIT(treadle_generate_figures);
  char *sampling = NULL;
  treadle_session *session = &job.session;
  treadle_status status;
  TRY(treadle_session_start(session, "generate", 60));
  TRY(treadle_session_agree(session, prepare(&job, a, &options, &sampling)));
  TRY(treadle_engine_job_open(&job, a, "vllm:tp=1"));
  TRY(treadle_session_agree(session, say_unheard(&job)));
  if (session->rank == 0) options.text = treadle_engine_job_token;
  if (session->rank == 0 && !job.streams) options.observer = &observer;
  job.begin = treadle_clock_seconds();
  status = treadle_generator_generate_lines(job.engine, job.lines, job.line_bytes, &options, &figures);
  treadle_progress_end();
  TRY(treadle_session_agree(session, status));
  TRY(treadle_session_agree(session, treadle_engine_job_finish(&job, a)));
  if (session->rank == 0) print(&job, a, &figures);
out:
  free(sampling);
  return treadle_engine_job_end(&job, status);
}
