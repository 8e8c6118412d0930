/* Grid layouts: choosing rules and building the tables of stages; holders.c lists who holds what.
 *
 * Invariant: the storage tensors of a stage do not depend on the rank, but for the number of experts where ep does
 * not divide them (variants). */
#include "base/divisor.h"
#include "base/dtype.h"
#include "base/limits.h"
#include "grid/grid.h"
#include "model/config.h"

#include <inttypes.h>
#include <string.h>

static treadle_status no_memory(void) { return treadle_fail(TREADLE_NO_MEMORY, "layout: memory is out"); }

/* ---- Rules ---- */

/* How many of the first parts of a rule the model has, in any layer. A rule of q, k and v needs all three or is not there; with
 * two of them it is refused. */
static int count_parts(const treadle_model *model, const treadle_rule *rule, int count) {
  int present = 0;
  for (int p = 0; p < count; p++) present += model->first_tensor[rule->parts[p].pattern] >= 0;
  return present;
}

/* The next multiple, for a message. */
static int64_t whole_rows(int64_t rows, int64_t shards) {
  return rows % shards == 0 ? rows : rows - rows % shards + shards;
}

/* Shapes of the parts, [rows, columns] of one expert, and the dimensions of the mesh: `over` cuts these
 * rows or columns, `ep` deals whole experts. Both together are docs/rules.md 6.1 with etp above 1. */
static treadle_status find_dims(treadle_layout *layout, treadle_grid *grid, const treadle_grid_spec *spec,
                                treadle_grid_rule *used) {
  const treadle_model *model = layout->model;
  const treadle_rule *rule = used->rule;
  char instead[TREADLE_DIVISORS_ROOM];
  treadle_status status = TREADLE_OK;
  if (rule->experts) {
    used->ep = treadle_mesh_find(&grid->mesh, "ep");
    if (!used->ep || !spec->slots)
      REFUSE("%s line %d: %s is for experts, and layout '%s' places no experts", rule->file, rule->line,
             rule->name, layout->text);
    grid->ep = used->ep;
  }
  for (int p = 0; p < used->nparts; p++) TRY(treadle_model_part(model, rule->parts[p], &used->parts[p]));
  if (rule->cut == TREADLE_CUT_NONE) {
    if (rule->pad_vocab) used->padded_rows = spec->padded_rows(spec->context, used->parts[0].shape[0], 1);
    return TREADLE_OK;
  }
  used->over = treadle_mesh_find(&grid->mesh, rule->over);
  if (!used->over)
    REFUSE("%s line %d: %s is cut over '%s', which layout '%s' does not have", rule->file, rule->line,
           rule->name, rule->over, layout->text);
  used->shards = used->over->size;
  if (!rule->pad_vocab) return TREADLE_OK;
  int64_t rows = used->parts[0].shape[0];
  used->padded_rows = spec->padded_rows(spec->context, rows, used->shards);
  if (used->padded_rows < rows)
    REFUSE("layout '%s': padded_vocab_size=%" PRId64 " is smaller than the vocabulary, %" PRId64
           "; %" PRId64 " would do",
           layout->text, used->padded_rows, rows, whole_rows(rows, used->shards));
  if (used->padded_rows % used->shards == 0) return TREADLE_OK;
  if (strstr(layout->text, "padded_vocab_size"))
    REFUSE("layout '%s': %s: the padded vocabulary, %" PRId64 ", is not divisible by %s=%" PRId64
           "; padded_vocab_size=%" PRId64 " would do",
           layout->text, rule->name, used->padded_rows, rule->over, used->shards,
           whole_rows(used->padded_rows, used->shards));
  REFUSE("layout '%s': %s: the padded vocabulary, %" PRId64 ", is not divisible by %s=%" PRId64 "; %s",
         layout->text, rule->name, used->padded_rows, rule->over, used->shards,
         treadle_divisors_near(rule->over, used->padded_rows, used->shards, 1, instead));
out:
  return status;
}

/* A size that the rule says; 0 where it says none. */
static treadle_status read_size(const treadle_layout *layout, const treadle_grid_spec *spec,
                                const treadle_rule *rule, const char *key, const char *text, int64_t least,
                                int64_t *size_p) {
  treadle_status status = TREADLE_OK;
  *size_p = 0;
  if (!text) return TREADLE_OK;
  TRY(treadle_grid_evaluate(layout, spec, rule->name, text, -1, size_p));
  if (*size_p < least || *size_p > TREADLE_MAX_SIZE)
    REFUSE("%s line %d: %s: %s of %s is %" PRId64 ", not from %" PRId64 " to 2^40", rule->file, rule->line,
           text, key, rule->name, *size_p, least);
out:
  return status;
}

