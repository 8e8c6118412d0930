/* Random placements of a model's tensors, and what each rank has then. */
#include "plan/place.h"

#include "flat/shapes.h"
#include "model/model.h"
#include "test.h"

#include <inttypes.h>

enum { MESHES = 2 };

typedef struct placing {
  int64_t ranks;
  treadle_placed_mesh meshes[MESHES];
  int64_t *places[MESHES]; /* [ranks] the place of each rank in the mesh, -1: none */
  int64_t *lists[MESHES];
} placing;

/* A mesh of some of the ranks: in order from some rank on, or in any order. */
static void draw_mesh(treadle_random *random, placing *all, int m) {
  treadle_placed_mesh *mesh = &all->meshes[m];
  int64_t count = 1, *list = calloc((size_t)all->ranks, sizeof *list);
  all->places[m] = calloc((size_t)all->ranks, sizeof *list);
  assert_true(list && all->places[m]);
  mesh->ndim = 1 + (int32_t)treadle_random_below(random, 3);
  for (int d = 0; d < mesh->ndim; d++) {
    mesh->size[d] = 1 + treadle_random_below(random, all->ranks / count);
    count *= mesh->size[d];
  }
  bool in_order = draw_chance(random, 50);
  mesh->first = treadle_random_below(random, all->ranks - count + 1);
  for (int64_t r = 0; r < all->ranks; r++) list[r] = r, all->places[m][r] = -1;
  for (int64_t i = 0; i < count; i++) {
    int64_t other = in_order ? mesh->first + i : i + treadle_random_below(random, all->ranks - i);
    int64_t rank = in_order ? other : list[other];
    if (!in_order) list[other] = list[i], list[i] = rank;
    all->places[m][rank] = i;
  }
  all->lists[m] = list;
  if (!in_order) {
    mesh->ranks = list;
    mesh->first = 0;
  }
}

static void describe(const placing *all, const char *of, char *text, size_t capacity) {
  size_t used = (size_t)snprintf(text, capacity, "placements of %s on", of);
  for (int m = 0; m < MESHES; m++) {
    for (int d = 0; d < all->meshes[m].ndim; d++)
      used += (size_t)snprintf(text + used, capacity - used, "%s%" PRId64, d ? "x" : " ",
                               all->meshes[m].size[d]);
    if (all->meshes[m].ranks) used += (size_t)snprintf(text + used, capacity - used, " in any order");
  }
}

/* What a rank has of a whole storage tensor. */
static void push_shard(oracle_rank *rank, const oracle_storage *whole, shapes_shard *shard) {
  rank->storages = realloc(rank->storages, (size_t)(rank->count + 1) * sizeof *rank->storages);
  assert_non_null(rank->storages);
  oracle_storage *own = &rank->storages[rank->count++];
  *own = *whole;
  own->elems = shapes_elems(shard);
  own->tensor = calloc((size_t)own->elems + 1, sizeof *own->tensor);
  own->index = calloc((size_t)own->elems + 1, sizeof *own->index);
  assert_true(own->tensor && own->index);
  for (int d = 0; d < whole->ndim; d++) own->shape[d] = shard->count[d];
  for (int64_t i = 0; i < own->elems; i++) {
    int64_t from = shapes_element(shard, whole->shape, i);
    own->tensor[i] = whole->tensor[from];
    own->index[i] = whole->index[from];
  }
  shapes_release(shard);
}

static void push_shards(const placing *all, const oracle_storage *whole,
                        const treadle_placed_tensor *placed, oracle_layout *truth) {
  const int64_t alone = 1, origin = 0;
  const treadle_placement none = {TREADLE_REPLICATE, 0, 0};
  for (int64_t r = 0; r < all->ranks; r++) {
    shapes_shard shard;
    if (placed->mesh < 0) {
      shard = shapes_cut(whole->shape, whole->ndim, &none, &alone, &origin, 1);
    } else {
      const treadle_placed_mesh *mesh = &all->meshes[placed->mesh];
      int64_t coordinates[SHAPES_MESH], place = all->places[placed->mesh][r];
      if (place < 0) continue;
      for (int d = mesh->ndim - 1; d >= 0; d--) {
        coordinates[d] = place % mesh->size[d];
        place /= mesh->size[d];
      }
      shard =
          shapes_cut(whole->shape, whole->ndim, placed->placements, mesh->size, coordinates, mesh->ndim);
    }
    push_shard(&truth->rank[r], whole, &shard);
  }
}

/* Names of files, or those of modules. */
void place_side(const pair *p, treadle_random *random, pair_side *side) {
  const char *of = draw_fits(p->oracle, "fsdp2") && draw_chance(random, 50) ? "fsdp2" : "hf";
  char why[200];
  oracle_layout *whole = oracle_layout_new(p->oracle, of, 1, 1, why);
  if (!whole) fail_msg("oracle: %s: %s", of, why);
  placing all = {.ranks = p->ranks};
  for (int m = 0; m < MESHES; m++) draw_mesh(random, &all, m);
  const oracle_rank *rank = &whole->rank[0];
  treadle_placed_tensor *tensors = calloc((size_t)rank->count + 1, sizeof *tensors);
  oracle_layout *truth = calloc(1, sizeof *truth);
  assert_true(tensors && truth);
  truth->model = p->oracle;
  truth->ranks = p->ranks;
  truth->rank = calloc((size_t)p->ranks, sizeof *truth->rank);
  assert_non_null(truth->rank);
  for (int s = 0; s < rank->count; s++) {
    treadle_placed_tensor *placed = &tensors[s];
    placed->tensor = rank->storages[s].name;
    if (strcmp(of, "fsdp2") == 0) placed->ndim = rank->storages[s].ndim;
    for (int d = 0; d < placed->ndim; d++) placed->shape[d] = rank->storages[s].shape[d];
    placed->mesh = (int32_t)treadle_random_below(random, draw_chance(random, 10) ? MESHES + 1 : MESHES);
    if (placed->mesh == MESHES) placed->mesh = -1;
    for (int d = 0; placed->mesh >= 0 && d < all.meshes[placed->mesh].ndim; d++)
      placed->placements[d] = shapes_draw(random, rank->storages[s].ndim);
    push_shards(&all, &rank->storages[s], placed, truth);
  }
  describe(&all, of, side->text, sizeof side->text);
  strcpy(side->set, "placements");
  strcpy(side->like, "placements");
  side->f = 1;
  if (treadle_layout_from_placements(p->model, p->ranks, all.meshes, MESHES, tensors, (size_t)rank->count,
                                     &side->layout) != TREADLE_OK)
    fail_msg("seed %" PRIu64 ": %s: %s: %s", p->seed, p->config, side->text, treadle_error_message());
  side->oracle = truth;
  for (int m = 0; m < MESHES; m++) {
    free(all.places[m]);
    free(all.lists[m]);
  }
  free(tensors);
  oracle_layout_free(whole);
}
