/* Is there room for a checkpoint? Its size is known before the first step, and a run that cannot save what it has learned need not begin. */
#include "run/checkpoint_room.h"

#include "io/file_look.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { FP32_BYTES = 4, BF16_BYTES = 2, MOMENTS = 2 };

/* The folder in which `path` is made: the nearest one that is there. */
static void find_folder(const char *path, char folder[PATH_MAX]) {
  struct stat about;
  snprintf(folder, PATH_MAX, "%s", path);
  while (stat(folder, &about) != 0 || !S_ISDIR(about.st_mode)) {
    char *slash = strrchr(folder, '/');
    if (!slash) {
      strcpy(folder, ".");
      return;
    }
    slash[slash == folder] = 0;
    if (slash == folder) return;
  }
}

treadle_status treadle_train_check_room(const treadle_train_config *config, const treadle_model *model,
                                        const treadle_model *critic) {
  const treadle_train_settings *s = &config->settings;
  /* adapters and their moments are small beside a model; merged weights are one more */
  const bool adapters = s->actor.lora_rank && !s->actor.lora_save_merged;
  const int64_t elems =
      (adapters ? 0 : treadle_model_elems(model)) + (critic ? treadle_model_elems(critic) : 0);
  /* weights, and in fp32 both moments, and masters where weights are not fp32 */
  const int64_t each = (s->training.bf16 ? BF16_BYTES + FP32_BYTES : FP32_BYTES) + MOMENTS * FP32_BYTES;
  char folder[PATH_MAX];
  if (!s->actor.save || elems < 1 || elems > INT64_MAX / each) return TREADLE_OK;
  find_folder(s->actor.save, folder);
  treadle_status status = treadle_file_room(folder, (uint64_t)(elems * each), 0);
  return status ? treadle_fail_in(TREADLE_REFUSED, "%s: no room for a checkpoint: ",
                                  treadle_train_config_place(config, TREADLE_KEY_OF(actor.save)))
                : TREADLE_OK;
}
