/* vLLM: groups (rules 1.2), stages (2.4, 2.6), layers in the order of named_parameters (8), expert placement
 * (6.2) and the draft model (8.2). */
#include "oracle/oracle_engines.h"

#include <stdio.h>
#include <string.h>

typedef struct sizes {
  int64_t tp, dp, pcp, pp;
  bool ep_on;
  bool old_names;
} sizes;

/* ---- Layers ---------------------------------------------------------------------------------- */

static void layer(const oracle_place *at, const oracle_engine *e) {
  const oracle_model *m = at->model;
  const char *self_attn = m->sinks ? "attn." : "self_attn.";
  if (oracle_is(m, "smollm3")) {
    oracle_engine_fused_modules(at, e);
    oracle_engine_norms(at);
    return;
  }
  if (m->linear[at->layer]) {
    oracle_engine_linear(at, e);
  } else if (m->mla) {
    oracle_engine_mla(at, e);
  } else {
    oracle_engine_attention(at, e, self_attn);
    oracle_engine_qk_norms(at, self_attn);
  }
  if (m->moe[at->layer]) {
    oracle_engine_router(at);
    oracle_engine_shared_gate(at);
    oracle_engine_shared(at, e);
    oracle_engine_experts(at, e);
  } else {
    oracle_engine_dense(at, e);
  }
  oracle_engine_norms(at);
}

/* The draft of DeepSeek and GLM: layers, then the embedding. Read for GLM. */
static void draft_of_deepseek(const oracle_place *outer, const oracle_engine *e) {
  const oracle_model *m = outer->model;
  for (int64_t l = m->L; l < m->L + m->mtp; l++) {
    oracle_place at = oracle_in(outer, l, "model.layers.%d.", (int)l);
    oracle_engine_vector(&at, "enorm.weight", "enorm.weight");
    oracle_engine_vector(&at, "hnorm.weight", "hnorm.weight");
    oracle_rule_whole(&at, oracle_add(&at, m->H, 2 * m->H, "eh_proj.weight"),
                      oracle_hf(&at, "eh_proj.weight"));
    oracle_engine_vector(&at, "shared_head.norm.weight", "shared_head.norm.weight");
    oracle_engine_head(&at, e, "shared_head.head.weight");
    oracle_place block = oracle_in(outer, l, "model.layers.%d.mtp_block.", (int)l);
    layer(&block, e);
  }
  oracle_engine_embedding(outer, e, "model.embed_tokens.weight");
  for (int64_t l = m->L; m->mla && l < m->L + m->mtp; l++) {
    oracle_place block = oracle_in(outer, l, "model.layers.%d.mtp_block.", (int)l);
    oracle_engine_derived(&block, e);
  }
}

/* The draft of Qwen3-Next and Qwen3.5; read, not run. fc is cut by rows. */
static void draft_of_next(const oracle_place *outer, const oracle_engine *e) {
  const oracle_model *m = outer->model;
  oracle_engine_embedding(outer, e, "model.embed_tokens.weight");
  oracle_window w = oracle_add(outer, m->H / e->attention.tp, 2 * m->H, "model.fc.weight");
  oracle_rule_rows(outer, w, oracle_hf(outer, "mtp.fc.weight"), e->attention.t);
  oracle_place at = oracle_in(outer, m->L, "model.layers.0.");
  layer(&at, e);
  oracle_engine_vector(outer, "model.norm.weight", "mtp.norm.weight");
  oracle_engine_vector(outer, "model.pre_fc_norm_hidden.weight", "mtp.pre_fc_norm_hidden.weight");
  oracle_engine_vector(outer, "model.pre_fc_norm_embedding.weight", "mtp.pre_fc_norm_embedding.weight");
  if (!m->tied) oracle_engine_head(outer, e, "lm_head.weight");
}

/* ---- Stages ---------------------------------------------------------------------------------- */

/* What of the three stands on every stage: 2.6. */
static bool embedding_everywhere(const oracle_model *m) {
  return oracle_is(m, "mixtral") || oracle_is(m, "qwen2_moe") || oracle_is(m, "qwen3_moe") || m->halves ||
         m->packed || m->gated || m->sandwich;
}

static bool norm_everywhere(const oracle_model *m) { return embedding_everywhere(m) && !m->gated; }

/* Qwen3.5's is on the last one. */
static bool head_everywhere(const oracle_model *m) { return embedding_everywhere(m) && !m->split_in_proj; }

/* These make a head, tied or not, and load nothing into a tied one: 2.6; read for all but DeepSeek-V2. */
static bool head_whatever(const oracle_model *m) {
  return m->mla || oracle_is(m, "glm4_moe") || oracle_is(m, "deepseek_ocr") || oracle_is(m, "gpt_oss") ||
         oracle_is(m, "qwen3_next");
}

