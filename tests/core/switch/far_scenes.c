#include "switch/far_scenes.h"

#include "base/larger.h"
#include "group/ranks.h"
#include "plan/one_rank.h"
#include "plan/pairs.h"
#include "switch/block_models.h"
#include "switch/changes.h"
#include "switch/own_memory.h"
#include "switch/scene.h"
#include "test.h"
#include "weights/digest.h"
#include "weights/load.h"

#include <jansson.h>

enum { PAGE = 4096, MAX_ELEMS = 30000, SEEDS = 30, CYCLES = 3 };

static const far_device *the;
static uint64_t only_seed;
static _Atomic size_t came,
    relayed; /* bytes from other nodes; of these, read of a neighbour that has own tensors */

static treadle_memory memory_of(const treadle_group *group) {
  return (treadle_memory){.kind = TREADLE_MEMORY_CUDA, .device = the->is_one ? 0 : group->rank};
}

typedef struct play_input {
  pair *p;
  bool one_way, alias;
  size_t cap;
} play_input;

/* What came from other nodes in the last switch, if there are some, came through slots. */
static bool no_window_travels(const treadle_switch *sw) {
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
  treadle_switch_get_stats(sw, &stats);
  const bool several = treadle_group_node_count(sw->group) > 1;
  atomic_fetch_add(&came, stats.node_moved_bytes);
  return stats.net_window_bytes == 0 && (stats.net_staging_bytes > 0) == several &&
         stats.node_moved_bytes == (size_t)sw->carry.plan->forward.node_moved_bytes;
}

static int cycle(treadle_switch *sw, const play_input *play, const char *train, const char *infer,
                 uint64_t digest, uint64_t seed) {
  uint64_t now;
  treadle_switch_noise(sw, seed);
  RANK_OK(treadle_switch_to_infer(sw));
  if (!scene_reads(sw, TREADLE_INFER_PARAMS, play->p->to.layout, infer)) return 1;
  RANK_TRUE(no_window_travels(sw));
  RANK_OK(treadle_switch_digest(sw, &now));
  RANK_TRUE(now == digest || play->one_way); /* rounding changes values */
  if (play->one_way) return 0;
  treadle_switch_noise(sw, ~seed);
  RANK_OK(treadle_switch_to_train(sw));
  if (!scene_reads(sw, TREADLE_PARAMS, play->p->from.layout, train)) return 1;
  RANK_OK(treadle_switch_digest(sw, &now));
  RANK_TRUE(now == digest);
  return 0;
}

static int play_rank(treadle_group *group, void *context) {
  const play_input *play = context;
  treadle_switch *sw;
  uint64_t digest;
  treadle_switch_options options = {.struct_size = sizeof(treadle_switch_options),
                                    .memory = memory_of(group),
                                    .page_bytes = PAGE,
                                    .cap_bytes = play->cap,
                                    .one_way = play->one_way,
                                    .timeout_seconds = 100,
                                    .alias = play->alias};
  RANK_OK(treadle_switch_create(group, play->p->from.layout, play->p->to.layout, &options, &sw));
  char *train = scene_expected(play->p->from.layout, NULL, group->rank),
       *infer = scene_expected(play->p->to.layout, play->p->from.layout, group->rank);
  RANK_OK(treadle_layout_load(play->p->from.layout, group->rank, treadle_switch_train_window(sw)));
  if (!scene_reads(sw, TREADLE_PARAMS, play->p->from.layout, train)) return 1;
  RANK_OK(treadle_switch_digest(sw, &digest));
  int cycles = play->one_way ? 1 : CYCLES;
  for (int i = 0; i < cycles; i++)
    if (cycle(sw, play, train, infer, digest, play->p->seed * 10 + (uint64_t)i)) return 1;
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  free(train);
  free(infer);
  return 0;
}

static void test_pairs(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= test_seeds(SEEDS); seed++) {
    pair p;
    pair_make(&p, only_seed ? only_seed : seed, MAX_ELEMS);
    play_input play = {.p = &p, .one_way = !treadle_plan_is_lossless(p.from.layout, p.to.layout)};
    int64_t cap_min = pair_cap_min(&p, PAGE);
    play.cap = (size_t)(seed % 3 == 0 ? cap_min : cap_min + (int64_t)(seed % 7) * PAGE);
    for (int alias = 0; alias < 2; alias++) {
      play.alias = alias;
      ranks_as_threads((int)p.ranks, 100, seed, play_rank, &play);
    }
    pair_release(&p);
  }
}

