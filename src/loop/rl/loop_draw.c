/* Samples of prompts: requests for the engine, and what becomes of its answers. A prompt is one request with n samples, so that it is computed
 * once. The seed of a request follows from the run's seed, the step and the prompt's place in it; the engine adds the number of the
 * sample: samples depend on no layout. */
#include "rl/loop.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/text.h"
#include "reward/reward.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { SEED_BITS = 53 };
static const double LOOK = 0.05, GRACE = 0.5; /* seconds */

void treadle_rl_name_sample(const treadle_rl_batch *b, const treadle_rl_made *s, char to[TREADLE_RL_NAME]) {
  snprintf(to, TREADLE_RL_NAME, "%s%lld-%lld-%lld", b->tests ? "test-" : "", (long long)b->step,
           (long long)s->group, (long long)s->index);
}

void treadle_rl_batch_clear(treadle_rl_batch *b) {
  for (size_t i = 0; i < b->samples.count; i++) free(b->samples.items[i].text);
  b->samples.count = b->ids.count = b->rollout.count = b->kept_counts.count = b->kept.count = 0;
  b->groups = 0;
  treadle_free(b->old);
  treadle_free(b->ref);
  treadle_free(b->updated);
  treadle_free(b->entropies);
  treadle_free(b->rewards);
  treadle_free(b->advantages);
  treadle_free(b->returns);
  b->old = b->ref = b->updated = b->entropies = NULL;
  b->rewards = b->advantages = b->returns = NULL;
}

void treadle_rl_batch_release(treadle_rl_batch *b) {
  treadle_rl_batch_clear(b);
  treadle_array_release(&b->samples);
  treadle_array_release(&b->ids);
  treadle_array_release(&b->rollout);
  treadle_array_release(&b->kept_counts);
  treadle_array_release(&b->kept);
}

/* ---- Requests ---------------------------------------------------------------------------------------------- */

static uint64_t seed_of(const treadle_rl *rl, int64_t key, int64_t place) {
  uint64_t h = treadle_hash_more(0, (uint64_t)rl->settings->sampling_seed);
  h = treadle_hash_more(treadle_hash_more(h, (uint64_t)key), (uint64_t)place);
  return h >> (64 - SEED_BITS);
}

static void add_request(const treadle_rl *rl, const treadle_rl_prompt *prompt, int64_t place,
                        const treadle_rl_sampling *sampling, treadle_builder *lines) {
  const treadle_train_settings *s = rl->settings;
  treadle_builder_add(lines, "{\"prompt_token_ids\": [");
  for (int64_t i = 0; i < prompt->count; i++) treadle_builder_add(lines, i ? ",%d" : "%d", prompt->ids[i]);
  treadle_builder_add(lines, "], \"n\": %lld, \"seed\": %llu, \"max_tokens\": %lld", (long long)sampling->n,
                      (unsigned long long)seed_of(rl, sampling->key, place), (long long)rl->response_most);
  /* The engine has no tokenizer, and knows the end tokens of the model's files alone (generate/defaults.c). */
  int32_t end = rl->tokenizer ? treadle_tokenizer_special(rl->tokenizer, TREADLE_EOS) : -1;
  if (end >= 0) treadle_builder_add(lines, ", \"stop_token_ids\": [%d]", (int)end);
  if (s->ignore_eos) treadle_builder_add(lines, ", \"min_tokens\": %lld", (long long)rl->response_most);
  treadle_builder_add(lines, "}\n");
}

/* ---- Answers ----------------------------------------------------------------------------------------------- */

static treadle_status no_answer(const char *what) {
  return treadle_fail(TREADLE_REFUSED, "the infer engine's answer has no %s", what);
}

static treadle_status take_tokens(treadle_rl_batch *b, const json_t *answer, treadle_rl_made *made) {
  const json_t *ids = json_object_get(answer, "token_ids"), *logprobs = json_object_get(answer, "logprobs");
  treadle_status status = TREADLE_OK;
  if (!json_is_array(ids)) return no_answer("token_ids");
  if (!json_is_array(logprobs) || json_array_size(logprobs) != json_array_size(ids))
    return no_answer("logprobs of all token_ids");
  made->first = b->ids.count;
  made->count = json_array_size(ids);
  for (size_t i = 0; i < made->count; i++) {
    double logprob = json_number_value(json_array_get(logprobs, i));
    TRY(treadle_array_push(&b->ids, (int32_t)json_integer_value(json_array_get(ids, i))));
    TRY(treadle_array_push(&b->rollout, (float)logprob));
  }
out:
  return status;
}

static treadle_status decode(const treadle_rl *rl, const treadle_rl_batch *b, treadle_rl_made *made) {
  if (rl->tokenizer)
    return treadle_tokenizer_decode(rl->tokenizer, b->ids.items + made->first, made->count, false,
                                    &made->text, &made->bytes);
  made->text = strdup("");
  return made->text ? TREADLE_OK : treadle_fail(TREADLE_NO_MEMORY, "no memory for a completion");
}

