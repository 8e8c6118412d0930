/* Pools of a configuration: which pools each of the four forms makes, on which slots, with which roles; what is refused; and which pools a run may
 * have today. */
#include "base/alloc.h"
#include "rl/pools.h"
#include "run/config.h"
#include "test.h"

#include <stdarg.h>

enum { MOST = 64, ROOM = 2048 };

static treadle_status parse(const char *text, const char *override, treadle_train_config **config_p) {
  return treadle_train_config_parse("run.yaml", text, strlen(text), &override, override ? 1 : 0,
                                    TREADLE_RUN_POOLS, config_p);
}

static treadle_status place(const treadle_train_config *config, const char *nodes, treadle_rl_pools **p) {
  int32_t counts[MOST];
  size_t count = 0;
  while (nodes && *nodes) {
    counts[count++] = (int32_t)strtol(nodes, (char **)&nodes, 10);
    nodes += *nodes == ',';
  }
  return treadle_rl_pools_create(config, counts, count, p);
}

static void add(char *text, const char *format, ...) {
  va_list list;
  va_start(list, format);
  vsnprintf(text + strlen(text), ROOM - strlen(text), format, list);
  va_end(list);
}

/* "critic 32-47/2 Critic; ": name, slots, entries, roles. */
static void describe(const treadle_rl_pools *pools, char text[ROOM]) {
  treadle_rl_pools_info all = TREADLE_INIT(treadle_rl_pools_info);
  treadle_rl_pools_get_info(pools, &all);
  *text = 0;
  for (int32_t i = 0; i < all.count; i++) {
    treadle_rl_pool_info one = TREADLE_INIT(treadle_rl_pool_info);
    treadle_resource_pool_info info = TREADLE_INIT(treadle_resource_pool_info);
    treadle_slot slot, before = {.number = -2};
    assert_ok(treadle_rl_pools_get_pool(pools, i, &one));
    treadle_resource_pool_get_info(one.pool, &info);
    add(text, "%s%s ", i ? "; " : "", info.name);
    for (int32_t rank = 0, first = 0; rank < info.slots; rank++, before = slot) {
      assert_ok(treadle_resource_pool_get_slot(one.pool, rank, &slot));
      const bool is_new = slot.number != before.number + 1;
      if (is_new && rank && before.number > first) add(text, "-%d", before.number);
      if (is_new) add(text, "%s%d", rank ? "," : "", slot.number);
      if (is_new) first = slot.number;
      if (rank == info.slots - 1 && slot.number > first) add(text, "-%d", slot.number);
    }
    add(text, "/%d", info.entries);
    for (int32_t r = 0; r < one.role_count; r++) add(text, " %s", treadle_pool_role_name(one.roles[r]));
  }
}

#define S4                                                                                                 \
  "resource_pools:\n  actor_rollout: [8, 8, 8, 8]\n  critic: [8, 8]\n  reward: [8]\n"                      \
  "mapping:\n  ActorRollout: actor_rollout\n  Critic: critic\n  RewardModel: reward\n"
#define KL     "rl_config: {use_kl_loss: true}\n"
#define PLACES "cluster:\n  component_placement: "

