/* A thread waits for the signal, since a handler could not take the lock of a switch. */
#include "cli/interrupt.h"

#include <string.h>

static sigset_t the_signal(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  return set;
}

/* Ends the process as if nobody had waited for the signal. */
static void end_process(void) {
  const sigset_t set = the_signal();
  signal(SIGINT, SIG_DFL);
  pthread_sigmask(SIG_UNBLOCK, &set, NULL);
  raise(SIGINT);
}

static void *wait_for_it(void *of) {
  treadle_interrupt *interrupt = of;
  const sigset_t set = the_signal();
  bool ends = false;
  while (!ends) {
    int which;
    if (sigwait(&set, &which) != 0) continue;
    pthread_mutex_lock(&interrupt->lock);
    bool first = interrupt->sw && !interrupt->asked;
    ends = interrupt->ends;
    interrupt->asked = true;
    if (first && !ends)
      (void)treadle_switch_cancel(interrupt->sw); /* refused between arrows: then the next one is */
    pthread_mutex_unlock(&interrupt->lock);
    if (!first && !ends) end_process();
  }
  return NULL;
}

void treadle_interrupt_start(treadle_interrupt *interrupt) {
  const sigset_t set = the_signal();
  struct sigaction action;
  memset(interrupt, 0, sizeof *interrupt);
  pthread_mutex_init(&interrupt->lock, NULL);
  if (sigaction(SIGINT, NULL, &action) != 0 || action.sa_handler != SIG_DFL) return;
  pthread_sigmask(SIG_BLOCK, &set, &interrupt->before);
  interrupt->runs = pthread_create(&interrupt->thread, NULL, wait_for_it, interrupt) == 0;
  if (!interrupt->runs) pthread_sigmask(SIG_SETMASK, &interrupt->before, NULL);
}

void treadle_interrupt_stop(treadle_interrupt *interrupt) {
  if (interrupt->runs) {
    pthread_mutex_lock(&interrupt->lock);
    interrupt->ends = true;
    pthread_mutex_unlock(&interrupt->lock);
    pthread_kill(interrupt->thread, SIGINT);
    pthread_join(interrupt->thread, NULL);
    pthread_sigmask(SIG_SETMASK, &interrupt->before, NULL);
  }
  pthread_mutex_destroy(&interrupt->lock);
}

void treadle_interrupt_watch(treadle_interrupt *interrupt, treadle_switch *sw) {
  pthread_mutex_lock(&interrupt->lock);
  interrupt->sw = sw;
  pthread_mutex_unlock(&interrupt->lock);
}

bool treadle_interrupt_asked(treadle_interrupt *interrupt) {
  pthread_mutex_lock(&interrupt->lock);
  bool asked = interrupt->asked;
  pthread_mutex_unlock(&interrupt->lock);
  return asked;
}
