/* src/core/flat/placements*.c: what ranks of device meshes hold, against what torch did (golden) and against index lists that are cut step
 * by step (shapes.c); cells and their holders, element by element. */
#include "flat/shapes.h"
#include "test.h"

#include "base/dtype.h"
#include "base/random.h"
#include "golden_support/golden.h"
#include "layout/layout.h"

#include <inttypes.h>

static const char *folder;

static int make_folder(void **state) {
  (void)state;
  folder = shapes_folder();
  return 0;
}

static int remove_folder(void **state) {
  (void)state;
  test_remove(folder);
  return 0;
}

/* One tensor on one mesh. */
typedef struct subject {
  int ndim;
  int64_t shape[SHAPES_DIMS];
  treadle_placed_mesh mesh;
  treadle_placed_tensor tensor;
  int64_t ranks;
  treadle_model *model;
  treadle_layout *layout;
} subject;

static void subject_open(subject *s) {
  const char *name;
  s->model = shapes_model(folder, s->shape, s->ndim, &name);
  s->tensor.tensor = name;
  assert_ok(treadle_layout_from_placements(s->model, s->ranks, &s->mesh, 1, &s->tensor, 1, &s->layout));
}

static void subject_close(subject *s) {
  treadle_layout_destroy(s->layout);
  treadle_model_close(s->model);
}

static const char *describe(const subject *s) {
  static char text[600];
  char placements[200];
  size_t used = (size_t)snprintf(text, sizeof text, "shape");
  for (int d = 0; d < s->ndim; d++)
    used += (size_t)snprintf(text + used, sizeof text - used, " %" PRId64, s->shape[d]);
  used += (size_t)snprintf(text + used, sizeof text - used, ", mesh");
  for (int m = 0; m < s->mesh.ndim; m++)
    used += (size_t)snprintf(text + used, sizeof text - used, " %" PRId64, s->mesh.size[m]);
  snprintf(text + used, sizeof text - used, " of %" PRId64 " ranks, %s", s->ranks,
           shapes_text(s->tensor.placements, s->mesh.ndim, placements, sizeof placements));
  return text;
}

/* ---- Golden ---- */

static void set_mesh(subject *s, const json_t *sizes) {
  const char *key;
  json_t *value;
  s->mesh.ndim = 0;
  if (json_is_array(sizes))
    for (size_t m = 0; m < json_array_size(sizes); m++)
      s->mesh.size[s->mesh.ndim++] = json_integer_value(json_array_get(sizes, m));
  else
    json_object_foreach((json_t *)sizes, key, value) s->mesh.size[s->mesh.ndim++] =
        json_integer_value(value);
  s->ranks = 1;
  for (int m = 0; m < s->mesh.ndim; m++) s->ranks *= s->mesh.size[m];
}

static void set_shape(subject *s, const json_t *shape) {
  s->ndim = (int)json_array_size(shape);
  for (int d = 0; d < s->ndim; d++) s->shape[d] = json_integer_value(json_array_get(shape, (size_t)d));
}

/* Does the rank hold what the real local tensor held: its shape, and runs [start in local, start in global, count]? */
static bool is_golden(const subject *s, int64_t rank, const json_t *shape, const json_t *wanted) {
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  treadle_run *runs;
  size_t count, at = 0;
  bool equal = true;
  assert_ok(treadle_layout_storage(s->layout, rank, 0, &info));
  assert_int_equal(info.ndim, json_array_size(shape));
  for (int d = 0; d < info.ndim; d++)
    equal = equal && info.shape[d] == json_integer_value(json_array_get(shape, (size_t)d));
  assert_ok(treadle_layout_runs(s->layout, rank, 0, &runs, &count));
  int64_t local = 0, elems = 1;
  for (int d = 0; d < info.ndim; d++) elems *= info.shape[d];
  for (size_t i = 0; equal && i < json_array_size(wanted); i++) {
    int64_t number[3];
    for (size_t k = 0; k < 3; k++)
      number[k] = json_integer_value(json_array_get(json_array_get(wanted, i), k));
    for (int64_t k = 0; equal && k < number[2]; k++, local++) {
      if (at < count && local >= runs[at].local_start + runs[at].count) at++;
      equal = at < count && local == number[0] + k && runs[at].tensor == 0 &&
              runs[at].start + (local - runs[at].local_start) * runs[at].stride == number[1] + k;
    }
  }
  free(runs);
  return equal && local == elems;
}

