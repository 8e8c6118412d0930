/* distopt against plain loops: the local tensors of the same megatron layout, laid backwards into buckets. ctest: stage=gcc */
#include "flat_truth.h"

#include "test.h"

typedef struct grid_row {
  const char *keys; /* of the layout, beside bucket_size and pad */
  int64_t ranks, tp, cp, pp, ep, etp;
} grid_row;

/* How a rank stands in the dense and in the expert grid, of order tp-cp-ep-dp-pp. */
typedef struct stand {
  int64_t stage, dp, d, edp, ed;
} stand;

static stand stand_of(const grid_row *g, int64_t rank) {
  int64_t dp_cp = g->ranks / g->tp / g->pp, edp = g->ranks / g->etp / g->ep / g->pp;
  return (stand){.stage = rank / (g->ranks / g->pp),
                 .dp = dp_cp,
                 .d = rank / g->tp % dp_cp, /* cp is faster than dp */
                 .edp = edp,
                 .ed = rank / (g->etp * g->ep) % edp};
}

static flat_elems local_elems(const treadle_layout *layout, int64_t rank, int32_t storage) {
  flat_elems elems = {0};
  treadle_run *runs;
  size_t count;
  assert_ok(treadle_layout_runs(layout, rank, storage, &runs, &count));
  for (size_t r = 0; r < count; r++)
    for (int64_t i = 0; i < runs[r].count; i++) {
      flat_elem one = {runs[r].tensor, runs[r].tensor < 0 ? 0 : runs[r].start + i * runs[r].stride,
                       runs[r].add};
      flat_add(&elems, &(flat_elems){&one, 1});
    }
  free(runs);
  return elems;
}

static void close_bucket(flat_elems *bucket, int64_t dp, bool pad, const treadle_layout *layout,
                         int64_t rank, int32_t storage, const char *type, int number, int64_t d) {
  int64_t unit = pad ? 65536 : 128, step = unit;
  while (step % dp != 0) step += unit;
  while (bucket->count % step != 0) flat_pad(bucket, 1);
  char name[40];
  sprintf(name, "%s.bucket_%d", type, number);
  int64_t each = bucket->count / dp;
  flat_check(layout, rank, storage, name, bucket->items + d * each, each);
  flat_free(bucket);
}

static bool is_buffer(const char *name) { return strstr(name, "expert_bias") != NULL; }

/* One buffer of a chunk; moves *storage_p behind its buckets. */
static void check_buffer(const treadle_layout *megatron, const treadle_layout *layout, const grid_row *g,
                         int64_t rank, int32_t chunk, bool experts, int64_t bucket_size, bool pad,
                         int32_t *storage_p) {
  stand at = stand_of(g, rank);
  int64_t dp = experts ? at.edp : at.dp, d = experts ? at.ed : at.d;
  bool tied = treadle_hash_map_get(&layout->model->by_name, "lm_head.weight", -1) == 0;
  const char *type = experts ? "expert" : "dense";
  flat_elems bucket = {0};
  int number = 0;
  for (int32_t s = treadle_layout_storage_count(megatron, rank) - 1; s >= 0; s--) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    assert_ok(treadle_layout_storage(megatron, rank, s, &info));
    bool of_experts = g->ep > 1 && strstr(info.name, ".experts.") != NULL;
    if (info.chunk != chunk || of_experts != experts || is_buffer(info.name)) continue;
    bool shared =
        tied && g->pp > 1 &&
        (strstr(info.name, "word_embeddings") != NULL || strcmp(info.name, "output_layer.weight") == 0);
    while (bucket.count % 64 != 0) flat_pad(&bucket, 1);
    if (shared && bucket.count > 0)
      close_bucket(&bucket, dp, pad, layout, rank, (*storage_p)++, type, number++, d);
    flat_elems elems = local_elems(megatron, rank, s);
    flat_add(&bucket, &elems);
    flat_free(&elems);
    bool full = bucket_size > 0 && at.stage == 0 && chunk == 0 && bucket.count >= bucket_size;
    if (full || shared) close_bucket(&bucket, dp, pad, layout, rank, (*storage_p)++, type, number++, d);
  }
  if (bucket.count > 0) close_bucket(&bucket, dp, pad, layout, rank, (*storage_p)++, type, number, d);
}

