/* Which expert sits where in an engine: rules 6.2, 6.3. */
#include "oracle/oracle_engines.h"

#include <stdlib.h>
#include <string.h>

/* One row of a map: every slot an expert, every expert in some slot. */
static bool read_row(const oracle_model *m, const json_t *row, int64_t physical, int64_t *slots,
                     char *why) {
  bool *found = oracle_memory((size_t)m->E, sizeof *found);
  bool good = (int64_t)json_array_size(row) == physical ||
              oracle_refuse(why, "the map has %lld slots, not %lld", (long long)json_array_size(row),
                            (long long)physical);
  for (int64_t i = 0; good && i < physical; i++) {
    const json_t *expert = json_array_get(row, (size_t)i);
    slots[i] = json_is_integer(expert) ? json_integer_value(expert) : -1;
    good =
        (slots[i] >= 0 && slots[i] < m->E) || oracle_refuse(why, "slot %lld has no expert", (long long)i);
    if (good) found[slots[i]] = true;
  }
  for (int64_t e = 0; good && e < m->E; e++)
    good = found[e] || oracle_refuse(why, "the map has no slot for expert %lld", (long long)e);
  free(found);
  return good;
}

/* A list for each layer, {"physical_to_logical_map": ...} around it or not; one list is for all layers. */
static bool read_map(const oracle_model *m, const char *path, oracle_slots *slots, char *why) {
  if (path[0] != '@') return oracle_refuse(why, "map=%s is not a @file", path);
  json_t *root = json_load_file(path + 1, 0, NULL);
  json_t *list = json_is_object(root) ? json_object_get(root, "physical_to_logical_map") : root;
  bool flat = json_is_integer(json_array_get(list, 0));
  int64_t layers = flat ? 1 : (int64_t)json_array_size(list);
  bool good = (layers == 1 || layers == m->L || layers == m->L + m->mtp) ||
              oracle_refuse(why, "the map has %lld layers", (long long)layers);
  if (good) {
    slots->layers = layers;
    slots->map = oracle_memory((size_t)(layers * slots->physical), sizeof *slots->map);
  }
  for (int64_t l = 0; good && l < layers; l++)
    good = read_row(m, flat ? list : json_array_get(list, (size_t)l), slots->physical,
                    slots->map + l * slots->physical, why);
  json_decref(root);
  return good;
}

bool oracle_slots_make(const oracle_model *m, int64_t ep, int64_t redundant, const char *path,
                       oracle_slots *slots, char *why) {
  *slots = (oracle_slots){.physical = m->E + redundant, .ep = ep};
  return !path || read_map(m, path, slots, why);
}

void oracle_slots_free(oracle_slots *slots) {
  free(slots->map);
  slots->map = NULL;
}

/* The first physical % ep ranks have one more. */
int64_t oracle_slots_count(const oracle_slots *s, int64_t rank) {
  return s->physical / s->ep + (rank < s->physical % s->ep);
}

int64_t oracle_slots_expert(const oracle_model *m, const oracle_slots *s, int64_t layer, int64_t rank,
                            int64_t slot) {
  if (s->round_robin) return rank + slot * s->ep;
  int64_t first = 0;
  for (int64_t before = 0; before < rank; before++) first += oracle_slots_count(s, before);
  if (s->layers == 1) return s->map[first + slot];
  if (layer < s->layers) return s->map[layer * s->physical + first + slot];
  return (first + slot) % m->E;
}
