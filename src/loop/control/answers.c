#include "control/answers.h"

#include "base/status.h"
#include "base/utf8.h"
#include "batch/batch.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static treadle_status find(const treadle_batch *answers, const char *name, treadle_column_type type,
                           treadle_column *column_p) {
  *column_p = TREADLE_INIT(treadle_column);
  if (!treadle_batch_has(answers, name)) REFUSE("the infer engine's answers have no column '%s'", name);
  treadle_status status;
  TRY(treadle_batch_column(answers, name, column_p));
  if (column_p->type != type || !column_p->offsets)
    REFUSE("the infer engine's answers have a column '%s' of %s%s: ragged %s is needed", name,
           column_p->offsets ? "ragged " : "", treadle_column_about_of(column_p->type)->name,
           treadle_column_about_of(type)->name);
out:
  return status;
}

static treadle_status check_tokens(int64_t row, const treadle_column *ids, const treadle_column *logprobs) {
  const int64_t count = ids->offsets[row + 1] - ids->offsets[row];
  const float *values = (const float *)logprobs->data + logprobs->offsets[row];
  const int32_t *tokens = (const int32_t *)ids->data + ids->offsets[row];
  if (logprobs->offsets[row + 1] - logprobs->offsets[row] != count)
    REFUSE("row %lld of the infer engine's answers has %lld ids, and rollout_log_probs of %lld",
           (long long)row, (long long)count,
           (long long)(logprobs->offsets[row + 1] - logprobs->offsets[row]));
  for (int64_t i = 0; i < count; i++) {
    if (tokens[i] < 0)
      REFUSE("row %lld of the infer engine's answers: ids[%lld] is %d; an id is 0 or more", (long long)row,
             (long long)i, (int)tokens[i]);
    if (!isfinite(values[i]) || values[i] > 0)
      REFUSE("row %lld of the infer engine's answers: rollout_log_probs[%lld] is %g; the logarithm of a "
             "probability is 0 or less",
             (long long)row, (long long)i, (double)values[i]);
  }
  return TREADLE_OK;
}

static treadle_status check_finish(int64_t row, const treadle_column *finish) {
  const char *text = (const char *)finish->data + finish->offsets[row];
  const size_t bytes = (size_t)(finish->offsets[row + 1] - finish->offsets[row]);
  if ((bytes == 4 && memcmp(text, "stop", 4) == 0) || (bytes == 6 && memcmp(text, "length", 6) == 0))
    return TREADLE_OK;
  char shown[41];
  snprintf(shown, sizeof shown, "%.*s", (int)(bytes < sizeof shown ? bytes : sizeof shown - 1), text);
  REFUSE("row %lld of the infer engine's answers: finish is '%s': stop or length", (long long)row,
         treadle_text_shown(shown));
}

treadle_status treadle_answers_check(const treadle_batch *answers, int64_t prompts, int64_t n) {
  treadle_column ids, logprobs, finish;
  treadle_status status;
  if (!answers) REFUSE("the infer engine gives no answers (NULL)");
  const int64_t rows = treadle_batch_rows(answers);
  if (n < 1 || rows % n != 0 || rows / n != prompts)
    REFUSE("the infer engine gives %lld answers: %lld to each of %lld prompts are wanted", (long long)rows,
           (long long)n, (long long)prompts);
  TRY(find(answers, "ids", TREADLE_COLUMN_INT32, &ids));
  TRY(find(answers, "rollout_log_probs", TREADLE_COLUMN_FP32, &logprobs));
  TRY(find(answers, "finish", TREADLE_COLUMN_TEXT, &finish));
  for (int64_t r = 0; r < rows; r++) {
    TRY(check_tokens(r, &ids, &logprobs));
    TRY(check_finish(r, &finish));
  }
out:
  return status;
}
