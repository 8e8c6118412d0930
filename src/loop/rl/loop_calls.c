/* The calls of rank 0, each with its message. */
#include "rl/calls_rows.h"

#include "base/alloc.h"

#include <string.h>

static treadle_status call(treadle_rl_workers *workers, const char *method) {
  return treadle_worker_group_call(&workers->group, method, &workers->in, &workers->out);
}

static treadle_status call_critic(treadle_rl_workers *workers, const char *method) {
  treadle_worker_group *group = workers->critics.relay ? &workers->critics : &workers->group;
  return treadle_worker_group_call(group, method, &workers->in, &workers->out);
}

void treadle_rl_workers_release(treadle_rl_workers *workers) {
  treadle_message_release(&workers->in);
  treadle_message_release(&workers->out);
  treadle_worker_group_release(&workers->group);
  treadle_worker_group_release(&workers->critics);
  treadle_trace_destroy(workers->trace);
}

/* ---- Answers ------------------------------------------------------------------------------------------------- */

void treadle_rl_answers_release(treadle_rl_answers *answers) {
  for (size_t i = 0; i < answers->count; i++) treadle_batch_destroy(answers->parts[i]);
  treadle_free(answers->parts);
  *answers = (treadle_rl_answers){0};
}

/* Answers of one rank after the other, which are those to all prompts: each replica has prompts that follow those of the
 * one before. */
static treadle_status find_answers(const treadle_rl_workers *workers, treadle_rl_answers *a) {
  const int ranks = treadle_worker_group_ranks(&workers->group);
  int64_t next = 0;
  treadle_status status = TREADLE_OK;
  for (int rank = 0; rank < ranks; rank++) {
    treadle_message answer = treadle_worker_group_answer(&workers->group, rank, &workers->out);
    int64_t first, has;
    TRY(treadle_message_int(&answer, "first prompt", &first));
    TRY(treadle_message_int(&answer, "answers", &has));
    if (!has) continue;
    if (first < next)
      TRY(treadle_fail(TREADLE_PEER, "rank %d answers prompts from %lld on, which others do", rank,
                       (long long)first));
    TRY(treadle_message_batch(&answer, &a->parts[a->count]));
    a->count++;
    next = first;
  }
out:
  return status;
}

treadle_status treadle_rl_call_generate(treadle_rl_workers *workers, const treadle_tokenizer *tokenizer,
                                        const treadle_batch *prompts, const treadle_rl_sampling *sampling,
                                        treadle_rl_answers *answers_p) {
  const treadle_message_rows rows = {.batch = prompts};
  const int ranks = treadle_worker_group_ranks(&workers->group);
  treadle_status status;
  *answers_p = (treadle_rl_answers){.parts = treadle_alloc_array((size_t)ranks, sizeof(*answers_p->parts))};
  if (!answers_p->parts) return treadle_fail(TREADLE_NO_MEMORY, "no memory for answers of %d ranks", ranks);
  treadle_message_clear(&workers->in);
  treadle_message_put_int(&workers->in, sampling->n);
  treadle_message_put_real(&workers->in, sampling->temperature);
  treadle_message_put_real(&workers->in, sampling->top_p);
  treadle_message_put_int(&workers->in, sampling->top_k > 0 ? sampling->top_k : -1);
  treadle_message_put_int(&workers->in, sampling->keeps);
  /* Other ranks have no tokenizer, and know the end tokens of the model's files alone (generate/defaults.c). */
  treadle_message_put_int(&workers->in, tokenizer ? treadle_tokenizer_special(tokenizer, TREADLE_EOS) : -1);
  treadle_message_put_rows(&workers->in, &rows);
  TRY(call(workers, "generate_sequences"));
  TRY(find_answers(workers, answers_p));
out:
  return status;
}

/* ---- Calls with rows ---------------------------------------------------------------------------------------- */

