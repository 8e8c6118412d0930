/* Golden DTensor placements and FSDP2 shards, against the library's boxes. */
#include "golden_support/golden_flat.h"

#include <stdlib.h>
#include <string.h>

static bool is_shape(const json_t *list, const int64_t *shape, int ndim) {
  bool equal = (int)json_array_size(list) == ndim;
  for (int d = 0; equal && d < ndim; d++) equal = golden_at(list, (size_t)d) == shape[d];
  return equal;
}

/* ---- FSDP2 ----------------------------------------------------------------------------------- */

/* One parameter on one rank. coordinates: replicas first, then FSDP, then TP if the mesh has it. */
static golden_verdict compare_fsdp2(const golden_case *c, const int64_t *shape, int ndim,
                                    const treadle_fsdp2_rule *rule, int64_t tp_index, int64_t index,
                                    const json_t *golden) {
  int64_t stored[TREADLE_MAX_AXES], stored_elems = 1;
  treadle_box box;
  if (treadle_fsdp2_shard(shape, ndim, rule, tp_index, index, &box, stored) != TREADLE_OK)
    return golden_differ(c, "refused: %s", treadle_error_message());
  for (int d = 0; d < ndim; d++) stored_elems *= stored[d];
  if (!is_shape(json_object_get(golden, "local_shape"), box.size, ndim) ||
      !is_shape(json_object_get(golden, "padded_sharded_size"), stored, ndim) ||
      golden_int(golden, "storage_numel", -1) != stored_elems)
    return golden_differ(c, "tp %lld, dp %lld: another local shape or storage", (long long)tp_index,
                         (long long)index);
  golden_runs runs = {0};
  if (treadle_box_elems(&box) > 0) {
    treadle_strided part = treadle_strided_whole(box.size, ndim, 0);
    part.box = box;
    golden_flat_add(&runs, 0, shape, ndim, &part);
  }
  golden_flat_join(&runs);
  golden_verdict verdict =
      golden_flat_compare(c, "local tensor", &runs, json_object_get(golden, "runs"), false);
  golden_runs_release(&runs);
  return verdict;
}

/* Every rank's shard of a parameter; what the library refuses is GOLDEN_REFUSED. */
static golden_verdict check_param(const golden_case *c, size_t number) {
  const json_t *mesh = json_object_get(c->item, "mesh"), *ranks = json_object_get(c->item, "ranks");
  const json_t *tp_dim = json_array_get(json_object_get(c->item, "tp_dim_per_param"), number);
  const json_t *fsdp_dim = json_array_get(json_object_get(c->item, "fsdp_dim_per_param"), number);
  treadle_fsdp2_rule rule = {.tp_dim = json_is_integer(tp_dim) ? (int)json_integer_value(tp_dim) : -1,
                             .tp = golden_int(mesh, "tp", 1),
                             .fsdp_dim = (int)json_integer_value(fsdp_dim),
                             .fsdp = golden_int(mesh, "shard", golden_int(mesh, "dp", c->ranks))};
  int64_t shape[TREADLE_MAX_AXES], stored[TREADLE_MAX_AXES];
  int ndim = golden_flat_shape(json_array_get(json_object_get(c->item, "params"), number), shape);
  treadle_box box;
  if (treadle_fsdp2_shard(shape, ndim, &rule, 0, 0, &box, stored) != TREADLE_OK) return GOLDEN_REFUSED;
  golden_verdict verdict = GOLDEN_EQUAL;
  for (size_t r = 0; verdict == GOLDEN_EQUAL && r < json_array_size(ranks); r++) {
    const json_t *rank = json_array_get(ranks, r), *at = json_object_get(rank, "coord");
    size_t last = json_array_size(at) - 1;
    bool has_tp = json_object_get(mesh, "tp") != NULL;
    verdict = compare_fsdp2(c, shape, ndim, &rule, has_tp ? golden_at(at, last) : 0,
                            golden_at(at, has_tp ? last - 1 : last),
                            json_array_get(json_object_get(rank, "params"), number));
  }
  return verdict;
}

golden_verdict golden_check_fsdp2(golden_case *c) {
  if (!golden_flat_asks(c)) return GOLDEN_NOT_ASKED;
  c->ranks = golden_int(c->item, "world", 0);
  snprintf(c->text, sizeof c->text, "fsdp2");
  bool wants_refusal = json_object_get(c->item, "error") != NULL, refused = false;
  if (!wants_refusal && (int64_t)json_array_size(json_object_get(c->item, "ranks")) != c->ranks)
    return golden_differ(c, "golden has other ranks");
  for (size_t i = 0; i < json_array_size(json_object_get(c->item, "params")); i++) {
    golden_verdict verdict = check_param(c, i);
    if (verdict == GOLDEN_DIFFERENT) return verdict;
    if (verdict == GOLDEN_REFUSED && !wants_refusal)
      return golden_differ(c, "refused: %s", treadle_error_message());
    refused |= verdict == GOLDEN_REFUSED;
  }
  if (wants_refusal) return refused ? GOLDEN_REFUSED : golden_differ(c, "accepted");
  return GOLDEN_EQUAL;
}

