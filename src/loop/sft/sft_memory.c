/* What ranks of a run will hold, and, where that is more than the budget, what would fit. */
#include "sft/sft.h"

#include "base/alloc.h"
#include "base/text.h"

#include <string.h>

typedef struct fullest {
  int rank;
  treadle_trainer_memory memory;
} fullest;

static treadle_status find_fullest(const treadle_sft *sft, const treadle_trainer_options *options,
                                   treadle_trainer_memory *by_rank, fullest *found_p) {
  treadle_status status = treadle_trainer_foresee(sft->layout, options, by_rank);
  if (status) return status;
  *found_p = (fullest){0, by_rank[0]};
  for (int rank = 1; rank < sft->ranks; rank++)
    if (by_rank[rank].peak > found_p->memory.peak) *found_p = (fullest){rank, by_rank[rank]};
  return TREADLE_OK;
}

/* ---- What would fit --------------------------------------------------------------------------------------- */

enum { RECOMPUTE = 1, DISTRIBUTED = 2, ONE_ROW = 4, OFFLOAD = 8 };

/* From the cheapest on. */
static const struct {
  int what;
  const char *text;
} remedies[] = {
    {DISTRIBUTED, "megatron_training.use_distributed_optimizer=true"},
    {ONE_ROW, "actor_config.micro_batch_size=1"},
    {RECOMPUTE, "megatron_training.recompute_granularity=full"},
    {ONE_ROW | RECOMPUTE,
     "actor_config.micro_batch_size=1 with megatron_training.recompute_granularity=full"},
    {ONE_ROW | RECOMPUTE | DISTRIBUTED,
     "actor_config.micro_batch_size=1 with megatron_training.recompute_granularity=full and "
     "megatron_training.use_distributed_optimizer=true"},
    {ONE_ROW | RECOMPUTE | OFFLOAD,
     "actor_config.micro_batch_size=1 with megatron_training.recompute_granularity=full and "
     "actor_config.offload_policy=true"},
};

static bool can(const treadle_sft *sft, int what) {
  bool shards = sft->settings->actor.strategy == TREADLE_STRATEGY_FSDP2;
  if (what & DISTRIBUTED && shards) return false;
  if (what & OFFLOAD && !shards) return false;
  return !(what & ONE_ROW) || sft->settings->actor.micro_batch_size > 0;
}

static treadle_trainer_options with(const treadle_sft *sft, const treadle_trainer_options *options,
                                    int what) {
  treadle_trainer_options o = *options;
  if (what & RECOMPUTE) o.recompute = true;
  if (what & DISTRIBUTED) o.distributed_optimizer = true;
  if (what & OFFLOAD) o.offload_policy = true;
  if (what & ONE_ROW) {
    o.most_rows = o.most_tokens;
    o.most_micro_batches *= (int32_t)sft->settings->actor.micro_batch_size;
  }
  return o;
}

/* A sentence. */
static treadle_status find_remedy(const treadle_sft *sft, const treadle_trainer_options *options,
                                  treadle_trainer_memory *by_rank, char *text, size_t room) {
  size_t least = SIZE_MAX, best = 0;
  for (size_t i = 0; i < sizeof remedies / sizeof *remedies; i++) {
    if (!can(sft, remedies[i].what)) continue;
    treadle_trainer_options o = with(sft, options, remedies[i].what);
    fullest found;
    treadle_status status = find_fullest(sft, &o, by_rank, &found);
    if (status) return status;
    if (found.memory.peak <= sft->options->budget_bytes) {
      snprintf(text, room, "%s would fit: %zu bytes", remedies[i].text, found.memory.peak);
      return TREADLE_OK;
    }
    if (found.memory.peak < least) {
      least = found.memory.peak;
      best = i;
    }
  }
  snprintf(text, room, "%s needs %zu bytes still: more ranks must divide the model", remedies[best].text,
           least);
  return TREADLE_OK;
}

static treadle_status refuse(const treadle_sft *sft, const treadle_trainer_options *options,
                             treadle_trainer_memory *by_rank, const fullest *found) {
  const treadle_trainer_memory m = found->memory;
  char remedy[400];
  treadle_status status = find_remedy(sft, options, by_rank, remedy, sizeof remedy);
  if (status) return status;
  return treadle_fail(
      TREADLE_REFUSED,
      "the budget of %zu bytes is %zu too small: rank %d needs %zu, which are %zu of params, "
      "%zu of grads, %zu of optimizer and %zu of work%s; %s",
      sft->options->budget_bytes, m.peak - sft->options->budget_bytes, found->rank, m.peak, m.params,
      m.grads, m.optimizer, m.work + m.board,
      options->offload_policy ? " (all but work in host memory)" : "", remedy);
}

treadle_status treadle_sft_predict(treadle_sft *sft, const treadle_trainer_options *options,
                                   treadle_trainer_memory *by_rank) {
  const size_t ranks = (size_t)sft->ranks, budget = sft->options->budget_bytes;
  treadle_trainer_memory *all = treadle_alloc_array(ranks, sizeof *all);
  fullest found;
  treadle_status status;
  if (!all) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu ranks", ranks);
  TRY(find_fullest(sft, options, all, &found));
  if (by_rank) memcpy(by_rank, all, ranks * sizeof *all);
  sft->predicted = found.memory.peak;
  if (budget && found.memory.peak > budget) TRY(refuse(sft, options, all, &found));
out:
  treadle_free(all);
  return status;
}
