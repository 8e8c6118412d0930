#include "rl/dump.h"

#include "base/alloc.h"
#include "generate/answers.h"
#include "generate/json_values.h"
#include "generate/request_lines.h"
#include "io/file.h"
#include "io/file_look.h"
#include "io/json.h"
#include "pass/record_text.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const size_t FILE_MOST = (size_t)1
                                << 36; /* a token may have thousands of ids that it was drawn from */

/* ---- Writing -------------------------------------------------------------------------------------------------- */

static void add_ids(treadle_builder *line, const char *key, const int32_t *ids, int64_t count) {
  treadle_builder_add(line, ", \"%s\": [", key);
  for (int64_t i = 0; i < count; i++) treadle_builder_add(line, i ? ", %d" : "%d", ids[i]);
  treadle_builder_add(line, "]");
}

static void add_floats(treadle_builder *line, const char *key, const float *values, int64_t count) {
  char text[TREADLE_FLOAT_TEXT];
  if (!values) {
    treadle_builder_add(line, ", \"%s\": null", key);
    return;
  }
  treadle_builder_add(line, ", \"%s\": [", key);
  for (int64_t i = 0; i < count; i++) {
    treadle_float_text(values[i], text);
    treadle_builder_add(line, i ? ", %s" : "%s", text);
  }
  treadle_builder_add(line, "]");
}

static void add_doubles(treadle_builder *line, const char *key, const double *values, int64_t count) {
  treadle_builder_add(line, ", \"%s\": [", key);
  for (int64_t i = 0; i < count; i++) treadle_builder_add(line, i ? ", %.17g" : "%.17g", values[i]);
  treadle_builder_add(line, "]");
}

/* A list of each token's ids. */
static void add_kept(treadle_builder *line, const treadle_rl_sample *s) {
  const int32_t *id = s->kept;
  treadle_builder_add(line, s->kept_counts ? ", \"kept\": [" : ", \"kept\": null");
  for (int64_t t = 0; s->kept_counts && t < s->count; t++) {
    treadle_builder_add(line, t ? ", [" : "[");
    for (int32_t i = 0; i < s->kept_counts[t]; i++) treadle_builder_add(line, i ? ", %d" : "%d", *id++);
    treadle_builder_add(line, "]");
  }
  if (s->kept_counts) treadle_builder_add(line, "]");
}

static void add_experts(treadle_builder *line, const treadle_rl_sample *s) {
  const size_t tokens = (size_t)(s->prompt->count + s->count) - 1;
  treadle_builder_add(line, ", \"experts\": ");
  treadle_record_add_text(line, s->experts, s->experts_bytes,
                          s->experts_bytes / tokens / 2 / s->experts_top, s->experts_top);
}

static void add_line(treadle_builder *line, const treadle_rl_sample *s) {
  treadle_builder_add(line, "{\"uid\": \"%s\", \"prompt\": ", s->uid);
  treadle_json_add_text(line, s->prompt->text, strlen(s->prompt->text));
  treadle_builder_add(line, ", \"completion\": ");
  treadle_json_add_text(line, s->completion, s->completion_bytes);
  treadle_builder_add(line, ", \"answer\": ");
  treadle_json_add_text(line, s->prompt->answer, strlen(s->prompt->answer));
  add_ids(line, "prompt_ids", s->prompt->ids, s->prompt->count);
  add_ids(line, "ids", s->ids, s->count);
  add_floats(line, "rollout_log_probs", s->rollout, s->count);
  add_floats(line, "old_log_probs", s->old, s->count);
  add_floats(line, "ref_log_probs", s->ref, s->count);
  add_floats(line, "log_probs", s->updated, s->count);
  treadle_builder_add(line,
                      ", \"score\": %.17g, \"reward\": %.17g, \"advantage\": %.17g, \"mini_batch\": %lld",
                      s->score, s->reward, s->advantage, (long long)s->mini_batch);
  add_floats(line, "entropies", s->entropies, s->count);
  add_kept(line, s);
  if (s->experts && s->experts_bytes) add_experts(line, s);
  if (s->advantages) add_doubles(line, "advantages", s->advantages, s->count);
  if (!isnan(s->kl_coef)) treadle_builder_add(line, ", \"kl_coef\": %.17g", s->kl_coef);
  treadle_builder_add(line, "}\n");
}

