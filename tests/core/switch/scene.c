/* A small fixed model and pair of layouts. */
#include "switch/scene.h"
#include "plan/one_rank.h"

#include "test.h"
#include "weights/load.h"

#include <jansson.h>

static const char config[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 192, \"num_hidden_layers\": 6,"
    " \"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"vocab_size\": 515, \"torch_dtype\": "
    "\"bfloat16\","
    " \"tie_word_embeddings\": false}";

void scene_init(scene *s) {
  json_error_t error;
  json_t *json = json_loads(config, 0, &error);
  assert_non_null(json);
  assert_ok(treadle_model_from_config("scene", json, NULL, &s->model));
  json_decref(json);
  assert_ok(treadle_layout_create(s->model, "megatron:tp=2,pp=2", SCENE_RANKS, NULL, &s->train));
  assert_ok(treadle_layout_create(s->model, "vllm:tp=4", SCENE_RANKS, NULL, &s->infer));
  assert_ok(treadle_layout_create(s->model, "vllm:tp=2", SCENE_RANKS, NULL, &s->other));
  assert_ok(treadle_layout_create(s->model, "sglang:tp=2", SCENE_RANKS, NULL, &s->alike));
  s->cap_min = 0;
  for (int rank = 0; rank < SCENE_RANKS; rank++) {
    int64_t cap_min;
    assert_ok(one_rank_cap_min(s->train, s->infer, rank, SCENE_PAGE, &cap_min));
    if (cap_min > s->cap_min) s->cap_min = cap_min;
  }
}

void scene_release(scene *s) {
  treadle_layout_destroy(s->train);
  treadle_layout_destroy(s->infer);
  treadle_layout_destroy(s->other);
  treadle_layout_destroy(s->alike);
  treadle_model_close(s->model);
}

/* plan: of a switch whose infer window this is, which may have moved storage tensors; else NULL. */
static bool holds(const treadle_layout *layout, int rank, const treadle_plan *plan, const void *window) {
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info),
                       moved = TREADLE_INIT(treadle_storage_info);
  char *wanted = calloc(treadle_layout_window_bytes(layout, rank) + 1, 1);
  bool same = wanted && treadle_layout_load(layout, rank, wanted) == TREADLE_OK;
  for (int32_t i = 0; same && i < treadle_layout_storage_count(layout, rank); i++) {
    same = treadle_layout_storage(layout, rank, i, &info) == TREADLE_OK;
    moved = info;
    if (plan) same = same && treadle_plan_storage(plan, i, &moved) == TREADLE_OK;
    if (!same || info.bytes == 0) continue;
    same = memcmp((const char *)window + moved.offset_bytes, wanted + info.offset_bytes, info.bytes) == 0;
    if (!same) fprintf(stderr, "rank %d: '%s' is not what it should be\n", rank, info.name);
  }
  free(wanted);
  return same;
}

bool scene_holds(const treadle_layout *layout, int rank, const void *window) {
  return holds(layout, rank, NULL, window);
}

bool scene_infers(const treadle_switch *sw) {
  return holds(sw->layouts[TREADLE_INFER], sw->group->rank, sw->carry.plan,
               treadle_switch_infer_window(sw));
}

char *scene_expected(const treadle_layout *layout, const treadle_layout *source, int rank) {
  char *wanted = calloc(treadle_layout_window_bytes(layout, rank) + 1, 1);
  if (!wanted ||
      treadle_layout_load_from(layout, source, rank, NULL, treadle_device_host(), wanted) != TREADLE_OK)
    abort();
  return wanted;
}

/* Eight bytes at a time: of each access the thread sanitizer makes a call. */
static void turn(uint8_t *at, int64_t bytes, uint8_t version) {
  const uint64_t all = version * UINT64_C(0x0101010101010101);
  uint64_t eight;
  for (; bytes >= (int64_t)sizeof eight; bytes -= (int64_t)sizeof eight, at += sizeof eight) {
    memcpy(&eight, at, sizeof eight);
    eight ^= all;
    memcpy(at, &eight, sizeof eight);
  }
  for (; bytes > 0; bytes--) *at++ ^= version;
}

treadle_status scene_turn(const treadle_layout *layout, int rank, uint8_t *window, int version) {
  treadle_status status = TREADLE_OK;
  for (int32_t s = 0; s < treadle_layout_storage_count(layout, rank); s++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    treadle_run *runs = NULL;
    size_t count;
    TRY(treadle_layout_storage(layout, rank, s, &info));
    TRY(treadle_layout_runs(layout, rank, s, &runs, &count));
    for (size_t i = 0; i < count; i++)
      if (runs[i].tensor >= 0) /* bf16 */
        turn(window + info.offset_bytes + 2 * runs[i].local_start, 2 * runs[i].count, (uint8_t)version);
    free(runs);
  }
out:
  return status;
}

bool scene_holds_version(const treadle_layout *layout, int rank, const void *window, int version) {
  size_t bytes = treadle_layout_window_bytes(layout, rank);
  uint8_t *wanted = calloc(bytes + 1, 1);
  bool same = wanted && treadle_layout_load(layout, rank, wanted) == TREADLE_OK &&
              scene_turn(layout, rank, wanted, version) == TREADLE_OK;
  for (int32_t s = 0; same && s < treadle_layout_storage_count(layout, rank); s++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    same = treadle_layout_storage(layout, rank, s, &info) == TREADLE_OK &&
           memcmp((const char *)window + info.offset_bytes, wanted + info.offset_bytes, info.bytes) == 0;
  }
  free(wanted);
  return same;
}

bool scene_reads(treadle_switch *sw, treadle_class which, const treadle_layout *layout,
                 const char *wanted) {
  const int rank = sw->group->rank;
  bool same = true;
  for (int32_t i = 0; same && i < treadle_layout_storage_count(layout, rank); i++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info),
                         moved = TREADLE_INIT(treadle_storage_info);
    same = treadle_layout_storage(layout, rank, i, &info) == TREADLE_OK;
    moved = info;
    if (which == TREADLE_INFER_PARAMS)
      same = same && treadle_plan_storage(sw->carry.plan, i, &moved) == TREADLE_OK;
    char *found = malloc(info.bytes + 1);
    if (info.bytes > 0)
      same = same && treadle_switch_read(sw, which, moved.offset_bytes, info.bytes, found) == TREADLE_OK &&
             memcmp(found, wanted + info.offset_bytes, info.bytes) == 0;
    free(found);
    if (!same) fprintf(stderr, "rank %d: '%s' is not what it should be\n", rank, info.name);
  }
  return same;
}
