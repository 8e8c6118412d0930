/* Finding families: those of a folder, or those built into the library, in the order of their file names.
 */
#include "family/family.h"
#include "base/array.h"
#include "family/read.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef TREADLE_ARRAY(treadle_family *) family_array;

/* ---- Files ------------------------------------------------------------------------------------- */

static int is_yaml(const struct dirent *entry) {
  size_t length = strlen(entry->d_name);
  return length > 5 && strcmp(entry->d_name + length - 5, ".yaml") == 0;
}

static int by_name(const struct dirent **a, const struct dirent **b) {
  return strcmp((*a)->d_name, (*b)->d_name);
}

static treadle_status add(const char *path, const treadle_yaml *root, const char *folder,
                          treadle_arena *arena, family_array *families) {
  treadle_family *family;
  treadle_status status;
  TRY(treadle_family_read(path, root, folder, arena, &family));
  TRY(treadle_array_push(families, family));
out:
  return status;
}

static treadle_status add_file(const char *folder, const char *name, treadle_arena *arena,
                               family_array *families) {
  const treadle_yaml *root;
  treadle_status status;
  const char *path = treadle_arena_format(arena, "%s/%s", folder, name);
  if (!path) return treadle_family_no_memory();
  TRY(treadle_yaml_load(path, arena, &root));
  TRY(add(path, root, folder, arena, families));
out:
  return status;
}

static treadle_status add_folder(const char *folder, treadle_arena *arena, family_array *families) {
  struct dirent **entries;
  treadle_status status = TREADLE_OK;
  int count = scandir(folder, &entries, is_yaml, by_name);
  if (count < 0)
    return treadle_fail(TREADLE_SYSTEM, "%s: the folder of families cannot be read: %s", folder,
                        strerror(errno));
  for (int i = 0; i < count; i++) TRY(add_file(folder, entries[i]->d_name, arena, families));
  if (!count) status = treadle_fail(TREADLE_REFUSED, "%s: no family (*.yaml) is in this folder", folder);
out:
  for (int i = 0; i < count; i++) free(entries[i]);
  free(entries);
  return status;
}

static treadle_status add_built_in(treadle_arena *arena, family_array *families) {
  treadle_status status = TREADLE_OK;
  for (const treadle_family_text *file = treadle_family_texts; file->name; file++) {
    const treadle_yaml *root;
    const char *path = treadle_arena_format(arena, "families/%s", file->name);
    if (!path) return treadle_family_no_memory();
    TRY(treadle_yaml_parse(path, file->text, strlen(file->text), arena, &root));
    TRY(add(path, root, NULL, arena, families));
  }
out:
  return status;
}

/* ---- All, and one ------------------------------------------------------------------------------ */

static const char *common_type(const treadle_family *a, const treadle_family *b) {
  for (const char **x = a->model_types; *x; x++)
    for (const char **y = b->model_types; *y; y++)
      if (strcmp(*x, *y) == 0) return *x;
  return NULL;
}

static treadle_status check_types(const family_array *families) {
  for (size_t i = 0; i < families->count; i++)
    for (size_t j = 0; j < i; j++) {
      const char *type = common_type(families->items[j], families->items[i]);
      if (type)
        return treadle_fail(TREADLE_REFUSED, "%s: model_type %s is covered by %s already",
                            families->items[i]->path, type, families->items[j]->path);
    }
  return TREADLE_OK;
}

treadle_status treadle_family_all(const char *folder, treadle_arena *arena, treadle_family ***families_p,
                                  int32_t *count_p) {
  family_array families = {0};
  treadle_status status;
  if (folder)
    TRY(add_folder(folder, arena, &families));
  else
    TRY(add_built_in(arena, &families));
  TRY(check_types(&families));
  treadle_family **kept = treadle_arena_alloc_array(arena, families.count + 1, sizeof *kept);
  if (!kept) {
    status = treadle_family_no_memory();
    goto out;
  }
  memcpy(kept, families.items, families.count * sizeof *kept);
  *families_p = kept;
  *count_p = (int32_t)families.count;
out:
  treadle_array_release(&families);
  return status;
}

