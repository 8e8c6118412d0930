/* Megatron's ranks tensor by tensor: with their Hugging Face sources (megatron_hf_map*) and in Megatron's own
 * words, the pieces of a checkpoint (megatron_params*). */
#include "golden_support/golden_parts.h"

#include <stdlib.h>
#include <string.h>

/* runs of [name, shape, runs, note]; the note says that something is added to all of them. */
static golden_verdict read_mapped(const golden_case *c, const json_t *tensor, const int32_t *numbers,
                                  golden_expected *wanted) {
  const char *note = json_string_value(json_array_get(tensor, 3));
  golden_verdict verdict = GOLDEN_EQUAL;
  if (!json_is_null(json_array_get(tensor, 2)))
    verdict = golden_read_runs(c, json_array_get(tensor, 2), numbers, wanted);
  if (verdict != GOLDEN_EQUAL || !note) return verdict;
  if (strcmp(note, "stored value = HF value - 1") != 0)
    return golden_differ(c, "%s: nobody knows '%s'", wanted->name, note);
  for (size_t i = 0; i < wanted->runs.count; i++) wanted->runs.items[i].add = -1;
  return GOLDEN_EQUAL;
}

golden_verdict golden_check_megatron_map(golden_case *c) {
  c->config = json_incref(json_object_get(c->item, "hf_config"));
  snprintf(c->text, sizeof c->text, "%s", json_string_value(json_object_get(c->item, "layout")));
  c->ranks = golden_int(json_object_get(c->item, "grid"), "world", 0);
  golden_verdict verdict = golden_open(c, false);
  if (verdict != GOLDEN_EQUAL) return verdict;

  int32_t *numbers = NULL;
  verdict = golden_compare_model(c, json_object_get(c->item, "hf_tensors"), GOLDEN_ALL, &numbers);
  const json_t *ranks = json_object_get(c->item, "ranks");
  for (size_t r = 0; verdict == GOLDEN_EQUAL && r < json_array_size(ranks); r++) {
    const json_t *chunks = json_object_get(json_array_get(ranks, r), "chunks");
    golden_list list = {0};
    for (size_t v = 0; v < json_array_size(chunks); v++) {
      const json_t *chunk = json_array_get(chunks, v), *tensors = json_object_get(chunk, "tensors");
      for (size_t i = 0; verdict == GOLDEN_EQUAL && i < json_array_size(tensors); i++) {
        const json_t *tensor = json_array_get(tensors, i);
        verdict = read_mapped(c, tensor, numbers,
                              golden_expect(&list, json_string_value(json_array_get(tensor, 0)),
                                            (int32_t)golden_int(chunk, "v", 0), json_array_get(tensor, 1)));
      }
    }
    if (verdict == GOLDEN_EQUAL)
      verdict = golden_compare_rank(c, golden_int(json_array_get(ranks, r), "rank", -1), GOLDEN_ALL, &list);
    golden_list_release(&list);
  }
  free(numbers);
  return verdict;
}

/* How the experts are stored: legacy GroupedMLP, which is also what the local spec groups with, grouped or one by
 * one, where it is not the spec's own way (backends.py, LocalSpecProvider.grouped_mlp_modules). */
static const char *experts_of(const json_t *config, bool te) {
  bool grouped = json_is_true(json_object_get(config, "moe_grouped_gemm"));
  if (!json_object_get(config, "num_moe_experts")) return NULL;
  if (grouped && (!te || json_is_true(json_object_get(config, "moe_use_legacy_grouped_gemm"))))
    return "legacy";
  return grouped == te ? NULL : "sequential";
}

void golden_megatron_text(golden_case *c) {
  const json_t *grid = json_object_get(c->item, "grid");
  const char *order = json_string_value(json_object_get(grid, "order"));
  const char *spec = json_string_value(json_object_get(c->item, "spec"));
  const char *experts = experts_of(json_object_get(c->item, "config"), strcmp(spec, "te") == 0);
  static const struct {
    const char *key;
    int64_t left_out; /* the size that needs no saying; etp left out is tp */
  } sizes[] = {{"tp", 1}, {"pp", 1}, {"vpp", 1}, {"cp", 1}, {"ep", 1}, {"etp", -1}};
  snprintf(c->text, sizeof c->text, "megatron");
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    int64_t size = golden_int(grid, sizes[i].key, sizes[i].left_out);
    if (size != sizes[i].left_out) golden_option(c, "%s=%lld", sizes[i].key, (long long)size);
  }
  if (strcmp(order, "tp-cp-ep-dp-pp") != 0) golden_option(c, "order=%s", order);
  if (strcmp(spec, "te") != 0) golden_option(c, "spec=%s", spec);
  if (experts) golden_option(c, "experts=%s", experts);
  c->ranks = golden_int(grid, "world", 0);
}

/* metadata of a case chooses among forms of the keys, which change no tensor. A chunk whose
 * sharded_state_dict failed, and a tensor without a piece, are compared by name and shape. */
golden_verdict golden_check_megatron_params(golden_case *c) {
  golden_megatron_text(c);
  if (!golden_config_of_megatron(c, json_object_get(c->item, "config"))) return GOLDEN_DIFFERENT;
  golden_option(c, "padded_vocab_size=%lld",
                (long long)golden_int(c->config, "vocab_size", 0)); /* as built */
  golden_verdict verdict = golden_open(c, false);
  if (verdict != GOLDEN_EQUAL) return verdict;

  const json_t *ranks = json_object_get(c->item, "ranks");
  for (size_t r = 0; verdict == GOLDEN_EQUAL && r < json_array_size(ranks); r++) {
    const json_t *chunks = json_object_get(json_array_get(ranks, r), "chunks");
    golden_list list = {0};
    for (size_t v = 0; v < json_array_size(chunks); v++) {
      const json_t *chunk = json_array_get(chunks, v), *pieces = json_object_get(chunk, "pieces");
      const json_t *tensors = json_object_get(chunk, "tensors");
      size_t first = list.count;
      for (size_t i = 0; i < json_array_size(tensors); i++) {
        const json_t *tensor = json_array_get(tensors, i);
        golden_expect(&list, json_string_value(json_array_get(tensor, 0)),
                      (int32_t)golden_int(chunk, "v", 0), json_array_get(tensor, 1));
      }
      for (size_t i = 0; verdict == GOLDEN_EQUAL && i < json_array_size(pieces); i++) {
        const json_t *piece = json_array_get(pieces, i);
        verdict = golden_read_piece(c, piece, &list.items[first + (size_t)golden_at(piece, 0)]);
      }
    }
    if (verdict == GOLDEN_EQUAL)
      verdict = golden_compare_rank(c, golden_int(json_array_get(ranks, r), "rank", -1), GOLDEN_ALL, &list);
    golden_list_release(&list);
  }
  return verdict;
}
