/* Processes of the reward `command`. */
#include "rl/reward_process.h"

#include "base/alloc.h"
#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TURN_MS = 50, LAST_TURNS = 1000 / TURN_MS };

/* In the new process, ahead of the command: who cannot tell the keeper does not begin. */
static bool tell_keeper(const treadle_reward_process *keeper) {
  char line[32];
  int length = snprintf(line, sizeof line, "%d\n", (int)getpid());
  return send(keeper->fd, line, (size_t)length, MSG_NOSIGNAL) == length;
}

/* keeper: NULL: it is the keeper itself. */
static treadle_status start(const treadle_reward_processes *all, const char *text,
                            const treadle_reward_process *keeper, treadle_reward_process *p) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    return treadle_fail(TREADLE_SYSTEM, "command: no pair of sockets for %d processes: %s", all->count,
                        strerror(errno));
  pid_t pid = fork();
  if (pid < 0) {
    close(pair[0]);
    close(pair[1]);
    return treadle_fail(TREADLE_SYSTEM, "command: no process, of %d: %s", all->count, strerror(errno));
  }
  if (pid == 0) {
    signal(SIGPIPE, SIG_DFL);
    if (setpgid(0, 0) == 0 && (!keeper || tell_keeper(keeper)) && dup2(pair[1], 0) >= 0 &&
        dup2(pair[1], 1) >= 0)
      execl("/bin/sh", "sh", "-c", text, (char *)NULL);
    _exit(127);
  }
  setpgid(pid, pid); /* both do, so that it is done for both */
  close(pair[1]);
  fcntl(pair[0], F_SETFL, O_NONBLOCK);
  *p = (treadle_reward_process){.pid = pid, .fd = pair[0]};
  return TREADLE_OK;
}

treadle_status treadle_reward_processes_start(treadle_reward_processes *all) {
  static const char keep[] = "while read -r group; do groups=\"$groups -$group\"; done; "
                             "kill -s KILL -- $groups 2>/dev/null";
  treadle_status status;
  TRY(start(all, keep, NULL, &all->keeper));
  for (int i = 0; i < all->count; i++) TRY(start(all, all->text, &all->keeper, &all->items[i]));
out:
  return status;
}

/* It stays a zombie, so that nobody else gets its number, until it is forgotten. */
static bool has_ended(const treadle_reward_process *p) {
  siginfo_t info = {0};
  return waitid(P_PID, (id_t)p->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid;
}

static int count_running(const treadle_reward_processes *all) {
  int running = 0;
  for (int i = 0; i < all->count; i++) running += all->items[i].pid && !has_ended(&all->items[i]);
  return running;
}

/* It is killed, with what it has started. */
static void forget(treadle_reward_process *p) {
  int state;
  if (p->pid) kill(-p->pid, SIGKILL);
  while (p->pid && waitpid(p->pid, &state, 0) < 0 && errno == EINTR) {
  }
  if (p->fd >= 0) close(p->fd);
  treadle_free(p->in);
  treadle_builder_release(&p->out);
  *p = (treadle_reward_process){.fd = -1};
}

void treadle_reward_processes_end(treadle_reward_processes *all, bool at_once) {
  for (int i = 0; i < all->count; i++)
    if (all->items[i].fd >= 0) shutdown(all->items[i].fd, SHUT_WR);
  for (int turn = 0; !at_once && turn < LAST_TURNS && count_running(all); turn++) poll(NULL, 0, TURN_MS);
  forget(&all->keeper); /* ahead of those whose numbers it has */
  for (int i = 0; i < all->count; i++) forget(&all->items[i]);
}

treadle_status treadle_reward_process_say_end(const treadle_reward_processes *all,
                                              const treadle_reward_process *p) {
  const char *text = treadle_text_shown(all->text);
  siginfo_t info = {0};
  for (int turn = 0; turn < LAST_TURNS && !has_ended(p); turn++) poll(NULL, 0, TURN_MS);
  if (waitid(P_PID, (id_t)p->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || !info.si_pid)
    return treadle_fail(TREADLE_REFUSED, "command '%s': closed its output, with %zu samples to answer",
                        text, p->waiting);
  return treadle_fail(TREADLE_REFUSED, "command '%s': ended %s %d, with %zu samples to answer", text,
                      info.si_code == CLD_EXITED ? "with status" : "by signal", info.si_status, p->waiting);
}
