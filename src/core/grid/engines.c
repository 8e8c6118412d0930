/* What the layouts of the generation engines share. docs/rules.md 2.4 to 2.6, 3, 6.2, 6.3. The number of replicas of the engine
 * follows from the ranks; it is the slowest dimension. */
#include "grid/engines.h"

#include "base/text.h"

#include <inttypes.h>
#include <string.h>

enum { VOCABULARY_UNIT = 64, MAX_PARTITION = 4096 };

static treadle_status no_memory(void) { return treadle_fail(TREADLE_NO_MEMORY, "layout: memory is out"); }

/* The same whatever the shards are (docs/rules.md 3); SGLang makes more of it where they do not divide it. */
int64_t treadle_engine_grid_rows(const void *context, int64_t rows, int64_t shards) {
  (void)context, (void)shards;
  return (rows + VOCABULARY_UNIT - 1) / VOCABULARY_UNIT * VOCABULARY_UNIT;
}

treadle_status treadle_engine_grid_start(treadle_engine_grid *engine, const char *name,
                                         treadle_layout *layout, treadle_settings *words,
                                         treadle_builder *normal) {
  const treadle_family *family = layout->model->family;
  *engine = (treadle_engine_grid){.name = name, .layout = layout, .words = words, .normal = normal};
  engine->rules = treadle_family_engine(family, name);
  if (!engine->rules) REFUSE("layout '%s': family %s has no %s section", words->text, family->name, name);
  engine->spec.mesh.ranks = layout->owners.count;
  engine->spec.rules = engine->rules->rules;
  engine->spec.rule_count = engine->rules->count;
  engine->spec.outer = engine->rules->outer;
  engine->spec.padded_rows = treadle_engine_grid_rows;
  return treadle_grid_start(layout, &engine->grid);
}

treadle_status treadle_engine_grid_refuse_experts(const treadle_engine_grid *engine,
                                                  const char *const *keys) {
  if (engine->layout->model->experts > 0) return TREADLE_OK;
  for (; *keys; keys++) {
    const char *value = treadle_settings_get(engine->words, *keys);
    if (value && strcmp(value, "off") != 0 && strcmp(value, "0") != 0)
      REFUSE("layout '%s': %s=%s, and family %s has no experts; leave it out", engine->words->text, *keys,
             value, engine->layout->model->family->name);
  }
  return TREADLE_OK;
}

/* One map for every layer. */
/* spec.slots is [layers], decoder layers first and then MTP layers; those without experts have a map that
 * nobody asks for. */
static treadle_status place_all(treadle_engine_grid *engine, const treadle_slots *slots) {
  const treadle_model *model = engine->layout->model;
  int64_t layers = model->layers + model->mtp_layers;
  engine->spec.slots =
      treadle_arena_alloc_array(&engine->grid->arena, (size_t)layers, sizeof *engine->spec.slots);
  if (!engine->spec.slots) return no_memory();
  for (int64_t layer = 0; layer < layers; layer++) engine->spec.slots[layer] = slots;
  return TREADLE_OK;
}

/* Redundant experts begin again with expert 0. 6 experts and redundant = 2 are 8 slots, 0 1 2 3 4 5 0 1;
 * with ep = 4 a rank has 2 of them (docs/rules.md 6.2, 6.3). */
static treadle_status place_redundant(treadle_engine_grid *engine, int64_t ep, int64_t redundant) {
  int64_t experts = engine->layout->model->experts;
  const treadle_slots_spec spec = {.what = engine->words->text, .experts = experts, .ep = ep};
  const treadle_slots *slots = NULL;
  treadle_status status;
  TRY(treadle_slots_again(&spec, 0, experts + redundant, &engine->grid->arena, &slots));
  TRY(place_all(engine, slots));
out:
  return status;
}

/* `wanted` slots in every layer, or 0 where only ep says what a number must be. The digest of the layout
 * takes in what the file says, since its text has the path alone. */