static bool covers(const treadle_family *family, const char *model_type) {
  for (const char **type = family->model_types; *type; type++)
    if (strcmp(*type, model_type) == 0) return true;
  return false;
}

/* Does the line of model_types speak of this one? */
static bool mentions(const char *text, const char *model_type) {
  const char *line = strstr(text, "\nmodel_types:");
  size_t length = line ? strcspn(line + 1, "\n") : 0, wanted = strlen(model_type);
  for (size_t i = 0; wanted > 0 && i + wanted <= length; i++)
    if (strncmp(line + 1 + i, model_type, wanted) == 0) return true;
  return false;
}

/* Of the families that are built in, only the files that may be the one are read: a model is opened often, and there
 * are many. NULL when none is. */
static treadle_status find_built_in(const char *model_type, treadle_arena *arena,
                                    treadle_family **family_p) {
  treadle_status status = TREADLE_OK;
  *family_p = NULL;
  for (const treadle_family_text *file = treadle_family_texts; file->name && !*family_p; file++) {
    const treadle_yaml *root;
    treadle_family *family;
    const char *path;
    if (!mentions(file->text, model_type)) continue;
    path = treadle_arena_format(arena, "families/%s", file->name);
    if (!path) return treadle_family_no_memory();
    TRY(treadle_yaml_parse(path, file->text, strlen(file->text), arena, &root));
    TRY(treadle_family_read(path, root, NULL, arena, &family));
    if (covers(family, model_type)) *family_p = family;
  }
out:
  return status;
}

/* The command that drafts a family for the model of a config.json, as a shell reads it; NULL: memory is out. */
static const char *draft_command(const char *config_path, const char *model_type, treadle_arena *arena) {
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./";
  const char *slash = strrchr(config_path, '/');
  const char *file = slash ? slash + 1 : config_path;
  int length = !slash ? 1 : slash == config_path ? 1 : (int)(slash - config_path);
  bool named = *model_type && *model_type != '-' && !strchr(model_type, '/') &&
               !model_type[strspn(model_type, plain)];
  const char *folder = treadle_arena_format(arena, "%.*s", length, slash ? config_path : ".");
  if (!folder) return NULL;
  if (strcmp(file, "config.json") != 0 || *folder == '-' || strchr(folder, '\''))
    return "treadle family new DIR"; /* whose it is it does not say, or not so that a shell takes it */
  const char *quote = folder[strspn(folder, plain)] ? "'" : "";
  return treadle_arena_format(arena, "treadle family new %s%s%s%s%s%s", quote, folder, quote,
                              named ? " -o " : "", named ? model_type : "", named ? ".yaml" : "");
}

treadle_status treadle_family_find(const char *folder, const char *model_type, const char *config_path,
                                   treadle_arena *arena, treadle_family **family_p) {
  treadle_family **families;
  int32_t count;
  treadle_status status = TREADLE_OK;
  if (!folder) TRY(find_built_in(model_type, arena, family_p));
  if (!folder && *family_p) return TREADLE_OK;
  TRY(treadle_family_all(folder, arena, &families, &count));
  treadle_nearest nearest = treadle_nearest_to(model_type);
  for (int32_t i = 0; i < count; i++) {
    for (const char **type = families[i]->model_types; *type; type++) treadle_nearest_try(&nearest, *type);
    if (!covers(families[i], model_type)) continue;
    *family_p = families[i];
    return TREADLE_OK;
  }
  const char *command = draft_command(config_path, model_type, arena);
  if (!command) return treadle_family_no_memory();
  status = treadle_fail(TREADLE_REFUSED,
                        "no family covers model_type '%s'; the nearest is '%s'. A draft of one: %s",
                        model_type, nearest.best, command);
out:
  return status;
}

const treadle_engine_rules *treadle_family_engine(const treadle_family *family, const char *engine) {
  for (int32_t i = 0; i < family->engine_count; i++)
    if (strcmp(family->engines[i].engine, engine) == 0) return &family->engines[i];
  return NULL;
}
