/* A few samples of each step, for who reads a run: RUN/samples.jsonl, a line each,
 *
 *   {"step", "uid", "prompt", "completion", "answer", "score", "length", "data_source"} */
#ifndef TREADLE_RL_SAMPLE_LOG_H
#define TREADLE_RL_SAMPLE_LOG_H

#include "rl/sample.h"

typedef struct treadle_rl_sample_log treadle_rl_sample_log;

/* As treadle_growing_open. */
treadle_status treadle_rl_sample_log_open(const char *folder, int64_t step, treadle_rl_sample_log **log_p);
treadle_status treadle_rl_sample_log_put(treadle_rl_sample_log *log, int64_t step,
                                         const treadle_rl_sample *samples, size_t count);
void treadle_rl_sample_log_note(const treadle_rl_sample_log *log, char *text, size_t room);
void treadle_rl_sample_log_close(treadle_rl_sample_log *log);

/* The same lines in a file of their own, FOLDER/STEP.jsonl. */
treadle_status treadle_rl_samples_write(const char *folder, int64_t step, const treadle_rl_sample *samples,
                                        size_t count);

#endif
