/* The target's folder: journal, leftovers, room, companions. */
#include "convert/folder.h"

#include "base/alloc.h"
#include "base/text.h"
#include "io/file.h"
#include "io/json.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static const char JOURNAL[] = "treadle-convert.json";
enum { PATH_BYTES = 4096, COMPANION_MAX = 256 << 20 };

typedef struct path_text {
  char text[PATH_BYTES];
} path_text;

static treadle_status join(const char *folder, const char *name, path_text *path_p) {
  int length = snprintf(path_p->text, sizeof path_p->text, "%s/%s", folder, name);
  if (length < 0 || (size_t)length >= sizeof path_p->text)
    return treadle_fail(TREADLE_REFUSED, "%s/%s: the path is too long", folder, name);
  return TREADLE_OK;
}

/* "NAME.123-4.tmp": what a writer that was killed left (io/file_write.c). */
static bool is_leftover(const char *name) {
  size_t length = strlen(name);
  if (length < 9 || strcmp(name + length - 4, ".tmp") != 0) return false;
  const char *at = name + length - 4, *end = at;
  while (at > name && at[-1] >= '0' && at[-1] <= '9') at--;
  if (at == end || at == name || at[-1] != '-') return false;
  end = --at;
  while (at > name && at[-1] >= '0' && at[-1] <= '9') at--;
  return at != end && at > name && at[-1] == '.';
}

/* Calls `visit` for each entry of a folder; false from it ends the walk. */
static treadle_status
walk(const char *path, bool (*visit)(void *context, const char *folder, const char *name), void *context) {
  DIR *listing = opendir(path);
  if (!listing) return treadle_fail(TREADLE_SYSTEM, "%s: cannot be listed: %s", path, strerror(errno));
  for (struct dirent *entry; (entry = readdir(listing));) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    if (!visit(context, path, entry->d_name)) break;
  }
  closedir(listing);
  return TREADLE_OK;
}

static bool note_foreign(void *context, const char *folder, const char *name) {
  (void)folder;
  if (is_leftover(name) && treadle_text_starts(name, JOURNAL)) return true;
  snprintf(context, 256, "%s", name);
  return false;
}

/* ---- The journal ------------------------------------------------------------------------------- */

static treadle_status read_journal(treadle_out_folder *folder, const char *path) {
  treadle_status status;
  json_t *root = NULL;
  char digest[24];
  snprintf(digest, sizeof digest, "%016" PRIx64, folder->digest);
  TRY(treadle_json_load(path, &root));
  const char *said = json_string_value(json_object_get(root, "digest"));
  const char *from = json_string_value(json_object_get(root, "from"));
  const char *to = json_string_value(json_object_get(root, "to"));
  if (!said || strcmp(said, digest) != 0)
    TRY(treadle_fail(
        TREADLE_REFUSED,
        "%s: an unfinished conversion from %s to %s, of other files or layouts, is in it: finish that one, "
        "or remove the folder",
        folder->path, from ? from : "(unknown)", to ? to : "(unknown)"));
  folder->resumed = true;
out:
  json_decref(root);
  return status;
}

treadle_status treadle_out_folder_look(treadle_out_folder *folder) {
  treadle_status status;
  path_text journal;
  char foreign[256] = "";
  folder->journal = -1;
  if (!treadle_file_exists(folder->path)) return TREADLE_OK;
  if (!treadle_file_is_folder(folder->path))
    return treadle_fail(TREADLE_REFUSED, "%s: is a file, and the result is a folder", folder->path);
  TRY(join(folder->path, JOURNAL, &journal));
  if (treadle_file_exists(journal.text)) return read_journal(folder, journal.text);
  TRY(walk(folder->path, note_foreign, foreign));
  if (*foreign)
    status =
        treadle_fail(TREADLE_REFUSED, "%s: is not empty (it has %s), and is not an unfinished conversion",
                     folder->path, foreign);
out:
  return status;
}

static bool remove_leftover(void *context, const char *folder, const char *name) {
  path_text path;
  struct stat about;
  if (join(folder, name, &path) != TREADLE_OK || lstat(path.text, &about) != 0) return true;
  if (S_ISREG(about.st_mode) && is_leftover(name)) unlink(path.text);
  if (S_ISDIR(about.st_mode)) (void)walk(path.text, remove_leftover, context);
  return true;
}

