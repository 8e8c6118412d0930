/* Lines of JSON to score: read and checked, scored, compared with the log-probabilities that they have, written. */
#include "generate/generator.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/sized.h"
#include "generate/answers.h"
#include "generate/collect.h"
#include "generate/logits_file.h"
#include "generate/request_lines.h"
#include "generate/request_text.h"
#include "generate/score_lines.h"
#include "nn/rows.h"

#include <math.h>
#include <string.h>

typedef struct scoring {
  treadle_generator *engine;
  treadle_score_lines_options options;
  treadle_score_figures figures;
  treadle_score_lines lines;
  treadle_score_text *texts;
  int64_t top_count;                        /* of a token; 0: none are asked for */
  TREADLE_ARRAY(treadle_token_logprob) top; /* [tokens, top_count] of texts that are not done */
  treadle_safetensors_writer *file;         /* of logits, on rank 0 */
  treadle_collect collect;                  /* log-probabilities, where there are several replicas */
  treadle_builder experts;                  /* of the text that ends next, as JSON */
  const char *given;                        /* what another replica says in place of them */
} scoring;

static treadle_status check_line(scoring *s, const treadle_score_line *line, treadle_score_text *text_p) {
  char what[TREADLE_LINE_NAME];
  snprintf(what, sizeof what, "%.400s: line %lld", s->options.what, (long long)line->line);
  if (s->options.check && !line->logprobs) REFUSE("%s: there are no logprobs to compare with", what);
  *text_p = (treadle_score_text){line->input.tokens, (size_t)line->input.token_count};
  return treadle_generator_check_text(s->engine, text_p, what);
}

static treadle_status read_lines(scoring *s, const char *lines, size_t bytes) {
  const treadle_requests_spec spec = {.what = s->options.what,
                                      .vocabulary = s->engine->transformer->vocabulary};
  const treadle_request_text_spec text = {
      .what = s->options.what, .tokenizer = s->options.tokenizer, .chat = s->options.chat};
  treadle_status status;
  TRY(treadle_generator_check_tokenizer(s->engine, s->options.tokenizer));
  TRY(treadle_score_lines_parse(&spec, lines, bytes, &s->lines));
  s->figures.texts = (int64_t)s->lines.items.count;
  s->texts = treadle_alloc_array(s->lines.items.count, sizeof *s->texts);
  if (!s->texts) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu texts", s->lines.items.count);
  for (size_t i = 0; i < s->lines.items.count; i++) {
    treadle_score_line *line = &s->lines.items.items[i];
    TRY(treadle_request_tokenize(&text, line->line, &s->lines.arena, &line->input));
    TRY(check_line(s, line, &s->texts[i]));
  }
out:
  return status;
}

/* Bits: a log-probability that is -0 or NaN is another one. */
static void compare(scoring *s, const treadle_score_line *line, const float *logprobs) {
  for (int64_t i = 0; i < line->logprob_count; i++) {
    if (line->first + i == 0) continue; /* the first token has none */
    s->figures.checked++;
    s->figures.different += memcmp(&line->logprobs[i], &logprobs[line->first + i], sizeof *logprobs) != 0;
  }
}

/* Of the next text: as its line has them. */
static treadle_status take_experts(void *context, size_t text, const uint8_t *experts, size_t bytes) {
  scoring *s = context;
  const size_t top = (size_t)s->engine->transformer->routing.top;
  (void)text;
  s->experts.length = 0;
  treadle_answer_add_experts(&s->experts, experts, bytes,
                             (size_t)treadle_pass_record_bytes(s->engine->pass) / 2 / top, top);
  return s->experts.failed ? treadle_fail(TREADLE_NO_MEMORY, "no memory for experts") : TREADLE_OK;
}

static const char *experts_of(const scoring *s) { return s->experts.text ? s->experts.text : ""; }

static treadle_status give_answer(scoring *s, const treadle_score_line *line, const float *logprobs) {
  const treadle_score_logprobs answer = {.tokens = line->input.tokens,
                                         .count = line->input.token_count,
                                         .logprobs = logprobs + 1,
                                         .top = s->top.items,
                                         .top_count = s->top_count,
                                         .experts = s->given ? s->given : experts_of(s)};
  treadle_builder out = {0};
  treadle_status status;
  treadle_answer_add_score(&out, &line->id, &answer);
  status = out.failed ? treadle_fail(TREADLE_NO_MEMORY, "no memory for an answer")
                      : s->options.answer(s->options.context, out.text, out.length);
  treadle_builder_release(&out);
  return status;
}

static treadle_status take_text(void *context, size_t text, const float *logprobs) {
  scoring *s = context;
  const treadle_score_line *line = &s->lines.items.items[text];
  int64_t count = line->input.token_count;
  treadle_status status = TREADLE_OK;
  for (int64_t i = 1; i < count; i++) s->figures.nll -= (double)logprobs[i];
  s->figures.tokens += count;
  s->figures.predicted += count - 1;
  s->figures.digest =
      treadle_answer_digest(s->figures.digest, line->input.tokens, count, logprobs + 1, count - 1);
  if (s->options.check) compare(s, line, logprobs);
  if (s->options.answer) TRY(give_answer(s, line, logprobs));
  size_t ended = (size_t)((count - 1) * s->top_count);
  s->top.count -= ended;
  if (s->top.count) memmove(s->top.items, s->top.items + ended, s->top.count * sizeof *s->top.items);
out:
  return status;
}

