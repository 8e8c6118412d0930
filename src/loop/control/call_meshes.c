/* A worker says what it is in the meshes of its group; the controller, who divides rows, hears it of all. */
#include "control/crew.h"
#include "control/meshes.h"

#include "base/alloc.h"

#include <string.h>

static treadle_status add(treadle_batch *batch, const char *name, treadle_column_type type, void **data_p) {
  treadle_column c = {.struct_size = sizeof c, .name = name, .type = type};
  treadle_status status;
  TRY(treadle_batch_add(batch, &c));
  TRY(treadle_batch_column(batch, name, &c));
  *data_p = c.data;
out:
  return status;
}

static size_t count_of(const treadle_meshes *meshes) {
  const treadle_mesh_place *places;
  size_t count = 0;
  while (treadle_meshes_name(meshes, count, &places)) count++;
  return count;
}

treadle_status treadle_call_say_meshes(const treadle_meshes *meshes, int32_t worker,
                                       treadle_batch **made_p) {
  const size_t count = count_of(meshes);
  const char **names = treadle_alloc_array(count + 1, sizeof *names);
  const treadle_mesh_place *places;
  void *dp_ranks, *collects;
  treadle_status status = TREADLE_OK;
  if (!names) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu meshes", count));
  TRY(treadle_batch_create((int64_t)count, made_p));
  TRY(add(*made_p, "dp_rank", TREADLE_COLUMN_INT32, &dp_ranks));
  TRY(add(*made_p, "collects", TREADLE_COLUMN_BOOL, &collects));
  for (size_t i = 0; i < count; i++) {
    names[i] = treadle_meshes_name(meshes, i, &places);
    ((int32_t *)dp_ranks)[i] = places[worker].dp_rank;
    ((bool *)collects)[i] = places[worker].collects;
  }
  TRY(treadle_batch_add_texts(*made_p, "name", names, NULL));
out:
  treadle_free((void *)names);
  return status;
}

treadle_status treadle_call_hear_meshes(treadle_meshes *meshes, int32_t worker, const treadle_batch *made) {
  treadle_column names = TREADLE_INIT(treadle_column), dp_ranks = names, collects = names;
  char name[TREADLE_GROUP_MESSAGE];
  treadle_status status;
  TRY(treadle_batch_column(made, "name", &names));
  TRY(treadle_batch_column(made, "dp_rank", &dp_ranks));
  TRY(treadle_batch_column(made, "collects", &collects));
  if (names.type != TREADLE_COLUMN_TEXT || dp_ranks.type != TREADLE_COLUMN_INT32 ||
      collects.type != TREADLE_COLUMN_BOOL)
    return treadle_fail(TREADLE_PEER, "a worker says its meshes in another way");
  for (int64_t i = 0; i < treadle_batch_rows(made); i++) {
    const int64_t first = names.offsets[i], length = names.offsets[i + 1] - first;
    snprintf(name, sizeof name, "%.*s", (int)length, (const char *)names.data + first);
    if (((const int32_t *)dp_ranks.data)[i] < 0)
      continue; /* others are in this mesh, and this worker is not */
    TRY(treadle_meshes_register(meshes, name, worker, ((const int32_t *)dp_ranks.data)[i],
                                ((const bool *)collects.data)[i]));
  }
out:
  return status;
}
