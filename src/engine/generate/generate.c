/* Generating: requests become sequences, one for each sample; the schedule says which rows go through the layers; each sequence whose
 * last token was among them gets its next one. Answers are given in the order of requests and samples, each as soon as those before
 * it are there. */
#include "generate/generator.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/sized.h"
#include "generate/answers.h"
#include "generate/collect.h"
#include "generate/request_text.h"
#include "generate/requests.h"
#include "generate/sample_text.h"
#include "generate/schedule.h"
#include "generate/token_rows.h"
#include "generate/uniform.h"

#include <stdlib.h>
#include <string.h>

typedef struct job { /* a sample of a request */
  treadle_sequence sequence;
  treadle_sample sample;
  treadle_sample_text text;
  const treadle_request *request;
  bool begun, ended;
} job;

typedef struct generating {
  treadle_generator *engine;
  treadle_generate_options options;
  treadle_generate_figures figures;
  treadle_requests requests;
  treadle_eos eos;
  job *jobs; /* [job_count] in the order of answers */
  size_t job_count, added, answered;
  treadle_schedule schedule;
  uint64_t version; /* of the weights, in the last step */
  treadle_token_rows rows;
  int32_t *which; /* [batch] rows whose logits are wanted */
  job **wanting;  /* [batch] whose they are */
  int64_t wanted;
  treadle_collect collect; /* answers, where there are several replicas */
  treadle_arena arena;
} generating;

/* ---- Before ----------------------------------------------------------------------------------------- */

static treadle_status no_memory(size_t count) {
  return treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu samples", count);
}

/* A request alone must fit into the cache, or it could never end. */
static treadle_status check_room(const generating *g, const treadle_request *r) {
  const treadle_generator *e = g->engine;
  int64_t most = e->most_tokens, left = most - r->input.token_count;
  if (r->sampling.max_tokens < left) most = r->input.token_count + r->sampling.max_tokens;
  int32_t blocks = treadle_schedule_blocks(&e->cache, most);
  if (blocks <= e->cache.count) return TREADLE_OK;
  return treadle_fail(
      TREADLE_REFUSED,
      "%s: line %lld: %lld tokens are %d blocks of the KV cache, which has %d: it takes %zu bytes",
      g->options.what, (long long)r->line, (long long)most, blocks, e->cache.count,
      (size_t)blocks * treadle_pass_block_bytes(e->pass));
}

static treadle_status check_drawn(generating *g, const treadle_request *r) {
  if (!g->options.drawn && !g->options.never_count) return TREADLE_OK;
  const char *what = treadle_arena_format(&g->arena, "%s: line %lld", g->options.what, (long long)r->line);
  if (!what) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a request");
  if (r->sampling.logprobs && g->options.never_count)
    REFUSE("%s: logprobs is %lld, of tokens that may be among those that are never drawn", what,
           (long long)r->sampling.logprobs);
  return g->options.drawn ? treadle_sampling_check_drawn(what, &r->sampling) : TREADLE_OK;
}

static treadle_status check_options(const treadle_generate_options *o) {
  if (o->never_count && !o->never) REFUSE("never_count is %zu, and never is NULL", o->never_count);
  if (o->most_kept < 0) REFUSE("most_kept is %lld: 1 at least, or 0", (long long)o->most_kept);
  return TREADLE_OK;
}

