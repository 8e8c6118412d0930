/* Writing zip archives as a stream.
 *
 * The local header goes out in front of the data, so it says the size, which the caller knows, and its
 * CRC is patched in when the data is through. As torch does, an extra field "FB" in each local header is
 * as long as it takes to bring the data to a multiple of 64 bytes, and zip64 fields are there only where
 * a number needs them. What is small is gathered in a buffer; what is large goes to the file directly. */
#include "io/zip.h"

#include "base/alloc.h"
#include "base/array.h"
#include "base/crc.h"
#include "io/file.h"
#include "io/zip_format.h"

#include <string.h>

enum {
  BUFFER_BYTES = 256 << 10,
  ALIGN_BYTES = 64,
  FIELD_BYTES = 4,                     /* id and length of an extra field */
  LOCAL64_BYTES = FIELD_BYTES + 2 * 8, /* zip64 field of a local header: both sizes */
  LONGEST_EXTRA = FIELD_BYTES + 3 * 8, /* zip64 field of a directory record */
  LONGEST_HEADER = ZIP_LOCAL_BYTES + LOCAL64_BYTES + FIELD_BYTES + ALIGN_BYTES,
  VERSION = 20,
  VERSION_64 = 45,
  DATE_1980 = 0x21 /* the first day that the format knows */
};

typedef struct written {
  const char *name;
  uint64_t at, bytes;
  uint32_t crc;
} written;

struct treadle_zip_writer {
  treadle_file_writer *file; /* NULL: bytes are only counted */
  bool lent;                 /* the file is the caller's */
  int64_t base;              /* where in it the archive begins */
  const char *path;
  uint64_t at; /* bytes so far, those in the buffer included */
  unsigned char *buffer;
  size_t buffered;
  TREADLE_ARRAY(written) entries;
  uint64_t left; /* bytes that the last entry lacks */
  treadle_arena arena;
};

static treadle_status flush(treadle_zip_writer *writer) {
  treadle_status status = TREADLE_OK;
  if (writer->file) status = treadle_file_writer_append(writer->file, writer->buffer, writer->buffered);
  writer->buffered = 0;
  return status;
}

static treadle_status put(treadle_zip_writer *writer, const void *bytes, size_t count) {
  treadle_status status = TREADLE_OK;
  if (!writer->file) {
    writer->at += count;
    return TREADLE_OK;
  }
  if (count > BUFFER_BYTES - writer->buffered) TRY(flush(writer));
  if (count >= BUFFER_BYTES) {
    TRY(treadle_file_writer_append(writer->file, bytes, count));
  } else if (count) {
    memcpy(writer->buffer + writer->buffered, bytes, count);
    writer->buffered += count;
  }
  writer->at += count;
out:
  return status;
}

/* Overwrites bytes that are in the file or still in the buffer; never both: what
 * is patched went in as one. */
static treadle_status patch(treadle_zip_writer *writer, uint64_t at, const void *bytes, size_t count) {
  uint64_t filed = writer->at - writer->buffered;
  if (!writer->file) return TREADLE_OK;
  if (at < filed) return treadle_file_writer_patch(writer->file, writer->base + (int64_t)at, bytes, count);
  memcpy(writer->buffer + (at - filed), bytes, count);
  return TREADLE_OK;
}

treadle_status treadle_zip_create_in(const char *what, treadle_file_writer *file, int64_t base,
                                     treadle_zip_writer **writer_p) {
  treadle_zip_writer *writer = treadle_alloc(sizeof *writer);
  *writer_p = NULL;
  if (writer) {
    writer->file = file;
    writer->lent = true;
    writer->base = base;
    writer->path = treadle_arena_copy_text(&writer->arena, what);
    if (file) writer->buffer = treadle_alloc(BUFFER_BYTES);
  }
  if (!writer || !writer->path || (file && !writer->buffer)) {
    treadle_zip_destroy(writer);
    return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory to write it", what);
  }
  *writer_p = writer;
  return TREADLE_OK;
}

treadle_status treadle_zip_create(const char *path, treadle_zip_writer **writer_p) {
  treadle_status status;
  treadle_file_writer *file = NULL;
  *writer_p = NULL;
  TRY(treadle_file_writer_create(path, &file));
  TRY(treadle_zip_create_in(path, file, 0, writer_p));
  (*writer_p)->lent = false;
  file = NULL;
out:
  treadle_file_writer_destroy(file);
  return status;
}

/* The last entry has all of its bytes: its CRC goes into its header. */
static treadle_status end_entry(treadle_zip_writer *writer) {
  if (!writer->entries.count) return TREADLE_OK;
  const written *last = &writer->entries.items[writer->entries.count - 1];
  unsigned char crc[4];
  if (writer->left)
    return treadle_fail(TREADLE_STATE, "%s: entry '%s' lacks %llu of its %llu bytes", writer->path,
                        last->name, (unsigned long long)writer->left, (unsigned long long)last->bytes);
  zip_put(crc, last->crc, 4);
  return patch(writer, last->at + ZIP_LOCAL_CRC_AT, crc, sizeof crc);
}

