/* The ranks that compute with this one, and what each of them brings. Where several have the same part of a weight (data parallel ranks
 * of Megatron, which differ in their experts), the first one speaks and the others listen; all compute the same. */
#include "base/larger.h"
#include "pass/pass_steps.h"

#include <string.h>

static treadle_status no_memory(const treadle_pass *p) {
  return treadle_fail(TREADLE_NO_MEMORY, "no memory for the parts of %d ranks", p->replica->rank_count);
}

/* ---- Stages ------------------------------------------------------------------------------------------- */

bool treadle_pass_has_chunk(const treadle_pass *pass, int32_t chunk) {
  return pass->replica->chunks[chunk].ranks >> pass->replica->position & 1;
}

/* The first of this rank's chunks: ranks that have the same first one are a stage. */
static treadle_status find_stage(const treadle_pass *p, int32_t *chunk_p) {
  const treadle_replica *r = p->replica;
  *chunk_p = -1;
  for (int32_t c = 0; c < r->chunk_count; c++) {
    if (!treadle_pass_has_chunk(p, c)) continue;
    if (*chunk_p < 0) *chunk_p = c;
    if (r->chunks[c].ranks == r->chunks[*chunk_p].ranks) continue;
    return treadle_fail(TREADLE_REFUSED,
                        "layout '%s': rank %lld has layer %d with other ranks than layer %d; the engine "
                        "takes pipeline stages alone",
                        p->layout->text, (long long)p->rank, r->chunks[c].first_layer,
                        r->chunks[*chunk_p].first_layer);
  }
  if (*chunk_p >= 0) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED, "layout '%s': rank %lld has no layer", p->layout->text,
                      (long long)p->rank);
}

treadle_status treadle_pass_check_stage(const treadle_pass *pass) {
  int32_t chunk, last = pass->replica->chunk_count - 1;
  treadle_status status;
  TRY(find_stage(pass, &chunk));
  if (treadle_pass_has_chunk(pass, last) && !pass->final_norm.segment_count)
    status = treadle_fail(TREADLE_REFUSED, "layout '%s': rank %lld has the last layer and no %s",
                          pass->layout->text, (long long)pass->rank,
                          pass->transformer->model->tensors[pass->transformer->final_norm].name);
out:
  return status;
}

/* ---- Who speaks --------------------------------------------------------------------------------------- */

/* What a rank of the set has of a tensor. */
static treadle_status weight_of(treadle_pass *p, const treadle_board_set *set, int member, int32_t tensor,
                                int64_t expert, treadle_weight *weight_p) {
  return treadle_weight_find(p->layout, set->ranks[member], tensor, expert, &p->arena, weight_p);
}

static bool is_same_part(const treadle_weight *a, const treadle_weight *b) {
  return a->segment_count && b->segment_count && a->first_row == b->first_row &&
         a->first_column == b->first_column;
}

treadle_status treadle_pass_is_first(treadle_pass *p, int32_t tensor, const treadle_weight *mine,
                                     bool *first_p) {
  treadle_status status = TREADLE_OK;
  *first_p = mine->segment_count > 0;
  for (int m = 0; *first_p && m < p->ranks.stage->index; m++) {
    treadle_weight other;
    TRY(weight_of(p, p->ranks.stage, m, tensor, -1, &other));
    if (is_same_part(mine, &other)) *first_p = false;
  }
out:
  return status;
}

static treadle_status find_speakers(treadle_pass *p) {
  const treadle_transformer *d = p->transformer;
  treadle_status status = TREADLE_OK;
  for (int64_t l = 0; l < d->layers; l++) {
    const int32_t *tensor = d->layer[l].tensor;
    const treadle_weight *w = p->layers[l].weight;
    treadle_pass_speaks *s = &p->ranks.speaks[l];
    if (!w[TREADLE_ROLE_O].segment_count) continue;
    TRY(treadle_pass_is_first(p, tensor[TREADLE_ROLE_O], &w[TREADLE_ROLE_O], &s->attention));
    if (tensor[TREADLE_ROLE_DOWN] >= 0)
      TRY(treadle_pass_is_first(p, tensor[TREADLE_ROLE_DOWN], &w[TREADLE_ROLE_DOWN], &s->mlp));
    if (tensor[TREADLE_ROLE_SHARED_DOWN] >= 0)
      TRY(treadle_pass_is_first(p, tensor[TREADLE_ROLE_SHARED_DOWN], &w[TREADLE_ROLE_SHARED_DOWN],
                                &s->shared));
  }
  if (d->head >= 0 && treadle_pass_has_chunk(p, p->replica->chunk_count - 1))
    TRY(treadle_pass_is_first(p, d->head, &p->head, &p->ranks.speaks_head));
out:
  return status;
}

