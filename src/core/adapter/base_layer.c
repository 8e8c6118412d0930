/* Copies of the base in peft's files. Where the head has an adapter, peft saves "base_model.model.lm_head.base_layer.weight" beside A and B, and
 * takes it for the head when it loads them. Here the head is the model's own: a copy with other values is refused. */
#include "adapter/adapter.h"

#include "base/dtype.h"
#include "model/stored.h"

#include <stdio.h>
#include <string.h>

/* The base's matrix that a tensor of the file is a copy of; NULL: it is of none. */
static const treadle_tensor *copied_by(const treadle_adapter *a, const treadle_stored *stored) {
  static const char end[] = ".weight";
  char name[512];
  for (int32_t i = 0; i < a->count; i++) {
    const treadle_tensor *t = &a->base->tensors[a->matrices[i].tensor];
    const int length = (int)(strlen(t->name) - (sizeof end - 1));
    snprintf(name, sizeof name, "base_model.model.%.*s.base_layer%s", length, t->name, end);
    if (t->layer < 0 && strcmp(name, stored->name) == 0) return t;
  }
  return NULL;
}

/* The first element that differs from the base's, which is rounded to the copy's type; -1: none does. */
static int64_t first_other(const treadle_stored *copy, const treadle_stored *base) {
  enum { MANY = 1024 };
  const size_t each = treadle_dtype_bytes(copy->dtype), from = treadle_dtype_bytes(base->dtype);
  char rounded[MANY * sizeof(float)];
  for (int64_t i = 0; i < copy->elems; i += MANY) {
    const size_t some = (size_t)(copy->elems - i < MANY ? copy->elems - i : MANY);
    const char *theirs = (const char *)copy->data + (size_t)i * each;
    treadle_dtype_convert(rounded, copy->dtype, (const char *)base->data + (size_t)i * from, base->dtype,
                          some);
    for (size_t k = 0; k < some; k++)
      if (memcmp(rounded + k * each, theirs + k * each, each) != 0) return i + (int64_t)k;
  }
  return -1;
}

static bool is_read(treadle_dtype dtype) {
  return dtype == TREADLE_FP32 || dtype == TREADLE_BF16 || dtype == TREADLE_FP16;
}

treadle_status treadle_adapter_check_copy(const treadle_adapter *a, const char *path,
                                          const treadle_stored *stored, bool *is_copy_p) {
  const treadle_model *model = a->base;
  const treadle_tensor *t = copied_by(a, stored);
  const treadle_stored *base =
      t && model->files && !model->values.read ? model->files->entries[t->first_entry] : NULL;
  int64_t other;
  *is_copy_p = t != NULL;
  if (!t) return TREADLE_OK;
  if (stored->ndim != 2 || stored->shape[0] != t->shape[0] || stored->shape[1] != t->shape[1] ||
      !is_read(stored->dtype))
    REFUSE("%s: tensor '%s' is not a copy of %s: [%lld, %lld] in fp32, bf16 or fp16", path, stored->name,
           t->name, (long long)t->shape[0], (long long)t->shape[1]);
  if (!base || !base->data || !is_read(base->dtype))
    REFUSE("%s: has a copy of %s, '%s', and there are no safetensors of %s to compare it with; save the "
           "adapters without it (peft: save_embedding_layers=False)",
           path, t->name, stored->name, model->path);
  other = first_other(stored, base);
  if (other >= 0)
    REFUSE("%s: element [%lld, %lld] of '%s' is another than that of %s in %s: the adapters were trained "
           "beside other weights",
           path, (long long)(other / t->shape[1]), (long long)(other % t->shape[1]), stored->name, t->name,
           model->path);
  return TREADLE_OK;
}
