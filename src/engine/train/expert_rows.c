/* In the room of a rank are gradients of x, then derivatives by weights: [nodes, places, hidden] and [nodes, places] with
 * the places of all experts, or, where they are spread, of each expert that the rank brings its own rows. */
#include "train/expert_rows.h"

#include "base/larger.h"
#include "train/context.h"
#include "train/context_experts.h"

#include <string.h>

static bool spreads(const treadle_back *back) { return treadle_context_spreads_experts(back); }

/* ---- Which rows ---------------------------------------------------------------------------------------- */

treadle_status treadle_expert_rows_rounds(const treadle_back *back, int32_t layer, int64_t rows,
                                          treadle_group_work work, void *context) {
  if (spreads(back)) return treadle_pass_each_round(back->pass, layer, work, context);
  return work(context, layer, &(treadle_row_range){0, rows});
}

treadle_status treadle_expert_rows_begin(const treadle_back *back, const treadle_routed *routed) {
  const treadle_group_rows own = {.x = back->buffers.normed2, .dy = back->buffers.dx, .routed = routed};
  treadle_status status = TREADLE_OK;
  if (!spreads(back)) return TREADLE_OK;
  TRY(treadle_pass_bring_rows(back->pass, &own));
  treadle_pass_place_rows(back->pass);
out:
  return status;
}

treadle_status treadle_expert_rows_each(const treadle_back *back, int32_t layer, int64_t rows,
                                        treadle_expert_work work, void *context) {
  treadle_pass *p = back->pass;
  const treadle_pass_groups *g = &p->ranks.groups;
  treadle_status status = TREADLE_OK;
  if (!spreads(back)) return treadle_context_each_block(back, layer, rows, work, context);
  for (int32_t e = 0; e < p->transformer->routing.experts; e++) {
    if (!treadle_pass_brings(p, layer, e)) continue;
    treadle_expert_rows block = treadle_pass_rows_of(p, layer, e, rows);
    block.of = g->chosen[e];
    for (int64_t at = 0; at < block.of; at += TREADLE_EXPERT_ROWS) {
      block.places = p->buffers.places + g->first[e] + at;
      block.count = treadle_smaller(block.of - at, TREADLE_EXPERT_ROWS);
      TRY(work(context, layer, &block));
    }
  }
out:
  return status;
}

/* ---- A block ------------------------------------------------------------------------------------------- */

typedef struct taking {
  const treadle_back *back;
  const treadle_expert_rows *block;
  float *weights;
} taking;

/* A row as treadle_pass_bring_rows brings it. */
static void take_rows(void *context, int32_t index, int32_t count) {
  const taking *w = context;
  const treadle_pass *p = w->back->pass;
  const int64_t hidden = p->transformer->hidden, top = p->transformer->routing.top,
                end = w->block->count * (index + 1) / count;
  for (int64_t i = w->block->count * index / count; i < end; i++) {
    const float *row = p->buffers.brought[w->block->places[i]], *dy = row + hidden + top;
    int64_t k = 0;
    memcpy(p->buffers.gathered + i * hidden, row, (size_t)hidden * sizeof *row);
    memcpy(w->back->buffers.experts.dy + i * hidden, dy, (size_t)hidden * sizeof *dy);
    while ((int32_t)row[hidden + k] != w->block->expert) k++;
    w->weights[i] = dy[hidden + k];
  }
}

void treadle_expert_rows_take(const treadle_back *back, const treadle_routed *routed,
                              const treadle_expert_rows *block, float *weights) {
  const treadle_train_buffers *own = &back->buffers;
  taking w = {back, block, weights};
  if (spreads(back)) {
    treadle_pass_share(back->pass, take_rows, &w, block->count * back->transformer->hidden);
    return;
  }
  treadle_pass_gather_places(back->pass, block->places, block->count, own->normed2,
                             back->pass->buffers.gathered);
  treadle_pass_gather_places(back->pass, block->places, block->count, own->dx, own->experts.dy);
  for (int64_t i = 0; i < block->count; i++) weights[i] = routed[block->places[i]].weight;
}

/* Where a block begins that is spread, in rows of the room. */
static int64_t begin_of(const treadle_pass *p, const treadle_expert_rows *block) {
  const treadle_pass_groups *g = &p->ranks.groups;
  return treadle_pass_group_start(p, block->expert) +
         (block->places - p->buffers.places - g->first[block->expert]);
}

treadle_expert_slopes treadle_expert_rows_slopes(const treadle_back *back,
                                                 const treadle_expert_rows *block) {
  treadle_pass *p = back->pass;
  const treadle_pass_groups *g = &p->ranks.groups;
  if (spreads(back))
    return (treadle_expert_slopes){.to = treadle_exchange_room(g->exchange) +
                                         g->filled[g->set->index] * p->transformer->hidden +
                                         begin_of(p, block),
                                   .node_stride = block->of};
  return (treadle_expert_slopes){.to = treadle_pass_expert_room(p) +
                                       treadle_expert_rows_by_weight(back, block->of).at,
                                 .node_stride = block->of * p->transformer->routing.top,
                                 .at = block->places};
}

void treadle_expert_rows_give(const treadle_back *back, const treadle_expert_rows *block) {
  treadle_pass *p = back->pass;
  const int64_t hidden = p->transformer->hidden, values = block->count * hidden;
  if (!spreads(back)) {
    treadle_pass_scatter_places(p, block, p->buffers.sum, treadle_pass_expert_room(p));
    return;
  }
  float *to = treadle_exchange_room(p->ranks.groups.exchange) + begin_of(p, block) * hidden;
  for (int64_t n = 0; n < block->nodes; n++)
    memcpy(to + n * block->of * hidden, p->buffers.sum + n * values, (size_t)values * sizeof *to);
}

/* ---- Afterwards ---------------------------------------------------------------------------------------- */

/* Rows of hidden that derivatives take behind `rows` rows of gradients. */
static int64_t rows_behind(const treadle_back *back, int64_t rows) {
  const int64_t hidden = back->transformer->hidden;
  return (rows + hidden - 1) / hidden;
}

treadle_status treadle_expert_rows_show(const treadle_back *back, int64_t rows) {
  treadle_pass *p = back->pass;
  const treadle_pass_groups *g = &p->ranks.groups;
  const int64_t results = spreads(back) ? g->filled[g->set->index]
                                        : p->buffers.expert_nodes * rows * p->transformer->routing.top;
  if (spreads(back)) return treadle_pass_show_results(p, results + rows_behind(back, results));
  return treadle_pass_bring_experts(p, results + rows_behind(back, results));
}

treadle_expert_results treadle_expert_rows_gradients(const treadle_back *back, int64_t rows) {
  return (treadle_expert_results){.each = back->transformer->hidden,
                                  .places = rows * back->transformer->routing.top};
}

treadle_expert_results treadle_expert_rows_by_weight(const treadle_back *back, int64_t rows) {
  const int64_t hidden = back->transformer->hidden, places = rows * back->transformer->routing.top;
  return (treadle_expert_results){.at = back->pass->buffers.expert_nodes * places * hidden,
                                  .own = places * hidden,
                                  .each = 1,
                                  .places = places};
}
