/* Attention of a step's rows, divided among the threads. */
#include "infer/pass_parts.h"

typedef struct attending {
  const treadle_pass *pass;
  int32_t layer;
  const treadle_pass_step *step;
  const treadle_attention_view *view;
} attending;

treadle_kv_blocks treadle_pass_blocks(const treadle_pass *pass, int32_t layer,
                                      const treadle_pass_span *stretch) {
  int64_t each = treadle_kv_block_bytes(&pass->kv);
  return (treadle_kv_blocks){.base = pass->cache + pass->cache_place[layer] * each,
                             .stride = pass->cache_layers * each,
                             .table = stretch->table};
}

static void attend(void *context, int32_t index, int32_t count) {
  const attending *w = context;
  const treadle_pass *p = w->pass;
  int64_t row = 0;
  for (int32_t s = 0; s < w->step->stretch_count; row += w->step->stretches[s++].rows) {
    const treadle_pass_span *stretch = &w->step->stretches[s];
    treadle_attention_rows rows = {.queries = w->view->queries + row * w->view->query_stride,
                                   .out = w->view->out + row * w->view->out_stride,
                                   .query_stride = w->view->query_stride,
                                   .out_stride = w->view->out_stride,
                                   .blocks = treadle_pass_blocks(p, w->layer, stretch),
                                   .position = stretch->position,
                                   .count = stretch->rows};
    int64_t from, to;
    /* a short stretch has fewer parts than there are threads: another one begins each time */
    treadle_attention_divide(&p->attention, &rows, (index + s) % count, count, &from, &to);
    if (from < to)
      p->attention_ops->run(&p->attention, &rows, from, to,
                            p->buffers.scratch + index * p->buffers.scratch_bytes);
  }
}

void treadle_pass_attend(treadle_pass *pass, int32_t layer, const treadle_pass_step *step,
                         const treadle_attention_view *view) {
  attending w = {.pass = pass, .layer = layer, .step = step, .view = view};
  treadle_team_run(pass->team, attend, &w);
}
