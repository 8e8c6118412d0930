/* The models of a run, and the layouts that ranks have them in. */
#ifndef TREADLE_RL_MODELS_H
#define TREADLE_RL_MODELS_H

#include "rl/crew.h"
#include "rl/task.h"
#include "treadle.h"

#include <limits.h>

struct treadle_values;

/* Every rank has all of it. */
typedef struct treadle_rl_models {
  char path[PATH_MAX]; /* of the one that was opened */
  treadle_model *opened;
  struct treadle_values *start_values; /* of a checkpoint of Megatron; NULL: of the model's own files */
  const treadle_model *model;          /* the opened one, with start_values where there are any */
  treadle_model *reference_model;      /* NULL: the policy's own */
  treadle_layout *train, *infer, *reference; /* reference: NULL: the actor has none */
  treadle_layout
      *of_trainer; /* train on its own ranks alone, where `train` is on some of the policy's; else NULL */
} treadle_rl_models;

/* Of the pool of the switch. */
static inline size_t treadle_rl_page_bytes(const treadle_model *model) {
  return (size_t)treadle_model_bytes(model) < (size_t)64 << 20 ? (size_t)1 << 16 : (size_t)1 << 21;
}

/* loop_open.c: the layouts of the model as it is now, in place of those before. Local. */
treadle_status treadle_rl_open_layouts(treadle_rl_models *models, const treadle_rl_task *task,
                                       const treadle_rl_crew *crew);
void treadle_rl_models_close(treadle_rl_models *models);

/* loop_weights.c. from: the checkpoint that the run goes on from; "": it begins.
 *
 * Refused where weights are needed that nothing gives; says so where they are made up. Local. */
treadle_status treadle_rl_check_weights(const treadle_rl_models *models, const treadle_rl_crew *crew,
                                        const char *from);
/* Where the weights come from that the run began or went on with. */
treadle_weights treadle_rl_weights(const treadle_rl_models *models, const char *from);

/* loop_exact.c: refused, where both layouts cannot have the same bits. */
treadle_status treadle_rl_check_exact(const treadle_rl_models *models, const treadle_rl_task *task);

#endif
