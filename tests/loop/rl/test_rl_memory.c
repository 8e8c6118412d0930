/* What roles of a run hold on the ranks of their pools: each pool by itself and the whole run say the same; roles that share ranks are called one at a time,
 * beside what the others leave there; a budget is kept by each rank, by name and to the byte, and the KV cache of Rollout takes what is left. */
#include "rl/memory.h"
#include "test.h"

#include "treadle_control.h"

enum { MOST = 16 };

#define MODEL TREADLE_SOURCE_DIR "/examples/sequence/policy/config.json"
#define RUN(kv, critic)                                                                                    \
  "megatron_training: {bf16: true, global_batch_size: 4}\n"                                                \
  "rl_config: {adv_estimator: gae, n_samples_per_prompt: 2, use_kl_loss: true, max_prompt_length: 8}\n"    \
  "generate_config: {kv_memory: " kv ", gpu_memory_utilization: 1, sampling_config: {max_tokens: 8}}\n"    \
  "actor_config: {model: " MODEL ", micro_batch_size: 2, tensor_model_parallel_size: 2}\n"                 \
  "reward_config: {model: " MODEL ", tensor_model_parallel_size: 1}\n"                                     \
  "critic_config: {" critic "}\n"
#define POOLS(pools, mapping)                                                                              \
  "resource_pools: {" pools "}\nmapping: {" mapping "}\n" RUN("64KiB", "tensor_model_parallel_size: 1")

static treadle_train_config *parse(const char *text, const char *override) {
  treadle_train_config *config;
  assert_ok(treadle_train_config_parse("run.yaml", text, strlen(text), &override, override ? 1 : 0,
                                       TREADLE_RUN_RL, &config));
  return config;
}

static const treadle_rl_options options = {.struct_size = sizeof options, .threads = 1};

/* Of a pool by name. */
static treadle_rl_pool_memory memory_of(const char *text, const char *override, const char *name,
                                        int32_t ranks[MOST], int32_t *count) {
  treadle_rl_pools_info all = TREADLE_INIT(treadle_rl_pools_info);
  treadle_rl_pool_memory memory = TREADLE_INIT(treadle_rl_pool_memory);
  treadle_train_config *config = parse(text, override);
  treadle_rl_pools *pools;
  bool found = false;
  assert_ok(treadle_rl_pools_create(config, NULL, 0, &pools));
  treadle_rl_pools_get_info(pools, &all);
  for (int32_t i = 0; i < all.count; i++) {
    treadle_rl_pool_info one = TREADLE_INIT(treadle_rl_pool_info);
    treadle_resource_pool_info info = TREADLE_INIT(treadle_resource_pool_info);
    assert_ok(treadle_rl_pools_get_pool(pools, i, &one));
    treadle_resource_pool_get_info(one.pool, &info);
    if (strcmp(info.name, name) != 0) continue;
    found = true;
    *count = info.slots;
    for (int32_t rank = 0; rank < info.slots; rank++) {
      treadle_slot slot;
      assert_ok(treadle_resource_pool_get_slot(one.pool, rank, &slot));
      ranks[rank] = all.first_rank + slot.number;
    }
    assert_ok(treadle_rl_pools_foresee_roles(pools, config, &options, i, &memory));
  }
  assert_true(found);
  treadle_rl_pools_destroy(pools);
  treadle_train_config_destroy(config);
  return memory;
}

static treadle_rl_pool_memory alone(const char *text, const char *override, const char *name) {
  int32_t ranks[MOST], count;
  return memory_of(text, override, name, ranks, &count);
}

static size_t sum_of(const size_t *bytes) {
  size_t sum = 0;
  for (int c = 0; c < TREADLE_CLASSES; c++) sum += bytes[c];
  return sum;
}

/* ---- Pools and the run ---- */

#define APART                                                                                              \
  POOLS("critic: [1], policy: [2], others: [2]",                                                           \
        "ActorRollout: policy, Critic: critic, RewardModel: others, RefPolicy: others")
#define SIDES                                                                                              \
  POOLS("rollout: [2], critic: [2], ref: [2], actor: [2]",                                                 \
        "Actor: actor, Rollout: rollout, Critic: critic, RewardModel: critic, RefPolicy: ref")
#define TOGETHER POOLS("all: [2]", "ActorRollout: all, Critic: all, RewardModel: all, RefPolicy: all")

static const struct {
  const char *text;
  int64_t ranks;
  const char *pools[5];
} runs[] = {{APART, 6, {"critic", "policy", "others"}},
            {SIDES, 9, {"rollout", "critic", "ref", "actor"}},
            {TOGETHER, 2, {"all"}}};

