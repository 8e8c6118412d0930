/* Attention of a step's rows, divided among the threads; and the product with o that follows. */
#include "pass/pass_steps.h"

typedef struct attending {
  const treadle_pass *pass;
  int32_t layer;
  const treadle_pass_step *step;
  const treadle_attention_view *view;
  int64_t cost; /* of all rows */
} attending;

treadle_kv_blocks treadle_pass_blocks(const treadle_pass *pass, int32_t layer,
                                      const treadle_pass_span *stretch) {
  int64_t each = treadle_kv_block_bytes(&pass->kv);
  return (treadle_kv_blocks){.base = pass->cache + pass->cache_place[layer] * each,
                             .stride = (int64_t)treadle_pass_block_bytes(pass),
                             .table = stretch->table};
}

static treadle_attention_rows rows_of(const attending *w, int32_t number, int64_t row) {
  const treadle_pass_span *stretch = &w->step->stretches[number];
  return (treadle_attention_rows){.queries = w->view->queries + row * w->view->query_stride,
                                  .out = w->view->out + row * w->view->out_stride,
                                  .query_stride = w->view->query_stride,
                                  .out_stride = w->view->out_stride,
                                  .blocks = treadle_pass_blocks(w->pass, w->layer, stretch),
                                  .position = stretch->position,
                                  .count = stretch->rows};
}

/* Stretches one after the other, cut where a thread's share of the cost ends: so a short one is of one thread, which has its last keys
 * near, as it wrote them. */
static void attend(void *context, int32_t index, int32_t count) {
  const attending *w = context;
  const treadle_pass *p = w->pass;
  int64_t row = 0, cost = 0, begin = w->cost * index / count, end = w->cost * (index + 1) / count;
  for (int32_t s = 0; s < w->step->stretch_count && cost < end; row += w->step->stretches[s++].rows) {
    treadle_attention_rows rows = rows_of(w, s, row);
    int64_t from = treadle_attention_item_at(&p->attention, &rows, begin - cost);
    int64_t to = treadle_attention_item_at(&p->attention, &rows, end - cost);
    cost += treadle_attention_cost(&p->attention, &rows);
    if (s + 1 < w->step->stretch_count) {
      const treadle_pass_span *next = &w->step->stretches[s + 1];
      rows.next = treadle_pass_blocks(p, w->layer, next);
      rows.next_end = next->position + next->rows;
    }
    if (from < to)
      p->attention_ops->run(&p->attention, &rows, from, to,
                            p->buffers.scratch + index * p->buffers.scratch_bytes);
  }
}

void treadle_pass_attend(treadle_pass *pass, int32_t layer, const treadle_pass_step *step,
                         const treadle_attention_view *view) {
  attending w = {.pass = pass, .layer = layer, .step = step, .view = view};
  int64_t row = 0;
  for (int32_t s = 0; s < step->stretch_count; row += step->stretches[s++].rows) {
    treadle_attention_rows rows = rows_of(&w, s, row);
    w.cost += treadle_attention_cost(&pass->attention, &rows);
  }
  treadle_team_run(pass->team, attend, &w);
}

treadle_status treadle_pass_add_heads(treadle_pass *pass, int32_t layer, int64_t rows) {
  const treadle_weight *weight = pass->layers[layer].weight;
  const treadle_pass_buffers *b = &pass->buffers;
  int64_t hidden = pass->transformer->hidden;
  treadle_product out = {.x = b->middle,
                         .rows = rows,
                         .stride = b->middle_columns,
                         .leaves = pass->attention_leaves,
                         .terms = {{&weight[TREADLE_ROLE_O], 0}},
                         .terms_count = 1,
                         .y = b->sum,
                         .y_stride = hidden,
                         .node_stride = rows * hidden};
  treadle_status status;
  TRY(treadle_pass_product(pass, &out));
  TRY(treadle_pass_add_sum(pass, &weight[TREADLE_ROLE_O], pass->attention_leaves,
                           &weight[TREADLE_ROLE_O_BIAS], pass->ranks.speaks[layer].attention, rows));
out:
  return status;
}