/* round, least and shown of a rule. */
static treadle_status find_room(const treadle_layout *layout, const treadle_grid_spec *spec,
                                treadle_grid_rule *used) {
  const treadle_rule *rule = used->rule;
  treadle_status status;
  TRY(read_size(layout, spec, rule, "round", rule->round, 1, &used->round));
  TRY(read_size(layout, spec, rule, "least", rule->least, 0, &used->least));
  for (int32_t i = 0; i < rule->shown_count; i++)
    TRY(read_size(layout, spec, rule, "shown", rule->shown[i], 1, &used->shown[i]));
  if (used->transposed && used->least)
    REFUSE("layout '%s': %s has padding, and is not stored transposed", layout->text, rule->name);
out:
  return status;
}

/* Users see a storage tensor in another shape. As many bytes in the same order: only what users read as the
 * shape differs (docs/rules.md 4.11, 4.12). Cuts go by the part's own shape. */
static treadle_status show_shape(const treadle_layout *layout, const treadle_grid_rule *rule,
                                 treadle_storage *storage) {
  treadle_storage shown = *storage;
  treadle_status status = TREADLE_OK;
  if (!rule->rule->shown_count) return TREADLE_OK;
  shown.ndim = rule->rule->shown_count;
  for (int d = 0; d < shown.ndim; d++) shown.shape[d] = rule->shown[d];
  TRY(treadle_storage_measure(layout, rule->rule->name, &shown));
  if (shown.bytes != storage->bytes)
    REFUSE("%s line %d: %s is shown with %" PRId64 " bytes, and has %" PRId64, rule->rule->file,
           rule->rule->line, rule->rule->name, shown.bytes, storage->bytes);
  *storage = shown;
out:
  return status;
}

/* The name of a rule under the layout's options. Walked from the last condition to the first, so that the
 * first that holds wins. */
static treadle_status choose_name(const treadle_layout *layout, const treadle_grid_spec *spec,
                                  treadle_grid_rule *used) {
  treadle_status status = TREADLE_OK;
  used->name = &used->rule->full_name;
  for (int i = used->rule->others - 1; i >= 0; i--) {
    int64_t holds;
    TRY(treadle_grid_evaluate(layout, spec, used->rule->name, used->rule->other[i].number, -1, &holds));
    if (holds) used->name = &used->rule->other[i].name;
  }
out:
  return status;
}

/* Rules by expert whose names agree up to the last '.' before the '*', one after the other, are a run.
 * experts.local_experts.*.linear_fc1 and experts.local_experts.*.linear_fc2 agree up to the '*': expert 0
 * has both, then expert 1. experts.linear_fc1.weight* and experts.linear_fc2.weight* do not: fc1 of all
 * experts comes first, then fc2 of all (docs/rules.md 4.6). */
static void number_run(const treadle_grid_rule *before, treadle_grid_rule *rule) {
  rule->run = before ? before->run + 1 : 0;
  if (!before || !before->name || !rule->name->by_expert || !before->name->by_expert) return;
  size_t length = strcspn(rule->name->text, "*");
  while (length > 0 && rule->name->text[length - 1] != '.') length--;
  if (strcspn(before->name->text, "*") >= length &&
      strncmp(rule->name->text, before->name->text, length) == 0)
    rule->run = before->run;
}

/* Does the condition of a rule hold, in any layer where it speaks of them? `l >= first_k_dense` keeps the rule of experts, whose
 * storage tensors are then made in the layers where it holds. */
static treadle_status holds_anywhere(const treadle_layout *layout, const treadle_grid_spec *spec,
                                     const treadle_rule *rule, bool by_layer, int64_t *holds_p) {
  const treadle_model *model = layout->model;
  int64_t layers = by_layer ? model->layers + model->mtp_layers : 0;
  treadle_status status = TREADLE_OK;
  *holds_p = !rule->when;
  for (int64_t layer = by_layer ? 0 : -1; rule->when && layer < layers && !*holds_p; layer++)
    TRY(treadle_grid_evaluate(layout, spec, rule->name, rule->when, layer, holds_p));
out:
  return status;
}

