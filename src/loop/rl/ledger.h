/* The figures of a step and of all steps, and the files that they and the samples are written to. */
#ifndef TREADLE_RL_LEDGER_H
#define TREADLE_RL_LEDGER_H

#include "base/arena.h"
#include "base/array.h"
#include "rl/bounds.h"
#include "rl/sample_log.h"
#include "rl/state.h"
#include "run/metrics.h"
#include "run/trace.h"
#include "treadle_loop.h"

/* What metrics.jsonl gets of this step. */
typedef struct treadle_rl_values {
  TREADLE_ARRAY(treadle_metric) all;
  treadle_arena names;
  bool lost; /* there was no memory for one */
} treadle_rl_values;

/* Seconds of the stages of a step. */
typedef struct treadle_rl_times {
  double gen, reward, old_log_prob, ref, values, adv, update_critic, update_actor, testing, save_checkpoint,
      step;
  double to_infer, to_train;
  double idle; /* in which ranks ran no method, their mean */
} treadle_rl_times;

/* What steps have come to, for the end of the run. */
typedef struct treadle_rl_totals {
  TREADLE_ARRAY(double) seconds, rewards; /* of each step */
  int64_t tokens, compared, differing;
  double most_difference, all_seconds;
  double val_first, val_last; /* of the first test and the last; NaN: there was none */
} treadle_rl_totals;

/* Device bytes of rank 0 at a moment of a step, by class. */
typedef struct treadle_rl_moment {
  double seconds;
  const char *stage;
  size_t bytes[TREADLE_CLASSES];
} treadle_rl_moment;

/* Those of the last step. */
typedef struct treadle_rl_moments {
  TREADLE_ARRAY(treadle_rl_moment) all;
  const char *stage; /* of the step that is under way */
  double begin;      /* of that step */
} treadle_rl_moments;

/* With the controller apart, what went between processes. */
typedef struct treadle_rl_traffic {
  int64_t calls, message_bytes; /* of the controller; with answers */
  int64_t by_controller;        /* bytes of rows that it had in its hands */
  int64_t by_workers;           /* those that first ranks of pools got of each other */
} treadle_rl_traffic;

typedef struct treadle_rl_ledger {
  treadle_metrics *metrics;
  treadle_rl_sample_log *sample_log;
  treadle_trace_file *trace;
  treadle_rl_values values;
  TREADLE_ARRAY(double) losses; /* of mini batches, until they are in the digest */
  treadle_rl_times times;
  treadle_rl_totals totals;
  treadle_rl_moments moments;
  double saving_since; /* 0: no checkpoint is under way */
  double began;        /* the step that is under way, by the clock; 0: none is */
} treadle_rl_ledger;

void treadle_rl_ledger_close(treadle_rl_ledger *ledger);

/* ---- loop_figures.c ---- */

void treadle_rl_value(treadle_rl_values *values, const char *name, double value);
void treadle_rl_count(treadle_rl_values *values, const char *name, int64_t value);
/* As at the beginning of a step. */
void treadle_rl_values_clear(treadle_rl_values *values);
/* What is known of the batch. */
void treadle_rl_batch_values(treadle_rl_values *values, const treadle_train_settings *settings,
                             const treadle_rl_bounds *bounds, const treadle_rl_batch *batch);
/* Writes FOLDER/K.jsonl. */
treadle_status treadle_rl_dump_step(const treadle_train_settings *settings, const treadle_rl_state *state,
                                    const treadle_rl_batch *batch);
/* The first samples, in samples.jsonl; of a test, in RUN/validation/STEP.jsonl. */
treadle_status treadle_rl_log_samples(treadle_rl_ledger *ledger, const treadle_train_settings *settings,
                                      const treadle_rl_state *state, const treadle_rl_batch *batch);
treadle_status treadle_rl_write_test(const treadle_train_settings *settings, const treadle_rl_state *state,
                                     const treadle_rl_batch *batch);

/* ---- loop_exact.c ---- */

/* batch->old beside batch->rollout: figures, and in exact mode TREADLE_DIFFERENT for a bit that differs. */
treadle_status treadle_rl_compare(treadle_rl_ledger *ledger, const treadle_train_settings *settings,
                                  const treadle_rl_batch *batch);
/* The same, with what an update of all samples has found. */
treadle_status treadle_rl_compare_update(treadle_rl_ledger *ledger, const treadle_train_settings *settings,
                                         treadle_rl_batch *batch, const float *logprobs,
                                         const float *entropies);

/* loop_report.c: a step begins. */
void treadle_rl_begin_moments(treadle_rl_moments *moments);

#endif