treadle_status treadle_rl_call_logprobs(treadle_rl_workers *workers, const treadle_rl_rows *rows,
                                        bool reference, float *logprobs, float *entropies) {
  static const char *const names[] = {"prompt_ids", "ids", "kept_counts", "kept", "experts"};
  const bool records = rows->batch->awaits_experts && !reference, own = reference || records;
  const size_t count = sizeof names / sizeof *names - (own ? 1 : 0); /* experts are chosen anew */
  const treadle_rl_answer_column wanted[] = {
      {.name = "log_probs", .values = logprobs},
      {.name = "entropies", .values = entropies},
      {.name = "experts_differing", .by_row = rows->batch->differing},
      {.name = "experts", .records = records ? rows->batch->experts.items : NULL},
      {0}};
  treadle_message rest;
  treadle_rl_rows_choice c;
  treadle_status status;
  TRY(treadle_rl_choose(rows, &c));
  if (!c.count) goto out;
  treadle_message_clear(&workers->in);
  treadle_message_put_int(&workers->in, entropies != NULL);
  TRY(treadle_rl_call_rows(workers, reference ? "compute_ref_log_prob" : "compute_log_prob", &c, names,
                           count));
  TRY(treadle_rl_take_answers(workers, &c, wanted, &rest));
out:
  treadle_free(c.rows);
  return status;
}

treadle_status treadle_rl_call_enter(treadle_rl_workers *workers, treadle_mode mode) {
  treadle_message_clear(&workers->in);
  treadle_message_put_int(&workers->in, mode);
  return call(workers, "enter");
}

/* With the columns that the loss reads. */
static treadle_status call_update(treadle_rl_workers *workers, const treadle_rl_rows_choice *c,
                                  const treadle_loss_options *loss) {
  const bool old = treadle_batch_has(c->batch->columns, "old_log_probs");
  const char *names[10] = {"prompt_ids", "ids",       "kept_counts", "kept",
                           "experts",    "advantage", "advantages"};
  size_t count = 7;
  if (old) names[count++] = "old_log_probs";
  if (loss->kl) names[count++] = "ref_log_probs";
  if (!old || loss->importance_cap > 0) names[count++] = "rollout_log_probs";
  return treadle_rl_call_rows(workers, "update", c, names, count);
}

treadle_status treadle_rl_call_update(treadle_rl_workers *workers, const treadle_rl_update *update,
                                      treadle_optimizer_figures *figures_p) {
  const treadle_rl_answer_column wanted[] = {{.name = "log_probs", .values = update->logprobs},
                                             {.name = "entropies", .values = update->entropies},
                                             {.name = "experts_differing", .by_row = update->differing},
                                             {0}};
  treadle_message rest;
  treadle_rl_rows_choice c;
  const void *found;
  treadle_status status;
  TRY(treadle_rl_choose(&update->rows, &c));
  treadle_message_clear(&workers->in);
  treadle_message_put_real(&workers->in, update->loss.kl_coef);
  treadle_message_put_int(&workers->in, update->entropies != NULL);
  treadle_message_put_real(&workers->in, update->step.lr);
  TRY(call_update(workers, &c, &update->loss));
  TRY(treadle_rl_take_answers(workers, &c, wanted, &rest));
  TRY(treadle_message_array(&rest, "figures", sizeof *figures_p, 1, &found));
  memcpy(figures_p, found, sizeof *figures_p);
out:
  treadle_free(c.rows);
  return status;
}

/* ---- The critic's --------------------------------------------------------------------------------------------- */

treadle_status treadle_rl_call_values(treadle_rl_workers *workers, const treadle_rl_rows *rows,
                                      float *values) {
  static const char *const names[] = {"prompt_ids", "ids"};
  const treadle_rl_answer_column wanted[] = {{.name = "values", .values = values}, {0}};
  treadle_message rest;
  treadle_rl_rows_choice c;
  treadle_status status;
  TRY(treadle_rl_choose(rows, &c));
  if (!c.count) goto out;
  treadle_message_clear(&workers->in);
  TRY(treadle_rl_call_rows(workers, "compute_values", &c, names, sizeof names / sizeof *names));
  TRY(treadle_rl_take_answers(workers, &c, wanted, &rest));
out:
  treadle_free(c.rows);
  return status;
}

