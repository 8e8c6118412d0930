/* Golden tables of ranks: the coordinates of every rank, the sizes of the dimensions and Megatron's groups.
 * They are asked of a model with experts, so that the expert grid is there as well. */
#include "golden_support/golden_parts.h"

#include <stdlib.h>
#include <string.h>

enum { HEADS = 24, EXPERTS = 24, MOST_DIMENSIONS = 8 };

/* A dimension of a layout, the column of its index in rows[rank], and the column of its size (0: none). */
typedef struct dimension {
  const char *name;
  size_t index, size;
} dimension;

static bool coordinate(const golden_case *c, int64_t rank, const char *name, int64_t *index_p) {
  *index_p = -1;
  if (c->subject->coordinate(c->layout, rank, name, index_p)) return true;
  golden_differ(c, "rank %lld, %s: %s", (long long)rank, name, c->subject->reason());
  return false;
}

static golden_verdict compare_coordinates(const golden_case *c, int count, const dimension *dimensions,
                                          bool has_rank) {
  const json_t *rows = json_object_get(c->item, "ranks");
  int64_t sizes[MOST_DIMENSIONS] = {0};
  if ((int64_t)json_array_size(rows) != c->ranks) return golden_differ(c, "golden has other ranks");
  for (size_t r = 0; r < json_array_size(rows); r++) {
    const json_t *row = json_array_get(rows, r);
    int64_t rank = has_rank ? golden_at(row, 0) : (int64_t)r;
    for (int i = 0; i < count; i++) {
      int64_t index;
      if (!coordinate(c, rank, dimensions[i].name, &index)) return GOLDEN_DIFFERENT;
      if (index != golden_at(row, dimensions[i].index))
        return golden_differ(c, "rank %lld: %s is %lld, golden %lld", (long long)rank, dimensions[i].name,
                             (long long)index, (long long)golden_at(row, dimensions[i].index));
      if (index >= sizes[i]) sizes[i] = index + 1;
    }
  }
  for (int i = 0; i < count; i++) {
    int64_t golden = golden_at(json_array_get(rows, 0), dimensions[i].size);
    if (dimensions[i].size > 0 && sizes[i] != golden)
      return golden_differ(c, "%s has %lld ranks, golden %lld", dimensions[i].name, (long long)sizes[i],
                           (long long)golden);
  }
  return GOLDEN_EQUAL;
}

/* ---- Megatron's groups --------------------------------------------------------------------------- */

/* Groups are the ranks that agree in the rest of their grid, in the order of ranks. In a group of one dimension
 * a rank's place is its coordinate. The word-embedding group and the parts of data-parallel groups are about
 * optimizers and have no coordinates. */
static const struct {
  const char *name, *rest[3];
  bool single; /* of one dimension, which has the group's name */
} groups[] = {{"tp", {"cp", "dp", "pp"}, true},   {"cp", {"tp", "dp", "pp"}, true},
              {"dp", {"tp", "cp", "pp"}, true},   {"pp", {"tp", "cp", "dp"}, true},
              {"dp_cp", {"tp", "pp"}, false},     {"mp", {"cp", "dp"}, false},
              {"tp_cp", {"dp", "pp"}, false},     {"tp_dp", {"cp", "pp"}, false},
              {"ep", {"etp", "edp", "pp"}, true}, {"etp", {"ep", "edp", "pp"}, true},
              {"edp", {"ep", "etp", "pp"}, true}, {"tp_ep", {"edp", "pp"}, false},
              {"tp_ep_pp", {"edp"}, false}};

static golden_verdict compare_group(const golden_case *c, size_t g, const json_t *group) {
  size_t next = 0;
  for (int64_t rank = 0; rank < c->ranks; rank++) {
    bool agrees = true, member = golden_at(group, next) == rank && next < json_array_size(group);
    for (int k = 0; k < 3 && groups[g].rest[k]; k++) {
      int64_t mine, others;
      if (!coordinate(c, rank, groups[g].rest[k], &mine) ||
          !coordinate(c, golden_at(group, 0), groups[g].rest[k], &others))
        return GOLDEN_DIFFERENT;
      agrees &= mine == others;
    }
    int64_t index = (int64_t)next;
    if (member && groups[g].single && !coordinate(c, rank, groups[g].name, &index)) return GOLDEN_DIFFERENT;
    if (agrees != member || index != (int64_t)next)
      return golden_differ(c, "rank %lld is %s in the %s group of rank %lld", (long long)rank,
                           member ? "" : "not ", groups[g].name, (long long)golden_at(group, 0));
    next += member;
  }
  return GOLDEN_EQUAL;
}

static golden_verdict compare_groups(const golden_case *c) {
  const json_t *all = json_object_get(c->item, "groups");
  for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
    const json_t *list = json_object_get(all, groups[g].name);
    for (size_t i = 0; i < json_array_size(list); i++) {
      golden_verdict verdict = compare_group(c, g, json_array_get(list, i));
      if (verdict != GOLDEN_EQUAL) return verdict;
    }
  }
  return GOLDEN_EQUAL;
}

