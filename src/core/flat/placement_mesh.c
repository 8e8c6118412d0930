/* Device meshes, and groups of ranks that are in the same ones. */
#include "flat/placement_mesh.h"

#include "base/checked.h"
#include "base/hash.h"
#include "base/hash_index.h"
#include "base/limits.h"
#include "base/search.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_GROUPS = 4096 };

static treadle_status no_memory(void) {
  return treadle_fail(TREADLE_NO_MEMORY, "placements: memory is out");
}

/* ---- One mesh ---- */

/* Sorts the dimensions by stride. True where ranks come one after the other: a step of a dimension is longer than all that the
 * dimensions with shorter strides span. */
static bool sort_strides(treadle_placement_mesh *mesh) {
  int64_t reach = 0;
  mesh->strides = 0;
  for (int d = 0; d < mesh->ndim; d++) {
    if (mesh->size[d] == 1) continue;
    int i = mesh->strides++;
    for (; i > 0 && mesh->stride[mesh->by_stride[i - 1]] < mesh->stride[d]; i--)
      mesh->by_stride[i] = mesh->by_stride[i - 1];
    mesh->by_stride[i] = d;
  }
  for (int i = mesh->strides - 1; i >= 0; i--) {
    int d = mesh->by_stride[i];
    if (mesh->stride[d] <= reach) return false;
    reach += (mesh->size[d] - 1) * mesh->stride[d];
  }
  return true;
}

static int64_t arithmetic_rank(const treadle_placement_mesh *mesh, int64_t place) {
  int64_t rank = mesh->first;
  for (int d = mesh->ndim - 1; d >= 0; d--) {
    rank += place % mesh->size[d] * mesh->stride[d];
    place /= mesh->size[d];
  }
  return rank;
}

/* Takes the strides out of a list; true where they give all of it. */
static bool find_strides(treadle_placement_mesh *mesh, const int64_t *ranks) {
  mesh->first = ranks[0];
  for (int d = 0; d < mesh->ndim; d++)
    mesh->stride[d] = mesh->size[d] > 1 ? ranks[mesh->weight[d]] - ranks[0] : 0;
  if (!sort_strides(mesh)) return false;
  for (int64_t place = 0; place < mesh->count; place++)
    if (ranks[place] != arithmetic_rank(mesh, place)) return false;
  return true;
}

static int by_rank(const void *a, const void *b) {
  const treadle_placement_rank *x = a, *y = b;
  if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
  return (x->place > y->place) - (x->place < y->place);
}

static treadle_status refuse_rank(size_t number, int64_t rank, int64_t ranks) {
  return treadle_fail(TREADLE_REFUSED,
                      "placements: mesh %zu has rank %" PRId64 ", which is not one of %" PRId64, number,
                      rank, ranks);
}

/* ranks NULL: those that the strides give. */
static treadle_status make_list(treadle_placement_mesh *mesh, const int64_t *ranks, size_t number,
                                treadle_arena *arena) {
  size_t count = (size_t)mesh->count;
  int64_t *list = treadle_arena_alloc_array(arena, count, sizeof *list);
  treadle_placement_rank *sorted = treadle_arena_alloc_array(arena, count, sizeof *sorted);
  if (!list || !sorted) return no_memory();
  for (size_t i = 0; i < count; i++) {
    list[i] = ranks ? ranks[i] : arithmetic_rank(mesh, (int64_t)i);
    sorted[i] = (treadle_placement_rank){list[i], (int64_t)i};
  }
  qsort(sorted, count, sizeof *sorted, by_rank);
  for (size_t i = 1; i < count; i++)
    if (sorted[i].rank == sorted[i - 1].rank)
      return treadle_fail(TREADLE_REFUSED,
                          "placements: mesh %zu has rank %" PRId64 " twice, as number %" PRId64
                          " and %" PRId64,
                          number, sorted[i].rank, sorted[i - 1].place, sorted[i].place);
  mesh->ranks = list;
  mesh->sorted = sorted;
  return TREADLE_OK;
}

