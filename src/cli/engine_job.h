/* What generate and score share: the model, its weights in a window, the engine, lines in and answers out. */
#ifndef TREADLE_CLI_ENGINE_JOB_H
#define TREADLE_CLI_ENGINE_JOB_H

#include "cli/cli.h"
#include "cli/session.h"

#include "base/text.h"

typedef struct treadle_engine_job {
  treadle_session session; /* ranks of mpirun, or this one alone */
  treadle_model *model;
  treadle_layout *layout;
  treadle_engine *engine;
  void *window;
  size_t window_bytes;
  char *lines; /* of --file */
  size_t line_bytes;
  bool collects, prints;   /* answers go to standard output, as they come; else to --out, at the end */
  treadle_builder answers; /* for --out */
} treadle_engine_job;

/* Reads `path` whole; NULL: nothing. */
treadle_status treadle_engine_job_open(treadle_engine_job *job, const treadle_arguments *arguments,
                                       const char *layout);
treadle_status treadle_engine_job_read(treadle_engine_job *job, const char *path);
/* Where answers go: to --out, whole or not at all; else to standard output, unless --json has it. */
treadle_status treadle_engine_job_write(treadle_engine_job *job, const treadle_arguments *arguments);
treadle_status treadle_engine_job_finish(treadle_engine_job *job, const treadle_arguments *arguments);
void treadle_engine_job_close(treadle_engine_job *job);

/* A callback of the engine's options, whose context is the job. */
treadle_status treadle_engine_job_answer(void *context, const char *line, size_t bytes);

#endif
