/* The target's folder: journal, leftovers, room. */
#include "convert/folder.h"

#include "base/alloc.h"
#include "base/text.h"
#include "io/file.h"
#include "io/file_look.h"
#include "io/folder.h"
#include "io/json.h"
#include "io/path.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char JOURNAL[] = TREADLE_JOURNAL_FILE;
static const char OLD_LOCK_FILE[] = "treadle-convert.lock"; /* of versions before treadle.lock */
static bool is_leftover(const char *name) {
  size_t stem;
  return treadle_folder_is_left_over(name, &stem);
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
  if (strcmp(name, TREADLE_LOCK_FILE) == 0) return true; /* ours, or that of one who was killed */
  if (strcmp(name, OLD_LOCK_FILE) == 0) return true;
  snprintf(context, 256, "%s", name);
  return false;
}

/* ---- The journal ------------------------------------------------------------------------------- */

typedef struct hash_text {
  char text[24];
} hash_text;

static hash_text text_of(uint64_t hash) {
  hash_text text;
  snprintf(text.text, sizeof text.text, "%016" PRIx64, hash);
  return text;
}

static bool same_text(const json_t *root, const char *key, const char *wanted) {
  const char *said = json_string_value(json_object_get(root, key));
  return said && strcmp(said, wanted) == 0;
}

static treadle_status read_journal(treadle_out_folder *folder, const char *path) {
  treadle_status status;
  json_t *root = NULL;
  const hash_text digest = text_of(folder->digest), in = text_of(folder->in);
  TRY(treadle_json_load(path, &root));
  const char *from = json_string_value(json_object_get(root, "from"));
  const char *to = json_string_value(json_object_get(root, "to"));
  folder->resumed = same_text(root, "digest", digest.text);
  folder->again = !folder->resumed && same_text(root, "in", in.text) &&
                  same_text(root, "from", folder->from) && same_text(root, "to", folder->to);
  if (folder->resumed) TRY(treadle_records_read(&folder->records, folder->path, &folder->digest));
  if (!folder->resumed && !folder->again)
    status = treadle_fail(
        TREADLE_REFUSED,
        "%s: an unfinished conversion from %s to %s, of other files or layouts, is in it: finish that one, "
        "or remove the folder",
        folder->path, from ? from : "(unknown)", to ? to : "(unknown)");
out:
  json_decref(root);
  return status;
}

static treadle_status write_journal(const treadle_out_folder *folder, const char *digest) {
  treadle_status status;
  treadle_path journal;
  const hash_text in = text_of(folder->in);
  json_t *root = json_pack("{s:s, s:s, s:s, s:s}", "digest", digest, "from", folder->from, "to", folder->to,
                           "in", in.text);
  char *text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
  if (!text) TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for the journal", folder->path));
  TRY(treadle_path_join(folder->path, JOURNAL, &journal));
  TRY(treadle_file_write(journal.text, text, strlen(text)));
out:
  free(text);
  json_decref(root);
  return status;
}

treadle_status treadle_out_folder_look(treadle_out_folder *folder) {
  treadle_status status;
  treadle_path journal;
  char foreign[256] = "";
  TRY(treadle_folder_lock_take(folder->path, false, &folder->lock));
  TRY(treadle_path_join(folder->path, JOURNAL, &journal));
  if (treadle_file_exists(journal.text)) {
    TRY(read_journal(folder, journal.text));
    goto out;
  }
  TRY(walk(folder->path, note_foreign, foreign));
  if (*foreign)
    status =
        treadle_fail(TREADLE_REFUSED, "%s: is not empty (it has %s), and is not an unfinished conversion",
                     folder->path, foreign);
out:
  return status;
}

static bool remove_leftover(void *context, const char *folder, const char *name) {
  treadle_path path;
  struct stat about;
  if (treadle_path_join(folder, name, &path) != TREADLE_OK || lstat(path.text, &about) != 0) return true;
  if (S_ISREG(about.st_mode) && is_leftover(name)) unlink(path.text);
  if (S_ISDIR(about.st_mode)) (void)walk(path.text, remove_leftover, context);
  return true;
}

