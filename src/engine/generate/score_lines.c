/* Lines of JSON as texts to score. */
#include "generate/score_lines.h"

#include "base/text.h"
#include "generate/json_values.h"
#include "generate/request_lines.h"

#include <math.h>
#include <string.h>

static const char *const inputs[] = {"text", "messages", "token_ids"};
static const char *const names[] = {"text",     "messages", "token_ids", "prompt_token_ids",
                                    "logprobs", "id",       NULL};
/* What generate and score write besides. */
static const char *const others[] = {"index",         "experts",     "sum",     "top_logprobs",
                                     "finish_reason", "stop_reason", "version", NULL};

/* prompt_token_ids and token_ids, one behind the other. */
static treadle_status read_generated(const treadle_request_reader *reader,
                                     const treadle_requests_spec *spec, treadle_arena *arena,
                                     treadle_score_line *line_p) {
  treadle_request_input prompt = {0}, made = {0};
  treadle_status status;
  TRY(treadle_request_read_tokens(reader, spec, "prompt_token_ids", arena, &prompt));
  TRY(treadle_request_read_tokens(reader, spec, "token_ids", arena, &made));
  int64_t count = prompt.token_count + made.token_count;
  int32_t *tokens = treadle_arena_alloc_array(arena, (size_t)count, sizeof *tokens);
  if (!tokens)
    return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for %lld tokens", reader->name, (long long)count);
  memcpy(tokens, prompt.tokens, (size_t)prompt.token_count * sizeof *tokens);
  memcpy(tokens + prompt.token_count, made.tokens, (size_t)made.token_count * sizeof *tokens);
  line_p->input =
      (treadle_request_input){.type = TREADLE_REQUEST_TOKENS, .tokens = tokens, .token_count = count};
  line_p->first = prompt.token_count;
out:
  return status;
}

/* One for each token from `first` on; of score's own the one before is null. */
static treadle_status read_logprobs(const treadle_request_reader *reader, const json_t *value,
                                    treadle_arena *arena, treadle_score_line *line_p) {
  int64_t skipped = json_object_get(reader->object, "prompt_token_ids") ? 0 : 1;
  int64_t count = line_p->input.token_count - line_p->first;
  if (line_p->input.type != TREADLE_REQUEST_TOKENS) REFUSE("%s: logprobs need token_ids", reader->name);
  if (!json_is_array(value) || (int64_t)json_array_size(value) != count + skipped)
    REFUSE("%s: logprobs must be a list of %s, as token_ids", reader->name,
           treadle_text_of_count(count + skipped, "item"));
  if (skipped && !json_is_null(json_array_get(value, 0)))
    REFUSE("%s: the first of logprobs must be null: it has no tokens before it", reader->name);
  float *logprobs = treadle_arena_alloc_array(arena, (size_t)count + 1, sizeof *logprobs);
  if (!logprobs)
    return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for %lld logprobs", reader->name,
                        (long long)count);
  for (int64_t i = 0; i < count; i++) {
    const json_t *item = json_array_get(value, (size_t)(i + skipped));
    logprobs[i] = (float)json_number_value(item);
    if (!json_is_number(item) || !isfinite(logprobs[i]))
      REFUSE("%s: logprobs[%lld] is not a number of fp32", reader->name, (long long)(i + skipped));
  }
  line_p->logprobs = logprobs;
  line_p->logprob_count = count;
  return TREADLE_OK;
}

static treadle_status read_line(const treadle_requests_spec *spec, const treadle_request_reader *reader,
                                treadle_arena *arena, treadle_score_line *line_p) {
  const json_t *logprobs = json_object_get(reader->object, "logprobs");
  treadle_status status;
  line_p->line = reader->line;
  line_p->number = reader->number;
  TRY(treadle_request_check_keys(reader, names, others));
  TRY(treadle_request_read_id(reader, arena, &line_p->id));
  if (json_object_get(reader->object, "prompt_token_ids")) {
    TRY(read_generated(reader, spec, arena, line_p));
  } else {
    TRY(treadle_request_read_input(reader, spec, inputs, arena, &line_p->input));
    line_p->first = 1;
  }
  if (logprobs && !json_is_null(logprobs)) TRY(read_logprobs(reader, logprobs, arena, line_p));
out:
  return status;
}

treadle_status treadle_score_lines_parse(const treadle_requests_spec *spec, const char *text, size_t count,
                                         treadle_score_lines *lines_p) {
  treadle_request_reader reader = {.what = spec->what, .text = text, .count = count};
  treadle_score_lines *lines = lines_p;
  bool more = false;
  treadle_status status;
  *lines = (treadle_score_lines){0};
  for (;;) {
    TRY(treadle_request_reader_next(&reader, &more));
    if (!more) break;
    TRY(treadle_array_push(&lines->items, (treadle_score_line){0}));
    TRY(read_line(spec, &reader, &lines->arena, &lines->items.items[lines->items.count - 1]));
  }
  if (lines->items.count == 0) TRY(treadle_fail(TREADLE_REFUSED, "%s: has no lines to score", spec->what));
out:
  treadle_request_reader_release(&reader);
  return status;
}

void treadle_score_lines_release(treadle_score_lines *lines) {
  for (size_t i = 0; i < lines->items.count; i++) json_decref(lines->items.items[i].input.messages);
  treadle_array_release(&lines->items);
  treadle_arena_release(&lines->arena);
}
