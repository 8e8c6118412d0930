/* Memory of the caller for own tensors of a rank, in tests: each tensor in a place of its own, with marked bytes around it. */
#ifndef TREADLE_TESTS_OWN_MEMORY_H
#define TREADLE_TESTS_OWN_MEMORY_H

#include "switch/switch.h"

typedef enum own_choice {
  OWN_NO,
  OWN_ALL,
  OWN_SOME,
  OWN_ONE_RANK
} own_choice; /* ONE_RANK: all of rank 0 */

typedef struct own_memory {
  treadle_own_tensor *tensors;
  size_t count;
  char *memory;
  size_t bytes;
} own_memory;

/* Own tensors of `layout`, one of the pair; those with fp8 blocks on the way are left out. Follows from its arguments alone. */
void own_make(own_memory *own, const treadle_layout *train, const treadle_layout *infer,
              const treadle_layout *layout, int rank, own_choice choice, uint64_t seed);
void own_release(own_memory *own);
/* Are the bytes around the tensors as they were? */
bool own_surrounds(const own_memory *own);
/* All storage tensors of a class, wherever they lie, against a window; says the first that differs. */
bool own_holds(const treadle_switch *sw, treadle_class which, const char *wanted);

#endif
