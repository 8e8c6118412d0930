/* Lines of requests, and lines to score. What is taken keeps its promises; a line to score that is written as score writes it is
 * read again with the same bits. */
#include "generate/answers.h"
#include "generate/score_lines.h"

#include <math.h>
#include <string.h>

enum { VOCABULARY = 1000 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static void need(bool holds) {
  if (!holds) __builtin_trap();
}

static void check_input(const treadle_request_input *input) {
  if (input->type == TREADLE_REQUEST_TEXT)
    need(input->text.count > 0 && !input->text.bytes[input->text.count]);
  if (input->type == TREADLE_REQUEST_MESSAGES) need(json_array_size(input->messages) > 0);
  if (input->type != TREADLE_REQUEST_TOKENS) return;
  need(input->token_count > 0);
  for (int64_t i = 0; i < input->token_count; i++)
    need(input->tokens[i] >= 0 && input->tokens[i] < VOCABULARY);
}

static void check_sampling(const treadle_sampling_values *s) {
  need(isfinite(s->temperature) && s->temperature >= 0 && s->top_p > 0 && s->top_p <= 1);
  need(s->n >= 1 && s->max_tokens >= 1 && s->min_tokens <= s->max_tokens && s->logprobs <= 20);
  for (int32_t i = 0; i < s->stop_count; i++) need(s->stop[i].count > 0);
  for (int32_t i = 0; i < s->stop_id_count; i++) need(s->stop_ids[i] >= 0 && s->stop_ids[i] < VOCABULARY);
}

static void read_requests(const treadle_requests_spec *spec, const char *text, size_t count) {
  treadle_requests requests;
  if (treadle_requests_parse(spec, text, count, &requests) == TREADLE_OK) {
    need(requests.items.count > 0);
    for (size_t i = 0; i < requests.items.count; i++) {
      need(requests.items.items[i].number == (int64_t)i);
      check_input(&requests.items.items[i].input);
      check_sampling(&requests.items.items[i].sampling);
    }
  } else {
    need(*treadle_error_message()); /* a refusal has a reason */
  }
  treadle_requests_release(&requests);
}

/* Writes a line as score does and reads it again. */
static void write_and_read(const treadle_requests_spec *spec, const treadle_score_line *line) {
  treadle_builder out = {0};
  treadle_score_lines again;
  const treadle_score_logprobs logprobs = {
      .tokens = line->input.tokens, .count = line->input.token_count, .logprobs = line->logprobs};
  treadle_answer_add_score(&out, &line->id, &logprobs);
  need(!out.failed && treadle_score_lines_parse(spec, out.text, out.length, &again) == TREADLE_OK);
  const treadle_score_line *back = &again.items.items[0];
  need(back->input.token_count == line->input.token_count && back->logprob_count == line->logprob_count);
  need(memcmp(back->logprobs, line->logprobs, (size_t)line->logprob_count * sizeof *line->logprobs) == 0);
  need(back->id.text.count == line->id.text.count);
  need(line->id.text.bytes ? memcmp(back->id.text.bytes, line->id.text.bytes, line->id.text.count) == 0
                           : back->id.number == line->id.number);
  treadle_score_lines_release(&again);
  treadle_builder_release(&out);
}

static void read_scores(const treadle_requests_spec *spec, const char *text, size_t count) {
  treadle_score_lines lines;
  if (treadle_score_lines_parse(spec, text, count, &lines) == TREADLE_OK) {
    for (size_t i = 0; i < lines.items.count; i++) {
      const treadle_score_line *line = &lines.items.items[i];
      check_input(&line->input);
      if (line->logprobs) need(line->first + line->logprob_count == line->input.token_count);
      if (line->logprobs && line->first == 1) write_and_read(spec, line);
    }
  } else {
    need(*treadle_error_message());
  }
  treadle_score_lines_release(&lines);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  treadle_sampling_values sampling;
  treadle_sampling_default(&sampling);
  const treadle_requests_spec spec = {.what = "input", .sampling = &sampling, .vocabulary = VOCABULARY};
  read_requests(&spec, (const char *)bytes, count);
  read_scores(&spec, (const char *)bytes, count);
  return 0;
}