/* ---- Own tensors: memory of the host that the device reads and writes, or its own ---- */

/* Where the tensors are used; the marks around them, too. */
static char *own_there(own_memory *own) {
  if (!the->take) return own->memory;
  char *there = the->take(own->bytes);
  the->move(there, own->memory, own->bytes);
  for (size_t i = 0; i < own->count; i++)
    own->tensors[i].memory = there + ((const char *)own->tensors[i].memory - own->memory);
  return there;
}

static bool own_back(own_memory *own, char *there) {
  if (the->take) the->move(own->memory, there, own->bytes);
  for (size_t i = 0; i < own->count; i++)
    own->tensors[i].memory = own->memory + ((const char *)own->tensors[i].memory - there);
  if (the->take) the->give_back(there);
  const bool same = own_surrounds(own);
  own_release(own);
  return same;
}

/* An update that fails leaves the version that was there: what it overwrote was kept in host memory. */
static int undo_rank(treadle_switch *sw, const treadle_layout *from, const treadle_layout *to, char *train,
                     const char *infer) {
  const int rank = sw->group->rank, last = sw->group->size - 1;
  const size_t bytes = treadle_layout_window_bytes(from, rank);
  RANK_OK(scene_turn(from, rank, (uint8_t *)train, 1));
  if (bytes > 0) RANK_OK(treadle_switch_write(sw, TREADLE_PARAMS, 0, bytes, train));
  RANK_OK(scene_turn(from, rank, (uint8_t *)train, 1)); /* and back */
  if (rank == last)
    RANK_OK(treadle_switch_inject(sw, (treadle_injection){.what = TREADLE_INJECT_ENOMEM,
                                                          .point = TREADLE_AT_WAVE,
                                                          .wave = sw->carry.plan->waves / 2}));
  const treadle_status status = treadle_switch_update(sw);
  RANK_TRUE(status == (rank == last ? TREADLE_NO_MEMORY : TREADLE_PEER) && treadle_switch_is_valid(sw));
  if (!scene_reads(sw, TREADLE_INFER_PARAMS, to, infer)) return 1;
  if (bytes > 0) RANK_OK(treadle_switch_write(sw, TREADLE_PARAMS, 0, bytes, train));
  RANK_OK(treadle_group_barrier(sw->group));
  return 0;
}

static int own_rank(treadle_group *group, void *context) {
  const play_input *play = context;
  const treadle_layout *from = play->p->from.layout, *to = play->p->to.layout;
  const bool undoes = play->p->seed % 2;
  treadle_switch *sw;
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
  own_memory own[2];
  own_make(&own[0], from, to, from, group->rank, OWN_ALL, play->p->seed);
  own_make(&own[1], from, to, to, group->rank, OWN_ALL, play->p->seed + 1);
  char *there[] = {own_there(&own[0]), own_there(&own[1])};
  const treadle_switch_options options = {.struct_size = sizeof(treadle_switch_options),
                                          .memory = memory_of(group),
                                          .page_bytes = PAGE,
                                          .cap_bytes = play->cap,
                                          .timeout_seconds = 100,
                                          .offload_train_param = TREADLE_OFF,
                                          .own_train = own[0].tensors,
                                          .own_train_count = own[0].count,
                                          .own_infer = own[1].tensors,
                                          .own_infer_count = own[1].count,
                                          .undo_bytes = undoes ? (size_t)1 << 30 : 0};
  treadle_status made = treadle_switch_create(group, from, to, &options, &sw);
  if (made ==
      TREADLE_REFUSED) { /* all ranks alike: a cap too small for staging, or values that are rounded */
    (void)own_back(&own[0], there[0]);
    (void)own_back(&own[1], there[1]);
    return 0;
  }
  RANK_OK(made);
  char *train = scene_expected(from, NULL, group->rank), *infer = scene_expected(to, from, group->rank);
  const size_t bytes = treadle_layout_window_bytes(from, group->rank);
  if (bytes > 0) RANK_OK(treadle_switch_write(sw, TREADLE_PARAMS, 0, bytes, train));
  for (int i = 0; i < 2; i++) {
    RANK_OK(treadle_switch_to_infer(sw));
    RANK_TRUE(no_window_travels(sw));
    treadle_switch_get_stats(sw, &stats);
    atomic_fetch_add(&relayed, stats.relayed_bytes);
    if (!scene_reads(sw, TREADLE_INFER_PARAMS, to, infer)) return 1;
    if (undoes && undo_rank(sw, from, to, train, infer)) return 1;
    RANK_OK(treadle_switch_to_train(sw));
    if (!scene_reads(sw, TREADLE_PARAMS, from, train)) return 1;
  }
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  const bool same[] = {own_back(&own[0], there[0]), own_back(&own[1], there[1])};
  RANK_TRUE(same[0] && same[1]);
  free(train);
  free(infer);
  return 0;
}

