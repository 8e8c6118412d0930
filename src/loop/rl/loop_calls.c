/* The calls of rank 0, each with its message. */
#include "rl/workers.h"

#include "base/alloc.h"
#include "group/group.h"

#include <string.h>

static treadle_status call(treadle_rl_workers *workers, const char *method) {
  return treadle_worker_group_call(&workers->group, method, &workers->in, &workers->out);
}

static int ranks_of(const treadle_rl_workers *workers) {
  return workers->group.group ? treadle_group_size(workers->group.group) : 1;
}

void treadle_rl_workers_release(treadle_rl_workers *workers) {
  treadle_message_release(&workers->in);
  treadle_message_release(&workers->out);
  treadle_worker_group_release(&workers->group);
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
  const int ranks = ranks_of(workers);
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
  const int ranks = ranks_of(workers);
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

/* ---- Rows -------------------------------------------------------------------------------------------------- */

/* Rows of the batch that have tokens; the others have nothing to give. */
typedef struct chosen {
  treadle_rl_batch *batch;
  int64_t *rows; /* [count] */
  size_t count;
} chosen;

static treadle_status choose(const treadle_rl_rows *rows, chosen *c) {
  *c = (chosen){.batch = rows->batch, .rows = treadle_alloc_array(rows->count + 1, sizeof *c->rows)};
  if (!c->rows) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu rows", rows->count);
  for (size_t i = 0; i < rows->count; i++)
    if (rows->batch->samples.items[rows->samples[i]].count) c->rows[c->count++] = rows->samples[i];
  return TREADLE_OK;
}

/* Which of them each rank takes. */
static treadle_status divide(const treadle_rl_workers *workers, const chosen *c,
                             treadle_row_range *by_rank) {
  int64_t *lengths = treadle_alloc_array(c->count + 1, sizeof *lengths);
  treadle_status status;
  if (!lengths) return treadle_fail(TREADLE_NO_MEMORY, "no memory for the lengths of %zu rows", c->count);
  for (size_t i = 0; i < c->count; i++) {
    const treadle_rl_made *sample = &c->batch->samples.items[c->rows[i]];
    lengths[i] = (int64_t)(sample->prompt->count + sample->count);
  }
  status = workers->divide(workers->group.worker, lengths, (int64_t)c->count, by_rank);
  treadle_free(lengths);
  return status;
}

/* A call whose message ends with these columns [count] of the rows. */
static treadle_status call_rows(treadle_rl_workers *workers, const char *method, const chosen *c,
                                const char *const *names, size_t count) {
  treadle_row_range *by_rank = treadle_alloc_array((size_t)ranks_of(workers), sizeof *by_rank);
  const treadle_worker_rows rows = {.rows = {.batch = c->batch->columns,
                                             .names = names,
                                             .count = count,
                                             .rows = c->rows,
                                             .row_count = c->count},
                                    .by_rank = by_rank};
  treadle_status status = TREADLE_OK;
  if (!by_rank)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the rows of %d ranks", ranks_of(workers)));
  TRY(divide(workers, c, by_rank));
  TRY(treadle_worker_group_call_rows(&workers->group, method, &workers->in, &rows, &workers->out));
out:
  treadle_free(by_rank);
  return status;
}

/* Values of rows from `first` on of those that were chosen, each to its place in the batch. */
static treadle_status place(const chosen *c, size_t first, const treadle_batch *out, const char *name,
                            float *values) {
  const size_t rows = (size_t)treadle_batch_rows(out);
  treadle_column column = TREADLE_INIT(treadle_column);
  treadle_status status;
  TRY(treadle_batch_column(out, name, &column));
  for (size_t r = 0; r < rows; r++) {
    const treadle_rl_made *s = &c->batch->samples.items[c->rows[first + r]];
    const int64_t count = column.offsets ? column.offsets[r + 1] - column.offsets[r] : 0;
    if (column.type != TREADLE_COLUMN_FP32 || count != (int64_t)s->count)
      REFUSE("the train engine gives %lld %s for row %zu, which has %zu tokens", (long long)count, name,
             first + r, s->count);
    memcpy(values + s->first, (const float *)column.data + column.offsets[r], s->count * sizeof *values);
  }
out:
  return status;
}

/* What a rank has found of its rows. has [count]: those that some rank has answered. */
static treadle_status take_answer(const chosen *c, treadle_message *answer, float *logprobs,
                                  float *entropies, bool *has) {
  treadle_batch *out = NULL;
  int64_t first;
  treadle_status status;
  TRY(treadle_message_int(answer, "first row", &first));
  TRY(treadle_message_batch(answer, &out));
  const int64_t rows = treadle_batch_rows(out);
  if (!treadle_batch_has(out, "log_probs")) goto out;
  if (first < 0 || (size_t)first > c->count || (size_t)rows > c->count - (size_t)first)
    TRY(treadle_fail(TREADLE_PEER, "a rank answers rows %lld to %lld of %zu", (long long)first,
                     (long long)(first + rows), c->count));
  TRY(place(c, (size_t)first, out, "log_probs", logprobs));
  if (entropies) TRY(place(c, (size_t)first, out, "entropies", entropies));
  memset(has + first, true, (size_t)rows);
out:
  treadle_batch_destroy(out);
  return status;
}

/* What all ranks have found. Ranks with equal rows may all answer, with the same values. *rest_p: what rank 0 answers
 * behind its rows. */
static treadle_status take_answers(treadle_rl_workers *workers, const chosen *c, float *logprobs,
                                   float *entropies, treadle_message *rest_p) {
  const int ranks = ranks_of(workers);
  bool *has = treadle_alloc_array(c->count + 1, sizeof *has);
  treadle_status status = TREADLE_OK;
  if (!has) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for answers to %zu rows", c->count));
  for (int rank = 0; rank < ranks; rank++) {
    treadle_message answer = treadle_worker_group_answer(&workers->group, rank, &workers->out);
    TRY(take_answer(c, &answer, logprobs, entropies, has));
    if (rank == 0) *rest_p = answer;
  }
  for (size_t i = 0; i < c->count; i++)
    if (!has[i])
      TRY(treadle_fail(TREADLE_REFUSED, "no rank of the train engine answers row %zu of %zu", i, c->count));
out:
  treadle_free(has);
  return status;
}

/* ---- Calls with rows ---------------------------------------------------------------------------------------- */

treadle_status treadle_rl_call_logprobs(treadle_rl_workers *workers, const treadle_rl_rows *rows,
                                        bool reference, float *logprobs, float *entropies) {
  static const char *const names[] = {"prompt_ids", "ids", "kept_counts", "kept"};
  treadle_message rest;
  chosen c;
  treadle_status status;
  TRY(choose(rows, &c));
  if (!c.count) goto out;
  treadle_message_clear(&workers->in);
  treadle_message_put_int(&workers->in, entropies != NULL);
  TRY(call_rows(workers, reference ? "compute_ref_log_prob" : "compute_log_prob", &c, names,
                sizeof names / sizeof *names));
  TRY(take_answers(workers, &c, logprobs, entropies, &rest));
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
static treadle_status call_update(treadle_rl_workers *workers, const chosen *c,
                                  const treadle_loss_options *loss) {
  const bool old = treadle_batch_has(c->batch->columns, "old_log_probs");
  const char *names[9] = {"prompt_ids", "ids", "kept_counts", "kept", "advantage", "advantages"};
  size_t count = 6;
  if (old) names[count++] = "old_log_probs";
  if (loss->kl) names[count++] = "ref_log_probs";
  if (!old || loss->importance_cap > 0) names[count++] = "rollout_log_probs";
  return call_rows(workers, "update", c, names, count);
}

treadle_status treadle_rl_call_update(treadle_rl_workers *workers, const treadle_rl_update *update,
                                      treadle_optimizer_figures *figures_p) {
  treadle_message rest;
  chosen c;
  const void *found;
  treadle_status status;
  TRY(choose(&update->rows, &c));
  treadle_message_clear(&workers->in);
  treadle_message_put_real(&workers->in, update->loss.kl_coef);
  treadle_message_put_int(&workers->in, update->entropies != NULL);
  treadle_message_put_real(&workers->in, update->step.lr);
  TRY(call_update(workers, &c, &update->loss));
  TRY(take_answers(workers, &c, update->logprobs, update->entropies, &rest));
  TRY(treadle_message_array(&rest, "figures", sizeof *figures_p, 1, &found));
  memcpy(figures_p, found, sizeof *figures_p);
out:
  treadle_free(c.rows);
  return status;
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

treadle_status treadle_rl_call_gauges(treadle_rl_workers *workers, treadle_rl_gauges *gauges_p) {
  const void *from;
  treadle_status status;
  treadle_message_clear(&workers->in);
  TRY(call(workers, "gauges"));
  TRY(treadle_message_array(&workers->out, "gauges", sizeof *gauges_p, 1, &from));
  memcpy(gauges_p, from, sizeof *gauges_p);
out:
  return status;
}
