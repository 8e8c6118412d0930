/* Samples of prompts: what the engine is asked, and what becomes of its answers. A prompt is one row with n answers, so that it is computed
 * once. The seed of a row follows from the run's seed, the step and the prompt's place in it; the engine adds the number of the
 * sample: samples depend on no layout. */
#include "rl/loop.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/text.h"
#include "base/thread_watch.h"
#include "reward/reward.h"

#include <stdlib.h>
#include <string.h>

static const double LOOK = 0.05, GRACE = 0.5; /* seconds */

void treadle_rl_name_sample(const treadle_rl_batch *b, const treadle_rl_made *s, char to[TREADLE_RL_NAME]) {
  snprintf(to, TREADLE_RL_NAME, "%s%lld-%lld-%lld", b->tests ? "test-" : "", (long long)b->step,
           (long long)s->group, (long long)s->index);
}

void treadle_rl_batch_clear(treadle_rl_batch *b) {
  treadle_rl_drop_columns(b);
  for (size_t i = 0; i < b->samples.count; i++) free(b->samples.items[i].text);
  b->samples.count = b->ids.count = b->rollout.count = b->kept_counts.count = b->kept.count = 0;
  b->experts.count = b->scored.count = 0;
  b->groups = 0;
  treadle_free(b->offsets);
  treadle_free(b->old);
  treadle_free(b->ref);
  treadle_free(b->updated);
  treadle_free(b->differing);
  treadle_free(b->entropies);
  treadle_free(b->rewards);
  treadle_free(b->advantages);
  treadle_free(b->returns);
  treadle_free(b->values);
  treadle_free(b->targets);
  for (size_t i = 0; i < b->brought.count; i++) treadle_batch_destroy(b->brought.items[i]);
  for (size_t i = 0; i < b->brought_prompts.count; i++) treadle_free(b->brought_prompts.items[i]);
  b->brought.count = b->brought_prompts.count = 0;
  b->offsets = b->kept_offsets = b->experts_offsets = b->differing = NULL;
  b->old = b->ref = b->updated = b->entropies = NULL;
  b->rewards = b->advantages = b->returns = NULL;
  b->values = b->targets = NULL;
}

void treadle_rl_batch_release(treadle_rl_batch *b) {
  treadle_rl_batch_clear(b);
  treadle_array_release(&b->samples);
  treadle_array_release(&b->ids);
  treadle_array_release(&b->rollout);
  treadle_array_release(&b->kept_counts);
  treadle_array_release(&b->kept);
  treadle_array_release(&b->experts);
  treadle_array_release(&b->scored);
  treadle_array_release(&b->brought);
  treadle_array_release(&b->brought_prompts);
}

/* ---- Prompts ----------------------------------------------------------------------------------------------- */

/* A row for each prompt: its ids, and the seed of its samples. */
static treadle_status make_prompts(const treadle_train_settings *settings,
                                   const treadle_rl_prompt *const *prompts, int64_t count,
                                   const treadle_rl_sampling *sampling, int64_t place,
                                   treadle_batch **batch_p) {
  int64_t *offsets = treadle_alloc_array((size_t)count + 1, sizeof *offsets);
  treadle_column ids = {.struct_size = sizeof ids, .name = "prompt_ids", .type = TREADLE_COLUMN_INT32};
  treadle_column seed = {
      .struct_size = sizeof seed, .name = "seed", .type = TREADLE_COLUMN_INT64, .width = 1};
  treadle_status status;
  if (!offsets) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %lld prompts", (long long)count);
  offsets[0] = 0;
  for (int64_t i = 0; i < count; i++) offsets[i + 1] = offsets[i] + prompts[i]->count;
  ids.offsets = offsets;
  TRY(treadle_batch_create(count, batch_p));
  TRY(treadle_batch_add(*batch_p, &ids));
  TRY(treadle_batch_add(*batch_p, &seed));
  TRY(treadle_batch_column(*batch_p, "prompt_ids", &ids));
  TRY(treadle_batch_column(*batch_p, "seed", &seed));
  for (int64_t i = 0; i < count; i++) {
    memcpy((int32_t *)ids.data + ids.offsets[i], prompts[i]->ids,
           (size_t)prompts[i]->count * sizeof(int32_t));
    ((int64_t *)seed.data)[i] = treadle_rl_seed(settings->sampling.seed, sampling->key, place + i);
  }
out:
  treadle_free(offsets);
  return status;
}

