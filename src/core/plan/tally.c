/* Tallies. A walk with one wave has the fewest ops. */
#include "plan/tally.h"

#include "base/dtype.h"
#include "base/hash.h"
#include "base/hash_index.h"
#include "plan/sinks.h"

typedef struct tally {
  const treadle_layout *layouts[TREADLE_SIDES];
  const uint64_t *kin;
  treadle_holdings holdings[TREADLE_SIDES];
  int32_t *times; /* by tensor: how many it counts for */
  treadle_pieces pieces[TREADLE_SIDES], all;
} tally;

static bool is_held(const tally *t, int side, int32_t tensor) {
  const treadle_holdings *h = &t->holdings[side];
  if (treadle_layout_forms(t->layouts[side])) return h->first[tensor] < h->first[tensor + 1];
  return h->at[tensor] >= 0;
}

static uint64_t hash_holdings(const tally *t, uint64_t key, int32_t tensor) {
  key = treadle_hash_more(key, t->kin[tensor]);
  for (int side = 0; side < TREADLE_SIDES; side++) {
    const treadle_holdings *h = &t->holdings[side];
    const treadle_form *forms = treadle_layout_forms(t->layouts[side]);
    key = treadle_hash_more(key, h->at[tensor] >= 0 ? h->list.items[h->at[tensor]].apart : 0);
    key = treadle_hash_more(key, forms ? (uint64_t)forms[tensor].like : 0);
  }
  return key;
}

/* Weights in blocks and their scales are made together.
 * So the key has what is held of both, on both sides of the pair. */
static uint64_t key_of(const tally *t, int32_t tensor) {
  const treadle_tensor *of = &t->layouts[0]->model->tensors[tensor];
  int32_t beside = of->scale_of >= 0 ? of->scale_of : of->scale;
  uint64_t key = hash_holdings(t, 0, tensor);
  return beside >= 0 ? hash_holdings(t, key, beside) : key;
}

/* Which tensors count for others.
 * times[t] is 0 for those that another one counts for: of layers 0 to 31 that lie alike, 32 and 31 zeros. */
static treadle_status count_times(tally *t) {
  treadle_status status = TREADLE_OK;
  int32_t tensors = t->layouts[0]->model->tensor_count, counts;
  treadle_hash_index first = {0}; /* the tensor that counts for all with a key */
  t->times = treadle_alloc_array((size_t)tensors + 1, sizeof *t->times);
  if (!t->times) return treadle_fail(TREADLE_NO_MEMORY, "plan: memory is out");
  for (int32_t i = 0; i < tensors; i++) {
    if (!is_held(t, TREADLE_FROM, i) && !is_held(t, TREADLE_TO, i)) continue;
    TRY(treadle_hash_index_put(&first, key_of(t, i), i, &counts));
    t->times[counts]++;
  }
out:
  treadle_hash_index_release(&first);
  return status;
}

/* The pieces that are walked, and the bytes of all fills.
 * With forms pieces are asked for tensor by tensor, and fills count as often as their tensor does. Without
 * forms one turn goes through all that the rank holds, where each fill stands itself. */
static treadle_status list_pieces(tally *t, int side, int64_t rank, int64_t *fill_bytes_p) {
  treadle_status status = TREADLE_OK;
  const treadle_layout *layout = t->layouts[side];
  const treadle_form *forms = treadle_layout_forms(layout);
  treadle_pieces *listed = forms ? &t->all : &t->holdings[side].pieces;
  int32_t times = 1;
  size_t done = 0;
  *fill_bytes_p = t->all.count = 0;
  for (int32_t i = 0; i < (forms ? layout->model->tensor_count : 1); i++) {
    if (forms) {
      times = t->times[i];
      if (times > 0 && is_held(t, side, i)) TRY(treadle_layout_bundles_with_fills(layout, rank, i, listed));
    }
    for (; done < listed->count; done++) {
      const treadle_piece *piece = &listed->items[done];
      if (piece->tensor < 0)
        *fill_bytes_p += times * piece->box.size[0] * (int64_t)treadle_dtype_bytes(piece->dtype);
      else if (t->times[piece->tensor] > 0)
        TRY(treadle_array_push(&t->pieces[side], *piece));
    }
  }
out:
  return status;
}

/* Forward walks the pieces of the window of `to`, back those of `from`. Both count by `times`. Lower
 * bounds are counted in the same way, over the same pieces. */
treadle_status treadle_tally(treadle_plan *plan, const treadle_lanes *lanes,
                             const treadle_window_tracks *tracks) {
  treadle_status status = TREADLE_OK;
  treadle_lanes one = *lanes;
  int64_t fills[TREADLE_SIDES];
  tally t = {.layouts = {plan->from, plan->to},
             .kin = tracks->kin,
             .holdings = {{.layout = plan->from}, {.layout = plan->to}}};
  treadle_op_sink forward = treadle_op_sink_make(plan, NULL, false, &plan->forward);
  treadle_op_sink back = treadle_op_sink_make(plan, NULL, true, &plan->back);
  static const treadle_arrangement plain; /* where things lie does not matter */
  forward.arrangement = back.arrangement = &plain;
  forward.sink.figures = back.sink.figures = true;
  one.waves = 1;
  for (int side = 0; side < TREADLE_SIDES; side++)
    TRY(treadle_holdings_take(&t.holdings[side], plan->rank));
  TRY(count_times(&t));
  for (int side = 0; side < TREADLE_SIDES; side++) TRY(list_pieces(&t, side, plan->rank, &fills[side]));
  const treadle_counting counting = {t.times, tracks->kin, tracks->sums};
  forward.times = back.times = t.times;
  forward.sink.counting = back.sink.counting = &counting;
  TRY(treadle_direction_walk_pieces(&one, plan->from, plan->to, plan->rank, &t.pieces[TREADLE_TO],
                                    &forward.sink));
  TRY(treadle_layout_inbound_of(plan->from, plan->to, plan->rank, &t.pieces[TREADLE_TO], &counting,
                                plan->cuts_of_all, &plan->forward.lower_bound_bytes));
  TRY(treadle_direction_walk_pieces(&one, plan->to, plan->from, plan->rank, &t.pieces[TREADLE_FROM],
                                    &back.sink));
  TRY(treadle_layout_inbound_of(plan->to, plan->from, plan->rank, &t.pieces[TREADLE_FROM], &counting,
                                plan->cuts_of_all, &plan->back.lower_bound_bytes));
  plan->forward.fill_bytes += fills[TREADLE_TO];
  plan->forward.written_bytes += fills[TREADLE_TO];
out:
  treadle_op_sink_release(&forward);
  treadle_op_sink_release(&back);
  for (int side = 0; side < TREADLE_SIDES; side++) {
    treadle_holdings_release(&t.holdings[side]);
    treadle_array_release(&t.pieces[side]);
  }
  treadle_array_release(&t.all);
  treadle_free(t.times);
  return status;
}
