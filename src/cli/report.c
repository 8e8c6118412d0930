/* treadle report: reads what a run has left, and writes a page. */
#include "cli/report.h"

#include "base/alloc.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/json_lines.h"
#include "cli/json_out.h"
#include "treadle_tools.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool has(const treadle_run_files *run, const char *name, char path[PATH_MAX]) {
  return snprintf(path, PATH_MAX, "%s/%s", run->run, name) < PATH_MAX && access(path, R_OK) == 0;
}

/* ---- Lines --------------------------------------------------------------------------------------------------- */

/* Objects of a file; a last line without an end, which a killed run leaves, is passed over. */
static treadle_status read_lines(const char *path, json_t ***items_p, size_t *count_p) {
  treadle_json_lines lines = {0};
  size_t room = 0;
  treadle_status status;
  TRY(treadle_json_lines_open(&lines, path));
  while (lines.bytes && lines.text[lines.bytes - 1] != '\n') lines.bytes--;
  for (;;) {
    json_t *object;
    TRY(treadle_json_lines_next(&lines, &object));
    if (!object) break;
    if (*count_p == room) {
      room = room ? 2 * room : 256;
      json_t **more = treadle_realloc(*items_p, room * sizeof *more);
      if (!more) {
        json_decref(object);
        TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its lines", path));
      }
      *items_p = more;
    }
    (*items_p)[(*count_p)++] = object;
  }
out:
  treadle_json_lines_close(&lines);
  return status;
}

static treadle_status read_object(const treadle_run_files *run, const char *name, json_t **root_p) {
  char path[PATH_MAX];
  treadle_json_lines text = {0}; /* a whole file is all that is wanted of it */
  treadle_status status = TREADLE_OK;
  if (!has(run, name, path)) return TREADLE_OK;
  TRY(treadle_json_lines_open(&text, path));
  const treadle_json_source source = {.what = path, .text = text.text, .count = text.bytes};
  TRY(treadle_json_read(&source, root_p));
  if (!treadle_json_is_object(*root_p)) TRY(treadle_fail(TREADLE_REFUSED, "%s: is not an object", path));
out:
  treadle_json_lines_close(&text);
  return status;
}

static treadle_status read_config(treadle_run_files *run) {
  treadle_json_lines text = {0}; /* a whole file is all that is wanted of it */
  char path[PATH_MAX];
  treadle_status status = TREADLE_OK;
  if (!has(run, "config.yaml", path)) return TREADLE_OK;
  TRY(treadle_json_lines_open(&text, path));
  run->config = treadle_alloc_array(text.bytes + 1, 1);
  if (!run->config) TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its text", path));
  memcpy(run->config, text.text, text.bytes);
  run->config[text.bytes] = 0;
out:
  treadle_json_lines_close(&text);
  return status;
}

/* Steps are numbers, which later code takes for granted. */
static treadle_status check_steps(const treadle_run_files *run, const char *path) {
  for (size_t i = 0; i < run->count; i++)
    if (!json_is_integer(json_object_get(run->lines[i], "step")))
      REFUSE("%s: line %zu: step is not a whole number", path, i + 1);
  return TREADLE_OK;
}

/* As before a run's first line. */
static bool is_empty(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISREG(info.st_mode) && info.st_size == 0;
}

static treadle_status read_run(treadle_run_files *run) {
  char path[PATH_MAX];
  treadle_status status;
  if (access(run->run, F_OK) != 0) REFUSE("%s: there is no such folder", run->run);
  if (!has(run, "metrics.jsonl", path))
    REFUSE("%s: has no metrics.jsonl that can be read: it is not a folder of a run", run->run);
  if (!is_empty(path)) TRY(read_lines(path, &run->lines, &run->count));
  TRY(check_steps(run, path));
  if (has(run, "samples.jsonl", path)) TRY(read_lines(path, &run->samples, &run->sample_count));
  TRY(read_object(run, "memory.json", &run->memory));
  TRY(read_object(run, "switch.json", &run->traffic));
  if (has(run, "trace.jsonl", path) && !is_empty(path)) TRY(treadle_run_trace_read(path, &run->trace));
  TRY(read_config(run));
out:
  return status;
}

static void release(treadle_run_files *run) {
  for (size_t i = 0; i < run->count; i++) json_decref(run->lines[i]);
  for (size_t i = 0; i < run->sample_count; i++) json_decref(run->samples[i]);
  treadle_free(run->lines);
  treadle_free(run->samples);
  treadle_free(run->config);
  json_decref(run->memory);
  json_decref(run->traffic);
  treadle_run_trace_release(&run->trace);
}

/* ---- Figures --------------------------------------------------------------------------------------------------- */

/* Of all sources of a test, the mean of mean@N. */
static double test_of(json_t *line) {
  const char *key;
  json_t *value;
  double sum = 0;
  int count = 0;
  json_object_foreach(line, key, value) {
    if (strncmp(key, "val-core/", 9) != 0 || !strstr(key, "/reward/mean@") || !json_is_number(value))
      continue;
    sum += json_number_value(value);
    count++;
  }
  return count ? sum / count : NAN;
}

