/* What a model's answers are worth: the test of a run (loop_test.c), by an engine that has no trainer beside it. */
#include "rl/rollout.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/clock.h"
#include "base/sized.h"
#include "base/text.h"
#include "generate/generator.h"
#include "group/group.h"
#include "model/notes.h"
#include "pass/replica.h"
#include "pass/transformer.h"
#include "reward/reward.h"
#include "treadle_tools.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RESPONSE_MOST = 1024, SAMPLES_MOST = 1 << 20 };

typedef struct evaluation {
  const treadle_eval_options *options;
  treadle_train_settings settings; /* of a run without steps, as far as a test reads them */
  treadle_rl_crew crew;
  treadle_model *model;
  treadle_layout *layout;
  treadle_run_text text;
  treadle_rl_bounds bounds;
  treadle_rl_prompts *prompts;
  treadle_rl_rewards rewards;
  treadle_rl_workers workers;
  bool stopped;
  treadle_generator *engine;
  void *window;
} evaluation;

/* ---- The engine -------------------------------------------------------------------------------------------- */

static bool stops(void *context) {
  return treadle_observe_stop(&((const treadle_rl_crew *)context)->observer);
}

static treadle_status generate(void *worker, treadle_message *in, treadle_message *out) {
  evaluation *e = worker;
  treadle_rl_asked asked;
  treadle_batch *mine = NULL, *answers = NULL;
  treadle_replica_place place = {0};
  treadle_row_range range = {0};
  treadle_status status = treadle_rl_take_asked(&e->crew, &e->settings, &e->bounds, in, &asked);
  if (!status) status = treadle_replica_place_of(e->layout, e->crew.rank, &place);
  if (!status) {
    range = treadle_replica_rows(&place, treadle_batch_rows(asked.prompts));
    status = treadle_batch_slice(asked.prompts, range.first, range.end, &mine);
  }
  TRY(treadle_rl_agree(&e->crew, status));
  if (e->crew.rank == 0) asked.observer.stop = stops;
  TRY(treadle_generator_generate(e->engine, mine, &asked.sampling, &asked.observer, &answers));
  treadle_rl_put_answers(out, range.first, place.leads ? answers : NULL);
out:
  treadle_batch_destroy(answers);
  treadle_batch_destroy(mine);
  treadle_batch_destroy(asked.prompts);
  return status;
}

static const treadle_worker_method methods[] = {{"generate_sequences", generate, true},
                                                {NULL, NULL, false}};

static treadle_status open_tokenizer(const treadle_eval_options *o, treadle_tokenizer **tokenizer_p) {
  treadle_status status = treadle_tokenizer_open(o->tokenizer ? o->tokenizer : o->model, tokenizer_p);
  if (status != TREADLE_REFUSED || o->tokenizer) return status;
  return treadle_fail(status, "%s; tokenizer, --tokenizer, names another", treadle_error_message());
}

static void note(void *context, const char *line) { treadle_rl_note(context, "%s", line); }

static treadle_status open_model(evaluation *e) {
  const treadle_eval_options *o = e->options;
  const treadle_model_options model = {
      .struct_size = sizeof model, .families = o->families, .weights = o->weights};
  treadle_rl_bounds *b = &e->bounds;
  treadle_transformer *d = NULL;
  char unheard[PATH_MAX];
  treadle_status status;
  TRY(treadle_model_open(o->model, &model, &e->model));
  if (e->crew.rank == 0) treadle_model_tell(e->model, note, &e->crew);
  TRY(treadle_model_need_weights(e->model));
  if (treadle_model_weights(e->model) == TREADLE_WEIGHTS_RANDOM)
    treadle_rl_note(&e->crew, TREADLE_MADE_UP, o->model);
  TRY(treadle_model_unheard(e->model, unheard, sizeof unheard));
  if (unheard[0]) treadle_rl_note(&e->crew, "%s", unheard);
  TRY(treadle_layout_create(e->model, o->layout ? o->layout : "vllm:tp=1", e->crew.ranks, NULL,
                            &e->layout));
  TRY(treadle_transformer_create(e->model, &d));
  b->vocabulary = d->vocabulary;
  int64_t all = d->most_positions ? d->most_positions : 2 * RESPONSE_MOST;
  b->response_most = o->max_tokens ? o->max_tokens : all / 2 < RESPONSE_MOST ? all / 2 : RESPONSE_MOST;
  b->prompt_most = all - b->response_most;
  if (b->prompt_most < 1)
    TRY(treadle_fail(TREADLE_REFUSED, "%lld new tokens leave no prompt: %s takes %s",
                     (long long)b->response_most, o->model, treadle_text_of_count(all, "token")));
  TRY(open_tokenizer(o, &e->text.tokenizer));
  TRY(treadle_chat_find(o->tokenizer ? o->tokenizer : o->model, &e->text.chat));
  snprintf(e->text.companions, sizeof e->text.companions, "%s", o->tokenizer ? o->tokenizer : o->model);
  TRY(treadle_rl_find_never(b, e->text.tokenizer, NULL));
  treadle_rl_note_never(b, &e->text, &e->crew);
  TRY(treadle_defaults_check(d, e->text.tokenizer, true));
out:
  treadle_transformer_destroy(d);
  return status;
}