static treadle_status read_map(treadle_engine_grid *engine, int64_t ep, int64_t wanted) {
  const treadle_model *model = engine->layout->model;
  const char *path = treadle_settings_get(engine->words, "map");
  const treadle_slots_spec spec = {.what = engine->words->text,
                                   .experts = model->experts,
                                   .ep = ep,
                                   .layers = model->layers + model->mtp_layers,
                                   .mtp = model->mtp_layers,
                                   .count = wanted};
  treadle_status status;
  if (*path != '@' || !path[1])
    REFUSE("layout '%s': map=%s; a file is named with map=@FILE", engine->words->text, path);
  engine->spec.slots =
      treadle_arena_alloc_array(&engine->grid->arena, (size_t)spec.layers, sizeof *engine->spec.slots);
  if (!engine->spec.slots) return no_memory();
  treadle_normal_text(engine->normal, "map", path);
  TRY(treadle_slots_read(&spec, path + 1, &engine->grid->arena, engine->spec.slots,
                         &engine->layout->digest));
out:
  return status;
}

/* Which of the ways holds: a map, else redundant experts, else round robin, else in order. Families that
 * ignore redundant experts have none, and a map is refused for them. */
treadle_status treadle_engine_grid_place(treadle_engine_grid *engine, int64_t ep, bool round_robin) {
  const treadle_model *model = engine->layout->model;
  const char *given = treadle_settings_get(engine->words, "redundant"),
             *map = treadle_settings_get(engine->words, "map");
  const treadle_slots *slots = NULL;
  int64_t redundant = 0, honoured = 1;
  treadle_status status;
  if (model->experts == 0) return TREADLE_OK;
  if (given && (!treadle_text_to_int64(given, &redundant) || redundant < 0 || redundant > 1 << 20))
    REFUSE("layout '%s': redundant=%s is not a whole number from 0 to 2^20", engine->words->text, given);
  if (given) treadle_normal_number(engine->normal, "redundant", redundant);
  TRY(treadle_grid_trait(engine->layout, &engine->spec, engine->rules, "redundant", 1, &honoured));
  if (!honoured) redundant = 0;
  if (given && honoured && !map && (model->experts + redundant) % ep != 0)
    REFUSE("layout '%s': %" PRId64 " experts and redundant=%" PRId64 " are not divisible by ep=%" PRId64
           "; redundant=%" PRId64 " would do",
           engine->words->text, model->experts, redundant, ep,
           redundant + ep - (model->experts + redundant) % ep);
  if (map && !honoured)
    REFUSE("layout '%s': map=%s, and %s places the experts of family %s in order, whatever the map says",
           engine->words->text, map, engine->name, model->family->name);
  if (map) return read_map(engine, ep, given && honoured ? model->experts + redundant : 0);
  if (redundant > 0) return place_redundant(engine, ep, redundant);
  if (round_robin)
    TRY(treadle_slots_round_robin(model->experts, ep, &engine->grid->arena, &slots));
  else
    TRY(treadle_slots_linear(model->experts, ep, &engine->grid->arena, &slots));
  TRY(place_all(engine, slots));
out:
  return status;
}

treadle_status treadle_engine_grid_names(treadle_engine_grid *engine) {
  const char *names = treadle_settings_get(engine->words, "names");
  if (names && strcmp(names, "old") != 0 && strcmp(names, "new") != 0)
    REFUSE("layout '%s': names=%s is neither old nor new", engine->words->text, names);
  bool old = names && strcmp(names, "old") == 0;
  if (old) treadle_normal_text(engine->normal, "names", "old");
  treadle_grid_number(&engine->spec, "old_names", old);
  return TREADLE_OK;
}

/* An engine that does not split this family: every stage has everything. A layer is then on each stage, and
 * its holders are the ranks of all of them (docs/rules.md 2.5). */
