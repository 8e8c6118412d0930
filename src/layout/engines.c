/* vllm and sglang: the layouts of the generation engines. Facts: layouts.md sections 1.2, 1.3, 2.4, 2.5, 3
 * and 17. What is left of the ranks is engine replicas, slowest in rank order. */
#include "layout/grid.h"
#include "layout/kinds.h"

#include <inttypes.h>
#include <string.h>

#define REFUSE(...) return treadle_fail(TREADLE_REFUSED, __VA_ARGS__)

enum { VOCABULARY_UNIT = 64, MAX_PARTITION = 4096 };

static int64_t vllm_rows(const void *context, int64_t rows, int64_t shards) {
  (void)context, (void)shards;
  return (rows + VOCABULARY_UNIT - 1) / VOCABULARY_UNIT * VOCABULARY_UNIT;
}

static int64_t sglang_rows(const void *context, int64_t rows, int64_t shards) {
  int64_t padded = vllm_rows(context, rows, shards), unit = VOCABULARY_UNIT * shards;
  return padded % shards == 0 ? padded : (rows + unit - 1) / unit * unit;
}

/* Keys that speak of experts: refused for a family that has none. */
static treadle_status refuse_experts(treadle_words *words, const treadle_family *family,
                                     const char *const *expert_keys) {
  for (; *expert_keys; expert_keys++) {
    const char *value = treadle_words_get(words, *expert_keys);
    if (value && strcmp(value, "off") != 0 && strcmp(value, "0") != 0)
      REFUSE("layout '%s': %s=%s, and family %s has no experts", words->text, *expert_keys, value,
             family->name);
  }
  return TREADLE_OK;
}

static treadle_status build(treadle_layout *layout, treadle_words *words, treadle_builder *normal,
                            const char *engine, bool remainder_last, treadle_grid_spec *spec) {
  treadle_status status = TREADLE_OK;
  const treadle_family *family = layout->model->family;
  const treadle_engine_rules *rules = treadle_family_engine(family, engine);
  if (!rules) REFUSE("layout '%s': family %s has no %s section", words->text, family->name, engine);
  treadle_grid *grid;
  TRY(treadle_grid_start(layout, &grid));
  spec->rules = rules->rules;
  spec->rule_count = rules->count;

  int64_t pp = treadle_mesh_find(&spec->mesh, "pp")->size;
  int64_t *partition = treadle_arena_alloc_array(&grid->arena, MAX_PARTITION, sizeof *partition);
  if (!partition) return treadle_fail(TREADLE_NO_MEMORY, "layout: memory is out");
  int partition_count;
  const char *text = treadle_words_get(words, "partition");
  TRY(treadle_words_list(words, "partition", MAX_PARTITION, partition, &partition_count));
  if (text) treadle_normal_text(normal, "partition", text);
  if (remainder_last && pp == 1) partition_count = 0; /* SGLang does not look at it */
  if (remainder_last && pp > layout->model->layers)
    REFUSE("layout '%s': pp=%" PRId64 " is more than the %d layers", words->text, pp,
           layout->model->layers);
  TRY(treadle_stages_engine(words->text, layout->model->layers, pp, partition, partition_count,
                            remainder_last, &grid->arena, &spec->chunks));
  TRY(treadle_grid_build(layout, grid, spec));
  layout->tp = treadle_mesh_find(&spec->mesh, "tp")->size;
out:
  return status;
}

static treadle_status create_vllm(treadle_layout *layout, treadle_words *words, treadle_arena *words_arena,
                                  treadle_builder *normal) {
  treadle_status status = TREADLE_OK;
  (void)words_arena;
  static const char *const expert_keys[] = {"ep", "placement", "redundant", "map", NULL};
  treadle_grid_spec spec = {.mesh = {.ranks = layout->ranks}, .padded_rows = vllm_rows};
  int64_t tp, pp, dp, pcp;
  TRY(treadle_words_size(words, "tp", 1, &tp));
  TRY(treadle_words_size(words, "pp", 1, &pp));
  TRY(treadle_words_size(words, "dp", 1, &dp));
  TRY(treadle_words_size(words, "pcp", 1, &pcp));
  const int64_t sizes[] = {tp, pcp, pp, dp};
  TRY(treadle_check_ranks(layout, "tp * pcp * pp * dp", sizes, 4, NULL));
  TRY(refuse_experts(words, layout->model->family, expert_keys));
  treadle_mesh_add(&spec.mesh, "tp", tp, 1);
  treadle_mesh_add(&spec.mesh, "pcp", pcp, tp);
  treadle_mesh_add(&spec.mesh, "pp", pp, tp * pcp);
  treadle_mesh_add(&spec.mesh, "dp", dp, tp * pcp * pp);
  treadle_normal_size(normal, "tp", tp);
  treadle_normal_size(normal, "pp", pp);
  treadle_normal_size(normal, "dp", dp);
  treadle_normal_size(normal, "pcp", pcp);
  TRY(build(layout, words, normal, "vllm", false, &spec));
out:
  return status;
}

