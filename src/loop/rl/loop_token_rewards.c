/* Rewards by token: what rewards see of tokens, and what they give each, until the advantages are found. The rest of a sample's score is that of its
 * last token. */
#include "rl/rollout.h"

#include "base/alloc.h"

/* One of the rewards' memory: zeros. */
static bool make_tokens(treadle_arena *arena, const treadle_rl_batch *b, size_t count, const size_t *first,
                        treadle_reward_tokens *to) {
  double *rewards = treadle_arena_alloc_array(arena, b->ids.count + 1, sizeof *rewards);
  bool *given = treadle_arena_alloc_array(arena, count + 1, sizeof *given);
  if (!rewards || !given) return false;
  for (size_t t = 0; t < b->ids.count; t++) rewards[t] = 0;
  for (size_t i = 0; i < count; i++) given[i] = false;
  *to = (treadle_reward_tokens){b->ids.items, first, rewards, given};
  return true;
}

treadle_status treadle_rl_show_tokens(treadle_rl_rewards *rewards, const treadle_rl_batch *b, size_t from) {
  const size_t count = b->samples.count - from;
  size_t *first = treadle_arena_alloc_array(&rewards->judged_texts, count + 1, sizeof *first);
  bool made = first != NULL;
  for (size_t i = 0; made && i < count; i++) first[i] = b->samples.items[from + i].first;
  for (int i = 0; made && i < rewards->count; i++)
    made = make_tokens(&rewards->judged_texts, b, count, first, &rewards->tokens[i]);
  return made ? TREADLE_OK
              : treadle_fail(TREADLE_NO_MEMORY, "no memory for the tokens of %zu samples", count);
}

static bool gives_any(const treadle_reward_tokens *t, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (t->given[i]) return true;
  return false;
}

treadle_status treadle_rl_take_token_rewards(const treadle_rl_rewards *rewards, int number,
                                             treadle_rl_batch *b, size_t from, const double *scores) {
  const treadle_reward_tokens *tokens = &rewards->tokens[number];
  const double weight = rewards->weights[number];
  treadle_status status = TREADLE_OK;
  if (!b->scored.count && !gives_any(tokens, b->samples.count - from)) return TREADLE_OK;
  while (b->scored.count < b->ids.count) TRY(treadle_array_push(&b->scored, 0));
  for (size_t i = from; i < b->samples.count; i++) {
    treadle_rl_made *s = &b->samples.items[i];
    if (!tokens->given[i - from]) continue;
    s->at_tokens += weight * scores[i - from];
    for (size_t t = s->first; t < s->first + s->count; t++)
      b->scored.items[t] += weight * tokens->rewards[t];
  }
out:
  return status;
}
