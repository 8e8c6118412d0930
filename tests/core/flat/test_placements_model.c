/* src/core/flat/placements*.c, whole models: FSDP2 by placements is the layout fsdp2, storage for storage; several meshes; tied tensors;
 * experts by their own names; the digest; placements:@file; one rank of many. */
#include "test.h"

#include "flat/flat_truth.h"
#include "layout/layout.h"
#include "plan/small.h"

#include <inttypes.h>

typedef TREADLE_ARRAY(treadle_placed_tensor) placed_array;

#define LLAMA(tied)                                                                                        \
  "{\"model_type\": \"llama\", \"vocab_size\": 22, \"hidden_size\": 12, \"intermediate_size\": 18, "       \
  "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 3, "    \
  "\"tie_word_embeddings\": " tied ", \"torch_dtype\": \"bfloat16\"}"

static const char *const configs[] = {
    LLAMA("false"), LLAMA("true"),
    "{\"model_type\": \"qwen3_moe\", \"vocab_size\": 20, \"hidden_size\": 8, \"num_hidden_layers\": 2, "
    "\"intermediate_size\": 12, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 2, "
    "\"num_experts\": 5, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 6, "
    "\"decoder_sparse_step\": 1, \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\"}",
    "{\"model_type\": \"gpt_oss\", \"vocab_size\": 20, \"hidden_size\": 8, \"num_hidden_layers\": 2, "
    "\"intermediate_size\": 6, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 2, "
    "\"num_local_experts\": 5, \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\"}",
    "{\"model_type\": \"deepseek_v3\", \"vocab_size\": 20, \"hidden_size\": 16, \"num_hidden_layers\": 2, "
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 4, \"intermediate_size\": 20, "
    "\"moe_intermediate_size\": 6, \"n_routed_experts\": 6, \"n_group\": 2, \"n_shared_experts\": 1, "
    "\"first_k_dense_replace\": 1, \"moe_layer_freq\": 1, \"q_lora_rank\": 4, \"kv_lora_rank\": 4, "
    "\"qk_nope_head_dim\": 4, \"qk_rope_head_dim\": 2, \"v_head_dim\": 2, \"torch_dtype\": \"bfloat16\"}"};

/* ---- FSDP2 ---- */

static treadle_storage_info storage_at(const treadle_layout *layout, int64_t rank, int32_t storage) {
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  assert_ok(treadle_layout_storage(layout, rank, storage, &info));
  return info;
}

/* The dimension that tp cuts, by the shapes of both; -1: none. */
static int cut_dim(const treadle_storage_info *whole, const treadle_storage_info *part) {
  for (int d = 0; d < whole->ndim; d++)
    if (whole->shape[d] != part->shape[d]) return d;
  return -1;
}

static void assert_same_ranks(const treadle_layout *a, const treadle_layout *b) {
  for (int64_t r = 0; r < treadle_layout_ranks(a); r++) {
    int32_t count = treadle_layout_storage_count(a, r);
    assert_int_equal(treadle_layout_window_bytes(a, r), treadle_layout_window_bytes(b, r));
    assert_int_equal(treadle_layout_storage_count(b, r), count);
    for (int32_t s = 0; s < count; s++) {
      const treadle_storage_info x = storage_at(a, r, s), y = storage_at(b, r, s);
      treadle_run *runs[2];
      size_t counts[2];
      assert_string_equal(x.name, y.name);
      assert_int_equal(x.ndim, y.ndim);
      assert_memory_equal(x.shape, y.shape, sizeof x.shape);
      assert_int_equal(x.dtype, y.dtype);
      assert_int_equal(x.offset_bytes, y.offset_bytes);
      assert_int_equal(x.bytes, y.bytes);
      assert_ok(treadle_layout_runs(a, r, s, &runs[0], &counts[0]));
      assert_ok(treadle_layout_runs(b, r, s, &runs[1], &counts[1]));
      assert_int_equal(counts[0], counts[1]);
      for (size_t i = 0; i < counts[0]; i++) {
        const treadle_run *m = &runs[0][i], *n = &runs[1][i];
        assert_true(m->local_start == n->local_start && m->tensor == n->tensor && m->start == n->start &&
                    m->stride == n->stride && m->count == n->count);
      }
      free(runs[0]);
      free(runs[1]);
    }
  }
}