/* The same numbers as treadle_generator_score's, which are those of the token that is there. */
static treadle_status take_top(scoring *s, const float *logits) {
  int64_t vocabulary = s->engine->transformer->vocabulary;
  float temperature = s->options.temperature, largest;
  treadle_token_logprob top[TREADLE_MOST_TOP_LOGPROBS];
  double sum;
  treadle_status status = TREADLE_OK;
  treadle_row_ops_choose()->sum_exp(logits, vocabulary, temperature, &largest, &sum);
  treadle_logprob_top(logits, vocabulary, temperature, (double)largest + treadle_log(sum), s->top_count,
                      top);
  for (int64_t i = 0; i < s->top_count; i++) TRY(treadle_array_push(&s->top, top[i]));
out:
  return status;
}

static treadle_status take_logits(void *context, size_t text, size_t token, const float *logits) {
  scoring *s = context;
  size_t bytes = (size_t)s->engine->transformer->vocabulary * sizeof *logits;
  treadle_status status = TREADLE_OK;
  if (s->top_count && token + 1 < s->texts[text].count) TRY(take_top(s, logits));
  if (s->file) TRY(treadle_safetensors_append(s->file, logits, bytes));
  if (s->options.logits) TRY(s->options.logits(s->options.context, text, token, logits));
out:
  return status;
}

/* ---- Several replicas --------------------------------------------------------------------------------- */

static treadle_status put_answer(void *context, size_t text, const float *logprobs) {
  scoring *s = context;
  size_t number = text * (size_t)s->engine->replica.place.count + (size_t)s->engine->replica.place.number;
  const treadle_answer answer = {.tokens = s->texts[text].ids,
                                 .logprobs = logprobs,
                                 .count = (int64_t)s->texts[text].count,
                                 .line = experts_of(s)};
  return treadle_collect_put(&s->collect, number, &answer);
}

/* Each replica scores its texts, then all take all answers, in order. */
static treadle_status score_shared(scoring *s, const treadle_score_options *all) {
  size_t count = s->lines.items.count, own = 0;
  treadle_score_options options = *all;
  treadle_status status;
  options.done = put_answer;
  treadle_collect_init(&s->collect, s->engine, count);
  for (size_t i = 0; i < count; i++)
    if (treadle_collect_has(s->engine, i)) s->texts[own++] = s->texts[i];
  TRY(treadle_generator_score_texts(s->engine, s->texts, own, &options));
  TRY(treadle_collect_meet(&s->collect));
  for (size_t i = 0; i < count; i++) {
    treadle_answer answer;
    TRY(treadle_collect_get(&s->collect, i, &answer));
    s->given = answer.line;
    TRY(take_text(s, i, answer.logprobs));
  }
out:
  return status;
}

/* ---- The whole ---------------------------------------------------------------------------------------- */

static treadle_status begin(scoring *s) {
  const treadle_generator *e = s->engine;
  int64_t vocabulary = e->transformer->vocabulary;
  bool first = !e->group || treadle_group_rank(e->group) == 0;
  if (s->options.top < 0 || s->options.top > TREADLE_MOST_TOP_LOGPROBS)
    REFUSE("top %lld: 0 to %d", (long long)s->options.top, TREADLE_MOST_TOP_LOGPROBS);
  s->top_count = s->options.top < vocabulary ? s->options.top : vocabulary;
  if (s->options.temperature == 0) s->options.temperature = 1;
  if (!first || !s->options.logits_file) return TREADLE_OK;
  return treadle_logits_file_create(s->options.logits_file, &s->lines, vocabulary, &s->file);
}

/* What can fail on one rank alone. */
static treadle_status prepare(scoring *s, const char *lines, size_t bytes) {
  treadle_status status;
  TRY(read_lines(s, lines, bytes));
  TRY(begin(s));
out:
  return status;
}

treadle_status treadle_generator_score_lines(treadle_generator *engine, const char *lines, size_t bytes,
                                             const treadle_score_lines_options *options,
                                             treadle_score_figures *figures_p) {
  scoring s = {.engine = engine, .figures = TREADLE_INIT(treadle_score_figures)};
  double started = treadle_clock_seconds();
  treadle_status status;
  TREADLE_NEED(engine);
  TREADLE_NEED(lines);
  TREADLE_NEED_SIZED(figures_p);
  TRY(TREADLE_TAKE(options, &s.options));
  if (!s.options.what) s.options.what = "texts";
  TRY(treadle_generator_need_weights(engine, "treadle_generator_score_lines"));
  const treadle_group_call call = {
      .name = "treadle_generator_score_lines",
      .alike = {{.what = "texts", .hash = treadle_hash_bytes(lines, bytes, 0)}},
      .count = 1};
  TRY(treadle_generator_agree_on(engine, prepare(&s, lines, bytes), &call));
  const treadle_score_options score = {
      .struct_size = sizeof score,
      .temperature = s.options.temperature,
      .done = take_text,
      .experts = s.options.answer ? take_experts : NULL,
      .logits = s.options.logits || s.options.logits_file || s.top_count ? take_logits : NULL,
      .context = &s,
      .observer = s.options.observer};
  if (treadle_collect_is_needed(engine) && !score.logits)
    TRY(score_shared(&s, &score));
  else
    TRY(treadle_generator_score_texts(engine, s.texts, s.lines.items.count, &score));
  if (s.file) TRY(treadle_safetensors_finish(s.file));
out:
  s.figures.seconds = treadle_clock_seconds() - started;
  treadle_safetensors_writer_destroy(s.file);
  treadle_collect_release(&s.collect);
  treadle_array_release(&s.top);
  treadle_builder_release(&s.experts);
  treadle_free(s.texts);
  treadle_score_lines_release(&s.lines);
  TREADLE_GIVE(figures_p, &s.figures);
  return status;
}
