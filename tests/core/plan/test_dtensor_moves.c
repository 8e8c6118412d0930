/* The resharding matrices of others (conformance T9, NCCL's M2N, and T12, torchstore), moved: DTensor placements of one
 * tensor as explicit pieces, planned, copied, and compared bit for bit with a direct cut. ctest: stage=gcc */
#include "plan/one_rank.h"
#include "test.h"

#include "layout/placed.h"
#include "memory/copy.h"
#include "model/model.h"
#include "plan/plan.h"

#include <jansson.h>
#include <stdlib.h>

/* Two dimensions are a llama's embedding, three gpt-oss's stacked experts; all else is as small as it can be. */
static treadle_model *model_of(const placed *tensor, const char **name_p) {
  const int64_t *n = tensor->shape;
  json_t *config = NULL;
  treadle_model *model;
  if (tensor->ndim == 2)
    config = json_pack("{s:s, s:s, s:I, s:I, s:i, s:i, s:i, s:i, s:i}", "model_type", "llama", "dtype",
                       "bfloat16", "vocab_size", (json_int_t)n[0], "hidden_size", (json_int_t)n[1],
                       "num_hidden_layers", 1, "num_attention_heads", 1, "num_key_value_heads", 1,
                       "head_dim", 1, "intermediate_size", 1);
  else
    config =
        json_pack("{s:s, s:s, s:i, s:I, s:i, s:i, s:i, s:i, s:I, s:I}", "model_type", "gpt_oss", "dtype",
                  "bfloat16", "vocab_size", 1, "hidden_size", (json_int_t)n[1], "num_hidden_layers", 1,
                  "num_attention_heads", 1, "num_key_value_heads", 1, "head_dim", 1, "intermediate_size",
                  (json_int_t)n[2] / 2, "num_local_experts", (json_int_t)n[0]);
  *name_p = tensor->ndim == 2 ? "model.embed_tokens.weight" : "model.layers.0.mlp.experts.gate_up_proj";
  assert_non_null(config);
  assert_ok(treadle_model_from_config("config.json", config, NULL, &model));
  json_decref(config);
  return model;
}

typedef TREADLE_ARRAY(treadle_explicit_piece) piece_array;

static treadle_layout *layout_of(const treadle_model *model, const char *name, const placed *tensor,
                                 int64_t ranks) {
  piece_array pieces = {0};
  treadle_layout *layout;
  for (int64_t r = 0; r < tensor->ranks; r++) {
    const placed_shard *shard = &tensor->shards[r];
    for (size_t b = 0; b < shard->boxes.count; b++) {
      const treadle_strided *box = &shard->boxes.items[b];
      treadle_explicit_piece piece = {
          .rank = r, .storage = name, .storage_ndim = tensor->ndim, .tensor = name, .offset = box->offset};
      for (int d = 0; d < tensor->ndim; d++) {
        piece.storage_shape[d] = shard->local[d];
        piece.start[d] = box->box.start[d];
        piece.size[d] = box->box.size[d];
        piece.stride[d] = box->stride[d];
      }
      assert_ok(treadle_array_push(&pieces, piece));
    }
  }
  for (int32_t t = 0; t < model->entry_count; t++) { /* all other tensors are whole on rank 0 */
    treadle_tensor_info info = TREADLE_INIT(treadle_tensor_info);
    assert_ok(treadle_model_tensor(model, t, &info));
    if (strcmp(info.name, name) == 0) continue;
    treadle_explicit_piece piece = {.storage = info.name, .storage_ndim = info.ndim, .tensor = info.name};
    int64_t stride = 1;
    for (int d = info.ndim - 1; d >= 0; d--) {
      piece.storage_shape[d] = piece.size[d] = info.shape[d];
      piece.stride[d] = stride;
      stride *= info.shape[d];
    }
    assert_ok(treadle_array_push(&pieces, piece));
  }
  assert_ok(treadle_layout_from_pieces(model, ranks, pieces.items, pieces.count, &layout));
  treadle_array_release(&pieces);
  return layout;
}

static char *window(const treadle_layout *layout, int64_t rank, bool loaded) {
  size_t bytes = treadle_layout_window_bytes(layout, rank);
  char *memory = calloc(bytes + 64, 1);
  assert_non_null(memory);
  if (loaded) assert_ok(treadle_layout_load(layout, rank, memory));
  return memory;
}

/* ---- Over several nodes ---- */

