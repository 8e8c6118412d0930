/* A trainer: what there is to it, and how it is made. */
#include "train/trainer.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/dtype.h"
#include "base/sized.h"
#include "group/group.h"
#include "memory/device.h"
#include "weights/finite.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK_TOKENS = 64, MOST_ROWS = 4096, ROWS_LIMIT = 1 << 20 };

static treadle_status refuse(const treadle_trainer *t, const char *what) {
  return treadle_fail(TREADLE_REFUSED, "%s: training does not take %s yet", t->layout->model->path, what);
}

/* ---- Gradients of the same layout --------------------------------------------------------------------- */

/* The layout's text with dtype=fp32. */
static treadle_status fp32_text(const char *text, char *to, size_t room) {
  size_t at = 0;
  const char *mark = strstr(text, "dtype=");
  if (strlen(text) + sizeof ",dtype=fp32" > room)
    return treadle_fail(TREADLE_REFUSED, "layout '%s' is too long", text);
  if (!mark) {
    snprintf(to, room, "%s%sdtype=fp32", text, strchr(text, ':') ? "," : ":");
    return TREADLE_OK;
  }
  at = (size_t)(mark - text);
  snprintf(to, room, "%.*sdtype=fp32%s", (int)at, text, mark + strcspn(mark, ","));
  return TREADLE_OK;
}

static treadle_status find_grads(treadle_trainer *t) {
  const treadle_transformer *d = t->transformer;
  const treadle_layout *layout = t->shards ? treadle_train_whole_grads(t) : t->grad_layout;
  int64_t rank = t->pass->rank;
  treadle_status status = TREADLE_OK;
  t->grads = treadle_arena_alloc_array(&t->arena, (size_t)d->layers, sizeof *t->grads);
  if (!t->grads) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %lld layers", (long long)d->layers);
  for (int32_t l = 0; l < d->layers; l++)
    for (int role = 0; role < TREADLE_ROLES; role++)
      if (d->layer[l].tensor[role] >= 0)
        TRY(treadle_weight_find(layout, rank, d->layer[l].tensor[role], -1, &t->arena,
                                &t->grads[l].weight[role]));
  TRY(treadle_weight_find(layout, rank, d->embed, -1, &t->arena, &t->grad_embed));
  TRY(treadle_weight_find(layout, rank, d->final_norm, -1, &t->arena, &t->grad_final_norm));
  TRY(treadle_weight_find(layout, rank, d->head, -1, &t->arena, &t->grad_head));
  if (t->shards) TRY(treadle_train_place_shards(t));
out:
  return status;
}

/* ---- The whole --------------------------------------------------------------------------------------- */

static treadle_status check_options(const treadle_trainer_options *o) {
  if (o->threads < 0 || o->threads > TREADLE_TEAM_MAX)
    REFUSE("threads %d: 1 to %d, or 0", o->threads, TREADLE_TEAM_MAX);
  if (o->most_rows < 0 || o->most_rows > ROWS_LIMIT || o->most_tokens < 0 || o->most_tokens > ROWS_LIMIT)
    REFUSE("most_rows %lld, most_tokens %lld: 1 to %d, or 0", (long long)o->most_rows,
           (long long)o->most_tokens, ROWS_LIMIT);
  if (!(o->adam_beta1 >= 0 && o->adam_beta1 < 1 && o->adam_beta2 >= 0 && o->adam_beta2 < 1 &&
        o->adam_eps >= 0 && o->adam_eps < 1))
    REFUSE("adam_beta1 %g, adam_beta2 %g, adam_eps %g: from 0 on and below 1", o->adam_beta1, o->adam_beta2,
           o->adam_eps);
  if (o->most_sequences < 0 || o->most_sequences > ROWS_LIMIT)
    REFUSE("most_sequences %lld: 1 to %d, or 0", (long long)o->most_sequences, ROWS_LIMIT);
  if (o->most_micro_batches < 0 || o->most_micro_batches > ROWS_LIMIT)
    REFUSE("most_micro_batches %d: 1 to %d, or 0", o->most_micro_batches, ROWS_LIMIT);
  return TREADLE_OK;
}