static void stage(const oracle_place *place, const oracle_engine *e, const oracle_stages *stages,
                  int64_t p) {
  const oracle_model *m = place->model;
  const char *outer = m->split_in_proj && m->wrapped ? "language_model." : ""; /* beside the vision tower */
  const oracle_place main_model = oracle_in(place, -1, "%s", outer), *at = &main_model;
  bool is_first = p == 0, is_last = p == stages->pp - 1;
  bool heads_tied = m->tied && !head_whatever(m);
  const char *embedding = m->packed ? "model.embedding.weight" : "model.embed_tokens.weight";
  if (is_first || (is_last && heads_tied) || embedding_everywhere(m))
    oracle_engine_embedding(at, e, embedding);
  for (int64_t l = 0; l < m->L; l++) {
    if (stages->p[l] != p) continue;
    oracle_place in = oracle_in(at, l, "%smodel.layers.%d.", outer, (int)l);
    layer(&in, e);
  }
  if (is_last || norm_everywhere(m)) oracle_engine_vector(at, "model.norm.weight", "model.norm.weight");
  if ((is_last || head_everywhere(m)) && !heads_tied) {
    oracle_engine_head(at, e, "lm_head.weight");
    oracle_last(at)->unwritten = m->tied;
  }
  for (int64_t l = 0; m->mla && l < m->L; l++) {
    if (stages->p[l] != p) continue;
    oracle_place in = oracle_in(at, l, "%smodel.layers.%d.", outer, (int)l);
    oracle_engine_derived(&in, e);
  }
  if (!is_last || !m->mtp) return;
  oracle_place draft = *place;
  draft.chunk = 1;
  if (m->next_mtp) {
    draft_of_next(&draft, e);
  } else {
    draft_of_deepseek(&draft, e);
  }
}

/* ---- Experts --------------------------------------------------------------------------------- */

/* 6.2. Qwen2-MoE and gpt-oss take redundant experts and a map, and do not look at them. */
static bool read_slots(const oracle_model *m, oracle_options *options, sizes *s, oracle_slots *slots,
                       char *why) {
  static const char *const placements[] = {"linear", "round_robin", NULL};
  int placement;
  int64_t redundant = 0, flat = s->tp * s->dp * s->pcp;
  const char *ep = oracle_option_text(options, "ep"), *map = oracle_option_text(options, "map");
  const char *redundant_text = oracle_option_text(options, "redundant");
  if (ep && strcmp(ep, "on") != 0 && strcmp(ep, "off") != 0 && strcmp(ep, "1") != 0)
    return oracle_refuse(why, "ep=%s", ep);
  s->ep_on = ep && strcmp(ep, "on") == 0;
  if (!oracle_option_word(options, "placement", placements, &placement, why)) return false;
  if (redundant_text && strcmp(redundant_text, "0") != 0 &&
      !oracle_option_number(options, "redundant", 0, &redundant, why))
    return false;
  bool eplb = redundant_text != NULL || map != NULL;
  if (!m->E)
    return (!s->ep_on && !eplb && placement == 0) ||
           oracle_refuse(why, "ep=on, and the model has no experts");
  if (eplb && !s->ep_on) return oracle_refuse(why, "redundant experts and maps need ep=on");
  if (redundant_text && flat == 1) return oracle_refuse(why, "redundant experts on one rank");
  int64_t group = s->ep_on ? flat : 1;
  if (oracle_is(m, "qwen2_moe") || m->packed) {
    if (map) return oracle_refuse(why, "%s is not placed by a map", m->type);
    redundant = 0;
    eplb = false;
  }
  if (eplb && (m->E + redundant) % group != 0)
    return oracle_refuse(why, "%lld experts on %lld ranks", (long long)(m->E + redundant),
                         (long long)group);
  if (!oracle_slots_make(m, group, redundant, map, slots, why)) return false;
  slots->round_robin =
      placement == 1 && s->ep_on && m->groups > 1 && !redundant_text && !map && s->dp * s->pcp == 1;
  return !slots->round_robin || m->E >= group ||
         oracle_refuse(why, "round_robin with %lld experts on %lld ranks", (long long)m->E,
                       (long long)group);
}

/* ---- Ranks ----------------------------------------------------------------------------------- */

/* Sequence parallel MoE keeps the shared expert of DeepSeek and Qwen3-Next whole: 8. */
static bool whole_shared(const oracle_model *m, const sizes *s) {
  return (m->mla || m->gated || oracle_is(m, "deepseek_ocr")) && s->ep_on && s->tp > 1 && s->dp > 1;
}