/* Buffers are whole on every rank: fsdp2 shows them with their whole shape and its dp does not cut them. */
static bool is_cut(const treadle_layout *fsdp2, const treadle_storage_info *whole, int32_t s, int64_t dp) {
  int64_t rows = 0;
  for (int64_t d = 0; d < dp; d++) rows += storage_at(fsdp2, d, s).shape[0];
  return dp > 1 && rows == whole->shape[0];
}

static void compare_fsdp2(const treadle_model *model, int64_t replicate, int64_t dp, int64_t tp) {
  char text[80];
  int64_t ranks = replicate * dp * tp;
  treadle_layout *whole, *part, *rows, *fsdp2, *layout;
  placed_array tensors = {0};
  const treadle_placed_mesh mesh = {.ndim = 3, .size = {replicate, dp, tp}};
  assert_ok(treadle_layout_create(model, "fsdp2", 1, NULL, &whole));
  snprintf(text, sizeof text, "fsdp2:tp=%" PRId64, tp);
  assert_ok(treadle_layout_create(model, text, tp, NULL, &part));
  assert_ok(treadle_layout_create(model, "fsdp2", dp, NULL, &rows));
  snprintf(text, sizeof text, "fsdp2:tp=%" PRId64 ",replicate=%" PRId64, tp, replicate);
  assert_ok(treadle_layout_create(model, text, ranks, NULL, &fsdp2));
  int32_t count = treadle_layout_storage_count(whole, 0);
  treadle_storage_info *infos = calloc((size_t)count, sizeof *infos); /* names live there */
  assert_non_null(infos);
  for (int32_t s = 0; s < count; s++) {
    const treadle_storage_info cut = storage_at(part, 0, s);
    infos[s] = storage_at(whole, 0, s);
    int dim = cut_dim(&infos[s], &cut);
    treadle_placed_tensor tensor = {
        .tensor = infos[s].name, .dtype = infos[s].dtype, .ndim = infos[s].ndim};
    memcpy(tensor.shape, infos[s].shape, sizeof tensor.shape);
    if (dp == 1 || is_cut(rows, &infos[s], s, dp)) tensor.placements[1].type = TREADLE_FULLY_SHARD;
    if (dim >= 0) tensor.placements[2] = (treadle_placement){TREADLE_SHARD, dim, 0};
    assert_ok(treadle_array_push(&tensors, tensor));
  }
  assert_ok(treadle_layout_from_placements(model, ranks, &mesh, 1, tensors.items, tensors.count, &layout));
  assert_same_ranks(fsdp2, layout);
  assert_true(treadle_layout_is_train(layout));
  assert_string_equal(treadle_layout_text(layout), "placements");
  free(infos);
  treadle_array_release(&tensors);
  treadle_layout_destroy(whole);
  treadle_layout_destroy(part);
  treadle_layout_destroy(rows);
  treadle_layout_destroy(fsdp2);
  treadle_layout_destroy(layout);
}

static void fsdp2_is_placements(void **state) {
  (void)state;
  static const int64_t sizes[][3] = {{1, 4, 1}, {1, 3, 2}, {2, 2, 2}, {3, 5, 1}, {1, 1, 2}, {1, 16, 2}};
  for (size_t m = 0; m < TEST_COUNT(configs); m++) {
    treadle_model *model = flat_model(configs[m]);
    for (size_t i = 0; i < TEST_COUNT(sizes); i++)
      compare_fsdp2(model, sizes[i][0], sizes[i][1], sizes[i][2]);
    treadle_model_close(model);
  }
}

