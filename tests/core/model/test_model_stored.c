/* src/core/model/stored.c, model/match.c, model/packed.c, model/coded.c, model/names.c: names of checkpoints sorted
 * out, and where each element of a tensor lies, against formulas that are written out here. */
#include "test.h"

#include "base/dtype.h"
#include "io/json.h"
#include "model/stored.h"

/* ---- Scenes ------------------------------------------------------------------------------------ */

static const char MOE[] =
    "\"hidden_size\": 4, \"num_hidden_layers\": 2, \"vocab_size\": 8, \"num_attention_heads\": 2,"
    "\"num_key_value_heads\": 1, \"head_dim\": 2, \"intermediate_size\": 6, \"num_experts\": 3,"
    "\"num_local_experts\": 3, \"n_routed_experts\": 3, \"moe_intermediate_size\": 5,"
    "\"shared_expert_intermediate_size\": 6, \"linear_num_key_heads\": 1,"
    "\"linear_num_value_heads\": 2, \"linear_key_head_dim\": 2, \"linear_value_head_dim\": 2,"
    "\"full_attention_interval\": 2, \"torch_dtype\": \"bfloat16\"";

/* A list of tensors as a checkpoint without data. */
typedef struct scene {
  json_t *config;
  treadle_model *model;
  treadle_checkpoint *checkpoint;
  treadle_arena arena;
  treadle_files files;
  treadle_stored *tensors;
  int32_t count;
} scene;

static json_t *config_of(const char *model_type, const char *more) {
  char text[2000];
  json_t *config;
  snprintf(text, sizeof text, "{\"model_type\": \"%s\", %s%s}", model_type, MOE, more);
  assert_ok(treadle_json_parse("config", text, strlen(text), &config));
  return config;
}

/* The tensors of a family as its files have them, in one form or the other, ready to be changed. */
static void start_with(scene *s, json_t *config, bool stacked) {
  *s = (scene){.config = config};
  assert_ok(treadle_model_from_config("config", s->config, NULL, &s->model));
  treadle_stored *made;
  if (stacked) {
    assert_ok(treadle_files_stacked(s->model, &s->arena, &made, &s->count));
  } else {
    int32_t names = treadle_model_tensor_count(s->model);
    made = treadle_arena_alloc_array(&s->arena, (size_t)names, sizeof *made);
    for (int32_t n = 0; n < names; n++) {
      treadle_tensor_info info = TREADLE_INIT(treadle_tensor_info);
      assert_ok(treadle_model_tensor(s->model, n, &info));
      if (strstr(info.name, "_scale_inv")) continue;
      int32_t i = s->count++;
      made[i] =
          (treadle_stored){.name = info.name, .dtype = info.dtype, .dtype_text = "BF16", .ndim = info.ndim};
      for (int d = 0; d < info.ndim; d++) made[i].shape[d] = info.shape[d];
    }
  }
  s->tensors = treadle_arena_alloc_array(&s->arena, (size_t)s->count + 64, sizeof *s->tensors);
  memcpy(s->tensors, made, (size_t)s->count * sizeof *made);
  for (int32_t i = 0; i < s->count; i++) /* the model is made anew for each match */
    s->tensors[i].name = treadle_arena_copy_text(&s->arena, s->tensors[i].name);
}

static void start(scene *s, const char *model_type, const char *more, bool stacked) {
  start_with(s, config_of(model_type, more), stacked);
}

static treadle_stored *find(scene *s, const char *name) {
  for (int32_t i = 0; i < s->count; i++)
    if (strcmp(s->tensors[i].name, name) == 0) return &s->tensors[i];
  fail_msg("no tensor %s", name);
  return NULL;
}

static treadle_stored *add(scene *s, const char *name, const char *type, int ndim, const int64_t *shape) {
  treadle_stored *stored = &s->tensors[s->count++];
  *stored = (treadle_stored){.name = name, .dtype_text = type, .ndim = ndim};
  for (int dtype = TREADLE_DTYPE_NONE + 1; dtype <= TREADLE_FP8_E4M3; dtype++)
    if (strcmp(treadle_dtype_safetensors((treadle_dtype)dtype), type) == 0)
      stored->dtype = (treadle_dtype)dtype;
  for (int d = 0; d < ndim; d++) stored->shape[d] = shape[d];
  return stored;
}