/* With the controller apart it is rank 0, and has nothing. */
static void pools_are_the_run(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(runs); i++) {
    treadle_train_config *config = parse(runs[i].text, NULL);
    treadle_actor_memory by_rank[MOST];
    memset(by_rank, 0xff, sizeof by_rank);
    assert_ok(treadle_rl_foresee(config, runs[i].ranks, &options, by_rank));
    if (i < 2) assert_int_equal(by_rank[0].peak_bytes, 0);
    for (int p = 0; runs[i].pools[p]; p++) {
      int32_t ranks[MOST], count;
      size_t most = 0, sum = 0, largest = 0;
      const treadle_rl_pool_memory m = memory_of(runs[i].text, NULL, runs[i].pools[p], ranks, &count);
      for (int32_t r = 0; r < count; r++)
        if (by_rank[ranks[r]].peak_bytes > most) most = by_rank[ranks[r]].peak_bytes;
      assert_true(m.is_known && m.fits && !m.room);
      assert_int_equal(m.bytes, most);
      for (int role = 0; role < TREADLE_POOL_ROLES; role++) {
        sum += m.role_bytes[role];
        if (m.role_bytes[role] > largest) largest = m.role_bytes[role];
      }
      assert_in_range(m.bytes, largest, sum);
    }
    treadle_train_config_destroy(config);
  }
}

/* Who trains has no cache, and who generates neither gradients nor an optimizer. */
static void sides_have_their_own(void **state) {
  (void)state;
  treadle_train_config *config = parse(SIDES, NULL);
  treadle_actor_memory by_rank[MOST];
  const treadle_rl_pool_memory actor = alone(SIDES, NULL, "actor"), rollout = alone(SIDES, NULL, "rollout");
  assert_int_equal(actor.role_bytes[TREADLE_POOL_ROLE_ACTOR], actor.bytes);
  assert_int_equal(rollout.role_bytes[TREADLE_POOL_ROLE_ROLLOUT], rollout.bytes);
  assert_int_equal(actor.kv_blocks, 0);
  assert_true(rollout.kv_blocks > 0);
  assert_ok(treadle_rl_foresee(config, 9, &options, by_rank));
  for (int rank = 1; rank < 9; rank++) { /* rollout, critic, ref, actor */
    const size_t *infer = by_rank[rank].by_mode[TREADLE_INFER];
    assert_true((infer[TREADLE_KV] > 0) == (rank <= 2));
    assert_true((infer[TREADLE_OPTIMIZER] > 0) == (rank >= 7));
  }
  treadle_train_config_destroy(config);
}

/* ---- Roles that share ranks ---- */

/* A reference that stays on the device is there while the critic is trained, which takes more than the reference's own call. */
static void calls_come_one_at_a_time(void **state) {
  (void)state;
  static const char both[] =
      POOLS("policy: [2], critic: [2]",
            "ActorRollout: policy, Critic: critic, RefPolicy: critic, RewardModel: policy");
  static const char each[] =
      POOLS("policy: [2], critic: [2], ref: [2]",
            "ActorRollout: policy, Critic: critic, RefPolicy: ref, RewardModel: policy");
  static const char *const stays = "ref_config.offload_param=false";
  treadle_train_config *config = parse(each, stays);
  treadle_actor_memory by_rank[MOST];
  const treadle_rl_pool_memory shared = alone(both, stays, "critic"), critic = alone(each, stays, "critic"),
                               gone = alone(both, NULL, "critic");
  assert_ok(treadle_rl_foresee(config, 7, &options, by_rank));
  const size_t rest = sum_of(by_rank[5].by_mode[TREADLE_FORWARD]);
  assert_true(by_rank[5].by_mode[TREADLE_FORWARD][TREADLE_PARAMS] > 0);
  assert_int_equal(shared.bytes, critic.bytes + rest);
  assert_true(gone.bytes < shared.bytes);
  assert_int_equal(shared.role_bytes[TREADLE_POOL_ROLE_CRITIC], critic.bytes);
  treadle_train_config_destroy(config);
}

/* ---- A budget ---- */

static void set(char override[64], size_t bytes) {
  snprintf(override, 64, "generate_config.device_memory=%zu", bytes);
}

/* To the byte: the run, and its pool; the others do not count. */
static void check_edge(const char *text, int64_t ranks, const char *name, size_t bytes, const char *why) {
  treadle_actor_memory by_rank[MOST];
  char override[64], words[256];
  set(override, bytes);
  treadle_train_config *config = parse(text, override);
  assert_ok(treadle_rl_foresee(config, ranks, &options, by_rank));
  treadle_train_config_destroy(config);
  assert_true(alone(text, override, name).fits);

  set(override, bytes - 1);
  config = parse(text, override);
  snprintf(words, sizeof words, "leaves %zu bytes, and %s needs %zu: ", bytes - 1, why, bytes);
  assert_refused(words, treadle_rl_foresee(config, ranks, &options, by_rank));
  for (int rank = 1; rank < ranks; rank++) assert_true(by_rank[rank].peak_bytes > 0);
  treadle_train_config_destroy(config);
  assert_false(alone(text, override, name).fits);
}

#define FOUR                                                                                               \
  "resource_pools: {rollout: [2], critic: [2], ref: [2], actor: [2]}\n"                                    \
  "mapping: {Actor: actor, Rollout: rollout, Critic: critic, RewardModel: ref, RefPolicy: ref}\n"