/* Marks the elements that a rank has: flags[elems]. */
static void mark(const placed *tensor, int64_t rank, bool *flags) {
  if (rank >= tensor->ranks) return;
  for (size_t b = 0; b < tensor->shards[rank].boxes.count; b++) {
    const treadle_box *box = &tensor->shards[rank].boxes.items[b].box;
    int64_t index[TREADLE_MAX_AXES] = {0};
    for (int d = 0; d >= 0;) {
      int64_t at = 0;
      for (d = 0; d < tensor->ndim; d++) at = at * tensor->shape[d] + box->start[d] + index[d];
      flags[at] = true;
      for (d = tensor->ndim - 1; d >= 0 && ++index[d] == box->size[d]; d--) index[d] = 0;
    }
  }
}

/* Elements that some rank of a node wants and none of it has, of all nodes. */
static int64_t entering(const placed *from, const placed *to, const treadle_nodes *nodes) {
  int64_t elems = 1, sum = 0;
  for (int d = 0; d < from->ndim; d++) elems *= from->shape[d];
  for (int32_t node = 0; node < nodes->count; node++) {
    bool *has = calloc((size_t)elems, 1), *wants = calloc((size_t)elems, 1);
    assert_true(has && wants);
    for (int32_t i = nodes->first[node]; i < nodes->first[node + 1]; i++) {
      mark(from, nodes->list[i], has);
      mark(to, nodes->list[i], wants);
    }
    for (int64_t e = 0; e < elems; e++) sum += wants[e] && !has[e];
    free(has);
    free(wants);
  }
  return sum;
}

typedef struct member {
  treadle_plan *plan;
  char *source, *got;
} member;

/* Runs the ops of one rank: those that others may read, or relays and twins. */
static void run_part(const member *members, int64_t rank, bool twins) {
  const treadle_direction *direction = &members[rank].plan->forward;
  for (size_t i = 0; i < direction->ops.count; i++) {
    const treadle_op *op = &direction->ops.items[i];
    const member *from = &members[op->source < 0 ? rank : op->source];
    treadle_paged source = treadle_paged_of(op->twin ? from->got : from->source),
                  view = treadle_paged_of(members[rank].got);
    if (op->twin == twins) treadle_copy_op(op, &source, &view, treadle_copy_choose());
  }
  treadle_copy_fence();
}

/* Each element enters a node once; all that is relayed has arrived before. */
static void move_between(const treadle_layout *from, const treadle_layout *to, const treadle_nodes *nodes,
                         int64_t elems) {
  int64_t moved = 0;
  member *members = calloc((size_t)nodes->ranks, sizeof *members);
  assert_non_null(members);
  for (int64_t r = 0; r < nodes->ranks; r++) {
    const treadle_plan_options options = {.struct_size = sizeof options,
                                          .page_bytes = 4096,
                                          .cap_bytes = 1 << 20,
                                          .waves = 16,
                                          .keep_params = true,
                                          .node_of = nodes->of};
    assert_ok(treadle_plan_create(from, to, r, &options, &members[r].plan));
    members[r].source = window(from, r, true);
    members[r].got = window(to, r, false);
    moved += members[r].plan->forward.node_moved_bytes;
    assert_int_equal(members[r].plan->forward.moved_bytes, members[r].plan->forward.lower_bound_bytes);
  }
  assert_int_equal(moved, 2 * elems);
  for (int twins = 0; twins < 2; twins++)
    for (int64_t r = 0; r < nodes->ranks; r++) run_part(members, r, twins);
  for (int64_t r = 0; r < nodes->ranks; r++) {
    char *wanted = window(to, r, true);
    assert_memory_equal(members[r].got, wanted, treadle_layout_window_bytes(to, r));
    treadle_plan_destroy(members[r].plan);
    free(members[r].source);
    free(members[r].got);
    free(wanted);
  }
  free(members);
}

/* Neighbours on a node, and every other rank on a node. */
static void move_over_nodes(const treadle_layout *layouts[2], const placed *const tensors[2],
                            int64_t ranks) {
  for (int way = 0; way < 2; way++)
    for (int back = 0; back < 2 && ranks > 1; back++) {
      int32_t of[16];
      treadle_nodes nodes;
      for (int64_t r = 0; r < ranks; r++) of[r] = (int32_t)(way ? r % 2 : r * 2 / ranks);
      assert_ok(treadle_nodes_make(of, ranks, &nodes));
      move_between(layouts[back], layouts[!back], &nodes, entering(tensors[back], tensors[!back], &nodes));
      treadle_nodes_release(&nodes);
    }
}

