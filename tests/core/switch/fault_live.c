/* What a rank does around a fault: it makes a switch, goes where the fault will be, meets it, looks what
 * is left, and goes on: in the same group when all live, else in a new one in which a new process has the
 * place of the one that is gone. */
#include "switch/faults.h"

#include "base/clock.h"
#include "base/hash.h"
#include "group/ranks.h"

#include <dirent.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE = 60 /* seconds, where nothing is to fail */, ARROWS = 4 };

typedef struct engine {
  int fail_bind, fail_unbind; /* how many of the next ones */
  int bound;
} engine;

typedef struct life {
  fault_stage *stage;
  const fault_case *c;
  fault_sight *sight;
  int rank;
  treadle_group *group;
  treadle_switch *sw;
  engine engine;
  int waits_left;
  uint64_t params, rest; /* hashes of the state */
  uint64_t digest;
} life;

/* ---- Engines ---- */

static treadle_status bind_engine(void *context, void *window, size_t bytes) {
  engine *e = context;
  if (e->fail_bind-- > 0 || !window || bytes == 0) return TREADLE_SYSTEM;
  e->bound++;
  return TREADLE_OK;
}

static treadle_status unbind_engine(void *context) {
  engine *e = context;
  if (e->fail_unbind-- > 0) return TREADLE_SYSTEM;
  e->bound--;
  return TREADLE_OK;
}

/* ---- State ---- */

/* A class's window, in a mode that holds it. */
static uint64_t hash_of(const life *l, treadle_class which) {
  size_t bytes;
  const void *window = treadle_switch_window(l->sw, which, &bytes);
  return treadle_hash_bytes(window, bytes, (uint64_t)which);
}

/* Optimizer state, and gradients unless they may be dropped. */
static uint64_t hash_rest(const life *l) {
  const treadle_switch_options *o = &l->c->options;
  bool dropped = o->offload_train_grad == TREADLE_ON && !o->keep_grads;
  return hash_of(l, TREADLE_OPTIMIZER) ^ (dropped ? 0 : hash_of(l, TREADLE_GRADS));
}

static void fill(const life *l, treadle_class which) {
  size_t bytes;
  char *window = treadle_switch_window(l->sw, which, &bytes);
  for (size_t i = 0; i < bytes; i++)
    window[i] = (char)treadle_mix64(i ^ (uint64_t)l->rank << 32 ^ (uint64_t)which << 40);
}

static int make(life *l) {
  treadle_engine_hooks hooks = {.struct_size = sizeof(treadle_engine_hooks),
                                .context = &l->engine,
                                .bind = bind_engine,
                                .unbind = unbind_engine};
  treadle_switch_options options = l->c->options;
  const scene *s = l->stage->s;
  if (l->c->engine) options.engine = &hooks;
  RANK_OK(treadle_switch_create(l->group, s->train, fault_case_infer(l->c, s), &options, &l->sw));
  RANK_OK(treadle_layout_load(s->train, l->rank, treadle_switch_train_window(l->sw)));
  fill(l, TREADLE_GRADS);
  fill(l, TREADLE_OPTIMIZER);
  l->params = hash_of(l, TREADLE_PARAMS);
  l->rest = hash_rest(l);
  return 0;
}

/* In mode TRAIN: is all what it was? Padding of params, too, unless the reverse plan has written them. */
static bool is_intact(const life *l) {
  bool kept = l->c->options.keep == TREADLE_KEEP_HOST || l->c->options.offload_train_param == TREADLE_OFF;
  return scene_holds(l->stage->s->train, l->rank, treadle_switch_train_window(l->sw)) &&
         (!kept || hash_of(l, TREADLE_PARAMS) == l->params) && hash_rest(l) == l->rest;
}

/* ---- The fault ---- */

