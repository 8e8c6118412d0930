/* Drafts of families (src/core/draft/): checkpoints that somebody made up, in lists of tensors, become families that read them and have
 * the layouts that they should; what is not a checkpoint is refused. ctest: stage=gcc */
#include "test.h"

#include "base/alloc.h"
#include "io/file.h"
#include "treadle_tools.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *folder;
static char list_path[300], config_path[300], families_path[300];

static int make_folder(void **state) {
  (void)state;
  folder = test_folder();
  snprintf(list_path, sizeof list_path, "%s/list.tsv", folder);
  snprintf(config_path, sizeof config_path, "%s/config.json", folder);
  snprintf(families_path, sizeof families_path, "%s/families", folder);
  return mkdir(families_path, 0777);
}

static int remove_folder(void **state) {
  (void)state;
  test_remove(folder);
  return 0;
}

static void write_text(const char *path, const char *text) {
  assert_ok(treadle_output_write(path, text, strlen(text)));
}

/* Lines of a list; {l} and * run over layers [from, to) and experts. */
typedef struct list_line {
  const char *name, *shape;
  int from, to, experts;
  const char *type; /* NULL: BF16 */
} list_line;

static void write_list(const list_line *lines) {
  FILE *file = fopen(list_path, "w");
  assert_non_null(file);
  for (; lines->name; lines++)
    for (int l = lines->from; l < (lines->to ? lines->to : 1); l++)
      for (int e = 0; e < (lines->experts ? lines->experts : 1); e++) {
        for (const char *c = lines->name; *c; c++) {
          if (strncmp(c, "{l}", 3) == 0) {
            fprintf(file, "%d", l);
            c += 2;
          } else if (*c == '*') {
            fprintf(file, "%d", e);
          } else {
            fputc(*c, file);
          }
        }
        fprintf(file, "\t%s\t%s\n", lines->type ? lines->type : "BF16", lines->shape);
      }
  assert_int_equal(fclose(file), 0);
}

/* The draft of the list and the config; `like` NULL: as the nearest. Its file is among the families of the folder. */
static treadle_family_draft *draft_of(const char *config, const char *like,
                                      treadle_family_draft_info *info) {
  treadle_family_draft *draft;
  const treadle_family_draft_options options = {
      .struct_size = sizeof options, .model = config_path, .like = like};
  char path[400];
  write_text(config_path, config);
  assert_ok(treadle_family_draft_create(list_path, &options, &draft));
  *info = (treadle_family_draft_info){.struct_size = sizeof *info};
  treadle_family_draft_get_info(draft, info);
  if (info->refusal) fail_msg("%s\n%s", info->refusal, info->text);
  if (info->missing + info->left_over)
    fail_msg("missing %s left over %s\n%s", info->missing_names, info->left_over_names, info->text);
  snprintf(path, sizeof path, "%s/%s.yaml", families_path, info->family);
  write_text(path, info->text);
  return draft;
}

static void has_line(const char *text, const char *line) {
  if (!strstr(text, line)) fail_msg("no '%s' in:\n%s", line, text);
}

/* The shape of a storage tensor of rank 0 of 2, as the draft says; 0 where there is none. */
static int64_t storage_rows(const char *layout_text, const char *name) {
  const treadle_model_options options = {.struct_size = sizeof options, .families = families_path};
  treadle_model *model;
  treadle_layout *layout;
  int64_t rows = 0;
  assert_ok(treadle_model_open(config_path, &options, &model));
  assert_ok(treadle_layout_create(model, layout_text, 2, NULL, &layout));
  for (int32_t s = 0; s < treadle_layout_storage_count(layout, 0); s++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    assert_ok(treadle_layout_storage(layout, 0, s, &info));
    if (strcmp(info.name, name) == 0) rows = info.shape[0];
  }
  treadle_layout_destroy(layout);
  treadle_model_close(model);
  return rows;
}

/* ---- A decoder with other names, other fields, and one more norm ------------------------------- */

static void other_names(void **state) {
  (void)state;
  static const list_line lines[] = {{"transformer.wte.weight", "320x64", 0, 0, 0, NULL},
                                    {"transformer.ln_f.weight", "64", 0, 0, 0, NULL},
                                    {"transformer.h.{l}.attn.query.weight", "128x64", 0, 4, 0, NULL},
                                    {"transformer.h.{l}.attn.key.weight", "32x64", 0, 4, 0, NULL},
                                    {"transformer.h.{l}.attn.value.weight", "32x64", 0, 4, 0, NULL},
                                    {"transformer.h.{l}.attn.out.weight", "64x128", 0, 4, 0, NULL},
                                    {"transformer.h.{l}.ln_1.weight", "64", 0, 4, 0, NULL},
                                    {"transformer.h.{l}.ln_2.weight", "64", 0, 4, 0, NULL},
                                    {"transformer.h.{l}.ln_3.weight", "64", 1, 4, 0, NULL},
                                    {"transformer.h.{l}.mlp.w_gate.weight", "160x64", 0, 4, 0, NULL},
                                    {"transformer.h.{l}.mlp.w_up.weight", "160x64", 0, 4, 0, NULL},
                                    {"transformer.h.{l}.mlp.w_down.weight", "64x160", 0, 4, 0, NULL},
                                    {"lm_head.weight", "320x64", 0, 0, 0, NULL},
                                    {0}};
  static const char config[] =
      "{\"model_type\": \"loom\", \"d_model\": 64, \"n_layers\": 4, \"n_heads\": 8, \"n_kv_heads\": 2,"
      " \"head_size\": 16, \"vocab_size\": 320, \"ffn_hidden_size\": 160}";
  treadle_family_draft_info info;
  write_list(lines);
  treadle_family_draft *draft = draft_of(config, NULL, &info);
  assert_string_equal(info.like, "llama");
  assert_int_equal(info.renamed, 11);
  assert_int_equal(info.added, 1);
  assert_false(info.same || info.covered);
  has_line(info.text, "\nprefixes: {L.: \"transformer.h.{l}.\"}\n");
  has_line(info.text, "hd: head_size ?? H / nh");
  has_line(info.text, "  L.self_attn.q_proj.weight: L.attn.query.weight\n");
  has_line(info.text, "      - {name: L.ln_3.weight, shape: [H], when: l >= 1}\n");
  has_line(info.open_lines, "transformer.h.{l}.ln_3.weight is new: its names in the engines\n");
  assert_int_equal(storage_rows("vllm:tp=2", "model.layers.1.self_attn.qkv_proj.weight"), 64 + 32);
  assert_int_equal(storage_rows("vllm:tp=2", "model.layers.1.ln_3.weight"), 64);
  assert_int_equal(storage_rows("vllm:tp=2", "model.layers.0.ln_3.weight"), 0);
  assert_int_equal(storage_rows("megatron:tp=2", "decoder.layers.3.mlp.linear_fc1.weight"), 160);
  treadle_family_draft_destroy(draft);
}

