/* The ranks that compute together. In a replica of the model, the ranks of a stage share its layers (tensor parallel), and rows go from stage
 * to stage on rings. Ranks with the same part have other rows (data parallel): those of other replicas, and those of other groups of one, if data
 * parallel ranks have different experts.
 *
 * A rank's part of the board: sums of the stage, logits of the stage, pieces of windows, then the rings on which it sends,
 * then its adapters. */
#include "train/trainer.h"

#include "base/larger.h"
#include "group/group.h"
#include "train/back_head.h"
#include "train/context.h"
#include "train/latent.h"

#include <string.h>

enum { LINE = 64 };

/* ---- Meeting ------------------------------------------------------------------------------------------ */

/* What ranks may not differ in: they would compute other bits, or wait for each other. */
typedef struct settings {
  char kernels[32];
  int64_t values[8];
} settings;

static const char *const names[] = {
    "dtype",         "fast",      "most_rows",         "most_tokens",
    "micro batches", "recompute", "sequence_parallel", "context parallel ranks"};

static treadle_status compare_settings(treadle_group *group, const treadle_back *back,
                                       const treadle_pipeline *pipeline) {
  const treadle_pass_options *o = &back->pass->options;
  settings mine = {.values = {o->dtype, o->fast, back->rows, o->most_positions, pipeline->micro_batches,
                              !back->keeps_all, back->sequence_parallel, back->context.ranks}};
  treadle_status status;
  snprintf(mine.kernels, sizeof mine.kernels, "%s", treadle_pass_kernels(back->pass));
  TRY(treadle_group_say(group, &mine, sizeof mine));
  for (int rank = 0; rank < treadle_group_size(group) && !status; rank++) {
    const settings *other = treadle_group_said(group, rank);
    if (strcmp(other->kernels, mine.kernels) != 0)
      status = treadle_fail(TREADLE_REFUSED, "rank %d computes with kernels '%s', this rank with '%s'",
                            treadle_group_called(group, rank), other->kernels, mine.kernels);
    for (size_t i = 0; i < sizeof names / sizeof *names && !status; i++)
      if (other->values[i] != mine.values[i])
        status = treadle_fail(TREADLE_REFUSED, "rank %d has %s %lld, this rank %lld",
                              treadle_group_called(group, rank), names[i], (long long)other->values[i],
                              (long long)mine.values[i]);
  }
  TRY(treadle_group_agree(group, status));
out:
  return status;
}

treadle_train_room treadle_train_measure_room(const treadle_back *back, const treadle_train_stage *stage) {
  const treadle_transformer *d = back->transformer;
  const treadle_pass *pass = back->pass;
  const treadle_weight *head = &pass->head;
  int64_t hidden = d->hidden, rows = back->rows, leaf = TREADLE_HEAD_LEAF, nodes, results;
  treadle_train_room room = {.rows = (uint64_t)(rows * hidden), .chunks = stage->chunk_count};
  treadle_pass_measure_board(pass, &room.pass);
  treadle_leaf_range keys = {(int32_t)(pass->heads.kv_first * back->key_leaves / d->kv_heads),
                             (int32_t)(pass->heads.kv_count * back->key_leaves / d->kv_heads),
                             (int32_t)back->key_leaves};
  treadle_leaf_range words = {(int32_t)(head->first_row / leaf),
                              (int32_t)((head->row_count + leaf - 1) / leaf), (int32_t)back->head_leaves};
  nodes = treadle_leaf_nodes(keys, NULL) * rows;
  if (back->head_leaves > 1 && words.leaves)
    nodes = treadle_larger(nodes, treadle_leaf_nodes(words, NULL) * TREADLE_HEAD_ROWS);
  room.pass.within = (uint64_t)treadle_larger((int64_t)room.pass.within, nodes * hidden);
  if (back->width.latent)
    room.pass.within = (uint64_t)treadle_larger((int64_t)room.pass.within, treadle_back_latent_room(back));
  room.pass.within = (uint64_t)treadle_larger((int64_t)room.pass.within, d->heads * d->head_dim);
  /* and derivatives by their weights */
  results = room.pass.between ? 0 : pass->buffers.expert_nodes * rows * d->routing.top;
  room.pass.within =
      (uint64_t)treadle_larger((int64_t)room.pass.within, results ? results * (hidden + 1) + hidden : 0);
  room.pass.across = LINE;
  room.logits = back->context.ranks > 1 ? 0 : (uint64_t)(TREADLE_HEAD_ROWS * back->width.vocabulary);
  room.pieces = TREADLE_TRAIN_PIECE;
  room.expert_pieces = treadle_context_has_data_groups(back) ? TREADLE_TRAIN_PIECE : 0;
  room.context = treadle_context_most_room(back);
  room.head = treadle_context_head_room(back);
  if (room.context && room.context < TREADLE_TRAIN_PIECE) room.context = TREADLE_TRAIN_PIECE;
  room.slots = stage->slots;
  if (back->adapters) {
    room.adapters = back->adapters->windows->adapter_bytes;
    room.pass.within =
        (uint64_t)treadle_larger((int64_t)room.pass.within, treadle_train_adapter_room(back->adapters));
  }
  return room;
}