static treadle_status create_sglang(treadle_layout *layout, treadle_words *words,
                                    treadle_arena *words_arena, treadle_builder *normal) {
  treadle_status status = TREADLE_OK;
  (void)words_arena;
  static const char *const expert_keys[] = {"redundant", "map", NULL};
  treadle_grid_spec spec = {.mesh = {.ranks = layout->ranks}, .padded_rows = sglang_rows};
  int64_t tp, pp, attn_dp, attn_cp, ep, moe_dp;
  TRY(treadle_words_size(words, "tp", 1, &tp));
  TRY(treadle_words_size(words, "pp", 1, &pp));
  TRY(treadle_words_size(words, "attn_dp", 1, &attn_dp));
  TRY(treadle_words_size(words, "attn_cp", 1, &attn_cp));
  TRY(treadle_words_size(words, "ep", 1, &ep));
  TRY(treadle_words_size(words, "moe_dp", 1, &moe_dp));
  const int64_t sizes[] = {tp, pp};
  TRY(treadle_check_ranks(layout, "tp * pp", sizes, 2, NULL));
  TRY(refuse_experts(words, layout->model->family, expert_keys));
  if (tp % attn_dp != 0 || tp / attn_dp % attn_cp != 0)
    REFUSE("layout '%s': tp=%" PRId64 " is not divisible by attn_dp * attn_cp = %" PRId64 " * %" PRId64,
           words->text, tp, attn_dp, attn_cp);
  if (tp % ep != 0 || tp / ep % moe_dp != 0)
    REFUSE("layout '%s': tp=%" PRId64 " is not divisible by ep * moe_dp = %" PRId64 " * %" PRId64,
           words->text, tp, ep, moe_dp);
  if (moe_dp > 1 && ep * moe_dp != tp)
    REFUSE("layout '%s': moe_dp=%" PRId64 " needs ep * moe_dp = tp, and ep is %" PRId64 ", tp %" PRId64,
           words->text, moe_dp, ep, tp);
  int64_t attn_tp = tp / attn_dp / attn_cp;
  treadle_mesh_add(&spec.mesh, "tp", tp, 1);
  treadle_mesh_add(&spec.mesh, "attn_tp", attn_tp, 1);
  treadle_mesh_add(&spec.mesh, "attn_cp", attn_cp, attn_tp);
  treadle_mesh_add(&spec.mesh, "attn_dp", attn_dp, attn_tp * attn_cp);
  treadle_mesh_add(&spec.mesh, "pp", pp, tp);
  treadle_normal_size(normal, "tp", tp);
  treadle_normal_size(normal, "pp", pp);
  treadle_normal_size(normal, "attn_dp", attn_dp);
  treadle_normal_size(normal, "attn_cp", attn_cp);
  treadle_normal_size(normal, "ep", ep);
  treadle_normal_size(normal, "moe_dp", moe_dp);
  TRY(build(layout, words, normal, "sglang", true, &spec));
out:
  return status;
}

static const char *const vllm_keys[] = {"tp",        "pp",        "dp",  "pcp",   "partition", "ep",
                                        "placement", "redundant", "map", "dtype", NULL};
const treadle_layout_kind treadle_kind_vllm = {"vllm", vllm_keys, create_vllm};

static const char *const sglang_keys[] = {"tp",        "pp",        "attn_dp", "attn_cp", "ep", "moe_dp",
                                          "partition", "redundant", "map",     "dtype",   NULL};
const treadle_layout_kind treadle_kind_sglang = {"sglang", sglang_keys, create_sglang};