/* ---- Several meshes ---- */

/* All tensors of a model, whole on a mesh, except those that have been given. */
static void push_rest(const treadle_model *model, int32_t mesh, placed_array *tensors) {
  size_t given = tensors->count;
  for (int32_t e = 0; e < model->entry_count; e++) {
    bool known = false;
    for (size_t i = 0; i < given; i++)
      known |= strcmp(tensors->items[i].tensor, model->entries[e].name) == 0;
    if (!known)
      assert_ok(treadle_array_push(
          tensors, ((treadle_placed_tensor){.tensor = model->entries[e].name, .mesh = mesh})));
  }
}

static int64_t holders_of(const treadle_layout *layout, const char *name) {
  treadle_cells cells = {0};
  int32_t tensor = small_tensor(layout->model, name);
  treadle_box whole = treadle_box_whole(&layout->model->tensors[tensor]);
  assert_ok(treadle_layout_cells(layout, tensor, &whole, &cells));
  int64_t holders = cells.items[0].holders, ranks = 0;
  for (int64_t h = 0; h < holders; h++) {
    int64_t rank = treadle_cell_rank(layout, &cells.items[0], h);
    assert_int_equal(treadle_cell_find(layout, &cells.items[0], rank), h);
    for (int64_t k = 0; k < h; k++)
      assert_int_not_equal(treadle_cell_rank(layout, &cells.items[0], k), rank);
  }
  for (int64_t r = 0; r < layout->ranks; r++) ranks += treadle_cell_find(layout, &cells.items[0], r) >= 0;
  assert_int_equal(ranks, holders);
  treadle_array_release(&cells);
  return holders;
}

/* Two stages of 2 x 2 ranks and two ranks that have nothing. The embedding is on both stages, cut alike: all of its ranks are holders.
 * The head, tied, is on the last one once more, cut otherwise: a second copy. */
static void stages(void **state) {
  (void)state;
  const char *const embed = "model.embed_tokens.weight", *const head = "lm_head.weight";
  treadle_model *model = flat_model(configs[1]);
  const int64_t list[] = {7, 4, 6, 5};
  const treadle_placed_mesh meshes[] = {{.ndim = 2, .size = {2, 2}},
                                        {.ndim = 2, .size = {2, 2}, .ranks = list}};
  const treadle_placement late = {TREADLE_FULLY_SHARD, 0, 0}, shard = {TREADLE_SHARD, 0, 0};
  placed_array tensors = {0};
  treadle_layout *layout;
  assert_ok(treadle_array_push(
      &tensors, ((treadle_placed_tensor){.tensor = embed, .mesh = 0, .placements = {{0}, shard}})));
  push_rest(model, 0, &tensors);
  assert_ok(treadle_array_push(
      &tensors, ((treadle_placed_tensor){
                    .tensor = embed, .storage = "copy", .mesh = 1, .placements = {{0}, shard}})));
  assert_ok(treadle_array_push(
      &tensors, ((treadle_placed_tensor){.tensor = head, .mesh = 1, .placements = {late, shard}})));
  assert_ok(treadle_layout_from_placements(model, 10, meshes, 2, tensors.items, tensors.count, &layout));
  assert_int_equal(holders_of(layout, embed), 4);
  assert_int_equal(holders_of(layout, "model.norm.weight"), 4);
  for (int64_t r = 0; r < 10; r++) {
    int32_t wanted = r < 4 ? model->tensor_count : r < 8 ? 2 : 0;
    assert_int_equal(treadle_layout_storage_count(layout, r), wanted);
    assert_int_equal(treadle_layout_find(layout, r, "copy"), r >= 4 && r < 8 ? 0 : -1);
  }
  /* rank 4 is at (0, 1): rows 11 to 21, of which the first half are its rows of the head */
  assert_int_equal(storage_at(layout, 4, 0).shape[0], 11);
  assert_int_equal(storage_at(layout, 4, 1).shape[0], 6);
  assert_int_equal(storage_at(layout, 5, 1).shape[0], 5);
  treadle_pieces pieces = {0};
  assert_ok(treadle_layout_pieces_of(layout, 4, small_tensor(model, embed), &pieces));
  assert_int_equal(pieces.count, 2);
  assert_int_equal(pieces.items[1].box.start[0], 11);
  treadle_array_release(&pieces);
  treadle_layout_destroy(layout);

  /* On one mesh, both names of a tied tensor have one holder a rank. */
  placed_array both = {0};
  for (int k = 0; k < 2; k++)
    assert_ok(treadle_array_push(&both, ((treadle_placed_tensor){.tensor = k ? head : embed, .mesh = 0})));
  push_rest(model, 0, &both);
  assert_ok(treadle_layout_from_placements(model, 4, meshes, 1, both.items, both.count, &layout));
  assert_int_equal(holders_of(layout, embed), 4);
  assert_int_equal(treadle_layout_storage_count(layout, 0), model->tensor_count + 1);
  treadle_layout_destroy(layout);
  treadle_array_release(&both);
  treadle_array_release(&tensors);
  treadle_model_close(model);
}

