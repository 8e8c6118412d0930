/* What tokens are drawn from. Some ids no token ever is: those that the model's vocabulary has and the tokenizer has no
 * token for, and ends that are ignored. Every rank finds the same ones, and both engines leave them out: nothing is
 * stored. Where top_p, top_k or min_p cut, the generator tells the ids that it drew each token from, and they go with
 * the token, through all mini batches: other logits would be cut otherwise. */
#include "rl/bounds.h"

#include "base/alloc.h"
#include "base/sized.h"
#include "generate/generator.h"
#include "pass/transformer.h"

#include <stdlib.h>
#include <string.h>

void treadle_rl_bounds_release(treadle_rl_bounds *bounds) {
  treadle_free(bounds->never);
  bounds->never = NULL;
}

/* ---- Ids that are never drawn ---------------------------------------------------------------------------------- */

static bool has_token(const treadle_tokenizer *tokenizer, int32_t id) {
  treadle_token_info info = TREADLE_INIT(treadle_token_info);
  return treadle_tokenizer_token(tokenizer, id, &info) == TREADLE_OK;
}

/* out [vocabulary]: 1 for an end, of the model or of the tokenizer. */
static treadle_status mark_ends(const treadle_model *model, const treadle_tokenizer *tokenizer,
                                int64_t vocabulary, uint8_t *out) {
  treadle_arena arena = {0};
  treadle_transformer *d = NULL;
  treadle_sampling_values sampling;
  treadle_eos ends;
  treadle_status status;
  TRY(treadle_transformer_create(model, &d));
  TRY(treadle_transformer_sampling(d, tokenizer, &arena, &sampling, &ends));
  for (int32_t i = 0; i < ends.count; i++)
    if (ends.ids[i] >= 0 && ends.ids[i] < vocabulary) out[ends.ids[i]] = 1;
out:
  treadle_transformer_destroy(d);
  treadle_arena_release(&arena);
  return status;
}

treadle_status treadle_rl_find_never(treadle_rl_bounds *bounds, const treadle_tokenizer *tokenizer,
                                     const treadle_model *ends) {
  uint8_t *out = treadle_alloc_array((size_t)bounds->vocabulary, 1);
  treadle_status status = TREADLE_OK;
  treadle_free(bounds->never);
  bounds->never = treadle_alloc_array((size_t)bounds->vocabulary, sizeof *bounds->never);
  bounds->never_count = 0;
  if (!out || !bounds->never)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for a vocabulary of %lld",
                     (long long)bounds->vocabulary));
  if (ends) TRY(mark_ends(ends, tokenizer, bounds->vocabulary, out));
  for (int64_t id = 0; id < bounds->vocabulary; id++)
    if (out[id] || (tokenizer && !has_token(tokenizer, (int32_t)id)))
      bounds->never[bounds->never_count++] = (int32_t)id;
  if ((int64_t)bounds->never_count == bounds->vocabulary)
    TRY(treadle_fail(TREADLE_REFUSED, "none of the %lld ids of the vocabulary can be drawn",
                     (long long)bounds->vocabulary));
out:
  treadle_free(out);
  return status;
}

void treadle_rl_note_never(const treadle_rl_bounds *bounds, const treadle_run_text *text,
                           const treadle_rl_crew *crew) {
  int64_t without = 0, first = -1, last = -1;
  for (int64_t id = 0; text->tokenizer && id < bounds->vocabulary; id++) {
    if (has_token(text->tokenizer, (int32_t)id)) continue;
    if (!without++) first = id;
    last = id;
  }
  if (without)
    treadle_rl_note(
        crew,
        "%lld ids of the model's vocabulary of %lld, %lld to %lld, have no token in the tokenizer "
        "of %s: they are never drawn, and have no part in log-probabilities",
        (long long)without, (long long)bounds->vocabulary, (long long)first, (long long)last,
        text->companions);
}

/* ---- Ids that are kept ------------------------------------------------------------------------------------------ */

