/* Slots: expert placement in order, round robin, by a map, and by a map from a file. */
#include "grid/slots.h"

#include "base/hash.h"
#include "base/text.h"
#include "io/json.h"

#include <inttypes.h>

enum { MAX_SLOTS = 1 << 20 };

static treadle_status no_memory(void) { return treadle_fail(TREADLE_NO_MEMORY, "layout: memory is out"); }

treadle_status treadle_slots_linear(int64_t experts, int64_t ep, treadle_arena *arena,
                                    const treadle_slots **slots_p) {
  treadle_slots *slots = treadle_arena_alloc(arena, sizeof *slots);
  if (!slots) return no_memory();
  *slots = (treadle_slots){.experts = experts, .ep = ep, .count = experts};
  *slots_p = slots;
  return TREADLE_OK;
}

treadle_status treadle_slots_for_all(int64_t experts, int64_t ep, int64_t layers, treadle_arena *arena,
                                     const treadle_slots ***slots_p) {
  const treadle_slots *one = NULL;
  treadle_status status;
  *slots_p = NULL;
  if (experts == 0) return TREADLE_OK;
  TRY(treadle_slots_linear(experts, ep, arena, &one));
  *slots_p = treadle_arena_alloc_array(arena, (size_t)layers, sizeof **slots_p);
  if (!*slots_p) return no_memory();
  for (int64_t layer = 0; layer < layers; layer++) (*slots_p)[layer] = one;
out:
  return status;
}

/* Lists the slots of each expert. A counting sort: counts are kept two places on, so that after they are
 * added up first[e + 1] is where expert e begins; filling moves it to its end, which is where e + 1 begins.
 * Slots 0 1 2 0 of 3 experts: first is 0 0 2 3 4 before the last loop and 0 2 3 4 4 after it. Places are
 * 0 3 of expert 0, 1 of expert 1, 2 of expert 2. */
static treadle_status invert(const char *what, int64_t layer, treadle_slots *slots, treadle_arena *arena) {
  int32_t *first = treadle_arena_alloc_array(arena, (size_t)slots->experts + 2, sizeof *first);
  int32_t *places = treadle_arena_alloc_array(arena, (size_t)slots->count + 1, sizeof *places);
  if (!first || !places) return no_memory();
  for (int64_t s = 0; s < slots->count; s++) first[slots->logical[s] + 2]++;
  for (int64_t e = 0; e < slots->experts; e++) {
    if (first[e + 2] == 0)
      REFUSE("layout '%s': the expert map of layer %" PRId64 " has no slot for expert %" PRId64, what,
             layer, e);
    first[e + 2] += first[e + 1];
  }
  for (int64_t s = 0; s < slots->count; s++) places[first[slots->logical[s] + 1]++] = (int32_t)s;
  slots->first = first;
  slots->places = places;
  return TREADLE_OK;
}

/* logical is [count] over all ranks of ep: rank 0's slots first. The hash tells layers apart that place
 * their experts in other ways; maps that are equal have equal ones. */
treadle_status treadle_slots_map(const treadle_slots_spec *spec, int64_t layer, const int32_t *logical,
                                 int64_t count, treadle_arena *arena, const treadle_slots **slots_p) {
  int64_t experts = spec->experts;
  treadle_slots *slots = treadle_arena_alloc(arena, sizeof *slots);
  int32_t *copy = treadle_arena_alloc_array(arena, (size_t)count + 1, sizeof *copy);
  if (!slots || !copy) return no_memory();
  *slots = (treadle_slots){.experts = experts, .ep = spec->ep, .count = count, .logical = copy, .hash = 1};
  for (int64_t s = 0; s < count; s++) {
    if (logical[s] < 0 || logical[s] >= experts)
      REFUSE("layout '%s': the expert map of layer %" PRId64 " gives slot %" PRId64
             " expert %d, which is none of the %s",
             spec->what, layer, s, (int)logical[s], treadle_text_of_count(experts, "expert"));
    copy[s] = logical[s];
    slots->hash = treadle_hash_more(slots->hash, (uint64_t)logical[s]);
  }
  *slots_p = slots;
  return invert(spec->what, layer, slots, arena);
}

/* 6 experts in 8 slots: 0 1 2 3 4 5 0 1. So does vLLM start with redundant experts, and SGLang
 * (docs/rules.md 6.2, 6.3). */
treadle_status treadle_slots_again(const treadle_slots_spec *spec, int64_t layer, int64_t count,
                                   treadle_arena *arena, const treadle_slots **slots_p) {
  int32_t *logical = treadle_arena_alloc_array(arena, (size_t)count, sizeof *logical);
  if (!logical) return no_memory();
  for (int64_t s = 0; s < count; s++) logical[s] = (int32_t)(s % spec->experts);
  return treadle_slots_map(spec, layer, logical, count, arena, slots_p);
}

/* 5 experts over ep = 2: 0 2 4 on rank 0, 1 3 on rank 1. The first 5 % 2 ranks have one more, as the slots
 * of ranks are counted everywhere. */
