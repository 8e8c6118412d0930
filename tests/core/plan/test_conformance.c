/* Cases that other projects state (conformance T6 and T7, the order of MindSpeed's EP to TP columns), asked of layouts
 * and played. */
#include "test.h"

#include "plan/small.h"

#include <inttypes.h>

static treadle_layout *create(const treadle_model *model, const char *text, int64_t ranks) {
  treadle_layout *layout;
  assert_ok(treadle_layout_create(model, text, ranks, NULL, &layout));
  return layout;
}

/* Which of q, k and v a rank's fused tensor has: "qkv". */
static const char *parts_of(const treadle_model *model, const treadle_layout *layout, int64_t rank) {
  static char text[8];
  char *end = text;
  for (int i = 0; i < 3; i++) {
    char name[64];
    treadle_pieces pieces = {0};
    snprintf(name, sizeof name, "model.layers.0.self_attn.%c_proj.weight", "qkv"[i]);
    assert_ok(
        treadle_layout_pieces_of(layout, rank, model->entries[small_tensor(model, name)].tensor, &pieces));
    if (pieces.count > 0) *end++ = "qkv"[i];
    treadle_array_release(&pieces);
  }
  *end = 0;
  return text;
}

/* T6's row of 6 KV heads over 4 ranks, which no Megatron makes: rows of the fused matrix in 4 equal parts, given piece by
 * piece, rank 0 rebuilding q, k and v. */
static void uneven_groups(void) {
  enum {
    HEADS = 24,
    GROUPS = 6,
    RANKS = 4,
    HEAD = 2,
    WIDTH = 3,
    Q = HEADS / GROUPS,
    BLOCK = (Q + 2) * HEAD
  };
  const small_config config = {
      .dtype = "float32", .V = 64, .H = WIDTH, .L = 1, .nh = HEADS, .ng = GROUPS, .hd = HEAD, .I = 8};
  treadle_model *model = small_model(&config);
  small_pieces from = {0}, to = {0};
  const int64_t rows = GROUPS * BLOCK / RANKS;
  for (int64_t row = 0; row < GROUPS * BLOCK; row++) {
    int64_t group = row / BLOCK, in = row % BLOCK;
    bool query = in < Q * HEAD, key = !query && in < (Q + 1) * HEAD;
    treadle_explicit_piece piece = {.rank = row / rows,
                                    .storage = "qkv",
                                    .storage_ndim = 2,
                                    .storage_shape = {rows, WIDTH},
                                    .tensor = query ? "model.layers.0.self_attn.q_proj.weight"
                                              : key ? "model.layers.0.self_attn.k_proj.weight"
                                                    : "model.layers.0.self_attn.v_proj.weight",
                                    .start = {query ? group * Q * HEAD + in : group * HEAD + in % HEAD, 0},
                                    .size = {1, WIDTH},
                                    .offset = row % rows * WIDTH,
                                    .stride = {WIDTH, 1}};
    assert_ok(treadle_array_push(&from, piece));
  }
  small_give_rest(&from, model);
  small_give_rest(&to, model);
  small_play_pieces(&config, RANKS, &from, &to);
  treadle_array_release(&from);
  treadle_array_release(&to);
  treadle_model_close(model);
}

/* T6: q, k and v are rebuilt from the fused tensor of any tp, where KV heads are fewer than ranks too. */
static void grouped_queries(void **state) {
  (void)state;
  static const struct {
    int64_t nh, ng, tp, hd;
  } rows[] = {{32, 4, 2, 4}, {32, 4, 1, 4}, {64, 2, 8, 128}, {24, 6, 6, 2}, {24, 6, 3, 2}};
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    const small_config config = {.dtype = "float32",
                                 .V = 64,
                                 .H = 3,
                                 .L = 1,
                                 .nh = rows[i].nh,
                                 .ng = rows[i].ng,
                                 .hd = rows[i].hd,
                                 .I = 24};
    const int64_t tp = rows[i].tp;
    char megatron[40], vllm[40];
    snprintf(megatron, sizeof megatron, "megatron:tp=%" PRId64, tp);
    snprintf(vllm, sizeof vllm, "vllm:tp=%" PRId64, tp);
    small_play(&config, tp, megatron, "hf:root=0", 1);
    small_play(&config, tp, "hf:root=0", megatron, 1);
    if (64 % tp == 0) small_play(&config, tp, megatron, vllm, 1);
  }
  const small_config config = {.V = 64, .H = 3, .nh = 64, .ng = 2, .hd = 128, .I = 8};
  treadle_model *model = small_model(&config);
  treadle_layout *layout = create(model, "megatron:tp=8", 8);
  for (int64_t r = 0; r < 8; r++) assert_string_equal(parts_of(model, layout, r), r % 4 == 3 ? "qkv" : "q");
  treadle_layout_destroy(layout);
  treadle_model_close(model);

  uneven_groups();
  const small_config uneven = {.V = 64, .H = 3, .nh = 24, .ng = 6, .hd = 2, .I = 8};
  model = small_model(&uneven);
  assert_refused("tp=4 and the 6 KV heads must divide one another",
                 treadle_layout_create(model, "megatron:tp=4", 4, NULL, &layout));
  treadle_model_close(model);
}

