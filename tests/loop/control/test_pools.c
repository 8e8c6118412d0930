/* Resource pools: where they are placed, how they are split and merged, and what is refused. The rows are those of verl's tests of split and
 * merged pools, and of RLinf's of nodes; a random search compares placing with plain loops. TREADLE_SEED sets the seed (1). */
#include "base/alloc.h"
#include "base/random.h"
#include "seeds.h"
#include "test.h"
#include "treadle_control.h"

enum { MOST = 64 };

/* "8,8": node after node. */
static size_t machine(const char *counts, int32_t node_of[MOST]) {
  size_t slots = 0;
  for (int32_t node = 0; *counts; node++) {
    for (long left = strtol(counts, (char **)&counts, 10); left > 0; left--) node_of[slots++] = node;
    counts += *counts == ',';
  }
  return slots;
}

static size_t numbers(const char *text, int32_t to[MOST]) {
  size_t count = 0;
  while (*text) {
    to[count++] = (int32_t)strtol(text, (char **)&text, 10);
    text += *text == ',';
  }
  return count;
}

/* One pool of its own nodes. */
static treadle_resource_pool *pool_of(const char *counts) {
  int32_t node_of[MOST], own[MOST];
  const treadle_resource_pool_spec spec = {.name = "all", .counts = own, .entries = numbers(counts, own)};
  treadle_resource_pool *pool;
  assert_ok(treadle_resource_pool_create(&spec, 1, node_of, machine(counts, node_of), &pool));
  return pool;
}

static treadle_resource_pool_info info_of(const treadle_resource_pool *pool) {
  treadle_resource_pool_info info = TREADLE_INIT(treadle_resource_pool_info);
  treadle_resource_pool_get_info(pool, &info);
  return info;
}

/* "0.0:0 0.1:0 1.0:1": entry, bundle and number of each slot. */
static void check_slots(const treadle_resource_pool *pool, const char *wanted) {
  char text[1024] = "";
  treadle_slot slot;
  for (int32_t rank = 0; rank < info_of(pool).slots; rank++) {
    assert_ok(treadle_resource_pool_get_slot(pool, rank, &slot));
    snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d.%d:%d", rank ? " " : "", slot.entry,
             slot.bundle, slot.number);
  }
  assert_string_equal(text, wanted);
}

/* ---- verl's rows ---- */

/* [4, 4] by 4: eight rows, two for each of four workers, and a value of each of them. */
static void splits_evenly(void **state) {
  (void)state;
  treadle_resource_pool *pool = pool_of("4,4"), *parts[2];
  treadle_resource_pool *const none[2] = {NULL};
  assert_ok(treadle_resource_pool_split_evenly(pool, 4, parts));
  check_slots(parts[0], "0.0:0 0.1:1 0.2:2 0.3:3");
  check_slots(parts[1], "0.0:4 0.1:5 0.2:6 0.3:7");
  assert_string_equal(info_of(parts[1]).name, "all[1]");
  for (int row = 0; row < 8; row++) assert_int_equal(row * info_of(parts[0]).slots / 8, row / 2);
  for (int i = 0; i < 2; i++) treadle_resource_pool_destroy(parts[i]);
  memset(parts, 1, sizeof parts);
  assert_refused("split_size must be a divisor of world_size: 3 and 8",
                 treadle_resource_pool_split_evenly(pool, 3, parts));
  assert_refused("split_size must be a divisor of world_size: 0 and 8",
                 treadle_resource_pool_split_evenly(pool, 0, parts));
  assert_refused("split_size must be a divisor of world_size: 16 and 8",
                 treadle_resource_pool_split_evenly(pool, 16, parts));
  static const int32_t wrong[][2] = {{2, 5}, {0, 8}};
  assert_refused("pool 'all': split_size must sum up to world_size: 7 and 8",
                 treadle_resource_pool_split(pool, wrong[0], 2, parts));
  assert_memory_equal(parts, none, sizeof parts);
  assert_refused("part 0 is of size 0", treadle_resource_pool_split(pool, wrong[1], 2, parts));
  assert_refused("0 parts", treadle_resource_pool_split(pool, wrong[0], 0, parts));
  treadle_resource_pool_destroy(pool);
}