static const struct {
  const char *text, *override, *nodes, *wanted;
} good[] = {
    {"{}", NULL, NULL, "all 0/1 ActorRollout"},
    {KL, NULL, "4,4", "all 0-7/2 ActorRollout RefPolicy"},
    {S4, NULL, NULL, NULL}, /* one node with all slots: wanted below */
    {S4, NULL, "8,8,8,8,8,8,8",
     "actor_rollout 0-31/4 ActorRollout; critic 32-47/2 Critic; reward 48-55/1 RewardModel"},
    {S4, NULL, "16,16,16,8", /* two entries on a node */
     "actor_rollout 0-31/4 ActorRollout; critic 32-47/2 Critic; reward 48-55/1 RewardModel"},
    /* the file's order, of pools and of roles; null takes away */
    {"mapping: {RefPolicy: z, Rollout: a, Actor: z, Critic: null}\nresource_pools: {z: [1], a: [2], n: "
     "null}\n",
     NULL, NULL, "z 0/1 RefPolicy Actor; a 1-2/1 Rollout"},
    {S4, "resource_pools.critic=null", NULL, NULL},
    {S4, "resource_pools.reward=[4]", "8,8,8,8,8,8,8",
     "actor_rollout 0-31/4 ActorRollout; critic 32-47/2 Critic; reward 48-51/1 RewardModel"},
    /* first node with room, and slots that no pool takes are left out */
    {"resource_pools: {a: [4], b: [8], c: [4]}\nmapping: {ActorRollout: b, Critic: a, RewardModel: c}\n",
     NULL, "8,8", "a 0-3/1 Critic; b 8-15/1 ActorRollout; c 4-7/1 RewardModel"},
    {"resource_pools: {a: [3], b: [8]}\nmapping: {ActorRollout: b, Critic: a}\n", NULL, "2,8,9",
     "a 0-2/1 Critic; b 3-10/1 ActorRollout"},

    {"trainer: {nnodes: 2, n_gpus_per_node: 4}\n", NULL, "8", "global_pool 0-7/2 ActorRollout"},
    {"trainer: {nnodes: 2}\n" KL, NULL, "8,8", "global_pool 0-15/2 ActorRollout RefPolicy"},
    {"{}", "trainer.n_gpus_per_node=2", NULL, "global_pool 0-1/1 ActorRollout"},

    {"rl_config: {actor_resource: {num_npus: 8}, use_integrated_worker: true, use_kl_loss: true}\n", NULL,
     "4,4", "actor 0-7/2 ActorRollout RefPolicy"},
    {"rl_config: {actor_resource: {num_npus: 6}, reference_resource: {num_npus: 2}, reward_resource: "
     "{num_npus: 4}, "
     "critic_resource: {num_npus: 4}, use_integrated_worker: false}\n",
     NULL, "8,8",
     "actor 0-5/1 ActorRollout; reference 6-7/1 RefPolicy; reward 8-11/1 RewardModel; critic 12-15/1 "
     "Critic"},
    {"rl_config: {actor_resource: {num_npus: 10}, critic_resource: {num_npus: 4}, reward_resource: null}\n",
     NULL, "8,8", "actor 0-9/2 ActorRollout; critic 10-13/1 Critic"},

    {PLACES "{\"actor,rollout,reward\": 0-3}\n", NULL, NULL,
     "actor,rollout,reward 0-3/1 ActorRollout RewardModel"},
    {PLACES "{actor: 0-3, rollout: 0-3}\n" KL, NULL, "4", "actor,rollout 0-3/1 ActorRollout RefPolicy"},
    {PLACES "{actor: 4-7, rollout: \"0-2,3\"}\n", NULL, "8", "actor 4-7/1 Actor; rollout 0-3/1 Rollout"},
    {PLACES "{actor: \"0-1,4-5\", rollout: \"2-3,6-7\"}\n", NULL, "4,4",
     "actor 0-1,4-5/2 Actor; rollout 2-3,6-7/2 Rollout"},
    {PLACES "{actor: 2-5, \"rollout , critic\": 7}\n", NULL, "4,4",
     "actor 0-3/2 Actor; rollout , critic 4/1 Rollout Critic"},
    {PLACES "{actor: {node_group: cluster, placement: 0-1}, rollout: \"2-3:0-1\"}\n", NULL, NULL,
     "actor 0-1/1 Actor; rollout 2-3/1 Rollout"},
    {PLACES "{\"actor,rollout\": all}\n", NULL, "4,2", "actor,rollout 0-5/2 ActorRollout"},
    {PLACES "{actor: 0-3}\n", "cluster.component_placement.rollout=4-5", NULL,
     "actor 0-3/1 Actor; rollout 4-5/1 Rollout"},
};

static void forms_make_pools(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(good); i++) {
    treadle_train_config *config;
    treadle_rl_pools *pools;
    char text[ROOM];
    if (!good[i].wanted && good[i].override) {
      assert_refused(
          "role Critic has pool 'critic', which is not among those of resource_pools.critic (override): "
          "'actor_rollout', 'reward'",
          parse(good[i].text, good[i].override, &config));
      continue;
    }
    assert_ok(parse(good[i].text, good[i].override, &config));
    assert_ok(place(config, good[i].nodes, &pools));
    describe(pools, text);
    assert_string_equal(text, good[i].wanted ? good[i].wanted
                                             : "actor_rollout 0-31/4 ActorRollout; critic 32-47/2 Critic; "
                                               "reward 48-55/1 RewardModel");
    treadle_rl_pools_destroy(pools);
    treadle_train_config_destroy(config);
  }
}

