/* Threads that the library makes beside the caller's leave signals to the process to the caller's. */
#ifndef TREADLE_BASE_SIGNALS_H
#define TREADLE_BASE_SIGNALS_H

#include <pthread.h>
#include <signal.h>
#include <stddef.h>

/* Before the thread is made, which inherits it: all are blocked, but for those that the thread itself is to blame for. */
static inline void treadle_signals_block(sigset_t *before_p) {
  static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
  sigset_t all;
  sigfillset(&all);
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) sigdelset(&all, own[i]);
  pthread_sigmask(SIG_BLOCK, &all, before_p);
}

/* Afterwards, in the thread that made it. */
static inline void treadle_signals_restore(const sigset_t *before) {
  pthread_sigmask(SIG_SETMASK, before, NULL);
}

#endif