/* ---- Rows of the embedding ---------------------------------------------------------------------------- */

static treadle_status find_embedding(treadle_pass *p) {
  treadle_pass_ranks *r = &p->ranks;
  treadle_status status = TREADLE_OK;
  r->embed = treadle_arena_alloc_array(&p->arena, (size_t)r->stage->count, sizeof *r->embed);
  if (!r->embed) return no_memory(p);
  for (int m = 0; m < r->stage->count; m++)
    TRY(weight_of(p, r->stage, m, p->transformer->embed, -1, &r->embed[m]));
out:
  return status;
}

/* ---- Experts ------------------------------------------------------------------------------------------ */

/* The ranks among which experts are divided. */
static const treadle_board_set *expert_ranks(const treadle_pass *p) {
  return p->ranks.groups.set ? p->ranks.groups.set : p->ranks.stage;
}

/* Whose results of the part of this rank are used, and whether that is so of all parts. parts: those of the ranks. */
static void find_source(treadle_pass *p, const treadle_weight *parts, int64_t expert) {
  treadle_pass_ranks *r = &p->ranks;
  const treadle_board_set *set = expert_ranks(p);
  r->expert_source[expert] = -1;
  for (int m = 0; m < set->count; m++)
    for (int first = 0; parts[m].segment_count && first <= m; first++) {
      if (!parts[first].segment_count || parts[first].first_column != parts[m].first_column) continue;
      if (first < m) r->expert_copied[expert] = true;
      if (m == set->index) r->expert_source[expert] = first;
      break;
    }
}

/* The ranks that bring an expert's leaves, each leaf once, in order. */
static treadle_status find_expert(treadle_pass *p, const treadle_weight *parts, int64_t expert) {
  treadle_pass_ranks *r = &p->ranks;
  const treadle_board_set *set = expert_ranks(p);
  int64_t columns = p->transformer->expert_intermediate, at = 0;
  treadle_expert_node nodes[TREADLE_LEAVES_MOST];
  int32_t count = 0;
  while (at < columns) {
    int m = 0;
    while (m < set->count && !(parts[m].segment_count && parts[m].first_column == at)) m++;
    if (m == set->count)
      return treadle_fail(TREADLE_REFUSED, "layout '%s': no rank brings columns from %lld of expert %lld",
                          p->layout->text, (long long)at, (long long)expert);
    treadle_leaf_node own[TREADLE_LEAF_NODES_MAX];
    int32_t more = treadle_leaf_nodes(treadle_pass_leaves(&parts[m], p->expert_leaves), own);
    p->buffers.expert_nodes = treadle_larger(p->buffers.expert_nodes, more);
    for (int32_t n = 0; n < more; n++)
      nodes[count++] = (treadle_expert_node){.member = m, .number = n, .node = own[n]};
    if (m == set->index) r->brings[expert] = true;
    at += parts[m].column_count;
  }
  r->expert_node_count[expert] = count;
  r->expert_nodes[expert] = treadle_arena_alloc_array(&p->arena, (size_t)count, sizeof *nodes);
  if (!r->expert_nodes[expert]) return no_memory(p);
  if (r->groups.set) {
    r->groups.start[expert] = treadle_arena_alloc_array(&p->arena, (size_t)count, sizeof **r->groups.start);
    if (!r->groups.start[expert]) return no_memory(p);
  }
  memcpy(r->expert_nodes[expert], nodes, (size_t)count * sizeof *nodes);
  return TREADLE_OK;
}

/* As the experts of this rank's first layer that has some are divided, so are those of the others. */
static treadle_status find_experts(treadle_pass *p) {
  const treadle_transformer *d = p->transformer;
  treadle_pass_ranks *r = &p->ranks;
  const treadle_board_set *set = expert_ranks(p);
  size_t experts = (size_t)d->routing.experts;
  int64_t l = 0;
  treadle_status status = TREADLE_OK;
  while (l < d->layers && !(d->layer[l].sparse && p->layers[l].weight[TREADLE_ROLE_O].segment_count)) l++;
  if (l == d->layers) return TREADLE_OK;
  r->brings = treadle_arena_alloc_array(&p->arena, experts, sizeof *r->brings);
  r->expert_nodes = treadle_arena_alloc_array(&p->arena, experts, sizeof *r->expert_nodes);
  r->expert_node_count = treadle_arena_alloc_array(&p->arena, experts, sizeof *r->expert_node_count);
  r->expert_source = treadle_arena_alloc_array(&p->arena, experts, sizeof *r->expert_source);
  r->expert_copied = treadle_arena_alloc_array(&p->arena, experts, sizeof *r->expert_copied);
  treadle_weight *parts = treadle_arena_alloc_array(&p->arena, (size_t)set->count, sizeof *parts);
  if (!r->brings || !r->expert_nodes || !r->expert_node_count || !r->expert_source || !r->expert_copied ||
      !parts)
    return no_memory(p);
  for (size_t e = 0; e < experts; e++) {
    for (int m = 0; m < set->count; m++)
      TRY(weight_of(p, set, m, d->layer[l].tensor[TREADLE_ROLE_EXPERT_DOWN], (int64_t)e, &parts[m]));
    TRY(find_expert(p, parts, (int64_t)e));
    find_source(p, parts, (int64_t)e);
  }
out:
  return status;
}

