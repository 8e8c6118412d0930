/* The methods of a worker: what all ranks do when rank 0 calls. Each takes its arguments from the message in the order in which loop_calls.c puts
 * them there, and the memory that it needs; ranks agree that they have it before they compute together. */
#include "rl/loop.h"

#include "base/alloc.h"
#include "control/actor.h"
#include "group/group.h"
#include "rl/role.h"
#include "rl/taken.h"
#include "rl/trace.h"

#include <string.h>

/* ---- generate_sequences ------------------------------------------------------------------------------------ */

static void tell_generating(void *context, const char *what, int64_t done, int64_t total) {
  const treadle_rl_crew *crew = context;
  treadle_observe_progress(&crew->observer, what, done, total);
}

treadle_status treadle_rl_take_asked(treadle_rl_crew *crew, const treadle_train_settings *s,
                                     const treadle_rl_bounds *bounds, treadle_message *in,
                                     treadle_rl_asked *asked_p) {
  treadle_rl_asked *a = asked_p;
  int64_t keeps, end;
  treadle_status status;
  *a = (treadle_rl_asked){.sampling = TREADLE_SAMPLING_INIT, .observer = TREADLE_INIT(treadle_observer)};
  treadle_sampling *to = &a->sampling;
  TRY(treadle_message_int(in, "n", &to->n));
  TRY(treadle_message_real(in, "temperature", &to->temperature));
  TRY(treadle_message_real(in, "top_p", &to->top_p));
  TRY(treadle_message_int(in, "top_k", &to->top_k));
  TRY(treadle_message_int(in, "keeps", &keeps));
  TRY(treadle_message_int(in, "end token", &end));
  TRY(treadle_message_batch(in, &a->prompts));
  to->min_p = s->sampling.min_p;
  to->ignore_eos = s->sampling.ignore_eos;
  to->max_tokens = bounds->response_most;
  if (s->sampling.ignore_eos) to->min_tokens = bounds->response_most;
  to->logprobs_of = keeps ? TREADLE_LOGPROBS_DRAWN : TREADLE_LOGPROBS_SCALED;
  to->most_kept = keeps ? s->rl.logprobs.sampling_support_most : 0;
  to->never = bounds->never;
  to->never_count = bounds->never_count;
  a->end = (int32_t)end;
  to->stop_token_ids = &a->end;
  to->stop_token_id_count = end >= 0;
  if (crew->rank == 0) a->observer.progress = tell_generating;
  a->observer.context = crew;
out:
  return status;
}

void treadle_rl_put_answers(treadle_message *out, int64_t first, const treadle_batch *answers) {
  const treadle_message_rows rows = {.batch = answers};
  treadle_message_put_int(out, first);
  treadle_message_put_int(out, answers != NULL);
  if (answers) treadle_message_put_rows(out, &rows);
}

static treadle_status generate(void *worker, treadle_message *in, treadle_message *out) {
  treadle_rl *rl = worker;
  treadle_rl_asked asked;
  treadle_batch *mine = NULL, *answers = NULL;
  treadle_row_range range;
  bool leads;
  treadle_status status = treadle_rl_take_asked(&rl->crew, rl->task.settings, &rl->bounds, in, &asked);
  if (!status) status = treadle_actor_slice_prompts(rl->actor, asked.prompts, &range, &leads, &mine);
  TRY(treadle_rl_agree(&rl->crew, status));
  TRY(treadle_actor_generate_sequences(rl->actor, mine, &asked.sampling, &asked.observer, &answers));
  treadle_rl_put_answers(out, range.first, leads ? answers : NULL);
out:
  treadle_batch_destroy(answers);
  treadle_batch_destroy(mine);
  treadle_batch_destroy(asked.prompts);
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

/* ---- Rows -------------------------------------------------------------------------------------------------- */

treadle_status treadle_rl_settle_beside(void *worker, treadle_status status) {
  const treadle_rl *rl = worker;
  return rl->crew.rollout_ranks && rl->actor
             ? treadle_actor_agree_after(rl->actor, TREADLE_ACTOR_TRAINS, status)
             : treadle_rl_agree(&rl->crew, status);
}

/* Those of the role whose method it is. A role beside the policy has an engine of its own. */
static treadle_status divide(void *worker, const char *method, const int64_t *lengths, int64_t rows,
                             treadle_row_range *by_rank, treadle_forward_options *forward_p) {
  const treadle_rl *rl = worker;
  const treadle_train_settings *s = rl->task.settings;
  const struct {
    const char *method;
    const treadle_tenant *role;
    const treadle_config_actor *config;
  } beside[] = {{"compute_values", rl->critic.role, &s->critic.trained},
                {"update_critic", rl->critic.role, &s->critic.trained},
                {"compute_rm_score", rl->reward_model.role, &s->reward.scored},
                {"compute_ref_log_prob", rl->reference.role, &s->reference.frozen}};
  *forward_p = treadle_rl_forward_of(&s->actor, s, &rl->bounds, false);
  for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
    if (!beside[i].role || strcmp(method, beside[i].method) != 0) continue;
    *forward_p = treadle_rl_forward_of(beside[i].config, s, &rl->bounds, false);
    for (int64_t rank = 0; rank < rl->crew.ranks; rank++) by_rank[rank] = (treadle_row_range){0};
    return treadle_tenant_divide(beside[i].role, lengths, rows, forward_p, by_rank);
  }
  return treadle_actor_divide(rl->actor, lengths, rows, forward_p, by_rank);
}

