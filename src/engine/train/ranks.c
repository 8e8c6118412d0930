/* The ranks that compute together. In a replica of the model, the ranks of a stage share its layers (tensor parallel), and rows go from stage
 * to stage on rings. Ranks with the same part in other replicas have other rows (data parallel); their gradients are added up at the end,
 * and so are the halves of a tied gradient, which the first and the last stage have.
 *
 * A rank's part of the board: sums of the stage, logits of the stage, pieces of windows, then the rings on which it sends. */
#include "train/trainer.h"

#include "base/larger.h"
#include "group/group.h"

#include <string.h>

enum { PIECE = 1 << 16 /* elements of a window that ranks add at once */, LINE = 64 };

/* ---- Chunks ------------------------------------------------------------------------------------------- */

/* Stages are sets of ranks with the same layers; chunk c is on stage c % stages. */
static treadle_status find_stages(treadle_trainer *t) {
  const treadle_replica *r = &t->replica;
  int32_t stages = 1;
  while (stages < r->chunk_count && r->chunks[stages].ranks != r->chunks[0].ranks) stages++;
  t->pipeline = (treadle_pipeline){.stages = stages, .chunks = r->chunk_count, .micro_batches = 1};
  if (r->chunk_count > TREADLE_TRAIN_CHUNKS)
    return treadle_fail(TREADLE_REFUSED, "layout '%s': %d chunks of layers; training takes at most %d",
                        t->layout->text, r->chunk_count, TREADLE_TRAIN_CHUNKS);
  for (int32_t c = 0; c < r->chunk_count; c++)
    if (r->chunk_count % stages || r->chunks[c].ranks != r->chunks[c % stages].ranks)
      return treadle_fail(TREADLE_REFUSED,
                          "layout '%s': layer %d is on other ranks than the order of %d stages asks for",
                          t->layout->text, r->chunks[c].first_layer, stages);
  return TREADLE_OK;
}

treadle_status treadle_train_find_chunks(treadle_trainer *t) {
  const treadle_replica *r = &t->replica;
  int32_t place = 0;
  treadle_status status;
  TRY(find_stages(t));
  for (int32_t c = 0; c < r->chunk_count; c++) {
    if (!treadle_pass_has_chunk(t->pass, c)) continue;
    t->stage = c % t->pipeline.stages;
    t->stage_ranks = __builtin_popcountll(r->chunks[c].ranks);
    t->chunks[t->chunk_count++] = (treadle_train_chunk){.number = c,
                                                        .first_layer = r->chunks[c].first_layer,
                                                        .end_layer = r->chunks[c].end_layer,
                                                        .place = place};
    place += r->chunks[c].end_layer - r->chunks[c].first_layer;
  }
out:
  return status;
}

/* ---- Meeting ------------------------------------------------------------------------------------------ */

/* What ranks may not differ in: they would compute other bits, or wait for each other. */
typedef struct settings {
  char kernels[32];
  int64_t values[7];
} settings;

static const char *const names[] = {"dtype",         "fast",      "most_rows",        "most_tokens",
                                    "micro batches", "recompute", "sequence_parallel"};

static treadle_status compare_settings(treadle_trainer *t) {
  const treadle_pass_options *o = &t->pass->options;
  settings mine = {.values = {o->dtype, o->fast, t->rows, o->most_positions, t->pipeline.micro_batches,
                              !t->keeps_all, t->sequence_parallel}};
  treadle_group *group = t->ranks.group;
  treadle_status status;
  snprintf(mine.kernels, sizeof mine.kernels, "%s", treadle_pass_kernels(t->pass));
  TRY(treadle_group_say(group, &mine, sizeof mine));
  for (int rank = 0; rank < treadle_group_size(group) && !status; rank++) {
    const settings *other = treadle_group_said(group, rank);
    if (strcmp(other->kernels, mine.kernels) != 0)
      status = treadle_fail(TREADLE_REFUSED, "rank %d computes with kernels '%s', this rank with '%s'",
                            rank, other->kernels, mine.kernels);
    for (size_t i = 0; i < sizeof names / sizeof *names && !status; i++)
      if (other->values[i] != mine.values[i])
        status = treadle_fail(TREADLE_REFUSED, "rank %d has %s %lld, this rank %lld", rank, names[i],
                              (long long)other->values[i], (long long)mine.values[i]);
  }
  TRY(treadle_group_agree(group, status));
out:
  return status;
}

