/* Each rank records the methods that it runs; once a step all are asked for what they have. Ranks of one node have one clock. Those of other nodes find out how far
 * theirs is from that of rank 0 when the run starts. */
#include "rl/trace.h"

#include "base/clock.h"
#include "group/group.h"
#include "rl/loop.h"
#include "treadle_control.h"

#include <stdio.h>
#include <string.h>

/* ---- Recording ---- */

/* Whose work a method is; of the policy, the side's if Actor and Rollout have two pools. To ask for figures is nobody's. */
static const struct {
  const char *method;
  treadle_pool_role role;
} roles[] = {{"generate_sequences", TREADLE_POOL_ROLE_ROLLOUT},
             {"enter", TREADLE_POOL_ROLE_ACTOR_ROLLOUT},
             {"compute_log_prob", TREADLE_POOL_ROLE_ACTOR},
             {"update", TREADLE_POOL_ROLE_ACTOR},
             {"save", TREADLE_POOL_ROLE_ACTOR},
             {"save_policy", TREADLE_POOL_ROLE_ACTOR},
             {"weights_digest", TREADLE_POOL_ROLE_ACTOR},
             {"compute_ref_log_prob", TREADLE_POOL_ROLE_REF_POLICY},
             {"compute_values", TREADLE_POOL_ROLE_CRITIC},
             {"update_critic", TREADLE_POOL_ROLE_CRITIC},
             {"rest_critic", TREADLE_POOL_ROLE_CRITIC},
             {"save_critic", TREADLE_POOL_ROLE_CRITIC},
             {"compute_rm_score", TREADLE_POOL_ROLE_REWARD_MODEL}};

/* Whose work a method is on this rank. NULL: nobody's, or that of others, for whom it waits. */
static const char *role_of(const treadle_rl_teams *teams, const char *method) {
  const bool both = teams->works[TREADLE_POOL_ROLE_ACTOR] && teams->works[TREADLE_POOL_ROLE_ROLLOUT];
  for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
    treadle_pool_role role = roles[i].role;
    if (strcmp(method, roles[i].method) != 0) continue;
    if (!teams->works[role]) return NULL;
    if (both && (role == TREADLE_POOL_ROLE_ACTOR || role == TREADLE_POOL_ROLE_ROLLOUT))
      role = TREADLE_POOL_ROLE_ACTOR_ROLLOUT;
    else if (!both && role == TREADLE_POOL_ROLE_ACTOR_ROLLOUT)
      role = teams->works[TREADLE_POOL_ROLE_ACTOR] ? TREADLE_POOL_ROLE_ACTOR : TREADLE_POOL_ROLE_ROLLOUT;
    return treadle_pool_role_name(role);
  }
  return NULL;
}

/* An actor counts the roles beside it, too. */
static uint64_t device_bytes(void *run) {
  const treadle_rl *rl = run;
  const treadle_actor_books *books = rl->actor ? &rl->actor->books : &rl->books;
  uint64_t sum = 0;
  for (int c = 0; c < TREADLE_CLASSES; c++) sum += books->now[c];
  return sum;
}

static void before(void *run, const char *method) {
  treadle_rl *rl = run;
  const char *role = role_of(&rl->teams, method);
  rl->teams.doing = method;
  if (role) treadle_trace_begin(rl->workers.trace, role, method, device_bytes(run));
}

static void after(void *run) {
  const treadle_rl *rl = run;
  treadle_trace_end(rl->workers.trace, device_bytes(run));
}

treadle_status treadle_rl_take_trace(void *worker, treadle_message *in, treadle_message *out) {
  const treadle_rl *rl = worker;
  size_t length;
  const void *bytes = treadle_trace_take(rl->workers.trace, &length);
  (void)in;
  treadle_message_put_bytes(out, bytes, length);
  return TREADLE_OK;
}

/* ---- Clocks ---- */

enum { TRIPS = 16 };

/* By how much the clock of this rank is ahead of that of rank 0. */
static treadle_status find_offset(const treadle_rl_crew *whole, double *offset_p) {
  treadle_trace_trip trips[TRIPS];
  treadle_status status;
  *offset_p = 0;
  if (!whole->group || treadle_group_node_count(whole->group) == 1) return TREADLE_OK;
  TRY(treadle_trace_travel(whole->group, trips, TRIPS));
  if (treadle_group_node(whole->group, whole->rank) != treadle_group_node(whole->group, 0))
    *offset_p = treadle_trace_offset(trips, TRIPS);
out:
  return status;
}

treadle_status treadle_rl_trace_open(treadle_rl_workers *workers, const treadle_rl_crew *whole,
                                     double started) {
  double offset;
  treadle_status status;
  TRY(treadle_rl_share(whole, &started, sizeof started));
  TRY(find_offset(whole, &offset));
  TRY(treadle_rl_agree(whole, treadle_trace_create(whole->rank, started + offset, &workers->trace)));
  workers->group.watch =
      (treadle_worker_watch){.before = before, .after = after, .context = workers->group.worker};
out:
  return status;
}

/* ---- Collecting ---- */

void treadle_rl_trace_tell(const treadle_rl_crew *crew, const treadle_trace_file *file) {
  char line[200];
  if (!treadle_trace_lost(file)) return;
  snprintf(line, sizeof line, "trace.jsonl lacks %lld calls: there is room for %d of a rank in a step",
           (long long)treadle_trace_lost(file), TREADLE_TRACE_ROOM);
  treadle_rl_warn(crew, line);
}

/* What ranks have recorded, and where it goes. */
typedef struct collection {
  treadle_trace_file *file;
  treadle_rl_span since; /* on the clock of the trace */
  double busy;           /* seconds, of all ranks [ranks] */
  int ranks;
} collection;

static treadle_status collect(treadle_rl_workers *workers, treadle_worker_group *group, void *of) {
  collection *c = of;
  const treadle_rl_span *since = &c->since;
  treadle_status status;
  treadle_message_clear(&workers->in);
  TRY(treadle_worker_group_call(group, "take_trace", &workers->in, &workers->out));
  for (int rank = 0; rank < treadle_worker_group_ranks(group); rank++) {
    treadle_message answer = treadle_worker_group_answer(group, rank, &workers->out);
    treadle_trace_part part;
    const void *bytes;
    size_t length;
    TRY(treadle_message_bytes(&answer, "trace", &bytes, &length));
    TRY(treadle_trace_read(bytes, length, &part));
    treadle_trace_add(c->file, &part, since->step, since->begin);
    c->busy += treadle_trace_busy(&part, since->begin, since->end);
    c->ranks++;
  }
out:
  return status;
}

treadle_status treadle_rl_trace_collect(treadle_rl_workers *workers, treadle_trace_file *file,
                                        const treadle_rl_span *span, double *idle_p) {
  collection c = {.file = file,
                  .since = {.step = span->step,
                            .begin = treadle_trace_seconds(workers->trace, span->begin),
                            .end = treadle_trace_seconds(workers->trace, span->end)}};
  treadle_status status;
  TRY(treadle_rl_call_each(workers, collect, &c));
  *idle_p = c.since.end - c.since.begin - c.busy / c.ranks;
out:
  return status;
}