/* ---- Answers ----------------------------------------------------------------------------------------------- */

/* Of a replica: their columns. */
typedef struct answers {
  treadle_column ids, logprobs, finish;
  treadle_column kept_counts, kept; /* where they are kept */
  treadle_column experts;           /* where they are recorded */
  int64_t first;                    /* of the rows of all replicas */
} answers;

static treadle_status find_columns(const treadle_batch *batch, bool keeps, bool records, int64_t first,
                                   answers *a) {
  treadle_status status;
  *a = (answers){.first = first,
                 .ids = TREADLE_INIT(treadle_column),
                 .logprobs = TREADLE_INIT(treadle_column),
                 .finish = TREADLE_INIT(treadle_column),
                 .kept_counts = TREADLE_INIT(treadle_column),
                 .kept = TREADLE_INIT(treadle_column),
                 .experts = TREADLE_INIT(treadle_column)};
  TRY(treadle_batch_column(batch, "ids", &a->ids));
  TRY(treadle_batch_column(batch, "rollout_log_probs", &a->logprobs));
  TRY(treadle_batch_column(batch, "finish", &a->finish));
  if (keeps) TRY(treadle_batch_column(batch, "kept_counts", &a->kept_counts));
  if (keeps) TRY(treadle_batch_column(batch, "kept", &a->kept));
  if (keeps && (a->kept_counts.type != TREADLE_COLUMN_INT32 || a->kept.type != TREADLE_COLUMN_INT32 ||
                !a->kept_counts.offsets || !a->kept.offsets))
    REFUSE("the infer engine's answers have kept_counts and kept of another type than ragged int32");
  if (records) TRY(treadle_batch_column(batch, "experts", &a->experts));
  if (records && a->experts.type != TREADLE_COLUMN_BYTES)
    REFUSE("the infer engine's answers have experts of another type than bytes");
out:
  return status;
}

static treadle_status take_tokens(const treadle_rl_bounds *bounds, treadle_rl_batch *b, const answers *a,
                                  int64_t row, treadle_rl_made *made) {
  const int32_t *ids = (const int32_t *)a->ids.data + a->ids.offsets[row];
  const float *logprobs = (const float *)a->logprobs.data + a->logprobs.offsets[row];
  treadle_status status = TREADLE_OK;
  made->first = b->ids.count;
  made->count = (size_t)(a->ids.offsets[row + 1] - a->ids.offsets[row]);
  for (size_t i = 0; i < made->count; i++) {
    if (ids[i] < 0 || ids[i] >= bounds->vocabulary)
      REFUSE("row %lld of the infer engine's answers: ids[%zu] is %d; the vocabulary has 0 to %lld",
             (long long)(a->first + row), i, ids[i], (long long)bounds->vocabulary - 1);
    TRY(treadle_array_push(&b->ids, ids[i]));
    TRY(treadle_array_push(&b->rollout, logprobs[i]));
  }
out:
  return status;
}

static treadle_status take_kept(const treadle_rl_bounds *bounds, const treadle_train_settings *settings,
                                treadle_rl_batch *b, const answers *a, int64_t row, treadle_rl_made *made) {
  const treadle_column *counts = &a->kept_counts, *kept = &a->kept;
  if (counts->offsets[row + 1] - counts->offsets[row] != (int64_t)made->count)
    REFUSE("row %lld of the infer engine's answers has %zu ids, and kept_counts of %lld",
           (long long)(a->first + row), made->count,
           (long long)(counts->offsets[row + 1] - counts->offsets[row]));
  return treadle_rl_take_kept(bounds, settings, b, made,
                              (const int32_t *)counts->data + counts->offsets[row],
                              (const int32_t *)kept->data + kept->offsets[row],
                              (size_t)(kept->offsets[row + 1] - kept->offsets[row]));
}