static treadle_status load_weights(evaluation *e) {
  size_t bytes = treadle_layout_window_bytes(e->layout, e->crew.rank);
  if (posix_memalign(&e->window, 64, bytes + 64) != 0)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu bytes of weights", bytes);
  return treadle_layout_load(e->layout, e->crew.rank, e->window);
}

static treadle_status open_engine(evaluation *e) {
  const treadle_generator_options options = {.struct_size = sizeof options,
                                             .kernels = e->options->kernels,
                                             .threads = e->options->threads,
                                             .max_len = e->bounds.prompt_most + e->bounds.response_most};
  treadle_group *group = e->crew.ranks > 1 ? e->crew.group : NULL;
  treadle_status status;
  TRY(treadle_generator_create(group, e->layout, &options, &e->engine));
  TRY(treadle_rl_agree(&e->crew, load_weights(e)));
  TRY(treadle_generator_bind(e->engine, e->window, treadle_layout_window_bytes(e->layout, e->crew.rank)));
  e->workers.group = (treadle_worker_group){.group = group, .methods = methods, .worker = e};
out:
  return status;
}

/* ---- Prompts and rewards, of rank 0 ------------------------------------------------------------------------- */

static treadle_status open_data(evaluation *e) {
  const treadle_eval_options *o = e->options;
  const treadle_reward_options reward = {
      .struct_size = sizeof reward, .name = o->reward, .command = o->reward_command, .timeout_seconds = 60};
  static const treadle_rl_prompts_words words = {
      .prompt_key = "prompt_key, --prompt-key",
      .answer_key = "answer_key, --answer-key",
      .too_long = "a smaller max_tokens, --max-new-tokens, leaves more of the model's positions to prompts",
      .no_answer = "leave_unanswered_out, --no-answer leave_out, leaves such prompts out"};
  treadle_rl_prompts_spec spec = {.path = o->data,
                                  .words = &words,
                                  .prompt_key = o->prompt_key ? o->prompt_key : "prompt",
                                  .answer_key = o->answer_key ? o->answer_key : "answer",
                                  .data_source_key = "data_source",
                                  .tokenizer = e->text.tokenizer,
                                  .chat = e->text.chat,
                                  .vocabulary = e->bounds.vocabulary,
                                  .most_tokens = e->bounds.prompt_most,
                                  .leave_unanswered_out = o->leave_unanswered_out};
  treadle_status status = TREADLE_OK;
  if (e->crew.rank > 0) return TREADLE_OK;
  TRY(treadle_reward_create(&reward, &e->rewards.items[0]));
  e->rewards.weights[0] = 1;
  e->rewards.count = 1;
  spec.need_answer = treadle_reward_needs_answers(e->rewards.items[0]);
  TRY(treadle_rl_prompts_read(&spec, &e->prompts));
out:
  return status;
}

/* ---- The whole ------------------------------------------------------------------------------------------------ */

