/* Golden maps: names, shapes and the source of every element of every rank.
 *
 * Each file's way of saying that becomes, rank by rank, a list of expected storage tensors with expected
 * runs; the lists are compared in order. */
#include "golden_support/golden_parts.h"

#include <stdlib.h>
#include <string.h>

typedef struct expected_tensor {
  const char *name;
  int32_t chunk;
  const json_t *shape;
  bool has_runs;
  golden_runs runs;
} expected_tensor;

typedef struct expected_list {
  expected_tensor *items;
  size_t count;
} expected_list;

static expected_tensor *expect(expected_list *list, const char *name, int32_t chunk, const json_t *shape) {
  list->items = realloc(list->items, (list->count + 1) * sizeof *list->items);
  if (!list->items) abort();
  list->items[list->count] = (expected_tensor){.name = name, .chunk = chunk, .shape = shape};
  return &list->items[list->count++];
}

static void expected_release(expected_list *list) {
  for (size_t i = 0; i < list->count; i++) golden_runs_release(&list->items[i].runs);
  free(list->items);
  *list = (expected_list){0};
}

static bool same_shape(const json_t *shape, int ndim, const int64_t *found) {
  if (json_array_size(shape) != (size_t)ndim) return false;
  for (int i = 0; i < ndim; i++) {
    if (golden_at(shape, (size_t)i) != found[i]) return false;
  }
  return true;
}

/* One rank: the same tensors in the same order. */
static golden_verdict compare_rank(const golden_case *c, int64_t rank, expected_list *list) {
  int32_t count = c->subject->storage_count(c->layout, rank);
  for (int32_t i = 0; i < count || (size_t)i < list->count; i++) {
    treadle_storage_info info = {.name = "nothing"};
    if (i < count && !c->subject->storage(c->layout, rank, i, &info))
      return golden_differ(c, "rank %lld: %s", (long long)rank, c->subject->reason());
    if (i >= count || (size_t)i >= list->count || strcmp(info.name, list->items[i].name) != 0 ||
        info.chunk != list->items[i].chunk)
      return golden_differ(c, "rank %lld, tensor %d: golden %s (chunk %d), found %s (chunk %d)",
                           (long long)rank, i, (size_t)i < list->count ? list->items[i].name : "nothing",
                           (size_t)i < list->count ? (int)list->items[i].chunk : 0, info.name,
                           (int)info.chunk);
    expected_tensor *tensor = &list->items[i];
    if (!same_shape(tensor->shape, info.ndim, info.shape))
      return golden_differ(c, "rank %lld, %s: golden has [%lld, %lld], found [%lld, %lld]", (long long)rank,
                           info.name, (long long)golden_at(tensor->shape, 0),
                           (long long)golden_at(tensor->shape, 1), (long long)info.shape[0],
                           (long long)info.shape[1]);
    if (!tensor->has_runs) continue;
    golden_runs_sort(&tensor->runs);
    golden_verdict verdict = golden_compare_runs(c, rank, i, &tensor->runs);
    if (verdict != GOLDEN_EQUAL) return verdict;
  }
  return GOLDEN_EQUAL;
}

/* The canonical tensors: [name, shape] of each, tied ones once. *numbers_p: golden id to the subject's. */
static golden_verdict compare_model(const golden_case *c, const json_t *tensors, int32_t **numbers_p) {
  size_t count = json_array_size(tensors);
  int32_t *numbers = calloc(count + 1, sizeof *numbers), distinct = 0;
  if (!numbers) abort();
  *numbers_p = numbers;
  for (size_t i = 0; i < count; i++) {
    const json_t *tensor = json_array_get(tensors, i);
    const char *name = json_string_value(json_array_get(tensor, 0));
    treadle_tensor_info info;
    numbers[i] = c->subject->find(c->layout, name);
    if (numbers[i] < 0 || !c->subject->tensor(c->layout, numbers[i], &info))
      return golden_differ(c, "the model has no %s", name);
    if (!same_shape(json_array_get(tensor, 1), info.ndim, info.shape))
      return golden_differ(c, "canonical %s has another shape", name);
    bool seen = false;
    for (size_t k = 0; k < i; k++) seen |= numbers[k] == numbers[i];
    distinct += !seen;
  }
  int32_t found = c->subject->tensor_count(c->layout);
  return found == distinct ? GOLDEN_EQUAL
                           : golden_differ(c, "%d canonical tensors, golden has %d", found, distinct);
}

