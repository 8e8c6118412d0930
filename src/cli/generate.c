/* treadle generate: requests to answers. Options of sampling become a JSON object, which the lines of the requests begin with. */
#include "cli/engine_job.h"
#include "cli/json_out.h"

#include "base/dtype.h"
#include "base/text.h"

#include <string.h>

/* ---- Options to JSON ------------------------------------------------------------------------------- */

static void add_number(treadle_builder *to, const char *name, const char *number) {
  if (number) treadle_builder_add(to, "%s\"%s\": %s", to->text[1] ? ", " : "", name, number);
}

static void add_count(treadle_builder *to, const char *name, int64_t count) {
  char number[32];
  snprintf(number, sizeof number, "%lld", (long long)count);
  add_number(to, name, count >= 0 ? number : NULL);
}

static treadle_status write_sampling(const treadle_arguments *a, treadle_builder *to) {
  treadle_builder_add(to, "{");
  if (to->failed) goto out;
  add_number(to, "temperature", a->temperature);
  add_number(to, "top_p", a->top_p);
  add_number(to, "min_p", a->min_p);
  add_number(to, "repetition_penalty", a->repetition_penalty);
  add_number(to, "presence_penalty", a->presence_penalty);
  add_number(to, "frequency_penalty", a->frequency_penalty);
  add_count(to, "top_k", a->top_k);
  add_count(to, "max_tokens", a->new_tokens);
  add_count(to, "min_tokens", a->min_new_tokens);
  add_count(to, "n", a->samples);
  add_count(to, "logprobs", a->logprobs);
  add_number(to, "ignore_eos", a->ignore_eos ? "true" : NULL);
  if (a->stop_ids)
    treadle_builder_add(to, "%s\"stop_token_ids\": [%s]", to->text[1] ? ", " : "", a->stop_ids);
  treadle_builder_add(to, "}");
out:
  return to->failed ? treadle_fail(TREADLE_NO_MEMORY, "no memory for the options") : TREADLE_OK;
}

/* A text as JSON has it. */
static void add_text(treadle_builder *to, const char *text) {
  treadle_builder_add(to, "\"");
  for (; *text; text++)
    if ((unsigned char)*text < 0x20 || *text == '"' || *text == '\\')
      treadle_builder_add(to, "\\u%04x", (unsigned)(unsigned char)*text);
    else
      treadle_builder_add(to, "%c", *text);
  treadle_builder_add(to, "\"");
}

/* --prompt or --prompt-ids as a line. */
static treadle_status write_prompt(const treadle_arguments *a, treadle_builder *to) {
  if (!!a->prompt + !!a->prompt_ids + !!a->file != 1)
    return treadle_fail(TREADLE_REFUSED, "give one of --prompt, --prompt-ids and --file");
  if (a->chat && !a->prompt)
    return treadle_fail(TREADLE_REFUSED, "--chat goes with --prompt; lines have messages");
  if (a->prompt_ids) treadle_builder_add(to, "{\"prompt_token_ids\": [%s]}\n", a->prompt_ids);
  if (a->prompt) {
    treadle_builder_add(to, "%s",
                        a->chat ? "{\"messages\": [{\"role\": \"user\", \"content\": " : "{\"prompt\": ");
    add_text(to, a->prompt);
    treadle_builder_add(to, "%s\n", a->chat ? "}]}" : "}");
  }
  return to->failed ? treadle_fail(TREADLE_NO_MEMORY, "no memory for the prompt") : TREADLE_OK;
}

/* ---- Figures ----------------------------------------------------------------------------------------- */

static void print(const treadle_engine_job *job, const treadle_arguments *a,
                  const treadle_generate_figures *f) {
  treadle_engine_info info = TREADLE_INIT(treadle_engine_info);
  double rate = f->seconds > 0 ? (double)f->new_tokens / f->seconds : 0;
  char digest[32];
  if (treadle_engine_get_info(job->engine, &info)) return;
  snprintf(digest, sizeof digest, "%016llx", (unsigned long long)f->digest);
  if (!a->json) {
    fprintf(stderr, "%lld samples, %lld new tokens, %.1f tokens/s, digest %s\n", (long long)f->samples,
            (long long)f->new_tokens, rate, digest);
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

/* What is there before the engine is: options, input, and whether the output can be written. */
static treadle_status prepare(treadle_engine_job *job, const treadle_arguments *a,
                              treadle_generate_options *options, treadle_builder *prompt,
                              treadle_builder *sampling) {
  treadle_status status;
  TRY(write_prompt(a, prompt));
  TRY(write_sampling(a, sampling));
  options->sampling = sampling->text;
  if (a->file) TRY(treadle_engine_job_read(job, a->file));
  TRY(treadle_engine_job_input(treadle_engine_job_text(job, a, a->file ? job->lines : prompt->text,
                                                       a->file ? job->line_bytes : prompt->length)));
  options->tokenizer = job->tokenizer;
  options->chat = job->chat;
  TRY(treadle_engine_job_write(job, a));
out:
  return status;
}

int treadle_command_generate(const treadle_arguments *a) {
  treadle_engine_job job = {0};
  treadle_generate_options options = {.struct_size = sizeof options,
                                      .what = a->file ? a->file : "the prompt",
                                      .seed = a->seed,
                                      .scaled = a->logprobs_of == 1,
                                      .answer = treadle_engine_job_answer,
                                      .context = &job,
                                      .watch = treadle_progress_watch};
  treadle_generate_figures figures = TREADLE_INIT(treadle_generate_figures);
  treadle_builder sampling = {0}, prompt = {0};
  treadle_session *session = &job.session;
  treadle_status status;
  TRY(treadle_session_start_if_launched(session, "generate", 60));
  if (session->rank > 0) options.watch = NULL;
  TRY(treadle_session_agree(session, prepare(&job, a, &options, &prompt, &sampling)));
  TRY(treadle_engine_job_open(&job, a, "vllm:tp=1"));
  status = treadle_engine_generate(job.engine, a->file ? job.lines : prompt.text,
                                   a->file ? job.line_bytes : prompt.length, &options, &figures);
  treadle_progress_end();
  TRY(treadle_session_agree(session, status));
  TRY(treadle_session_agree(session, treadle_engine_job_finish(&job, a)));
  if (session->rank == 0) print(&job, a, &figures);
out:
  treadle_builder_release(&sampling);
  treadle_builder_release(&prompt);
  return treadle_engine_job_end(&job, status);
}
