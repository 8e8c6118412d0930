/* Slots: which expert of a layer lies where. Each rank of the expert parallel group has some slots in a row; slot s
 * holds logical expert logical[s], or s itself. Redundant experts have several slots.
 * docs/rules.md 6.1 to 6.3 (vLLM expert_map_manager.py, SGLang eplb). */
#ifndef TREADLE_GRID_SLOTS_H
#define TREADLE_GRID_SLOTS_H

#include "base/arena.h"
#include "base/status.h"

#include <stdint.h>

struct json_t;

typedef struct treadle_slots {
  int64_t experts, ep;
  int64_t count;          /* slots of all ranks */
  const int32_t *logical; /* [count]; NULL: slot s holds expert s */
  const int32_t *first;   /* [experts + 1] into places; NULL with logical */
  const int32_t *places;  /* [count] slots of each expert, ascending */
  uint64_t hash;          /* of the map; 0: none */
} treadle_slots;

/* What is wanted of maps. */
typedef struct treadle_slots_spec {
  const char *what; /* the layout, for messages */
  int64_t experts, ep;
  int64_t layers, mtp; /* of files: all layers, the last of which are MTP layers */
  int64_t count;       /* of files: slots of all ranks; 0: any number that ep divides */
} treadle_slots_spec;

/* The first count % ep ranks have one slot more than the others. */
static inline int64_t treadle_slots_first(const treadle_slots *slots, int64_t rank) {
  int64_t base = slots->count / slots->ep, more = slots->count % slots->ep;
  return rank * base + (rank < more ? rank : more);
}
static inline int64_t treadle_slots_on(const treadle_slots *slots, int64_t rank) {
  return slots->count / slots->ep + (rank < slots->count % slots->ep);
}
/* The rank that has a slot. */
static inline int64_t treadle_slots_rank(const treadle_slots *slots, int64_t slot) {
  int64_t base = slots->count / slots->ep, more = slots->count % slots->ep, head = more * (base + 1);
  return slot < head ? slot / (base + 1) : more + (slot - head) / base;
}

/* Experts in order: rank 0 has the first ones. */
treadle_status treadle_slots_linear(int64_t experts, int64_t ep, treadle_arena *arena,
                                    const treadle_slots **slots_p);
/* The same for every layer, in order; *slots_p NULL when there are no experts. */
treadle_status treadle_slots_for_all(int64_t experts, int64_t ep, int64_t layers, treadle_arena *arena,
                                     const treadle_slots ***slots_p);
/* Rank r has experts r, r + ep, r + 2 ep, ... */
treadle_status treadle_slots_round_robin(int64_t experts, int64_t ep, treadle_arena *arena,
                                         const treadle_slots **slots_p);
/* As `logical` [count] says, which is copied. Refused when an expert has no slot or a number is none; `layer` is for messages. */
treadle_status treadle_slots_map(const treadle_slots_spec *spec, int64_t layer, const int32_t *logical,
                                 int64_t count, treadle_arena *arena, const treadle_slots **slots_p);
/* `count` slots: every expert in order, and then the first ones again. */
treadle_status treadle_slots_again(const treadle_slots_spec *spec, int64_t layer, int64_t count,
                                   treadle_arena *arena, const treadle_slots **slots_p);
/* Maps of a file: a JSON list per layer, or {"physical_to_logical_map": [[...], ...]}; one list holds for all
 * layers, otherwise there is one for each layer, or of more: those of MTP layers that the model leaves out. Without lists of
 * their own, MTP layers have the experts in order. slots: [layers]. */
treadle_status treadle_slots_read(const treadle_slots_spec *spec, const char *path, treadle_arena *arena,
                                  const treadle_slots **slots, uint64_t *digest_p);
/* The same of a file that is read already; `path` is for messages. */
treadle_status treadle_slots_parse(const treadle_slots_spec *spec, const char *path,
                                   const struct json_t *root, treadle_arena *arena,
                                   const treadle_slots **slots, uint64_t *digest_p);

#endif
