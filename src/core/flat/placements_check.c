/* Placements: is every canonical tensor there, and once? */
#include "flat/placements_parts.h"

#include "base/hash.h"
#include "base/limits.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- Names ---- */

/* A group of ranks that is in both meshes, -1: none. Lists are ascending. */
static int32_t common_group(const treadle_placement_mesh *a, const treadle_placement_mesh *b) {
  for (int32_t i = 0, k = 0; i < a->group_count && k < b->group_count;) {
    if (a->groups[i] == b->groups[k]) return a->groups[i];
    if (a->groups[i] < b->groups[k])
      i++;
    else
      k++;
  }
  return -1;
}

static int64_t first_rank(const treadle_placements *p, int32_t group) {
  int64_t i = 0;
  while (p->groups.group_at[i] != group) i++;
  return p->groups.begins[i];
}

/* Storage tensors of one name, or given for one tensor, are on different ranks. Those of a name are chained; two of them on one
 * mesh are refused, so that chains are no longer than there are meshes. */
static treadle_status check_names(const treadle_placements *p, bool of_storage) {
  treadle_status status = TREADLE_OK;
  treadle_hash_map last = {0};
  int32_t *before = treadle_alloc_array((size_t)p->placed_count + 1, sizeof *before);
  if (!before) return treadle_placements_no_memory();
  TRY(treadle_hash_map_reserve(&last, (size_t)p->placed_count));
  for (int32_t i = 0; i < p->placed_count; i++) {
    const treadle_placed *placed = &p->placed[i];
    const char *name = of_storage ? placed->name : placed->tensor;
    before[i] = (int32_t)treadle_hash_map_get(&last, name, -1);
    for (int32_t k = before[i]; k >= 0; k = before[k]) {
      int32_t group =
          common_group(treadle_placed_mesh_of(p, placed), treadle_placed_mesh_of(p, &p->placed[k]));
      if (group < 0) continue;
      TRY(treadle_fail(TREADLE_REFUSED, "placements: rank %" PRId64 " has %s %s twice, as number %d and %d",
                       first_rank(p, group), of_storage ? "a storage tensor" : "the tensor", name, (int)k,
                       (int)i));
    }
    TRY(treadle_hash_map_put(&last, name, i));
  }
out:
  treadle_hash_map_release(&last);
  treadle_free(before);
  return status;
}

/* ---- Parts of canonical tensors ---- */

/* A part's number, with what orders it. */
typedef struct place {
  int64_t start[TREADLE_MAX_AXES];
  int32_t tensor, part;
} place;

static int by_box(const void *a, const void *b) {
  const place *x = a, *y = b;
  if (x->tensor != y->tensor) return x->tensor < y->tensor ? -1 : 1;
  for (int i = 0; i < TREADLE_MAX_AXES; i++)
    if (x->start[i] != y->start[i]) return x->start[i] < y->start[i] ? -1 : 1;
  return (x->part > y->part) - (x->part < y->part);
}

static treadle_status sort_parts(treadle_placements_builder *b) {
  treadle_placements *p = b->made;
  size_t count = b->parts.count, tensors = (size_t)b->layout->model->tensor_count;
  p->parts = treadle_arena_alloc_array(&p->arena, count + 1, sizeof *p->parts);
  p->parts_of = treadle_arena_alloc_array(&p->arena, count + 1, sizeof *p->parts_of);
  p->part_first = treadle_arena_alloc_array(&p->arena, tensors + 1, sizeof *p->part_first);
  p->placement = treadle_arena_alloc_array(&p->arena, tensors + 1, sizeof *p->placement);
  place *places = treadle_alloc_array(count + 1, sizeof *places);
  if (!p->parts || !p->parts_of || !p->part_first || !p->placement || !places) {
    treadle_free(places);
    return treadle_placements_no_memory();
  }
  if (count > 0) memcpy(p->parts, b->parts.items, count * sizeof *p->parts);
  for (size_t i = 0; i < count; i++) {
    places[i] = (place){.tensor = p->parts[i].tensor, .part = (int32_t)i};
    memcpy(places[i].start, p->parts[i].box.start, sizeof places[i].start);
    p->part_first[p->parts[i].tensor + 1]++;
  }
  if (count > 0) qsort(places, count, sizeof *places, by_box);
  for (size_t i = 0; i < count; i++) p->parts_of[i] = places[i].part;
  for (size_t t = 0; t < tensors; t++) p->part_first[t + 1] += p->part_first[t];
  treadle_free(places);
  return TREADLE_OK;
}