/* Room for the experts of all tokens of a sample but its last one. */
static treadle_status take_room(const treadle_rl_bounds *bounds, treadle_rl_batch *b,
                                treadle_rl_made *made) {
  const int64_t tokens = made->prompt->count + (int64_t)made->count - 1;
  treadle_status status = TREADLE_OK;
  made->experts_first = b->experts.count;
  made->experts_bytes = (size_t)(tokens * bounds->record_bytes);
  b->experts_top = bounds->experts_top;
  while (b->experts.capacity - b->experts.count < made->experts_bytes)
    TRY(treadle_array_grow((void **)&b->experts.items, &b->experts.capacity, b->experts.capacity, 1));
  memset(b->experts.items + b->experts.count, 0, made->experts_bytes);
  b->experts.count += made->experts_bytes;
out:
  return status;
}

/* The trainer looks at what they are. */
static treadle_status take_experts(const treadle_rl_bounds *bounds, treadle_rl_batch *b, const answers *a,
                                   int64_t row, treadle_rl_made *made) {
  const uint8_t *bytes = (const uint8_t *)a->experts.data + a->experts.offsets[row];
  const int64_t given = a->experts.offsets[row + 1] - a->experts.offsets[row];
  treadle_status status;
  TRY(take_room(bounds, b, made));
  if ((int64_t)made->experts_bytes != given)
    REFUSE(
        "row %lld of the infer engine's answers has %lld bytes of experts, and %lld tokens before its last "
        "one of %lld each",
        (long long)(a->first + row), (long long)given,
        (long long)(made->prompt->count + (int64_t)made->count - 1), (long long)bounds->record_bytes);
  memcpy(b->experts.items + made->experts_first, bytes, made->experts_bytes);
out:
  return status;
}

static treadle_status decode(const treadle_tokenizer *tokenizer, const treadle_rl_batch *b,
                             treadle_rl_made *made) {
  if (tokenizer)
    return treadle_tokenizer_decode(tokenizer, b->ids.items + made->first, made->count, false, &made->text,
                                    &made->bytes);
  made->text = strdup("");
  return made->text ? TREADLE_OK : treadle_fail(TREADLE_NO_MEMORY, "no memory for a completion");
}

static treadle_status take_answer(const treadle_rl_rollout *r, treadle_rl_batch *b, const answers *a,
                                  int64_t row, treadle_rl_made made) {
  const int64_t finish = a->finish.offsets[row + 1] - a->finish.offsets[row];
  treadle_status status;
  TRY(take_tokens(r->bounds, b, a, row, &made));
  if (a->kept.offsets) TRY(take_kept(r->bounds, r->settings, b, a, row, &made));
  if (a->experts.offsets) TRY(take_experts(r->bounds, b, a, row, &made));
  if (b->awaits_experts) TRY(take_room(r->bounds, b, &made));
  made.cut = finish == (int64_t)strlen("length");
  TRY(decode(r->tokenizer, b, &made));
  status = treadle_array_push(&b->samples, made);
  if (status) free(made.text);
out:
  return status;
}

