/* Experts: each token goes to a few of them. The rows of one expert are computed together, as an MLP; each leaves its result in a
 * slot of its token, slots in ascending order of expert number. Then a token's slots are weighted and added in that order, and the
 * shared expert last. Nothing of it depends on which rank has an expert. */
#include "pass/pass_steps.h"

#include "nn/exp.h"

#include <math.h>
#include <string.h>

/* ---- Which experts ----------------------------------------------------------------------------------- */

typedef struct routing {
  treadle_pass *pass;
  int32_t layer;
  int64_t first, rows; /* all rows of the step, or, where they are added up, those from `first` on */
} routing;

static void route_rows(void *context, int32_t index, int32_t count) {
  const routing *w = context;
  const treadle_pass *p = w->pass;
  const treadle_transformer_routing *r = &p->transformer->routing;
  treadle_router router = p->router;
  router.bias = p->router_bias ? p->router_bias + w->layer * r->experts : NULL;
  float *scores = p->buffers.scores + index * 3 * r->experts;
  int64_t end = w->rows * (index + 1) / count;
  for (int64_t row = w->rows * index / count; row < end; row++)
    treadle_router_run(&router, p->row_ops, p->buffers.wide + row * p->buffers.wide_columns, scores,
                       p->buffers.routed + row * r->top);
}

static treadle_status route(treadle_pass *p, int32_t layer, int64_t rows) {
  treadle_pass_buffers *b = &p->buffers;
  routing w = {.pass = p, .layer = layer, .rows = rows};
  treadle_product product = {.x = b->normed,
                             .rows = rows,
                             .stride = p->transformer->hidden,
                             .leaves = 1,
                             .terms = {{&p->layers[layer].weight[TREADLE_ROLE_ROUTER], 0}},
                             .terms_count = 1,
                             .y = b->wide,
                             .y_stride = b->wide_columns};
  treadle_status status;
  TRY(treadle_pass_product(p, &product));
  treadle_team_run(p->team, route_rows, &w);
out:
  return status;
}

/* ---- Experts of this rank ----------------------------------------------------------------------------- */

/* The rows that go to an expert: their x side by side in buffers.gathered, and where their results go. */
static int64_t gather(treadle_pass *p, int32_t expert, int64_t rows) {
  int64_t top = p->transformer->routing.top, hidden = p->transformer->hidden, found = 0;
  for (int64_t row = 0; row < rows; row++)
    for (int64_t slot = 0; slot < top; slot++) {
      if (p->buffers.routed[row * top + slot].expert != expert) continue;
      memcpy(p->buffers.gathered + found * hidden, p->buffers.normed + row * hidden,
             (size_t)hidden * sizeof(float));
      p->buffers.places[found++] = row * top + slot;
    }
  return found;
}

static treadle_status run_expert(treadle_pass *p, int32_t layer, int32_t expert, int64_t rows) {
  const treadle_layer_weights *w = &p->layers[layer];
  int64_t hidden = p->transformer->hidden, places = rows * p->transformer->routing.top,
          found = gather(p, expert, rows);
  treadle_gated mlp = {.gate = &w->expert_gate[expert],
                       .up = &w->expert_up[expert],
                       .down = &w->expert_down[expert],
                       .leaves = p->expert_leaves};
  float *room = treadle_pass_expert_room(p);
  int32_t nodes = treadle_leaf_nodes(treadle_pass_leaves(mlp.down, mlp.leaves), NULL);
  treadle_status status;
  if (!found) return TREADLE_OK;
  TRY(treadle_pass_gated(p, &mlp, p->buffers.gathered, found, p->buffers.sum, found * hidden));
  for (int32_t n = 0; n < nodes; n++)
    for (int64_t i = 0; i < found; i++)
      memcpy(room + (n * places + p->buffers.places[i]) * hidden, p->buffers.sum + (n * found + i) * hidden,
             (size_t)hidden * sizeof(float));
out:
  return status;
}

/* ---- The sum ------------------------------------------------------------------------------------------ */