/* ---- On one node ---- */

/* Plans and copies on every rank of `to`; sources are the loaded windows of `from`. */
static void move(const treadle_layout *from, const treadle_layout *to, int64_t ranks) {
  char **sources = calloc((size_t)ranks, sizeof *sources);
  assert_non_null(sources);
  for (int64_t r = 0; r < ranks; r++) sources[r] = window(from, r, true);
  for (int64_t r = 0; r < ranks; r++) {
    treadle_plan *plan;
    char *got = window(to, r, false), *wanted = window(to, r, true);
    assert_ok(one_rank_plan(from, to, r, 4096, 64, 1 << 20, &plan));
    assert_int_equal(plan->forward.moved_bytes, plan->forward.lower_bound_bytes);
    for (size_t i = 0; i < plan->forward.ops.count; i++) {
      const treadle_op *op = &plan->forward.ops.items[i];
      treadle_paged source = {.base = op->twin         ? got
                                      : op->source < 0 ? got
                                                       : sources[op->source]},
                    view = treadle_paged_of(got);
      treadle_copy_op(op, &source, &view, treadle_copy_choose());
    }
    treadle_copy_fence();
    assert_memory_equal(got, wanted, treadle_layout_window_bytes(to, r));
    treadle_plan_destroy(plan);
    free(got);
    free(wanted);
  }
  for (int64_t r = 0; r < ranks; r++) free(sources[r]);
  free(sources);
}

static void reshard(const char *shape, const char *from_mesh, const char *from_placements,
                    const char *to_mesh, const char *to_placements) {
  placed a = placed_open(shape, from_mesh, from_placements), b = placed_open(shape, to_mesh, to_placements);
  int64_t ranks = a.ranks > b.ranks ? a.ranks : b.ranks;
  const char *name;
  treadle_model *model = model_of(&a, &name);
  treadle_layout *from = layout_of(model, name, &a, ranks), *to = layout_of(model, name, &b, ranks);
  move(from, to, ranks);
  move(to, from, ranks);
  move_over_nodes((const treadle_layout *[]){from, to}, (const placed *const[]){&a, &b}, ranks);
  treadle_layout_destroy(from);
  treadle_layout_destroy(to);
  treadle_model_close(model);
  placed_close(&a);
  placed_close(&b);
}

static void nccl_m2n(void **state) {
  (void)state;
  static const char *const line[] = {"S0", "S1"};
  for (int a = 0; a < 2; a++)
    for (int b = 0; b < 2; b++) {
      reshard("200x200", "2", line[a], "4", line[b]);
      reshard("240x240", "3", line[a], "1", line[b]);
      reshard("240x240", "1", line[a], "3", line[b]);
      reshard("64x128x128", "4", line[a], "8", line[b]);
    }
  static const char *const meshes[] = {"2x4", "4x2", "2x2"};
  static const char *const planes[] = {"S0,R", "R,S0", "S0,S1", "S1,R"};
  for (size_t m = 0; m < TEST_COUNT(meshes); m++)
    for (size_t p = 0; p < TEST_COUNT(planes); p++) {
      size_t other = (m + p + 1) % TEST_COUNT(meshes), turned = (p + 1) % TEST_COUNT(planes);
      reshard("576x576", meshes[m], planes[p], meshes[other], planes[turned]);
      reshard("128x64x64", meshes[m], planes[p], meshes[other], planes[turned]);
    }
  reshard("3072x3072", "2x4", "S0,R", "4x2", "R,S0");
  reshard("3072x6144", "4x2", "R,S0", "2x2", "S0,R");
}

static void torchstore(void **state) {
  (void)state;
  static const char *const line[] = {"S0", "S1"};
  for (int a = 0; a < 2; a++)
    for (int b = 0; b < 2; b++) reshard("512x512", "4", line[a], "2", line[b]);
  reshard("512x512", "2x2", "S1,S1", "2x2", "S0,S1");
  reshard("512x512", "2x2", "S1,S0", "2x2", "S1,S0");
  reshard("512x512", "2x2", "S0,S0", "2x2", "S0,S1");
  reshard("512x512", "2x2", "S1,S1", "2x2", "S0,S0");
  reshard("512x512", "4", "S0", "2x2", "S0,S1");
  reshard("512x512", "2", "R", "4", "R");
  reshard("512x512", "2x2", "R,S0", "4", "S1");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(nccl_m2n), cmocka_unit_test(torchstore)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