/* ---- Words of names, words of configs ----------------------------------------------------------- */

/* One decoder by the words of many checkpoints: all of them are a llama by other names, and no size is a guess. */
static void words(void **state) {
  (void)state;
  static const struct {
    const char *config, *names[12]; /* embedding, norm, head; q, k, v, o; norms; gate, up, down */
  } rows[] = {
      {"\"d_model\": 64, \"n_layers\": 2, \"n_heads\": 8, \"n_kv_heads\": 2, \"d_head\": 16, \"d_ffn\": "
       "160",
       {"wte", "norm_f", "unembed", "attn.wq", "attn.wk", "attn.wv", "attn.wo", "norm_attn", "norm_ffn",
        "ffn.w_gate", "ffn.w_up", "ffn.w_out"}},
      {"\"dim\": 64, \"n_layers\": 2, \"n_heads\": 8, \"n_kv_heads\": 2, \"head_dim\": 16, \"d_mlp\": 160",
       {"tok_embeddings", "norm", "output", "wq", "wk", "wv", "wo", "attention_norm", "ffn_norm", "w1",
        "w3", "w2"}},
      {"\"n_embd\": 64, \"n_layer\": 2, \"n_head\": 8, \"n_query_groups\": 2, \"head_size\": 16, "
       "\"mlp_size\": 160",
       {"wte", "ln_f", "lm_head", "attn.c_q", "attn.c_k", "attn.c_v", "attn.c_proj", "ln_1", "ln_2",
        "mlp.c_fc_0", "mlp.c_fc_1", "mlp.c_proj"}},
      {"\"embedding_dim\": 64, \"num_blocks\": 2, \"num_q_heads\": 8, \"num_kv_groups\": 2, \"head_dim\": "
       "16, \"d_ffn\": 160",
       {"token_embd", "output_norm", "output", "attn_q", "attn_k", "attn_v", "attn_output", "attn_norm",
        "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"}}};
  static const char *const shapes[] = {"320x64", "64", "320x64", "128x64", "32x64",  "32x64",
                                       "64x128", "64", "64",     "160x64", "160x64", "64x160"};
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    list_line lines[13] = {{0}};
    char names[12][100], config[600];
    treadle_family_draft_info info;
    for (size_t k = 0; k < 12; k++) {
      snprintf(names[k], sizeof names[k], k < 3 ? "%s.weight" : "blk.{l}.%s.weight", rows[i].names[k]);
      lines[k] = (list_line){.name = names[k], .shape = shapes[k], .to = k < 3 ? 0 : 2};
    }
    write_list(lines);
    snprintf(config, sizeof config, "{\"model_type\": \"warp\", \"vocab_size\": 320, %s}", rows[i].config);
    treadle_family_draft *draft = draft_of(config, "llama", &info);
    if (info.open != 1 || info.added || info.renamed < 11) fail_msg("%s:\n%s", rows[i].config, info.text);
    treadle_family_draft_destroy(draft);
  }
}

/* The first matrix of an MLP is gate and up where it has twice the rows that the config says, else up alone. */
static void one_word_for_two(void **state) {
  (void)state;
  static const char *const words[][2] = {{"w_in", "w_out"}, {"fc1", "fc2"}, {"fc_in", "fc_out"}};
  for (size_t i = 0; i < 2 * TEST_COUNT(words); i++) {
    bool both = i % 2 == 0;
    char in[100], out[100];
    treadle_family_draft_info info;
    snprintf(in, sizeof in, "h.{l}.mlp.%s.weight", words[i / 2][0]);
    snprintf(out, sizeof out, "h.{l}.mlp.%s.weight", words[i / 2][1]);
    const list_line lines[] = {{"wte.weight", "320x64", 0, 0, 0, NULL},
                               {"ln_f.weight", "64", 0, 0, 0, NULL},
                               {"h.{l}.attn.c_attn.weight", "192x64", 0, 2, 0, NULL},
                               {"h.{l}.attn.c_proj.weight", "64x128", 0, 2, 0, NULL},
                               {"h.{l}.ln_1.weight", "64", 0, 2, 0, NULL},
                               {"h.{l}.ln_2.weight", "64", 0, 2, 0, NULL},
                               {in, both ? "320x64" : "160x64", 0, 2, 0, NULL},
                               {out, "64x160", 0, 2, 0, NULL},
                               {"lm_head.weight", "320x64", 0, 0, 0, NULL},
                               {0}};
    write_list(lines);
    treadle_family_draft *draft = draft_of(
        "{\"model_type\": \"twill\", \"d_model\": 64, \"n_layers\": 2, \"n_heads\": 8, \"n_kv_heads\": 2,"
        " \"head_size\": 16, \"vocab_size\": 320, \"d_ffn\": 160}",
        both ? NULL : "llama", &info);
    if (both) assert_string_equal(info.like, "phi3");
    if (both) assert_int_equal(info.renamed, 8);
    if (!both) has_line(info.text, "L.mlp.up_proj.weight: L.mlp.");
    treadle_family_draft_destroy(draft);
  }
}

