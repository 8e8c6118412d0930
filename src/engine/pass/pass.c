#include "pass/pass_steps.h"

#include "base/alloc.h"
#include "memory/device.h"

#include <string.h>

/* ---- Embedding, norms, logits ----------------------------------------------------------------------- */

typedef struct rows_work {
  treadle_pass *pass;
  const treadle_pass_step *step;
  const treadle_weight *norm;
  const int32_t *which; /* NULL: all rows */
  int64_t rows;
} rows_work;

/* Row `row` of a matrix; NULL: it is not here. */
static const char *row_of(const treadle_pass *p, const treadle_weight *weight, int64_t row) {
  for (int32_t s = 0; s < weight->segment_count; s++) {
    const treadle_segment *segment = &weight->segments[s];
    if (row >= segment->first && row < segment->first + segment->rows)
      return (const char *)treadle_pass_at(p, segment) +
             (row - segment->first) * segment->stride * (int64_t)treadle_dtype_bytes(weight->dtype);
  }
  return NULL;
}

static void embed_rows(void *context, int32_t index, int32_t count) {
  const rows_work *w = context;
  const treadle_pass *p = w->pass;
  int64_t hidden = p->transformer->hidden, end = w->rows * (index + 1) / count;
  for (int64_t r = w->rows * index / count; r < end; r++) {
    const char *row = row_of(p, &p->embed, w->step->tokens[r]);
    if (row) p->row_ops->widen(p->buffers.x + r * hidden, row, p->embed.dtype, hidden);
  }
}

static void norm_rows(void *context, int32_t index, int32_t count) {
  const rows_work *w = context;
  const treadle_pass *p = w->pass;
  int64_t hidden = p->transformer->hidden, end = w->rows * (index + 1) / count;
  const void *weight = treadle_pass_at(p, &w->norm->segments[0]);
  for (int64_t r = w->rows * index / count; r < end; r++)
    p->row_ops->norm(p->buffers.normed + r * hidden, p->buffers.x + (w->which ? w->which[r] : r) * hidden,
                     weight, w->norm->dtype, hidden, p->transformer->eps);
}

void treadle_pass_norm(treadle_pass *p, const treadle_weight *norm, const int32_t *which, int64_t rows) {
  rows_work w = {.pass = p, .norm = norm, .which = which, .rows = rows};
  treadle_pass_share(p, norm_rows, &w, rows * p->transformer->hidden);
}

treadle_status treadle_pass_logits(treadle_pass *pass, const int32_t *which, int64_t count,
                                   const float **logits_p) {
  treadle_product product = {.x = pass->buffers.normed,
                             .rows = count,
                             .stride = pass->transformer->hidden,
                             .leaves = 1,
                             .terms = {{&pass->head, 0}},
                             .terms_count = 1,
                             .y = pass->buffers.logits,
                             .y_stride = pass->transformer->vocabulary};
  treadle_status status;
  *logits_p = pass->buffers.logits;
  if (!count) return TREADLE_OK;
  if (pass->ranks.across) {
    product.y = treadle_exchange_room(pass->ranks.across);
    product.y_stride = pass->head.row_count;
  }
  if (!pass->ranks.across || pass->ranks.speaks_head) {
    treadle_pass_norm(pass, &pass->final_norm, which, count);
    TRY(treadle_pass_product(pass, &product));
  }
  if (pass->ranks.across) TRY(treadle_pass_gather_logits(pass, count));
out:
  treadle_pass_tell(pass, status);
  return status;
}

/* ---- The whole -------------------------------------------------------------------------------------- */

treadle_status treadle_pass_embed(treadle_pass *p, const treadle_pass_step *step) {
  rows_work w = {.pass = p, .step = step, .rows = step->rows};
  treadle_pass_share(p, embed_rows, &w, step->rows * p->transformer->hidden);
  return treadle_pass_gather_rows(p, step->tokens, step->rows);
}

treadle_status treadle_pass_layer(treadle_pass *p, int32_t number, const treadle_pass_step *step) {
  const treadle_layer_weights *layer = &p->layers[number];
  treadle_status status;
  treadle_pass_norm(p, &layer->weight[TREADLE_ROLE_ATTENTION_NORM], NULL, step->rows);
  if (p->transformer->attention == TREADLE_ATTENTION_MLA)
    TRY(treadle_pass_latent(p, number, step));
  else
    TRY(treadle_pass_attention(p, number, step));
  treadle_pass_norm(p, &layer->weight[TREADLE_ROLE_MLP_NORM], NULL, step->rows);
  if (p->transformer->layer[number].sparse)
    TRY(treadle_pass_experts(p, number, step));
  else
    TRY(treadle_pass_mlp(p, number, step->rows));
  treadle_pass_record(p, number, step);
out:
  return status;
}

