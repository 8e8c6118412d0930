/* Texts and messages to tokens. */
#include "generate/request_text.h"

#include "base/json.h"

#include <stdlib.h>
#include <string.h>

static treadle_status no_memory(void) { return treadle_fail(TREADLE_NO_MEMORY, "no memory for its text"); }

/* [{"role": "user", "content": text}] */
static json_t *user_message(treadle_text text) {
  json_t *content = json_stringn(text.bytes, text.count);
  return content ? json_pack("[{s:s, s:o}]", "role", "user", "content", content) : NULL;
}

static treadle_status render(const treadle_request_text_spec *spec, const treadle_request_input *input,
                             char **text_p, size_t *bytes_p) {
  const treadle_chat_options chat = {.struct_size = sizeof chat,
                                     .variables = spec->variables ? spec->variables
                                                  : spec->answers ? "{\"add_generation_prompt\": true}"
                                                                  : NULL};
  json_t *made = input->messages ? json_incref(input->messages) : user_message(input->text);
  char *json = made ? treadle_json_dump(made, JSON_COMPACT) : NULL;
  treadle_status status =
      json ? treadle_chat_render(spec->chat, json, &chat, text_p, bytes_p) : no_memory();
  json_decref(made);
  free(json);
  return status;
}

static treadle_status tokenize(const treadle_request_text_spec *spec, treadle_arena *arena,
                               treadle_request_input *input) {
  bool messages = spec->talks || input->type == TREADLE_REQUEST_MESSAGES;
  char *text = NULL;
  int32_t *ids = NULL;
  size_t bytes = input->text.count, count = 0;
  treadle_status status;
  if (!spec->tokenizer) return treadle_fail(TREADLE_REFUSED, "there is no tokenizer for its text");
  if (messages && !spec->chat)
    return treadle_fail(TREADLE_REFUSED, "there is no chat template for its messages");
  if (messages) TRY(render(spec, input, &text, &bytes));
  TRY(treadle_tokenizer_encode(spec->tokenizer, messages ? text : input->text.bytes, bytes, !messages, &ids,
                               &count));
  int32_t *kept = treadle_arena_alloc_array(arena, count + 1, sizeof *kept);
  if (!kept) {
    status = no_memory();
    goto out;
  }
  if (count) memcpy(kept, ids, count * sizeof *kept);
  input->tokens = kept;
  input->token_count = (int64_t)count;
out:
  free(text);
  free(ids);
  return status;
}

treadle_status treadle_request_tokenize(const treadle_request_text_spec *spec, int64_t line,
                                        treadle_arena *arena, treadle_request_input *input) {
  treadle_status status = TREADLE_OK;
  if (input->type != TREADLE_REQUEST_TOKENS) status = tokenize(spec, arena, input);
  return status == TREADLE_OK ? status
                              : treadle_fail_in(status, "%s: line %lld: ", spec->what, (long long)line);
}
