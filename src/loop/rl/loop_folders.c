/* The folders that a run owns: its own, and that of dumped rollouts. Rank 0 holds their locks for all ranks, to the
 * end. */
#include "rl/state.h"

#include "run/run_folder.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

treadle_status treadle_rl_make_folders(const char *path) {
  char part[PATH_MAX];
  size_t length = strlen(path);
  if (length >= sizeof part) REFUSE("%s: too long for a path", path);
  for (size_t i = 1; i <= length; i++) {
    if (path[i] != '/' && path[i] != 0) continue;
    memcpy(part, path, i);
    part[i] = 0;
    if (mkdir(part, 0777) != 0 && errno != EEXIST)
      return treadle_fail(TREADLE_SYSTEM, "%s cannot be made: %s", path, strerror(errno));
  }
  return TREADLE_OK;
}

static void warn_of_lock(const treadle_rl_crew *crew, const treadle_folder_lock *lock) {
  char line[1024];
  treadle_folder_lock_note(lock, line, sizeof line);
  treadle_rl_warn(crew, line);
}

static bool is_same(const char *a, const char *b) {
  struct stat one, other;
  return stat(a, &one) == 0 && stat(b, &other) == 0 && one.st_dev == other.st_dev &&
         one.st_ino == other.st_ino;
}

treadle_status treadle_rl_take_folders(treadle_rl_folders *folders, const treadle_rl_task *task,
                                       const treadle_rl_crew *crew) {
  const treadle_train_settings *s = task->settings;
  treadle_status status;
  TRY(treadle_refused_at(TREADLE_RL_PLACE(task, actor.save),
                         treadle_run_folder_take(s->actor.save, &folders->own)));
  warn_of_lock(crew, &folders->own);
  if (!s->rl.dump_rollouts || is_same(s->actor.save, s->rl.dump_rollouts)) goto out;
  TRY(treadle_refused_at(TREADLE_RL_PLACE(task, rl.dump_rollouts),
                         treadle_run_lines_take(s->rl.dump_rollouts, &folders->dumps)));
  warn_of_lock(crew, &folders->dumps);
out:
  return status;
}

void treadle_rl_release_folders(treadle_rl_folders *folders) {
  treadle_folder_lock_end(&folders->dumps, true);
  treadle_folder_lock_end(&folders->own, true);
}
