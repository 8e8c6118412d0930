/* Truth out of runs, for the interpreter. */
#include "plan/any_family.h"

#include "base/hash.h"
#include "test.h"

#include <inttypes.h>

/* The interpreter counts elements of canonical tensors. */
static oracle_model *model_of(const treadle_model *model) {
  oracle_model *truth = calloc(1, sizeof *truth);
  assert_non_null(truth);
  truth->tensor_count = model->tensor_count;
  truth->tensors = calloc((size_t)model->tensor_count, sizeof *truth->tensors);
  assert_non_null(truth->tensors);
  for (int32_t t = 0; t < model->tensor_count; t++) {
    oracle_tensor *tensor = &truth->tensors[t];
    snprintf(tensor->name, sizeof tensor->name, "%s", model->tensors[t].name);
    tensor->elems = model->tensors[t].elems;
    tensor->first = truth->elems;
    tensor->hash = treadle_hash_text(model->tensors[t].name, 1);
    truth->elems += tensor->elems;
  }
  return truth;
}

static void fill_storage(const treadle_layout *layout, int64_t rank, int32_t number,
                         oracle_storage *storage) {
  const treadle_model *model = layout->model;
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  treadle_run *runs;
  size_t count;
  assert_ok(treadle_layout_storage(layout, rank, number, &info));
  assert_ok(treadle_layout_runs(layout, rank, number, &runs, &count));
  snprintf(storage->name, sizeof storage->name, "%.127s", info.name);
  storage->chunk = info.chunk;
  storage->elems = 1;
  for (int d = 0; d < info.ndim; d++) storage->elems *= info.shape[d];
  storage->tensor = malloc((size_t)(storage->elems + 1) * sizeof *storage->tensor);
  storage->index = calloc((size_t)storage->elems + 1, sizeof *storage->index);
  assert_true(storage->tensor && storage->index);
  for (int64_t i = 0; i < storage->elems; i++) storage->tensor[i] = ORACLE_PADDING;
  for (size_t r = 0; r < count; r++) {
    if (runs[r].tensor < 0) continue;
    const treadle_entry *entry = &model->entries[runs[r].tensor];
    const treadle_tensor *tensor = &model->tensors[entry->tensor];
    int64_t before = entry->expert < 0 ? 0 : entry->expert * (tensor->elems / tensor->shape[0]);
    for (int64_t i = 0; i < runs[r].count; i++) {
      storage->tensor[runs[r].local_start + i] = entry->tensor;
      storage->index[runs[r].local_start + i] = before + runs[r].start + i * runs[r].stride;
    }
  }
  free(runs);
}

static oracle_layout *layout_of(const oracle_model *model, const treadle_layout *layout) {
  oracle_layout *truth = calloc(1, sizeof *truth);
  assert_non_null(truth);
  truth->model = model;
  truth->ranks = layout->ranks;
  truth->rank = calloc((size_t)layout->ranks, sizeof *truth->rank);
  assert_non_null(truth->rank);
  for (int64_t r = 0; r < layout->ranks; r++) {
    oracle_rank *rank = &truth->rank[r];
    rank->count = treadle_layout_storage_count(layout, r);
    rank->storages = calloc((size_t)rank->count + 1, sizeof *rank->storages);
    assert_non_null(rank->storages);
    for (int32_t s = 0; s < rank->count; s++) fill_storage(layout, r, s, &rank->storages[s]);
  }
  return truth;
}

static void start_side(pair *p, pair_side *side, const char *text) {
  snprintf(side->text, sizeof side->text, "%s", text);
  side->f = 1;
  if (treadle_layout_create(p->model, text, p->ranks, NULL, &side->layout) != TREADLE_OK)
    fail_msg("%s on %" PRId64 " ranks: %s", text, p->ranks, treadle_error_message());
  side->oracle = layout_of(p->oracle, side->layout);
}

pair_result any_family_play(const char *config, int64_t ranks, const char *from, const char *to) {
  pair p = {.seed = 1, .ranks = ranks};
  snprintf(p.config, sizeof p.config, "%s", config);
  p.json = json_loads(config, 0, NULL);
  assert_non_null(p.json);
  assert_ok(treadle_model_from_config("config", p.json, NULL, &p.model));
  p.oracle = model_of(p.model);
  p.tensors = calloc((size_t)p.model->tensor_count, sizeof *p.tensors);
  assert_non_null(p.tensors);
  for (int32_t t = 0; t < p.model->tensor_count; t++) p.tensors[t] = t;
  start_side(&p, &p.from, from);
  start_side(&p, &p.to, to);
  pair_play(&p, false);
  pair_result result = pair_play(&p, true);
  assert_int_equal(result.moved, result.bound);
  pair_release(&p);
  return result;
}
