/* The methods of a worker: what all ranks do when rank 0 calls. Each takes its arguments from the message in the order in which loop_calls.c puts
 * them there, and the memory that it needs; ranks agree that they have it before they compute together. */
#include "rl/loop.h"
#include "rl/mini_batches.h"

#include "base/alloc.h"
#include "group/group.h"

#include <string.h>

/* Rows of a batch as a message has them. */
typedef struct rows_taken {
  treadle_train_batch batch;
  treadle_train_row *rows; /* [count] */
  uint8_t *mask;
  int32_t *shared;
  size_t *first; /* [count] of the counted tokens of each */
  size_t counted;
  size_t *kept_first; /* [counted + 1] as in a policy; NULL: nothing was cut */
  const int32_t *kept;
} rows_taken;

static void release_rows(rows_taken *r) {
  treadle_free(r->rows);
  treadle_free(r->mask);
  treadle_free(r->shared);
  treadle_free(r->first);
  treadle_free(r->kept_first);
}

/* ids: of all rows, one behind the other; of each row how many there are, and with how many its prompt begins. */
static treadle_status fill_rows(rows_taken *r, const int32_t *ids, size_t tokens, const int64_t *counts,
                                const int64_t *prompts, size_t count) {
  size_t at = 0;
  r->rows = treadle_alloc_array(count + 1, sizeof *r->rows);
  r->mask = treadle_alloc_array(tokens + 1, 1);
  r->shared = treadle_alloc_array(count + 1, sizeof *r->shared);
  r->first = treadle_alloc_array(count + 1, sizeof *r->first);
  if (!r->rows || !r->mask || !r->shared || !r->first)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu rows of %zu tokens", count, tokens);
  for (size_t i = 0; i < count; i++) {
    size_t length = (size_t)counts[i], prompt = (size_t)prompts[i];
    if (counts[i] < 1 || length > tokens - at || prompts[i] < 1 || prompt > length)
      return treadle_fail(TREADLE_PEER, "row %zu of a call has %lld tokens, of them %lld of a prompt", i,
                          (long long)counts[i], (long long)prompts[i]);
    memset(r->mask + at, 0, prompt);
    memset(r->mask + at + prompt, 1, length - prompt);
    r->rows[i] = (treadle_train_row){.ids = ids + at, .mask = r->mask + at, .count = length};
    r->shared[i] = treadle_rl_shared_tokens(i ? &r->rows[i - 1] : NULL, &r->rows[i]);
    r->first[i] = r->counted;
    r->counted += length - prompt;
    at += length;
  }
  return TREADLE_OK;
}

/* What each token was drawn from. */
static treadle_status take_kept(treadle_message *in, rows_taken *r) {
  const void *counts, *ids;
  size_t bytes, at = 0;
  treadle_status status;
  TRY(treadle_message_bytes(in, "counts of ids", &counts, &bytes));
  TRY(treadle_message_bytes(in, "ids that tokens were drawn from", &ids, &at));
  if (!bytes) return TREADLE_OK;
  const size_t count = at / sizeof(int32_t);
  const int32_t *of = counts;
  if (bytes != r->counted * sizeof *of)
    TRY(treadle_fail(TREADLE_PEER, "a call has %zu tokens, and counts of ids of %zu", r->counted,
                     bytes / sizeof *of));
  r->kept = ids;
  r->kept_first = treadle_alloc_array(r->counted + 1, sizeof *r->kept_first);
  if (!r->kept_first)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for what %zu tokens were drawn from", r->counted);
  for (size_t i = 0; i < r->counted; i++) {
    const size_t from = r->kept_first[i];
    if (of[i] < 0 || (size_t)of[i] > count - from)
      return treadle_fail(TREADLE_PEER, "a call has %d ids that token %zu was drawn from", of[i], i);
    r->kept_first[i + 1] = from + (size_t)of[i];
  }
out:
  return status;
}

/* What the policy of these rows was drawn from. */
static void use_kept(const treadle_rl *rl, const rows_taken *r, treadle_policy *policy) {
  policy->never = rl->never;
  policy->never_count = rl->never_count;
  policy->kept_first = r->kept_first;
  policy->kept = r->kept;
}

