/* Which rank has the state of which elements. Those of the window of gradients follow each other in two lines, without what lies between
 * them: the experts', where data parallel ranks have different ones, and all others. Each line is divided among the ranks that add up its
 * gradients. */
#include "train/optimizer.h"

#include "base/dtype.h"
#include "base/larger.h"

#include <string.h>

enum { LINE = 16 /* elements: shares begin at whole lines of a cache */ };

static treadle_train_kind kind_of(const treadle_train_optimizer *o, const treadle_storage *storage) {
  return o->parts_experts && storage->slots ? TREADLE_TRAIN_EXPERTS : TREADLE_TRAIN_DENSE;
}

static int64_t parts_of(const treadle_storage *storage) { return storage->by_expert ? storage->slots : 1; }

static int64_t elements_of(const treadle_storage *storage) {
  return storage->bytes / (int64_t)sizeof(float);
}

/* Elements of both lines. Adapters are one storage tensor, which a plan has no layout of. */
static void count_elements(const treadle_train_optimizer *o, int64_t all[TREADLE_TRAIN_KINDS]) {
  const treadle_train_windows *w = o->windows;
  int32_t count;
  all[TREADLE_TRAIN_DENSE] = (int64_t)(w->adapter_bytes / sizeof(float));
  all[TREADLE_TRAIN_EXPERTS] = 0;
  if (w->adapter_bytes) return;
  const treadle_storage *grads = treadle_layout_storages(w->grad_layout, w->rank, &count);
  for (int32_t s = 0; s < count; s++)
    all[kind_of(o, &grads[s])] += parts_of(&grads[s]) * elements_of(&grads[s]);
}

/* What a member has of a line. */
static treadle_row_range share_of(const treadle_train_optimizer *o, int64_t all, int64_t member,
                                  int64_t members) {
  const int64_t lines = (all + LINE - 1) / LINE;
  if (member < 0) return (treadle_row_range){0, 0};
  if (!o->distributed) return (treadle_row_range){0, all};
  return (treadle_row_range){treadle_smaller(lines * member / members * LINE, all),
                             treadle_smaller(lines * (member + 1) / members * LINE, all)};
}

int64_t treadle_train_state_elements(const treadle_train_optimizer *o) {
  int64_t all[TREADLE_TRAIN_KINDS], sum = 0;
  if (!o->windows->grad_bytes) return 0;
  count_elements(o, all);
  for (int kind = 0; kind < TREADLE_TRAIN_KINDS; kind++) {
    const treadle_row_range share = share_of(o, all[kind], o->member[kind], o->members[kind]);
    sum += share.end - share.first;
  }
  return sum;
}

/* Of a member of each line; -1: nothing of it. */
static treadle_status each_run(const treadle_train_optimizer *o, const int64_t member[TREADLE_TRAIN_KINDS],
                               treadle_train_run_work work, void *context) {
  const treadle_train_windows *w = o->windows;
  int32_t count;
  const treadle_storage *grads = treadle_layout_storages(w->grad_layout, w->rank, &count),
                        *weights = treadle_layout_storages(w->trained_layout, w->rank, &count);
  int64_t all[TREADLE_TRAIN_KINDS], at[TREADLE_TRAIN_KINDS] = {0}; /* at: elements of the line before */
  treadle_row_range share[TREADLE_TRAIN_KINDS];
  treadle_status status = TREADLE_OK;
  count_elements(o, all);
  for (int kind = 0; kind < TREADLE_TRAIN_KINDS; kind++)
    share[kind] = share_of(o, all[kind], member[kind], o->members[kind]);
  for (int32_t s = 0; s < count; s++) {
    const treadle_storage *grad = &grads[s], *weight = &weights[s];
    const treadle_train_kind kind = kind_of(o, grad);
    const int64_t elements = elements_of(grad),
                  before = kind ? share[TREADLE_TRAIN_DENSE].end - share[TREADLE_TRAIN_DENSE].first : 0;
    for (int64_t part = 0; part < parts_of(grad); part++, at[kind] += elements) {
      const int64_t first = treadle_larger(at[kind], share[kind].first),
                    end = treadle_smaller(at[kind] + elements, share[kind].end);
      if (first >= end) continue;
      const treadle_train_run run = {
          .grad = (grad->offset + part * grad->slot_stride) / (int64_t)sizeof(float) + first - at[kind],
          .state = before + first - share[kind].first,
          .count = end - first,
          .weights = w->trained + weight->offset + part * weight->slot_stride +
                     (first - at[kind]) * (int64_t)treadle_dtype_bytes(weight->dtype),
          .dtype = weight->dtype,
          .decays = grad->ndim > 1,
          .changes = !w->changes || w->changes[s]};
      TRY(work(context, &run));
    }
  }
out:
  return status;
}

treadle_status treadle_train_each_run(const treadle_train_optimizer *o, treadle_train_run_work work,
                                      void *context) {
  return each_run(o, o->member, work, context);
}

/* ---- All shares ------------------------------------------------------------------------------------------ */

typedef struct bringing {
  const treadle_train_optimizer *of;
  treadle_exchange *among;
  bool speaks;  /* it is this rank's share */
  bool weights; /* or the window of gradients */
} bringing;

static treadle_status bring_run(void *context, const treadle_train_run *run) {
  const bringing *w = context;
  const treadle_train_optimizer *o = w->of;
  const bool weights = w->weights;
  const int64_t bytes = run->count * (int64_t)(weights ? treadle_dtype_bytes(run->dtype) : sizeof(float)),
                most = (int64_t)(o->ranks->room.pieces * sizeof(float));
  char *values = weights ? run->weights : (char *)(treadle_train_grads(o->windows) + run->grad);
  int64_t others;
  treadle_status status = TREADLE_OK;
  if (weights && !run->changes) return TREADLE_OK;
  for (int64_t at = 0; at < bytes; at += most) {
    const int64_t some = treadle_smaller(bytes - at, most),
                  floats = (some + (int64_t)sizeof(float) - 1) / (int64_t)sizeof(float);
    const treadle_exchange_part part = treadle_exchange_slot(1, 0, w->speaks, 1, floats);
    if (w->speaks) memcpy(treadle_exchange_room(w->among), values + at, (size_t)some);
    TRY(treadle_parallel_slots(w->among, &part, "shares of the optimizer"));
    if (!w->speaks) memcpy(values + at, treadle_parallel_slot(w->among, 0, &others), (size_t)some);
  }
out:
  return status;
}

static treadle_status bring_shares(const treadle_train_optimizer *o, bool weights) {
  treadle_status status = TREADLE_OK;
  for (int kind = 0; o->distributed && kind < TREADLE_TRAIN_KINDS; kind++) {
    bringing w = {o, kind == TREADLE_TRAIN_EXPERTS ? o->ranks->expert_replicas : o->ranks->replicas,
                  .weights = weights};
    for (int64_t m = 0; w.among && m < o->members[kind]; m++) {
      int64_t member[TREADLE_TRAIN_KINDS] = {-1, -1};
      member[kind] = m;
      w.speaks = m == o->member[kind];
      TRY(each_run(o, member, bring_run, &w));
    }
  }
out:
  return status;
}

treadle_status treadle_train_bring_weights(const treadle_train_optimizer *o) {
  return bring_shares(o, true);
}

treadle_status treadle_train_bring_state(const treadle_train_optimizer *o) {
  return bring_shares(o, false);
}
