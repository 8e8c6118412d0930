/* Log-probabilities that are none: a weight that is NaN or infinite shows in the rows of logits that it has part in. Each row is looked at,
 * which costs nothing beside the product that made it; only when one is not finite are the weights searched, for the name. */
#include "generate/generator.h"

#include "base/finite.h"

#include <math.h>
#include <stdlib.h>

/* The tensor of Hugging Face that an element of a storage is of; padding has none. */
static treadle_status name_of(const treadle_generator *e, int64_t rank, int32_t storage, int64_t element,
                              const char **name_p) {
  treadle_run *runs = NULL;
  size_t count = 0;
  treadle_status status;
  *name_p = NULL;
  TRY(treadle_layout_runs(e->layout, rank, storage, &runs, &count));
  for (size_t i = 0; i < count; i++) {
    treadle_tensor_info info = TREADLE_INIT(treadle_tensor_info);
    if (element < runs[i].local_start || element >= runs[i].local_start + runs[i].count) continue;
    if (runs[i].tensor < 0) break;
    TRY(treadle_model_tensor(e->layout->model, runs[i].tensor, &info));
    *name_p = info.name;
  }
out:
  free(runs);
  return status;
}

static treadle_status search(const treadle_generator *e, const char *window, int64_t rank) {
  treadle_status status = TREADLE_OK;
  for (int32_t s = 0; s < treadle_layout_storage_count(e->layout, rank); s++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    const char *name;
    int64_t elements = 1;
    TRY(treadle_layout_storage(e->layout, rank, s, &info));
    for (int i = 0; i < info.ndim; i++) elements *= info.shape[i];
    int64_t element =
        info.derived ? -1 : treadle_first_not_finite(window + info.offset_bytes, elements, info.dtype);
    if (element < 0) continue;
    TRY(name_of(e, rank, s, element, &name));
    if (!name) continue; /* padding takes no part */
    return treadle_fail(
        TREADLE_REFUSED,
        "%s has a value that is NaN or infinite (element %lld of %s on rank %lld): there are "
        "no log-probabilities",
        name, (long long)element, info.name, (long long)rank);
  }
out:
  return status;
}

treadle_status treadle_generator_check_row(const treadle_generator *engine, const float *logits,
                                           float temperature, double lse) {
  int64_t rank = engine->replica.ranks[engine->replica.position];
  treadle_status status;
  if (isfinite(lse)) return TREADLE_OK;
  if (treadle_row_is_finite(logits, engine->transformer->vocabulary))
    REFUSE("logits over a temperature of %g are infinite", (double)temperature);
  TRY(search(engine, treadle_pass_window(engine->pass), rank));
  status =
      treadle_fail(TREADLE_REFUSED,
                   "logits are NaN or infinite: a weight of another rank is, or the weights of rank %lld "
                   "are too large",
                   (long long)rank);
out:
  return status;
}
