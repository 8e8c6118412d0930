/* Index lists, chunk by chunk. */
#include "flat/shapes.h"

#include "io/json.h"
#include "model/model.h"
#include "test.h"

#include <inttypes.h>

static const char family[] = "family: shapes\n"
                             "model_types: [shapes]\n"
                             "dims: {a: fa, b: fb, c: fc, d: fd, e: fe, f: ff, n: fn}\n"
                             "layers: '1'\n"
                             "tensors:\n"
                             "  - {name: w1, shape: [a*b], when: n == 1}\n"
                             "  - {name: w2, shape: [a*b, c*d], when: n == 2}\n"
                             "  - {name: w3, shape: [a*b, c*d, e], when: n == 3}\n"
                             "  - {name: w4, shape: [a*b, c*d, e, f], when: n == 4}\n"
                             "engines: {}\n";

const char *shapes_folder(void) {
  const char *folder = test_folder();
  test_write(folder, "shapes.yaml", family);
  return folder;
}

/* The smaller of two factors. */
static int64_t factor(int64_t n) {
  for (int64_t k = 2; k * k <= n; k++)
    if (n % k == 0) return k;
  return 1;
}

treadle_model *shapes_model(const char *folder, const int64_t *shape, int ndim, const char **name_p) {
  static const char *const names[] = {"w1", "w2", "w3", "w4"};
  const treadle_model_options options = {.struct_size = sizeof options, .families = folder};
  treadle_model *model;
  int64_t n[SHAPES_DIMS] = {1, 1, 1, 1};
  for (int d = 0; d < ndim; d++) n[d] = shape[d];
  json_t *config = json_pack(
      "{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:i}", "model_type", "shapes", "dtype", "float32", "fa",
      (json_int_t)factor(n[0]), "fb", (json_int_t)(n[0] / factor(n[0])), "fc", (json_int_t)factor(n[1]),
      "fd", (json_int_t)(n[1] / factor(n[1])), "fe", (json_int_t)n[2], "ff", (json_int_t)n[3], "fn", ndim);
  assert_non_null(config);
  assert_ok(treadle_model_from_config("config.json", config, &options, &model));
  json_decref(config);
  *name_p = names[ndim - 1];
  return model;
}

int shapes_placements(const char *text, treadle_placement *placements) {
  static const char letters[] = "RSTFP";
  int count = 0;
  for (char *at = (char *)text; *at; count++) {
    treadle_placement *placement = &placements[count];
    *placement = (treadle_placement){(treadle_placement_type)(strchr(letters, *at) - letters), 0, 0};
    bool cuts = *at != 'R' && *at != 'P';
    at++;
    if (cuts) placement->dim = (int32_t)strtol(at, &at, 10);
    if (*at == '/') placement->split = strtol(at + 1, &at, 10);
    at += *at == ',';
  }
  return count;
}

const char *shapes_text(const treadle_placement *placements, int count, char *text, size_t capacity) {
  size_t used = 0;
  for (int m = 0; m < count; m++) {
    const treadle_placement *placement = &placements[m];
    used += (size_t)snprintf(text + used, capacity - used, "%s%c", m ? "," : "", "RSTFP"[placement->type]);
    if (placement->type != TREADLE_REPLICATE && placement->type != TREADLE_PARTIAL)
      used += (size_t)snprintf(text + used, capacity - used, "%d", (int)placement->dim);
    if (placement->type == TREADLE_STRIDED_SHARD)
      used += (size_t)snprintf(text + used, capacity - used, "/%" PRId64, placement->split);
  }
  return text;
}

treadle_placement shapes_draw(treadle_random *random, int ndim) {
  static const treadle_placement_type types[] = {TREADLE_REPLICATE, TREADLE_SHARD, TREADLE_SHARD,
                                                 TREADLE_STRIDED_SHARD, TREADLE_FULLY_SHARD};
  treadle_placement placement = {types[treadle_random_below(random, 5)], 0, 0};
  placement.dim = (int32_t)treadle_random_below(random, ndim);
  if (placement.type == TREADLE_STRIDED_SHARD)
    placement.split = 1 + treadle_random_below(random, treadle_random_below(random, 4) ? 4 : 40);
  return placement;
}

/* ---- torch.chunk ---- */

/* Appends chunk number `index` of `count` indices in `chunks`. torch.chunk gives pieces of ceil(n / chunks) until there are no more. */
static void chunk(const int64_t *from, int64_t n, int64_t chunks, int64_t index, int64_t *to,
                  int64_t *count) {
  int64_t each = (n + chunks - 1) / chunks;
  for (int64_t i = 0; i < n; i++)
    if (i / each == index) to[(*count)++] = from[i];
}

static void cut(shapes_shard *shard, const treadle_placement *placement, int64_t size, int64_t index) {
  int d = placement->dim;
  int64_t n = shard->count[d], kept = 0, *old = shard->at[d];
  int64_t split = placement->type == TREADLE_STRIDED_SHARD ? placement->split : 1;
  int64_t *next = calloc((size_t)n + 1, sizeof *next), *part = calloc((size_t)n + 1, sizeof *part);
  assert_true(next && part);
  for (int64_t s = 0; s < split; s++) {
    int64_t length = 0;
    chunk(old, n, split, s, part, &length);
    chunk(part, length, size, index, next, &kept);
  }
  free(part);
  free(old);
  shard->at[d] = next;
  shard->count[d] = kept;
}

/* Cuts by mesh dimensions m and on: fully_shard after those to its right. */
static void cut_from(shapes_shard *shard, const treadle_placement *placements, const int64_t *mesh,
                     const int64_t *coordinates, int m, int mesh_ndim) {
  if (m == mesh_ndim) return;
  bool late = placements[m].type == TREADLE_FULLY_SHARD, cuts = placements[m].type != TREADLE_REPLICATE;
  if (cuts && !late) cut(shard, &placements[m], mesh[m], coordinates[m]);
  cut_from(shard, placements, mesh, coordinates, m + 1, mesh_ndim);
  if (late) cut(shard, &placements[m], mesh[m], coordinates[m]);
}

shapes_shard shapes_cut(const int64_t *shape, int ndim, const treadle_placement *placements,
                        const int64_t *mesh, const int64_t *coordinates, int mesh_ndim) {
  shapes_shard shard = {.ndim = ndim};
  for (int d = 0; d < ndim; d++) {
    shard.count[d] = shape[d];
    shard.at[d] = calloc((size_t)shape[d] + 1, sizeof *shard.at[d]);
    assert_non_null(shard.at[d]);
    for (int64_t i = 0; i < shape[d]; i++) shard.at[d][i] = i;
  }
  cut_from(&shard, placements, mesh, coordinates, 0, mesh_ndim);
  return shard;
}

void shapes_release(shapes_shard *shard) {
  for (int d = 0; d < shard->ndim; d++) free(shard->at[d]);
  *shard = (shapes_shard){0};
}

int64_t shapes_elems(const shapes_shard *shard) {
  int64_t elems = 1;
  for (int d = 0; d < shard->ndim; d++) elems *= shard->count[d];
  return elems;
}

int64_t shapes_element(const shapes_shard *shard, const int64_t *shape, int64_t i) {
  int64_t element = 0, step = 1;
  for (int d = shard->ndim - 1; d >= 0; d--) {
    element += shard->at[d][i % shard->count[d]] * step;
    i /= shard->count[d];
    step *= shape[d];
  }
  return element;
}
