/* Sums over ranks: of each layer, coordinate after coordinate, from the first rank that has the layer. */
#include "train/routers.h"

#include "base/dtype.h"
#include "group/group.h"
#include "memory/elements.h"
#include "weights/box_elements.h"

#include <math.h>
#include <string.h>

static treadle_status check_number(const char *name, double value) {
  if (!(value >= 0) || !isfinite(value)) REFUSE("%s %g: a number from 0 on", name, value);
  return TREADLE_OK;
}

treadle_status treadle_train_routers_take(const treadle_transformer *d, const treadle_trainer_options *o,
                                          treadle_arena *arena, treadle_train_routers *r) {
  const int64_t experts = d->routing.experts;
  treadle_status status;
  TRY(check_number("aux_loss_coeff", o->aux_loss_coeff));
  TRY(check_number("z_loss_coeff", o->z_loss_coeff));
  TRY(check_number("expert_bias_rate", o->expert_bias_rate));
  r->transformer = d;
  r->aux = o->aux_loss_coeff;
  r->z = o->z_loss_coeff;
  r->bias_rate = o->expert_bias_rate;
  r->frozen = o->freeze_routers;
  r->by_sequence = o->seq_aux_loss && r->aux > 0 && !o->forward_only;
  if (!experts && (r->aux > 0 || r->z > 0 || r->bias_rate > 0 || r->frozen))
    REFUSE("%s: the model has no experts, and aux_loss_coeff, z_loss_coeff, expert_bias_rate and "
           "freeze_routers are of their routers",
           d->model->path);
  if (r->bias_rate > 0 && !d->routing.sigmoid)
    REFUSE("expert_bias_rate %g: the routers of %s have no biases", r->bias_rate, d->model->path);
  if (!experts) goto out;
  r->counts = treadle_arena_alloc_array(arena, (size_t)(d->layers * experts), sizeof *r->counts);
  r->losses = treadle_arena_alloc_array(arena, (size_t)d->layers, sizeof *r->losses);
  r->by_probability = treadle_arena_alloc_array(arena, (size_t)experts, sizeof *r->by_probability);
  if (!r->counts || !r->losses || !r->by_probability)
    status =
        treadle_fail(TREADLE_NO_MEMORY, "no memory for the routers of %lld layers", (long long)d->layers);
out:
  return status;
}

void treadle_train_routers_begin(treadle_train_routers *r, int64_t tokens) {
  const treadle_transformer *d = r->transformer;
  r->tokens = (double)tokens;
  if (!r->counts) return;
  memset(r->counts, 0, (size_t)(d->layers * d->routing.experts) * sizeof *r->counts);
  memset(r->losses, 0, (size_t)d->layers * sizeof *r->losses);
}

/* E / (k T^2) * T / tokens, since micro batches are weighted. */
treadle_router_losses treadle_train_routers_of(treadle_train_routers *r, int32_t layer,
                                               const int64_t *begin, const treadle_routed *routed) {
  const treadle_transformer_routing *of = &r->transformer->routing;
  int64_t *counts = r->counts + layer * of->experts;
  const double tokens = (double)begin[of->experts] / (double)of->top, top = (double)of->top,
               all = r->aux * (double)of->experts, each = all / (top * tokens * r->tokens);
  for (int64_t e = 0; e < of->experts; e++) {
    const int64_t count = begin[e + 1] - begin[e];
    counts[e] += count;
    r->by_probability[e] = (float)(each * (double)count);
  }
  const float *by = r->by_probability;
  if (r->sequences.part) {
    treadle_sequence_losses_find(&r->sequences, routed, of->top, all / top * tokens / r->tokens);
    by = r->sequences.by_probability;
  }
  return (treadle_router_losses){.by_probability = r->aux > 0 ? by : NULL, .z = (float)(r->z / r->tokens)};
}

treadle_router_losses treadle_train_routers_at(const treadle_train_routers *r, treadle_router_losses losses,
                                               int64_t token) {
  const treadle_sequence_losses *s = &r->sequences;
  if (s->part && losses.by_probability) losses.by_probability += s->part[token] * s->experts;
  return losses;
}

/* ---- Sums over all ranks --------------------------------------------------------------------------------------- */

enum { SAID = 256 /* experts at a time */ };

typedef struct layer_sums {
  int64_t coordinate; /* -1: another rank says it */
  double loss;
  int64_t counts[SAID];
} layer_sums;

/* Experts [first, first + count) of a layer. */
static treadle_status add_coordinates(treadle_train_routers *r, int32_t layer, int64_t first,
                                      int64_t count) {
  int64_t *counts = r->counts + layer * r->transformer->routing.experts + first;
  const bool has = r->pass->layers[layer].weight[TREADLE_ROLE_ROUTER].segment_count > 0;
  layer_sums mine = {.coordinate = has ? r->data_rank : -1, .loss = r->losses[layer]};
  double loss = 0;
  treadle_status status;
  memcpy(mine.counts, counts, (size_t)count * sizeof *counts);
  memset(counts, 0, (size_t)count * sizeof *counts);
  TRY(treadle_group_say(r->ranks->group, &mine, sizeof mine));
  for (int64_t d = 0; d < r->data_ranks; d++) {
    const layer_sums *other = treadle_train_said(r->ranks, d);
    if (!other) continue;
    loss += other->loss;
    for (int64_t e = 0; e < count; e++) counts[e] += other->counts[e];
  }
  if (first + count == r->transformer->routing.experts) r->losses[layer] = loss;
out:
  return status;
}

