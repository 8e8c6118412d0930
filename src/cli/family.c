/* treadle family: list the families, show one, check one against a checkpoint. */
#include "cli/cli.h"

#include "base/alloc.h"
#include "base/utf8.h"
#include "io/file.h"
#include "io/file_look.h"
#include "io/json.h"
#include "model/stored.h"

#include <string.h>

/* ---- list, show ------------------------------------------------------------------------------ */

static treadle_status list(const char *folder) {
  treadle_status status = TREADLE_OK;
  treadle_arena arena = {0};
  treadle_family **families;
  int32_t count;
  TRY(treadle_family_all(folder, &arena, &families, &count));
  for (int32_t i = 0; i < count; i++) {
    const treadle_family *family = families[i];
    printf("%-12s %2d kinds of tensors; model_type", treadle_text_shown(family->name),
           (int)family->kind_count);
    for (const char **type = family->model_types; *type; type++) printf(" %s", treadle_text_shown(*type));
    printf("; engines");
    for (int32_t e = 0; e < family->engine_count; e++)
      printf(" %s", treadle_text_shown(family->engines[e].engine));
    printf("\n");
  }
out:
  treadle_arena_release(&arena);
  return status;
}

static treadle_status refuse_name(treadle_family **families, int32_t count, treadle_arena *arena,
                                  const char *name) {
  const char **names = treadle_arena_alloc_array(arena, (size_t)count + 1, sizeof *names);
  if (!names) return treadle_fail(TREADLE_NO_MEMORY, "no memory for names");
  for (int32_t i = 0; i < count; i++) names[i] = families[i]->name;
  const char *nearest = treadle_nearest_name(name, names);
  return nearest
             ? treadle_fail(TREADLE_REFUSED, "there is no family '%s'; did you mean '%s'?", name, nearest)
             : treadle_fail(TREADLE_REFUSED, "there is no family '%s'; treadle family list has them", name);
}

/* Prints the file as it stands: its comments are worth reading. */
static treadle_status show_file(const treadle_family *family, const char *folder) {
  enum { LARGEST_FILE = 16 << 20 };
  if (folder) {
    char *text;
    size_t length;
    treadle_status status = treadle_file_read(family->path, LARGEST_FILE, &text, &length);
    if (status) return status;
    fwrite(text, 1, length, stdout);
    treadle_free(text);
    return TREADLE_OK;
  }
  const char *slash = strrchr(family->path, '/');
  for (const treadle_family_text *file = treadle_family_texts; file->name; file++)
    if (strcmp(file->name, slash ? slash + 1 : family->path) == 0) fputs(file->text, stdout);
  return TREADLE_OK;
}

static treadle_status show(const char *folder, const char *name) {
  treadle_status status = TREADLE_OK;
  treadle_arena arena = {0};
  treadle_family **families;
  int32_t count, found = -1;
  TRY(treadle_family_all(folder, &arena, &families, &count));
  for (int32_t i = 0; i < count; i++)
    if (strcmp(families[i]->name, name) == 0) found = i;
  TRY(found < 0 ? refuse_name(families, count, &arena, name) : show_file(families[found], folder));
out:
  treadle_arena_release(&arena);
  return status;
}

/* ---- check ----------------------------------------------------------------------------------- */

/* What check looks at: a config and, unless it is NULL, a checkpoint. */
typedef struct check_subject {
  const char *config_path;
  json_t *config;
  treadle_checkpoint *checkpoint;
} check_subject;