#define OWN(pools, mapping) "resource_pools: " pools "\nmapping: " mapping "\n"

static const struct {
  const char *text, *why;
} bad[] = {
    {"resource_pools: {a: [1]}\n",
     "run.yaml: resource_pools (line 1) says which pools there are, and no mapping"},
    {"mapping: {ActorRollout: a}\n",
     "run.yaml: mapping (line 1) says which role works in which pool, and no resource_pools"},
    {"resource_pools: [1]\n", "run.yaml:1: resource_pools must be a map"},
    {OWN("{a: 8}", "{ActorRollout: a}"), "resource_pools (line 1): pool 'a' must be a list of counts"},
    {OWN("{a: []}", "{ActorRollout: a}"), "pool 'a' is empty"},
    {OWN("{a: [4, 0]}", "{ActorRollout: a}"), "pool 'a': entry 1 is of size 0, and must be at least 1"},
    {OWN("{a: [-4]}", "{ActorRollout: a}"), "pool 'a': entry 0 is of size -4, and must be at least 1"},
    {OWN("{a: [1.5]}", "{ActorRollout: a}"), "pool 'a': entry 0 must be a whole number"},
    {OWN("{a: [1048576, 1]}", "{ActorRollout: a}"), "pool 'a' has more than 1048576 slots"},
    {OWN("{'': [1]}", "{ActorRollout: ''}"), "a pool has no name"},
    {OWN("{a: null}", "{ActorRollout: a}"), "resource_pools (line 1) has no pools"},
    {OWN("{a: [1]}", "{ActorRollout: b}"), "mapping (line 2): role ActorRollout has pool 'b', which is not "
                                           "among those of resource_pools (line 1): 'a'"},
    {OWN("{a: [1]}", "{ActorRolout: a}"),
     "mapping (line 2): there is no role 'ActorRolout'; did you mean 'ActorRollout'?"},
    {OWN("{a: [1]}", "{Env: a}"),
     "there is no role 'Env'; there are ActorRollout, Actor, Rollout, Critic, RefPolicy and"},
    {OWN("{a: [1]}", "{ActorRollout: [a]}"), "role ActorRollout must have the name of a pool"},
    {OWN("{a: [1], spare: [2]}", "{ActorRollout: a}"), "resource_pools (line 1): pool 'spare' has no role"},
    {OWN("{a: [1], b: [2]}", "{ActorRollout: a, Actor: b}"),
     "roles ActorRollout in pool 'a' and Actor in pool 'b' would both train the policy: give one of them"},
    {OWN("{a: [1]}", "{ActorRollout: a, Rollout: a}"),
     "roles ActorRollout in pool 'a' and Rollout in pool 'a' would both generate"},
    {OWN("{a: [1]}", "{Critic: a}"), "role ActorRollout has no pool, and neither have Actor and Rollout"},
    {OWN("{a: [1]}", "{Actor: a}"), "role Rollout has no pool, and role Actor is in pool 'a'"},
    {OWN("{a: [1]}", "{Rollout: a}"), "role Actor has no pool, and role Rollout is in pool 'a'"},
    {OWN("{a: [1]}", "{ActorRollout: a}") KL,
     "role RefPolicy has no pool, and rl_config.use_kl_loss (line 3) needs a reference"},
    {OWN("{a: [1]}", "{ActorRollout: a}") "max_colocate_count: 0\n",
     "run.yaml:3: max_colocate_count is '0'"},
    {OWN("{a: [1]}", "{ActorRollout: a}") "resource_pool: {a: [1]}\n",
     "run.yaml:3: resource_pool: there is no such section"},

    {OWN("{a: [1]}", "{ActorRollout: a}") "trainer: {nnodes: 1}\n",
     "run.yaml: resource_pools (line 1) and trainer.nnodes (line 3) both say which pools there are: give "
     "one of them"},
    {"rl_config: {actor_resource: {num_npus: 8}}\ntrainer: {n_gpus_per_node: 8}\n",
     "rl_config.actor_resource.num_npus (line 1) and trainer.n_gpus_per_node (line 2) both say"},
    {PLACES "{actor: 0}\ntrainer: {nnodes: 1}\n",
     "trainer.nnodes (line 3) and cluster.component_placement (line 2) both say"},
    {"mapping: {ActorRollout: a}\n" PLACES "{actor: 0}\n",
     "mapping (line 1) and cluster.component_placement (line 3) both say"},

    {"trainer: {nnodes: 0}\n", "run.yaml:1: trainer.nnodes is '0', and must be a whole number, 1 to"},
    {"trainer: {nnodes: 1000000}\n",
     "trainer.nnodes (line 1): 1000000 nodes of 8 slots are more than 1048576"},

    {"rl_config: {reference_resource: {num_npus: 8}}\n",
     "rl_config.reference_resource.num_npus (line 1) must not be given, as rl_config.use_integrated_worker "
     "(default) is true"},
    {"rl_config: {critic_resource: {num_npus: 8}}\n",
     "rl_config.critic_resource.num_npus (line 1) is given, and rl_config.actor_resource.num_npus is not"},
    {"rl_config: {actor_resource: {num_npus: 8}, use_integrated_worker: false, use_kl_loss: true}\n",
     "rl_config.actor_resource.num_npus (line 1): role RefPolicy has no pool"},
    {"rl_config: {actor_resource: {num_npus: 0}}\n", "rl_config.actor_resource.num_npus is '0'"},

    {PLACES "{rollout: 0-3}\n", "cluster.component_placement (line 2): Actor GPUs are not given"},
    {PLACES "{actor: 0-3}\n", "cluster.component_placement (line 2): Rollout GPUs are not given"},
    {PLACES "{actor: 0-1, rollout: 2-5, inference: 6-7}\n",
     "run.yaml: cluster.component_placement.inference: component 'inference' has no place here"},
    {PLACES "{\"actor,inference\": 0-1, rollout: 2-5}\n", "component 'inference' has no place here"},
    {PLACES "{actor: 0-3, rollout: 2-5}\n",
     "cluster.component_placement.rollout: 'actor' and 'rollout' have some accelerators in common"},
    {PLACES "{actor: 0-3, rollout: all}\n", "one of 'actor' and 'rollout' has all accelerators"},
    {PLACES "{actor: 0-3, rollout: 4-5, env: 6}\n",
     "there is no component 'env' here; there are actor, rollout"},
    {PLACES "{actr: 0-3}\n", "there is no component 'actr' here; did you mean 'actor'?"},
    {PLACES "{actor: 0-1, \"rollout,actor\": 2}\n", "component 'actor' has a place already"},
    {PLACES "{\"actor,actor\": 2}\n", "names component 'actor' twice"},
    {PLACES "{actor: \"0-1:0-3\", rollout: 2}\n",
     "cluster.component_placement.actor: there is a process on each accelerator here, and it has 4 on 2"},
    {PLACES "{actor: \"0-1,1-2\", rollout: 3}\n", "Resource ranks must be unique"},
    {PLACES "{actor: \"0-0:0,1-1:2\", rollout: 3}\n", "Process ranks must be in ascending order"},
    {PLACES "{actor: \"2,0\", rollout: 3}\n", "accelerators must ascend, and 0 stands after 2"},
    {PLACES "{actor: '', rollout: 3}\n", "cluster.component_placement.actor must not be empty"},
    {PLACES "{actor: [1], rollout: 3}\n", "cluster.component_placement.actor must be accelerators"},
    {PLACES "{actor: {node_group: train, placement: 0}, rollout: 3}\n",
     "ranks of a group of nodes are not known here"},
    {PLACES "{actor: 9999999, rollout: 3}\n", "accelerator 9999999 is more than 1048575"},
    {PLACES "0-3\n", "cluster.component_placement must be a map"},
};

