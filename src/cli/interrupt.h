/* Ctrl-C (SIGINT) while weights are switched: the switch is cancelled, so that all ranks end together and say which weights stand. */
#ifndef TREADLE_CLI_INTERRUPT_H
#define TREADLE_CLI_INTERRUPT_H

#include "treadle.h"

#include <pthread.h>
#include <signal.h>

typedef struct treadle_interrupt {
  bool runs; /* a thread waits for the signal; not where it was ignored from the start (nohup) */
  pthread_t thread;
  sigset_t before;      /* the mask of the caller */
  pthread_mutex_t lock; /* of what follows */
  treadle_switch *sw;   /* NULL: none yet, or none any more */
  bool asked, ends;
} treadle_interrupt;

/* Before other threads are made: the signal is blocked in all. It ends the process, as ever, but while a switch is watched, and
 * then the second time. */
void treadle_interrupt_start(treadle_interrupt *interrupt);
void treadle_interrupt_stop(treadle_interrupt *interrupt);
/* This switch is cancelled from now on; NULL: none is. */
void treadle_interrupt_watch(treadle_interrupt *interrupt, treadle_switch *sw);
/* Was the signal seen? Then the next arrow is to be cancelled, too. */
bool treadle_interrupt_asked(treadle_interrupt *interrupt);

#endif
