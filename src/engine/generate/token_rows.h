/* What follows from rows of logits, divided among the threads of a pass: the next token of each sample, and the sum that its
 * log-probabilities are measured by. Each row is one thread's alone, so the number of threads changes no bit. */
#ifndef TREADLE_GENERATE_TOKEN_ROWS_H
#define TREADLE_GENERATE_TOKEN_ROWS_H

#include "generate/sample.h"
#include "pass/pass.h"

typedef struct treadle_token_row {
  const treadle_sample *sample;
  const float *logits;         /* [vocabulary] */
  float temperature;           /* of log-probabilities */
  int32_t token;               /* what was chosen */
  TREADLE_ARRAY(int32_t) kept; /* where the sample asks for it, and a cut was made: out of these ids */
  double
      lse; /* the logarithm of the sum of e^(logit / temperature); not finite where a logit is not: no token is chosen then */
} treadle_token_row;

typedef struct treadle_token_rows {
  treadle_pass *pass;
  int64_t vocabulary;
  treadle_sampler **samplers; /* [threads] */
  treadle_token_row *items;   /* [most] to be filled by the caller, but for kept, which stays allocated */
  int64_t most;
  float **drawn; /* [threads] rows of logits to take ids out of; NULL: none are */
} treadle_token_rows;

/* For up to `most` rows at once. */
treadle_status treadle_token_rows_init(treadle_token_rows *rows, treadle_pass *pass, int64_t vocabulary,
                                       int64_t most);
/* Room for samples whose log-probabilities are not of the whole vocabulary. */
treadle_status treadle_token_rows_draw(treadle_token_rows *rows);
void treadle_token_rows_release(treadle_token_rows *rows); /* a zeroed one too */

/* Fills in token and lse of the first `count` rows. Fails as treadle_sample_choose does, for the first row that does. */
treadle_status treadle_token_rows_run(treadle_token_rows *rows, int64_t count);

#endif
