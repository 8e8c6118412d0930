/* A call that generates: what lines of JSON (generate_lines.c) and batches (generate_batch.c) have in common. Each fills the requests, runs
 * the steps, and makes answers of the samples in its own way:
 *
 *   treadle_generate_call_prepare   makes a job of each sample of the requests, and takes the memory of steps
 *   treadle_generate_call_run       until all jobs have ended
 *   treadle_generate_call_release   whatever happened
 *
 * Nothing here waits for ranks of other replicas. */
#ifndef TREADLE_GENERATE_GENERATE_CALL_H
#define TREADLE_GENERATE_GENERATE_CALL_H

#include "generate/generator.h"
#include "generate/request_lines.h"
#include "generate/sample_text.h"
#include "generate/schedule.h"
#include "generate/token_rows.h"

typedef struct treadle_generate_job { /* a sample of a request */
  treadle_sequence sequence;
  treadle_sample sample;
  treadle_sample_text text;
  const treadle_request *request;
  uint64_t version; /* of the weights that drew its last token */
  bool begun, ended;
} treadle_generate_job;

typedef struct treadle_generate_call {
  /* filled in by the caller */
  treadle_generator *engine;
  treadle_generate_options options;
  treadle_observer observer; /* in place of the options' */
  const char *unit, *doing;  /* what requests are in messages: "line", "row"; what an observer is told */
  bool divided;              /* the replicas divide the requests; else all are this one's */
  treadle_requests requests;
  treadle_eos eos;
  /* Called for each job of this replica when it has ended, in the order of jobs; it may release the sample. NULL: nobody. */
  treadle_status (*answer)(void *context, treadle_generate_job *job);
  void *context;
  treadle_arena arena;
  /* the call's own */
  treadle_generate_figures figures;
  treadle_generate_job *jobs; /* [job_count] in the order of answers */
  size_t job_count, added, answered;
  treadle_schedule schedule;
  uint64_t version; /* of the weights, in the last step */
  treadle_token_rows rows;
  int32_t *which;                 /* [batch] rows whose logits are wanted */
  treadle_generate_job **wanting; /* [batch] whose they are */
  int64_t wanted;
} treadle_generate_call;

/* "FILE: line 7" */
void treadle_generate_call_name(const treadle_generate_call *call, const treadle_request *request,
                                char name_p[TREADLE_LINE_NAME]);
treadle_status treadle_generate_call_check_options(const treadle_generate_options *options);
/* Refuses a request that would not fit into the cache, even alone. */
treadle_status treadle_generate_call_check_room(const treadle_generate_call *call,
                                                const treadle_request *request);
treadle_status treadle_generate_call_prepare(treadle_generate_call *call);
/* How that fared: all ranks go on, in the same call and with the same requests, or all fail. Collective. */
treadle_status treadle_generate_call_agree(const treadle_generate_call *call, const char *name,
                                           treadle_status status);
/* `status`: how the call ended. Only the engine must be there. */
void treadle_generate_call_release(treadle_generate_call *call, treadle_status status);

/* ---- generate.c ---- */

/* A failure of this rank is not yet told to the others (treadle_pass_tell). */
treadle_status treadle_generate_call_run(treadle_generate_call *call);
/* Then: until other replicas have ended theirs, too. Collective. */
treadle_status treadle_generate_call_wait(treadle_generate_call *call);
/* Are the ids to be known that tokens with these values are drawn from? */
bool treadle_generate_call_keeps(const treadle_generate_call *call, const treadle_sampling_values *values);

#endif