/* [local_start, id, hf_start, hf_stride, count] or [.., repeats, local_step, hf_step]; id -1: a fill, which
 * must be of zeros (hf_start is the value in Megatron's files). */
static golden_verdict read_runs(const golden_case *c, const json_t *golden, const int32_t *numbers,
                                expected_tensor *tensor) {
  tensor->has_runs = true;
  for (size_t i = 0; i < json_array_size(golden); i++) {
    const json_t *run = json_array_get(golden, i);
    int64_t id = golden_at(run, 1);
    bool repeated = json_array_size(run) == 8;
    if (id < -1 || (id == -1 && golden_at(run, 2) != 0))
      return golden_differ(c, "%s: golden run %d is neither data nor zeros", tensor->name, (int)i);
    for (int64_t r = 0; r < (repeated ? golden_at(run, 5) : 1); r++) {
      treadle_run one = {.local_start = golden_at(run, 0), .tensor = -1, .count = golden_at(run, 4)};
      if (repeated) one.local_start += r * golden_at(run, 6);
      if (id >= 0) {
        one.tensor = numbers[id];
        one.start = golden_at(run, 2) + (repeated ? r * golden_at(run, 7) : 0);
        one.stride = golden_at(run, 3);
      }
      golden_runs_add(&tensor->runs, one);
    }
  }
  return GOLDEN_EQUAL;
}

/* ---- Megatron with its Hugging Face sources: megatron_hf_map* -------------------------------- */

golden_verdict golden_check_megatron_map(golden_case *c) {
  json_t *config = json_object_get(c->item, "hf_config");
  if (!golden_is_dense(config)) return GOLDEN_SKIPPED;
  c->config = json_incref(config);
  snprintf(c->text, sizeof c->text, "%s", json_string_value(json_object_get(c->item, "layout")));
  c->ranks = golden_int(json_object_get(c->item, "grid"), "world", 0);
  golden_verdict verdict = golden_open(c, false);
  if (verdict != GOLDEN_EQUAL) return verdict;

  int32_t *numbers = NULL;
  verdict = compare_model(c, json_object_get(c->item, "hf_tensors"), &numbers);
  const json_t *ranks = json_object_get(c->item, "ranks");
  for (size_t r = 0; verdict == GOLDEN_EQUAL && r < json_array_size(ranks); r++) {
    const json_t *chunks = json_object_get(json_array_get(ranks, r), "chunks");
    expected_list list = {0};
    for (size_t v = 0; v < json_array_size(chunks); v++) {
      const json_t *chunk = json_array_get(chunks, v), *tensors = json_object_get(chunk, "tensors");
      for (size_t i = 0; verdict == GOLDEN_EQUAL && i < json_array_size(tensors); i++) {
        const json_t *tensor = json_array_get(tensors, i), *runs = json_array_get(tensor, 2);
        expected_tensor *wanted = expect(&list, json_string_value(json_array_get(tensor, 0)),
                                         (int32_t)golden_int(chunk, "v", 0), json_array_get(tensor, 1));
        if (!json_is_null(runs)) verdict = read_runs(c, runs, numbers, wanted);
      }
    }
    if (verdict == GOLDEN_EQUAL)
      verdict = compare_rank(c, golden_int(json_array_get(ranks, r), "rank", -1), &list);
    expected_release(&list);
  }
  free(numbers);
  return verdict;
}

/* ---- The engines: vllm_params*, sglang_params* ----------------------------------------------- */