static treadle_status take_answers(const treadle_rl_rollout *r, const treadle_rl_prompt *const *prompts,
                                   int64_t count, const treadle_rl_sampling *sampling,
                                   const treadle_rl_answers *all, treadle_rl_batch *b) {
  const int64_t n = sampling->n;
  const bool records = r->settings->actor.router_replay == TREADLE_REPLAY_R3 && !b->tests;
  int64_t rows = 0, number = 0;
  answers a = {.first = 0};
  treadle_status status = TREADLE_OK;
  b->awaits_experts = treadle_rl_trainer_records(r->settings) && !b->tests;
  for (size_t p = 0; p < all->count; p++) rows += treadle_batch_rows(all->parts[p]);
  if (rows != count * n)
    REFUSE("the infer engine's ranks give %lld answers to %lld prompts, %lld to each", (long long)rows,
           (long long)count, (long long)n);
  for (size_t p = 0; p < all->count; p++) {
    rows = treadle_batch_rows(all->parts[p]);
    if (rows) TRY(find_columns(all->parts[p], sampling->keeps, records, number, &a));
    for (int64_t row = 0; row < rows; row++, number++) {
      const treadle_rl_made made = {
          .prompt = prompts[number / n], .group = b->groups + number / n, .index = number % n};
      TRY(take_answer(r, b, &a, row, made));
    }
  }
  b->groups += count;
out:
  return status;
}

treadle_status treadle_rl_draw(const treadle_rl_rollout *r, const treadle_rl_prompt *const *prompts,
                               int64_t count, const treadle_rl_sampling *sampling,
                               treadle_rl_batch *batch) {
  treadle_batch *asked = NULL;
  treadle_rl_answers answered = {0};
  treadle_status status;
  TRY(make_prompts(r->settings, prompts, count, sampling, batch->groups, &asked));
  TRY(treadle_rl_call_generate(r->workers, r->tokenizer, asked, sampling, &answered));
  TRY(take_answers(r, prompts, count, sampling, &answered, batch));
out:
  treadle_rl_answers_release(&answered);
  treadle_batch_destroy(asked);
  return status;
}

/* ---- Scores ------------------------------------------------------------------------------------------------ */

/* What the rewards see of the samples; it lives in the run until the wait. */
static treadle_status show_samples(treadle_rl_rewards *rewards, const treadle_rl_batch *b, size_t from) {
  treadle_status status = TREADLE_OK;
  treadle_arena_release(&rewards->judged_texts);
  rewards->judged.count = 0;
  char name[TREADLE_RL_NAME];
  for (size_t i = from; i < b->samples.count; i++) {
    const treadle_rl_made *s = &b->samples.items[i];
    treadle_rl_name_sample(b, s, name);
    const treadle_reward_sample sample = {.id = treadle_arena_copy_text(&rewards->judged_texts, name),
                                          .data_source = s->prompt->data_source,
                                          .prompt = s->prompt->text,
                                          .completion = s->text,
                                          .completion_bytes = s->bytes,
                                          .answer = s->prompt->answer,
                                          .tokens = (int64_t)s->count};
    if (!sample.id) return treadle_fail(TREADLE_NO_MEMORY, "no memory for the samples of a step");
    TRY(treadle_array_push(&rewards->judged, sample));
  }
out:
  return status;
}

void treadle_rl_abandon_scores(treadle_rl_rewards *rewards) {
  for (int i = 0; i < rewards->count; i++) treadle_reward_abandon(rewards->items[i]);
}

treadle_status treadle_rl_score_start(const treadle_rl_rollout *r, treadle_rl_batch *batch, size_t from) {
  treadle_status status;
  TRY(show_samples(r->rewards, batch, from));
  TRY(treadle_rl_show_tokens(r->rewards, batch, from));
  for (int i = 0; i < r->rewards->count; i++)
    TRY(treadle_reward_start_tokens(r->rewards->items[i], r->rewards->judged.items,
                                    r->rewards->judged.count, &r->rewards->tokens[i]));
out:
  if (status) treadle_rl_abandon_scores(r->rewards);
  return status;
}

