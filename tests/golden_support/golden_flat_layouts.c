/* Golden flat layouts of whole models against the layouts fsdp and distopt: which canonical element lies where in
 * the window of each rank. */
#include "golden_support/golden_flat.h"

#include <stdlib.h>
#include <string.h>

/* ---- fsdp ------------------------------------------------------------------------------------ */

static int32_t find(const golden_case *c, const char *format, const char *prefix, long long expert,
                    const char *name) {
  char text[256];
  snprintf(text, sizeof text, format, prefix, expert, name);
  return c->subject->find(c->layout, text);
}

/* Element `index` of a parameter of transformers: of a Hugging Face tensor. Only Mixtral's are called otherwise, and
 * experts are stacked there: [experts, gate rows and up rows, columns]. */
static treadle_run element_of(const golden_case *c, const json_t *param, int64_t index) {
  const char *name = json_string_value(json_array_get(param, 0)), *moe = strstr(name, ".mlp.");
  const json_t *shape = json_array_get(param, 1);
  treadle_run run = {0, c->subject->find(c->layout, name), index, 1, 1, 0};
  if (run.tensor >= 0 || !moe) return run;
  char layer[128], prefix[160];
  snprintf(layer, sizeof layer, "%.*s", (int)(moe - name), name);
  snprintf(prefix, sizeof prefix, "%s.block_sparse_moe", layer);
  bool gate_up = strstr(name, "experts.gate_up_proj") != NULL;
  if (!gate_up && !strstr(name, "experts.down_proj")) {
    char whole[192];
    snprintf(whole, sizeof whole, "%s.gate.weight", prefix);
    run.tensor = c->subject->find(c->layout, whole);
    return run;
  }
  int64_t each = golden_at(shape, 1) * golden_at(shape, 2), in = index % each, expert = index / each;
  bool up = gate_up && in >= each / 2;
  run.tensor = find(c, "%s.mlp.experts.%lld.%s.weight", layer, (long long)expert,
                    gate_up ? up ? "up_proj" : "gate_proj" : "down_proj");
  if (run.tensor < 0)
    run.tensor =
        find(c, "%s.experts.%lld.%s.weight", prefix, (long long)expert, gate_up ? up ? "w3" : "w1" : "w2");
  run.start = up ? in - each / 2 : in;
  return run;
}

static golden_verdict compare_shard(const golden_case *c, int64_t rank, int32_t storage,
                                    const json_t *content) {
  const json_t *params = json_object_get(c->item, "params");
  golden_runs runs = {0};
  for (size_t i = 0; i < json_array_size(content); i++) {
    const json_t *row = json_array_get(content, i);
    int64_t start = golden_at(row, 0), param = golden_at(row, 1), in = golden_at(row, 2);
    for (int64_t k = 0; k < golden_at(row, 3); k++) {
      treadle_run run = {0, -1, 0, 0, 1, 0};
      if (param >= 0) run = element_of(c, json_array_get(params, (size_t)param), in + k);
      run.local_start = start + k;
      golden_runs_add(&runs, run);
    }
  }
  golden_flat_join(&runs);
  golden_verdict verdict = golden_compare_runs(c, rank, storage, &runs);
  golden_runs_release(&runs);
  return verdict;
}

/* Flat parameters of a rank; a module's buffers stand behind them, and torch flattens none. */
static int32_t count_units(const golden_case *c, int64_t rank) {
  int32_t count = c->subject->storage_count(c->layout, rank), units = 0;
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  for (int32_t i = 0; i < count; i++)
    units += c->subject->storage(c->layout, rank, i, &info) && strstr(info.name, "_flat_param") != NULL;
  return units;
}

