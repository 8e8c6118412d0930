/* Lines of JSON to score: read and checked, scored, compared with the log-probabilities that they have, written. */
#include "infer/engine.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/clock.h"
#include "base/sized.h"
#include "infer/answers.h"
#include "infer/score_lines.h"

#include <math.h>
#include <string.h>

typedef struct scoring {
  treadle_engine *engine;
  treadle_score_lines_options options;
  treadle_score_figures figures;
  treadle_score_lines lines;
  treadle_score_text *texts;
} scoring;

static treadle_status check_lines(scoring *s) {
  for (size_t i = 0; i < s->lines.items.count; i++) {
    const treadle_score_line *line = &s->lines.items.items[i];
    if (line->input.type != TREADLE_REQUEST_TOKENS)
      return treadle_fail(TREADLE_REFUSED, "%s: line %lld: there is no tokenizer for its text",
                          s->options.what, (long long)line->line);
    if (s->options.check && !line->logprobs)
      return treadle_fail(TREADLE_REFUSED, "%s: line %lld: there are no logprobs to compare with",
                          s->options.what, (long long)line->line);
    s->texts[i] = (treadle_score_text){line->input.tokens, (size_t)line->input.token_count};
  }
  return TREADLE_OK;
}

/* Bits: a log-probability that is -0 or NaN is another one. */
static void compare(scoring *s, const treadle_score_line *line, const float *logprobs) {
  for (int64_t i = 0; i < line->logprob_count; i++) {
    if (line->first + i == 0) continue; /* the first token has none */
    s->figures.checked++;
    s->figures.different += memcmp(&line->logprobs[i], &logprobs[line->first + i], sizeof *logprobs) != 0;
  }
}

static treadle_status take_text(void *context, size_t text, const float *logprobs) {
  scoring *s = context;
  const treadle_score_line *line = &s->lines.items.items[text];
  int64_t count = line->input.token_count;
  treadle_builder out = {0};
  treadle_status status = TREADLE_OK;
  for (int64_t i = 1; i < count; i++) s->figures.nll -= (double)logprobs[i];
  s->figures.tokens += count;
  s->figures.predicted += count - 1;
  s->figures.digest =
      treadle_answer_digest(s->figures.digest, line->input.tokens, count, logprobs + 1, count - 1);
  if (s->options.check) compare(s, line, logprobs);
  if (s->options.answer) {
    treadle_answer_add_score(&out, &line->id, line->input.tokens, logprobs + 1, count);
    status = out.failed ? treadle_fail(TREADLE_NO_MEMORY, "no memory for an answer")
                        : s->options.answer(s->options.context, out.text, strlen(out.text));
  }
  treadle_builder_release(&out);
  return status;
}

static treadle_status take_logits(void *context, size_t text, size_t token, const float *logits) {
  scoring *s = context;
  return s->options.logits(s->options.context, text, token, logits);
}

treadle_status treadle_engine_score_lines(treadle_engine *engine, const char *lines, size_t bytes,
                                          const treadle_score_lines_options *options,
                                          treadle_score_figures *figures_p) {
  scoring s = {.engine = engine, .figures = TREADLE_INIT(treadle_score_figures)};
  double begin = treadle_clock_seconds();
  treadle_status status;
  TREADLE_NEED(engine);
  TREADLE_NEED(lines);
  TREADLE_NEED_SIZED(figures_p);
  TRY(TREADLE_TAKE(options, &s.options));
  if (!s.options.what) s.options.what = "texts";
  treadle_requests_spec spec = {.what = s.options.what, .vocabulary = engine->transformer->vocabulary};
  TRY(treadle_score_lines_parse(&spec, lines, bytes, &s.lines));
  s.texts = treadle_alloc_array(s.lines.items.count + 1, sizeof *s.texts);
  if (!s.texts) {
    status = treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu texts", s.lines.items.count);
    goto out;
  }
  TRY(check_lines(&s));
  treadle_score_options score = {.struct_size = sizeof score,
                                 .temperature = s.options.temperature,
                                 .done = take_text,
                                 .logits = s.options.logits ? take_logits : NULL,
                                 .context = &s,
                                 .watch = s.options.watch,
                                 .watch_context = s.options.watch_context};
  s.figures.texts = (int64_t)s.lines.items.count;
  TRY(treadle_engine_score(engine, s.texts, s.lines.items.count, &score));
out:
  s.figures.seconds = treadle_clock_seconds() - begin;
  treadle_free(s.texts);
  treadle_score_lines_release(&s.lines);
  TREADLE_GIVE(figures_p, &s.figures);
  return status;
}