/* What the engine computes in one rank after the other, and training does not. */
static treadle_status check(const treadle_trainer *t) {
  const treadle_transformer *d = t->transformer;
  const treadle_weight *head = &t->pass->head;
  if (d->head_dim > TREADLE_ROPE_WIDTH_MOST) return refuse(t, "heads of more than 1024 values");
  if (d->attention == TREADLE_ATTENTION_MLA) return refuse(t, "latent attention");
  for (int32_t l = 0; l < d->layers; l++)
    if (d->layer[l].sparse) return refuse(t, "experts");
  if (t->pass->copies) return refuse(t, "matrices of several types");
  if (t->head_leaves > 1 && head->segment_count &&
      (head->first_row % TREADLE_HEAD_LEAF || head->row_count != head->end_row - head->first_row))
    return treadle_fail(TREADLE_REFUSED,
                        "layout '%s': %s is cut at row %lld; exact mode takes cuts at multiples of %d",
                        t->layout->text, t->layout->model->tensors[d->head].name,
                        (long long)head->first_row, TREADLE_HEAD_LEAF);
  return TREADLE_OK;
}

static treadle_pass_options pass_options(const treadle_trainer *t, const treadle_trainer_options *o) {
  const treadle_transformer *d = t->transformer;
  treadle_dtype dtype = treadle_layout_dtype(t->layout, &t->layout->model->tensors[d->embed]);
  int32_t ranks = (int32_t)t->layout->ranks, threads = o->threads ? o->threads : treadle_team_share(ranks);
  treadle_pass_options pass = {.kernels = o->kernels ? o->kernels : "auto",
                               .dtype = dtype == TREADLE_BF16 ? TREADLE_BF16 : TREADLE_FP32,
                               .threads = threads,
                               .spin = threads > 1 && threads * ranks <= treadle_team_share(1),
                               .fast = o->fast,
                               .most_rows = t->rows,
                               .most_logits = TREADLE_HEAD_ROWS,
                               .block_tokens = BLOCK_TOKENS,
                               .most_positions = o->most_tokens ? o->most_tokens : t->rows};
  if (!o->most_tokens && d->most_positions && d->most_positions < pass.most_positions)
    pass.most_positions = d->most_positions;
  return pass;
}

/* In how many micro batches memory is needed. */
static treadle_status keep_batches(treadle_trainer *t, const treadle_trainer_options *o) {
  treadle_pipeline_memory needs;
  treadle_status status;
  t->pipeline.micro_batches = o->most_micro_batches ? o->most_micro_batches : 4 * t->pipeline.stages;
  TRY(treadle_pipeline_play_most(&t->pipeline, t->stage, o->fewer_micro_batches, &needs));
  t->kept_count = needs.kept;
  t->slots = needs.slots;
out:
  return status;
}

/* The caller's: all of them, or none. */
static treadle_status take_windows(treadle_trainer *t, const treadle_trainer_options *o) {
  const void *const all[] = {o->params_window, o->grads_window, o->optimizer_window, o->work_window};
  treadle_status status = TREADLE_OK;
  if (!o->params_window && !o->grads_window && !o->optimizer_window && !o->work_window) return TREADLE_OK;
  if (!o->params_window || !o->grads_window || !o->optimizer_window != !o->optimizer)
    REFUSE("params_window, grads_window and, with an optimizer, optimizer_window: all of them, or none");
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    TRY(treadle_device_need_host("the built-in trainer", all[i]));
  t->weights = o->params_window;
  t->grad_window = o->grads_window;
  t->work = o->work_window;
  t->given = true;
out:
  return status;
}