/* Layout rank i = t + TP * (pcp + PCP * (p + PP * (d + DP * replica))); experts over all of a stage: 1.2. */
static void rank_of(oracle_layout *layout, const sizes *s, const oracle_stages *stages,
                    const oracle_slots *slots, int64_t i, int64_t strides) {
  const oracle_model *m = layout->model;
  int64_t t = i % s->tp, pcp = i / s->tp % s->pcp, p = i / s->tp / s->pcp % s->pp;
  int64_t d = i / s->tp / s->pcp / s->pp % s->dp;
  int64_t flat = (d * s->pcp + pcp) * s->tp + t, flat_size = s->dp * s->pcp * s->tp;
  int64_t rows = oracle_round_up(m->V, 64);
  const oracle_shard cut = {t, s->tp}, whole = {0, 1};
  const oracle_engine e = {
      .old_names = s->old_names,
      .attention = cut,
      .dense = cut,
      .shared = whole_shared(m, s) ? whole : cut,
      .moe = s->ep_on ? whole : (oracle_shard){flat, flat_size},
      .embedding = cut,
      .head = cut,
      .embedding_rows = rows,
      .head_rows = rows,
      .slots = slots,
      .ep_rank = s->ep_on ? flat : 0,
  };
  const oracle_place at = {
      .model = m, .rank = &layout->rank[oracle_physical_rank(i, s->tp, strides)], .layer = -1};
  oracle_coordinate(at.rank, "tp", t);
  oracle_coordinate(at.rank, "pcp", pcp);
  oracle_coordinate(at.rank, "pp", p);
  oracle_coordinate(at.rank, "dp", d);
  oracle_coordinate(at.rank, "moe_tp", e.moe.t);
  oracle_coordinate(at.rank, "ep", e.ep_rank);
  stage(&at, &e, stages, p);
}

static bool check(const oracle_layout *layout, const sizes *s, int64_t strides, char *why) {
  const oracle_model *m = layout->model;
  int64_t flat = s->tp * s->dp * s->pcp;
  if (m->sinks && m->ng % s->tp != 0)
    return oracle_refuse(why, "%lld KV heads of %s for tp %lld", (long long)m->ng, m->type,
                         (long long)s->tp);
  bool enough = !m->gated && !oracle_is(m, "qwen2_moe") && !oracle_is(m, "qwen3_moe") && !m->halves;
  if (!enough && m->E && s->tp > m->E)
    return oracle_refuse(why, "tp %lld is more than the %lld experts", (long long)s->tp, (long long)m->E);
  if (m->packed && m->I % (flat * s->pp) != 0)
    return oracle_refuse(why, "width %lld on %lld ranks", (long long)m->I, (long long)(flat * s->pp));
  if (m->o_bias && (oracle_is(m, "qwen3") || oracle_is(m, "qwen3_moe") || m->halves))
    return oracle_refuse(why, "the bias of o_proj has no place");
  return oracle_divides(m->nh, s->tp, "heads", why) && /* of the config, whatever the layers are */
         oracle_check_engine(m, s->tp, s->tp, whole_shared(m, s) ? 1 : s->tp, s->ep_on ? 1 : flat, false,
                             why) &&
         (!m->next_mtp || !m->mtp || oracle_divides(m->H, s->tp, "rows of mtp.fc", why)) &&
         oracle_check_ranks(layout, flat * s->pp, s->tp, strides, why) &&
         oracle_divides(oracle_round_up(m->V, 64), s->tp, "vocabulary rows", why);
}

/* Some models look for an expert layer on their stage, and are not made without one. */
static bool has_experts(const oracle_model *m, const oracle_stages *stages, char *why) {
  bool looks = oracle_is(m, "mixtral") || oracle_is(m, "qwen3_moe") || m->halves ||
               oracle_is(m, "glm4_moe") || (m->gated && m->E);
  for (int64_t p = 0; looks && p < stages->pp; p++) {
    bool found = false;
    for (int64_t l = 0; l < m->L; l++) found |= stages->p[l] == p && m->moe[l];
    if (!found) return oracle_refuse(why, "stage %lld has no experts", (long long)p);
  }
  return true;
}

/* Decode context parallelism is for copies of KV heads; of latent attention there is one. */
static bool decode_fits(const oracle_model *m, const sizes *s, int64_t dcp, char *why) {
  bool spans = s->pcp == 1 ? s->tp % dcp == 0 : dcp == 1 || dcp == s->pcp || dcp == s->tp * s->pcp;
  bool copies = m->mla || (s->tp / m->ng >= dcp && m->nh / m->ng % dcp == 0);
  return (spans && (dcp == 1 || copies)) || oracle_refuse(why, "dcp=%lld", (long long)dcp);
}

bool oracle_build_vllm(oracle_layout *layout, oracle_options *options, int64_t strides, char *why) {
  static const char *const names[] = {"new", "old", NULL};
  sizes s = {0};
  int64_t dcp = 1;
  int old = 0;
  oracle_stages stages = {0};
  oracle_slots slots = {0};
  bool good = oracle_stages_vllm(layout->model->L, options, &stages, why) &&
              oracle_option_number(options, "tp", 1, &s.tp, why) &&
              oracle_option_number(options, "dp", 1, &s.dp, why) &&
              oracle_option_number(options, "pcp", 1, &s.pcp, why) &&
              oracle_option_number(options, "dcp", 1, &dcp, why) &&
              oracle_option_word(options, "names", names, &old, why) &&
              read_slots(layout->model, options, &s, &slots, why) && oracle_options_end(options, why);
  s.pp = stages.pp;
  s.old_names = old == 1;
  good = good && decode_fits(layout->model, &s, dcp, why) && check(layout, &s, strides, why) &&
         has_experts(layout->model, &stages, why);
  for (int64_t i = 0; good && i < layout->ranks; i++) rank_of(layout, &s, &stages, &slots, i, strides);
  oracle_slots_free(&slots);
  oracle_stages_free(&stages);
  return good;
}