static void mistakes_are_refused(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(bad); i++) {
    treadle_train_config *config;
    assert_refused(bad[i].why, parse(bad[i].text, NULL, &config));
    assert_null(config);
  }
}

static const struct {
  const char *text, *nodes, *why;
} misfits[] = {
    {S4, "8,8,8,8,8,8", "pool 'reward': Total available slots 48 is less than total desired slots 56"},
    {"resource_pools: {actor_rollout: [8, 8, 8, 8], reward: [8], critic: [8, 8]}\n"
     "mapping: {ActorRollout: actor_rollout, Critic: critic, RewardModel: reward}\n",
     "8,8,8,8,8,8", "pool 'critic': Total available slots 48 is less than total desired slots 56"},
    {S4, "8,8,8,8,4,4,4,4,8",
     "pool 'critic': no node has room for entry 1, 8 slots that must all be on one node"},
    {"trainer: {nnodes: 2, n_gpus_per_node: 8}\n", "4,4,4,4",
     "pool 'global_pool': no node has room for entry 0"},
    {"rl_config: {actor_resource: {num_npus: 6}, critic_resource: {num_npus: 4}}\n", "4,4",
     "pool 'critic': Total available slots 8 is less than total desired slots 10"},
    {PLACES "{actor: 0-3, rollout: 4-9}\n", "8",
     "pool 'rollout': slot 9 is out of range: there are 8, 0 to 7"},
    {S4, "8,-1", "node 1 has -1 slots, and must have at least 0"},
    {S4, "8,0", "Total available slots 8 is less than total desired slots 56"},
    {S4, "1048576,1", "more than 1048576 slots, which is the most"},
};

