/* The steps of a call that generates: requests become sequences, one for each sample; the schedule says which rows go through the layers;
 * each sequence whose last token was among them gets its next one. The caller is told of a sample as soon as it and all before it have
 * ended. */
#include "generate/generate_call.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "generate/collect.h"

typedef treadle_generate_call generating;
typedef treadle_generate_job job;

/* ---- Sequences -------------------------------------------------------------------------------------- */

static treadle_status begin_job(generating *g, job *j) {
  const treadle_request *r = j->request;
  int64_t index = j->sample.spec.index, left = g->engine->most_tokens - r->input.token_count;
  treadle_sample_spec spec = {.sampling = &r->sampling,
                              .eos = &g->eos,
                              .prompt = r->input.tokens,
                              .prompt_count = r->input.token_count,
                              .seed = treadle_request_seed(r, g->options.seed),
                              .index = index,
                              .most_tokens = r->sampling.max_tokens < left ? r->sampling.max_tokens : left,
                              .never = g->options.never,
                              .never_count = (int64_t)g->options.never_count,
                              .drawn = g->options.drawn,
                              .most_kept = g->options.most_kept};
  treadle_status status;
  j->begun = true;
  TRY(treadle_sample_init(&j->sample, &spec));
  TRY(treadle_sample_text_init(&j->text, g->options.tokenizer));
  for (int64_t i = 0; i < r->input.token_count; i++)
    TRY(treadle_array_push(&j->sequence.tokens, r->input.tokens[i]));
  if (index == 0) g->figures.prompt_tokens += r->input.token_count;
  treadle_schedule_add(&g->schedule, &j->sequence);
out:
  return status;
}

/* If replicas divide the requests, each gets a request with all its samples: these have a prompt in common. */
static bool has_job(const generating *g, const job *j) {
  return !g->divided || treadle_collect_has(g->engine, (size_t)(j->request - g->requests.items.items));
}

/* Enough sequences wait that the batch can be filled. */
static treadle_status begin_jobs(generating *g) {
  treadle_status status = TREADLE_OK;
  size_t groups = g->divided ? (size_t)g->engine->replica.place.count : 1;
  size_t ahead = 4 * (size_t)g->engine->max_batch * groups;
  for (; g->added < g->job_count && g->added < g->answered + ahead; g->added++)
    if (has_job(g, &g->jobs[g->added])) TRY(begin_job(g, &g->jobs[g->added]));
out:
  return status;
}

/* The experts of all its tokens but the last one, which was not computed: where they are recorded. */
static treadle_status take_experts(const generating *g, job *j) {
  const int64_t each = treadle_pass_record_bytes(g->engine->pass),
                tokens = (int64_t)j->sequence.tokens.count - 1;
  if (!each) return TREADLE_OK;
  j->sample.expert_top = g->engine->transformer->routing.top;
  j->sample.expert_layers = each / 2 / j->sample.expert_top;
  j->sample.expert_bytes = (size_t)(tokens * each);
  j->sample.experts = treadle_alloc_array((size_t)tokens, (size_t)each);
  if (!j->sample.experts)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for the experts of %lld tokens", (long long)tokens);
  treadle_pass_read_record(g->engine->pass, j->sequence.table.items, tokens, j->sample.experts);
  return TREADLE_OK;
}

static void end_job(generating *g, job *j) {
  treadle_sample_text_release(&j->text);
  treadle_schedule_end(&g->schedule, &j->sequence);
  treadle_sequence_release(&j->sequence);
  j->ended = true;
}

/* ---- Tokens ------------------------------------------------------------------------------------------ */

static treadle_status tell(generating *g, job *j) {
  size_t bytes;
  const char *text = treadle_sample_text_tell(&j->text, &j->sample, &bytes);
  return g->options.text(g->options.context, j->request->number, j->sample.spec.index, text, bytes);
}

bool treadle_generate_call_keeps(const generating *g, const treadle_sampling_values *values) {
  return g->options.drawn && treadle_sampling_cuts(values, g->engine->transformer->vocabulary);
}

static treadle_status take_token(generating *g, job *j, const treadle_token_row *row) {
  int64_t vocabulary = g->engine->transformer->vocabulary, tops = j->request->sampling.logprobs;
  treadle_token_logprob top[TREADLE_MOST_TOP_LOGPROBS];
  float logprob = treadle_logprob(row->logits[row->token], row->temperature, row->lse);
  treadle_status status;
  if (tops) tops = treadle_logprob_top(row->logits, vocabulary, row->temperature, row->lse, tops, top);
  if (treadle_generate_call_keeps(g, &j->request->sampling))
    TRY(treadle_sample_keep(&j->sample, row->kept.items, row->kept.count));
  TRY(treadle_sample_take(&j->sample, row->token, logprob, top, tops));
  TRY(treadle_array_push(&j->sequence.tokens, row->token));
  j->version = g->version;
  g->figures.new_tokens++;
  TRY(treadle_sample_text_take(&j->text, &j->sample));
  if (g->options.text) TRY(tell(g, j));
  if (j->sample.finish) TRY(take_experts(g, j));
  if (j->sample.finish) end_job(g, j);
out:
  return status;
}

