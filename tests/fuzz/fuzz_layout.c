/* A layout text: the first byte gives the ranks (1 to 16) and whether the embeddings are tied. A text is
 * refused with a reason, or makes a layout whose printed text makes it again and whose pieces fill every
 * storage tensor once. */
#include "base/dtype.h"
#include "layout/layout.h"
#include "model/model.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

#define MUST(condition)                                                                                    \
  do {                                                                                                     \
    if (!(condition)) __builtin_trap();                                                                    \
  } while (0)

static const char config[] =
    "{\"model_type\": \"qwen2\", \"vocab_size\": 90, \"hidden_size\": 24, "
    "\"num_hidden_layers\": 4, \"num_attention_heads\": 8, \"num_key_value_heads\": 4, "
    "\"head_dim\": 2, \"intermediate_size\": 48, \"torch_dtype\": \"bfloat16\", "
    "\"tie_word_embeddings\": ";

static treadle_model *make_model(bool tied) {
  char text[512];
  treadle_model *model;
  strcpy(text, config);
  strcat(text, tied ? "true}" : "false}");
  json_t *json = json_loads(text, 0, NULL);
  MUST(json && treadle_model_from_config("config", json, NULL, &model) == TREADLE_OK);
  json_decref(json);
  return model;
}

/* Pieces and fills of a rank, by storage tensor: elements add up, and none leaves its storage. */
static void check_rank(const treadle_layout *layout, int64_t rank) {
  treadle_pieces pieces = {0};
  int32_t storages = treadle_layout_storage_count(layout, rank);
  int64_t *elems = calloc((size_t)storages + 1, sizeof *elems);
  MUST(elems && treadle_layout_pieces(layout, rank, &pieces) == TREADLE_OK);
  for (size_t i = 0; i < pieces.count; i++) {
    const treadle_piece *piece = &pieces.items[i];
    treadle_storage_info info;
    MUST(treadle_layout_storage(layout, rank, piece->storage, &info) == TREADLE_OK);
    int64_t last = piece->offset + (int64_t)treadle_dtype_bytes(piece->dtype);
    for (int a = 0; a < TREADLE_MAX_AXES; a++) last += (piece->box.size[a] - 1) * piece->stride[a];
    MUST(piece->offset >= (int64_t)info.offset_bytes && last <= (int64_t)(info.offset_bytes + info.bytes));
    elems[piece->storage] += treadle_box_elems(&piece->box);
  }
  for (int32_t s = 0; s < storages; s++) {
    treadle_storage_info info;
    MUST(treadle_layout_storage(layout, rank, s, &info) == TREADLE_OK);
    MUST(elems[s] * (int64_t)treadle_dtype_bytes(info.dtype) == (int64_t)info.bytes);
    MUST(info.offset_bytes + info.bytes <= treadle_layout_window_bytes(layout, rank));
  }
  free(elems);
  treadle_array_release(&pieces);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  static treadle_model *models[2];
  if (!models[0]) models[0] = make_model(false), models[1] = make_model(true);
  if (count < 1 || count > 4096) return 0;
  int64_t ranks = bytes[0] % 16 + 1;
  const treadle_model *model = models[bytes[0] >> 4 & 1];
  char *text = calloc(count, 1);
  MUST(text);
  memcpy(text, bytes + 1, count - 1);
  if (strstr(text, "@")) { /* no files: a fuzzer would read its own machine's */
    free(text);
    return 0;
  }
  treadle_layout *layout, *again;
  treadle_status status = treadle_layout_create(model, text, ranks, &layout);
  if (status == TREADLE_OK) {
    const char *normal = treadle_layout_text(layout);
    MUST(treadle_layout_create(model, normal, ranks, &again) == TREADLE_OK);
    MUST(strcmp(treadle_layout_text(again), normal) == 0 && again->digest == layout->digest);
    for (int64_t r = 0; r < ranks; r++) {
      MUST(treadle_layout_window_bytes(layout, r) == treadle_layout_window_bytes(again, r));
      check_rank(layout, r);
    }
    treadle_layout_destroy(again);
  } else {
    MUST(status == TREADLE_REFUSED && *treadle_error_message() && !layout);
  }
  treadle_layout_destroy(layout);
  free(text);
  return 0;
}