golden_verdict golden_compare_fsdp1_layout(golden_case *c) {
  const json_t *mixed = json_object_get(c->item, "mixed_precision_param_dtype");
  const json_t *dtype = json_is_string(mixed) ? mixed : json_object_get(c->item, "param_dtype");
  c->config = json_deep_copy(json_object_get(c->item, "hf_config"));
  json_object_set(c->config, "model_type", json_object_get(c->item, "hf"));
  json_object_set(c->config, "torch_dtype", (json_t *)(uintptr_t)dtype);
  json_object_set_new(c->config, "num_nextn_predict_layers", json_integer(0)); /* transformers has none */
  json_object_set_new(c->config, "mtp_num_hidden_layers", json_integer(0));
  snprintf(c->text, sizeof c->text, "fsdp:dp=%lld,orig_params=%s", (long long)c->ranks,
           json_is_true(json_object_get(c->item, "use_orig_params")) ? "on" : "off");
  golden_verdict verdict = golden_open(c, false);
  const json_t *ranks = json_object_get(c->item, "ranks");
  for (size_t r = 0; verdict == GOLDEN_EQUAL && r < json_array_size(ranks); r++) {
    const json_t *units = json_array_get(ranks, r);
    int32_t found = count_units(c, (int64_t)r);
    if (found != (int32_t)json_array_size(units))
      return golden_differ(c, "rank %d has %d units, golden %d", (int)r, found,
                           (int)json_array_size(units));
    for (size_t u = 0; verdict == GOLDEN_EQUAL && u < json_array_size(units); u++)
      verdict =
          compare_shard(c, (int64_t)r, (int32_t)u, json_object_get(json_array_get(units, u), "content"));
  }
  return verdict;
}

/* ---- distopt --------------------------------------------------------------------------------- */

static int32_t find_in_chunk(const golden_case *c, int64_t rank, int32_t chunk, const char *name) {
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  for (int32_t i = 0; i < c->subject->storage_count(c->layout, rank); i++)
    if (c->subject->storage(c->layout, rank, i, &info) && info.chunk == chunk &&
        strcmp(info.name, name) == 0)
      return i;
  return -1;
}

/* Appends elements [low, high) of a storage tensor, which begin at `at`. */
static void add_range(const golden_case *megatron, int64_t rank, int32_t storage, int64_t low, int64_t high,
                      int64_t at, golden_runs *runs) {
  treadle_run *own;
  size_t count;
  if (!megatron->subject->runs(megatron->layout, rank, storage, &own, &count)) abort();
  for (size_t i = 0; i < count; i++) {
    treadle_run run = own[i];
    int64_t begin = run.local_start > low ? run.local_start : low, end = run.local_start + run.count;
    if (end > high) end = high;
    if (begin >= end) continue;
    run.start += (begin - run.local_start) * run.stride;
    run.count = end - begin;
    run.local_start = at + begin - low;
    golden_runs_add(runs, run);
  }
  free(own);
}

static golden_verdict compare_bucket(const golden_case *c, const golden_case *megatron, int64_t rank,
                                     int32_t chunk, const json_t *buffer, size_t bucket) {
  const json_t *owned = json_object_get(buffer, "owned"),
               *range = json_array_get(json_object_get(buffer, "buckets"), bucket);
  char name[40];
  golden_runs runs = {0}, all = {0};
  golden_verdict verdict = GOLDEN_EQUAL;
  snprintf(name, sizeof name, "%s.bucket_%d",
           json_is_true(json_object_get(buffer, "expert_parallel")) ? "expert" : "dense", (int)bucket);
  int32_t storage = find_in_chunk(c, rank, chunk, name);
  if (storage < 0) return golden_differ(c, "rank %lld, chunk %d: no %s", (long long)rank, (int)chunk, name);
  for (size_t i = 0; i < json_array_size(owned); i++) {
    const json_t *row = json_array_get(owned, i), *in = json_array_get(row, 2);
    if (golden_at(row, 0) != (int64_t)bucket) continue;
    int32_t param = find_in_chunk(megatron, rank, chunk, json_string_value(json_array_get(row, 1)));
    if (param < 0)
      verdict =
          golden_differ(c, "rank %lld: no %s", (long long)rank, json_string_value(json_array_get(row, 1)));
    else
      add_range(megatron, rank, param, golden_at(in, 0), golden_at(in, 1),
                golden_at(json_array_get(row, 4), 0), &runs);
  }
  golden_runs_sort(&runs);
  int64_t elems = (golden_at(range, 1) - golden_at(range, 0)) / golden_int(buffer, "dp_size", 1), at = 0;
  for (size_t i = 0; i <= runs.count; i++) { /* the rest is fills */
    int64_t begin = i < runs.count ? runs.items[i].local_start : elems;
    if (begin > at) golden_runs_add(&all, (treadle_run){at, -1, 0, 0, begin - at, 0});
    if (i == runs.count) break;
    golden_runs_add(&all, runs.items[i]);
    at = begin + runs.items[i].count;
  }
  if (verdict == GOLDEN_EQUAL) verdict = golden_compare_runs(c, rank, storage, &all);
  golden_runs_release(&runs);
  golden_runs_release(&all);
  return verdict;
}

