/* Any text as an expert map of 3 layers of 6 experts over 2 ranks, read as JSON; in one that is taken, every expert has a
 * slot and both lists of slots say the same. */
#include "grid/slots.h"
#include "io/json.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { EXPERTS = 6, EP = 2, LAYERS = 3 };

static void check(const treadle_slots *slots) {
  assert(slots->count % EP == 0 && slots->count >= EXPERTS && slots->first[EXPERTS] == slots->count);
  for (int64_t e = 0; e < EXPERTS; e++) {
    assert(slots->first[e] < slots->first[e + 1]);
    for (int32_t i = slots->first[e]; i < slots->first[e + 1]; i++) {
      assert(slots->places[i] >= 0 && slots->places[i] < slots->count);
      assert(slots->logical[slots->places[i]] == e);
    }
  }
  for (int64_t r = 0, next = 0; r < EP; next += treadle_slots_on(slots, r++))
    assert(treadle_slots_first(slots, r) == next && treadle_slots_rank(slots, next) == r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const treadle_slots_spec spec = {"fuzz", EXPERTS, EP, LAYERS, 1, 0};
  treadle_arena arena = {0};
  json_t *root = NULL;
  const treadle_slots *slots[LAYERS] = {NULL};
  uint64_t digest = 0;
  if (treadle_json_parse("fuzz", (const char *)data, size, &root) == TREADLE_OK &&
      treadle_slots_parse(&spec, "map", root, &arena, slots, &digest) == TREADLE_OK)
    for (int layer = 0; layer < LAYERS; layer++) check(slots[layer]);
  json_decref(root);
  treadle_arena_release(&arena);
  return 0;
}