static treadle_status run_shared(treadle_pass *p, int32_t layer, int64_t rows) {
  const treadle_layer_weights *w = &p->layers[layer];
  treadle_pass_buffers *b = &p->buffers;
  treadle_gated mlp = {.gate = &w->weight[TREADLE_ROLE_SHARED_GATE],
                       .up = &w->weight[TREADLE_ROLE_SHARED_UP],
                       .down = &w->weight[TREADLE_ROLE_SHARED_DOWN],
                       .leaves = p->shared_leaves};
  treadle_product scale = {.x = b->normed,
                           .rows = rows,
                           .stride = p->transformer->hidden,
                           .leaves = 1,
                           .terms = {{&w->weight[TREADLE_ROLE_SHARED_SCALE], 0}},
                           .terms_count = 1,
                           .y = b->shared_scale,
                           .y_stride = 1};
  treadle_status status = TREADLE_OK;
  if (p->transformer->layer[layer].tensor[TREADLE_ROLE_SHARED_DOWN] < 0) return TREADLE_OK;
  if (w->weight[TREADLE_ROLE_SHARED_SCALE].segment_count) TRY(treadle_pass_product(p, &scale));
  if (!p->ranks.within || p->ranks.speaks[layer].shared)
    TRY(treadle_pass_gated(p, &mlp, b->normed, rows, b->sum, rows * p->transformer->hidden));
  TRY(treadle_pass_sum(p, mlp.down, mlp.leaves, p->ranks.speaks[layer].shared, rows));
  memcpy(b->shared, b->sum, (size_t)(rows * p->transformer->hidden) * sizeof(float));
out:
  return status;
}

/* Of the shared expert. An infinite weight of its gate would go unseen. */
static float scale_of(float logit) { return isfinite(logit) ? treadle_sigmoid(logit) : NAN; }

static void add_slots(void *context, int32_t index, int32_t count) {
  const routing *w = context;
  const treadle_pass *p = w->pass;
  const treadle_layer_weights *layer = &p->layers[w->layer];
  int64_t top = p->transformer->routing.top, hidden = p->transformer->hidden,
          end = w->first + w->rows * (index + 1) / count;
  bool shared = p->transformer->layer[w->layer].tensor[TREADLE_ROLE_SHARED_DOWN] >= 0,
       scaled = layer->weight[TREADLE_ROLE_SHARED_SCALE].segment_count > 0;
  for (int64_t row = w->first + w->rows * index / count; row < end; row++) {
    float *sum = p->buffers.normed + row * hidden; /* which nobody reads any more */
    memset(sum, 0, (size_t)hidden * sizeof(float));
    for (int64_t place = row * top; place < (row + 1) * top; place++) {
      const treadle_routed *routed = &p->buffers.routed[place];
      p->row_ops->add_scaled(sum, treadle_pass_expert_slot(p, routed->expert, place, w->rows * top),
                             routed->weight, hidden);
    }
    if (shared)
      p->row_ops->add_scaled(sum, p->buffers.shared + row * hidden,
                             scaled ? scale_of(p->buffers.shared_scale[row]) : 1.0f, hidden);
    p->row_ops->add(p->buffers.x + row * hidden, sum, TREADLE_FP32, hidden);
  }
}

void treadle_pass_add_slots(treadle_pass *pass, int32_t layer, int64_t first, int64_t rows) {
  routing w = {.pass = pass, .layer = layer, .first = first, .rows = rows};
  treadle_team_run(pass->team, add_slots, &w);
}

treadle_status treadle_pass_experts(treadle_pass *pass, int32_t layer, int64_t rows) {
  treadle_status status;
  TRY(route(pass, layer, rows));
  TRY(run_shared(pass, layer, rows));
  if (pass->ranks.groups.set) {
    TRY(treadle_pass_run_groups(pass, layer));
    goto out;
  }
  for (int32_t e = 0; e < pass->transformer->routing.experts; e++)
    if (pass->ranks.within ? pass->ranks.brings[e] : pass->layers[layer].expert_down[e].segment_count > 0)
      TRY(run_expert(pass, layer, e, rows));
  TRY(treadle_pass_bring_experts(pass, rows));
  treadle_pass_add_slots(pass, layer, 0, rows);
out:
  return status;
}
