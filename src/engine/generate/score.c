/* Scoring: texts go through the layers side by side, as many rows at once as the engine takes. A text that is longer than that goes in
 * parts, one behind the other. */
#include "generate/collect.h"
#include "generate/generator.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/hash.h"
#include "base/sized.h"
#include "pass/logprob.h"
#include "pass/lse_rows.h"

#include <math.h>
#include <string.h>

typedef struct text_state {
  int32_t *table; /* its blocks */
  int32_t blocks;
  float *logprobs;
} text_state;

typedef struct scoring {
  treadle_generator *engine;
  const treadle_score_text *texts;
  size_t count;
  treadle_score_options options;
  treadle_observer observer;    /* in place of the options' */
  text_state *states;           /* [count] */
  size_t begun;                 /* texts that have blocks, or had them */
  size_t at, token;             /* the next row: of which text, which token */
  size_t ended;                 /* texts that are done */
  size_t told_text, told_token; /* the next logits that nobody was told of */
  int64_t rows_done, rows_total;
  /* of a step */
  int32_t *tokens, *which;
  size_t *row_text, *row_token; /* [rows] */
  treadle_pass_span *stretches;
  treadle_pass_step step;
  treadle_lse_row *rows; /* [max_batch] */
} scoring;

static int32_t blocks_of(const treadle_generator *e, size_t tokens) {
  return (int32_t)((tokens + (size_t)e->cache.block_tokens - 1) / (size_t)e->cache.block_tokens);
}

treadle_status treadle_generator_check_text(const treadle_generator *e, const treadle_score_text *text,
                                            const char *what) {
  if (!text->count) REFUSE("%s: has no tokens", what);
  if (text->count > (size_t)e->most_tokens)
    REFUSE("%s: has %zu tokens; the engine takes %lld", what, text->count, (long long)e->most_tokens);
  if (blocks_of(e, text->count) > e->cache.count)
    REFUSE("%s: %zu tokens are %d blocks of the KV cache, which has %d: it takes %zu bytes", what,
           text->count, blocks_of(e, text->count), e->cache.count,
           (size_t)blocks_of(e, text->count) * treadle_pass_block_bytes(e->pass));
  return treadle_generator_check_tokens(e, text->ids, text->count, what);
}

static treadle_status check(scoring *s) {
  treadle_status status;
  TRY(TREADLE_TAKE(s->options.observer, &s->observer));
  if (!(s->options.temperature > 0) || !isfinite(s->options.temperature))
    REFUSE("temperature %g: a text is scored at one above 0", (double)s->options.temperature);
  for (size_t i = 0; i < s->count; i++) {
    char what[40];
    snprintf(what, sizeof what, "text %zu", i);
    TRY(treadle_generator_check_text(s->engine, &s->texts[i], what));
  }
out:
  return status;
}

/* The ranks of a replica score the same texts. */
static treadle_status agree(const scoring *s, treadle_status status) {
  const treadle_generator *e = s->engine;
  treadle_group_call call = {.name = "treadle_generator_score",
                             .alike = {{.what = "texts and temperature, as ranks of one replica",
                                        .among = e->replica.place.number}},
                             .count = 1};
  uint64_t hash = treadle_hash_bytes(&s->options.temperature, sizeof s->options.temperature, s->count);
  for (size_t i = 0; !status && e->group && i < s->count; i++)
    hash = treadle_hash_bytes(s->texts[i].ids, s->texts[i].count * sizeof *s->texts[i].ids, hash);
  call.alike[0].hash = hash;
  return treadle_generator_agree_on(e, status, &call);
}

/* Room for the next text; false: the cache is full of those that are under way. */
static treadle_status begin_text(scoring *s, bool *begun_p) {
  treadle_generator *e = s->engine;
  const treadle_score_text *text = &s->texts[s->at];
  text_state *state = &s->states[s->at];
  *begun_p = false;
  if (treadle_cache_unused(&e->cache) < blocks_of(e, text->count)) return TREADLE_OK;
  s->begun = s->at + 1; /* end_text takes back what there is of it */
  state->blocks = blocks_of(e, text->count);
  state->table = treadle_alloc_array((size_t)state->blocks, sizeof *state->table);
  state->logprobs = treadle_alloc_array(text->count, sizeof *state->logprobs);
  if (!state->table || !state->logprobs) {
    state->blocks = 0;
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for a text of %zu tokens", text->count);
  }
  for (int32_t b = 0; b < state->blocks; b++) state->table[b] = treadle_cache_take(&e->cache);
  state->logprobs[0] = NAN;
  *begun_p = true;
  return TREADLE_OK;
}