bool treadle_rl_keeps(const treadle_rl_bounds *bounds, const treadle_train_settings *s) {
  return s->rl.logprobs.sampling_support == TREADLE_SUPPORT_KEPT && treadle_train_cuts(&s->sampling) &&
         !(s->sampling.top_k >= bounds->vocabulary && s->sampling.top_p >= 1 && s->sampling.min_p <= 0);
}

static int64_t most_of(const treadle_rl_bounds *bounds, const treadle_train_settings *s) {
  const int64_t most = s->sampling.top_k > 0 ? s->sampling.top_k : s->rl.logprobs.sampling_support_most,
                all = bounds->vocabulary - (int64_t)bounds->never_count;
  return most < all ? most : all;
}

/* Each token has a count beside its ids. There are four copies at most: on a rank whose replica is one of several,
 * answers of its own and of all, and a message that grows by making its room anew; later, on rank 0, those messages,
 * and the batch. A filter draws more than it leaves. */
size_t treadle_rl_kept_bytes(const treadle_rl_bounds *bounds, const treadle_train_settings *s) {
  enum { COPIES = 4 };
  const int64_t more = s->rl.filter_groups.gen_batch_size > 0 ? s->rl.filter_groups.gen_batch_size
                                                              : s->training.global_batch_size;
  const int64_t prompts = treadle_train_step_prompts(s) + (s->rl.filter_groups.enable ? more : 0);
  const int64_t factors[] = {s->rl.batches.n_samples_per_prompt, bounds->response_most,
                             most_of(bounds, s) + 1, COPIES * (int64_t)sizeof(int32_t)};
  int64_t bytes = prompts;
  if (!treadle_rl_keeps(bounds, s)) return 0;
  for (size_t i = 0; i < sizeof factors / sizeof *factors; i++)
    if (__builtin_mul_overflow(bytes, factors[i], &bytes))
      return INT64_MAX; /* more than there is anywhere */
  return (size_t)bytes;
}

void treadle_rl_note_kept(const treadle_rl_bounds *bounds, const treadle_rl_task *task,
                          const treadle_rl_crew *crew) {
  const treadle_train_settings *s = task->settings;
  const size_t bytes = treadle_rl_kept_bytes(bounds, task->settings);
  if (!bytes) return;
  treadle_rl_note(
      crew,
      "top_p, top_k or min_p cuts what tokens are drawn from: log-probabilities are of the ids that are "
      "left. They are kept with each token, at most %lld of them (%s), in up to %zu bytes of host "
      "memory on each rank",
      (long long)most_of(bounds, task->settings),
      s->sampling.top_k > 0 ? TREADLE_RL_PLACE(task, sampling.top_k)
                            : TREADLE_RL_PLACE(task, rl.logprobs.sampling_support_most),
      bytes);
}

static bool has_id(const int32_t *ids, int32_t count, int32_t id) {
  bool found = false;
  for (int32_t i = 0; i < count; i++) found = found || ids[i] == id;
  return found;
}

treadle_status treadle_rl_take_kept(const treadle_rl_bounds *bounds, const treadle_train_settings *settings,
                                    treadle_rl_batch *b, treadle_rl_made *made, const int32_t *counts,
                                    const int32_t *ids, size_t count) {
  const int32_t *tokens = b->ids.items + made->first;
  size_t at = 0;
  treadle_status status = TREADLE_OK;
  made->kept_first = b->kept.count;
  made->kept_count = count;
  for (size_t t = 0; t < made->count; t++) {
    if (counts[t] < 1 || (size_t)counts[t] > count - at || (int64_t)counts[t] > most_of(bounds, settings) ||
        !has_id(ids + at, counts[t], tokens[t]))
      REFUSE(
          "the infer engine's answer has %d ids that token %zu was drawn from, which is %d: 1 to %lld, and "
          "it is one of them",
          counts[t], t, tokens[t], (long long)most_of(bounds, settings));
    at += (size_t)counts[t];
    TRY(treadle_array_push(&b->kept_counts, counts[t]));
  }
  if (at != count)
    REFUSE("the infer engine's answer has %zu ids that tokens were drawn from, and counts of %zu", count,
           at);
  for (size_t i = 0; i < count; i++) TRY(treadle_array_push(&b->kept, ids[i]));
out:
  return status;
}