double treadle_run_value(const treadle_run_files *run, size_t line, const char *name) {
  if (strcmp(name, "val") == 0) return test_of(run->lines[line]);
  const json_t *value = json_object_get(run->lines[line], name);
  return json_is_number(value) && isfinite(json_number_value(value)) ? json_number_value(value) : NAN;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(const treadle_run_files *run, const char *name) {
  double *values = treadle_alloc_array(run->count + 1, sizeof *values), found = NAN;
  size_t count = 0;
  for (size_t i = 0; values && i < run->count; i++) {
    double value = treadle_run_value(run, i, name);
    if (!isnan(value)) values[count++] = value;
  }
  if (count) {
    qsort(values, count, sizeof *values, compare);
    found = values[count / 2];
  }
  treadle_free(values);
  return found;
}

static const char reward[] = "critic/rewards/mean";

/* The mean of the first or the last steps that have a reward. */
static double mean_reward(const treadle_run_files *run, int64_t steps, bool last) {
  double sum = 0;
  int64_t count = 0;
  for (size_t k = 0; k < run->count && count < steps; k++) {
    double value = treadle_run_value(run, last ? run->count - 1 - k : k, reward);
    if (isnan(value)) continue;
    sum += value;
    count++;
  }
  return count ? sum / (double)count : NAN;
}

void treadle_run_sum_up(const treadle_run_files *run, treadle_run_summary *summary_p) {
  int64_t rewards = 0;
  treadle_run_summary s = {.step_seconds = median(run, "timing_s/step"),
                           .tokens_per_second = median(run, "perf/throughput")};
  for (size_t i = 0; i < run->count; i++) {
    double differing = treadle_run_value(run, i, "training/logprob_differing"),
           compared = treadle_run_value(run, i, "training/logprob_tokens"),
           peak = treadle_run_value(run, i, "perf/max_memory_allocated_gb") * (1 << 30);
    bool rewarded = !isnan(treadle_run_value(run, i, reward));
    rewards += rewarded;
    s.steps += rewarded || !isnan(treadle_run_value(run, i, "train/loss"));
    if (!isnan(differing)) s.differing += (int64_t)differing;
    if (!isnan(compared)) s.compared += (int64_t)compared;
    if (peak > s.peak_bytes) s.peak_bytes = peak;
  }
  s.reward_steps = rewards < 10 ? 1 : rewards / 10; /* as `treadle train` has it */
  s.reward_first = mean_reward(run, s.reward_steps, false);
  s.reward_last = mean_reward(run, s.reward_steps, true);
  const json_t *predicted = json_object_get(run->memory, "predicted_bytes");
  s.predicted_bytes = json_is_number(predicted) ? json_number_value(predicted) : 0;
  *summary_p = s;
}

static void print_json(const treadle_run_summary *s, const char *path, const char *trace) {
  treadle_json_out out = {.file = stdout};
  treadle_json_out_open(&out, NULL, '{');
  treadle_json_out_int(&out, "steps", s->steps);
  treadle_json_out_exact(&out, "reward_first", s->reward_first);
  treadle_json_out_exact(&out, "reward_last", s->reward_last);
  treadle_json_out_int(&out, "logprob_tokens", s->compared);
  treadle_json_out_int(&out, "logprob_differing", s->differing);
  treadle_json_out_int(&out, "peak_bytes", (int64_t)s->peak_bytes);
  treadle_json_out_int(&out, "peak_predicted_bytes", (int64_t)s->predicted_bytes);
  treadle_json_out_exact(&out, "step_seconds", s->step_seconds);
  treadle_json_out_exact(&out, "tokens_per_second", s->tokens_per_second);
  treadle_json_out_text(&out, "report", path);
  if (trace) treadle_json_out_text(&out, "trace", trace);
  treadle_json_out_close(&out, '}');
}

static void print(const treadle_run_summary *s, const char *path) {
  if (!s->steps)
    printf("no steps yet, and no rewards: %s\n", path);
  else if (isnan(s->reward_first))
    printf("%s, no rewards: %s\n", treadle_text_of_count(s->steps, "step"), path);
  else
    printf("%s, reward %.4f to %.4f: %s\n", treadle_text_of_count(s->steps, "step"), s->reward_first,
           s->reward_last, path);
}

/* What is written can be; trace: NULL: it is not asked for. */
static treadle_status check_files(const treadle_run_files *run, const char *page, const char *trace) {
  char path[PATH_MAX];
  treadle_status status;
  TRY(treadle_output_ask(page));
  if (!trace) return TREADLE_OK;
  if (strcmp(page, trace) == 0) REFUSE("--trace: %s is where the page goes", trace);
  status = treadle_output_ask(trace);
  if (status) return treadle_fail_in(status, "--trace: ");
  if (!has(run, "trace.jsonl", path))
    REFUSE("--trace: %s has no trace.jsonl that can be read: treadle train writes one", run->run);
out:
  return status;
}

int treadle_command_report(const treadle_arguments *a) {
  treadle_run_files run = {.run = a->words[0]};
  treadle_run_summary summary;
  treadle_builder page = {0};
  const char *trace = a->files.trace;
  char path[PATH_MAX];
  treadle_status status;
  snprintf(path, sizeof path, "%s/report.html", run.run);
  if (a->files.out) snprintf(path, sizeof path, "%s", a->files.out);
  TRY(treadle_as_refusal(read_run(&run)));
  TRY(treadle_as_refusal(check_files(&run, path, trace)));
  treadle_run_sum_up(&run, &summary);
  treadle_page_write(&page, &run, &summary);
  if (page.failed) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the page"));
  TRY(treadle_output_write(path, page.text, page.length));
  if (trace) TRY(treadle_run_trace_write(&run.trace, trace));
  if (a->json)
    print_json(&summary, path, trace);
  else
    print(&summary, path);
out:
  treadle_builder_release(&page);
  release(&run);
  return status ? treadle_report_error("report", status) : treadle_finish_output("report", TREADLE_EXIT_OK);
}