static void take_away(scene *s, const char *name) {
  treadle_stored *gone = find(s, name);
  *gone = s->tensors[--s->count];
}

/* Takes away all names that have `part`. */
static int take_away_all(scene *s, const char *part) {
  int taken = 0;
  for (int32_t i = s->count; i-- > 0;)
    if (strstr(s->tensors[i].name, part)) {
      s->tensors[i] = s->tensors[--s->count];
      taken++;
    }
  return taken;
}

static void release_checkpoint(scene *s) {
  treadle_files_release(&s->files);
  if (s->checkpoint) treadle_hash_map_release(&s->checkpoint->by_name);
  s->files = (treadle_files){0};
}

/* Matches the tensors as they are now with a model that is made for them. */
static void match(scene *s) {
  release_checkpoint(s);
  s->checkpoint = treadle_arena_alloc(&s->arena, sizeof *s->checkpoint);
  s->checkpoint->tensors = s->tensors;
  s->checkpoint->count = s->count;
  for (int32_t i = 0; i < s->count; i++)
    assert_ok(treadle_hash_map_put(&s->checkpoint->by_name, s->tensors[i].name, i));
  treadle_model_close(s->model);
  s->model = NULL;
  assert_ok(treadle_model_for_files("config", s->config, NULL, s->checkpoint, &s->model));
  assert_ok(treadle_files_match(s->model, s->checkpoint, &s->arena, &s->files));
  s->model->files = &s->files;
}

static void check(scene *s, const char *missing, const char *left_over) {
  match(s);
  assert_string_equal(s->files.missing.text ? s->files.missing.text : "", missing);
  assert_string_equal(s->files.left_over.text ? s->files.left_over.text : "", left_over);
}

static void end(scene *s) {
  s->model->files = NULL;
  treadle_model_close(s->model);
  release_checkpoint(s);
  json_decref(s->config);
  treadle_arena_release(&s->arena);
}

/* ---- Where elements lie ------------------------------------------------------------------------ */

static int32_t tensor_of(const treadle_model *model, const char *name) {
  int64_t entry = treadle_hash_map_get(&model->by_name, name, -1);
  assert_true(entry >= 0);
  return model->entries[entry].tensor;
}

/* The stored tensor and element of a canonical element, which exactly one place has. */
static int64_t locate(const scene *s, int32_t tensor, const int64_t *index, const char **name_p) {
  static const int64_t one[TREADLE_MAX_AXES] = {1, 1, 1, 1, 1, 1};
  treadle_stored_box place;
  int32_t next = 0;
  assert_true(treadle_model_stored(s->model, tensor, index, one, &next, &place));
  int64_t at = place.at;
  *name_p = place.stored->name;
  assert_false(treadle_model_stored(s->model, tensor, index, one, &next, &place));
  return at;
}

static void experts_single(void **state) {
  (void)state;
  scene s;
  const char *name;
  start(&s, "qwen3_moe", "", false);
  check(&s, "", "");
  assert_int_equal(s.files.stacked_count, 0);
  int32_t up =
      tensor_of(s.model, "model.layers.1.mlp.experts.2.up_proj.weight"); /* [E, Im, H] = [3, 5, 4] */
  assert_int_equal(locate(&s, up, (int64_t[]){2, 3, 1}, &name), 3 * 4 + 1);
  assert_string_equal(name, "model.layers.1.mlp.experts.2.up_proj.weight");
  end(&s);
}