/* The next sample's ids, which come before its line. */
typedef struct kept_ids {
  const void *counts, *ids;
  size_t counts_bytes, bytes;
} kept_ids;

/* The next line of rl->out; *kept_p: what stood before it. */
static treadle_status next_line(treadle_rl *rl, kept_ids *kept_p, const void **line_p, size_t *bytes_p) {
  int64_t type;
  treadle_status status;
  *kept_p = (kept_ids){0};
  TRY(treadle_message_int(&rl->out, "answer", &type));
  if (type == TREADLE_RL_KEPT) {
    TRY(treadle_message_bytes(&rl->out, "counts of ids", &kept_p->counts, &kept_p->counts_bytes));
    TRY(treadle_message_bytes(&rl->out, "ids", &kept_p->ids, &kept_p->bytes));
    TRY(treadle_message_int(&rl->out, "answer", &type));
  }
  TRY(treadle_message_bytes(&rl->out, "line", line_p, bytes_p));
out:
  return status;
}

static treadle_status take_answer(treadle_rl *rl, treadle_rl_batch *b, treadle_rl_made made, bool keeps) {
  const void *line;
  size_t bytes;
  kept_ids kept;
  json_t *answer = NULL;
  treadle_json_source source = {.what = "an answer", .zeros = true};
  treadle_status status;
  TRY(next_line(rl, &kept, &line, &bytes));
  source.text = line;
  source.count = bytes;
  TRY(treadle_json_read(&source, &answer));
  if (!treadle_json_is_object(answer)) TRY(no_answer("JSON object"));
  TRY(take_tokens(b, answer, &made));
  if (keeps && kept.counts_bytes != made.count * sizeof(int32_t))
    TRY(no_answer("ids that each token was drawn from"));
  if (keeps) TRY(treadle_rl_take_kept(rl, b, &made, kept.counts, kept.ids, kept.bytes / sizeof(int32_t)));
  const char *finish = json_string_value(json_object_get(answer, "finish_reason"));
  made.cut = finish && strcmp(finish, "length") == 0;
  TRY(decode(rl, b, &made));
  status = treadle_array_push(&b->samples, made);
  if (status) free(made.text);
out:
  json_decref(answer);
  return status;
}

static treadle_status take_answers(treadle_rl *rl, const treadle_rl_prompt *const *prompts, int64_t count,
                                   const treadle_rl_sampling *sampling, treadle_rl_batch *b) {
  const int64_t n = sampling->n;
  treadle_status status = TREADLE_OK;
  for (int64_t i = 0; i < count * n; i++) {
    const treadle_rl_made made = {.prompt = prompts[i / n], .group = b->groups + i / n, .index = i % n};
    TRY(take_answer(rl, b, made, sampling->keeps));
  }
  b->groups += count;
out:
  return status;
}

treadle_status treadle_rl_draw(treadle_rl *rl, const treadle_rl_prompt *const *prompts, int64_t count,
                               const treadle_rl_sampling *sampling, treadle_rl_batch *batch) {
  treadle_builder lines = {0};
  treadle_status status;
  for (int64_t i = 0; i < count; i++) add_request(rl, prompts[i], batch->groups + i, sampling, &lines);
  if (lines.failed) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for %lld requests", (long long)count));
  TRY(treadle_rl_call_generate(rl, lines.text, lines.length, sampling));
  TRY(take_answers(rl, prompts, count, sampling, batch));
out:
  treadle_builder_release(&lines);
  return status;
}

/* ---- Scores ------------------------------------------------------------------------------------------------ */

/* What the rewards see of the samples; it lives in the run until the wait. */
static treadle_status show_samples(treadle_rl *rl, const treadle_rl_batch *b, size_t from) {
  treadle_status status = TREADLE_OK;
  treadle_arena_release(&rl->judged_texts);
  rl->judged.count = 0;
  char name[TREADLE_RL_NAME];
  for (size_t i = from; i < b->samples.count; i++) {
    const treadle_rl_made *s = &b->samples.items[i];
    treadle_rl_name_sample(b, s, name);
    const treadle_reward_sample sample = {.id = treadle_arena_copy_text(&rl->judged_texts, name),
                                          .data_source = s->prompt->data_source,
                                          .prompt = s->prompt->text,
                                          .completion = s->text,
                                          .completion_bytes = s->bytes,
                                          .answer = s->prompt->answer,
                                          .tokens = (int64_t)s->count};
    if (!sample.id) return treadle_fail(TREADLE_NO_MEMORY, "no memory for the samples of a step");
    TRY(treadle_array_push(&rl->judged, sample));
  }
out:
  return status;
}

