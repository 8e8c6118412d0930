/* Which checkpoints a run has. */
#include "run/checkpoint.h"

#include "base/text.h"
#include "io/file.h"
#include "io/folder.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PREFIX   "global_step_"
#define ADAPTERS "actor/lora_adapter"
#define LATEST   "latest_checkpointed_iteration.txt"

const char *const treadle_train_checkpoint_parts[TREADLE_CHECKPOINT_PARTS_MOST] = {
    "actor/huggingface",          "actor/optimizer/master",     "actor/optimizer/exp_avg",
    "actor/optimizer/exp_avg_sq", "critic/huggingface",         "critic/optimizer/master",
    "critic/optimizer/exp_avg",   "critic/optimizer/exp_avg_sq"};

static bool has_folder(const char *folder, const char *name) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return treadle_file_is_folder(path);
}

/* With adapters the optimizer's state is of them, and no model. */
bool treadle_train_checkpoint_has_part(const char *folder, int part) {
  if (part >= TREADLE_CHECKPOINT_PARTS) return has_folder(folder, "critic");
  if (!has_folder(folder, ADAPTERS)) return true;
  return part == 0 && has_folder(folder, treadle_train_checkpoint_parts[part]);
}

int64_t treadle_train_checkpoint_step_of(const char *path) {
  char again[40];
  int64_t step;
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  if (!treadle_text_starts(name, PREFIX) || !treadle_text_to_int64(name + strlen(PREFIX), &step) ||
      step < 0)
    return -1;
  snprintf(again, sizeof again, PREFIX "%" PRId64, step); /* "global_step_007" is another's */
  return strcmp(again, name) == 0 ? step : -1;
}

static int ascending(const void *a_, const void *b_) {
  int64_t a = *(const int64_t *)a_, b = *(const int64_t *)b_;
  return (a > b) - (a < b);
}

treadle_status treadle_train_checkpoint_list(const char *run, treadle_steps *steps) {
  treadle_status status = TREADLE_OK;
  treadle_arena arena = {0};
  treadle_folder_names names = {0};
  if (!treadle_file_is_folder(run)) return TREADLE_OK;
  TRY(treadle_folder_list(run, &arena, &names));
  for (size_t i = 0; i < names.count; i++) {
    int64_t step = treadle_train_checkpoint_step_of(names.items[i]);
    char path[4096];
    struct stat about;
    snprintf(path, sizeof path, "%s/%s", run, names.items[i]);
    if (step >= 0 && lstat(path, &about) == 0 && S_ISDIR(about.st_mode))
      TRY(treadle_array_push(steps, step));
  }
  if (steps->count) qsort(steps->items, steps->count, sizeof *steps->items, ascending);
out:
  treadle_array_release(&names);
  treadle_arena_release(&arena);
  return status;
}

static treadle_status lacks(const char *folder, const char *part) {
  return treadle_fail(TREADLE_REFUSED, "%s: is not a whole checkpoint: it has no %s", folder, part);
}

static treadle_status check_adapters(const char *folder) {
  static const char *const parts[] = {ADAPTERS, "actor/optimizer/exp_avg", "actor/optimizer/exp_avg_sq"};
  static const char *const files[] = {"adapter_config.json", "adapter_model.safetensors"};
  char path[4096];
  for (size_t i = 0; has_folder(folder, ADAPTERS) && i < 6; i++) {
    snprintf(path, sizeof path, "%s/%s/%s", folder, parts[i / 2], files[i % 2]);
    if (!treadle_file_exists(path)) return lacks(folder, path + strlen(folder) + 1);
  }
  return TREADLE_OK;
}

treadle_status treadle_train_checkpoint_check(const char *folder) {
  static const char *const files[] = {"data.json", "rng.json"};
  char path[4096];
  treadle_status status = TREADLE_OK;
  if (treadle_train_checkpoint_step_of(folder) < 0)
    return treadle_fail(TREADLE_REFUSED, "%s: a checkpoint is a folder " PREFIX "K", folder);
  TRY(check_adapters(folder));
  for (int i = 0; i < TREADLE_CHECKPOINT_PARTS_MOST; i++) {
    if (!treadle_train_checkpoint_has_part(folder, i)) continue;
    const char *part = treadle_train_checkpoint_parts[i];
    snprintf(path, sizeof path, "%s/%s/config.json", folder, part);
    if (!treadle_file_exists(path)) return lacks(folder, path + strlen(folder) + 1);
    snprintf(path, sizeof path, "%s/%s/model.safetensors.index.json", folder, part);
    if (treadle_file_exists(path)) continue;
    snprintf(path, sizeof path, "%s/%s/model.safetensors", folder, part);
    if (!treadle_file_exists(path)) return lacks(folder, path + strlen(folder) + 1);
  }
  for (int i = 0; i < 2; i++) {
    snprintf(path, sizeof path, "%s/%s", folder, files[i]);
    if (!treadle_file_exists(path)) return lacks(folder, files[i]);
  }
out:
  return status;
}

static treadle_status check_step(const char *run, int64_t step) {
  char path[4096];
  snprintf(path, sizeof path, "%s/" PREFIX "%" PRId64, run, step);
  return treadle_train_checkpoint_check(path);
}

/* -1: the file is not there, or has no number. */
static treadle_status read_latest(const char *run, int64_t *step_p) {
  enum { LONGEST = 64 };
  treadle_status status = TREADLE_OK;
  char path[4096], *text = NULL;
  size_t length;
  *step_p = -1;
  snprintf(path, sizeof path, "%s/" LATEST, run);
  if (!treadle_file_exists(path)) return TREADLE_OK;
  TRY(treadle_file_read(path, LONGEST, &text, &length));
  text[strcspn(text, " \r\n")] = 0;
  if (!treadle_text_to_int64(text, step_p)) *step_p = -1;
out:
  treadle_free(text);
  return status;
}

treadle_status treadle_train_checkpoint_find(const char *run, int64_t *step_p) {
  treadle_status status;
  treadle_steps steps = {0};
  int64_t latest;
  *step_p = -1;
  TRY(treadle_train_checkpoint_list(run, &steps));
  TRY(read_latest(run, &latest));
  if (latest >= 0 && check_step(run, latest) == TREADLE_OK) *step_p = latest;
  for (size_t i = steps.count; *step_p < 0 && i-- > 0;)
    if (check_step(run, steps.items[i]) == TREADLE_OK) *step_p = steps.items[i];
  if (*step_p < 0 && steps.count) TRY(check_step(run, steps.items[steps.count - 1]));
out:
  treadle_array_release(&steps);
  return status;
}

size_t treadle_train_checkpoint_expired_before(size_t count, int64_t max_to_keep) {
  if (max_to_keep <= 1) return 0;
  return treadle_train_checkpoint_expired_after(count, max_to_keep - 1);
}

size_t treadle_train_checkpoint_expired_after(size_t count, int64_t max_to_keep) {
  if (max_to_keep <= 0 || count <= (size_t)max_to_keep) return 0;
  return count - (size_t)max_to_keep;
}
