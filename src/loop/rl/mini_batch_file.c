/* A mini batch of dumped samples, and the gradients of its loss. */
#include "rl/loop.h"
#include "rl/mini_batches.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/sized.h"
#include "io/file.h"
#include "layout/layout.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct treadle_rl_mini_batch {
  treadle_rl_dumped dumped;
  treadle_rl_loss loss;
  double temperature;
  int64_t micro, vocabulary, most_tokens; /* most_tokens: of a sequence */
  TREADLE_ARRAY(const treadle_rl_sample *) samples;
  treadle_train_row *rows; /* [samples] */
  int32_t *shared;
  double *weights; /* [samples] of a token of each */
  treadle_rl_token *tokens;
  size_t *first;  /* [samples + 1] of the tokens of each */
  int32_t *never; /* [never_count] ids that no token is */
  size_t never_count;
  bool cut, keeps;    /* a token was drawn from a cut; by the configuration all were */
  size_t *kept_first; /* [tokens + 1] as in a policy */
  int32_t *kept;
  treadle_arena arena;
};

static treadle_status no_memory(void) {
  return treadle_fail(TREADLE_NO_MEMORY, "no memory for a mini batch");
}

static treadle_status choose(treadle_rl_mini_batch *m, const char *path, int64_t number) {
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < m->dumped.items.count; i++) {
    const treadle_rl_sample *s = &m->dumped.items.items[i];
    if (s->mini_batch != number || !s->count) continue;
    if (s->prompt->count + s->count > m->most_tokens)
      REFUSE("%s: line %lld: prompt_ids and ids have %lld tokens, and a sequence has %lld at most by the "
             "configuration",
             path, (long long)s->prompt->line, (long long)(s->prompt->count + s->count),
             (long long)m->most_tokens);
    if (m->loss.use_kl && !s->ref)
      REFUSE("%s: line %lld: ref_log_probs is null, and the loss has a KL (rl_config.use_kl_loss)", path,
             (long long)s->prompt->line);
    if (m->keeps && !s->kept_counts)
      REFUSE("%s: line %lld: kept is null, and by the configuration its tokens were drawn from a cut, by "
             "top_p, top_k or min_p: a dump of sampling_support: full, or of another configuration",
             path, (long long)s->prompt->line);
    m->cut = m->cut || s->kept_counts;
    TRY(treadle_array_push(&m->samples, s));
  }
  if (!m->samples.count) REFUSE("%s: no sample with tokens is of mini batch %lld", path, (long long)number);
out:
  return status;
}

static treadle_status make_row(treadle_rl_mini_batch *m, size_t i) {
  const treadle_rl_sample *s = m->samples.items[i];
  const size_t prompt = (size_t)s->prompt->count, count = prompt + (size_t)s->count;
  int32_t *ids = treadle_arena_alloc_array(&m->arena, count, sizeof *ids);
  uint8_t *mask = treadle_arena_alloc_array(&m->arena, count, 1);
  if (!ids || !mask) return no_memory();
  memcpy(ids, s->prompt->ids, prompt * sizeof *ids);
  memcpy(ids + prompt, s->ids, (size_t)s->count * sizeof *ids);
  memset(mask, 0, prompt);
  memset(mask + prompt, 1, (size_t)s->count);
  m->rows[i] = (treadle_train_row){ids, mask, count};
  m->shared[i] = treadle_rl_shared_tokens(i ? &m->rows[i - 1] : NULL, &m->rows[i]);
  return TREADLE_OK;
}

/* What each token was drawn from; of a sample that was not cut there are no ids. */
static treadle_status make_kept(treadle_rl_mini_batch *m) {
  const size_t count = m->samples.count, tokens = m->first[count];
  size_t all = 0, at = 0;
  if (!m->cut) return TREADLE_OK;
  m->kept_first = treadle_arena_alloc_array(&m->arena, tokens + 1, sizeof *m->kept_first);
  if (!m->kept_first) return no_memory();
  m->kept_first[0] = 0;
  for (size_t i = 0; i < count; i++)
    for (int64_t t = 0; t < m->samples.items[i]->count; t++, at++) {
      all += m->samples.items[i]->kept_counts ? (size_t)m->samples.items[i]->kept_counts[t] : 0;
      m->kept_first[at + 1] = all;
    }
  m->kept = treadle_arena_alloc_array(&m->arena, all + 1, sizeof *m->kept);
  if (!m->kept) return no_memory();
  for (size_t i = 0; i < count; i++) {
    const size_t from = m->kept_first[m->first[i]], end = m->kept_first[m->first[i + 1]];
    if (end > from) memcpy(m->kept + from, m->samples.items[i]->kept, (end - from) * sizeof *m->kept);
  }
  return TREADLE_OK;
}

