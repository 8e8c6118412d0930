/* Entries of archives whose sums are compared before their values are taken: each once, by the process that reads
 * it. */
#ifndef TREADLE_CONVERT_ENTRY_SUMS_H
#define TREADLE_CONVERT_ENTRY_SUMS_H

#include "base/array.h"
#include "io/torch.h"

typedef struct treadle_entry_sum {
  treadle_torch_entry entry;
  const char *path, *tensor; /* of which file; of a tensor in it */
  bool done;
} treadle_entry_sum;

/* Begins zeroed. */
typedef struct treadle_entry_sums {
  TREADLE_ARRAY(treadle_entry_sum) items;
  bool sorted;
} treadle_entry_sums;

/* Adds an entry, which may be there already; texts and data outlive it. One without a sum is left out. */
treadle_status treadle_entry_sums_add(treadle_entry_sums *sums, const treadle_torch_entry *entry,
                                      const char *path, const char *tensor);
/* Values at `at` are about to be read: is the entry that has them what its archive says? Refused, with file, entry and
 * tensor: it is not. What is in no entry is not asked. *read_p: the entry, where it was read for that; else NULL. */
treadle_status treadle_entry_sums_ask(treadle_entry_sums *sums, const void *at,
                                      const treadle_torch_entry **read_p);
void treadle_entry_sums_release(treadle_entry_sums *sums);

#endif
