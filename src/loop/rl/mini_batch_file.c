/* A mini batch of dumped samples, and the gradients of its loss. */
#include "rl/bounds.h"
#include "rl/dump.h"

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
  treadle_loss_options loss;
  treadle_forward_options forward;
  int64_t vocabulary, most_tokens; /* most_tokens: of a sequence */
  TREADLE_ARRAY(const treadle_rl_sample *) samples;
  treadle_batch *batch; /* a row for each of them */
  int32_t *never;       /* ids that no token is */
  bool cut, keeps;      /* a token was drawn from a cut; by the configuration all were */
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
    if (m->loss.kl && !s->ref)
      REFUSE("%s: line %lld: ref_log_probs is null, and the loss has a KL (rl_config.use_kl_loss)", path,
             (long long)s->prompt->line);
    if (m->keeps && !s->kept_counts)
      REFUSE("%s: line %lld: kept is null, and by the configuration its tokens were drawn from a cut, by "
             "top_p, top_k or min_p: a dump of sampling_support: full, or of another configuration",
             path, (long long)s->prompt->line);
    if (m->forward.replay_experts && !s->experts)
      REFUSE("%s: line %lld: it has no experts, and by the configuration (router_replay.mode) tokens go to "
             "those that were recorded",
             path, (long long)s->prompt->line);
    m->cut = m->cut || s->kept_counts;
    TRY(treadle_array_push(&m->samples, s));
  }
  if (!m->samples.count) REFUSE("%s: no sample with tokens is of mini batch %lld", path, (long long)number);
out:
  return status;
}

/* ---- Columns -------------------------------------------------------------------------------------------------- */

/* How many values a column has of a sample, and which. */
typedef struct source {
  const char *name;
  treadle_column_type type;
  size_t bytes; /* of a value */
  int64_t (*count)(const treadle_rl_sample *s);
  const void *(*values)(const treadle_rl_sample *s); /* NULL: zeros */
} source;

static int64_t prompt_count(const treadle_rl_sample *s) { return s->prompt->count; }
static const void *prompt_ids(const treadle_rl_sample *s) { return s->prompt->ids; }
static int64_t id_count(const treadle_rl_sample *s) { return s->count; }
static const void *ids(const treadle_rl_sample *s) { return s->ids; }
static const void *old(const treadle_rl_sample *s) { return s->old; }
static const void *ref(const treadle_rl_sample *s) { return s->ref; }
static const void *rollout(const treadle_rl_sample *s) { return s->rollout; }
static const void *advantages(const treadle_rl_sample *s) { return s->advantages; }
static const void *kept_counts(const treadle_rl_sample *s) { return s->kept_counts; }
static const void *kept(const treadle_rl_sample *s) { return s->kept; }
static int64_t kept_count(const treadle_rl_sample *s) {
  int64_t all = 0;
  for (int64_t t = 0; s->kept_counts && t < s->count; t++) all += s->kept_counts[t];
  return all;
}

static const source always[] = {{"prompt_ids", TREADLE_COLUMN_INT32, 4, prompt_count, prompt_ids},
                                {"ids", TREADLE_COLUMN_INT32, 4, id_count, ids},
                                {"old_log_probs", TREADLE_COLUMN_FP32, 4, id_count, old},
                                {"rollout_log_probs", TREADLE_COLUMN_FP32, 4, id_count, rollout}};
static int64_t expert_bytes(const treadle_rl_sample *s) { return (int64_t)s->experts_bytes; }
static const void *experts(const treadle_rl_sample *s) { return s->experts; }

static const source recorded = {"experts", TREADLE_COLUMN_BYTES, 1, expert_bytes, experts};
static const source reference = {"ref_log_probs", TREADLE_COLUMN_FP32, 4, id_count, ref};
static const source by_token = {"advantages", TREADLE_COLUMN_FP64, 8, id_count, advantages};
static const source cuts[] = {{"kept_counts", TREADLE_COLUMN_INT32, 4, id_count, kept_counts},
                              {"kept", TREADLE_COLUMN_INT32, 4, kept_count, kept}};

