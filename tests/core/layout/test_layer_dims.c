/* src/core/family/layer_dims.c: dims that have other values in some layers. A model in which layers differ holds, in each layer,
 * what a model holds whose layers are all like that one: names, shapes and runs, in every layout. And refusals. */
#include "test.h"

#include "family/family.h"
#include "io/json.h"
#include "layout/layout.h"
#include "model/model.h"
#include "treadle.h"

#include <stdlib.h>
#include <string.h>

enum { LAYERS = 4 };

static const char *folder;

static void write_family(const char *text) {
  char path[300];
  snprintf(path, sizeof path, "%s/x.yaml", folder);
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fprintf(file, "family: x\nmodel_types: [x]\n%s", text);
  fclose(file);
}

static int make_folder(void **state) {
  (void)state;
  folder = test_folder();
  return 0;
}

static int remove_folder(void **state) {
  (void)state;
  test_remove(folder);
  return 0;
}

/* ---- Layers that differ, and those that do not --------------------------------------------------- */

typedef struct opened {
  json_t *config;
  treadle_model *model;
  treadle_layout *layout;
} opened;

/* `wide`: the list of layers that differ. */
static opened open_layout(const char *wide, const char *fields, const char *text, int64_t ranks) {
  opened o = {0};
  char config[2000];
  const treadle_model_options options = {.struct_size = sizeof options, .families = folder};
  snprintf(
      config, sizeof config,
      "{\"model_type\": \"x\", \"vocab_size\": 30, \"hidden_size\": 8, \"num_hidden_layers\": %d, "
      "\"intermediate_size\": 8, \"num_attention_heads\": 4, \"num_key_value_heads\": 4, \"head_dim\": 2, "
      "\"wide_heads\": 2, \"wide_head_dim\": 6, \"wide\": %s%s}",
      LAYERS, wide, fields);
  assert_ok(treadle_json_parse("config", config, strlen(config), &o.config));
  assert_ok(treadle_model_from_config("config", o.config, &options, &o.model));
  assert_ok(treadle_layout_create(o.model, text, ranks, NULL, &o.layout));
  return o;
}

static void close_layout(opened *o) {
  treadle_layout_destroy(o->layout);
  treadle_model_close(o->model);
  json_decref(o->config);
}

/* The storage tensor of this name on a rank; -1: none. */
static int32_t find(const opened *o, int64_t rank, const char *name) {
  for (int32_t i = 0; i < treadle_layout_storage_count(o->layout, rank); i++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    assert_ok(treadle_layout_storage(o->layout, rank, i, &info));
    if (strcmp(info.name, name) == 0) return i;
  }
  return -1;
}

/* Are a storage tensor and one of another model of the same name alike? */
static void compare(const opened *mixed, const opened *like, int64_t rank, int32_t number) {
  treadle_storage_info a = TREADLE_INIT(treadle_storage_info), b = TREADLE_INIT(treadle_storage_info);
  treadle_run *runs[2];
  size_t counts[2];
  assert_ok(treadle_layout_storage(mixed->layout, rank, number, &a));
  int32_t other = find(like, rank, a.name);
  if (other < 0) fail_msg("rank %lld has no %s", (long long)rank, a.name);
  assert_ok(treadle_layout_storage(like->layout, rank, other, &b));
  assert_int_equal(a.ndim, b.ndim);
  assert_memory_equal(a.shape, b.shape, (size_t)a.ndim * sizeof *a.shape);
  assert_ok(treadle_layout_runs(mixed->layout, rank, number, &runs[0], &counts[0]));
  assert_ok(treadle_layout_runs(like->layout, rank, other, &runs[1], &counts[1]));
  assert_int_equal(counts[0], counts[1]);
  for (size_t i = 0; i < counts[0]; i++) {
    treadle_tensor_info x = TREADLE_INIT(treadle_tensor_info), y = TREADLE_INIT(treadle_tensor_info);
    assert_int_equal(runs[0][i].local_start, runs[1][i].local_start);
    assert_int_equal(runs[0][i].start, runs[1][i].start);
    assert_int_equal(runs[0][i].stride, runs[1][i].stride);
    assert_int_equal(runs[0][i].count, runs[1][i].count);
    assert_int_equal(runs[0][i].tensor < 0, runs[1][i].tensor < 0);
    if (runs[0][i].tensor < 0) continue;
    assert_ok(treadle_model_tensor(mixed->model, runs[0][i].tensor, &x));
    assert_ok(treadle_model_tensor(like->model, runs[1][i].tensor, &y));
    assert_string_equal(x.name, y.name);
  }
  free(runs[0]);
  free(runs[1]);
}