static void check(const treadle_model *model, const grid_row *g, int64_t bucket_size, bool pad) {
  char text[200];
  sprintf(text, "megatron%s%s", *g->keys ? ":" : "", g->keys);
  treadle_layout *megatron = flat_layout(model, text, g->ranks);
  int used = sprintf(text, "distopt:%s%spad=%s", g->keys, *g->keys ? "," : "", pad ? "on" : "off");
  if (bucket_size) sprintf(text + used, ",bucket_size=%d", (int)bucket_size);
  treadle_layout *layout = flat_layout(model, text, g->ranks);
  for (int64_t rank = 0; rank < g->ranks; rank++) {
    int32_t storage = 0, chunks = 1;
    for (int32_t s = 0; s < treadle_layout_storage_count(megatron, rank); s++) {
      treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
      assert_ok(treadle_layout_storage(megatron, rank, s, &info));
      if (info.chunk >= chunks) chunks = info.chunk + 1;
    }
    for (int32_t chunk = 0; chunk < chunks; chunk++)
      for (int experts = 0; experts < 2; experts++)
        check_buffer(megatron, layout, g, rank, chunk, experts > 0, bucket_size, pad, &storage);
    for (int32_t s = 0; s < treadle_layout_storage_count(megatron, rank);
         s++) { /* buffers are whole, and last */
      treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
      assert_ok(treadle_layout_storage(megatron, rank, s, &info));
      if (!is_buffer(info.name)) continue;
      flat_elems elems = local_elems(megatron, rank, s);
      flat_check(layout, rank, storage++, info.name, elems.items, elems.count);
      flat_free(&elems);
    }
    assert_int_equal(storage, treadle_layout_storage_count(layout, rank));
  }
  treadle_layout_destroy(megatron);
  treadle_layout_destroy(layout);
}

static const grid_row dense[] = {{"", 1, 1, 1, 1, 1, 1},
                                 {"", 3, 1, 1, 1, 1, 1},
                                 {"tp=2,vocab_divisible_by=1", 8, 2, 1, 1, 1, 2},
                                 {"pp=2,cp=2", 8, 1, 2, 2, 1, 1},
                                 {"tp=2,pp=2,vocab_divisible_by=3,spec=local", 8, 2, 1, 2, 1, 2}};
static const grid_row of_experts[] = {
    {"", 3, 1, 1, 1, 1, 1},
    {"ep=2", 4, 1, 1, 1, 2, 1},
    {"ep=2,experts=stacked,vocab_divisible_by=1", 6, 1, 1, 1, 2, 1},
    {"tp=2,ep=2,etp=1,cp=2,experts=sequential,vocab_divisible_by=2", 8, 2, 2, 1, 2, 1},
    {"tp=2,etp=1,vocab_divisible_by=2", 4, 2, 1, 1, 1, 1}};

static const int64_t sizes[] = {0, 1, 200, 1000};

static void check_all(int config, const grid_row *grids, size_t count) {
  treadle_model *model = flat_model(flat_configs[config]);
  for (size_t g = 0; g < count; g++)
    for (size_t s = 0; s < TEST_COUNT(sizes); s++) check(model, &grids[g], sizes[s], s == 2);
  treadle_model_close(model);
}

static void buckets(void **state) {
  (void)state;
  check_all(1, dense, TEST_COUNT(dense)); /* tied */
  check_all(2, dense, TEST_COUNT(dense));
}

static void chunks(void **state) {
  (void)state;
  static const grid_row grid = {"pp=2,vpp=2", 4, 1, 1, 2, 1, 1};
  treadle_model *model = flat_model(
      "{\"model_type\": \"llama\", \"vocab_size\": 22, \"hidden_size\": 6, \"intermediate_size\": 10, "
      "\"num_hidden_layers\": 4, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 3, "
      "\"tie_word_embeddings\": true}");
  for (size_t s = 0; s < TEST_COUNT(sizes); s++) check(model, &grid, sizes[s], false);
  treadle_model_close(model);
}

static void experts(void **state) {
  (void)state;
  for (int config = 3; config < FLAT_CONFIGS; config++)
    check_all(config, of_experts, TEST_COUNT(of_experts));
}

/* Norms that are stored less 1, and linear attention. */
static void values_with_offsets(void **state) {
  (void)state;
  treadle_model *model = flat_model(
      "{\"model_type\": \"qwen3_next\", \"vocab_size\": 22, \"hidden_size\": 6, \"intermediate_size\": 10, "
      "\"num_hidden_layers\": 4, \"num_attention_heads\": 2, \"num_key_value_heads\": 2, \"head_dim\": 3, "
      "\"moe_intermediate_size\": 4, \"shared_expert_intermediate_size\": 4, \"num_experts\": 6, "
      "\"num_experts_per_tok\": 1, \"decoder_sparse_step\": 1, \"mlp_only_layers\": [], "
      "\"full_attention_interval\": 2, \"linear_conv_kernel_dim\": 3, \"linear_key_head_dim\": 3, "
      "\"linear_value_head_dim\": 2, \"linear_num_key_heads\": 2, \"linear_num_value_heads\": 4, "
      "\"tie_word_embeddings\": false}");
  treadle_layout *layout = flat_layout(model, "distopt", 2);
  flat_elems elems = local_elems(layout, 0, 0);
  int64_t less = 0;
  for (int64_t i = 0; i < elems.count; i++) less += elems.items[i].add == -1;
  assert_true(less > 0);
  flat_free(&elems);
  treadle_layout_destroy(layout);
  for (size_t g = 0; g < TEST_COUNT(of_experts); g++) /* its heads divide by tp * cp = 2 at most */
    if (of_experts[g].tp * of_experts[g].cp <= 2) check(model, &of_experts[g], 200, false);
  treadle_model_close(model);
}