/* ---- Experts, layers that differ, fields of the config's own ------------------------------------ */

static void other_layers(void **state) {
  (void)state;
  static const list_line lines[] = {
      {"model.embed_tokens.weight", "320x64", 0, 0, 0, NULL},
      {"model.norm.weight", "64", 0, 0, 0, NULL},
      {"lm_head.weight", "320x64", 0, 0, 0, NULL},
      {"model.layers.{l}.self_attn.q_proj.weight", "128x64", 0, 6, 0, NULL},
      {"model.layers.{l}.self_attn.k_proj.weight", "32x64", 0, 6, 0, NULL},
      {"model.layers.{l}.self_attn.v_proj.weight", "32x64", 0, 6, 0, NULL},
      {"model.layers.{l}.self_attn.o_proj.weight", "64x128", 0, 6, 0, NULL},
      {"model.layers.{l}.self_attn.q_norm.weight", "16", 3, 4, 0, NULL},
      {"model.layers.{l}.self_attn.k_norm.weight", "16", 3, 4, 0, NULL},
      {"model.layers.{l}.self_attn.sinks", "24", 0, 6, 0, NULL},
      {"model.layers.{l}.input_layernorm.weight", "64", 0, 6, 0, NULL},
      {"model.layers.{l}.post_attention_layernorm.weight", "64", 0, 6, 0, NULL},
      {"model.layers.{l}.mlp.gate_proj.weight", "160x64", 0, 2, 0, NULL},
      {"model.layers.{l}.mlp.up_proj.weight", "160x64", 0, 2, 0, NULL},
      {"model.layers.{l}.mlp.down_proj.weight", "64x160", 0, 2, 0, NULL},
      {"model.layers.{l}.mlp.gate.weight", "4x64", 2, 6, 0, NULL},
      {"model.layers.{l}.mlp.experts.*.gate_proj.weight", "48x64", 2, 6, 4, NULL},
      {"model.layers.{l}.mlp.experts.*.up_proj.weight", "48x64", 2, 6, 4, NULL},
      {"model.layers.{l}.mlp.experts.*.down_proj.weight", "64x48", 2, 6, 4, NULL},
      {0}};
  static const char config[] =
      "{\"model_type\": \"weft\", \"hidden_size\": 64, \"num_hidden_layers\": 6, \"num_attention_heads\": "
      "8,"
      " \"num_key_value_heads\": 2, \"head_dim\": 16, \"vocab_size\": 320, \"intermediate_size\": 160,"
      " \"n_experts\": 4, \"expert_dim\": 48, \"n_dense_layers\": 2, \"sinks\": 24}";
  treadle_family_draft_info info;
  write_list(lines);
  treadle_family_draft *draft = draft_of(config, NULL, &info);
  assert_string_equal(info.like, "qwen3_moe");
  has_line(info.text, "\nconditions: {sparse: l >= n_dense_layers}\n"); /* so rules of engines follow */
  has_line(info.text, "name: L.self_attn.q_norm.weight, set: {when: l == 3}}");
  has_line(info.text, "E: n_experts");
  has_line(info.text, "d_sinks: sinks");
  has_line(info.text, "- {name: L.self_attn.sinks, shape: [d_sinks]}");
  assert_int_equal(storage_rows("megatron:tp=2", "decoder.layers.1.mlp.linear_fc1.layer_norm_weight"), 64);
  assert_int_equal(storage_rows("megatron:tp=2", "decoder.layers.2.mlp.linear_fc1.layer_norm_weight"), 0);
  assert_int_equal(storage_rows("vllm:tp=2", "model.layers.2.mlp.experts.routed_experts.w13_weight"), 4);
  treadle_family_draft_destroy(draft);
}

/* ---- Layers of other sizes ------------------------------------------------------------------------ */

#define ATTENTION(q, kv, head, from, to)                                                                   \
  {"model.layers.{l}.self_attn.q_proj.weight", q "x64", from, to, 0, NULL},                                \
      {"model.layers.{l}.self_attn.k_proj.weight", kv "x64", from, to, 0, NULL},                           \
      {"model.layers.{l}.self_attn.v_proj.weight", kv "x64", from, to, 0, NULL},                           \
      {"model.layers.{l}.self_attn.o_proj.weight", "64x" q, from, to, 0, NULL},                            \
      {"model.layers.{l}.self_attn.q_norm.weight", head, from, to, 0, NULL}, {                             \
    "model.layers.{l}.self_attn.k_norm.weight", head, from, to, 0, NULL                                    \
  }
