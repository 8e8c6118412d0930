/* Golden tables of experts: which expert stands in which slot of which rank. They are asked of a small model
 * with that many experts, one expert-parallel rank a rank, and read off the w13 stacks. */
#include "golden_support/golden_parts.h"

#include <stdlib.h>
#include <string.h>

static bool is_vllm(const golden_case *c) { return strncmp(c->file, "vllm", 4) == 0; }

/* The w13 stack of a layer holds gate and up of these experts, in this order. A rank without experts may as
 * well have no stack. */
static golden_verdict compare_slots(const golden_case *c, int64_t rank, int64_t layer,
                                    const json_t *slots) {
  static const char *const parts[] = {"gate_proj", "up_proj"};
  char name[160];
  golden_runs runs = {0};
  int64_t at = 0;
  for (size_t s = 0; s < json_array_size(slots); s++) {
    for (int k = 0; k < 2; k++) {
      treadle_tensor_info info = TREADLE_INIT(treadle_tensor_info);
      snprintf(name, sizeof name, "model.layers.%lld.mlp.experts.%lld.%s.weight", (long long)layer,
               (long long)golden_at(slots, s), parts[k]);
      int32_t tensor = c->subject->find(c->layout, name);
      if (tensor < 0 || !c->subject->tensor(c->layout, tensor, &info)) {
        golden_runs_release(&runs);
        return golden_differ(c, "the model has no %s", name);
      }
      golden_runs_add(&runs,
                      (treadle_run){.local_start = at, .tensor = tensor, .stride = 1, .count = info.elems});
      at += info.elems;
    }
  }
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  snprintf(name, sizeof name, "model.layers.%lld.mlp.experts.%sw13_weight", (long long)layer,
           is_vllm(c) ? "routed_experts." : "");
  int32_t storage = golden_find_storage(c, rank, name, &info);
  golden_verdict verdict = GOLDEN_EQUAL;
  if (storage < 0) {
    if (json_array_size(slots) > 0)
      verdict = golden_differ(c, "rank %lld has no %s", (long long)rank, name);
  } else if (info.shape[0] != (int64_t)json_array_size(slots)) {
    verdict = golden_differ(c, "rank %lld, %s: %lld experts, golden %d", (long long)rank, name,
                            (long long)info.shape[0], (int)json_array_size(slots));
  } else {
    verdict = golden_compare_runs(c, rank, storage, &runs);
  }
  golden_runs_release(&runs);
  return verdict;
}

/* ranks[r] = the experts of rank r, in layer 0. */
static golden_verdict compare_ranks(const golden_case *c, const json_t *ranks) {
  golden_verdict verdict = GOLDEN_EQUAL;
  for (size_t r = 0; verdict == GOLDEN_EQUAL && r < json_array_size(ranks); r++)
    verdict = compare_slots(c, (int64_t)r, 0, json_array_get(ranks, r));
  return verdict;
}

/* maps[l] = the experts of all ranks one after another, in layer l; the same number on each. */
static golden_verdict compare_maps(const golden_case *c, const json_t *maps) {
  golden_verdict verdict = GOLDEN_EQUAL;
  for (size_t l = 0; l < json_array_size(maps); l++) {
    const json_t *map = json_array_get(maps, l);
    size_t each = json_array_size(map) / (size_t)c->ranks;
    for (size_t r = 0; verdict == GOLDEN_EQUAL && r < (size_t)c->ranks; r++) {
      json_t *slots = json_array();
      for (size_t s = 0; s < each; s++) json_array_append(slots, json_array_get(map, r * each + s));
      verdict = compare_slots(c, (int64_t)r, (int64_t)l, slots);
      json_decref(slots);
    }
  }
  return verdict;
}

/* A model of this many layers and experts, and the layout in which every rank is one of ep. */
static void text_of_experts(golden_case *c, int64_t layers, int64_t groups) {
  c->ranks = golden_int(c->item, "ep", 1);
  golden_experts(c, layers, c->ranks, golden_int(c->item, "experts", 1), groups);
  snprintf(c->text, sizeof c->text, "%s:tp=%lld", is_vllm(c) ? "vllm" : "sglang", (long long)c->ranks);
  if (is_vllm(c)) {
    golden_option(c, "ep=on");
  } else {
    golden_option(c, "ep=%lld", (long long)c->ranks);
  }
}

/* Round robin is for experts in groups. In one group they are DeepSeek's as well: that is a family which takes more
 * ranks than there are experts. */
