/* What the ranks of a replica bring together, in memory that all of them see: sums of leaves, rows of the embedding, columns of logits,
 * results of experts. Where several ranks have the same part, the first one speaks and the others listen; all compute the same. */
#include "infer/pass_parts.h"

#include "base/alloc.h"

#include <string.h>

/* What a rank of the set has of a tensor. */
static treadle_status weight_of(treadle_pass *p, int member, int32_t tensor, treadle_weight *weight_p) {
  return treadle_weight_find(p->layout, p->ranks.set->ranks[member], tensor, -1, &p->arena, weight_p);
}

/* Is this rank the first one with its columns (or rows) of a tensor? */
static treadle_status is_first(treadle_pass *p, int32_t tensor, const treadle_weight *mine, bool *first_p) {
  treadle_status status = TREADLE_OK;
  *first_p = mine->segment_count > 0;
  for (int m = 0; *first_p && m < p->ranks.set->index; m++) {
    treadle_weight other;
    TRY(weight_of(p, m, tensor, &other));
    if (other.segment_count && other.first_row == mine->first_row &&
        other.first_column == mine->first_column)
      *first_p = false;
  }
out:
  return status;
}

/* Which rank of the set has a row of the embedding. */
static treadle_status find_embedding(treadle_pass *p) {
  treadle_pass_ranks *r = &p->ranks;
  treadle_status status = TREADLE_OK;
  r->embed = treadle_arena_alloc_array(&p->arena, (size_t)r->set->count, sizeof *r->embed);
  if (!r->embed) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %d ranks", r->set->count);
  for (int m = 0; m < r->set->count; m++) TRY(weight_of(p, m, p->transformer->embed, &r->embed[m]));
out:
  return status;
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* Room for the largest part of any rank. */
static treadle_status agree_on_room(treadle_pass *p, int64_t *elems_p) {
  int64_t rows = p->options.most_rows, hidden = p->transformer->hidden, all[TREADLE_REPLICA_RANKS];
  int64_t mine = larger(p->buffers.nodes * rows * hidden, p->options.most_logits * p->head.row_count);
  treadle_status status;
  TRY(treadle_group_gather(p->options.group, &mine, sizeof mine, all));
  *elems_p = 0;
  for (int i = 0; i < treadle_group_size(p->options.group); i++) *elems_p = larger(*elems_p, all[i]);
out:
  return status;
}

treadle_status treadle_pass_join(treadle_pass *p) {
  treadle_pass_ranks *r = &p->ranks;
  const treadle_layer_weights *layer = &p->layers[p->replica->chunks[0].first_layer];
  const int32_t *tensor = p->transformer->layer[p->replica->chunks[0].first_layer].tensor;
  int64_t elems;
  treadle_status status;
  if (p->replica->rank_count == 1) return TREADLE_OK;
  if (p->replica->chunk_count > 1)
    return treadle_fail(TREADLE_REFUSED, "layout '%s': the engine does not compute pipeline stages",
                        p->layout->text);
  if (p->transformer->routing.experts)
    return treadle_fail(TREADLE_REFUSED, "layout '%s': the engine computes experts on one rank",
                        p->layout->text);
  TRY(agree_on_room(p, &elems));
  TRY(treadle_board_create(p->options.group, treadle_exchange_memory((uint64_t)elems), &r->board));
  TRY(treadle_board_split(r->board, (int)p->replica->number, &r->set));
  TRY(treadle_exchange_create(r->set, 0, (uint64_t)elems, &r->exchange));
  TRY(find_embedding(p));
  TRY(is_first(p, tensor[TREADLE_ROLE_O], &layer->weight[TREADLE_ROLE_O], &r->speaks_attention));
  if (tensor[TREADLE_ROLE_DOWN] >= 0)
    TRY(is_first(p, tensor[TREADLE_ROLE_DOWN], &layer->weight[TREADLE_ROLE_DOWN], &r->speaks_mlp));
  TRY(is_first(p, p->transformer->head, &p->head, &r->speaks_head));
out:
  return status;
}

void treadle_pass_part(treadle_pass *p) {
  treadle_exchange_destroy(p->ranks.exchange);
  treadle_board_destroy(p->ranks.board);
}

void treadle_pass_tell(treadle_pass *p, treadle_status status) {
  if (status != TREADLE_OK && p->ranks.board) treadle_board_fail(p->ranks.board);
}

treadle_status treadle_pass_sum(treadle_pass *p, const treadle_weight *weight, int64_t leaves, bool speaks,
                                int64_t rows) {
  int64_t hidden = p->transformer->hidden, leaf = weight->columns / leaves;
  treadle_leaf_range mine = {.first = (int32_t)(weight->first_column / leaf),
                             .leaves = speaks ? (int32_t)(weight->column_count / leaf) : 0,
                             .all = (int32_t)leaves};
  if (!p->ranks.exchange) return TREADLE_OK;
  if (speaks)
    memcpy(treadle_exchange_room(p->ranks.exchange), p->buffers.sum,
           (size_t)(treadle_leaf_nodes(mine, NULL) * rows * hidden) * sizeof(float));
  return treadle_parallel_sum(p->ranks.exchange, mine, rows, hidden, p->buffers.sum, "sum of a layer");
}

/* Each rank brings the rows that it has; a row is read from the first rank that has it. */
treadle_status treadle_pass_gather_rows(treadle_pass *p, const int32_t *tokens, int64_t rows) {
  treadle_pass_ranks *r = &p->ranks;
  int64_t hidden = p->transformer->hidden, others;
  const treadle_exchange_part part = {.of = r->set ? r->set->count : 0,
                                      .first = r->set ? r->set->index : 0,
                                      .end = r->set ? r->set->index + 1 : 0,
                                      .rows = rows,
                                      .columns = hidden};
  treadle_status status;
  if (!r->exchange) return TREADLE_OK;
  memcpy(treadle_exchange_room(r->exchange), p->buffers.x, (size_t)(rows * hidden) * sizeof(float));
  TRY(treadle_parallel_slots(r->exchange, &part, "embedding"));
  for (int64_t row = 0; row < rows; row++) {
    int m = 0;
    while (m < r->set->count &&
           !(tokens[row] >= r->embed[m].first_row && tokens[row] < r->embed[m].end_row))
      m++;
    const float *from = m < r->set->count ? treadle_parallel_slot(r->exchange, m, &others) : NULL;
    if (!from)
      return treadle_fail(TREADLE_REFUSED, "no rank of the replica has token %d in its embedding",
                          tokens[row]);
    memcpy(p->buffers.x + row * hidden, from + row * hidden, (size_t)hidden * sizeof(float));
  }
out:
  return status;
}

treadle_status treadle_pass_gather_logits(treadle_pass *p, int64_t rows) {
  const treadle_weight *head = &p->head;
  bool speaks = p->ranks.speaks_head;
  const treadle_exchange_part part = {.of = p->transformer->vocabulary,
                                      .first = head->first_row,
                                      .end = speaks ? head->end_row : head->first_row,
                                      .rows = rows,
                                      .columns = head->row_count};
  return treadle_parallel_gather(p->ranks.exchange, &part, p->buffers.logits, "logits");
}