treadle_status treadle_zip_begin(treadle_zip_writer *writer, const char *name, size_t bytes) {
  static const char filler[ALIGN_BYTES] = "ZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZ";
  treadle_status status;
  size_t name_bytes = strlen(name);
  TRY(end_entry(writer));
  if (!name_bytes || name_bytes > UINT16_MAX - 64) {
    status = treadle_fail(TREADLE_REFUSED, "%s: an entry's name of %zu bytes", writer->path, name_bytes);
    goto out;
  }
  written entry = {treadle_arena_copy_text(&writer->arena, name), writer->at, bytes, 0};
  if (!entry.name || treadle_array_push(&writer->entries, entry) != TREADLE_OK) {
    status = treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for entry '%s'", writer->path, name);
    goto out;
  }
  bool large = bytes >= ZIP_IN_64;
  size_t extra = (large ? LOCAL64_BYTES : 0) + FIELD_BYTES;
  size_t data_at = (size_t)(writer->at + ZIP_LOCAL_BYTES + name_bytes + extra);
  size_t padding = (ALIGN_BYTES - data_at % ALIGN_BYTES) % ALIGN_BYTES;
  unsigned char header[LONGEST_HEADER], *to = header;
  to = zip_put(to, ZIP_LOCAL, 4);
  to = zip_put(to, large ? VERSION_64 : VERSION, 2);
  to = zip_put(to, ZIP_FLAG_UTF8, 2);
  to = zip_put(to, ZIP_STORED, 2);
  to = zip_put(to, 0, 2);
  to = zip_put(to, DATE_1980, 2);
  to = zip_put(to, 0, 4); /* CRC, patched */
  to = zip_put(to, large ? ZIP_IN_64 : bytes, 4);
  to = zip_put(to, large ? ZIP_IN_64 : bytes, 4);
  to = zip_put(to, name_bytes, 2);
  to = zip_put(to, extra + padding, 2);
  TRY(put(writer, header, (size_t)(to - header)));
  TRY(put(writer, name, name_bytes));
  to = header;
  if (large) {
    to = zip_put(to, ZIP_EXTRA_64, 2);
    to = zip_put(to, 2 * 8, 2);
    to = zip_put(to, bytes, 8);
    to = zip_put(to, bytes, 8);
  }
  *to++ = 'F';
  *to++ = 'B';
  to = zip_put(to, padding, 2);
  TRY(put(writer, header, (size_t)(to - header)));
  TRY(put(writer, filler, padding));
  writer->left = bytes;
out:
  return status;
}

treadle_status treadle_zip_append(treadle_zip_writer *writer, const void *bytes, size_t count) {
  if (count > writer->left)
    return treadle_fail(TREADLE_STATE, "%s: %zu bytes more for an entry that lacks %llu", writer->path,
                        count, (unsigned long long)writer->left);
  if (!count) return TREADLE_OK;
  written *last = &writer->entries.items[writer->entries.count - 1];
  last->crc = treadle_crc32(last->crc, bytes, count);
  writer->left -= count;
  return put(writer, bytes, count);
}

treadle_status treadle_zip_put(treadle_zip_writer *writer, const char *name, const void *bytes,
                               size_t count) {
  treadle_status status;
  TRY(treadle_zip_begin(writer, name, count));
  TRY(treadle_zip_append(writer, bytes, count));
out:
  return status;
}

treadle_status treadle_zip_fill(treadle_zip_filler *filler, const void *bytes, size_t count) {
  const unsigned char *from = bytes;
  treadle_status status = TREADLE_OK;
  while (count) {
    size_t some = count < filler->left ? count : filler->left;
    if (!some)
      return treadle_fail(TREADLE_STATE, "%s: %zu bytes more than its tensors have", filler->path, count);
    TRY(treadle_zip_append(filler->zip, from, some));
    from += some;
    count -= some;
    filler->left -= some;
    TRY(filler->next(filler));
  }
out:
  return status;
}

treadle_status treadle_zip_skip(treadle_zip_writer *writer, size_t count) {
  if (writer->file || count > writer->left)
    return treadle_fail(TREADLE_STATE, "%s: %zu bytes skipped of an entry that lacks %llu", writer->path,
                        count, (unsigned long long)writer->left);
  writer->left -= count;
  writer->at += count;
  return TREADLE_OK;
}

int64_t treadle_zip_bytes(const treadle_zip_writer *writer) { return (int64_t)writer->at; }