/* gate_up_proj is [E, gate rows then up rows, H]. */
static void experts_stacked(void **state) {
  (void)state;
  scene s;
  const char *name;
  start(&s, "qwen3_moe", "", true);
  check(&s, "", "");
  assert_int_equal(s.files.stacked_count, 4);
  int32_t gate = tensor_of(s.model, "model.layers.1.mlp.experts.0.gate_proj.weight");
  int32_t up = tensor_of(s.model, "model.layers.1.mlp.experts.0.up_proj.weight");
  int32_t down = tensor_of(s.model, "model.layers.1.mlp.experts.0.down_proj.weight"); /* [E, H, Im] */
  for (int64_t e = 0; e < 3; e++)
    for (int64_t i = 0; i < 5; i++)
      for (int64_t h = 0; h < 4; h++) {
        assert_int_equal(locate(&s, gate, (int64_t[]){e, i, h}, &name), (e * 10 + i) * 4 + h);
        assert_string_equal(name, "model.layers.1.mlp.experts.gate_up_proj");
        assert_int_equal(locate(&s, up, (int64_t[]){e, i, h}, &name), (e * 10 + 5 + i) * 4 + h);
        assert_int_equal(locate(&s, down, (int64_t[]){e, h, i}, &name), (e * 4 + h) * 5 + i);
        assert_string_equal(name, "model.layers.1.mlp.experts.down_proj");
      }
  end(&s);
}

/* Canonical [E, H, 2, Im] and [E, Im, H] against the other form, [E, 2 Im, H] and [E, H, Im], of the same names. */
static void experts_transposed(void **state) {
  (void)state;
  scene s;
  const char *name;
  start(&s, "qwen3_vl_moe", "", true);
  check(&s, "", "");
  int32_t gate_up = tensor_of(s.model, "model.layers.0.mlp.experts.gate_up_proj");
  int32_t down = tensor_of(s.model, "model.layers.0.mlp.experts.down_proj");
  assert_int_equal(find(&s, "model.layers.0.mlp.experts.gate_up_proj")->shape[1], 10);
  for (int64_t e = 0; e < 3; e++)
    for (int64_t i = 0; i < 5; i++)
      for (int64_t h = 0; h < 4; h++) {
        for (int64_t part = 0; part < 2; part++)
          assert_int_equal(locate(&s, gate_up, (int64_t[]){e, h, part, i}, &name),
                           (e * 10 + part * 5 + i) * 4 + h);
        assert_int_equal(locate(&s, down, (int64_t[]){e, i, h}, &name), (e * 4 + h) * 5 + i);
      }
  end(&s);
  start(&s, "qwen3_vl_moe", "", false); /* as the canonical tensors are */
  check(&s, "", "");
  assert_int_equal(locate(&s, gate_up, (int64_t[]){2, 3, 1, 4}, &name), ((2 * 4 + 3) * 2 + 1) * 5 + 4);
  end(&s);
}

/* Boxes of all sizes: the places of a box are the box, each element once, where single elements lie. */
static void boxes(void **state) {
  (void)state;
  scene s;
  start(&s, "qwen3_vl_moe", "", true);
  check(&s, "", "");
  int32_t t = tensor_of(s.model, "model.layers.0.mlp.experts.gate_up_proj");
  const int64_t start_[TREADLE_MAX_AXES] = {1, 1, 0, 2}, size[TREADLE_MAX_AXES] = {2, 2, 2, 3};
  treadle_stored_box place;
  int count = 0;
  for (int32_t next = 0; treadle_model_stored(s.model, t, start_, size, &next, &place);)
    for (int64_t i = 0; i < place.size[0] * place.size[1] * place.size[2] * place.size[3]; i++, count++) {
      int64_t index[TREADLE_MAX_AXES] = {0}, rest = i, at = place.at;
      const char *name;
      for (int a = 3; a >= 0; a--) {
        index[a] = place.start[a] + rest % place.size[a];
        at += rest % place.size[a] * place.stride[a];
        rest /= place.size[a];
        assert_in_range(index[a], start_[a], start_[a] + size[a] - 1);
      }
      assert_int_equal(at, locate(&s, t, index, &name));
    }
  assert_int_equal(count, 24);
  end(&s);
}

/* ---- Forms ------------------------------------------------------------------------------------- */