static void splits_by_counts(void **state) {
  (void)state;
  static const int32_t counts[] = {2, 6};
  treadle_resource_pool *narrow = pool_of("2,2,2,2"), *wide = pool_of("4,4"), *parts[2];
  assert_ok(treadle_resource_pool_split(narrow, counts, 2, parts));
  check_slots(parts[0], "0.0:0 0.1:1");
  check_slots(parts[1], "0.0:2 0.1:3 1.0:4 1.1:5 2.0:6 2.1:7");
  assert_int_equal(info_of(parts[1]).nodes, 3);
  for (int i = 0; i < 2; i++) treadle_resource_pool_destroy(parts[i]);
  assert_ok(treadle_resource_pool_split(wide, counts, 2, parts)); /* the second crosses a node */
  check_slots(parts[0], "0.0:0 0.1:1");
  check_slots(parts[1], "0.0:2 0.1:3 1.0:4 1.1:5 1.2:6 1.3:7");
  assert_int_equal(info_of(parts[0]).nodes, 1);
  assert_int_equal(info_of(parts[1]).nodes, 2);
  assert_int_equal(info_of(parts[1]).entries, 2);
  for (int i = 0; i < 2; i++) treadle_resource_pool_destroy(parts[i]);
  treadle_resource_pool_destroy(narrow);
  treadle_resource_pool_destroy(wide);
}

/* [2, 4, 2], the middle one by 1 again. Parts outlive what they are parts of. */
static void splits_are_nested(void **state) {
  (void)state;
  static const int32_t counts[] = {2, 4, 2};
  treadle_resource_pool *pool = pool_of("4,4"), *parts[3], *inner[4];
  assert_ok(treadle_resource_pool_split(pool, counts, 3, parts));
  treadle_resource_pool_destroy(pool);
  assert_ok(treadle_resource_pool_split_evenly(parts[1], 1, inner));
  assert_int_equal(info_of(parts[0]).slots, 2);
  treadle_resource_pool_destroy(parts[1]);
  for (int i = 0; i < 4; i++) {
    treadle_slot slot;
    assert_int_equal(info_of(inner[i]).slots, 1);
    assert_ok(treadle_resource_pool_get_slot(inner[i], 0, &slot));
    assert_int_equal(slot.number, 2 + i);
    assert_int_equal(slot.node, i / 2);
    assert_int_equal(slot.local_rank, (2 + i) % 4);
  }
  assert_string_equal(info_of(inner[3]).name, "all[1][3]");
  assert_int_equal(info_of(parts[2]).slots, 2);
  check_slots(parts[2], "0.0:6 0.1:7");
  for (int i = 0; i < 4; i++) treadle_resource_pool_destroy(inner[i]);
  treadle_resource_pool_destroy(parts[0]);
  treadle_resource_pool_destroy(parts[2]);
}

/* 4 + 4 on one node: devices 0 to 3 and 4 to 7. */
static void merges(void **state) {
  (void)state;
  static const int32_t four[] = {4}, two[] = {2, 2};
  const treadle_resource_pool_spec specs[] = {
      {"rm", four, 1, 0, 0}, {"ref", four, 1, 0, 0}, {"other", two, 2, 0, 0}, {"few", four, 1, 2, 2}};
  int32_t node_of[MOST];
  const size_t slots = machine("8,8", node_of);
  treadle_resource_pool *pools[4], *merged;
  assert_ok(treadle_resource_pool_create(specs, 4, node_of, slots, pools));
  assert_ok(treadle_resource_pool_merge(pools[0], pools[1], &merged));
  assert_string_equal(info_of(merged).name, "rm_ref");
  assert_int_equal(info_of(merged).entries, 2);
  assert_int_equal(info_of(merged).nodes, 1);
  check_slots(merged, "0.0:0 0.1:1 0.2:2 0.3:3 1.0:4 1.1:5 1.2:6 1.3:7");
  for (int rank = 0; rank < 8; rank++) {
    treadle_slot slot;
    assert_ok(treadle_resource_pool_get_slot(merged, rank, &slot));
    assert_int_equal(slot.local_rank, rank);
    assert_int_equal(slot.local_world, 8);
  }
  treadle_resource_pool *const before = merged;
  assert_refused("pools to merge share no slot: slot 4 is in 'rm_ref' and 'ref'",
                 treadle_resource_pool_merge(before, pools[1], &merged));
  assert_null(merged);
  assert_refused("entry 0 of 'rm' has 4, and entry 0 of 'other' 2",
                 treadle_resource_pool_merge(pools[0], pools[2], &merged));
  assert_refused("one max_colocate_count: that of 'rm' is 3, and that of 'few' 2",
                 treadle_resource_pool_merge(pools[0], pools[3], &merged));
  treadle_resource_pool_destroy(before);
  for (int i = 0; i < 4; i++) treadle_resource_pool_destroy(pools[i]);
}