static treadle_status take_rows(treadle_message *in, rows_taken *r) {
  int64_t count, micro, most;
  const void *ids, *counts, *prompts;
  size_t bytes;
  treadle_status status;
  TRY(treadle_message_int(in, "rows", &count));
  if (count < 0) TRY(treadle_fail(TREADLE_PEER, "a call has %lld rows", (long long)count));
  TRY(treadle_message_bytes(in, "ids", &ids, &bytes));
  TRY(treadle_message_array(in, "lengths", sizeof(int64_t), (size_t)count, &counts));
  TRY(treadle_message_array(in, "lengths of prompts", sizeof(int64_t), (size_t)count, &prompts));
  TRY(treadle_message_int(in, "micro batch", &micro));
  TRY(treadle_message_int(in, "tokens of a micro batch", &most));
  TRY(fill_rows(r, ids, bytes / sizeof(int32_t), counts, prompts, (size_t)count));
  r->batch = (treadle_train_batch){.struct_size = sizeof r->batch,
                                   .rows = r->rows,
                                   .count = (size_t)count,
                                   .micro_batch_size = (size_t)micro,
                                   .max_tokens_per_micro = most,
                                   .shared = r->shared};
  TRY(take_kept(in, r));
out:
  return status;
}

/* ---- generate_sequences ------------------------------------------------------------------------------------ */

/* On all ranks: those of other replicas have made the lines. Where memory is out the message knows, and the method fails at its end: the
 * engine's ranks go on together. */
static treadle_status take_answer(void *context, const char *line, size_t bytes) {
  treadle_message *out = context;
  treadle_message_put_int(out, TREADLE_RL_LINE);
  treadle_message_put_bytes(out, line, bytes);
  return TREADLE_OK;
}

/* Before the line of the same sample. */
static treadle_status take_kept_ids(void *context, const int32_t *counts, size_t tokens, const int32_t *ids,
                                    size_t count) {
  treadle_message *out = context;
  treadle_message_put_int(out, TREADLE_RL_KEPT);
  treadle_message_put_bytes(out, counts, tokens * sizeof *counts);
  treadle_message_put_bytes(out, ids, count * sizeof *ids);
  return TREADLE_OK;
}

/* Nobody stops it here: a run that is asked to stop does so behind its step. */
static bool tell_generating(void *context, const char *doing, int64_t done, int64_t total) {
  const treadle_rl *rl = context;
  (void)doing;
  rl->options->doing(rl->options->context, "generating", done, total);
  return true;
}

treadle_status treadle_rl_take_requests(treadle_rl *rl, treadle_message *in, treadle_message *out,
                                        const char **lines_p, size_t *bytes_p,
                                        treadle_generate_options *options_p) {
  const void *lines, *sampling;
  size_t length;
  int64_t keeps;
  treadle_status status;
  TRY(treadle_message_bytes(in, "lines", &lines, bytes_p));
  TRY(treadle_message_bytes(in, "sampling", &sampling, &length));
  TRY(treadle_message_int(in, "keeps", &keeps));
  *lines_p = lines;
  *options_p =
      (treadle_generate_options){.struct_size = sizeof *options_p,
                                 .what = "prompts",
                                 .sampling = sampling,
                                 .scaled = true,
                                 .answer = take_answer,
                                 .context = out,
                                 .watch = rl->rank == 0 && rl->options->doing ? tell_generating : NULL,
                                 .watch_context = rl,
                                 .never = rl->never,
                                 .never_count = rl->never_count,
                                 .drawn = keeps != 0,
                                 .most_kept = keeps ? rl->settings->sampling_support_most : 0,
                                 .kept = keeps ? take_kept_ids : NULL};
out:
  return status;
}

static treadle_status generate(void *worker, treadle_message *in, treadle_message *out) {
  treadle_rl *rl = worker;
  treadle_generate_figures figures = TREADLE_INIT(treadle_generate_figures);
  treadle_generate_options options;
  const char *lines;
  size_t bytes;
  treadle_status status;
  TRY(treadle_rl_take_requests(rl, in, out, &lines, &bytes, &options));
  TRY(treadle_actor_generate_sequences(rl->actor, lines, bytes, &options, &figures));
out:
  return status;
}

/* ---- enter ------------------------------------------------------------------------------------------------- */

static treadle_status enter(void *worker, treadle_message *in, treadle_message *out) {
  treadle_rl *rl = worker;
  int64_t mode;
  treadle_status status;
  (void)out;
  TRY(treadle_message_int(in, "mode", &mode));
  TRY(treadle_actor_enter(rl->actor, (treadle_mode)mode));
  TRY(treadle_actor_exit(rl->actor, (treadle_mode)mode));
out:
  return status;
}

/* ---- compute_log_prob, compute_ref_log_prob ----------------------------------------------------------------- */

typedef struct passing {
  rows_taken rows;
  treadle_policy policy;
  float *logprobs, *entropies; /* [counted], one behind the other; entropies: NULL: not wanted */
} passing;

