/* Any text as a file of placements:@file, read as JSON, of a small model on 8 ranks: refused with a reason, or a layout whose
 * pieces are its storage tensors and whose cells are the model, each element once, with holders that have them. */
#include "filled.h"

#include "flat/placements.h"
#include "io/json.h"
#include "layout/layout_types.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RANKS = 8 };

static const char config[] =
    "{\"model_type\": \"qwen3_moe\", \"vocab_size\": 20, \"hidden_size\": 8, \"num_hidden_layers\": 1, "
    "\"intermediate_size\": 12, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 2, "
    "\"num_experts\": 3, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 6, "
    "\"decoder_sparse_step\": 1, \"tie_word_embeddings\": true, \"torch_dtype\": \"bfloat16\"}";

static void check_cells(const treadle_layout *layout, int32_t tensor) {
  treadle_cells cells = {0};
  treadle_boxes boxes = {0};
  treadle_box whole = treadle_box_whole(&layout->model->tensors[tensor]);
  const int64_t *stride;
  MUST(treadle_layout_cells(layout, tensor, &whole, &cells) == TREADLE_OK);
  for (size_t i = 0; i < cells.count; i++) {
    const treadle_cell *cell = &cells.items[i];
    MUST(cell->holders > 0 && cell->holders <= RANKS);
    for (int64_t h = 0; h < cell->holders; h++) {
      int64_t rank = treadle_cell_rank(layout, cell, h),
              last = treadle_cell_locate(layout, cell, h, &stride);
      MUST(rank >= 0 && rank < RANKS && treadle_cell_find(layout, cell, rank) == h && last >= 0);
      for (int a = 0; a < TREADLE_MAX_AXES; a++) last += (cell->box.size[a] - 1) * stride[a];
      MUST(last < (int64_t)treadle_layout_window_bytes(layout, rank));
    }
    MUST(treadle_array_push(&boxes, cell->box) == TREADLE_OK);
  }
  MUST(treadle_box_tiles(&whole, boxes.items, boxes.count));
  treadle_array_release(&cells);
  treadle_array_release(&boxes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  treadle_arena arena = {0};
  json_t *root = NULL;
  treadle_layout *layout = NULL;
  static treadle_model *model;
  if (!model) model = filled_model(config);
  if (treadle_json_parse("fuzz", (const char *)data, size, &root) == TREADLE_OK) {
    MUST(treadle_layout_start(model, "placements", RANKS, &layout) == TREADLE_OK);
    treadle_status status = treadle_placements_read(layout, "fuzz", root, &arena);
    MUST(status == TREADLE_OK || (status == TREADLE_REFUSED && *treadle_error_message()));
    for (int64_t r = 0; status == TREADLE_OK && r < RANKS; r++) filled_check(layout, r);
    for (int32_t t = 0; status == TREADLE_OK && t < model->tensor_count; t++) check_cells(layout, t);
  }
  treadle_layout_destroy(layout);
  json_decref(root);
  treadle_arena_release(&arena);
  return 0;
}
