/* Placements: reading meshes, placements and tensors, and laying out the windows. */
#include "flat/placements_parts.h"

#include "base/argument.h"
#include "base/dtype.h"
#include "base/hash.h"
#include "base/limits.h"
#include "layout/layout_types.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAX_MESHES = 1024 };

/* ---- Meshes ---- */

/* The last mesh is that of all ranks, for tensors without one. */
static treadle_status read_meshes(treadle_placements_builder *b, size_t count) {
  treadle_status status = TREADLE_OK;
  treadle_placements *p = b->made;
  if (count > MAX_MESHES) REFUSE("placements: %zu meshes; at most %d will do", count, MAX_MESHES);
  p->mesh_count = (int32_t)count + 1;
  p->meshes = treadle_arena_alloc_array(&p->arena, count + 1, sizeof *p->meshes);
  if (!p->meshes) return treadle_placements_no_memory();
  for (size_t m = 0; m < count; m++)
    TRY(treadle_placement_mesh_read(&b->meshes[m], m, b->layout->ranks, &p->arena, &p->meshes[m]));
  const treadle_placed_mesh all = {.ndim = 1, .size = {b->layout->ranks}};
  TRY(treadle_placement_mesh_read(&all, count, b->layout->ranks, &p->arena, &p->meshes[count]));
  TRY(treadle_placement_groups_make(p->meshes, p->mesh_count, b->layout->ranks, &p->arena, &p->groups));
out:
  return status;
}

/* ---- Cuts ---- */

/* Adds the step of a mesh dimension. Steps apply in order; what fully_shard cuts comes behind all that its right-hand neighbours
 * cut, so steps are found from the right: fully_shard goes last, all others go first. */
static void add_step(treadle_placement_cut *cut, int32_t mesh_dim, int64_t size,
                     const treadle_placement *placement) {
  int32_t first = cut->first[placement->dim], end = cut->first[TREADLE_MAX_DIMS];
  int32_t at = placement->type == TREADLE_FULLY_SHARD ? cut->first[placement->dim + 1] : first;
  memmove(&cut->steps[at + 1], &cut->steps[at], (size_t)(end - at) * sizeof *cut->steps);
  cut->steps[at] = (treadle_placement_step){
      mesh_dim, size, placement->type == TREADLE_STRIDED_SHARD ? placement->split : 1};
  for (int d = placement->dim + 1; d <= TREADLE_MAX_DIMS; d++) cut->first[d]++;
  cut->cuts[mesh_dim] = true;
}

static treadle_status check_placement(const treadle_placed_tensor *given, int mesh_dim, int ndim) {
  const treadle_placement *placement = &given->placements[mesh_dim];
  if ((unsigned)placement->type > TREADLE_PARTIAL)
    REFUSE("placements: %s: mesh dimension %d has placement type %d, which is none; 0 to %d", given->tensor,
           mesh_dim, (int)placement->type, TREADLE_PARTIAL);
  if (placement->type == TREADLE_PARTIAL)
    REFUSE(
        "placements: %s: mesh dimension %d is Partial: a sum that is not yet made has no value that could "
        "be moved; redistribute the tensor first",
        given->tensor, mesh_dim);
  if (placement->type == TREADLE_REPLICATE) return TREADLE_OK;
  if (placement->dim < 0 || placement->dim >= ndim)
    REFUSE("placements: %s: mesh dimension %d cuts dimension %d of a tensor of %d", given->tensor, mesh_dim,
           (int)placement->dim, ndim);
  if (placement->type == TREADLE_STRIDED_SHARD && placement->split < 1)
    REFUSE("placements: %s: mesh dimension %d has a split factor of %" PRId64, given->tensor, mesh_dim,
           placement->split);
  return TREADLE_OK;
}

/* A text that is equal where cuts are. */
static void describe_cut(const treadle_placement_cut *cut, char *text, size_t capacity) {
  int used = snprintf(text, capacity, "%d", cut->mesh);
  for (int d = 0; d < TREADLE_MAX_DIMS; d++) {
    used += snprintf(text + used, capacity - (size_t)used, cut->fully[d] ? ";F" : ";");
    for (int32_t s = cut->first[d]; s < cut->first[d + 1]; s++)
      used += snprintf(text + used, capacity - (size_t)used, "%d/%" PRId64 ",", (int)cut->steps[s].mesh_dim,
                       cut->steps[s].split);
  }
}

