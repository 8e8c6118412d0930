/* What adapters begin with, and values of all of them, of which a rank takes its part. */
#include "train/adapters.h"

#include "base/alloc.h"
#include "base/hash.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The parts of this rank ------------------------------------------------------------------------------------ */

/* A target of this rank: its matrix, and the adapter as it lies in a window. */
typedef struct part {
  const treadle_adapter_matrix *matrix;
  const treadle_weight *weight;
  const treadle_segment *segments;
  float *a, *b; /* [rank, columns here], [rows here, rank] */
} part;

typedef void (*visit)(const treadle_train_adapters *adapters, const part *part, const float *all);

static void each_part(const treadle_train_adapters *a, float *window, visit look, const float *all) {
  for (int32_t u = 0; u < treadle_train_adapter_units(a); u++)
    for (int role = 0; role < TREADLE_ROLES; role++) {
      const treadle_train_target *target = &a->targets[u][role];
      if (target->number < 0) continue;
      const part one = {.matrix = &a->adapter->matrices[target->number],
                        .weight = treadle_train_target_weight(a, u, role),
                        .segments = target->base,
                        .a = window + target->at_a,
                        .b = window + target->at_b};
      look(a, &one, all);
    }
}

/* ---- Beginning ------------------------------------------------------------------------------------------------- */

static void begin_part(const treadle_train_adapters *a, const part *p, const float *all) {
  (void)all;
  const uint64_t own = treadle_hash_text(a->adapter->model->tensors[p->matrix->a].name, a->seed);
  const double bound = 1 / sqrt((double)p->matrix->columns);
  float *to = p->a;
  for (int64_t k = 0; k < a->adapter->rank; k++)
    for (int64_t c = 0; c < p->weight->column_count; c++) {
      const uint64_t index = (uint64_t)(k * p->matrix->columns + p->weight->first_column + c);
      const double u = ((double)(treadle_mix64(own + index) >> 11) + 0.5) / 9007199254740992.0;
      *to++ = (float)((2 * u - 1) * bound);
    }
  memset(p->b, 0, (size_t)(p->weight->row_count * a->adapter->rank) * sizeof *p->b);
}

treadle_status treadle_train_begin_adapters(const treadle_train_adapters *a) {
  if (!a) return TREADLE_OK;
  if (a->folder) return treadle_train_open_adapter_folder(a, a->folder, true);
  each_part(a, (float *)(void *)a->windows->trained, begin_part, NULL);
  return TREADLE_OK;
}

/* ---- All of them ----------------------------------------------------------------------------------------------- */

static void take_part(const treadle_train_adapters *a, const part *p, const float *all) {
  const float *from = all + p->matrix->at_a + p->weight->first_column;
  const size_t row = (size_t)p->weight->column_count * sizeof(float);
  const int64_t rank = a->adapter->rank;
  float *to = p->b;
  for (int64_t k = 0; k < rank; k++)
    memcpy(p->a + k * p->weight->column_count, from + k * p->matrix->columns, row);
  for (int32_t s = 0; s < p->weight->segment_count; to += p->segments[s++].rows * rank)
    memcpy(to, all + p->matrix->at_b + p->segments[s].first * rank,
           (size_t)(p->segments[s].rows * rank) * sizeof *to);
}

void treadle_train_take_adapters(const treadle_train_adapters *a, const float *all, float *own) {
  each_part(a, own, take_part, all);
}

static treadle_status read_all(const treadle_adapter *adapter, const char *path, float **all_p) {
  *all_p = treadle_alloc_array((size_t)adapter->elems, sizeof **all_p);
  if (!*all_p) return treadle_fail(TREADLE_NO_MEMORY, "no memory for adapters");
  return treadle_adapter_read(adapter, path, *all_p);
}

treadle_status treadle_train_load_adapters(const treadle_train_adapters *a, const char *path, float *own) {
  float *all = NULL;
  treadle_status status;
  TRY(read_all(a->adapter, path, &all));
  treadle_train_take_adapters(a, all, own);
out:
  treadle_free(all);
  return status;
}

/* ---- peft's folder --------------------------------------------------------------------------------------------- */

static treadle_status check_alike(const treadle_adapter *mine, const treadle_adapter *other,
                                  const char *folder) {
  if (other->rank != mine->rank)
    REFUSE("%s: the adapters have rank %lld, those of this run %lld", folder, (long long)other->rank,
           (long long)mine->rank);
  if (other->alpha != mine->alpha)
    REFUSE("%s: the adapters have alpha %g, those of this run %g", folder, other->alpha, mine->alpha);
  for (int32_t i = 0; i < mine->count || i < other->count; i++) {
    const bool same =
        i < mine->count && i < other->count && mine->matrices[i].tensor == other->matrices[i].tensor;
    const treadle_adapter *which = i < mine->count ? mine : other;
    if (!same)
      REFUSE("%s: the adapters are of other matrices than those of this run, from '%s' on", folder,
             which->base->tensors[which->matrices[i].tensor].name);
  }
  return TREADLE_OK;
}

/* Are they in the weights already? */
static treadle_status check_unmerged(const treadle_adapter *adapter, const float *all) {
  const treadle_adapter_folders base = treadle_train_marked(adapter->base);
  char *text = NULL;
  treadle_status status = treadle_adapter_mark(adapter, all, &base, &text);
  free(text);
  return status;
}

treadle_status treadle_train_open_adapter_folder(const treadle_train_adapters *a, const char *folder,
                                                 bool begins) {
  treadle_adapter *saved = NULL;
  char path[PATH_MAX];
  float *all = NULL;
  treadle_status status;
  if (snprintf(path, sizeof path, "%s/" TREADLE_ADAPTER_WEIGHTS, folder) >= (int)sizeof path)
    REFUSE("%s: too long for a path", folder);
  TRY(treadle_adapter_open(a->adapter->base, folder, &saved));
  TRY(check_alike(a->adapter, saved, folder));
  TRY(read_all(a->adapter, path, &all));
  if (begins) TRY(check_unmerged(a->adapter, all));
  treadle_train_take_adapters(a, all, (float *)(void *)a->windows->trained);
out:
  treadle_free(all);
  treadle_adapter_destroy(saved);
  return status;
}
