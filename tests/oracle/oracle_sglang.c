/* SGLang: groups (rules 1.3), stages (2.5, 2.6), layers in the order of named_parameters (9),
 * expert placement (6.3) and the draft model (9.3). */
#include "oracle/oracle_engines.h"

#include <stdio.h>
#include <string.h>

typedef struct sizes {
  int64_t tp, pp, attn_tp, attn_cp, attn_dp, ep, moe_dp, moe_tp;
  bool dense_whole, head_attn, deepep, fused, transposed, old_names;
} sizes;

/* ---- Layers ---------------------------------------------------------------------------------- */

static bool is_qwen(const oracle_model *m) { return strncmp(m->type, "qwen", 4) == 0; }

/* Qwen2-MoE and Qwen3-MoE ask no list which layers are dense: 9.1. */
static bool all_moe(const oracle_model *m) {
  return oracle_is(m, "qwen2_moe") || oracle_is(m, "qwen3_moe");
}

static void moe(const oracle_place *at, const oracle_engine *e) {
  const oracle_model *m = at->model;
  bool experts_first = is_qwen(m) || m->sinks;
  if (oracle_is(m, "deepseek_ocr")) {
    oracle_engine_experts_apart(at, e);
    oracle_engine_router(at);
    oracle_engine_shared(at, e);
    return;
  }
  if (!experts_first) oracle_engine_router(at);
  oracle_engine_experts(at, e);
  if (experts_first) oracle_engine_router(at);
  oracle_engine_shared(at, e);
  oracle_engine_shared_gate(at);
}

/* Full attention of Qwen3-Next has no level self_attn, and its norms come last. */
static void layer(const oracle_place *at, const oracle_engine *e) {
  const oracle_model *m = at->model;
  const char *self_attn = m->gated ? "" : "self_attn.";
  bool is_linear = m->linear[at->layer], norms_first = oracle_is(m, "qwen3");
  if (oracle_is(m, "smollm3")) {
    oracle_engine_modules(at, e);
    oracle_engine_norms(at);
    return;
  }
  if (norms_first) oracle_engine_qk_norms(at, self_attn);
  if (is_linear) {
    oracle_engine_linear(at, e);
  } else if (m->mla) {
    oracle_engine_mla(at, e);
  } else {
    oracle_engine_attention(at, e, self_attn);
    if (!norms_first && !m->gated) oracle_engine_qk_norms(at, self_attn);
  }
  if (m->moe[at->layer] || all_moe(m)) {
    int first = at->rank->count;
    moe(at, e);
    for (int i = first; i < at->rank->count; i++) at->rank->storages[i].unwritten = !m->moe[at->layer];
  } else {
    oracle_engine_dense(at, e);
  }
  oracle_engine_norms(at);
  if (m->gated && !is_linear) oracle_engine_qk_norms(at, self_attn);
}

/* A draft's own embedding and head give way to the main model's at run time: 9.3. */
static void draft_embedding(const oracle_place *at, const oracle_engine *e) {
  oracle_engine_embedding(at, e, "model.embed_tokens.weight");
  oracle_last(at)->unwritten = true;
}

static void draft_head(const oracle_place *at, const oracle_engine *e) {
  oracle_engine_head(at, e, "lm_head.weight");
  oracle_last(at)->unwritten = true;
}

/* NextN of DeepSeek and GLM; it has one layer. Read for GLM. */
static void draft_of_deepseek(const oracle_place *outer, const oracle_engine *e) {
  const oracle_model *m = outer->model;
  draft_embedding(outer, e);
  oracle_place at = oracle_in(outer, m->L, "model.");
  oracle_engine_vector(&at, "enorm.weight", "enorm.weight");
  oracle_engine_vector(&at, "hnorm.weight", "hnorm.weight");
  oracle_rule_whole(&at, oracle_add(&at, m->H, 2 * m->H, "eh_proj.weight"),
                    oracle_hf(&at, "eh_proj.weight"));
  oracle_place decoder = oracle_in(outer, m->L, "model.decoder.");
  layer(&decoder, e);
  oracle_engine_vector(&at, "shared_head.norm.weight", "shared_head.norm.weight");
  draft_head(outer, e);
  if (m->mla) oracle_engine_derived(&decoder, e);
}

