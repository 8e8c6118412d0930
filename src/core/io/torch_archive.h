/* A torch.save archive whose pickle has been read, and the tensors that its values stand for. */
#ifndef TREADLE_IO_TORCH_ARCHIVE_H
#define TREADLE_IO_TORCH_ARCHIVE_H

#include "io/torch.h"
#include "io/zip.h"

typedef struct treadle_torch_archive {
  const char *what; /* in messages */
  treadle_arena *arena;
  treadle_zip zip;
  const char *folder; /* with its slash */
  treadle_value *top;
} treadle_torch_archive;

/* what and arena are set. */
treadle_status treadle_torch_archive_open(treadle_torch_archive *a, const void *image, size_t bytes);

/* The value as a tensor, or a refusal that names it; tensor_p->name is set. */
treadle_status treadle_torch_archive_tensor(const treadle_torch_archive *a, const treadle_value *value,
                                            bool check_crc, treadle_torch_tensor *tensor_p);

/* The arguments of the innermost function that makes the tensor, out of its wrappings; NULL when `value`
 * is not made by one. *v3_p: the type is an argument of its own. */
const treadle_pickle_items *treadle_torch_tensor_arguments(const treadle_value *value, bool *v3_p);

#endif
