/* Entries of archives whose sums are compared before their values are taken: each once, by the process that reads
 * it. */
#ifndef TREADLE_CONVERT_ENTRY_SUMS_H
#define TREADLE_CONVERT_ENTRY_SUMS_H

#include "base/array.h"
#include "io/torch.h"

typedef struct treadle_entry_sum {
  treadle_torch_entry entry;
  const char *path, *tensor; /* of which file; of a tensor in it */
  size_t summed;             /* its first bytes, whose sum is crc */
  uint32_t crc;
} treadle_entry_sum;

/* Begins zeroed. */
typedef struct treadle_entry_sums {
  TREADLE_ARRAY(treadle_entry_sum) items;
  bool sorted;
} treadle_entry_sums;

/* Adds an entry, which may be there already; texts and data outlive it. One without a sum is left out. */
treadle_status treadle_entry_sums_add(treadle_entry_sums *sums, const treadle_torch_entry *entry,
                                      const char *path, const char *tensor);
/* `bytes` from `at` on are about to be read: the sum of the entry that has them goes on to their end, so that they are read
 * once from memory and once from the cache. Refused, when it is whole: the archive says another one. */
treadle_status treadle_entry_sums_ask(treadle_entry_sums *sums, const void *at, int64_t bytes);
/* Before what was read is believed: sums that were begun go on to the end. */
treadle_status treadle_entry_sums_end(treadle_entry_sums *sums);
void treadle_entry_sums_release(treadle_entry_sums *sums);

#endif
