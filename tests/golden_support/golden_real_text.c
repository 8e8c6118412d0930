#include "golden_support/golden_real.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool has(const char *folder, const char *name) {
  char path[1300];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return access(path, R_OK) == 0;
}

void golden_speech_open(golden_speech *speech, const char *folder) {
  char above[1200];
  *speech = (golden_speech){0};
  snprintf(above, sizeof above, "%s/..", folder);
  speech->begins = !has(folder, "tokenizer.json") && !has(folder, "vocab.json");
  if (treadle_tokenizer_open(folder, &speech->tokenizer) && speech->begins)
    treadle_tokenizer_open(above, &speech->tokenizer);
  treadle_chat_open(folder, &speech->chat);
}

void golden_speech_close(golden_speech *speech) {
  treadle_tokenizer_close(speech->tokenizer);
  treadle_chat_close(speech->chat);
}

bool golden_speech_asks(const golden_speech *speech, const json_t *user, const json_t *text) {
  json_t *messages = json_pack("[{ss, ss}]", "role", "user", "content", json_string_value(user));
  char *given = json_dumps(messages, 0), *out = NULL;
  size_t bytes = 0;
  const treadle_chat_options options = {.struct_size = sizeof options,
                                        .variables = "{\"add_generation_prompt\": true}"};
  bool same = treadle_chat_render(speech->chat, given, &options, &out, &bytes) == TREADLE_OK &&
              bytes == json_string_length(text) && memcmp(out, json_string_value(text), bytes) == 0;
  free(out);
  free(given);
  json_decref(messages);
  return same;
}

bool golden_speech_encodes(const golden_speech *speech, const json_t *text, const json_t *ids) {
  int32_t *ours = NULL;
  size_t count = 0;
  bool same = treadle_tokenizer_encode(speech->tokenizer, json_string_value(text), json_string_length(text),
                                       speech->begins, &ours, &count) == TREADLE_OK &&
              count == json_array_size(ids);
  for (size_t i = 0; i < count && same; i++) same = ours[i] == json_integer_value(json_array_get(ids, i));
  free(ours);
  return same;
}

bool golden_speech_decodes(const golden_speech *speech, const golden_tokens *ids, size_t before,
                           const json_t *text) {
  char *head = NULL, *whole = NULL;
  size_t head_bytes = 0, bytes = 0, wanted = json_string_length(text);
  bool same = treadle_tokenizer_decode(speech->tokenizer, ids->ids, before, true, &head, &head_bytes) ==
                  TREADLE_OK &&
              treadle_tokenizer_decode(speech->tokenizer, ids->ids, ids->count, true, &whole, &bytes) ==
                  TREADLE_OK &&
              bytes >= head_bytes && bytes - head_bytes == wanted &&
              memcmp(whole + head_bytes, json_string_value(text), wanted) == 0;
  free(head);
  free(whole);
  return same;
}