treadle_status treadle_out_folder_begin(treadle_out_folder *folder) {
  treadle_status status = TREADLE_OK;
  if (folder->again) TRY(treadle_records_undo(folder->path));
  if (!folder->resumed) TRY(write_journal(folder, text_of(folder->digest).text));
  folder->begun = true;
  TRY(walk(folder->path, remove_leftover, NULL));
  if (folder->ranks > 1) TRY(treadle_folder_lock_share(&folder->lock));
out:
  return status;
}

treadle_status treadle_out_folder_join(treadle_out_folder *folder) {
  treadle_status status;
  json_t *root = NULL;
  treadle_path journal;
  unsigned long long digest = 0;
  TRY(treadle_folder_lock_join(folder->path, folder->rank, &folder->lock));
  TRY(treadle_path_join(folder->path, JOURNAL, &journal));
  TRY(treadle_json_load(journal.text, &root));
  const char *said = json_string_value(json_object_get(root, "digest"));
  if (!said || sscanf(said, "%16llx", &digest) != 1)
    TRY(treadle_fail(TREADLE_REFUSED, "%s: another treadle writes here", folder->path));
  folder->digest = digest; /* that of rank 0 */
  TRY(treadle_records_read(&folder->records, folder->path, &folder->digest));
  folder->begun = true;
out:
  json_decref(root);
  return status;
}

treadle_status treadle_out_folder_note(const treadle_out_folder *folder, const treadle_record *record) {
  return treadle_records_add(folder->path, folder->rank, folder->digest, record);
}

treadle_status treadle_out_folder_whole(const treadle_out_folder *folder, const char *path,
                                        const treadle_record **record_p) {
  treadle_status status = TREADLE_OK;
  const treadle_record *record = treadle_records_find(&folder->records, path);
  treadle_path full;
  struct stat about;
  int64_t bytes;
  uint64_t sum;
  *record_p = NULL;
  TRY(treadle_path_join(folder->path, path, &full));
  if (!record || record->bytes < 0 || lstat(full.text, &about) != 0 || !S_ISREG(about.st_mode) ||
      about.st_size != record->bytes)
    goto out;
  TRY(treadle_file_sum(full.text, &bytes, &sum));
  if (bytes == record->bytes && sum == record->sum) *record_p = record;
out:
  return status;
}

void treadle_out_folder_spoil(treadle_out_folder *folder) {
  treadle_path journal;
  if (!folder->begun) return;
  (void)write_journal(folder, "(the inputs have changed)");
  (void)treadle_records_undo(folder->path);
  if (folder->ranks == 1 && treadle_path_join(folder->path, JOURNAL, &journal) == TREADLE_OK)
    unlink(journal.text);
}

treadle_status treadle_out_folder_finish(treadle_out_folder *folder) {
  treadle_status status;
  treadle_path journal;
  TRY(treadle_records_remove(folder->path));
  TRY(treadle_path_join(folder->path, JOURNAL, &journal));
  if (unlink(journal.text) != 0)
    status = treadle_fail(TREADLE_SYSTEM, "%s: cannot be removed: %s", journal.text, strerror(errno));
out:
  return status;
}

void treadle_out_folder_release(treadle_out_folder *folder) {
  treadle_folder_lock_end(&folder->lock, folder->rank == 0);
  treadle_records_release(&folder->records);
}

treadle_status treadle_out_folder_make(const treadle_out_folder *folder, const char *path) {
  treadle_status status;
  treadle_path full;
  TRY(treadle_path_join(folder->path, path, &full));
  for (char *at = full.text + strlen(folder->path) + 1; (at = strchr(at, '/')); at++) {
    *at = 0;
    struct stat about;
    if (mkdir(full.text, 0777) && errno != EEXIST)
      TRY(treadle_fail(TREADLE_SYSTEM, "%s: the folder cannot be made: %s", full.text, strerror(errno)));
    if (lstat(full.text, &about) == 0 && !S_ISDIR(about.st_mode)) /* a link would lead elsewhere */
      TRY(treadle_fail(TREADLE_REFUSED, "%s: is not a folder, and files of the result go there",
                       full.text));
    *at = '/';
  }
out:
  return status;
}

treadle_status treadle_out_folder_room(const treadle_out_folder *folder, int64_t bytes) {
  return treadle_file_room(folder->path, bytes > 0 ? (uint64_t)bytes : 0, 0);
}