treadle_status treadle_slots_round_robin(int64_t experts, int64_t ep, treadle_arena *arena,
                                         const treadle_slots **slots_p) {
  const treadle_slots_spec spec = {.what = "round robin", .experts = experts, .ep = ep};
  int32_t *logical = treadle_arena_alloc_array(arena, (size_t)experts + 1, sizeof *logical);
  int64_t slot = 0;
  if (!logical) return no_memory();
  for (int64_t rank = 0; rank < ep; rank++)
    for (int64_t expert = rank; expert < experts; expert += ep) logical[slot++] = (int32_t)expert;
  return treadle_slots_map(&spec, 0, logical, experts, arena, slots_p);
}

/* ---- Files ---- */

/* A list is [count], rank 0's slots first; count / ep of them are a rank's. */
static treadle_status read_list(const treadle_slots_spec *spec, const char *path, const json_t *list,
                                int64_t layer, treadle_arena *arena, const treadle_slots **slots_p) {
  const char *what = spec->what;
  int64_t count = (int64_t)json_array_size(list);
  if (!json_is_array(list)) REFUSE("layout '%s': %s: layer %" PRId64 " is not a list", what, path, layer);
  if (count < 1 || count > MAX_SLOTS || count % spec->ep != 0 || (spec->count && count != spec->count))
    REFUSE("layout '%s': %s: layer %" PRId64 " has %" PRId64 " slots; %s%" PRId64 " is needed", what, path,
           layer, count, spec->count ? "" : "a multiple of ep = ", spec->count ? spec->count : spec->ep);
  int32_t *logical = treadle_arena_alloc_array(arena, (size_t)count, sizeof *logical);
  if (!logical) return no_memory();
  for (int64_t s = 0; s < count; s++) {
    const json_t *number = json_array_get(list, (size_t)s);
    int64_t value = json_integer_value(number); /* 0 where it is none */
    if (!json_is_integer(number))
      REFUSE("layout '%s': %s: slot %" PRId64 " of layer %" PRId64 " holds no whole number", what, path, s,
             layer);
    if (value < 0 || value > INT32_MAX)
      REFUSE("layout '%s': %s: slot %" PRId64 " of layer %" PRId64 " holds expert %" PRId64
             ", which is none of the %s",
             what, path, s, layer, value, treadle_text_of_count(spec->experts, "expert"));
    logical[s] = (int32_t)value;
  }
  return treadle_slots_map(spec, layer, logical, count, arena, slots_p);
}

treadle_status treadle_slots_parse(const treadle_slots_spec *spec, const char *path, const json_t *root,
                                   treadle_arena *arena, const treadle_slots **slots, uint64_t *digest_p) {
  treadle_status status = TREADLE_OK;
  const char *what = spec->what;
  int64_t layers = spec->layers, mtp = spec->mtp;
  const json_t *lists =
      treadle_json_is_object(root) ? json_object_get(root, "physical_to_logical_map") : root;
  size_t given = json_array_size(lists);
  if (!json_is_array(lists))
    REFUSE("layout '%s': %s: has no list%s", what, path,
           treadle_json_is_object(root) ? " physical_to_logical_map" : "");
  /* One list is for all layers; [layers, slots] has a list each. A file without the MTP layers has as many
   * as there are decoder layers; one with more than the model has is read as far as the model goes. */
  bool one = given > 0 && json_is_integer(json_array_get(lists, 0));
  bool decoders = mtp > 0 && (int64_t)given == layers - mtp;
  if (!one && (given == 0 || (given != 1 && (int64_t)given < layers && !decoders)))
    REFUSE("layout '%s': %s has expert maps of %s, and the model has %" PRId64 " and %" PRId64 " of MTP",
           what, path, treadle_text_of_count((int64_t)given, "layer"), layers - mtp, mtp);
  for (int64_t layer = 0; layer < layers; layer++) {
    const json_t *list = one ? lists : json_array_get(lists, given == 1 ? 0 : (size_t)layer);
    bool again = layer > 0 && (one || given == 1);
    /* All layers share one map where the file has one. Lists that are missing are those of MTP layers: they
     * have as many slots as layer 0, in order. */
    if (again)
      slots[layer] = slots[0];
    else if (!list)
      TRY(treadle_slots_again(spec, layer, slots[0]->count, arena, &slots[layer]));
    else
      TRY(read_list(spec, path, list, layer, arena, &slots[layer]));
    /* A rank has as many slots in every layer: variants of stages are chosen by those of layer 0. */
    if (slots[layer]->count != slots[0]->count)
      REFUSE("layout '%s': %s: layer %" PRId64 " has %" PRId64 " slots, layer 0 has %" PRId64, what, path,
             layer, slots[layer]->count, slots[0]->count);
    *digest_p = treadle_hash_more(*digest_p, slots[layer]->hash);
  }
out:
  return status;
}

treadle_status treadle_slots_read(const treadle_slots_spec *spec, const char *path, treadle_arena *arena,
                                  const treadle_slots **slots, uint64_t *digest_p) {
  json_t *root = NULL;
  treadle_status status;
  TRY(treadle_json_load(path, &root));
  TRY(treadle_slots_parse(spec, path, root, arena, slots, digest_p));
out:
  json_decref(root);
  return status;
}