/* Does the layout text say all of the case's options? Only the partition variable. */
static bool text_says_all(const json_t *item) {
  const json_t *options = json_object_get(item, "options"), *env = json_object_get(options, "env");
  size_t partitions =
      json_object_get(env, "VLLM_PP_LAYER_PARTITION") || json_object_get(env, "SGLANG_PP_LAYER_PARTITION");
  return json_object_size(options) == (env ? 1u : 0u) && json_object_size(env) == partitions;
}

golden_verdict golden_check_engine_params(golden_case *c) {
  const json_t *models = json_object_get(c->root, "models");
  const json_t *model = json_array_get(models, (size_t)golden_int(c->item, "model", 0));
  if (!golden_is_dense(json_object_get(model, "config")) || json_object_get(c->item, "never_written") ||
      !text_says_all(c->item))
    return GOLDEN_SKIPPED;
  c->config = json_incref(json_object_get(model, "config"));
  snprintf(c->text, sizeof c->text, "%s", json_string_value(json_object_get(c->item, "layout")));
  c->ranks = golden_int(c->item, "world", 0);
  golden_verdict verdict = golden_open(c, false);
  if (verdict != GOLDEN_EQUAL) return verdict;

  int32_t *numbers = NULL;
  verdict = compare_model(c, json_object_get(model, "tensors"), &numbers);
  const json_t *ranks = json_object_get(c->item, "ranks");
  for (size_t r = 0; verdict == GOLDEN_EQUAL && r < json_array_size(ranks); r++) {
    const json_t *rank = json_array_get(ranks, r), *params = json_object_get(rank, "params");
    expected_list list = {0};
    for (size_t i = 0; verdict == GOLDEN_EQUAL && i < json_array_size(params); i++) {
      const json_t *param = json_array_get(params, i);
      expected_tensor *wanted =
          expect(&list, json_string_value(json_array_get(param, 0)), 0, json_array_get(param, 1));
      verdict = read_runs(c, json_array_get(param, 2), numbers, wanted);
    }
    if (verdict == GOLDEN_EQUAL) verdict = compare_rank(c, golden_int(rank, "rank", -1), &list);
    expected_release(&list);
  }
  free(numbers);
  return verdict;
}

/* ---- Megatron's own view: megatron_params* --------------------------------------------------- */

/* The Hugging Face config of a dense Megatron config; NULL when it says anything else. */
static json_t *config_of_megatron(const json_t *megatron) {
  static const char *const known[] = {"num_layers",
                                      "hidden_size",
                                      "num_attention_heads",
                                      "num_query_groups",
                                      "kv_channels",
                                      "add_qkv_bias",
                                      "ffn_hidden_size",
                                      "qk_layernorm",
                                      "vocab_size",
                                      "tied",
                                      NULL};
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)megatron, key, value) {
    int i = 0;
    while (known[i] && strcmp(known[i], key) != 0) i++;
    if (!known[i]) return NULL;
  }
  bool biased = json_is_true(json_object_get(megatron, "add_qkv_bias"));
  bool normed = json_is_true(json_object_get(megatron, "qk_layernorm"));
  const char *type = biased ? "qwen2" : normed ? "qwen3" : "llama";
  return json_pack("{ss, ss, sI, sI, sI, sI, sI, sI, sI, sb}", "model_type", type, "torch_dtype", "float32",
                   "vocab_size", (json_int_t)golden_int(megatron, "vocab_size", 0), "hidden_size",
                   (json_int_t)golden_int(megatron, "hidden_size", 0), "num_hidden_layers",
                   (json_int_t)golden_int(megatron, "num_layers", 0), "num_attention_heads",
                   (json_int_t)golden_int(megatron, "num_attention_heads", 0), "num_key_value_heads",
                   (json_int_t)golden_int(megatron, "num_query_groups", 0), "head_dim",
                   (json_int_t)golden_int(megatron, "kv_channels", 0), "intermediate_size",
                   (json_int_t)golden_int(megatron, "ffn_hidden_size", 0), "tie_word_embeddings",
                   json_is_true(json_object_get(megatron, "tied")));
}