static void end_text(scoring *s, size_t text) {
  text_state *state = &s->states[text];
  for (int32_t b = 0; b < state->blocks; b++) treadle_cache_leave(&s->engine->cache, state->table[b]);
  treadle_free(state->table);
  treadle_free(state->logprobs);
  *state = (text_state){0};
}

/* The weights go away: texts that are not done begin anew. */
static void restart(void *context) {
  scoring *s = context;
  for (size_t i = s->ended; i < s->begun; i++) end_text(s, i);
  s->begun = s->at = s->ended;
  s->token = 0;
  s->rows_done = 0;
  for (size_t i = 0; i < s->ended; i++) s->rows_done += (int64_t)s->texts[i].count;
  s->engine->seed++;
}

static treadle_status tell_observer(const scoring *s) {
  return treadle_generator_tell(&s->observer, "scoring", "tokens scored", s->rows_done, s->rows_total);
}

/* While there are no weights. Other replicas may have some, and wait. */
static treadle_status idle(void *context) {
  scoring *s = context;
  treadle_collect_go_on(s->engine);
  return tell_observer(s);
}

/* Fills a step with rows of as many texts as there is room for. */
static treadle_status make_step(scoring *s) {
  treadle_generator *e = s->engine;
  treadle_pass_step *step = &s->step;
  treadle_status status = TREADLE_OK;
  step->rows = step->stretch_count = 0;
  while (s->at < s->count && step->rows < e->prefill_chunk) {
    const treadle_score_text *text = &s->texts[s->at];
    bool begun = s->token > 0;
    if (!begun) TRY(begin_text(s, &begun));
    if (!begun) break;
    size_t left = text->count - s->token, room = (size_t)(e->prefill_chunk - step->rows);
    size_t rows = left < room ? left : room;
    s->stretches[step->stretch_count++] = (treadle_pass_span){
        .rows = (int64_t)rows, .position = (int64_t)s->token, .table = s->states[s->at].table};
    for (size_t i = 0; i < rows; i++, step->rows++) {
      s->tokens[step->rows] = text->ids[s->token + i];
      s->row_text[step->rows] = s->at;
      s->row_token[step->rows] = s->token + i;
    }
    s->token += rows;
    if (s->token < text->count) break;
    s->at++;
    s->token = 0;
  }
out:
  return status;
}

static treadle_status take_logits(scoring *s, int64_t number, const treadle_lse_row *row) {
  size_t text = s->row_text[number], token = s->row_token[number];
  treadle_status status = TREADLE_OK;
  bool told = text < s->told_text || (text == s->told_text && token < s->told_token);
  if (s->options.logits && !told) {
    TRY(s->options.logits(s->options.context, text, token, row->logits));
    s->told_text = text;
    s->told_token = token + 1;
  }
  if (token + 1 == s->texts[text].count) goto out;
  s->states[text].logprobs[token + 1] =
      treadle_logprob(row->logits[s->texts[text].ids[token + 1]], row->temperature, row->lse);
out:
  return status;
}

/* Those of all its tokens but the last one, where experts are recorded. */
static treadle_status tell_experts(const scoring *s, size_t text) {
  const int64_t each = treadle_pass_record_bytes(s->engine->pass),
                tokens = (int64_t)s->texts[text].count - 1;
  unsigned char *experts;
  treadle_status status;
  if (!each) return TREADLE_OK;
  experts = treadle_alloc_array((size_t)tokens, (size_t)each);
  if (!experts)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for the experts of %lld tokens", (long long)tokens);
  treadle_pass_read_record(s->engine->pass, s->states[text].table, tokens, experts);
  status = s->options.experts(s->options.context, text, experts, (size_t)(tokens * each));
  treadle_free(experts);
  return status;
}

