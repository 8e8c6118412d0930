/* Experts: each token goes to a few of them. The rows of one expert are computed together, as an MLP, in blocks; each leaves its result
 * in a slot of its token, slots in ascending order of expert number. Then a token's slots are weighted and added in that order, and
 * the shared expert last. Nothing of it depends on which rank has an expert. */
#include "pass/pass_steps.h"

#include "base/larger.h"
#include "nn/exp.h"

#include <math.h>
#include <string.h>

/* ---- Which experts ----------------------------------------------------------------------------------- */

typedef struct routing {
  treadle_pass *pass;
  int32_t layer;
  int64_t first, rows; /* all rows of the step, or, where they are added up, those from `first` on */
  const treadle_pass_given *given;
  int64_t record, at; /* bytes of a record, and where this layer's begin */
} routing;

treadle_router treadle_pass_router(const treadle_pass *p, int32_t layer) {
  treadle_router router = p->router;
  router.bias = p->router_bias ? p->router_bias + layer * p->transformer->routing.experts : NULL;
  return router;
}

/* From the own choice of a row, which is told, to the one that it goes by. */
static void replay(const routing *w, const treadle_router *router, int64_t row, const float *logits,
                   float *scores, treadle_routed *routed) {
  const treadle_pass_given *g = w->given;
  const int top = router->top_k;
  const unsigned char *record = g->records ? g->records[row] : NULL;
  bool same = true;
  if (g->chosen) treadle_pass_write_choice(routed, top, g->chosen + row * w->record + w->at);
  for (int k = 0; record && k < top; k++)
    same = same && routed[k].expert == treadle_pass_recorded(record + w->at, k);
  if (same) return;
  g->found[row] |= TREADLE_PASS_DIFFERS;
  if (!g->replays) return;
  for (int k = 0; k < top; k++) routed[k].expert = treadle_pass_recorded(record + w->at, k);
  treadle_router_weigh(router, w->pass->row_ops, logits, scores, routed);
}

static void route_rows(void *context, int32_t index, int32_t count) {
  const routing *w = context;
  const treadle_pass *p = w->pass;
  const treadle_transformer_routing *r = &p->transformer->routing;
  const treadle_router router = treadle_pass_router(p, w->layer);
  float *scores = p->buffers.scores + index * 3 * r->experts;
  int64_t end = w->rows * (index + 1) / count;
  for (int64_t row = w->rows * index / count; row < end; row++) {
    const float *logits = p->buffers.wide + row * p->buffers.wide_columns;
    treadle_routed *routed = p->buffers.routed + row * r->top;
    treadle_router_run(&router, p->row_ops, logits, scores, routed);
    if (w->given) replay(w, &router, row, logits, scores, routed);
  }
}

/* The slots of each expert, ascending. */
void treadle_pass_list_places(treadle_pass *p, const treadle_routed *routed, int64_t rows) {
  const treadle_transformer_routing *r = &p->transformer->routing;
  int64_t *begin = p->buffers.expert_begin, at = 0;
  memset(begin, 0, (size_t)(r->experts + 1) * sizeof *begin);
  for (int64_t place = 0; place < rows * r->top; place++) begin[routed[place].expert]++;
  for (int64_t e = 0; e <= r->experts; e++) {
    int64_t count = begin[e];
    begin[e] = at;
    at += count;
  }
  for (int64_t place = 0; place < rows * r->top; place++)
    p->buffers.places[begin[routed[place].expert]++] = place;
  memmove(begin + 1, begin, (size_t)r->experts * sizeof *begin); /* each has gone on to the next one's */
  begin[0] = 0;
}

