/* Engines of a test, as the tables that a worker knows. They compute next to nothing, write down which of their functions
 * were called, and fail where they are told to. They refuse what a worker must not do: to generate without weights, to
 * compute with windows that have changed since rebind, to lose weights or the optimizer's state. The one that generates
 * answers each prompt with the prompt's last id; its log-probability is toy_logprob of the infer window's sum. */
#ifndef TREADLE_TESTS_TOY_H
#define TREADLE_TESTS_TOY_H

#include "treadle_loop.h"

enum { TOY_WORK = 10000, TOY_BLOCK = 1000 };

/* Of one rank: an engine that trains, and one that generates. */
typedef struct toy {
  treadle_group *group;
  const char *fails;                                  /* the function that fails once; NULL: none */
  const char *lacks;                                  /* the function that its table has not; NULL: none */
  char calls[256];                                    /* names of functions, a blank before each */
  int open;                                           /* engines */
  treadle_status (*spoil)(treadle_batch **answers_p); /* changes the next answers; NULL: nobody */

  const treadle_layout *train, *infer;
  uint64_t *params, *optimizer;
  size_t optimizer_words;
  int steps;
  uint64_t sum; /* of the weights, when this rank's trainer wrote them */
  bool stale;   /* params are elsewhere, or others, and rebind was not called */

  const treadle_switch *sw;
  const uint64_t *bound;           /* the infer window; NULL: no weights */
  bool train_was_there;            /* state of training was on the device in bind, or in generate */
  float (*rollout)(size_t number); /* what updates find in rollout_log_probs, to the bit; NULL: anything */
  char saved[64];                  /* the folder */
} toy;

treadle_status toy_open_train(void *context, treadle_group *group, const treadle_layout *layout,
                              const treadle_trainer_options *options, treadle_train_engine *engine_p);
treadle_status toy_open_infer(void *context, treadle_group *group, const treadle_layout *layout,
                              const treadle_generator_options *options, treadle_infer_engine *engine_p);

/* The log-probability of a first token, if the weights have that sum. */
float toy_logprob(uint64_t sum);

#endif
