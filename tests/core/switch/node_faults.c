/* Which faults of nodes there are, and what a rank does around one: it makes a switch, meets the fault, looks what is left, and goes on, in
 * the same group when that can be, else in a new one in which new processes have the places of those that are gone. */
#include "switch/node_faults.h"
#include "group/ranks.h"
#include "meet/store_place.h"
#include "switch/block_models.h"
#include "switch/faults.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/random.h"
#include "treadle_tools.h"

#include <dirent.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
  PATIENCE = 60 /* seconds, where nothing is to fail */,
  ARROWS = 3,
  OPTIMIZER = 50001,
  KV_BLOCK = 6000
};
enum { CAP = 311296 }; /* which makes enough waves */

/* ---- Cases ---- */

static const treadle_injection_point phases[] = {TREADLE_AT_ENTRY,  TREADLE_AT_OFFLOAD,
                                                 TREADLE_AT_COMMIT, TREADLE_AT_COMMITTED,
                                                 TREADLE_AT_BIND,   TREADLE_AT_KV};
enum { VOTES = 2, STEPS = NODE_WAVES + TEST_COUNT(phases) + VOTES };

/* Each at every wave and, but for bytes on their way, every phase. */
static const struct {
  node_fault kind;
  node_pair_name pair;
  int ranks, nodes, victims; /* victims 1: by turns */
} grids[] = {{NODE_KILL, NODE_FOUR, 4, 2, 4},     {NODE_STALL, NODE_FOUR, 4, 2, 4},
             {NODE_KILL_ALL, NODE_FOUR, 4, 2, 2}, {NODE_CUT, NODE_FOUR, 4, 2, 2},
             {NODE_FLIP, NODE_FOUR, 4, 2, 4},     {NODE_CUT, NODE_SIX, 6, 3, 3},
             {NODE_STALL_ALL, NODE_SIX, 6, 3, 1}, {NODE_KILL, NODE_SIX, 6, 3, 1},
             {NODE_KILL, NODE_BLOCKS, 4, 2, 1},   {NODE_STALL, NODE_BLOCKS, 4, 2, 1},
             {NODE_CUT, NODE_BLOCKS, 4, 2, 1},    {NODE_FLIP, NODE_BLOCKS, 4, 2, 1}};

static int steps_of(int grid) { return grids[grid].kind == NODE_FLIP ? NODE_WAVES : STEPS; }

int node_case_count(void) {
  int count = 0;
  for (int i = 0; i < (int)TEST_COUNT(grids); i++) count += grids[i].victims * steps_of(i);
  return count;
}

static bool is_of_node(const node_case *c) {
  return c->kind == NODE_KILL_ALL || c->kind == NODE_STALL_ALL || c->kind == NODE_CUT;
}

void node_case_draw(int number, node_case *c) {
  int grid = 0, at = number;
  while (at >= grids[grid].victims * steps_of(grid)) at -= grids[grid].victims * steps_of(grid), grid++;
  int step = at % steps_of(grid), victim = at / steps_of(grid);
  *c = (node_case){.number = number,
                   .kind = grids[grid].kind,
                   .pair = grids[grid].pair,
                   .ranks = grids[grid].ranks,
                   .nodes = grids[grid].nodes,
                   .who = victim,
                   .limit = 1};
  bool by_turns = grids[grid].victims == 1;
  if (by_turns) c->who = is_of_node(c) ? step % c->nodes : step % c->ranks;
  if (c->kind == NODE_STALL && (step + victim) % 2) c->kind = NODE_CONTINUE;
  c->vote = step < STEPS - VOTES ? 0 : 1 + step - (STEPS - VOTES);
  c->point = c->vote || step < NODE_WAVES ? TREADLE_AT_WAVE : phases[step - NODE_WAVES];
  c->wave = step < NODE_WAVES ? step : 0;
}

static const char *const votes[] = {"", "the proof that all bytes were written", "the bind of the engines"};