void treadle_train_join_room(treadle_train_room *room, const treadle_train_room *other) {
  room->pass.within = (uint64_t)treadle_larger((int64_t)room->pass.within, (int64_t)other->pass.within);
  room->pass.between = (uint64_t)treadle_larger((int64_t)room->pass.between, (int64_t)other->pass.between);
  room->logits = (uint64_t)treadle_larger((int64_t)room->logits, (int64_t)other->logits);
  room->context = (uint64_t)treadle_larger((int64_t)room->context, (int64_t)other->context);
  room->head = (uint64_t)treadle_larger((int64_t)room->head, (int64_t)other->head);
  room->adapters = (uint64_t)treadle_larger((int64_t)room->adapters, (int64_t)other->adapters);
}

/* The largest room that any rank needs. */
static treadle_status largest_room(treadle_train_ranks *ranks, const treadle_back *back,
                                   const treadle_train_stage *stage) {
  treadle_group *group = ranks->group;
  treadle_train_room room = treadle_train_measure_room(back, stage);
  treadle_status status;
  TRY(treadle_group_say(group, &room, sizeof room));
  for (int rank = 0; rank < treadle_group_size(group); rank++)
    treadle_train_join_room(&room, treadle_group_said(group, rank));
  ranks->room = room;
out:
  return status;
}

/* Where the parts of the board begin. */
typedef struct places {
  uint64_t logits, pieces, experts, rings, context, adapters, all;
} places;

static uint64_t context_bytes(const treadle_train_room *room) {
  return room->context ? treadle_exchange_memory(room->context) + treadle_exchange_memory(room->head) : 0;
}

static places places_of(const treadle_train_room *room, const treadle_pipeline *pipeline) {
  places at = {.logits = treadle_pass_board_bytes(&room->pass)};
  at.pieces = at.logits + treadle_exchange_memory(room->logits);
  at.experts = at.pieces + 2 * treadle_exchange_memory(room->pieces);
  at.rings = at.experts + (room->expert_pieces ? treadle_exchange_memory(room->expert_pieces) : 0);
  at.context = at.rings;
  if (pipeline->stages > 1) at.context += 2 * (uint64_t)room->chunks * treadle_train_ring_bytes(room);
  at.adapters = at.context + context_bytes(room);
  at.all = at.adapters + (room->adapters + LINE - 1) / LINE * LINE;
  return at;
}

/* With adapters, of which each rank has all: their gradients are added up on it. */
static uint64_t shard_board(const treadle_train_shards *shards, const treadle_train_adapters *adapters) {
  const uint64_t bytes = (treadle_train_shard_board(shards) + LINE - 1) / LINE * LINE;
  return adapters ? bytes + treadle_exchange_memory(TREADLE_TRAIN_PIECE) : bytes;
}

uint64_t treadle_train_board_bytes(const treadle_trainer *t, const treadle_train_room *room) {
  if (t->windows.layout->ranks == 1) return 0;
  return treadle_board_memory(t->shards ? shard_board(t->shards, t->adapters) + context_bytes(room)
                                        : places_of(room, &t->stage.pipeline).all);
}

/* Is the gradient of the embedding on two stages? The last one has half of a tied one; and of a draft's copy, which nothing adds to, all is zero. */
static bool has_far_halves(const treadle_replica *replica, const treadle_pipeline *pipeline) {
  return replica->embed_copies && pipeline->stages > 1;
}

