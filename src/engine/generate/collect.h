/* Replicas share the work of a call: each does its part of the jobs, which are numbered alike on all ranks; then all ranks get the
 * answers of all jobs.
 *
 * A replica that has ended its part waits for the others as long as they go on: each says so after every step. */
#ifndef TREADLE_GENERATE_COLLECT_H
#define TREADLE_GENERATE_COLLECT_H

#include "base/array.h"
#include "generate/generator.h"

/* What a job made. */
typedef struct treadle_answer {
  const int32_t *tokens; /* [count] */
  const float *logprobs; /* [count] */
  int64_t count;
  const int32_t *
      kept_counts; /* [count] of a cut that is to be known: ids that each token was drawn from; else NULL */
  const int32_t *kept; /* [kept_count] these, of one token after the other */
  size_t kept_count;
  const char *line; /* of JSON, for the caller; "" where nobody asked */
} treadle_answer;

typedef struct treadle_collect {
  treadle_generator *engine;
  TREADLE_ARRAY(char) mine; /* this replica's answers, one behind the other */
  char *all;                /* after the meeting: those of all */
  const char **answer;      /* [jobs] in `all`; NULL: there is none */
  size_t jobs;
} treadle_collect;

/* Has the layout more than one replica? */
bool treadle_collect_is_needed(const treadle_generator *engine);
/* Is this job this replica's? */
bool treadle_collect_has(const treadle_generator *engine, size_t job);

void treadle_collect_init(treadle_collect *collect, treadle_generator *engine, size_t jobs);
treadle_status treadle_collect_put(treadle_collect *collect, size_t job, const treadle_answer *answer);
/* After each step: this replica goes on. */
void treadle_collect_go_on(treadle_generator *engine);

/* Waits until all ranks have come; a rank that makes steps may take its time, and `watch` (NULL: nobody) is asked after each of them.
 * Collective: the k-th wait of all ranks is one. */
treadle_status treadle_collect_wait(treadle_generator *engine, const treadle_watch *watch);
/* The same, and all ranks get all answers. Collective. */
treadle_status treadle_collect_meet(treadle_collect *collect);
/* Then: any job's answer, which lives as long as the collection. */
treadle_status treadle_collect_get(const treadle_collect *collect, size_t job, treadle_answer *answer_p);
/* Sums of all replicas. Collective. */
treadle_status treadle_collect_sum(const treadle_generator *engine, int64_t *values, int count);
void treadle_collect_release(treadle_collect *collect);

#endif
