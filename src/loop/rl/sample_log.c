#include "rl/sample_log.h"

#include "base/alloc.h"
#include "io/file.h"
#include "io/json.h"
#include "run/growing.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct treadle_rl_sample_log {
  treadle_growing file;
  treadle_builder text;
};

static void add_text(treadle_builder *line, const char *key, const char *text, size_t bytes) {
  treadle_builder_add(line, ", \"%s\": ", key);
  treadle_json_add_text(line, text, bytes);
}

static void add_line(treadle_builder *line, int64_t step, const treadle_rl_sample *s) {
  treadle_builder_add(line, "{\"step\": %lld, \"uid\": \"%s\"", (long long)step, s->uid);
  add_text(line, "prompt", s->prompt->text, strlen(s->prompt->text));
  add_text(line, "completion", s->completion, s->completion_bytes);
  add_text(line, "answer", s->prompt->answer, strlen(s->prompt->answer));
  treadle_builder_add(line, ", \"score\": %.17g, \"length\": %lld", s->score, (long long)s->count);
  add_text(line, "data_source", s->prompt->data_source, strlen(s->prompt->data_source));
  treadle_builder_add(line, "}\n");
}

treadle_status treadle_rl_sample_log_open(const char *folder, int64_t step, treadle_rl_sample_log **log_p) {
  treadle_rl_sample_log *log = treadle_alloc(sizeof *log);
  treadle_status status;
  *log_p = NULL;
  if (!log) return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for a log of samples", folder);
  log->file.fd = -1;
  TRY(treadle_growing_open(&log->file, folder, "samples.jsonl", step));
  *log_p = log;
  log = NULL;
out:
  treadle_rl_sample_log_close(log);
  return status;
}

treadle_status treadle_rl_sample_log_put(treadle_rl_sample_log *log, int64_t step,
                                         const treadle_rl_sample *samples, size_t count) {
  log->text.length = 0;
  for (size_t i = 0; i < count; i++) add_line(&log->text, step, &samples[i]);
  return treadle_growing_append(&log->file, &log->text);
}

void treadle_rl_sample_log_note(const treadle_rl_sample_log *log, char *text, size_t room) {
  treadle_growing_note(&log->file, text, room);
}

void treadle_rl_sample_log_close(treadle_rl_sample_log *log) {
  if (!log) return;
  if (log->file.fd >= 0) close(log->file.fd);
  treadle_builder_release(&log->text);
  treadle_free(log);
}

treadle_status treadle_rl_samples_write(const char *folder, int64_t step, const treadle_rl_sample *samples,
                                        size_t count) {
  treadle_builder text = {0};
  char path[PATH_MAX];
  treadle_status status;
  snprintf(path, sizeof path, "%s/%lld.jsonl", folder, (long long)step);
  for (size_t i = 0; i < count; i++) add_line(&text, step, &samples[i]);
  if (text.failed) TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for samples", path));
  TRY(treadle_file_write(path, text.text ? text.text : "", text.length));
out:
  treadle_builder_release(&text);
  return status;
}
