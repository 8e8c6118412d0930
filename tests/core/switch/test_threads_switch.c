/* The whole switch with ranks as threads: random pairs of layouts, delays at every wait. All memory is seen
 * at the addresses of its owner and copied by plain code, so TSan sees every byte that is read while its
 * page is written again.  test_threads_switch [SEED] ctest: label=threads timeout=900 */
#include "group/ranks.h"
#include "plan/one_rank.h"
#include "plan/pairs.h"
#include "switch/scene.h"
#include "test.h"
#include "weights/load.h"

enum { PAGE = 4096, MAX_ELEMS = 30000, SEEDS = 40, CYCLES = 3 };

static uint64_t only_seed;

typedef struct play_input {
  pair *p;
  bool one_way, alias;
  size_t cap;
} play_input;

/* The storage tensors of a window against what the layout says of it. plan: of a switch whose infer window it is, which may
 * have moved them; else NULL. */
static bool holds(const treadle_layout *layout, int rank, const treadle_plan *plan, const char *window,
                  const char *wanted) {
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info),
                       moved = TREADLE_INIT(treadle_storage_info);
  for (int32_t i = 0; i < treadle_layout_storage_count(layout, rank); i++) {
    if (treadle_layout_storage(layout, rank, i, &info) != TREADLE_OK) return false;
    moved = info;
    if (plan && treadle_plan_storage(plan, i, &moved) != TREADLE_OK) return false;
    if (info.bytes && memcmp(window + moved.offset_bytes, wanted + info.offset_bytes, info.bytes) != 0) {
      fprintf(stderr, "rank %d: '%s' is not what it should be\n", rank, info.name);
      return false;
    }
  }
  return true;
}

static int check_figures(treadle_switch *sw) {
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
  treadle_plan_info info = TREADLE_INIT(treadle_plan_info);
  treadle_switch_get_stats(sw, &stats);
  treadle_plan_get_info(treadle_switch_plan(sw), &info);
  RANK_TRUE(stats.peak_bytes <= treadle_switch_bound(sw) && stats.peak_bytes <= stats.pool_bytes);
  RANK_TRUE(stats.pool_bytes == info.peak_bytes && treadle_switch_bound(sw) >= info.peak_bound_bytes);
  RANK_TRUE((stats.net_staging_bytes > 0) == (treadle_group_node_count(sw->group) > 1));
  return 0;
}

static int cycle(treadle_switch *sw, const play_input *play, const char *train, const char *infer,
                 uint64_t digest, uint64_t seed) {
  int rank = sw->group->rank;
  uint64_t now;
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
  treadle_switch_noise(sw, seed);
  RANK_OK(treadle_switch_to_infer(sw));
  RANK_OK(treadle_switch_to_infer(sw)); /* there already */
  treadle_switch_get_stats(sw, &stats);
  RANK_TRUE(holds(play->p->to.layout, rank, sw->carry.plan, treadle_switch_infer_window(sw), infer));
  RANK_TRUE((int64_t)(stats.copied_bytes + stats.filled_bytes) + sw->carry.plan->forward.aliased_bytes ==
            sw->carry.plan->forward.written_bytes);
  RANK_OK(treadle_switch_digest(sw, &now));
  RANK_TRUE(now == digest || play->one_way); /* rounding changes values */
  if (play->one_way) {
    RANK_FAILS(TREADLE_STATE, "one-way", treadle_switch_to_train(sw));
    return 0;
  }
  treadle_switch_noise(sw, ~seed);
  RANK_OK(treadle_switch_to_train(sw));
  RANK_TRUE(holds(play->p->from.layout, rank, NULL, treadle_switch_train_window(sw), train));
  RANK_OK(treadle_switch_digest(sw, &now));
  RANK_TRUE(now == digest);
  return check_figures(sw);
}

static int play_rank(treadle_group *group, void *context) {
  const play_input *play = context;
  treadle_switch *sw;
  uint64_t digest;
  treadle_switch_options options = {.struct_size = sizeof(treadle_switch_options),
                                    .page_bytes = PAGE,
                                    .cap_bytes = play->cap,
                                    .one_way = play->one_way,
                                    .timeout_seconds = 100,
                                    .alias = play->alias};
  RANK_OK(treadle_switch_create(group, play->p->from.layout, play->p->to.layout, &options, &sw));
  sw->device = *treadle_device_plain();
  char *train = scene_expected(play->p->from.layout, NULL, group->rank),
       *infer = scene_expected(play->p->to.layout, play->p->from.layout, group->rank);
  RANK_OK(treadle_layout_load(play->p->from.layout, group->rank, treadle_switch_train_window(sw)));
  RANK_OK(treadle_switch_digest(sw, &digest));
  RANK_TRUE(treadle_switch_version(sw) == 0 && treadle_switch_mode(sw) == TREADLE_TRAIN);
  int cycles = play->one_way ? 1 : CYCLES;
  for (int i = 0; i < cycles; i++)
    if (cycle(sw, play, train, infer, digest, play->p->seed * 10 + (uint64_t)i)) return 1;
  RANK_TRUE(treadle_switch_version(sw) == (uint64_t)cycles);
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  free(train);
  free(infer);
  return 0;
}

static void test_pairs(void **state) {
  (void)state;
  int64_t ways[2] = {0};
  for (uint64_t seed = 1; seed <= test_seeds(SEEDS); seed++) {
    pair p;
    pair_make(&p, only_seed ? only_seed : seed, MAX_ELEMS);
    play_input play = {.p = &p, .one_way = !treadle_plan_is_lossless(p.from.layout, p.to.layout)};
    int64_t cap_min = pair_cap_min(&p, PAGE);
    play.cap =
        (size_t)(seed % 3 == 0 ? cap_min : cap_min + (int64_t)(seed % 7) * PAGE); /* tight: many waves */
    for (int alias = 0; alias < 2; alias++) {
      play.alias = alias;
      ranks_as_threads((int)p.ranks, 100, seed, play_rank, &play);
    }
    ways[play.one_way]++;
    pair_release(&p);
  }
  print_message("%d pairs there and back, %d one way\n", (int)ways[0], (int)ways[1]);
}

int main(int count, char **words) {
  if (count > 1) only_seed = strtoull(words[1], NULL, 10);
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_pairs)};
  return RANKS_OVER_NODES(tests);
}
