#include "sft/rows_text.h"

#include "base/json.h"
#include "generate/json_values.h"
#include "sft/rows_parts.h"

#include <stdlib.h>
#include <string.h>

static treadle_status no_memory(const treadle_row_source *s) {
  return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its tokens", s->name);
}

/* A text under a key, which lives as long as the object. */
static treadle_status text_of(const treadle_row_source *s, const char *key, treadle_text *text_p) {
  const json_t *value = json_object_get(s->object, key);
  if (!json_is_string(value)) REFUSE("%s: %s must be a text%s", s->name, key, treadle_json_note(value));
  *text_p = (treadle_text){.bytes = json_string_value(value), .count = json_string_length(value)};
  return TREADLE_OK;
}

/* ---- Chats ----------------------------------------------------------------------------------------------- */

/* Messages as the template writes them; `answers`: up to where the assistant begins. */
static treadle_status render(const treadle_row_source *s, json_t *messages, bool answers, char **text_p,
                             size_t *bytes_p) {
  const treadle_chat_options options = {.struct_size = sizeof options,
                                        .variables = answers ? "{\"add_generation_prompt\": true}" : NULL};
  char *json;
  treadle_status status;
  if (!s->spec->chat) REFUSE("%s: messages need a chat template; the model's folder has none", s->name);
  json = treadle_json_dump(messages, JSON_COMPACT);
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

static treadle_status add_prompt(const treadle_row_source *s, treadle_row_parts *parts) {
  json_t *prompt = json_object_get(s->object, "prompt"), *made = NULL;
  bool listed = json_is_array(prompt);
  char *text = NULL;
  size_t bytes;
  treadle_text plain;
  treadle_status status = TREADLE_OK;
  if (!listed && !json_is_string(prompt))
    REFUSE("%s: prompt must be a text or a list of messages%s", s->name, treadle_json_note(prompt));
  if (listed && !json_array_size(prompt)) REFUSE("%s: prompt is an empty list", s->name);
  if (!listed) TRY(text_of(s, "prompt", &plain));
  parts->begins = !listed && !s->spec->chat;
  if (parts->begins) return treadle_row_parts_add(parts, plain.bytes, plain.count, TREADLE_ROW_CONTEXT);
  made = listed ? json_incref(prompt) : user_message(plain);
  if (!made) return no_memory(s);
  TRY(render(s, made, true, &text, &bytes));
  TRY(treadle_row_parts_add(parts, text, bytes, TREADLE_ROW_CONTEXT));
out:
  json_decref(made);
  free(text);
  return status;
}

treadle_status treadle_row_read_response(const treadle_row_source *s, treadle_sft_row *row) {
  treadle_row_parts parts = {.ends = true};
  treadle_text response;
  treadle_status status;
  if (!json_object_get(s->object, "response")) REFUSE("%s: has a prompt and no response", s->name);
  TRY(text_of(s, "response", &response));
  TRY(add_prompt(s, &parts));
  TRY(treadle_row_parts_add(&parts, response.bytes, response.count, TREADLE_ROW_ALL));
  TRY(treadle_row_parts_keep(&parts, s, row));
out:
  treadle_row_parts_release(&parts);
  return status;
}

/* Appends the text that the template writes of messages [0, count) behind what is there of those before; `answers`: and up to where
 * the assistant begins. */
static treadle_status add_messages(const treadle_row_source *s, size_t count, bool answers,
                                   treadle_row_parts *parts) {
  const json_t *messages = json_object_get(s->object, "messages");
  json_t *some = json_array();
  char *text = NULL;
  size_t bytes, at = parts->text.count;
  treadle_status status = TREADLE_OK;
  if (!some) return no_memory(s);
  for (size_t i = 0; i < count; i++)
    if (json_array_append(some, json_array_get(messages, i)) != 0) TRY(no_memory(s));
  TRY(render(s, some, answers, &text, &bytes));
  if (bytes < at || (at && memcmp(text, parts->text.items, at) != 0))
    TRY(treadle_fail(
        TREADLE_REFUSED,
        "%s: what the chat template writes of the first %zu messages does not begin with what it "
        "writes of those before%s, so it cannot be said which tokens are the assistant's; give "
        "prompt and response instead",
        s->name, count, answers ? "" : ", up to where the assistant begins"));
  TRY(treadle_row_parts_add(parts, text + at, bytes - at,
                            answers ? TREADLE_ROW_CONTEXT : TREADLE_ROW_ANSWER));
out:
  json_decref(some);
  free(text);
  return status;
}

treadle_status treadle_row_read_messages(const treadle_row_source *s, treadle_sft_row *row) {
  const json_t *messages = json_object_get(s->object, "messages");
  treadle_row_parts parts = {0};
  treadle_status status = TREADLE_OK;
  if (!json_is_array(messages) || !json_array_size(messages))
    REFUSE("%s: messages must be a list of messages", s->name);
  for (size_t i = 0; i < json_array_size(messages); i++) {
    const char *role = json_string_value(json_object_get(json_array_get(messages, i), "role"));
    if (!role) TRY(treadle_fail(TREADLE_REFUSED, "%s: messages[%zu] has no role, a text", s->name, i));
    if (strcmp(role, "assistant") != 0) continue;
    if (i == 0)
      TRY(treadle_fail(TREADLE_REFUSED,
                       "%s: messages[0] is the assistant's; a chat begins with what it answers to",
                       s->name));
    TRY(add_messages(s, i, true, &parts));
    TRY(add_messages(s, i + 1, false, &parts));
  }
  if (!parts.items.count)
    TRY(treadle_fail(TREADLE_REFUSED, "%s: no token of it counts: no message is the assistant's", s->name));
  TRY(treadle_row_parts_keep(&parts, s, row));
out:
  treadle_row_parts_release(&parts);
  return status;
}

treadle_status treadle_row_need_tokenizer(const treadle_row_source *s) {
  if (s->spec->tokenizer) return TREADLE_OK;
  REFUSE("%s: a text needs a tokenizer; the model's folder has none, and "
         "megatron_training.tokenizer_name_or_path "
         "names none",
         s->name);
}

/* ---- Texts ----------------------------------------------------------------------------------------------- */

treadle_status treadle_row_read_text(const treadle_row_source *s, treadle_sft_row *row) {
  treadle_text text;
  int32_t *ids = NULL;
  size_t count;
  treadle_status status;
  TRY(text_of(s, "text", &text));
  if (!text.count) REFUSE("%s: text is empty", s->name);
  TRY(treadle_row_need_tokenizer(s));
  status = treadle_tokenizer_encode(s->spec->tokenizer, text.bytes, text.count, true, &ids, &count);
  if (status) TRY(treadle_fail_in(status, "%s: ", s->name));
  int32_t *kept = treadle_arena_alloc_array(s->arena, count + 1, sizeof *kept);
  uint8_t *mask = treadle_arena_alloc_array(s->arena, count + 1, sizeof *mask);
  if (!kept || !mask) TRY(no_memory(s));
  memcpy(kept, ids, count * sizeof *kept);
  if (count > 1) memset(mask + 1, 1, count - 1);
  *row = (treadle_sft_row){.ids = kept, .mask = mask, .count = count};
out:
  free(ids);
  return status;
}