static void nodes_are_too_small(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(misfits); i++) {
    treadle_train_config *config;
    treadle_rl_pools *pools;
    assert_ok(parse(misfits[i].text, NULL, &config));
    assert_refused(misfits[i].why, place(config, misfits[i].nodes, &pools));
    assert_null(pools);
    treadle_train_config_destroy(config);
  }
}

/* The settled text gives the same pools. */
static void settled_text_is_the_same(void **state) {
  (void)state;
  static const char *const samples = "rl_config.n_samples_per_prompt=2";
  static const char *const texts[] = {S4 "max_colocate_count: 2\n", PLACES "{rollout: 4-7, actor: 0-3}\n",
                                      "trainer: {nnodes: 2, n_gpus_per_node: 4}\n",
                                      "rl_config: {actor_resource: {num_npus: 4}}\n", "{}"};
  for (size_t i = 0; i < TEST_COUNT(texts); i++) {
    treadle_train_config *config, *again;
    treadle_rl_pools *pools;
    char *text, before[ROOM], after[ROOM];
    assert_ok(treadle_train_config_parse("run.yaml", texts[i], strlen(texts[i]), &samples, 1,
                                         TREADLE_RUN_RL, &config));
    assert_ok(place(config, NULL, &pools));
    describe(pools, before);
    treadle_rl_pools_destroy(pools);
    assert_ok(treadle_train_config_text(config, &text));
    assert_ok(
        treadle_train_config_parse("again.yaml", text, strlen(text), NULL, 0, TREADLE_RUN_RL, &again));
    assert_ok(place(again, NULL, &pools));
    describe(pools, after);
    assert_string_equal(before, after);
    assert_int_equal(again->settings.resources.max_colocate_count, i ? 3 : 2);
    treadle_rl_pools_destroy(pools);
    free(text);
    treadle_train_config_destroy(again);
    treadle_train_config_destroy(config);
  }
}

static void controllers(void **state) {
  (void)state;
  treadle_train_config *config;
  treadle_rl_pools *pools;
  treadle_rl_pools_info info = TREADLE_INIT(treadle_rl_pools_info);
  assert_ok(parse(S4, NULL, &config));
  assert_ok(place(config, "8,8,8,8,8,8,12,3", &pools));
  treadle_rl_pools_get_info(pools, &info);
  assert_string_equal(info.place, "resource_pools (line 1)");
  assert_int_equal(info.slots, 56);
  assert_int_equal(info.nodes, 7);
  assert_int_equal(info.idle, 7);
  assert_int_equal(info.controller, 0);
  assert_int_equal(info.first_rank, 1);
  treadle_rl_pools_destroy(pools);
  treadle_train_config_destroy(config);
  assert_ok(parse("{}", NULL, &config));
  assert_ok(place(config, "3", &pools));
  treadle_rl_pools_get_info(pools, &info);
  assert_null(info.place);
  assert_int_equal(info.first_rank, 0);
  treadle_rl_pools_destroy(pools);
  treadle_train_config_destroy(config);
}

