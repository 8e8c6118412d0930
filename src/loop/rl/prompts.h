/* Prompts of a run, with what the rewards compare answers with: lines of JSON, or one JSON list, of one file or several ("a.jsonl,b.json").
 *
 *   prompt   a text, which is a message of the user where there is a chat template; a list of messages; or prompt_token_ids
 *   answer   a text, or a number, whose text has the fewest digits that are read as the same number. Where there is none, or null,
 *            reward_model.ground_truth, as verl's data has it
 *
 * The keys' names are the run's (prompt_key: GSM8K has question, MATH problem). Other keys are not looked at. */
#ifndef TREADLE_RL_PROMPTS_H
#define TREADLE_RL_PROMPTS_H

#include "treadle_loop.h"

typedef struct treadle_rl_prompt {
  const int32_t *ids; /* [count] with the chat template's own */
  int64_t count;
  const char *text;        /* as the data has it; of messages, the last one's */
  const char *answer;      /* "": there is none */
  const char *data_source; /* of the line; else the name of the file, without folder and ending */
  int64_t line;            /* of the file */
} treadle_rl_prompt;

typedef struct treadle_rl_prompts treadle_rl_prompts;

/* What a person gives who asks for prompts, as messages have it. */
typedef struct treadle_rl_prompts_words {
  const char *prompt_key, *answer_key; /* where those come from */
  const char *too_long, *no_answer;    /* what helps where a prompt is too long, or has no answer */
  const char *no_tokenizer;            /* or is a text, and there is no tokenizer */
} treadle_rl_prompts_words;

typedef struct treadle_rl_prompts_spec {
  const char *path;
  const char *prompt_key, *answer_key, *data_source_key;
  const treadle_rl_prompts_words *words;
  const treadle_tokenizer *tokenizer; /* NULL: prompts are token ids */
  const treadle_chat *chat;           /* NULL: there is no template, or texts stay as they are */
  const char *chat_variables;         /* a JSON object; NULL: add_generation_prompt alone */
  int64_t vocabulary, most_tokens;
  bool leave_long_out;       /* prompts that are longer go, and are counted; else one is refused */
  bool need_answer;          /* a line without one is refused, */
  bool leave_unanswered_out; /* or goes, and is counted */
} treadle_rl_prompts_spec;

/* Refused, by file and line: what is not JSON, a line without prompt or answer, with values of another type, with ids beyond the vocabulary, too
 * long; files without a prompt. On failure *prompts_p is NULL. */
treadle_status treadle_rl_prompts_read(const treadle_rl_prompts_spec *spec, treadle_rl_prompts **prompts_p);
void treadle_rl_prompts_destroy(treadle_rl_prompts *prompts);
const treadle_rl_prompt *treadle_rl_prompts_items(const treadle_rl_prompts *prompts, size_t *count_p);
/* How many were left out. */
int64_t treadle_rl_prompts_too_long(const treadle_rl_prompts *prompts);
int64_t treadle_rl_prompts_unanswered(const treadle_rl_prompts *prompts);
/* How many answers are such that no completion can be right by this reward; *first_p: the first prompt with one. */
size_t treadle_rl_prompts_unmatched(const treadle_rl_prompts *prompts, const struct treadle_reward *reward,
                                    const treadle_rl_prompt **first_p);
/* The seed of the samples of the prompt at a place of a step, whose number is the key. */
int64_t treadle_rl_seed(int64_t sampling_seed, int64_t key, int64_t place);
/* Of all tokens, answers and sources. */
uint64_t treadle_rl_prompts_digest(const treadle_rl_prompts *prompts);

#endif