static treadle_status make_rows(treadle_rl_mini_batch *m) {
  const size_t count = m->samples.count;
  treadle_status status = TREADLE_OK;
  m->rows = treadle_arena_alloc_array(&m->arena, count, sizeof *m->rows);
  m->shared = treadle_arena_alloc_array(&m->arena, count, sizeof *m->shared);
  m->weights = treadle_arena_alloc_array(&m->arena, count, sizeof *m->weights);
  m->first = treadle_arena_alloc_array(&m->arena, count + 1, sizeof *m->first);
  if (!m->rows || !m->shared || !m->weights || !m->first) return no_memory();
  m->first[0] = 0;
  for (size_t i = 0; i < count; i++) {
    TRY(make_row(m, i));
    m->first[i + 1] = m->first[i] + (size_t)m->samples.items[i]->count;
  }
  m->tokens = treadle_arena_alloc_array(&m->arena, m->first[count], sizeof *m->tokens);
  if (!m->tokens) return no_memory();
  for (size_t i = 0; i < count; i++)
    m->weights[i] = treadle_rl_token_weight(&m->loss, m->samples.items[i]->count, (int64_t)m->first[count],
                                            (int64_t)count);
  TRY(make_kept(m));
out:
  return status;
}

/* Ids that no token of the run is: by its tokenizer and the ends of its model, where these are still there, else of the
 * model at hand. */
static treadle_status find_never(treadle_rl_mini_batch *m, treadle_rl *rl, const treadle_model *model) {
  const char *own = rl->settings->model;
  const bool there = own && (treadle_file_is_folder(own) || treadle_file_exists(own));
  treadle_model *run = NULL;
  treadle_status status;
  snprintf(rl->model_path, sizeof rl->model_path, "%s", there ? own : model->path);
  status = treadle_rl_open_text(rl);
  if (status)
    TRY(treadle_fail_in(treadle_as_refusal(status),
                        "which ids are never drawn follows from the tokenizer: "));
  if (there && rl->settings->ignore_eos && treadle_model_open(own, NULL, &run)) run = NULL;
  TRY(treadle_rl_find_never(rl, !rl->settings->ignore_eos ? NULL : run ? run : model));
  m->never = rl->never;
  m->never_count = rl->never_count;
  rl->never = NULL;
out:
  treadle_model_close(run);
  return status;
}

/* That of the run: its lengths, and what tokens are drawn from, follow from the configuration and the model. */
static treadle_status find_loss(treadle_rl_mini_batch *m, const treadle_train_config *config,
                                const treadle_model *model) {
  treadle_rl rl = {.config = config, .settings = treadle_train_config_settings(config)};
  treadle_status status;
  TRY(treadle_rl_find_lengths(&rl, model));
  TRY(find_never(m, &rl, model));
  rl.kl_coef = rl.settings->init_kl_coef;
  m->keeps = treadle_rl_keeps(&rl);
  m->vocabulary = rl.vocabulary;
  m->most_tokens = rl.prompt_most + rl.response_most;
  m->loss = treadle_rl_loss_of(&rl);
out:
  treadle_chat_close(rl.chat);
  treadle_tokenizer_close(rl.tokenizer);
  treadle_free(rl.never);
  return status;
}

/* A KL controller may have moved the coefficient since. */
static void take_coefficient(treadle_rl_mini_batch *m) {
  const double coefficient = m->samples.items[0]->kl_coef;
  if (!isnan(coefficient)) m->loss.kl_coef = coefficient;
}

treadle_status treadle_rl_mini_batch_read(const treadle_train_config *config, const treadle_layout *layout,
                                          const char *path, int64_t number,
                                          treadle_rl_mini_batch **mini_p) {
  treadle_rl_mini_batch *m = NULL;
  treadle_status status;
  TREADLE_NEED(mini_p);
  *mini_p = NULL;
  TREADLE_NEED(config);
  TREADLE_NEED(layout);
  TREADLE_NEED(path);
  const treadle_train_settings *s = treadle_train_config_settings(config);
  m = treadle_alloc(sizeof *m);
  if (!m) return no_memory();
  m->temperature = s->temperature;
  m->micro = s->micro_batch_size;
  TRY(find_loss(m, config, layout->model));
  TRY(treadle_rl_dump_read(path, m->vocabulary, &m->dumped));
  TRY(choose(m, path, number));
  take_coefficient(m);
  TRY(make_rows(m));
  *mini_p = m;
  m = NULL;
out:
  treadle_rl_mini_batch_destroy(m);
  return status;
}

