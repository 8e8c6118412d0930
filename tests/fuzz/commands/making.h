/* What files that make runs share: drawing words and files of one run. */
#ifndef TREADLE_TESTS_FUZZ_COMMANDS_MAKING_H
#define TREADLE_TESTS_FUZZ_COMMANDS_MAKING_H

#include "commands/run.h"

typedef struct fuzz_making {
  treadle_random random;
  const fuzz_base *base;
  const fuzz_model *model;
  oracle_model *oracle; /* of the model before it was spoiled */
  fuzz_run *run;
} fuzz_making;

/* One more word of the command. */
__attribute__((format(printf, 2, 3))) void fuzz_add(fuzz_making *m, const char *format, ...);
static inline bool fuzz_draw(fuzz_making *m, int64_t many) { return fuzz_one_in(&m->random, many); }

/* A folder or a file of the model, in the present folder; spoiled. */
void fuzz_take_folder(fuzz_making *m, const char *name, const char *as, int64_t spoiled_one_in);
void fuzz_take_file(fuzz_making *m, const char *name, int64_t kept_one_in);

/* make_engine.c: commands around the engine. */
void fuzz_make_generate(fuzz_making *m);
void fuzz_make_score(fuzz_making *m);
void fuzz_make_tokenize(fuzz_making *m);

/* make_train.c: commands around the trainer. */
void fuzz_make_grad(fuzz_making *m);
void fuzz_make_sft(fuzz_making *m);
void fuzz_make_data(fuzz_making *m);

/* make_rl.c: commands around the loop. */
void fuzz_make_train(fuzz_making *m);
void fuzz_make_eval(fuzz_making *m);
void fuzz_make_report(fuzz_making *m);
void fuzz_make_grad_grpo(fuzz_making *m);

#endif