#define MLP(width, from, to)                                                                               \
  {"model.layers.{l}.mlp.gate_proj.weight", width "x64", from, to, 0, NULL},                               \
      {"model.layers.{l}.mlp.up_proj.weight", width "x64", from, to, 0, NULL}, {                           \
    "model.layers.{l}.mlp.down_proj.weight", "64x" width, from, to, 0, NULL                                \
  }
#define SKELETON(layers)                                                                                   \
  {"model.embed_tokens.weight", "320x64", 0, 0, 0, NULL}, {"model.norm.weight", "64", 0, 0, 0, NULL},      \
      {"lm_head.weight", "320x64", 0, 0, 0, NULL},                                                         \
      {"model.layers.{l}.input_layernorm.weight", "64", 0, layers, 0, NULL}, {                             \
    "model.layers.{l}.post_attention_layernorm.weight", "64", 0, layers, 0, NULL                           \
  }

/* Other heads by layer_types: k_proj of full attention has half the heads of twice the size, and so the same shape. */
static void layers_by_words(void **state) {
  (void)state;
  static const list_line lines[] = {SKELETON(6),
                                    ATTENTION("128", "64", "16", 0, 2),
                                    ATTENTION("256", "64", "32", 2, 3),
                                    ATTENTION("128", "64", "16", 3, 5),
                                    ATTENTION("256", "64", "32", 5, 6),
                                    MLP("160", 0, 6),
                                    {0}};
  static const char config[] =
      "{\"model_type\": \"damask\", \"hidden_size\": 64, \"num_hidden_layers\": 6, "
      "\"num_attention_heads\": 8,"
      " \"num_key_value_heads\": 4, \"head_dim\": 16, \"global_head_dim\": 32, \"vocab_size\": 320,"
      " \"intermediate_size\": 160, \"layer_types\": [\"sliding\", \"sliding\", \"full\", \"sliding\","
      " \"sliding\", \"full\"]}";
  treadle_family_draft_info info;
  write_list(lines);
  treadle_family_draft *draft = draft_of(config, "qwen3", &info);
  has_line(info.text, "  full:\n    when: l in layer_types.full\n");
  has_line(info.text, "hd: global_head_dim");
  has_line(info.text, "ng: 2");
  has_line(info.open_lines, "ng is 2 in these layers, by the shapes: of which field?");
  assert_int_equal(info.open, 2);
  assert_int_equal(storage_rows("vllm:tp=2", "model.layers.1.self_attn.qkv_proj.weight"), 64 + 64);
  assert_int_equal(storage_rows("vllm:tp=2", "model.layers.2.self_attn.qkv_proj.weight"), 128 + 64);
  treadle_family_draft_destroy(draft);

  /* that one is extended: the same by other names, of which layer_dims are the family's */
  list_line others[TEST_COUNT(lines)];
  char names[TEST_COUNT(lines)][100], config_of_other[sizeof config];
  const treadle_family_draft_options options = {
      .struct_size = sizeof options, .model = config_path, .like = "damask", .families = families_path};
  for (size_t i = 0; i < TEST_COUNT(lines); i++) {
    const char *part = lines[i].name ? strstr(lines[i].name, "self_attn.q_proj") : NULL;
    others[i] = lines[i];
    if (part)
      snprintf(names[i], sizeof names[i], "%.*sself_attn.wq%s", (int)(part - lines[i].name), lines[i].name,
               part + strlen("self_attn.q_proj"));
    if (part) others[i].name = names[i];
  }
  memcpy(config_of_other, config, sizeof config);
  memcpy(strstr(config_of_other, "damask"), "brocad", 6);
  write_list(others);
  write_text(config_path, config_of_other);
  assert_ok(treadle_family_draft_create(list_path, &options, &draft));
  info = (treadle_family_draft_info){.struct_size = sizeof info};
  treadle_family_draft_get_info(draft, &info);
  if (info.refusal || info.missing + info.left_over || info.renamed != 1 || info.open != 1)
    fail_msg("%s\n%s%s", info.refusal ? info.refusal : "", info.missing_names, info.text);
  treadle_family_draft_destroy(draft);
}

/* Lists with a number for each layer: KV heads and widths, each of its own. */
static void layers_by_numbers(void **state) {
  (void)state;
  static const list_line lines[] = {SKELETON(6),
                                    ATTENTION("128", "32", "16", 0, 2),
                                    ATTENTION("128", "64", "16", 2, 5),
                                    ATTENTION("128", "16", "16", 5, 6),
                                    MLP("96", 0, 1),
                                    MLP("160", 1, 4),
                                    MLP("96", 4, 5),
                                    MLP("224", 5, 6),
                                    {0}};
  static const char config[] =
      "{\"model_type\": \"ombre\", \"hidden_size\": 64, \"num_hidden_layers\": 6, \"num_attention_heads\": "
      "8,"
      " \"num_key_value_heads\": [2, 2, 4, 4, 4, 1], \"head_dim\": 16, \"vocab_size\": 320,"
      " \"ffn_sizes\": [96, 160, 160, 160, 96, 224]}";
  treadle_family_draft_info info;
  write_list(lines);
  treadle_family_draft *draft = draft_of(config, "qwen3", &info);
  has_line(info.text, "    when: l in num_key_value_heads.2\n    dims: {ng: 2}\n");
  has_line(info.text, "    when: l in num_key_value_heads.1\n    dims: {ng: 1}\n");
  has_line(info.text, "    when: l in ffn_sizes.96\n    dims: {I: 96}\n");
  has_line(info.text, "    when: l in ffn_sizes.224\n    dims: {I: 224}\n");
  assert_int_equal(storage_rows("vllm:tp=2", "model.layers.0.mlp.gate_up_proj.weight"), 96);
  assert_int_equal(storage_rows("vllm:tp=2", "model.layers.3.mlp.gate_up_proj.weight"), 160);
  assert_int_equal(storage_rows("vllm:tp=2", "model.layers.5.mlp.gate_up_proj.weight"), 224);
  assert_int_equal(storage_rows("vllm:tp=1,dp=2", "model.layers.5.self_attn.qkv_proj.weight"), 128 + 32);
  treadle_family_draft_destroy(draft);
}

