/* Processes of the reward `command`.
 *
 * Each has one end of a pair of sockets as its standard input and output, and lives until the reward is destroyed. Its parent is a holder, a
 * shell which is a subreaper (prctl): a process that loses its parent anywhere below it becomes its child, also one in a session of its own. A keeper,
 * another shell, is told of all holders. Its input ends when this process does, in whatever way, or ends the reward; then it kills the
 * children of the holders until there are none, and the holders with their process groups. So nothing that a command has started outlives the
 * run, also where that is killed, and the run itself, which may be somebody else's program, is not a subreaper. (PR_SET_PDEATHSIG would reach the
 * shells alone, not what they have started; and it goes by the thread that forks, which ends with its batch here.) */
#ifndef TREADLE_REWARD_REWARD_PROCESS_H
#define TREADLE_REWARD_REWARD_PROCESS_H

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

typedef struct treadle_reward_process {
  pid_t pid;   /* of the holder, which ends as the command does; 0: it does not run */
  int fd;      /* -1: there is none */
  bool closed; /* it writes no more: it is not polled */
  char *in;    /* what is still to be written, from `written` on */
  size_t in_bytes, written;
  treadle_builder out; /* of a line that is not whole */
  size_t waiting;      /* samples that it has not answered */
  size_t next;         /* the one whose answer comes next, if it keeps the order */
  double answered;     /* when it did last, or was given samples */
} treadle_reward_process;

typedef struct treadle_reward_processes {
  char *text; /* what /bin/sh -c runs */
  int count;
  treadle_reward_process keeper;
  treadle_reward_process *items; /* [count] */
} treadle_reward_processes;

/* The keeper, and all of them. After a failure some may run. */
treadle_status treadle_reward_processes_start(treadle_reward_processes *all);
/* Their input ends, and a second later they are killed, each with all that it has started. At once: that second is over. */
void treadle_reward_processes_end(treadle_reward_processes *all, bool at_once);
/* Why there is nothing more to read from it. */
treadle_status treadle_reward_process_say_end(const treadle_reward_processes *all,
                                              const treadle_reward_process *p);

#endif
