/* Ranks that agree, and what the person who runs them is told. */
#include "rl/crew.h"

#include "base/alloc.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

treadle_rl_crew treadle_rl_crew_of(treadle_group *group, const treadle_observer *observer) {
  const int rank = group ? treadle_group_rank(group) : 0, ranks = group ? treadle_group_size(group) : 1;
  return (treadle_rl_crew){.group = group,
                           .rank = rank,
                           .ranks = ranks,
                           .leads = rank == 0,
                           .has_samples = rank == 0,
                           .policy_ranks = ranks,
                           .critic_ranks = ranks,
                           .reward_ranks = ranks,
                           .reference_ranks = ranks,
                           .observer = *observer};
}

treadle_status treadle_rl_agree(const treadle_rl_crew *crew, treadle_status status) {
  return crew->group && crew->ranks > 1 ? treadle_group_agree(crew->group, status) : status;
}

treadle_status treadle_rl_tell(const treadle_rl_crew *crew, int64_t *number) {
  treadle_status status;
  if (!crew->group || crew->ranks == 1) return TREADLE_OK;
  int64_t *all = treadle_alloc_array((size_t)crew->ranks, sizeof *all);
  if (!all) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %d ranks", crew->ranks);
  TRY(treadle_group_gather(crew->group, number, sizeof *number, all));
  *number = all[0];
out:
  treadle_free(all);
  return status;
}

treadle_status treadle_rl_share(const treadle_rl_crew *crew, void *figures, size_t bytes) {
  if (!crew->group || crew->ranks == 1) return TREADLE_OK;
  treadle_status status = treadle_group_say(crew->group, figures, bytes);
  if (!status) memcpy(figures, treadle_group_said(crew->group, 0), bytes);
  return status;
}

void treadle_rl_warn(const treadle_rl_crew *crew, const char *line) {
  if (crew->leads) treadle_observe_note(&crew->observer, true, line);
}

void treadle_rl_doing(const treadle_rl_crew *crew, const char *what) {
  if (crew->leads) treadle_observe_progress(&crew->observer, what, 0, 0);
}

void treadle_rl_note(const treadle_rl_crew *crew, const char *format, ...) {
  char line[PATH_MAX + 200];
  va_list values;
  if (!crew->leads) return;
  va_start(values, format);
  vsnprintf(line, sizeof line, format, values);
  va_end(values);
  treadle_observe_note(&crew->observer, false, line);
}