/* A reward may hang: who asks the run to stop does not wait for verifier_timeout. */
static bool wait_unless_stopped(const treadle_rl_rollout *r) {
  double asked = 0;
  for (int i = 0; i < r->rewards->count;) {
    if (treadle_reward_ends_within(r->rewards->items[i], LOOK)) {
      i++;
      continue;
    }
    treadle_rl_doing(r->crew, "the rewards");
    if (treadle_thread_ask("the rewards")) return false; /* the run is over */
    if (!treadle_observe_stop(&r->crew->observer)) continue;
    if (asked == 0) asked = treadle_clock_seconds();
    if (treadle_clock_seconds() - asked >= GRACE) return false;
  }
  return true;
}

/* The reward model's part, to which rewards are added. */
static double first_score(const treadle_rl_rollout *r, const treadle_rl_batch *batch, size_t sample) {
  return treadle_train_has_reward_model(r->settings)
             ? r->settings->reward.weight * batch->samples.items[sample].model_score
             : 0;
}

treadle_status treadle_rl_score_wait(const treadle_rl_rollout *r, treadle_rl_batch *batch, size_t from,
                                     char **preds) {
  const size_t count = batch->samples.count - from;
  double *scores = treadle_alloc_array(count + 1, sizeof *scores);
  treadle_status status = TREADLE_OK;
  if (!scores) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu scores", count));
  if (!wait_unless_stopped(r)) {
    *r->stopped = true;
    goto out;
  }
  for (size_t i = 0; i < count; i++) batch->samples.items[from + i].score = first_score(r, batch, from + i);
  for (int i = 0; i < r->rewards->count; i++) {
    TRY(treadle_reward_wait(r->rewards->items[i], scores, i == 0 ? preds : NULL));
    for (size_t k = 0; k < count; k++)
      batch->samples.items[from + k].score += r->rewards->weights[i] * scores[k];
    TRY(treadle_rl_take_token_rewards(r->rewards, i, batch, from, scores));
  }
  for (size_t i = 0; i < count; i++)
    batch->samples.items[from + i].reward = batch->samples.items[from + i].score;
out:
  if (status || *r->stopped) treadle_rl_abandon_scores(r->rewards);
  treadle_free(scores);
  return status;
}

/* ---- A step ------------------------------------------------------------------------------------------------- */

/* `count` prompts on from those that were drawn so far. */
static treadle_status draw_more(treadle_rl *rl, int64_t count) {
  const treadle_train_settings *s = rl->task.settings;
  const treadle_rl_sampling sampling = {.n = s->rl.batches.n_samples_per_prompt,
                                        .key = rl->state.step,
                                        .temperature = s->sampling.temperature,
                                        .top_p = s->sampling.top_p,
                                        .top_k = s->sampling.top_k,
                                        .keeps = treadle_rl_keeps(&rl->bounds, rl->task.settings)};
  const treadle_rl_prompt **prompts = treadle_alloc_array((size_t)count, sizeof *prompts);
  size_t all;
  const treadle_rl_prompt *items = treadle_rl_prompts_items(rl->data.prompts, &all);
  treadle_status status;
  if (!prompts) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %lld prompts", (long long)count);
  for (int64_t i = 0; i < count; i++)
    prompts[i] = &items[treadle_train_order_at(&rl->data.order, rl->state.drawn + i)];
  rl->state.drawn += count;
  const treadle_rl_rollout rollout = treadle_rl_rollout_of(rl);
  TRY(treadle_rl_draw(&rollout, prompts, count, &sampling, &rl->batch));
out:
  treadle_free(prompts);
  return status;
}

/* Of one sample there is nothing to compare. */
static bool scores_differ(const treadle_rl_batch *b, size_t first, size_t n) {
  for (size_t i = 1; i < n; i++)
    if (b->samples.items[first + i].score != b->samples.items[first].score) return true;
  return n == 1;
}

/* Where the samples that stay end so far: their number, their tokens, the ids that these were drawn from, and records of experts. */
typedef struct ending {
  size_t samples, tokens, kept, experts;
} ending;