bool node_case_hits(const node_case *c, int rank) {
  return (is_of_node(c) ? rank / (c->ranks / c->nodes) : rank) == c->who;
}

const char *node_case_words(const node_case *c, char *room, size_t bytes) {
  static const char *const kinds[NODE_FAULTS] = {
      "is killed",           "is stopped, then killed", "is stopped, and goes on",
      "is killed",           "is stopped, and goes on", "is cut off",
      "sends a changed byte"};
  char at[32];
  snprintf(at, sizeof at, c->point == TREADLE_AT_WAVE ? "%s %d" : "%s",
           treadle_injection_point_text(c->point), c->wave);
  if (c->vote) snprintf(at, sizeof at, "vote %d", c->vote);
  snprintf(room, bytes, "case %d: %d ranks on %d nodes%s: %s %d %s at %s", c->number, c->ranks, c->nodes,
           c->pair == NODE_BLOCKS ? ", fp8 blocks" : "", is_of_node(c) ? "node" : "rank", c->who,
           kinds[c->kind], at);
  return room;
}

/* ---- The scene ---- */

static void check_cap(const node_pair *pair) {
  for (int rank = 0; rank < pair->ranks; rank++) {
    const treadle_plan_base_options options = {.page_bytes = SCENE_PAGE};
    treadle_plan_base plan_base = {0};
    assert_ok(treadle_plan_base_create(pair->train, pair->infer, rank, &options, &plan_base));
    assert_true(plan_base.cap_min_bytes <= CAP);
    treadle_plan_base_release(&plan_base);
  }
}

void node_scene_init(node_scene *s) {
  static const struct {
    const char *text;
    int ranks;
  } layouts[] = {{"megatron:tp=2,pp=3", 6},
                 {"vllm:tp=2,dp=3", 6},
                 {"megatron:tp=2,pp=2,ep=2,etp=1", 4},
                 {"vllm:tp=2,dp=2,ep=on", 4}};
  scene_init(&s->s);
  s->blocks = block_model_make(BLOCK_MODEL_LATENT);
  for (size_t i = 0; i < TEST_COUNT(layouts); i++)
    assert_ok(treadle_layout_create(i < 2 ? s->s.model : s->blocks, layouts[i].text, layouts[i].ranks, NULL,
                                    &s->owned[i]));
  s->pairs[NODE_FOUR] = (node_pair){s->s.train, s->s.infer, 4};
  s->pairs[NODE_SIX] = (node_pair){s->owned[0], s->owned[1], 6};
  s->pairs[NODE_BLOCKS] = (node_pair){s->owned[2], s->owned[3], 4};
  for (int i = 0; i < NODE_PAIRS; i++) check_cap(&s->pairs[i]);
}

void node_scene_release(node_scene *s) {
  for (size_t i = 0; i < TEST_COUNT(s->owned); i++) treadle_layout_destroy(s->owned[i]);
  treadle_model_close(s->blocks);
  scene_release(&s->s);
}

/* ---- A rank's life ---- */

typedef struct life {
  node_stage *stage;
  const node_case *c;
  node_sight *sight;
  const treadle_layout *train;
  int rank;
  treadle_group *group;
  treadle_switch *sw;
  int bound;                     /* what the engine knows */
  int proofs;                    /* waited for, in the epoch of the fault */
  uint64_t params, rest, digest; /* digest 0: a newcomer has not asked */
} life;

static treadle_status bind_engine(void *context, void *window, size_t bytes) {
  life *l = context;
  if (!window || bytes == 0) return TREADLE_SYSTEM;
  l->bound++;
  return TREADLE_OK;
}

static treadle_status unbind_engine(void *context) {
  life *l = context;
  l->bound--;
  return TREADLE_OK;
}

static uint64_t hash_of(const life *l, treadle_class which) {
  size_t bytes;
  const void *window = treadle_switch_window(l->sw, which, &bytes);
  return treadle_hash_bytes(window, bytes, (uint64_t)which);
}