static json_t *load(const char *file) {
  char path[512];
  snprintf(path, sizeof path, "%s/tests/%s", TREADLE_SOURCE_DIR, file);
  json_t *root = golden_load(path);
  assert_non_null(root);
  return root;
}

/* Every case of a file of distribute_tensor; the number of them. */
static void check_dtensor(const char *file, size_t cases) {
  json_t *root = load(file);
  const json_t *list = json_object_get(root, "cases");
  assert_int_equal(json_array_size(list), cases);
  for (size_t i = 0; i < cases; i++) {
    const json_t *item = json_array_get(list, i), *ranks = json_object_get(item, "ranks");
    subject s = {0};
    const char *text = json_string_value(json_object_get(item, "placements"));
    set_mesh(&s, json_object_get(item, "mesh"));
    set_shape(&s, json_object_get(item, "shape"));
    assert_int_equal(shapes_placements(text, s.tensor.placements), s.mesh.ndim);
    if (strchr(text, 'P')) {
      const char *name;
      s.model = shapes_model(folder, s.shape, s.ndim, &name);
      s.tensor.tensor = name;
      assert_refused("is Partial: a sum that is not yet made has no value",
                     treadle_layout_from_placements(s.model, s.ranks, &s.mesh, 1, &s.tensor, 1, &s.layout));
      treadle_model_close(s.model);
      continue;
    }
    subject_open(&s);
    assert_int_equal(json_array_size(ranks), s.ranks);
    for (int64_t r = 0; r < s.ranks; r++) {
      const json_t *rank = json_array_get(ranks, (size_t)r);
      if (!is_golden(&s, r, json_object_get(rank, "local_shape"), json_object_get(rank, "runs")))
        fail_msg("%s case %zu (%s): rank %" PRId64, file, i, describe(&s), r);
    }
    subject_close(&s);
  }
  json_decref(root);
}

static void golden_dtensor(void **state) {
  (void)state;
  check_dtensor("golden/dtensor.json", 53);
  check_dtensor("golden_more/dtensor.json.gz", 35);
}

/* Parameter p as fully_shard has it; or, with TREADLE_STRIDED_SHARD, as torch prints it. "tp" is the last dimension of the mesh, and cuts
 * first; "replicate" is the first one. */
static void set_fsdp2(subject *s, const json_t *item, size_t p, treadle_placement_type fully) {
  const json_t *mesh = json_object_get(item, "mesh");
  const json_t *tp = json_array_get(json_object_get(item, "tp_dim_per_param"), p);
  const json_t *dim = json_array_get(json_object_get(item, "fsdp_dim_per_param"), p);
  int at = json_object_get(mesh, "replicate") ? 1 : 0, last = s->mesh.ndim - 1;
  treadle_placement *own = &s->tensor.placements[at];
  *own = (treadle_placement){fully, (int32_t)json_integer_value(dim), 0};
  bool same = json_is_integer(tp) && json_integer_value(tp) == own->dim;
  if (fully == TREADLE_STRIDED_SHARD && !same) own->type = TREADLE_SHARD;
  if (json_object_get(mesh, "tp")) own->split = s->mesh.size[last];
  if (json_is_integer(tp))
    s->tensor.placements[last] = (treadle_placement){TREADLE_SHARD, (int32_t)json_integer_value(tp), 0};
}

/* Is that what torch prints? */
static void check_printed(const subject *s, const json_t *printed) {
  char text[40];
  for (size_t m = 0; m < json_array_size(printed); m++) {
    const treadle_placement *placement = &s->tensor.placements[m];
    if (placement->type == TREADLE_REPLICATE)
      snprintf(text, sizeof text, "R");
    else if (placement->type == TREADLE_SHARD)
      snprintf(text, sizeof text, "S(%d)", (int)placement->dim);
    else
      snprintf(text, sizeof text, "_S(%d, %" PRId64 ")", (int)placement->dim, placement->split);
    assert_string_equal(json_string_value(json_array_get(printed, m)), text);
  }
}

