/* An open hash table of fixed size. A slot is taken by its key; its sum, plus one, follows, and 0 is none yet. */
#include "layout/sums.h"

#include "base/alloc.h"

#include <stdatomic.h>

enum { SLOTS = 1 << 19, PROBES = 16 };

typedef struct slot {
  _Atomic uint64_t key; /* 0: free */
  _Atomic int64_t sum;
} slot;

struct treadle_sums {
  slot slots[SLOTS];
};

treadle_status treadle_sums_create(treadle_sums **sums_p) {
  *sums_p = treadle_alloc(sizeof **sums_p);
  return *sums_p ? TREADLE_OK : treadle_fail(TREADLE_NO_MEMORY, "layout: memory is out");
}

void treadle_sums_destroy(treadle_sums *sums) { treadle_free(sums); }

bool treadle_sums_find(const treadle_sums *sums, uint64_t key, int64_t *sum_p) {
  for (uint64_t i = 0; i < PROBES; i++) {
    const slot *at = &sums->slots[(key + i) % SLOTS];
    uint64_t is = atomic_load(&at->key);
    if (is == 0) return false;
    if (is != key) continue;
    int64_t sum = atomic_load(&at->sum);
    *sum_p = sum - 1;
    return sum != 0;
  }
  return false;
}

void treadle_sums_add(treadle_sums *sums, uint64_t key, int64_t sum) {
  for (uint64_t i = 0; key != 0 && i < PROBES; i++) {
    slot *at = &sums->slots[(key + i) % SLOTS];
    uint64_t is = 0;
    if (!atomic_compare_exchange_strong(&at->key, &is, key) && is != key) continue;
    atomic_store(&at->sum, sum + 1);
    return;
  }
}
