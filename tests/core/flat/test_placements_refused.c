/* src/core/flat/placements*.c: input that is refused, one mistake at a time, with the names and numbers in the message; limits; memory that
 * runs out; and one rank of very many. */
#include "test.h"

#include "layout/layout.h"
#include "plan/small.h"

#include <inttypes.h>

enum { MANY = 40 };

/* A model, and a description of it on 8 ranks that is right. */
typedef struct subject {
  treadle_model *model;
  treadle_placed_mesh meshes[2];
  treadle_placed_tensor tensors[MANY];
  size_t mesh_count, count;
  int64_t ranks;
} subject;

static const small_config plain = {.V = 32, .H = 16, .L = 2, .nh = 4, .ng = 2, .hd = 4, .I = 24};

static subject subject_of(const small_config *config) {
  treadle_model *model = small_model(config);
  subject s = {.model = model, .mesh_count = 2, .ranks = 8};
  s.meshes[0] = (treadle_placed_mesh){.ndim = 2, .size = {2, 2}};
  s.meshes[1] = (treadle_placed_mesh){.ndim = 1, .size = {4}, .first = 3};
  for (int32_t e = 0; e < model->entry_count; e++)
    if (model->tensors[model->entries[e].tensor].scale_of < 0)
      s.tensors[s.count++] =
          (treadle_placed_tensor){.tensor = model->entries[e].name,
                                  .placements = {{TREADLE_SHARD, 0, 0}, {TREADLE_REPLICATE, 0, 0}}};
  assert_true(s.count < MANY);
  return s;
}

static treadle_status create(const subject *s, treadle_layout **layout_p) {
  return treadle_layout_from_placements(s->model, s->ranks, s->meshes, s->mesh_count, s->tensors, s->count,
                                        layout_p);
}

#define WRONG(words, change)                                                                               \
  do {                                                                                                     \
    subject s = like;                                                                                      \
    treadle_placed_mesh *mesh = &s.meshes[1];                                                              \
    treadle_placed_tensor *tensor = &s.tensors[2], *behind = &s.tensors[s.count];                          \
    treadle_placement *placement = &tensor->placements[1];                                                 \
    (void)mesh, (void)tensor, (void)behind, (void)placement;                                               \
    change;                                                                                                \
    assert_refused(words, create(&s, &layout));                                                            \
    assert_null(layout);                                                                                   \
  } while (0)