/* Of ranks of one group: those of other groups with the same part have the same in theirs. */
static int64_t place_in_group(const treadle_replica *r) {
  int64_t before = 0;
  for (int i = 0; i < r->position; i++) before += r->groups[i] == r->groups[r->position];
  return before;
}

/* The first rank of the layout that has the same of all but experts. */
static int first_alike(const treadle_layout *layout, int64_t rank) {
  const uint64_t place = treadle_layout_dense_place(layout, rank);
  int first = 0;
  while (treadle_layout_dense_place(layout, first) != place) first++;
  return first;
}

/* Ranks whose exchanges are made behind; NULL: this rank has none. All ranks split before any takes memory, which it may lack alone. */
typedef struct ends_and_replicas {
  treadle_board_set *replicas, *expert_replicas, *ends;
} ends_and_replicas;

static treadle_status split_ranks(const treadle_train_ranks *ranks, const treadle_pass *pass,
                                  const treadle_train_stage *stage, ends_and_replicas *sets_p) {
  const treadle_replica *replica = pass->replica;
  const bool end = stage->number == 0 || stage->number == stage->pipeline.stages - 1,
             grouped = ranks->room.expert_pieces > 0;
  const treadle_board_set *of = pass->ranks.stage;
  const int colour = (int)replica->number * TREADLE_REPLICA_RANKS +
                     replica->groups[replica->position] * of->count + of->index;
  treadle_status status = TREADLE_OK;
  *sets_p = (ends_and_replicas){0};
  if (grouped)
    TRY(treadle_board_split(ranks->board, first_alike(pass->layout, pass->rank), &sets_p->replicas));
  if (replica->count > 1)
    TRY(treadle_board_split(ranks->board, replica->position,
                            grouped ? &sets_p->expert_replicas : &sets_p->replicas));
  if (has_far_halves(replica, &stage->pipeline))
    TRY(treadle_board_split(ranks->board, end ? colour : -1, &sets_p->ends));
out:
  return status;
}

static treadle_status make_exchanges(treadle_train_ranks *r, treadle_back *back, const places *at,
                                     const ends_and_replicas *sets) {
  treadle_board_set *stage = back->pass->ranks.stage;
  treadle_status status = TREADLE_OK;
  back->head_sums = back->pass->ranks.within;
  if (stage->count > 1 && back->transformer->head >= 0 && back->context.ranks == 1)
    TRY(treadle_exchange_create(stage, at->logits, r->room.logits, &back->logits));
  if (sets->replicas)
    TRY(treadle_exchange_create(sets->replicas, at->pieces, r->room.pieces, &r->replicas));
  if (sets->expert_replicas)
    TRY(treadle_exchange_create(sets->expert_replicas, at->experts, r->room.expert_pieces,
                                &r->expert_replicas));
  if (sets->ends)
    TRY(treadle_exchange_create(sets->ends, at->pieces + treadle_exchange_memory(r->room.pieces),
                                r->room.pieces, &r->ends));
out:
  return status;
}

/* Context parallel ranks have one colour. So have those that share the head's columns: of the last stage, all with one
 * data parallel coordinate. */
typedef struct context_meeting {
  const treadle_train_ranks *ranks;
  treadle_back *back;
  uint64_t at; /* of the board */
  int colour, head_colour;
} context_meeting;

static treadle_status make_context(const context_meeting *m, treadle_board_set *ranks,
                                   treadle_board_set *heads) {
  const treadle_train_room *room = &m->ranks->room;
  treadle_back *back = m->back;
  treadle_status status;
  TRY(treadle_exchange_create(ranks, m->at, room->context, &back->pass->context.exchange));
  if (heads && back->transformer->head >= 0)
    TRY(treadle_exchange_create(heads, m->at + treadle_exchange_memory(room->context), room->head,
                                &back->logits));
  back->head_sums = back->logits;
out:
  return status;
}

static treadle_status meet_context(const context_meeting *m) {
  treadle_board_set *ranks, *heads;
  treadle_status status = TREADLE_OK;
  if (m->back->context.ranks == 1) return TREADLE_OK;
  TRY(treadle_board_split(m->ranks->board, m->colour, &ranks));
  TRY(treadle_board_split(m->ranks->board, m->head_colour, &heads));
  TRY(treadle_group_agree(m->ranks->group, make_context(m, ranks, heads)));
out:
  return status;
}