/* Who has all rows computed gets a token. */
static treadle_status take_tokens(generating *g, const treadle_pass_step *step) {
  treadle_logprob_type type =
      g->options.scaled || g->options.drawn ? TREADLE_LOGPROB_SCALED : TREADLE_LOGPROB_RAW;
  const float *logits;
  int64_t row = 0;
  treadle_status status;
  g->wanted = 0;
  for (int32_t i = 0; i < step->stretch_count; i++) {
    treadle_sequence *q = g->schedule.stepping[i];
    row += step->stretches[i].rows;
    if (q->computed < (int64_t)q->tokens.count) continue;
    g->which[g->wanted] = (int32_t)row - 1;
    g->wanting[g->wanted++] = &g->jobs[q->number];
  }
  TRY(treadle_pass_logits(g->engine->pass, g->which, g->wanted, &logits));
  for (int64_t i = 0; i < g->wanted; i++) {
    treadle_token_row *to = &g->rows.items[i];
    to->sample = &g->wanting[i]->sample;
    to->logits = logits + i * g->engine->transformer->vocabulary;
    to->temperature = treadle_logprob_temperature(type, &g->wanting[i]->request->sampling);
  }
  TRY(treadle_token_rows_run(&g->rows, g->wanted));
  for (int64_t i = 0; i < g->wanted; i++) {
    const treadle_token_row *of = &g->rows.items[i];
    TRY(treadle_generator_check_row(g->engine, of->logits, of->temperature, of->lse));
  }
  for (int64_t i = 0; i < g->wanted; i++) TRY(take_token(g, g->wanting[i], &g->rows.items[i]));
out:
  return status;
}

/* ---- Steps ------------------------------------------------------------------------------------------- */

/* Those that have ended, and all before them. */
static treadle_status answer_ended(generating *g) {
  treadle_status status = TREADLE_OK;
  for (; g->answered < g->job_count; g->answered++) {
    job *j = &g->jobs[g->answered];
    if (!has_job(g, j)) continue;
    if (!j->ended) break;
    if (g->answer) TRY(g->answer(g->context, j));
  }
out:
  return status;
}

/* The weights go away. */
static void restart(void *context) {
  generating *g = context;
  treadle_schedule_restart(&g->schedule);
  g->engine->seed++;
}

static treadle_status tell_observer(const generating *g) {
  return treadle_generator_tell(&g->observer, "generation", g->doing, (int64_t)g->answered,
                                (int64_t)g->job_count);
}

/* While there are no weights. Other replicas may have some, and wait. */
static treadle_status idle(void *context) {
  generating *g = context;
  treadle_collect_go_on(g->engine);
  return tell_observer(g);
}

/* *rows_p: of all groups of the replica; none: all of them have ended. */
static treadle_status make_step(generating *g, int64_t *rows_p) {
  treadle_pass_step step;
  treadle_status status;
  TRY(treadle_gate_enter(&g->engine->gate));
  g->version = g->engine->version;
  g->schedule.seed = g->engine->seed;
  TRY(begin_jobs(g));
  TRY(treadle_schedule_step(&g->schedule, &step));
  TRY(treadle_pass_count_rows(g->engine->pass, step.rows, rows_p));
  if (*rows_p) TRY(treadle_pass_run(g->engine->pass, &step));
  treadle_schedule_done(&g->schedule, &step);
  TRY(take_tokens(g, &step));
  treadle_gate_leave(&g->engine->gate);
out:
  return status;
}

treadle_status treadle_generate_call_run(generating *g) {
  const treadle_gate_call call = {.restart = restart, .idle = idle, .context = g};
  const bool alone = g->engine->replica.group_count == 1;
  int64_t rows = 1;
  treadle_status status = TREADLE_OK;
  treadle_gate_begin(&g->engine->gate, &call);
  TRY(answer_ended(g)); /* nothing, but for those of other groups */
  while (alone ? g->answered < g->job_count : rows > 0) {
    TRY(make_step(g, &rows));
    TRY(answer_ended(g));
    treadle_collect_go_on(g->engine);
    TRY(tell_observer(g));
  }
out:
  treadle_gate_end(&g->engine->gate);
  return status;
}

static treadle_status look(void *context) { return tell_observer(context); }

treadle_status treadle_generate_call_wait(generating *g) {
  return treadle_collect_wait(g->engine, &(treadle_watch){look, g});
}
