/* How near the number of tokens is to a target. */
#include "reward/reward.h"

#include "base/text.h"

#include <inttypes.h>

#include "base/alloc.h"

static treadle_status create(const treadle_reward_options *options, const char *argument, void **state_p) {
  static const char key[] = "target=";
  int64_t target;
  (void)options;
  if (!treadle_text_starts(argument, key) || !treadle_text_to_int64(argument + sizeof key - 1, &target) ||
      target < 1 || target > 1 << 30)
    REFUSE("reward length:%s: it is length:target=T, with T tokens from 1 to 2^30", argument);
  int64_t *kept = treadle_alloc(sizeof *kept);
  if (!kept) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a reward");
  *kept = target;
  *state_p = kept;
  return TREADLE_OK;
}

static treadle_status judge(void *state, const treadle_reward_sample *sample, double *score_p,
                            char **pred_p) {
  const int64_t target = *(const int64_t *)state;
  (void)pred_p;
  if (sample->tokens < 0) REFUSE("it has %" PRId64 " tokens", sample->tokens);
  int64_t apart = sample->tokens > target ? sample->tokens - target : target - sample->tokens;
  *score_p = apart < target ? 1.0 - (double)apart / (double)target : 0.0;
  return TREADLE_OK;
}

const treadle_reward_rule treadle_reward_length = {.name = "length",
                                                   .argument = "target=T",
                                                   .help = "1 - |tokens - T| / T, at least 0",
                                                   .create = create,
                                                   .release = treadle_free,
                                                   .judge = judge};