/* This group has no rows, but experts. */
static treadle_status serve(treadle_pass *p) {
  treadle_status status = TREADLE_OK;
  for (int32_t l = 0; l < p->transformer->layers; l++)
    if (p->transformer->layer[l].sparse && p->layers[l].weight[TREADLE_ROLE_O].segment_count)
      TRY(treadle_pass_run_groups(p, l));
out:
  return status;
}

treadle_status treadle_pass_run(treadle_pass *pass, const treadle_pass_step *step) {
  treadle_status status = TREADLE_OK;
  if (!step->rows && pass->ranks.groups.set) {
    TRY(serve(pass));
    goto out;
  }
  if (treadle_pass_has_chunk(pass, 0)) TRY(treadle_pass_embed(pass, step));
  for (int32_t c = 0; c < pass->replica->chunk_count; c++) {
    const treadle_chunk_span *chunk = &pass->replica->chunks[c];
    for (int32_t l = chunk->first_layer; treadle_pass_has_chunk(pass, c) && l < chunk->end_layer; l++)
      TRY(treadle_pass_layer(pass, l, step));
    if (c + 1 < pass->replica->chunk_count) TRY(treadle_pass_hand_over(pass, c, step->rows));
  }
  TRY(treadle_pass_share_record(pass, step));
out:
  treadle_pass_tell(pass, status);
  return status;
}

treadle_status treadle_pass_bind(treadle_pass *pass, const treadle_pass_windows *windows) {
  const void *const all[] = {windows->weights, windows->cache, windows->work};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    const treadle_status status = treadle_device_need_host("the built-in engine", all[i]);
    if (status) return status;
  }
  pass->window = windows->weights;
  pass->shift = windows->shift;
  pass->cache = windows->cache;
  treadle_pass_place(pass, windows->work);
  treadle_pass_fill_copies(pass);
  treadle_pass_copy_bias(pass);
  if (!pass->options.layer_by_layer) treadle_pass_renew(pass);
  return TREADLE_OK;
}

void treadle_pass_renew_layer(treadle_pass *pass, int32_t layer) { treadle_pass_copy_latent(pass, layer); }

void treadle_pass_renew(treadle_pass *pass) {
  for (int32_t l = 0; pass->window && l < pass->transformer->layers; l++) treadle_pass_renew_layer(pass, l);
}

treadle_status treadle_pass_create(const treadle_transformer *transformer, const treadle_layout *layout,
                                   const treadle_replica *replica, int64_t rank,
                                   const treadle_pass_options *options, treadle_pass **pass_p) {
  treadle_pass *p = treadle_alloc(sizeof *p);
  treadle_status status;
  *pass_p = NULL;
  if (!p) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a forward pass");
  p->transformer = transformer;
  p->layout = layout;
  p->replica = replica;
  p->rank = rank;
  p->options = *options;
  snprintf(p->kernels, sizeof p->kernels, "%s", options->kernels);
  p->options.kernels = p->kernels;
  p->context.ranks = options->context_ranks ? options->context_ranks : 1;
  p->context.index = options->context_index;
  p->row_ops = treadle_row_ops_for(options->kernels);
  TRY(treadle_team_create(options->threads, options->spin, &p->team));
  TRY(treadle_pass_find_weights(p));
  TRY(treadle_pass_check_stage(p));
  TRY(treadle_pass_take_copies(p));
  TRY(treadle_pass_set_up(p));
  TRY(treadle_pass_measure(p));
  *pass_p = p;
  p = NULL;
out:
  treadle_pass_destroy(p);
  return status;
}

void treadle_pass_destroy(treadle_pass *pass) {
  if (!pass) return;
  treadle_pass_part(pass);
  treadle_team_destroy(pass->team);
  treadle_rope_release(&pass->rope);
  treadle_arena_release(&pass->arena);
  treadle_free(pass);
}

const char *treadle_pass_window(const treadle_pass *pass) { return pass->window; }
size_t treadle_pass_work_bytes(const treadle_pass *pass) { return pass->work_bytes; }
size_t treadle_pass_packed_bytes(const treadle_pass *pass) { return pass->packed_weights_bytes; }
treadle_team *treadle_pass_team(const treadle_pass *pass) { return pass->team; }