/* How many shards of the file differ when _S(d, f) means `fully`. */
static int check_fsdp2(const char *file, treadle_placement_type fully, int *shards_p) {
  json_t *root = load(file);
  const json_t *list = json_object_get(root, "cases");
  int differ = 0;
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *item = json_array_get(list, i), *ranks = json_object_get(item, "ranks");
    const json_t *params = json_object_get(item, "params"), *mesh = json_object_get(item, "mesh");
    for (size_t p = 0; ranks && p < json_array_size(params); p++) {
      subject s = {.mesh = {.ndim = 1}};
      if (mesh) set_mesh(&s, mesh);
      if (!mesh) s.ranks = s.mesh.size[0] = json_integer_value(json_object_get(item, "world"));
      set_shape(&s, json_array_get(params, p));
      set_fsdp2(&s, item, p, fully);
      const json_t *first = json_array_get(json_object_get(json_array_get(ranks, 0), "params"), p);
      if (fully == TREADLE_STRIDED_SHARD) check_printed(&s, json_object_get(first, "placements"));
      subject_open(&s);
      assert_int_equal(json_array_size(ranks), s.ranks);
      for (int64_t r = 0; r < s.ranks; r++, ++*shards_p) {
        const json_t *rank = json_array_get(json_object_get(json_array_get(ranks, (size_t)r), "params"), p);
        if (is_golden(&s, r, json_object_get(rank, "local_shape"), json_object_get(rank, "runs"))) continue;
        differ++;
        if (fully == TREADLE_FULLY_SHARD)
          print_error("%s case %zu parameter %zu (%s): rank %" PRId64 "\n", file, i, p, describe(&s), r);
      }
      subject_close(&s);
    }
  }
  json_decref(root);
  return differ;
}

/* Read as distribute_tensor reads them, the placements that torch prints are wrong for a few uneven shards: hence two types. */
static void golden_fsdp2(void **state) {
  (void)state;
  int shards = 0, more = 0, other = 0;
  assert_int_equal(check_fsdp2("golden/fsdp2.json", TREADLE_FULLY_SHARD, &shards), 0);
  assert_int_equal(check_fsdp2("golden_more/fsdp2.json.gz", TREADLE_FULLY_SHARD, &more), 0);
  assert_int_equal(shards, 538);
  assert_true(more > 0);
  assert_int_equal(check_fsdp2("golden/fsdp2.json", TREADLE_STRIDED_SHARD, &other), 6 + 2); /* 2: no rows */
}

/* ---- Random meshes and placements ---- */

/* Ranks in an order that no strides give, or at distances; [count of the mesh]. */
static int64_t *draw_ranks(treadle_random *random, const subject *s, int64_t count) {
  int64_t *ranks = calloc((size_t)s->ranks, sizeof *ranks);
  assert_non_null(ranks);
  for (int64_t r = 0; r < s->ranks; r++) ranks[r] = r;
  for (int64_t r = 0; r < count; r++) {
    int64_t other = r + treadle_random_below(random, s->ranks - r), rank = ranks[r];
    ranks[r] = ranks[other];
    ranks[other] = rank;
  }
  return ranks;
}

static int64_t *draw(treadle_random *random, subject *s) {
  int64_t count = 1, *ranks = NULL;
  s->ndim = 1 + (int)treadle_random_below(random, SHAPES_DIMS);
  for (int d = 0; d < s->ndim; d++) s->shape[d] = 1 + treadle_random_below(random, d < 2 ? 20 : 5);
  s->mesh.ndim = 1 + (int32_t)treadle_random_below(random, 4);
  for (int m = 0; m < s->mesh.ndim; m++) {
    s->mesh.size[m] = 1 + treadle_random_below(random, count > 8 ? 2 : 5);
    count *= s->mesh.size[m];
    s->tensor.placements[m] = shapes_draw(random, s->ndim);
  }
  s->ranks = count;
  int64_t kind = treadle_random_below(random, 4);
  if (kind == 1) { /* a list */
    s->ranks += treadle_random_below(random, 4);
    s->mesh.ranks = ranks = draw_ranks(random, s, count);
  } else if (kind == 2) { /* the last mesh dimension is the slowest, with gaps */
    int64_t step = 1 + treadle_random_below(random, 3);
    s->mesh.first = treadle_random_below(random, 3);
    for (int m = 0; m < s->mesh.ndim; m++) {
      s->mesh.stride[m] = step;
      step *= s->mesh.size[m];
    }
    s->ranks = s->mesh.first + step + treadle_random_below(random, 3);
  }
  return ranks;
}