/* Three meshes have all tensors, cut alike: holders of the three follow each other. A fourth one, cut in another way, has copies. */
static void three_alike(void **state) {
  (void)state;
  treadle_model *model = flat_model(configs[0]);
  treadle_placed_mesh meshes[4];
  placed_array tensors = {0}, one = {0};
  treadle_layout *layout;
  push_rest(model, 0, &one);
  for (int32_t m = 0; m < 4; m++) {
    meshes[m] = (treadle_placed_mesh){.ndim = 1, .size = {2}, .first = 2 * m};
    for (size_t i = 0; i < one.count; i++) {
      treadle_placed_tensor tensor = one.items[i];
      tensor.mesh = m;
      tensor.placements[0].type = m == 3 || i % 2 ? TREADLE_SHARD : TREADLE_REPLICATE;
      assert_ok(treadle_array_push(&tensors, tensor));
    }
  }
  assert_ok(treadle_layout_from_placements(model, 8, meshes, 4, tensors.items, tensors.count, &layout));
  for (size_t i = 0; i < one.count; i++)
    assert_int_equal(holders_of(layout, one.items[i].tensor), i % 2 ? 4 : 6);
  treadle_layout_destroy(layout);
  treadle_array_release(&tensors);
  treadle_array_release(&one);
  treadle_model_close(model);
}

/* Each expert by the name of the files, on meshes of one rank: expert parallel. */
static void experts_one_by_one(void **state) {
  (void)state;
  treadle_model *model = flat_model(configs[2]);
  treadle_placed_mesh meshes[5];
  placed_array tensors = {0};
  treadle_layout *layout;
  for (int64_t r = 0; r < 5; r++) meshes[r] = (treadle_placed_mesh){.ndim = 1, .size = {1}, .first = r};
  for (int32_t e = 0; e < model->entry_count; e++) {
    const treadle_entry *entry = &model->entries[e];
    bool expert = model->tensors[entry->tensor].by_expert;
    assert_ok(treadle_array_push(
        &tensors, ((treadle_placed_tensor){.tensor = entry->name, .mesh = expert ? entry->expert : -1})));
  }
  assert_ok(treadle_layout_from_placements(model, 5, meshes, 5, tensors.items, tensors.count, &layout));
  for (int64_t r = 0; r < 5; r++) {
    char name[80];
    snprintf(name, sizeof name, "model.layers.1.mlp.experts.%" PRId64 ".down_proj.weight", r);
    assert_true(treadle_layout_find(layout, r, name) >= 0);
    assert_int_equal(treadle_layout_find(layout, (r + 1) % 5, name), -1);
    treadle_pieces pieces = {0};
    assert_ok(treadle_layout_pieces_of(
        layout, r, model->entries[treadle_hash_map_get(&model->by_name, name, -1)].tensor, &pieces));
    assert_int_equal(pieces.count, 1);
    assert_int_equal(pieces.items[0].box.start[0], r);
    assert_int_equal(pieces.items[0].box.size[0], 1);
    treadle_array_release(&pieces);
  }
  treadle_layout_destroy(layout);
  treadle_array_release(&tensors);
  treadle_model_close(model);
}

