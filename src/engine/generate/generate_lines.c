/* Generating for lines of JSON. The replicas divide the requests; answers are given in the order of requests and samples: by a replica
 * alone each as soon as those before it are there, by several when all have met. */
#include "base/argument.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/sized.h"
#include "generate/answers.h"
#include "generate/collect.h"
#include "generate/generate_call.h"
#include "generate/request_text.h"

#include <string.h>

typedef struct generating {
  treadle_generate_call call;
  treadle_collect collect; /* answers, where there are several replicas */
} generating;

/* ---- Before ----------------------------------------------------------------------------------------- */

static treadle_status check_drawn(const treadle_generate_call *call, const treadle_request *r) {
  char what[TREADLE_LINE_NAME];
  if (!call->options.drawn && !call->options.never_count) return TREADLE_OK;
  treadle_generate_call_name(call, r, what);
  if (r->sampling.logprobs && call->options.never_count)
    REFUSE("%s: logprobs is %lld, of tokens that may be among those that are never drawn", what,
           (long long)r->sampling.logprobs);
  return call->options.drawn ? treadle_sampling_check_drawn(what, &r->sampling) : TREADLE_OK;
}

/* The values that lines begin with. */
static treadle_status read_sampling(treadle_generate_call *call, treadle_sampling_values *sampling_p) {
  const treadle_generate_options *o = &call->options;
  json_t *values = NULL;
  treadle_status status;
  TRY(treadle_transformer_sampling(call->engine->transformer, o->tokenizer, &call->arena, sampling_p,
                                   &call->eos));
  if (!o->sampling) goto out;
  const treadle_json_source source = {
      .what = "sampling", .text = o->sampling, .count = strlen(o->sampling), .zeros = true};
  TRY(treadle_json_read(&source, &values));
  if (!treadle_json_is_object(values)) TRY(treadle_fail(TREADLE_REFUSED, "sampling is not a JSON object"));
  TRY(treadle_sampling_read_line("sampling", values, &call->arena, sampling_p));
  TRY(treadle_sampling_check("sampling", sampling_p));
out:
  json_decref(values);
  return status;
}

static treadle_status read_requests(treadle_generate_call *call, const char *lines, size_t bytes) {
  treadle_generator *e = call->engine;
  const treadle_generate_options *o = &call->options;
  treadle_sampling_values sampling;
  const treadle_requests_spec spec = {
      .what = o->what, .sampling = &sampling, .vocabulary = e->transformer->vocabulary};
  const treadle_request_text_spec text = {
      .what = o->what, .tokenizer = o->tokenizer, .chat = o->chat, .answers = true, .talks = o->talks};
  treadle_status status;
  TRY(treadle_generate_call_check_options(o));
  TRY(treadle_generator_check_tokenizer(e, o->tokenizer));
  TRY(read_sampling(call, &sampling));
  TRY(treadle_requests_parse(&spec, lines, bytes, &call->requests));
  for (size_t i = 0; i < call->requests.items.count; i++) {
    treadle_request *r = &call->requests.items.items[i];
    TRY(treadle_request_tokenize(&text, r->line, &call->arena, &r->input));
    TRY(treadle_request_check_tokens(&spec, r, r->input.tokens, r->input.token_count, e->most_tokens));
    TRY(treadle_generate_call_check_room(call, r));
    TRY(check_drawn(call, r));
  }
out:
  return status;
}

static treadle_status prepare(generating *g, const char *lines, size_t bytes) {
  treadle_status status;
  TRY(read_requests(&g->call, lines, bytes));
  TRY(treadle_generate_call_prepare(&g->call));
out:
  return status;
}

/* ---- Answers ----------------------------------------------------------------------------------------- */

/* The digest goes on, and the caller gets the line. */
static treadle_status give_answer(treadle_generate_call *call, const treadle_answer *a) {
  const treadle_generate_options *o = &call->options;
  treadle_status status = TREADLE_OK;
  call->figures.digest =
      treadle_answer_digest(call->figures.digest, a->tokens, a->count, a->logprobs, a->count);
  if (o->kept && a->kept_counts)
    TRY(o->kept(o->context, a->kept_counts, (size_t)a->count, a->kept, a->kept_count));
  if (o->answer) TRY(o->answer(o->context, a->line, strlen(a->line)));
out:
  return status;
}

