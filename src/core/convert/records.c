/* Lists of what was written: lines of checksum, journal, bytes, sum, unsettled bytes and sum, path. A line begins with the
 * end of the one before, which may have been torn. */
#include "convert/records.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "base/text.h"
#include "io/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char BEGIN[] = "treadle-convert.", END[] = ".done";
enum { LARGEST_LIST = 1 << 28, PATH_BYTES = 4096, LINE_BYTES = PATH_BYTES + 160 };

static treadle_status no_memory(const char *folder) {
  return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for what was written", folder);
}

void treadle_records_release(treadle_records *records) {
  treadle_array_release(&records->items);
  treadle_hash_map_release(&records->by_path);
  treadle_arena_release(&records->arena);
  *records = (treadle_records){0};
}

bool treadle_path_stays(const char *path) {
  if (!*path || *path == '/') return false;
  for (const char *at = path; at; at = strchr(at, '/')) {
    at += *at == '/';
    if (strncmp(at, "..", 2) == 0 && (at[2] == 0 || at[2] == '/')) return false;
  }
  return true;
}

/* ---- The lists --------------------------------------------------------------------------------- */

static bool is_list(const char *name) {
  size_t length = strlen(name), digits = strspn(name + (length > 16 ? 16 : length), "0123456789");
  return treadle_text_starts(name, BEGIN) && digits > 0 && strcmp(name + strlen(BEGIN) + digits, END) == 0;
}

/* Calls `visit` for each list of a folder. */
static treadle_status each_list(const char *folder,
                                treadle_status (*visit)(const char *path, void *context), void *context) {
  treadle_status status = TREADLE_OK;
  char path[PATH_BYTES];
  DIR *listing = opendir(folder);
  if (!listing) return treadle_fail(TREADLE_SYSTEM, "%s: cannot be listed: %s", folder, strerror(errno));
  for (struct dirent *entry; (entry = readdir(listing));)
    if (is_list(entry->d_name) &&
        (size_t)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) < sizeof path)
      TRY(visit(path, context));
out:
  closedir(listing);
  return status;
}

static treadle_status remove_list(const char *path, void *context) {
  (void)context;
  return unlink(path) == 0 || errno == ENOENT
             ? TREADLE_OK
             : treadle_fail(TREADLE_SYSTEM, "%s: cannot be removed: %s", path, strerror(errno));
}

treadle_status treadle_records_remove(const char *folder) { return each_list(folder, remove_list, NULL); }

/* ---- Reading ----------------------------------------------------------------------------------- */

typedef struct reading {
  treadle_records *records;
  const uint64_t *journal;
} reading;

static treadle_status take_line(const reading *r, char *line) {
  treadle_status status = TREADLE_OK;
  treadle_record record = {0};
  uint64_t check, journal;
  int at = 0, path = 0;
  if (sscanf(line, "%16" SCNx64 " %n%16" SCNx64 " %" SCNd64 " %16" SCNx64 " %" SCNd64 " %16" SCNx64 " %n",
             &check, &at, &journal, &record.bytes, &record.sum, &record.unsettled_bytes,
             &record.unsettled_sum, &path) != 6 ||
      path == 0 || treadle_hash_text(line + at, 0) != check)
    return TREADLE_OK;
  if ((r->journal && journal != *r->journal) || !treadle_path_stays(line + path)) return TREADLE_OK;
  record.path = treadle_arena_copy_text(&r->records->arena, line + path);
  if (!record.path) TRY(no_memory(line + path));
  TRY(treadle_array_push(&r->records->items, record));
  TRY(treadle_hash_map_put(&r->records->by_path, record.path, (int64_t)r->records->items.count - 1));
out:
  return status;
}

static treadle_status read_list(const char *path, void *context) {
  treadle_status status;
  char *text = NULL;
  size_t length;
  TRY(treadle_file_read(path, LARGEST_LIST, &text, &length));
  for (char *line = text, *next; line < text + length; line = next) {
    char *end = memchr(line, '\n', (size_t)(text + length - line));
    next = end ? end + 1 : text + length;
    if (end) *end = 0;
    TRY(take_line(context, line));
  }
out:
  treadle_free(text);
  return status;
}

treadle_status treadle_records_read(treadle_records *records, const char *folder, const uint64_t *journal) {
  reading r = {records, journal};
  return each_list(folder, read_list, &r);
}

const treadle_record *treadle_records_find(const treadle_records *records, const char *path) {
  int64_t at = treadle_hash_map_get(&records->by_path, path, -1);
  return at < 0 ? NULL : &records->items.items[at];
}

/* ---- Writing ----------------------------------------------------------------------------------- */

treadle_status treadle_records_add(const char *folder, int rank, uint64_t journal,
                                   const treadle_record *record) {
  char path[PATH_BYTES], line[LINE_BYTES], whole[LINE_BYTES + 32];
  snprintf(path, sizeof path, "%s/%s%d%s", folder, BEGIN, rank, END);
  snprintf(line, sizeof line, "%016" PRIx64 " %" PRId64 " %016" PRIx64 " %" PRId64 " %016" PRIx64 " %s",
           journal, record->bytes, record->sum, record->unsettled_bytes, record->unsettled_sum,
           record->path);
  int length = snprintf(whole, sizeof whole, "\n%016" PRIx64 " %s\n", treadle_hash_text(line, 0), line);
  int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd < 0) return treadle_fail(TREADLE_SYSTEM, "%s: cannot open: %s", path, strerror(errno));
  ssize_t put;
  do {
    put = write(fd, whole, (size_t)length);
  } while (put < 0 && errno == EINTR);
  int error = errno;
  close(fd);
  return put == length ? TREADLE_OK
                       : treadle_fail(TREADLE_SYSTEM, "%s: cannot write: %s", path,
                                      put < 0 ? strerror(error) : "the disk is full");
}

/* ---- Undoing ----------------------------------------------------------------------------------- */

static void remove_file(const char *folder, const char *name) {
  char path[PATH_BYTES];
  struct stat about;
  size_t least = strlen(folder) + 1;
  if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) >= sizeof path) return;
  if (lstat(path, &about) == 0 && (!S_ISREG(about.st_mode) || unlink(path) != 0)) return;
  for (char *slash; (slash = strrchr(path + least, '/'));) { /* the folder itself stays */
    *slash = 0;
    if (rmdir(path) != 0) break;
  }
}

treadle_status treadle_records_undo(const char *folder) {
  treadle_status status;
  treadle_records records = {0};
  TRY(treadle_records_read(&records, folder, NULL));
  for (size_t i = 0; i < records.items.count; i++) remove_file(folder, records.items.items[i].path);
  TRY(treadle_records_remove(folder));
out:
  treadle_records_release(&records);
  return status;
}
