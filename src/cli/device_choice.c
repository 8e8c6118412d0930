#include "cli/device_choice.h"

#include "base/alloc.h"
#include "base/status.h"
#include "base/text.h"
#include "treadle_tools.h"

#include <stdio.h>
#include <string.h>

/* -1: any. */
static treadle_status read_number(const char *text, int64_t *number_p) {
  const char *colon = text + strlen("cuda");
  *number_p = -1;
  if (*colon == 0) return TREADLE_OK;
  if (*colon == ':' && treadle_text_to_int64(colon + 1, number_p) && *number_p >= 0 && *number_p < 1 << 16)
    return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED,
                      "--device is '%s': a CUDA device is cuda or cuda:I, with one number, from 0: cuda:1",
                      text);
}

typedef struct machine { /* as the kernel named it when it started */
  char name[40];
} machine;

static machine here(void) {
  machine m = {""};
  FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
  if (file && !fgets(m.name, sizeof m.name, file)) m.name[0] = 0;
  if (file) fclose(file);
  return m;
}

/* This rank's number among those of its machine, which may have several nodes. Collective. */
static treadle_status number_here(treadle_group *group, int *number_p) {
  treadle_status status;
  const int rank = treadle_group_rank(group);
  const machine mine = here();
  machine *all = treadle_alloc_array((size_t)treadle_group_size(group), sizeof *all);
  *number_p = 0;
  if (!all) TRY(treadle_fail(TREADLE_NO_MEMORY, "memory: memory is out"));
  TRY(treadle_group_gather(group, &mine, sizeof mine, all));
  for (int other = 0; other < rank; other++)
    *number_p += strncmp(all[other].name, mine.name, sizeof mine.name) == 0;
out:
  treadle_free(all);
  return status;
}

treadle_status treadle_device_choose(const char *text, treadle_group *group, treadle_memory *memory_p) {
  treadle_status status = TREADLE_OK;
  int64_t number = -1;
  int turn = 0;
  *memory_p = (treadle_memory){.kind = TREADLE_MEMORY_HOST};
  if (group) TRY(number_here(group, &turn)); /* whatever others are told to take */
  if (!text || strcmp(text, "cpu") == 0) return TREADLE_OK;
  const bool automatic = strcmp(text, "auto") == 0;
  if (!automatic && !treadle_text_starts(text, "cuda"))
    return treadle_fail(TREADLE_REFUSED, "--device is '%s': it is cpu, cuda, cuda:I or auto", text);
  if (!automatic) TRY(read_number(text, &number));
  const int32_t devices = number >= 0 ? 1 : treadle_machine_device_count();
  if (devices == 0 && automatic) return TREADLE_OK;
  if (devices == 0) return TREADLE_REFUSED; /* with the message of who counted */
  memory_p->kind = TREADLE_MEMORY_CUDA;
  memory_p->device = number >= 0 ? (int)number : turn % devices;
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
