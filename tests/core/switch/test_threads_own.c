/* Own tensors with ranks as threads, on one node and on several: random pairs of layouts, delays at every wait; own train tensors, own infer
 * tensors, both, and some of either by rank and by storage. Every element is compared with what the layouts say, memory around own tensors
 * must not change, and nor must own train tensors; as many bytes enter nodes as without own tensors.
 * test_threads_own [SEED] ctest: stage=gcc label=threads timeout=900 */
#include "group/ranks.h"
#include "plan/one_rank.h"
#include "plan/pairs.h"
#include "switch/foresee.h"
#include "switch/own_memory.h"
#include "switch/scene.h"
#include "test.h"
#include "weights/load.h"

enum { PAGE = 4096, MAX_ELEMS = 30000, SEEDS = 40, CYCLES = 2 };

static uint64_t only_seed;
static _Atomic size_t staged_bytes, pulled_bytes, holes; /* of all pairs */
static _Atomic size_t relays, between,
    straight; /* staged for relays; bytes between nodes, and those right into windows */

typedef struct play_input {
  pair *p;
  own_choice train, infer;
  bool keep_host;
  size_t cap;
  treadle_foreseen *foreseen; /* by rank; NULL: on several nodes */
} play_input;

static treadle_switch_options options_of(const play_input *play, const own_memory *train,
                                         const own_memory *infer) {
  /* Own train tensors ask for params that stay; there may be none, where all have fp8 blocks. */
  bool asks = play->train == OWN_ALL && treadle_plan_is_lossless(play->p->from.layout, play->p->to.layout);
  return (treadle_switch_options){.struct_size = sizeof(treadle_switch_options),
                                  .page_bytes = PAGE,
                                  .cap_bytes = play->cap,
                                  .timeout_seconds = 100,
                                  .offload_train_param = play->keep_host ? TREADLE_ON
                                                         : asks          ? TREADLE_DEFAULT
                                                                         : TREADLE_OFF,
                                  .keep = play->keep_host ? TREADLE_KEEP_HOST : TREADLE_KEEP_INFER,
                                  .own_train = train->tensors,
                                  .own_train_count = train->count,
                                  .own_infer = infer->tensors,
                                  .own_infer_count = infer->count};
}

/* Bytes of a direction's ops that are pulled from own tensors of others. */
static size_t pulled_of(const treadle_switch *sw) {
  size_t bytes = 0;
  for (size_t i = 0; i < sw->carry.staging.pull_count; i++)
    bytes += (size_t)treadle_pull_bytes(&sw->carry.staging.pulls[i]);
  return bytes;
}

static int check_figures(treadle_switch *sw, const play_input *play) {
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
  treadle_switch_get_stats(sw, &stats);
  RANK_TRUE(stats.peak_bytes <= treadle_switch_bound(sw));
  RANK_TRUE(stats.pool_bytes <= treadle_switch_pool_bound(sw));
  if (!play->foreseen) return 0;
  const treadle_foreseen *foreseen = &play->foreseen[sw->group->rank];
  RANK_TRUE(stats.peak_bytes <= foreseen->peak_bytes && stats.pool_bytes == foreseen->pool_bytes);
  return 0;
}

static int cycle(treadle_switch *sw, const play_input *play, const char *train, const char *infer,
                 uint64_t digest, uint64_t seed) {
  uint64_t now;
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
  treadle_switch_noise(sw, seed);
  RANK_OK(treadle_switch_to_infer(sw));
  treadle_switch_get_stats(sw, &stats);
  RANK_TRUE(own_holds(sw, TREADLE_INFER_PARAMS, infer));
  if (!play->keep_host) RANK_TRUE(own_holds(sw, TREADLE_PARAMS, train));
  RANK_TRUE((int64_t)(stats.copied_bytes + stats.filled_bytes) == sw->carry.plan->forward.written_bytes);
  size_t staged = 0, pulled = 0, own[2] = {stats.staged_bytes, pulled_of(sw)};
  size_t *all = calloc((size_t)sw->group->size * 2, sizeof *all);
  RANK_OK(treadle_group_gather(sw->group, own, sizeof own, all));
  for (int i = 0; i < sw->group->size; i++) staged += all[2 * i], pulled += all[2 * i + 1];
  free(all);
  RANK_TRUE(staged <= pulled && (staged > 0) == (pulled > 0));
  staged_bytes += own[0];
  pulled_bytes += own[1];
  const treadle_outbound *outbound = &sw->carry.staging.outbound;
  for (int32_t i = 0; outbound->wave_first && i < outbound->wave_first[sw->carry.plan->waves]; i++)
    if (outbound->boxes[i].pull.twin) relays += (size_t)treadle_pull_bytes(&outbound->boxes[i].pull);
  between += stats.node_moved_bytes;
  straight += stats.net_window_bytes;
  RANK_TRUE(stats.net_window_bytes <= stats.node_moved_bytes);
  RANK_TRUE((int64_t)stats.node_moved_bytes == sw->carry.plan->forward.node_moved_bytes);
  RANK_OK(treadle_switch_digest(sw, &now));
  RANK_TRUE(now == digest || !sw->carry.plan->lossless);
  treadle_switch_noise(sw, ~seed);
  RANK_OK(treadle_switch_to_train(sw));
  treadle_switch_get_stats(sw, &stats);
  RANK_TRUE(stats.copied_bytes == 0 && stats.staged_bytes == 0);
  RANK_TRUE(own_holds(sw, TREADLE_PARAMS, train));
  RANK_OK(treadle_switch_digest(sw, &now));
  RANK_TRUE(now == digest);
  return check_figures(sw, play);
}