/* The draft of Qwen3-Next and Qwen3.5; read, not run. */
static void draft_of_next(const oracle_place *outer, const oracle_engine *e) {
  const oracle_model *m = outer->model;
  oracle_rule_whole(outer, oracle_add(outer, m->H, 2 * m->H, "fc.weight"),
                    oracle_hf(outer, "mtp.fc.weight"));
  oracle_engine_vector(outer, "pre_fc_norm_embedding.weight", "mtp.pre_fc_norm_embedding.weight");
  oracle_engine_vector(outer, "pre_fc_norm_hidden.weight", "mtp.pre_fc_norm_hidden.weight");
  draft_embedding(outer, e);
  oracle_place at = oracle_in(outer, m->L, "model.layers.0.");
  layer(&at, e);
  oracle_engine_vector(outer, "model.norm.weight", "mtp.norm.weight");
  if (m->tied && m->split_in_proj) return;
  oracle_engine own = *e; /* Qwen3.5's draft knows no head on the attention group */
  if (m->split_in_proj) {
    own.head = e->full;
    own.head_rows = e->full_rows;
  }
  draft_head(outer, &own);
}

/* ---- Stages ---------------------------------------------------------------------------------- */

/* These make a head, tied or not, and load nothing into a tied one: 2.6; read for all but Qwen3-MoE. */
static bool head_whatever(const oracle_model *m) {
  return oracle_is(m, "mixtral") || all_moe(m) || oracle_is(m, "glm4_moe") || oracle_is(m, "qwen3_next") ||
         m->sinks;
}

/* 2.6, 2.5; Qwen3.5 and SmolLM3 were read. */
static bool has_head(const oracle_model *m, int64_t pp, bool is_last) {
  if (oracle_is(m, "llama")) return !m->tied;
  if (head_whatever(m)) return true;
  if (m->sandwich) return !m->tied;
  if (oracle_is(m, "smollm3")) return is_last && !m->tied;
  if (oracle_is(m, "deepseek_ocr")) return is_last;
  return is_last && (!m->tied || pp > 1);
}

static void stage(const oracle_place *at, const oracle_engine *e, const oracle_stages *stages, int64_t p) {
  const oracle_model *m = at->model;
  bool is_last = p == stages->pp - 1, all = m->sandwich;     /* Gemma-3 ignores PP: 2.5 */
  bool copy = oracle_is(m, "smollm3") && m->tied && is_last; /* its head is the embedding */
  if (p == 0 || all || copy) oracle_engine_embedding(at, e, "model.embed_tokens.weight");
  if (all) oracle_engine_vector(at, "model.norm.weight", "model.norm.weight");
  for (int64_t l = 0; l < m->L; l++) {
    if (stages->p[l] != p && !all) continue;
    oracle_place in = oracle_in(at, l, "model.layers.%d.", (int)l);
    layer(&in, e);
  }
  if (is_last && !all) oracle_engine_vector(at, "model.norm.weight", "model.norm.weight");
  if (has_head(m, stages->pp, is_last)) {
    bool loaded = !m->tied || !head_whatever(m);
    oracle_engine_head(at, e, "lm_head.weight");
    oracle_last(at)->unwritten = !loaded;
  }
  for (int64_t l = 0; m->mla && l < m->L; l++) {
    if (stages->p[l] != p) continue;
    oracle_place in = oracle_in(at, l, "model.layers.%d.", (int)l);
    oracle_engine_derived(&in, e);
  }
  if (!is_last || !m->mtp) return;
  oracle_place draft = *at;
  draft.chunk = 1;
  if (m->next_mtp) {
    draft_of_next(&draft, e);
  } else {
    draft_of_deepseek(&draft, e);
  }
}

/* ---- Options --------------------------------------------------------------------------------- */

static bool read_sizes(oracle_options *options, sizes *s, char *why) {
  const char *ep = oracle_option_text(options, "ep");
  s->ep = 1;
  if (!oracle_option_number(options, "tp", 1, &s->tp, why) ||
      !oracle_option_number(options, "attn_dp", 1, &s->attn_dp, why) ||
      !oracle_option_number(options, "attn_cp", 1, &s->attn_cp, why) ||
      !oracle_option_number(options, "moe_dp", 1, &s->moe_dp, why) ||
      (ep && strcmp(ep, "off") != 0 && !oracle_option_number(options, "ep", 1, &s->ep, why)))
    return false;
  const char *a2a = oracle_option_text(options, "a2a"),
             *dense = oracle_option_text(options, "moe_dense_tp");
  if (a2a && strcmp(a2a, "deepep") != 0 && strcmp(a2a, "none") != 0)
    return oracle_refuse(why, "a2a=%s", a2a);
  s->deepep = a2a && strcmp(a2a, "deepep") == 0;
  if (s->deepep) s->ep = s->tp;
  if (dense && strcmp(dense, "1") != 0) return oracle_refuse(why, "moe_dense_tp=%s", dense);
  s->dense_whole = dense != NULL;
  if (s->tp % (s->attn_dp * s->attn_cp) != 0)
    return oracle_refuse(why, "tp %lld does not divide by attn_dp %lld * attn_cp %lld", (long long)s->tp,
                         (long long)s->attn_dp, (long long)s->attn_cp);
  if (s->tp % (s->ep * s->moe_dp) != 0)
    return oracle_refuse(why, "tp %lld does not divide by ep %lld * moe_dp %lld", (long long)s->tp,
                         (long long)s->ep, (long long)s->moe_dp);
  s->attn_tp = s->tp / (s->attn_dp * s->attn_cp);
  s->moe_tp = s->tp / (s->ep * s->moe_dp);
  bool cut = s->ep > 1 && s->moe_tp != 1;                             /* experts both placed and cut */
  if (s->moe_dp > 1 && (s->moe_dp != s->attn_cp || cut || s->pp > 1)) /* 1.3 */
    return oracle_refuse(why, "moe_dp %lld needs attn_cp as large, ep 1 or ep * moe_dp == tp, and pp 1",
                         (long long)s->moe_dp);
  return oracle_option_switch(options, "dp_lm_head", &s->head_attn, why);
}