/* ---- DTensor --------------------------------------------------------------------------------- */

int golden_flat_placements(const char *text, treadle_mesh_placement *places) {
  int count = 0;
  for (const char *at = text; *at && count < TREADLE_MAX_AXES; count++) {
    dtensor_placement *placement = &places[count].placement;
    char *next = (char *)at + 1;
    *placement = (dtensor_placement){.type = *at};
    if (*at == 'S' || *at == 'T') placement->dim = (int)strtol(at + 1, &next, 10);
    if (*next == '/') placement->split = strtol(next + 1, &next, 10);
    at = *next == ',' ? next + 1 : next;
  }
  return count;
}

/* Torch reports the offset of the first element; behind the last one for an empty shard. */
static bool is_offset(const json_t *offset, const treadle_strideds *boxes, const int64_t *local,
                      const int64_t *shape, int ndim) {
  bool equal = true;
  for (int d = 0; d < ndim; d++) {
    if (boxes->count > 0) equal &= golden_at(offset, (size_t)d) == boxes->items[0].box.start[d];
    if (local[d] == 0) equal &= golden_at(offset, (size_t)d) == shape[d];
  }
  return equal;
}

static golden_verdict compare_dtensor(const golden_case *c, const int64_t *shape, int ndim,
                                      treadle_mesh_placement *places, int count, const json_t *rank) {
  int64_t local[TREADLE_MAX_AXES];
  treadle_strideds boxes = {0};
  golden_runs runs = {0};
  golden_verdict verdict = GOLDEN_EQUAL;
  for (int m = 0; m < count; m++) places[m].index = golden_at(json_object_get(rank, "coord"), (size_t)m);
  if (treadle_dtensor_shard(shape, ndim, places, count, local, &boxes) != TREADLE_OK)
    verdict = golden_differ(c, "refused: %s", treadle_error_message());
  else if (!is_shape(json_object_get(rank, "shape"), local, ndim) ||
           !is_offset(json_object_get(rank, "offset"), &boxes, local, shape, ndim))
    verdict = golden_differ(c, "another local shape or offset");
  const json_t *golden = json_object_get(rank, "runs"); /* a Partial tensor has none */
  for (size_t i = 0; golden && i < boxes.count; i++)
    golden_flat_add(&runs, 0, shape, ndim, &boxes.items[i]);
  golden_flat_join(&runs);
  if (golden && verdict == GOLDEN_EQUAL && !is_shape(json_object_get(rank, "local_shape"), local, ndim))
    verdict = golden_differ(c, "another local shape");
  if (golden && verdict == GOLDEN_EQUAL)
    verdict = golden_flat_compare(c, "local tensor", &runs, golden, false);
  golden_runs_release(&runs);
  treadle_array_release(&boxes);
  return verdict;
}

/* Partial is refused as a layout of weights; its shape and offset are those of Replicate. */
golden_verdict golden_check_dtensor(golden_case *c) {
  if (!golden_flat_asks(c)) return GOLDEN_NOT_ASKED;
  const json_t *ranks = json_object_get(c->item, "ranks");
  treadle_mesh_placement places[TREADLE_MAX_AXES] = {{{0}, 0, 0}};
  int64_t shape[TREADLE_MAX_AXES], local[TREADLE_MAX_AXES];
  int ndim = golden_flat_shape(json_object_get(c->item, "shape"), shape);
  const char *text = json_string_value(json_object_get(c->item, "placements"));
  int count = golden_flat_placements(text, places);
  for (int m = 0; m < count; m++) places[m].size = golden_at(json_object_get(c->item, "mesh"), (size_t)m);
  c->ranks = (int64_t)json_array_size(ranks);
  snprintf(c->text, sizeof c->text, "dtensor %s", text);

  treadle_strideds boxes = {0};
  bool is_partial = strchr(text, 'P') != NULL;
  bool refused = treadle_dtensor_shard(shape, ndim, places, count, local, &boxes) == TREADLE_REFUSED;
  treadle_array_release(&boxes);
  if (refused != is_partial) return golden_differ(c, is_partial ? "Partial is accepted" : "refused");
  for (int m = 0; m < count; m++)
    if (places[m].placement.type == 'P') places[m].placement.type = 'R';
  golden_verdict verdict = GOLDEN_EQUAL;
  for (size_t r = 0; verdict == GOLDEN_EQUAL && r < json_array_size(ranks); r++)
    verdict = compare_dtensor(c, shape, ndim, places, count, json_array_get(ranks, r));
  return verdict;
}