/* Logits of all rows, a few at a time; those of the last row of a text are only for who asks for logits. */
static treadle_status read_step(scoring *s) {
  treadle_generator *e = s->engine;
  treadle_status status = TREADLE_OK;
  for (int64_t row = 0; row < s->step.rows;) {
    int64_t count = 0;
    const float *logits;
    for (; row < s->step.rows && count < e->max_batch; row++)
      if (s->options.logits || s->row_token[row] + 1 < s->texts[s->row_text[row]].count)
        s->which[count++] = (int32_t)row;
    TRY(treadle_pass_logits(e->pass, s->which, count, &logits));
    for (int64_t i = 0; i < count; i++)
      s->rows[i] = (treadle_lse_row){.logits = logits + i * e->transformer->vocabulary,
                                     .temperature = s->options.temperature};
    treadle_lse_rows_run(treadle_pass_team(e->pass), s->rows, count, e->transformer->vocabulary);
    for (int64_t i = 0; i < count; i++)
      TRY(treadle_generator_check_row(e, s->rows[i].logits, s->rows[i].temperature, s->rows[i].lse));
    for (int64_t i = 0; i < count; i++) TRY(take_logits(s, s->which[i], &s->rows[i]));
  }
  for (; s->ended < s->at; s->ended++) {
    if (s->options.experts) TRY(tell_experts(s, s->ended));
    if (s->options.done) TRY(s->options.done(s->options.context, s->ended, s->states[s->ended].logprobs));
    end_text(s, s->ended);
  }
out:
  return status;
}

static treadle_status run(scoring *s) {
  const treadle_gate_call call = {.restart = restart, .idle = idle, .context = s};
  treadle_status status = TREADLE_OK;
  const bool alone = s->engine->replica.group_count == 1;
  int64_t all = 1; /* rows of all groups */
  size_t rows = (size_t)s->engine->prefill_chunk;
  s->states = treadle_alloc_array(s->count, sizeof *s->states);
  s->tokens = treadle_alloc_array(rows, sizeof *s->tokens);
  s->which = treadle_alloc_array(rows, sizeof *s->which);
  s->row_text = treadle_alloc_array(rows, sizeof *s->row_text);
  s->row_token = treadle_alloc_array(rows, sizeof *s->row_token);
  s->stretches = treadle_alloc_array(rows, sizeof *s->stretches);
  s->rows = treadle_alloc_array((size_t)s->engine->max_batch, sizeof *s->rows);
  if (!s->states || !s->tokens || !s->which || !s->row_text || !s->row_token || !s->stretches || !s->rows)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu texts", s->count);
  s->step.tokens = s->tokens;
  s->step.stretches = s->stretches;
  for (size_t i = 0; i < s->count; i++) s->rows_total += (int64_t)s->texts[i].count;
  treadle_gate_begin(&s->engine->gate, &call);
  while (alone ? s->ended < s->count : all > 0) {
    TRY(treadle_gate_enter(&s->engine->gate));
    TRY(make_step(s));
    TRY(treadle_pass_count_rows(s->engine->pass, s->step.rows, &all));
    if (all) TRY(treadle_pass_run(s->engine->pass, &s->step));
    TRY(read_step(s));
    s->rows_done += s->step.rows;
    treadle_gate_leave(&s->engine->gate);
    treadle_collect_go_on(s->engine);
    TRY(tell_observer(s));
  }
out:
  treadle_pass_tell(s->engine->pass, status);
  return status;
}

treadle_status treadle_generator_score_texts(treadle_generator *engine, const treadle_score_text *texts,
                                             size_t count, const treadle_score_options *options) {
  scoring s = {.engine = engine, .texts = texts, .count = count, .options = *options};
  treadle_status status;
  TRY(agree(&s, check(&s)));
  TRY(run(&s));
out:
  treadle_gate_end(&engine->gate);
  for (size_t i = s.ended; s.states && i < s.begun; i++) end_text(&s, i);
  treadle_free(s.states);
  treadle_free(s.tokens);
  treadle_free(s.which);
  treadle_free(s.row_text);
  treadle_free(s.row_token);
  treadle_free(s.stretches);
  treadle_free(s.rows);
  return status;
}

treadle_status treadle_generator_score(treadle_generator *engine, const treadle_score_text *texts,
                                       size_t count, const treadle_score_options *options) {
  treadle_score_options o;
  treadle_status status;
  TREADLE_NEED(engine);
  if (count) TREADLE_NEED(texts);
  TRY(TREADLE_TAKE(options, &o));
  if (o.temperature == 0) o.temperature = 1;
  TRY(treadle_generator_need_weights(engine, "treadle_generator_score"));
  TRY(treadle_generator_score_texts(engine, texts, count, &o));
out:
  return status;
}
