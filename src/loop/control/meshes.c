/* Meshes are registered a worker at a time, as each of them says it, and looked at as a whole when rows are divided: then nobody may be missing. */
#include "control/meshes.h"

#include "base/argument.h"
#include "base/array.h"
#include "base/limits.h"
#include "base/text.h"
#include "base/utf8.h"

#include <string.h>

typedef struct treadle_meshes_entry {
  char *name;
  treadle_mesh_place *places; /* [workers] */
} treadle_meshes_entry;

struct treadle_meshes {
  int32_t workers;
  TREADLE_ARRAY(treadle_meshes_entry) entries;
};

/* ---- Made and ended ---- */

treadle_status treadle_meshes_create(int32_t workers, treadle_meshes **meshes_p) {
  TREADLE_NEED(meshes_p);
  *meshes_p = NULL;
  if (workers < 1 || workers > TREADLE_MAX_TABLE_RANKS)
    REFUSE("a group of %d workers: 1 to %d", workers, TREADLE_MAX_TABLE_RANKS);
  treadle_meshes *meshes = treadle_alloc(sizeof *meshes);
  if (!meshes) return treadle_fail(TREADLE_NO_MEMORY, "no memory for the meshes of %d workers", workers);
  meshes->workers = workers;
  *meshes_p = meshes;
  return TREADLE_OK;
}

static void release(treadle_meshes_entry *entry) {
  treadle_free(entry->name);
  treadle_free(entry->places);
}

void treadle_meshes_destroy(treadle_meshes *meshes) {
  if (!meshes) return;
  for (size_t i = 0; i < meshes->entries.count; i++) release(&meshes->entries.items[i]);
  treadle_array_release(&meshes->entries);
  treadle_free(meshes);
}

int32_t treadle_meshes_workers(const treadle_meshes *meshes) { return meshes->workers; }

const char *treadle_meshes_name(const treadle_meshes *meshes, size_t number,
                                const treadle_mesh_place **places_p) {
  if (number >= meshes->entries.count) return NULL;
  *places_p = meshes->entries.items[number].places;
  return meshes->entries.items[number].name;
}

/* ---- Registered ---- */

static treadle_meshes_entry *find(const treadle_meshes *meshes, const char *name) {
  for (size_t i = 0; i < meshes->entries.count; i++)
    if (strcmp(meshes->entries.items[i].name, name) == 0) return &meshes->entries.items[i];
  return NULL;
}

static treadle_status no_memory(const treadle_meshes *meshes, const char *name) {
  return treadle_fail(TREADLE_NO_MEMORY, "no memory for mesh '%s' of %d workers", treadle_text_shown(name),
                      meshes->workers);
}

static treadle_status make(treadle_meshes *meshes, const char *name, treadle_meshes_entry **entry_p) {
  treadle_status status;
  size_t bytes = strlen(name) + 1;
  treadle_meshes_entry entry = {.name = treadle_alloc(bytes),
                                .places =
                                    treadle_alloc_array((size_t)meshes->workers, sizeof *entry.places)};
  if (!entry.name || !entry.places) TRY(no_memory(meshes, name));
  memcpy(entry.name, name, bytes);
  for (int32_t w = 0; w < meshes->workers; w++) entry.places[w].dp_rank = -1;
  if (treadle_array_push(&meshes->entries, entry) != TREADLE_OK) TRY(no_memory(meshes, name));
  *entry_p = &meshes->entries.items[meshes->entries.count - 1];
  return TREADLE_OK;
out:
  release(&entry);
  return status;
}