static void test_own(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= test_seeds(SEEDS); seed++) {
    pair p;
    pair_make(&p, seed, MAX_ELEMS);
    play_input play = {.p = &p, .cap = (size_t)pair_cap_min(&p, PAGE) + (64 << 10)};
    ranks_as_threads((int)p.ranks, 100, seed, own_rank, &play);
    pair_release(&p);
  }
}

/* ---- Updates beside the version that is served ---- */

typedef struct update {
  const scene *s;
  bool two;
} update;

static int update_rank(treadle_group *group, void *context) {
  const update *u = context;
  const scene *s = u->s;
  treadle_switch *sw;
  const size_t bytes = treadle_layout_window_bytes(s->train, group->rank);
  const treadle_switch_options options = {.struct_size = sizeof(treadle_switch_options),
                                          .memory = memory_of(group),
                                          .page_bytes = SCENE_PAGE,
                                          .timeout_seconds = 60,
                                          .offload_train_param = TREADLE_OFF,
                                          .double_infer = u->two};
  const treadle_status made = treadle_switch_create(group, s->train, s->infer, &options, &sw);
  if (options.double_infer && !the->two) {
    RANK_FAILS(TREADLE_REFUSED, "leave out double_infer", made);
    return 0;
  }
  RANK_OK(made);
  for (int version = 0; version < 4; version++) {
    char *train = scene_expected(s->train, NULL, group->rank),
         *infer = scene_expected(s->infer, NULL, group->rank);
    RANK_OK(scene_turn(s->train, group->rank, (uint8_t *)train, version));
    RANK_OK(scene_turn(s->infer, group->rank, (uint8_t *)infer, version));
    RANK_OK(treadle_switch_write(sw, TREADLE_PARAMS, 0, bytes, train));
    RANK_OK(version == 0 ? treadle_switch_to_infer(sw) : treadle_switch_update(sw));
    if (!scene_reads(sw, TREADLE_INFER_PARAMS, s->infer, infer)) return 1;
    free(train);
    free(infer);
  }
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  return 0;
}

static void test_updates(void **state) {
  (void)state;
  scene s;
  scene_init(&s);
  for (int two = 0; two < 2; two++)
    ranks_as_threads(SCENE_RANKS, 60, 0, update_rank, &(update){.s = &s, .two = two});
  scene_release(&s);
}

/* ---- Between nodes ---- */

/* fp8 blocks that ranks make for those of other nodes, and what block rows read of other nodes. */
static void test_blocks(void **state) {
  static const char *const texts[][2] = {{"megatron:tp=2,pp=2,ep=2,etp=1", "vllm:tp=2,dp=2,ep=on"},
                                         {"vllm:tp=2,dp=2,ep=on", "megatron:tp=2,pp=2,ep=2,etp=1"},
                                         {"vllm:tp=2", "sglang:tp=2"}};
  (void)state;
  treadle_model *model = block_model_make(BLOCK_MODEL_LATENT);
  for (size_t i = 0; i < TEST_COUNT(texts); i++) {
    pair p = {.seed = i + 1, .ranks = SCENE_RANKS};
    assert_ok(treadle_layout_create(model, texts[i][0], SCENE_RANKS, NULL, &p.from.layout));
    assert_ok(treadle_layout_create(model, texts[i][1], SCENE_RANKS, NULL, &p.to.layout));
    const play_input play = {.p = &p,
                             .one_way = !treadle_plan_is_lossless(p.from.layout, p.to.layout),
                             .cap = (size_t)pair_cap_min(&p, PAGE)};
    ranks_as_threads(SCENE_RANKS, 100, p.seed, play_rank, (void *)&play);
    treadle_layout_destroy(p.from.layout);
    treadle_layout_destroy(p.to.layout);
  }
  treadle_model_close(model);
}