/* Keeps the rules of this spec whose condition holds and whose parts the model has. Rules keep the family's
 * order, which is the order of storage tensors in a window. */
static treadle_status choose_rules(treadle_layout *layout, treadle_grid *grid,
                                   const treadle_grid_spec *spec) {
  treadle_status status = TREADLE_OK;
  const treadle_model *model = layout->model;
  bool fused = false; /* is a shared expert stored as one more expert? */
  grid->rules = treadle_arena_alloc_array(&grid->arena, (size_t)spec->rule_count + 1, sizeof *grid->rules);
  if (!grid->rules) return no_memory();
  for (int i = 0; i < spec->number_count; i++)
    fused |= strcmp(spec->numbers[i].name, "shared_fused") == 0 && spec->numbers[i].value;
  for (int32_t i = 0; i < spec->rule_count; i++) {
    const treadle_rule *rule = &spec->rules[i];
    bool marker = rule->at == TREADLE_AT_MTP_LAYERS,
         by_layer = rule->when && treadle_expr_names(rule->when, "l");
    int64_t holds;
    if (rule->spec && (!spec->spec || strcmp(rule->spec, spec->spec) != 0)) continue;
    int also = fused ? rule->also : 0, nparts = rule->nparts - rule->also + also;
    int present = count_parts(model, rule, nparts);
    if ((present == 0 && !marker) || (rule->scales && !layout->fp8)) continue;
    TRY(holds_anywhere(layout, spec, rule, by_layer, &holds));
    if (!holds) continue;
    if (present < nparts)
      REFUSE("%s line %d: the model has %d of the %d parts of %s", rule->file, rule->line, present, nparts,
             rule->name);
    treadle_grid_rule *used = &grid->rules[grid->rule_count++];
    *used = (treadle_grid_rule){
        .rule = rule, .shards = 1, .by_layer = by_layer, .nparts = nparts, .also = also};
    if (marker) continue;
    TRY(choose_name(layout, spec, used));
    number_run(grid->rule_count > 1 ? used - 1 : NULL, used);
    TRY(find_dims(layout, grid, spec, used));
    bool stacked = rule->experts && !strchr(used->name->text, '*'); /* else modules of their own */
    used->transposed = spec->transposes_experts && stacked && used->parts[0].ndim == 2;
    TRY(find_room(layout, spec, used));
    if (rule->scales) TRY(treadle_grid_check_blocks(layout, spec->refines_blocks, used));
  }
out:
  return status;
}

static bool rule_is_on(const treadle_rule *rule, const treadle_chunk *chunk) {
  switch (rule->at) {
  case TREADLE_AT_FIRST: return chunk->first;
  case TREADLE_AT_LAST: return chunk->last;
  case TREADLE_AT_NORM: return chunk->norm;
  case TREADLE_AT_EVERY: return chunk->number == 0 && !chunk->draft;
  case TREADLE_AT_MTP: return chunk->mtp && !chunk->first && !chunk->draft;
  case TREADLE_AT_DRAFT: return chunk->draft;
  case TREADLE_AT_LAYER: /* comes with its layers */
  case TREADLE_AT_MTP_LAYERS: return false;
  }
  return false;
}

/* ---- Storage tensors ---- */

typedef TREADLE_ARRAY(treadle_storage) storage_array;

/* The table of a stage while it grows. */
typedef struct stage_build {
  treadle_layout *layout;
  treadle_grid *grid;
  const treadle_grid_spec *spec;
  const treadle_chunk *chunk;
  int64_t slots; /* experts of a rank in this variant */
  bool behind;   /* parameters first, then buffers and what is derived */
  int64_t end;   /* bytes of the window so far */
  int64_t all;   /* storages of all stages so far */
  int32_t public_count;
  storage_array storages;
} stage_build;

/* Does a storage tensor hold values where its first part would be fp8 codes? What is derived from codes, and what fuses them with
 * tensors that have no scales (an indexer's keys and weights). */
static bool holds_values(const treadle_model *model, const treadle_storage *storage) {
  bool values = storage->derived;
  for (int p = 0; p < storage->nparts; p++)
    values |= storage->parts[p] >= 0 && model->tensors[storage->parts[p]].scale < 0;
  return values;
}