/* 6.3. Mixtral and GLM-4.5 take redundant experts and a map, and do not look at them. */
static bool read_experts(const oracle_model *m, oracle_options *options, sizes *s, oracle_slots *slots,
                         char *why) {
  static const char *const names[] = {"new", "old", NULL};
  static const char *const runners[] = {"triton_kernels", "triton", NULL};
  int old, runner;
  int64_t redundant = 0;
  const char *map = oracle_option_text(options, "map"), *extra = oracle_option_text(options, "redundant");
  bool has_runner = oracle_option_text(options, "moe") != NULL;
  if ((extra && strcmp(extra, "0") != 0 &&
       !oracle_option_number(options, "redundant", 0, &redundant, why)) ||
      !oracle_option_switch(options, "shared_fusion", &s->fused, why) ||
      !oracle_option_word(options, "names", names, &old, why) ||
      !oracle_option_word(options, "moe", runners, &runner, why))
    return false;
  s->old_names = old == 1;
  s->transposed = has_runner ? runner == 0 : m->sinks; /* gpt_oss: triton_kernels by default */
  if (!m->E)
    return (s->ep == 1 && s->moe_dp == 1 && !extra && !map && !s->fused && !s->deepep && !has_runner &&
            !s->dense_whole) ||
           oracle_refuse(why, "options of experts, and the model has none");
  if (s->fused && (m->shared != 1 || oracle_is(m, "deepseek_ocr")))
    return oracle_refuse(why, "shared_fusion with %lld shared experts", (long long)m->shared);
  if (m->sinks && s->ep > 1) return oracle_refuse(why, "gpt_oss with ep %lld", (long long)s->ep); /* 9.1 */
  if (oracle_is(m, "mixtral") || oracle_is(m, "glm4_moe") || oracle_is(m, "deepseek_ocr")) {
    if (map) return oracle_refuse(why, "%s is not placed by a map", m->type);
    redundant = 0;
  }
  return oracle_divides(m->E + redundant, s->ep, "experts", why) &&
         oracle_slots_make(m, s->ep, redundant, map, slots, why);
}

/* ---- Ranks ----------------------------------------------------------------------------------- */

static bool full_embedding_tp(const oracle_model *m) {
  return oracle_is(m, "llama") || oracle_is(m, "smollm3") || oracle_is(m, "mixtral") ||
         oracle_is(m, "deepseek_ocr");
}

/* These know no head on the attention group. */
static bool full_head_tp(const oracle_model *m) {
  return oracle_is(m, "qwen2") || oracle_is(m, "deepseek_ocr") || oracle_is(m, "mixtral") ||
         oracle_is(m, "smollm3") || m->sandwich;
}

/* Under attention dp these keep attention on the full tp: 9.2. Gemma-3 reads the full tp as well. */
static bool full_attention_tp(const oracle_model *m) {
  return full_embedding_tp(m) || oracle_is(m, "mixtral") || oracle_is(m, "qwen2") || m->sandwich;
}

/* 3 */
static int64_t padded_rows(const oracle_model *m, int64_t tp) {
  int64_t rows = oracle_round_up(m->V, 64);
  return rows % tp == 0 ? rows : oracle_round_up(m->V, 64 * tp);
}