/* ---- The digest ---- */

static uint64_t digest_of(const treadle_model *model, const treadle_placed_mesh *mesh,
                          const placed_array *tensors) {
  treadle_layout *layout;
  assert_ok(treadle_layout_from_placements(model, 12, mesh, 1, tensors->items, tensors->count, &layout));
  uint64_t digest = layout->digest;
  treadle_layout_destroy(layout);
  return digest;
}

#define DIFFERS(change)                                                                                    \
  do {                                                                                                     \
    treadle_placed_mesh mesh = like;                                                                       \
    treadle_placed_tensor *tensor = &tensors.items[3], before = *tensor;                                   \
    (void)mesh, (void)tensor;                                                                              \
    change;                                                                                                \
    assert_int_not_equal(digest_of(model, &mesh, &tensors), digest);                                       \
    *tensor = before;                                                                                      \
  } while (0)

static void digests(void **state) {
  (void)state;
  treadle_model *model = flat_model(configs[0]);
  placed_array tensors = {0};
  const int64_t rows[] = {0, 1, 2, 3, 4, 5, 6, 7}, other[] = {0, 1, 2, 3, 4, 5, 7, 6};
  const treadle_placed_mesh like = {.ndim = 2, .size = {4, 2}};
  push_rest(model, 0, &tensors);
  tensors.items[3].placements[0] = (treadle_placement){TREADLE_STRIDED_SHARD, 0, 2};
  tensors.items[3].placements[1] = (treadle_placement){TREADLE_SHARD, 0, 0};
  uint64_t digest = digest_of(model, &like, &tensors);
  treadle_placed_mesh same = like; /* the same ranks, told in other ways */
  same.ranks = rows;
  assert_int_equal(digest_of(model, &same, &tensors), digest);
  same = (treadle_placed_mesh){.ndim = 2, .size = {4, 2}, .stride = {2, 1}};
  assert_int_equal(digest_of(model, &same, &tensors), digest);
  tensors.items[3].placements[1].split = 77; /* says nothing there */
  tensors.items[3].placements[5].type = TREADLE_SHARD;
  assert_int_equal(digest_of(model, &like, &tensors), digest);
  DIFFERS(mesh.ranks = other);
  DIFFERS(mesh.first = 1);
  DIFFERS((mesh.stride[0] = 1, mesh.stride[1] = 4));
  DIFFERS((mesh.size[0] = 2, mesh.size[1] = 4));
  DIFFERS(tensor->storage = "another");
  DIFFERS(tensor->dtype = TREADLE_FP32);
  DIFFERS(tensor->mesh = -1);
  DIFFERS(tensor->placements[0].split = 3);
  DIFFERS(tensor->placements[0].type = TREADLE_FULLY_SHARD);
  DIFFERS(tensor->placements[1].dim = 1);
  DIFFERS(tensor->placements[1].type = TREADLE_REPLICATE);
  treadle_array_release(&tensors);
  treadle_model_close(model);
}

/* down_proj of the files is [experts, 8, 8], and that of the module, which has the name too, is the same transposed. Who gives its
 * shape means the module. */
