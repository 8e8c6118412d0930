#include "io/folder.h"

#include "base/text.h"
#include "io/file_look.h"
#include "io/folder_lock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static treadle_status system_says(const char *path, const char *verb) {
  return treadle_fail(TREADLE_SYSTEM, "%s: cannot %s: %s", path, verb, strerror(errno));
}

treadle_status treadle_folder_create_beside(const char *path, char *made, size_t room) {
  static atomic_uint number;
  for (int attempt = 0; attempt < 100; attempt++) {
    int length = snprintf(made, room, "%s.%ld-%u.tmp", path, (long)getpid(), atomic_fetch_add(&number, 1));
    if (length < 0 || (size_t)length >= room)
      return treadle_fail(TREADLE_REFUSED, "%s: the path is too long", path);
    if (mkdir(made, 0777) == 0) return TREADLE_OK;
    if (errno != EEXIST) break;
  }
  return system_says(made, "make the folder");
}

treadle_status treadle_folder_sync(const char *path) {
  int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return system_says(path, "open the folder");
  int failed = fsync(folder) != 0 && errno != EINVAL; /* EINVAL: a file system that does not sync folders */
  treadle_status status = failed ? system_says(path, "sync the folder") : TREADLE_OK;
  close(folder);
  return status;
}

/* The folder above, which "." and "/" are to themselves. */
static treadle_status sync_above(const char *path) {
  char above[4096];
  if (strlen(path) >= sizeof above) return treadle_fail(TREADLE_REFUSED, "%s: the path is too long", path);
  strcpy(above, path);
  char *slash = strrchr(above, '/');
  if (!slash)
    strcpy(above, ".");
  else
    slash[slash == above] = 0; /* of "/x" the "/" stays */
  return treadle_folder_sync(above);
}

treadle_status treadle_folder_commit(const char *from, const char *to) {
  treadle_status status;
  TRY(treadle_folder_sync(from));
  if (rename(from, to) != 0) {
    status =
        errno == ENOTEMPTY || errno == EEXIST
            ? treadle_fail(TREADLE_REFUSED, "%s: the folder is not empty", to)
            : treadle_fail(TREADLE_SYSTEM, "%s: cannot be renamed to %s: %s", from, to, strerror(errno));
    goto out;
  }
  TRY(sync_above(to));
out:
  return status;
}

treadle_status treadle_folder_exchange(const char *from, const char *to) {
  treadle_status status;
  char aside[4096];
  TRY(treadle_folder_sync(from));
  if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE) != 0) {
    TRY(treadle_folder_create_beside(to, aside, sizeof aside));
    if (rename(to, aside) != 0) TRY(system_says(to, "rename"));
    if (rename(from, to) != 0) TRY(system_says(from, "rename"));
    if (rename(aside, from) != 0) TRY(system_says(aside, "rename"));
  }
  TRY(sync_above(to));
out:
  return status;
}

static int remove_one(const char *path, const struct stat *about, int type, struct FTW *where) {
  (void)about, (void)type, (void)where;
  return remove(path) != 0 && errno != ENOENT;
}

treadle_status treadle_folder_remove(const char *path) {
  enum { OPEN_MOST = 16 };
  struct stat about;
  if (lstat(path, &about) != 0 && errno == ENOENT) return TREADLE_OK;
  if (nftw(path, remove_one, OPEN_MOST, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT)
    return system_says(path, "remove the folder");
  return TREADLE_OK;
}

void treadle_folder_drop(const char *path) {
  char message[2048];
  snprintf(message, sizeof message, "%s", treadle_error_message());
  const treadle_status status = treadle_folder_remove(path);
  if (status) (void)treadle_fail(status, "%s", message);
}

treadle_status treadle_folder_list(const char *path, treadle_arena *arena, treadle_folder_names *names) {
  treadle_status status = TREADLE_OK;
  DIR *listing = opendir(path);
  if (!listing) return treadle_fail(TREADLE_SYSTEM, "%s: cannot be listed: %s", path, strerror(errno));
  for (struct dirent *entry; (entry = readdir(listing));) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    const char *name = treadle_arena_copy_text(arena, entry->d_name);
    if (!name) TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its names", path));
    TRY(treadle_array_push(names, name));
  }
out:
  closedir(listing);
  return status;
}

/* Where digits that end at `end` begin. */
static const char *digits_before(const char *name, const char *end) {
  while (end > name && end[-1] >= '0' && end[-1] <= '9') end--;
  return end;
}

bool treadle_folder_is_left_over(const char *name, size_t *stem_p) {
  size_t length = strlen(name);
  if (length < 9 || strcmp(name + length - 4, ".tmp") != 0) return false;
  const char *number = digits_before(name, name + length - 4);
  if (number == name + length - 4 || number == name || number[-1] != '-') return false;
  const char *process = digits_before(name, number - 1);
  if (process == number - 1 || process - name < 2 || process[-1] != '.') return false;
  *stem_p = (size_t)(process - 1 - name);
  return true;
}

treadle_status treadle_folder_remove_left_over(const char *folder, bool (*takes)(const char *stem)) {
  treadle_status status;
  treadle_arena arena = {0};
  treadle_folder_names names = {0};
  char path[4096], stem[256];
  size_t length;
  TRY(treadle_folder_list(folder, &arena, &names));
  for (size_t i = 0; i < names.count; i++) {
    if (!treadle_folder_is_left_over(names.items[i], &length) || length >= sizeof stem) continue;
    snprintf(stem, sizeof stem, "%.*s", (int)length, names.items[i]);
    if (!takes(stem) || (size_t)snprintf(path, sizeof path, "%s/%s", folder, names.items[i]) >= sizeof path)
      continue;
    TRY(treadle_folder_remove(path));
  }
out:
  treadle_array_release(&names);
  treadle_arena_release(&arena);
  return status;
}