/* A sample that has ended, in the order of samples: to the caller, or to all ranks later. */
static treadle_status answer(void *context, treadle_generate_job *j) {
  generating *g = context;
  treadle_generate_call *call = &g->call;
  treadle_builder line = {0};
  treadle_status status = TREADLE_OK;
  if (call->options.answer) treadle_answer_add(&line, &j->request->id, &j->sample, (int64_t)j->version);
  static const int32_t none;
  const treadle_answer a = {.tokens = j->sample.tokens.items,
                            .logprobs = j->sample.logprobs.items,
                            .count = (int64_t)j->sample.tokens.count,
                            .kept_counts = !treadle_generate_call_keeps(call, &j->request->sampling) ? NULL
                                           : j->sample.kept_counts.items ? j->sample.kept_counts.items
                                                                         : &none,
                            .kept = j->sample.kept.items,
                            .kept_count = j->sample.kept.count,
                            .line = line.text ? line.text : ""};
  if (line.failed)
    status = treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu samples", call->job_count);
  else if (treadle_collect_is_needed(call->engine))
    status = treadle_collect_put(&g->collect, (size_t)(j - call->jobs), &a);
  else
    status = give_answer(call, &a);
  treadle_builder_release(&line);
  treadle_sample_release(&j->sample);
  j->begun = false;
  return status;
}

/* With several replicas: what all of them made. */
static treadle_status answer_all(generating *g) {
  treadle_generate_call *call = &g->call;
  treadle_generate_figures *f = &call->figures;
  int64_t sums[] = {f->prompt_tokens, f->new_tokens, call->schedule.preemptions, call->schedule.hit_tokens};
  treadle_status status;
  if (!treadle_collect_is_needed(call->engine)) return TREADLE_OK;
  TRY(treadle_collect_meet(&g->collect));
  TRY(treadle_collect_sum(call->engine, sums, 4));
  f->prompt_tokens = sums[0];
  f->new_tokens = sums[1];
  call->schedule.preemptions = sums[2];
  call->schedule.hit_tokens = sums[3];
  for (size_t i = 0; i < call->job_count; i++) {
    treadle_answer a;
    TRY(treadle_collect_get(&g->collect, i, &a));
    TRY(give_answer(call, &a));
  }
out:
  return status;
}

/* ---- The call ---------------------------------------------------------------------------------------- */

static treadle_status run(generating *g) {
  treadle_status status;
  treadle_collect_init(&g->collect, g->call.engine, g->call.job_count);
  TRY(treadle_generate_call_run(&g->call));
  TRY(answer_all(g));
out:
  treadle_pass_tell(g->call.engine->pass, status);
  return status;
}

treadle_status treadle_generator_generate_lines(treadle_generator *engine, const char *lines, size_t bytes,
                                                const treadle_generate_options *options,
                                                treadle_generate_figures *figures_p) {
  generating g = {.call = {.engine = engine,
                           .unit = "line",
                           .doing = "samples",
                           .divided = true,
                           .answer = answer,
                           .context = &g,
                           .figures = TREADLE_INIT(treadle_generate_figures)}};
  treadle_generate_call *call = &g.call;
  treadle_status status;
  double begin = treadle_clock_seconds();
  TREADLE_NEED(engine);
  TREADLE_NEED(lines);
  TREADLE_NEED_SIZED(figures_p);
  TRY(TREADLE_TAKE(options, &call->options));
  TRY(TREADLE_TAKE(call->options.observer, &call->observer));
  if (!call->options.what) call->options.what = "requests";
  TRY(treadle_generator_need_weights(engine, "treadle_generator_generate_lines"));
  TRY(treadle_generate_call_agree(call, "treadle_generator_generate_lines", prepare(&g, lines, bytes)));
  TRY(run(&g));
out:
  call->figures.seconds = treadle_clock_seconds() - begin;
  call->figures.preemptions = call->schedule.preemptions;
  call->figures.prefix_hit_tokens = call->schedule.hit_tokens;
  treadle_collect_release(&g.collect);
  treadle_generate_call_release(call, status);
  call->figures.kv_blocks_leaked = engine->cache.used;
  TREADLE_GIVE(figures_p, &call->figures);
  return status;
}
