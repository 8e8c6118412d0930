/* sglang: SGLang's layouts. docs/rules.md 1.3, 6.3, 9.2. tp is all ranks of a stage. Attention and
 * experts have smaller groups inside of it. */
#include "base/divisor.h"
#include "base/text.h"
#include "grid/engines.h"

#include <inttypes.h>
#include <string.h>

/* Where the usual padding does not divide: to a multiple of 64 * shards. 200 rows over 5: 256 is not
 * divisible, 320 is. 320 rows over 3 become 384 (docs/rules.md 3). */
static int64_t padded_rows(const void *context, int64_t rows, int64_t shards) {
  int64_t padded = treadle_engine_grid_rows(context, rows, shards), unit = 64 * shards;
  return padded % shards == 0 ? padded : (rows + unit - 1) / unit * unit;
}

typedef struct options {
  int64_t tp, pp, attn_dp, attn_cp, attn_tp, ep, moe_dp, moe_tp, dense_tp;
  bool deepep, fused, dp_head, triton_kernels, triton_is_default, indexer_fused;
} options;

/* The two projections of an indexer are one, or apart (indexer_fusion=off), in families whose trait says that they can be. */
static treadle_status read_indexer(const treadle_engine_grid *engine, treadle_layout *layout,
                                   treadle_settings *words, bool *fused_p) {
  const char *value = treadle_settings_get(words, "indexer_fusion");
  int64_t fuses;
  treadle_status status;
  TRY(treadle_grid_trait(layout, &engine->spec, engine->rules, "indexer_fusion", 0, &fuses));
  if (value && !fuses)
    REFUSE("layout '%s': indexer_fusion=%s, and SGLang fuses no indexer of family %s; leave it out",
           words->text, value, layout->model->family->name);
  *fused_p = fuses != 0;
  if (value) TRY(treadle_settings_flag(words, "indexer_fusion", fused_p));
  if (fuses && !*fused_p) treadle_normal_text(engine->normal, "indexer_fusion", "off");
out:
  return status;
}

/* One of two words; the first where the key is absent. */
static treadle_status read_choice(treadle_settings *words, const char *key, const char *first,
                                  const char *second, bool *is_second_p) {
  const char *value = treadle_settings_get(words, key);
  *is_second_p = value && strcmp(value, second) == 0;
  if (value && !*is_second_p && strcmp(value, first) != 0)
    REFUSE("layout '%s': %s=%s is neither %s nor %s", words->text, key, value, first, second);
  return TREADLE_OK;
}

/* What to give where the product of two sizes does not divide tp. */
static const char *product_instead(int64_t tp, const char *first, int64_t a, const char *second, int64_t b,
                                   char *text) {
  if (tp % a != 0) return treadle_divisors_near(first, tp, a, 1, text);
  return treadle_divisors_near(second, tp / a, b, 1, text);
}

/* tp is split twice: attn_tp * attn_cp * attn_dp = moe_tp * ep * moe_dp = tp, each the fastest first
 * (docs/rules.md 1.3). */