/* Layers that no field tells are written as they are, and asked; shapes that no dims explain are said. */
static void layers_by_no_rule(void **state) {
  (void)state;
  list_line lines[] = {SKELETON(6),
                       ATTENTION("128", "32", "16", 0, 6),
                       MLP("160", 0, 1),
                       MLP("96", 1, 2),
                       MLP("160", 2, 3),
                       MLP("96", 3, 4),
                       MLP("96", 4, 5),
                       MLP("160", 5, 6),
                       {0}};
  static const char config[] =
      "{\"model_type\": \"moss\", \"hidden_size\": 64, \"num_hidden_layers\": 6, \"num_attention_heads\": "
      "8,"
      " \"num_key_value_heads\": 2, \"head_dim\": 16, \"vocab_size\": 320, \"intermediate_size\": 160}";
  const treadle_family_draft_options options = {
      .struct_size = sizeof options, .model = config_path, .like = "qwen3"};
  treadle_family_draft_info info;
  write_list(lines);
  treadle_family_draft *draft = draft_of(config, "qwen3", &info);
  has_line(info.text, "    when: l == 1 or l == 3 or l == 4\n    dims: {I: 96}\n");
  has_line(info.open_lines,
           "these layers have other sizes (l == 1 or l == 3 or l == 4), by no rule that is plain: when?");
  treadle_family_draft_destroy(draft);
  for (size_t i = 0; lines[i].name; i++) /* one of the three alone has other rows */
    if (strstr(lines[i].name, "up_proj") && strcmp(lines[i].shape, "96x64") == 0) lines[i].shape = "160x64";
  write_list(lines);
  assert_ok(treadle_family_draft_create(list_path, &options, &draft));
  info = (treadle_family_draft_info){.struct_size = sizeof info};
  treadle_family_draft_get_info(draft, &info);
  has_line(info.open_lines,
           "model.layers.{l}.mlp.gate_proj.weight has several shapes: 160x64 in layers 0, 2, 5; 96x64 "
           "in layers 1, 3-4: which dims differ (layer_dims)?");
  assert_null(strstr(info.text, "\nlayer_dims"));
  treadle_family_draft_destroy(draft);
}

/* ---- Other fusing ------------------------------------------------------------------------------- */

static void other_fusing(void **state) {
  (void)state;
  static const list_line lines[] = {{"wte.weight", "320x64", 0, 0, 0, NULL},
                                    {"ln_f.weight", "64", 0, 0, 0, NULL},
                                    {"h.{l}.attn.qkv.weight", "192x64", 0, 2, 0, NULL},
                                    {"h.{l}.attn.out.weight", "64x128", 0, 2, 0, NULL},
                                    {"h.{l}.ln_1.weight", "64", 0, 2, 0, NULL},
                                    {"h.{l}.ln_2.weight", "64", 0, 2, 0, NULL},
                                    {"h.{l}.mlp.gate_up.weight", "320x64", 0, 2, 0, NULL},
                                    {"h.{l}.mlp.w_down.weight", "64x160", 0, 2, 0, NULL},
                                    {"lm_head.weight", "320x64", 0, 0, 0, NULL},
                                    {0}};
  static const char config[] =
      "{\"model_type\": \"twill\", \"d_model\": 64, \"n_layers\": 2, \"n_heads\": 8, \"n_kv_heads\": 2,"
      " \"head_size\": 16, \"vocab_size\": 320, \"ffn_hidden_size\": 160}";
  treadle_family_draft_info info;
  write_list(lines);
  treadle_family_draft *draft = draft_of(config, "llama", &info);
  assert_string_equal(info.like, "llama");
  has_line(info.text, "{name: L.k, of: L.attn.qkv.weight, take: {heads: [nh, ng]}, shape: [heads*hd, H]}");
  has_line(info.text, "\n  megatron: none\n");
  has_line(info.open_lines,
           "h.{l}.attn.qkv.weight: are its rows those of q, k and v, one behind the other?");
  assert_int_equal(storage_rows("vllm:tp=2", "model.layers.1.self_attn.qkv_proj.weight"), 64 + 32);
  assert_int_equal(storage_rows("sglang:tp=2", "model.layers.1.mlp.gate_up_proj.weight"), 160);
  treadle_family_draft_destroy(draft);
  draft = draft_of(config, "qwen3_moe", &info); /* where gate and up are of some layers */
  has_line(info.text, "{name: L.mlp.gate_up.weight, shape: [two*I, H]}");
  treadle_family_draft_destroy(draft);
  draft = draft_of(config, NULL, &info); /* phi3 has it so, by other names */
  assert_string_equal(info.like, "phi3");
  assert_int_equal(info.renamed, 8);
  treadle_family_draft_destroy(draft);
}