static void rank_of(oracle_layout *layout, const sizes *s, const oracle_stages *stages,
                    const oracle_slots *slots, int64_t i, int64_t strides) {
  const oracle_model *m = layout->model;
  int64_t t = i % s->tp, p = i / s->tp % s->pp;
  const oracle_shard full = {t, s->tp}, attn = {t % s->attn_tp, s->attn_tp}, whole = {0, 1};
  oracle_engine e = {
      .sglang = true,
      .old_names = s->old_names,
      .attention = full_attention_tp(m) ? full : attn,
      .dense = s->dense_whole && !oracle_is(m, "deepseek_ocr") ? whole : full,
      .shared = s->deepep ? whole : full,
      .moe = {t % s->moe_tp, s->moe_tp},
      .embedding = s->attn_dp > 1 && !full_embedding_tp(m) ? attn : full,
      .head = s->head_attn && s->attn_dp > 1 && !full_head_tp(m) ? attn : full,
      .full = full,
      .slots = slots,
      .ep_rank = t / s->moe_tp % s->ep,
      .transposed = s->transposed,
      .fused = s->fused,
  };
  e.head_rows = padded_rows(m, e.head.tp);
  e.embedding_rows = padded_rows(m, e.embedding.tp);
  e.full_rows = padded_rows(m, s->tp);
  if (m->split_in_proj && s->attn_dp > 1) { /* whole, with its padding */
    e.embedding = whole;
    e.embedding_rows = padded_rows(m, 1);
  }
  if (m->sandwich) { /* replicated and not padded: 9.2 */
    e.embedding = whole;
    e.embedding_rows = m->V;
  }
  const oracle_place at = {
      .model = m, .rank = &layout->rank[oracle_physical_rank(i, s->tp, strides)], .layer = -1};
  int64_t attn_cp = t / s->attn_tp % s->attn_cp;
  oracle_coordinate(at.rank, "tp", t);
  oracle_coordinate(at.rank, "pp", p);
  oracle_coordinate(at.rank, "attn_tp", attn.t);
  oracle_coordinate(at.rank, "attn_cp", attn_cp);
  oracle_coordinate(at.rank, "attn_dp", t / (s->attn_tp * s->attn_cp));
  oracle_coordinate(at.rank, "moe_tp", e.moe.t);
  oracle_coordinate(at.rank, "ep", e.ep_rank);
  int64_t moe_dp = s->attn_cp > s->moe_dp ? attn_cp : t / (s->ep * s->moe_tp); /* 1.3 */
  oracle_coordinate(at.rank, "moe_dp", moe_dp);
  stage(&at, &e, stages, p);
}

static bool check(const oracle_layout *layout, const sizes *s, int64_t strides, char *why) {
  const oracle_model *m = layout->model;
  bool apart = oracle_is(m, "deepseek_ocr"); /* experts and dense layers over the full tp */
  if (s->pp > m->L &&
      !m->sandwich) /* what SGLang asserts; a stage that the partition leaves empty is accepted */
    return oracle_refuse(why, "pp %lld is more than the %lld layers", (long long)s->pp, (long long)m->L);
  if (oracle_is(m, "smollm3") && m->ng % s->tp != 0)
    return oracle_refuse(why, "%lld KV heads of smollm3 for tp %lld", (long long)m->ng, (long long)s->tp);
  bool by_moe_tp = oracle_is(m, "qwen3_moe") || oracle_is(m, "qwen3_vl_moe_text");
  if (m->E && !oracle_is(m, "mixtral") && !m->sinks && (by_moe_tp ? s->moe_tp : s->tp) > m->E)
    return oracle_refuse(why, "more ranks than the %lld experts", (long long)m->E);
  if (oracle_is(m, "llama") && m->mlp_bias) return oracle_refuse(why, "mlp_bias in llama");
  if (oracle_is(m, "deepseek_ocr") && (s->ep > 1 || s->pp > 1 || s->attn_dp > 1))
    return oracle_refuse(why, "deepseek_ocr by more than tp");
  if (m->mtp > 1) return oracle_refuse(why, "%lld MTP layers", (long long)m->mtp);
  if (oracle_is(m, "qwen3_next") && s->pp > 1)
    return oracle_refuse(why, "%s with pp %lld", m->type, (long long)s->pp);
  return oracle_check_ranks(layout, s->tp * s->pp, s->tp, strides, why) &&
         oracle_check_engine(m, full_attention_tp(m) ? s->tp : s->attn_tp,
                             s->dense_whole && !apart ? 1 : s->tp, s->deepep || s->fused ? 1 : s->tp,
                             apart ? s->tp : s->moe_tp, all_moe(m), why);
}

bool oracle_build_sglang(oracle_layout *layout, oracle_options *options, int64_t strides, char *why) {
  sizes s = {0};
  oracle_stages stages = {0};
  oracle_slots slots = {0};
  bool good = oracle_stages_sglang(layout->model->L, options, &stages, why);
  s.pp = stages.pp;
  good = good && read_sizes(options, &s, why) && read_experts(layout->model, options, &s, &slots, why) &&
         oracle_options_end(options, why) && check(layout, &s, strides, why);
  for (int64_t i = 0; good && i < layout->ranks; i++) rank_of(layout, &s, &stages, &slots, i, strides);
  oracle_slots_free(&slots);
  oracle_stages_free(&stages);
  return good;
}