static treadle_status repeat_stages(treadle_engine_grid *engine) {
  treadle_chunks *chunks = &engine->spec.chunks;
  int32_t layers = engine->layout->model->layers;
  for (int32_t c = 0; c < chunks->count; c++) {
    treadle_chunk *chunk = &chunks->items[c];
    chunk->layers = treadle_arena_alloc_array(&engine->grid->arena, (size_t)layers, sizeof *chunk->layers);
    if (!chunk->layers) return no_memory();
    for (int32_t l = 0; l < layers; l++) chunk->layers[l] = l;
    chunk->layer_count = layers;
    chunk->first = chunk->norm = chunk->last = true;
  }
  return TREADLE_OK;
}

/* vLLM's models that ask for an expert layer on every stage refuse to be made where one has none. */
static treadle_status require_stages(const treadle_engine_grid *engine) {
  const treadle_chunks *chunks = &engine->spec.chunks;
  treadle_status status = TREADLE_OK;
  for (int32_t c = 0; c < chunks->count; c++) {
    const treadle_chunk *chunk = &chunks->items[c];
    int64_t needs, has = 0;
    TRY(treadle_grid_trait_at(engine->layout, &engine->spec, engine->rules, "stage_needs", 0, -1, &needs));
    /* Layer 0 is only asked whether the family says anything (docs/rules.md 2.4). */
    if (needs < 0) break; /* any stage will do */
    for (int32_t i = 0; i < chunk->layer_count && !has; i++)
      TRY(treadle_grid_trait_at(engine->layout, &engine->spec, engine->rules, "stage_needs",
                                chunk->layers[i], 0, &has));
    if (!has)
      REFUSE("layout '%s': stage %d has no layer with experts, and %s makes no such stage of family %s",
             engine->words->text, chunk->stage, engine->name, engine->layout->model->family->name);
  }
out:
  return status;
}

/* The chunks of stages, then the draft behind the last of them, then the grid. remainder_last is SGLang
 * (docs/rules.md 2.5), which also refuses more stages than layers. */
treadle_status treadle_engine_grid_build(treadle_engine_grid *engine, bool remainder_last) {
  treadle_settings *words = engine->words;
  treadle_layout *layout = engine->layout;
  int64_t pp = treadle_mesh_find(&engine->spec.mesh, "pp")->size, repeated;
  int64_t *partition = treadle_arena_alloc_array(&engine->grid->arena, MAX_PARTITION, sizeof *partition);
  const char *text = treadle_settings_get(words, "partition");
  int partition_count;
  treadle_status status;
  if (!partition) return no_memory();
  TRY(treadle_settings_list(words, "partition", MAX_PARTITION, partition, &partition_count));
  if (text) treadle_normal_text(engine->normal, "partition", text);
  if (remainder_last && pp == 1) partition_count = 0; /* SGLang does not look at it */
  TRY(treadle_grid_trait(layout, &engine->spec, engine->rules, "all_stages", 0, &repeated));
  if (remainder_last && pp > layout->model->layers && !repeated)
    REFUSE("layout '%s': pp=%" PRId64 " is more than the %s", words->text, pp,
           treadle_text_of_count(layout->model->layers, "layer"));
  const treadle_engine_stages stages = {pp, partition, partition_count, remainder_last};
  TRY(treadle_stages_engine(words->text, layout->model->layers, &stages, &engine->grid->arena,
                            &engine->spec.chunks));
  if (repeated) TRY(repeat_stages(engine));
  TRY(require_stages(engine));
  if (layout->model->mtp_layers > 0)
    TRY(treadle_stages_add_draft(&engine->grid->arena, &engine->spec.chunks));
  TRY(treadle_grid_require(layout, &engine->spec, engine->rules));
  TRY(treadle_grid_build(layout, engine->grid, &engine->spec));
  layout->tp = treadle_mesh_find(&engine->spec.mesh, "tp")->size;
out:
  return status;
}