/* The storage tensor of a rule in a layer, without a place; *there_p false: the layer has none. Its shape
 * is the one of a shard: [rows, columns], of experts in a stack [slots, rows, columns], and of one expert
 * where each has its own. `also` adds one to the slots of the stack. A family may merge the experts with a
 * dimension: [H, slots * 2 * Im / etp] is what weight1 shows (docs/rules.md 4.6). */
static treadle_status make_storage(stage_build *b, int32_t rule_index, int32_t layer, int32_t local_layer,
                                   treadle_storage *storage, bool *there_p) {
  const treadle_model *model = b->layout->model;
  const treadle_grid_rule *rule = &b->grid->rules[rule_index];
  treadle_status status = TREADLE_OK;
  int present = 0;
  int64_t holds = 1;
  *there_p = false;
  if ((rule->rule->buffer || rule->rule->derived) != b->behind) return TREADLE_OK;
  *storage = (treadle_storage){.rule = rule_index,
                               .layer = layer,
                               .local_layer = local_layer,
                               .chunk = b->chunk->number,
                               .nparts = rule->nparts,
                               .derived = rule->rule->derived,
                               .run = 1};
  for (int p = 0; p < storage->nparts; p++) {
    int32_t pattern = rule->rule->parts[p].pattern;
    bool of_layers =
        model->family->patterns[pattern].in_layer; /* a draft's rule outside layers: its first layer's */
    storage->parts[p] = treadle_model_find(model, pattern,
                                           !of_layers  ? -1
                                           : layer < 0 ? model->layers
                                                       : layer);
    present += storage->parts[p] >= 0;
  }
  if (present == 0) return TREADLE_OK;
  if (rule->by_layer)
    TRY(treadle_grid_evaluate(b->layout, b->spec, rule->rule->name, rule->rule->when, layer, &holds));
  if (!holds) return TREADLE_OK;
  if (present < storage->nparts)
    REFUSE("%s line %d: layer %d has %d of the %d parts of %s", rule->rule->file, rule->rule->line, layer,
           present, storage->nparts, rule->rule->name);
  TRY(treadle_cut_shape(b->layout->text, model, rule, storage));
  /* Its dtype: the rule's own, else the layout's for the first part; a spec has one for all but buffers. Codes
   * that are no codes here become values. */
  const treadle_tensor *head = &model->tensors[storage->parts[0]];
  storage->dtype = rule->rule->dtype ? rule->rule->dtype : treadle_layout_dtype(b->layout, head);
  if (b->spec->dtype && !rule->rule->buffer) storage->dtype = b->spec->dtype;
  if (storage->dtype == TREADLE_FP8_E4M3 && holds_values(model, storage))
    storage->dtype = head->dtype == TREADLE_FP8_E4M3 ? TREADLE_BF16 : head->dtype;
  TRY(treadle_storage_measure(b->layout, rule->rule->name, storage));
  TRY(show_shape(b->layout, rule, storage));
  if (rule->ep) {
    storage->slots = b->slots;
    storage->by_expert = rule->name->by_expert;
    /* Experts of a stack follow each other without a gap; add_run sets the stride of those by expert. */
    storage->slot_stride = storage->bytes;
    if (!storage->by_expert) { /* a stack */
      int64_t experts = b->slots + (rule->also > 0);
      if (rule->rule->merge) {
        storage->shape[rule->rule->merge - 1] *= experts;
      } else {
        for (int d = storage->ndim++; d > 0; d--) storage->shape[d] = storage->shape[d - 1];
        storage->shape[0] = experts;
      }
      TRY(treadle_storage_measure(b->layout, rule->rule->name, storage));
    }
  }
  *there_p = true;
out:
  return status;
}

/* Counts this many more storage tensors, as users count them. */
static treadle_status count_storages(stage_build *b, int64_t count) {
  if (count > TREADLE_MAX_NAMES - b->public_count)
    REFUSE("layout '%s': a stage has more than %d storage tensors", b->layout->text, TREADLE_MAX_NAMES);
  b->public_count += (int32_t)count;
  return TREADLE_OK;
}

