/* The library as the subject of the golden checks. */
#include "golden_support/golden.h"

#include "base/map.h"
#include "layout/layout.h"
#include "model/model.h"

#include <stdlib.h>

static void *open_layout(json_t *config, const char *text, int64_t ranks) {
  treadle_model *model = NULL;
  treadle_layout *layout = NULL;
  if (treadle_model_from_config("config.json", config, NULL, &model) == TREADLE_OK)
    treadle_layout_create(model, text, ranks, &layout);
  if (!layout) treadle_model_close(model);
  return layout;
}

static void close_layout(void *layout) {
  const treadle_model *model = ((treadle_layout *)layout)->model;
  treadle_layout_destroy(layout);
  treadle_model_close((treadle_model *)(uintptr_t)model);
}

static int32_t tensor_count(const void *layout) {
  return ((const treadle_layout *)layout)->model->tensor_count; /* without aliases */
}

static bool tensor(const void *layout, int32_t number, treadle_tensor_info *info_p) {
  return treadle_model_tensor(((const treadle_layout *)layout)->model, number, info_p) == TREADLE_OK;
}

static int32_t find(const void *layout, const char *name) {
  return (int32_t)treadle_map_get(&((const treadle_layout *)layout)->model->by_name, name, -1);
}

static int32_t storage_count(const void *layout, int64_t rank) {
  return treadle_layout_storage_count(layout, rank);
}

static bool storage(const void *layout, int64_t rank, int32_t number, treadle_storage_info *info_p) {
  return treadle_layout_storage(layout, rank, number, info_p) == TREADLE_OK;
}

static bool runs(const void *layout, int64_t rank, int32_t number, treadle_run **runs_p, size_t *count_p) {
  return treadle_layout_runs(layout, rank, number, runs_p, count_p) == TREADLE_OK;
}

static bool coordinate(const void *layout, int64_t rank, const char *dimension, int64_t *index_p) {
  return treadle_layout_coordinate(layout, rank, dimension, index_p) == TREADLE_OK;
}

const golden_subject golden_library = {
    .name = "library",
    .open = open_layout,
    .reason = treadle_error_message,
    .close = close_layout,
    .tensor_count = tensor_count,
    .tensor = tensor,
    .find = find,
    .storage_count = storage_count,
    .storage = storage,
    .runs = runs,
    .coordinate = coordinate,
};
