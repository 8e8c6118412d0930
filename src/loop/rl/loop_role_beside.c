/* What a critic and a reward model have alike: whose tokens they read, and what they hold beside the policy. */
#include "rl/role.h"

#include "base/alloc.h"
#include "base/larger.h"
#include "layout/layout.h"
#include "pass/transformer.h"
#include "rl/models.h"

#include <string.h>

treadle_status treadle_rl_check_vocabulary(const treadle_model *model, const treadle_model *policy) {
  treadle_transformer *a = NULL, *b = NULL;
  treadle_status status;
  TRY(treadle_transformer_create(model, &a));
  TRY(treadle_transformer_create(policy, &b));
  if (a->vocabulary != b->vocabulary)
    status = treadle_fail(TREADLE_REFUSED, "its vocabulary has %lld ids, and that of the policy %lld",
                          (long long)a->vocabulary, (long long)b->vocabulary);
out:
  treadle_transformer_destroy(a);
  treadle_transformer_destroy(b);
  return status;
}

treadle_tenant_options treadle_rl_role_options(const treadle_rl_role *role, const treadle_rl_task *task,
                                               const treadle_trainer_options *trainer) {
  return (treadle_tenant_options){.trainer = trainer,
                                  .page_bytes = treadle_rl_page_bytes(role->model),
                                  .timeout_seconds = 600,
                                  .open = task->options->open_train,
                                  .context = task->options->train_context};
}

/* ---- What it holds ---------------------------------------------------------------------------------------------- */

static size_t sum_of(const size_t *bytes) {
  size_t sum = 0;
  for (int c = 0; c < TREADLE_CLASSES; c++) sum += bytes[c];
  return sum;
}

treadle_status treadle_rl_role_foresee(const treadle_layout *layout, const treadle_tenant_options *options,
                                       treadle_tenant_memory **all_p) {
  treadle_tenant_memory *all = treadle_alloc_array((size_t)layout->ranks, sizeof *all);
  treadle_status status;
  *all_p = all;
  if (!all)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for the forecast of %lld ranks",
                        (long long)layout->ranks);
  TRY(treadle_tenant_foresee(layout, options, all));
out:
  return status;
}

/* Its calls come while the policy is in mode FORWARD, and another role at rest. */
static void add(treadle_actor_memory *m, const treadle_tenant_memory *role) {
  const size_t rest = sum_of(role->rest);
  const bool has_other = sum_of(m->with_critic) > 0;
  size_t called[TREADLE_CLASSES];
  for (int c = 0; c < TREADLE_CLASSES; c++) {
    called[c] = m->by_mode[TREADLE_FORWARD][c] + role->train[c];
    for (int mode = TREADLE_TRAIN; mode <= TREADLE_FORWARD; mode++)
      if (mode != TREADLE_LOST) m->by_mode[mode][c] += role->rest[c];
    if (m->with_reference[TREADLE_REFERENCE]) m->with_reference[c] += role->rest[c];
    if (has_other) m->with_critic[c] += role->rest[c];
  }
  if (sum_of(called) > sum_of(m->with_critic)) memcpy(m->with_critic, called, sizeof called);
  m->peak_bytes = treadle_larger_size(m->peak_bytes + rest, sum_of(called));
  m->least_bytes = treadle_larger_size(m->least_bytes + rest, sum_of(called));
}

void treadle_rl_role_add(treadle_actor_memory *by_rank, const treadle_tenant_memory *all, int64_t ranks) {
  for (int64_t rank = 0; rank < ranks; rank++) add(&by_rank[rank], &all[rank]);
}

size_t treadle_rl_role_resting(const treadle_tenant_memory *all, int64_t ranks) {
  size_t most = 0;
  for (int64_t rank = 0; rank < ranks; rank++) most = treadle_larger_size(most, sum_of(all[rank].rest));
  return most;
}