static void mixed_forms(void **state) {
  (void)state;
  scene s;
  start(&s, "qwen3_moe", "", true); /* one layer has an expert in both forms */
  add(&s, "model.layers.0.mlp.experts.1.up_proj.weight", "BF16", 2, (int64_t[]){5, 4});
  check(&s, "", "model.layers.0.mlp.experts.1.up_proj.weight (beside the stacked form)\n");
  end(&s);

  start(&s, "qwen3_moe", "", true); /* layer 1 has it in none */
  take_away(&s, "model.layers.1.mlp.experts.gate_up_proj");
  check(&s, "model.layers.1.mlp.experts.gate_up_proj\n", "");
  find(&s, "model.layers.0.mlp.experts.gate_up_proj")->shape[1] = 9;
  check(&s,
        "model.layers.0.mlp.experts.gate_up_proj is [3, 9, 4] instead of [3, 10, 4]\n"
        "model.layers.1.mlp.experts.gate_up_proj\n",
        "");
  end(&s);

  start(&s, "mixtral", "", false); /* a rule that only renames */
  find(&s, "model.layers.0.block_sparse_moe.gate.weight")->name = "model.layers.0.mlp.gate.weight";
  find(&s, "model.layers.1.block_sparse_moe.gate.weight")->name = "model.layers.1.mlp.gate.weight";
  check(&s, "", "");
  assert_int_equal(s.files.stacked_count, 2);
  end(&s);
}

/* The main layers stacked and the MTP layers single, as Qwen3.5 was published. */
static void forms_of_mtp_layers(void **state) {
  (void)state;
  scene s, single;
  start(&s, "qwen3_5_moe", ", \"mtp_num_hidden_layers\": 1", true);
  start(&single, "qwen3_5_moe", ", \"mtp_num_hidden_layers\": 1", false);
  assert_int_equal(take_away_all(&s, "mtp.layers.0.mlp.experts."), 2);
  for (int32_t i = 0; i < single.count; i++)
    if (strstr(single.tensors[i].name, "mtp.layers.0.mlp.experts."))
      s.tensors[s.count++] = single.tensors[i];
  check(&s, "", "");
  assert_int_equal(s.files.stacked_count, 4);
  treadle_model_close(single.model);
  json_decref(single.config);
  end(&s);
  treadle_arena_release(&single.arena);
}

/* ---- Other names ------------------------------------------------------------------------------- */

static void prefixes_and_carried(void **state) {
  (void)state;
  scene s;
  start(&s, "qwen3_vl_moe", "", false);
  for (int32_t i = 0; i < s.count; i++)
    if (strncmp(s.tensors[i].name, "model.", 6) == 0)
      s.tensors[i].name = treadle_arena_format(&s.arena, "model.language_model.%s", s.tensors[i].name + 6);
  add(&s, "model.visual.patch_embed.proj.weight", "BF16", 2, (int64_t[]){3, 3});
  add(&s, "model.visual.rotary_emb.inv_freq", "BF16", 1, (int64_t[]){3});
  add(&s, "model.language_model.layers.0.self_attn.rotary_emb.inv_freq", "F32", 1, (int64_t[]){3});
  check(&s, "", "");
  assert_int_equal(s.files.carried_count, 2);
  assert_string_equal(s.files.carried[0]->name, "model.visual.patch_embed.proj.weight");
  assert_int_equal(s.files.skipped_count, 1);

  add(&s, "model.norm.weight", "BF16", 1, (int64_t[]){4}); /* the same tensor by its other name */
  check(&s, "", "model.norm.weight\n");
  end(&s);
}