treadle_status treadle_pass_route(treadle_pass *p, int32_t layer, const treadle_pass_step *step) {
  treadle_pass_buffers *b = &p->buffers;
  routing w = {.pass = p,
               .layer = layer,
               .rows = step->rows,
               .given = step->experts,
               .record = treadle_transformer_record_bytes(p->transformer),
               .at = treadle_transformer_record_at(p->transformer, layer)};
  treadle_product product = {.x = b->normed,
                             .rows = step->rows,
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

typedef struct moving { /* rows of one expert */
  const treadle_pass *pass;
  const int64_t *places; /* [count] */
  int64_t count, rows;   /* rows: of the step */
  const float *from;
  float *to;
  int64_t nodes;
} moving;

static void gather_rows(void *context, int32_t index, int32_t count) {
  const moving *w = context;
  int64_t top = w->pass->transformer->routing.top, hidden = w->pass->transformer->hidden,
          end = w->count * (index + 1) / count;
  for (int64_t i = w->count * index / count; i < end; i++)
    memcpy(w->to + i * hidden, w->from + w->places[i] / top * hidden, (size_t)hidden * sizeof *w->to);
}

void treadle_pass_gather_places(const treadle_pass *p, const int64_t *places, int64_t count,
                                const float *from, float *to) {
  moving w = {.pass = p, .places = places, .count = count, .from = from, .to = to};
  treadle_pass_share(p, gather_rows, &w, count * p->transformer->hidden);
}

static void scatter_rows(void *context, int32_t index, int32_t count) {
  const moving *w = context;
  int64_t hidden = w->pass->transformer->hidden, all = w->rows * w->pass->transformer->routing.top;
  int64_t end = w->count * (index + 1) / count;
  for (int64_t n = 0; n < w->nodes; n++)
    for (int64_t i = w->count * index / count; i < end; i++)
      memcpy(w->to + (n * all + w->places[i]) * hidden, w->from + (n * w->count + i) * hidden,
             (size_t)hidden * sizeof *w->to);
}

void treadle_pass_scatter_places(const treadle_pass *p, const treadle_expert_rows *rows, const float *from,
                                 float *to) {
  moving w = {.pass = p,
              .places = rows->places,
              .count = rows->count,
              .rows = rows->of,
              .from = from,
              .to = to,
              .nodes = rows->nodes};
  treadle_pass_share(p, scatter_rows, &w, rows->count * p->transformer->hidden);
}

treadle_gated treadle_pass_expert_of(const treadle_pass *p, int32_t layer, int32_t expert) {
  const treadle_layer_weights *w = &p->layers[layer];
  return (treadle_gated){.gate = &w->expert_gate[expert],
                         .up = &w->expert_up[expert],
                         .down = &w->expert_down[expert],
                         .leaves = p->expert_leaves};
}

bool treadle_pass_brings(const treadle_pass *p, int32_t layer, int32_t expert) {
  return p->ranks.brings ? p->ranks.brings[expert] : p->layers[layer].expert_down[expert].segment_count > 0;
}

treadle_expert_rows treadle_pass_rows_of(const treadle_pass *p, int32_t layer, int32_t expert,
                                         int64_t rows) {
  const int64_t *begin = p->buffers.expert_begin;
  const treadle_leaf_range leaves =
      treadle_pass_leaves(&p->layers[layer].expert_down[expert], p->expert_leaves);
  return (treadle_expert_rows){.expert = expert,
                               .places = p->buffers.places + begin[expert],
                               .count = begin[expert + 1] - begin[expert],
                               .of = rows,
                               .nodes = treadle_leaf_nodes(leaves, NULL)};
}

treadle_status treadle_pass_each_block(treadle_pass *p, int32_t layer, int64_t rows,
                                       treadle_expert_work work, void *context) {
  const int64_t *begin = p->buffers.expert_begin;
  treadle_status status = TREADLE_OK;
  for (int32_t e = 0; e < p->transformer->routing.experts; e++) {
    if (begin[e] == begin[e + 1] || !treadle_pass_brings(p, layer, e)) continue;
    treadle_expert_rows block = treadle_pass_rows_of(p, layer, e, rows);
    for (int64_t at = begin[e]; at < begin[e + 1]; at += TREADLE_EXPERT_ROWS) {
      block.places = p->buffers.places + at;
      block.count = treadle_smaller(begin[e + 1] - at, TREADLE_EXPERT_ROWS);
      TRY(work(context, layer, &block));
    }
  }
out:
  return status;
}

static treadle_status run_block(void *context, int32_t layer, const treadle_expert_rows *block) {
  treadle_pass *p = context;
  const treadle_gated mlp = treadle_pass_expert_of(p, layer, block->expert);
  treadle_pass_buffers *b = &p->buffers;
  treadle_status status;
  treadle_pass_gather_places(p, block->places, block->count, b->normed, b->gathered);
  TRY(treadle_pass_gated(p, &mlp, b->gathered, block->count, b->sum,
                         block->count * p->transformer->hidden));
  treadle_pass_scatter_places(p, block, b->sum, treadle_pass_expert_room(p));
out:
  return status;
}

/* ---- The shared expert -------------------------------------------------------------------------------- */

treadle_gated treadle_pass_shared_of(const treadle_pass *p, int32_t layer) {
  const treadle_weight *weight = p->layers[layer].weight;
  return (treadle_gated){.gate = &weight[TREADLE_ROLE_SHARED_GATE],
                         .up = &weight[TREADLE_ROLE_SHARED_UP],
                         .down = &weight[TREADLE_ROLE_SHARED_DOWN],
                         .leaves = p->shared_leaves};
}

treadle_status treadle_pass_scale_shared(treadle_pass *p, int32_t layer, int64_t rows) {
  const treadle_weight *scale = &p->layers[layer].weight[TREADLE_ROLE_SHARED_SCALE];
  const treadle_product product = {.x = p->buffers.normed,
                                   .rows = rows,
                                   .stride = p->transformer->hidden,
                                   .leaves = 1,
                                   .terms = {{scale, 0}},
                                   .terms_count = 1,
                                   .y = p->buffers.shared_scale,
                                   .y_stride = 1};
  return scale->segment_count ? treadle_pass_product(p, &product) : TREADLE_OK;
}

treadle_status treadle_pass_sum_shared(treadle_pass *p, int32_t layer, int64_t rows) {
  treadle_pass_buffers *b = &p->buffers;
  treadle_status status;
  TRY(treadle_pass_sum(p, &p->layers[layer].weight[TREADLE_ROLE_SHARED_DOWN], p->shared_leaves,
                       p->ranks.speaks[layer].shared, rows));
  memcpy(b->shared, b->sum, (size_t)(rows * p->transformer->hidden) * sizeof(float));
out:
  return status;
}

static treadle_status run_shared(treadle_pass *p, int32_t layer, int64_t rows) {
  const treadle_gated mlp = treadle_pass_shared_of(p, layer);
  treadle_pass_buffers *b = &p->buffers;
  treadle_status status = TREADLE_OK;
  if (!treadle_transformer_shares(p->transformer, layer)) return TREADLE_OK;
  TRY(treadle_pass_scale_shared(p, layer, rows));
  if (!p->ranks.within || p->ranks.speaks[layer].shared)
    TRY(treadle_pass_gated(p, &mlp, b->normed, rows, b->sum, rows * p->transformer->hidden));
  TRY(treadle_pass_sum_shared(p, layer, rows));
out:
  return status;
}

/* ---- The sum ------------------------------------------------------------------------------------------ */

/* Of the shared expert. An infinite weight of its gate would go unseen. */
float treadle_pass_shared_scale(float logit) { return isfinite(logit) ? treadle_sigmoid(logit) : NAN; }

static void add_slots(void *context, int32_t index, int32_t count) {
  const routing *w = context;
  const treadle_pass *p = w->pass;
  const treadle_layer_weights *layer = &p->layers[w->layer];
  int64_t top = p->transformer->routing.top, hidden = p->transformer->hidden,
          end = w->first + w->rows * (index + 1) / count;
  const treadle_expert_results results = {.each = hidden, .places = w->rows * top};
  bool shared = treadle_transformer_shares(p->transformer, w->layer),
       scaled = layer->weight[TREADLE_ROLE_SHARED_SCALE].segment_count > 0;
  for (int64_t row = w->first + w->rows * index / count; row < end; row++) {
    float *sum = p->buffers.normed + row * hidden; /* which nobody reads any more */
    memset(sum, 0, (size_t)hidden * sizeof(float));
    for (int64_t place = row * top; place < (row + 1) * top; place++) {
      const treadle_routed *routed = &p->buffers.routed[place];
      p->row_ops->add_scaled(sum, treadle_pass_expert_result(p, &results, routed->expert, place),
                             routed->weight, hidden);
    }
    if (shared)
      p->row_ops->add_scaled(sum, p->buffers.shared + row * hidden,
                             scaled ? treadle_pass_shared_scale(p->buffers.shared_scale[row]) : 1.0f,
                             hidden);
    p->row_ops->add(p->buffers.x + row * hidden, sum, TREADLE_FP32, hidden);
  }
}

void treadle_pass_add_slots(treadle_pass *pass, int32_t layer, int64_t first, int64_t rows) {
  routing w = {.pass = pass, .layer = layer, .first = first, .rows = rows};
  treadle_team_run(pass->team, add_slots, &w);
}

treadle_status treadle_pass_run_experts(treadle_pass *p, int32_t layer, int64_t rows) {
  treadle_status status;
  if (p->ranks.groups.set) return treadle_pass_run_groups(p, layer);
  treadle_pass_list_places(p, p->buffers.routed, rows);
  TRY(treadle_pass_each_block(p, layer, rows, run_block, p));
  TRY(treadle_pass_bring_experts(p, p->buffers.expert_nodes * rows * p->transformer->routing.top));
  treadle_pass_add_slots(p, layer, 0, rows);
out:
  return status;
}

treadle_status treadle_pass_experts(treadle_pass *pass, int32_t layer, const treadle_pass_step *step) {
  treadle_status status;
  TRY(treadle_pass_route(pass, layer, step));
  TRY(run_shared(pass, layer, step->rows));
  TRY(treadle_pass_run_experts(pass, layer, step->rows));
out:
  return status;
}