static int play_rank(treadle_group *group, void *context) {
  const play_input *play = context;
  const treadle_layout *from = play->p->from.layout, *to = play->p->to.layout;
  treadle_switch *sw;
  uint64_t digest;
  own_memory own[2];
  own_make(&own[0], from, to, from, group->rank, play->train, play->p->seed);
  own_make(&own[1], from, to, to, group->rank, play->infer, play->p->seed + 1);
  const treadle_switch_options options = options_of(play, &own[0], &own[1]);
  RANK_OK(treadle_switch_create(group, from, to, &options, &sw));
  sw->device = *treadle_device_plain();
  char *train = scene_expected(from, NULL, group->rank), *infer = scene_expected(to, from, group->rank);
  RANK_OK(
      treadle_switch_write(sw, TREADLE_PARAMS, 0, treadle_layout_window_bytes(from, group->rank), train));
  RANK_OK(treadle_switch_digest(sw, &digest));
  holes += (size_t)(sw->holes.count[0] + sw->holes.count[1]);
  for (int i = 0; i < CYCLES; i++)
    if (cycle(sw, play, train, infer, digest, play->p->seed * 10 + (uint64_t)i)) return 1;
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  RANK_TRUE(own_surrounds(&own[0]) && own_surrounds(&own[1]));
  own_release(&own[0]);
  own_release(&own[1]);
  free(train);
  free(infer);
  return 0;
}

/* What one that meets nobody says of all ranks. The arrays need not stay. */
static void foresee(play_input *play) {
  int ranks = (int)play->p->ranks;
  const treadle_layout *from = play->p->from.layout, *to = play->p->to.layout;
  treadle_switch_options *options = calloc((size_t)ranks, sizeof *options);
  own_memory *own = calloc((size_t)ranks * 2, sizeof *own);
  play->foreseen = calloc((size_t)ranks, sizeof *play->foreseen);
  assert_true(options && own && play->foreseen);
  for (int rank = 0; rank < ranks; rank++) {
    own_make(&own[2 * rank], from, to, from, rank, play->train, play->p->seed);
    own_make(&own[2 * rank + 1], from, to, to, rank, play->infer, play->p->seed + 1);
    options[rank] = options_of(play, &own[2 * rank], &own[2 * rank + 1]);
  }
  assert_ok(treadle_switch_foresee(from, to, options, play->foreseen));
  for (int i = 0; i < 2 * ranks; i++) own_release(&own[i]);
  free(options);
  free(own);
}

static const pair *failing; /* the pair that is played: what to play again */

static int describe(void **state) {
  (void)state;
  if (failing) puts(pair_describe(failing)); /* longer than a message of cmocka may be */
  return 0;
}

static void test_pairs(void **state) {
  (void)state;
  static const struct {
    own_choice train, infer;
    bool keep_host;
  } cases[] = {{OWN_ALL, OWN_NO, false},       {OWN_NO, OWN_ALL, false}, {OWN_ALL, OWN_ALL, false},
               {OWN_SOME, OWN_SOME, false},    {OWN_NO, OWN_ALL, true},  {OWN_NO, OWN_SOME, true},
               {OWN_ONE_RANK, OWN_SOME, false}};
  for (uint64_t seed = 1; seed <= test_seeds(SEEDS); seed++) {
    static pair p;
    pair_make(&p, only_seed ? only_seed : seed, MAX_ELEMS);
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
      if (ranks_nodes && !only_seed && (seed + i) % 3) continue;
      play_input play = {
          .p = &p, .train = cases[i].train, .infer = cases[i].infer, .keep_host = cases[i].keep_host};
      play.cap = (size_t)pair_cap_min(&p, PAGE) + (size_t)(seed % 5) * 8 * PAGE;
      if (!play.keep_host || ranks_nodes) play.cap += 1 << 20;
      if (!ranks_nodes) foresee(&play);
      failing = &p;
      ranks_as_threads((int)p.ranks, 100, seed, play_rank, &play);
      failing = NULL;
      free(play.foreseen);
    }
    pair_release(&p);
  }
  print_message("%zu bytes pulled, %zu staged, %zu of them for relays, %zu between nodes (%zu right into "
                "windows), %zu pages that "
                "windows do not need\n",
                (size_t)pulled_bytes, (size_t)staged_bytes, (size_t)relays, (size_t)between,
                (size_t)straight, (size_t)holes);
  assert_true(only_seed || (staged_bytes > 0 && staged_bytes <= pulled_bytes && holes > 0));
  assert_true(only_seed || !ranks_nodes == !between);
  assert_true(only_seed || !ranks_nodes == !straight);
  assert_true(only_seed || ranks_nodes != ranks_in_pairs || relays > 0);
  staged_bytes = pulled_bytes = holes = relays = between = straight = 0;
}

int main(int count, char **words) {
  if (count > 1) only_seed = strtoull(words[1], NULL, 10);
  const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(test_pairs, describe)};
  return cmocka_run_group_tests(tests, NULL, NULL) + RANKS_OVER_NODES(tests);
}
