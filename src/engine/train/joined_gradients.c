/* Gradients of ranks that have had different rows, or different layers, become sums over all of them: of the halves of a tied gradient, which
 * the first and the last stage have; of context parallel ranks; and of data parallel ones. Where these, too, have different experts, the
 * gradients of an expert are added by the ranks that have it, in all replicas. */
#include "train/back_head.h"
#include "train/context.h"
#include "train/trainer.h"

#include <string.h>

/* values [count] = the sum over all members, piece by piece; `of`: which one this rank is. */
static treadle_status add_members(treadle_exchange *exchange, treadle_leaf_range mine, float *values,
                                  int64_t count, const char *what) {
  treadle_status status = TREADLE_OK;
  for (int64_t at = 0; at < count; at += TREADLE_TRAIN_PIECE) {
    int64_t some = count - at < TREADLE_TRAIN_PIECE ? count - at : TREADLE_TRAIN_PIECE;
    memcpy(treadle_exchange_room(exchange), values + at, (size_t)some * sizeof *values);
    TRY(treadle_parallel_sum(exchange, mine, 1, some, values + at, what));
  }
out:
  return status;
}

static treadle_status join_ends(treadle_exchange *ends, const treadle_back *back, bool is_first) {
  const bool tied = back->transformer->embed == back->transformer->head;
  const treadle_weight *grad = is_first || !tied ? &back->grad_embed : &back->grad_head;
  const treadle_leaf_range mine = {is_first ? 0 : 1, 1, 2};
  int64_t hidden = back->transformer->hidden;
  treadle_status status = TREADLE_OK;
  for (int32_t s = 0; s < grad->segment_count; s++)
    TRY(add_members(ends, mine, (float *)(void *)(back->window + grad->segments[s].at),
                    grad->segments[s].rows * hidden, "halves of the embedding's gradient"));
out:
  return status;
}

/* Those of experts, of ranks that have the same ones; or all others. */
static treadle_status add_some(treadle_exchange *exchange, treadle_leaf_range mine,
                               const treadle_train_windows *w, bool experts) {
  int32_t count;
  const treadle_storage *storages = treadle_layout_storages(w->grad_layout, w->rank, &count);
  treadle_status status = TREADLE_OK;
  for (int32_t s = 0; s < count; s++) {
    const treadle_storage *one = &storages[s];
    if (experts != (one->slots > 0)) continue;
    for (int64_t part = 0; part < (one->by_expert ? one->slots : 1); part++)
      TRY(add_members(
          exchange, mine,
          treadle_train_grads(w) + (one->offset + part * one->slot_stride) / (int64_t)sizeof(float),
          one->bytes / (int64_t)sizeof(float), experts ? "gradients of experts" : "gradients of layers"));
  }
out:
  return status;
}

static treadle_status add_data_ranks(const treadle_train_ranks *ranks, const treadle_back *back,
                                     const treadle_train_windows *w, treadle_leaf_range mine) {
  const treadle_replica *replica = back->pass->replica;
  const treadle_leaf_range experts = {(int32_t)replica->number, 1, (int32_t)replica->count};
  treadle_status status = TREADLE_OK;
  if (!ranks->replicas || mine.all == 1) return TREADLE_OK;
  if (!treadle_context_has_data_groups(back))
    return add_members(ranks->replicas, mine, treadle_train_grads(w),
                       (int64_t)(w->grad_bytes / sizeof(float)), "gradients of the replicas");
  TRY(add_some(ranks->replicas, mine, w, false));
  if (ranks->expert_replicas) TRY(add_some(ranks->expert_replicas, experts, w, true));
out:
  return status;
}

treadle_status treadle_train_join_gradients(treadle_trainer *t) {
  const treadle_train_context *c = &t->back.context;
  const int64_t count = (int64_t)(t->windows.grad_bytes / sizeof(float));
  /* Context parallel ranks have one sum by then: the first of each data parallel coordinate brings it. */
  const treadle_leaf_range parts = {c->index, 1, c->ranks},
                           mine = {(int32_t)t->data_rank,
                                   c->index == 0 || treadle_context_spreads_experts(&t->back),
                                   (int32_t)t->data_ranks};
  treadle_status status = TREADLE_OK;
  if (t->shards && !t->adapters) return TREADLE_OK; /* it was done unit by unit */
  treadle_back_tie(&t->back);
  TRY(treadle_train_copy_experts(&t->back, &t->ranks.room.pass));
  if (t->ranks.ends) TRY(join_ends(t->ranks.ends, &t->back, t->stage.number == 0));
  if (c->ranks > 1 && treadle_context_spreads_experts(&t->back)) /* experts are whole where they are */
    TRY(add_some(t->pass->context.exchange, parts, &t->windows, false));
  else if (c->ranks > 1)
    TRY(add_members(t->pass->context.exchange, parts, treadle_train_grads(&t->windows), count,
                    "gradients of context parallel ranks"));
  TRY(add_data_ranks(&t->ranks, &t->back, &t->windows, mine));
out:
  return status;
}