/* ---- Placing ---- */

/* RLinf's row of nodes: local ranks and local worlds. */
static void slots_know_their_node(void **state) {
  (void)state;
  static const int32_t nodes[] = {0, 1, 1, 2}, counts[] = {1, 2, 1}, ranks[] = {0, 0, 1, 0},
                       worlds[] = {1, 2, 2, 1};
  const treadle_resource_pool_spec spec = {.name = "p", .counts = counts, .entries = 3};
  treadle_resource_pool *pool;
  treadle_slot slot;
  assert_ok(treadle_resource_pool_create(&spec, 1, nodes, 4, &pool));
  for (int32_t i = 0; i < 4; i++) {
    assert_ok(treadle_resource_pool_get_slot(pool, i, &slot));
    assert_int_equal(slot.number, i);
    assert_int_equal(slot.node, nodes[i]);
    assert_int_equal(slot.local_rank, ranks[i]);
    assert_int_equal(slot.local_world, worlds[i]);
  }
  assert_refused("pool 'p' has no rank 4: it has 4 slots", treadle_resource_pool_get_slot(pool, 4, &slot));
  assert_refused("pool 'p' has no rank -1", treadle_resource_pool_get_slot(pool, -1, &slot));
  assert_int_equal(info_of(pool).max_colocate_count, 3);
  treadle_resource_pool_destroy(pool);
}

/* Entries go to the first node with room, nodes stand in the order of their first slots, whatever their numbers. */
static void first_node_with_room(void **state) {
  (void)state;
  static const int32_t node_of[] = {5, 0, 5, 0, 0, 5, 5}, a[] = {3}, b[] = {3}, c[] = {1};
  const treadle_resource_pool_spec specs[] = {{"a", a, 1, 0, 0}, {"b", b, 1, 0, 0}, {"c", c, 1, 0, 0}};
  treadle_resource_pool *pools[3];
  assert_ok(treadle_resource_pool_create(specs, 3, node_of, 7, pools));
  check_slots(pools[0], "0.0:0 0.1:2 0.2:5");
  check_slots(pools[1], "0.0:1 0.1:3 0.2:4");
  check_slots(pools[2], "0.0:6"); /* the first node has room again */
  for (int i = 0; i < 3; i++) treadle_resource_pool_destroy(pools[i]);
}

typedef struct refusal {
  const char *nodes, *pools[4], *why; /* pools: "name 8,8" */
} refusal;

static const refusal misfits[] = {
    {"8,8,8,8,8,8",
     {"actor_rollout 8,8,8,8", "reward 8", "critic 8,8"},
     "pool 'critic': Total available slots 48 is less than total desired slots 56"},
    {"8,8,8,8,8,8",
     {"actor_rollout 8,8,8,8", "critic 8,8", "reward 8"},
     "pool 'reward': Total available slots 48 is less than total desired slots 56"},
    {"8,8,8,8,8,4,4",
     {"actor_rollout 8,8,8,8", "critic 8,8"},
     "pool 'critic': no node has room for entry 1, 8 slots that must all be on one node (STRICT_PACK); "
     "free are: 4 on node 5, 4 on node 6"},
    {"1,1,1,1,1,1,1,1,1,1",
     {"a 2"},
     "pool 'a': no node has room for entry 0, 2 slots that must all be on one node (STRICT_PACK); free "
     "are: 1 on node 0, 1 on node 1, 1 on node 2, 1 on node 3, 1 on node 4, 1 on node 5, 1 on node 6, 1 "
     "on node 7 and some on 2 more nodes"},
    {"4", {"a 4", "b 0"}, "pool 'b': entry 0 is of size 0, and must be at least 1"},
    {"4", {"a 2,-1"}, "pool 'a': entry 1 is of size -1, and must be at least 1"},
    {"4", {"a "}, "pool 'a' is empty"},
    {"4", {"a 1", "b 1", "a 1"}, "pool 'a': pools 0 and 2 have this name"},
    {"4", {"a 1048576,1"}, "pool 'a' has more than 1048576 slots"},
};

