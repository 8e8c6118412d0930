/* Teams: which processes of a run do what. All of them do everything, and rank 0 leads them; or the controller is apart, each role has the ranks of its
 * pool, and pools work at the same time.
 *
 * Actor and Rollout in pools of their own are one team: both are needed for each version of the weights, which goes from one to the other.
 *
 * Apart, each rank knows its team as its crew (rl/crew.h): agreements of a role are among these ranks. The first rank of a team serves the controller,
 * which asks it for stages (rl/stages.h) and messages (control/worker_relay.h); the others serve that first rank. */
#ifndef TREADLE_RL_TEAMS_H
#define TREADLE_RL_TEAMS_H

#include "control/worker_relay.h"
#include "rl/crew.h"
#include "rl/ledger.h"
#include "rl/task.h"
#include "rl/workers.h"

enum { TREADLE_RL_TEAMS_MOST = 5 };

struct treadle_rl_stages;

#define TREADLE_RL_TEAM_CLASS "team" /* of the crew, whose workers are the first ranks of teams */

/* A zeroed struct is that of a run whose ranks are together. */
typedef struct treadle_rl_teams {
  bool apart;
  /* What this rank works in: everything; or apart, what its pool has, and the controller nothing. Of Actor and Rollout a rank on two pools is one; if it
   * is either, it is of ActorRollout, too. */
  bool works[TREADLE_POOL_ROLES];
  int count;
  struct {
    bool has[TREADLE_POOL_ROLES]; /* Actor and Rollout together are ActorRollout, too */
    int32_t count, *ranks;        /* [count] of the whole; the first one serves the controller */
    int32_t rollout;              /* how many of them, the last ones, are Rollout's alone */
    char roles[200];              /* "ActorRollout, RefPolicy (pool 'policy')" */
    char sides[2][96];            /* with rollout: of Actor's ranks, and of Rollout's */
    int64_t row_bytes;            /* of rows that its first rank got from others, so far */
  } team[TREADLE_RL_TEAMS_MOST];
  int mine;                /* -1: the controller */
  treadle_group *group;    /* of this rank's team; NULL: it is alone in it, or the controller */
  treadle_group *side;     /* where Actor and Rollout have two pools: of this rank's one */
  treadle_crew *crew;      /* all ranks, whether together or apart; NULL: there is one */
  char together[200];      /* what each rank does where all do everything: as `roles` of a team */
  const char *doing;       /* the method that was called last; NULL: the run starts */
  bool explained;          /* the failure that stands has its words */
  double last_words;       /* seconds that ranks wait for each other after a failure: one may be stopped */
  treadle_watcher watcher; /* whoever watched this thread before */
  void *watcher_context;
  treadle_worker_team first; /* of the first rank of a team */
  treadle_worker_class classes[1];
  /* Of the controller: */
  treadle_worker_relay relays[TREADLE_RL_TEAMS_MOST];
} treadle_rl_teams;

/* Has a role the ranks of the policy? */
bool treadle_rl_teams_share(const treadle_rl_teams *teams, treadle_pool_role role);
/* Is there work for the role in a run with these settings? */
bool treadle_rl_uses_role(const treadle_train_settings *settings, treadle_pool_role role);
/* The team of a role: that of the policy, if it has no other one. */
int treadle_rl_teams_of(const treadle_rl_teams *teams, treadle_pool_role role);
/* What the configuration says of these ranks; crew_p gets the crew of this rank, beside_p that of roles beside the policy on it. Refused: pools that the
 * run's ranks are not enough for, or too many; roles in pools where they are not run. Collective among `whole`. */
treadle_status treadle_rl_teams_find(treadle_rl_teams *teams, const treadle_rl_task *task,
                                     const treadle_rl_crew *whole, treadle_rl_crew *crew_p,
                                     treadle_rl_crew *beside_p);
/* Of a plan, whose processes are not there: slot s is rank first_rank + s, where first_rank is 1 if the controller is apart. *crew has an observer, and gets the
 * rest. Refused: the same roles. Local. */
treadle_status treadle_rl_teams_plan(treadle_rl_teams *teams, const treadle_rl_task *task,
                                     const treadle_rl_pools *pools, int first_rank, treadle_rl_crew *crew);
/* Is the controller apart, in a run with this many processes? */
bool treadle_rl_is_apart(const treadle_train_config *config, int64_t ranks);

/* ---- loop_teams_ranks.c: of a team of a run, by its number: 0 where all are together ---- */

/* How many ranks it has; the run's number of one of them. */
int treadle_rl_teams_ranks(const treadle_rl_teams *teams, int team, const treadle_rl_crew *crew);
int treadle_rl_teams_rank(const treadle_rl_teams *teams, int team, int rank);
/* Of one where roles have pools: "Critic (pool 'critic')". */
const char *treadle_rl_teams_roles(const treadle_rl_teams *teams, int team, int rank);
/* What messages call one of its ranks: "rank 5", or "rank 5 of Critic (pool 'critic')". */
enum { TREADLE_RL_TEAMS_NAME = 256 };
void treadle_rl_teams_name(const treadle_rl_teams *teams, int team, int rank,
                           char text[TREADLE_RL_TEAMS_NAME]);

/* What this rank is called for, once its methods and its stages are ready. */
void treadle_rl_teams_open(treadle_rl_teams *teams, const treadle_rl_crew *whole,
                           treadle_rl_workers *workers, struct treadle_rl_stages *stages);
/* Who leads: finds the others, who serve by then. */
treadle_status treadle_rl_teams_reach(treadle_rl_teams *teams, treadle_rl_workers *workers);
/* Who does not lead: calls, until the end. */
treadle_status treadle_rl_teams_serve(treadle_rl_teams *teams, const treadle_rl_crew *whole,
                                      treadle_rl_workers *workers);
/* Who leads: no more calls. */
treadle_status treadle_rl_teams_end(treadle_rl_teams *teams, const treadle_rl_crew *whole,
                                    treadle_rl_workers *workers, treadle_status status);
void treadle_rl_teams_close(treadle_rl_teams *teams);

/* What went between processes so far. */
void treadle_rl_teams_traffic(const treadle_rl_teams *teams, treadle_rl_traffic *traffic_p);

/* ---- loop_nodes.c ---- */

/* "4,1": how many processes each node of this number may have for these pools, the controller among those of the first. False: for one node, and where
 * nothing fits. */
bool treadle_rl_name_nodes(const struct treadle_config_pools *asked, int nodes, char *text, size_t room);

/* ---- loop_lost.c ---- */

/* From here on each rank hears of the others, and a wait of this thread ends when the run cannot go on. Collective among `whole`. */
treadle_status treadle_rl_teams_meet(treadle_rl_teams *teams, const treadle_rl_task *task,
                                     const treadle_rl_crew *whole);
/* No more: ranks may leave. */
void treadle_rl_teams_part(treadle_rl_teams *teams);
/* Who leads: why a call or a stage of a team has failed, whose message is the words of the team's first rank: by the rank that is lost, where one is, or
 * by the team. */
treadle_status treadle_rl_teams_explain(treadle_rl_teams *teams, int team, const char *stage,
                                        treadle_status status);
/* The same of a relay. */
treadle_status treadle_rl_teams_explain_call(void *teams, const treadle_worker_relay *relay,
                                             const char *method, treadle_status status);
/* The run has failed on this rank, which leaves: the others are told why, or say why themselves. TREADLE_OK: it has not. */
treadle_status treadle_rl_teams_fail(treadle_rl_teams *teams, const treadle_rl_crew *whole,
                                     treadle_status status);

#endif