treadle_train_room treadle_train_measure_room(const treadle_trainer *t) {
  const treadle_weight *head = &t->pass->head;
  int64_t hidden = t->transformer->hidden, rows = t->rows, leaf = TREADLE_HEAD_LEAF, nodes;
  treadle_train_room room = {.rows = (uint64_t)(rows * hidden), .chunks = t->chunk_count};
  treadle_pass_measure_board(t->pass, &room.pass);
  treadle_leaf_range keys = {(int32_t)(t->pass->heads.kv_first * t->key_leaves / t->transformer->kv_heads),
                             (int32_t)(t->pass->heads.kv_count * t->key_leaves / t->transformer->kv_heads),
                             (int32_t)t->key_leaves};
  treadle_leaf_range words = {(int32_t)(head->first_row / leaf),
                              (int32_t)((head->row_count + leaf - 1) / leaf), (int32_t)t->head_leaves};
  nodes = treadle_leaf_nodes(keys, NULL) * rows;
  if (t->head_leaves > 1 && words.leaves)
    nodes = treadle_larger(nodes, treadle_leaf_nodes(words, NULL) * TREADLE_HEAD_ROWS);
  room.pass.within = (uint64_t)treadle_larger((int64_t)room.pass.within, nodes * hidden);
  room.pass.within =
      (uint64_t)treadle_larger((int64_t)room.pass.within, t->transformer->heads * t->transformer->head_dim);
  room.pass.across = LINE;
  room.logits = (uint64_t)(TREADLE_HEAD_ROWS * t->width.vocabulary);
  room.pieces = PIECE;
  room.slots = t->slots;
  return room;
}

void treadle_train_join_room(treadle_train_room *room, const treadle_train_room *other) {
  room->pass.within = (uint64_t)treadle_larger((int64_t)room->pass.within, (int64_t)other->pass.within);
  room->logits = (uint64_t)treadle_larger((int64_t)room->logits, (int64_t)other->logits);
}

/* The largest room that any rank needs. */
static treadle_status largest_room(treadle_trainer *t) {
  treadle_group *group = t->ranks.group;
  treadle_train_room room = treadle_train_measure_room(t);
  treadle_status status;
  TRY(treadle_group_say(group, &room, sizeof room));
  for (int rank = 0; rank < treadle_group_size(group); rank++)
    treadle_train_join_room(&room, treadle_group_said(group, rank));
  t->ranks.room = room;
out:
  return status;
}

/* Where the parts of the board begin. */
typedef struct places {
  uint64_t logits, pieces, rings, ring, all;
} places;

static places places_of(const treadle_train_room *room, const treadle_pipeline *pipeline) {
  places at = {.logits = treadle_pass_board_bytes(&room->pass)};
  at.pieces = at.logits + treadle_exchange_memory(room->logits);
  at.rings = at.pieces + 2 * treadle_exchange_memory(room->pieces);
  at.ring = treadle_ring_memory((int)room->slots, room->rows);
  at.all = at.rings + (pipeline->stages > 1 ? 2 * (uint64_t)room->chunks * at.ring : 0);
  return at;
}

uint64_t treadle_train_board_bytes(const treadle_trainer *t, const treadle_train_room *room) {
  if (t->layout->ranks == 1) return 0;
  return treadle_board_memory(t->shards ? treadle_train_shard_board(t) : places_of(room, &t->pipeline).all);
}

/* The rank of this replica in stage `stage` with the same place in it as this one. */
static int peer_in(const treadle_trainer *t, int32_t stage) {
  treadle_rank_bits ranks = t->replica.chunks[stage].ranks;
  int number = t->pass->ranks.stage->index;
  for (int i = 0; i < t->replica.rank_count; i++)
    if (ranks >> i & 1 && number-- == 0) return t->replica.ranks[i];
  return -1;
}

/* The ring from a chunk to one beside it. */
static treadle_status make_ring(treadle_trainer *t, int32_t from, int32_t to, treadle_ring **ring_p) {
  const treadle_pipeline *p = &t->pipeline;
  places at = places_of(&t->ranks.room, p);
  int32_t back = to < from, number = 2 * (from / p->stages) + back;
  const treadle_ring_spec spec = {.from = peer_in(t, from % p->stages),
                                  .to = peer_in(t, to % p->stages),
                                  .number = TREADLE_ENGINE_GATES + 2 + 2 * (back ? to : from) + back,
                                  .slots = (int)t->ranks.room.slots,
                                  .at = at.rings + (uint64_t)number * at.ring,
                                  .elems = t->ranks.room.rows};
  return treadle_ring_create(t->ranks.board, &spec, ring_p);
}

static treadle_status make_rings(treadle_trainer *t) {
  treadle_status status = TREADLE_OK;
  for (int32_t i = 0; i < t->chunk_count && t->pipeline.stages > 1; i++) {
    treadle_train_chunk *c = &t->chunks[i];
    if (c->number > 0) {
      TRY(make_ring(t, c->number - 1, c->number, &c->from_before));
      TRY(make_ring(t, c->number, c->number - 1, &c->to_before));
    }
    if (c->number + 1 < t->pipeline.chunks) {
      TRY(make_ring(t, c->number, c->number + 1, &c->to_next));
      TRY(make_ring(t, c->number + 1, c->number, &c->from_next));
    }
  }
out:
  return status;
}