static void misfits_are_refused(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(misfits); i++) {
    treadle_resource_pool_spec specs[4] = {0};
    int32_t node_of[MOST], counts[4][MOST];
    char names[4][32];
    treadle_resource_pool *pools[4], *const none[4] = {NULL};
    const size_t slots = machine(misfits[i].nodes, node_of);
    size_t count = 0;
    for (; count < 4 && misfits[i].pools[count]; count++) {
      const char *text = misfits[i].pools[count], *space = strchr(text, ' ');
      snprintf(names[count], sizeof *names, "%.*s", (int)(space - text), text);
      specs[count] = (treadle_resource_pool_spec){names[count], counts[count],
                                                  numbers(space + 1, counts[count]), 0, 0};
    }
    memset(pools, 1, sizeof pools);
    assert_refused(misfits[i].why, treadle_resource_pool_create(specs, count, node_of, slots, pools));
    assert_memory_equal(pools, none, count * sizeof *pools);
  }
}

static void other_mistakes_are_refused(void **state) {
  (void)state;
  static const int32_t one[] = {1}, node_of[] = {0, -1};
  treadle_resource_pool_spec spec = {.name = "a", .counts = one, .entries = 1, .groups = 4};
  treadle_resource_pool *pool;
  assert_refused("pool 'a': 4 worker groups with processes of their own on each slot, and "
                 "max_colocate_count is 3",
                 treadle_resource_pool_create(&spec, 1, node_of, 1, &pool));
  assert_null(pool);
  spec.max_colocate_count = 4;
  assert_ok(treadle_resource_pool_create(&spec, 1, node_of, 1, &pool));
  assert_int_equal(info_of(pool).max_colocate_count, 4);
  treadle_resource_pool_destroy(pool);
  spec.max_colocate_count = -1;
  assert_refused("max_colocate_count is -1, and must be at least 1",
                 treadle_resource_pool_create(&spec, 1, node_of, 1, &pool));
  spec.max_colocate_count = spec.groups = 0;
  assert_refused("slot 1 is on node -1", treadle_resource_pool_create(&spec, 1, node_of, 2, &pool));
  assert_refused("0 slots", treadle_resource_pool_create(&spec, 1, node_of, 0, &pool));
  assert_refused("0 pools", treadle_resource_pool_create(&spec, 0, node_of, 1, &pool));
  spec.name = "";
  assert_refused("pool 0 has no name", treadle_resource_pool_create(&spec, 1, node_of, 1, &pool));
}

/* Each allocation fails once: no pool is left behind, and memory is released (the sanitizer looks). */
static void memory_runs_out(void **state) {
  (void)state;
  static const int32_t two[] = {2}, node_of[] = {0, 0, 1, 1}, ones[] = {1, 1};
  const treadle_resource_pool_spec specs[] = {{"a", two, 1, 0, 0}, {"b", two, 1, 0, 0}};
  treadle_resource_pool *pools[2], *parts[2], *merged;
  long failed = 0;
  for (long n = 1;; n++) {
    treadle_alloc_fail_at(n);
    treadle_status status = treadle_resource_pool_create(specs, 2, node_of, 4, pools);
    if (!status) {
      treadle_status split = treadle_resource_pool_split(pools[0], ones, 2, parts);
      if (!split)
        for (int i = 0; i < 2; i++) treadle_resource_pool_destroy(parts[i]);
      else
        assert_null(parts[0]);
      status = treadle_resource_pool_merge(pools[0], pools[1], &merged);
      treadle_resource_pool_destroy(merged);
      for (int i = 0; i < 2; i++) treadle_resource_pool_destroy(pools[i]);
      if (!status && !split) break;
      status = status ? status : split;
    }
    assert_int_equal(status, TREADLE_NO_MEMORY);
    failed++;
  }
  treadle_alloc_fail_at(0);
  assert_in_range(failed, 10, 40);
}

