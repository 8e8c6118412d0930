/* Ranks that die or stop, at any time of a run. From the meeting on a thread of each rank says that it is there, whatever the rank does
 * (control/endpoint.h). That of rank 0 misses the others, and theirs miss rank 0. Waits of a rank end then (treadle_thread_watch), also for ranks that are well
 * and wait themselves. Rank 0 finds the first cause and words it, once, and all ranks end with these words. */
#include "rl/teams.h"

#include "base/thread_watch.h"
#include "base/utf8.h"
#include "control/crew.h"
#include "group/group.h"
#include "rl/stages.h"
#include "run/config_pools.h"

#include <stdio.h>
#include <string.h>

/* ---- Names ------------------------------------------------------------------------------------------------------ */

/* "ActorRollout, Critic (pool 'all')"; "" where roles have pools, until these are placed. */
static void name_together(treadle_rl_teams *t, const treadle_rl_task *task, const treadle_rl_crew *whole) {
  static const treadle_pool_role roles[] = {TREADLE_POOL_ROLE_ACTOR_ROLLOUT, TREADLE_POOL_ROLE_REF_POLICY,
                                            TREADLE_POOL_ROLE_CRITIC, TREADLE_POOL_ROLE_REWARD_MODEL};
  const treadle_config_pools *pools = task->config->pools;
  const size_t room = sizeof t->together;
  size_t length = 0;
  if (treadle_rl_is_apart(task->config, whole->ranks)) return;
  for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
    if (treadle_rl_uses_role(task->settings, roles[i]))
      length += (size_t)snprintf(t->together + length, room - length, "%s%s", length ? ", " : "",
                                 treadle_pool_role_name(roles[i]));
  if (pools && pools->count == 1)
    snprintf(t->together + length, room - length, " (pool '%.40s')",
             treadle_text_shown(pools->all[0].name));
}

/* As above; "": not known yet. */
static const char *roles_of(const treadle_rl_teams *t, int rank) {
  if (!t->apart) return t->together;
  if (rank == 0) return "controller";
  for (int p = 0; p < t->count; p++)
    for (int32_t i = 0; i < t->team[p].count; i++)
      if (t->team[p].ranks[i] == rank) return treadle_rl_teams_roles(t, p, i);
  return "";
}

/* "rank 3 (Critic, pool 'critic', node 0)" */
static void name_rank(const treadle_rl_teams *t, int rank, char *text, size_t room) {
  const char *roles = roles_of(t, rank), *pool = strstr(roles, " (");
  const int length = pool ? (int)(pool - roles) : (int)strlen(roles),
            node = treadle_group_node(t->crew->group, rank);
  if (!length)
    snprintf(text, room, "rank %d (node %d)", rank, node);
  else if (!pool)
    snprintf(text, room, "rank %d (%s, node %d)", rank, roles, node);
  else
    snprintf(text, room, "rank %d (%.*s, %.*s, node %d)", rank, length, roles, (int)strlen(pool) - 3,
             pool + 2, node);
}

/* ---- Why a run ends --------------------------------------------------------------------------------------------- */

static bool is_of_peers(treadle_status status) {
  return status == TREADLE_PEER || status == TREADLE_TIMEOUT || status == TREADLE_CANCELLED;
}

/* doing: the name of a call; NULL: none was made yet. */
static treadle_status say_lost(const treadle_rl_teams *t, const treadle_crew_loss *loss,
                               const char *doing) {
  char name[320];
  name_rank(t, loss->rank, name, sizeof name);
  return treadle_fail(TREADLE_PEER, "%s is lost %s%s: %s", name, doing ? "in " : "while the run starts",
                      doing ? doing : "", loss->why);
}

/* Has the run failed for a rank that is lost? Who left for a reason has worded it. */
static treadle_status find_lost(treadle_rl_teams *t, const char *doing, treadle_status status) {
  char said[TREADLE_GROUP_MESSAGE];
  treadle_crew_loss loss;
  if (!is_of_peers(status)) return TREADLE_OK;
  snprintf(said, sizeof said, "%s", treadle_error_message());
  if (treadle_crew_find_lost(t->crew, &loss))
    return loss.left ? treadle_fail(loss.status, "%s", loss.why) : say_lost(t, &loss, doing);
  (void)treadle_fail(status, "%s", said);
  return TREADLE_OK;
}

