/* What the ranks of a replica bring together, in memory that all of them see: the ranks of a stage bring sums of leaves, rows of the
 * embedding and results of experts; a stage hands its rows to the next one; the last one brings the columns of logits to all. */
#include "pass/pass_steps.h"

#include <string.h>

treadle_status treadle_pass_sum(treadle_pass *p, const treadle_weight *weight, int64_t leaves, bool speaks,
                                int64_t rows) {
  int64_t hidden = p->transformer->hidden;
  treadle_leaf_range mine = treadle_pass_leaves(weight, leaves);
  if (!speaks) mine.leaves = 0;
  if (!p->ranks.within) return TREADLE_OK;
  if (speaks)
    memcpy(treadle_exchange_room(p->ranks.within), p->buffers.sum,
           (size_t)(treadle_leaf_nodes(mine, NULL) * rows * hidden) * sizeof(float));
  return treadle_parallel_sum(p->ranks.within, mine, rows, hidden, p->buffers.sum, "sum of a layer");
}

/* ---- Rows --------------------------------------------------------------------------------------------- */

treadle_status treadle_pass_gather_rows(treadle_pass *p, const int32_t *tokens, int64_t rows) {
  treadle_pass_ranks *r = &p->ranks;
  int64_t hidden = p->transformer->hidden, others;
  treadle_status status;
  if (!r->within) return TREADLE_OK;
  const treadle_exchange_part part =
      treadle_exchange_slot(r->stage->count, r->stage->index, true, rows, hidden);
  memcpy(treadle_exchange_room(r->within), p->buffers.x, (size_t)(rows * hidden) * sizeof(float));
  TRY(treadle_parallel_slots(r->within, &part, "embedding"));
  for (int64_t row = 0; row < rows; row++) {
    int m = 0;
    while (m < r->stage->count &&
           !(tokens[row] >= r->embed[m].first_row && tokens[row] < r->embed[m].end_row))
      m++;
    const float *from = m < r->stage->count ? treadle_parallel_slot(r->within, m, &others) : NULL;
    if (!from)
      return treadle_fail(TREADLE_REFUSED, "no rank of the first stage has token %d in its embedding",
                          tokens[row]);
    memcpy(p->buffers.x + row * hidden, from + row * hidden, (size_t)hidden * sizeof(float));
  }
out:
  return status;
}

treadle_status treadle_pass_hand_over(treadle_pass *p, int32_t chunk, int64_t rows) {
  treadle_pass_ranks *r = &p->ranks;
  int64_t hidden = p->transformer->hidden, others;
  bool brings = treadle_pass_has_chunk(p, chunk) && r->stage->index == 0;
  const treadle_exchange_part part =
      treadle_exchange_slot(p->replica->chunk_count, chunk, brings, rows, hidden);
  treadle_status status;
  if (brings)
    memcpy(treadle_exchange_room(r->across), p->buffers.x, (size_t)(rows * hidden) * sizeof(float));
  TRY(treadle_parallel_slots(r->across, &part, "rows of the stage before"));
  if (treadle_pass_has_chunk(p, chunk + 1))
    memcpy(p->buffers.x, treadle_parallel_slot(r->across, chunk, &others),
           (size_t)(rows * hidden) * sizeof(float));
out:
  return status;
}

treadle_status treadle_pass_gather_logits(treadle_pass *p, int64_t rows) {
  const treadle_weight *head = &p->head;
  bool speaks = p->ranks.speaks_head;
  const treadle_exchange_part part = {.of = p->transformer->vocabulary,
                                      .first = speaks ? head->first_row : 0,
                                      .end = speaks ? head->end_row : 0,
                                      .rows = rows,
                                      .columns = speaks ? head->row_count : 0};
  return treadle_parallel_gather(p->ranks.across, &part, p->buffers.logits, "logits");
}

/* ---- Experts ------------------------------------------------------------------------------------------ */

float *treadle_pass_expert_room(treadle_pass *pass) {
  return pass->ranks.within ? treadle_exchange_room(pass->ranks.within) : pass->buffers.slots;
}

treadle_status treadle_pass_bring_experts(treadle_pass *p, int64_t rows) {
  treadle_pass_ranks *r = &p->ranks;
  if (!r->within) return TREADLE_OK;
  const treadle_exchange_part part =
      treadle_exchange_slot(r->stage->count, r->stage->index, true, rows, p->transformer->hidden);
  return treadle_parallel_slots(r->within, &part, "results of experts");
}

const float *treadle_pass_combine_nodes(const treadle_pass *p, int32_t expert, const float *const *values,
                                        int64_t columns, float *to) {
  const int32_t count = p->ranks.expert_node_count[expert];
  treadle_leaf_node tree[TREADLE_LEAVES_MOST];
  if (count == 1) return values[0];
  for (int32_t n = 0; n < count; n++) tree[n] = p->ranks.expert_nodes[expert][n].node;
  treadle_leaf_combine((int32_t)p->expert_leaves, tree, values, count, to, columns);
  return to;
}

const float *treadle_pass_expert_result(const treadle_pass *p, const treadle_expert_results *results,
                                        int32_t expert, int64_t place) {
  const treadle_pass_ranks *r = &p->ranks;
  int64_t others;
  float *own = p->buffers.slots + results->own + place * results->each;
  if (r->groups.set) return treadle_pass_group_slot(p, results, expert, place);
  if (!r->within) return own;
  const treadle_expert_node *nodes = r->expert_nodes[expert];
  const float *values[TREADLE_LEAVES_MOST];
  for (int32_t n = 0; n < r->expert_node_count[expert]; n++)
    values[n] = treadle_parallel_slot(r->within, nodes[n].member, &others) + results->at +
                (nodes[n].number * results->places + place) * results->each;
  return treadle_pass_combine_nodes(p, expert, values, results->each, own);
}
