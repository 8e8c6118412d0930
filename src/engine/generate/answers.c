/* What generate and score write. */
#include "generate/answers.h"

#include "base/hash.h"
#include "io/json.h"
#include "pass/record_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* A JSON number has a point or an exponent here, so that -0.0 keeps its sign. The C library may write the point of a locale. */
void treadle_float_text(float value, char text_p[TREADLE_FLOAT_TEXT]) {
  char digits[TREADLE_FLOAT_TEXT];
  size_t length = 0;
  bool is_whole = true;
  if (!isfinite(value)) {
    strcpy(text_p, "null");
    return;
  }
  snprintf(digits, sizeof digits, "%.9g", (double)value);
  for (const char *at = digits; *at; at++) {
    bool is_own = strchr("0123456789+-e", *at) != NULL;
    is_whole = is_whole && is_own && *at != 'e';
    if (is_own || length == 0 || text_p[length - 1] != '.') text_p[length++] = is_own ? *at : '.';
  }
  strcpy(text_p + length, is_whole ? ".0" : "");
}

static void add_float(treadle_builder *builder, float value) {
  char text[TREADLE_FLOAT_TEXT];
  treadle_float_text(value, text);
  treadle_builder_add(builder, "%s", text);
}

static void add_id(treadle_builder *builder, const treadle_request_id *id) {
  treadle_builder_add(builder, "{\"id\": ");
  if (id->text.bytes)
    treadle_json_add_text(builder, id->text.bytes, id->text.count);
  else
    treadle_builder_add(builder, "%" PRId64, id->number);
}

static void add_tokens(treadle_builder *builder, const char *key, const int32_t *tokens, int64_t count) {
  treadle_builder_add(builder, ", \"%s\": [", key);
  for (int64_t i = 0; i < count; i++) treadle_builder_add(builder, i ? ", %d" : "%d", tokens[i]);
  treadle_builder_add(builder, "]");
}

/* [[id, logprob], ..] */
static void add_top(treadle_builder *builder, const treadle_token_logprob *top, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    treadle_builder_add(builder, i ? ", [%d, " : "[[%d, ", top[i].token);
    add_float(builder, top[i].logprob);
    treadle_builder_add(builder, "]");
  }
  treadle_builder_add(builder, "]");
}

/* Such a list for each token; `first` stands in front of them. */
static void add_tops(treadle_builder *builder, const char *first, const treadle_token_logprob *top,
                     int64_t tokens, int64_t count) {
  treadle_builder_add(builder, ", \"top_logprobs\": [%s", first);
  for (int64_t i = 0; i < tokens; i++) {
    if (i || *first) treadle_builder_add(builder, ", ");
    add_top(builder, top + i * count, count);
  }
  treadle_builder_add(builder, "]");
}

static void add_finish(treadle_builder *builder, const treadle_sample *sample) {
  const treadle_sampling_values *s = sample->spec.sampling;
  treadle_builder_add(builder, ", \"finish_reason\": %s, \"stop_reason\": ",
                      sample->finish == TREADLE_FINISH_STOP     ? "\"stop\""
                      : sample->finish == TREADLE_FINISH_LENGTH ? "\"length\""
                                                                : "null");
  if (sample->stop_text >= 0)
    treadle_json_add_text(builder, s->stop[sample->stop_text].bytes, s->stop[sample->stop_text].count);
  else if (sample->stop_id >= 0)
    treadle_builder_add(builder, "%d", sample->stop_id);
  else
    treadle_builder_add(builder, "null");
}

void treadle_answer_add_experts(treadle_builder *builder, const unsigned char *experts, size_t bytes,
                                size_t layers, size_t top) {
  treadle_builder_add(builder, ", \"experts\": ");
  treadle_record_add_text(builder, experts, bytes, layers, top);
}

void treadle_answer_add(treadle_builder *builder, const treadle_request_id *id,
                        const treadle_sample *sample, int64_t version) {
  const treadle_sample_spec *spec = &sample->spec;
  add_id(builder, id);
  treadle_builder_add(builder, ", \"index\": %" PRId64, spec->index);
  add_tokens(builder, "prompt_token_ids", spec->prompt, spec->prompt_count);
  add_tokens(builder, "token_ids", sample->tokens.items, (int64_t)sample->tokens.count);
  treadle_builder_add(builder, ", \"text\": ");
  treadle_json_add_text(builder, sample->text.text, sample->text.length);
  treadle_builder_add(builder, ", \"logprobs\": [");
  for (size_t i = 0; i < sample->logprobs.count; i++) {
    if (i) treadle_builder_add(builder, ", ");
    add_float(builder, sample->logprobs.items[i]);
  }
  treadle_builder_add(builder, "]");
  if (sample->top_count)
    add_tops(builder, "", sample->top.items, (int64_t)sample->top.count / sample->top_count,
             sample->top_count);
  else
    treadle_builder_add(builder, ", \"top_logprobs\": null");
  add_finish(builder, sample);
  if (sample->experts)
    treadle_answer_add_experts(builder, sample->experts, sample->expert_bytes,
                               (size_t)sample->expert_layers, (size_t)sample->expert_top);
  treadle_builder_add(builder, ", \"version\": %" PRId64 "}\n", version);
}

void treadle_answer_add_score(treadle_builder *builder, const treadle_request_id *id,
                              const treadle_score_logprobs *answer) {
  double sum = 0;
  char text[40];
  add_id(builder, id);
  add_tokens(builder, "token_ids", answer->tokens, answer->count);
  treadle_builder_add(builder, ", \"logprobs\": [null");
  for (int64_t i = 0; i < answer->count - 1; i++) {
    treadle_builder_add(builder, ", ");
    add_float(builder, answer->logprobs[i]);
    sum += (double)answer->logprobs[i];
  }
  treadle_builder_add(builder, "]");
  if (answer->top_count) add_tops(builder, "null", answer->top, answer->count - 1, answer->top_count);
  snprintf(text, sizeof text, "%.17g", sum);
  for (char *at = text; *at; at++)
    if (!strchr("0123456789+-e", *at)) *at = '.';
  treadle_builder_add(builder, "%s, \"sum\": %s}\n", answer->experts ? answer->experts : "",
                      isfinite(sum) ? text : "null");
}

uint64_t treadle_answer_digest(uint64_t digest, const int32_t *tokens, int64_t token_count,
                               const float *logprobs, int64_t logprob_count) {
  uint64_t ids = treadle_hash_bytes(tokens, (size_t)token_count * sizeof *tokens, (uint64_t)token_count);
  uint64_t bits =
      treadle_hash_bytes(logprobs, (size_t)logprob_count * sizeof *logprobs, (uint64_t)logprob_count);
  return treadle_hash_more(treadle_hash_more(digest, ids), bits);
}