/* The cut of a tensor; tensors of one model have few. */
static treadle_status find_cut(treadle_placements_builder *b, const treadle_placed_tensor *given, int ndim,
                               int32_t *cut_p) {
  treadle_status status = TREADLE_OK;
  treadle_placements *p = b->made;
  treadle_placement_cut cut = {.mesh = given->mesh < 0 ? p->mesh_count - 1 : given->mesh, .copies = 1};
  treadle_placement_mesh *mesh = &p->meshes[cut.mesh];
  char text[40 * (TREADLE_MAX_PLACED_DIMS + 1)];
  for (int m = mesh->ndim - 1; m >= 0; m--) {
    const treadle_placement whole = {TREADLE_REPLICATE, 0, 0};
    const treadle_placement *placement = given->mesh < 0 ? &whole : &given->placements[m];
    if (given->mesh >= 0) TRY(check_placement(given, m, ndim));
    if (placement->type == TREADLE_FULLY_SHARD) cut.fully[placement->dim] = true;
    if (placement->type == TREADLE_REPLICATE)
      cut.copies *= mesh->size[m];
    else if (mesh->size[m] > 1)
      add_step(&cut, m, mesh->size[m], placement);
    mesh->cuts[m] = mesh->cuts[m] || cut.cuts[m];
  }
  describe_cut(&cut, text, sizeof text);
  int64_t known = treadle_hash_map_get(&b->cut_by_text, text, -1);
  if (known < 0) {
    const char *kept = treadle_arena_copy_text(&p->arena, text);
    if (!kept) return treadle_placements_no_memory();
    known = (int64_t)b->cuts.count;
    TRY(treadle_array_push(&b->cuts, cut));
    TRY(treadle_hash_map_put(&b->cut_by_text, kept, known));
  }
  *cut_p = (int32_t)known;
out:
  return status;
}

/* ---- Tensors ---- */

/* How many boxes a rank may have of it: the split factors of a dimension, as far as there are elements, multiply. */
static treadle_status check_boxes(const treadle_placed *placed, const treadle_placement_cut *cut) {
  int64_t boxes = 1;
  for (int d = 0; d < placed->ndim; d++) {
    int64_t runs = 1;
    for (int32_t s = cut->first[d]; s < cut->first[d + 1]; s++) {
      int64_t split = cut->steps[s].split;
      runs = split > placed->shape[d] / runs ? placed->shape[d] : runs * split;
    }
    if (runs > TREADLE_MAX_CELLS / boxes)
      REFUSE("placements: the split factors of %s leave its shards in more than %d parts", placed->tensor,
             TREADLE_MAX_CELLS);
    boxes *= runs;
  }
  return TREADLE_OK;
}

static treadle_status read_tensor(treadle_placements_builder *b, int32_t number) {
  treadle_status status = TREADLE_OK;
  treadle_placements *p = b->made;
  const treadle_placed_tensor *given = &b->tensors[number];
  treadle_placed *placed = &p->placed[number];
  if (!given->tensor) REFUSE("placements: tensor %d has no name", (int)number);
  if (given->storage && !*given->storage) REFUSE("placements: %s names no storage", given->tensor);
  if (given->storage && strlen(given->storage) >= sizeof(((treadle_storage_info *)NULL)->name))
    REFUSE("placements: the storage of %s has a name of %zu bytes; at most %zu will do", given->tensor,
           strlen(given->storage), sizeof(((treadle_storage_info *)NULL)->name) - 1);
  if (given->mesh < -1 || given->mesh >= p->mesh_count - 1)
    REFUSE("placements: %s is on mesh %d, and there are %d; -1 means all ranks", given->tensor,
           (int)given->mesh, (int)p->mesh_count - 1);
  if ((unsigned)given->dtype > TREADLE_INT32)
    REFUSE("placements: %s has dtype %d, which is none; 0 to %d", given->tensor, (int)given->dtype,
           TREADLE_INT32);
  placed->tensor = treadle_arena_copy_text(&p->arena, given->tensor);
  placed->name = given->storage ? treadle_arena_copy_text(&p->arena, given->storage) : placed->tensor;
  if (!placed->tensor || !placed->name) return treadle_placements_no_memory();
  TRY(treadle_placements_resolve(b, number));
  TRY(find_cut(b, given, placed->ndim, &placed->cut));
  const treadle_placement_cut *cut = &b->cuts.items[placed->cut];
  TRY(check_boxes(placed, cut));
  for (int d = 0; d < placed->ndim; d++)
    TRY(treadle_placement_longest(cut, d, placed->shape[d], &placed->room[d]));
out:
  return status;
}