/* ---- Random pools against plain loops ---- */

enum { NODES = 5, POOLS = 3, ENTRIES = 3 };

/* First fit, slot by slot: owner[slot] is the pool, entry and bundle. False: it does not fit; *pool_p is the first that does not. */
static bool place_plainly(const int32_t *node_of, size_t slots, const treadle_resource_pool_spec *specs,
                          int32_t owner[MOST], size_t *pool_p) {
  int32_t order[MOST], nodes = 0;
  for (size_t s = 0; s < slots; s++) {
    bool is_new = true;
    for (int32_t n = 0; n < nodes; n++) is_new = is_new && order[n] != node_of[s];
    if (is_new) order[nodes++] = node_of[s];
    owner[s] = -1;
  }
  for (*pool_p = 0; *pool_p < POOLS; ++*pool_p)
    for (size_t entry = 0; entry < specs[*pool_p].entries; entry++) {
      bool found = false;
      for (int32_t n = 0; n < nodes && !found; n++) {
        int32_t left = 0, bundle = 0;
        for (size_t s = 0; s < slots; s++) left += node_of[s] == order[n] && owner[s] < 0;
        found = left >= specs[*pool_p].counts[entry];
        for (size_t s = 0; found && s < slots && bundle < specs[*pool_p].counts[entry]; s++)
          if (node_of[s] == order[n] && owner[s] < 0)
            owner[s] = (int32_t)(*pool_p * 10000 + entry * 100) + bundle++;
      }
      if (!found) return false;
    }
  return true;
}

static void placing_is_first_fit(void **state) {
  (void)state;
  const int seeds = (int)test_seeds(2000);
  int placed = 0;
  treadle_random random = {.state =
                               getenv("TREADLE_SEED") ? strtoull(getenv("TREADLE_SEED"), NULL, 10) : 1};
  for (int seed = 0; seed < seeds; seed++) {
    static const char *const names[POOLS] = {"x", "y", "z"};
    int32_t node_of[MOST], counts[POOLS][ENTRIES], owner[MOST];
    treadle_resource_pool_spec specs[POOLS] = {0};
    treadle_resource_pool *pools[POOLS];
    const size_t slots = (size_t)treadle_random_between(&random, 1, 24);
    size_t misfit;
    for (size_t s = 0; s < slots; s++) node_of[s] = (int32_t)treadle_random_below(&random, NODES) * 3;
    for (int p = 0; p < POOLS; p++) {
      specs[p] = (treadle_resource_pool_spec){names[p], counts[p],
                                              (size_t)treadle_random_between(&random, 1, ENTRIES), 0, 0};
      for (size_t e = 0; e < specs[p].entries; e++)
        counts[p][e] = (int32_t)treadle_random_between(&random, 1, 4);
    }
    const bool fits = place_plainly(node_of, slots, specs, owner, &misfit);
    const treadle_status status = treadle_resource_pool_create(specs, POOLS, node_of, slots, pools);
    if (!fits) {
      char begin[16];
      snprintf(begin, sizeof begin, "pool '%s'", names[misfit]);
      assert_int_equal(status, TREADLE_REFUSED);
      assert_non_null(strstr(treadle_error_message(), begin));
      continue;
    }
    assert_ok(status);
    placed++;
    for (int p = 0; p < POOLS; p++) {
      for (int32_t rank = 0; rank < info_of(pools[p]).slots; rank++) {
        treadle_slot slot;
        assert_ok(treadle_resource_pool_get_slot(pools[p], rank, &slot));
        assert_int_equal(owner[slot.number], p * 10000 + slot.entry * 100 + slot.bundle);
        assert_int_equal(slot.node, node_of[slot.number]);
      }
      treadle_resource_pool_destroy(pools[p]);
    }
  }
  assert_in_range(placed, seeds / 20, seeds);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(splits_evenly),         cmocka_unit_test(splits_by_counts),
      cmocka_unit_test(splits_are_nested),     cmocka_unit_test(merges),
      cmocka_unit_test(slots_know_their_node), cmocka_unit_test(first_node_with_room),
      cmocka_unit_test(misfits_are_refused),   cmocka_unit_test(other_mistakes_are_refused),
      cmocka_unit_test(memory_runs_out),       cmocka_unit_test(placing_is_first_fit)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
