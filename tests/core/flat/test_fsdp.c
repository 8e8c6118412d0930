/* fsdp and fsdp2 against plain loops over flattened parameters; the vectors of docs/rules.md 10.1 and 10.2. */
#include "flat_truth.h"

#include "test.h"

typedef struct grid_row {
  int64_t dp, tp, replicate;
} grid_row;

static const grid_row grids[] = {{1, 1, 1}, {4, 1, 1}, {3, 1, 2}, {7, 1, 1},
                                 {2, 2, 1}, {3, 2, 2}, {40, 1, 1}};

static void text_of(char *text, const char *type, const grid_row *g, const char *more) {
  sprintf(text, "%s:dp=%d,tp=%d,replicate=%d%s", type, (int)g->dp, (int)g->tp, (int)g->replicate, more);
}

/* ---- fsdp ---- */

/* The flat parameter of a layer (-1: the rest, -2: all). align: elements that starts are multiples of. */
static flat_elems flatten(const flat_module *module, int32_t layer, int64_t align, int64_t dp) {
  flat_elems flat = {0};
  for (int i = 0; i < module->count; i++) {
    const flat_param *param = &module->params[i];
    if (param->buffer || (layer != -2 && param->layer != layer)) continue;
    while (flat.count % align != 0) flat_pad(&flat, 1);
    flat_add(&flat, &param->elems);
  }
  while (flat.count % dp != 0) flat_pad(&flat, 1);
  return flat;
}

static void check_unit(const treadle_layout *layout, const grid_row *g, const flat_module *module,
                       int64_t rank, int32_t storage, int32_t layer, int64_t align) {
  char name[64] = "_flat_param";
  if (layer >= 0) sprintf(name, "model.layers.%d._flat_param", (int)layer);
  flat_elems flat = flatten(module, layer, align, g->dp);
  int64_t shard = flat.count / g->dp, s = rank / g->tp % g->dp;
  flat_check(layout, rank, storage, name, flat.items + s * shard, shard);
  flat_free(&flat);
}

static void check_fsdp(const treadle_model *model, const grid_row *g, const char *more, bool by_layer,
                       int64_t align) {
  char text[160];
  text_of(text, "fsdp", g, more);
  int64_t ranks = g->dp * g->tp * g->replicate;
  treadle_layout *layout = flat_layout(model, text, ranks);
  for (int64_t rank = 0; rank < ranks; rank++) {
    flat_module module = flat_module_make(model, g->tp, rank % g->tp);
    int32_t storage = 0;
    check_unit(layout, g, &module, rank, storage++, by_layer ? -1 : -2, align);
    for (int32_t l = 0; by_layer && l < model->layers; l++)
      check_unit(layout, g, &module, rank, storage++, l, align);
    flat_check_buffers(layout, rank, storage, &module);
    flat_module_free(&module);
  }
  treadle_layout_destroy(layout);
}

static void flat_parameters(void **state) {
  (void)state;
  for (int c = 0; c < FLAT_CONFIGS; c++) {
    treadle_model *model = flat_model(flat_configs[c]);
    for (size_t g = 0; g < TEST_COUNT(grids); g++) {
      check_fsdp(model, &grids[g], "", true, 1);
      check_fsdp(model, &grids[g], ",wrap=none", false, 1);
      check_fsdp(model, &grids[g], ",orig_params=on,dtype=bf16", true, 8);
      check_fsdp(model, &grids[g], ",orig_params=on,wrap=none,dtype=fp32", false, 4);
    }
    treadle_model_close(model);
  }
}

/* ---- fsdp2 ---- */

static void check_fsdp2(const treadle_model *model, const grid_row *g) {
  char text[160];
  text_of(text, "fsdp2", g, "");
  int64_t ranks = g->dp * g->tp * g->replicate;
  treadle_layout *layout = flat_layout(model, text, ranks);
  for (int64_t rank = 0; rank < ranks; rank++) {
    flat_module module = flat_module_make(model, g->tp, rank % g->tp);
    int64_t s = rank / g->tp % g->dp;
    int32_t storage = 0;
    for (int i = 0; i < module.count; i++) {
      const flat_param *param = &module.params[i];
      if (param->buffer) continue;
      int64_t rows = param->shape[0], row = param->elems.count / rows, chunk = (rows + g->dp - 1) / g->dp;
      int64_t low = s * chunk < rows ? s * chunk : rows, high = low + chunk < rows ? low + chunk : rows;
      flat_check(layout, rank, storage, param->name, param->elems.items + low * row, (high - low) * row);
      treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
      assert_ok(treadle_layout_storage(layout, rank, storage++, &info));
      assert_int_equal(info.shape[0], high - low);
      for (int d = 1; d < info.ndim; d++) assert_int_equal(info.shape[d], param->shape[d]);
    }
    flat_check_buffers(layout, rank, storage, &module);
    flat_module_free(&module);
  }
  treadle_layout_destroy(layout);
}

