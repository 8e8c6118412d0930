/* Reading zip archives.
 *
 * The image is believed in nothing: each offset and length is compared with what is left before it is used.
 * The end record is looked for from the end; its central directory names the entries, and its sizes count
 * (a local header may leave them to a record behind the data). The local header must have the same name and
 * method. At last the entries are put in the order of the file, and none may begin before the one before
 * has ended: so an archive cannot say more bytes than it has. */
#include "io/zip.h"

#include "base/alloc.h"
#include "base/crc.h"
#include "io/zip_format.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#define ZLIB_CONST /* what is unpacked is only read */
#include <zlib.h>

enum { LONGEST_COMMENT = 0xffff };

typedef struct directory {
  uint64_t at, bytes, entries;
} directory;

/* Where an entry lies, for the check of overlaps. */
typedef struct extent {
  uint64_t begin, end;
  const char *name;
} extent;

typedef struct reader {
  const char *what;
  const unsigned char *image;
  size_t bytes;
  treadle_arena *arena;
  directory directory;
} reader;

static treadle_status no_memory(const char *what) {
  return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for the archive's entries", what);
}

/* Do `count` bytes at `at` lie in front of `limit`? */
static bool fits(uint64_t at, uint64_t count, uint64_t limit) { return at <= limit && count <= limit - at; }

/* The zip64 end record, when one stands in front of the end record at `end`. */
static treadle_status read_end64(reader *r, size_t end, directory *directory_p, bool *found_p) {
  *found_p = false;
  if (end < ZIP_END64_PLACE_BYTES) return TREADLE_OK;
  const unsigned char *place = r->image + end - ZIP_END64_PLACE_BYTES;
  if (zip_get(place, 4) != ZIP_END64_PLACE) return TREADLE_OK;
  uint64_t at = zip_get(place + 8, 8), limit = end - ZIP_END64_PLACE_BYTES;
  if (!fits(at, ZIP_END64_BYTES, limit) || zip_get(r->image + at, 4) != ZIP_END64)
    return treadle_fail(TREADLE_REFUSED, "%s: no zip64 end record at byte %" PRIu64 ", where it should be",
                        r->what, at);
  const unsigned char *record = r->image + at;
  if (zip_get(record + 16, 4) != 0 || zip_get(record + 20, 4) != 0 ||
      zip_get(record + 24, 8) != zip_get(record + 32, 8))
    return treadle_fail(TREADLE_REFUSED, "%s: is a part of an archive of several files", r->what);
  *directory_p = (directory){zip_get(record + 48, 8), zip_get(record + 40, 8), zip_get(record + 32, 8)};
  if (!fits(directory_p->at, directory_p->bytes, at))
    return treadle_fail(TREADLE_REFUSED,
                        "%s: a directory of %" PRIu64 " bytes at byte %" PRIu64
                        " does not lie before its end record at %" PRIu64,
                        r->what, directory_p->bytes, directory_p->at, at);
  *found_p = true;
  return TREADLE_OK;
}

static treadle_status find_directory(reader *r) {
  size_t end = 0;
  bool found = false;
  for (size_t back = ZIP_END_BYTES; !found && back <= r->bytes && back <= ZIP_END_BYTES + LONGEST_COMMENT;
       back++) {
    end = r->bytes - back;
    found =
        zip_get(r->image + end, 4) == ZIP_END && zip_get(r->image + end + 20, 2) == back - ZIP_END_BYTES;
  }
  if (!found)
    return treadle_fail(TREADLE_REFUSED,
                        "%s: is not a zip archive, or is cut off: no end record in %zu bytes", r->what,
                        r->bytes);
  const unsigned char *record = r->image + end;
  directory small = {zip_get(record + 16, 4), zip_get(record + 12, 4), zip_get(record + 10, 2)};
  bool found64 = false;
  treadle_status status;
  TRY(read_end64(r, end, &r->directory, &found64));
  if (found64) goto out;
  if (small.at == ZIP_IN_64 || small.bytes == ZIP_IN_64 || small.entries == ZIP_IN_64_SHORT) {
    status = treadle_fail(TREADLE_REFUSED, "%s: has no zip64 end record, which its end record asks for",
                          r->what);
    goto out;
  }
  if (zip_get(record + 4, 2) != 0 || zip_get(record + 6, 2) != 0 ||
      zip_get(record + 8, 2) != small.entries) {
    status = treadle_fail(TREADLE_REFUSED, "%s: is a part of an archive of several files", r->what);
    goto out;
  }
  if (!fits(small.at, small.bytes, end)) {
    status = treadle_fail(TREADLE_REFUSED,
                          "%s: a directory of %" PRIu64 " bytes at byte %" PRIu64
                          " does not lie before its end record at %zu",
                          r->what, small.bytes, small.at, end);
    goto out;
  }
  r->directory = small;
out:
  return status;
}