treadle_status treadle_rl_teams_explain(treadle_rl_teams *t, int team, const char *stage,
                                        treadle_status status) {
  char said[TREADLE_GROUP_MESSAGE], name[320];
  const treadle_status lost = find_lost(t, stage, status);
  t->explained = true;
  if (lost) return lost;
  snprintf(said, sizeof said, "%s", treadle_error_message());
  name_rank(t, t->team[team].ranks[0], name, sizeof name);
  return treadle_fail(status, "%s, %s: %s", strncmp(said, "rank ", 5) ? name : t->team[team].roles, stage,
                      said);
}

treadle_status treadle_rl_teams_explain_call(void *teams, const treadle_worker_relay *relay,
                                             const char *method, treadle_status status) {
  treadle_rl_teams *t = teams;
  return treadle_rl_teams_explain(t, (int)(relay - t->relays), method, status);
}

/* What rank 0 says, which knows more of others. */
static treadle_status hear_of(treadle_rl_teams *t, treadle_status status) {
  char said[TREADLE_GROUP_MESSAGE];
  treadle_crew_loss loss;
  bool lost;
  if (!is_of_peers(status)) return status;
  snprintf(said, sizeof said, "%s", treadle_error_message());
  const treadle_status told = treadle_crew_hear_end(t->crew, &lost, &loss);
  if (told) return told;
  return lost ? say_lost(t, &loss, t->doing) : treadle_fail(status, "%s", said);
}

treadle_status treadle_rl_teams_fail(treadle_rl_teams *t, const treadle_rl_crew *whole,
                                     treadle_status status) {
  if (!t->crew || !status) return status;
  if (whole->rank > 0)
    status = hear_of(t, status);
  else if (!t->explained) {
    const treadle_status lost = find_lost(t, t->doing, status);
    if (lost) status = lost;
  }
  treadle_crew_end(t->crew, status);
  treadle_group_limit(whole->group, t->last_words);
  return status;
}

/* ---- Watching --------------------------------------------------------------------------------------------------- */

/* All have ended when the time that a person gave has passed: this much of it is for what ranks say to each other in the end. */
static double last_words_of(double timeout) {
  static const double MOST = 5;
  return timeout > 2 * MOST ? MOST : timeout / 2;
}

static bool goes_on(void *teams, const char *doing, int64_t done, int64_t total) {
  const treadle_rl_teams *t = teams;
  return treadle_crew_goes_on(t->crew, doing, done, total) &&
         (!t->watcher || t->watcher(t->watcher_context, doing, done, total));
}

treadle_status treadle_rl_teams_meet(treadle_rl_teams *t, const treadle_rl_task *task,
                                     const treadle_rl_crew *whole) {
  const double timeout = task->settings->resources.timeout;
  treadle_status status;
  if (!whole->group || whole->ranks == 1) return TREADLE_OK;
  const double before = whole->group->timeout_seconds;
  t->last_words = last_words_of(timeout);
  t->classes[0] = treadle_rl_team_class(TREADLE_RL_TEAM_CLASS, NULL);
  name_together(t, task, whole);
  const treadle_crew_options options = {.struct_size = sizeof options,
                                        .timeout_seconds = timeout - t->last_words};
  if (timeout < before) treadle_group_limit(whole->group, timeout); /* nobody computes here */
  status = treadle_crew_open(whole->group, t->classes, 1, &options, &t->crew);
  treadle_group_limit(whole->group, before);
  if (status) return status;
  t->watcher = treadle_thread_watcher(&t->watcher_context);
  treadle_thread_watch(goes_on, t);
  return TREADLE_OK;
}

void treadle_rl_teams_part(treadle_rl_teams *t) {
  if (t->crew) treadle_thread_watch(t->watcher, t->watcher_context);
}