typedef struct delta_scene {
  treadle_layout *train, *infer;
  bool beside; /* double_infer */
} delta_scene;

/* Few elements change from version to version, so that changes alone travel. */
static int delta_rank(treadle_group *group, void *context) {
  const delta_scene *d = context;
  treadle_switch *sw;
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
  const int rank = group->rank;
  const size_t bytes = treadle_layout_window_bytes(d->train, rank);
  const treadle_switch_options options = {.struct_size = sizeof(treadle_switch_options),
                                          .memory = memory_of(group),
                                          .page_bytes = SCENE_PAGE,
                                          .timeout_seconds = 60,
                                          .offload_train_param = TREADLE_OFF,
                                          .delta = true,
                                          .double_infer = d->beside};
  RANK_OK(treadle_switch_create(group, d->train, d->infer, &options, &sw));
  char *train = scene_expected(d->train, NULL, rank), *infer = scene_expected(d->infer, d->train, rank);
  for (int version = 0; version < 5; version++) {
    if (version > 0) RANK_OK(changes_make(d->train, rank, (uint8_t *)train, version, CHANGES_MANY / 100));
    if (version > 0) RANK_OK(changes_make(d->infer, rank, (uint8_t *)infer, version, CHANGES_MANY / 100));
    if (bytes > 0) RANK_OK(treadle_switch_write(sw, TREADLE_PARAMS, 0, bytes, train));
    if (version == 0) RANK_OK(treadle_switch_filled(sw));
    RANK_OK(version == 0 ? treadle_switch_to_infer(sw) : treadle_switch_update(sw));
    if (!scene_reads(sw, TREADLE_INFER_PARAMS, d->infer, infer)) return 1;
    RANK_TRUE(no_window_travels(sw));
    treadle_switch_get_stats(sw, &stats);
    RANK_TRUE(version == 0 ? stats.delta_bytes == stats.dense_bytes
                           : 2 * stats.delta_bytes <= stats.dense_bytes);
    RANK_OK(treadle_group_barrier(group));
  }
  treadle_switch_destroy(sw);
  free(train);
  free(infer);
  return 0;
}

static void test_deltas(void **state) {
  static const char *const texts[][2] = {{"megatron:tp=2,pp=2", "vllm:tp=4"},
                                         {"megatron:tp=2,pp=2,dtype=fp32", "vllm:tp=4"}};
  (void)state;
  scene s;
  scene_init(&s);
  for (size_t i = 0; i < TEST_COUNT(texts); i++) {
    delta_scene d;
    assert_ok(treadle_layout_create(s.model, texts[i][0], SCENE_RANKS, NULL, &d.train));
    assert_ok(treadle_layout_create(s.model, texts[i][1], SCENE_RANKS, NULL, &d.infer));
    for (int beside = 0; beside < 1 + the->two; beside++) {
      d.beside = beside;
      ranks_as_threads(SCENE_RANKS, 60, i + 1, delta_rank, &d);
    }
    treadle_layout_destroy(d.train);
    treadle_layout_destroy(d.infer);
  }
  scene_release(&s);
}

/* Waves of more messages to one rank than there are slots. Rank 3 waits for messages of rank 1, which stand behind those to rank 2; that one takes none
 * before rank 3 has staged. So rank 3 says what is staged while it waits. */
static void test_long_waves(void **state) {
  static const char config[] =
      "{\"model_type\": \"llama\", \"hidden_size\": 512, \"intermediate_size\": 8192, "
      "\"num_hidden_layers\": 2, \"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"vocab_size\": "
      "64,"
      " \"torch_dtype\": \"bfloat16\", \"tie_word_embeddings\": false}";
  treadle_model *model;
  pair p = {.seed = 2, .ranks = SCENE_RANKS};
  (void)state;
  if (ranks_nodes != ranks_in_pairs) return;
  json_t *json = json_loads(config, 0, NULL);
  assert_ok(treadle_model_from_config("long waves", json, NULL, &model));
  json_decref(json);
  assert_ok(treadle_layout_create(model, "megatron:tp=2,pp=2", SCENE_RANKS, NULL, &p.from.layout));
  assert_ok(treadle_layout_create(model, "vllm:tp=4", SCENE_RANKS, NULL, &p.to.layout));
  const size_t before = came;
  ranks_as_threads(SCENE_RANKS, 100, 0, own_rank, &(play_input){.p = &p, .cap = 128 << 20});
  assert_true(came - before > (32 << 20)); /* it was not refused */
  treadle_layout_destroy(p.from.layout);
  treadle_layout_destroy(p.to.layout);
  treadle_model_close(model);
}

