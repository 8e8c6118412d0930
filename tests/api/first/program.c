/* A program of the first header whose structs say their size: a test compiles it with the copy of that header
 * beside it, and runs it with the library of today. Arguments: a config.json. */
#include "treadle.h"

#include <string.h>

#define MUST(what)                                                                                         \
  do {                                                                                                     \
    if (!(what)) {                                                                                         \
      fprintf(stderr, "line %d: %s: %s\n", __LINE__, #what, treadle_error_message());                      \
      return 1;                                                                                            \
    }                                                                                                      \
  } while (0)

static int binds;

static treadle_status bind_engine(void *context, void *window, size_t bytes) {
  binds += context == &binds && window && bytes > 0;
  return TREADLE_OK;
}

/* What lies right behind a struct stays as it is, whatever the library's own has there. */
#define WITH_GUARD(type)                                                                                   \
  struct {                                                                                                 \
    type info;                                                                                             \
    unsigned char guard[256];                                                                              \
  } guarded_##type;                                                                                        \
  memset(&guarded_##type, 0xa5, sizeof guarded_##type);                                                    \
  guarded_##type.info = TREADLE_INIT(type)
#define IS_GUARDED(type)                                                                                   \
  (guarded_##type.guard[0] == 0xa5 &&                                                                      \
   memcmp(guarded_##type.guard, guarded_##type.guard + 1, sizeof guarded_##type.guard - 1) == 0)

int main(int count, char **texts) {
  treadle_model *model;
  treadle_layout *train, *infer;
  treadle_plan *plan;
  treadle_group *group;
  treadle_switch *sw;
  uint64_t before, after;
  MUST(count == 2);
  MUST(treadle_version_number() >= TREADLE_VERSION_NUMBER);

  treadle_model_options of_model = TREADLE_INIT(treadle_model_options);
  MUST(treadle_model_open(texts[1], &of_model, &model) == TREADLE_OK);
  WITH_GUARD(treadle_tensor_info);
  MUST(treadle_model_tensor(model, 0, &guarded_treadle_tensor_info.info) == TREADLE_OK);
  MUST(guarded_treadle_tensor_info.info.elems > 0 && IS_GUARDED(treadle_tensor_info));

  MUST(treadle_layout_create(model, "megatron:tp=1", 1, NULL, &train) == TREADLE_OK);
  treadle_layout_options of_layout = {
      .struct_size = sizeof of_layout, .rank_map = TREADLE_BEST, .train = train};
  MUST(treadle_layout_create(model, "vllm:tp=1", 1, &of_layout, &infer) == TREADLE_OK);
  WITH_GUARD(treadle_storage_info);
  treadle_storage_info *storage = &guarded_treadle_storage_info.info;
  for (int32_t i = 0; i < treadle_layout_storage_count(infer, 0); i++) {
    MUST(treadle_layout_storage(infer, 0, i, storage) == TREADLE_OK);
    MUST(storage->bytes > 0 && IS_GUARDED(treadle_storage_info));
    MUST(treadle_layout_find(infer, 0, storage->name) == i);
  }

  treadle_plan_options of_plan = {.struct_size = sizeof of_plan, .page_bytes = 4096, .alias = true};
  MUST(treadle_plan_create(train, infer, 0, &of_plan, &plan) == TREADLE_OK);
  WITH_GUARD(treadle_plan_info);
  treadle_plan_get_info(plan, &guarded_treadle_plan_info.info);
  MUST(guarded_treadle_plan_info.info.page_bytes == 4096 && guarded_treadle_plan_info.info.lossless);
  MUST(IS_GUARDED(treadle_plan_info));
  MUST(treadle_plan_find(plan, storage->name) == treadle_layout_storage_count(infer, 0) - 1);

  treadle_engine_hooks hooks = {.struct_size = sizeof hooks, .context = &binds, .bind = bind_engine};
  treadle_switch_options of_switch = {.struct_size = sizeof of_switch,
                                      .page_bytes = 4096,
                                      .keep = TREADLE_KEEP_HOST,
                                      .kv_block_bytes = 512,
                                      .engine = &hooks};
  MUST(treadle_group_self(&group) == TREADLE_OK);
  MUST(treadle_switch_create(group, train, infer, &of_switch, &sw) == TREADLE_OK);
  MUST(treadle_layout_load(train, 0, treadle_switch_train_window(sw)) == TREADLE_OK);
  MUST(treadle_switch_digest(sw, &before) == TREADLE_OK);
  MUST(treadle_switch_to_infer(sw) == TREADLE_OK && binds == 1);
  MUST(treadle_switch_digest(sw, &after) == TREADLE_OK && after == before);
  WITH_GUARD(treadle_switch_stats);
  treadle_switch_get_stats(sw, &guarded_treadle_switch_stats.info);
  MUST(guarded_treadle_switch_stats.info.copied_bytes > 0 && IS_GUARDED(treadle_switch_stats));
  MUST(treadle_switch_to_train(sw) == TREADLE_OK);

  treadle_switch_destroy(sw);
  treadle_group_close(group);
  treadle_plan_destroy(plan);
  treadle_layout_destroy(infer);
  treadle_layout_destroy(train);
  treadle_model_close(model);
  puts("works");
  return 0;
}