/* Takes from the zip64 extra field those of the numbers that say so, in the format's order. */
static treadle_status read_extra64(const reader *r, const char *name, const unsigned char *extra,
                                   size_t extra_bytes, uint64_t *numbers[3]) {
  const unsigned char *field = NULL;
  size_t left = 0;
  for (size_t at = 0; extra_bytes - at >= 4 && !field;) {
    uint64_t id = zip_get(extra + at, 2), length = zip_get(extra + at + 2, 2);
    if (length > extra_bytes - at - 4) break;
    if (id == ZIP_EXTRA_64) {
      field = extra + at + 4;
      left = (size_t)length;
    }
    at += 4 + (size_t)length;
  }
  for (int i = 0; i < 3; i++) {
    if (*numbers[i] != ZIP_IN_64) continue;
    if (left < 8)
      return treadle_fail(TREADLE_REFUSED, "%s: entry '%s' lacks its zip64 sizes", r->what, name);
    *numbers[i] = zip_get(field, 8);
    field += 8;
    left -= 8;
  }
  return TREADLE_OK;
}

/* The local header at `at` must be that of the entry; sets its data and extent. */
static treadle_status read_local(const reader *r, uint64_t at, uint64_t method, treadle_zip_member *entry,
                                 extent *extent_p) {
  uint64_t limit = r->directory.at;
  size_t name_bytes = strlen(entry->name);
  if (!fits(at, ZIP_LOCAL_BYTES, limit))
    return treadle_fail(TREADLE_REFUSED,
                        "%s: entry '%s' begins at byte %" PRIu64 ", the archive's data ends at %" PRIu64,
                        r->what, entry->name, at, limit);
  const unsigned char *local = r->image + at;
  uint64_t more = zip_get(local + 26, 2) + zip_get(local + 28, 2), data_at = at + ZIP_LOCAL_BYTES + more;
  if (zip_get(local, 4) != ZIP_LOCAL || zip_get(local + 26, 2) != name_bytes || !fits(data_at, 0, limit) ||
      memcmp(local + ZIP_LOCAL_BYTES, entry->name, name_bytes) != 0 || zip_get(local + 8, 2) != method)
    return treadle_fail(TREADLE_REFUSED,
                        "%s: entry '%s': what stands at byte %" PRIu64 " is not its header", r->what,
                        entry->name, at);
  if (!fits(data_at, entry->stored_bytes, limit))
    return treadle_fail(TREADLE_REFUSED,
                        "%s: entry '%s' has %zu bytes from byte %" PRIu64
                        ", the archive's data ends at %" PRIu64,
                        r->what, entry->name, entry->stored_bytes, data_at, limit);
  entry->data = r->image + data_at;
  *extent_p = (extent){at, data_at + entry->stored_bytes, entry->name};
  return TREADLE_OK;
}

