/* What ranks of a run will hold, and, where that is more than there is, what would fit. */
#include "rl/loop.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/sized.h"

#include <string.h>

enum { RANKS_MOST = 1 << 16 };

static treadle_status plan(treadle_rl *rl, treadle_actor_memory *by_rank) {
  treadle_trainer_options trainer;
  treadle_engine_options engine;
  treadle_actor_options options;
  treadle_status status;
  TRY(treadle_rl_actor_options(rl, &trainer, &engine, &options));
  TRY(treadle_actor_plan(rl->train, rl->infer, &options, by_rank));
out:
  return status;
}

static treadle_status check_room(const treadle_rl *rl, const treadle_actor_memory *by_rank) {
  const treadle_train_settings *s = rl->settings;
  const size_t room = (size_t)((double)s->device_memory * s->gpu_memory_utilization);
  int worst = 0;
  if (!s->device_memory) return TREADLE_OK;
  for (int rank = 1; rank < rl->ranks; rank++)
    if (by_rank[rank].least_bytes > by_rank[worst].least_bytes) worst = rank;
  if (by_rank[worst].least_bytes <= room && by_rank[worst].kv_blocks > 0) return TREADLE_OK;
  return treadle_fail(
      TREADLE_REFUSED,
      "%s times %s leaves %zu bytes, and rank %d needs %zu: less would do with a smaller "
      "actor_config.micro_batch_size, megatron_training.recompute_granularity=full, "
      "generate_config.offload_train_param, offload_train_grad, offload_train_optimizer, a smaller "
      "generate_config.kv_memory or max_num_seqs, or more ranks",
      TREADLE_RL_PLACE(rl, device_memory), TREADLE_RL_PLACE(rl, gpu_memory_utilization), room, worst,
      by_rank[worst].least_bytes);
}

treadle_status treadle_rl_predict(treadle_rl *rl, treadle_actor_memory *by_rank) {
  treadle_actor_memory *all = treadle_alloc_array((size_t)rl->ranks, sizeof *all);
  treadle_status status;
  if (!all) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a plan of %d ranks", rl->ranks);
  TRY(plan(rl, all));
  if (by_rank) memcpy(by_rank, all, (size_t)rl->ranks * sizeof *all);
  rl->predicted = 0;
  for (int rank = 0; rank < rl->ranks; rank++)
    if (all[rank].peak_bytes > rl->predicted) rl->predicted = all[rank].peak_bytes;
  TRY(check_room(rl, all));
out:
  treadle_free(all);
  return status;
}

treadle_status treadle_rl_plan(const treadle_train_config *config, int64_t ranks,
                               const treadle_rl_options *options, treadle_actor_memory *by_rank) {
  treadle_rl_options o;
  treadle_rl *rl;
  treadle_status status;
  TREADLE_NEED(config);
  TREADLE_NEED(by_rank);
  TRY(TREADLE_TAKE(options, &o));
  if (ranks < 1 || ranks > RANKS_MOST) REFUSE("%lld ranks: 1 to %d", (long long)ranks, RANKS_MOST);
  rl = treadle_alloc(sizeof *rl);
  if (!rl) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a plan");
  rl->config = config;
  rl->options = &o;
  rl->ranks = (int)ranks;
  rl->plans = true;
  rl->settings = treadle_train_config_settings(config);
  status = treadle_rl_open_inputs(rl);
  if (!status) status = treadle_rl_predict(rl, by_rank);
  treadle_rl_close(rl);
  treadle_free(rl);
out:
  return status;
}
