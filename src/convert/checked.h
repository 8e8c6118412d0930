/* Entries of archives whose sums are compared before their values are taken: each once, by the process that reads it. */
#ifndef TREADLE_CONVERT_CHECKED_H
#define TREADLE_CONVERT_CHECKED_H

#include "base/array.h"
#include "io/torch.h"

typedef struct treadle_checked_entry {
  treadle_torch_entry entry;
  const char *path, *tensor; /* of which file; of a tensor in it */
  bool done;
} treadle_checked_entry;

/* Begins zeroed. */
typedef struct treadle_checked {
  TREADLE_ARRAY(treadle_checked_entry) items;
  bool sorted;
} treadle_checked;

/* Adds an entry, which may be there already; texts and data outlive it. One without a sum is left out. */
treadle_status treadle_checked_add(treadle_checked *checked, const treadle_torch_entry *entry,
                                   const char *path, const char *tensor);
/* Values at `at` are about to be read: is the entry that has them what its archive says? Refused, with file, entry and tensor: it is not. What is in
 * no entry is not asked. *read_p: the entry, where it was read for that; else NULL. */
treadle_status treadle_checked_ask(treadle_checked *checked, const void *at,
                                   const treadle_torch_entry **read_p);
void treadle_checked_release(treadle_checked *checked);

#endif