/* The record of the directory at *at_p, which moves on. */
static treadle_status read_entry(const reader *r, uint64_t *at_p, treadle_zip_member *entry,
                                 extent *extent_p) {
  uint64_t end = r->directory.at + r->directory.bytes, at = *at_p;
  treadle_status status;
  if (!fits(at, ZIP_CENTRAL_BYTES, end) || zip_get(r->image + at, 4) != ZIP_CENTRAL)
    return treadle_fail(TREADLE_REFUSED, "%s: no directory record at byte %" PRIu64, r->what, at);
  const unsigned char *record = r->image + at;
  uint64_t flags = zip_get(record + 8, 2), method = zip_get(record + 10, 2),
           stored = zip_get(record + 20, 4), bytes = zip_get(record + 24, 4),
           local = zip_get(record + 42, 4);
  size_t name_bytes = (size_t)zip_get(record + 28, 2), extra_bytes = (size_t)zip_get(record + 30, 2);
  uint64_t length = ZIP_CENTRAL_BYTES + name_bytes + extra_bytes + zip_get(record + 32, 2);
  if (!fits(at, length, end))
    return treadle_fail(TREADLE_REFUSED, "%s: the directory record at byte %" PRIu64 " is cut off", r->what,
                        at);
  char *name = treadle_arena_alloc(r->arena, name_bytes + 1);
  if (!name) return no_memory(r->what);
  memcpy(name, record + ZIP_CENTRAL_BYTES, name_bytes);
  entry->name = name;
  if (!name_bytes || strlen(name) != name_bytes)
    return treadle_fail(TREADLE_REFUSED,
                        "%s: the entry at byte %" PRIu64 " has no name, or one with a zero byte", r->what,
                        at);
  if (flags & (ZIP_FLAG_ENCRYPTED | ZIP_FLAG_ENCRYPTED_DIRECTORY))
    return treadle_fail(TREADLE_REFUSED, "%s: entry '%s' is encrypted", r->what, name);
  if (method != ZIP_STORED && method != ZIP_DEFLATED)
    return treadle_fail(TREADLE_REFUSED, "%s: entry '%s' is packed by method %" PRIu64 "; 0 and 8 are read",
                        r->what, name, method);
  uint64_t *numbers[3] = {&bytes, &stored, &local};
  TRY(read_extra64(r, name, record + ZIP_CENTRAL_BYTES + name_bytes, extra_bytes, numbers));
  if (method == ZIP_STORED && stored != bytes) {
    status = treadle_fail(TREADLE_REFUSED,
                          "%s: entry '%s' is stored in %" PRIu64 " bytes and should have %" PRIu64, r->what,
                          name, stored, bytes);
    goto out;
  }
  entry->crc = (uint32_t)zip_get(record + 16, 4);
  entry->stored_bytes = (size_t)stored;
  entry->bytes = (size_t)bytes;
  entry->deflated = method == ZIP_DEFLATED;
  TRY(read_local(r, local, method, entry, extent_p));
  *at_p = at + length;
out:
  return status;
}

static int compare_extents(const void *a_, const void *b_) {
  const extent *a = a_, *b = b_;
  return (a->begin > b->begin) - (a->begin < b->begin);
}

static int compare_names(const void *a, const void *b) {
  return strcmp(((const treadle_zip_member *)a)->name, ((const treadle_zip_member *)b)->name);
}

static treadle_status check_extents(const char *what, extent *extents, size_t count) {
  if (count) qsort(extents, count, sizeof *extents, compare_extents);
  for (size_t i = 1; i < count; i++)
    if (extents[i].begin < extents[i - 1].end)
      return treadle_fail(TREADLE_REFUSED,
                          "%s: entry '%s' begins at byte %" PRIu64 ", inside '%s', which ends at %" PRIu64,
                          what, extents[i].name, extents[i].begin, extents[i - 1].name, extents[i - 1].end);
  return TREADLE_OK;
}