treadle_status treadle_out_folder_begin(treadle_out_folder *folder) {
  treadle_status status = TREADLE_OK;
  path_text journal;
  char *text = NULL;
  if (mkdir(folder->path, 0777) && errno != EEXIST)
    return treadle_fail(TREADLE_SYSTEM, "%s: the folder cannot be made: %s", folder->path, strerror(errno));
  TRY(join(folder->path, JOURNAL, &journal));
  if (!folder->resumed) {
    char digest[24];
    snprintf(digest, sizeof digest, "%016" PRIx64, folder->digest);
    json_t *root = json_pack("{s:s, s:s, s:s}", "digest", digest, "from", folder->from, "to", folder->to);
    text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    if (!text) TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for the journal", folder->path));
    TRY(treadle_file_write(journal.text, text, strlen(text)));
  }
  folder->journal = open(journal.text, O_RDONLY | O_CLOEXEC);
  if (folder->journal < 0)
    TRY(treadle_fail(TREADLE_SYSTEM, "%s: cannot open: %s", journal.text, strerror(errno)));
  if (flock(folder->journal, LOCK_EX | LOCK_NB) != 0)
    TRY(treadle_fail(TREADLE_REFUSED, "%s: another process is writing to it", folder->path));
  TRY(walk(folder->path, remove_leftover, NULL));
out:
  free(text);
  return status;
}

treadle_status treadle_out_folder_finish(treadle_out_folder *folder) {
  treadle_status status;
  path_text journal;
  TRY(join(folder->path, JOURNAL, &journal));
  if (unlink(journal.text) != 0)
    status = treadle_fail(TREADLE_SYSTEM, "%s: cannot be removed: %s", journal.text, strerror(errno));
out:
  return status;
}

void treadle_out_folder_release(treadle_out_folder *folder) {
  if (folder->journal >= 0) close(folder->journal);
  folder->journal = -1;
}

treadle_status treadle_out_folder_make(const treadle_out_folder *folder, const char *path) {
  treadle_status status;
  path_text full;
  TRY(join(folder->path, path, &full));
  for (char *at = full.text + strlen(folder->path) + 1; (at = strchr(at, '/')); at++) {
    *at = 0;
    if (mkdir(full.text, 0777) && errno != EEXIST)
      TRY(treadle_fail(TREADLE_SYSTEM, "%s: the folder cannot be made: %s", full.text, strerror(errno)));
    *at = '/';
  }
out:
  return status;
}

treadle_status treadle_out_folder_room(const treadle_out_folder *folder, int64_t bytes) {
  struct statvfs about;
  if (statvfs(folder->path, &about) != 0)
    return treadle_fail(TREADLE_SYSTEM, "%s: does not say how much room there is: %s", folder->path,
                        strerror(errno));
  uint64_t room = (uint64_t)about.f_bavail * (uint64_t)about.f_frsize;
  if (bytes > 0 && room < (uint64_t)bytes)
    return treadle_fail(TREADLE_SYSTEM, "%s: there is room for %s on its disk, and %s are to be written",
                        folder->path, treadle_text_of_size((size_t)room),
                        treadle_text_of_size((size_t)bytes));
  return TREADLE_OK;
}

/* ---- Companions -------------------------------------------------------------------------------- */

static bool is_companion(const char *name) {
  static const char *const others[] = {".safetensors",   ".bin",     ".pt",
                                       ".pth",           ".gguf",    ".h5",
                                       ".tmp",           ".msgpack", ".safetensors.index.json",
                                       ".bin.index.json"};
  size_t length = strlen(name);
  if (name[0] == '.' || strcmp(name, JOURNAL) == 0 || strcmp(name, "treadle-shards.json") == 0)
    return false;
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    size_t end = strlen(others[i]);
    if (length > end && strcmp(name + length - end, others[i]) == 0) return false;
  }
  return true;
}

typedef struct copying {
  const char *to;
  treadle_status status;
} copying;

static bool copy_companion(void *context, const char *folder, const char *name) {
  copying *c = context;
  path_text from, to;
  struct stat about;
  char *bytes = NULL;
  size_t count;
  treadle_status status;
  if (!is_companion(name)) return true;
  TRY(join(folder, name, &from));
  TRY(join(c->to, name, &to));
  if (stat(from.text, &about) != 0 || !S_ISREG(about.st_mode) || treadle_file_exists(to.text)) return true;
  TRY(treadle_file_read(from.text, COMPANION_MAX, &bytes, &count));
  TRY(treadle_file_write(to.text, bytes, count));
out:
  treadle_free(bytes);
  c->status = status;
  return status == TREADLE_OK;
}

treadle_status treadle_copy_companions(const char *from, const char *to) {
  copying c = {.to = to, .status = TREADLE_OK};
  treadle_status status = walk(from, copy_companion, &c);
  return status == TREADLE_OK ? c.status : status;
}
