/* Gradients as a file, and their digest. */
#include "train/norm.h"
#include "train/trainer.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "io/safetensors.h"
#include "memory/device.h"
#include "transport/group.h"
#include "weights/digest.h"

/* The rows of a tensor's gradient, one after the other. */
static treadle_status append(treadle_trainer *t, treadle_safetensors_writer *writer, int32_t tensor) {
  treadle_weight grad;
  treadle_status status;
  TRY(treadle_weight_find(t->grad_layout, t->rank, tensor, -1, &t->arena, &grad));
  for (int64_t row = 0; row < grad.row_count; row++)
    TRY(treadle_safetensors_append(writer, treadle_trainer_grad(t, &grad, row),
                                   (size_t)grad.column_count * sizeof(float)));
out:
  return status;
}

treadle_status treadle_trainer_save_gradients(treadle_trainer *t, const char *path) {
  treadle_safetensors_writer *writer = NULL;
  treadle_status status;
  TREADLE_NEED(t);
  TREADLE_NEED(path);
  const treadle_model *model = t->layout->model;
  treadle_stored *tensors =
      treadle_arena_alloc_array(&t->arena, (size_t)model->tensor_count, sizeof *tensors);
  if (!tensors)
    return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for %d tensors", path, (int)model->tensor_count);
  for (int32_t i = 0; i < model->tensor_count; i++) {
    const treadle_tensor *tensor = &model->tensors[i];
    tensors[i] = (treadle_stored){.name = tensor->name, .dtype = TREADLE_FP32, .ndim = tensor->ndim};
    for (int d = 0; d < tensor->ndim; d++) tensors[i].shape[d] = tensor->shape[d];
  }
  TRY(treadle_safetensors_create(path, tensors, model->tensor_count, NULL, &writer));
  for (int32_t i = 0; i < model->tensor_count; i++) TRY(append(t, writer, i));
  TRY(treadle_safetensors_finish(writer));
out:
  treadle_safetensors_writer_destroy(writer);
  return status;
}

/* ---- The digest --------------------------------------------------------------------------------------- */

/* Of a window of all ranks, as a layout has it. */
static treadle_status find_digest(treadle_trainer *t, const treadle_layout *layout, const char *window,
                                  uint64_t *digest_p) {
  treadle_group *group = t->ranks.group;
  uint64_t mine = 0, *sums;
  size_t count = (size_t)layout->model->entry_count;
  treadle_status status = TREADLE_OK;
  *digest_p = 0;
  sums = treadle_alloc_array(count, sizeof *sums);
  if (!sums) status = treadle_fail(TREADLE_NO_MEMORY, "digest: memory is out");
  if (!status) status = treadle_digest_add(layout, t->rank, treadle_device_host(), window, NULL, 0, sums);
  for (size_t i = 0; !status && i < count; i++) mine += sums[i];
  TRY(treadle_train_agree(t, status));
  if (group) TRY(treadle_group_say(group, &mine, sizeof mine));
  for (int rank = 0; group && rank < treadle_group_size(group); rank++)
    *digest_p += *(const uint64_t *)treadle_group_said(group, rank);
  if (!group) *digest_p = mine;
out:
  treadle_free(sums);
  return status;
}

treadle_status treadle_trainer_digest(treadle_trainer *t, uint64_t *digest_p) {
  TREADLE_NEED(t);
  TREADLE_NEED(digest_p);
  return find_digest(t, t->grad_layout, t->grad_window, digest_p);
}

treadle_status treadle_trainer_weights_digest(treadle_trainer *t, uint64_t *digest_p) {
  TREADLE_NEED(t);
  TREADLE_NEED(digest_p);
  return find_digest(t, t->layout, t->weights, digest_p);
}

/* ---- The norm ----------------------------------------------------------------------------------------- */

static void look(void *context, const float *values, int64_t count) {
  treadle_norm_look(context, values, count);
}

static void add(void *context, const float *values, int64_t count) {
  treadle_norm_add(context, values, count);
}

/* Of all ranks' norms, which come one after the other. */
static treadle_status share(treadle_trainer *t, treadle_norm *norm, bool sums) {
  treadle_group *group = t->ranks.group;
  const treadle_norm mine = *norm;
  treadle_status status = TREADLE_OK;
  if (!group) return TREADLE_OK;
  TRY(treadle_group_say(group, &mine, sizeof mine));
  for (int rank = 0; rank < treadle_group_size(group); rank++)
    if (rank != treadle_group_rank(group)) treadle_norm_join(norm, treadle_group_said(group, rank), sums);
out:
  return status;
}

treadle_status treadle_trainer_norm(treadle_trainer *t, double *norm_p) {
  treadle_norm norm;
  treadle_status status;
  TREADLE_NEED(t);
  TREADLE_NEED(norm_p);
  treadle_norm_begin(&norm);
  TRY(treadle_train_agree(t, treadle_train_each_own(t, look, &norm)));
  TRY(share(t, &norm, false));
  TRY(treadle_train_agree(t, treadle_train_each_own(t, add, &norm)));
  TRY(share(t, &norm, true));
  *norm_p = treadle_norm_value(&norm);
out:
  return status;
}