static treadle_status read_requests(generating *g, const char *lines, size_t bytes) {
  treadle_generator *e = g->engine;
  treadle_sampling_values sampling;
  treadle_requests_spec spec = {
      .what = g->options.what, .sampling = &sampling, .vocabulary = e->transformer->vocabulary};
  const treadle_request_text_spec text = {.what = g->options.what,
                                          .tokenizer = g->options.tokenizer,
                                          .chat = g->options.chat,
                                          .answers = true,
                                          .talks = g->options.talks};
  json_t *values = NULL;
  treadle_status status;
  TRY(check_options(&g->options));
  TRY(treadle_generator_check_tokenizer(e, g->options.tokenizer));
  TRY(treadle_transformer_sampling(e->transformer, g->options.tokenizer, &g->arena, &sampling, &g->eos));
  if (g->options.sampling) {
    const treadle_json_source source = {.what = "sampling",
                                        .text = g->options.sampling,
                                        .count = strlen(g->options.sampling),
                                        .zeros = true};
    TRY(treadle_json_read(&source, &values));
    if (!treadle_json_is_object(values))
      TRY(treadle_fail(TREADLE_REFUSED, "sampling is not a JSON object"));
    TRY(treadle_sampling_read_line("sampling", values, &g->arena, &sampling));
    TRY(treadle_sampling_check("sampling", &sampling));
  }
  TRY(treadle_requests_parse(&spec, lines, bytes, &g->requests));
  for (size_t i = 0; i < g->requests.items.count; i++) {
    treadle_request *r = &g->requests.items.items[i];
    TRY(treadle_request_tokenize(&text, r->line, &g->arena, &r->input));
    TRY(treadle_request_check_tokens(&spec, r, r->input.tokens, r->input.token_count, e->most_tokens));
    TRY(check_room(g, r));
    TRY(check_drawn(g, r));
    g->job_count += (size_t)r->sampling.n;
  }
  g->figures.requests = (int64_t)g->requests.items.count;
  g->figures.samples = (int64_t)g->job_count;
out:
  json_decref(values);
  return status;
}

static treadle_status take_memory(generating *g) {
  treadle_generator *e = g->engine;
  size_t batch = (size_t)e->max_batch;
  treadle_status status;
  g->jobs = treadle_alloc_array(g->job_count + 1, sizeof *g->jobs);
  g->which = treadle_alloc_array(batch, sizeof *g->which);
  g->wanting = treadle_alloc_array(batch, sizeof *g->wanting);
  if (!g->jobs || !g->which || !g->wanting) return no_memory(g->job_count);
  size_t at = 0;
  for (size_t i = 0; i < g->requests.items.count; i++)
    for (int64_t k = 0; k < g->requests.items.items[i].sampling.n; k++, at++) {
      g->jobs[at].request = &g->requests.items.items[i];
      g->jobs[at].sequence.number = (int64_t)at;
      g->jobs[at].sample.spec.index = k;
    }
  TRY(treadle_token_rows_init(&g->rows, e->pass, e->transformer->vocabulary, e->max_batch));
  if (g->options.drawn || g->options.never_count) TRY(treadle_token_rows_draw(&g->rows));
  TRY(treadle_schedule_init(&g->schedule, &e->cache, e->max_batch, e->prefill_chunk));
out:
  return status;
}

static treadle_status prepare(generating *g, const char *lines, size_t bytes) {
  treadle_status status;
  TRY(read_requests(g, lines, bytes));
  TRY(take_memory(g));
out:
  return status;
}

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

/* Requests are divided among the replicas, each with all its samples: these have a prompt in common. */
static bool has_job(const generating *g, const job *j) {
  return treadle_collect_has(g->engine, (size_t)(j->request - g->requests.items.items));
}

