/* A run that begins with a checkpoint of Megatron (RLinf's keys): one that is there, or one that the model is converted
 * to at the first start.
 *
 * All ranks convert together, and so does a controller apart, into a folder beside the one that is named,
 * SAVE_PATH.converting; when all is in it, it takes the name. So what has the name is whole. The next run continues what a killed run leaves beside it
 * (convert/folder.h), whenever it was killed; a conversion that fails removes it. The folder is locked from before
 * the first look until it has its name, and each look at the name is repeated under the lock. */
#include "rl/loop.h"

#include "base/alloc.h"
#include "convert/convert.h"
#include "convert/folder.h"
#include "convert/origin.h"
#include "convert/values.h"
#include "io/file.h"
#include "io/file_look.h"
#include "io/folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "megatron:tp=2,pp=2" */
static void layout_of(const treadle_train_settings *s, char text[64]) {
  snprintf(text, 64, "megatron:tp=%lld,pp=%lld",
           (long long)s->megatron.ckpt_convertor.tensor_model_parallel_size,
           (long long)s->megatron.ckpt_convertor.pipeline_model_parallel_size);
}

static treadle_status say_place(const treadle_rl_task *task, treadle_status status) {
  return treadle_refused_at(TREADLE_RL_PLACE(task, megatron.ckpt_convertor.save_path), status);
}

/* Of rank 0: is the folder there, and is it that of this run? */
static treadle_status look(const treadle_rl_task *task, const treadle_rl_crew *crew,
                           const treadle_model *model, const char *folder, const char *layout,
                           int64_t *there_p) {
  bool there = false;
  treadle_status status = TREADLE_OK;
  if (crew->rank == 0) status = treadle_origin_check(folder, model, layout, &there);
  *there_p = there;
  return say_place(task, status);
}

/* Has a folder the origin, or a part of one that a killed run has left? Nobody else writes such a file. */
static treadle_status look_for_origin(const char *folder, bool *whole_p, bool *part_p) {
  treadle_arena arena = {0};
  treadle_folder_names names = {0};
  treadle_status status;
  size_t stem;
  *whole_p = *part_p = false;
  TRY(treadle_folder_list(folder, &arena, &names));
  for (size_t i = 0; i < names.count; i++) {
    const char *name = names.items[i];
    if (strcmp(name, TREADLE_ORIGIN_FILE) == 0) *whole_p = true;
    if (treadle_folder_is_left_over(name, &stem) && stem == strlen(TREADLE_ORIGIN_FILE) &&
        strncmp(name, TREADLE_ORIGIN_FILE, stem) == 0)
      *part_p = true;
  }
out:
  treadle_array_release(&names);
  treadle_arena_release(&arena);
  return status;
}

/* Of rank 0: a folder beside the name that is whole, as its run was killed before it took the name (convert/convert.h):
 * it takes it now. One of other weights, of another layout, or without its whole origin, is of no use to anybody, and
 * goes. */
static treadle_status take_up_whole(const treadle_model *model, const char *beside, const char *folder,
                                    const char *layout) {
  char journal[PATH_MAX + 32];
  treadle_folder_lock lock;
  bool whole, part, there = false;
  treadle_status status;
  if (!treadle_file_is_folder(beside)) return TREADLE_OK;
  TRY(treadle_folder_lock_take(beside, false, &lock));
  snprintf(journal, sizeof journal, "%s/" TREADLE_JOURNAL_FILE, beside);
  TRY(look_for_origin(beside, &whole, &part));
  if (treadle_file_exists(journal) || (!whole && !part)) goto out;
  if (whole && !treadle_file_is_folder(folder) &&
      treadle_origin_check(beside, model, layout, &there) == TREADLE_OK) {
    TRY(treadle_folder_commit(beside, folder));
    treadle_folder_lock_moved(&lock, folder);
  } else {
    TRY(treadle_folder_remove(beside));
  }
out:
  treadle_folder_lock_end(&lock, true);
  return status;
}

/* Of rank 0: a lock that a killed run has left in a folder that is whole. */
static void remove_stale_lock(const char *folder) {
  char path[PATH_MAX + 16];
  treadle_folder_lock lock;
  snprintf(path, sizeof path, "%s/" TREADLE_LOCK_FILE, folder);
  if (treadle_file_exists(path) && treadle_folder_lock_take(folder, false, &lock) == TREADLE_OK)
    treadle_folder_lock_end(&lock, true);
}

static void warn(void *context, const char *line) { treadle_rl_warn(context, line); }