static void file_or_module(void **state) {
  (void)state;
  const char *const down = "model.layers.0.mlp.experts.down_proj";
  treadle_model *model = flat_model(
      "{\"model_type\": \"qwen3_vl_moe_text\", \"vocab_size\": 20, \"hidden_size\": 8, "
      "\"num_hidden_layers\": 1, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
      "\"head_dim\": 2, \"num_experts\": 2, \"num_experts_per_tok\": 2, \"intermediate_size\": 8, "
      "\"moe_intermediate_size\": 8, \"torch_dtype\": \"bfloat16\"}");
  treadle_layout *file, *module;
  treadle_pieces pieces = {0};
  placed_array tensors = {0};
  int32_t tensor = small_tensor(model, down);
  push_rest(model, -1, &tensors);
  assert_ok(treadle_layout_from_placements(model, 1, NULL, 0, tensors.items, tensors.count, &file));
  for (size_t i = 0; i < tensors.count; i++)
    if (strcmp(tensors.items[i].tensor, down) == 0) {
      tensors.items[i].ndim = 3;
      memcpy(tensors.items[i].shape, (int64_t[]){2, 8, 8}, 3 * sizeof(int64_t));
    }
  assert_ok(treadle_layout_from_placements(model, 1, NULL, 0, tensors.items, tensors.count, &module));
  assert_ok(treadle_layout_pieces_of(file, 0, tensor, &pieces));
  assert_ok(treadle_layout_pieces_of(module, 0, tensor, &pieces));
  assert_int_equal(pieces.count, 2);
  assert_memory_not_equal(pieces.items[0].stride, pieces.items[1].stride, sizeof pieces.items[0].stride);
  assert_true(treadle_layout_placement(file, tensor) != treadle_layout_placement(module, tensor));
  assert_true(file->digest != module->digest);
  treadle_array_release(&pieces);
  treadle_array_release(&tensors);
  treadle_layout_destroy(file);
  treadle_layout_destroy(module);
  treadle_model_close(model);
}

/* ---- Files ---- */

static const char *folder;

static treadle_status read_file(const treadle_model *model, const char *json, int64_t ranks,
                                treadle_layout **layout_p) {
  char text[160];
  snprintf(text, sizeof text, "placements:@%s", test_write(folder, "layout.json", json));
  treadle_status status = treadle_layout_create(model, text, ranks, NULL, layout_p);
  if (status == TREADLE_OK) assert_string_equal(treadle_layout_text(*layout_p), text);
  return status;
}

static char *rest_of(const treadle_model *model) { /* names of all tensors but the first, as a list */
  static char text[8000];
  size_t used = 0;
  for (int32_t e = 1; e < model->entry_count; e++)
    used += (size_t)snprintf(text + used, sizeof text - used, "%s\"%s\"", e > 1 ? ", " : "",
                             model->entries[e].name);
  return text;
}

static void files(void **state) {
  (void)state;
  char json[9000];
  treadle_model *model = flat_model(configs[0]);
  treadle_layout *read, *made;
  const int64_t ranks[] = {0, 3, 1, 2};
  const treadle_placed_mesh meshes[] = {{.ndim = 2, .size = {2, 2}, .ranks = ranks},
                                        {.ndim = 1, .size = {2}, .first = 1, .stride = {4}}};
  placed_array tensors = {0};
  assert_ok(
      treadle_array_push(&tensors, ((treadle_placed_tensor){.tensor = model->entries[0].name,
                                                            .storage = "w",
                                                            .dtype = TREADLE_FP32,
                                                            .mesh = 0,
                                                            .placements = {{TREADLE_STRIDED_SHARD, 0, 3},
                                                                           {TREADLE_FULLY_SHARD, 1, 0}}})));
  push_rest(model, 1, &tensors);
  for (size_t i = 1; i < tensors.count; i++) tensors.items[i].placements[0].type = TREADLE_SHARD;
  assert_ok(treadle_layout_from_placements(model, 6, meshes, 2, tensors.items, tensors.count, &made));
  snprintf(json, sizeof json,
           "{\"meshes\": [{\"shape\": [2, 2], \"ranks\": [[0, 3], [1, 2]]}, {\"shape\": [2], \"first\": 1, "
           "\"stride\": [4]}], \"tensors\": [{\"tensor\": \"%s\", \"storage\": \"w\", \"dtype\": \"fp32\", "
           "\"shape\": [22, 12], \"mesh\": 0, \"placements\": \"T0/3,F1\"}, "
           "{\"tensor\": [%s], \"mesh\": 1, \"placements\": \"S0\"}]}",
           model->entries[0].name, rest_of(model));
  assert_ok(read_file(model, json, 6, &read));
  assert_same_ranks(made, read);
  treadle_layout_destroy(read);
  treadle_layout_destroy(made);
  snprintf(json, sizeof json, "{\"tensors\": [{\"tensor\": [\"%s\", %s]}]}", model->entries[0].name,
           rest_of(model));
  assert_ok(read_file(model, json, 2, &read));
  assert_ok(treadle_layout_create(model, "hf", 2, NULL, &made));
  assert_same_ranks(made, read);
  treadle_layout_destroy(read);
  treadle_layout_destroy(made);
  treadle_array_release(&tensors);
  treadle_model_close(model);
}