static treadle_status add(treadle_rl_mini_batch *m, const source *from) {
  const size_t rows = m->samples.count;
  int64_t *offsets = treadle_alloc_array(rows + 1, sizeof *offsets);
  treadle_column column = {.struct_size = sizeof column, .name = from->name, .type = from->type};
  treadle_status status = TREADLE_OK;
  if (!offsets) return no_memory();
  offsets[0] = 0;
  for (size_t r = 0; r < rows; r++) offsets[r + 1] = offsets[r] + from->count(m->samples.items[r]);
  column.offsets = offsets;
  TRY(treadle_batch_add(m->batch, &column));
  TRY(treadle_batch_column(m->batch, from->name, &column));
  for (size_t r = 0; r < rows; r++) {
    const void *values = from->values(m->samples.items[r]);
    const size_t bytes = (size_t)(offsets[r + 1] - offsets[r]) * from->bytes;
    if (values && bytes) memcpy((char *)column.data + (size_t)offsets[r] * from->bytes, values, bytes);
  }
out:
  treadle_free(offsets);
  return status;
}

/* One for each sample, or, where a sample has one for each token, for all tokens. */
static treadle_status add_advantages(treadle_rl_mini_batch *m) {
  treadle_column column = {
      .struct_size = sizeof column, .name = "advantage", .type = TREADLE_COLUMN_FP64, .width = 1};
  size_t with = 0;
  treadle_status status;
  for (size_t r = 0; r < m->samples.count; r++) with += m->samples.items[r]->advantages != NULL;
  if (with == m->samples.count) return add(m, &by_token);
  if (with) REFUSE("advantages are in %zu of %zu samples: in all, or in none", with, m->samples.count);
  TRY(treadle_batch_add(m->batch, &column));
  TRY(treadle_batch_column(m->batch, column.name, &column));
  for (size_t r = 0; r < m->samples.count; r++) ((double *)column.data)[r] = m->samples.items[r]->advantage;
out:
  return status;
}

static treadle_status make_batch(treadle_rl_mini_batch *m) {
  treadle_status status;
  TRY(treadle_batch_create((int64_t)m->samples.count, &m->batch));
  for (size_t i = 0; i < sizeof always / sizeof *always; i++) TRY(add(m, &always[i]));
  if (m->loss.kl) TRY(add(m, &reference));
  for (size_t i = 0; m->cut && i < sizeof cuts / sizeof *cuts; i++) TRY(add(m, &cuts[i]));
  if (m->forward.replay_experts) TRY(add(m, &recorded));
  TRY(add_advantages(m));
out:
  return status;
}

/* ---- What a run would do ---------------------------------------------------------------------------------------- */

/* Ids that no token of the run is: by its tokenizer and the ends of its model, where these are still there, else of the
 * model at hand. */
static treadle_status find_never(treadle_rl_mini_batch *m, const treadle_train_settings *s,
                                 treadle_rl_bounds *bounds, const treadle_model *model) {
  const char *own = s->actor.model;
  const bool there = own && (treadle_file_is_folder(own) || treadle_file_exists(own));
  treadle_run_text text = {0};
  treadle_model *run = NULL;
  treadle_status status;
  status = treadle_run_text_open(s->training.tokenizer_name_or_path, there ? own : model->path, &text);
  if (status)
    TRY(treadle_fail_in(treadle_as_refusal(status),
                        "which ids are never drawn follows from the tokenizer: "));
  if (there && s->sampling.ignore_eos && treadle_model_open(own, NULL, &run)) run = NULL;
  TRY(treadle_rl_find_never(bounds, text.tokenizer, !s->sampling.ignore_eos ? NULL : run ? run : model));
  m->never = bounds->never;
  m->forward.never = bounds->never;
  m->forward.never_count = bounds->never_count;
  bounds->never = NULL;
out:
  treadle_model_close(run);
  treadle_run_text_close(&text);
  return status;
}