void treadle_rl_mini_batch_destroy(treadle_rl_mini_batch *mini) {
  if (!mini) return;
  treadle_rl_dumped_release(&mini->dumped);
  treadle_array_release(&mini->samples);
  treadle_free(mini->never);
  treadle_arena_release(&mini->arena);
  treadle_free(mini);
}

treadle_status treadle_rl_mini_batch_measure(treadle_rl_mini_batch *mini, int64_t micro,
                                             treadle_trainer_options *options) {
  TREADLE_NEED(mini);
  TREADLE_NEED(options);
  if (micro < 0) REFUSE("micro batches of %lld rows: 1 at least, or 0", (long long)micro);
  if (micro) mini->micro = micro;
  if (!mini->micro) mini->micro = 1;
  const size_t count = mini->samples.count, each = (size_t)mini->micro;
  options->most_rows = options->most_tokens = 0;
  for (size_t first = 0; first < count; first += each) {
    int64_t tokens = 0;
    for (size_t i = first; i < count && i < first + each; i++) {
      tokens += (int64_t)mini->rows[i].count;
      if ((int64_t)mini->rows[i].count > options->most_tokens)
        options->most_tokens = (int64_t)mini->rows[i].count;
    }
    if (tokens > options->most_rows) options->most_rows = tokens;
  }
  options->most_sequences = mini->micro;
  options->most_micro_batches = (int32_t)((count + each - 1) / each);
  return TREADLE_OK;
}

static treadle_status differentiate(void *context, size_t row, size_t token, float logprob, float entropy,
                                    double *by_logprob_p, double *by_entropy_p) {
  treadle_rl_mini_batch *m = context;
  const treadle_rl_sample *s = m->samples.items[row];
  const size_t i = token - (size_t)s->prompt->count;
  treadle_rl_token *one = &m->tokens[m->first[row] + i];
  treadle_rl_token_loss result;
  *one = (treadle_rl_token){.logprob = (double)logprob,
                            .entropy = (double)entropy,
                            .old = (double)s->old[i],
                            .ref = s->ref ? (double)s->ref[i] : 0,
                            .rollout = (double)s->rollout[i],
                            .advantage = s->advantages ? s->advantages[i] : s->advantage,
                            .weight = m->weights[row]};
  treadle_rl_token_loss_of(&m->loss, one, &result);
  *by_logprob_p = result.by_logprob;
  *by_entropy_p = result.by_entropy;
  return TREADLE_OK;
}

treadle_status treadle_rl_mini_batch_gradients(treadle_rl_mini_batch *mini, treadle_trainer *trainer,
                                               treadle_rl_mini_figures *figures_p) {
  treadle_rl_mini_figures f = TREADLE_INIT(treadle_rl_mini_figures);
  treadle_rl_batch_figures sums;
  float *values;
  treadle_status status;
  TREADLE_NEED(mini);
  TREADLE_NEED(trainer);
  TREADLE_NEED_SIZED(figures_p);
  const size_t count = mini->samples.count, tokens = mini->first[count];
  const treadle_train_batch batch = {.struct_size = sizeof batch,
                                     .rows = mini->rows,
                                     .count = count,
                                     .micro_batch_size = (size_t)(mini->micro ? mini->micro : 1),
                                     .shared = mini->shared};
  const treadle_policy policy = {.struct_size = sizeof policy,
                                 .temperature = mini->temperature,
                                 .entropy = true,
                                 .differentiate = differentiate,
                                 .context = mini,
                                 .never = mini->never,
                                 .never_count = mini->never_count,
                                 .kept_first = mini->kept_first,
                                 .kept = mini->kept};
  values = treadle_alloc_array(2 * tokens + 1, sizeof *values);
  if (!values) return no_memory();
  TRY(treadle_trainer_policy_gradients(trainer, &batch, &policy, values, values + tokens));
  for (size_t i = 0; i < count; i++) /* also those that other ranks had */
    for (size_t t = mini->first[i]; t < mini->first[i + 1]; t++) {
      double by[2];
      TRY(differentiate(mini, i, (size_t)mini->samples.items[i]->prompt->count + t - mini->first[i],
                        values[t], values[tokens + t], &by[0], &by[1]));
    }
  treadle_rl_batch_loss(&mini->loss, mini->tokens, tokens, &sums);
  f.samples = (int64_t)count;
  f.tokens = (int64_t)tokens;
  f.loss = sums.loss;
  f.pg_loss = sums.pg_loss;
  f.kl_loss = sums.kl_loss;
  f.entropy = sums.entropy;
  f.clipfrac = sums.clipfrac;
  f.clipfrac_lower = sums.clipfrac_lower;
  f.ppo_kl = sums.ppo_kl;
  TREADLE_GIVE(figures_p, &f);
out:
  treadle_free(values);
  return status;
}
