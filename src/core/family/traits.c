/* `traits` and `requires` of a family file: facts of the engines about this family that layouts ask for, and what
 * must hold for an engine to take the family at all. */
#include "family/read.h"

#include <string.h>

static const char *const trait_names[] = {"redundant",      "round_robin", "all_stages",
                                          "legacy_experts", "stage_needs", "triton_kernels",
                                          "indexer_fusion", NULL};
static const char *const require_keys[] = {"that", "else", NULL};

/* The engine of a key; refused when the family has no such section. */
static treadle_status find_engine(treadle_family_reader *reader, const treadle_yaml *node, const char *name,
                                  treadle_engine_rules **engine_p) {
  for (int32_t i = 0; i < reader->family->engine_count; i++)
    if (strcmp(reader->family->engines[i].engine, name) == 0) {
      *engine_p = &reader->family->engines[i];
      return TREADLE_OK;
    }
  return treadle_family_fail(reader, node, "there is no engine section '%s'", name);
}

static treadle_status read_traits(treadle_family_reader *reader, const treadle_yaml *map) {
  treadle_status status = TREADLE_OK;
  for (size_t e = 0; e < map->count; e++) {
    const treadle_yaml *traits = map->items[e];
    treadle_engine_rules *engine = NULL;
    TRY(find_engine(reader, map, map->keys[e], &engine));
    TRY(treadle_family_check_keys(reader, traits, trait_names));
    engine->traits = treadle_arena_alloc_array(reader->arena, traits->count + 1, sizeof *engine->traits);
    if (!engine->traits) return treadle_family_no_memory();
    for (size_t i = 0; i < traits->count; i++) {
      treadle_trait *trait = &engine->traits[engine->trait_count];
      trait->name = traits->keys[i];
      TRY(treadle_family_condition(reader, traits, trait->name, &trait->value));
      engine->trait_count++;
    }
  }
out:
  return status;
}

static treadle_status read_requirement(treadle_family_reader *reader, const treadle_yaml *node,
                                       treadle_requirement *require) {
  treadle_status status;
  TRY(treadle_family_check_keys(reader, node, require_keys));
  TRY(treadle_family_condition(reader, node, "that", &require->that));
  if (!require->that) return treadle_family_fail(reader, node, "%s is missing", "that");
  TRY(treadle_family_text_of(reader, node, "else", true, &require->otherwise));
out:
  return status;
}

/* Those of engines, and those of the model, whatever the engine. */
static treadle_status read_requirements(treadle_family_reader *reader, const treadle_yaml *map) {
  treadle_status status = TREADLE_OK;
  for (size_t e = 0; e < map->count; e++) {
    const treadle_yaml *list = map->items[e];
    treadle_engine_rules *engine = NULL;
    bool of_model = strcmp(map->keys[e], "model") == 0;
    if (!of_model) TRY(find_engine(reader, map, map->keys[e], &engine));
    if (list->type != TREADLE_YAML_LIST)
      return treadle_family_fail(reader, list, "requires: %s must be a list", map->keys[e]);
    treadle_requirement *requirements =
        treadle_arena_alloc_array(reader->arena, list->count + 1, sizeof *requirements);
    if (!requirements) return treadle_family_no_memory();
    for (size_t i = 0; i < list->count; i++)
      TRY(read_requirement(reader, list->items[i], &requirements[i]));
    *(of_model ? &reader->family->requirements : &engine->requirements) = requirements;
    *(of_model ? &reader->family->require_count : &engine->require_count) = (int32_t)list->count;
  }
out:
  return status;
}

static treadle_status read_outer(treadle_family_reader *reader, const treadle_yaml *map) {
  treadle_status status = TREADLE_OK;
  for (size_t e = 0; e < map->count; e++) {
    treadle_engine_rules *engine = NULL;
    TRY(find_engine(reader, map, map->keys[e], &engine));
    TRY(treadle_family_text_of(reader, map, map->keys[e], true, &engine->outer));
  }
out:
  return status;
}

treadle_status treadle_family_read_traits(treadle_family_reader *reader, const treadle_yaml *root) {
  const treadle_yaml *traits = treadle_yaml_get(root, "traits"),
                     *requirements = treadle_yaml_get(root, "requires");
  const treadle_yaml *outer = treadle_yaml_get(root, "outer");
  treadle_status status = TREADLE_OK;
  if (outer && outer->type != TREADLE_YAML_MAP)
    return treadle_family_fail(reader, outer, "%s must be a map of engines", "outer");
  if (outer) TRY(read_outer(reader, outer));
  if (traits && traits->type != TREADLE_YAML_MAP)
    return treadle_family_fail(reader, traits, "%s must be a map of engines", "traits");
  if (requirements && requirements->type != TREADLE_YAML_MAP)
    return treadle_family_fail(reader, requirements, "%s must be a map of engines", "requires");
  if (traits) TRY(read_traits(reader, traits));
  if (requirements) TRY(read_requirements(reader, requirements));
out:
  return status;
}