treadle_status treadle_rl_call_update_critic(treadle_rl_workers *workers, const treadle_rl_rows *rows,
                                             double lr, treadle_optimizer_figures *figures_p) {
  static const char *const names[] = {"prompt_ids", "ids", "values", "returns"};
  treadle_rl_rows_choice c;
  const void *found;
  treadle_status status;
  TRY(treadle_rl_choose(rows, &c));
  treadle_message_clear(&workers->in);
  treadle_message_put_real(&workers->in, lr);
  TRY(treadle_rl_call_rows(workers, "update_critic", &c, names, sizeof names / sizeof *names));
  treadle_message answer = treadle_worker_group_answer(&workers->group, 0, &workers->out);
  TRY(treadle_message_array(&answer, "figures", sizeof *figures_p, 1, &found));
  memcpy(figures_p, found, sizeof *figures_p);
out:
  treadle_free(c.rows);
  return status;
}

treadle_status treadle_rl_call_rest(treadle_rl_workers *workers) {
  treadle_message_clear(&workers->in);
  return call_critic(workers, "rest_critic");
}

/* ---- The rest ---------------------------------------------------------------------------------------------- */

static void put_text(treadle_message *in, const char *text) {
  treadle_message_put_bytes(in, text, strlen(text) + 1);
}

treadle_status treadle_rl_call_save(treadle_rl_workers *workers,
                                    const treadle_train_checkpoint *checkpoint) {
  treadle_message_clear(&workers->in);
  treadle_message_put_int(&workers->in, checkpoint->step);
  treadle_message_put_int(&workers->in, checkpoint->max_to_keep);
  put_text(&workers->in, checkpoint->run);
  put_text(&workers->in, checkpoint->data);
  put_text(&workers->in, checkpoint->rng);
  return call(workers, "save");
}

treadle_status treadle_rl_call_save_role(treadle_rl_workers *workers, bool critic, const char *folder) {
  treadle_message_clear(&workers->in);
  put_text(&workers->in, folder);
  return critic ? call_critic(workers, "save_critic") : call(workers, "save_policy");
}

treadle_status treadle_rl_call_digest(treadle_rl_workers *workers, uint64_t *digest_p) {
  int64_t digest = 0;
  treadle_status status;
  treadle_message_clear(&workers->in);
  TRY(call(workers, "weights_digest"));
  TRY(treadle_message_int(&workers->out, "digest", &digest));
  *digest_p = (uint64_t)digest;
out:
  return status;
}

treadle_status treadle_rl_call_each(treadle_rl_workers *workers, treadle_rl_group_call *ask,
                                    void *context) {
  treadle_worker_group one = {.methods = workers->group.methods};
  treadle_status status;
  TRY(ask(workers, &workers->group, context));
  for (int p = 0; p < workers->relay_count; p++) {
    one.relay = &workers->relays[p];
    if (one.relay != workers->group.relay) TRY(ask(workers, &one, context));
  }
out:
  return status;
}

/* gauges: treadle_rl_gauges. */
static treadle_status call_gauges(treadle_rl_workers *workers, treadle_worker_group *group, void *gauges) {
  treadle_rl_gauges *all = gauges, others;
  const void *from;
  treadle_status status;
  treadle_message_clear(&workers->in);
  TRY(treadle_worker_group_call(group, "gauges", &workers->in, &workers->out));
  TRY(treadle_message_array(&workers->out, "gauges", sizeof others, 1, &from));
  memcpy(&others, from, sizeof others);
  if (group == &workers->group)
    *all = others;
  else
    treadle_rl_gauges_join(all, &others);
out:
  return status;
}

treadle_status treadle_rl_call_gauges(treadle_rl_workers *workers, treadle_rl_gauges *gauges_p) {
  *gauges_p = (treadle_rl_gauges){.stops = false};
  return treadle_rl_call_each(workers, call_gauges, gauges_p);
}
