#include "train/rows_text.h"

#include "base/array.h"
#include "infer/json_values.h"

#include <stdlib.h>
#include <string.h>

typedef struct tokens { /* of a row, as they come */
  TREADLE_ARRAY(int32_t) ids;
  TREADLE_ARRAY(uint8_t) mask;
} tokens;

static treadle_status no_memory(const treadle_row_source *s) {
  return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its tokens", s->name);
}

static treadle_status put(tokens *to, int32_t id, bool counts) {
  treadle_status status;
  TRY(treadle_array_push(&to->ids, id));
  TRY(treadle_array_push(&to->mask, counts));
out:
  return status;
}

static void release(tokens *of) {
  treadle_array_release(&of->ids);
  treadle_array_release(&of->mask);
}

/* The row, without tokens at its end that nobody counts. */
static treadle_status keep(const treadle_row_source *s, const tokens *from, treadle_train_row *row) {
  size_t count = from->ids.count;
  while (count > 0 && !from->mask.items[count - 1]) count--;
  int32_t *ids = treadle_arena_alloc_array(s->arena, count + 1, sizeof *ids);
  uint8_t *mask = treadle_arena_alloc_array(s->arena, count + 1, sizeof *mask);
  if (!ids || !mask) return no_memory(s);
  if (count) memcpy(ids, from->ids.items, count * sizeof *ids);
  if (count) memcpy(mask, from->mask.items, count * sizeof *mask);
  mask[0] = 0; /* it has none before it */
  *row = (treadle_train_row){.ids = ids, .mask = mask, .count = count};
  return TREADLE_OK;
}

/* ---- Tokens of a text ------------------------------------------------------------------------------------ */

typedef struct encoded {
  int32_t *ids;
  size_t count;
} encoded;

static treadle_status encode(const treadle_row_source *s, const char *text, size_t bytes, bool special,
                             encoded *e) {
  treadle_status status;
  if (!s->spec->tokenizer)
    return treadle_fail(TREADLE_REFUSED, "%s: a text needs a tokenizer; the model's folder has none",
                        s->name);
  status = treadle_tokenizer_encode(s->spec->tokenizer, text, bytes, special, &e->ids, &e->count);
  return status ? treadle_fail_in(status, "%s: ", s->name) : status;
}

static treadle_status add(const treadle_row_source *s, const char *text, size_t bytes, bool special,
                          bool counts, tokens *to) {
  encoded e = {0};
  treadle_status status;
  TRY(encode(s, text, bytes, special, &e));
  for (size_t i = 0; i < e.count; i++) TRY(put(to, e.ids[i], counts));
out:
  free(e.ids);
  return status;
}

static int32_t end_token(const treadle_row_source *s) {
  return s->spec->tokenizer ? treadle_tokenizer_special(s->spec->tokenizer, TREADLE_EOS) : -1;
}

/* ---- Chats ----------------------------------------------------------------------------------------------- */

/* Messages as the template writes them; `answers`: up to where the assistant begins. */
static treadle_status render(const treadle_row_source *s, const json_t *messages, bool answers,
                             char **text_p, size_t *bytes_p) {
  const treadle_chat_options options = {.struct_size = sizeof options,
                                        .variables = answers ? "{\"add_generation_prompt\": true}" : NULL};
  char *json;
  treadle_status status;
  if (!s->spec->chat)
    return treadle_fail(TREADLE_REFUSED, "%s: messages need a chat template; the model's folder has none",
                        s->name);
  json = json_dumps(messages, JSON_COMPACT);
  if (!json) return no_memory(s);
  status = treadle_chat_render(s->spec->chat, json, &options, text_p, bytes_p);
  free(json);
  return status ? treadle_fail_in(status, "%s: ", s->name) : status;
}

/* [{"role": "user", "content": text}]; NULL: memory is out. */
static json_t *user_message(treadle_text text) {
  json_t *content = json_stringn(text.bytes, text.count);
  return content ? json_pack("[{s:s, s:o}]", "role", "user", "content", content) : NULL;
}

static treadle_status add_prompt(const treadle_row_source *s, tokens *to) {
  json_t *prompt = json_object_get(s->object, "prompt"), *made = NULL;
  bool listed = json_is_array(prompt);
  char *text = NULL;
  size_t bytes;
  treadle_text plain;
  treadle_status status = TREADLE_OK;
  if (!listed) TRY(treadle_json_text(s->name, "prompt", prompt, s->arena, &plain));
  if (!listed && !s->spec->chat) return add(s, plain.bytes, plain.count, true, false, to);
  made = listed ? json_incref(prompt) : user_message(plain);
  if (!made) return no_memory(s);
  TRY(render(s, made, true, &text, &bytes));
  TRY(add(s, text, bytes, false, false, to));
out:
  json_decref(made);
  free(text);
  return status;
}

