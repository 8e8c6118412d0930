/* What treadle sft and treadle train have in common: a configuration that all ranks read, a forecast, a run that can be stopped. Each command is
 * a struct of its functions. */
#ifndef TREADLE_CLI_RUN_COMMAND_H
#define TREADLE_CLI_RUN_COMMAND_H

#include "cli/cli.h"
#include "cli/session.h"

#include "treadle_loop.h"

typedef struct treadle_run_command {
  const char *name;
  treadle_status (*help_config)(bool json, char **text_p);
  treadle_status (*read_config)(const char *path, const char *const *overrides, size_t count,
                                treadle_train_config **config_p);
  bool nodes;          /* ranks may be on several nodes, and there are options of how they meet */
  size_t memory_bytes; /* of a rank's forecast */
  /* How many ranks a forecast is for, where --ranks does not say. NULL: one. */
  treadle_status (*count_ranks)(const treadle_train_config *config, int64_t *ranks_p);
  /* Makes the forecast `memory` [ranks], and prints it; *misfit_p: it was printed, and is more than there is. */
  treadle_status (*plan)(const treadle_arguments *a, treadle_train_config *config, int64_t ranks,
                         void *memory, bool *misfit_p);
  /* Runs, on all ranks of the session, and prints at rank 0. *stopped_p: because the user asked. */
  treadle_status (*run)(const treadle_arguments *a, treadle_session *session, treadle_train_config *config,
                        bool *stopped_p);
} treadle_run_command;

/* The command. The exit status is the result. */
int treadle_run_command_run(const treadle_run_command *command, const treadle_arguments *a);

/* What --resume says, and from which checkpoint, where it names one; without it the run starts anew. */
treadle_start treadle_run_command_resume(const treadle_run_arguments *a, const char **from_p);

#endif
