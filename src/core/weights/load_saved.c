/* Filling a window from files that were saved, beside those that the layout's model came from. */
#include "weights/load.h"

#include "base/text.h"
#include "model/model.h"
#include "weights/filled.h"

#include <inttypes.h>
#include <string.h>

/* Both have the same tensors, whatever their types. */
static treadle_status check_same(const char *folder, const treadle_model *saved, const treadle_model *own) {
  for (int32_t t = 0; t < saved->tensor_count && t < own->tensor_count; t++) {
    const treadle_tensor *a = &saved->tensors[t], *b = &own->tensors[t];
    if (strcmp(a->name, b->name) != 0)
      return treadle_fail(TREADLE_REFUSED, "%s: has tensor '%s' where the model has '%s'", folder, a->name,
                          b->name);
    for (int d = 0; d < a->ndim || d < b->ndim; d++)
      if (a->ndim != b->ndim || a->shape[d] != b->shape[d])
        return treadle_fail(
            TREADLE_REFUSED, "%s: dimension %d of tensor '%s' is %" PRId64 "; the model has %" PRId64,
            folder, d, a->name, d < a->ndim ? a->shape[d] : 0, d < b->ndim ? b->shape[d] : 0);
  }
  if (saved->tensor_count != own->tensor_count)
    return treadle_fail(TREADLE_REFUSED, "%s: has %s; the model has %d", folder,
                        treadle_text_of_count(saved->tensor_count, "tensor"), own->tensor_count);
  return TREADLE_OK;
}

static treadle_status load_pieces(const treadle_layout *layout, int64_t rank, const treadle_model *saved,
                                  char *window) {
  treadle_status status;
  treadle_pieces pieces = {0};
  const treadle_device *device = treadle_device_at(window);
  const treadle_paged to = treadle_paged_of(window);
  TRY(device->ops->renew(device));
  TRY(treadle_layout_pieces(layout, rank, &pieces));
  for (size_t i = 0; i < pieces.count; i++) {
    const treadle_piece *piece = &pieces.items[i];
    if (piece->tensor >= 0) {
      TRY(treadle_load_values(saved, piece, device, window));
      continue;
    }
    const treadle_op op = treadle_fill_op(piece);
    device->ops->copy(device, &op, NULL, &to, 1);
  }
out:
  status = treadle_device_finish(device, status); /* it may still read files */
  if (!status) status = treadle_checkpoint_unchanged(saved->checkpoint);
  if (!status) treadle_filled_memory(window, treadle_layout_window_bytes(layout, rank));
  treadle_array_release(&pieces);
  return status;
}

treadle_status treadle_layout_load_saved(const treadle_layout *layout, int64_t rank, const char *folder,
                                         const treadle_model_options *options, void *window) {
  treadle_status status;
  treadle_model *saved = NULL;
  treadle_model_options of_saved = options ? *options : TREADLE_INIT(treadle_model_options);
  of_saved.weights = TREADLE_WEIGHTS_FILES;
  of_saved.head = layout->model->head.kind;
  if (layout->fp8)
    return treadle_fail(TREADLE_REFUSED, "layout '%s': saved values are not loaded as fp8", layout->text);
  TRY(treadle_model_open(folder, &of_saved, &saved));
  TRY(check_same(folder, saved, layout->model));
  TRY(load_pieces(layout, rank, saved, window));
out:
  treadle_model_close(saved);
  return status;
}