/* treadle has one optimizer instance, and all parameters of a chunk in one dtype; Megatron's local spec made its norms
 * fp32 here, which have a buffer of their own. */
static bool is_covered(const golden_case *c) {
  if (golden_int(json_object_get(c->item, "ddp"), "num_distributed_optimizer_instances", 1) > 1)
    return false;
  const json_t *ranks = json_object_get(c->item, "ranks");
  for (size_t r = 0; r < json_array_size(ranks); r++) {
    const json_t *chunks = json_object_get(json_array_get(ranks, r), "chunks");
    for (size_t k = 0; k < json_array_size(chunks); k++) {
      const json_t *buffers = json_object_get(json_array_get(chunks, k), "buffers");
      int dense = 0;
      for (size_t i = 0; i < json_array_size(buffers); i++)
        dense += !json_is_true(json_object_get(json_array_get(buffers, i), "expert_parallel"));
      if (dense > 1) return false;
    }
  }
  return true;
}

static golden_verdict compare_ranks(const golden_case *c, const golden_case *megatron) {
  golden_verdict verdict = GOLDEN_EQUAL;
  const json_t *ranks = json_object_get(c->item, "ranks");
  for (size_t r = 0; r < json_array_size(ranks); r++) {
    const json_t *item = json_array_get(ranks, r), *chunks = json_object_get(item, "chunks");
    int64_t rank = golden_int(item, "rank", -1);
    for (size_t k = 0; k < json_array_size(chunks); k++) {
      const json_t *chunk = json_array_get(chunks, k), *buffers = json_object_get(chunk, "buffers");
      for (size_t i = 0; i < json_array_size(buffers); i++) {
        const json_t *buffer = json_array_get(buffers, i);
        for (size_t b = 0;
             verdict == GOLDEN_EQUAL && b < json_array_size(json_object_get(buffer, "buckets")); b++)
          verdict = compare_bucket(c, megatron, rank, (int32_t)golden_int(chunk, "v", 0), buffer, b);
      }
    }
  }
  return verdict;
}

golden_verdict golden_compare_distopt_layout(golden_case *c) {
  if (!is_covered(c)) return GOLDEN_EQUAL;
  const json_t *ddp = json_object_get(c->item, "ddp");
  golden_megatron_text(c);
  if (!golden_config_of_megatron(c, json_object_get(c->item, "config"))) return GOLDEN_DIFFERENT;
  golden_option(c, "padded_vocab_size=%lld", (long long)golden_int(c->config, "vocab_size", 0));
  golden_case megatron = *c;
  megatron.layout = c->subject->open(c->config, c->text, c->ranks);
  if (!megatron.layout) return golden_differ(c, "refused: %s", c->subject->reason());
  char keys[sizeof c->text];
  snprintf(keys, sizeof keys, "%s", strchr(c->text, ':'));
  snprintf(c->text, sizeof c->text, "distopt%.400s", keys);
  if (golden_int(ddp, "bucket_size", 0))
    golden_option(c, "bucket_size=%lld", (long long)golden_int(ddp, "bucket_size", 0));
  if (json_is_true(json_object_get(ddp, "pad_buckets_for_high_nccl_busbw"))) golden_option(c, "pad=on");
  golden_verdict verdict = golden_open(c, false);
  if (verdict == GOLDEN_EQUAL) verdict = compare_ranks(c, &megatron);
  c->subject->close(megatron.layout);
  return verdict;
}