static void rows_of_parameters(void **state) {
  (void)state;
  for (int c = 0; c < FLAT_CONFIGS; c++) {
    treadle_model *model = flat_model(flat_configs[c]);
    for (size_t g = 0; g < TEST_COUNT(grids); g++) check_fsdp2(model, &grids[g]);
    treadle_model_close(model);
  }
}

/* (9, 2) over 4: 3, 3, 3, 0 rows (docs/rules.md 10.2). */
static void short_and_empty_shards(void **state) {
  (void)state;
  static const int64_t rows[] = {3, 3, 3, 0};
  treadle_model *model = flat_model(
      "{\"model_type\": \"llama\", \"vocab_size\": 9, \"hidden_size\": 2, \"intermediate_size\": 5, "
      "\"num_hidden_layers\": 1, \"num_attention_heads\": 1, \"head_dim\": 2}");
  treadle_layout *layout = flat_layout(model, "fsdp2", 4);
  for (int64_t rank = 0; rank < 4; rank++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    assert_ok(treadle_layout_storage(layout, rank, 0, &info));
    assert_int_equal(info.shape[0], rows[rank]);
    assert_int_equal(info.bytes, rows[rank] * 8);
    assert_int_equal(treadle_layout_window_bytes(layout, rank), treadle_layout_window_bytes(layout, 0));
  }
  treadle_layout_destroy(layout);
  treadle_model_close(model);
}

/* ---- Texts ---- */

static void texts(void **state) {
  (void)state;
  static const struct {
    const char *text, *normal;
  } rows[] = {
      {"fsdp", "fsdp:dp=8"},
      {"fsdp:wrap=layer,orig_params=off,tp=2", "fsdp:dp=4,tp=2"},
      {"fsdp:wrap=none,orig_params=on,replicate=2", "fsdp:dp=4,replicate=2,orig_params=on,wrap=none"},
      {"fsdp2:replicate=4,tp=2", "fsdp2:tp=2,replicate=4"},
      {"fsdp2:dtype=fp32,dp=8", "fsdp2:dp=8,dtype=fp32"}};
  treadle_model *model = flat_model(flat_configs[0]);
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    treadle_layout *layout = flat_layout(model, rows[i].text, 8);
    assert_string_equal(treadle_layout_text(layout), rows[i].normal);
    treadle_layout_destroy(layout);
  }
  treadle_layout *none;
  assert_refused("dp=3, but 8 ranks leave dp=4",
                 treadle_layout_create(model, "fsdp:dp=3,tp=2", 8, NULL, &none));
  assert_refused("not divisible by tp * replicate = 3 * 1",
                 treadle_layout_create(model, "fsdp2:tp=3", 8, NULL, &none));
  assert_refused("wrap=some is neither layer nor none",
                 treadle_layout_create(model, "fsdp:wrap=some", 8, NULL, &none));
  assert_refused("orig_params is not a key of fsdp2",
                 treadle_layout_create(model, "fsdp2:orig_params=on", 8, NULL, &none));
  assert_refused("22 rows are not divisible by tp=4",
                 treadle_layout_create(model, "fsdp:tp=4", 8, NULL, &none));
  treadle_model_close(model);
}

static treadle_status create_once(const treadle_model *model) {
  treadle_layout *layout;
  treadle_status status = treadle_layout_create(model, "fsdp:tp=2,orig_params=on", 8, NULL, &layout);
  treadle_layout_destroy(layout);
  return status;
}

static void failing_allocations(void **state) {
  (void)state;
  treadle_model *model = flat_model(flat_configs[4]);
  TEST_EACH_ALLOCATION(create_once(model));
  treadle_model_close(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(flat_parameters),
                                     cmocka_unit_test(rows_of_parameters),
                                     cmocka_unit_test(short_and_empty_shards), cmocka_unit_test(texts),
                                     cmocka_unit_test(failing_allocations)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