static void mtp_layers(void **state) {
  (void)state;
  scene s;
  static const char one[] =
      ", \"first_k_dense_replace\": 1, \"num_nextn_predict_layers\": 1, \"kv_lora_rank\": 4,"
      "\"qk_nope_head_dim\": 2, \"qk_rope_head_dim\": 2, \"v_head_dim\": 2";
  start(&s, "deepseek_v3", one, false);
  check(&s, "", "");
  assert_int_equal(s.model->mtp_layers, 1);
  take_away(&s, "model.layers.2.embed_tokens.weight"); /* copies may be absent */
  take_away(&s, "model.layers.2.shared_head.head.weight");
  check(&s, "", "");
  take_away(&s, "model.layers.2.enorm.weight"); /* the others are all there or all absent */
  check(&s, "model.layers.2.enorm.weight\n", "");
  take_away_all(&s, "model.layers.2.");
  check(&s, "", "");
  assert_int_equal(s.model->mtp_layers, 0);
  end(&s);

  start(&s, "qwen3_next", ", \"mtp_num_hidden_layers\": 1",
        false); /* files have one, the config says nothing */
  json_object_del(s.config, "mtp_num_hidden_layers");
  check(&s, "", "");
  assert_int_equal(s.model->mtp_layers, 1);
  take_away(&s, "mtp.fc.weight");
  check(&s, "mtp.fc.weight\n", "");
  end(&s);

  start(&s, "qwen3_moe", "", false); /* no such thing in this family: a layer too many */
  add(&s, "model.layers.2.input_layernorm.weight", "BF16", 1, (int64_t[]){4});
  check(&s, "", "model.layers.2.input_layernorm.weight\n");
  end(&s);
  start(&s, "deepseek_v3", one, false);
  json_object_set_new(s.config, "num_nextn_predict_layers", json_integer(0));
  take_away_all(&s, "model.layers.2.");
  add(&s, "model.layers.2.input_layernorm.weight", "BF16", 1, (int64_t[]){4}); /* as every layer has it */
  check(&s, "", "model.layers.2.input_layernorm.weight\n");
  end(&s);
}

/* ---- Coded values ------------------------------------------------------------------------------ */

/* A type that is none of treadle's, single and stacked, is named once. */
static void other_types(void **state) {
  (void)state;
  static const char *const names[] = {"model.layers.1.mlp.experts.2.up_proj.weight",
                                      "model.layers.1.mlp.experts.gate_up_proj"};
  for (int stacked = 0; stacked < 2; stacked++) {
    scene s;
    char words[200];
    start(&s, "qwen3_moe", "", stacked);
    treadle_stored *up = find(&s, names[stacked]);
    up->dtype_text = "I64";
    up->dtype = TREADLE_DTYPE_NONE;
    snprintf(words, sizeof words, "%s is of type I64, which cannot be moved\n", names[stacked]);
    check(&s, words, "");
    end(&s);
  }
}

static const char FP8[] =
    ", \"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [2, 3]}";

static void fp8_scales(void **state) {
  (void)state;
  scene s;
  const char *name;
  start(&s, "qwen3_moe", FP8, false);
  treadle_stored *up = find(&s, "model.layers.1.mlp.experts.2.up_proj.weight"); /* [5, 4] */
  up->dtype_text = "F8_E4M3";
  up->dtype = TREADLE_FP8_E4M3;
  check(&s, "model.layers.1.mlp.experts.2.up_proj.weight_scale_inv\n", "");
  treadle_stored *scale =
      add(&s, "model.layers.1.mlp.experts.2.up_proj.weight_scale_inv", "F32", 2, (int64_t[]){3, 2});
  check(&s, "", "");
  assert_int_equal(s.files.scale_count, 1);
  int32_t t = tensor_of(s.model, "model.layers.1.mlp.experts.2.up_proj.weight");
  treadle_stored_box place;
  int32_t next = 0;
  assert_true(treadle_model_stored(s.model, t, (int64_t[]){2, 0, 0}, (int64_t[]){1, 5, 4}, &next, &place));
  assert_int_equal(place.coding, TREADLE_CODED_FP8);
  assert_ptr_equal(place.scales, scale);
  assert_int_equal(place.block[0], 2);
  assert_int_equal(locate(&s, t, (int64_t[]){2, 1, 1}, &name), 5);

  scale->shape[0] = 2;
  check(&s, "model.layers.1.mlp.experts.2.up_proj.weight_scale_inv is [2, 2] instead of [3, 2]\n", "");
  scale->shape[0] = 3;
  scale->dtype_text = "BF16";
  check(&s, "", "");
  scale->dtype_text = "I8";
  check(&s, "model.layers.1.mlp.experts.2.up_proj.weight_scale_inv is I8 instead of F32, BF16 or F16\n", "");
  scale->dtype_text = "F32";
  up->dtype_text = "BF16";
  check(&s,
        "model.layers.1.mlp.experts.2.up_proj.weight has scales, but is BF16 of 2 dimensions instead of "
        "F8_E4M3 of 2 "
        "or more\n",
        "");
  scale->name = "model.layers.1.mlp.experts.3.up_proj.weight_scale_inv"; /* of no weight */
  check(&s, "", "model.layers.1.mlp.experts.3.up_proj.weight_scale_inv\n");

  end(&s);

  start(&s, "qwen3_moe", "", false); /* an index: types and shapes are not known */
  for (int32_t i = 0; i < s.count; i++) s.tensors[i].ndim = -1;
  add(&s, "model.layers.1.mlp.experts.2.up_proj.weight_scale_inv", "F32", -1, NULL);
  check(&s, "", "model.layers.1.mlp.experts.2.up_proj.weight_scale_inv\n");
  end(&s);
  start(&s, "qwen3_moe", FP8, false);
  for (int32_t i = 0; i < s.count; i++) s.tensors[i].ndim = -1;
  match(&s);
  int32_t wanted = s.files.missing_count; /* scales of q, k, v, o and of three matrices of three experts */
  assert_int_equal(wanted, 2 * (4 + 9));
  add(&s, "model.layers.1.mlp.experts.2.up_proj.weight_scale_inv", "F32", -1, NULL);
  match(&s);
  assert_int_equal(s.files.missing_count, wanted - 1);
  assert_int_equal(s.files.left_over_count, 0);
  end(&s);
}