/* It was so: bytes did travel, and where a node has two ranks, from one to the other. */
static void test_came(void **state) {
  (void)state;
  assert_true(atomic_exchange(&came, 0) > 0 && atomic_exchange(&relayed, 0) > 0);
}

/* ---- Offload, and a device that fails ---- */

typedef struct far_scene {
  const scene *s;
  bool guards, alias;
  bool measures; /* nothing fails, and nothing is looked at: how many calls are there? */
  const char *call;
  int64_t fails_at;          /* such a call after the switch was filled; 0: none */
  int64_t calls;             /* to INFER and back */
  _Atomic int fallen, named; /* ranks whose switch failed, and those of them that say of which call */
} far_scene;

static int scene_rank(treadle_group *group, void *context) {
  far_scene *f = context;
  treadle_switch *sw;
  const treadle_switch_options options = {.struct_size = sizeof(treadle_switch_options),
                                          .memory = memory_of(group),
                                          .page_bytes = SCENE_PAGE,
                                          .cap_bytes = (size_t)f->s->cap_min,
                                          .timeout_seconds = 30,
                                          .grads_bytes = 3 * SCENE_PAGE + 5,
                                          .optimizer_bytes = 7 * SCENE_PAGE,
                                          .offload_train_grad = TREADLE_ON,
                                          .keep_grads = true,
                                          .offload_train_optimizer = TREADLE_ON,
                                          .kv_bytes = 2 * SCENE_PAGE,
                                          .guard_pages = f->guards,
                                          .alias = f->alias,
                                          .host = true};
  char state[7 * SCENE_PAGE], found[sizeof state];
  const treadle_status made = treadle_switch_create(group, f->s->train, f->s->infer, &options, &sw);
  if (f->guards && !the->guards) {
    RANK_FAILS(TREADLE_REFUSED, "leave out guard_pages", made);
    return 0;
  }
  RANK_OK(made);
  char *train = scene_expected(f->s->train, NULL, group->rank);
  char *infer = scene_expected(f->s->infer, NULL, group->rank);
  for (size_t i = 0; i < sizeof state; i++) state[i] = (char)(i * 7 + (size_t)group->rank);
  RANK_OK(treadle_layout_load(f->s->train, group->rank, treadle_switch_train_window(sw)));
  RANK_OK(treadle_switch_write(sw, TREADLE_OPTIMIZER, 0, sizeof state, state));
  RANK_OK(treadle_group_barrier(group));
  const int64_t before = f->call ? the->calls(sw, f->call) : 0;
  if (group->rank == 1 && f->fails_at) the->fail_at(sw, f->call, f->fails_at);
  RANK_OK(treadle_group_barrier(group));
  treadle_status status = treadle_switch_to_infer(sw);
  if (!f->fails_at && !f->measures && !scene_reads(sw, TREADLE_INFER_PARAMS, f->s->infer, infer)) return 1;
  if (status == TREADLE_OK) status = treadle_switch_to_train(sw);
  const bool names =
      status != TREADLE_OK && strstr(treadle_error_message(), the->words ? the->words : f->call);
  if (treadle_switch_mode(sw) == TREADLE_LOST)
    treadle_group_fail(group); /* or the others would wait for it */
  if (group->rank == 1 && f->call) f->calls = the->calls(sw, f->call) - before;
  if (f->measures) {
    RANK_OK(status);
  } else if (f->fails_at > 0) {
    f->fallen += status != TREADLE_OK;
    f->named += names;
    RANK_TRUE(names || group->rank != 1 || the->fails_anywhere);
    the->fail_at(sw, f->call, 0); /* not in what follows */
    /* Those whose device works have what they had. */
    if (treadle_switch_mode(sw) == TREADLE_TRAIN && sw->device.ops->fence(&sw->device) == TREADLE_OK &&
        !scene_reads(sw, TREADLE_PARAMS, f->s->train, train))
      return 1;
  } else {
    RANK_OK(status);
    if (!scene_reads(sw, TREADLE_PARAMS, f->s->train, train)) return 1;
    RANK_OK(treadle_switch_read(sw, TREADLE_OPTIMIZER, 0, sizeof found, found));
    RANK_TRUE(memcmp(found, state, sizeof state) == 0);
    RANK_OK(treadle_switch_to_host(sw));
    treadle_switch_noise(sw, 3);
    RANK_OK(treadle_switch_to_train(sw));
    if (!scene_reads(sw, TREADLE_PARAMS, f->s->train, train)) return 1;
  }
  treadle_switch_destroy(sw);
  free(train);
  free(infer);
  return 0;
}