static golden_verdict check_placement(golden_case *c) {
  const char *strategy = json_string_value(json_object_get(c->item, "strategy"));
  text_of_experts(c, 1, strcmp(strategy, "round_robin") == 0 ? 2 : 1);
  golden_option(c, "placement=%s", strategy);
  golden_verdict verdict = golden_open(c, false);
  return verdict == GOLDEN_EQUAL ? compare_ranks(c, json_object_get(c->item, "ranks")) : verdict;
}

/* Before any rebalancing, or from a given location; vLLM's files say ranks, SGLang's rows of layers as well. */
static golden_verdict check_initial(golden_case *c) {
  const json_t *given = json_object_get(c->item, "init_expert_location"),
               *layers = json_object_get(c->item, "layers");
  text_of_experts(c, layers ? (int64_t)json_array_size(layers) : 1, 0);
  golden_option(c, "redundant=%lld", (long long)golden_int(c->item, "redundant", 0));
  if (given) golden_option_map(c, given);
  golden_verdict verdict = golden_open(c, false);
  if (verdict == GOLDEN_EQUAL) verdict = compare_ranks(c, json_object_get(c->item, "ranks"));
  return verdict == GOLDEN_EQUAL ? compare_maps(c, layers) : verdict;
}

/* What the engine's balancer made of a load. The load is not asked again: the map goes in and must come out. */
static golden_verdict check_rebalanced(golden_case *c) {
  const json_t *maps = json_object_get(c->item, "physical_to_logical");
  text_of_experts(c, (int64_t)json_array_size(maps), 0);
  golden_option(c, "redundant=%lld",
                (long long)(golden_int(c->item, "physical", 0) - golden_int(c->item, "experts", 0)));
  golden_option_map(c, maps);
  golden_verdict verdict = golden_open(c, false);
  return verdict == GOLDEN_EQUAL ? compare_maps(c, maps) : verdict;
}

/* Slot `slot` of rank r, linear or round robin, over EP ranks; redundant experts begin again at 0. */
static json_t *map_of(bool round_robin, int64_t experts, int64_t redundant, int64_t ep) {
  json_t *map = json_array();
  int64_t slots = experts + redundant, each = slots / ep;
  for (int64_t i = 0; i < slots; i++) {
    int64_t physical = round_robin ? i / each + i % each * ep : i;
    json_array_append_new(map, json_integer((json_int_t)(physical % experts)));
  }
  return json_pack("[o]", map);
}

/* Which placement is used when another is asked for. The text has no word for the all-to-all backend: asking
 * for round robin with dp > 1 means the default one, with which vLLM falls back to linear. What the one
 * backend does that keeps round robin can be said as a map. */
static golden_verdict check_strategy(golden_case *c) {
  enum { STRATEGY_EXPERTS = 16 };
  const char *asked = json_string_value(json_object_get(c->item, "asked"));
  bool round_robin = strcmp(json_string_value(json_object_get(c->item, "used")), "round_robin") == 0;
  int64_t tp = golden_int(c->item, "tp", 1), dp = golden_int(c->item, "dp", 1);
  int64_t redundant = golden_int(c->item, "redundant", 0);
  c->ranks = tp * dp;
  golden_experts(c, 1, tp, STRATEGY_EXPERTS, golden_int(c->item, "expert_groups", 0));
  snprintf(c->text, sizeof c->text, "vllm:tp=%lld,dp=%lld,ep=on", (long long)tp, (long long)dp);
  json_t *maps = map_of(round_robin, STRATEGY_EXPERTS, redundant, c->ranks);
  if (round_robin && dp > 1) {
    golden_option_map(c, maps);
  } else {
    golden_option(c, "placement=%s", asked);
    if (json_is_true(json_object_get(c->item, "eplb")))
      golden_option(c, "redundant=%lld", (long long)redundant);
  }
  golden_verdict verdict = golden_open(c, false);
  if (verdict == GOLDEN_EQUAL) verdict = compare_maps(c, maps);
  json_decref(maps);
  return verdict;
}

golden_verdict golden_check_engine_experts(golden_case *c) {
  static const struct {
    const char *pattern;
    golden_verdict (*check)(golden_case *c);
  } checks[] = {{"placement", check_placement},        {"initial", check_initial},
                {"eplb_initial", check_initial},       {"rebalanced", check_rebalanced},
                {"eplb_rebalanced", check_rebalanced}, {"strategy", check_strategy}};
  const char *pattern = json_string_value(json_object_get(c->item, "kind"));
  for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
    if (strcmp(checks[i].pattern, pattern) == 0) return checks[i].check(c);
  }
  return golden_differ(c, "nobody knows tables of '%s'", pattern);
}
