/* GSM8K as verl scores it (verl/utils/reward_score/gsm8k.py, strict): "#### ", a minus or none, then digits, points and commas. The last
 * of these in the completion is compared, as text without commas, with the first one in the data's answer, or with the whole of an
 * answer that has none. */
#include "reward/reward.h"

#include "base/alloc.h"

#include <string.h>

/* The number behind a mark at `at`: its bytes, 0 where none stands there. */
static size_t number_at(const char *text, size_t bytes, size_t at, const char **number_p) {
  static const char mark[] = "#### ";
  enum { MARK = sizeof mark - 1 };
  if (bytes - at <= MARK || memcmp(text + at, mark, MARK) != 0) return 0;
  size_t start = at + MARK, end = start + (text[start] == '-'), digits = end;
  while (end < bytes && text[end] && strchr("0123456789.,", text[end])) end++;
  *number_p = text + start;
  return end > digits ? end - start : 0;
}

static size_t find_number(const char *text, size_t bytes, bool last, const char **number_p) {
  size_t found = 0;
  for (size_t at = 0; at < bytes && (last || !found); at++) {
    const char *number;
    size_t count = number_at(text, bytes, at, &number);
    if (count) found = count, *number_p = number;
  }
  return found;
}

/* A copy without commas. */
static treadle_status clean(const char *number, size_t bytes, char **clean_p) {
  treadle_status status = treadle_reward_keep(number, bytes, clean_p);
  if (status) return status;
  char *to = *clean_p;
  for (size_t i = 0; i < bytes; i++)
    if (number[i] != ',') *to++ = number[i];
  *to = 0;
  return TREADLE_OK;
}

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

static treadle_status read_answer(const char *answer, char **clean_p) {
  const char *number = answer;
  size_t bytes = find_number(answer, strlen(answer), false, &number);
  if (!bytes) {
    while (is_space(*number)) number++;
    bytes = strlen(number);
    while (bytes && is_space(number[bytes - 1])) bytes--;
  }
  return clean(number, bytes, clean_p);
}

/* What a completion is compared as: a minus or none, digits and points. */
static bool can_match(const char *answer) {
  const char *number;
  if (find_number(answer, strlen(answer), false, &number)) return true;
  while (is_space(*answer)) answer++;
  size_t bytes = strlen(answer);
  while (bytes && is_space(answer[bytes - 1])) bytes--;
  size_t start = bytes && *answer == '-', digits = strspn(answer + start, "0123456789.,");
  return digits && start + digits == bytes;
}

static treadle_status judge(void *state, const treadle_reward_sample *sample, double *score_p,
                            char **pred_p) {
  char *pred = NULL, *answer = NULL;
  const char *number = NULL;
  treadle_status status = TREADLE_OK;
  (void)state;
  size_t bytes = find_number(sample->completion, sample->completion_bytes, true, &number);
  if (!bytes) return TREADLE_OK; /* 0, and nothing to show */
  TRY(clean(number, bytes, &pred));
  TRY(read_answer(sample->answer, &answer));
  *score_p = strcmp(pred, answer) == 0;
  if (pred_p) *pred_p = pred, pred = NULL;
out:
  treadle_free(pred);
  treadle_free(answer);
  return status;
}

const treadle_reward_rule treadle_reward_gsm8k = {
    .name = "gsm8k",
    .help = "1 if the last number after #### is the number after #### in the answer, else 0",
    .needs_answers = true,
    .judges_texts = true,
    .can_match = can_match,
    .judge = judge};
