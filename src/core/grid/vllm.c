/* vllm: vLLM's layouts. docs/rules.md 1.2, 6.2. Experts are cut or placed over the flattened group
 * dp x pcp x tp of a stage. */
#include "grid/engines.h"

#include <inttypes.h>
#include <string.h>

/* placement=round_robin counts where the family allows it, without redundant experts and where ranks exchange no
 * tokens, as they do with dp and pcp (the default backend of that puts the experts in order). */
static treadle_status read_placement(treadle_engine_grid *engine, int64_t ep, int64_t exchanging, bool eplb,
                                     bool *round_robin_p) {
  const char *placement = treadle_settings_get(engine->words, "placement");
  int64_t allowed, experts = engine->layout->model->experts;
  treadle_status status;
  *round_robin_p = false;
  if (!placement) return TREADLE_OK;
  if (strcmp(placement, "linear") != 0 && strcmp(placement, "round_robin") != 0)
    REFUSE("layout '%s': placement=%s is neither linear nor round_robin", engine->words->text, placement);
  if (placement[0] == 'l') return TREADLE_OK;
  treadle_normal_text(engine->normal, "placement", placement);
  TRY(treadle_grid_trait(engine->layout, &engine->spec, engine->rules, "round_robin", 0, &allowed));
  *round_robin_p = allowed && !eplb && exchanging == 1;
  if (*round_robin_p && experts < ep)
    REFUSE("layout '%s': placement=round_robin needs at least ep=%" PRId64
           " experts, and there are %" PRId64,
           engine->words->text, ep, experts);
out:
  return status;
}

/* Decode context parallelism moves no weight; vLLM takes it where it spans copies of KV heads (config/model.py,
 * config/parallel.py). Latent attention has one KV head. */
static treadle_status check_decode(const treadle_engine_grid *engine, int64_t tp, int64_t pcp) {
  const treadle_model *model = engine->layout->model;
  const char *text = engine->words->text;
  int64_t dcp, heads, groups;
  bool has_heads, has_groups;
  treadle_status status;
  TRY(treadle_settings_size(engine->words, "dcp", 1, &dcp));
  if (dcp == 1) return TREADLE_OK;
  if (pcp == 1 ? tp % dcp != 0 : dcp != pcp && dcp != tp * pcp)
    REFUSE("layout '%s': dcp=%" PRId64 " must divide tp=%" PRId64
           " or, with pcp above 1, be pcp or tp * pcp",
           text, dcp, tp);
  TRY(treadle_model_lookup(model, "nh", NULL, &heads, &has_heads));
  TRY(treadle_model_lookup(model, "ng", NULL, &groups, &has_groups));
  if (!has_heads || !has_groups) return TREADLE_OK;
  if (tp <= groups || dcp > tp / groups || heads / groups % dcp != 0)
    REFUSE("layout '%s': dcp=%" PRId64 " is for copies of KV heads: it must be at most tp / %" PRId64
           " and divide the %" PRId64 " query heads of each KV head",
           text, dcp, groups, heads / groups);
out:
  return status;
}

static treadle_status create(treadle_layout *layout, treadle_settings *words, treadle_arena *words_arena,
                             treadle_builder *normal) {
  treadle_status status = TREADLE_OK;
  (void)words_arena;
  static const char *const expert_keys[] = {"ep", "placement", "redundant", "map", NULL};
  treadle_engine_grid engine;
  bool ep_on = false, round_robin;
  int64_t tp, pp, dp, pcp;
  TRY(treadle_engine_grid_start(&engine, "vllm", layout, words, normal));
  TRY(treadle_settings_size(words, "tp", 1, &tp));
  TRY(treadle_settings_size(words, "pp", 1, &pp));
  TRY(treadle_settings_size(words, "dp", 1, &dp));
  TRY(treadle_settings_size(words, "pcp", 1, &pcp));
  /* What is left of the ranks is replicas of the engine, slowest. */
  const int64_t sizes[] = {tp, pcp, pp, dp};
  TRY(treadle_check_ranks(layout, "tp * pcp * pp * dp", sizes, 4, NULL));
  TRY(check_decode(&engine, tp, pcp));
  TRY(treadle_engine_grid_refuse_experts(&engine, expert_keys));
  TRY(treadle_settings_flag(words, "ep", &ep_on));
  bool eplb = treadle_settings_get(words, "redundant") && layout->model->experts > 0;
  if (eplb && !ep_on) REFUSE("layout '%s': redundant experts need ep=on", words->text);
  if (eplb && tp * pcp * dp == 1)
    REFUSE("layout '%s': redundant experts need tp, pcp or dp above 1; leave redundant out", words->text);
  int64_t inner = tp * pcp, ep = ep_on ? inner * dp : 1;

  /* rank = t + tp * (c + pcp * (p + pp * d)). Stages lie between pcp and dp, so the group of experts has
   * two digits: low (t, c) with stride 1, high d with stride tp * pcp * pp. With tp = 2, pp = 2, dp = 2
   * stage 0 is ranks 0, 1, 4, 5, and these are 0, 1, 2, 3 of ep or of moe_tp, whichever is on; the other
   * one has size 1 (docs/rules.md 1.2). */
  treadle_mesh *mesh = &engine.spec.mesh;
  treadle_mesh_add(mesh, "tp", tp, 1);
  treadle_mesh_add(mesh, "pcp", pcp, tp);
  treadle_mesh_add(mesh, "pp", pp, inner);
  treadle_mesh_add(mesh, "dp", dp, inner * pp);
  treadle_mesh_add_digits(mesh, "ep", ep_on ? inner : 1, 1, ep_on ? dp : 1, inner * pp);
  treadle_mesh_add_digits(mesh, "moe_tp", ep_on ? 1 : inner, 1, ep_on ? 1 : dp, inner * pp);
  /* With sequence parallel experts each rank has all of the shared ones; in some classes of the dense MLPs, too, but
   * not with stages. */
  bool sequence = ep_on && tp > 1 && dp > 1;
  treadle_mesh_add(mesh, "shared_tp", sequence ? 1 : tp, 1);
  treadle_mesh_add(mesh, "dense_tp", sequence && pp == 1 ? 1 : tp, 1);
  treadle_normal_size(normal, "tp", tp);
  treadle_normal_size(normal, "pp", pp);
  treadle_normal_size(normal, "dp", dp);
  treadle_normal_size(normal, "pcp", pcp);
  if (ep_on) treadle_normal_text(normal, "ep", "on");
  /* Experts that are cut inside of fp8 blocks get finer ones (docs/rules.md 4.10). */
  engine.spec.refines_blocks = true;
  treadle_grid_number(&engine.spec, "ep_on", ep > 1);
  treadle_grid_number(&engine.spec, "eplb", eplb);
  TRY(read_placement(&engine, ep, dp * pcp, eplb, &round_robin));
  TRY(treadle_engine_grid_place(&engine, ep, round_robin));
  TRY(treadle_engine_grid_names(&engine));
  TRY(treadle_engine_grid_build(&engine, false));
out:
  return status;
}

static const char *const keys[] = {"tp",        "pp",        "dp",  "pcp",   "dcp",   "partition", "ep",
                                   "placement", "redundant", "map", "names", "dtype", "on",        NULL};
const treadle_layout_type treadle_layout_type_vllm = {"vllm", keys, true, create};
