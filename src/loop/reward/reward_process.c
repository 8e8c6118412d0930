/* Processes of the reward `command`. */
#include "reward/reward_process.h"

#include "base/alloc.h"
#include "base/text.h"
#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TURN_MS = 50, LAST_TURNS = 1000 / TURN_MS, KEEPER_MS = 10, KEEPER_TURNS = 5000 / KEEPER_MS };

/* The scripts of the shells. children P: those of process P in $children, by the kernel's list, or by all processes where it has none. */
#define CHILDREN                                                                                           \
  "children() { children= list=/proc/$1/task/$1/children; "                                                \
  "if [ -e $list ]; then read -r children <$list; else "                                                   \
  "for file in /proc/[0-9]*/status; do while read -r key value rest; do "                                  \
  "if [ \"$key\" = PPid: ]; then "                                                                         \
  "if [ \"$value\" = \"$1\" ]; then file=${file#/proc/}; children=\"$children ${file%/status}\"; fi; "     \
  "break; fi; done <$file; done; fi; } 2>/dev/null\n"

/* Runs $1 as the command, which alone has the sockets' other end, waits, and ends as it did, once nobody is left. */
static const char hold[] =
    CHILDREN "exec 3<&0 4>&1 </dev/null >/dev/null\n"
             "/bin/sh -c \"$1\" <&3 >&4 3<&- 4>&- &\n"
             "exec 3<&- 4>&- 2>/dev/null\n"
             "wait $!; status=$?\n"
             "while children $$; [ -n \"$children\" ]; do sleep 0.2; done\n"
             "if [ $status -gt 128 ]; then ulimit -c 0; kill -$((status - 128)) $$; fi\n"
             "exit $status\n";

/* Reads the numbers of holders, until the run ends. Whom it kills leaves children to the holder, who are next. */
static const char keep[] =
    CHILDREN "while read -r holder; do holders=\"$holders $holder\" groups=\"$groups -$holder\"; done\n"
             "exec 2>/dev/null\n"
             "turn=0 left=yes\n"
             "while [ -n \"$left\" ] && [ $turn -lt 200 ]; do\n"
             "  left= turn=$((turn + 1))\n"
             "  for holder in $holders; do\n"
             "    children $holder\n"
             "    if [ -n \"$children\" ]; then left=yes; kill -s KILL $children; fi\n"
             "  done\n"
             "  if [ -n \"$left\" ]; then sleep 0.01; fi\n"
             "done\n"
             "kill -s KILL -- $groups\n";

/* In the new process, ahead of the command: who cannot tell the keeper does not begin. */
static bool tell_keeper(const treadle_reward_process *keeper) {
  char line[32];
  int length = snprintf(line, sizeof line, "%d\n", (int)getpid());
  return send(keeper->fd, line, (size_t)length, MSG_NOSIGNAL) == length;
}

/* Whoever loses its parent below this process is its child then, in whatever session or group; what exec() starts here is so, too. */
static bool become_holder(const treadle_reward_process *keeper) {
  return prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0 && tell_keeper(keeper);
}

/* keeper: NULL: it is the keeper itself. */
static treadle_status start(const treadle_reward_processes *all, const treadle_reward_process *keeper,
                            treadle_reward_process *p) {
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
    if (setpgid(0, 0) == 0 && (!keeper || become_holder(keeper)) && dup2(pair[1], 0) >= 0 &&
        dup2(pair[1], 1) >= 0)
      execl("/bin/sh", "sh", "-c", keeper ? hold : keep, "sh", all->text, (char *)NULL);
    _exit(127);
  }
  setpgid(pid, pid); /* both do, so that it is done for both */
  close(pair[1]);
  fcntl(pair[0], F_SETFL, O_NONBLOCK);
  *p = (treadle_reward_process){.pid = pid, .fd = pair[0]};
  return TREADLE_OK;
}

treadle_status treadle_reward_processes_start(treadle_reward_processes *all) {
  treadle_status status;
  TRY(start(all, NULL, &all->keeper));
  for (int i = 0; i < all->count; i++) TRY(start(all, &all->keeper, &all->items[i]));
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

/* It is killed, with its group. */
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
  if (all->keeper.fd >= 0)
    shutdown(all->keeper.fd,
             SHUT_WR); /* it kills them now, ahead of those whose numbers it has being forgotten */
  for (int turn = 0; turn < KEEPER_TURNS && all->keeper.pid && !has_ended(&all->keeper); turn++)
    poll(NULL, 0, KEEPER_MS);
  forget(&all->keeper);
  for (int i = 0; i < all->count; i++) forget(&all->items[i]);
}

treadle_status treadle_reward_process_say_end(const treadle_reward_processes *all,
                                              const treadle_reward_process *p) {
  const char *text = treadle_text_shown(all->text);
  siginfo_t info = {0};
  for (int turn = 0; turn < LAST_TURNS && !has_ended(p); turn++) poll(NULL, 0, TURN_MS);
  if (waitid(P_PID, (id_t)p->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || !info.si_pid)
    return treadle_fail(TREADLE_REFUSED, "command '%s': closed its output, with %s to answer", text,
                        treadle_text_of_count((int64_t)p->waiting, "sample"));
  return treadle_fail(TREADLE_REFUSED, "command '%s': ended %s %d, with %s to answer", text,
                      info.si_code == CLD_EXITED ? "with status" : "by signal", info.si_status,
                      treadle_text_of_count((int64_t)p->waiting, "sample"));
}