/* ---- compute_log_prob, compute_ref_log_prob ----------------------------------------------------------------- */

static treadle_status take_rows(const treadle_rl *rl, treadle_message *in, bool entropies,
                                treadle_rl_rows_share *t) {
  t->forward = treadle_rl_forward_of(&rl->task.settings->actor, rl->task.settings, &rl->bounds, entropies);
  return treadle_rl_take_rows(&rl->workers.group, in, t);
}

static treadle_status log_probs(treadle_rl *rl, treadle_message *in, treadle_message *out, bool reference) {
  treadle_rl_rows_share r = {0};
  int64_t entropies = 0;
  treadle_status status = treadle_message_int(in, "entropies", &entropies);
  if (!status) status = take_rows(rl, in, entropies != 0, &r);
  const bool records = treadle_rl_trainer_records(rl->task.settings);
  r.forward.replay_experts = !reference && !records && treadle_rl_replays(rl->task.settings);
  r.forward.experts = !reference && records;
  TRY(treadle_rl_agree(&rl->crew, status));
  TRY((reference ? treadle_actor_compute_ref_log_prob
                 : treadle_actor_compute_log_prob)(rl->actor, r.share.mine, &r.forward, r.out));
  treadle_rl_put_rows_share(out, &r);
out:
  treadle_rl_rows_share_release(&r);
  return status;
}

static treadle_status compute_log_prob(void *worker, treadle_message *in, treadle_message *out) {
  return log_probs(worker, in, out, false);
}

/* Of an engine of its own, or of the actor's. */
static treadle_status compute_ref_log_prob(void *worker, treadle_message *in, treadle_message *out) {
  treadle_rl *rl = worker;
  const bool own =
      rl->reference.role || rl->crew.rollout_ranks; /* ranks of Rollout wait for those of Actor */
  return own ? treadle_rl_compute_ref_log_prob(rl, in, out) : log_probs(rl, in, out, true);
}

/* ---- update ------------------------------------------------------------------------------------------------ */

static treadle_status take_update(const treadle_rl *rl, treadle_message *in, treadle_rl_rows_share *r,
                                  treadle_loss_options *loss, treadle_optimizer_step *step) {
  const treadle_train_settings *s = rl->task.settings;
  double kl_coef;
  int64_t entropies;
  treadle_status status;
  TRY(treadle_message_real(in, "kl_coef", &kl_coef));
  TRY(treadle_message_int(in, "entropies", &entropies));
  TRY(treadle_message_real(in, "lr", &step->lr));
  step->weight_decay = s->actor.weight_decay;
  step->clip_grad = s->actor.clip_grad;
  *loss = treadle_rl_loss_of(rl->task.settings, &rl->bounds, kl_coef);
  TRY(take_rows(rl, in, entropies != 0, r));
  r->forward.replay_experts = treadle_rl_replays(s);
out:
  return status;
}

