/* What the files that build layouts of placements share. */
#ifndef TREADLE_FLAT_PLACEMENTS_PARTS_H
#define TREADLE_FLAT_PLACEMENTS_PARTS_H

#include "base/hash_map.h"
#include "flat/placements.h"

typedef struct treadle_placements_builder {
  treadle_layout *layout;
  treadle_placements *made;
  const treadle_placed_mesh *meshes;
  const treadle_placed_tensor *tensors;
  TREADLE_ARRAY(treadle_placement_cut) cuts;
  treadle_hash_map cut_by_text;
  TREADLE_ARRAY(treadle_placed_part) parts;
  treadle_layout *modules; /* on one rank: which parts modules are made of; NULL until a name needs it */
  treadle_hash_map by_module;
} treadle_placements_builder;

static inline treadle_status treadle_placements_no_memory(void) {
  return treadle_fail(TREADLE_NO_MEMORY, "placements: memory is out");
}

/* ---- placements_names.c ---- */

/* Finds what the given name means: shape, dtype and parts of placed[number], all but its cut. */
treadle_status treadle_placements_resolve(treadle_placements_builder *b, int32_t number);

/* ---- placements_check.c ---- */

/* Lists the parts of each canonical tensor, and says which cells are its own. Refused: a tensor that is not all there, and one name
 * twice on a rank. */
treadle_status treadle_placements_index(treadle_placements_builder *b);

#endif