/* Puts a sample behind those that stay: nothing is left between them. */
static void move_sample(treadle_rl_batch *b, size_t from, ending *end) {
  treadle_rl_made s = b->samples.items[from];
  if (s.count) {
    memmove(b->ids.items + end->tokens, b->ids.items + s.first, s.count * sizeof *b->ids.items);
    memmove(b->rollout.items + end->tokens, b->rollout.items + s.first, s.count * sizeof *b->rollout.items);
    if (b->scored.count)
      memmove(b->scored.items + end->tokens, b->scored.items + s.first, s.count * sizeof *b->scored.items);
  }
  if (s.kept_count) {
    memmove(b->kept_counts.items + end->tokens, b->kept_counts.items + s.first,
            s.count * sizeof *b->kept_counts.items);
    memmove(b->kept.items + end->kept, b->kept.items + s.kept_first, s.kept_count * sizeof *b->kept.items);
  }
  if (s.experts_bytes)
    memmove(b->experts.items + end->experts, b->experts.items + s.experts_first, s.experts_bytes);
  s.first = end->tokens;
  s.kept_first = end->kept;
  s.experts_first = end->experts;
  end->tokens += s.count;
  end->kept += s.kept_count;
  end->experts += s.experts_bytes;
  b->samples.items[end->samples++] = s;
}

/* What is behind the end goes. */
static void end_batch(treadle_rl_batch *b, const ending *end) {
  b->samples.count = end->samples;
  b->ids.count = b->rollout.count = end->tokens;
  if (b->kept_counts.count) b->kept_counts.count = end->tokens;
  if (b->scored.count) b->scored.count = end->tokens;
  b->kept.count = end->kept;
  b->experts.count = end->experts;
}

/* Before sample `number`, or at the end. */
static ending ending_before(const treadle_rl_batch *b, size_t number) {
  if (number >= b->samples.count)
    return (ending){b->samples.count, b->ids.count, b->kept.count, b->experts.count};
  const treadle_rl_made *s = &b->samples.items[number];
  return (ending){number, s->first, s->kept_first, s->experts_first};
}

/* Groups from sample `from` on that score alike go. */
static void leave_out_equal(treadle_rl_batch *b, const treadle_train_settings *settings, size_t from) {
  const size_t n = (size_t)settings->rl.batches.n_samples_per_prompt;
  ending end = ending_before(b, from);
  for (size_t first = from; first < b->samples.count; first += n) {
    bool stays = scores_differ(b, first, n);
    for (size_t i = 0; i < n; i++) {
      if (stays)
        move_sample(b, first + i, &end);
      else
        free(b->samples.items[first + i].text);
    }
    b->left_out += !stays;
  }
  end_batch(b, &end);
}

/* More than the step takes: those behind go. And groups are numbered anew. */
static void settle_groups(treadle_rl_batch *b, const treadle_train_settings *settings) {
  const size_t n = (size_t)settings->rl.batches.n_samples_per_prompt;
  size_t most = (size_t)treadle_train_step_prompts(settings) * n;
  for (size_t i = most; i < b->samples.count; i++) free(b->samples.items[i].text);
  const ending end = ending_before(b, most);
  end_batch(b, &end);
  for (size_t i = 0; i < b->samples.count; i++) b->samples.items[i].group = (int64_t)(i / n);
}

/* Batches of a step's filter, so far. */
typedef struct filter {
  int64_t batches, each; /* each: prompts of one */
  int64_t barren;        /* prompts since one had samples with different scores */
} filter;