/* All that needs no other rank. */
treadle_status treadle_train_fill(treadle_trainer *t, const treadle_trainer_options *o, int64_t rank,
                                  bool plans) {
  char text[1024];
  treadle_pass_options pass;
  treadle_status status;
  const treadle_layout *computed = t->layout;
  bool sharded = treadle_train_is_sharded(t->layout);
  TRY(check_options(o));
  TRY(treadle_layout_check_whole_group(t->layout, "the trainer runs on all ranks of its group"));
  if (!sharded) TRY(treadle_pass_check_layout(t->layout));
  TRY(fp32_text(t->layout->text, text, sizeof text));
  TRY(treadle_layout_create(t->layout->model, text, t->layout->ranks, NULL, &t->grad_layout));
  TRY(treadle_transformer_create(t->layout->model, &t->transformer));
  t->rank = rank;
  if (sharded) TRY(treadle_train_open_shards(t, plans, &computed));
  TRY(treadle_replica_find(t->transformer, computed, sharded ? 0 : rank, &t->arena, &t->replica));
  t->data_rank = sharded ? rank : t->replica.number;
  t->data_ranks = sharded ? t->layout->ranks : t->replica.count;
  t->rows = o->most_rows ? o->most_rows : MOST_ROWS;
  t->most_sequences = o->most_sequences ? o->most_sequences : t->rows;
  t->blocks = o->most_sequences
                  ? t->rows / BLOCK_TOKENS + 2 * t->most_sequences + 1 /* prompts may lie apart */
                  : t->rows + t->rows / BLOCK_TOKENS; /* each row may be a sequence of its own */
  t->keeps_all = !o->recompute;
  t->sequence_parallel = o->sequence_parallel;
  t->offloads = o->offload_policy;
  TRY(take_windows(t, o));
  if (o->companions && !(t->companions = treadle_arena_copy_text(&t->arena, o->companions)))
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for a trainer");
  if (t->offloads && !sharded) REFUSE("offload_policy: layout '%s' is not fsdp2", t->layout->text);
  pass = pass_options(t, o);
  TRY(treadle_pass_create(t->transformer, computed, &t->replica, sharded ? 0 : rank, &pass, &t->pass));
  bool alone = t->replica.rank_count == 1 && pass.fast;
  t->key_leaves = alone ? 1 : treadle_transformer_leaves(t->transformer->kv_heads);
  t->head_leaves = (t->transformer->vocabulary + TREADLE_HEAD_LEAF - 1) / TREADLE_HEAD_LEAF;
  TRY(check(t));
  for (int64_t l = 0; l < t->transformer->layers; l++) t->pass->cache_place[l] = 0;
  t->pass->cache_layers = 1; /* keys and values are of no use behind their layer */
  t->back = treadle_row_back_ops_for(pass.kernels);
  t->pairs = treadle_paired_can(t);
  t->outer = pass.dtype == TREADLE_FP32 ? treadle_outer_ops_for(pass.kernels) : NULL;
  t->optimizer = (treadle_train_optimizer){.exp_avg = o->optimizer_window,
                                           .ops = treadle_adam_ops_for(pass.kernels),
                                           .beta1 = o->adam_beta1 > 0 ? o->adam_beta1 : 0.9,
                                           .beta2 = o->adam_beta2 > 0 ? o->adam_beta2 : 0.999,
                                           .eps = o->adam_eps > 0 ? o->adam_eps : 1e-8,
                                           .wanted = o->optimizer,
                                           .distributed = o->distributed_optimizer};
  TRY(find_grads(t));
  TRY(treadle_train_find_chunks(t));
  TRY(keep_batches(t, o));
  TRY(treadle_train_measure(t));
out:
  return status;
}

