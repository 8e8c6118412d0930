/* Which ranks a team has, and what messages call them. */
#include "rl/teams.h"

#include <stdio.h>

int treadle_rl_teams_ranks(const treadle_rl_teams *t, int team, const treadle_rl_crew *crew) {
  return t->count ? t->team[team].count : crew->policy_ranks;
}

int treadle_rl_teams_rank(const treadle_rl_teams *t, int team, int rank) {
  return t->count ? t->team[team].ranks[rank] : rank;
}

const char *treadle_rl_teams_roles(const treadle_rl_teams *t, int team, int rank) {
  const int generating = t->team[team].count - t->team[team].rollout;
  return t->team[team].rollout ? t->team[team].sides[rank >= generating] : t->team[team].roles;
}

void treadle_rl_teams_name(const treadle_rl_teams *t, int team, int rank,
                           char text[TREADLE_RL_TEAMS_NAME]) {
  const int number = treadle_rl_teams_rank(t, team, rank);
  if (!t->count) {
    snprintf(text, TREADLE_RL_TEAMS_NAME, "rank %d", number);
    return;
  }
  snprintf(text, TREADLE_RL_TEAMS_NAME, "rank %d of %s", number, treadle_rl_teams_roles(t, team, rank));
}
