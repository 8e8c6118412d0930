/* The lower bound of the bytes that enter a node: what some of its ranks want of each tensor, less what any of them has. */
#include "layout/inbound_nodes.h"
#include "base/dtype.h"
#include "base/hash.h"
#include "layout/blocks.h"
#include "layout/piece_index.h"

#include <stdlib.h>

typedef struct inbound {
  const treadle_layout *from, *to;
  treadle_pieces wanted, held; /* of the tensor at hand, of all ranks of the node */
  treadle_piece_index near_wanted, near_held;
  treadle_boxes rest, spare;
} inbound;

/* Pieces of all ranks of a node, each box once in each type. Replicas have the same boxes one behind the other. */
static treadle_status list(const treadle_layout *layout, const treadle_nodes *nodes, int32_t node,
                           int32_t tensor, treadle_pieces *pieces) {
  treadle_status status = TREADLE_OK;
  size_t kept = 0, last = 0;
  pieces->count = 0;
  for (int32_t i = nodes->first[node]; i < nodes->first[node + 1]; i++) {
    size_t first = kept, same = 0;
    pieces->count = kept;
    TRY(treadle_layout_pieces_of(layout, nodes->list[i], tensor, pieces));
    size_t count = pieces->count - first;
    for (size_t k = 0; k < count && count == first - last; k++)
      same += treadle_box_equal(&pieces->items[first + k].box, &pieces->items[last + k].box) &&
              pieces->items[first + k].dtype == pieces->items[last + k].dtype;
    if (count == 0 || same == count) continue; /* as the rank before it */
    last = first;
    kept = pieces->count;
  }
  pieces->count = kept;
out:
  return status;
}

/* What piece `number` wants, less what those before it want and what the node has. */
static treadle_status take_piece(inbound *b, size_t number, int64_t *bytes) {
  treadle_status status = TREADLE_OK;
  const treadle_piece *piece = &b->wanted.items[number];
  const int32_t *found;
  size_t count;
  b->rest.count = 0;
  TRY(treadle_array_push(&b->rest, piece->box));
  TRY(treadle_piece_index_find(&b->near_wanted, &piece->box, number, &found, &count));
  for (size_t k = 0; k < count && b->rest.count > 0; k++)
    TRY(treadle_boxes_subtract(&b->rest, &b->wanted.items[found[k]].box, &b->spare));
  TRY(treadle_piece_index_find(&b->near_held, &piece->box, SIZE_MAX, &found, &count));
  for (size_t k = 0; k < count && b->rest.count > 0; k++)
    TRY(treadle_boxes_subtract(&b->rest, &b->held.items[found[k]].box, &b->spare));
  treadle_dtype held_as = treadle_layout_dtype(b->from, &b->from->model->tensors[piece->tensor]);
  for (size_t k = 0; k < b->rest.count; k++)
    *bytes +=
        treadle_box_elems(&b->rest.items[k]) * (int64_t)treadle_dtype_narrower_bytes(piece->dtype, held_as);
out:
  return status;
}

treadle_status treadle_layout_inbound_node(const treadle_layout *from, const treadle_layout *to,
                                           const treadle_nodes *nodes, int32_t node, int64_t *bytes_p) {
  treadle_status status = TREADLE_OK;
  inbound b = {.from = from, .to = to};
  *bytes_p = 0;
  for (int32_t t = 0; t < to->model->tensor_count; t++) {
    /* Scales that nobody has are made where they are wanted. */
    if (to->model->tensors[t].scale_of >= 0 && !treadle_layout_holds_codes(from, t)) continue;
    TRY(list(to, nodes, node, t, &b.wanted));
    if (b.wanted.count == 0) continue;
    TRY(list(from, nodes, node, t, &b.held));
    TRY(treadle_piece_index_make(&b.near_wanted, &b.wanted));
    TRY(treadle_piece_index_make(&b.near_held, &b.held));
    for (size_t i = 0; i < b.wanted.count; i++) TRY(take_piece(&b, i, bytes_p));
  }
out:
  treadle_array_release(&b.wanted);
  treadle_array_release(&b.held);
  treadle_piece_index_release(&b.near_wanted);
  treadle_piece_index_release(&b.near_held);
  treadle_array_release(&b.rest);
  treadle_array_release(&b.spare);
  return status;
}

static int by_number(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

treadle_status treadle_node_place(const treadle_layout *from, const treadle_layout *to,
                                  const treadle_nodes *nodes, int32_t node, uint64_t *place_p) {
  const treadle_layout *layouts[] = {from, to};
  size_t count = (size_t)treadle_nodes_size(nodes, node);
  uint64_t *places = treadle_alloc_array(count, sizeof *places), hash = 0;
  if (!places) return treadle_fail(TREADLE_NO_MEMORY, "layout: memory is out");
  for (uint64_t side = 0; side < 2; side++) {
    for (size_t i = 0; i < count; i++)
      places[i] = treadle_layout_place(layouts[side], nodes->list[(size_t)nodes->first[node] + i]);
    qsort(places, count, sizeof *places, by_number);
    hash = treadle_hash_more(hash, side);
    for (size_t i = 0; i < count; i++) /* replicas have the same */
      if (i == 0 || places[i] != places[i - 1]) hash = treadle_hash_more(hash, places[i]);
  }
  treadle_free(places);
  *place_p = hash;
  return TREADLE_OK;
}