static void mxfp4_names(void **state) {
  (void)state;
  scene s;
  json_t *config = config_of("gpt_oss", "");
  json_object_set_new(config, "hidden_size", json_integer(64));
  start_with(&s, config, false);
  check(&s, "", "");
  take_away(&s, "model.layers.0.mlp.experts.gate_up_proj"); /* [3, 64, 6 * 2] */
  add(&s, "model.layers.0.mlp.experts.gate_up_proj_scales", "U8", 3, (int64_t[]){3, 12, 2});
  check(&s, "model.layers.0.mlp.experts.gate_up_proj_blocks\n", "");
  treadle_stored *blocks =
      add(&s, "model.layers.0.mlp.experts.gate_up_proj_blocks", "U8", 4, (int64_t[]){3, 12, 2, 16});
  check(&s, "", "");
  const char *name;
  int32_t gate_up = tensor_of(s.model, "model.layers.0.mlp.experts.gate_up_proj");
  assert_int_equal(locate(&s, gate_up, (int64_t[]){2, 33, 4, 1}, &name), (2 * 12 + 4 * 2 + 1) * 64 + 33);
  blocks->shape[2] = 1;
  check(&s, "model.layers.0.mlp.experts.gate_up_proj_blocks is [3, 12, 1, 16] instead of [3, 12, 2, 16]\n",
        "");
  blocks->shape[2] = 2;
  blocks->dtype_text = "BF16";
  check(&s, "model.layers.0.mlp.experts.gate_up_proj_blocks is BF16 instead of U8\n", "");
  end(&s);
}

/* ---- Memory ------------------------------------------------------------------------------------ */

static treadle_status match_again(const scene *s) {
  treadle_arena arena = {0};
  treadle_files files = {0};
  treadle_status status = treadle_files_match(s->model, s->checkpoint, &arena, &files);
  treadle_files_release(&files);
  treadle_arena_release(&arena);
  return status;
}

static void without_memory(void **state) {
  (void)state;
  scene s;
  start(&s, "qwen3_moe", "", true);
  add(&s, "extra", "BF16", 1, (int64_t[]){4});
  take_away(&s, "model.norm.weight");
  match(&s);
  TEST_EACH_ALLOCATION(match_again(&s));
  end(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(experts_single),       cmocka_unit_test(experts_stacked),
      cmocka_unit_test(experts_transposed),   cmocka_unit_test(boxes),
      cmocka_unit_test(mixed_forms),          cmocka_unit_test(forms_of_mtp_layers),
      cmocka_unit_test(prefixes_and_carried), cmocka_unit_test(mtp_layers),
      cmocka_unit_test(other_types),          cmocka_unit_test(fp8_scales),
      cmocka_unit_test(mxfp4_names),          cmocka_unit_test(without_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
