/* A trainer: what there is to it, and how it is made. */
#include "train/trainer.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/dtype.h"
#include "base/hash.h"
#include "base/sized.h"
#include "group/group.h"
#include "memory/device.h"
#include "train/back_product.h"
#include "train/context.h"
#include "train/memory.h"
#include "weights/finite.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK_TOKENS = 64, MOST_ROWS = 4096, ROWS_LIMIT = 1 << 20, LORA_ALPHA = 16 };

static treadle_status refuse(const treadle_layout *layout, const char *what) {
  return treadle_fail(TREADLE_REFUSED, "%s: training does not take %s yet", layout->model->path, what);
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

/* A score head, and where its gradients lie in this layout. */
static treadle_status find_score(treadle_back *back, const treadle_layout *layout, treadle_arena *arena) {
  const treadle_transformer *d = back->transformer;
  const treadle_pass *pass = back->pass;
  treadle_score_head *head = &back->score;
  treadle_status status;
  TRY(treadle_weight_find(pass->layout, pass->rank, d->score, -1, arena, &head->weight));
  TRY(treadle_weight_find(layout, pass->rank, d->score, -1, arena, &head->grad_weight));
  if (treadle_is_there(&head->weight) && head->weight.dtype != pass->options.dtype)
    status = refuse(pass->layout, "matrices of several types");
  if (status || d->score_bias < 0) goto out;
  TRY(treadle_weight_find(pass->layout, pass->rank, d->score_bias, -1, arena, &head->bias));
  TRY(treadle_weight_find(layout, pass->rank, d->score_bias, -1, arena, &head->grad_bias));
out:
  return status;
}

/* Where gradients lie in this layout. */
static treadle_status find_grads(treadle_back *back, const treadle_layout *layout, treadle_arena *arena) {
  const treadle_transformer *d = back->transformer;
  int64_t rank = back->pass->rank;
  treadle_status status = TREADLE_OK;
  back->grads = treadle_arena_alloc_array(arena, (size_t)d->layers, sizeof *back->grads);
  if (!back->grads)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for %lld layers", (long long)d->layers);
  for (int32_t l = 0; l < d->layers; l++)
    TRY(treadle_layer_weights_find(d, layout, rank, l, arena, &back->grads[l]));
  TRY(treadle_weight_find(layout, rank, d->embed, -1, arena, &back->grad_embed));
  TRY(treadle_weight_find(layout, rank, d->final_norm, -1, arena, &back->grad_final_norm));
  if (d->head < 0) return find_score(back, layout, arena);
  TRY(treadle_weight_find(layout, rank, d->head, -1, arena, &back->grad_head));
out:
  return status;
}

/* Of weights there are no gradients where adapters are trained. */
static treadle_status forget_grads(treadle_back *back, treadle_arena *arena) {
  const size_t layers = (size_t)back->transformer->layers;
  if (!back->grads) back->grads = treadle_arena_alloc_array(arena, layers, sizeof *back->grads);
  if (!back->grads) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu layers", layers);
  memset(back->grads, 0, layers * sizeof *back->grads);
  back->grad_embed = back->grad_final_norm = back->grad_head = (treadle_weight){0};
  return TREADLE_OK;
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
  if (o->ulysses_ranks < 0 || o->ulysses_ranks > ROWS_LIMIT)
    REFUSE("ulysses_ranks %d: 1 to %d, or 0", o->ulysses_ranks, ROWS_LIMIT);
  if (o->lora_rank < 0 || !(o->lora_alpha >= 0))
    REFUSE("lora_rank %lld, lora_alpha %g: 0 at least", (long long)o->lora_rank, o->lora_alpha);
  if (o->forward_only && o->lora_rank)
    REFUSE("forward_only, with lora_rank: rows that go forward only train no adapters");
  if (o->forward_only && (o->optimizer || o->grads_window))
    REFUSE("forward_only, with %s: rows that go forward only make no gradients",
           o->optimizer ? "optimizer" : "grads_window");
  return TREADLE_OK;
}

/* What the engine computes in one rank after the other, and training does not. */
static treadle_status check(const treadle_back *back, const treadle_layout *layout) {
  const treadle_transformer *d = back->transformer;
  const treadle_weight *head = &back->pass->head;
  if (d->head_dim > TREADLE_ROPE_WIDTH_MOST) return refuse(layout, "heads of more than 1024 values");
  if (back->pass->copies) return refuse(layout, "matrices of several types");
  if (!treadle_pass_has_heads(back->pass))
    REFUSE("layout '%s': more tensor parallel ranks than the model has key and value heads, %lld; training "
           "does not take that",
           layout->text, (long long)d->kv_heads);
  if (back->head_leaves > 1 && head->segment_count &&
      (head->first_row % TREADLE_HEAD_LEAF || head->row_count != head->end_row - head->first_row))
    return treadle_fail(
        TREADLE_REFUSED, "layout '%s': %s is cut at row %lld; exact mode takes cuts at multiples of %d",
        layout->text, layout->model->tensors[d->head].name, (long long)head->first_row, TREADLE_HEAD_LEAF);
  return TREADLE_OK;
}

static treadle_pass_options pass_options(const treadle_back *back, const treadle_layout *layout,
                                         const treadle_trainer_options *o) {
  const treadle_transformer *d = back->transformer;
  const int64_t rows = back->context.rows;
  treadle_dtype dtype = treadle_layout_dtype(layout, &layout->model->tensors[d->embed]);
  int32_t ranks = (int32_t)layout->ranks, threads = o->threads ? o->threads : treadle_team_share(ranks);
  treadle_pass_options pass = {.kernels = o->kernels ? o->kernels : "auto",
                               .dtype = dtype == TREADLE_BF16 ? TREADLE_BF16 : TREADLE_FP32,
                               .threads = threads,
                               .spin = threads > 1 && threads * ranks <= treadle_team_share(1),
                               .fast = o->fast,
                               .most_rows = back->rows,
                               .most_logits = TREADLE_HEAD_ROWS,
                               .block_tokens = BLOCK_TOKENS,
                               .most_positions = o->most_tokens ? o->most_tokens : rows,
                               .context_ranks = back->context.ranks,
                               .context_index = back->context.index,
                               .most_all_rows = rows,
                               .backward = !o->forward_only};
  if (!o->most_tokens && d->most_positions && d->most_positions < pass.most_positions)
    pass.most_positions = d->most_positions;
  return pass;
}

/* In how many micro batches memory is needed. */
static treadle_status keep_batches(treadle_train_stage *stage, const treadle_trainer_options *o,
                                   int64_t *kept_p) {
  treadle_pipeline_memory needs;
  treadle_status status;
  stage->pipeline.micro_batches =
      o->most_micro_batches ? o->most_micro_batches : 4 * stage->pipeline.stages;
  TRY(treadle_pipeline_play_most(&stage->pipeline, stage->number, o->fewer_micro_batches, &needs));
  *kept_p = needs.kept;
  stage->slots = needs.slots;
out:
  return status;
}

/* The caller's: all of them, or none. */
static treadle_status take_windows(treadle_train_windows *windows, const treadle_trainer_options *o) {
  const void *const all[] = {o->params_window, o->grads_window, o->optimizer_window, o->work_window};
  treadle_status status = TREADLE_OK;
  if (!o->params_window && !o->grads_window && !o->optimizer_window && !o->work_window) return TREADLE_OK;
  if (!o->params_window || !o->grads_window != o->forward_only || !o->optimizer_window != !o->optimizer)
    REFUSE("params_window, grads_window unless it is forward_only and, with an optimizer, "
           "optimizer_window: all "
           "of them, or none");
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    TRY(treadle_device_need_host("the built-in trainer", all[i]));
  windows->weights = o->params_window;
  windows->grads = o->grads_window;
  windows->given = true;
out:
  return status;
}

/* Layouts, shards, and which rows and windows this rank has. *computed_p: the layout that passes compute in. */
static treadle_status find_place(treadle_trainer *t, const treadle_trainer_options *o, bool plans,
                                 const treadle_layout **computed_p) {
  const treadle_layout *layout = t->windows.layout;
  const treadle_train_shard_parts parts = {&t->windows, &t->ranks, &t->back, &t->arena};
  const bool sharded = treadle_train_is_sharded(layout);
  const int64_t rank = t->windows.rank;
  treadle_context_rank place;
  char text[1024];
  treadle_status status;
  *computed_p = layout;
  TRY(treadle_layout_check_whole_group(layout, "the trainer runs on all ranks of its group"));
  if (!sharded) TRY(treadle_pass_check_layout(layout, true));
  TRY(fp32_text(layout->text, text, sizeof text));
  if (!o->lora_rank)
    TRY(treadle_layout_create(layout->model, text, layout->ranks, NULL, &t->windows.grad_layout));
  TRY(treadle_transformer_create(layout->model, &t->transformer));
  t->back.transformer = t->transformer;
  if (sharded) TRY(treadle_train_open_shards(&parts, plans, &t->shards));
  if (sharded) *computed_p = treadle_train_whole(t->shards);
  TRY(treadle_replica_find(t->transformer, *computed_p, sharded ? 0 : rank, &t->arena, &t->replica));
  TRY(treadle_context_place(layout, o->ulysses_ranks, sharded ? NULL : &t->replica, rank, &place));
  t->data_rank = place.data_rank;
  t->data_ranks = place.data_ranks;
  t->ulysses_ranks = o->ulysses_ranks;
  t->back.context = (treadle_train_context){.ranks = place.ranks, .index = place.index};
  t->windows.offloads = o->offload_policy;
  t->windows.forward_only = o->forward_only;
  TRY(take_windows(&t->windows, o));
  t->memory.work = t->windows.given ? o->work_window : NULL;
  if (o->companions && !(t->companions = treadle_arena_copy_text(&t->arena, o->companions)))
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for a trainer");
  if (o->offload_policy && !sharded) REFUSE("offload_policy: layout '%s' is not fsdp2", layout->text);
out:
  return status;
}

static void set_rows(treadle_trainer *t, const treadle_trainer_options *o) {
  const int64_t rows = o->most_rows ? o->most_rows : MOST_ROWS;
  t->back.context.rows = rows;
  t->back.rows = treadle_context_most_rows(rows, t->back.context.ranks);
  t->most_sequences = o->most_sequences ? o->most_sequences : rows;
  t->memory.blocks = o->most_sequences
                         ? rows / BLOCK_TOKENS + 2 * t->most_sequences + 1 /* prompts may lie apart */
                         : rows + rows / BLOCK_TOKENS; /* each row may be a sequence of its own */
}

/* What backward computes with; the pass is there. */
static treadle_status set_back(treadle_back *back, treadle_pass *pass, const treadle_trainer_options *o,
                               const treadle_layout *layout) {
  const treadle_transformer *d = back->transformer;
  const bool alone = pass->replica->rank_count == 1 && pass->options.fast;
  treadle_status status;
  back->pass = pass;
  back->keeps_all = !o->recompute;
  back->sequence_parallel = o->sequence_parallel;
  back->key_leaves = alone ? 1 : treadle_transformer_leaves(d->kv_heads);
  back->head_leaves = (d->vocabulary + TREADLE_HEAD_LEAF - 1) / TREADLE_HEAD_LEAF;
  TRY(check(back, layout));
  for (int64_t l = 0; l < d->layers; l++) pass->cache_place[l] = 0;
  pass->cache_layers = 1; /* keys and values are of no use behind their layer */
  back->ops = treadle_row_back_ops_for(pass->options.kernels);
  back->pairs = treadle_paired_can(&pass->options);
  back->outer = pass->options.dtype == TREADLE_FP32 ? treadle_outer_ops_for(pass->options.kernels) : NULL;
out:
  return status;
}

/* Tensors that have no gradients: biases of routers, and what no layer computes with, such as drafts. */
static void find_untrained(const treadle_train_routers *routers, int32_t tensors, bool *untrained) {
  const treadle_transformer *d = routers->transformer;
  const int32_t whole[] = {d->embed, d->final_norm, d->head, d->score, d->score_bias};
  for (int32_t i = 0; i < tensors; i++) untrained[i] = true;
  for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
    if (whole[i] >= 0) untrained[whole[i]] = false;
  for (int64_t l = 0; l < d->layers; l++)
    for (int role = 0; role < TREADLE_ROLES; role++) {
      const bool still =
          role == TREADLE_ROLE_ROUTER_BIAS || (role == TREADLE_ROLE_ROUTER && routers->frozen);
      if (d->layer[l].tensor[role] >= 0 && !still) untrained[d->layer[l].tensor[role]] = false;
    }
}

static treadle_status find_changes(const treadle_train_routers *routers, treadle_arena *arena,
                                   treadle_train_windows *w) {
  treadle_pieces pieces = {0};
  int32_t count;
  treadle_status status;
  treadle_layout_storages(w->layout, w->rank, &count);
  const int32_t tensors = w->layout->model->tensor_count;
  bool *trained = treadle_arena_alloc_array(arena, (size_t)count + 1, sizeof *trained);
  bool *untrained = treadle_arena_alloc_array(arena, (size_t)tensors + 1, sizeof *untrained);
  if (!trained || !untrained) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a trainer");
  find_untrained(routers, tensors, untrained);
  TRY(treadle_layout_pieces(w->layout, w->rank, &pieces));
  for (size_t i = 0; i < pieces.count; i++)
    if (pieces.items[i].tensor >= 0 && !untrained[pieces.items[i].tensor])
      trained[pieces.items[i].storage] = true;
  w->changes = trained;
  w->untrained = untrained;
out:
  treadle_array_release(&pieces);
  return status;
}

static treadle_train_optimizer optimizer_of(const treadle_trainer *t, const treadle_trainer_options *o) {
  const bool whole = t->shards && o->lora_rank; /* each rank has all adapters */
  const bool groups = treadle_context_has_data_groups(&t->back);
  const treadle_replica *r = &t->replica;
  return (treadle_train_optimizer){.windows = &t->windows,
                                   .ranks = &t->ranks,
                                   .team = t->pass->team,
                                   .ops = treadle_adam_ops_for(t->pass->options.kernels),
                                   .exp_avg = o->optimizer_window,
                                   .beta1 = o->adam_beta1 > 0 ? o->adam_beta1 : 0.9,
                                   .beta2 = o->adam_beta2 > 0 ? o->adam_beta2 : 0.999,
                                   .eps = o->adam_eps > 0 ? o->adam_eps : 1e-8,
                                   .member = {whole    ? t->windows.rank
                                              : groups ? t->data_rank
                                                       : r->number,
                                              r->number},
                                   .members = {whole    ? t->windows.layout->ranks
                                               : groups ? t->data_ranks
                                                        : r->count,
                                               r->count},
                                   .parts_experts = groups,
                                   .wanted = o->optimizer,
                                   .distributed = o->distributed_optimizer};
}

static treadle_adapter_spec spec_of(const treadle_trainer_options *o) {
  return (treadle_adapter_spec){.rank = o->lora_rank,
                                .alpha = o->lora_alpha > 0 ? o->lora_alpha : LORA_ALPHA,
                                .modules = o->lora_modules};
}

treadle_status treadle_train_check_adapters(const treadle_model *model, const treadle_trainer_options *o) {
  const treadle_adapter_spec spec = spec_of(o);
  treadle_adapter *adapter = NULL;
  const treadle_status status = treadle_adapter_create(model, &spec, &adapter);
  treadle_adapter_destroy(adapter);
  return status;
}

/* Adapters in place of weights. */
static treadle_status open_adapters(const treadle_train_adapter_parts *of, const treadle_trainer_options *o,
                                    treadle_train_adapters **adapters_p) {
  const treadle_adapter_spec spec = spec_of(o);
  treadle_adapter *adapter;
  treadle_status status;
  TRY(treadle_adapter_create(of->windows->layout->model, &spec, &adapter));
  TRY(treadle_train_open_adapters(of, adapter, adapters_p));
  (*adapters_p)->seed = o->lora_seed;
  (*adapters_p)->saves_merged = o->lora_save_merged;
  (*adapters_p)->gathers = o->lora_gather;
  if (o->lora_adapter && !((*adapters_p)->folder = treadle_arena_copy_text(of->arena, o->lora_adapter)))
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for a trainer");
out:
  return status;
}

/* What is trained, and where its gradients lie. */
static treadle_status find_trained(const treadle_train_adapter_parts *of, const treadle_trainer_options *o,
                                   treadle_train_adapters **adapters_p) {
  treadle_train_windows *w = of->windows;
  treadle_back *back = of->back;
  treadle_status status;
  w->trained_layout = w->layout;
  if (o->lora_rank)
    TRY(forget_grads(back, of->arena));
  else
    TRY(find_grads(back, of->shards ? treadle_train_whole_grads(of->shards) : w->grad_layout, of->arena));
  if (of->shards) TRY(treadle_train_place_shards(of->shards));
  if (!o->lora_rank) goto out;
  if (o->aux_loss_coeff > 0 || o->z_loss_coeff > 0 || o->expert_bias_rate > 0)
    REFUSE(
        "lora_rank %lld, with aux_loss_coeff, z_loss_coeff or expert_bias_rate: routers are of the base, "
        "which adapters leave as it is",
        (long long)o->lora_rank);
  if (back->context.ranks > 1)
    REFUSE("lora_rank %lld, and %d context parallel ranks: adapters need all tokens on one rank",
           (long long)o->lora_rank, back->context.ranks);
  TRY(forget_grads(back, of->arena)); /* shards have placed them */
  TRY(open_adapters(of, o, adapters_p));
  back->adapters = *adapters_p;
out:
  return status;
}

/* All that needs no other rank. */
treadle_status treadle_train_fill(treadle_trainer *t, const treadle_trainer_options *o, int64_t rank,
                                  bool plans) {
  const treadle_layout *layout = t->windows.layout, *computed;
  treadle_pass_options pass;
  treadle_status status;
  TRY(check_options(o));
  t->windows.rank = rank;
  TRY(find_place(t, o, plans, &computed));
  set_rows(t, o);
  pass = pass_options(&t->back, layout, o);
  pass.layer_by_layer = t->shards || o->lora_rank;
  TRY(treadle_pass_create(t->transformer, computed, &t->replica, t->shards ? 0 : rank, &pass, &t->pass));
  TRY(set_back(&t->back, t->pass, o, layout));
  t->routers = (treadle_train_routers){.windows = &t->windows,
                                       .pass = t->pass,
                                       .ranks = &t->ranks,
                                       .data_rank = t->data_rank,
                                       .data_ranks = t->data_ranks};
  TRY(treadle_train_routers_take(t->transformer, o, &t->arena, &t->routers));
  t->back.routers = &t->routers;
  if (t->routers.by_sequence && t->back.context.ranks > 1)
    REFUSE("seq_aux_loss, with %d context parallel ranks: a rank needs all tokens of a row",
           t->back.context.ranks);
  t->optimizer = optimizer_of(t, o);
  const treadle_train_adapter_parts trained = {&t->back, &t->windows, &t->arena, t->shards, plans};
  TRY(find_trained(&trained, o, &t->adapters));
  if (!t->adapters) TRY(find_changes(&t->routers, &t->arena, &t->windows));
  TRY(treadle_train_find_chunks(&t->stage, t->pass, layout));
  TRY(keep_batches(&t->stage, o, &t->back.kept_count));
  TRY(treadle_train_measure(t));
out:
  return status;
}

/* Of options that ranks must have alike, and that nothing else compares. */
static uint64_t hash_options(const treadle_trainer_options *o) {
  const double numbers[] = {o->adam_beta1,   o->adam_beta2,       o->adam_eps,  o->aux_loss_coeff,
                            o->z_loss_coeff, o->expert_bias_rate, o->lora_alpha};
  uint64_t hash = treadle_hash_bytes(numbers, sizeof numbers, (uint64_t)o->lora_rank);
  hash = treadle_hash_more(hash, (uint64_t)(o->ulysses_ranks > 1 ? o->ulysses_ranks : 1));
  hash = treadle_hash_text(o->lora_modules ? o->lora_modules : "", hash);
  hash = treadle_hash_text(o->lora_adapter ? o->lora_adapter : "", treadle_hash_more(hash, o->lora_seed));
  return treadle_hash_more(hash, (uint64_t)o->seq_aux_loss << 6 | (uint64_t)o->freeze_routers << 5 |
                                     (uint64_t)o->lora_gather << 4 | (uint64_t)o->lora_save_merged << 3 |
                                     (uint64_t)o->forward_only << 2 | (uint64_t)o->optimizer << 1 |
                                     o->distributed_optimizer);
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
  TRY(treadle_pass_agree(group, "treadle_trainer_create", layout, hash_options(&o), status));
  t->windows.layout = layout;
  t->ranks.group = group;
  t->ranks.number = group ? treadle_group_number(group) : 0;
  status = treadle_pass_check_ranks(layout, group);
  if (!status) status = treadle_train_fill(t, &o, group ? treadle_group_rank(group) : 0, false);
  TRY(treadle_train_agree(&t->ranks, status));
  TRY(treadle_train_meet(t));
  TRY(treadle_train_agree(&t->ranks, treadle_train_allocate(t)));
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
  treadle_train_free(&t->memory);
  treadle_board_destroy(t->ranks.board);
  treadle_train_close_shards(t->shards);
  treadle_train_close_adapters(t->adapters);
  treadle_transformer_destroy(t->transformer);
  treadle_layout_destroy(t->windows.grad_layout);
  treadle_arena_release(&t->arena);
  treadle_free(t);
}

treadle_status treadle_train_bind_weights(treadle_trainer *t, const void *weights) {
  const treadle_pass_windows windows = {.weights = t->shards ? treadle_train_gathered(t->shards)
                                                             : (const char *)weights,
                                        .cache = t->memory.cache,
                                        .work = t->memory.pass_work};
  treadle_status status;
  treadle_train_show_shards(t->shards, weights);
  treadle_train_forget_merged(t->adapters);
  TRY(treadle_pass_bind(t->pass, &windows));
  if (t->shards) TRY(treadle_train_read_biases(&t->routers, weights));
out:
  return status;
}

treadle_status treadle_train_bind(treadle_trainer *t) {
  return treadle_train_bind_weights(t, t->windows.weights);
}

treadle_status treadle_trainer_rebind(treadle_trainer *t) {
  TREADLE_NEED(t);
  return treadle_train_bind(t);
}

/* ---- What it begins with ---------------------------------------------------------------------------------- */

treadle_status treadle_train_check_weights(const treadle_train_windows *w) {
  return treadle_window_check_finite(w->layout, w->rank, "weights", w->weights);
}

/* Weights are there; masters, in the window of gradients. */
static treadle_status begin(treadle_trainer *t) {
  const treadle_status begun = treadle_train_begin_adapters(t->adapters);
  if (begun) return begun;
  if (t->optimizer.master) treadle_train_take_state(&t->optimizer, t->optimizer.master);
  treadle_train_reset_optimizer(&t->optimizer);
  return treadle_train_bind(t);
}

static treadle_status load(treadle_trainer *t) {
  const treadle_train_windows *w = &t->windows;
  treadle_status status;
  TRY(treadle_layout_load(w->layout, w->rank, w->weights));
  TRY(treadle_train_check_weights(w));
  if (t->optimizer.master) TRY(treadle_layout_load(w->grad_layout, w->rank, w->grads));
  TRY(begin(t));
out:
  return status;
}

treadle_status treadle_trainer_load(treadle_trainer *t) {
  treadle_status status;
  TREADLE_NEED(t);
  TRY(treadle_train_agree_on(&t->ranks, TREADLE_OK, &(treadle_group_call){.name = __func__}));
  TRY(treadle_train_agree(&t->ranks, load(t)));
  TRY(treadle_train_find_base(&t->ranks, t->adapters));
out:
  return status;
}

treadle_status treadle_trainer_randomise(treadle_trainer *t, uint64_t seed) {
  const treadle_group_call call = {.name = __func__, .alike = {{.what = "seed", .hash = seed}}, .count = 1};
  treadle_status status;
  TREADLE_NEED(t);
  TRY(treadle_train_agree_on(&t->ranks, TREADLE_OK, &call));
  status = treadle_train_randomise(&t->windows, t->transformer, t->optimizer.master, seed);
  if (!status) status = begin(t);
  TRY(treadle_train_agree(&t->ranks, status));
  TRY(treadle_train_find_base(&t->ranks, t->adapters));
out:
  return status;
}

treadle_status treadle_train_need_gradients(const treadle_train_windows *windows, const char *what) {
  if (windows->forward_only)
    return treadle_fail(TREADLE_STATE, "%s: the trainer is forward_only, and has no gradients", what);
  return TREADLE_OK;
}

const treadle_layout *treadle_trainer_grad_layout(const treadle_trainer *t) {
  TREADLE_NEED_OR(t, NULL);
  return t->windows.grad_layout;
}

float *treadle_trainer_grad_window(const treadle_trainer *t, size_t *bytes_p) {
  if (bytes_p) *bytes_p = t ? t->windows.grad_bytes : 0;
  TREADLE_NEED_OR(t, NULL);
  return treadle_train_grads(&t->windows);
}

size_t treadle_trainer_bytes(const treadle_trainer *t) {
  TREADLE_NEED_OR(t, 0);
  return t->memory.taken_bytes + t->ranks.board_bytes - t->memory.host_bytes;
}
