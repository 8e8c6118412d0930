/* A group of workers, as the controller has it. */
#ifndef TREADLE_CONTROL_WORKERS_H
#define TREADLE_CONTROL_WORKERS_H

#include "control/future.h"

struct treadle_workers {
  treadle_crew *crew;
  const treadle_worker_class *class;
  int64_t number;
  treadle_meshes *meshes;
  size_t count;
  int32_t ranks[];
};

/* What a call of it is called in messages: "'scorer', score". */
enum { TREADLE_WORKERS_NAME = 160 };
void treadle_workers_name(const treadle_workers *workers, const char *method,
                          char name[TREADLE_WORKERS_NAME]);

/* ---- workers_call.c ---- */

/* The numbers of the rows of a call, and behind them those of padding. */
typedef struct treadle_call_choice {
  int64_t count, *rows;
  int64_t *room; /* for as many numbers */
} treadle_call_choice;

/* What one worker gets: rows of the batch that it gets them of. */
typedef struct treadle_call_given {
  const treadle_batch *batch;
  treadle_row_range rows;
  bool runs;
} treadle_call_given;

/* c->count is given. has: how many rows there are; -1: it is not known. */
treadle_status treadle_call_choose(const treadle_call_input *in, int64_t has,
                                   const treadle_dispatch_info *info, treadle_call_choice *c);
treadle_status treadle_workers_divide(const treadle_workers *workers, const treadle_class_method *method,
                                      const treadle_call_input *in, int64_t count,
                                      treadle_dispatch **dispatch_p);
treadle_status treadle_workers_check_ranges(const treadle_workers *workers,
                                            const treadle_row_range *by_worker, int64_t count);
treadle_call_given treadle_call_given_to(const treadle_future *f, const treadle_call_input *in,
                                         size_t worker, int64_t count);

/* ---- workers_late.c ---- */

/* Is it given what has not been made yet, and need not wait for it? */
bool treadle_call_is_late(const treadle_class_method *method, const treadle_call_input *in);
treadle_status treadle_workers_start_late(treadle_workers *workers, const treadle_class_method *method,
                                          const treadle_call_input *in, treadle_future *f);

#endif