treadle_status treadle_meshes_register(treadle_meshes *meshes, const char *name, int32_t worker,
                                       int32_t dp_rank, bool collects) {
  treadle_status status = TREADLE_OK;
  TREADLE_NEED(meshes);
  TREADLE_NEED(name);
  if (!*name || !treadle_utf8_is_valid(name))
    REFUSE("mesh '%s': a name is UTF-8 of at least one character", treadle_text_shown(name));
  if (worker < 0 || worker >= meshes->workers)
    REFUSE("mesh '%s': worker %d; there are %d", treadle_text_shown(name), worker, meshes->workers);
  if (dp_rank < 0 || dp_rank >= meshes->workers)
    REFUSE("mesh '%s': dp rank %d of worker %d; among %d workers dp ranks are 0 to %d",
           treadle_text_shown(name), dp_rank, worker, meshes->workers, meshes->workers - 1);
  treadle_meshes_entry *entry = find(meshes, name);
  if (entry && entry->places[worker].dp_rank >= 0) /* verl's words */
    REFUSE("mesh_name %s has been registered: worker %d has dp rank %d in it", treadle_text_shown(name),
           worker, entry->places[worker].dp_rank);
  if (!entry) TRY(make(meshes, name, &entry));
  entry->places[worker] = (treadle_mesh_place){.dp_rank = dp_rank, .collects = collects};
out:
  return status;
}

/* ---- Looked at ---- */

/* Names of all meshes, for a message. */
static treadle_status refuse_name(const treadle_meshes *meshes, const char *name) {
  treadle_builder names = {0};
  for (size_t i = 0; i < meshes->entries.count; i++)
    treadle_builder_add(&names, "%s'%s'", i ? ", " : "", treadle_text_shown(meshes->entries.items[i].name));
  treadle_status status = treadle_fail(TREADLE_REFUSED, "mesh '%s' is not registered; there is %s",
                                       treadle_text_shown(name), names.length ? names.text : "none");
  treadle_builder_release(&names);
  return status;
}

/* Each dp rank up to the highest has workers, and one of them collects: collectors [workers], 0 or 1 + the worker that
 * does. */
static treadle_status check_ranks(const treadle_meshes *meshes, const treadle_meshes_entry *entry,
                                  int32_t dp_size, int32_t *collectors, bool *there) {
  for (int32_t w = 0; w < meshes->workers; w++) {
    const treadle_mesh_place *place = &entry->places[w];
    there[place->dp_rank] = true;
    if (!place->collects) continue;
    if (collectors[place->dp_rank])
      REFUSE("mesh '%s': dp rank %d is collected from workers %d and %d: its rows would come twice",
             entry->name, place->dp_rank, collectors[place->dp_rank] - 1, w);
    collectors[place->dp_rank] = w + 1;
  }
  for (int32_t r = 0; r < dp_size; r++) {
    if (!there[r])
      REFUSE("mesh '%s': no worker has dp rank %d, and one has %d", entry->name, r, dp_size - 1);
    if (!collectors[r]) REFUSE("mesh '%s': dp rank %d is collected from no worker", entry->name, r);
  }
  return TREADLE_OK;
}

treadle_status treadle_meshes_find(const treadle_meshes *meshes, const char *name, int32_t *dp_size_p,
                                   const treadle_mesh_place **places_p) {
  treadle_status status;
  int32_t dp_size = 0, *collectors = NULL;
  bool *there = NULL;
  const treadle_meshes_entry *entry = find(meshes, name);
  if (!entry) TRY(refuse_name(meshes, name));
  for (int32_t w = 0; w < meshes->workers; w++) {
    if (entry->places[w].dp_rank < 0)
      TRY(treadle_fail(TREADLE_REFUSED, "mesh '%s' is not registered by worker %d of %d", entry->name, w,
                       meshes->workers));
    if (entry->places[w].dp_rank >= dp_size) dp_size = entry->places[w].dp_rank + 1;
  }
  collectors = treadle_alloc_array((size_t)meshes->workers, sizeof *collectors);
  there = treadle_alloc_array((size_t)meshes->workers, sizeof *there);
  if (!collectors || !there) TRY(no_memory(meshes, name));
  TRY(check_ranks(meshes, entry, dp_size, collectors, there));
  *dp_size_p = dp_size;
  *places_p = entry->places;
out:
  treadle_free(collectors);
  treadle_free(there);
  return status;
}

treadle_status treadle_meshes_dp_size(const treadle_meshes *meshes, const char *name, int32_t *dp_size_p) {
  const treadle_mesh_place *places;
  TREADLE_NEED(dp_size_p);
  *dp_size_p = 0;
  TREADLE_NEED(meshes);
  TREADLE_NEED(name);
  return treadle_meshes_find(meshes, name, dp_size_p, &places);
}