/* Enough sequences wait that the batch can be filled. */
static treadle_status begin_jobs(generating *g) {
  treadle_status status = TREADLE_OK;
  size_t ahead = 4 * (size_t)g->engine->max_batch * (size_t)g->engine->replica.count;
  for (; g->added < g->job_count && g->added < g->answered + ahead; g->added++)
    if (has_job(g, &g->jobs[g->added])) TRY(begin_job(g, &g->jobs[g->added]));
out:
  return status;
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

/* Are the ids of its tokens to be known? */
static bool keeps(const generating *g, const job *j) {
  return g->options.drawn &&
         treadle_sampling_cuts(&j->request->sampling, g->engine->transformer->vocabulary);
}

static treadle_status take_token(generating *g, job *j, const treadle_token_row *row) {
  int64_t vocabulary = g->engine->transformer->vocabulary, tops = j->request->sampling.logprobs;
  treadle_token_logprob top[TREADLE_MOST_TOP_LOGPROBS];
  float logprob = treadle_logprob(row->logits[row->token], row->temperature, row->lse);
  treadle_status status;
  if (tops) tops = treadle_logprob_top(row->logits, vocabulary, row->temperature, row->lse, tops, top);
  if (keeps(g, j)) TRY(treadle_sample_keep(&j->sample, row->kept.items, row->kept.count));
  TRY(treadle_sample_take(&j->sample, row->token, logprob, top, tops));
  TRY(treadle_array_push(&j->sequence.tokens, row->token));
  g->figures.new_tokens++;
  TRY(treadle_sample_text_take(&j->text, &j->sample));
  if (g->options.text) TRY(tell(g, j));
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

/* ---- Answers ----------------------------------------------------------------------------------------- */

/* The digest goes on, and the caller gets the line. */
static treadle_status give_answer(generating *g, const treadle_answer *a) {
  const treadle_generate_options *o = &g->options;
  treadle_status status = TREADLE_OK;
  g->figures.digest = treadle_answer_digest(g->figures.digest, a->tokens, a->count, a->logprobs, a->count);
  if (o->kept && a->kept_counts)
    TRY(o->kept(o->context, a->kept_counts, (size_t)a->count, a->kept, a->kept_count));
  if (o->answer) TRY(o->answer(o->context, a->line, strlen(a->line)));
out:
  return status;
}

/* A sample that has ended, in the order of samples: to the caller, or to all ranks later. */
static treadle_status answer(generating *g, size_t number) {
  job *j = &g->jobs[number];
  treadle_builder line = {0};
  treadle_status status = TREADLE_OK;
  if (g->options.answer) treadle_answer_add(&line, &j->request->id, &j->sample, (int64_t)g->version);
  static const int32_t none;
  const treadle_answer a = {.tokens = j->sample.tokens.items,
                            .logprobs = j->sample.logprobs.items,
                            .count = (int64_t)j->sample.tokens.count,
                            .kept_counts = !keeps(g, j)                  ? NULL
                                           : j->sample.kept_counts.items ? j->sample.kept_counts.items
                                                                         : &none,
                            .kept = j->sample.kept.items,
                            .kept_count = j->sample.kept.count,
                            .line = line.text ? line.text : ""};
  if (line.failed)
    status = no_memory(g->job_count);
  else if (treadle_collect_is_needed(g->engine))
    status = treadle_collect_put(&g->collect, number, &a);
  else
    status = give_answer(g, &a);
  treadle_builder_release(&line);
  treadle_sample_release(&j->sample);
  j->begun = false;
  return status;
}

static treadle_status answer_ended(generating *g) {
  treadle_status status = TREADLE_OK;
  for (; g->answered < g->job_count; g->answered++) {
    if (!has_job(g, &g->jobs[g->answered])) continue;
    if (!g->jobs[g->answered].ended) break;
    TRY(answer(g, g->answered));
  }
out:
  return status;
}

/* With several replicas: what all of them made. */
static treadle_status answer_all(generating *g) {
  treadle_generate_figures *f = &g->figures;
  int64_t sums[] = {f->prompt_tokens, f->new_tokens, g->schedule.preemptions, g->schedule.hit_tokens};
  treadle_status status;
  if (!treadle_collect_is_needed(g->engine)) return TREADLE_OK;
  TRY(treadle_collect_meet(&g->collect));
  TRY(treadle_collect_sum(g->engine, sums, 4));
  f->prompt_tokens = sums[0];
  f->new_tokens = sums[1];
  g->schedule.preemptions = sums[2];
  g->schedule.hit_tokens = sums[3];
  for (size_t i = 0; i < g->job_count; i++) {
    treadle_answer a;
    TRY(treadle_collect_get(&g->collect, i, &a));
    TRY(give_answer(g, &a));
  }
out:
  return status;
}

/* ---- Steps ------------------------------------------------------------------------------------------- */

/* The weights go away. */
static void restart(void *context) {
  generating *g = context;
  treadle_schedule_restart(&g->schedule);
  g->engine->seed++;
}

static treadle_status watch(generating *g) {
  const treadle_generate_options *o = &g->options;
  if (!o->watch || o->watch(o->watch_context, "samples", (int64_t)g->answered, (int64_t)g->job_count))
    return TREADLE_OK;
  return treadle_fail(TREADLE_CANCELLED, "generation was cancelled");
}

/* While there are no weights. Other replicas may have some, and wait. */
static treadle_status idle(void *context) {
  generating *g = context;
  treadle_collect_go_on(g->engine);
  return watch(g);
}

static treadle_status make_step(generating *g) {
  treadle_pass_step step;
  treadle_status status;
  TRY(treadle_gate_enter(&g->engine->gate));
  g->version = g->engine->version;
  g->schedule.seed = g->engine->seed;
  TRY(begin_jobs(g));
  TRY(treadle_schedule_step(&g->schedule, &step));
  TRY(treadle_pass_run(g->engine->pass, &step));
  treadle_schedule_done(&g->schedule, &step);
  TRY(take_tokens(g, &step));
  treadle_gate_leave(&g->engine->gate);
out:
  return status;
}

static treadle_status run(generating *g) {
  const treadle_gate_call call = {.restart = restart, .idle = idle, .context = g};
  treadle_status status = TREADLE_OK;
  treadle_collect_init(&g->collect, g->engine, g->job_count);
  treadle_gate_begin(&g->engine->gate, &call);
  TRY(answer_ended(g)); /* nothing, but for those of other replicas */
  while (g->answered < g->job_count) {
    TRY(make_step(g));
    TRY(answer_ended(g));
    treadle_collect_go_on(g->engine);
    TRY(watch(g));
  }
  treadle_gate_end(&g->engine->gate);
  TRY(answer_all(g));
out:
  treadle_gate_end(&g->engine->gate);
  treadle_pass_tell(g->engine->pass, status);
  return status;
}

treadle_status treadle_generator_generate_lines(treadle_generator *engine, const char *lines, size_t bytes,
                                                const treadle_generate_options *options,
                                                treadle_generate_figures *figures_p) {
  generating g = {.engine = engine, .figures = TREADLE_INIT(treadle_generate_figures)};
  treadle_status status;
  double begin = treadle_clock_seconds();
  TREADLE_NEED(engine);
  TREADLE_NEED(lines);
  TREADLE_NEED_SIZED(figures_p);
  TRY(TREADLE_TAKE(options, &g.options));
  if (!g.options.what) g.options.what = "requests";
  TRY(treadle_generator_need_weights(engine, "treadle_generator_generate_lines"));
  TRY(treadle_generator_agree(engine, prepare(&g, lines, bytes)));
  TRY(run(&g));
out:
  g.figures.seconds = treadle_clock_seconds() - begin;
  g.figures.preemptions = g.schedule.preemptions;
  g.figures.prefix_hit_tokens = g.schedule.hit_tokens;
  while (g.schedule.running_count)
    treadle_schedule_end(&g.schedule, g.schedule.running[g.schedule.running_count - 1]);
  if (status) treadle_generator_forget(engine); /* what the cache has of a step that failed is nobody's */
  for (size_t i = 0; g.jobs && i < g.job_count; i++) {
    treadle_sequence_release(&g.jobs[i].sequence);
    treadle_sample_text_release(&g.jobs[i].text);
    if (g.jobs[i].begun) treadle_sample_release(&g.jobs[i].sample);
  }
  treadle_collect_release(&g.collect);
  treadle_schedule_release(&g.schedule);
  treadle_token_rows_release(&g.rows);
  treadle_requests_release(&g.requests);
  treadle_arena_release(&g.arena);
  treadle_free(g.jobs);
  treadle_free(g.which);
  treadle_free(g.wanting);
  g.figures.kv_blocks_leaked = engine->cache.used;
  TREADLE_GIVE(figures_p, &g.figures);
  return status;
}