static treadle_status add_storage(stage_build *b, int32_t rule_index, int32_t layer, int32_t local_layer) {
  treadle_status status = TREADLE_OK;
  treadle_storage storage;
  bool there;
  TRY(make_storage(b, rule_index, layer, local_layer, &storage, &there));
  if (!there) return TREADLE_OK;
  TRY(treadle_storage_place(b->layout, b->grid->rules[rule_index].rule->name, &storage, 1, &b->end));
  TRY(count_storages(b, 1));
  storage.public_first = b->public_count - 1;
  TRY(treadle_array_push(&b->storages, storage));
out:
  return status;
}

/* Rules [first, last) are a run: expert by expert, one storage tensor of each. In the window: expert 0's
 * storage tensors, expert 1's, and so on. `block` is the bytes of one expert, each storage tensor of it
 * aligned; so storage i of expert e lies at start + e * block + its offset in the block. To users it is
 * number public_first + e * run + i. */
static treadle_status add_run(stage_build *b, int32_t first, int32_t last, int32_t layer,
                              int32_t local_layer) {
  treadle_status status = TREADLE_OK;
  size_t begin = b->storages.count;
  int64_t start = b->end, block = 0;
  for (int32_t r = first; r < last; r++) {
    treadle_storage storage;
    bool there;
    TRY(make_storage(b, r, layer, local_layer, &storage, &there));
    if (!there) continue;
    TRY(treadle_storage_place(b->layout, b->grid->rules[r].rule->name, &storage, 1, &block));
    storage.offset += start;
    storage.public_first = b->public_count;
    storage.run_at = (int32_t)(b->storages.count - begin);
    TRY(treadle_array_push(&b->storages, storage));
  }
  /* Only now is it known how many of the rules the layer has, and how large a block is. */
  int32_t run = (int32_t)(b->storages.count - begin);
  for (size_t i = begin; i < b->storages.count; i++) {
    b->storages.items[i].run = run;
    b->storages.items[i].slot_stride = block;
  }
  treadle_storage all = {.bytes = block};
  TRY(treadle_storage_place(b->layout, b->grid->rules[first].rule->name, &all, b->slots, &b->end));
  TRY(count_storages(b, run * b->slots));
out:
  return status;
}

/* The rules [first, last) in one layer. A run that stands in the middle keeps its place among the other
 * rules. */
static treadle_status add_layer(stage_build *b, int32_t first, int32_t last, int32_t layer,
                                int32_t local_layer) {
  treadle_status status = TREADLE_OK;
  const treadle_grid_rule *rules = b->grid->rules;
  for (int32_t r = first; r < last; r++) {
    if (!rules[r].name->by_expert) {
      TRY(add_storage(b, r, layer, local_layer));
      continue;
    }
    int32_t end = r + 1;
    while (end < last && rules[end].name->by_expert && rules[end].run == rules[r].run) end++;
    TRY(add_run(b, r, end, layer, local_layer));
    r = end - 1;
  }
out:
  return status;
}

/* MTP layers are numbered behind the decoder layers, and have the rules of layers. */
static treadle_status add_mtp_layers(stage_build *b, int32_t first, int32_t last) {
  const treadle_model *model = b->layout->model;
  treadle_status status = TREADLE_OK;
  for (int32_t i = 0; b->chunk->mtp && i < model->mtp_layers; i++)
    TRY(add_layer(b, first, last, model->layers + i, model->layers + i));
out:
  return status;
}

/* The storage tensors of one chunk: rules in order; rules of layers that follow one another are a block, once for each
 * layer. Rules embed, wq, wo, norm over layers 4 and 5 give embed, wq 4, wo 4, wq 5, wo 5, norm. A marker says where the MTP layers of the first block come. Megatron's order of parameters is
 * docs/rules.md 7.10. Without a marker, and in later blocks, MTP layers come right behind their block. */
static treadle_status add_chunk(stage_build *b) {
  treadle_status status = TREADLE_OK;
  const treadle_grid *grid = b->grid;
  const treadle_chunk *chunk = b->chunk;
  int32_t first = -1, first_end = -1; /* the first block */
  bool marked = false;
  for (int32_t r = 0; r < grid->rule_count; r++) marked |= grid->rules[r].rule->at == TREADLE_AT_MTP_LAYERS;
  for (int32_t r = 0; r < grid->rule_count; r++) {
    treadle_stage_choice at = grid->rules[r].rule->at;
    if (at == TREADLE_AT_MTP_LAYERS && first >= 0) TRY(add_mtp_layers(b, first, first_end));
    if (rule_is_on(grid->rules[r].rule, chunk)) TRY(add_storage(b, r, -1, -1));
    if (at != TREADLE_AT_LAYER) continue;
    int32_t end = r;
    while (end < grid->rule_count && grid->rules[end].rule->at == TREADLE_AT_LAYER) end++;
    for (int32_t i = 0; i < chunk->layer_count; i++)
      TRY(add_layer(b, r, end, chunk->layers[i], b->spec->local_numbers ? i : chunk->layers[i]));
    if (!marked || first >= 0) TRY(add_mtp_layers(b, r, end));
    if (first < 0) {
      first = r;
      first_end = end;
    }
    r = end - 1;
  }
out:
  return status;
}

