/* The gate between an engine's steps and its weights. Who computes a step enters and leaves it; who takes the weights away closes it, in
 * any thread, and waits until no step is under way.
 *
 *   open     steps may run
 *   closed   whoever enters waits until it is open again
 *
 * Several ranks compute a step together, and so stop between the same two steps. Each says, before a step, whether its gate is to be
 * closed, or is, and all of them go on only if nobody's is. So a call of several ranks holds the gate open between steps, too. A rank that
 * stopped for another one waits until its own gate was closed, or until another one asks again. The thread of the steps may close the gate
 * itself between two steps (in a callback); its caller sees to it that all ranks do.
 *
 *   thread of the steps:   begin, (enter, step, leave), (enter, step, leave), ..., end
 *   any thread:            close ... open
 *
 * A call that is under way when the gate is closed begins anew what it has not finished: `restart` is called then, in the thread that
 * closes, between two steps. */
#ifndef TREADLE_GENERATE_GATE_H
#define TREADLE_GENERATE_GATE_H

#include "group/board.h"

#include <pthread.h>
#include <stdbool.h>

/* What a call does meanwhile. */
typedef struct treadle_gate_call {
  void (*restart)(void *context);
  treadle_status (*idle)(
      void *context); /* now and then while the gate is closed; a failure ends the call */
  void *context;
} treadle_gate_call;

typedef struct treadle_gate {
  pthread_mutex_t lock; /* of all that follows */
  pthread_cond_t changed;
  bool is_open, is_gone;
  bool is_held;      /* other threads cannot close it now */
  bool is_stepping;  /* nor can the thread of the steps */
  int closing;       /* threads that wait for it */
  uint64_t closings; /* how often it was closed */
  pthread_t stepper; /* the thread of the steps */
  treadle_gate_call call;
  /* of the thread of the steps */
  treadle_board *board; /* NULL: the ranks need not agree */
  const int *ranks;     /* [count] that do */
  int count;
  uint64_t turns;
} treadle_gate;

void treadle_gate_init(treadle_gate *gate);
void treadle_gate_release(treadle_gate *gate);

/* TREADLE_STATE, in a callback within a step: it can never end. */
treadle_status treadle_gate_close(treadle_gate *gate, bool for_good);
void treadle_gate_open(treadle_gate *gate);
bool treadle_gate_is_open(treadle_gate *gate);

void treadle_gate_begin(treadle_gate *gate, const treadle_gate_call *call);
/* TREADLE_STATE: the gate was closed for good. */
treadle_status treadle_gate_enter(treadle_gate *gate);
void treadle_gate_leave(treadle_gate *gate);
/* No more steps; also within one that has failed. */
void treadle_gate_end(treadle_gate *gate);

#endif