static void abandon_scores(treadle_rl *rl) {
  for (int i = 0; i < rl->reward_count; i++) treadle_reward_abandon(rl->rewards[i]);
}

treadle_status treadle_rl_score_start(treadle_rl *rl, treadle_rl_batch *batch, size_t from) {
  treadle_status status;
  TRY(show_samples(rl, batch, from));
  for (int i = 0; i < rl->reward_count; i++)
    TRY(treadle_reward_start(rl->rewards[i], rl->judged.items, rl->judged.count));
out:
  if (status) abandon_scores(rl);
  return status;
}

/* A reward may hang: who asks the run to stop does not wait for verifier_timeout. */
static bool wait_unless_stopped(const treadle_rl *rl) {
  double asked = 0;
  for (int i = 0; i < rl->reward_count;) {
    if (treadle_reward_ends_within(rl->rewards[i], LOOK)) {
      i++;
      continue;
    }
    treadle_rl_doing(rl, "the rewards");
    if (!rl->options->stops || !rl->options->stops(rl->options->context)) continue;
    if (asked == 0) asked = treadle_clock_seconds();
    if (treadle_clock_seconds() - asked >= GRACE) return false;
  }
  return true;
}

treadle_status treadle_rl_score_wait(treadle_rl *rl, treadle_rl_batch *batch, size_t from, char **preds) {
  const size_t count = batch->samples.count - from;
  double *scores = treadle_alloc_array(count + 1, sizeof *scores);
  treadle_status status = TREADLE_OK;
  if (!scores) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu scores", count));
  if (!wait_unless_stopped(rl)) {
    rl->stopped = true;
    goto out;
  }
  for (size_t i = 0; i < count; i++) batch->samples.items[from + i].score = 0;
  for (int i = 0; i < rl->reward_count; i++) {
    TRY(treadle_reward_wait(rl->rewards[i], scores, i == 0 ? preds : NULL));
    for (size_t k = 0; k < count; k++) batch->samples.items[from + k].score += rl->weights[i] * scores[k];
  }
  for (size_t i = 0; i < count; i++)
    batch->samples.items[from + i].reward = batch->samples.items[from + i].score;
out:
  if (status || rl->stopped) abandon_scores(rl);
  treadle_free(scores);
  return status;
}

/* ---- A step ------------------------------------------------------------------------------------------------- */

