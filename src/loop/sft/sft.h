/* Supervised training: what its files share.
 *
 *   sft_start.c  where a run goes on
 *   sft_open.c   what a configuration names: model, layout, rows, trainer
 *   sft_memory.c what ranks will hold, and whether a budget allows it
 *   sft.c        the steps, tests, checkpoints and the end */
#ifndef TREADLE_SFT_SFT_H
#define TREADLE_SFT_SFT_H

#include "io/folder_lock.h"
#include "run/checkpoint.h"
#include "run/config.h"
#include "run/metrics.h"
#include "run/observe.h"
#include "run/order.h"
#include "run/run_start.h"
#include "run/run_text.h"
#include "run/schedule.h"
#include "treadle_loop.h"

#include <limits.h>

/* "actor_config.lr (line 9)" */
#define TREADLE_SFT_PLACE(sft, member) treadle_train_config_place((sft)->config, TREADLE_KEY_OF(member))

typedef struct treadle_sft {
  treadle_group *group;
  const treadle_train_config *config;
  const treadle_train_settings *settings;
  const treadle_sft_options *options;
  treadle_observer observer;
  int rank, ranks;
  treadle_model *model;
  treadle_layout *layout;
  treadle_run_text text;
  treadle_batch *train, *val; /* rows; val: NULL: there are none */
  size_t train_count, val_count;
  treadle_train_engine engine;
  treadle_train_order order;
  int64_t *places; /* [global_batch_size] of the rows of a step */
  treadle_lr_schedule schedule;
  treadle_metrics *metrics; /* of rank 0 */
  treadle_folder_lock lock; /* of the run's folder; of rank 0 */
  int64_t seq_length;       /* of a row, at most */
  size_t predicted;         /* bytes of the fullest rank; of rank 0 */
  int64_t step;             /* taken so far, by the run */
  int64_t optimizer_steps;  /* without those that were skipped */
  int64_t saved;            /* step of the newest checkpoint; -1: none */
  uint64_t rows_digest, losses_digest;
  bool plans;                  /* only memory is wanted */
  char from[TREADLE_RUN_FROM]; /* the checkpoint that the run goes on from; "": it begins */
} treadle_sft;

/* Finds where the run goes on, opens all of it, and loads or makes the weights. Collective. */
treadle_status treadle_sft_open(treadle_sft *sft);
void treadle_sft_close(treadle_sft *sft);

/* Where its weights come from, once it is open. */
treadle_weights treadle_sft_weights(const treadle_sft *sft);

/* Finds the checkpoint that the run goes on from: from[], which stays "" where it begins. */
treadle_status treadle_sft_find_start(treadle_sft *sft);
/* Is it whole, as it was saved? Collective. */
treadle_status treadle_sft_check_start(treadle_sft *sft);
/* Takes steps and digests from its data.json, which must be of a run with the same rows. */
treadle_status treadle_sft_read_start(treadle_sft *sft);
/* The options of its trainer, by what the configuration names. */
treadle_status treadle_sft_measure(treadle_sft *sft, treadle_trainer_options *options);
/* Bytes of each rank, by shapes alone, to by_rank where that is given, and of the fullest one to predicted. Refused: more than the budget; then
 * they are there, too. */
treadle_status treadle_sft_predict(treadle_sft *sft, const treadle_trainer_options *options,
                                   treadle_trainer_memory *by_rank);
/* How rows go through the layers. */
treadle_forward_options treadle_sft_forward(const treadle_sft *sft);
treadle_status treadle_sft_agree(const treadle_sft *sft, treadle_status status);

#endif
