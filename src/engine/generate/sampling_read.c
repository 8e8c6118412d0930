/* Sampling values out of JSON: generation_config.json and lines of requests. The table says what is read from where. */
#include "base/json.h"
#include "generate/json_values.h"
#include "generate/sampling.h"

#include <string.h>

typedef enum value_type { REAL, WHOLE, TRUTH } value_type;

static const struct {
  const char *line, *config; /* names there; NULL: it has none */
  value_type type;
  size_t at;
} values[] = {
    {"temperature", "temperature", REAL, offsetof(treadle_sampling_values, temperature)},
    {"top_k", "top_k", WHOLE, offsetof(treadle_sampling_values, top_k)},
    {"top_p", "top_p", REAL, offsetof(treadle_sampling_values, top_p)},
    {"min_p", "min_p", REAL, offsetof(treadle_sampling_values, min_p)},
    {"repetition_penalty", "repetition_penalty", REAL,
     offsetof(treadle_sampling_values, repetition_penalty)},
    {"presence_penalty", NULL, REAL, offsetof(treadle_sampling_values, presence_penalty)},
    {"frequency_penalty", NULL, REAL, offsetof(treadle_sampling_values, frequency_penalty)},
    {"max_tokens", "max_new_tokens", WHOLE, offsetof(treadle_sampling_values, max_tokens)},
    {"min_tokens", NULL, WHOLE, offsetof(treadle_sampling_values, min_tokens)},
    {"n", NULL, WHOLE, offsetof(treadle_sampling_values, n)},
    {"logprobs", NULL, WHOLE, offsetof(treadle_sampling_values, logprobs)},
    {"ignore_eos", NULL, TRUTH, offsetof(treadle_sampling_values, ignore_eos)},
};
enum { VALUES = sizeof values / sizeof *values };

const char *const treadle_sampling_keys[] = {"temperature",
                                             "top_k",
                                             "top_p",
                                             "min_p",
                                             "repetition_penalty",
                                             "presence_penalty",
                                             "frequency_penalty",
                                             "max_tokens",
                                             "min_tokens",
                                             "n",
                                             "logprobs",
                                             "ignore_eos",
                                             "seed",
                                             "stop",
                                             "stop_token_ids",
                                             NULL};

static treadle_status read_value(const char *what, const json_t *object, const char *key, int i,
                                 treadle_sampling_values *sampling_p) {
  void *to = (char *)sampling_p + values[i].at;
  const json_t *value = json_object_get(object, key);
  if (!value || json_is_null(value)) return TREADLE_OK;
  if (values[i].type == REAL) return treadle_json_real(what, key, value, to);
  if (values[i].type == WHOLE) return treadle_json_whole(what, key, value, to);
  return treadle_json_truth(what, key, value, to);
}

treadle_status treadle_sampling_read_config(const char *what, const json_t *config,
                                            treadle_sampling_values *sampling_p) {
  treadle_status status = TREADLE_OK;
  if (!treadle_json_is_object(config)) REFUSE("%s: not an object", what);
  for (int i = 0; i < VALUES; i++)
    if (values[i].config) TRY(read_value(what, config, values[i].config, i, sampling_p));
  TRY(treadle_sampling_check(what, sampling_p));
out:
  return status;
}

treadle_status treadle_eos_read(const char *what, const json_t *config, treadle_arena *arena,
                                treadle_eos *eos_p) {
  const json_t *value = json_object_get(config, "eos_token_id");
  int64_t count = 0, kept = 0;
  int32_t *ids = NULL;
  treadle_status status = TREADLE_OK;
  *eos_p = (treadle_eos){0};
  if (!value || json_is_null(value)) return TREADLE_OK;
  TRY(treadle_json_tokens(what, "eos_token_id", value, arena, &ids, &count));
  for (int64_t i = 0; i < count; i++) {
    int64_t same = 0;
    while (same < kept && ids[same] != ids[i]) same++;
    if (same == kept) ids[kept++] = ids[i];
    if (kept > TREADLE_MOST_STOPS)
      REFUSE("%s: eos_token_id has more than %d ids", what, TREADLE_MOST_STOPS);
  }
  *eos_p = (treadle_eos){ids, (int32_t)kept};
out:
  return status;
}

/* A text or a list of texts. */
static treadle_status read_stop(const char *what, const json_t *value, treadle_arena *arena,
                                treadle_sampling_values *sampling_p) {
  size_t count = json_is_array(value) ? json_array_size(value) : 1;
  treadle_status status = TREADLE_OK;
  if (count > TREADLE_MOST_STOPS) REFUSE("%s: stop has more than %d items", what, TREADLE_MOST_STOPS);
  treadle_text *texts = treadle_arena_alloc_array(arena, count + 1, sizeof *texts);
  if (!texts) return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its stop texts", what);
  for (size_t i = 0; i < count; i++)
    TRY(treadle_json_text(what, "stop", json_is_array(value) ? json_array_get(value, i) : value, arena,
                          &texts[i]));
  sampling_p->stop = texts;
  sampling_p->stop_count = (int32_t)count;
out:
  return status;
}

static treadle_status read_stop_ids(const char *what, const json_t *value, treadle_arena *arena,
                                    treadle_sampling_values *sampling_p) {
  int64_t count = 0;
  int32_t *ids = NULL;
  treadle_status status;
  if (!json_is_array(value)) REFUSE("%s: stop_token_ids must be a list of token ids", what);
  TRY(treadle_json_tokens(what, "stop_token_ids", value, arena, &ids, &count));
  if (count > TREADLE_MOST_STOPS)
    REFUSE("%s: stop_token_ids has more than %d items", what, TREADLE_MOST_STOPS);
  sampling_p->stop_ids = ids;
  sampling_p->stop_id_count = (int32_t)count;
out:
  return status;
}

/* -1 is none, as vLLM has it. */
static treadle_status read_seed(const char *what, const json_t *value,
                                treadle_sampling_values *sampling_p) {
  treadle_status status;
  TRY(treadle_json_whole(what, "seed", value, &sampling_p->seed));
  sampling_p->has_seed = sampling_p->seed != -1;
out:
  return status;
}

treadle_status treadle_sampling_read_line(const char *what, const json_t *line, treadle_arena *arena,
                                          treadle_sampling_values *sampling_p) {
  const json_t *stop = json_object_get(line, "stop"), *ids = json_object_get(line, "stop_token_ids"),
               *seed = json_object_get(line, "seed");
  treadle_status status = TREADLE_OK;
  for (int i = 0; i < VALUES; i++) TRY(read_value(what, line, values[i].line, i, sampling_p));
  if (seed && !json_is_null(seed)) TRY(read_seed(what, seed, sampling_p));
  if (stop && !json_is_null(stop)) TRY(read_stop(what, stop, arena, sampling_p));
  if (ids && !json_is_null(ids)) TRY(read_stop_ids(what, ids, arena, sampling_p));
out:
  return status;
}