/* Which Hugging Face tensor stands behind a key of sharded_state_dict; facts 7.1. QKV and FC1 are of
 * several. `hf` without a layer number has its full name. */
static const struct {
  const char *key, *hf;
} sources[] = {
    {"embedding.word_embeddings.weight", "model.embed_tokens.weight"},
    {"decoder.final_layernorm.weight", "model.norm.weight"},
    {"output_layer.weight", "lm_head.weight"},
    {"self_attention.linear_qkv.layer_norm_weight", "input_layernorm.weight"},
    {"self_attention.linear_proj.weight", "self_attn.o_proj.weight"},
    {"self_attention.q_layernorm.weight", "self_attn.q_norm.weight"},
    {"self_attention.k_layernorm.weight", "self_attn.k_norm.weight"},
    {"mlp.linear_fc1.layer_norm_weight", "post_attention_layernorm.weight"},
    {"mlp.linear_fc2.weight", "mlp.down_proj.weight"},
};

/* Row `row` of the global tensor of a key: which Hugging Face tensor, and which row of it. */
static bool source_of_row(const golden_case *c, const char *key, int64_t layer, int64_t row, char *name,
                          size_t room, int64_t *hf_row_p) {
  const char *weight = strrchr(key, '.');
  *hf_row_p = row;
  if (strncmp(key, "self_attention.linear_qkv.", 26) == 0 && !strstr(key, "norm")) {
    int64_t heads = golden_int(c->config, "num_attention_heads", 1),
            hd = golden_int(c->config, "head_dim", 1);
    int64_t q = heads / golden_int(c->config, "num_key_value_heads", 1);
    int64_t g = row / ((q + 2) * hd), o = row % ((q + 2) * hd); /* groups of q query heads, key, value */
    char part = o < q * hd ? 'q' : o < (q + 1) * hd ? 'k' : 'v';
    *hf_row_p = part == 'q' ? g * q * hd + o : g * hd + o % hd;
    snprintf(name, room, "model.layers.%lld.self_attn.%c_proj%s", (long long)layer, part, weight);
    return true;
  }
  if (strcmp(key, "mlp.linear_fc1.weight") == 0) { /* all of gate, then all of up */
    int64_t width = golden_int(c->config, "intermediate_size", 1);
    *hf_row_p = row % width;
    snprintf(name, room, "model.layers.%lld.mlp.%s_proj.weight", (long long)layer,
             row < width ? "gate" : "up");
    return true;
  }
  for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
    if (strcmp(sources[i].key, key) != 0) continue;
    if (layer < 0) {
      snprintf(name, room, "%s", sources[i].hf);
    } else {
      snprintf(name, room, "model.layers.%lld.%s", (long long)layer, sources[i].hf);
    }
    return true;
  }
  return false;
}

/* [tensor, key, global_shape, global_offset, local_shape, fragments, replica_id, prepended axes,
 * flattened_range, first element in the local tensor, strides in the local tensor, ...] */