static treadle_status update(void *worker, treadle_message *in, treadle_message *out) {
  treadle_rl *rl = worker;
  treadle_rl_rows_share r = {0};
  treadle_loss_options options;
  treadle_optimizer_step step = TREADLE_INIT(treadle_optimizer_step);
  treadle_optimizer_figures figures = TREADLE_INIT(treadle_optimizer_figures);
  treadle_status status;
  TRY(treadle_rl_agree(&rl->crew, take_update(rl, in, &r, &options, &step)));
  TRY(treadle_actor_update(rl->actor, r.share.mine, &r.forward, &options, &step, r.out, &figures));
  treadle_rl_put_rows_share(out, &r);
  treadle_message_put_bytes(out, &figures, sizeof figures);
out:
  treadle_rl_rows_share_release(&r);
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

/* The policy makes room first, as it does for every call of the critic, where it is on the same ranks. */
static treadle_status save_critic(void *context, const char *folder) {
  treadle_rl *rl = context;
  treadle_status status = TREADLE_OK;
  if (rl->actor) TRY(treadle_actor_enter(rl->actor, TREADLE_FORWARD));
  if (rl->actor) TRY(treadle_actor_exit(rl->actor, TREADLE_FORWARD));
  status = rl->critic.role ? treadle_critic_save(rl->critic.role, folder) : TREADLE_OK;
  if (!status && rl->critic.role) status = treadle_critic_rest(rl->critic.role);
  TRY(treadle_rl_settle_beside(rl, status));
out:
  return status;
}

static treadle_status save(void *worker, treadle_message *in, treadle_message *out) {
  treadle_rl *rl = worker;
  const void *data, *rng, *run;
  size_t length;
  treadle_train_checkpoint c = {.save = save_actor,
                                .save_critic = rl->critic.role ? save_critic : NULL,
                                .context = rl,
                                .shared = rl->folders.own.unlocked,
                                .families = rl->task.options->families};
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
  TRY(treadle_train_checkpoint_save(rl->crew.ranks > 1 ? rl->crew.group : NULL, &c));
out:
  return status;
}

/* Apart: each role by itself, into folders that the controller makes and names. */
static treadle_status save_policy(void *worker, treadle_message *in, treadle_message *out) {
  const void *folder;
  size_t length;
  treadle_status status;
  (void)out;
  TRY(treadle_message_bytes(in, "folder", &folder, &length));
  TRY(treadle_actor_save(((treadle_rl *)worker)->actor, folder));
out:
  return status;
}

static treadle_status save_critic_alone(void *worker, treadle_message *in, treadle_message *out) {
  const void *folder;
  size_t length;
  treadle_status status;
  (void)out;
  TRY(treadle_message_bytes(in, "folder", &folder, &length));
  TRY(save_critic(worker, folder));
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

void treadle_rl_gauges_join(treadle_rl_gauges *g, const treadle_rl_gauges *other) {
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

/* Of a rank without the policy, what other roles have there. */
static void take_books(const treadle_actor_books *books, treadle_actor_info *info) {
  memcpy(info->bytes, books->now, sizeof info->bytes);
  memcpy(info->peaks, books->peaks, sizeof info->peaks);
  info->peak_bytes = books->peak;
}

static treadle_status gauges(void *worker, treadle_message *in, treadle_message *out) {
  treadle_rl *rl = worker;
  treadle_rl_gauges mine = {.fullest = TREADLE_INIT(treadle_actor_info)};
  treadle_status status = TREADLE_OK;
  (void)in;
  take_books(&rl->books, &mine.fullest);
  if (rl->actor) TRY(treadle_actor_get_info(rl->actor, &mine.fullest));
  if (!rl->actor || !rl->actor->sides[TREADLE_ACTOR_GENERATES].here) mine.fullest.kv_blocks = INT64_MAX;
  mine.stops = treadle_observe_stop(&rl->crew.observer);
  treadle_rl_gauges all = mine;
  if (rl->crew.ranks > 1) {
    TRY(treadle_group_say(rl->crew.group, &mine, sizeof mine));
    for (int rank = 0; rank < rl->crew.ranks; rank++)
      treadle_rl_gauges_join(&all, treadle_group_said(rl->crew.group, rank));
  }
  treadle_message_put_bytes(out, &all, sizeof all);
out:
  return status;
}

static const treadle_worker_method methods[] = {
    {"generate_sequences", generate, true},
    {"enter", enter, false},
    {"compute_log_prob", compute_log_prob, true},
    {"compute_ref_log_prob", compute_ref_log_prob, true},
    {"update", update, true},
    {"compute_values", treadle_rl_compute_values, true},
    {"update_critic", treadle_rl_update_critic_rows, true},
    {"rest_critic", treadle_rl_rest_critic, false},
    {"compute_rm_score", treadle_rl_compute_rm_score, true},
    {"save", save, false},
    {"save_policy", save_policy, false},
    {"save_critic", save_critic_alone, false},
    {"weights_digest", weights_digest, false},
    {"gauges", gauges, false},
    {"take_trace", treadle_rl_take_trace, true},
    {NULL, NULL, false},
};

void treadle_rl_open_workers(treadle_rl_workers *workers, treadle_group *group, void *run) {
  workers->group = (treadle_worker_group){.group = group, .methods = methods, .worker = run};
  workers->critics = (treadle_worker_group){.methods = methods, .worker = run};
  workers->divide = divide;
  workers->balances = ((const treadle_rl *)run)->task.settings->rl.batches.balance_batch;
}