#define ONE(more)  "{\"tensors\": [{\"tensor\": \"model.norm.weight\"" more "}]}"
#define MESH(more) "{\"meshes\": [{" more "}], \"tensors\": []}"
#define ON(more)                                                                                           \
  "{\"meshes\": [{\"shape\": [2, 2]}], \"tensors\": [{\"tensor\": \"model.norm.weight\", \"mesh\": 0" more \
  "}]}"

static void files_refused(void **state) {
  (void)state;
  static const struct {
    const char *json, *words;
  } rows[] = {
      {"[]", "not an object with lists"},
      {"{}", "not an object with lists"},
      {"{\"tensors\": 3}", "not an object with lists"},
      {"{\"tensors\": [], \"meshes\": {}}", "not an object with lists"},
      {"{\"tensors\": [], \"mesh\": []}", "unknown key 'mesh'; nearest: meshes"},
      {"{\"tensors\": [], \"tensors\": []}", "stands twice in one object"},
      {"{\"tensors\": [7]}", "tensor 0 is not an object"},
      {ONE(", \"placement\": \"R\""), "unknown key 'placement'; nearest: placements"},
      {ONE(", \"mesh\": 0"), "mesh and placements go together"},
      {ONE(", \"placements\": \"R\""), "mesh and placements go together"},
      {ONE(", \"mesh\": 0, \"placements\": \"R\""), "not the number of one of 0 meshes"},
      {ONE(", \"dtype\": \"int7\""), "dtype is none of"},
      {ONE(", \"storage\": 3"), "storage is not a text"},
      {ONE(", \"shape\": []"), "a list of 0 numbers where 1 to 4 belong"},
      {ONE(", \"shape\": [1, 1, 1, 1, 1]"), "a list of 5 numbers where 1 to 4 belong"},
      {ONE(", \"shape\": [1.5]"), "the shape of tensor 0 is a list of whole numbers"},
      {ONE(", \"shape\": [13]"), "has the shape [12], and is given as [13]"},
      {"{\"tensors\": [{\"tensor\": [1]}]}", "neither a name nor a list of names"},
      {"{\"tensors\": [{}]}", "neither a name nor a list of names"},
      {"{\"tensors\": [{\"tensor\": []}]}", "tensor is an empty list"},
      {"{\"tensors\": [{\"tensor\": [\"model.norm.weight\"], \"storage\": \"w\"}]}", "for one name"},
      {ON(", \"placements\": 3"), "placements are no text"},
      {ON(", \"placements\": \"\""), "a placement is R, S0"},
      {ON(", \"placements\": \"R\""), "has 1 placements, and its mesh 2 dimensions"},
      {ON(", \"placements\": \"R,R,R\""), "has 3 placements, and its mesh 2 dimensions"},
      {ON(", \"placements\": \"R,\""), "a placement is R, S0"},
      {ON(", \"placements\": \"R,S\""), "a placement is R, S0"},
      {ON(", \"placements\": \"R,X0\""), "a placement is R, S0"},
      {ON(", \"placements\": \"R,S-1\""), "a placement is R, S0"},
      {ON(", \"placements\": \"R,T0\""), "a placement is R, S0"},
      {ON(", \"placements\": \"R,T0/\""), "a placement is R, S0"},
      {ON(", \"placements\": \"R,S0/2\""), "a placement is R, S0"},
      {ON(", \"placements\": \"R,S99999999999999999999\""), "cuts dimension 2147483647 of a tensor of 1"},
      {ON(", \"placements\": \"R,T0/0\""), "has a split factor of 0"},
      {ON(", \"placements\": \"R,P\""), "is Partial"},
      {MESH(""), "the shape of mesh 0 is not a list"},
      {MESH("\"shape\": 4"), "the shape of mesh 0 is not a list"},
      {MESH("\"shape\": []"), "the shape of mesh 0 is a list of 0 numbers where 1 to 8 belong"},
      {MESH("\"shape\": [0]"), "dimension 0 has 0 ranks"},
      {MESH("\"shape\": [5]"), "more than the 4 ranks"},
      {MESH("\"shape\": [2], \"first\": \"a\""), "first is not a whole number"},
      {MESH("\"shape\": [2], \"stride\": [1, 2]"), "a list of 2 numbers where 1 to 1 belong"},
      {MESH("\"shape\": [2], \"ranks\": 3"), "ranks is not a list"},
      {MESH("\"shape\": [2], \"ranks\": [0]"), "a list of 1 rank, not of 2"},
      {MESH("\"shape\": [2], \"ranks\": [0, 1, 2]"), "a list of 3 ranks, not of 2"},
      {MESH("\"shape\": [2], \"ranks\": [0, true]"), "ranks are no whole numbers"},
      {MESH("\"shape\": [2], \"ranks\": [0, [1]]"), "ranks are no whole numbers"},
      {MESH("\"shape\": [2, 2], \"ranks\": [[0, 1], 2]"), "neither one list nor nested as its shape is"},
      {MESH("\"shape\": [2, 2], \"ranks\": [[0], [1, 2, 3]]"), "a list of 1 rank, not of 2"},
      {MESH("\"shape\": [2, 2], \"ranks\": [[0, 1], [2, 3], [4, 5]]"), "a list of 3 lists, not of 2"},
      {MESH("\"shape\": [1, 2, 2], \"ranks\": [[0, 1], [2, 3]]"), "a list of 2 lists, not of 1"},
      {MESH("\"shape\": [1, 2, 2], \"ranks\": [[0, 1, 2, 3]]"),
       "neither one list nor nested as its shape is"},
      {MESH("\"shape\": [2], \"ranks\": [0, 1], \"first\": 0"), "has ranks, and first or stride too"},
      {MESH("\"shape\": [1000000, 1000000], \"ranks\": [0]"), "holds no ranks or too many"},
  };
  treadle_model *model = flat_model(configs[0]);
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    treadle_layout *layout = NULL;
    assert_refused(rows[i].words, read_file(model, rows[i].json, 4, &layout));
    assert_null(layout);
  }
  treadle_layout *layout;
  assert_refused("the form is placements:@file",
                 treadle_layout_create(model, "placements", 4, NULL, &layout));
  assert_refused("the form is placements:@file",
                 treadle_layout_create(model, "placements:@", 4, NULL, &layout));
  assert_refused("dtype", treadle_layout_create(model, "placements:dtype=fp32", 4, NULL, &layout));
  treadle_model_close(model);
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

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(fsdp2_is_placements),
                                     cmocka_unit_test(stages),
                                     cmocka_unit_test(three_alike),
                                     cmocka_unit_test(experts_one_by_one),
                                     cmocka_unit_test(digests),
                                     cmocka_unit_test(file_or_module),
                                     cmocka_unit_test(files),
                                     cmocka_unit_test(files_refused)};
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