treadle_status treadle_zip_parse(const char *what, const void *image, size_t bytes, treadle_arena *arena,
                                 treadle_zip *zip_p) {
  reader r = {.what = what, .image = image, .bytes = bytes, .arena = arena};
  extent *extents = NULL;
  treadle_status status;
  TRY(find_directory(&r));
  /* Each entry has its record: an archive cannot ask for more memory than it has bytes. */
  if (r.directory.entries > r.directory.bytes / ZIP_CENTRAL_BYTES || r.directory.entries > INT32_MAX) {
    status = treadle_fail(TREADLE_REFUSED, "%s: %" PRIu64 " entries in a directory of %" PRIu64 " bytes",
                          what, r.directory.entries, r.directory.bytes);
    goto out;
  }
  size_t count = (size_t)r.directory.entries;
  treadle_zip_member *entries = treadle_arena_alloc_array(arena, count, sizeof *entries);
  extents = treadle_alloc_array(count, sizeof *extents);
  if (!entries || !extents) {
    status = no_memory(what);
    goto out;
  }
  uint64_t at = r.directory.at;
  for (size_t i = 0; i < count; i++) TRY(read_entry(&r, &at, &entries[i], &extents[i]));
  TRY(check_extents(what, extents, count));
  if (count) qsort(entries, count, sizeof *entries, compare_names);
  for (size_t i = 1; i < count; i++) {
    if (strcmp(entries[i - 1].name, entries[i].name) != 0) continue;
    status = treadle_fail(TREADLE_REFUSED, "%s: has entry '%s' twice", what, entries[i].name);
    goto out;
  }
  bool summed = false;
  for (size_t i = 0; i < count; i++) summed = summed || entries[i].crc != 0;
  for (size_t i = 0; i < count; i++) entries[i].summed = summed;
  *zip_p = (treadle_zip){entries, (int32_t)count};
out:
  treadle_free(extents);
  return status;
}

const treadle_zip_member *treadle_zip_find(const treadle_zip *zip, const char *name) {
  treadle_zip_member key = {.name = name};
  return zip->count ? bsearch(&key, zip->entries, (size_t)zip->count, sizeof key, compare_names) : NULL;
}

/* Unpacks into a block of the size that the header says, so a lie about it ends there. */
static treadle_status unpack(const char *what, const treadle_zip_member *entry, unsigned char *content) {
  z_stream stream = {.next_in = entry->data,
                     .avail_in = (uInt)entry->stored_bytes,
                     .next_out = content,
                     .avail_out = (uInt)entry->bytes};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK)
    return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory to unpack entry '%s'", what, entry->name);
  int end = inflate(&stream, Z_FINISH);
  size_t made = entry->bytes - stream.avail_out;
  inflateEnd(&stream);
  if (end != Z_STREAM_END || made != entry->bytes)
    return treadle_fail(TREADLE_REFUSED, "%s: entry '%s' does not unpack to its %zu bytes", what,
                        entry->name, entry->bytes);
  return TREADLE_OK;
}

treadle_status treadle_zip_content(const char *what, const treadle_zip_member *entry, size_t limit,
                                   treadle_arena *arena, const unsigned char **content_p) {
  if (entry->bytes > limit)
    return treadle_fail(TREADLE_REFUSED, "%s: entry '%s' has %zu bytes, at most %zu are read", what,
                        entry->name, entry->bytes, limit);
  *content_p = entry->data;
  if (!entry->deflated) return treadle_zip_check(what, entry, *content_p);
  if (entry->bytes > UINT32_MAX || entry->stored_bytes > UINT32_MAX)
    return treadle_fail(TREADLE_REFUSED, "%s: entry '%s' is packed and has over 4 GiB", what, entry->name);
  /* Deflate makes at most 1,032 bytes of one: a larger promise takes no memory. */
  if (entry->bytes / 1032 > entry->stored_bytes)
    return treadle_fail(TREADLE_REFUSED, "%s: entry '%s' does not unpack to its %zu bytes", what,
                        entry->name, entry->bytes);
  unsigned char *content = treadle_arena_alloc(arena, entry->bytes + 1);
  if (!content) return no_memory(what);
  *content_p = content;
  treadle_status status = unpack(what, entry, content);
  return status ? status : treadle_zip_check(what, entry, content);
}

treadle_status treadle_zip_check(const char *what, const treadle_zip_member *entry,
                                 const unsigned char *content) {
  uint32_t crc = entry->summed ? treadle_crc32(0, content, entry->bytes) : entry->crc;
  if (crc == entry->crc) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED,
                      "%s: entry '%s' is damaged: it has CRC-32 %08" PRIx32 ", the archive says %08" PRIx32,
                      what, entry->name, crc, entry->crc);
}
