/* Folders of a fuzzer. */
#include "commands/folder.h"

#include <dirent.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void join(char path[FUZZ_PATH], const char *folder, const char *name) {
  if (snprintf(path, FUZZ_PATH, "%s%s%s", folder, *name ? "/" : "", name) >= FUZZ_PATH)
    errx(3, "%s/%s: too long", folder, name);
}

static int by_name(const void *a, const void *b) { return strcmp(a, b); }

static void walk(const char *root, const char *below, bool folders, fuzz_files *files) {
  char path[FUZZ_PATH];
  join(path, root, below);
  DIR *dir = opendir(path);
  if (!dir) return;
  for (struct dirent *entry; (entry = readdir(dir));) {
    char name[FUZZ_PATH], full[FUZZ_PATH];
    struct stat about;
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    join(name, *below ? below : entry->d_name, *below ? entry->d_name : "");
    join(full, root, name);
    if (lstat(full, &about) != 0) continue;
    bool folder = S_ISDIR(about.st_mode);
    if ((!folder || folders) && files->count < FUZZ_FILES && strlen(name) < sizeof files->names[0])
      strcpy(files->names[files->count++], name);
    if (folder) walk(root, name, folders, files);
  }
  closedir(dir);
}

void fuzz_folder_list(const char *folder, bool folders, fuzz_files *files) {
  files->count = 0;
  walk(folder, "", folders, files);
  qsort(files->names, (size_t)files->count, sizeof files->names[0], by_name);
}

void fuzz_folder_make(const char *path) {
  if (mkdir(path, 0777) != 0) err(3, "%s", path);
}

void fuzz_folder_remove(const char *path) {
  DIR *dir = opendir(path);
  if (!dir) {
    unlink(path);
    return;
  }
  for (struct dirent *entry; (entry = readdir(dir));) {
    char full[FUZZ_PATH];
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    join(full, path, entry->d_name);
    if (entry->d_type == DT_DIR)
      fuzz_folder_remove(full);
    else
      unlink(full);
  }
  closedir(dir);
  rmdir(path);
}

bool fuzz_exists(const char *path) {
  struct stat about;
  return lstat(path, &about) == 0;
}

void fuzz_file_link(const char *from, const char *to) {
  if (link(from, to) == 0) return;
  fuzz_bytes bytes = {0}; /* from another file system */
  if (!fuzz_file_read(from, &bytes)) err(3, "%s", from);
  fuzz_file_replace(to, bytes.at, bytes.count);
  fuzz_bytes_release(&bytes);
}

void fuzz_folder_link(const char *from, const char *to) {
  fuzz_folder_make(to);
  DIR *dir = opendir(from);
  if (!dir) err(3, "%s", from);
  for (struct dirent *entry; (entry = readdir(dir));) {
    char one[FUZZ_PATH], other[FUZZ_PATH];
    struct stat about;
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    join(one, from, entry->d_name);
    join(other, to, entry->d_name);
    if (stat(one, &about) == 0 && S_ISDIR(about.st_mode))
      fuzz_folder_link(one, other);
    else
      fuzz_file_link(one, other);
  }
  closedir(dir);
}

bool fuzz_file_read(const char *path, fuzz_bytes *bytes) {
  struct stat about;
  if (lstat(path, &about) != 0 || !S_ISREG(about.st_mode) || about.st_size > 64 << 20) return false;
  FILE *file = fopen(path, "rb");
  if (!file) return false;
  fuzz_bytes_replace(bytes, 0, bytes->count, NULL, 0);
  char *content = malloc((size_t)about.st_size + 1);
  size_t count = content ? fread(content, 1, (size_t)about.st_size, file) : 0;
  fuzz_bytes_replace(bytes, 0, 0, content, count);
  free(content);
  fclose(file);
  return true;
}

void fuzz_file_replace(const char *path, const void *bytes, size_t count) {
  if (unlink(path) != 0 && errno != ENOENT) err(3, "%s", path);
  FILE *file = fopen(path, "wb");
  if (!file || (count && fwrite(bytes, 1, count, file) != count) || fclose(file) != 0) err(3, "%s", path);
}

/* ---- Spoiling ---------------------------------------------------------------------------------- */

static void spoil_size(treadle_random *random, const char *path) {
  static const off_t sizes[] = {0, 1, 7, 8, 100, 4096, 1 << 20, (off_t)1 << 32, (off_t)1 << 40};
  fuzz_bytes bytes = {0};
  if (fuzz_file_read(path, &bytes)) {
    fuzz_file_replace(path, bytes.at, bytes.count);
    if (truncate(path, FUZZ_PICK(random, sizes)) != 0) warn("%s", path);
  }
  fuzz_bytes_release(&bytes);
}

/* Another thing in its place. */
static void spoil_kind(treadle_random *random, const char *path) {
  int failed;
  unlink(path);
  switch (treadle_random_below(random, 5)) {
  case 0: failed = mkdir(path, 0777); break;
  case 1: failed = mkfifo(path, 0666); break;
  case 2: failed = symlink("nowhere", path); break;
  case 3: failed = symlink("/dev/null", path); break;
  default: return;
  }
  if (failed) warn("%s", path);
}

static void spoil_name(treadle_random *random, const char *root, const fuzz_files *files,
                       const char *path) {
  char other[FUZZ_PATH];
  join(other, root, files->names[treadle_random_below(random, files->count)]);
  if (strcmp(other, path) == 0) join(other, root, "more");
  if (fuzz_one_in(random, 2)) {
    if (rename(path, other) != 0) warn("%s", path);
  } else {
    unlink(other);
    if (link(path, other) != 0) warn("%s", path);
  }
}

void fuzz_folder_spoil(treadle_random *random, const char *path) {
  static fuzz_files files;
  char full[FUZZ_PATH];
  struct stat about;
  fuzz_bytes bytes = {0};
  snprintf(full, sizeof full, "%s", path);
  files.count = 0;
  if (stat(path, &about) == 0 && S_ISDIR(about.st_mode)) {
    fuzz_folder_list(path, false, &files);
    if (!files.count) return;
    join(full, path, files.names[treadle_random_below(random, files.count)]);
  }
  int64_t way = treadle_random_below(random, 40);
  if (way == 0) spoil_size(random, full);
  if (way == 1) spoil_kind(random, full);
  if (way == 2 && files.count) spoil_name(random, path, &files, full);
  if (way > 2 && fuzz_file_read(full, &bytes)) {
    for (int64_t times = fuzz_one_in(random, 4) ? 3 : 1; times > 0; times--)
      fuzz_spoil_file(random, full, &bytes);
    fuzz_file_replace(full, bytes.at, bytes.count);
  }
  fuzz_bytes_release(&bytes);
}