static treadle_status lead(evaluation *e, treadle_eval_figures *f) {
  const treadle_rl_rollout rollout = {.settings = &e->settings,
                                      .crew = &e->crew,
                                      .bounds = &e->bounds,
                                      .tokenizer = e->text.tokenizer,
                                      .workers = &e->workers,
                                      .rewards = &e->rewards,
                                      .stopped = &e->stopped};
  treadle_rl_batch b = {0};
  treadle_rl_verdicts verdicts = {0};
  treadle_status status;
  TRY(treadle_as_failure(treadle_rl_draw_tests(&rollout, e->prompts, &b)));
  TRY(treadle_rl_judge_tests(&rollout, &b, &verdicts));
  if (e->stopped)
    TRY(treadle_fail(TREADLE_CANCELLED, "the evaluation was stopped while it waited for rewards"));
  for (size_t i = 0; i < b.samples.count; i++) f->tokens += (int64_t)b.samples.items[i].count;
  f->rows = b.groups;
  f->weights = treadle_model_weights(e->model);
  f->left_out = treadle_rl_prompts_unanswered(e->prompts);
  f->samples = e->settings.rl.validation.n;
  f->mean = verdicts.mean;
  f->best = verdicts.best;
  f->majority = verdicts.majority;
  f->response_length = b.samples.count ? (double)f->tokens / (double)b.samples.count : 0;
out:
  treadle_rl_verdicts_release(&verdicts);
  treadle_rl_batch_release(&b);
  return status;
}

static treadle_status run(evaluation *e, treadle_eval_figures *f) {
  treadle_status status;
  TRY(treadle_rl_agree(&e->crew, treadle_as_refusal(open_model(e))));
  TRY(treadle_rl_agree(&e->crew, treadle_as_refusal(open_data(e))));
  TRY(open_engine(e));
  if (e->crew.rank > 0) return treadle_worker_group_serve(&e->workers.group);
  status = lead(e, f);
  return treadle_worker_group_end(&e->workers.group, status);
out:
  return status;
}

static treadle_status check(const treadle_eval_options *o) {
  TREADLE_NEED(o->model);
  TREADLE_NEED(o->data);
  TREADLE_NEED(o->reward);
  if (o->samples < 0 || o->samples > SAMPLES_MOST)
    REFUSE("%lld samples of each prompt: 1 to %d, or 0", (long long)o->samples, SAMPLES_MOST);
  if (!(o->temperature >= 0) || o->temperature > 1000)
    REFUSE("temperature %g: from 0 to 1000", o->temperature);
  if (o->max_tokens < 0 || o->max_tokens > 1 << 24)
    REFUSE("max_tokens %lld: 1 to %d, or 0", (long long)o->max_tokens, 1 << 24);
  return TREADLE_OK;
}

treadle_status treadle_eval(treadle_group *group, const treadle_eval_options *options,
                            treadle_eval_figures *figures_p) {
  treadle_eval_figures f = {.struct_size = sizeof f, .majority = NAN};
  treadle_eval_options o;
  treadle_observer observer;
  evaluation *e;
  double begin = treadle_clock_seconds();
  treadle_status status;
  TREADLE_NEED(options);
  TREADLE_NEED_SIZED(figures_p);
  TRY(TREADLE_TAKE(options, &o));
  TRY(TREADLE_TAKE(o.observer, &observer));
  TRY(check(&o));
  e = treadle_alloc(sizeof *e);
  if (!e) return treadle_fail(TREADLE_NO_MEMORY, "no memory for an evaluation");
  e->options = &o;
  e->settings = (treadle_train_settings){.rl.validation = {.n = o.samples ? o.samples : 1,
                                                           .temperature = o.temperature,
                                                           .top_p = 1,
                                                           .top_k = -1},
                                         .sampling.seed = o.seed};
  e->crew = treadle_rl_crew_of(group, &observer);
  status = run(e, &f);
  if (!status) status = treadle_rl_share(&e->crew, &f, sizeof f);
  treadle_generator_destroy(e->engine);
  treadle_rl_bounds_release(&e->bounds);
  treadle_rl_rewards_release(&e->rewards);
  treadle_rl_workers_release(&e->workers);
  treadle_rl_prompts_destroy(e->prompts);
  treadle_run_text_close(&e->text);
  treadle_layout_destroy(e->layout);
  treadle_model_close(e->model);
  free(e->window);
  treadle_free(e);
  if (status) goto out;
  f.seconds = treadle_clock_seconds() - begin;
  TREADLE_GIVE(figures_p, &f);
out:
  return status;
}
