#include "cli/request_options.h"

#include "base/text.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

treadle_status treadle_read_number(const char *option, const char *text, double *number_p) {
  char *end = NULL;
  double number = text[strspn(text, "0123456789.eE+-")] ? 0 : strtod(text, &end);
  if (!end || end == text || *end || !isfinite(number))
    return treadle_fail(TREADLE_REFUSED, "%s is '%s', and must be a number", option, text);
  *number_p = number;
  return TREADLE_OK;
}

treadle_status treadle_read_ids(const char *option, const char *list, int32_t **ids_p, size_t *count_p) {
  size_t count = 0, room = strlen(list) + 1;
  int32_t *ids = calloc(room, sizeof *ids);
  if (!ids) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu ids", room);
  for (const char *at = list;; at++) {
    char one[24] = "";
    size_t length = strcspn(at, ",");
    int64_t id;
    snprintf(one, sizeof one, "%.*s", (int)(length < sizeof one ? length : sizeof one - 1), at);
    if (length >= sizeof one || !treadle_text_to_int64(one, &id) || id < 0 || id > INT32_MAX) {
      free(ids);
      return treadle_fail(TREADLE_REFUSED, "%s: '%s' is not an id: a whole number from 0 to %d", option,
                          one, INT32_MAX);
    }
    ids[count++] = (int32_t)id;
    at += length;
    if (!*at) break;
  }
  *ids_p = ids;
  *count_p = count;
  return TREADLE_OK;
}

/* ---- To JSON ---------------------------------------------------------------------------------------- */

static treadle_status no_memory(void) {
  return treadle_fail(TREADLE_NO_MEMORY, "no memory for the options");
}

/* The object has the value from now on. */
static treadle_status put(json_t *to, const char *name, json_t *value) {
  return json_object_set_new(to, name, value) == 0 ? TREADLE_OK : no_memory();
}

static treadle_status put_ids(json_t *to, const char *name, const char *option, const char *list) {
  int32_t *ids = NULL;
  size_t count;
  json_t *array = json_array();
  treadle_status status;
  TRY(treadle_read_ids(option, list, &ids, &count));
  for (size_t i = 0; i < count; i++)
    if (json_array_append_new(array, json_integer(ids[i]))) TRY(no_memory());
  TRY(put(to, name, json_incref(array)));
out:
  json_decref(array);
  free(ids);
  return status;
}

static treadle_status put_numbers(const treadle_arguments *a, json_t *to) {
  const struct {
    const char *option, *name, *text;
  } numbers[] = {{"--temperature", "temperature", a->sampling.temperature},
                 {"--top-p", "top_p", a->generate.top_p},
                 {"--min-p", "min_p", a->generate.min_p},
                 {"--repetition-penalty", "repetition_penalty", a->generate.repetition_penalty},
                 {"--presence-penalty", "presence_penalty", a->generate.presence_penalty},
                 {"--frequency-penalty", "frequency_penalty", a->generate.frequency_penalty}};
  const struct {
    const char *name;
    int64_t count;
  } counts[] = {{"top_k", a->generate.top_k},
                {"max_tokens", a->sampling.new_tokens},
                {"min_tokens", a->generate.min_new_tokens},
                {"n", a->sampling.samples},
                {"logprobs", a->generate.logprobs}};
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    double number = 0;
    if (!numbers[i].text) continue;
    TRY(treadle_read_number(numbers[i].option, numbers[i].text, &number));
    TRY(put(to, numbers[i].name, json_real(number)));
  }
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
    if (counts[i].count >= 0) TRY(put(to, counts[i].name, json_integer(counts[i].count)));
out:
  return status;
}

/* json_stringn and the like give NULL for what is not UTF-8. */
static treadle_status put_text(json_t *to, const char *name, const char *option, const char *text) {
  json_t *value = json_string(text);
  if (value) return put(to, name, value);
  return treadle_fail(TREADLE_REFUSED, "%s is not UTF-8, or there is no memory for it", option);
}

static treadle_status put_stops(const treadle_generate_arguments *a, json_t *to) {
  json_t *stops = json_array();
  treadle_status status = TREADLE_OK;
  if (!stops) return no_memory();
  for (int64_t i = 0; i < a->stop_count; i++)
    if (json_array_append_new(stops, json_string(a->stops[i])))
      TRY(treadle_fail(TREADLE_REFUSED, "--stop is not UTF-8, or there is no memory for it"));
  if (a->stop_count) TRY(put(to, "stop", json_incref(stops)));
out:
  json_decref(stops);
  return status;
}

static treadle_status dump(const json_t *object, char **text_p) {
  *text_p = json_dumps(object, JSON_COMPACT);
  return *text_p ? TREADLE_OK : no_memory();
}

treadle_status treadle_write_sampling(const treadle_arguments *a, char **json_p) {
  json_t *to = json_object();
  treadle_status status;
  TRY(put_numbers(a, to));
  if (a->generate.ignore_eos) TRY(put(to, "ignore_eos", json_true()));
  if (a->generate.stop_ids) TRY(put_ids(to, "stop_token_ids", "--stop-ids", a->generate.stop_ids));
  TRY(put_stops(&a->generate, to));
  TRY(dump(to, json_p));
out:
  json_decref(to);
  return status;
}

treadle_status treadle_write_prompt(const treadle_arguments *a, char **line_p) {
  json_t *to = NULL;
  treadle_status status = TREADLE_OK;
  if (!!a->generate.prompt + !!a->generate.prompt_ids + !!a->files.in != 1)
    return treadle_fail(TREADLE_REFUSED, "give one of --prompt, --prompt-ids and --file");
  if (a->text.chat && a->generate.prompt_ids)
    return treadle_fail(TREADLE_REFUSED, "--chat goes with --prompt and --file, not with --prompt-ids");
  if (a->files.in) return TREADLE_OK;
  to = json_object();
  if (a->generate.prompt) TRY(put_text(to, "prompt", "--prompt", a->generate.prompt));
  if (a->generate.prompt_ids) TRY(put_ids(to, "prompt_token_ids", "--prompt-ids", a->generate.prompt_ids));
  TRY(dump(to, line_p));
out:
  json_decref(to);
  return status;
}