static treadle_status take_values(rows_taken *rows, bool entropies, float **logprobs_p,
                                  float **entropies_p) {
  *logprobs_p = treadle_alloc_array(2 * rows->counted + 1, sizeof **logprobs_p);
  if (!*logprobs_p)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu log-probabilities", rows->counted);
  *entropies_p = entropies ? *logprobs_p + rows->counted : NULL;
  return TREADLE_OK;
}

static void put_values(treadle_message *out, const rows_taken *rows, const float *logprobs,
                       const float *entropies) {
  treadle_message_put_bytes(out, logprobs, rows->counted * sizeof *logprobs);
  if (entropies) treadle_message_put_bytes(out, entropies, rows->counted * sizeof *entropies);
}

static treadle_status take_pass(const treadle_rl *rl, treadle_message *in, passing *p) {
  int64_t entropies;
  treadle_status status;
  TRY(take_rows(in, &p->rows));
  TRY(treadle_message_real(in, "temperature", &p->policy.temperature));
  TRY(treadle_message_int(in, "entropies", &entropies));
  p->policy.entropy = entropies != 0;
  use_kept(rl, &p->rows, &p->policy);
  TRY(take_values(&p->rows, p->policy.entropy, &p->logprobs, &p->entropies));
out:
  return status;
}

static treadle_status log_probs(treadle_rl *rl, treadle_message *in, treadle_message *out, bool reference) {
  passing p = {.policy = TREADLE_INIT(treadle_policy)};
  treadle_status status;
  TRY(treadle_rl_agree(rl, take_pass(rl, in, &p)));
  TRY((reference ? treadle_actor_compute_ref_log_prob : treadle_actor_compute_log_prob)(
      rl->actor, &p.rows.batch, &p.policy, p.logprobs, p.entropies));
  put_values(out, &p.rows, p.logprobs, p.entropies);
out:
  treadle_free(p.logprobs);
  release_rows(&p.rows);
  return status;
}

static treadle_status compute_log_prob(void *worker, treadle_message *in, treadle_message *out) {
  return log_probs(worker, in, out, false);
}

static treadle_status compute_ref_log_prob(void *worker, treadle_message *in, treadle_message *out) {
  return log_probs(worker, in, out, true);
}

/* ---- update ------------------------------------------------------------------------------------------------ */

typedef struct update_work {
  rows_taken rows;
  treadle_rl_loss loss;
  const float *old, *ref, *rollout; /* [counted] */
  const double *advantages, *weights;
  float *logprobs, *entropies; /* as in a pass */
} update_work;

static treadle_status differentiate(void *context, size_t row, size_t token, float logprob, float entropy,
                                    double *by_logprob_p, double *by_entropy_p) {
  const update_work *w = context;
  const size_t at = w->rows.first[row] + token - treadle_rl_prompt_tokens(&w->rows.rows[row]);
  const treadle_rl_token one = {.logprob = (double)logprob,
                                .entropy = (double)entropy,
                                .old = (double)w->old[at],
                                .ref = (double)w->ref[at],
                                .rollout = (double)w->rollout[at],
                                .advantage = w->advantages[at],
                                .weight = w->weights[at]};
  treadle_rl_token_loss result;
  treadle_rl_token_loss_of(&w->loss, &one, &result);
  *by_logprob_p = result.by_logprob;
  *by_entropy_p = result.by_entropy;
  return TREADLE_OK;
}

static treadle_status take_update(const treadle_rl *rl, treadle_message *in, update_work *w,
                                  treadle_policy *policy, treadle_optimizer_step *step) {
  const void *loss, *taken[5];
  static const char *const names[] = {"old log-probabilities", "reference",
                                      "log-probabilities of the generator", "advantages", "weights"};
  int64_t entropies;
  treadle_status status;
  TRY(take_rows(in, &w->rows));
  TRY(treadle_message_array(in, "loss", sizeof w->loss, 1, &loss));
  memcpy(&w->loss, loss, sizeof w->loss);
  for (int i = 0; i < 5; i++)
    TRY(treadle_message_array(in, names[i], i < 3 ? sizeof(float) : sizeof(double), w->rows.counted,
                              &taken[i]));
  w->old = taken[0];
  w->ref = taken[1];
  w->rollout = taken[2];
  w->advantages = taken[3];
  w->weights = taken[4];
  TRY(treadle_message_real(in, "temperature", &policy->temperature));
  TRY(treadle_message_int(in, "entropies", &entropies));
  policy->entropy = entropies != 0;
  use_kept(rl, &w->rows, policy);
  TRY(treadle_message_real(in, "lr", &step->lr));
  TRY(treadle_message_real(in, "weight_decay", &step->weight_decay));
  TRY(treadle_message_real(in, "clip_grad", &step->clip_grad));
  TRY(take_values(&w->rows, policy->entropy, &w->logprobs, &w->entropies));
out:
  return status;
}

