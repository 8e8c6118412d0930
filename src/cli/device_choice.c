#include "cli/device_choice.h"

#include "base/status.h"
#include "base/text.h"
#include "treadle_tools.h"

#include <string.h>

/* -1: any. */
static treadle_status read_number(const char *text, int64_t *number_p) {
  const char *colon = text + strlen("cuda");
  *number_p = -1;
  if (*colon == 0) return TREADLE_OK;
  if (*colon == ':' && treadle_text_to_int64(colon + 1, number_p) && *number_p >= 0 && *number_p < 1 << 16)
    return TREADLE_OK;
  return treadle_fail(
      TREADLE_REFUSED,
      "--device is '%s': the number after cuda: is not that of a device, which count from 0", text);
}

/* This rank's number among those of its node. */
static int number_on_node(const treadle_group *group) {
  int number = 0;
  for (int rank = 0; rank < treadle_group_rank(group); rank++)
    number += treadle_group_node(group, rank) == treadle_group_node(group, treadle_group_rank(group));
  return number;
}

treadle_status treadle_device_choose(const char *text, const treadle_group *group,
                                     treadle_memory *memory_p) {
  treadle_status status = TREADLE_OK;
  int64_t number = -1;
  *memory_p = (treadle_memory){.kind = TREADLE_MEMORY_HOST};
  if (!text || strcmp(text, "cpu") == 0) return TREADLE_OK;
  const bool automatic = strcmp(text, "auto") == 0;
  if (!automatic && !treadle_text_starts(text, "cuda"))
    return treadle_fail(TREADLE_REFUSED, "--device is '%s': it is cpu, cuda, cuda:I or auto", text);
  if (!automatic) TRY(read_number(text, &number));
  const int32_t devices = number >= 0 ? 1 : treadle_machine_device_count();
  if (devices == 0 && automatic) return TREADLE_OK;
  if (devices == 0) return TREADLE_REFUSED; /* with the message of who counted */
  memory_p->kind = TREADLE_MEMORY_CUDA;
  memory_p->device = number >= 0 ? (int)number : group ? number_on_node(group) % devices : 0;
out:
  return status;
}

treadle_status treadle_device_is_cuda(const char *text, bool *cuda_p) {
  treadle_status status = TREADLE_OK;
  treadle_memory memory;
  int64_t number;
  *cuda_p = text && treadle_text_starts(text, "cuda");
  if (*cuda_p) return read_number(text, &number);
  TRY(treadle_device_choose(text, NULL, &memory));
  *cuda_p = memory.kind == TREADLE_MEMORY_CUDA;
out:
  return status;
}