static void test_offload(void **state) {
  (void)state;
  scene s;
  scene_init(&s);
  for (int how = 0; how < 4; how++)
    ranks_as_threads(SCENE_RANKS, 60, 0, scene_rank,
                     &(far_scene){.s = &s, .guards = how & 1, .alias = how & 2});
  scene_release(&s);
}

/* Some of the calls of a kind fail, one a switch; the last ones among them: those that guard; and the first, which comes for certain. */
static void fail_calls(far_scene *f) {
  f->measures = true;
  ranks_as_threads(SCENE_RANKS, 60, 0, scene_rank, f);
  const int64_t calls = f->calls, parts = treadle_larger((int64_t)test_seeds(12), 3),
                step = treadle_larger(calls / parts, 1);
  assert_true(calls > 0);
  /* Runs that make the call which fails: how many calls there are of some kinds depends on the time. */
  int reached = 0;
  f->measures = false;
  f->fallen = f->named = 0;
  for (int64_t left = calls; left > 0; left = left == 1 ? 0 : treadle_larger(left - step, 1)) {
    const int fallen = f->fallen, named = f->named;
    f->fails_at = left;
    ranks_as_threads(SCENE_RANKS, 60, 0, scene_rank, f);
    the->fail_at(NULL, NULL, 0);
    assert_true(f->fallen == fallen || f->named > named);
    reached += f->calls >= left;
  }
  assert_true(f->fallen > 0 || reached < 2); /* one may be of those that `renew` forgets */
}

static void test_failures(void **state) {
  (void)state;
  scene s;
  scene_init(&s);
  for (int how = 0; how < 4; how++)
    for (int i = 0; the->fails[i] && (the->guards || !(how & 1)); i++)
      if (!ranks_nodes || i % 3 == 0) /* over nodes, some of them */
        fail_calls(&(far_scene){.s = &s, .guards = how & 1, .alias = how & 2, .call = the->fails[i]});
  scene_release(&s);
}

/* ---- Files ---- */

#define MODELS TREADLE_SOURCE_DIR "/tests/golden/models/"

typedef struct files {
  treadle_layout *train, *infer;
  char folder[200];
  const char *config; /* of a model without files, which is put beside the saved ones */
  treadle_save_options save;
  uint64_t digest;
} files;

static int put_config(const files *f) {
  char path[300];
  snprintf(path, sizeof path, "%s/config.json", f->folder);
  FILE *file = f->config ? fopen(path, "w") : NULL;
  if (file) fputs(f->config, file);
  RANK_TRUE(!f->config || (file && fclose(file) == 0));
  return 0;
}

static int clear(treadle_switch *sw, treadle_class which) {
  size_t bytes;
  (void)treadle_switch_window(sw, which, &bytes);
  char *zeros = calloc(bytes + 1, 1);
  RANK_OK(treadle_switch_write(sw, which, 0, bytes, zeros));
  free(zeros);
  return 0;
}

static treadle_status make_far(treadle_group *group, const treadle_layout *train,
                               const treadle_layout *infer, treadle_switch **switch_p) {
  const treadle_switch_options options = {.struct_size = sizeof(treadle_switch_options),
                                          .memory = memory_of(group),
                                          .page_bytes = SCENE_PAGE,
                                          .timeout_seconds = 60};
  return treadle_switch_create(group, train, infer, &options, switch_p);
}

