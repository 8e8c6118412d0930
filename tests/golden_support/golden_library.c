/* The library as the subject of the golden checks, through its public door. Names are looked up in a map over
 * the public list of tensors; only the scales of fp8 models, which that list leaves out, are asked of the
 * model itself. */
#include "golden_support/golden.h"

#include "base/hash_map.h"
#include "layout/layout.h"
#include "model/model.h"

#include <stdlib.h>
#include <string.h>

typedef struct subject {
  treadle_model *model;
  treadle_layout *layout;
  treadle_hash_map numbers; /* every name to the number of its canonical tensor */
  int32_t canonical;        /* how many are no copies */
} subject;

static void close_layout(void *opened) {
  subject *s = opened;
  treadle_hash_map_release(&s->numbers);
  treadle_layout_destroy(s->layout);
  treadle_model_close(s->model);
  free(s);
}

static bool list_names(subject *s) {
  for (int32_t i = 0; i < treadle_model_tensor_count(s->model); i++) {
    treadle_tensor_info info = TREADLE_INIT(treadle_tensor_info);
    if (treadle_model_tensor(s->model, i, &info) != TREADLE_OK) return false;
    int64_t number = info.same_as ? treadle_hash_map_get(&s->numbers, info.same_as, -1) : i;
    if (treadle_hash_map_put(&s->numbers, info.name, number) != TREADLE_OK) return false;
    s->canonical += !info.same_as;
  }
  return true;
}

static void *open_layout(json_t *config, const char *text, int64_t ranks) {
  subject *s = calloc(1, sizeof *s);
  if (!s) abort();
  if (treadle_model_from_config("config.json", config, NULL, &s->model) == TREADLE_OK &&
      treadle_layout_create(s->model, text, ranks, NULL, &s->layout) == TREADLE_OK && list_names(s))
    return s;
  close_layout(s);
  return NULL;
}

static int32_t tensor_count(const void *opened) { return ((const subject *)opened)->canonical; }

static bool tensor(const void *opened, int32_t number, treadle_tensor_info *info_p) {
  return treadle_model_tensor(((const subject *)opened)->model, number, info_p) == TREADLE_OK;
}

static int32_t find(const void *opened, const char *name) {
  const subject *s = opened;
  int64_t number = treadle_hash_map_get(&s->numbers, name, -1);
  bool is_scale = strstr(name, ".weight_scale_inv") != NULL;
  return (int32_t)(number < 0 && is_scale ? treadle_hash_map_get(&s->model->by_name, name, -1) : number);
}

static int32_t storage_count(const void *opened, int64_t rank) {
  return treadle_layout_storage_count(((const subject *)opened)->layout, rank);
}

static bool storage(const void *opened, int64_t rank, int32_t number, treadle_storage_info *info_p) {
  return treadle_layout_storage(((const subject *)opened)->layout, rank, number, info_p) == TREADLE_OK;
}

static bool runs(const void *opened, int64_t rank, int32_t number, treadle_run **runs_p, size_t *count_p) {
  return treadle_layout_runs(((const subject *)opened)->layout, rank, number, runs_p, count_p) ==
         TREADLE_OK;
}

static bool coordinate(const void *opened, int64_t rank, const char *dimension, int64_t *index_p) {
  return treadle_layout_coordinate(((const subject *)opened)->layout, rank, dimension, index_p) ==
         TREADLE_OK;
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