static void one_mistake(void **state) {
  (void)state;
  const subject like = subject_of(&plain);
  treadle_layout *layout;
  assert_string_equal(like.tensors[2].tensor, "model.layers.0.self_attn.k_proj.weight");
  assert_ok(create(&like, &layout));
  treadle_layout_destroy(layout);
  layout = NULL;

  char long_name[257];
  memset(long_name, 'x', 256);
  long_name[256] = 0;

  /* meshes */
  const int64_t twice[] = {1, 2, 7, 2}, outside[] = {1, 2, 3, 8}, below[] = {1, -1, 3, 4};
  WRONG("mesh 1 has 0 dimensions; 1 to 8", mesh->ndim = 0);
  WRONG("mesh 1 has 9 dimensions; 1 to 8", mesh->ndim = 9);
  WRONG("mesh 1 has -1 dimensions", mesh->ndim = -1);
  WRONG("mesh 1: dimension 0 has 0 ranks", mesh->size[0] = 0);
  WRONG("mesh 1: dimension 0 has -4 ranks", mesh->size[0] = -4);
  WRONG("mesh 1 has more than the 8 ranks that there are", mesh->size[0] = 9);
  WRONG("mesh 1 has more than the 8 ranks",
        (mesh->ndim = 3, mesh->size[0] = mesh->size[1] = mesh->size[2] = INT64_C(1) << 40));
  WRONG("mesh 1 has rank 2 twice, as number 1 and 3", mesh->ranks = twice);
  WRONG("mesh 1 has rank 8, which is not one of 8", mesh->ranks = outside);
  WRONG("mesh 1 has rank -1, which is not one of 8", mesh->ranks = below);
  WRONG("mesh 1 has rank 8, which is not one of 8", mesh->first = 5);
  WRONG("mesh 1 has rank -1, which is not one of 8", mesh->first = -1);
  WRONG("mesh 1 has rank 9, which is not one of 8", mesh->stride[0] = 2);
  WRONG("mesh 1: dimension 0 has 4 ranks at a stride of -1", mesh->stride[0] = -1);
  WRONG("which is not one of 8", mesh->stride[0] = INT64_MAX);
  WRONG("which is not one of 8", mesh->first = INT64_MAX);
  WRONG("mesh 1: dimension 1 has 2 ranks at a stride of 0",
        (mesh->ndim = 2, mesh->size[0] = mesh->size[1] = 2, mesh->stride[0] = 1));
  WRONG("mesh 1 has rank 4 twice",
        (mesh->ndim = 2, mesh->size[0] = mesh->size[1] = 2, mesh->stride[0] = mesh->stride[1] = 1));

  /* names */
  WRONG(
      "no tensor 'model.layers.0.self_attn.k_prj.weight' (nearest: model.layers.0.self_attn.k_proj.weight)",
      tensor->tensor = "model.layers.0.self_attn.k_prj.weight");
  WRONG("no tensor '' (nearest:", tensor->tensor = "");
  WRONG("tensor 2 has no name", tensor->tensor = NULL);
  WRONG("names no storage", tensor->storage = "");
  WRONG("the storage of model.layers.0.self_attn.k_proj.weight has a name of 256 bytes; at most 255",
        tensor->storage = long_name);
  WRONG("no rank holds model.layers.0.self_attn.k_proj.weight", *tensor = s.tensors[--s.count]);
  WRONG("no rank holds ", s.count = 0);
  WRONG("rank 0 has the tensor model.layers.0.self_attn.k_proj.weight twice, as number 2 and 21",
        (*behind = *tensor, behind->storage = "other", s.count++));
  WRONG("rank 3 has the tensor model.layers.0.self_attn.k_proj.weight twice, as number 2 and 21",
        (*behind = *tensor, behind->storage = "other", behind->mesh = 1, s.count++));
  WRONG("rank 0 has a storage tensor model.norm.weight twice", tensor->storage = "model.norm.weight");

  /* what is said of a tensor */
  WRONG("is on mesh 2, and there are 2; -1 means all ranks", tensor->mesh = 2);
  WRONG("is on mesh -2, and there are 2", tensor->mesh = -2);
  WRONG("has dtype 9, which is none", tensor->dtype = (treadle_dtype)9);
  WRONG("has dtype -1, which is none", tensor->dtype = (treadle_dtype)-1);
  WRONG("is given in fp8; placements hold values", tensor->dtype = TREADLE_FP8_E4M3);
  WRONG("is of type bf16, and given in int32", tensor->dtype = TREADLE_INT32);
  WRONG("is given with 5 dimensions; 1 to 4", tensor->ndim = 5);
  WRONG("is given with -1 dimensions", tensor->ndim = -1);
  WRONG("k_proj.weight has the shape [8, 16], and is given as [8, 15]",
        (tensor->ndim = 2, tensor->shape[0] = 8, tensor->shape[1] = 15));
  WRONG("has the shape [8, 16], and is given as [8]", (tensor->ndim = 1, tensor->shape[0] = 8));

  /* placements */
  WRONG("k_proj.weight: mesh dimension 1 is Partial: a sum that is not yet made has no value",
        placement->type = TREADLE_PARTIAL);
  WRONG("mesh dimension 1 has placement type 5, which is none",
        placement->type = (treadle_placement_type)5);
  WRONG("mesh dimension 1 has placement type -1", placement->type = (treadle_placement_type)-1);
  WRONG("mesh dimension 1 cuts dimension 2 of a tensor of 2",
        *placement = ((treadle_placement){TREADLE_SHARD, 2, 0}));
  WRONG("mesh dimension 1 cuts dimension -1 of a tensor of 2",
        *placement = ((treadle_placement){TREADLE_FULLY_SHARD, -1, 0}));
  WRONG("mesh dimension 1 has a split factor of 0",
        *placement = ((treadle_placement){TREADLE_STRIDED_SHARD, 0, 0}));
  WRONG("mesh dimension 1 has a split factor of -5",
        *placement = ((treadle_placement){TREADLE_STRIDED_SHARD, 0, -5}));
  WRONG("from 1 to 2^30", s.ranks = 0);
  treadle_model_close(like.model);
}

/* The same tensor under two names, in two types. */
static void two_types(void **state) {
  (void)state;
  small_config tied = plain;
  tied.tied = true;
  subject s = subject_of(&tied);
  treadle_layout *layout;
  s.tensors[s.count++] = (treadle_placed_tensor){.tensor = "lm_head.weight", .dtype = TREADLE_FP32};
  assert_refused("lm_head.weight is given in fp32, and another one has model.embed_tokens.weight in bf16",
                 create(&s, &layout));
  treadle_model_close(s.model);
}

/* All experts by the module's name, and one of them by that of the files. */
static void twice_the_same(void **state) {
  (void)state;
  subject s =
      subject_of(&(small_config){.type = "qwen3_moe",
                                 .V = 20,
                                 .H = 8,
                                 .L = 1,
                                 .nh = 4,
                                 .ng = 2,
                                 .hd = 2,
                                 .more = "\"num_experts\": 3, \"num_experts_per_tok\": 2, "
                                         "\"moe_intermediate_size\": 6, \"decoder_sparse_step\": 1"});
  treadle_layout *layout;
  assert_ok(create(&s, &layout));
  treadle_layout_destroy(layout);
  s.tensors[s.count++] =
      (treadle_placed_tensor){.tensor = "model.layers.0.mlp.experts.down_proj", .mesh = 1};
  assert_refused("down_proj.weight and model.layers.0.mlp.experts.down_proj have the same elements of",
                 create(&s, &layout));
  treadle_model_close(s.model);
}

