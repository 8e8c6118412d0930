/* A layout text: the first byte gives the ranks (1 to 16) and the model: dense, tied, or with experts, latent attention
 * and an MTP layer. Behind a '+' stand model, ranks and layout in words (described.h). A text is
 * refused with a reason, or makes a layout whose printed text makes it again, whose pieces fill every
 * storage tensor once, and whose runs do. */
#include "described.h"
#include "filled.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

#define DENSE                                                                                              \
  "{\"model_type\": \"qwen2\", \"vocab_size\": 90, \"hidden_size\": 24, \"num_hidden_layers\": 4, "        \
  "\"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"head_dim\": 2, \"intermediate_size\": 48, "   \
  "\"torch_dtype\": \"bfloat16\", "
static const char *const configs[] = {
    DENSE "\"tie_word_embeddings\": false}", DENSE "\"tie_word_embeddings\": true}",
    "{\"model_type\": \"deepseek_v3\", \"vocab_size\": 90, \"hidden_size\": 16, \"num_hidden_layers\": 2, "
    "\"num_attention_heads\": 8, \"intermediate_size\": 48, \"moe_intermediate_size\": 16, "
    "\"n_routed_experts\": 8, \"n_group\": 4, \"n_shared_experts\": 1, \"first_k_dense_replace\": 1, "
    "\"moe_layer_freq\": 1, \"q_lora_rank\": 4, \"kv_lora_rank\": 4, \"qk_nope_head_dim\": 4, "
    "\"qk_rope_head_dim\": 2, \"v_head_dim\": 2, \"num_nextn_predict_layers\": 1, \"torch_dtype\": "
    "\"bfloat16\"}"};

/* Of small storage tensors: one run after another, of elements that the tensor has. */
static void check_runs(const treadle_layout *layout, int64_t rank) {
  enum { MOST = 1 << 16 };
  for (int32_t s = 0; s < treadle_layout_storage_count(layout, rank); s++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    treadle_tensor_info tensor = TREADLE_INIT(treadle_tensor_info);
    treadle_run *runs;
    size_t count;
    MUST(treadle_layout_storage(layout, rank, s, &info) == TREADLE_OK);
    int64_t next = 0, elems = (int64_t)(info.bytes / treadle_dtype_bytes(info.dtype));
    if (elems > MOST) continue;
    MUST(treadle_layout_runs(layout, rank, s, &runs, &count) == TREADLE_OK);
    for (size_t i = 0; i < count; i++) {
      const treadle_run *run = &runs[i];
      MUST(run->local_start == next && run->count > 0);
      next += run->count;
      if (run->tensor < 0) continue;
      MUST(treadle_model_tensor(layout->model, run->tensor, &tensor) == TREADLE_OK);
      int64_t last = run->start + (run->count - 1) * run->stride;
      MUST(run->start >= 0 && run->start < tensor.elems && last >= 0 && last < tensor.elems);
    }
    MUST(next == elems);
    free(runs);
  }
}

static void check(const treadle_model *model, const char *text, int64_t ranks) {
  enum { MOST_RANKS = 16 };
  treadle_layout *layout, *again;
  treadle_status status = treadle_layout_create(model, text, ranks, NULL, &layout);
  if (status == TREADLE_OK) {
    const char *normal = treadle_layout_text(layout);
    MUST(treadle_layout_create(model, normal, ranks, NULL, &again) == TREADLE_OK);
    MUST(strcmp(treadle_layout_text(again), normal) == 0 && again->digest == layout->digest);
    for (int64_t i = 0; i < ranks && i < MOST_RANKS; i++) {
      int64_t r = i < MOST_RANKS / 2 ? i : ranks - 1 - (i - MOST_RANKS / 2); /* the first and the last */
      if (r < i) break;
      MUST(treadle_layout_window_bytes(layout, r) == treadle_layout_window_bytes(again, r));
      filled_check(layout, r);
      check_runs(layout, r);
    }
    treadle_layout_destroy(again);
  } else {
    MUST(status == TREADLE_REFUSED && *treadle_error_message() && !layout);
  }
  treadle_layout_destroy(layout);
}

static void check_described(const uint8_t *bytes, size_t count) {
  described d;
  described_read(bytes, count, &d);
  if (d.model) check(d.model, d.layouts[0], d.ranks);
  described_release(&d);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  enum { MODELS = sizeof configs / sizeof *configs };
  static treadle_model *models[MODELS];
  for (int i = 0; i < MODELS && !models[i]; i++) models[i] = filled_model(configs[i]);
  if (count < 1 || count > 4096) return 0;
  if (bytes[0] == '+') {
    check_described(bytes + 1, count - 1);
    return 0;
  }
  char *text = calloc(count, 1);
  MUST(text);
  memcpy(text, bytes + 1, count - 1);
  if (!strstr(text, "@")) /* no files: a fuzzer would read its own machine's */
    check(models[(bytes[0] >> 4) % MODELS], text, bytes[0] % 16 + 1);
  free(text);
  return 0;
}
