/* Gradients as a file, and their digest. */
#include "train/norm.h"
#include "train/trainer.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/hash.h"
#include "group/group.h"
#include "io/folder.h"
#include "memory/device.h"
#include "weights/digest.h"
#include "weights/save_plan.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A folder beside the file, of one file, which then takes the file's name. All ranks learn what it is called. */
static treadle_status name_folder(treadle_group *group, const char *path, char folder[PATH_MAX]) {
  long pid = (long)getpid();
  treadle_status status = TREADLE_OK;
  if (group) {
    TRY(treadle_group_say(group, &pid, sizeof pid));
    pid = *(const long *)treadle_group_said(group, 0);
  }
  if (snprintf(folder, PATH_MAX, "%s.%ld.tmp", path, pid) >= PATH_MAX)
    status = treadle_fail(TREADLE_REFUSED, "%s: too long for a path", path);
out:
  return status;
}

static treadle_status take_file(const treadle_group *group, const char *folder, const char *path) {
  char file[PATH_MAX + 32];
  treadle_status status = TREADLE_OK;
  if (group && treadle_group_rank(group) > 0) return TREADLE_OK;
  snprintf(file, sizeof file, "%s/model.safetensors", folder);
  if (rename(file, path) != 0)
    status = treadle_fail(TREADLE_SYSTEM, "%s cannot be written: %s", path, strerror(errno));
  treadle_folder_drop(folder);
  return status;
}

treadle_status treadle_trainer_save_gradients(treadle_trainer *t, const char *path) {
  const treadle_save_options options = {
      .struct_size = sizeof options, .shard_bytes = (size_t)1 << 60, .weights_only = true};
  char folder[PATH_MAX];
  treadle_status status;
  TREADLE_NEED(t);
  TREADLE_NEED(path);
  TRY(treadle_train_need_gradients(&t->windows, __func__));
  TRY(treadle_train_agree_on(&t->ranks, name_folder(t->ranks.group, path, folder),
                             &(treadle_group_call){.name = __func__}));
  TRY(treadle_layout_save_without(t->ranks.group, t->windows.grad_layout, t->windows.untrained,
                                  t->windows.grads, folder, &options));
  TRY(treadle_train_agree(&t->ranks, take_file(t->ranks.group, folder, path)));
out:
  return status;
}

/* ---- The digest --------------------------------------------------------------------------------------- */

/* Of the windows of all ranks, each with values of one layout. */
static treadle_status find_digest(const treadle_train_ranks *ranks, const char *call,
                                  const treadle_rank_window *of, uint64_t *digest_p) {
  treadle_group *group = ranks->group;
  uint64_t mine = 0, *sums;
  size_t count = (size_t)of->layout->model->entry_count;
  treadle_status status = TREADLE_OK;
  *digest_p = 0;
  sums = treadle_alloc_array(count, sizeof *sums);
  if (!sums) status = treadle_fail(TREADLE_NO_MEMORY, "digest: memory is out");
  if (!status) status = treadle_digest_add(of, 0, sums);
  for (size_t i = 0; !status && i < count; i++) mine += sums[i];
  TRY(treadle_train_agree_on(ranks, status, &(treadle_group_call){.name = call}));
  if (group) TRY(treadle_group_say(group, &mine, sizeof mine));
  for (int rank = 0; group && rank < treadle_group_size(group); rank++)
    *digest_p += *(const uint64_t *)treadle_group_said(group, rank);
  if (!group) *digest_p = mine;
out:
  treadle_free(sums);
  return status;
}

treadle_status treadle_trainer_digest(treadle_trainer *t, uint64_t *digest_p) {
  TREADLE_NEED(t);
  TREADLE_NEED(digest_p);
  const treadle_rank_window of = {.layout = t->windows.grad_layout,
                                  .rank = t->windows.rank,
                                  .device = treadle_device_host(),
                                  .window = t->windows.grads};
  treadle_status status;
  TRY(treadle_train_need_gradients(&t->windows, __func__));
  TRY(find_digest(&t->ranks, __func__, &of, digest_p));
out:
  return status;
}

static treadle_rank_window weights_of(const treadle_train_windows *w, bool trained) {
  return (treadle_rank_window){.layout = trained ? w->trained_layout : w->layout,
                               .rank = w->rank,
                               .device = treadle_device_host(),
                               .window = trained ? w->trained : w->weights};
}

/* With adapters: of the base and of them. */
treadle_status treadle_trainer_weights_digest(treadle_trainer *t, uint64_t *digest_p) {
  treadle_status status;
  TREADLE_NEED(t);
  TREADLE_NEED(digest_p);
  const treadle_rank_window of = weights_of(&t->windows, true);
  TRY(find_digest(&t->ranks, __func__, &of, digest_p));
  if (t->adapters) *digest_p = treadle_hash_more(t->adapters->base_digest, *digest_p);
out:
  return status;
}

treadle_status treadle_train_find_base(const treadle_train_ranks *ranks, treadle_train_adapters *a) {
  if (!a) return TREADLE_OK;
  const treadle_rank_window of = weights_of(a->windows, false);
  return find_digest(ranks, __func__, &of, &a->base_digest);
}

/* ---- The norm ----------------------------------------------------------------------------------------- */

static void look(void *context, const float *values, int64_t count) {
  treadle_norm_look(context, values, count);
}

static void add(void *context, const float *values, int64_t count) {
  treadle_norm_add(context, values, count);
}

/* Of all ranks' norms, which come one after the other. */
static treadle_status share(treadle_group *group, treadle_norm *norm, bool sums) {
  const treadle_norm mine = *norm;
  treadle_status status = TREADLE_OK;
  if (!group) return TREADLE_OK;
  TRY(treadle_group_say(group, &mine, sizeof mine));
  for (int rank = 0; rank < treadle_group_size(group); rank++)
    if (rank != treadle_group_rank(group)) treadle_norm_join(norm, treadle_group_said(group, rank), sums);
out:
  return status;
}

treadle_status treadle_trainer_norm(treadle_trainer *t, double *norm_p) {
  treadle_norm norm;
  treadle_status status;
  TREADLE_NEED(t);
  TREADLE_NEED(norm_p);
  treadle_norm_begin(&norm);
  TRY(treadle_train_agree_on(&t->ranks, treadle_train_each_own(t, look, &norm),
                             &(treadle_group_call){.name = __func__}));
  TRY(share(t->ranks.group, &norm, false));
  TRY(treadle_train_agree(&t->ranks, treadle_train_each_own(t, add, &norm)));
  TRY(share(t->ranks.group, &norm, true));
  *norm_p = treadle_norm_value(&norm);
out:
  return status;
}