/* Each allocation fails once: no pools are left behind, and memory is released (the sanitizer looks). */
static void memory_runs_out(void **state) {
  (void)state;
  static const char *const texts[] = {S4, PLACES "{actor: 0-1, rollout: 2-3}\n", "trainer: {nnodes: 2}\n",
                                      "rl_config: {actor_resource: {num_npus: 4}}\n", "{}"};
  for (size_t i = 0; i < TEST_COUNT(texts); i++) {
    treadle_status status = TREADLE_NO_MEMORY;
    long failed = 0;
    for (long n = 1; status; n++) {
      treadle_train_config *config = NULL;
      treadle_rl_pools *pools = NULL;
      treadle_alloc_fail_at(n);
      status = parse(texts[i], NULL, &config);
      if (!status) status = place(config, NULL, &pools);
      treadle_alloc_fail_at(0);
      assert_true(!status == !!pools);
      if (status) assert_int_equal(status, TREADLE_NO_MEMORY);
      failed += status != TREADLE_OK;
      treadle_rl_pools_destroy(pools);
      treadle_train_config_destroy(config);
    }
    assert_in_range(failed, 10, 200);
  }
}

/* ---- What a run may have ---- */

static int warned;
static char warning[256];

static void note(void *context, bool warns, const char *line) {
  (void)context;
  warned += warns;
  snprintf(warning, sizeof warning, "%s", line);
}

static void check_run(const char *text, int ranks, const char *refused, const char *warns) {
  const treadle_rl_crew crew = {.ranks = ranks, .leads = true, .observer = {.note = note}};
  treadle_train_config *config;
  assert_ok(parse(text, NULL, &config));
  warned = 0;
  if (refused)
    assert_refused(refused, treadle_rl_check_pools(config, &crew));
  else
    assert_ok(treadle_rl_check_pools(config, &crew));
  assert_int_equal(warned, warns != NULL);
  if (warns) assert_string_equal(warning, warns);
  treadle_train_config_destroy(config);
}

static void runs_have_one_pool(void **state) {
  (void)state;
  check_run("{}", 3, NULL, NULL);
  check_run(S4, 56, "run.yaml: resource_pools (line 1) says 3 pools: their ranks do not all work together",
            NULL);
  check_run(OWN("{a: [2, 2]}", "{ActorRollout: a, RewardModel: a}"), 4, NULL, NULL);
  check_run(OWN("{a: [2, 2]}", "{ActorRollout: a}"), 2,
            "run.yaml: resource_pools (line 1): pool 'a' has 4 slots, and the run has 2 ranks: start 4",
            NULL);
  check_run("trainer: {nnodes: 1, n_gpus_per_node: 8}\n", 8, NULL, NULL);
  check_run("trainer: {nnodes: 1, n_gpus_per_node: 8}\n", 2, NULL,
            "run.yaml: trainer.nnodes (line 1) asks for 8 slots, and the run has 2 ranks");
  check_run(
      "rl_config: {actor_resource: {num_npus: 8}}\n", 1, NULL,
      "run.yaml: rl_config.actor_resource.num_npus (line 1) asks for 8 slots, and the run has 1 rank");
  check_run(PLACES "{\"actor,rollout\": all}\n", 5, NULL, NULL);
  check_run(PLACES "{actor: 0-1, rollout: 2-3}\n", 4,
            "cluster.component_placement (line 2) says 2 pools: their ranks do not all", NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(forms_make_pools),    cmocka_unit_test(mistakes_are_refused),
      cmocka_unit_test(nodes_are_too_small), cmocka_unit_test(settled_text_is_the_same),
      cmocka_unit_test(controllers),         cmocka_unit_test(memory_runs_out),
      cmocka_unit_test(runs_have_one_pool)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