treadle_status treadle_row_read_response(const treadle_row_source *s, treadle_train_row *row) {
  tokens all = {0};
  treadle_text response;
  int32_t end = end_token(s);
  treadle_status status;
  if (!json_object_get(s->object, "response"))
    return treadle_fail(TREADLE_REFUSED, "%s: has a prompt and no response", s->name);
  TRY(treadle_json_text(s->name, "response", json_object_get(s->object, "response"), s->arena, &response));
  TRY(add_prompt(s, &all));
  TRY(add(s, response.bytes, response.count, false, true, &all));
  if (end < 0)
    TRY(treadle_fail(TREADLE_REFUSED,
                     "%s: the tokenizer has no end token (eos_token) to put behind a response", s->name));
  TRY(put(&all, end, true));
  TRY(keep(s, &all, row));
out:
  release(&all);
  return status;
}

/* What the assistant says, up to its end token; what the template has behind that does not count. */
static treadle_status add_answer(const treadle_row_source *s, const char *text, size_t bytes, tokens *to) {
  encoded e = {0};
  int32_t end = end_token(s);
  size_t last;
  treadle_status status;
  TRY(encode(s, text, bytes, false, &e));
  last = e.count;
  for (size_t i = e.count; i-- > 0 && last == e.count;)
    if (e.ids[i] == end) last = i + 1;
  for (size_t i = 0; i < e.count; i++) TRY(put(to, e.ids[i], i < last));
out:
  free(e.ids);
  return status;
}

typedef struct rendered {
  char *text;
  size_t bytes, at; /* at: so much of it is in the row */
} rendered;

/* The text of messages [0, count), which begins as the last one did. */
static treadle_status render_some(const treadle_row_source *s, const json_t *messages, size_t count,
                                  bool answers, rendered *r) {
  json_t *some = json_array();
  char *text = NULL;
  size_t bytes;
  treadle_status status = TREADLE_OK;
  if (!some) return no_memory(s);
  for (size_t i = 0; i < count; i++)
    if (json_array_append(some, json_array_get(messages, i)) != 0) TRY(no_memory(s));
  TRY(render(s, some, answers, &text, &bytes));
  if (bytes < r->at || (r->at && memcmp(text, r->text, r->at) != 0))
    TRY(treadle_fail(
        TREADLE_REFUSED,
        "%s: message %zu changes what the chat template writes of those before it, so it cannot be "
        "said which tokens are the assistant's; give prompt and response instead",
        s->name, count - 1));
  free(r->text);
  r->text = text;
  r->bytes = bytes;
  text = NULL;
out:
  json_decref(some);
  free(text);
  return status;
}

treadle_status treadle_row_read_messages(const treadle_row_source *s, treadle_train_row *row) {
  const json_t *messages = json_object_get(s->object, "messages");
  rendered r = {0};
  tokens all = {0};
  treadle_status status = TREADLE_OK;
  if (!json_is_array(messages) || !json_array_size(messages))
    return treadle_fail(TREADLE_REFUSED, "%s: messages is no list of messages", s->name);
  for (size_t i = 0; i < json_array_size(messages); i++) {
    const char *role = json_string_value(json_object_get(json_array_get(messages, i), "role"));
    if (!role || strcmp(role, "assistant") != 0) continue;
    TRY(render_some(s, messages, i, true, &r));
    TRY(add(s, r.text + r.at, r.bytes - r.at, false, false, &all));
    r.at = r.bytes;
    TRY(render_some(s, messages, i + 1, false, &r));
    TRY(add_answer(s, r.text + r.at, r.bytes - r.at, &all));
    r.at = r.bytes;
  }
  TRY(keep(s, &all, row));
out:
  free(r.text);
  release(&all);
  return status;
}

/* ---- Texts ----------------------------------------------------------------------------------------------- */

treadle_status treadle_row_read_text(const treadle_row_source *s, treadle_train_row *row) {
  tokens all = {0};
  treadle_text text;
  treadle_status status;
  TRY(treadle_json_text(s->name, "text", json_object_get(s->object, "text"), s->arena, &text));
  TRY(add(s, text.bytes, text.count, true, true, &all));
  TRY(keep(s, &all, row));
out:
  release(&all);
  return status;
}
