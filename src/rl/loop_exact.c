/* What exact mode needs: that both layouts compute in one type, and with sums whose leaves both of them cut. Engines refuse cuts within a leaf
 * themselves; what they cannot see alone is looked at here. */
#include "rl/loop.h"

#include "base/dtype.h"
#include "infer/transformer.h"
#include "layout/layout.h"

static const char *name_of(treadle_dtype dtype) { return dtype == TREADLE_BF16 ? "bf16" : "fp32"; }

static treadle_dtype computed_in(const treadle_layout *layout, const treadle_transformer *d) {
  return treadle_layout_dtype(layout, &layout->model->tensors[d->embed]) == TREADLE_BF16 ? TREADLE_BF16
                                                                                         : TREADLE_FP32;
}

treadle_status treadle_rl_check_exact(const treadle_rl *rl) {
  treadle_transformer *d = NULL;
  treadle_status status = TREADLE_OK;
  if (!rl->settings->exact) return TREADLE_OK;
  TRY(treadle_transformer_create(rl->model, &d));
  treadle_dtype train = computed_in(rl->train, d), infer = computed_in(rl->infer, d);
  if (train != infer)
    status = treadle_fail(
        TREADLE_REFUSED,
        "exact mode: '%s' computes in %s, '%s' in %s, so log-probabilities are not the same bits: "
        "give both one type (%s, %s), or actor_config.exact=false",
        rl->train->text, name_of(train), rl->infer->text, name_of(infer), TREADLE_RL_PLACE(rl, bf16),
        TREADLE_RL_PLACE(rl, infer_layout));
out:
  treadle_transformer_destroy(d);
  return status;
}