/* Each of a run in which that pool needs the most. */
static void budgets_hold_all_pools(void **state) {
  (void)state;
  static const struct {
    const char *text, *name, *why;
  } all[] = {{FOUR RUN("64KiB", "tensor_model_parallel_size: 1, micro_batch_size: 8"), "critic",
              "rank 3 of Critic (pool 'critic')"},
             {FOUR RUN("64KiB", "micro_batch_size: 1"), "actor", "rank 7 of Actor (pool 'actor')"},
             {FOUR RUN("64MiB", "micro_batch_size: 1"), "rollout", "rank 1 of Rollout (pool 'rollout')"}};
  for (size_t i = 0; i < TEST_COUNT(all); i++)
    check_edge(all[i].text, 9, all[i].name, alone(all[i].text, NULL, all[i].name).bytes, all[i].why);
}

/* What the trainer has on its own ranks takes nothing from the cache. */
static void caches_take_the_rest(void **state) {
  (void)state;
  char override[64];
  const treadle_rl_pool_memory critic = alone(SIDES, NULL, "critic"), actor = alone(SIDES, NULL, "actor"),
                               before = alone(SIDES, NULL, "rollout");
  const size_t room = (critic.bytes > actor.bytes ? critic.bytes : actor.bytes) + before.bytes;
  set(override, room);
  const treadle_rl_pool_memory after = alone(SIDES, override, "rollout");
  const size_t block = (after.bytes - before.bytes) / (size_t)(after.kv_blocks - before.kv_blocks);
  assert_true(after.fits && after.bytes <= room && after.bytes + 2 * block > room);
  assert_int_equal(alone(SIDES, override, "actor").bytes, actor.bytes);
  assert_int_equal(alone(SIDES, override, "critic").bytes, critic.bytes);
}

/* ---- Not known, refused ---- */

static void models_are_needed(void **state) {
  (void)state;
  static const char idle[] = POOLS("policy: [2], critic: [2], reward: [1]",
                                   "ActorRollout: policy, RefPolicy: policy, Critic: critic, RewardModel: "
                                   "reward");
  static const char strange[] =
      POOLS("actor: [2], rollout: [2], critic: [2]",
            "Actor: actor, Rollout: rollout, Critic: critic, RewardModel: rollout, RefPolicy: actor");
  static const char trainers[] = POOLS("actor: [2], rollout: [2]",
                                       "Actor: actor, Rollout: rollout, Critic: actor, RewardModel: actor, "
                                       "RefPolicy: actor");
  assert_false(alone(idle, "rl_config.adv_estimator=group_norm", "critic").is_known);
  assert_false(alone(idle, "reward_config.model=null", "reward").is_known);
  assert_true(alone(idle, "reward_config.model=null", "policy").is_known);
  assert_false(alone(strange, NULL, "rollout").is_known);
  assert_true(alone(trainers, NULL, "actor").is_known);
}

static void ranks_are_those_of_the_pools(void **state) {
  (void)state;
  treadle_actor_memory by_rank[MOST];
  treadle_train_config *config = parse(SIDES, NULL);
  assert_refused(
      "resource_pools (line 1) asks for 8 slots, and the controller is a process of its own: plan "
      "with --ranks 9",
      treadle_rl_foresee(config, 8, &options, by_rank));
  treadle_train_config_destroy(config);
  config = parse(TOGETHER, NULL); /* one pool, and one process more */
  assert_ok(treadle_rl_foresee(config, 3, &options, by_rank));
  assert_int_equal(by_rank[0].peak_bytes, 0);
  assert_int_equal(by_rank[1].peak_bytes, alone(TOGETHER, NULL, "all").bytes);
  treadle_train_config_destroy(config);
}

/* Allocations fail, one after the other, and nothing is left behind (the sanitizer looks). */
static void memory_runs_out(void **state) {
  (void)state;
  treadle_train_config *config = parse(SIDES, NULL);
  treadle_rl_pools *pools;
  treadle_status status = TREADLE_NO_MEMORY;
  long failed = 0;
  assert_ok(treadle_rl_pools_create(config, NULL, 0, &pools));
  for (long n = 1; status; n += 1 + n / 20) {
    treadle_rl_pool_memory memory = TREADLE_INIT(treadle_rl_pool_memory);
    treadle_alloc_fail_at(n);
    status = treadle_rl_pools_foresee_roles(pools, config, &options, 1, &memory);
    treadle_alloc_fail_at(0);
    if (status) assert_int_equal(status, TREADLE_NO_MEMORY);
    assert_true(memory.is_known == !status);
    failed += status != TREADLE_OK;
  }
  assert_in_range(failed, 60, 400);
  treadle_rl_pools_destroy(pools);
  treadle_train_config_destroy(config);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(pools_are_the_run),
                                     cmocka_unit_test(sides_have_their_own),
                                     cmocka_unit_test(calls_come_one_at_a_time),
                                     cmocka_unit_test(budgets_hold_all_pools),
                                     cmocka_unit_test(caches_take_the_rest),
                                     cmocka_unit_test(models_are_needed),
                                     cmocka_unit_test(ranks_are_those_of_the_pools),
                                     cmocka_unit_test(memory_runs_out)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