static treadle_status read_options(treadle_layout *layout, treadle_settings *words, options *o) {
  treadle_status status = TREADLE_OK;
  char instead[TREADLE_DIVISORS_ROOM];
  bool other; /* storage of experts than the family's usual one */
  TRY(treadle_settings_size(words, "tp", 1, &o->tp));
  TRY(treadle_settings_size(words, "pp", 1, &o->pp));
  TRY(treadle_settings_size(words, "attn_dp", 1, &o->attn_dp));
  TRY(treadle_settings_size(words, "attn_cp", 1, &o->attn_cp));
  TRY(treadle_settings_size(words, "ep", 1, &o->ep));
  TRY(treadle_settings_size(words, "moe_dp", 1, &o->moe_dp));
  TRY(treadle_settings_size(words, "moe_dense_tp", o->tp, &o->dense_tp));
  TRY(treadle_settings_flag(words, "shared_fusion", &o->fused));
  TRY(treadle_settings_flag(words, "dp_lm_head", &o->dp_head));
  TRY(read_choice(words, "a2a", "none", "deepep", &o->deepep));
  TRY(read_choice(words, "moe", o->triton_is_default ? "triton" : "triton_kernels",
                  o->triton_is_default ? "triton_kernels" : "triton", &other));
  /* The usual form is triton_kernels in some families, and triton in others. */
  o->triton_kernels = other == o->triton_is_default;
  const int64_t sizes[] = {o->tp, o->pp};
  TRY(treadle_check_ranks(layout, "tp * pp", sizes, 2, NULL));
  if (o->dense_tp != 1 && o->dense_tp != o->tp)
    REFUSE("layout '%s': moe_dense_tp=%" PRId64 "; SGLang knows 1 only; leave it out, or give 1",
           words->text, o->dense_tp);
  if (o->tp % o->attn_dp != 0 || o->tp / o->attn_dp % o->attn_cp != 0)
    REFUSE("layout '%s': tp=%" PRId64 " is not divisible by attn_dp * attn_cp = %" PRId64 " * %" PRId64
           "; %s",
           words->text, o->tp, o->attn_dp, o->attn_cp,
           product_instead(o->tp, "attn_dp", o->attn_dp, "attn_cp", o->attn_cp, instead));
  if (o->deepep) o->ep = o->tp; /* as SGLang does */
  if (o->tp % o->ep != 0 || o->tp / o->ep % o->moe_dp != 0)
    REFUSE("layout '%s': tp=%" PRId64 " is not divisible by ep * moe_dp = %" PRId64 " * %" PRId64 "; %s",
           words->text, o->tp, o->ep, o->moe_dp,
           product_instead(o->tp, "ep", o->ep, "moe_dp", o->moe_dp, instead));
  /* handle_context_parallelism: without ep the experts of each moe_dp rank are cut by moe_tp. */
  if (o->moe_dp > 1 && ((o->ep > 1 && o->ep * o->moe_dp != o->tp) || o->attn_cp != o->moe_dp || o->pp > 1))
    REFUSE("layout '%s': moe_dp=%" PRId64 " needs ep = 1 or ep * moe_dp = tp, attn_cp = moe_dp and pp = 1,"
           " and ep is %" PRId64 ", tp %" PRId64 ", attn_cp %" PRId64 ", pp %" PRId64,
           words->text, o->moe_dp, o->ep, o->tp, o->attn_cp, o->pp);
  /* tp = 8 with attn_dp = 2, attn_cp = 2 leaves attn_tp = 2; with ep = 4 it leaves moe_tp = 2. */
  o->attn_tp = o->tp / o->attn_dp / o->attn_cp;
  o->moe_tp = o->tp / o->ep / o->moe_dp;
out:
  return status;
}

static void write_normal(treadle_builder *normal, const options *o) {
  treadle_normal_size(normal, "tp", o->tp);
  treadle_normal_size(normal, "pp", o->pp);
  treadle_normal_size(normal, "attn_dp", o->attn_dp);
  treadle_normal_size(normal, "attn_cp", o->attn_cp);
  treadle_normal_size(normal, "ep", o->ep);
  treadle_normal_size(normal, "moe_dp", o->moe_dp);
  if (o->dense_tp != o->tp) treadle_normal_number(normal, "moe_dense_tp", o->dense_tp);
  if (o->fused) treadle_normal_text(normal, "shared_fusion", "on");
  if (o->dp_head) treadle_normal_text(normal, "dp_lm_head", "on");
  if (o->deepep) treadle_normal_text(normal, "a2a", "deepep");
  if (o->triton_kernels == o->triton_is_default)
    treadle_normal_text(normal, "moe", o->triton_kernels ? "triton_kernels" : "triton");
}

/* A rule with `also` stacks the shared expert behind the routed ones (docs/rules.md 6.3). */
static bool fuses_shared(const treadle_engine_rules *rules) {
  for (int32_t r = 0; r < rules->count; r++)
    if (rules->rules[r].also > 0) return true;
  return false;
}

