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

#endif