bool treadle_folder_is_companion(const char *name) {
  static const char *const others[] = {".safetensors",   ".bin",     ".pt",
                                       ".pth",           ".gguf",    ".h5",
                                       ".tmp",           ".msgpack", ".safetensors.index.json",
                                       ".bin.index.json"};
  size_t length = strlen(name);
  if (name[0] == '.' || treadle_text_starts(name, "treadle-convert.") ||
      strcmp(name, "treadle-shards.json") == 0 || strcmp(name, TREADLE_LOCK_FILE) == 0)
    return false;
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    size_t end = strlen(others[i]);
    if (length > end && strcmp(name + length - end, others[i]) == 0) return false;
  }
  return true;
}

static treadle_status no_memory(const char *path) {
  return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for the names of its files", path);
}

/* A plain file, or a link to one, is one more name. */
static treadle_status add_plain(const char *path, const char *name, treadle_folder_names *names) {
  treadle_file_type type;
  treadle_status status = treadle_file_look(path, &type);
  if (status == TREADLE_REFUSED)
    status = TREADLE_OK; /* a link that leads nowhere: treadle_folder_check_companions */
  TRY(status);
  if (type == TREADLE_FILE_PLAIN) TRY(treadle_array_push(names, name));
out:
  return status;
}

static int compare_names(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

treadle_status treadle_folder_list_templates(const char *path, treadle_arena *arena,
                                             treadle_folder_names *names) {
  static const char ending[] = ".jinja";
  enum { ENDING = sizeof ending - 1 };
  treadle_folder_names all = {0};
  struct stat about;
  treadle_status status = TREADLE_OK;
  const char *folder = treadle_arena_format(arena, "%s/" TREADLE_TEMPLATES_FOLDER, path);
  if (!folder) return no_memory(path);
  if (stat(folder, &about) != 0 || !S_ISDIR(about.st_mode)) return TREADLE_OK;
  TRY(treadle_folder_list(folder, arena, &all));
  for (size_t i = 0; i < all.count; i++) {
    size_t length = strlen(all.items[i]);
    if (length <= ENDING || strcmp(all.items[i] + length - ENDING, ending) != 0) continue;
    const char *file = treadle_arena_format(arena, "%s/%s", folder, all.items[i]),
               *name = treadle_arena_format(arena, "%.*s", (int)(length - ENDING), all.items[i]);
    if (!file || !name) TRY(no_memory(folder));
    TRY(add_plain(file, name, names));
  }
  if (names->count) qsort(names->items, names->count, sizeof *names->items, compare_names);
out:
  treadle_array_release(&all);
  return status;
}

treadle_status treadle_folder_list_companions(const char *path, treadle_arena *arena,
                                              treadle_folder_names *names) {
  treadle_folder_names all = {0}, templates = {0};
  treadle_status status;
  TRY(treadle_folder_list(path, arena, &all));
  for (size_t i = 0; i < all.count; i++) {
    if (!treadle_folder_is_companion(all.items[i])) continue;
    const char *file = treadle_arena_format(arena, "%s/%s", path, all.items[i]);
    if (!file) TRY(no_memory(path));
    TRY(add_plain(file, all.items[i], names));
  }
  TRY(treadle_folder_list_templates(path, arena, &templates));
  for (size_t i = 0; i < templates.count; i++) {
    const char *name =
        treadle_arena_format(arena, TREADLE_TEMPLATES_FOLDER "/%s.jinja", templates.items[i]);
    if (!name) TRY(no_memory(path));
    TRY(treadle_array_push(names, name));
  }
out:
  treadle_array_release(&all);
  treadle_array_release(&templates);
  return status;
}

/* What copying would meet after hours of work. */
static treadle_status check_companion(const char *path) {
  treadle_file_type type;
  struct stat about;
  treadle_status status;
  TRY(treadle_file_look(path, &type)); /* a link that leads nowhere */
  if (type != TREADLE_FILE_PLAIN) return TREADLE_OK;
  if (access(path, R_OK) != 0)
    REFUSE("%s: cannot be read, and is to be copied beside the weights: %s", path, strerror(errno));
  if (stat(path, &about) == 0 && about.st_size > TREADLE_COMPANION_MOST)
    REFUSE("%s: has %lld bytes, and is to be copied beside the weights; at most %d are: keep it in another "
           "folder",
           path, (long long)about.st_size, TREADLE_COMPANION_MOST);
out:
  return status;
}

treadle_status treadle_folder_check_companions(const char *path) {
  treadle_arena arena = {0};
  treadle_folder_names all = {0};
  treadle_status status;
  TRY(treadle_folder_list(path, &arena, &all));
  for (size_t i = 0; i < all.count; i++) {
    if (!treadle_folder_is_companion(all.items[i])) continue;
    const char *file = treadle_arena_format(&arena, "%s/%s", path, all.items[i]);
    if (!file) TRY(no_memory(path));
    TRY(check_companion(file));
  }
out:
  treadle_array_release(&all);
  treadle_arena_release(&arena);
  return status;
}