/* A missing publisher of k or v is an error, before anything moves. */
static void missing_publishers(void **state) {
  (void)state;
  const small_config config = {.V = 8, .H = 4, .L = 2, .nh = 2, .ng = 2, .hd = 2, .I = 4};
  static const char *const names[] = {"model.layers.0.self_attn.k_proj.weight",
                                      "model.layers.1.self_attn.v_proj.weight"};
  treadle_model *model = small_model(&config);
  for (size_t n = 0; n < TEST_COUNT(names); n++) {
    small_pieces pieces = {0};
    treadle_layout *layout;
    small_give_rest(&pieces, model);
    size_t kept = 0;
    for (size_t i = 0; i < pieces.count; i++)
      if (strcmp(pieces.items[i].tensor, names[n]) != 0) pieces.items[kept++] = pieces.items[i];
    assert_refused(names[n], treadle_layout_from_pieces(model, 1, pieces.items, kept, &layout));
    treadle_array_release(&pieces);
  }
  treadle_model_close(model);
}

/* T7: two pipeline stages publish the same local names. As two tensors in one storage tensor they overlap; as one tensor,
 * the other is nowhere. Neither may pass for a model of which half was refitted. */
static void colliding_names(void **state) {
  (void)state;
  const small_config config = {.V = 8, .H = 4, .L = 2, .nh = 2, .ng = 2, .hd = 2, .I = 4};
  treadle_model *model = small_model(&config);
  for (int way = 0; way < 3; way++) {
    small_pieces pieces = {0};
    treadle_layout *layout;
    small_give_rest(&pieces, model);
    for (size_t i = 0; i < pieces.count; i++) {
      treadle_explicit_piece *piece = &pieces.items[i];
      if (strcmp(piece->tensor, "model.layers.1.mlp.up_proj.weight") != 0) continue;
      piece->rank = way == 2; /* the stage's own rank: its local names are its own */
      piece->storage = "model.layers.0.mlp.up_proj.weight";
      if (way == 1) piece->tensor = "model.layers.0.mlp.up_proj.weight", piece->rank = 1;
    }
    treadle_status status = treadle_layout_from_pieces(model, 2, pieces.items, pieces.count, &layout);
    if (way == 0) assert_refused("model.layers.0.mlp.up_proj.weight", status);
    if (way == 1) assert_refused("model.layers.1.mlp.up_proj.weight", status);
    if (way == 2) assert_ok(status);
    if (way == 2) treadle_layout_destroy(layout);
    treadle_array_release(&pieces);
  }
  treadle_model_close(model);
}

/* Gate and up of the experts of one rank, each cut in i pieces and numbered in order from 1, in the order in which tp ranks
 * have them: target t has piece t + j * i of matrix j. */
static void columns_of_experts(void **state) {
  (void)state;
  static const struct {
    int64_t tp, matrices;
    const char *order;
  } rows[] = {{2, 4, "1,3,5,7,2,4,6,8,"}, {4, 2, "1,5,2,6,3,7,4,8,"}, {2, 2, "1,3,2,4,"}};
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    char more[64], text[40], order[64], *end = order;
    snprintf(more, sizeof more, "\"num_local_experts\": %" PRId64, rows[i].matrices / 2);
    snprintf(text, sizeof text, "vllm:tp=%" PRId64, rows[i].tp);
    const small_config config = {
        .type = "mixtral", .V = 64, .H = 1, .nh = 4, .ng = 4, .hd = 1, .I = rows[i].tp, .more = more};
    treadle_model *model = small_model(&config);
    treadle_layout *layout = create(model, text, rows[i].tp);
    for (int64_t r = 0; r < rows[i].tp; r++)
      for (int32_t s = 0; s < treadle_layout_storage_count(layout, r); s++) {
        treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
        treadle_run *runs;
        size_t count;
        assert_ok(treadle_layout_storage(layout, r, s, &info));
        if (!strstr(info.name, "w13_weight")) continue;
        assert_ok(treadle_layout_runs(layout, r, s, &runs, &count));
        for (size_t k = 0; k < count; k++) {
          const char *name = model->entries[runs[k].tensor].name, *expert = strstr(name, "experts.");
          int64_t matrix = 2 * atoll(expert + strlen("experts.")) + (strstr(name, "w3") != NULL);
          end += sprintf(end, "%" PRId64 ",", 1 + matrix * rows[i].tp + runs[k].start);
          assert_int_equal(runs[k].count, 1);
        }
        free(runs);
      }
    assert_string_equal(order, rows[i].order);
    treadle_layout_destroy(layout);
    treadle_model_close(model);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(grouped_queries), cmocka_unit_test(missing_publishers),
      cmocka_unit_test(colliding_names), cmocka_unit_test(columns_of_experts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