/* Is the gradient of the embedding in two halves, on two stages? */
static bool has_far_halves(const treadle_trainer *t) {
  return t->transformer->embed == t->transformer->head && t->pipeline.stages > 1;
}

/* Ranks whose exchanges are made behind; NULL: this rank has none. All ranks split before any takes memory, which it may lack alone. */
typedef struct ends_and_replicas {
  treadle_board_set *replicas, *ends;
} ends_and_replicas;

static treadle_status split_ranks(treadle_trainer *t, ends_and_replicas *sets_p) {
  const bool end = t->stage == 0 || t->stage == t->pipeline.stages - 1;
  const int colour = (int)t->replica.number * TREADLE_REPLICA_RANKS + t->pass->ranks.stage->index;
  treadle_status status = TREADLE_OK;
  *sets_p = (ends_and_replicas){0};
  if (t->replica.count > 1)
    TRY(treadle_board_split(t->ranks.board, t->replica.position, &sets_p->replicas));
  if (has_far_halves(t)) TRY(treadle_board_split(t->ranks.board, end ? colour : -1, &sets_p->ends));
out:
  return status;
}

static treadle_status make_exchanges(treadle_trainer *t, const ends_and_replicas *sets) {
  treadle_train_ranks *r = &t->ranks;
  places at = places_of(&r->room, &t->pipeline);
  treadle_status status = TREADLE_OK;
  if (t->pass->ranks.stage->count > 1)
    TRY(treadle_exchange_create(t->pass->ranks.stage, at.logits, r->room.logits, &r->logits));
  if (sets->replicas) TRY(treadle_exchange_create(sets->replicas, at.pieces, r->room.pieces, &r->replicas));
  if (sets->ends)
    TRY(treadle_exchange_create(sets->ends, at.pieces + treadle_exchange_memory(r->room.pieces),
                                r->room.pieces, &r->ends));
out:
  return status;
}

static treadle_status meet_shards(treadle_trainer *t) {
  treadle_train_ranks *r = &t->ranks;
  uint64_t bytes = treadle_train_shard_board(t);
  treadle_status status;
  TRY(treadle_board_create(r->group, bytes, &r->board));
  TRY(treadle_group_agree(r->group, treadle_train_join_shards(t)));
  r->board_bytes = treadle_train_board_bytes(t, &r->room);
out:
  return status;
}

treadle_status treadle_train_meet(treadle_trainer *t) {
  treadle_train_ranks *r = &t->ranks;
  ends_and_replicas sets;
  treadle_status status;
  if (!r->group || treadle_group_size(r->group) == 1) return TREADLE_OK;
  TRY(compare_settings(t));
  if (t->shards) return meet_shards(t);
  TRY(largest_room(t));
  places at = places_of(&r->room, &t->pipeline);
  TRY(treadle_board_create(r->group, at.all, &r->board));
  TRY(treadle_group_agree(r->group, treadle_pass_join(t->pass, r->board, &r->room.pass)));
  if (t->pass->ranks.gather.columns)
    status = treadle_fail(
        TREADLE_REFUSED,
        "layout '%s': more tensor parallel ranks than the model has key and value heads, %lld; "
        "training does not take that",
        t->layout->text, (long long)t->transformer->kv_heads);
  TRY(treadle_group_agree(r->group, status));
  TRY(split_ranks(t, &sets));
  TRY(treadle_group_agree(r->group, make_exchanges(t, &sets)));
  TRY(treadle_group_agree(r->group, make_rings(t)));
  r->board_bytes = treadle_train_board_bytes(t, &r->room);
out:
  return status;
}

void treadle_train_leave(treadle_trainer *t) {
  for (int32_t i = 0; i < t->chunk_count; i++) {
    treadle_ring_destroy(t->chunks[i].from_before);
    treadle_ring_destroy(t->chunks[i].to_before);
    treadle_ring_destroy(t->chunks[i].from_next);
    treadle_ring_destroy(t->chunks[i].to_next);
  }
  treadle_exchange_destroy(t->ranks.logits);
  treadle_exchange_destroy(t->ranks.replicas);
  treadle_exchange_destroy(t->ranks.ends);
}

void treadle_train_tell(treadle_trainer *t, treadle_status status) {
  if (status && t->ranks.board) treadle_board_fail(t->ranks.board);
}

treadle_status treadle_train_agree(treadle_trainer *t, treadle_status status) {
  return t->ranks.group ? treadle_group_agree(t->ranks.group, status) : status;
}

/* ---- Sums --------------------------------------------------------------------------------------------- */

float *treadle_train_room_of(const treadle_trainer *t, float *dx) {
  return t->pass->ranks.within ? treadle_exchange_room(t->pass->ranks.within) : dx;
}