/* ---- Norms behind an option, and biases that no family has --------------------------------------- */

static void biases(void **state) {
  (void)state;
  static const list_line lines[] = {
      {"model.embed_tokens.weight", "320x64", 0, 0, 0, NULL},
      {"model.norm.weight", "64", 0, 0, 0, NULL},
      {"lm_head.weight", "320x64", 0, 0, 0, NULL},
      {"model.layers.{l}.self_attn.q_proj.weight", "128x64", 0, 2, 0, NULL},
      {"model.layers.{l}.self_attn.k_proj.weight", "32x64", 0, 2, 0, NULL},
      {"model.layers.{l}.self_attn.v_proj.weight", "32x64", 0, 2, 0, NULL},
      {"model.layers.{l}.self_attn.o_proj.weight", "64x128", 0, 2, 0, NULL},
      {"model.layers.{l}.self_attn.q_norm.weight", "16", 0, 2, 0, NULL},
      {"model.layers.{l}.self_attn.k_norm.weight", "16", 0, 2, 0, NULL},
      {"model.layers.{l}.input_layernorm.weight", "64", 0, 2, 0, NULL},
      {"model.layers.{l}.input_layernorm.bias", "64", 0, 2, 0, NULL},
      {"model.layers.{l}.post_attention_layernorm.weight", "64", 0, 2, 0, NULL},
      {"model.layers.{l}.mlp.gate_proj.weight", "160x64", 0, 2, 0, NULL},
      {"model.layers.{l}.mlp.gate_proj.bias", "160", 0, 2, 0, NULL},
      {"model.layers.{l}.mlp.up_proj.weight", "160x64", 0, 2, 0, NULL},
      {"model.layers.{l}.mlp.up_proj.bias", "160", 0, 2, 0, NULL},
      {"model.layers.{l}.mlp.down_proj.weight", "64x160", 0, 2, 0, NULL},
      {"model.layers.{l}.mlp.down_proj.bias", "64", 0, 2, 0, NULL},
      {0}};
  static const char config[] =
      "{\"model_type\": \"serge\", \"hidden_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": "
      "8,"
      " \"num_key_value_heads\": 2, \"head_dim\": 16, \"vocab_size\": 320, \"intermediate_size\": 160}";
  treadle_family_draft_info info;
  write_list(lines);
  treadle_family_draft *draft = draft_of(config, "llama", &info);
  has_line(info.text, "\n  - {block: gqa, norm: true}\n");
  has_line(info.text, "mlp_biased: true\n");
  has_line(info.text,
           "{name: D.self_attention.linear_qkv.layer_norm_bias, spec: te, of: [L.input_layernorm.bias]}");
  assert_int_equal(info.added, 1);
  assert_int_equal(storage_rows("megatron:tp=2", "decoder.layers.1.self_attention.q_layernorm.weight"), 16);
  assert_int_equal(storage_rows("megatron:tp=2", "decoder.layers.1.mlp.linear_fc1.bias"), 160);
  treadle_family_draft_destroy(draft);
  draft = draft_of(config, "mistral", &info); /* which has no option left that is not by the config */
  assert_int_equal(storage_rows("megatron:tp=2", "decoder.layers.1.mlp.linear_fc1.bias"), 160);
  assert_int_equal(storage_rows("megatron:tp=2", "decoder.layers.1.mlp.linear_fc2.bias"), 64);
  treadle_family_draft_destroy(draft);
  draft = draft_of(config, "qwen2", &info); /* whose MLP has none */
  assert_int_equal(storage_rows("vllm:tp=2", "model.layers.1.mlp.gate_up_proj.bias"), 160);
  treadle_family_draft_destroy(draft);
}

/* ---- fp8, a vision tower, a config with an object for the language model -------------------------- */

static void parts_and_scales(void **state) {
  (void)state;
  static const list_line lines[] = {{"lm.embed.weight", "320x256", 0, 0, 0, NULL},
                                    {"lm.final_norm.weight", "256", 0, 0, 0, NULL},
                                    {"lm_head.weight", "320x256", 0, 0, 0, NULL},
                                    {"lm.block.{l}.attn.wq.weight", "256x256", 0, 2, 0, "F8_E4M3"},
                                    {"lm.block.{l}.attn.wq.weight_scale_inv", "2x2", 0, 2, 0, "F32"},
                                    {"lm.block.{l}.attn.wk.weight", "256x256", 0, 2, 0, "F8_E4M3"},
                                    {"lm.block.{l}.attn.wk.weight_scale_inv", "2x2", 0, 2, 0, "F32"},
                                    {"lm.block.{l}.attn.wv.weight", "256x256", 0, 2, 0, "F8_E4M3"},
                                    {"lm.block.{l}.attn.wv.weight_scale_inv", "2x2", 0, 2, 0, "F32"},
                                    {"lm.block.{l}.attn.wo.weight", "256x256", 0, 2, 0, "F8_E4M3"},
                                    {"lm.block.{l}.attn.wo.weight_scale_inv", "2x2", 0, 2, 0, "F32"},
                                    {"lm.block.{l}.attn_norm.weight", "256", 0, 2, 0, NULL},
                                    {"lm.block.{l}.ffn_norm.weight", "256", 0, 2, 0, NULL},
                                    {"lm.block.{l}.ffn.w1.weight", "512x256", 0, 2, 0, NULL},
                                    {"lm.block.{l}.ffn.w3.weight", "512x256", 0, 2, 0, NULL},
                                    {"lm.block.{l}.ffn.w2.weight", "256x512", 0, 2, 0, NULL},
                                    {"vision_tower.blocks.{l}.attn.wq.weight", "64x64", 0, 9, 0, NULL},
                                    {"vision_tower.patch.weight", "64x3x2x2", 0, 0, 0, NULL},
                                    {0}};
  static const char config[] =
      "{\"model_type\": \"moire\", \"quantization_config\": {\"quant_method\": \"fp8\","
      " \"weight_block_size\": [128, 128]}, \"text_config\": {\"dim\": 256, \"n_layers\": 2, \"n_heads\": "
      "4,"
      " \"n_kv_heads\": 4, \"vocab_size\": 320, \"ffn_dim\": 512}}";
  treadle_family_draft_info info;
  write_list(lines);
  treadle_family_draft *draft = draft_of(config, "llama", &info);
  has_line(info.text, "\nconfig: text_config\n");
  has_line(info.text, "\ncarried: [vision_tower.]\n");
  has_line(info.open_lines, "10 tensors of vision_tower. are taken for no part of the language model");
  has_line(info.text, ".wk.weight");
  assert_int_equal(storage_rows("vllm:tp=2", "model.layers.1.mlp.gate_up_proj.weight"), 512);
  treadle_family_draft_destroy(draft);
}

