/* Families as users see them: treadle_tools.h. */
#include "base/alloc.h"
#include "base/sized.h"
#include "base/text.h"
#include "family/assemble.h"
#include "family/forward.h"
#include "io/file.h"
#include "treadle_tools.h"

#include <stdlib.h>
#include <string.h>

enum { LARGEST_FILE = 16 << 20 };

struct treadle_families {
  treadle_arena arena;
  const char *folder; /* NULL: those built in */
  treadle_family **items;
  const char ***engines; /* by family: names, ended by NULL */
  int32_t count;
};

static treadle_status list_engines(treadle_families *families, int32_t number) {
  const treadle_family *family = families->items[number];
  const char **names =
      treadle_arena_alloc_array(&families->arena, (size_t)family->engine_count + 1, sizeof *names);
  if (!names) return treadle_fail(TREADLE_NO_MEMORY, "no memory for families");
  for (int32_t e = 0; e < family->engine_count; e++) names[e] = family->engines[e].engine;
  families->engines[number] = names;
  return TREADLE_OK;
}

treadle_status treadle_families_open(const char *folder, treadle_families **families_p) {
  treadle_status status;
  TREADLE_NEED(families_p);
  *families_p = NULL;
  treadle_families *families = treadle_alloc(sizeof *families);
  if (!families) return treadle_fail(TREADLE_NO_MEMORY, "no memory for families");
  if (folder && !(families->folder = treadle_arena_copy_text(&families->arena, folder)))
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for families"));
  TRY(treadle_family_all(folder, &families->arena, &families->items, &families->count));
  families->engines =
      treadle_arena_alloc_array(&families->arena, (size_t)families->count + 1, sizeof *families->engines);
  if (!families->engines) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for families"));
  for (int32_t i = 0; i < families->count; i++) TRY(list_engines(families, i));
  *families_p = families;
  families = NULL;
out:
  treadle_families_close(families);
  return status;
}

void treadle_families_close(treadle_families *families) {
  if (!families) return;
  treadle_arena_release(&families->arena);
  treadle_free(families);
}

int32_t treadle_families_count(const treadle_families *families) {
  TREADLE_NEED_OR(families, -1);
  return families->count;
}

static treadle_status check_number(const treadle_families *families, int32_t family) {
  if (family >= 0 && family < families->count) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED, "family %d is none of the %d", (int)family, (int)families->count);
}

treadle_status treadle_families_get(const treadle_families *families, int32_t family,
                                    treadle_family_info *info_p) {
  treadle_status status;
  TREADLE_NEED(families);
  TREADLE_NEED_SIZED(info_p);
  TRY(check_number(families, family));
  const treadle_family *of = families->items[family];
  const treadle_family_info info = {.name = of->name,
                                    .path = of->path,
                                    .model_types = of->model_types,
                                    .engines = families->engines[family],
                                    .tensors = of->pattern_count,
                                    .open = of->to_say_count,
                                    .not_generated = treadle_family_not_generated(of),
                                    .not_trained = treadle_family_not_trained(of)};
  TREADLE_GIVE(info_p, &info);
out:
  return status;
}

int32_t treadle_families_find(const treadle_families *families, const char *name) {
  const char *nearest = NULL;
  TREADLE_NEED_OR(families, -1);
  TREADLE_NEED_OR(name, -1);
  int least = strlen(name) < 6 ? 3 : 4; /* further away is not a typing error */
  for (int32_t i = 0; i < families->count; i++) {
    const char *own = families->items[i]->name;
    int distance = treadle_text_distance(name, own);
    if (strcmp(own, name) == 0) return i;
    if (distance >= least) continue;
    least = distance;
    nearest = own;
  }
  if (nearest)
    treadle_fail(TREADLE_REFUSED, "there is no family '%s'; did you mean '%s'?", name, nearest);
  else
    treadle_fail(TREADLE_REFUSED, "there is no family '%s'; treadle family list has them", name);
  return -1;
}

treadle_status treadle_families_text(const treadle_families *families, int32_t family, char **text_p) {
  treadle_status status;
  char *read = NULL;
  const char *text = "";
  size_t length = 0;
  TREADLE_NEED(text_p);
  *text_p = NULL;
  TREADLE_NEED(families);
  TRY(check_number(families, family));
  const char *path = families->items[family]->path, *slash = strrchr(path, '/');
  if (families->folder) {
    TRY(treadle_file_read(path, LARGEST_FILE, &read, &length));
    text = read;
  }
  for (const treadle_family_text *file = treadle_family_texts; !families->folder && file->name; file++)
    if (strcmp(file->name, slash ? slash + 1 : path) == 0) text = file->text;
  *text_p = strdup(text);
  if (!*text_p) TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its text", path));
out:
  treadle_free(read);
  return status;
}

treadle_status treadle_families_expanded(const treadle_families *families, int32_t family, char **text_p) {
  treadle_status status;
  treadle_builder built = {0};
  char *text = NULL;
  TREADLE_NEED(text_p);
  *text_p = NULL;
  TREADLE_NEED(families);
  TRY(treadle_families_text(families, family, &text));
  TRY(treadle_family_write(families->items[family]->path, text, strlen(text), families->folder, &built));
  *text_p = strdup(built.text);
  if (!*text_p)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its text", families->items[family]->path));
out:
  treadle_builder_release(&built);
  free(text);
  return status;
}
