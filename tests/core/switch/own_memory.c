#include "switch/own_memory.h"

#include "base/dtype.h"
#include "base/hash.h"
#include "layout/blocks.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

enum { GUARD = 48, MARK = 0x5c };

static bool is_chosen(own_choice choice, int rank, int32_t storage, uint64_t seed) {
  switch (choice) {
  case OWN_NO: return false;
  case OWN_ALL: return true;
  case OWN_ONE_RANK: return rank == 0;
  case OWN_SOME: return treadle_mix64(seed * 1000 + (uint64_t)rank * 100000 + (uint64_t)storage) % 3 > 0;
  }
  return false;
}

static bool has_blocks(const treadle_layout *train, const treadle_layout *infer,
                       const treadle_layout *layout, int rank, int32_t number) {
  int32_t index;
  int64_t expert;
  treadle_pieces pieces = {0};
  bool has = false;
  (void)treadle_layout_public(layout, rank, number, &index, &expert);
  if (treadle_layout_pieces_in(layout, rank, index, &pieces) != TREADLE_OK) abort();
  for (size_t i = 0; i < pieces.count; i++)
    has = has ||
          (pieces.items[i].tensor >= 0 && treadle_is_in_block_rows(train, infer, pieces.items[i].tensor));
  treadle_array_release(&pieces);
  return has;
}

/* With no regard to pages: tensors lie at odd multiples of their elements. */
void own_make(own_memory *own, const treadle_layout *train, const treadle_layout *infer,
              const treadle_layout *layout, int rank, own_choice choice, uint64_t seed) {
  int32_t count = treadle_layout_storage_count(layout, rank);
  *own = (own_memory){.tensors = calloc((size_t)count + 1, sizeof *own->tensors)};
  size_t *offset = calloc((size_t)count + 1, sizeof *offset);
  if (!own->tensors || !offset) abort();
  own->bytes = GUARD;
  for (int32_t i = 0; i < count; i++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    if (treadle_layout_storage(layout, rank, i, &info) != TREADLE_OK) abort();
    if (!is_chosen(choice, rank, i, seed) || has_blocks(train, infer, layout, rank, i)) continue;
    size_t each = treadle_dtype_bytes(info.dtype);
    offset[own->count] = own->bytes + (own->bytes / each % 2 ? 0 : each);
    own->tensors[own->count++] = (treadle_own_tensor){.storage = i, .bytes = info.bytes};
    own->bytes = (offset[own->count - 1] + info.bytes + GUARD + 15) / 16 * 16;
  }
  own->memory = malloc(own->bytes);
  if (!own->memory) abort();
  memset(own->memory, MARK, own->bytes);
  for (size_t i = 0; i < own->count; i++) own->tensors[i].memory = own->memory + offset[i];
  for (size_t i = 0; i + 1 < own->count; i += 2) { /* in no order */
    treadle_own_tensor swapped = own->tensors[i];
    own->tensors[i] = own->tensors[i + 1];
    own->tensors[i + 1] = swapped;
  }
  free(offset);
}

void own_release(own_memory *own) {
  free(own->tensors);
  free(own->memory);
  *own = (own_memory){0};
}

bool own_surrounds(const own_memory *own) {
  char *wanted = malloc(own->bytes + 1); /* marks, and what the tensors have */
  if (wanted) memset(wanted, MARK, own->bytes);
  for (size_t i = 0; wanted && i < own->count; i++) {
    const treadle_own_tensor *tensor = &own->tensors[i];
    if (tensor->bytes > 0)
      memcpy(wanted + ((const char *)tensor->memory - own->memory), tensor->memory, tensor->bytes);
  }
  const bool same = wanted && memcmp(wanted, own->memory, own->bytes) == 0;
  free(wanted);
  return same;
}

bool own_holds(const treadle_switch *sw, treadle_class which, const char *wanted) {
  const treadle_layout *layout = sw->layouts[which == TREADLE_PARAMS ? TREADLE_TRAIN : TREADLE_INFER];
  int rank = sw->group->rank;
  for (int32_t i = 0; i < treadle_layout_storage_count(layout, rank); i++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    size_t bytes;
    const void *at = treadle_switch_tensor(sw, which, i, &bytes);
    if (treadle_layout_storage(layout, rank, i, &info) != TREADLE_OK || bytes != info.bytes) return false;
    if (bytes && memcmp(at, wanted + info.offset_bytes, bytes) != 0) {
      fprintf(stderr, "rank %d: '%s' is not what it should be\n", rank, info.name);
      return false;
    }
  }
  return true;
}