/* Loaded, saved, loaded from what was saved, and made up as the plan says that it should be. */
static int files_rank(treadle_group *group, void *context) {
  files *f = context;
  const int rank = group->rank;
  treadle_switch *sw;
  uint64_t digest;
  RANK_OK(make_far(group, f->train, f->infer, &sw));
  char *train = scene_expected(f->train, NULL, rank), *infer = scene_expected(f->infer, f->train, rank);
  void *window = treadle_switch_train_window(sw);
  RANK_OK(treadle_layout_load(f->train, rank, window));
  if (!scene_reads(sw, TREADLE_PARAMS, f->train, train)) return 1;
  RANK_OK(treadle_switch_digest(sw, &digest));
  if (rank == 0) f->digest = digest;
  RANK_OK(treadle_layout_save(group, f->train, window, f->folder, &f->save));
  if (rank == 0 && put_config(f)) return 1;
  RANK_OK(treadle_group_barrier(group));
  if (clear(sw, TREADLE_PARAMS)) return 1;
  RANK_OK(treadle_layout_load_saved(f->train, rank, f->folder, NULL, window));
  if (!scene_reads(sw, TREADLE_PARAMS, f->train, train)) return 1;
  RANK_OK(treadle_switch_to_infer(sw));
  if (clear(sw, TREADLE_INFER_PARAMS)) return 1;
  RANK_OK(treadle_plan_expect(treadle_switch_plan(sw), treadle_switch_infer_window(sw)));
  if (!scene_reads(sw, TREADLE_INFER_PARAMS, f->infer, infer)) return 1;
  RANK_OK(treadle_switch_to_train(sw));
  if (!scene_reads(sw, TREADLE_PARAMS, f->train, train)) return 1;
  treadle_switch_destroy(sw);
  free(train);
  free(infer);
  return 0;
}

static void play_files(const treadle_model *model, const char *train, const char *infer, int ranks,
                       const char *config) {
  const char *folder = test_folder();
  files f = {.config = config, .save = TREADLE_INIT(treadle_save_options)};
  treadle_model *saved;
  uint64_t digest = 0;
  snprintf(f.folder, sizeof f.folder, "%s/saved", folder);
  f.save.weights_only = config != NULL;
  if (config) f.save.dtype = TREADLE_FP32;
  assert_ok(treadle_layout_create(model, train, ranks, NULL, &f.train));
  assert_ok(treadle_layout_create(model, infer, ranks, NULL, &f.infer));
  ranks_as_threads(ranks, 60, 0, files_rank, &f);
  assert_ok(treadle_model_open(f.folder, NULL, &saved));
  assert_ok(treadle_digest_saved(saved, 0, 1, &digest));
  assert_true(digest == f.digest);
  treadle_model_close(saved);
  treadle_layout_destroy(f.train);
  treadle_layout_destroy(f.infer);
  test_remove(folder);
}

/* A model's values as another checkpoint gives them: piece by piece, to the host. */
static treadle_status read_values(void *context, const treadle_piece *piece, char *window) {
  const treadle_device *host = treadle_device_host();
  treadle_status status;
  TRY(treadle_load_values(context, piece, host, window));
  status = host->ops->fence(host);
out:
  return status;
}

static void test_files(void **state) {
  (void)state;
  static const char config[] = /* its embedding is saved in two blocks */
      "{\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 192, \"num_hidden_layers\": "
      "2,"
      " \"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"vocab_size\": 17001, \"torch_dtype\": "
      "\"bfloat16\", \"tie_word_embeddings\": false}";
  static const struct {
    const char *model, *train, *infer;
    int ranks;
  } cases[] = {{"llama-gqa-llama3rope", "megatron:tp=2,pp=2", "vllm:tp=4", 4},
               {"qwen2moe", "megatron:ep=2,pp=2", "vllm:tp=4", 4},
               {"qwen2-tied", "fsdp:dp=2", "sglang:tp=2", 2}};
  for (size_t c = 0; c < 2 * TEST_COUNT(cases); c++) {
    const size_t i = c / 2;
    treadle_model *model;
    char path[300];
    snprintf(path, sizeof path, MODELS "%s", cases[i].model);
    assert_ok(treadle_model_open(path, NULL, &model));
    treadle_model plain = *model;
    if (c % 2) model->values = (treadle_model_values){.read = read_values, .context = &plain};
    play_files(model, cases[i].train, cases[i].infer, cases[i].ranks, NULL);
    model->values = (treadle_model_values){0};
    treadle_model_close(model);
  }
  json_t *json = json_loads(config, 0, NULL);
  treadle_model *model;
  assert_ok(treadle_model_from_config("blocks", json, NULL, &model));
  json_decref(json);
  play_files(model, "hf", "vllm:tp=1", 1, config);
  play_files(model, "megatron:tp=2", "vllm:tp=2", 2, config);
  treadle_model_close(model);
}