/* Strides that were given, or those of a row-major grid: all ranks are from 0 up to `ranks`. */
static treadle_status take_strides(const treadle_placed_mesh *given, size_t number, int64_t ranks,
                                   treadle_placement_mesh *mesh) {
  bool given_any = false;
  int64_t last = mesh->first = given->first, reach;
  for (int d = 0; d < mesh->ndim; d++) given_any = given_any || given->stride[d] != 0;
  for (int d = 0; d < mesh->ndim; d++) {
    mesh->stride[d] = given_any ? given->stride[d] : mesh->weight[d];
    if (mesh->stride[d] < 0 || (mesh->size[d] > 1 && mesh->stride[d] == 0))
      return treadle_fail(TREADLE_REFUSED,
                          "placements: mesh %zu: dimension %d has %" PRId64
                          " ranks at a stride of %" PRId64,
                          number, d, mesh->size[d], mesh->stride[d]);
    if (!treadle_mul_fits(mesh->size[d] - 1, mesh->stride[d], &reach) ||
        !treadle_add_fits(last < 0 ? 0 : last, reach, &last))
      last = INT64_MAX;
  }
  if (given->first < 0) return refuse_rank(number, given->first, ranks);
  return last < ranks ? TREADLE_OK : refuse_rank(number, last, ranks);
}

treadle_status treadle_placement_mesh_read(const treadle_placed_mesh *given, size_t number, int64_t ranks,
                                           treadle_arena *arena, treadle_placement_mesh *mesh_p) {
  treadle_status status = TREADLE_OK;
  treadle_placement_mesh mesh = {.ndim = given->ndim, .count = 1};
  if (given->ndim < 1 || given->ndim > TREADLE_MAX_PLACED_DIMS)
    REFUSE("placements: mesh %zu has %d dimensions; 1 to %d will do", number, (int)given->ndim,
           TREADLE_MAX_PLACED_DIMS);
  for (int d = mesh.ndim - 1; d >= 0; d--) {
    mesh.size[d] = given->size[d];
    mesh.weight[d] = mesh.count;
    if (mesh.size[d] < 1)
      REFUSE("placements: mesh %zu: dimension %d has %" PRId64 " ranks", number, d, mesh.size[d]);
    if (!treadle_mul_fits(mesh.count, mesh.size[d], &mesh.count) || mesh.count > ranks)
      REFUSE("placements: mesh %zu has more than the %" PRId64 " ranks that there are", number, ranks);
  }
  if (given->ranks) {
    for (int64_t i = 0; i < mesh.count; i++)
      if (given->ranks[i] < 0 || given->ranks[i] >= ranks)
        return refuse_rank(number, given->ranks[i], ranks);
    if (!find_strides(&mesh, given->ranks)) TRY(make_list(&mesh, given->ranks, number, arena));
  } else {
    TRY(take_strides(given, number, ranks, &mesh));
    if (!sort_strides(&mesh)) TRY(make_list(&mesh, NULL, number, arena));
  }
  *mesh_p = mesh;
out:
  return status;
}

int64_t treadle_placement_mesh_rank(const treadle_placement_mesh *mesh, int64_t place) {
  return mesh->ranks ? mesh->ranks[place] : arithmetic_rank(mesh, place);
}

int64_t treadle_placement_mesh_find(const treadle_placement_mesh *mesh, int64_t rank) {
  if (mesh->ranks) {
    const treadle_placement_rank wanted = {rank, -1};
    int64_t low = 0, high = mesh->count;
    while (low < high) {
      int64_t middle = low + (high - low) / 2;
      if (by_rank(&mesh->sorted[middle], &wanted) < 0)
        low = middle + 1;
      else
        high = middle;
    }
    return low < mesh->count && mesh->sorted[low].rank == rank ? mesh->sorted[low].place : -1;
  }
  int64_t rest = rank - mesh->first, place = 0;
  if (rest < 0) return -1;
  for (int i = 0; i < mesh->strides; i++) {
    int d = mesh->by_stride[i];
    int64_t at = rest / mesh->stride[d];
    if (at >= mesh->size[d]) return -1;
    place += at * mesh->weight[d];
    rest -= at * mesh->stride[d];
  }
  return rest == 0 ? place : -1;
}

