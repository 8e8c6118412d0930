/* Random configs: odd and small sizes that many shard counts up to 16 divide all the same. */
#include "plan/draw.h"

#include "test.h"

#define PICK(random, ...)                                                                                  \
  draw_of(random, (const int64_t[]){__VA_ARGS__},                                                          \
          (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))

int64_t draw_of(treadle_random *random, const int64_t *values, int count) {
  return values[treadle_random_below(random, count)];
}

int64_t draw_divisor(treadle_random *random, int64_t n) {
  int64_t d;
  do d = treadle_random_between(random, 1, n);
  while (n % d != 0);
  return d;
}

bool draw_chance(treadle_random *random, int percent) {
  return treadle_random_below(random, 100) < percent;
}

static void number(json_t *config, const char *key, int64_t value) {
  json_object_set_new(config, key, json_integer(value));
}

static void flag(json_t *config, const char *key, bool value) {
  json_object_set_new(config, key, json_boolean(value));
}

/* ---- Parts of a config ---- */

static void add_attention(treadle_random *random, json_t *config) {
  int64_t nh = PICK(random, 1, 2, 3, 4, 4, 6, 8, 12, 12, 24);
  number(config, "num_attention_heads", nh);
  number(config, "num_key_value_heads", draw_divisor(random, nh));
  number(config, "head_dim", treadle_random_between(random, 1, 5));
  if (draw_chance(random, 25)) flag(config, "attention_bias", draw_chance(random, 70));
}

static void add_mla(treadle_random *random, json_t *config) {
  int64_t rope = treadle_random_between(random, 1, 3), nh = PICK(random, 1, 2, 3, 4, 6, 8, 12);
  number(config, "num_attention_heads", nh);
  number(config, "num_key_value_heads", nh);
  json_object_set_new(config, "q_lora_rank",
                      json_null()); /* which is not what a config means that lacks it */
  if (draw_chance(random, 70)) number(config, "q_lora_rank", PICK(random, 3, 4, 6, 8, 12));
  number(config, "kv_lora_rank", PICK(random, 4, 5, 6, 8, 12, 12) - (draw_chance(random, 60) ? rope : 0));
  number(config, "qk_rope_head_dim", rope);
  number(config, "qk_nope_head_dim", treadle_random_between(random, 1, 4));
  number(config, "v_head_dim", treadle_random_between(random, 1, 4));
}

/* Some layers of each sort. */
static void add_linear(treadle_random *random, json_t *config, int64_t layers) {
  int64_t nk = PICK(random, 1, 2, 3, 4, 6, 8, 12);
  number(config, "linear_num_key_heads", nk);
  number(config, "linear_num_value_heads", nk * treadle_random_between(random, 1, 3));
  number(config, "linear_key_head_dim", treadle_random_between(random, 1, 3));
  number(config, "linear_value_head_dim", treadle_random_between(random, 1, 3));
  number(config, "linear_conv_kernel_dim", treadle_random_between(random, 1, 4));
  number(config, "full_attention_interval", treadle_random_between(random, 2, layers));
  json_object_del(config, "attention_bias");
}

static int64_t draw_experts(treadle_random *random) {
  return PICK(random, 2, 3, 4, 4, 6, 8, 8, 12, 12, 5, 7);
}

static void add_widths(treadle_random *random, json_t *config) {
  number(config, "moe_intermediate_size", PICK(random, 2, 3, 4, 6, 8, 12, 12));
}

/* Qwen's: one layer in this many has experts, but for those of a list. */
static void add_sparse(treadle_random *random, json_t *config, int64_t layers) {
  number(config, "num_experts", draw_experts(random));
  add_widths(random, config);
  if (draw_chance(random, 30)) number(config, "decoder_sparse_step", treadle_random_between(random, 1, 2));
  if (draw_chance(random, 70)) return;
  json_t *list = json_array();
  for (int64_t l = 0; l < layers; l++)
    if (draw_chance(random, 30)) json_array_append_new(list, json_integer(l));
  json_object_set_new(config, "mlp_only_layers", list);
}

/* DeepSeek's: the first layers are dense. */
static void add_first_dense(treadle_random *random, json_t *config, int64_t layers) {
  int64_t experts = draw_experts(random);
  number(config, "n_routed_experts", experts);
  number(config, "n_shared_experts", PICK(random, 1, 1, 2));
  number(config, "first_k_dense_replace", treadle_random_between(random, 0, layers - 1));
  number(config, "moe_layer_freq", PICK(random, 1, 1, 1, 2));
  number(config, "n_group", draw_divisor(random, experts));
  add_widths(random, config);
}

/* Files of fp8: small blocks, that shards may end on; and those that hold the whole of a tensor. */
static void add_blocks(treadle_random *random, json_t *config) {
  int64_t high = PICK(random, 1, 2, 2, 2, 3, 4, 4, 6, 8, 12, 16, 128);
  int64_t wide = draw_chance(random, 60) ? high : PICK(random, 1, 2, 2, 3, 4, 4, 6, 8, 128);
  json_object_set_new(config, "quantization_config",
                      json_pack("{s:s, s:[I, I]}", "quant_method", "fp8", "weight_block_size",
                                (json_int_t)high, (json_int_t)wide));
}

/* ---- Families ---- */

enum {
  ATTENTION = 1,
  MLA = 2,
  LINEAR = 4,
  LOCAL = 8, /* num_local_experts */
  SPARSE = 16,
  FIRST = 32, /* first layers dense */
  SHARED = 64,
  MTP = 128,     /* one or more MTP layers */
  NEXT = 256,    /* at most one, mtp.* */
  HEAD = 512,    /* head_dim is H / nh */
  PLAIN = 1024,  /* no decoder_sparse_step */
  BIASED = 2048, /* all or none of the biases; always here */
  NO_FP8 = 4096, /* its files never hold fp8 blocks */
};

