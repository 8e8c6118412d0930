/* bench_sampler [VOCABULARY...]: microseconds that one choice takes, by what is on. Rows are normal logits with a few peaks; the best
 * of many runs counts. */
#include "generate/sampler.h"
#include "base/clock.h"
#include "base/random.h"
#include "generate/uniform.h"
#include "pass/logprob.h"

#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 8, RUNS = 30 };

typedef struct bench_case {
  const char *name;
  double temperature, top_p, min_p, repetition_penalty;
  int64_t top_k;
} bench_case;

static const bench_case cases[] = {
    {"greedy", 0, 1, 0, 1, 0},
    {"greedy, penalty", 0, 1, 0, 1.1, 0},
    {"nothing cut", 1, 1, 0, 1, 0},
    {"top-k 50", 1, 1, 0, 1, 50},
    {"top-p 0.9", 1, 0.9, 0, 1, 0},
    {"min-p 0.05", 1, 1, 0.05, 1, 0},
    {"top-k 20, top-p 0.95, penalty", 0.7, 0.95, 0, 1.05, 20},
    {"top-p 0.9, temperature 100", 100, 0.9, 0, 1, 0},
};

static void fill(float *logits, int64_t count, uint64_t seed) {
  treadle_random random = {.state = seed};
  for (int64_t i = 0; i < count; i++) {
    double x = 0;
    for (int k = 0; k < 3; k++) x += (double)(treadle_random_next(&random) >> 11) * 0x1p-52 - 1;
    logits[i] = (float)(2 * x + (treadle_random_below(&random, 1000) == 0 ? 10 : 0));
  }
}

static double best_of(treadle_sampler *sampler, const float *logits, int64_t vocabulary,
                      const bench_case *c, const treadle_token_counts *counts) {
  double best = 1e30;
  treadle_sampling_values sampling;
  treadle_sampling_default(&sampling);
  sampling.temperature = c->temperature;
  sampling.top_k = c->top_k;
  sampling.top_p = c->top_p;
  sampling.min_p = c->min_p;
  sampling.repetition_penalty = c->repetition_penalty;
  for (int run = 0; run < RUNS; run++) {
    double start = treadle_clock_seconds();
    for (int r = 0; r < ROWS; r++) {
      const treadle_sampler_row row = {
          .logits = logits + r * vocabulary, .sampling = &sampling, .counts = counts};
      int32_t token;
      if (treadle_sampler_choose(sampler, &row, treadle_uniform(0, run, r), &token) != TREADLE_OK) exit(1);
    }
    double seconds = (treadle_clock_seconds() - start) / ROWS;
    if (seconds < best) best = seconds;
  }
  return best * 1e6;
}

static double top_logprobs(const float *logits, int64_t vocabulary) {
  double best = 1e30;
  treadle_token_logprob top[TREADLE_MOST_TOP_LOGPROBS];
  for (int run = 0; run < RUNS; run++) {
    double start = treadle_clock_seconds();
    for (int r = 0; r < ROWS; r++) treadle_logprob_top(logits + r * vocabulary, vocabulary, 1, 20, 20, top);
    double seconds = (treadle_clock_seconds() - start) / ROWS;
    if (seconds < best) best = seconds;
  }
  return best * 1e6;
}

static void measure(int64_t vocabulary) {
  treadle_sampler *sampler;
  treadle_token_counts counts = {0};
  float *logits = malloc((size_t)(ROWS * vocabulary) * sizeof *logits);
  if (!logits || treadle_sampler_create(vocabulary, &sampler) != TREADLE_OK) exit(1);
  for (int r = 0; r < ROWS; r++) fill(logits + r * vocabulary, vocabulary, (uint64_t)r);
  for (int32_t i = 0; i < 500; i++)
    if (treadle_token_counts_add(&counts, (int32_t)(i * 7919 % vocabulary), i % 2) != TREADLE_OK) exit(1);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    printf("%8lld  %-30s %8.1f us\n", (long long)vocabulary, cases[i].name,
           best_of(sampler, logits, vocabulary, &cases[i], &counts));
  printf("%8lld  %-30s %8.1f us\n", (long long)vocabulary, "20 log-probabilities",
         top_logprobs(logits, vocabulary));
  treadle_token_counts_release(&counts);
  treadle_sampler_destroy(sampler);
  free(logits);
}

int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++) measure(strtoll(argv[i], NULL, 10));
  if (argc == 1) {
    measure(6400);
    measure(151936);
  }
  return 0;
}
