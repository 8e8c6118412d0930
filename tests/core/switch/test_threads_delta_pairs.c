/* Random pairs of layouts on two or more nodes: what updates with changes alone leave in the infer windows is what updates without leave there, byte
 * for byte, whatever is cast, added or padded. Both have the same params, which change by random bits, NaN among them.
 * test_threads_delta_pairs [SEED] ctest: label=threads timeout=900 */
#include "group/ranks.h"
#include "plan/pairs.h"
#include "seeds.h"
#include "switch/changes.h"
#include "test.h"

enum { PAGE = 4096, MAX_ELEMS = 30000, SEEDS = 24, STEPS = 3 };

static uint64_t only_seed;

typedef struct play_input {
  pair *p;
  size_t cap;
  _Atomic size_t dense, delta;
} play_input;

static treadle_status make(treadle_group *group, const play_input *play, bool delta,
                           treadle_switch **sw_p) {
  treadle_status status = TREADLE_OK;
  const treadle_switch_options options = {.struct_size = sizeof options,
                                          .page_bytes = PAGE,
                                          .cap_bytes = play->cap,
                                          .one_way = true,
                                          .timeout_seconds = 100,
                                          .offload_train_param = TREADLE_OFF,
                                          .delta = delta};
  TRY(treadle_switch_create(group, play->p->from.layout, play->p->to.layout, &options, sw_p));
  if (treadle_switch_train_window(*sw_p))
    TRY(treadle_layout_load(play->p->from.layout, group->rank, treadle_switch_train_window(*sw_p)));
  TRY(treadle_group_barrier(group));
  TRY(treadle_switch_to_infer(*sw_p));
out:
  return status;
}

/* The infer windows of all steps: kept in copies (with), or compared with them. */
static int look(treadle_switch *sw, char **copy, bool with) {
  size_t bytes;
  const void *window = treadle_switch_window(sw, TREADLE_INFER_PARAMS, &bytes);
  if (with) {
    *copy = malloc(bytes + 1);
    RANK_TRUE(*copy);
    memcpy(*copy, window ? window : *copy, window ? bytes : 0);
  } else if (window) {
    RANK_TRUE(memcmp(*copy, window, bytes) == 0);
  }
  return 0;
}

static int play_one(treadle_group *group, play_input *play, bool with, char *copies[STEPS]) {
  treadle_switch *sw;
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
  RANK_OK(make(group, play, with, &sw));
  for (int step = 0; step < STEPS; step++) {
    RANK_OK(treadle_group_barrier(group));
    if (treadle_switch_train_window(sw))
      RANK_OK(changes_make(play->p->from.layout, group->rank, treadle_switch_train_window(sw), step,
                           CHANGES_MANY / 50));
    RANK_OK(treadle_switch_update(sw));
    if (look(sw, &copies[step], with)) return 1;
    treadle_switch_get_stats(sw, &stats);
    RANK_TRUE(with || (stats.dense_bytes == 0 && stats.delta_bytes == 0));
    play->dense += stats.dense_bytes;
    play->delta += stats.delta_bytes;
  }
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  RANK_OK(treadle_group_barrier(group));
  return 0;
}

static int play_rank(treadle_group *group, void *context) {
  play_input *play = context;
  char *copies[STEPS] = {0};
  treadle_switch *sw;
  treadle_status made = make(group, play, true, &sw);
  if (made == TREADLE_REFUSED && strstr(treadle_error_message(), "makes fp8 blocks")) return 0;
  RANK_OK(made);
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  RANK_OK(treadle_group_barrier(group));
  if (play_one(group, play, true, copies) || play_one(group, play, false, copies)) return 1;
  for (int i = 0; i < STEPS; i++) free(copies[i]);
  return 0;
}

static void test_pairs(void **state) {
  (void)state;
  size_t dense = 0, delta = 0;
  for (uint64_t seed = 1; seed <= test_seeds(SEEDS); seed++) {
    pair p;
    int64_t cap = 1, cap_min;
    pair_make(&p, only_seed ? only_seed : seed, MAX_ELEMS);
    for (int64_t rank = 0; rank < p.ranks; rank++) {
      const treadle_plan_base_options options = {.page_bytes = PAGE, .keep_params = true};
      treadle_plan_base plan_base = {0};
      assert_ok(treadle_plan_base_create(p.from.layout, p.to.layout, rank, &options, &plan_base));
      cap_min = plan_base.cap_min_bytes;
      if (cap_min > cap) cap = cap_min;
      treadle_plan_base_release(&plan_base);
    }
    play_input play = {.p = &p, .cap = (size_t)(cap + (int64_t)(seed % 7) * 4 * PAGE)};
    ranks_as_threads((int)p.ranks, 100, seed % 2 ? seed : 0, play_rank, &play);
    dense += play.dense;
    delta += play.delta;
    pair_release(&p);
  }
  print_message("%zu bytes in place of %zu\n", delta, dense);
  assert_true(delta < dense);
}

int main(int count, char **words) {
  if (count > 1) only_seed = strtoull(words[1], NULL, 10);
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_pairs)};
  return RANKS_OVER_NODES(tests);
}