/* Do both have the same cells, at the same places of storage tensors of one form? */
static bool is_like(const treadle_placements *p, const treadle_placed_part *a,
                    const treadle_placed_part *b) {
  const treadle_placed *x = &p->placed[a->placed], *y = &p->placed[b->placed];
  const treadle_placement_cut *c = &p->cuts[x->cut], *d = &p->cuts[y->cut];
  const treadle_placement_mesh *m = &p->meshes[c->mesh], *n = &p->meshes[d->mesh];
  bool like =
      x->ndim == y->ndim && m->ndim == n->ndim && memcmp(c->first, d->first, sizeof c->first) == 0 &&
      memcmp(x->shape, y->shape, sizeof x->shape) == 0 && memcmp(a->dim, b->dim, sizeof a->dim) == 0 &&
      memcmp(a->base, b->base, sizeof a->base) == 0 && memcmp(a->weight, b->weight, sizeof a->weight) == 0;
  for (int k = 0; like && k < m->ndim; k++) like = m->size[k] == n->size[k];
  for (int32_t s = 0; like && s < c->first[TREADLE_MAX_DIMS]; s++)
    like = c->steps[s].mesh_dim == d->steps[s].mesh_dim && c->steps[s].split == d->steps[s].split;
  return like;
}

/* Chains a part behind the first one with the same box, if it is cut like it on other ranks. */
static void join(treadle_placements *p, treadle_placed_part *first, int32_t number) {
  treadle_placed_part *part = &p->parts[number], *last = first;
  bool joins = is_like(p, first, part);
  for (; joins; last = &p->parts[last->like]) {
    joins = common_group(treadle_placed_mesh_of(p, &p->placed[last->placed]),
                         treadle_placed_mesh_of(p, &p->placed[part->placed])) < 0;
    if (last->like < 0) break;
  }
  if (!joins) return;
  last->like = number;
  first->likes++;
}

static uint64_t hash_part(const treadle_placements *p, const treadle_placed_part *part, uint64_t hash) {
  hash = treadle_hash_more(hash, (uint64_t)p->placed[part->placed].cut);
  hash = treadle_hash_more(hash, part->is_first);
  for (int a = 0; a < TREADLE_MAX_AXES; a++) {
    hash = treadle_hash_more(hash, (uint64_t)part->box.start[a]);
    hash = treadle_hash_more(hash, (uint64_t)part->box.size[a]);
    hash = treadle_hash_more(hash, (uint64_t)part->dim[a]);
    hash = treadle_hash_more(hash, (uint64_t)part->weight[a]);
  }
  for (int d = 0; d < TREADLE_MAX_DIMS; d++) {
    hash = treadle_hash_more(hash, (uint64_t)part->base[d]);
    hash = treadle_hash_more(hash, (uint64_t)p->placed[part->placed].shape[d]);
  }
  return hash;
}

/* Names two that have the same elements. */
static treadle_status refuse_overlap(const treadle_placements *p, const treadle_tensor *tensor, int32_t t) {
  treadle_box common;
  for (int32_t i = p->part_first[t]; i < p->part_first[t + 1]; i++)
    for (int32_t k = p->part_first[t]; k < i; k++) {
      const treadle_placed_part *a = &p->parts[p->parts_of[k]], *b = &p->parts[p->parts_of[i]];
      if (a->is_first && b->is_first && treadle_box_meet(&a->box, &b->box, &common))
        REFUSE("placements: %s and %s have the same elements of %s, but not all the same",
               p->placed[a->placed].tensor, p->placed[b->placed].tensor, tensor->name);
    }
  REFUSE("placements: %s is given in parts that overlap", tensor->name);
}

/* Finds the first parts of a tensor, which are all of it, each element once. */
static treadle_status check_tensor(treadle_placements_builder *b, int32_t t, treadle_boxes *boxes) {
  treadle_status status = TREADLE_OK;
  treadle_placements *p = b->made;
  const treadle_tensor *tensor = &b->layout->model->tensors[t];
  treadle_placed_part *first = NULL;
  uint64_t hash = 0;
  int64_t elems = 0;
  boxes->count = 0;
  for (int32_t i = p->part_first[t]; i < p->part_first[t + 1]; i++) {
    treadle_placed_part *part = &p->parts[p->parts_of[i]];
    part->is_first = !first || !treadle_box_equal(&first->box, &part->box);
    if (part->is_first) {
      first = part;
      part->likes = 1;
      elems += treadle_box_elems(&part->box);
      TRY(treadle_array_push(boxes, part->box));
    } else {
      join(p, first, p->parts_of[i]);
    }
    hash = hash_part(p, part, hash);
  }
  p->placement[t] = hash;
  const treadle_box whole = treadle_box_whole(tensor);
  if (elems < tensor->elems)
    TRY(treadle_fail(TREADLE_REFUSED, "placements: no rank holds %s%s", elems > 0 ? "all of " : "",
                     tensor->name));
  if (!treadle_box_tiles(&whole, boxes->items, boxes->count)) TRY(refuse_overlap(p, tensor, t));
out:
  return status;
}

treadle_status treadle_placements_index(treadle_placements_builder *b) {
  treadle_status status = TREADLE_OK;
  treadle_boxes boxes = {0};
  const treadle_model *model = b->layout->model;
  TRY(check_names(b->made, false));
  TRY(check_names(b->made, true));
  TRY(sort_parts(b));
  for (int32_t t = 0; t < model->tensor_count; t++) {
    if (model->tensors[t].scale_of < 0)
      TRY(check_tensor(b, t, &boxes));
    else
      b->made->dtypes[t] = model->tensors[t].dtype; /* no scales where there are no codes */
  }
out:
  treadle_array_release(&boxes);
  return status;
}
