/* Golden tables of the vocabulary: which rows each rank has, and how many rows of zeros behind them. */
#include "golden_support/golden_parts.h"

#include <string.h>

enum { HIDDEN = 2 };

/* A llama of this vocabulary on tp ranks; false when it is too large for the subject. */
static bool with_vocabulary(golden_case *c, int64_t vocabulary, int64_t tp) {
  c->ranks = tp;
  if (c->subject->max_elems && vocabulary * HIDDEN * 2 > c->subject->max_elems) return false;
  golden_llama(c, vocabulary, HIDDEN, 1, tp, 1, tp, false);
  return true;
}

/* On rank t: rows [first, first + real) of the vocabulary, then `zeros` rows of zeros. */
static golden_verdict compare_rows(const golden_case *c, int64_t t, const char *storage, const char *hf,
                                   int64_t first, int64_t real, int64_t zeros) {
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  int32_t found = golden_find_storage(c, t, storage, &info);
  if (found < 0) return golden_differ(c, "rank %lld has no %s", (long long)t, storage);
  if (info.ndim != 2 || info.shape[0] != real + zeros || info.shape[1] != HIDDEN)
    return golden_differ(c, "rank %lld, %s: %lld rows, golden %lld + %lld", (long long)t, storage,
                         (long long)info.shape[0], (long long)real, (long long)zeros);
  golden_runs runs = {0};
  if (real > 0)
    golden_runs_add(&runs, (treadle_run){.tensor = c->subject->find(c->layout, hf),
                                         .start = first * HIDDEN,
                                         .stride = 1,
                                         .count = real * HIDDEN});
  if (zeros > 0)
    golden_runs_add(&runs,
                    (treadle_run){.local_start = real * HIDDEN, .tensor = -1, .count = zeros * HIDDEN});
  golden_verdict verdict = golden_compare_runs(c, t, found, &runs);
  golden_runs_release(&runs);
  return verdict;
}

/* [vocab, divisible_by, tp, padded, [[first,last) per rank]] */
golden_verdict golden_check_megatron_vocab(golden_case *c) {
  int64_t vocabulary = golden_at(c->item, 0), tp = golden_at(c->item, 2);
  if (!with_vocabulary(c, vocabulary, tp)) return GOLDEN_SKIPPED;
  snprintf(c->text, sizeof c->text, "megatron:tp=%lld,vocab_divisible_by=%lld", (long long)tp,
           (long long)golden_at(c->item, 1));
  golden_verdict verdict = golden_open(c, false);
  const json_t *ranges = json_array_get(c->item, 4);
  for (size_t t = 0; verdict == GOLDEN_EQUAL && t < json_array_size(ranges); t++) {
    int64_t first = golden_at(json_array_get(ranges, t), 0), last = golden_at(json_array_get(ranges, t), 1);
    int64_t end = last < vocabulary ? last : vocabulary, real = first < end ? end - first : 0;
    verdict = compare_rows(c, (int64_t)t, "embedding.word_embeddings.weight", "model.embed_tokens.weight",
                           first, real, last - first - real);
    if (verdict == GOLDEN_EQUAL)
      verdict = compare_rows(c, (int64_t)t, "output_layer.weight", "lm_head.weight", first, real,
                             last - first - real);
  }
  return verdict;
}

/* [vocab, tp, does Megatron take the size without padding] */
golden_verdict golden_check_megatron_unpadded(golden_case *c) {
  int64_t vocabulary = golden_at(c->item, 0), tp = golden_at(c->item, 1);
  if (!with_vocabulary(c, vocabulary, tp)) return GOLDEN_SKIPPED;
  snprintf(c->text, sizeof c->text, "megatron:tp=%lld,padded_vocab_size=%lld", (long long)tp,
           (long long)vocabulary);
  return golden_open(c, json_is_false(json_array_get(c->item, 2)));
}

/* vllm_vocab and sglang_vocab: ranks[t] = [first row, real rows, zero rows]. The engines' models pad to 64,
 * and so do their layouts. The modules alone take other paddings, which cut the padded rows by the rule of
 * Megatron: there the text can name the size. */
golden_verdict golden_check_engine_vocab(golden_case *c) {
  bool is_vllm = strcmp(c->file, "vllm_vocab") == 0;
  bool is_head = strcmp(json_string_value(json_object_get(c->item, "module")), "ParallelLMHead") == 0;
  int64_t vocabulary = golden_int(c->item, "vocab", 0), tp = golden_int(c->item, "tp", 1);
  int64_t padding = golden_int(c->item, "padding_size", 64);
  const char *hf = is_head ? "lm_head.weight" : "model.embed_tokens.weight", *name = hf;
  if (!with_vocabulary(c, vocabulary, tp)) return GOLDEN_SKIPPED;
  if (padding == 64) {
    snprintf(c->text, sizeof c->text, "%s:tp=%lld", is_vllm ? "vllm" : "sglang", (long long)tp);
  } else {
    snprintf(c->text, sizeof c->text, "megatron:tp=%lld,padded_vocab_size=%lld", (long long)tp,
             (long long)((vocabulary + padding - 1) / padding * padding));
    name = is_head ? "output_layer.weight" : "embedding.word_embeddings.weight";
  }
  golden_verdict verdict = golden_open(c, false);
  const json_t *ranks = json_object_get(c->item, "ranks");
  for (size_t t = 0; verdict == GOLDEN_EQUAL && t < json_array_size(ranks); t++) {
    const json_t *rows = json_array_get(ranks, t);
    verdict =
        compare_rows(c, (int64_t)t, name, hf, golden_at(rows, 0), golden_at(rows, 1), golden_at(rows, 2));
  }
  return verdict;
}