/* ---- Groups ---- */

typedef struct edge { /* from this rank on the mesh's ranks begin, or end */
  int64_t at;
  int32_t mesh;
  bool begins;
} edge;

typedef TREADLE_ARRAY(edge) edges;

/* A mesh may begin again where it ends, so ends come first. */
static int by_place(const void *a, const void *b) {
  const edge *x = a, *y = b;
  if (x->at != y->at) return x->at < y->at ? -1 : 1;
  return x->begins - y->begins;
}

static treadle_status push_edges(edges *all, int32_t mesh, int64_t begin, int64_t end) {
  treadle_status status = TREADLE_OK;
  if (all->count >= 2 * (size_t)TREADLE_MAX_TABLE_RANKS)
    TRY(treadle_fail(TREADLE_REFUSED, "placements: the ranks of the meshes lie in more than %d parts",
                     TREADLE_MAX_TABLE_RANKS));
  TRY(treadle_array_push(all, ((edge){begin, mesh, true})));
  TRY(treadle_array_push(all, ((edge){end, mesh, false})));
out:
  return status;
}

/* The dimensions with the shortest strides make ranks without gaps; the others say how often. */
static treadle_status list_edges(const treadle_placement_mesh *mesh, int32_t number, edges *all) {
  treadle_status status = TREADLE_OK;
  if (mesh->ranks) {
    for (int64_t i = 0, end; i < mesh->count; i = end) {
      for (end = i + 1; end < mesh->count && mesh->sorted[end].rank == mesh->sorted[end - 1].rank + 1;
           end++) {
      }
      TRY(push_edges(all, number, mesh->sorted[i].rank, mesh->sorted[end - 1].rank + 1));
    }
    return TREADLE_OK;
  }
  int64_t block = 1, blocks = 1;
  int outer = mesh->strides;
  while (outer > 0 && mesh->stride[mesh->by_stride[outer - 1]] == block)
    block *= mesh->size[mesh->by_stride[--outer]];
  for (int i = 0; i < outer; i++) blocks *= mesh->size[mesh->by_stride[i]];
  for (int64_t b = 0; b < blocks; b++) {
    int64_t at = mesh->first, rest = b;
    for (int i = outer - 1; i >= 0; i--) {
      int d = mesh->by_stride[i];
      at += rest % mesh->size[d] * mesh->stride[d];
      rest /= mesh->size[d];
    }
    TRY(push_edges(all, number, at, at + block));
  }
out:
  return status;
}

/* A set of meshes as two sums, which edges change; a group for each. */
typedef struct sums {
  uint64_t low, high;
} sums;

typedef struct maker {
  treadle_hash_index known;
  TREADLE_ARRAY(int32_t) meshes; /* of all groups */
  TREADLE_ARRAY(int32_t) first;
  TREADLE_ARRAY(int64_t) begins;
  TREADLE_ARRAY(int32_t) at;
  edges edges;
} maker;

static treadle_status add_group(maker *m, sums now, const bool *open, int32_t count, int32_t *group_p) {
  treadle_status status = TREADLE_OK;
  int32_t fresh = (int32_t)m->first.count;
  TRY(treadle_hash_index_put(&m->known, treadle_hash_more(now.low, now.high), fresh, group_p));
  if (*group_p != fresh) return TREADLE_OK;
  if (fresh == MAX_GROUPS)
    TRY(treadle_fail(TREADLE_REFUSED, "placements: ranks are in more than %d different sets of meshes",
                     MAX_GROUPS));
  TRY(treadle_array_push(&m->first, (int32_t)m->meshes.count));
  for (int32_t k = 0; k < count; k++)
    if (open[k]) TRY(treadle_array_push(&m->meshes, k));
out:
  return status;
}