static golden_verdict read_piece(const golden_case *c, const json_t *piece, expected_tensor *tensor) {
  const char *key = json_string_value(json_array_get(piece, 1));
  const json_t *global = json_array_get(piece, 2), *offset = json_array_get(piece, 3),
               *shape = json_array_get(piece, 4);
  const json_t *strides = json_array_get(piece, 10);
  size_t prepended = (size_t)golden_at(piece, 7), ndim = json_array_size(shape);
  int64_t layer = -1, cols = ndim == 2 ? golden_at(shape, 1) : 1;
  if (strncmp(key, "decoder.layers.", 15) == 0) {
    char *end = (char *)(uintptr_t)key + 15;
    layer = prepended ? golden_at(offset, 0) : strtoll(key + 15, &end, 10);
    key = prepended ? end : end + 1;
  }
  int64_t col = ndim == 2 ? golden_at(offset, prepended + 1) : 0;
  for (int64_t i = 0; i < golden_at(shape, 0); i++) {
    char name[160];
    int64_t row = golden_at(offset, prepended) + i, hf_row;
    if (!source_of_row(c, key, layer, row, name, sizeof name, &hf_row))
      return golden_differ(c, "%s: unknown key %s", tensor->name, key);
    int32_t number = c->subject->find(c->layout, name);
    treadle_tensor_info info;
    if (number < 0 || !c->subject->tensor(c->layout, number, &info))
      return golden_differ(c, "%s: the model has no %s", tensor->name, name);
    if (ndim != (size_t)info.ndim ||
        (ndim == 2 && (golden_at(global, prepended + 1) != info.shape[1] || golden_at(strides, 1) != 1)))
      return golden_differ(c, "%s: a piece of another shape than %s", tensor->name, name);
    golden_runs_add(&tensor->runs,
                    (treadle_run){.local_start = golden_at(piece, 9) + i * golden_at(strides, 0),
                                  .tensor = number,
                                  .start = ndim == 2 ? hf_row * info.shape[1] + col : hf_row,
                                  .stride = 1,
                                  .count = cols});
  }
  tensor->has_runs = true;
  return GOLDEN_EQUAL;
}

static void text_of_grid(golden_case *c) {
  const json_t *grid = json_object_get(c->item, "grid");
  const char *order = json_string_value(json_object_get(grid, "order"));
  const char *spec = json_string_value(json_object_get(c->item, "spec"));
  static const char *const sizes[] = {"tp", "pp", "vpp", "cp"};
  snprintf(c->text, sizeof c->text, "megatron");
  for (int i = 0; i < 4; i++) {
    int64_t size = golden_int(grid, sizes[i], 1);
    if (size > 1) golden_option(c, "%s=%lld", sizes[i], (long long)size);
  }
  if (strcmp(order, "tp-cp-ep-dp-pp") != 0) golden_option(c, "order=%s", order);
  if (strcmp(spec, "te") != 0) golden_option(c, "spec=%s", spec);
  c->ranks = golden_int(grid, "world", 0);
}

golden_verdict golden_check_megatron_params(golden_case *c) {
  c->config = config_of_megatron(json_object_get(c->item, "config"));
  if (!c->config) return GOLDEN_SKIPPED;
  text_of_grid(c);
  golden_option(c, "padded_vocab_size=%lld",
                (long long)golden_int(c->config, "vocab_size", 0)); /* as built */
  golden_verdict verdict = golden_open(c, false);
  if (verdict != GOLDEN_EQUAL) return verdict;

  const json_t *ranks = json_object_get(c->item, "ranks");
  for (size_t r = 0; verdict == GOLDEN_EQUAL && r < json_array_size(ranks); r++) {
    const json_t *chunks = json_object_get(json_array_get(ranks, r), "chunks");
    expected_list list = {0};
    for (size_t v = 0; v < json_array_size(chunks); v++) {
      const json_t *chunk = json_array_get(chunks, v), *pieces = json_object_get(chunk, "pieces");
      const json_t *tensors = json_object_get(chunk, "tensors");
      size_t first = list.count;
      for (size_t i = 0; i < json_array_size(tensors); i++) {
        const json_t *tensor = json_array_get(tensors, i);
        expect(&list, json_string_value(json_array_get(tensor, 0)), (int32_t)golden_int(chunk, "v", 0),
               json_array_get(tensor, 1));
      }
      for (size_t i = 0; verdict == GOLDEN_EQUAL && i < json_array_size(pieces); i++) {
        const json_t *piece = json_array_get(pieces, i);
        verdict = read_piece(c, piece, &list.items[first + (size_t)golden_at(piece, 0)]);
      }
    }
    if (verdict == GOLDEN_EQUAL)
      verdict = compare_rank(c, golden_int(json_array_get(ranks, r), "rank", -1), &list);
    expected_release(&list);
  }
  return verdict;
}