treadle_status treadle_train_sum(treadle_trainer *t, treadle_leaf_range leaves, int64_t rows, float *dx) {
  if (!t->pass->ranks.within) return TREADLE_OK;
  return treadle_parallel_sum(t->pass->ranks.within, leaves, rows, t->transformer->hidden, dx,
                              "gradients of a layer's input");
}

/* values [count] = the sum over all members, piece by piece; `of`: which one this rank is. */
static treadle_status add_members(treadle_exchange *exchange, treadle_leaf_range mine, float *values,
                                  int64_t count, const char *what) {
  treadle_status status = TREADLE_OK;
  for (int64_t at = 0; at < count; at += PIECE) {
    int64_t some = count - at < PIECE ? count - at : PIECE;
    memcpy(treadle_exchange_room(exchange), values + at, (size_t)some * sizeof *values);
    TRY(treadle_parallel_sum(exchange, mine, 1, some, values + at, what));
  }
out:
  return status;
}

static treadle_status join_ends(treadle_trainer *t) {
  const treadle_weight *grad = t->stage == 0 ? &t->grad_embed : &t->grad_head;
  const treadle_leaf_range mine = {t->stage == 0 ? 0 : 1, 1, 2};
  int64_t hidden = t->transformer->hidden;
  treadle_status status = TREADLE_OK;
  for (int32_t s = 0; s < grad->segment_count; s++)
    TRY(add_members(t->ranks.ends, mine, (float *)(void *)(t->window + grad->segments[s].at),
                    grad->segments[s].rows * hidden, "halves of the embedding's gradient"));
out:
  return status;
}

treadle_status treadle_train_join_gradients(treadle_trainer *t) {
  const treadle_leaf_range mine = {(int32_t)t->replica.number, 1, (int32_t)t->replica.count};
  treadle_status status = TREADLE_OK;
  if (t->shards) return TREADLE_OK; /* it was done unit by unit */
  treadle_back_tie(t);
  if (t->ranks.ends) TRY(join_ends(t));
  if (t->ranks.replicas)
    TRY(add_members(t->ranks.replicas, mine, (float *)(void *)t->grad_window,
                    (int64_t)(t->grad_bytes / sizeof(float)), "gradients of the replicas"));
out:
  return status;
}

/* ---- What a rank answers for ---------------------------------------------------------------------------- */

typedef struct looking {
  treadle_trainer *t;
  treadle_train_visit look;
  void *context;
} looking;

/* Of ranks with the same part of a tensor, the first one of each replica answers for a share of it. */
static treadle_status look_at(const looking *w, int32_t tensor, const treadle_weight *weight,
                              const treadle_weight *grad) {
  treadle_trainer *t = w->t;
  bool first = treadle_is_there(weight);
  treadle_status status = TREADLE_OK;
  if (!first) return TREADLE_OK;
  if (t->pass->ranks.stage) TRY(treadle_pass_is_first(t->pass, tensor, weight, &first));
  for (int32_t s = 0; first && s < grad->segment_count; s++) {
    const treadle_segment *segment = &grad->segments[s];
    const float *at = (const float *)(const void *)(t->window + segment->at);
    int64_t row = segment->rows * t->replica.number / t->replica.count;
    int64_t end = segment->rows * (t->replica.number + 1) / t->replica.count;
    if (segment->stride == grad->column_count) {
      w->look(w->context, at + row * segment->stride, (end - row) * segment->stride);
      continue;
    }
    for (; row < end; row++) w->look(w->context, at + row * segment->stride, grad->column_count);
  }
out:
  return status;
}

treadle_status treadle_train_each_own(treadle_trainer *t, treadle_train_visit look, void *context) {
  const treadle_transformer *d = t->transformer;
  const looking w = {.t = t, .look = look, .context = context};
  treadle_status status = TREADLE_OK;
  if (t->shards) {
    if (treadle_train_answers(t))
      look(context, (const float *)(const void *)t->grad_window, (int64_t)(t->grad_bytes / sizeof(float)));
    return TREADLE_OK;
  }
  for (int32_t l = 0; l < d->layers; l++)
    for (int role = 0; role < TREADLE_ROLES; role++)
      TRY(look_at(&w, d->layer[l].tensor[role], &t->pass->layers[l].weight[role],
                  &t->grads[l].weight[role]));
  if (treadle_pass_has_chunk(t->pass, 0)) TRY(look_at(&w, d->embed, &t->pass->embed, &t->grad_embed));
  if (treadle_pass_has_chunk(t->pass, t->pipeline.chunks - 1)) {
    TRY(look_at(&w, d->final_norm, &t->pass->final_norm, &t->grad_final_norm));
    if (d->head != d->embed) TRY(look_at(&w, d->head, &t->pass->head, &t->grad_head));
  }
out:
  return status;
}