/* The steps, after each of which all ranks know how it went. *there_p: another run has made the folder meanwhile. */
static treadle_status convert(treadle_rl *rl, const treadle_convert_options *options, const char *folder,
                              int64_t *there_p) {
  const bool first = rl->whole.rank == 0;
  treadle_convert *c = NULL;
  treadle_status status = treadle_convert_open(options, &c);
  bool ours = false; /* else it may be that another run writes there */
  TRY(treadle_rl_agree(&rl->whole, say_place(&rl->task, status)));
  TRY(treadle_rl_agree(&rl->whole,
                       look(&rl->task, &rl->whole, rl->models.model, folder, options->to, there_p)));
  TRY(treadle_rl_tell(&rl->whole, there_p));
  if (*there_p) goto out;
  ours = first;
  TRY(treadle_rl_agree(&rl->whole, say_place(&rl->task, first ? treadle_convert_begin(c) : TREADLE_OK)));
  TRY(treadle_rl_agree(&rl->whole, say_place(&rl->task, treadle_convert_write(c))));
  TRY(treadle_rl_agree(&rl->whole,
                       say_place(&rl->task, first ? treadle_convert_finish_as(c, folder) : TREADLE_OK)));
out:
  if (status && ours) treadle_folder_drop(options->out); /* while its lock is held */
  treadle_convert_close(c);
  return status;
}

/* The path without slashes at its end, and that of the folder beside it. */
static treadle_status name_folders(const treadle_rl_task *task, char folder[PATH_MAX],
                                   char beside[PATH_MAX]) {
  const char *given = task->settings->megatron.ckpt_convertor.save_path;
  size_t length = strlen(given);
  while (length > 1 && given[length - 1] == '/') length--;
  if (!length || length + 16 > PATH_MAX)
    REFUSE("%s: a path of %zu bytes; 1 to %d", TREADLE_RL_PLACE(task, megatron.ckpt_convertor.save_path),
           length, PATH_MAX - 16);
  snprintf(folder, PATH_MAX, "%.*s", (int)length, given);
  snprintf(beside, PATH_MAX, "%.*s.converting", (int)length, given);
  return TREADLE_OK;
}

static treadle_status make_parent(const treadle_rl_task *task, const treadle_rl_crew *crew,
                                  const char *folder) {
  char parent[PATH_MAX];
  char *slash;
  snprintf(parent, sizeof parent, "%s", folder);
  slash = strrchr(parent, '/');
  if (crew->rank > 0 || !slash || slash == parent) return TREADLE_OK;
  *slash = 0;
  return say_place(task, treadle_rl_make_folders(parent));
}

/* Of rank 0, before the first look. */
static treadle_status check_places(const treadle_model *model, const char *beside, const char *folder,
                                   const char *layout) {
  treadle_status status;
  TRY(treadle_file_check_folder(folder));
  TRY(treadle_file_check_folder(beside));
  TRY(take_up_whole(model, beside, folder, layout));
out:
  return status;
}

static treadle_status convert_once(treadle_rl *rl, char folder[PATH_MAX], const char *layout) {
  char beside[PATH_MAX];
  int64_t there;
  treadle_status status;
  TRY(treadle_rl_agree(&rl->whole, name_folders(&rl->task, folder, beside)));
  if (rl->models.model->weights == TREADLE_WEIGHTS_RANDOM)
    TRY(treadle_fail(TREADLE_REFUSED, "%s: %s is a config.json, and has no weights to convert",
                     TREADLE_RL_PLACE(&rl->task, megatron.use_hf_ckpt), rl->models.path));
  TRY(treadle_rl_agree(&rl->whole,
                       say_place(&rl->task, rl->whole.rank == 0
                                                ? check_places(rl->models.model, beside, folder, layout)
                                                : TREADLE_OK)));
  TRY(treadle_rl_agree(&rl->whole, look(&rl->task, &rl->whole, rl->models.model, folder, layout, &there)));
  TRY(treadle_rl_tell(&rl->whole, &there));
  status = there ? TREADLE_OK : treadle_model_need_weights(rl->models.model);
  if (status) TRY(treadle_fail_in(status, "%s: ", TREADLE_RL_PLACE(&rl->task, megatron.use_hf_ckpt)));
  if (there) goto out;
  treadle_rl_note(&rl->whole, "converting the model to %s", folder);
  TRY(treadle_rl_agree(&rl->whole, make_parent(&rl->task, &rl->whole, folder)));
  const treadle_convert_options options = {.struct_size = sizeof options,
                                           .in = rl->models.path,
                                           .out = beside,
                                           .from = "hf",
                                           .to = layout,
                                           .families = rl->task.options->families,
                                           .rank = rl->whole.rank,
                                           .ranks = rl->whole.ranks,
                                           .warn = warn,
                                           .warn_context = &rl->whole};
  TRY(convert(rl, &options, folder, &there));
out:
  if (!status && there)
    treadle_rl_note(&rl->whole, "%s: converted by an earlier run, and taken as it is", folder);
  if (!status && there && rl->whole.rank == 0) remove_stale_lock(folder);
  return status;
}