/* That of the run: its lengths, and what tokens are drawn from, follow from the configuration and the model. */
static treadle_status find_loss(treadle_rl_mini_batch *m, const treadle_train_config *config,
                                const treadle_model *model) {
  const treadle_rl_task task = {.config = config, .settings = treadle_train_config_settings(config)};
  const treadle_run_text none = {0}; /* lengths are those of the configuration and the model alone */
  treadle_rl_bounds bounds = {0};
  treadle_status status;
  TRY(treadle_rl_find_lengths(&bounds, &task, &none, model->path, model));
  TRY(find_never(m, task.settings, &bounds, model));
  m->keeps = treadle_rl_keeps(&bounds, task.settings);
  m->vocabulary = bounds.vocabulary;
  m->most_tokens = bounds.prompt_most + bounds.response_most;
  m->loss = treadle_rl_loss_of(task.settings, &bounds, task.settings->rl.kl.init_coef);
out:
  treadle_rl_bounds_release(&bounds);
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
  m->forward = (treadle_forward_options){.struct_size = sizeof m->forward,
                                         .micro_batch_size = s->actor.micro_batch_size,
                                         .temperature = s->sampling.temperature,
                                         .entropies = true,
                                         .replay_experts = treadle_rl_replays(s)};
  TRY(find_loss(m, config, layout->model));
  TRY(treadle_rl_dump_read(path, m->vocabulary, &m->dumped));
  TRY(choose(m, path, number));
  take_coefficient(m);
  TRY(make_batch(m));
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
  treadle_batch_destroy(mini->batch);
  treadle_free(mini->never);
  treadle_free(mini);
}

static int64_t tokens_of(const treadle_rl_mini_batch *m, size_t sample) {
  return m->samples.items[sample]->prompt->count + m->samples.items[sample]->count;
}

treadle_status treadle_rl_mini_batch_measure(treadle_rl_mini_batch *mini, int64_t micro,
                                             treadle_trainer_options *options) {
  TREADLE_NEED(mini);
  TREADLE_NEED(options);
  if (micro < 0) REFUSE("micro batches of %lld rows: 1 at least, or 0", (long long)micro);
  if (micro) mini->forward.micro_batch_size = micro;
  if (!mini->forward.micro_batch_size) mini->forward.micro_batch_size = 1;
  const size_t count = mini->samples.count, each = (size_t)mini->forward.micro_batch_size;
  options->most_rows = options->most_tokens = 0;
  for (size_t first = 0; first < count; first += each) {
    int64_t tokens = 0;
    for (size_t i = first; i < count && i < first + each; i++) {
      tokens += tokens_of(mini, i);
      if (tokens_of(mini, i) > options->most_tokens) options->most_tokens = tokens_of(mini, i);
    }
    if (tokens > options->most_rows) options->most_rows = tokens;
  }
  options->most_sequences = mini->forward.micro_batch_size;
  options->most_micro_batches = (int32_t)((count + each - 1) / each);
  return TREADLE_OK;
}

treadle_status treadle_rl_mini_batch_gradients(treadle_rl_mini_batch *mini, treadle_trainer *trainer,
                                               treadle_rl_mini_figures *figures_p) {
  treadle_rl_mini_figures f = TREADLE_INIT(treadle_rl_mini_figures);
  treadle_loss loss = TREADLE_INIT(treadle_loss);
  treadle_batch *mine = NULL;
  treadle_status status;
  TREADLE_NEED(mini);
  TREADLE_NEED(trainer);
  TREADLE_NEED_SIZED(figures_p);
  if (!mini->forward.micro_batch_size) mini->forward.micro_batch_size = 1;
  TRY(treadle_trainer_slice(trainer, mini->batch, &mini->forward, NULL, &mine));
  TRY(treadle_trainer_gradients(trainer, mine, &mini->forward, &mini->loss, NULL, &loss));
  f.samples = (int64_t)mini->samples.count;
  f.tokens = loss.tokens;
  f.loss = loss.loss;
  f.pg_loss = loss.pg_loss;
  f.kl_loss = loss.kl_loss;
  f.entropy = loss.entropy;
  f.clipfrac = loss.clipfrac;
  f.clipfrac_lower = loss.clipfrac_lower;
  f.ppo_kl = loss.ppo_kl;
  TREADLE_GIVE(figures_p, &f);
out:
  treadle_batch_destroy(mine);
  return status;
}
