/* A layer forward. What its parts write goes straight into the memory that is kept, so that keeping costs two copies of the residual
 * stream. Whether layers are kept or run again, they are the same parts on the same values: the same bits. */
#include "train/trainer.h"

#include <string.h>

static size_t stream_bytes(const treadle_trainer *t, int64_t rows) {
  return (size_t)(rows * t->transformer->hidden) * sizeof(float);
}

/* The halves of a layer, on buffers.x of the pass; `down` may be left away, where nobody wants what comes behind it. */
static treadle_status run_halves(treadle_trainer *t, int32_t layer, const treadle_pass_step *step,
                                 const treadle_train_activations *kept, bool down) {
  treadle_pass *p = t->pass;
  treadle_pass_buffers *b = &p->buffers;
  const treadle_weight *weight = p->layers[layer].weight;
  treadle_gated mlp = treadle_pass_mlp_of(p, layer);
  treadle_status status;
  b->normed = t->buffers.normed;
  b->wide = kept->qkv;
  b->wide_columns = t->width.qkv;
  b->middle = kept->found;
  b->middle_columns = t->width.found;
  treadle_pass_norm(p, &weight[TREADLE_ROLE_ATTENTION_NORM], NULL, step->rows);
  TRY(treadle_pass_project(p, layer, step->rows));
  if (kept->raw) memcpy(kept->raw, kept->qkv, (size_t)(step->rows * t->width.qkv) * sizeof(float));
  TRY(treadle_pass_attend_rows(p, layer, step));
  if (kept->middle_x != b->x) memcpy(kept->middle_x, b->x, stream_bytes(t, step->rows));
  b->normed = t->buffers.normed2;
  b->wide = kept->gate_up;
  b->wide_columns = 2 * t->width.inner;
  b->middle = t->buffers.middle;
  b->middle_columns = t->width.inner;
  treadle_pass_norm(p, &weight[TREADLE_ROLE_MLP_NORM], NULL, step->rows);
  TRY(treadle_pass_gate_up(p, &mlp, b->normed, step->rows));
  if (down) TRY(treadle_pass_down(p, layer, step->rows));
out:
  return status;
}

static treadle_status run_layer(treadle_trainer *t, int32_t layer, const treadle_pass_step *step,
                                const treadle_train_activations *kept, float *x, bool down) {
  const treadle_pass_buffers own = t->pass->buffers;
  t->pass->buffers.x = x;
  treadle_status status = run_halves(t, layer, step, kept, down);
  t->pass->buffers = own;
  return status;
}

treadle_status treadle_train_forward(treadle_trainer *t, int32_t layer, const treadle_pass_step *step,
                                     const treadle_train_activations *kept) {
  float *x = t->pass->buffers.x;
  memcpy(kept->x, x, stream_bytes(t, step->rows));
  return t->keeps_all ? run_layer(t, layer, step, kept, x, true) : treadle_pass_layer(t->pass, layer, step);
}

/* ---- Before backward ---------------------------------------------------------------------------------- */

typedef struct middles {
  treadle_trainer *t;
  const float *gate_up;
  int64_t rows;
} middles;

static void activate(void *context, int32_t index, int32_t count) {
  const middles *w = context;
  int64_t inner = w->t->width.inner, end = w->rows * (index + 1) / count;
  for (int64_t r = w->rows * index / count; r < end; r++) {
    const float *gate = w->gate_up + r * 2 * inner;
    w->t->pass->row_ops->silu(w->t->buffers.middle + r * inner, gate, gate + inner, inner);
  }
}

static void norm(treadle_trainer *t, const treadle_weight *weight, float *x, float *normed, int64_t rows) {
  treadle_pass_buffers *b = &t->pass->buffers;
  const treadle_pass_buffers own = *b;
  b->x = x;
  b->normed = normed;
  treadle_pass_norm(t->pass, weight, NULL, rows);
  *b = own;
}

treadle_status treadle_train_prepare(treadle_trainer *t, int32_t layer, const treadle_pass_step *step,
                                     treadle_train_activations *kept_p) {
  const treadle_weight *weight = t->pass->layers[layer].weight;
  treadle_train_activations kept = *kept_p;
  if (!t->keeps_all) {
    *kept_p = treadle_train_again(t);
    kept_p->x = kept.x;
    kept_p->middle_x = t->buffers.x;
    memcpy(t->buffers.x, kept.x, stream_bytes(t, step->rows));
    return run_layer(t, layer, step, kept_p, t->buffers.x, false);
  }
  middles w = {.t = t, .gate_up = kept.gate_up, .rows = step->rows};
  norm(t, &weight[TREADLE_ROLE_ATTENTION_NORM], kept.x, t->buffers.normed, step->rows);
  norm(t, &weight[TREADLE_ROLE_MLP_NORM], kept.middle_x, t->buffers.normed2, step->rows);
  treadle_team_run(t->pass->team, activate, &w);
  return TREADLE_OK;
}