typedef struct failing {
  const scene *s;
  char folder[200];
  int what; /* 0: load, 1: digest, 2: save */
  const char *call;
  int64_t at;         /* the call that fails; 0: none */
  _Atomic int fallen; /* ranks */
  int64_t calls;
} failing;

static treadle_status call(treadle_group *group, treadle_switch *sw, const failing *f) {
  const treadle_save_options save = {.struct_size = sizeof save, .weights_only = true};
  void *window = treadle_switch_train_window(sw);
  uint64_t digest;
  if (f->what == 0) return treadle_layout_load(f->s->train, group->rank, window);
  return f->what == 1 ? treadle_switch_digest(sw, &digest)
                      : treadle_layout_save(group, f->s->train, window, f->folder, &save);
}

static int failing_rank(treadle_group *group, void *context) {
  failing *f = context;
  treadle_switch *sw;
  RANK_OK(make_far(group, f->s->train, f->s->infer, &sw));
  RANK_OK(treadle_layout_load(f->s->train, group->rank, treadle_switch_train_window(sw)));
  RANK_OK(treadle_group_barrier(group));
  const int64_t before = the->calls(sw, f->call);
  if (group->rank == 1 && f->at) the->fail_at(sw, f->call, f->at);
  RANK_OK(treadle_group_barrier(group));
  const treadle_status status = call(group, sw, f);
  RANK_OK(treadle_group_barrier(group));
  if (group->rank == 1) f->calls = the->calls(sw, f->call) - before;
  const bool alone = f->what == 0 && group->rank != 1; /* what rank 1 loads is its own */
  f->fallen += status != TREADLE_OK;
  if (!f->at || (alone && !the->fails_anywhere))
    RANK_OK(status);
  else if (status != TREADLE_OK || !the->fails_anywhere)
    RANK_FAILS(TREADLE_SYSTEM, the->words ? the->words : f->call, status);
  treadle_switch_destroy(sw);
  return 0;
}

static void fail_files(const scene *s, const char *folder, const char *name, int what) {
  failing f = {.s = s, .call = name, .what = what};
  snprintf(f.folder, sizeof f.folder, "%s/saved-%s-%d", folder, name, what);
  ranks_as_threads(SCENE_RANKS, 60, 0, failing_rank, &f);
  const int64_t calls = f.calls;
  for (int i = 0; i < 3 && calls > 0; i++) {
    snprintf(f.folder, sizeof f.folder, "%s/failed-%s-%d-%d", folder, name, what, i);
    f.fallen = 0;
    f.at = i == 0 ? 1 : i == 1 ? (calls + 1) / 2 : calls;
    ranks_as_threads(SCENE_RANKS, 60, 0, failing_rank, &f);
    the->fail_at(NULL, NULL, 0);
    if (i == 0 && !(the->renewing && strcmp(name, the->renewing) == 0)) assert_true(f.fallen > 0);
    assert_true(what == 0 || f.fallen == 0 || f.fallen == SCENE_RANKS); /* all together */
    if (f.fallen > 0) assert_int_equal(access(f.folder, F_OK), -1);
  }
}

static void test_failing_files(void **state) {
  (void)state;
  const char *folder = test_folder();
  scene s;
  scene_init(&s);
  for (const char *const *name = the->fails; *name; name++)
    for (int what = 0; what < 3; what++) fail_files(&s, folder, *name, what);
  scene_release(&s);
  test_remove(folder);
}

int far_scenes(const far_device *device, uint64_t seed) {
  the = device;
  only_seed = seed;
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_pairs),        cmocka_unit_test(test_own),
                                     cmocka_unit_test(test_updates),      cmocka_unit_test(test_offload),
                                     cmocka_unit_test(test_failures),     cmocka_unit_test(test_files),
                                     cmocka_unit_test(test_failing_files)},
                          nodes[] = {cmocka_unit_test(test_pairs),  cmocka_unit_test(test_own),
                                     cmocka_unit_test(test_blocks), cmocka_unit_test(test_long_waves),
                                     cmocka_unit_test(test_deltas), cmocka_unit_test(test_failures),
                                     cmocka_unit_test(test_came)};
  return cmocka_run_group_tests(tests, NULL, NULL) + RANKS_OVER_NODES(nodes);
}