static treadle_status next_arrow(life *l) {
  treadle_status status = TREADLE_OK;
  if (treadle_switch_mode(l->sw) != TREADLE_INFER) return treadle_switch_to_infer(l->sw);
  if (l->c->forward) TRY(treadle_switch_to_forward(l->sw));
  TRY(treadle_switch_to_train(l->sw));
out:
  return status;
}

/* A group's `delay`. */
static void stop_in_time(void *context, const char *where) {
  life *l = context;
  (void)where;
  if (--l->waits_left == 0) raise(l->c->kind == FAULT_KILL ? SIGKILL : SIGSTOP);
}

static void plant(life *l) {
  static const treadle_injection_type what[] = {TREADLE_INJECT_KILL, TREADLE_INJECT_STALL,
                                                TREADLE_INJECT_ENOMEM, TREADLE_INJECT_SLOW};
  const fault_case *c = l->c;
  l->sw->terms.timeout_seconds = c->limit;
  if (l->rank != c->rank) return;
  l->engine.fail_bind = c->kind == FAULT_BIND;
  l->engine.fail_unbind = c->kind == FAULT_UNBIND;
  if (c->wait > 0) {
    l->waits_left = c->wait;
    l->group->delay = stop_in_time;
    l->group->delay_context = l;
  } else if (c->kind <= FAULT_SLOW) {
    treadle_switch_inject(l->sw, (treadle_injection){what[c->kind], c->point, c->wave});
  }
}

/* Arrows until one fails: some faults are noticed at the next one only. */
static void meet_it(life *l) {
  fault_sight *sight = l->sight;
  plant(l);
  for (sight->fell = 0; sight->fell < ARROWS && sight->status == TREADLE_OK; sight->fell++) {
    double begin = treadle_clock_seconds();
    sight->status = next_arrow(l);
    sight->seconds = treadle_clock_seconds() - begin;
  }
  if (sight->status != TREADLE_OK)
    snprintf(sight->message, sizeof sight->message, "%s", treadle_error_message());
  sight->mode = treadle_switch_mode(l->sw);
  l->sw->terms.timeout_seconds = PATIENCE;
}

/* Is what the mode holds what it should be? From HOST, where nothing is to be seen, on to TRAIN. */
static bool look(life *l) {
  if (treadle_switch_mode(l->sw) == TREADLE_LOST) return true; /* nothing is promised */
  if (treadle_switch_mode(l->sw) == TREADLE_INFER) return scene_infers(l->sw);
  if (treadle_switch_mode(l->sw) == TREADLE_HOST && treadle_switch_to_train(l->sw) != TREADLE_OK)
    return false;
  return is_intact(l);
}

static int live_until_it(life *l) {
  const fault_case *c = l->c;
  RANK_OK(treadle_switch_digest(l->sw, &l->digest));
  for (int cycle = 0; cycle < c->warm; cycle++) {
    RANK_OK(treadle_switch_to_infer(l->sw));
    RANK_OK(treadle_switch_to_train(l->sw));
  }
  if (c->from_host) RANK_OK(treadle_switch_to_host(l->sw));
  if (c->back) RANK_OK(treadle_switch_to_infer(l->sw));
  RANK_OK(treadle_group_barrier(l->group));
  return 0;
}

/* ---- After it ---- */

/* There and back, as if nothing had been. */
static int resume(life *l) {
  uint64_t digest;
  RANK_OK(treadle_switch_to_infer(l->sw)); /* in INFER, some engines may have to be bound */
  RANK_TRUE(scene_infers(l->sw) && l->engine.bound == l->c->engine);
  RANK_OK(treadle_switch_digest(l->sw, &l->sight->digest));
  RANK_OK(treadle_switch_to_train(l->sw));
  RANK_TRUE(is_intact(l) && l->engine.bound == 0);
  RANK_OK(treadle_switch_digest(l->sw, &digest));
  RANK_TRUE(digest == l->sight->digest && (digest == l->digest || l->rank == l->c->rank));
  RANK_OK(treadle_group_barrier(l->group));
  l->sight->resumed = true;
  return 0;
}