treadle_status treadle_trainer_create(treadle_group *group, const treadle_layout *layout,
                                      const treadle_trainer_options *options, treadle_trainer **trainer_p) {
  treadle_trainer_options o;
  treadle_trainer *t = NULL;
  treadle_status status;
  TREADLE_NEED(trainer_p);
  *trainer_p = NULL;
  TREADLE_NEED(layout);
  TRY(TREADLE_TAKE(options, &o));
  t = treadle_alloc(sizeof *t);
  status = t ? TREADLE_OK : treadle_fail(TREADLE_NO_MEMORY, "no memory for a trainer");
  TRY(group ? treadle_group_agree(group, status) : status);
  t->layout = layout;
  t->ranks.group = group;
  status = treadle_pass_check_ranks(layout, group);
  if (!status) status = treadle_train_fill(t, &o, group ? treadle_group_rank(group) : 0, false);
  TRY(treadle_train_agree(t, status));
  TRY(treadle_train_meet(t));
  TRY(treadle_train_agree(t, treadle_train_allocate(t)));
  *trainer_p = t;
  t = NULL;
out:
  treadle_trainer_destroy(t);
  return status;
}

void treadle_trainer_destroy(treadle_trainer *t) {
  if (!t) return;
  treadle_train_leave(t);
  treadle_pass_destroy(t->pass);
  treadle_train_free(t);
  treadle_board_destroy(t->ranks.board);
  treadle_train_close_shards(t);
  treadle_transformer_destroy(t->transformer);
  treadle_layout_destroy(t->grad_layout);
  treadle_arena_release(&t->arena);
  treadle_free(t);
}

treadle_status treadle_train_bind_weights(treadle_trainer *t, const void *weights) {
  const treadle_pass_windows windows = {.weights =
                                            t->shards ? treadle_train_gathered(t) : (const char *)weights,
                                        .cache = t->cache,
                                        .work = t->pass_work};
  treadle_train_show_shards(t, weights);
  return treadle_pass_bind(t->pass, &windows);
}

treadle_status treadle_train_bind(treadle_trainer *t) { return treadle_train_bind_weights(t, t->weights); }

treadle_status treadle_trainer_rebind(treadle_trainer *t) {
  TREADLE_NEED(t);
  return treadle_train_bind(t);
}

/* ---- What it begins with ---------------------------------------------------------------------------------- */

treadle_status treadle_train_check_weights(const treadle_trainer *t) {
  return treadle_window_check_finite(t->layout, t->rank, "weights", t->weights);
}

/* Weights are there; masters, in the window of gradients. */
static treadle_status begin(treadle_trainer *t) {
  treadle_train_take_master(t);
  treadle_train_reset_optimizer(t);
  return treadle_train_bind(t);
}

static treadle_status load(treadle_trainer *t) {
  treadle_status status;
  TRY(treadle_layout_load(t->layout, t->rank, t->weights));
  TRY(treadle_train_check_weights(t));
  if (t->optimizer.master) TRY(treadle_layout_load(t->grad_layout, t->rank, t->grad_window));
  TRY(begin(t));
out:
  return status;
}

treadle_status treadle_trainer_load(treadle_trainer *t) {
  TREADLE_NEED(t);
  return treadle_train_agree(t, load(t));
}

treadle_status treadle_trainer_randomise(treadle_trainer *t, uint64_t seed) {
  treadle_status status;
  TREADLE_NEED(t);
  status = treadle_train_randomise(t, seed);
  if (!status) status = begin(t);
  return treadle_train_agree(t, status);
}

const treadle_layout *treadle_trainer_grad_layout(const treadle_trainer *t) {
  TREADLE_NEED_OR(t, NULL);
  return t->grad_layout;
}

float *treadle_trainer_grad_window(const treadle_trainer *t, size_t *bytes_p) {
  if (bytes_p) *bytes_p = t ? t->grad_bytes : 0;
  TREADLE_NEED_OR(t, NULL);
  return (float *)(void *)t->grad_window;
}

size_t treadle_trainer_bytes(const treadle_trainer *t) {
  TREADLE_NEED_OR(t, 0);
  return t->taken_bytes + t->ranks.board_bytes - t->host_bytes;
}