static treadle_status create(treadle_layout *layout, treadle_settings *words, treadle_arena *words_arena,
                             treadle_builder *normal) {
  treadle_status status = TREADLE_OK;
  (void)words_arena;
  static const char *const expert_keys[] = {"redundant", "map", "shared_fusion", NULL};
  treadle_engine_grid engine;
  options o = {0};
  char instead[TREADLE_DIVISORS_ROOM];
  TRY(treadle_engine_grid_start(&engine, "sglang", layout, words, normal));
  int64_t kernels;
  TRY(treadle_grid_trait(layout, &engine.spec, engine.rules, "triton_kernels", 0, &kernels));
  o.triton_is_default = !kernels;
  TRY(read_options(layout, words, &o));
  /* Families with rules for triton_kernels of their own say so; FusedMoE transposes those of others. */
  engine.spec.transposes_experts = o.triton_kernels && !kernels;
  if (engine.spec.transposes_experts && layout->fp8)
    REFUSE("layout '%s': SGLang's moe=triton_kernels has no fp8 blocks; give moe=triton", words->text);
  TRY(treadle_engine_grid_refuse_experts(&engine, expert_keys));
  if (o.fused && !fuses_shared(engine.rules))
    REFUSE("layout '%s': shared_fusion=on, and SGLang does not fuse the shared expert of family %s; leave "
           "it out",
           words->text, layout->model->family->name);
  engine.spec.padded_rows = padded_rows;
  /* With tp = 8, attn_dp = 2, ep = 4 rank 5 of a stage is 1 of attn_tp = 4 in attn_dp 1, and 1 of
   * moe_tp = 2 in ep 2. A name such as embed_tp is one group or another by the options, so that rules name
   * what they cut over and ask no more (docs/rules.md 9.2). */
  treadle_mesh *mesh = &engine.spec.mesh;
  treadle_mesh_add(mesh, "tp", o.tp, 1);
  treadle_mesh_add(mesh, "attn_tp", o.attn_tp, 1);
  treadle_mesh_add(mesh, "attn_cp", o.attn_cp, o.attn_tp);
  treadle_mesh_add(mesh, "attn_dp", o.attn_dp, o.attn_tp * o.attn_cp);
  treadle_mesh_add(mesh, "pp", o.pp, o.tp);
  treadle_mesh_add(mesh, "moe_tp", o.moe_tp, 1);
  treadle_mesh_add(mesh, "ep", o.ep, o.moe_tp);
  if (o.attn_cp > o.moe_dp) /* then it is the group of attention's context parallelism */
    treadle_mesh_add(mesh, "moe_dp", o.attn_cp, o.attn_tp);
  else
    treadle_mesh_add(mesh, "moe_dp", o.moe_dp, o.moe_tp * o.ep);
  treadle_mesh_add(mesh, "shared_tp", o.deepep ? 1 : o.tp, 1);
  treadle_mesh_add(mesh, "dense_tp", o.dense_tp, 1);
  treadle_mesh_add(mesh, "embed_tp", o.attn_dp > 1 ? o.attn_tp : o.tp, 1);
  treadle_mesh_add(mesh, "head_tp", o.dp_head && o.attn_dp > 1 ? o.attn_tp : o.tp, 1);
  write_normal(normal, &o);
  TRY(read_indexer(&engine, layout, words, &o.indexer_fused));
  treadle_grid_number(&engine.spec, "indexer_fused", o.indexer_fused);
  treadle_grid_number(&engine.spec, "wrapped", treadle_model_is_part(layout->model));
  treadle_grid_number(&engine.spec, "deepep", o.deepep);
  treadle_grid_number(&engine.spec, "shared_fused", o.fused);
  treadle_grid_number(&engine.spec, "triton_kernels", o.triton_kernels);
  TRY(treadle_engine_grid_place(&engine, o.ep, false));
  /* Every rank has as many slots here; only vLLM deals what does not divide (docs/rules.md 6.3). */
  if (engine.spec.slots && engine.spec.slots[0]->count % o.ep != 0)
    REFUSE("layout '%s': %s not divisible by ep=%" PRId64 "; %s", words->text,
           treadle_text_count_is(engine.spec.slots[0]->count, "expert"), o.ep,
           treadle_divisors_near("ep", engine.spec.slots[0]->count, o.ep, 1, instead));
  TRY(treadle_engine_grid_names(&engine));
  TRY(treadle_engine_grid_build(&engine, true));
out:
  return status;
}

static const char *const keys[] = {
    "tp",        "pp",        "attn_dp", "attn_cp",       "ep",           "moe_dp",
    "partition", "redundant", "map",     "shared_fusion", "moe_dense_tp", "dp_lm_head",
    "a2a",       "moe",       "names",   "dtype",         "on",           "indexer_fusion",
    NULL};
const treadle_layout_type treadle_layout_type_sglang = {"sglang", keys, true, create};