static treadle_status put_record(treadle_zip_writer *writer, const written *entry) {
  bool large = entry->bytes >= ZIP_IN_64, far = entry->at >= ZIP_IN_64;
  unsigned char record[ZIP_CENTRAL_BYTES], extra[LONGEST_EXTRA], *to = record, *more = extra;
  treadle_status status;
  if (large || far) {
    more = zip_put(more, ZIP_EXTRA_64, 2);
    more = zip_put(more, (large ? 2 * 8 : 0) + (far ? 8 : 0), 2);
  }
  if (large) more = zip_put(zip_put(more, entry->bytes, 8), entry->bytes, 8);
  if (far) more = zip_put(more, entry->at, 8);
  int version = large || far ? VERSION_64 : VERSION;
  to = zip_put(to, ZIP_CENTRAL, 4);
  to = zip_put(to, (uint64_t)version, 2);
  to = zip_put(to, (uint64_t)version, 2);
  to = zip_put(to, ZIP_FLAG_UTF8, 2);
  to = zip_put(to, ZIP_STORED, 2);
  to = zip_put(to, 0, 2);
  to = zip_put(to, DATE_1980, 2);
  to = zip_put(to, entry->crc, 4);
  to = zip_put(to, large ? ZIP_IN_64 : entry->bytes, 4);
  to = zip_put(to, large ? ZIP_IN_64 : entry->bytes, 4);
  to = zip_put(to, strlen(entry->name), 2);
  to = zip_put(to, (uint64_t)(more - extra), 2);
  to = zip_put(to, 0, 2); /* comment */
  to = zip_put(to, 0, 2); /* part of the archive */
  to = zip_put(to, 0, 2);
  to = zip_put(to, 0, 4); /* attributes */
  to = zip_put(to, far ? ZIP_IN_64 : entry->at, 4);
  TRY(put(writer, record, (size_t)(to - record)));
  TRY(put(writer, entry->name, strlen(entry->name)));
  TRY(put(writer, extra, (size_t)(more - extra)));
out:
  return status;
}

static treadle_status put_end(treadle_zip_writer *writer, uint64_t directory_at) {
  uint64_t count = writer->entries.count, bytes = writer->at - directory_at;
  bool large = count >= ZIP_IN_64_SHORT || bytes >= ZIP_IN_64 || directory_at >= ZIP_IN_64;
  unsigned char end[ZIP_END64_BYTES + ZIP_END64_PLACE_BYTES + ZIP_END_BYTES], *to = end;
  if (large) {
    to = zip_put(to, ZIP_END64, 4);
    to = zip_put(to, ZIP_END64_BYTES - 12, 8); /* what follows this number */
    to = zip_put(to, VERSION_64, 2);
    to = zip_put(to, VERSION_64, 2);
    to = zip_put(to, 0, 8); /* numbers of parts */
    to = zip_put(to, count, 8);
    to = zip_put(to, count, 8);
    to = zip_put(to, bytes, 8);
    to = zip_put(to, directory_at, 8);
    to = zip_put(to, ZIP_END64_PLACE, 4);
    to = zip_put(to, 0, 4);
    to = zip_put(to, writer->at, 8);
    to = zip_put(to, 1, 4);
  }
  to = zip_put(to, ZIP_END, 4);
  to = zip_put(to, 0, 4);
  to = zip_put(to, large ? ZIP_IN_64_SHORT : count, 2);
  to = zip_put(to, large ? ZIP_IN_64_SHORT : count, 2);
  to = zip_put(to, large ? ZIP_IN_64 : bytes, 4);
  to = zip_put(to, large ? ZIP_IN_64 : directory_at, 4);
  to = zip_put(to, 0, 2); /* comment */
  return put(writer, end, (size_t)(to - end));
}

treadle_status treadle_zip_finish(treadle_zip_writer *writer) {
  treadle_status status;
  TRY(end_entry(writer));
  uint64_t directory_at = writer->at;
  for (size_t i = 0; i < writer->entries.count; i++) TRY(put_record(writer, &writer->entries.items[i]));
  TRY(put_end(writer, directory_at));
  TRY(flush(writer));
  if (!writer->lent) TRY(treadle_file_writer_commit(writer->file));
out:
  return status;
}

void treadle_zip_sum(const treadle_zip_writer *writer, int64_t *bytes_p, uint64_t *sum_p) {
  treadle_file_writer_sum(writer->file, bytes_p, sum_p);
}

void treadle_zip_destroy(treadle_zip_writer *writer) {
  if (!writer) return;
  if (!writer->lent) treadle_file_writer_destroy(writer->file);
  treadle_array_release(&writer->entries);
  treadle_arena_release(&writer->arena);
  treadle_free(writer->buffer);
  treadle_free(writer);
}
