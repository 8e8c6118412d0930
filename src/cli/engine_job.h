/* What generate and score share: the model, its weights in a window, the engine, lines in and answers out. */
#ifndef TREADLE_CLI_ENGINE_JOB_H
#define TREADLE_CLI_ENGINE_JOB_H

#include "cli/cli.h"
#include "cli/sample_stream.h"
#include "cli/session.h"

#include "base/text.h"
#include "treadle_builtin.h"

typedef struct treadle_engine_job {
  treadle_session session; /* ranks of mpirun, or this one alone */
  treadle_model *model;
  treadle_layout *layout;
  treadle_generator *engine;
  treadle_layout *train; /* with --train, as the switch whose windows have the weights */
  treadle_switch *sw;
  void *window; /* without */
  size_t window_bytes;
  char *lines; /* of --file, or one of --prompt */
  size_t line_bytes;
  treadle_tokenizer *tokenizer; /* NULL: there is none */
  treadle_chat *chat;
  bool collects, prints;   /* answers go to standard output, as they come; else to --out, at the end */
  bool streams;            /* the text does, instead of answers */
  treadle_builder answers; /* for --out */
  treadle_sample_stream texts;
  int64_t tokens; /* new ones so far, and */
  double begin;   /* when they began: for the progress of generate */
} treadle_engine_job;

/* Reads `path` whole. */
treadle_status treadle_engine_job_read(treadle_engine_job *job, const char *path);
/* The tokenizer and the chat template, where there are any. Those of the model may be missing, or be none that treadle can read: a folder
 * without them takes token ids. Why they are missing is said where the lines seem to need them. --tokenizer must be one. */
treadle_status treadle_engine_job_text(treadle_engine_job *job, const treadle_arguments *arguments);
/* Opens the model, makes the engine and loads the weights, with --train by way of that layout; --layout, else `layout`. The ranks agree
 * on how it went. */
treadle_status treadle_engine_job_open(treadle_engine_job *job, const treadle_arguments *arguments,
                                       const char *layout);
/* Where answers go: to --out, whole or not at all; else to standard output, unless --json has it. */
treadle_status treadle_engine_job_write(treadle_engine_job *job, const treadle_arguments *arguments);
treadle_status treadle_engine_job_finish(treadle_engine_job *job, const treadle_arguments *arguments);
/* Ends the job and the session, and gives the exit status of the command. What failed was said, or is said here. */
int treadle_engine_job_end(treadle_engine_job *job, treadle_status status);

/* A callback of the engine's options, whose context is the job. */
treadle_status treadle_engine_job_answer(void *context, const char *line, size_t bytes);
treadle_status treadle_engine_job_token(void *context, int64_t request, int64_t sample, const char *text,
                                        size_t bytes);

#endif
