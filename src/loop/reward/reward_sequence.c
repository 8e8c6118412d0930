/* The task of arithmetic sequences (docs/cli.md, "treadle data"): how many of the leading characters are right. The end counts as a
 * character behind the answer, and is right when the completion ends there, or with the letter E, by which the end token is written. */
#include "reward/reward.h"

#include <string.h>

static treadle_status judge(void *state, const treadle_reward_sample *sample, double *score_p,
                            char **pred_p) {
  (void)state;
  size_t wanted = strlen(sample->answer), bytes = sample->completion_bytes, right = 0;
  while (right < wanted && right < bytes && sample->completion[right] == sample->answer[right]) right++;
  bool ends = bytes == wanted || (bytes == wanted + 1 && sample->completion[wanted] == 'E');
  *score_p = (double)(right + (right == wanted && ends)) / (double)(wanted + 1);
  return treadle_reward_keep(sample->completion, bytes, pred_p);
}

const treadle_reward_rule treadle_reward_sequence = {
    .name = "sequence",
    .help = "leading characters that match the answer / (its length + 1); its end counts as 1",
    .needs_answers = true,
    .judges_texts = true,
    .judge = judge};