static context_meeting context_of(const treadle_train_ranks *ranks, treadle_back *back,
                                  const treadle_train_stage *stage, int64_t data_rank, int64_t data_ranks) {
  const bool last = stage->number == stage->pipeline.stages - 1;
  return (context_meeting){.ranks = ranks,
                           .back = back,
                           .colour = (int)(place_in_group(back->pass->replica) * data_ranks + data_rank),
                           .head_colour = last ? (int)data_rank : -1};
}

static treadle_status meet_shards(treadle_trainer *t) {
  treadle_train_ranks *r = &t->ranks;
  const uint64_t bytes = shard_board(t->shards, t->adapters);
  treadle_board_set *all;
  treadle_status status;
  TRY(largest_room(r, &t->back, &t->stage));
  TRY(treadle_board_create(r->group, bytes + context_bytes(&r->room), &r->board));
  TRY(treadle_group_agree(r->group, treadle_train_join_shards(t->shards)));
  context_meeting context = context_of(r, &t->back, &t->stage, t->data_rank, t->data_ranks);
  context.at = bytes;
  TRY(meet_context(&context));
  r->room.pieces = TREADLE_TRAIN_PIECE;
  if (t->adapters) {
    TRY(treadle_group_agree(r->group, treadle_board_split(r->board, 0, &all)));
    TRY(treadle_group_agree(
        r->group, treadle_exchange_create(all, bytes - treadle_exchange_memory(TREADLE_TRAIN_PIECE),
                                          TREADLE_TRAIN_PIECE, &r->replicas)));
  }
  r->board_bytes = treadle_train_board_bytes(t, &r->room);
out:
  return status;
}

treadle_status treadle_train_meet(treadle_trainer *t) {
  treadle_train_ranks *r = &t->ranks;
  ends_and_replicas sets;
  treadle_status status;
  if (!r->group || treadle_group_size(r->group) == 1) return TREADLE_OK;
  TRY(compare_settings(r->group, &t->back, &t->stage.pipeline));
  if (t->shards) return meet_shards(t);
  TRY(largest_room(r, &t->back, &t->stage));
  places at = places_of(&r->room, &t->stage.pipeline);
  TRY(treadle_board_create(r->group, at.all, &r->board));
  r->adapters_at = at.adapters;
  TRY(treadle_group_agree(r->group, treadle_pass_join(t->pass, r->board, &r->room.pass)));
  TRY(split_ranks(r, t->pass, &t->stage, &sets));
  TRY(treadle_group_agree(r->group, make_exchanges(r, &t->back, &at, &sets)));
  TRY(treadle_group_agree(r->group, treadle_train_make_rings(&t->stage, r, t->pass, at.rings)));
  context_meeting context = context_of(r, &t->back, &t->stage, t->data_rank, t->data_ranks);
  context.at = at.context;
  TRY(meet_context(&context));
  r->board_bytes = treadle_train_board_bytes(t, &r->room);
out:
  return status;
}

void treadle_train_leave(treadle_trainer *t) {
  treadle_train_close_rings(&t->stage);
  treadle_exchange_destroy(t->back.logits);
  if (t->pass) treadle_exchange_destroy(t->pass->context.exchange);
  treadle_exchange_destroy(t->ranks.replicas);
  treadle_exchange_destroy(t->ranks.expert_replicas);
  treadle_exchange_destroy(t->ranks.ends);
}

const void *treadle_train_said(const treadle_train_ranks *ranks, int64_t coordinate) {
  for (int rank = 0; rank < treadle_group_size(ranks->group); rank++) {
    const int64_t *said = treadle_group_said(ranks->group, rank);
    if (*said == coordinate) return said;
  }
  return NULL;
}

void treadle_train_tell(const treadle_train_ranks *ranks, treadle_status status) {
  if (status && ranks->board) treadle_board_fail(ranks->board);
}

treadle_status treadle_train_agree(const treadle_train_ranks *ranks, treadle_status status) {
  return ranks->group ? treadle_group_agree(ranks->group, status) : status;
}

treadle_status treadle_train_agree_on(const treadle_train_ranks *ranks, treadle_status status,
                                      const treadle_group_call *call) {
  treadle_group_call ours = *call;
  ours.object = ranks->number;
  return ranks->group ? treadle_group_agree_on(ranks->group, status, &ours) : status;
}

/* ---- Sums --------------------------------------------------------------------------------------------- */