/* The largest and the smallest number of choices of an expert over the mean. */
static void look_at_load(const int64_t *counts, int64_t experts, treadle_loss *loss_p) {
  int64_t most = counts[0], least = counts[0], all = 0;
  for (int64_t e = 0; e < experts; e++) {
    if (counts[e] > most) most = counts[e];
    if (counts[e] < least) least = counts[e];
    all += counts[e];
  }
  if (!all) return;
  const double mean = (double)all / (double)experts, high = (double)most / mean, low = (double)least / mean;
  if (high > loss_p->expert_load_max) loss_p->expert_load_max = high;
  if (low < loss_p->expert_load_min) loss_p->expert_load_min = low;
}

treadle_status treadle_train_join_routers(treadle_train_routers *r, treadle_loss *loss_p) {
  const treadle_transformer *d = r->transformer;
  treadle_status status = TREADLE_OK;
  if (!r->counts) return TREADLE_OK;
  loss_p->expert_load_min = INFINITY;
  for (int32_t l = 0; l < d->layers; l++) {
    if (!d->layer[l].sparse) continue;
    for (int64_t first = 0; r->ranks->board && first < d->routing.experts; first += SAID)
      TRY(add_coordinates(r, l, first,
                          d->routing.experts - first < SAID ? d->routing.experts - first : SAID));
    loss_p->aux_loss += r->losses[l];
    look_at_load(r->counts + l * d->routing.experts, d->routing.experts, loss_p);
  }
  if (!isfinite(loss_p->expert_load_min)) loss_p->expert_load_min = 0;
out:
  return status;
}

/* ---- Biases ---------------------------------------------------------------------------------------------------- */

/* Biases of a layer in a window of this layout: `look` is called for each run of them. */
static treadle_status each_bias(const treadle_train_routers *r, int32_t layer, treadle_elements_visit look,
                                void *context, treadle_dtype *dtype_p) {
  const treadle_layout *layout = r->windows->layout;
  const int32_t tensor = r->transformer->layer[layer].tensor[TREADLE_ROLE_ROUTER_BIAS];
  treadle_pieces pieces = {0};
  treadle_status status = TREADLE_OK;
  if (tensor < 0) return TREADLE_OK;
  TRY(treadle_layout_pieces_of(layout, r->windows->rank, tensor, &pieces));
  for (size_t p = 0; p < pieces.count; p++) {
    const treadle_piece *piece = &pieces.items[p];
    if (piece->tensor != tensor) continue;
    treadle_elements elements = treadle_elements_of_whole(&layout->model->tensors[tensor], piece->box.start,
                                                          piece->box.size, piece->offset, piece->stride);
    *dtype_p = piece->dtype;
    treadle_elements_each(&elements, look, context);
  }
out:
  treadle_array_release(&pieces);
  return status;
}

typedef struct biases {
  const char *window;
  char *moved;           /* the same window, where it is changed */
  float *to;             /* [experts] */
  const int64_t *counts; /* [experts] */
  double mean, rate;
  treadle_dtype dtype;
} biases;

static void read_run(void *context, int64_t index, int64_t at, int64_t step, int64_t count) {
  const biases *w = context;
  for (int64_t i = 0; i < count; i++)
    treadle_dtype_convert(w->to + index + i, TREADLE_FP32, w->window + at + i * step, w->dtype, 1);
}

treadle_status treadle_train_read_biases(const treadle_train_routers *r, const void *weights) {
  const treadle_transformer *d = r->transformer;
  treadle_status status = TREADLE_OK;
  for (int32_t l = 0; r->pass->router_bias && l < d->layers; l++) {
    biases w = {.window = weights, .to = r->pass->router_bias + l * d->routing.experts};
    TRY(each_bias(r, l, read_run, &w, &w.dtype));
  }
out:
  return status;
}

static void move_run(void *context, int64_t index, int64_t at, int64_t step, int64_t count) {
  const biases *w = context;
  for (int64_t i = 0; i < count; i++) {
    const double off = w->mean - (double)w->counts[index + i];
    float value;
    treadle_dtype_convert(&value, TREADLE_FP32, w->moved + at + i * step, w->dtype, 1);
    value = value + (float)(w->rate * ((off > 0) - (off < 0)));
    treadle_dtype_convert(w->moved + at + i * step, w->dtype, &value, TREADLE_FP32, 1);
  }
}

treadle_status treadle_train_move_biases(const treadle_train_routers *r) {
  const treadle_transformer *d = r->transformer;
  treadle_status status = TREADLE_OK;
  for (int32_t l = 0; r->bias_rate > 0 && l < d->layers; l++) {
    const int64_t *counts = r->counts + l * d->routing.experts;
    int64_t all = 0;
    for (int64_t e = 0; e < d->routing.experts; e++) all += counts[e];
    biases w = {.moved = r->windows->weights,
                .counts = counts,
                .mean = (double)all / (double)d->routing.experts,
                .rate = r->bias_rate};
    TRY(each_bias(r, l, move_run, &w, &w.dtype));
  }
  if (r->bias_rate > 0) TRY(treadle_train_read_biases(r, r->windows->weights));
out:
  return status;
}