/* `count` prompts on from those that were drawn so far. */
static treadle_status draw_more(treadle_rl *rl, int64_t count) {
  const treadle_train_settings *s = rl->settings;
  const treadle_rl_sampling sampling = {.n = s->n_samples_per_prompt,
                                        .key = rl->step,
                                        .temperature = s->temperature,
                                        .top_p = s->top_p,
                                        .top_k = s->top_k,
                                        .keeps = treadle_rl_keeps(rl)};
  const treadle_rl_prompt **prompts = treadle_alloc_array((size_t)count, sizeof *prompts);
  size_t all;
  const treadle_rl_prompt *items = treadle_rl_prompts_items(rl->prompts, &all);
  treadle_status status;
  if (!prompts) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %lld prompts", (long long)count);
  for (int64_t i = 0; i < count; i++)
    prompts[i] = &items[treadle_train_order_at(&rl->order, rl->drawn + i)];
  rl->drawn += count;
  TRY(treadle_rl_draw(rl, prompts, count, &sampling, &rl->batch));
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

/* Where the samples that stay end so far: their number, their tokens, and the ids that these were drawn from. */
typedef struct ending {
  size_t samples, tokens, kept;
} ending;

/* Puts a sample behind those that stay: nothing is left between them. */
static void move_sample(treadle_rl_batch *b, size_t from, ending *end) {
  treadle_rl_made s = b->samples.items[from];
  if (s.count) {
    memmove(b->ids.items + end->tokens, b->ids.items + s.first, s.count * sizeof *b->ids.items);
    memmove(b->rollout.items + end->tokens, b->rollout.items + s.first, s.count * sizeof *b->rollout.items);
  }
  if (s.kept_count) {
    memmove(b->kept_counts.items + end->tokens, b->kept_counts.items + s.first,
            s.count * sizeof *b->kept_counts.items);
    memmove(b->kept.items + end->kept, b->kept.items + s.kept_first, s.kept_count * sizeof *b->kept.items);
  }
  s.first = end->tokens;
  s.kept_first = end->kept;
  end->tokens += s.count;
  end->kept += s.kept_count;
  b->samples.items[end->samples++] = s;
}

/* What is behind the end goes. */
static void end_batch(treadle_rl_batch *b, const ending *end) {
  b->samples.count = end->samples;
  b->ids.count = b->rollout.count = end->tokens;
  if (b->kept_counts.count) b->kept_counts.count = end->tokens;
  b->kept.count = end->kept;
}

/* Before sample `number`, or at the end. */
static ending ending_before(const treadle_rl_batch *b, size_t number) {
  if (number >= b->samples.count) return (ending){b->samples.count, b->ids.count, b->kept.count};
  const treadle_rl_made *s = &b->samples.items[number];
  return (ending){number, s->first, s->kept_first};
}

/* Groups from sample `from` on that score alike go. */
static void leave_out_equal(treadle_rl *rl, size_t from) {
  treadle_rl_batch *b = &rl->batch;
  const size_t n = (size_t)rl->settings->n_samples_per_prompt;
  ending end = ending_before(b, from);
  for (size_t first = from; first < b->samples.count; first += n) {
    bool stays = scores_differ(b, first, n);
    for (size_t i = 0; i < n; i++) {
      if (stays)
        move_sample(b, first + i, &end);
      else
        free(b->samples.items[first + i].text);
    }
    rl->left_out += !stays;
  }
  end_batch(b, &end);
}

/* More than the step takes: those behind go. And groups are numbered anew. */
static void settle_groups(treadle_rl *rl) {
  treadle_rl_batch *b = &rl->batch;
  const size_t n = (size_t)rl->settings->n_samples_per_prompt;
  size_t most = (size_t)treadle_train_step_prompts(rl->settings) * n;
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
static treadle_status check_filter(const treadle_rl *rl, const filter *f) {
  const treadle_train_settings *s = rl->settings;
  const size_t groups = rl->batch.samples.count / (size_t)s->n_samples_per_prompt;
  const int64_t needed = treadle_train_step_prompts(s);
  size_t all;
  (void)treadle_rl_prompts_items(rl->prompts, &all);
  if (s->filter_groups_max_batches > 0 && f->batches == s->filter_groups_max_batches)
    return treadle_fail(
        TREADLE_REFUSED,
        "step %lld: after %s, %lld, batches of %s, %zu groups of the %lld that it needs have "
        "samples with different scores",
        (long long)rl->step + 1, TREADLE_RL_PLACE(rl, filter_groups_max_batches), (long long)f->batches,
        treadle_text_of_count(f->each, "prompt"), groups, (long long)needed);
  if (f->barren >= (int64_t)all && f->batches > 1)
    return treadle_fail(
        TREADLE_REFUSED,
        "step %lld: %lld prompts one after the other, all of %s, have samples that score alike (%s): "
        "%zu groups of the %lld that it needs are there",
        (long long)rl->step + 1, (long long)f->barren, TREADLE_RL_PLACE(rl, data_path),
        TREADLE_RL_PLACE(rl, filter_groups_enable), groups, (long long)needed);
  return TREADLE_OK;
}

static treadle_status draw_batch(treadle_rl *rl, filter *f) {
  const size_t from = rl->batch.samples.count;
  treadle_status status;
  TRY(draw_more(rl, f->each));
  TRY(treadle_rl_score_start(rl, &rl->batch, from));
  TRY(treadle_rl_score_wait(rl, &rl->batch, from, NULL));
  if (rl->stopped) return TREADLE_OK;
  leave_out_equal(rl, from);
  f->barren = rl->batch.samples.count > from ? 0 : f->barren + f->each;
  f->batches++;
out:
  return status;
}

/* Prompts are drawn until there are enough groups; where a rank is asked to stop before, the step is not taken: rl->stopped. */
static treadle_status draw_filtered(treadle_rl *rl) {
  const treadle_train_settings *s = rl->settings;
  const size_t needed = (size_t)(treadle_train_step_prompts(s) * s->n_samples_per_prompt);
  filter f = {.each = s->gen_batch_size > 0 ? s->gen_batch_size : s->global_batch_size};
  treadle_rl_gauges gauges;
  treadle_status status = TREADLE_OK;
  while (rl->batch.samples.count < needed) {
    TRY(check_filter(rl, &f));
    if (f.batches) TRY(treadle_rl_call_gauges(rl, &gauges));
    rl->stopped = f.batches && gauges.stops;
    if (!rl->stopped) TRY(draw_batch(rl, &f));
    if (rl->stopped) goto out;
  }
  settle_groups(rl);
out:
  return status;
}

treadle_status treadle_rl_draw_step(treadle_rl *rl, size_t *from_p) {
  treadle_status status;
  *from_p = 0;
  rl->left_out = 0;
  treadle_rl_batch_clear(&rl->batch);
  rl->batch.step = rl->step + 1;
  if (rl->settings->filter_groups_enable) {
    TRY(draw_filtered(rl));
    *from_p = rl->batch.samples.count;
    return TREADLE_OK;
  }
  TRY(draw_more(rl, rl->settings->global_batch_size));
  TRY(treadle_rl_score_start(rl, &rl->batch, 0));
out:
  return status;
}