/* Scales of fp8 blocks are not given; their weights are values. */
static void blocks(void **state) {
  (void)state;
  small_config coded = plain;
  coded.more = "\"quantization_config\": {\"quant_method\": \"fp8\", \"fmt\": \"e4m3\", "
               "\"weight_block_size\": [8, 8]}";
  subject s = subject_of(&coded);
  treadle_layout *layout;
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  assert_ok(create(&s, &layout));
  assert_ok(treadle_layout_storage(layout, 0, 2, &info));
  assert_int_equal(info.dtype, TREADLE_BF16);
  treadle_layout_destroy(layout);
  s.tensors[s.count++] = (treadle_placed_tensor){.tensor = "model.layers.0.mlp.up_proj.weight_scale_inv"};
  assert_refused("has scales of fp8 blocks", create(&s, &layout));
  treadle_model_close(s.model);
}

/* Split factors are no memory and no time: the largest one gives all to the first rank, an element after the other. */
static void large_splits(void **state) {
  (void)state;
  subject s = subject_of(&plain);
  treadle_layout *layout;
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  s.tensors[0].placements[0] = (treadle_placement){TREADLE_STRIDED_SHARD, 0, INT64_MAX};
  assert_ok(create(&s, &layout));
  assert_ok(treadle_layout_storage(layout, 0, 0, &info));
  assert_int_equal(info.shape[0], 32);
  assert_ok(treadle_layout_storage(layout, 2, 0, &info));
  assert_int_equal(info.shape[0], 0);
  treadle_layout_destroy(layout);
  treadle_model_close(s.model);
  small_config large = plain;
  large.V = 2000000;
  s = subject_of(&large);
  s.tensors[0].placements[0] = (treadle_placement){TREADLE_STRIDED_SHARD, 0, INT64_MAX};
  assert_refused(
      "the split factors of model.embed_tokens.weight leave its shards in more than 1048576 parts",
      create(&s, &layout));
  treadle_model_close(s.model);
}

static treadle_status create_and_destroy(const subject *s) {
  treadle_layout *layout;
  treadle_status status = create(s, &layout);
  treadle_layout_destroy(layout);
  return status;
}

static void no_memory(void **state) {
  (void)state;
  const int64_t list[] = {7, 0, 3, 5};
  subject s = subject_of(&plain);
  s.meshes[1] = (treadle_placed_mesh){.ndim = 1, .size = {4}, .ranks = list};
  s.tensors[1].mesh = 1;
  s.tensors[2].placements[1] = (treadle_placement){TREADLE_STRIDED_SHARD, 0, 2};
  TEST_EACH_ALLOCATION(create_and_destroy(&s));
  s.tensors[2].ndim = 1; /* the shape of a module is looked for, too */
  treadle_layout *layout;
  assert_refused("has the shape", create(&s, &layout));
  treadle_model_close(s.model);
}

/* 2^30 ranks in a row, or far apart: no table, no loop. Neither has the rank's answer a cost that grows. */
static void many_ranks(void **state) {
  (void)state;
  subject s = subject_of(&plain);
  treadle_layout *layout;
  treadle_cells cells = {0};
  treadle_pieces pieces = {0};
  s.ranks = INT64_C(1) << 30;
  s.meshes[0] = (treadle_placed_mesh){.ndim = 3, .size = {1 << 20, 1 << 5, 1 << 5}};
  for (size_t i = 0; i < s.count; i++) {
    s.tensors[i].placements[0].type = TREADLE_REPLICATE;
    s.tensors[i].placements[1] = (treadle_placement){TREADLE_SHARD, 0, 0};
  }
  long before = treadle_alloc_count();
  assert_ok(create(&s, &layout));
  assert_true(treadle_alloc_count() - before < 1000);
  const treadle_box box = {.start = {30, 3}, .size = {1, 2, 1, 1, 1, 1}};
  assert_ok(treadle_layout_cells(layout, 0, &box, &cells));
  assert_int_equal(cells.count, 1);
  assert_int_equal(cells.items[0].holders, 1 << 25);
  int64_t rank = treadle_cell_rank(layout, &cells.items[0], 12345678);
  assert_int_equal(rank / 32 % 32, 30);
  assert_int_equal(treadle_cell_find(layout, &cells.items[0], rank), 12345678);
  assert_ok(treadle_layout_pieces_of(layout, rank, 0, &pieces));
  assert_int_equal(pieces.count, 1);
  assert_int_equal(pieces.items[0].box.start[0], 30);
  treadle_array_release(&cells);
  treadle_array_release(&pieces);
  treadle_layout_destroy(layout);
  treadle_model_close(s.model);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(one_mistake),    cmocka_unit_test(two_types),
                                     cmocka_unit_test(twice_the_same), cmocka_unit_test(blocks),
                                     cmocka_unit_test(large_splits),   cmocka_unit_test(no_memory),
                                     cmocka_unit_test(many_ranks)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