static treadle_status read_tensors(treadle_placements_builder *b, size_t count) {
  treadle_status status = TREADLE_OK;
  treadle_placements *p = b->made;
  if (count > TREADLE_MAX_NAMES)
    REFUSE("placements: %zu tensors; at most %d will do", count, TREADLE_MAX_NAMES);
  p->placed_count = (int32_t)count;
  p->placed = treadle_arena_alloc_array(&p->arena, count + 1, sizeof *p->placed);
  p->dtypes =
      treadle_arena_alloc_array(&p->arena, (size_t)b->layout->model->tensor_count + 1, sizeof *p->dtypes);
  if (!p->placed || !p->dtypes) return treadle_placements_no_memory();
  for (int32_t i = 0; i < p->placed_count; i++) TRY(read_tensor(b, i));
  p->cut_count = (int32_t)b->cuts.count;
  p->cuts = treadle_arena_alloc_array(&p->arena, b->cuts.count + 1, sizeof *p->cuts);
  if (!p->cuts) return treadle_placements_no_memory();
  if (b->cuts.count > 0) memcpy(p->cuts, b->cuts.items, b->cuts.count * sizeof *p->cuts);
out:
  return status;
}

/* ---- Windows ---- */

static treadle_status allocate_windows(treadle_placements *p) {
  int64_t all = 0;
  p->windows = treadle_arena_alloc_array(&p->arena, (size_t)p->groups.count + 1, sizeof *p->windows);
  if (!p->windows) return treadle_placements_no_memory();
  for (int32_t i = 0; i < p->placed_count; i++) {
    const treadle_placement_mesh *mesh = &p->meshes[p->cuts[p->placed[i].cut].mesh];
    for (int32_t g = 0; g < mesh->group_count; g++) p->windows[mesh->groups[g]].count++;
    all += mesh->group_count;
    if (all > TREADLE_MAX_STORAGES)
      REFUSE("placements: more than %d storage tensors in the windows of all kinds of ranks",
             TREADLE_MAX_STORAGES);
  }
  for (int32_t g = 0; g < p->groups.count; g++) {
    treadle_placed_window *window = &p->windows[g];
    size_t count = (size_t)window->count + 1;
    window->placed = treadle_arena_alloc_array(&p->arena, count, sizeof *window->placed);
    window->storages = treadle_arena_alloc_array(&p->arena, count, sizeof *window->storages);
    if (!window->placed || !window->storages) return treadle_placements_no_memory();
    window->count = 0;
  }
  return TREADLE_OK;
}

/* Every rank has room for the largest shard, so that all ranks of a group have a tensor at the same place. */
static treadle_status make_windows(treadle_placements_builder *b) {
  treadle_status status = TREADLE_OK;
  treadle_placements *p = b->made;
  TRY(allocate_windows(p));
  for (int32_t i = 0; i < p->placed_count; i++) {
    treadle_placed *placed = &p->placed[i];
    const treadle_placement_mesh *mesh = &p->meshes[p->cuts[placed->cut].mesh];
    treadle_storage storage = {
        .layer = -1, .local_layer = -1, .ndim = placed->ndim, .dtype = placed->dtype, .run = 1};
    memcpy(storage.shape, placed->room, sizeof storage.shape);
    TRY(treadle_storage_measure(b->layout, placed->name, &storage));
    for (int32_t g = 0; g < mesh->group_count; g++) {
      treadle_placed_window *window = &p->windows[mesh->groups[g]];
      storage.public_first = window->count;
      TRY(treadle_storage_place(b->layout, placed->name, &storage, 1, &window->bytes));
      placed->offset = g == 0 || placed->offset == storage.offset ? storage.offset : -1;
      window->placed[window->count] = i;
      window->storages[window->count++] = storage;
      if (window->bytes > p->window_bytes_max) p->window_bytes_max = window->bytes;
    }
  }
out:
  return status;
}

/* ---- The digest ---- */