static bool is_intact(const life *l) {
  return treadle_switch_mode(l->sw) == TREADLE_TRAIN && hash_of(l, TREADLE_PARAMS) == l->params &&
         hash_of(l, TREADLE_OPTIMIZER) == l->rest &&
         scene_holds(l->train, l->rank, treadle_switch_train_window(l->sw));
}

static int open_group(life *l, const char *place) {
  treadle_store store = TREADLE_INIT(treadle_store);
  treadle_store_options options = store_options(place, l->rank, l->c->ranks, PATIENCE);
  RANK_OK(treadle_store_open(&options, &store));
  treadle_status status =
      treadle_group_nodes(&store, l->rank, l->c->ranks, l->c->nodes, PATIENCE, &l->group);
  RANK_OK(status);
  treadle_store_close(&store);
  RANK_TRUE(treadle_group_node_count(l->group) == l->c->nodes);
  return 0;
}

static int make(life *l) {
  const node_pair *pair = &l->stage->s->pairs[l->c->pair];
  size_t bytes;
  treadle_engine_hooks hooks = {
      .struct_size = sizeof hooks, .context = l, .bind = bind_engine, .unbind = unbind_engine};
  treadle_switch_options options = {.struct_size = sizeof options,
                                    .page_bytes = SCENE_PAGE,
                                    .cap_bytes = CAP,
                                    .keep = TREADLE_KEEP_HOST,
                                    .engine = &hooks,
                                    .optimizer_bytes = OPTIMIZER,
                                    .kv_block_bytes = KV_BLOCK,
                                    .timeout_seconds = PATIENCE};
  l->train = pair->train;
  RANK_OK(treadle_switch_create(l->group, l->train, pair->infer, &options, &l->sw));
  RANK_TRUE(l->c->pair != NODE_BLOCKS || l->sw->carry.net.out[TREADLE_INFER].ordered.list.count > 0);
  l->sight->waves = l->sw->carry.plan->waves;
  RANK_OK(treadle_layout_load(l->train, l->rank, treadle_switch_train_window(l->sw)));
  char *optimizer = treadle_switch_window(l->sw, TREADLE_OPTIMIZER, &bytes);
  for (size_t i = 0; i < bytes; i++) optimizer[i] = (char)treadle_mix64(i ^ (uint64_t)l->rank << 32);
  l->params = hash_of(l, TREADLE_PARAMS);
  l->rest = hash_of(l, TREADLE_OPTIMIZER);
  return 0;
}

/* ---- The fault ---- */

static void limit(life *l, double seconds) {
  l->sw->terms.timeout_seconds = seconds;
  treadle_group_limit(l->group, seconds);
}

/* A group's `delay`: when this rank has said its last word before its node votes, and has seen those of all others but one. */
static void hit_at_vote(void *context, const char *where) {
  life *l = context;
  if (strcmp(where, votes[l->c->vote]) != 0 || ++l->proofs != l->c->ranks) return;
  if (l->c->kind == NODE_CUT)
    treadle_group_cut(l->group);
  else
    raise(l->c->kind == NODE_KILL || l->c->kind == NODE_KILL_ALL ? SIGKILL : SIGSTOP);
}

static int plant(life *l) {
  static const treadle_injection_type what[NODE_FAULTS] = {
      TREADLE_INJECT_KILL,  TREADLE_INJECT_STALL, TREADLE_INJECT_STALL, TREADLE_INJECT_KILL,
      TREADLE_INJECT_STALL, TREADLE_INJECT_CUT,   TREADLE_INJECT_FLIP};
  const node_case *c = l->c;
  RANK_OK(treadle_switch_digest(l->sw, &l->digest));
  if (!node_case_hits(c, l->rank)) {
    /* it only sees */
  } else if (c->vote) {
    l->group->delay = hit_at_vote;
    l->group->delay_context = l;
  } else {
    RANK_OK(treadle_switch_inject(l->sw, (treadle_injection){what[c->kind], c->point, c->wave}));
  }
  RANK_OK(treadle_group_barrier(l->group));
  limit(l, c->limit);
  return 0;
}