/* By rank: its shard, or none; the truth. */
static shapes_shard *cut_all(const subject *s) {
  shapes_shard *shards = calloc((size_t)s->ranks, sizeof *shards);
  int64_t count = 1;
  assert_non_null(shards);
  for (int m = 0; m < s->mesh.ndim; m++) count *= s->mesh.size[m];
  for (int64_t place = 0; place < count; place++) {
    int64_t coordinates[SHAPES_MESH], rest = place, rank = s->mesh.first, row = 0;
    bool strided = false;
    for (int m = 0; m < s->mesh.ndim; m++) strided = strided || s->mesh.stride[m];
    for (int m = s->mesh.ndim - 1; m >= 0; m--) {
      coordinates[m] = rest % s->mesh.size[m];
      rest /= s->mesh.size[m];
      rank += coordinates[m] * s->mesh.stride[m];
    }
    for (int m = 0; m < s->mesh.ndim; m++) row = row * s->mesh.size[m] + coordinates[m];
    if (s->mesh.ranks)
      rank = s->mesh.ranks[row];
    else if (!strided)
      rank = row;
    assert_int_equal(shards[rank].ndim, 0);
    shards[rank] =
        shapes_cut(s->shape, s->ndim, s->tensor.placements, s->mesh.size, coordinates, s->mesh.ndim);
  }
  return shards;
}

static bool has_fully(const subject *s) {
  bool has = false;
  for (int m = 0; m < s->mesh.ndim; m++) has = has || s->tensor.placements[m].type == TREADLE_FULLY_SHARD;
  return has;
}

/* Runs of each rank are its list of elements. */
static void check_ranks(const subject *s, const shapes_shard *shards) {
  for (int64_t r = 0; r < s->ranks; r++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    treadle_run *runs;
    size_t count;
    int64_t local = 0;
    assert_int_equal(treadle_layout_storage_count(s->layout, r), shards[r].ndim > 0);
    if (shards[r].ndim == 0) continue;
    assert_ok(treadle_layout_storage(s->layout, r, 0, &info));
    if (shapes_elems(&shards[r]) > 0 || !has_fully(s))
      for (int d = 0; d < s->ndim; d++) assert_int_equal(info.shape[d], shards[r].count[d]);
    assert_int_equal(info.bytes, 4 * shapes_elems(&shards[r]));
    assert_true(info.bytes <= treadle_layout_window_bytes(s->layout, r));
    assert_ok(treadle_layout_runs(s->layout, r, 0, &runs, &count));
    for (size_t i = 0; i < count; i++)
      for (int64_t k = 0; k < runs[i].count; k++, local++) {
        assert_int_equal(runs[i].local_start + k, local);
        assert_int_equal(runs[i].start + k * runs[i].stride, shapes_element(&shards[r], s->shape, local));
      }
    assert_int_equal(local, shapes_elems(&shards[r]));
    free(runs);
  }
}

/* The index of an element of a box in the tensor, row-major: axes are in the order of dimensions. */
static int64_t element_of(const treadle_tensor *tensor, const int64_t *at) {
  int64_t element = 0;
  for (int a = 0; a < tensor->naxes; a++) element = element * tensor->axis[a] + at[a];
  return element;
}

static bool next_of(const treadle_box *box, int axes, int64_t *at) {
  int a = axes - 1;
  while (a >= 0 && ++at[a] == box->start[a] + box->size[a]) at[a] = box->start[a], a--;
  return a >= 0;
}

/* Each holder has each element of the cell where it says. */
static int64_t check_cell(const subject *s, const treadle_cell *cell, const shapes_shard *shards) {
  const treadle_tensor *tensor = &s->model->tensors[0];
  for (int64_t h = 0; h < cell->holders; h++) {
    const int64_t *stride;
    int64_t rank = treadle_cell_rank(s->layout, cell, h), at[TREADLE_MAX_AXES];
    int64_t offset = treadle_cell_locate(s->layout, cell, h, &stride);
    assert_int_equal(treadle_cell_find(s->layout, cell, rank), h);
    for (int a = 0; a < TREADLE_MAX_AXES; a++) at[a] = cell->box.start[a];
    do {
      int64_t local = offset;
      for (int a = 0; a < tensor->naxes; a++) local += (at[a] - cell->box.start[a]) * stride[a];
      assert_true(local % 4 == 0 && local / 4 < shapes_elems(&shards[rank]));
      assert_int_equal(shapes_element(&shards[rank], s->shape, local / 4), element_of(tensor, at));
    } while (next_of(&cell->box, tensor->naxes, at));
  }
  int64_t holders = 0;
  for (int64_t r = 0; r < s->ranks; r++) holders += treadle_cell_find(s->layout, cell, r) >= 0;
  assert_int_equal(holders, cell->holders);
  return treadle_box_elems(&cell->box) * cell->holders;
}