static treadle_status sweep(maker *m, int32_t count, int64_t ranks) {
  treadle_status status = TREADLE_OK;
  bool *open = treadle_alloc_array((size_t)count + 1, sizeof *open);
  sums now = {0};
  int32_t group;
  if (!open) return no_memory();
  if (m->edges.count > 1) qsort(m->edges.items, m->edges.count, sizeof *m->edges.items, by_place);
  size_t i = 0;
  for (int64_t at = 0; at < ranks; at = i < m->edges.count ? m->edges.items[i].at : ranks) {
    for (; i < m->edges.count && m->edges.items[i].at == at; i++) {
      const edge *e = &m->edges.items[i];
      uint64_t sign = e->begins ? 1 : UINT64_MAX;
      open[e->mesh] = e->begins;
      now.low += sign * treadle_mix64((uint64_t)e->mesh);
      now.high += sign * treadle_mix64(~(uint64_t)e->mesh);
    }
    TRY(add_group(m, now, open, count, &group));
    TRY(treadle_array_push(&m->begins, at));
    TRY(treadle_array_push(&m->at, group));
  }
out:
  treadle_free(open);
  return status;
}

/* Of each mesh, the groups that are in it. */
static treadle_status invert(const treadle_placement_groups *groups, treadle_placement_mesh *meshes,
                             int32_t count, treadle_arena *arena) {
  int32_t **lists = treadle_arena_alloc_array(arena, (size_t)count + 1, sizeof *lists);
  if (!lists) return no_memory();
  int32_t end = groups->mesh_first[groups->count];
  for (int32_t i = 0; i < end; i++) meshes[groups->meshes[i]].group_count++;
  for (int32_t k = 0; k < count; k++) {
    meshes[k].groups = lists[k] =
        treadle_arena_alloc_array(arena, (size_t)meshes[k].group_count + 1, sizeof *lists[k]);
    if (!lists[k]) return no_memory();
  }
  for (int32_t g = 0; g < groups->count; g++)
    for (int32_t i = groups->mesh_first[g]; i < groups->mesh_first[g + 1]; i++)
      *lists[groups->meshes[i]]++ = g;
  return TREADLE_OK;
}

#define COPY(to, from)                                                                                     \
  do {                                                                                                     \
    (to) = treadle_arena_alloc_array(arena, (from).count + 1, sizeof *(to));                               \
    if (!(to)) TRY(no_memory());                                                                           \
    if ((from).count > 0) memcpy((to), (from).items, (from).count * sizeof *(to));                         \
  } while (0)

treadle_status treadle_placement_groups_make(treadle_placement_mesh *meshes, int32_t count, int64_t ranks,
                                             treadle_arena *arena, treadle_placement_groups *groups_p) {
  treadle_status status = TREADLE_OK;
  maker m = {0};
  for (int32_t k = 0; k < count; k++) TRY(list_edges(&meshes[k], k, &m.edges));
  TRY(sweep(&m, count, ranks));
  groups_p->count = (int32_t)m.first.count;
  groups_p->begin_count = (int64_t)m.begins.count;
  TRY(treadle_array_push(&m.first, (int32_t)m.meshes.count));
  COPY(groups_p->mesh_first, m.first);
  COPY(groups_p->meshes, m.meshes);
  COPY(groups_p->begins, m.begins);
  COPY(groups_p->group_at, m.at);
  TRY(invert(groups_p, meshes, count, arena));
out:
  treadle_hash_index_release(&m.known);
  treadle_array_release(&m.meshes);
  treadle_array_release(&m.first);
  treadle_array_release(&m.begins);
  treadle_array_release(&m.at);
  treadle_array_release(&m.edges);
  return status;
}

int32_t treadle_placement_group_of(const treadle_placement_groups *groups, int64_t rank) {
  return groups
      ->group_at[treadle_last_at_most(groups->begins, sizeof *groups->begins, groups->begin_count, rank)];
}