/* Arrows until one fails: some faults are noticed at the next one only. */
static void meet_it(life *l) {
  node_sight *sight = l->sight;
  for (sight->fell = 0; sight->fell < ARROWS && sight->status == TREADLE_OK; sight->fell++) {
    double begin = treadle_clock_seconds();
    bool there = treadle_switch_mode(l->sw) == TREADLE_INFER;
    sight->status = there ? treadle_switch_to_train(l->sw) : treadle_switch_to_infer(l->sw);
    sight->seconds = treadle_clock_seconds() - begin;
    if (sight->status == TREADLE_OK && !there) {
      sight->bound = l->bound == 1;
      sight->bound_version = treadle_switch_version(l->sw);
    }
  }
  if (sight->status != TREADLE_OK)
    snprintf(sight->message, sizeof sight->message, "%s", treadle_error_message());
  sight->mode = treadle_switch_mode(l->sw);
  sight->version = treadle_switch_version(l->sw);
  sight->idle = l->sw->carry.faults.injection.what != TREADLE_INJECT_NOTHING;
  if (sight->mode == TREADLE_INFER && sight->status != TREADLE_OK) (void)treadle_switch_return(l->sw);
  sight->intact = is_intact(l) && l->bound == 0;
  l->sw->carry.faults.injection.what =
      TREADLE_INJECT_NOTHING; /* of a node that failed before all its ranks came there */
  limit(l, PATIENCE);
  atomic_store(&sight->back, true);
}

static bool infers(const life *l) {
  const node_pair *pair = &l->stage->s->pairs[l->c->pair];
  if (l->c->pair != NODE_BLOCKS) return scene_infers(l->sw);
  return block_model_holds(pair->infer, pair->train, l->rank, treadle_switch_infer_window(l->sw));
}

/* There and back, as if nothing had been. */
static int resume(life *l) {
  uint64_t digest;
  bool lossless = l->c->pair != NODE_BLOCKS;
  RANK_OK(treadle_switch_to_infer(l->sw));
  RANK_TRUE(infers(l) && l->bound == 1);
  RANK_OK(treadle_switch_digest(l->sw, &l->sight->digest));
  RANK_OK(treadle_switch_to_train(l->sw));
  RANK_TRUE(is_intact(l) && l->bound == 0);
  RANK_OK(treadle_switch_digest(l->sw, &digest));
  RANK_TRUE((digest == l->sight->digest) == lossless && (digest == l->digest || l->digest == 0));
  RANK_OK(treadle_group_barrier(l->group));
  l->sight->resumed = true;
  return 0;
}

static int live_as_rank(life *l) {
  if (open_group(l, l->stage->places[0]) || make(l) || plant(l)) return 1;
  meet_it(l);
  if (l->c->kind != NODE_FLIP) {
    treadle_group *old = l->group;
    l->group = NULL;
    if (open_group(l, l->stage->places[1])) return 1;
    RANK_OK(treadle_switch_rejoin(l->sw, l->group));
    treadle_group_close(old);
  }
  return resume(l);
}

static int live_as_newcomer(life *l) { return open_group(l, l->stage->places[1]) || make(l) || resume(l); }

static int count_descriptors(void) {
  int count = 0;
  DIR *folder = opendir("/proc/self/fd");
  for (struct dirent *entry; folder && (entry = readdir(folder));) count += entry->d_name[0] != '.';
  if (folder) closedir(folder);
  return count;
}

int node_live(node_stage *stage, int process) {
  bool newcomer = process >= NODE_RANKS;
  life l = {.stage = stage,
            .c = &stage->c,
            .rank = newcomer ? process - NODE_RANKS : process,
            .sight = &stage->sights[process]};
  int descriptors = count_descriptors();
  int result = newcomer ? live_as_newcomer(&l) : live_as_rank(&l);
  treadle_switch_destroy(l.sw);
  treadle_group_close(l.group);
  l.sight->leaks = fault_leaks() + count_descriptors() - descriptors;
  return result;
}