treadle_status treadle_rl_dump_write(const char *folder, int64_t step, const treadle_rl_sample *samples,
                                     size_t count) {
  treadle_file_writer *writer = NULL;
  treadle_builder line = {0};
  char path[PATH_MAX];
  treadle_status status;
  if (snprintf(path, sizeof path, "%s/%lld.jsonl", folder, (long long)step) >= (int)sizeof path)
    REFUSE("%s: too long for a path", folder);
  TRY(treadle_file_writer_create(path, &writer));
  for (size_t i = 0; i < count; i++) {
    line.length = 0;
    add_line(&line, &samples[i]);
    if (line.failed) TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for a line", path));
    TRY(treadle_file_writer_append(writer, line.text, line.length));
  }
  TRY(treadle_file_writer_commit(writer));
out:
  treadle_file_writer_destroy(writer);
  treadle_builder_release(&line);
  return status;
}

/* ---- Reading -------------------------------------------------------------------------------------------------- */

/* Whether a line has to have a key. */
typedef enum presence { NEEDED, NEEDED_OR_NULL, OPTIONAL } presence;

static treadle_status no_memory(const treadle_request_reader *r, int64_t tokens) {
  return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for %lld tokens", r->name, (long long)tokens);
}

/* A list of `count` numbers that float32 can hold; *values_p is NULL where there is none. */
static treadle_status read_doubles(const treadle_request_reader *r, const char *key, presence must,
                                   int64_t count, treadle_arena *arena, const double **values_p) {
  const json_t *list = json_object_get(r->object, key);
  double *values;
  *values_p = NULL;
  if (!list && must == OPTIONAL) return TREADLE_OK;
  if (!list) REFUSE("%s: has no %s, which must be a list of numbers, one of each of ids", r->name, key);
  if (json_is_null(list) && must != NEEDED) return TREADLE_OK;
  if (!json_is_array(list) || (int64_t)json_array_size(list) != count)
    REFUSE("%s: %s must be a list of %lld numbers, one of each of ids", r->name, key, (long long)count);
  values = treadle_arena_alloc_array(arena, (size_t)count + 1, sizeof *values);
  if (!values) return no_memory(r, count);
  for (int64_t i = 0; i < count; i++) {
    const json_t *value = json_array_get(list, (size_t)i);
    values[i] = json_number_value(value);
    if (!json_is_number(value))
      REFUSE("%s: %s[%lld] is not a number%s", r->name, key, (long long)i, treadle_json_note(value));
    if (fabs(values[i]) > (double)FLT_MAX)
      REFUSE("%s: %s[%lld], %g, is beyond what 32 bits hold", r->name, key, (long long)i, values[i]);
  }
  *values_p = values;
  return TREADLE_OK;
}

static treadle_status read_floats(const treadle_request_reader *r, const char *key, presence must,
                                  int64_t count, treadle_arena *arena, const float **values_p) {
  const double *read;
  float *values = NULL;
  treadle_status status;
  *values_p = NULL;
  TRY(read_doubles(r, key, must, count, arena, &read));
  if (read) values = treadle_arena_alloc_array(arena, (size_t)count + 1, sizeof *values);
  if (read && !values) TRY(no_memory(r, count));
  for (int64_t i = 0; read && i < count; i++) values[i] = (float)read[i];
  *values_p = values;
out:
  return status;
}

static treadle_status read_ids(const treadle_request_reader *r, const char *key, int64_t vocabulary,
                               bool empty, treadle_arena *arena, const int32_t **ids_p, int64_t *count_p) {
  const json_t *list = json_object_get(r->object, key);
  int32_t *ids = NULL;
  treadle_status status;
  *count_p = 0;
  if (empty && json_is_array(list) && !json_array_size(list)) return TREADLE_OK;
  if (list && !json_is_array(list)) REFUSE("%s: %s must be a list of token ids", r->name, key);
  TRY(treadle_json_tokens(r->name, key, list, arena, &ids, count_p));
  TRY(treadle_request_check_ids(r->name, key, ids, *count_p, vocabulary));
  *ids_p = ids;
out:
  return status;
}