/* May one more batch be drawn? */
static treadle_status check_filter(const treadle_rl_task *task, const treadle_rl_prompts *prompts,
                                   const treadle_rl_batch *batch, const filter *f) {
  const treadle_train_settings *s = task->settings;
  const size_t groups = batch->samples.count / (size_t)s->rl.batches.n_samples_per_prompt;
  const int64_t needed = treadle_train_step_prompts(s);
  size_t all;
  (void)treadle_rl_prompts_items(prompts, &all);
  if (s->rl.filter_groups.max_batches > 0 && f->batches == s->rl.filter_groups.max_batches)
    return treadle_fail(
        TREADLE_REFUSED,
        "step %lld: after %s, %lld, batches of %s, %zu groups of the %lld that it needs have "
        "samples with different scores",
        (long long)batch->step, TREADLE_RL_PLACE(task, rl.filter_groups.max_batches), (long long)f->batches,
        treadle_text_of_count(f->each, "prompt"), groups, (long long)needed);
  if (f->barren >= (int64_t)all && f->batches > 1)
    return treadle_fail(
        TREADLE_REFUSED,
        "step %lld: %lld prompts one after the other, all of %s, have samples that score alike (%s): "
        "%zu groups of the %lld that it needs are there",
        (long long)batch->step, (long long)f->barren, TREADLE_RL_PLACE(task, training.data_path),
        TREADLE_RL_PLACE(task, rl.filter_groups.enable), groups, (long long)needed);
  return TREADLE_OK;
}

static treadle_status draw_batch(treadle_rl *rl, filter *f) {
  const treadle_rl_rollout rollout = treadle_rl_rollout_of(rl);
  const size_t from = rl->batch.samples.count;
  treadle_status status;
  TRY(draw_more(rl, f->each));
  TRY(treadle_rl_find_rm_scores(&rl->workers, rl->task.settings, &rl->batch, from));
  TRY(treadle_rl_score_start(&rollout, &rl->batch, from));
  TRY(treadle_rl_score_wait(&rollout, &rl->batch, from, NULL));
  if (rl->stopped) return TREADLE_OK;
  leave_out_equal(&rl->batch, rl->task.settings, from);
  f->barren = rl->batch.samples.count > from ? 0 : f->barren + f->each;
  f->batches++;
out:
  return status;
}

/* Prompts are drawn until there are enough groups; where a rank is asked to stop before, the step is not taken: rl->stopped. */
static treadle_status draw_filtered(treadle_rl *rl) {
  const treadle_train_settings *s = rl->task.settings;
  const size_t needed = (size_t)(treadle_train_step_prompts(s) * s->rl.batches.n_samples_per_prompt);
  filter f = {.each = s->rl.filter_groups.gen_batch_size > 0 ? s->rl.filter_groups.gen_batch_size
                                                             : s->training.global_batch_size};
  treadle_rl_gauges gauges;
  treadle_status status = TREADLE_OK;
  while (rl->batch.samples.count < needed) {
    TRY(check_filter(&rl->task, rl->data.prompts, &rl->batch, &f));
    if (f.batches) TRY(treadle_rl_call_gauges(&rl->workers, &gauges));
    rl->stopped = f.batches && gauges.stops;
    if (!rl->stopped) TRY(draw_batch(rl, &f));
    if (rl->stopped) goto out;
  }
  settle_groups(&rl->batch, rl->task.settings);
out:
  return status;
}

treadle_status treadle_rl_draw_step(treadle_rl *rl, const treadle_row_range *rows, size_t *from_p) {
  const treadle_rl_rollout rollout = treadle_rl_rollout_of(rl);
  const int64_t n = rl->task.settings->rl.batches.n_samples_per_prompt,
                all = rl->task.settings->training.global_batch_size;
  treadle_status status;
  *from_p = 0;
  if (rows->first == 0) {
    rl->batch.left_out = 0;
    treadle_rl_batch_clear(&rl->batch);
  }
  treadle_rl_drop_columns(&rl->batch);
  rl->batch.step = rl->state.step + 1;
  if (rl->task.settings->rl.filter_groups.enable) {
    TRY(draw_filtered(rl));
    *from_p = rl->batch.samples.count;
    return TREADLE_OK;
  }
  TRY(draw_more(rl, rows->end ? (rows->end - rows->first) / n : all));
  if ((int64_t)rl->batch.samples.count == all * n) TRY(treadle_rl_score_start(&rollout, &rl->batch, 0));
out:
  return status;
}
