/* Random weights: matrices from a normal distribution around 0 with the config's initializer_range, norms 1, biases 0. A value is a function of
 * seed, tensor and canonical index, so it is the same in every layout. */
#include "train/windows.h"

#include "base/dtype.h"
#include "base/hash.h"
#include "base/json.h"
#include "memory/elements.h"
#include "weights/box_elements.h"
#include "weights/filled.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

static const double deviation_default = 0.02;

typedef struct filling {
  char *window;
  treadle_dtype dtype;
  uint64_t seed;    /* of the tensor */
  double deviation; /* 0: all are `same` */
  float same;
} filling;

/* Two numbers in (0, 1) make one by Box and Muller. */
static float normal(uint64_t seed, int64_t index, double deviation) {
  uint64_t a = treadle_mix64(seed + 2 * (uint64_t)index), b = treadle_mix64(seed + 2 * (uint64_t)index + 1);
  double u = ((double)(a >> 11) + 0.5) / 9007199254740992.0, v = (double)(b >> 11) / 9007199254740992.0;
  return (float)(deviation * sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

static void fill_run(void *context, int64_t index, int64_t at, int64_t step, int64_t count) {
  const filling *w = context;
  for (int64_t i = 0; i < count; i++) {
    float value = w->deviation > 0 ? normal(w->seed, index + i, w->deviation) : w->same;
    treadle_dtype_convert(w->window + at + i * step, w->dtype, &value, TREADLE_FP32, 1);
  }
}

static bool is_norm(const treadle_transformer *d, int32_t tensor) {
  static const treadle_role norms[] = {TREADLE_ROLE_ATTENTION_NORM, TREADLE_ROLE_MLP_NORM,
                                       TREADLE_ROLE_Q_NORM,         TREADLE_ROLE_K_NORM,
                                       TREADLE_ROLE_Q_DOWN_NORM,    TREADLE_ROLE_KV_DOWN_NORM};
  bool found = tensor == d->final_norm;
  for (int32_t l = 0; l < d->layers; l++)
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++)
      found = found || d->layer[l].tensor[norms[i]] == tensor;
  return found;
}

static treadle_status deviation_of(const treadle_transformer *d, double *value_p) {
  const json_t *range = treadle_transformer_field(d, "initializer_range");
  *value_p = range ? json_number_value(range) : deviation_default;
  if (range && !json_is_number(range))
    REFUSE("%s: initializer_range is not a number%s", d->model->path, treadle_json_note(range));
  if (!(*value_p > 0 && *value_p <= 100)) *value_p = deviation_default;
  return TREADLE_OK;
}

/* The window of a rank, whose values are of this layout. */
static treadle_status fill_window(const treadle_transformer *transformer, const treadle_layout *layout,
                                  int64_t rank, uint64_t seed, char *window) {
  const treadle_model *model = layout->model;
  double deviation;
  treadle_pieces pieces = {0};
  treadle_status status;
  TRY(deviation_of(transformer, &deviation));
  TRY(treadle_layout_pieces(layout, rank, &pieces));
  for (size_t i = 0; i < pieces.count; i++) {
    const treadle_piece *piece = &pieces.items[i];
    if (piece->tensor < 0) continue; /* padding is zero */
    const treadle_tensor *tensor = &model->tensors[piece->tensor];
    treadle_elements elements =
        treadle_elements_of_whole(tensor, piece->box.start, piece->box.size, piece->offset, piece->stride);
    filling w = {.window = window,
                 .dtype = piece->dtype,
                 .seed = treadle_hash_text(tensor->name, seed),
                 .deviation = tensor->ndim > 1 ? deviation : 0,
                 .same = is_norm(transformer, piece->tensor) ? 1 : 0};
    elements.dtype = piece->dtype;
    treadle_elements_each(&elements, fill_run, &w);
  }
out:
  treadle_array_release(&pieces);
  return status;
}

treadle_status treadle_train_randomise(const treadle_train_windows *w,
                                       const treadle_transformer *transformer, bool masters,
                                       uint64_t seed) {
  treadle_status status;
  memset(w->weights, 0, w->weight_bytes);
  if (w->grads) memset(w->grads, 0, w->grad_bytes);
  TRY(fill_window(transformer, w->layout, w->rank, seed, w->weights));
  treadle_filled_memory(w->weights, w->weight_bytes);
  if (masters) TRY(fill_window(transformer, w->grad_layout, w->rank, seed, w->grads));
out:
  return status;
}
