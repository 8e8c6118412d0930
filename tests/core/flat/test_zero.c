/* zero1, zero2 and zero3 against plain loops over flattened parameters. */
#include "flat_truth.h"

#include "test.h"

static const int64_t grids[][2] = {{1, 1}, {4, 1}, {3, 1}, {7, 1}, {2, 2}, {3, 2}, {50, 1}}; /* dp, tp */

static void check(const treadle_model *model, int64_t dp, int64_t tp, const char *type) {
  char text[80];
  sprintf(text, "%s:dp=%d,tp=%d", type, (int)dp, (int)tp);
  treadle_layout *layout = flat_layout(model, text, dp * tp);
  for (int64_t rank = 0; rank < dp * tp; rank++) {
    flat_module module = flat_module_make(model, tp, rank % tp);
    bool each = strcmp(type, "zero3") == 0;
    flat_elems group = {0};
    int32_t storage = 0;
    int64_t d = rank / tp;
    for (int i = 0; i < module.count; i++) {
      flat_param *param = &module.params[i];
      if (param->buffer) continue;
      if (!each) {
        flat_add(&group, &param->elems);
        continue;
      }
      while (param->elems.count % dp != 0) flat_pad(&param->elems, 1);
      int64_t shard = param->elems.count / dp;
      flat_check(layout, rank, storage++, param->name, param->elems.items + d * shard, shard);
    }
    while (group.count % (2 * dp) != 0) flat_pad(&group, 1);
    if (!each) {
      int64_t shard = group.count / dp;
      treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
      assert_ok(treadle_layout_storage(layout, rank, 0, &info));
      assert_int_equal(info.dtype, TREADLE_FP32);
      flat_check(layout, rank, storage++, "single_partition_of_fp32_groups.0", group.items + d * shard,
                 shard);
    }
    flat_check_buffers(layout, rank, storage, &module);
    flat_free(&group);
    flat_module_free(&module);
  }
  treadle_layout_destroy(layout);
}

static void shards(void **state) {
  (void)state;
  for (int c = 0; c < FLAT_CONFIGS; c++) {
    treadle_model *model = flat_model(flat_configs[c]);
    for (size_t g = 0; g < TEST_COUNT(grids); g++) {
      check(model, grids[g][0], grids[g][1], "zero1");
      check(model, grids[g][0], grids[g][1], "zero2");
      check(model, grids[g][0], grids[g][1], "zero3");
    }
    treadle_model_close(model);
  }
}

static void texts(void **state) {
  (void)state;
  treadle_model *model = flat_model(flat_configs[0]);
  treadle_layout *layout = flat_layout(model, "zero2:tp=2,dtype=bf16", 8);
  assert_string_equal(treadle_layout_text(layout), "zero2:dp=4,tp=2,dtype=bf16");
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  assert_ok(treadle_layout_storage(layout, 0, 0, &info));
  assert_int_equal(info.dtype, TREADLE_BF16);
  treadle_layout_destroy(layout);
  assert_refused("8 ranks are not divisible by tp = 3",
                 treadle_layout_create(model, "zero3:tp=3", 8, NULL, &layout));
  assert_refused("replicate is not a key of zero3",
                 treadle_layout_create(model, "zero3:replicate=2", 8, NULL, &layout));
  treadle_model_close(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(shards), cmocka_unit_test(texts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
