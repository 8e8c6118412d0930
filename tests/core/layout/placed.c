/* Shards of all ranks, laid over one another. */
#include "placed.h"

#include "golden_support/golden_flat.h"
#include "test.h"

static int sizes(const char *text, int64_t *size) {
  int count = 0;
  for (char *next = (char *)text; *next && count < TREADLE_MAX_AXES; next += *next == 'x')
    size[count++] = strtoll(next, &next, 10);
  return count;
}

placed placed_open(const char *shape, const char *mesh, const char *placements) {
  placed tensor = {.ranks = 1};
  treadle_mesh_placement places[TREADLE_MAX_AXES];
  int64_t size[TREADLE_MAX_AXES];
  tensor.ndim = sizes(shape, tensor.shape);
  int count = golden_flat_placements(placements, places);
  assert_int_equal(sizes(mesh, size), count);
  for (int m = 0; m < count; m++) tensor.ranks *= places[m].size = size[m];
  tensor.shards = calloc((size_t)tensor.ranks, sizeof *tensor.shards);
  assert_non_null(tensor.shards);
  for (int64_t r = 0; r < tensor.ranks; r++) {
    placed_shard *shard = &tensor.shards[r];
    int64_t rest = r;
    shard->first = true;
    for (int m = count - 1; m >= 0; m--) {
      places[m].index = rest % size[m];
      rest /= size[m];
      if (places[m].placement.type == 'R') shard->first &= places[m].index == 0;
    }
    assert_ok(treadle_dtensor_shard(tensor.shape, tensor.ndim, places, count, shard->local, &shard->boxes));
  }
  return tensor;
}

void placed_close(placed *tensor) {
  for (int64_t r = 0; r < tensor->ranks; r++) treadle_array_release(&tensor->shards[r].boxes);
  free(tensor->shards);
  *tensor = (placed){0};
}

static treadle_box whole_box(const int64_t *shape, int ndim) {
  return treadle_strided_whole(shape, ndim, 0).box;
}

/* The boxes in coordinates of the local tensor. */
static void local_boxes(const placed *tensor, const placed_shard *shard, treadle_boxes *boxes) {
  for (size_t i = 0; i < shard->boxes.count; i++) {
    const treadle_strided *part = &shard->boxes.items[i];
    treadle_box box = part->box;
    int64_t rest = part->offset;
    for (int d = 0; d < tensor->ndim; d++) {
      box.start[d] = rest / part->stride[d];
      rest %= part->stride[d];
    }
    assert_int_equal(rest, 0);
    assert_ok(treadle_array_push(boxes, box));
  }
}

void placed_assert_tiles(const placed *tensor) {
  treadle_boxes all = {0}, local = {0};
  for (int64_t r = 0; r < tensor->ranks; r++) {
    const placed_shard *shard = &tensor->shards[r];
    local.count = 0;
    local_boxes(tensor, shard, &local);
    treadle_box whole = whole_box(shard->local, tensor->ndim);
    if (treadle_box_elems(&whole) == 0)
      assert_int_equal(local.count, 0);
    else
      assert_true(treadle_box_tiles(&whole, local.items, local.count));
    for (size_t i = 0; shard->first && i < shard->boxes.count; i++)
      assert_ok(treadle_array_push(&all, shard->boxes.items[i].box));
  }
  treadle_box whole = whole_box(tensor->shape, tensor->ndim);
  assert_true(treadle_box_tiles(&whole, all.items, all.count));
  treadle_array_release(&all);
  treadle_array_release(&local);
}

/* Appends what a side's first replicas have of a box. */
static void holders_of(const placed *from, const treadle_box *box, treadle_boxes *found) {
  for (int64_t s = 0; s < from->ranks; s++) {
    const placed_shard *shard = &from->shards[s];
    for (size_t k = 0; shard->first && k < shard->boxes.count; k++) {
      treadle_box common;
      if (treadle_box_meet(&shard->boxes.items[k].box, box, &common))
        assert_ok(treadle_array_push(found, common));
    }
  }
}

void placed_assert_moves(const placed *from, const placed *to) {
  treadle_boxes found = {0};
  for (int64_t r = 0; r < to->ranks; r++) {
    const treadle_strideds *boxes = &to->shards[r].boxes;
    for (size_t i = 0; i < boxes->count; i++) {
      found.count = 0;
      holders_of(from, &boxes->items[i].box, &found);
      assert_true(treadle_box_tiles(&boxes->items[i].box, found.items, found.count));
    }
  }
  treadle_array_release(&found);
}
