/* Own tensors of the command. */
#include "cli/own_memory.h"

#include "base/alloc.h"
#include "base/status.h"
#include "base/text.h"
#include "treadle_testing.h"

#include <string.h>

enum { STALE = 0xb7 }; /* what they hold before anybody writes them */

treadle_status treadle_own_memory_add(treadle_own_memory *own, treadle_mode mode,
                                      const treadle_layout *layout, int64_t rank) {
  treadle_status status = TREADLE_OK;
  int32_t count = treadle_layout_storage_count(layout, rank);
  treadle_own_tensor *tensors = treadle_alloc_array((size_t)count + 1, sizeof *tensors);
  own->tensors[mode] = tensors;
  if (!tensors) return treadle_fail(TREADLE_NO_MEMORY, "no memory for own tensors");
  for (int32_t i = 0; i < count; i++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    TRY(treadle_layout_storage(layout, rank, i, &info));
    tensors[i] = (treadle_own_tensor){i, treadle_alloc(info.bytes + 1), info.bytes};
    own->count[mode] = (size_t)i + 1;
    if (!tensors[i].memory)
      TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for '%s', %s", info.name,
                       treadle_text_of_size(info.bytes)));
    memset(tensors[i].memory, STALE, info.bytes);
  }
out:
  return status;
}

void treadle_own_memory_give(const treadle_own_memory *own, treadle_switch_options *options) {
  options->own_train = own->tensors[TREADLE_TRAIN];
  options->own_infer = own->tensors[TREADLE_INFER];
  options->own_train_count = own->count[TREADLE_TRAIN];
  options->own_infer_count = own->count[TREADLE_INFER];
  bool stay = options->own_train || (options->own_infer && options->keep == TREADLE_KEEP_INFER);
  if (options->own_train) options->host = false;
  if (stay && options->offload_train_param == TREADLE_DEFAULT) options->offload_train_param = TREADLE_OFF;
}

treadle_switch_options treadle_own_memory_without(const treadle_switch_options *options) {
  treadle_switch_options plain = *options;
  plain.own_train = plain.own_infer = NULL;
  plain.own_train_count = plain.own_infer_count = 0;
  return plain;
}

void treadle_own_memory_release(treadle_own_memory *own) {
  for (int mode = 0; mode < 2; mode++) {
    for (size_t i = 0; i < own->count[mode]; i++) treadle_free(own->tensors[mode][i].memory);
    treadle_free(own->tensors[mode]);
  }
  *own = (treadle_own_memory){0};
}

treadle_status treadle_load_params(treadle_switch *sw, const treadle_layout *layout, int64_t rank) {
  treadle_status status = TREADLE_OK;
  size_t bytes = treadle_layout_window_bytes(layout, rank);
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
  treadle_switch_get_stats(sw, &stats);
  if (stats.own_bytes == 0) return treadle_layout_load(layout, rank, treadle_switch_train_window(sw));
  char *window = treadle_alloc(bytes + 1);
  if (!window)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for the weights, %s", treadle_text_of_size(bytes));
  TRY(treadle_layout_load(layout, rank, window));
  TRY(treadle_switch_write(sw, TREADLE_PARAMS, 0, bytes, window));
out:
  treadle_free(window);
  return status;
}