float *treadle_train_room_of(const treadle_pass *pass, float *dx) {
  return pass->ranks.within ? treadle_exchange_room(pass->ranks.within) : dx;
}

treadle_status treadle_train_sum(const treadle_pass *pass, treadle_leaf_range leaves, int64_t rows,
                                 float *dx) {
  if (!pass->ranks.within) return TREADLE_OK;
  return treadle_parallel_sum(pass->ranks.within, leaves, rows, pass->transformer->hidden, dx,
                              "gradients of a layer's input");
}

/* ---- What a rank answers for ---------------------------------------------------------------------------- */

typedef struct looking {
  const treadle_back *back;
  treadle_train_visit look;
  void *context;
} looking;

/* This replica's share of a gradient. */
static void look_at_share(const looking *w, const treadle_weight *grad) {
  const treadle_replica *replica = w->back->pass->replica;
  for (int32_t s = 0; s < grad->segment_count; s++) {
    const treadle_segment *segment = &grad->segments[s];
    const float *at = (const float *)(const void *)(w->back->window + segment->at);
    int64_t row = segment->rows * replica->number / replica->count;
    int64_t end = segment->rows * (replica->number + 1) / replica->count;
    if (segment->stride == grad->column_count) {
      w->look(w->context, at + row * segment->stride, (end - row) * segment->stride);
      continue;
    }
    for (; row < end; row++) w->look(w->context, at + row * segment->stride, grad->column_count);
  }
}

/* Of ranks with the same part of a tensor, the first one of each replica, of its first group, answers for a share of it. */
static treadle_status look_at(const looking *w, int32_t tensor, const treadle_weight *weight,
                              const treadle_weight *grad) {
  treadle_pass *pass = w->back->pass;
  bool first = treadle_is_there(weight);
  treadle_status status = TREADLE_OK;
  if (!first) return TREADLE_OK;
  if (pass->ranks.stage) TRY(treadle_pass_is_first(pass, tensor, weight, &first));
  if (first && pass->replica->groups[pass->replica->position] == 0) look_at_share(w, grad);
out:
  return status;
}

static void look_at_experts(const looking *w, int32_t layer) {
  const treadle_layer_weights *grads = &w->back->grads[layer];
  for (int32_t e = 0; grads->expert_down && e < w->back->transformer->routing.experts; e++) {
    if (!treadle_is_there(&grads->expert_down[e]) || !treadle_pass_brings(w->back->pass, layer, e))
      continue;
    look_at_share(w, &grads->expert_gate[e]);
    look_at_share(w, &grads->expert_up[e]);
    look_at_share(w, &grads->expert_down[e]);
  }
}

treadle_status treadle_train_each_own(treadle_trainer *t, treadle_train_visit look, void *context) {
  const treadle_back *back = &t->back;
  const treadle_transformer *d = t->transformer;
  const looking w = {.back = back, .look = look, .context = context};
  treadle_status status;
  TRY(treadle_train_need_gradients(&t->windows, "treadle_trainer_norm"));
  if (t->adapters) return treadle_train_each_adapter(t->adapters, look, context);
  if (t->shards) {
    if (treadle_train_answers(t->shards))
      look(context, treadle_train_grads(&t->windows), (int64_t)(t->windows.grad_bytes / sizeof(float)));
    return TREADLE_OK;
  }
  for (int32_t l = 0; l < d->layers; l++) {
    for (int role = 0; role < TREADLE_ROLES; role++)
      TRY(look_at(&w, d->layer[l].tensor[role], &t->pass->layers[l].weight[role],
                  &back->grads[l].weight[role]));
    look_at_experts(&w, l);
  }
  if (treadle_pass_has_chunk(t->pass, 0)) TRY(look_at(&w, d->embed, &t->pass->embed, &back->grad_embed));
  if (treadle_pass_has_chunk(t->pass, t->stage.pipeline.chunks - 1)) {
    TRY(look_at(&w, d->final_norm, &t->pass->final_norm, &back->grad_final_norm));
    if (d->head >= 0 && d->head != d->embed) TRY(look_at(&w, d->head, &t->pass->head, &back->grad_head));
    TRY(look_at(&w, d->score, &back->score.weight, &back->score.grad_weight));
    TRY(look_at(&w, d->score_bias, &back->score.bias, &back->score.grad_bias));
  }
out:
  return status;
}