/* The number of the layer in a name; -1: none. Megatron counts on a stage. */
static int layer_of(const treadle_layout *layout, int64_t rank, const char *name, bool local) {
  const char *at = strstr(name, "layers.");
  int64_t stage = 0;
  if (!at) return -1;
  if (local) assert_ok(treadle_layout_coordinate(layout, rank, "pp", &stage));
  return atoi(at + 7) + (int)stage * LAYERS / 2;
}

static void agrees(const char *fields, const char *text, int64_t ranks) {
  opened mixed = open_layout("[1, 2]", fields, text, ranks),
         narrow = open_layout("[]", fields, text, ranks),
         wide = open_layout("[0, 1, 2, 3]", fields, text, ranks);
  bool local = strstr(text, "megatron") && strstr(text, "pp=2");
  for (int64_t rank = 0; rank < ranks; rank++) {
    int32_t count = treadle_layout_storage_count(mixed.layout, rank);
    assert_int_equal(count, treadle_layout_storage_count(wide.layout, rank));
    for (int32_t i = 0; i < count; i++) {
      treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
      assert_ok(treadle_layout_storage(mixed.layout, rank, i, &info));
      int layer = layer_of(mixed.layout, rank, info.name, local);
      compare(&mixed, layer == 1 || layer == 2 ? &wide : &narrow, rank, i);
    }
  }
  close_layout(&mixed);
  close_layout(&narrow);
  close_layout(&wide);
}

static const char other_heads[] =
    "layer_dims:\n  wide: {when: l in wide, dims: {ng: wide_heads, hd: wide_head_dim}}\n";

/* Norms of heads, Megatron's blocks of qkv, KV heads that are repeated in some layers and cut in others, blocks of fp8. */
static void as_in_models_of_one_sort(void **state) {
  (void)state;
  char text[400];
  static const char blocks[] =
      ", \"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [2, 2]}";
  snprintf(text, sizeof text, "extends: qwen3\n%s", other_heads);
  write_family(text);
  agrees("", "megatron:tp=2,pp=2", 4);
  agrees("", "megatron:tp=4", 4);
  agrees("", "megatron:tp=2,spec=local", 4);
  agrees("", "vllm:tp=4", 4);
  agrees("", "vllm:tp=2,pp=2", 4);
  agrees("", "sglang:tp=4", 4);
  agrees("", "sglang:tp=4,attn_dp=2", 4);
  agrees("", "hf", 2);
  agrees("", "fsdp2:dp=3", 3);
  agrees("", "fsdp2:dp=2,tp=2", 4);
  agrees(blocks, "vllm:tp=2,dtype=fp8", 2);
  agrees(blocks, "sglang:tp=2,dtype=fp8", 2);
  agrees(blocks, "hf:dtype=fp8", 1);
}

/* Views of such tensors, with an axis that follows from a dim that differs; dims of layers that two entries speak of. */
static void views_too(void **state) {
  (void)state;
  write_family("extends: llama4\nlayer_dims:\n  wide: {when: l in wide, dims: "
               "{ng: wide_heads, "
               "hd: wide_head_dim}}\n  late: {when: l > 0 and l in wide, dims: {ng: 1}}\n");
  static const char fields[] = ", \"num_local_experts\": 2, \"intermediate_size_mlp\": 8";
  agrees(fields, "vllm:tp=4", 4);
  agrees(fields, "vllm:tp=2", 2);
  agrees(fields, "sglang:tp=4", 4);
  agrees(fields, "fsdp2:dp=3", 3);
}