static const char *second_name(const char *name) {
  static char room[80];
  snprintf(room, sizeof room, "%sagain", name);
  return room;
}

/* A new group, where all are in mode TRAIN afterwards. */
static int rejoin(life *l, const char *name) {
  treadle_group *old = l->group;
  RANK_OK(treadle_group_open(second_name(name), l->rank, SCENE_RANKS, PATIENCE, &l->group));
  RANK_OK(treadle_switch_rejoin(l->sw, l->group));
  treadle_group_close(old);
  RANK_TRUE(treadle_switch_mode(l->sw) == TREADLE_TRAIN && is_intact(l));
  return 0;
}

/* Can this rank start again with one that has just loaded its weights? */
static bool can_rejoin(const life *l) {
  const treadle_switch_options *o = &l->c->options;
  bool kept = o->keep == TREADLE_KEEP_HOST || o->offload_train_param == TREADLE_OFF;
  treadle_mode mode = treadle_switch_mode(l->sw);
  return mode == TREADLE_TRAIN || (mode == TREADLE_INFER && kept);
}

static int go_on(life *l, const char *name) {
  bool gone = fault_case_is_gone(l->c, l->c->rank);
  if (!gone) return treadle_switch_mode(l->sw) == TREADLE_LOST ? 0 : resume(l);
  bool again = can_rejoin(l);
  atomic_store(&l->stage->verdicts[l->rank], again ? FAULT_REJOIN : FAULT_END);
  return again && (rejoin(l, name) || resume(l));
}

static int live_as_rank(life *l, const char *name) {
  RANK_OK(treadle_group_open(name, l->rank, SCENE_RANKS, PATIENCE, &l->group));
  if (make(l) || live_until_it(l)) return 1;
  meet_it(l);
  l->sight->intact = look(l);
  return go_on(l, name);
}

static int live_as_newcomer(life *l, const char *name) {
  int lowest = l->c->rank == 0 ? 1 : 0, verdict = FAULT_UNDECIDED;
  while (verdict == FAULT_UNDECIDED) {
    verdict = atomic_load(&l->stage->verdicts[lowest]);
    nanosleep(&(struct timespec){.tv_nsec = 2 * 1000 * 1000}, NULL);
  }
  if (verdict == FAULT_END) return 0;
  RANK_OK(treadle_group_open(second_name(name), l->rank, SCENE_RANKS, PATIENCE, &l->group));
  return make(l) || resume(l);
}

/* ---- All of it ---- */

static int count_descriptors(bool ours) {
  int count = 0;
  char path[300], target[300];
  DIR *folder = opendir("/proc/self/fd");
  for (struct dirent *entry; folder && (entry = readdir(folder));) {
    snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
    ssize_t length = readlink(path, target, sizeof target - 1);
    target[length > 0 ? length : 0] = 0;
    count += !ours || strstr(target, "memfd:treadle") != NULL;
  }
  if (folder) closedir(folder);
  return count;
}

int fault_leaks(void) {
  int count = count_descriptors(true);
  char line[1024];
  FILE *maps = fopen("/proc/self/maps", "re");
  while (maps && fgets(line, sizeof line, maps)) count += strstr(line, "memfd:treadle") != NULL;
  if (maps) fclose(maps);
  return count;
}

int fault_live(fault_stage *stage, const char *name, int process) {
  bool newcomer = process == FAULT_NEWCOMER;
  life l = {.stage = stage,
            .c = &stage->c,
            .rank = newcomer ? stage->c.rank : process,
            .sight = &stage->sights[process]};
  int descriptors = count_descriptors(false);
  int result = newcomer ? live_as_newcomer(&l, name) : live_as_rank(&l, name);
  treadle_switch_destroy(l.sw);
  treadle_group_close(l.group);
  l.sight->leaks = fault_leaks() + count_descriptors(false) - descriptors;
  return result;
}