/* Of what was given: meshes by their ranks, so that a list and the same ranks as strides are equal; and of what names mean, since a
 * file and a module may have one name. */
static uint64_t digest(const treadle_placements_builder *b) {
  const treadle_placements *p = b->made;
  uint64_t hash = treadle_hash_more((uint64_t)b->layout->ranks, (uint64_t)p->mesh_count);
  for (int32_t m = 0; m < p->mesh_count; m++) {
    const treadle_placement_mesh *mesh = &p->meshes[m];
    hash = treadle_hash_more(hash, (uint64_t)mesh->ndim);
    hash = treadle_hash_more(hash, (uint64_t)mesh->first);
    for (int d = 0; d < mesh->ndim; d++) {
      hash = treadle_hash_more(hash, (uint64_t)mesh->size[d]);
      hash = treadle_hash_more(hash, mesh->size[d] > 1 ? (uint64_t)mesh->stride[d] : 0);
    }
    for (int64_t i = 0; mesh->ranks && i < mesh->count; i++)
      hash = treadle_hash_more(hash, (uint64_t)mesh->ranks[i]);
  }
  for (int32_t i = 0; i < p->placed_count; i++) {
    const treadle_placed *placed = &p->placed[i];
    const treadle_placed_tensor *given = &b->tensors[i];
    hash = treadle_hash_text(placed->name, hash);
    hash = treadle_hash_text(placed->tensor, hash);
    hash = treadle_hash_more(hash, (uint64_t)placed->dtype);
    hash = treadle_hash_more(hash, (uint64_t)given->mesh);
    for (int m = 0; given->mesh >= 0 && m < p->meshes[given->mesh].ndim; m++) {
      const treadle_placement *placement = &given->placements[m];
      bool cuts = placement->type != TREADLE_REPLICATE;
      hash = treadle_hash_more(hash, (uint64_t)placement->type);
      hash = treadle_hash_more(hash, cuts ? (uint64_t)placement->dim : 0);
      hash = treadle_hash_more(hash,
                               placement->type == TREADLE_STRIDED_SHARD ? (uint64_t)placement->split : 0);
    }
  }
  for (int32_t t = 0; t < b->layout->model->tensor_count; t++)
    hash = treadle_hash_more(hash, p->placement[t]);
  return hash;
}

/* ---- Building ---- */

treadle_status treadle_placements_build(treadle_layout *layout, const treadle_placed_mesh *meshes,
                                        size_t mesh_count, const treadle_placed_tensor *tensors,
                                        size_t tensor_count) {
  treadle_status status = TREADLE_OK;
  treadle_placements_builder b = {.layout = layout, .meshes = meshes, .tensors = tensors};
  b.made = treadle_alloc(sizeof *b.made);
  if (!b.made) return treadle_placements_no_memory();
  layout->ops = &treadle_placements_ops;
  layout->state = b.made;
  layout->is_train = true;
  TRY(read_meshes(&b, mesh_count));
  TRY(read_tensors(&b, tensor_count));
  TRY(treadle_placements_index(&b));
  TRY(make_windows(&b));
  layout->dtypes = b.made->dtypes;
  layout->digest = digest(&b);
out:
  treadle_array_release(&b.cuts);
  treadle_array_release(&b.parts);
  treadle_hash_map_release(&b.cut_by_text);
  treadle_hash_map_release(&b.by_module);
  treadle_layout_destroy(b.modules);
  return status;
}

treadle_status treadle_layout_from_placements(const treadle_model *model, int64_t ranks,
                                              const treadle_placed_mesh *meshes, size_t mesh_count,
                                              const treadle_placed_tensor *tensors, size_t tensor_count,
                                              treadle_layout **layout_p) {
  TREADLE_NEED(layout_p);
  *layout_p = NULL;
  TREADLE_NEED(model);
  if (mesh_count > 0) TREADLE_NEED(meshes);
  if (tensor_count > 0) TREADLE_NEED(tensors);
  treadle_layout *layout;
  treadle_status status = treadle_layout_start(model, "placements", ranks, &layout);
  if (status == TREADLE_OK)
    status = treadle_placements_build(layout, meshes, mesh_count, tensors, tensor_count);
  *layout_p = status == TREADLE_OK ? layout : NULL;
  if (status != TREADLE_OK) treadle_layout_destroy(layout);
  return status;
}
