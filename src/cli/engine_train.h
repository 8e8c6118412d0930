/* generate and score with --train: the weights are loaded into the layout for training, and a switch gives them to the engine. */
#ifndef TREADLE_CLI_ENGINE_TRAIN_H
#define TREADLE_CLI_ENGINE_TRAIN_H

#include "cli/engine_job.h"

/* The job has its model, its layout and its engine. Makes the switch, loads the weights and goes to INFER. The ranks agree on how it
 * went. */
treadle_status treadle_engine_train_open(treadle_engine_job *job, const treadle_arguments *arguments);
void treadle_engine_train_close(treadle_engine_job *job);

#endif
