#include "run/run_start.h"

#include "base/status.h"
#include "run/checkpoint.h"
#include "run/checkpoint_digests.h"

#include <stdio.h>
#include <string.h>

enum { RUN_MOST = 960 }; /* with the name of a checkpoint it is no longer than TREADLE_RUN_FROM */

/* The folder that the caller named, without slashes at its end. */
static treadle_status take_named(const char *named, char from[TREADLE_RUN_FROM]) {
  size_t length = strlen(named);
  while (length > 1 && named[length - 1] == '/') length--;
  if (length >= TREADLE_RUN_FROM)
    REFUSE("--resume: a path of %zu bytes; at most %d", length, TREADLE_RUN_FROM - 1);
  snprintf(from, TREADLE_RUN_FROM, "%.*s", (int)length, named);
  if (treadle_train_checkpoint_step_of(from) < 0)
    REFUSE("--resume %s: it is not a folder of a checkpoint, global_step_K", named);
  return treadle_train_checkpoint_check(from);
}

treadle_status treadle_run_start_find(const treadle_run_start *start, char from[TREADLE_RUN_FROM]) {
  const char *run = start->run;
  int64_t step = -1;
  treadle_observer told = start->observer;
  treadle_steps steps = {0};
  treadle_status status = TREADLE_OK;
  if (strlen(run) > RUN_MOST)
    REFUSE("%s: a path of %zu bytes; at most %d", start->place, strlen(run), RUN_MOST);
  if (start->resume == TREADLE_RESUME_FROM) return take_named(start->from ? start->from : "", from);
  TRY(treadle_train_checkpoint_list(run, &steps));
  if (start->resume == TREADLE_RESUME_NEVER && steps.count)
    TRY(treadle_fail(TREADLE_REFUSED,
                     "%s: %s has checkpoints, the newest of step %lld: say --resume to go on from it, or "
                     "another folder",
                     start->place, run, (long long)steps.items[steps.count - 1]));
  if (start->resume != TREADLE_RESUME_NEVER) TRY(treadle_train_checkpoint_find(run, &step));
  TRY(treadle_train_checkpoint_tell(run, step, treadle_observe_warning, &told));
  if (step >= 0) snprintf(from, TREADLE_RUN_FROM, "%s/global_step_%lld", run, (long long)step);
out:
  treadle_array_release(&steps);
  return status;
}

treadle_status treadle_run_start_check(const treadle_run_start *start, treadle_group *group,
                                       const char *from) {
  char line[TREADLE_RUN_FROM + sizeof TREADLE_DIGESTS_NONE];
  bool known;
  treadle_status status = treadle_checkpoint_digests_verify(group, from, start->families, &known);
  if (status == TREADLE_DIFFERENT) return treadle_fail_in(TREADLE_REFUSED, "--resume: ");
  snprintf(line, sizeof line, "%s " TREADLE_DIGESTS_NONE, from);
  if (!status && !known) treadle_observe_note(&start->observer, true, line);
  return status;
}