const char *const draw_families[] = {"llama",
                                     "smollm3",
                                     "qwen2",
                                     "qwen3",
                                     "gemma3_text",
                                     "mixtral",
                                     "qwen2_moe",
                                     "qwen3_moe",
                                     "deepseek_v2",
                                     "deepseek_v3",
                                     "kimi_k2",
                                     "glm4_moe",
                                     "gpt_oss",
                                     "qwen3_next",
                                     "qwen3_5_text",
                                     "qwen3_5_moe_text",
                                     "qwen3_vl_moe_text",
                                     "deepseek_ocr",
                                     NULL};

static const int traits[] = {ATTENTION,
                             ATTENTION,
                             ATTENTION,
                             ATTENTION,
                             ATTENTION | NO_FP8,
                             ATTENTION | LOCAL,
                             ATTENTION | SPARSE | SHARED,
                             ATTENTION | SPARSE,
                             MLA | FIRST,
                             MLA | FIRST | MTP,
                             MLA | FIRST | MTP,
                             ATTENTION | FIRST | MTP,
                             ATTENTION | LOCAL | BIASED | NO_FP8,
                             ATTENTION | LINEAR | SPARSE | SHARED | NEXT | PLAIN,
                             ATTENTION | LINEAR | NEXT,
                             ATTENTION | LINEAR | SPARSE | SHARED | NEXT | PLAIN,
                             ATTENTION | SPARSE | PLAIN | NO_FP8,
                             ATTENTION | FIRST | HEAD | NO_FP8};

static void fill(treadle_random *random, json_t *config, int family) {
  static const char *const dtypes[] = {"float32", "bfloat16", "float16"};
  int has = traits[family];
  int64_t layers = treadle_random_between(random, has & LINEAR ? 2 : 1, 5);
  json_object_set_new(config, "model_type", json_string(draw_families[family]));
  number(config, "vocab_size", treadle_random_between(random, 5, (has & ~NO_FP8) == ATTENTION ? 300 : 100));
  number(config, "hidden_size",
         draw_chance(random, has & (MTP | NEXT) ? 70 : 30) ? PICK(random, 4, 6, 8, 12, 12, 24)
                                                           : treadle_random_between(random, 3, 20));
  number(config, "num_hidden_layers", layers);
  number(config, "intermediate_size", PICK(random, 12, 24, 8, 6, 36));
  if (has & ATTENTION) add_attention(random, config);
  if (has & MLA) add_mla(random, config);
  if (has & LINEAR) add_linear(random, config, layers);
  if (has & LOCAL) number(config, "num_local_experts", draw_experts(random));
  if (has & SPARSE) add_sparse(random, config, layers);
  if (has & FIRST) add_first_dense(random, config, layers);
  if (has & SHARED) number(config, "shared_expert_intermediate_size", PICK(random, 4, 6, 8, 12, 24));
  if (has & MTP)
    number(config, "num_nextn_predict_layers", draw_chance(random, 50) ? PICK(random, 1, 1, 2) : 0);
  if (has & NEXT && draw_chance(random, 50)) number(config, "mtp_num_hidden_layers", 1);
  flag(config, "tie_word_embeddings", draw_chance(random, 40));
  if (has & PLAIN) {
    json_object_del(config, "decoder_sparse_step");
    json_object_del(config, "mlp_only_layers");
  }
  if (has & HEAD) { /* head_dim is H / nh */
    number(config, "hidden_size",
           json_integer_value(json_object_get(config, "num_attention_heads")) *
               treadle_random_between(random, 1, 4));
    json_object_del(config, "head_dim");
    json_object_del(config, "attention_bias");
    json_object_del(config, "n_group");
  }
  if (has & BIASED) json_object_del(config, "attention_bias");
  if (strcmp(draw_families[family], "glm4_moe") == 0) flag(config, "use_qk_norm", draw_chance(random, 50));
  if (strcmp(draw_families[family], "glm4_moe") == 0 ||
      json_integer_value(json_object_get(config, "num_nextn_predict_layers")))
    json_object_del(config, "moe_layer_freq"); /* an MTP layer has experts, whatever its number */
  if (strcmp(draw_families[family], "gemma3_text") == 0) flag(config, "tie_word_embeddings", true);
  if ((has & ~NO_FP8) == ATTENTION && draw_chance(random, 25))
    flag(config, "mlp_bias", draw_chance(random, 70));
  json_object_set_new(config, "torch_dtype", json_string(dtypes[treadle_random_below(random, 3)]));
  if (!(has & NO_FP8) && draw_chance(random, 50)) add_blocks(random, config);
}

void draw_config(treadle_random *random, int family, int64_t max_elems, char config[DRAW_CONFIG]) {
  for (;;) {
    char why[200];
    json_t *json = json_object();
    fill(random, json, family);
    oracle_model *model = oracle_model_new(json, why);
    if (!model) fail_msg("%s: %s", draw_families[family], why);
    bool moe = model->E == 0;
    for (int64_t l = 0; l < model->L; l++) moe |= model->moe[l];
    bool good = moe && model->elems <= max_elems;
    if (good) assert_true(json_dumpb(json, config, DRAW_CONFIG, 0) < DRAW_CONFIG);
    if (good) config[json_dumpb(json, NULL, 0, 0)] = 0;
    oracle_model_free(model);
    json_decref(json);
    if (good) return;
  }
}

int draw_family_of(const json_t *config) {
  const char *type = json_string_value(json_object_get(config, "model_type"));
  for (int f = 0; draw_families[f]; f++)
    if (strcmp(draw_families[f], type) == 0) return f;
  fail_msg("no family '%s'", type);
  return -1;
}