/* ---- Refusals ------------------------------------------------------------------------------------ */

static treadle_status read_x(treadle_arena *arena) {
  treadle_family *family;
  return treadle_family_find(folder, "x", "config.json", arena, &family);
}

static void refused(void **state) {
  (void)state;
  static const struct {
    const char *text, *message;
  } rows[] = {
      {"layer_dims: [a]\n", "x.yaml line 4: layer_dims must be a map"},
      {"layer_dims: {a-b: {when: l > 1, dims: {hd: 2}}}\n",
       "x.yaml line 4: layer_dims: 'a-b' is not a name"},
      {"layer_dims: {a: {dims: {hd: 2}}}\n", "x.yaml line 4: layer_dims: a needs when, and a map dims"},
      {"layer_dims: {a: {when: l > 1, dims: {}}}\n",
       "x.yaml line 4: layer_dims: a needs when, and a map dims"},
      {"layer_dims: {a: {when: l > 1, dim: {hd: 2}}}\n", "x.yaml line 4: unknown key 'dim'"},
      {"layer_dims: {a: {when: l >, dims: {hd: 2}}}\n",
       "x.yaml line 4: l >: a value is missing at the end"},
      {"layer_dims: {a: {when: l > 1, dims: {hdd: 2}}}\n",
       "x.yaml line 4: 'hdd' is not a dim; the nearest is hd"},
      {"layer_dims: {a: {when: l > 1, dims: {hd: 2 +}}}\n", "x.yaml line 4: 2 +: a value is missing"},
      {"layer_dims: {a: {when: l > 1, dims: {hd: 2}}}\ndims: {hd_a: 2}\n", "line 4: hd_a is a dim already"},
      {"layer_dims: {a: {when: l > 1, dims: {E: 2}}}\n",
       "x.yaml line 4: layer_dims: all layers have E experts"},
      {"layer_dims: {a: {when: l > 1, dims: {Im: 2}}}\n", "what is packed cannot depend on layer_dims (a)"},
      {"layer_dims: {a: {when: l > 1, dims: {V: 2}}}\n",
       "model.embed_tokens.weight@a is in no layer, and cannot differ by layer"},
      {"views: [{name: L.a@1, of: lm_head.weight, shape: [V, H]}]\n",
       "name L.a@1: a word is wanted behind '@'"},
  };
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    treadle_arena arena = {0};
    char text[400];
    snprintf(text, sizeof text, "extends: qwen3_moe\n%s", rows[i].text);
    write_family(text);
    assert_refused(rows[i].message, read_x(&arena));
    treadle_arena_release(&arena);
  }
}

/* Layers in which two tensors have one name. */
static void overlaps(void **state) {
  (void)state;
  const treadle_model_options options = {.struct_size = sizeof options, .families = folder};
  json_t *config;
  treadle_model *model;
  static const char text[] = "{\"model_type\": \"x\", \"depth\": 3}";
  write_family("layers: depth\ndims: {H: 4}\nprefixes: {L.: 'm.{l}.'}\ntensors:\n"
               "  - {name: L.a, shape: [H]}\n  - {name: L.a@more, shape: [2*H], when: l > 1}\nengines:\n"
               "  vllm: [{name: L.b, of: [L.a]}, {name: L.b, of: [L.a@more], when: l > 1}]\n");
  assert_ok(treadle_json_parse("config", text, strlen(text), &config));
  assert_refused("two tensors of family x are named m.2.a",
                 treadle_model_from_config("config", config, &options, &model));
  json_decref(config);
}

static void memory_runs_out(void **state) {
  (void)state;
  treadle_arena arena = {0};
  char text[400];
  snprintf(text, sizeof text, "extends: qwen3\n%s", other_heads);
  write_family(text);
  TEST_EACH_ALLOCATION((treadle_arena_release(&arena), arena = (treadle_arena){0}, read_x(&arena)));
  treadle_arena_release(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(as_in_models_of_one_sort),
                                     cmocka_unit_test(views_too), cmocka_unit_test(refused),
                                     cmocka_unit_test(overlaps), cmocka_unit_test(memory_runs_out)};
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
