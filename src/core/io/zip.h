/* Zip archives as torch.save makes them: read in an image of the file, written as a stream.
 *
 * Format: APPNOTE.TXT 6.3 of PKWARE: per entry a local header and its data, then the central directory,
 * then its end record; zip64 where a number does not fit 32 bits. Read are stored and deflated entries;
 * refused are archives that are cut off or spread over several files, encrypted entries, names twice or
 * with a zero byte, entries whose header or data leave the file or overlap. An entry that is packed is
 * unpacked under a limit of the caller, and never to more than its header says. */
#ifndef TREADLE_IO_ZIP_H
#define TREADLE_IO_ZIP_H

#include "base/arena.h"
#include "base/status.h"
#include "io/file.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct treadle_zip_member {
  const char *name;
  const unsigned char *data; /* in the image, as stored */
  size_t stored_bytes;
  size_t bytes; /* of the content; equals stored_bytes unless deflated */
  uint32_t crc; /* CRC-32 of the content, as the archive says */
  bool deflated;
  bool
      summed; /* the archive has sums: a writer that makes none (torch.serialization.set_crc32_options) writes 0 everywhere */
} treadle_zip_member;

typedef struct treadle_zip {
  treadle_zip_member *entries; /* sorted by name */
  int32_t count;
} treadle_zip;

/* Lists the entries of an image. They lie in the arena, and point into the image. */
treadle_status treadle_zip_parse(const char *what, const void *image, size_t bytes, treadle_arena *arena,
                                 treadle_zip *zip_p);

/* NULL when there is none of this name. */
const treadle_zip_member *treadle_zip_find(const treadle_zip *zip, const char *name);

/* The content of an entry of at most `limit` bytes: in place when it is stored, else unpacked into the
 * arena. Its CRC-32 is what the archive says. */
treadle_status treadle_zip_content(const char *what, const treadle_zip_member *entry, size_t limit,
                                   treadle_arena *arena, const unsigned char **content_p);

/* Compares CRC-32 of a content with what the archive says, where it has sums. */
treadle_status treadle_zip_check(const char *what, const treadle_zip_member *entry,
                                 const unsigned char *content);

/* Writing: create, for each entry begin and append until it has its bytes, finish. Entries are stored, and
 * the data of each begins at a multiple of 64 bytes of the file. The file is at its path from finish on;
 * destroy ends the writer, and without finish leaves nothing behind. */
typedef struct treadle_zip_writer treadle_zip_writer;
treadle_status treadle_zip_create(const char *path, treadle_zip_writer **writer_p);
/* The same into a file that the caller writes, from byte `base` on, where the next byte of that file goes: finish ends the
 * archive and not the file. file NULL: nothing is written, and treadle_zip_skip() stands for append. */
treadle_status treadle_zip_create_in(const char *what, treadle_file_writer *file, int64_t base,
                                     treadle_zip_writer **writer_p);
treadle_status treadle_zip_skip(treadle_zip_writer *writer, size_t count);
/* Bytes of the archive so far. */
int64_t treadle_zip_bytes(const treadle_zip_writer *writer);
/* Names are not compared: the caller gives each once. */
treadle_status treadle_zip_begin(treadle_zip_writer *writer, const char *name, size_t bytes);
treadle_status treadle_zip_append(treadle_zip_writer *writer, const void *bytes, size_t count);
/* A whole entry. */
treadle_status treadle_zip_put(treadle_zip_writer *writer, const char *name, const void *bytes,
                               size_t count);
treadle_status treadle_zip_finish(treadle_zip_writer *writer);
/* After finish: treadle_file_writer_sum(). */
void treadle_zip_sum(const treadle_zip_writer *writer, int64_t *bytes_p, uint64_t *sum_p);
void treadle_zip_destroy(treadle_zip_writer *writer);

/* Entries that are filled one behind the other, by bytes that come in any portions. */
typedef struct treadle_zip_filler treadle_zip_filler;
struct treadle_zip_filler {
  const char *path;
  treadle_zip_writer *zip; /* NULL: none is begun */
  size_t left;             /* bytes that its last entry lacks */
  /* The last entry has all of its bytes: begins others, in this archive or the next, until one lacks any or none is left. */
  treadle_status (*next)(treadle_zip_filler *filler);
};
treadle_status treadle_zip_fill(treadle_zip_filler *filler, const void *bytes, size_t count);

#endif
