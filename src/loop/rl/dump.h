/* Samples of a step in a file, FOLDER/STEP.jsonl, whole or not at all: a line a sample,
 *
 *   {"uid", "prompt", "completion", "answer", "prompt_ids", "ids", "rollout_log_probs", "old_log_probs", "ref_log_probs", "log_probs",
 *    "score", "reward", "advantage", "mini_batch", "entropies", "kept"}
 *
 * log_probs are those that the update of the sample's mini batch has found, before its step of the optimizer: with them the loss of any mini batch
 * can be computed. With several epochs they are those of the last one, while mini_batch is that of the first. entropies are those that
 * actor/entropy is made of: of the update, or, where the loss has no entropy, of the pass before it.
 *
 * reward is the score with what penalties of the length and the KL take of it: what advantages are made of. Beside them "advantages", of each
 * token, where an estimator gives them different ones (advantage is then their mean), and "kl_coef", what the KL of the loss is multiplied by in
 * this step.
 *
 * kept has a list of ids for each token, ascending: what top_p, top_k or min_p left of the vocabulary, and the token
 * was drawn from. All log-probabilities and entropies are of the distribution over these. null: nothing was cut.
 *
 * experts is there where they are recorded: those that each token of prompt and completion but the last one chose, in each layer that has some.
 *
 * Log-probabilities have 9 digits, which name their bits; scores, rewards and advantages 17. ref_log_probs and entropies are null where there are
 * none. Bytes of a completion that are no UTF-8 are U+FFFD. */
#ifndef TREADLE_RL_DUMP_H
#define TREADLE_RL_DUMP_H

#include "base/arena.h"
#include "base/array.h"
#include "base/text.h"
#include "rl/sample.h"

treadle_status treadle_rl_dump_write(const char *folder, int64_t step, const treadle_rl_sample *samples,
                                     size_t count);

/* What was read back. Texts but uid are not kept; prompts have ids alone. */
typedef struct treadle_rl_dumped {
  TREADLE_ARRAY(treadle_rl_sample) items;
  treadle_arena arena;
} treadle_rl_dumped;

/* Refused, by line and key: keys that are not there ("log_probs", "reward", "entropies", "advantages", "kl_coef", "kept" and "experts" need not be), other types, lists
 * of other lengths than ids, ids beyond the vocabulary. *dumped_p is ended by release, whatever is returned. */
treadle_status treadle_rl_dump_read(const char *path, int64_t vocabulary, treadle_rl_dumped *dumped_p);
void treadle_rl_dumped_release(treadle_rl_dumped *dumped);

#endif