static treadle_status update(void *worker, treadle_message *in, treadle_message *out) {
  treadle_rl *rl = worker;
  update_work w = {0};
  treadle_policy policy = {.struct_size = sizeof policy, .differentiate = differentiate, .context = &w};
  treadle_optimizer_step step = TREADLE_INIT(treadle_optimizer_step);
  treadle_optimizer_figures figures = TREADLE_INIT(treadle_optimizer_figures);
  treadle_status status;
  TRY(treadle_rl_agree(rl, take_update(rl, in, &w, &policy, &step)));
  TRY(treadle_actor_update(rl->actor, &w.rows.batch, &policy, &step, w.logprobs, w.entropies, &figures));
  put_values(out, &w.rows, w.logprobs, w.entropies);
  treadle_message_put_real(out, figures.grad_norm);
  treadle_message_put_int(out, figures.skipped);
  treadle_message_put_int(out, figures.steps);
out:
  treadle_free(w.logprobs);
  release_rows(&w.rows);
  return status;
}

/* ---- save, digest, gauges ---------------------------------------------------------------------------------- */

static treadle_status save_actor(void *context, const char *folder) {
  treadle_rl *rl = context;
  treadle_status status;
  TRY(treadle_actor_save(rl->actor, folder));
  TRY(treadle_rl_write_step(rl));
out:
  return status;
}

static treadle_status save(void *worker, treadle_message *in, treadle_message *out) {
  treadle_rl *rl = worker;
  const void *data, *rng, *run;
  size_t length;
  treadle_train_checkpoint c = {
      .save = save_actor, .context = rl, .shared = rl->lock.unlocked, .families = rl->options->families};
  treadle_status status;
  (void)out;
  TRY(treadle_message_int(in, "step", &c.step));
  TRY(treadle_message_int(in, "max_ckpt_to_keep", &c.max_to_keep));
  TRY(treadle_message_bytes(in, "run", &run, &length));
  TRY(treadle_message_bytes(in, "data", &data, &length));
  TRY(treadle_message_bytes(in, "rng", &rng, &length));
  c.run = run;
  c.data = data;
  c.rng = rng;
  TRY(treadle_train_checkpoint_save(rl->ranks > 1 ? rl->group : NULL, &c));
out:
  return status;
}

static treadle_status weights_digest(void *worker, treadle_message *in, treadle_message *out) {
  uint64_t digest;
  treadle_status status;
  (void)in;
  TRY(treadle_actor_weights_digest(((treadle_rl *)worker)->actor, &digest));
  treadle_message_put_int(out, (int64_t)digest);
out:
  return status;
}

static void join(treadle_rl_gauges *g, const treadle_rl_gauges *other) {
  treadle_actor_info *a = &g->fullest;
  const treadle_actor_info *b = &other->fullest;
  for (int c = 0; c < TREADLE_CLASSES; c++) {
    if (b->bytes[c] > a->bytes[c]) a->bytes[c] = b->bytes[c];
    if (b->peaks[c] > a->peaks[c]) a->peaks[c] = b->peaks[c];
  }
  if (b->peak_bytes > a->peak_bytes) a->peak_bytes = b->peak_bytes;
  if (b->to_infer > a->to_infer) a->to_infer = b->to_infer;
  if (b->to_train > a->to_train) a->to_train = b->to_train;
  if (b->kv_blocks < a->kv_blocks) a->kv_blocks = b->kv_blocks;
  g->stops = g->stops || other->stops;
}

static treadle_status gauges(void *worker, treadle_message *in, treadle_message *out) {
  treadle_rl *rl = worker;
  treadle_rl_gauges mine = {.fullest = TREADLE_INIT(treadle_actor_info)};
  treadle_status status;
  (void)in;
  TRY(treadle_actor_get_info(rl->actor, &mine.fullest));
  mine.stops = rl->options->stops && rl->options->stops(rl->options->context);
  treadle_rl_gauges all = mine;
  if (rl->ranks > 1) {
    TRY(treadle_group_say(rl->group, &mine, sizeof mine));
    for (int rank = 0; rank < rl->ranks; rank++) join(&all, treadle_group_said(rl->group, rank));
  }
  treadle_message_put_bytes(out, &all, sizeof all);
out:
  return status;
}

const treadle_worker_method treadle_rl_methods[] = {
    {"generate_sequences", generate},
    {"enter", enter},
    {"compute_log_prob", compute_log_prob},
    {"compute_ref_log_prob", compute_ref_log_prob},
    {"update", update},
    {"save", save},
    {"weights_digest", weights_digest},
    {"gauges", gauges},
    {NULL, NULL},
};