golden_verdict golden_check_megatron_ranks(golden_case *c) {
  /* tp cp dp dp_cp pp ep etp edp ... */
  static const dimension dimensions[] = {{"tp", 0, 0}, {"cp", 1, 0},  {"dp", 2, 0}, {"pp", 4, 0},
                                         {"ep", 5, 0}, {"etp", 6, 0}, {"edp", 7, 0}};
  static const char *const sizes[] = {"tp", "cp", "pp", "ep", "etp", "vpp"};
  const json_t *error = json_object_get(c->item, "error");
  int64_t instances = golden_int(c->item, "num_distributed_optimizer_instances", 1);
  golden_experts(c, golden_int(c->item, "pp", 1) * golden_int(c->item, "vpp", 1), HEADS, EXPERTS, 0);
  c->ranks = golden_int(c->item, "world", 0);
  snprintf(c->text, sizeof c->text, "megatron:order=%s",
           json_string_value(json_object_get(c->item, "order")));
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    int64_t size = golden_int(c->item, sizes[i], -1);
    if (size >= 0) golden_option(c, "%s=%lld", sizes[i], (long long)size);
  }
  /* Instances of the optimizer share out its states and no weight, so no layout has the word and the cases
   * with a good number equal those without; a text with a bad number is refused for the word. */
  if (instances > 1 && error)
    golden_option(c, "num_distributed_optimizer_instances=%lld", (long long)instances);
  golden_verdict verdict = golden_open(c, false);
  if (verdict == GOLDEN_EQUAL)
    verdict = compare_coordinates(c, sizeof dimensions / sizeof *dimensions, dimensions, false);
  return verdict == GOLDEN_EQUAL ? compare_groups(c) : verdict;
}

/* ---- The engines --------------------------------------------------------------------------------- */

/* Column 5, the rank in vLLM's EP group, is that of the tp or of the ep of experts, whichever there is. */
golden_verdict golden_check_vllm_ranks(golden_case *c) {
  static const dimension dimensions[] = {{"tp", 1, 0},  {"pp", 2, 0},     {"dp", 3, 0},
                                         {"pcp", 4, 0}, {"moe_tp", 6, 7}, {"ep", 8, 9}};
  int64_t tp = golden_int(c->item, "tp", 1), pp = golden_int(c->item, "pp", 1);
  int64_t dp = golden_int(c->item, "dp", 1), pcp = golden_int(c->item, "pcp", 1);
  bool ep = json_is_true(json_object_get(c->item, "ep"));
  golden_experts(c, pp, HEADS, EXPERTS, 0);
  c->ranks = tp * pp * dp * pcp;
  snprintf(c->text, sizeof c->text, "vllm:tp=%lld,pp=%lld,dp=%lld,pcp=%lld", (long long)tp, (long long)pp,
           (long long)dp, (long long)pcp);
  if (ep) golden_option(c, "ep=on");
  golden_verdict verdict = golden_open(c, false);
  if (verdict == GOLDEN_EQUAL)
    verdict = compare_coordinates(c, sizeof dimensions / sizeof *dimensions, dimensions, true);
  const dimension flat = {ep ? "ep" : "moe_tp", 5, 0};
  return verdict == GOLDEN_EQUAL ? compare_coordinates(c, 1, &flat, true) : verdict;
}

golden_verdict golden_check_sglang_ranks(golden_case *c) {
  static const dimension dimensions[] = {{"tp", 1, 2},      {"pp", 3, 4},       {"attn_tp", 5, 6},
                                         {"attn_cp", 7, 8}, {"attn_dp", 9, 10}, {"moe_tp", 11, 12},
                                         {"ep", 13, 14},    {"moe_dp", 15, 16}};
  static const struct {
    const char *option, *word;
  } sizes[] = {{"attn_cp_size", "attn_cp"}, {"ep_size", "ep"}, {"moe_dp_size", "moe_dp"}};
  const json_t *options = json_object_get(c->item, "options");
  const char *backend = json_string_value(json_object_get(options, "moe_a2a_backend"));
  int64_t tp = golden_int(c->item, "tp", 1), pp = golden_int(c->item, "pp", 1);
  golden_experts(c, pp, HEADS, EXPERTS, 0);
  c->ranks = tp * pp;
  snprintf(c->text, sizeof c->text, "sglang:tp=%lld,pp=%lld", (long long)tp, (long long)pp);
  if (json_is_true(json_object_get(options, "enable_dp_attention"))) /* else dp_size is of replicas */
    golden_option(c, "attn_dp=%lld", (long long)golden_int(options, "dp_size", 1));
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    int64_t size = golden_int(options, sizes[i].option, 1);
    if (size > 1) golden_option(c, "%s=%lld", sizes[i].word, (long long)size);
  }
  if (backend) golden_option(c, "a2a=%s", backend);
  golden_verdict verdict = golden_open(c, false);
  if (verdict != GOLDEN_EQUAL) return verdict;
  return compare_coordinates(c, sizeof dimensions / sizeof *dimensions, dimensions, true);
}
