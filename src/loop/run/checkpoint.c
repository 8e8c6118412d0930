/* Saving checkpoints. Rank 0 makes and names folders; what each rank does of the parts is treadle_layout_save's. As there, a failure before
 * the folder gets its name is one of all ranks, each of which removes what was made; from the last agreement on only rank 0 does. */
#include "run/checkpoint.h"

#include "group/group.h"
#include "io/file.h"
#include "io/folder.h"
#include "run/checkpoint_digests.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define LATEST "latest_checkpointed_iteration.txt"

enum { PATH_MOST = 3000 };

typedef struct saving {
  const treadle_train_checkpoint *checkpoint;
  treadle_group *group;
  int rank;
  char folder[PATH_MOST + 40], temporary[PATH_MOST + 100]; /* temporary: "" until it is there */
} saving;

static treadle_status agree(const saving *s, treadle_status mine) {
  return s->group ? treadle_group_agree(s->group, mine) : mine;
}

static treadle_status system_says(const char *path, const char *verb) {
  return treadle_fail(TREADLE_SYSTEM, "%s: cannot %s: %s", path, verb, strerror(errno));
}

/* ---- Rank 0, before ---- */

static bool is_of_a_run(const char *stem) {
  static const char *const files[] = {LATEST, "config.yaml", "switch.json", "memory.json"};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++)
    if (strcmp(stem, files[i]) == 0) return true;
  return treadle_train_checkpoint_step_of(stem) >= 0;
}

treadle_status treadle_train_checkpoint_clean(const char *run) {
  return treadle_folder_remove_left_over(run, is_of_a_run);
}

/* A checkpoint goes: it loses its name first. */
static treadle_status remove_step(const char *run, int64_t step) {
  treadle_status status;
  char folder[PATH_MOST + 40], aside[PATH_MOST + 100];
  snprintf(folder, sizeof folder, "%s/global_step_%" PRId64, run, step);
  TRY(treadle_folder_create_beside(folder, aside, sizeof aside));
  if (rename(folder, aside) != 0) TRY(system_says(folder, "rename"));
  TRY(treadle_folder_remove(aside));
out:
  return status;
}

/* Removes those that have expired, of the steps before `end`. */
static treadle_status retain(const treadle_train_checkpoint *c, int64_t end,
                             size_t expired(size_t count, int64_t max_to_keep)) {
  treadle_status status;
  treadle_steps steps = {0};
  size_t count = 0;
  TRY(treadle_train_checkpoint_list(c->run, &steps));
  while (count < steps.count && steps.items[count] < end) count++;
  size_t gone = expired(count, c->max_to_keep);
  for (size_t i = 0; i < gone; i++) TRY(remove_step(c->run, steps.items[i]));
out:
  treadle_array_release(&steps);
  return status;
}

static treadle_status make_folder(const char *in, const char *name) {
  char path[PATH_MOST + 200];
  snprintf(path, sizeof path, "%s/%s", in, name);
  return mkdir(path, 0777) == 0 ? TREADLE_OK : system_says(path, "make the folder");
}

static treadle_status begin(saving *s) {
  treadle_status status;
  char temporary[sizeof s->temporary];
  const treadle_train_checkpoint *c = s->checkpoint;
  if (!c->shared) TRY(treadle_train_checkpoint_clean(c->run));
  TRY(retain(c, c->step, treadle_train_checkpoint_expired_before));
  TRY(treadle_folder_create_beside(s->folder, temporary, sizeof temporary));
  strcpy(s->temporary, temporary);
  TRY(make_folder(s->temporary, "actor"));
  TRY(make_folder(s->temporary, "actor/optimizer"));
  if (!c->save_critic) return TREADLE_OK;
  TRY(make_folder(s->temporary, "critic"));
  TRY(make_folder(s->temporary, "critic/optimizer"));
out:
  return status;
}

/* ---- Rank 0, after ---- */

static treadle_status write_text(const char *folder, const char *name, const char *text) {
  char path[PATH_MOST + 200];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return treadle_file_write(path, text, strlen(text));
}

static treadle_status sync_inner(const saving *s) {
  static const char *const inner[] = {"actor/optimizer", "actor", "critic/optimizer", "critic"};
  const int count = s->checkpoint->save_critic ? 4 : 2;
  treadle_status status = TREADLE_OK;
  char path[PATH_MOST + 200];
  for (int i = 0; i < count; i++) {
    snprintf(path, sizeof path, "%s/%s", s->temporary, inner[i]);
    TRY(treadle_folder_sync(path));
  }
out:
  return status;
}

static treadle_status write_texts(const saving *s) {
  treadle_status status;
  TRY(write_text(s->temporary, "data.json", s->checkpoint->data));
  TRY(write_text(s->temporary, "rng.json", s->checkpoint->rng));
out:
  return status;
}

static treadle_status finish(saving *s) {
  treadle_status status;
  const treadle_train_checkpoint *c = s->checkpoint;
  const bool is_there = treadle_file_is_folder(s->folder);
  char number[24];
  TRY(sync_inner(s));
  TRY((is_there ? treadle_folder_exchange : treadle_folder_commit)(s->temporary, s->folder));
  snprintf(number, sizeof number, "%" PRId64, c->step);
  TRY(write_text(c->run, LATEST, number));
  if (is_there) TRY(treadle_folder_remove(s->temporary));
  TRY(retain(c, c->step + 1, treadle_train_checkpoint_expired_after));
out:
  return status;
}

/* ---- All ranks ---- */

static treadle_status save_roles(const saving *s) {
  const treadle_train_checkpoint *c = s->checkpoint;
  char path[PATH_MOST + 200];
  treadle_status status;
  snprintf(path, sizeof path, "%s/actor", s->temporary);
  TRY(c->save(c->context, path));
  snprintf(path, sizeof path, "%s/critic", s->temporary);
  if (c->save_critic) TRY(c->save_critic(c->context, path));
out:
  return status;
}

static treadle_status check(const treadle_train_checkpoint *c) {
  if (strlen(c->run) > PATH_MOST)
    return treadle_fail(TREADLE_REFUSED, "a run's folder has a name of at most %d bytes", PATH_MOST);
  return TREADLE_OK;
}

treadle_status treadle_train_checkpoint_save(treadle_group *group,
                                             const treadle_train_checkpoint *checkpoint) {
  treadle_status status;
  bool mine_to_remove = true;
  saving s = {.checkpoint = checkpoint, .group = group, .rank = group ? treadle_group_rank(group) : 0};
  TRY(agree(&s, check(checkpoint)));
  snprintf(s.folder, sizeof s.folder, "%s/global_step_%" PRId64, checkpoint->run, checkpoint->step);
  TRY(agree(&s, s.rank == 0 ? begin(&s) : TREADLE_OK));
  TRY(treadle_group_say_rest(s.group, s.folder, s.temporary, sizeof s.temporary));
  TRY(save_roles(&s));
  mine_to_remove = s.rank == 0;
  TRY(agree(&s, s.rank == 0 ? write_texts(&s) : TREADLE_OK)); /* and nobody has given up the last part */
  TRY(treadle_checkpoint_digests_write(group, s.temporary, checkpoint->step, checkpoint->families));
  TRY(agree(&s, s.rank == 0 ? finish(&s) : TREADLE_OK));
out:
  if (status && mine_to_remove && s.temporary[0]) treadle_folder_drop(s.temporary);
  return status;
}
