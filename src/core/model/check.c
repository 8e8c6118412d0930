/* Does a family cover a checkpoint? treadle_tools.h. */
#include "base/alloc.h"
#include "base/sized.h"
#include "base/utf8.h"
#include "io/file_look.h"
#include "io/json.h"
#include "model/build.h"
#include "model/scaled.h"
#include "model/stored.h"
#include "model/subject.h"
#include "treadle_tools.h"

#include <string.h>

struct treadle_family_check {
  treadle_arena arena;
  treadle_subject subject;
  treadle_model *model;
  treadle_files files;
  treadle_builder open; /* lines of what the family's file has to say */
};

static bool ends_with(const char *text, const char *end) {
  size_t length = strlen(text), end_length = strlen(end);
  return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

/* An index, and its shards where all of them are there. */
static treadle_status open_index(const char *folder, const char *index, treadle_checkpoint **checkpoint_p) {
  treadle_file_type pattern;
  treadle_status status;
  TRY(treadle_checkpoint_open_index(index, checkpoint_p));
  for (int32_t i = 0; i < (*checkpoint_p)->file_count; i++) {
    TRY(treadle_file_look((*checkpoint_p)->files[i], &pattern));
    if (pattern == TREADLE_FILE_NONE) goto out;
  }
  treadle_checkpoint_close(*checkpoint_p);
  *checkpoint_p = NULL;
  TRY(treadle_checkpoint_open(folder, checkpoint_p));
out:
  return status;
}

/* A folder, an index or a config.json, which all have the config beside them. */
static treadle_status open_files(const char *path, treadle_arena *arena, treadle_subject *subject) {
  treadle_file_type pattern, single_kind = TREADLE_FILE_NONE, index_kind = TREADLE_FILE_NONE;
  treadle_status status;
  TRY(treadle_file_look(path, &pattern));
  bool is_folder = pattern == TREADLE_FILE_FOLDER, is_index = !is_folder && ends_with(path, ".index.json");
  const char *slash = strrchr(path, '/'), *folder = path, *index = path;
  if (!is_folder)
    folder = slash ? treadle_arena_format(arena, "%.*s", (int)(slash - path), path) : ".";
  else
    index = treadle_arena_format(arena, "%s/model.safetensors.index.json", path);
  if (!subject->config_path)
    subject->config_path =
        is_folder || is_index ? treadle_arena_format(arena, "%s/config.json", folder) : path;
  const char *single = treadle_arena_format(arena, "%s/model.safetensors", folder);
  if (!folder || !index || !subject->config_path || !single)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for a path"));
  if (is_folder) TRY(treadle_file_look(single, &single_kind));
  if (is_folder) TRY(treadle_file_look(index, &index_kind));
  if (is_index || (single_kind == TREADLE_FILE_NONE && index_kind != TREADLE_FILE_NONE))
    TRY(open_index(folder, index, &subject->checkpoint));
  else if (is_folder)
    TRY(treadle_checkpoint_open(path, &subject->checkpoint));
out:
  return status;
}

treadle_status treadle_subject_open(const char *path, const char *model, treadle_arena *arena,
                                    treadle_subject *subject) {
  treadle_status status = TREADLE_OK;
  bool is_list = ends_with(path, ".tsv") || ends_with(path, ".tsv.gz");
  if (is_list && !model)
    return treadle_fail(TREADLE_REFUSED, "%s: a list of tensors needs --model config.json", path);
  treadle_file_type pattern = TREADLE_FILE_NONE;
  if (model) TRY(treadle_file_look(model, &pattern));
  if (pattern == TREADLE_FILE_FOLDER) {
    subject->config_path = treadle_arena_format(arena, "%s/config.json", model);
    if (!subject->config_path) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a path");
  } else {
    subject->config_path = model;
  }
  if (is_list)
    TRY(treadle_checkpoint_open_list(path, &subject->checkpoint));
  else
    TRY(open_files(path, arena, subject));
out:
  return status;
}

/* As every command does that opens the folder. A list or an index has no values. */
static treadle_status check_values(treadle_family_check *check, const char *path) {
  const treadle_checkpoint *checkpoint = check->subject.checkpoint;
  if (check->files.missing_count || check->files.left_over_count || !checkpoint->count ||
      !checkpoint->tensors[0].data)
    return TREADLE_OK;
  check->model->files = &check->files;
  treadle_status status = treadle_model_check_values(check->model, path);
  check->model->files = NULL; /* which live in the check */
  return status;
}

static treadle_status compare(treadle_family_check *check, const char *path,
                              const treadle_family_check_options *options) {
  treadle_status status;
  json_t *config = NULL;
  const char *changes;
  treadle_subject *subject = &check->subject;
  const treadle_model_options of_model = {
      .struct_size = sizeof of_model, .families = options->families, .scale_down = options->scale_down};
  TRY(treadle_subject_open(path, options->model, &check->arena, subject));
  if (subject->checkpoint && options->scale_down)
    TRY(treadle_fail(TREADLE_REFUSED,
                     "%s: --scale-down makes another model than that of these files; give a "
                     "config.json alone",
                     path));
  if (subject->checkpoint) {
    TRY(treadle_config_open(subject->config_path, &of_model, &check->arena, &config, &changes));
    TRY(treadle_model_for_files(subject->config_path, config, &of_model, subject->checkpoint,
                                &check->model));
    TRY(treadle_files_match(check->model, subject->checkpoint, &check->arena, &check->files));
    TRY(check_values(check, path));
    if (subject->checkpoint->note) TRY(treadle_model_note(check->model, "%s", subject->checkpoint->note));
  } else {
    TRY(treadle_model_open_config(subject->config_path, subject->config_path, &of_model, &check->model));
  }
  TRY(treadle_model_check_beside(check->model, subject->config_path));
  const treadle_family *family = check->model->family;
  for (int32_t i = 0; i < family->to_say_count; i++)
    treadle_builder_add(&check->open, "%s\n", treadle_text_shown(family->to_say[i]));
  if (check->open.failed)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for what is to be said", path));
out:
  json_decref(config);
  return status;
}

treadle_status treadle_family_check_open(const char *path, const treadle_family_check_options *options,
                                         treadle_family_check **check_p) {
  treadle_status status;
  treadle_family_check_options o;
  TREADLE_NEED(check_p);
  *check_p = NULL;
  TREADLE_NEED(path);
  treadle_family_check *check = treadle_alloc(sizeof *check);
  if (!check) return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory to check it", path);
  TRY(TREADLE_TAKE(options, &o));
  if (o.scale_down < 0)
    TRY(treadle_fail(TREADLE_REFUSED, "%s: cannot be scaled down to %lld elements", path,
                     (long long)o.scale_down));
  TRY(compare(check, path, &o));
  *check_p = check;
  check = NULL;
out:
  treadle_family_check_close(check);
  return status;
}

void treadle_family_check_close(treadle_family_check *check) {
  if (!check) return;
  treadle_files_release(&check->files);
  treadle_builder_release(&check->open);
  treadle_model_close(check->model);
  treadle_checkpoint_close(check->subject.checkpoint);
  treadle_arena_release(&check->arena);
  treadle_free(check);
}

void treadle_family_check_get_info(const treadle_family_check *check, treadle_family_check_info *info_p) {
  static const treadle_family_check_info nothing = {
      .missing_names = "", .left_over_names = "", .open_lines = ""};
  TREADLE_NEED_SIZED_ONLY(info_p);
  TREADLE_GIVE(info_p, &nothing);
  TREADLE_NEED_ONLY(check);
  const treadle_checkpoint *checkpoint = check->subject.checkpoint;
  const treadle_files *files = &check->files;
  treadle_family_check_info info = {.has_names = checkpoint != NULL,
                                    .missing = files->missing_count,
                                    .left_over = files->left_over_count,
                                    .missing_names = files->missing.text ? files->missing.text : "",
                                    .left_over_names = files->left_over.text ? files->left_over.text : "",
                                    .stacked = files->stacked_count,
                                    .scales = files->scale_count,
                                    .carried = files->carried_count,
                                    .skipped = files->skipped_count,
                                    .open = check->model->family->to_say_count,
                                    .open_lines = check->open.text ? check->open.text : ""};
  if (checkpoint) {
    info.index_only = checkpoint->index_only;
    info.names = checkpoint->count;
  }
  if (info.carried) info.carried_first = files->carried[0]->name;
  if (info.skipped) info.skipped_first = files->skipped[0]->name;
  TREADLE_GIVE(info_p, &info);
}

const treadle_model *treadle_family_check_model(const treadle_family_check *check) {
  TREADLE_NEED_OR(check, NULL);
  return check->model;
}
