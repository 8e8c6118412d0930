/* One file of a Megatron checkpoint that stands under two names: what a copy that went wrong leaves. */
#ifndef TREADLE_CONVERT_MEGATRON_TWICE_H
#define TREADLE_CONVERT_MEGATRON_TWICE_H

#include "io/torch.h"
#include "layout/layout.h"

/* tensors: of each storage tensor of the rank's window, as users count them. */
typedef struct treadle_megatron_file {
  const char *path;
  int64_t rank;
  const treadle_torch *torch;
  int32_t count;
  const treadle_torch_tensor *const *tensors;
} treadle_megatron_file;

/* Refuses two files of which all tensors have the same sums in their archives, though the layout gives their ranks other parts of the model,
 * and these are not one number throughout. Archives without sums are not compared. */
treadle_status treadle_megatron_check_twice(const treadle_layout *layout,
                                            const treadle_megatron_file *files, int32_t count);

#endif