/* The window of a stage: chunk by chunk, in each the parameters first and then buffers and what is derived.
 * Every storage tensor begins at a multiple of 64 bytes. */
static treadle_status build_stage(stage_build *b, int32_t number, treadle_grid_stage *stage) {
  treadle_status status = TREADLE_OK;
  const treadle_chunks *chunks = &b->spec->chunks;
  b->storages.count = 0;
  b->end = 0;
  b->public_count = 0;
  for (int32_t c = 0; c < chunks->count; c++) {
    if (chunks->items[c].stage != number) continue;
    b->chunk = &chunks->items[c];
    b->behind = false;
    TRY(add_chunk(b));
    b->behind = true;
    TRY(add_chunk(b));
  }
  stage->count = (int32_t)b->storages.count;
  stage->public_count = b->public_count;
  stage->window_bytes = b->end;
  b->all += stage->count;
  if (b->all > TREADLE_MAX_STORAGES)
    REFUSE("layout '%s': its stages up to %d have %" PRId64 " storage tensors; at most %d will do",
           b->layout->text, number, b->all, TREADLE_MAX_STORAGES);
  if (b->storages.count == 0) return TREADLE_OK;
  stage->storages = treadle_arena_alloc_array(&b->grid->arena, b->storages.count, sizeof *stage->storages);
  if (!stage->storages) return no_memory();
  memcpy(stage->storages, b->storages.items, b->storages.count * sizeof *stage->storages);
out:
  return status;
}

/* stages is [stages, variants]. 10 experts over ep = 4: ranks 0 and 1 have 3, which is variant 0, ranks 2
 * and 3 have 2, variant 1. Both have the same storage tensors by number, so a holder found in variant 0
 * holds for both. */
static treadle_status build_stages(treadle_layout *layout, treadle_grid *grid,
                                   const treadle_grid_spec *spec) {
  treadle_status status = TREADLE_OK;
  stage_build b = {.layout = layout, .grid = grid, .spec = spec};
  const treadle_slots *slots = spec->slots ? spec->slots[0] : NULL;
  grid->slots = spec->slots;
  grid->stage_count = spec->chunks.stages;
  grid->variants = slots && slots->count % slots->ep != 0 ? 2 : 1;
  grid->stages = treadle_arena_alloc_array(&grid->arena, (size_t)grid->stage_count * (size_t)grid->variants,
                                           sizeof *grid->stages);
  if (!grid->stages) return no_memory();
  for (int32_t s = 0; s < grid->stage_count; s++)
    for (int32_t v = 0; v < grid->variants; v++) {
      treadle_grid_stage *stage = &grid->stages[s * grid->variants + v];
      b.slots = slots ? slots->count / slots->ep + (grid->variants == 2 && v == 0) : 0;
      TRY(build_stage(&b, s, stage));
      if (stage->window_bytes > grid->window_bytes_max) grid->window_bytes_max = stage->window_bytes;
    }
out:
  treadle_array_release(&b.storages);
  return status;
}

treadle_status treadle_grid_build(treadle_layout *layout, treadle_grid *grid,
                                  const treadle_grid_spec *spec) {
  treadle_status status = TREADLE_OK;
  grid->mesh = spec->mesh;
  grid->pp = treadle_mesh_find(&grid->mesh, "pp");
  bool part_of_more = treadle_model_is_part(layout->model);
  grid->outer = spec->outer && part_of_more ? spec->outer : "";
  TRY(choose_rules(layout, grid, spec));
  TRY(build_stages(layout, grid, spec));
  if (spec->lay) TRY(spec->lay(layout, grid, spec, spec->lay_context));
  TRY(treadle_grid_list_holders(layout, grid));
out:
  return status;
}