/* Cells are the tensor, each element once, whichever box asks for them. */
static void check_cells(const subject *s, treadle_random *random, const shapes_shard *shards) {
  const treadle_tensor *tensor = &s->model->tensors[0];
  treadle_cells cells = {0}, some = {0};
  treadle_boxes boxes = {0};
  treadle_box whole = treadle_box_whole(tensor), box = whole, common;
  int64_t held = 0, wanted = 0;
  assert_ok(treadle_layout_cells(s->layout, 0, &whole, &cells));
  for (size_t i = 0; i < cells.count; i++) {
    held += check_cell(s, &cells.items[i], shards);
    assert_ok(treadle_array_push(&boxes, cells.items[i].box));
  }
  for (int64_t r = 0; r < s->ranks; r++) wanted += shards[r].ndim ? shapes_elems(&shards[r]) : 0;
  assert_int_equal(held, wanted);
  assert_true(treadle_box_tiles(&whole, boxes.items, boxes.count));
  for (int a = 0; a < tensor->naxes; a++) {
    box.start[a] = treadle_random_below(random, tensor->axis[a]);
    box.size[a] = 1 + treadle_random_below(random, tensor->axis[a] - box.start[a]);
  }
  assert_ok(treadle_layout_cells(s->layout, 0, &box, &some));
  size_t k = 0;
  for (size_t i = 0; i < cells.count; i++) {
    if (!treadle_box_meet(&cells.items[i].box, &box, &common)) continue;
    assert_true(k < some.count && treadle_box_equal(&some.items[k].box, &cells.items[i].box));
    assert_int_equal(some.items[k].shard, cells.items[i].shard);
    k++;
  }
  assert_int_equal(k, some.count);
  treadle_array_release(&cells);
  treadle_array_release(&some);
  treadle_array_release(&boxes);
}

/* The window has room for the longest shard, and no more than that. */
static void check_room(const subject *s, const shapes_shard *shards) {
  int64_t room[SHAPES_DIMS] = {0}, bytes = 4;
  for (int64_t r = 0; r < s->ranks; r++)
    for (int d = 0; d < shards[r].ndim; d++)
      if (shards[r].count[d] > room[d]) room[d] = shards[r].count[d];
  for (int d = 0; d < s->ndim; d++) bytes *= room[d];
  bytes = (bytes + TREADLE_STORAGE_ALIGNMENT - 1) / TREADLE_STORAGE_ALIGNMENT * TREADLE_STORAGE_ALIGNMENT;
  for (int64_t r = 0; r < s->ranks; r++)
    assert_int_equal(treadle_layout_window_bytes(s->layout, r), shards[r].ndim ? bytes : 0);
}

/* Ranks with equal coordinates have equal pieces. */
static void check_coordinates(const subject *s, const shapes_shard *shards) {
  for (int64_t r = 1; r < s->ranks; r++) {
    if (treadle_layout_place(s->layout, r) != treadle_layout_place(s->layout, 0)) continue;
    assert_int_equal(shards[r].ndim, shards[0].ndim);
    for (int d = 0; d < shards[r].ndim; d++) {
      assert_int_equal(shards[r].count[d], shards[0].count[d]);
      if (shards[r].count[d] > 0)
        assert_memory_equal(shards[r].at[d], shards[0].at[d], 8 * (size_t)shards[0].count[d]);
    }
  }
}

static void random_placements(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= test_seeds(3000); seed++) {
    treadle_random random = {seed};
    subject s = {0};
    int64_t *ranks = draw(&random, &s);
    print_message("seed %" PRIu64 ": %s\n", seed, describe(&s));
    subject_open(&s);
    shapes_shard *shards = cut_all(&s);
    check_ranks(&s, shards);
    check_room(&s, shards);
    check_coordinates(&s, shards);
    check_cells(&s, &random, shards);
    for (int64_t r = 0; r < s.ranks; r++) shapes_release(&shards[r]);
    free(shards);
    free(ranks);
    subject_close(&s);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(golden_dtensor), cmocka_unit_test(golden_fsdp2),
                                     cmocka_unit_test(random_placements)};
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
