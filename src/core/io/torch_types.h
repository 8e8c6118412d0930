/* Element types as torch names them; what reading and writing its archives share. */
#ifndef TREADLE_IO_TORCH_TYPES_H
#define TREADLE_IO_TORCH_TYPES_H

#include "base/status.h"
#include "io/torch.h"

typedef struct treadle_torch_type {
  const char *name; /* torch.<name> */
  const char
      *storage; /* torch.<storage>; NULL: the type has none, and its tensors use _rebuild_tensor_v3 */
  const char *safetensors; /* "BF16" */
  int bytes;               /* of an element */
} treadle_torch_type;

/* NULL when there is none. */
const treadle_torch_type *treadle_torch_type_named(const char *name);
const treadle_torch_type *treadle_torch_type_of_storage(const char *storage);
const treadle_torch_type *treadle_torch_type_of_safetensors(const char *safetensors);

/* Sets dtype and dtype_text, elems and bytes from shape (which has no negative number); false when the
 * bytes pass 2^62. */
bool treadle_torch_measure(const treadle_torch_type *type, treadle_torch_tensor *tensor);

/* The pickle of an archive whose top is one tensor, over storage 0 of *bytes_p bytes. Of the tensor, entry, name (for
 * messages), dtype, ndim and shape count. */
treadle_status treadle_torch_pickle_alone(const char *what, const treadle_torch_tensor *tensor,
                                          treadle_pickle *pickle, size_t *bytes_p);

#endif