/* `place` is the key that names the folder. */
static treadle_status open_values(treadle_rl_models *models, const treadle_rl_task *task,
                                  const treadle_rl_crew *crew, const char *folder, const char *layout,
                                  const char *place) {
  treadle_status status;
  TRY(treadle_refused_at(place,
                         treadle_values_open(models->opened, folder, layout, &models->start_values)));
  models->model = treadle_values_model(models->start_values);
  TRY(treadle_rl_open_layouts(models, task, crew));
out:
  return status;
}

static treadle_status open_checkpoint(treadle_rl *rl, const char *folder, const char *layout,
                                      const char *place) {
  char *said = NULL;
  treadle_status status;
  TRY(treadle_rl_agree(&rl->whole, treadle_origin_layout(folder, &said)));
  TRY(treadle_rl_agree(
      &rl->whole, open_values(&rl->models, &rl->task, &rl->crew, folder, said ? said : layout, place)));
out:
  free(said);
  return status;
}

/* Has the folder what Megatron saves: latest_checkpointed_iteration.txt, and the iteration that it names? */
static bool is_of_megatron(const char *folder) {
  char path[PATH_MAX + 64], *text = NULL;
  size_t bytes = 0;
  snprintf(path, sizeof path, "%s/latest_checkpointed_iteration.txt", folder);
  if (!treadle_file_exists(path) || treadle_file_read(path, 64, &text, &bytes) != TREADLE_OK) return false;
  if (strncmp(text, "release", 7) == 0)
    snprintf(path, sizeof path, "%s/release", folder);
  else
    snprintf(path, sizeof path, "%s/iter_%07ld", folder, strtol(text, NULL, 10));
  treadle_free(text);
  return treadle_file_is_folder(path);
}

/* Of rank 0: a folder has to be there, whatever is in it. A path that leads nowhere does not ask for the model's weights. */
static treadle_status look_at_load(const treadle_rl_task *task, const treadle_rl_crew *crew,
                                   int64_t *there_p) {
  const char *folder = task->settings->actor.load;
  treadle_file_type type;
  treadle_status status;
  *there_p = 0;
  if (crew->rank != 0) return TREADLE_OK;
  TRY(treadle_file_look(folder, &type));
  if (type != TREADLE_FILE_FOLDER)
    TRY(treadle_fail(TREADLE_REFUSED, "%s: %s: leave the key out, and weights begin as those of the model",
                     folder, type == TREADLE_FILE_NONE ? "there is no such folder" : "is not a folder"));
  *there_p = is_of_megatron(folder);
out:
  return treadle_refused_at(TREADLE_RL_PLACE(task, actor.load), status);
}

/* MindSpeed-RL's `load`: a checkpoint of Megatron, or a folder that has none yet. */
static treadle_status open_load(treadle_rl *rl, const char *layout) {
  const char *folder = rl->task.settings->actor.load;
  int64_t there;
  treadle_status status;
  TRY(treadle_rl_agree(&rl->whole, look_at_load(&rl->task, &rl->whole, &there)));
  TRY(treadle_rl_tell(&rl->whole, &there));
  if (there) return open_checkpoint(rl, folder, layout, TREADLE_RL_PLACE(&rl->task, actor.load));
  treadle_rl_note(&rl->whole, "%s: %s is not a checkpoint of Megatron: weights begin as those of %s",
                  TREADLE_RL_PLACE(&rl->task, actor.load), folder, rl->models.path);
out:
  return status;
}

treadle_status treadle_rl_open_values(treadle_rl *rl) {
  const treadle_train_settings *s = rl->task.settings;
  char folder[PATH_MAX], layout[64];
  treadle_status status = TREADLE_OK;
  layout_of(rl->task.settings, layout);
  if (s->megatron.use_hf_ckpt) {
    TRY(convert_once(rl, folder, layout));
    TRY(treadle_rl_agree(&rl->whole,
                         open_values(&rl->models, &rl->task, &rl->crew, folder, layout,
                                     TREADLE_RL_PLACE(&rl->task, megatron.ckpt_convertor.save_path))));
  } else if (s->megatron.checkpoint_load_path) {
    TRY(open_checkpoint(rl, s->megatron.checkpoint_load_path, layout,
                        TREADLE_RL_PLACE(&rl->task, megatron.checkpoint_load_path)));
  } else if (s->actor.load) {
    TRY(open_load(rl, layout));
  }
  if (rl->models.start_values) /* which a reference of its own begins with, too */
    TRY(treadle_rl_agree(&rl->whole,
                         treadle_rl_reference_open(&rl->reference, &rl->task, &rl->crew, &rl->models)));
out:
  return status;
}
