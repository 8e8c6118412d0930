/* Experts that several ranks of a stage have, in all groups. One of them computes (pass/pass_ranks.c); what it has added up becomes the gradient of the others,
 * so that all take the same step. */
#include "train/trainer.h"

#include "train/back_product.h"

#include <string.h>

typedef struct copying {
  const treadle_back *back;
  const treadle_board_set *set; /* the ranks among which experts are divided */
  treadle_exchange *exchange;
  int32_t source;
  bool brings;
} copying;

static void take_rows(const copying *w, const treadle_weight *grad, int64_t first, int64_t rows,
                      const float *from) {
  for (int64_t r = 0; r < rows; r++)
    memcpy(treadle_back_grad(w->back, grad, first + r), from + r * grad->column_count,
           (size_t)grad->column_count * sizeof *from);
}

static void bring_rows(const copying *w, const treadle_weight *grad, int64_t first, int64_t rows,
                       float *to) {
  for (int64_t r = 0; r < rows; r++)
    memcpy(to + r * grad->column_count, treadle_back_grad(w->back, grad, first + r),
           (size_t)grad->column_count * sizeof *to);
}

/* A matrix of an expert, some of its rows at a time. All ranks of the stage make these calls. */
static treadle_status copy_matrix(const copying *w, const treadle_weight *grad, int64_t room) {
  const int64_t most = room / grad->columns;
  int64_t others;
  treadle_status status = TREADLE_OK;
  if (most < 1)
    return treadle_fail(TREADLE_REFUSED, "gradients of experts: there is room for %lld of %lld columns",
                        (long long)room, (long long)grad->columns);
  for (int64_t first = 0; first < grad->rows; first += most) {
    int64_t rows = grad->row_count - first < most ? grad->row_count - first : most;
    if (rows < 0) rows = 0;
    const treadle_exchange_part part =
        treadle_exchange_slot(w->set->count, w->set->index, w->brings, rows, grad->columns);
    if (w->brings) bring_rows(w, grad, first, rows, treadle_exchange_room(w->exchange));
    TRY(treadle_parallel_slots(w->exchange, &part, "gradients of experts"));
    if (!w->brings && w->source >= 0)
      take_rows(w, grad, first, rows, treadle_parallel_slot(w->exchange, w->source, &others));
  }
out:
  return status;
}

static treadle_status copy_layer(const treadle_back *back, int32_t layer, int64_t room) {
  const treadle_layer_weights *grads = &back->grads[layer];
  const treadle_pass_ranks *ranks = &back->pass->ranks;
  const treadle_board_set *set = ranks->groups.set ? ranks->groups.set : ranks->stage;
  treadle_exchange *exchange = ranks->groups.set ? ranks->groups.exchange : ranks->within;
  treadle_status status = TREADLE_OK;
  for (int32_t e = 0; e < back->transformer->routing.experts; e++) {
    const copying w = {back, set, exchange, ranks->expert_source[e], ranks->brings[e]};
    if (!ranks->expert_copied[e]) continue;
    TRY(copy_matrix(&w, &grads->expert_gate[e], room));
    TRY(copy_matrix(&w, &grads->expert_up[e], room));
    TRY(copy_matrix(&w, &grads->expert_down[e], room));
  }
out:
  return status;
}

treadle_status treadle_train_copy_experts(const treadle_back *back, const treadle_pass_board *rooms) {
  const treadle_pass_ranks *ranks = &back->pass->ranks;
  const int64_t room = (int64_t)(ranks->groups.set ? rooms->between : rooms->within);
  treadle_status status = TREADLE_OK;
  for (int32_t l = 0; (ranks->groups.set || ranks->within) && l < back->transformer->layers; l++)
    if (back->grads[l].expert_down && back->pass->layers[l].weight[TREADLE_ROLE_O].segment_count)
      TRY(copy_layer(back, l, room));
out:
  return status;
}