/* ---- Meeting ------------------------------------------------------------------------------------------ */

/* How many of them there are. */
static int count_bits(treadle_rank_bits bits) {
  int count = 0;
  for (; bits; bits &= bits - 1) count++;
  return count;
}

/* Does a group have one rank, or one in each stage, where there are others? Then its ranks bring each other nothing there. */
static bool is_alone(const treadle_pass *p, treadle_rank_bits among) {
  const treadle_replica *r = p->replica;
  return r->group_count > 1 && count_bits(treadle_replica_members(r) & among) == 1;
}

void treadle_pass_measure_board(const treadle_pass *pass, treadle_pass_board *board_p) {
  int64_t rows = pass->options.most_rows, hidden = pass->transformer->hidden;
  const treadle_pass_buffers *b = &pass->buffers;
  const bool grouped = pass->replica->group_count > 1;
  int32_t stage = 0;
  *board_p = (treadle_pass_board){0};
  if (pass->replica->rank_count == 1) return;
  while (!treadle_pass_has_chunk(pass, stage)) stage++;
  if (!is_alone(pass, pass->replica->chunks[stage].ranks)) {
    board_p->within =
        treadle_larger(b->nodes > 1 ? b->nodes * rows * hidden : rows * hidden,
                       grouped ? 0 : b->expert_nodes * rows * pass->transformer->routing.top * hidden);
    board_p->within = treadle_larger((int64_t)board_p->within, rows * treadle_pass_head_columns(pass));
  }
  if (!is_alone(pass, ~(treadle_rank_bits)0))
    board_p->across = treadle_larger(pass->options.most_logits * pass->head.row_count,
                                     pass->replica->chunk_count > 1
                                         ? treadle_larger(rows * hidden, treadle_pass_measure_record(pass))
                                         : 0);
  if (grouped) board_p->between = treadle_pass_measure_groups(pass);
}

uint64_t treadle_pass_board_bytes(const treadle_pass_board *board) {
  return treadle_exchange_memory(board->within) + treadle_exchange_memory(board->across) +
         (board->between ? treadle_exchange_memory(board->between) : 0);
}

treadle_status treadle_pass_join(treadle_pass *p, treadle_board *board, const treadle_pass_board *room) {
  treadle_pass_ranks *r = &p->ranks;
  const treadle_replica *replica = p->replica;
  const int group = (int)replica->number * TREADLE_REPLICA_RANKS + replica->groups[replica->position];
  int32_t stage;
  treadle_status status;
  TRY(find_stage(p, &stage));
  TRY(treadle_board_split(board, group, &r->all));
  TRY(treadle_board_split(board, group * TREADLE_REPLICA_RANKS + stage, &r->stage));
  r->board = board;
  if (replica->rank_count == 1) goto out;
  if (!is_alone(p, replica->chunks[stage].ranks))
    TRY(treadle_exchange_create(r->stage, 0, room->within, &r->within));
  if (!is_alone(p, ~(treadle_rank_bits)0))
    TRY(treadle_exchange_create(r->all, treadle_exchange_memory(room->within), room->across, &r->across));
  if (replica->group_count > 1) TRY(treadle_pass_join_groups(p, stage, room));
  if (r->embed) goto out; /* it has met before: who has what is known */
  TRY(find_speakers(p));
  TRY(find_embedding(p));
  TRY(treadle_pass_find_heads(p));
  TRY(find_experts(p));
out:
  return status;
}

void treadle_pass_part(treadle_pass *p) {
  treadle_exchange_destroy(p->ranks.within);
  treadle_exchange_destroy(p->ranks.across);
  treadle_exchange_destroy(p->ranks.groups.exchange);
  p->ranks.within = p->ranks.across = p->ranks.groups.exchange = NULL;
  p->ranks.groups.set = NULL;
  p->ranks.all = p->ranks.stage = NULL;
  p->ranks.board = NULL;
}

void treadle_pass_tell(treadle_pass *p, treadle_status status) {
  if (status != TREADLE_OK && p->ranks.board) treadle_board_fail(p->ranks.board);
}