/* Counts of the ids of each token, and how many there are of all. */
static treadle_status count_kept(const treadle_request_reader *r, const json_t *list, int64_t count,
                                 int32_t *counts, size_t *all_p) {
  *all_p = 0;
  for (int64_t i = 0; i < count; i++) {
    const json_t *ids = json_array_get(list, (size_t)i);
    if (!json_is_array(ids) || !json_array_size(ids) || json_array_size(ids) > INT32_MAX)
      REFUSE("%s: kept[%lld] must be a list of token ids, one at least", r->name, (long long)i);
    counts[i] = (int32_t)json_array_size(ids);
    *all_p += json_array_size(ids);
  }
  return TREADLE_OK;
}

/* The ids that token `number`, `token`, was drawn from, of which it is one. */
static treadle_status read_kept_of(const treadle_request_reader *r, const json_t *list, int64_t number,
                                   int32_t token, int64_t vocabulary, int32_t *to) {
  bool found = false;
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *value = json_array_get(list, i);
    const json_int_t id = json_integer_value(value);
    if (!json_is_integer(value) || id < (i ? (json_int_t)to[i - 1] + 1 : 0) || id >= vocabulary)
      REFUSE("%s: kept[%lld]: item %zu: ids ascend, from 0 to %lld", r->name, (long long)number, i,
             (long long)vocabulary - 1);
    to[i] = (int32_t)id;
    found = found || id == token;
  }
  if (!found)
    REFUSE("%s: kept[%lld] has no %d, which is the token that was drawn", r->name, (long long)number,
           token);
  return TREADLE_OK;
}

static treadle_status read_kept(const treadle_request_reader *r, int64_t vocabulary, treadle_arena *arena,
                                treadle_rl_sample *s) {
  const json_t *list = json_object_get(r->object, "kept");
  int32_t *counts, *ids;
  size_t all, at = 0;
  treadle_status status;
  if (!list || json_is_null(list)) return TREADLE_OK;
  if (!json_is_array(list) || (int64_t)json_array_size(list) != s->count)
    REFUSE("%s: kept must be null, or have %lld lists of token ids, one of each of ids", r->name,
           (long long)s->count);
  counts = treadle_arena_alloc_array(arena, (size_t)s->count + 1, sizeof *counts);
  if (!counts) return no_memory(r, s->count);
  TRY(count_kept(r, list, s->count, counts, &all));
  ids = treadle_arena_alloc_array(arena, all + 1, sizeof *ids);
  if (!ids) return no_memory(r, (int64_t)all);
  for (int64_t i = 0; i < s->count; at += (size_t)counts[i++])
    TRY(read_kept_of(r, json_array_get(list, (size_t)i), i, s->ids[i], vocabulary, ids + at));
  s->kept_counts = counts;
  s->kept = ids;
out:
  return status;
}

/* The trainer looks at what they are. */
static treadle_status read_experts(const treadle_request_reader *r, treadle_arena *arena,
                                   treadle_rl_sample *s) {
  const json_t *list = json_object_get(r->object, "experts");
  treadle_record_list read = {.layers = 0};
  treadle_status status = TREADLE_OK;
  if (!list) return TREADLE_OK;
  TRY(treadle_record_read_text(r->name, list, &read));
  uint8_t *bytes = treadle_arena_alloc(arena, read.bytes.count + 1);
  if (!bytes) TRY(no_memory(r, s->count));
  if (read.bytes.count) memcpy(bytes, read.bytes.items, read.bytes.count);
  s->experts = bytes;
  s->experts_bytes = read.bytes.count;
  s->experts_top = read.top;
out:
  treadle_array_release(&read.bytes);
  return status;
}

static treadle_status read_real(const treadle_request_reader *r, const char *key, double *value_p) {
  return treadle_json_real(r->name, key, json_object_get(r->object, key), value_p);
}

static treadle_status read_real_if_there(const treadle_request_reader *r, const char *key, double other,
                                         double *value_p) {
  *value_p = other;
  return json_object_get(r->object, key) ? read_real(r, key, value_p) : TREADLE_OK;
}