/* ---- Every family, as a stranger meets it -------------------------------------------------------- */

static void every_family(void **state) {
  (void)state;
  treadle_families *families;
  assert_ok(treadle_families_open(NULL, &families));
  for (int32_t i = 0; i < treadle_families_count(families); i++) {
    treadle_family_info family = TREADLE_INIT(treadle_family_info);
    treadle_family_draft_info info = TREADLE_INIT(treadle_family_draft_info);
    treadle_family_draft *draft;
    treadle_model *model;
    char path[300], config[400], *text, *type;
    size_t length;
    assert_ok(treadle_families_get(families, i, &family));
    snprintf(path, sizeof path, "%s/%s", folder, family.name);
    snprintf(config, sizeof config, "%s/config.json", path);
    const treadle_make_options make = {.struct_size = sizeof make,
                                       .model_type = family.model_types[0],
                                       .layers = 4,
                                       .hidden = 128,
                                       .vocab = 96};
    assert_ok(treadle_make_model(path, &make, &model));
    treadle_model_close(model);
    assert_ok(treadle_family_draft_create(path, NULL, &draft)); /* as it is, its family covers it */
    treadle_family_draft_get_info(draft, &info);
    assert_true(info.covered);
    assert_string_equal(info.text, "");
    assert_string_equal(info.like, family.name);
    treadle_family_draft_destroy(draft);
    assert_ok(treadle_file_read(config, 1 << 20, &text, &length));
    type = strstr(text, "\"model_type\"");
    assert_non_null(type);
    for (type += strlen("\"model_type\"") + strspn(type + strlen("\"model_type\""), ": \""); *type != '"';
         type++)
      *type = 'x';
    write_text(config, text);
    treadle_free(text);
    assert_ok(treadle_family_draft_create(path, NULL, &draft));
    treadle_family_draft_get_info(draft, &info);
    if (info.refusal || info.missing + info.left_over || info.added || info.renamed)
      fail_msg("%s: %s %s %s\n%s", family.name, info.refusal ? info.refusal : "", info.missing_names,
               info.left_over_names, info.text);
    treadle_family_draft_destroy(draft);
    const char *file = strrchr(family.path, '/') + 1;
    char name[100];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(file, "."), file);
    const treadle_family_draft_options same = {.struct_size = sizeof same, .like = name};
    assert_ok(treadle_family_draft_create(path, &same, &draft));
    treadle_family_draft_get_info(draft, &info);
    if (!info.same) fail_msg("%s is not like itself:\n%s", family.name, info.text);
    treadle_family_draft_destroy(draft);
  }
  treadle_families_close(families);
}

/* ---- What is not a checkpoint ----------------------------------------------------------------------- */

