#include "cli/engine_job.h"

#include "cli/engine_train.h"
#include "cli/json_lines.h"
#include "cli/open_text.h"
#include "treadle_tools.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAGE = 2 << 20 };

treadle_status treadle_engine_job_read(treadle_engine_job *job, const char *path) {
  treadle_json_lines lines = {0};
  treadle_status status = treadle_json_lines_open(&lines, path);
  job->lines = lines.text;
  job->line_bytes = lines.bytes;
  return treadle_as_refusal(status);
}

/* ---- Texts ------------------------------------------------------------------------------------------ */

/* Is a file of a tokenizer there? What cannot be read of it is said, though token ids need none. */
static bool has_tokenizer(const char *folder) {
  static const char *const names[] = {"tokenizer.json", "tokenizer_config.json", "vocab.json",
                                      "merges.txt"};
  char path[PATH_MAX];
  bool found = false;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (snprintf(path, sizeof path, "%s/%s", folder, names[i]) < (int)sizeof path)
      found |= access(path, F_OK) == 0;
  return found;
}

static void say(const treadle_engine_job *job, const char *what) {
  if (job->session.rank == 0)
    fprintf(stderr, "treadle %s: %s: %s\n", job->session.command, what, treadle_error_message());
}

static bool mentions(const treadle_engine_job *job, const char *key) {
  return memmem(job->lines, job->line_bytes, key, strlen(key)) != NULL;
}

treadle_status treadle_engine_job_text(treadle_engine_job *job, const treadle_arguments *a) {
  bool messages = a->text.chat || mentions(job, "\"messages\"");
  bool texts = messages || mentions(job, "\"prompt\"") || mentions(job, "\"text\"");
  treadle_status status = treadle_open_tokenizer(a->model.path, a->text.tokenizer, &job->tokenizer);
  if (status && (a->text.tokenizer || a->generate.prompt || status == TREADLE_NO_MEMORY)) return status;
  if (status && (texts || has_tokenizer(a->model.path))) say(job, "no tokenizer");
  if (status || !messages) return TREADLE_OK;
  status = treadle_open_chat(a->model.path, a->text.tokenizer, &job->chat);
  if (status && (a->text.chat || status == TREADLE_NO_MEMORY)) return status;
  if (status) say(job, "no chat template");
  return TREADLE_OK;
}

/* ---- The engine ------------------------------------------------------------------------------------- */

static treadle_status open_layout(treadle_engine_job *job, const treadle_arguments *a, const char *layout) {
  treadle_status status = treadle_open_model(&a->model, a->model.path, job->session.rank == 0, &job->model);
  if (!status) status = treadle_need_weights(job->model, a->model.path, job->session.rank == 0);
  if (status) return treadle_as_refusal(status);
  return treadle_layout_create(job->model, layout, job->session.size, NULL, &job->layout);
}

static treadle_status load(treadle_engine_job *job) {
  if (posix_memalign(&job->window, PAGE, job->window_bytes + 64) != 0)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu bytes of weights", job->window_bytes);
  return treadle_layout_load(job->layout, job->session.rank, job->window);
}

treadle_status treadle_engine_job_open(treadle_engine_job *job, const treadle_arguments *a,
                                       const char *layout) {
  treadle_generator_options options = {.struct_size = sizeof options,
                                       .fast = a->kernels.exact == 1,
                                       .kernels = a->kernels.name,
                                       .threads = (int32_t)a->kernels.threads,
                                       .max_batch = (int32_t)a->engine.max_batch,
                                       .prefill_chunk = (int32_t)a->engine.prefill_chunk,
                                       .block_tokens = (int32_t)a->engine.block_tokens,
                                       .prefix_cache =
                                           a->engine.prefix_cache == 1 ? TREADLE_OFF : TREADLE_DEFAULT,
                                       .kv_bytes = a->engine.kv_bytes,
                                       .max_len = a->engine.max_len,
                                       .experts = a->engine.experts};
  treadle_session *session = &job->session;
  treadle_status status;
  TRY(treadle_session_agree(session, open_layout(job, a, a->layouts.engine ? a->layouts.engine : layout)));
  TRY(treadle_session_agree(session,
                            treadle_generator_create(session->group, job->layout, &options, &job->engine)));
  job->window_bytes = treadle_layout_window_bytes(job->layout, session->rank);
  if (a->layouts.train) return treadle_engine_train_open(job, a);
  TRY(treadle_session_agree(session, load(job)));
  TRY(treadle_session_agree(session, treadle_generator_bind(job->engine, job->window, job->window_bytes)));
out:
  return status;
}

/* ---- Answers ---------------------------------------------------------------------------------------- */

treadle_status treadle_engine_job_write(treadle_engine_job *job, const treadle_arguments *a) {
  bool first = job->session.rank == 0;
  job->streams = first && a->generate.prompt && !a->files.out && !a->json;
  job->prints = first && !a->files.out && !a->json && !job->streams;
  job->texts.shows = isatty(STDOUT_FILENO);
  job->collects = first && a->files.out != NULL;
  return job->collects ? treadle_output_ask(a->files.out) : TREADLE_OK;
}

treadle_status treadle_engine_job_answer(void *context, const char *line, size_t bytes) {
  treadle_engine_job *job = context;
  if (job->streams) return treadle_sample_stream_next(&job->texts);
  if (job->prints && fwrite(line, 1, bytes, stdout) != bytes)
    return treadle_fail(TREADLE_SYSTEM, "an answer cannot be written: %s", strerror(errno));
  if (job->collects) treadle_builder_add(&job->answers, "%s", line);
  return job->answers.failed ? treadle_fail(TREADLE_NO_MEMORY, "no memory for the answers") : TREADLE_OK;
}

treadle_status treadle_engine_job_token(void *context, int64_t request, int64_t sample, const char *text,
                                        size_t bytes) {
  treadle_engine_job *job = context;
  (void)request;
  job->tokens++;
  return job->streams ? treadle_sample_stream_put(&job->texts, sample, text, bytes) : TREADLE_OK;
}

treadle_status treadle_engine_job_finish(treadle_engine_job *job, const treadle_arguments *a) {
  const char *text = job->answers.text ? job->answers.text : "";
  return job->collects ? treadle_output_write(a->files.out, text, strlen(text)) : TREADLE_OK;
}

int treadle_engine_job_end(treadle_engine_job *job, treadle_status status) {
  if (status && !job->session.said) treadle_session_abandon(&job->session, status);
  treadle_builder_release(&job->answers);
  treadle_engine_train_close(job);
  treadle_sample_stream_release(&job->texts);
  treadle_generator_destroy(job->engine);
  treadle_layout_destroy(job->layout);
  treadle_model_close(job->model);
  treadle_chat_close(job->chat);
  treadle_tokenizer_close(job->tokenizer);
  free(job->window);
  free(job->lines);
  int exit_status = treadle_finish_output(job->session.command, treadle_exit_status(status));
  treadle_session_end(&job->session);
  return exit_status;
}
