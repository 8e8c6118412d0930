/* What fuzz targets of layouts share: their models, and what is so of the window of every rank. */
#ifndef TREADLE_TESTS_FUZZ_FILLED_H
#define TREADLE_TESTS_FUZZ_FILLED_H

#include "base/dtype.h"
#include "layout/layout.h"
#include "model/model.h"
#include "must.h"

#include <jansson.h>

static inline treadle_model *filled_model(const char *config) {
  treadle_model *model;
  json_t *json = json_loads(config, 0, NULL);
  MUST(json && treadle_model_from_config("config", json, NULL, &model) == TREADLE_OK);
  json_decref(json);
  return model;
}

/* Pieces and fills of a rank: bytes add up to those of its storage tensors, and none leaves its window. */
static inline void filled_check(const treadle_layout *layout, int64_t rank) {
  treadle_pieces pieces = {0};
  int64_t bytes = 0, window = (int64_t)treadle_layout_window_bytes(layout, rank);
  MUST(treadle_layout_pieces(layout, rank, &pieces) == TREADLE_OK);
  for (size_t i = 0; i < pieces.count; i++) {
    const treadle_piece *piece = &pieces.items[i];
    int64_t size = (int64_t)treadle_dtype_bytes(piece->dtype), last = piece->offset + size;
    for (int a = 0; a < TREADLE_MAX_AXES; a++) last += (piece->box.size[a] - 1) * piece->stride[a];
    MUST(piece->offset >= 0 && last <= window);
    bytes += treadle_box_elems(&piece->box) * size;
  }
  for (int32_t s = 0; s < treadle_layout_storage_count(layout, rank); s++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    MUST(treadle_layout_storage(layout, rank, s, &info) == TREADLE_OK);
    MUST((int64_t)(info.offset_bytes + info.bytes) <= window);
    bytes -= (int64_t)info.bytes;
  }
  MUST(bytes == 0);
  treadle_array_release(&pieces);
}

#endif