/* uid is kept. */
static treadle_status read_texts(const treadle_request_reader *r, treadle_arena *arena,
                                 const char **uid_p) {
  static const char *const others[] = {"prompt", "completion", "answer"};
  treadle_text uid = {0};
  treadle_status status;
  TRY(treadle_json_text(r->name, "uid", json_object_get(r->object, "uid"), arena, &uid));
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    const json_t *text = json_object_get(r->object, others[i]);
    if (!text) REFUSE("%s: has no %s, which must be a text", r->name, others[i]);
    if (!json_is_string(text))
      REFUSE("%s: %s must be a text%s", r->name, others[i], treadle_json_note(text));
  }
  *uid_p = uid.bytes;
out:
  return status;
}

static treadle_status read_lists(const treadle_request_reader *r, int64_t vocabulary, treadle_arena *arena,
                                 treadle_rl_prompt *p, treadle_rl_sample *s) {
  treadle_status status;
  TRY(read_ids(r, "prompt_ids", vocabulary, false, arena, &p->ids, &p->count));
  TRY(read_ids(r, "ids", vocabulary, true, arena, &s->ids, &s->count));
  TRY(read_floats(r, "rollout_log_probs", NEEDED, s->count, arena, &s->rollout));
  TRY(read_floats(r, "old_log_probs", NEEDED, s->count, arena, &s->old));
  TRY(read_floats(r, "ref_log_probs", NEEDED_OR_NULL, s->count, arena, &s->ref));
  TRY(read_floats(r, "log_probs", OPTIONAL, s->count, arena, &s->updated));
  TRY(read_floats(r, "entropies", OPTIONAL, s->count, arena, &s->entropies));
  TRY(read_doubles(r, "advantages", OPTIONAL, s->count, arena, &s->advantages));
  TRY(read_kept(r, vocabulary, arena, s));
  TRY(read_experts(r, arena, s));
out:
  return status;
}

static treadle_status read_numbers(const treadle_request_reader *r, treadle_rl_sample *s) {
  treadle_status status;
  TRY(read_real(r, "score", &s->score));
  TRY(read_real(r, "advantage", &s->advantage));
  TRY(treadle_json_whole(r->name, "mini_batch", json_object_get(r->object, "mini_batch"), &s->mini_batch));
  if (s->mini_batch < 0) REFUSE("%s: mini_batch is %lld: 0 at least", r->name, (long long)s->mini_batch);
  TRY(read_real_if_there(r, "reward", s->score, &s->reward));
  TRY(read_real_if_there(r, "kl_coef", NAN, &s->kl_coef));
out:
  return status;
}

static treadle_status read_line(const treadle_request_reader *r, int64_t vocabulary,
                                treadle_rl_dumped *dumped) {
  treadle_rl_sample s = {0};
  treadle_rl_prompt *p = treadle_arena_alloc(&dumped->arena, sizeof *p);
  treadle_status status;
  if (!p) return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for a sample", r->name);
  *p = (treadle_rl_prompt){.text = "", .answer = "", .data_source = "", .line = r->line};
  s.prompt = p;
  TRY(read_texts(r, &dumped->arena, &s.uid));
  TRY(read_lists(r, vocabulary, &dumped->arena, p, &s));
  TRY(read_numbers(r, &s));
  TRY(treadle_array_push(&dumped->items, s));
out:
  return status;
}

treadle_status treadle_rl_dump_read(const char *path, int64_t vocabulary, treadle_rl_dumped *dumped_p) {
  treadle_request_reader r = {.what = path};
  char *text = NULL;
  bool more = false;
  treadle_status status;
  *dumped_p = (treadle_rl_dumped){0};
  TRY(treadle_file_check_lines(path));
  TRY(treadle_file_read(path, FILE_MOST, &text, &r.count));
  r.text = text;
  for (;;) {
    TRY(treadle_request_reader_next(&r, &more));
    if (!more) break;
    TRY(read_line(&r, vocabulary, dumped_p));
  }
  if (!dumped_p->items.count) status = treadle_fail(TREADLE_REFUSED, "%s: has no samples", path);
out:
  treadle_request_reader_release(&r);
  treadle_free(text);
  return status;
}

void treadle_rl_dumped_release(treadle_rl_dumped *dumped) {
  treadle_array_release(&dumped->items);
  treadle_arena_release(&dumped->arena);
}
