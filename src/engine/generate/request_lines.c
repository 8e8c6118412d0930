/* Lines of requests: taking a file apart, ids, and what is asked. */
#include "generate/request_lines.h"

#include "base/json.h"
#include "base/text.h"
#include "generate/json_values.h"

#include <stdio.h>
#include <string.h>

/* ---- Lines ---- */

static bool is_blank(const char *text, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (!memchr(" \t\r", text[i], 3)) return false;
  return true;
}

static treadle_status parse(treadle_request_reader *reader, const char *text, size_t count) {
  const treadle_json_source source = {.what = reader->name,
                                      .text = text,
                                      .count = count,
                                      .line = reader->line,
                                      .one_line = true,
                                      .zeros = true};
  treadle_status status = treadle_json_read(&source, &reader->object);
  if (status) return status;
  if (!treadle_json_is_object(reader->object)) REFUSE("%s: not an object", reader->name);
  return TREADLE_OK;
}

treadle_status treadle_request_reader_next(treadle_request_reader *reader, bool *more_p) {
  const char *text = NULL;
  size_t count = 0;
  reader->number = reader->object ? reader->number + 1 : 0;
  treadle_request_reader_release(reader);
  *more_p = false;
  if ((int64_t)reader->count > TREADLE_MOST_REQUEST_BYTES)
    REFUSE("%s: has %zu bytes; the limit is %lld", reader->what, reader->count,
           (long long)TREADLE_MOST_REQUEST_BYTES);
  if (reader->at == 0) reader->at = treadle_json_mark(reader->text, reader->count);
  do {
    if (reader->at >= reader->count) return TREADLE_OK;
    text = reader->text + reader->at;
    const char *end = memchr(text, '\n', reader->count - reader->at);
    count = end ? (size_t)(end - text) : reader->count - reader->at;
    reader->at += count + 1;
    reader->line++;
  } while (is_blank(text, count));
  snprintf(reader->name, sizeof reader->name, "%.400s: line %lld", reader->what, (long long)reader->line);
  if (count > TREADLE_MOST_LINE_BYTES)
    REFUSE("%s: has %zu bytes; the limit is %d", reader->name, count, TREADLE_MOST_LINE_BYTES);
  if (reader->number >= TREADLE_MOST_REQUESTS)
    REFUSE("%s: the limit is %d requests", reader->name, TREADLE_MOST_REQUESTS);
  *more_p = true;
  return parse(reader, text, count);
}

void treadle_request_reader_release(treadle_request_reader *reader) {
  json_decref(reader->object);
  reader->object = NULL;
}

/* ---- Keys ---- */

static bool has_name(const char *const *names, const char *key, const char **nearest_p, int *best_p) {
  for (; *names; names++) {
    int distance = treadle_text_distance(key, *names);
    if (distance < *best_p) {
      *best_p = distance;
      *nearest_p = *names;
    }
    if (strcmp(key, *names) == 0) return true;
  }
  return false;
}

treadle_status treadle_request_check_keys(const treadle_request_reader *reader, const char *const *names,
                                          const char *const *others) {
  const char *key, *nearest = "";
  json_t *value;
  json_object_foreach(reader->object, key, value) {
    int best = 1 << 30;
    if (!has_name(names, key, &nearest, &best) && !has_name(others, key, &nearest, &best))
      REFUSE("%s: '%.100s' is not a key (nearest: %s)", reader->name, key, nearest);
  }
  return TREADLE_OK;
}

treadle_status treadle_request_read_id(const treadle_request_reader *reader, treadle_arena *arena,
                                       treadle_request_id *id_p) {
  const json_t *value = json_object_get(reader->object, "id");
  *id_p = (treadle_request_id){.number = reader->number};
  if (!value || json_is_null(value)) return TREADLE_OK;
  if (json_is_string(value)) return treadle_json_text(reader->name, "id", value, arena, &id_p->text);
  if (!json_is_integer(value))
    REFUSE("%s: id must be a text or a whole number%s", reader->name, treadle_json_note(value));
  id_p->number = json_integer_value(value);
  return TREADLE_OK;
}

/* ---- What is asked ---- */

treadle_status treadle_request_check_ids(const char *what, const char *key, const int32_t *tokens,
                                         int64_t count, int64_t vocabulary) {
  if (count == 0) REFUSE("%s: %s is empty", what, key);
  if (count > TREADLE_MOST_PROMPT_TOKENS)
    REFUSE("%s: %s has %lld tokens; the limit is %d", what, key, (long long)count,
           TREADLE_MOST_PROMPT_TOKENS);
  for (int64_t i = 0; i < count && vocabulary > 0; i++)
    if (tokens[i] < 0 || tokens[i] >= vocabulary)
      REFUSE("%s: %s: %d is not in the vocabulary of %lld tokens", what, key, tokens[i],
             (long long)vocabulary);
  return TREADLE_OK;
}

treadle_status treadle_request_read_tokens(const treadle_request_reader *reader,
                                           const treadle_requests_spec *spec, const char *key,
                                           treadle_arena *arena, treadle_request_input *input_p) {
  const json_t *value = json_object_get(reader->object, key);
  int32_t *tokens = NULL;
  treadle_status status;
  if (!json_is_array(value)) REFUSE("%s: %s must be a list of token ids", reader->name, key);
  TRY(treadle_json_tokens(reader->name, key, value, arena, &tokens, &input_p->token_count));
  TRY(treadle_request_check_ids(reader->name, key, tokens, input_p->token_count, spec->vocabulary));
  input_p->tokens = tokens;
out:
  return status;
}

static treadle_status read_messages(const treadle_request_reader *reader, json_t *value,
                                    treadle_request_input *input_p) {
  if (!json_is_array(value)) REFUSE("%s: messages must be a list", reader->name);
  if (json_array_size(value) == 0) REFUSE("%s: messages is empty", reader->name);
  for (size_t i = 0; i < json_array_size(value); i++)
    if (!json_is_string(json_object_get(json_array_get(value, i), "role")))
      REFUSE("%s: messages[%zu] is not an object with a text role", reader->name, i);
  input_p->messages = json_incref(value);
  return TREADLE_OK;
}

treadle_status treadle_request_read_input(const treadle_request_reader *reader,
                                          const treadle_requests_spec *spec, const char *const keys[3],
                                          treadle_arena *arena, treadle_request_input *input_p) {
  int found = -1, count = 0;
  json_t *value = NULL;
  treadle_status status;
  for (int i = 0; i < 3; i++) {
    json_t *item = json_object_get(reader->object, keys[i]);
    if (!item || json_is_null(item)) continue;
    value = item;
    found = i;
    count++;
  }
  if (count != 1)
    REFUSE("%s: has %s of %s, %s and %s; it must have one", reader->name, count ? "more than one" : "none",
           keys[0], keys[1], keys[2]);
  input_p->type = (treadle_request_type)found;
  if (input_p->type == TREADLE_REQUEST_MESSAGES) return read_messages(reader, value, input_p);
  if (input_p->type == TREADLE_REQUEST_TOKENS)
    return treadle_request_read_tokens(reader, spec, keys[found], arena, input_p);
  TRY(treadle_json_text(reader->name, keys[found], value, arena, &input_p->text));
  if (input_p->text.count == 0) REFUSE("%s: %s is empty", reader->name, keys[found]);
out:
  return status;
}