static void refused(void **state) {
  (void)state;
  static const char config[] = "{\"model_type\": \"loom\", \"hidden_size\": 8}";
  treadle_family_draft *draft = (treadle_family_draft *)1;
  treadle_family_draft_options options = {.struct_size = sizeof options, .model = config_path};
  write_text(list_path, "a.weight\tBF16\t2\n");
  write_text(config_path, "{\"hidden_size\": 8}");
  assert_refused("model_type is missing", treadle_family_draft_create(list_path, &options, &draft));
  assert_null(draft);
  write_text(config_path, "[1]");
  assert_refused("the top level is not an object",
                 treadle_family_draft_create(list_path, &options, &draft));
  write_text(config_path, "\"loom\"");
  assert_refused("config.json: ", treadle_family_draft_create(list_path, &options, &draft));
  write_text(config_path, "{\"model_type\": \"\"}");
  assert_refused("model_type is empty: it names the family",
                 treadle_family_draft_create(list_path, &options, &draft));
  write_text(config_path, config);
  static const struct {
    const char *list, *message;
  } lists[] = {{"", "list.tsv: has no line"},
               {"a.weight\tBF16\t2\na.weight\tBF16\t2\n", "line 2: 'a.weight' stands in line 1 already"},
               {"a.weight\tBF16\t9223372036854775807x4\n", "has more than 2^63 bits"},
               {"a.weight\tBF16\t99999999999999999999\n", "line 1"},
               {"b.weight\tBF16\t2\na.weight\tBF16\t4x0\n", "a.weight: dimension 1 is of size 0"},
               {"a.weight\tBF16\t-1\n", "line 1"}};
  for (size_t i = 0; i < TEST_COUNT(lists); i++) {
    write_text(list_path, lists[i].list);
    assert_refused(lists[i].message, treadle_family_draft_create(list_path, &options, &draft));
    assert_null(draft);
  }
  write_text(list_path, "a.weight\tBF16\t2\n");
  /* a circle of families, as what is extended and as one that may be the nearest; the index of no file, and of no tensor */
  char path[400], other[400];
  snprintf(path, sizeof path, "%s/a.yaml", families_path);
  snprintf(other, sizeof other, "%s/b.yaml", families_path);
  write_text(path, "family: a\nmodel_types: [aa]\nextends: b\n");
  write_text(other, "family: b\nmodel_types: [bb]\nextends: a\n");
  options.families = families_path;
  assert_refused("a.yaml line 3: extends: b goes in a circle",
                 treadle_family_draft_create(list_path, &options, &draft));
  options.like = "b";
  assert_refused("b.yaml line 3: extends: a goes in a circle",
                 treadle_family_draft_create(list_path, &options, &draft));
  options.families = NULL;
  options.like = "../llama";
  assert_refused("the draft: there is no family file '../llama'",
                 treadle_family_draft_create(list_path, &options, &draft));
  options.like = NULL;
  snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
  write_text(path, "{\"weight_map\": {}}");
  assert_refused("there is no tensor to draft a family from",
                 treadle_family_draft_create(path, NULL, &draft));
  write_text(path, "{\"weight_map\": {\"a\": \"../x.safetensors\"}}");
  assert_refused("index.json", treadle_family_draft_create(path, NULL, &draft));
  assert_refused("there is no list of tensors here",
                 treadle_family_draft_create(config_path, NULL, &draft));
  assert_refused("needs --model config.json", treadle_family_draft_create(list_path, NULL, &draft));
  options.like = "lama";
  assert_refused("the nearest is 'llama'", treadle_family_draft_create(list_path, &options, &draft));
  options.like = NULL;
  write_text(list_path, "\033[31m\tBF16\t2\nx{l}\tBF16\t2\n");
  assert_refused("none of 2 names can stand in a family file",
                 treadle_family_draft_create(list_path, &options, &draft));
  FILE *file = fopen(list_path, "w");
  assert_non_null(file);
  for (int i = 0; i < 1200; i++) fprintf(file, "tensor_%d\tBF16\t2\n", i);
  assert_int_equal(fclose(file), 0);
  assert_refused("the names follow no rule", treadle_family_draft_create(list_path, &options, &draft));
}

/* Names that cannot be written, layers without an end and shapes that disagree are open, and the rest is drafted. */
static void strange(void **state) {
  (void)state;
  treadle_family_draft_info info = TREADLE_INIT(treadle_family_draft_info);
  treadle_family_draft_options options = {.struct_size = sizeof options, .model = config_path};
  treadle_family_draft *draft;
  write_text(config_path, "{\"model_type\": \"loom\", \"hidden_size\": 8}");
  FILE *file = fopen(list_path, "w");
  assert_non_null(file);
  fprintf(file, "\033[31m\tBF16\t2\nmodel.layers.99999999999999999999.x\tBF16\t2\n");
  for (int i = 0; i < 600; i++) fputc('y', file);
  fprintf(file, "\tBF16\t2\nmodel.deep\tBF16\t1x1x1x1x1\nmodel.scalar\tBF16\t\n");
  for (int l = 0; l < 3000; l++) fprintf(file, "model.layers.%d.w\tBF16\t%dx8\n", l, l == 17 ? 4 : 8);
  assert_int_equal(fclose(file), 0);
  assert_ok(treadle_family_draft_create(list_path, &options, &draft));
  treadle_family_draft_get_info(draft, &info);
  has_line(info.open_lines, "2 names cannot stand in a family file and are left over");
  assert_null(strchr(info.text, '\033'));
  assert_null(strstr(info.text, "yyyyyyyyyy"));
  has_line(info.text, "# TO SAY: ");
  if (!info.refusal)
    has_line(info.open_lines,
             "model.layers.{l}.w has several shapes: 8x8 in layers 0-16, 18-2999; 4x8 in layers 17: which");
  treadle_family_draft_destroy(draft);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(other_names, make_folder, remove_folder),
      cmocka_unit_test_setup_teardown(words, make_folder, remove_folder),
      cmocka_unit_test_setup_teardown(one_word_for_two, make_folder, remove_folder),
      cmocka_unit_test_setup_teardown(other_layers, make_folder, remove_folder),
      cmocka_unit_test_setup_teardown(layers_by_words, make_folder, remove_folder),
      cmocka_unit_test_setup_teardown(layers_by_numbers, make_folder, remove_folder),
      cmocka_unit_test_setup_teardown(layers_by_no_rule, make_folder, remove_folder),
      cmocka_unit_test_setup_teardown(other_fusing, make_folder, remove_folder),
      cmocka_unit_test_setup_teardown(biases, make_folder, remove_folder),
      cmocka_unit_test_setup_teardown(parts_and_scales, make_folder, remove_folder),
      cmocka_unit_test_setup_teardown(every_family, make_folder, remove_folder),
      cmocka_unit_test_setup_teardown(refused, make_folder, remove_folder),
      cmocka_unit_test_setup_teardown(strange, make_folder, remove_folder),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
