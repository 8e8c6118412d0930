/* What generate and score share: the model, its weights in a window, the engine, lines in and answers out. */
#ifndef TREADLE_CLI_ENGINE_JOB_H
#define TREADLE_CLI_ENGINE_JOB_H

#include "cli/cli.h"

typedef struct treadle_engine_job {
  treadle_model *model;
  treadle_layout *layout;
  treadle_engine *engine;
  void *window;
  size_t window_bytes;
  char *lines; /* of --file */
  size_t line_bytes;
  FILE *out;   /* of answers; NULL: nobody wants them */
  bool closes; /* it is a file of this job */
} treadle_engine_job;

/* Reads `path` whole; NULL: nothing. */
treadle_status treadle_engine_job_open(treadle_engine_job *job, const treadle_arguments *arguments,
                                       const char *layout);
treadle_status treadle_engine_job_read(treadle_engine_job *job, const char *path);
/* Where answers go: --out, else standard output unless --json has it. */
treadle_status treadle_engine_job_write(treadle_engine_job *job, const treadle_arguments *arguments);
/* Closes the file of answers; a full disk is a failure. */
treadle_status treadle_engine_job_finish(treadle_engine_job *job, const treadle_arguments *arguments);
void treadle_engine_job_close(treadle_engine_job *job);

/* A callback of the engine's options, whose context is the job. */
treadle_status treadle_engine_job_answer(void *context, const char *line, size_t bytes);

#endif