static int32_t down_proj(const treadle_model *model, int64_t layer) {
  char name[80];
  sprintf(name, "model.layers.%d.mlp.down_proj.weight", (int)layer);
  return treadle_hash_map_get(&model->by_name, name, -1);
}

static int64_t held_by(const treadle_layout *layout, int64_t rank, int32_t tensor) {
  treadle_pieces pieces = {0};
  int64_t elems = 0;
  assert_ok(treadle_layout_pieces_of(layout, rank, tensor, &pieces));
  for (size_t i = 0; i < pieces.count; i++) elems += treadle_box_elems(&pieces.items[i].box);
  treadle_array_release(&pieces);
  return elems;
}

/* Where a cell comes among those of its pattern on its rank, against what ranks hold: layers lie backwards. In few buckets it is
 * counted when it is asked for, in many ahead. */
static void check_turns(int64_t layers, const char *text) {
  enum { RANKS = 3 };
  char config[300];
  sprintf(config,
          "{\"model_type\": \"llama\", \"vocab_size\": 22, \"hidden_size\": 6, \"intermediate_size\": 10, "
          "\"num_hidden_layers\": %d, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, "
          "\"head_dim\": 3, \"tie_word_embeddings\": true}",
          (int)layers);
  treadle_model *model = flat_model(config);
  treadle_layout *layout = flat_layout(model, text, RANKS);
  treadle_cells cells = {0};
  int64_t before[RANKS] = {0}, total[RANKS] = {0}, seen = 0;
  for (int rank = 0; rank < RANKS; rank++)
    for (int64_t l = 0; l < layers; l++) total[rank] += held_by(layout, rank, down_proj(model, l));
  for (int64_t l = layers; l-- > 0;) {
    const int32_t tensor = down_proj(model, l);
    const treadle_box whole = treadle_box_whole(&model->tensors[tensor]);
    cells.count = 0;
    assert_ok(treadle_layout_cells(layout, tensor, &whole, &cells));
    for (size_t i = 0; i < cells.count; i++, seen++) {
      const treadle_cell *cell = &cells.items[i];
      assert_int_equal(cell->total, total[cell->range]);
      assert_int_equal(cell->before, before[cell->range]);
      assert_int_equal(cell->weight, held_by(layout, cell->range, tensor));
    }
    for (int rank = 0; rank < RANKS; rank++) before[rank] += held_by(layout, rank, tensor);
  }
  assert_true(seen >= layers);
  treadle_array_release(&cells);
  treadle_layout_destroy(layout);
  treadle_model_close(model);
}

static void turns(void **state) {
  (void)state;
  static const int64_t layers[] = {2, 40};
  static const char *const layouts[] = {"distopt:bucket_size=1", "distopt:bucket_size=500", "distopt"};
  for (size_t i = 0; i < TEST_COUNT(layers); i++)
    for (size_t k = 0; k < TEST_COUNT(layouts); k++) check_turns(layers[i], layouts[k]);
}

static void texts(void **state) {
  (void)state;
  treadle_model *model = flat_model(flat_configs[4]);
  treadle_layout *layout =
      flat_layout(model, "distopt:pad=on,bucket_size=40000000,ep=2,tp=2,dtype=bf16", 8);
  assert_string_equal(treadle_layout_text(layout),
                      "distopt:tp=2,ep=2,bucket_size=40000000,pad=on,dtype=bf16");
  treadle_layout_destroy(layout);
  assert_refused("etp=4 must divide tp=2",
                 treadle_layout_create(model, "distopt:tp=2,etp=4", 8, NULL, &layout));
  assert_refused("bucket_size=0 is not",
                 treadle_layout_create(model, "distopt:bucket_size=0", 8, NULL, &layout));
  assert_refused("6 experts are not divisible by ep=4",
                 treadle_layout_create(model, "distopt:ep=4", 8, NULL, &layout));
  treadle_model_close(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(buckets), cmocka_unit_test(chunks),
                                     cmocka_unit_test(experts), cmocka_unit_test(values_with_offsets),
                                     cmocka_unit_test(turns),   cmocka_unit_test(texts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