static bool ends_with(const char *text, const char *end) {
  size_t length = strlen(text), end_length = strlen(end);
  return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

/* An index, and its shards where all of them are there. */
static treadle_status open_index(const char *folder, const char *index, treadle_checkpoint **checkpoint_p) {
  treadle_file_kind kind;
  treadle_status status;
  TRY(treadle_checkpoint_open_index(index, checkpoint_p));
  for (int32_t i = 0; i < (*checkpoint_p)->file_count; i++) {
    TRY(treadle_file_look((*checkpoint_p)->files[i], &kind));
    if (kind == TREADLE_FILE_NONE) goto out;
  }
  treadle_checkpoint_close(*checkpoint_p);
  *checkpoint_p = NULL;
  TRY(treadle_checkpoint_open(folder, checkpoint_p));
out:
  return status;
}

/* A folder, an index or a config.json, which all have the config beside them. */
static treadle_status open_files(const char *path, treadle_arena *arena, check_subject *subject) {
  treadle_file_kind kind, single_kind = TREADLE_FILE_NONE, index_kind = TREADLE_FILE_NONE;
  treadle_status status;
  TRY(treadle_file_look(path, &kind));
  bool is_folder = kind == TREADLE_FILE_FOLDER, is_index = !is_folder && ends_with(path, ".index.json");
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

/* The config of --model where that is given: a list has none. */
static treadle_status open_subject(const treadle_arguments *arguments, const char *path,
                                   treadle_arena *arena, check_subject *subject) {
  treadle_status status = TREADLE_OK;
  bool is_list = ends_with(path, ".tsv") || ends_with(path, ".tsv.gz");
  if (is_list && !arguments->model)
    return treadle_fail(TREADLE_REFUSED, "%s: a list of tensors needs --model config.json", path);
  treadle_file_kind kind = TREADLE_FILE_NONE;
  if (arguments->model) TRY(treadle_file_look(arguments->model, &kind));
  if (kind == TREADLE_FILE_FOLDER) {
    subject->config_path = treadle_arena_format(arena, "%s/config.json", arguments->model);
    if (!subject->config_path) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a path");
  } else {
    subject->config_path = arguments->model;
  }
  if (is_list)
    TRY(treadle_checkpoint_open_list(path, &subject->checkpoint));
  else
    TRY(open_files(path, arena, subject));
  if (subject->checkpoint && arguments->scale_down)
    return treadle_fail(TREADLE_REFUSED,
                        "%s: --scale-down makes another model than that of these files; give a "
                        "config.json alone",
                        path);
  TRY(arguments->scale_down ? treadle_scaled_config(arguments, subject->config_path, true, &subject->config)
                            : treadle_json_load(subject->config_path, &subject->config));
out:
  return status;
}

static void print_names(const char *title, const treadle_builder *names) {
  for (const char *name = names->text ? names->text : ""; *name;) {
    size_t length = strcspn(name, "\n");
    fprintf(stderr, "%s: %.*s\n", title, (int)length, name);
    name += length + (name[length] == '\n');
  }
}

static void print_result(const check_subject *subject, const treadle_model *model,
                         const treadle_files *files) {
  if (model->mtp_layers || model->family->mtp) printf("%d MTP layers\n", (int)model->mtp_layers);
  if (!subject->checkpoint) {
    printf("no weights and no index here: only the config was checked\n");
    return;
  }
  print_names("missing or of another shape", &files->missing);
  print_names("left over", &files->left_over);
  if (files->stacked_count)
    printf("%d tensors stacked or renamed as transformers has them\n", (int)files->stacked_count);
  if (files->scale_count) printf("%d tensors of fp8 block scales\n", (int)files->scale_count);
  if (files->carried_count)
    printf("%d tensors of other parts, carried along: %s, ...\n", (int)files->carried_count,
           treadle_text_shown(files->carried[0]->name));
  if (files->skipped_count)
    printf("%d buffers skipped: %s%s\n", (int)files->skipped_count,
           treadle_text_shown(files->skipped[0]->name), files->skipped_count > 1 ? ", ..." : "");
  printf("%d names %s, %s: %s\n", (int)subject->checkpoint->count,
         subject->checkpoint->index_only ? "in the index" : "in the files",
         subject->checkpoint->index_only ? "shapes unknown" : "with shapes",
         files->missing_count + files->left_over_count ? "different" : "all as the family says");
}

static treadle_status check(const treadle_arguments *arguments, const char *path, int32_t *differences_p) {
  treadle_status status = TREADLE_OK;
  treadle_arena arena = {0};
  check_subject subject = {0};
  treadle_model *model = NULL;
  treadle_files files = {0};
  treadle_model_options options = {.struct_size = sizeof(treadle_model_options),
                                   .families = arguments->families};
  TRY(open_subject(arguments, path, &arena, &subject));
  if (subject.checkpoint) {
    TRY(treadle_model_for_files(subject.config_path, subject.config, &options, subject.checkpoint, &model));
    TRY(treadle_files_match(model, subject.checkpoint, &arena, &files));
  } else {
    TRY(treadle_model_from_config(subject.config_path, subject.config, &options, &model));
  }
  *differences_p = files.missing_count + files.left_over_count;
  printf("%s: family %s, %d tensors, %lld parameters\n", treadle_text_shown(path),
         treadle_text_shown(treadle_model_family(model)), (int)model->entry_count,
         (long long)treadle_model_elems(model));
  print_result(&subject, model, &files);
out:
  treadle_files_release(&files);
  treadle_model_close(model);
  treadle_checkpoint_close(subject.checkpoint);
  json_decref(subject.config);
  treadle_arena_release(&arena);
  return status;
}

/* ---- The command ----------------------------------------------------------------------------- */

int treadle_command_family(const treadle_arguments *arguments) {
  static const char *const verbs[] = {"list", "show", "check", NULL};
  const char *verb = arguments->words[0], *what = arguments->words[1];
  int32_t differences = 0;
  treadle_status status;
  if (strcmp(verb, "list") == 0 && !what) {
    status = list(arguments->families);
  } else if (strcmp(verb, "show") == 0 && what) {
    status = show(arguments->families, what);
  } else if (strcmp(verb, "check") == 0 && what) {
    status = check(arguments, what, &differences);
  } else {
    const char *nearest = treadle_nearest_name(verb, verbs);
    status = treadle_fail(
        TREADLE_REFUSED,
        "'%s%s%s' is none of: list, show NAME, check DIR|index.json|config.json|LIST.tsv[.gz]%s%s", verb,
        what ? " " : "", what ? what : "", nearest ? "; the nearest is " : "", nearest ? nearest : "");
  }
  int exit_status = status        ? treadle_report_refusal("family", status)
                    : differences ? TREADLE_EXIT_FAILED
                                  : TREADLE_EXIT_OK;
  return treadle_finish_output("family", exit_status);
}
