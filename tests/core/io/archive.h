/* Zip archives in memory, made field by field, so that tests can make bad ones. */
#ifndef TREADLE_TESTS_IO_ARCHIVE_H
#define TREADLE_TESTS_IO_ARCHIVE_H

#include <stddef.h>
#include <stdint.h>

enum { ARCHIVE_MOST_ENTRIES = 16, ARCHIVE_MOST_BYTES = 1 << 16 };

typedef struct archive_entry {
  const char *name;
  size_t at, stored_bytes, bytes;
  uint32_t crc;
  int method, flags;
} archive_entry;

typedef struct archive_image {
  unsigned char bytes[ARCHIVE_MOST_BYTES];
  size_t count, directory_at;
  archive_entry entries[ARCHIVE_MOST_ENTRIES]; /* what archive_end() writes: change them before it */
  int entry_count;
} archive_image;

/* Adds local header and data of a stored entry. */
archive_entry *archive_add(archive_image *image, const char *name, const void *content, size_t bytes);
/* The same, deflated. */
archive_entry *archive_add_deflated(archive_image *image, const char *name, const void *content,
                                    size_t bytes);
/* Directory and end record. */
void archive_end(archive_image *image);

/* A torch archive of this pickle, with one storage "0" of storage_bytes bytes 0, 1, 2, ... */
void archive_torch(archive_image *image, const void *pickle, size_t pickle_bytes, size_t storage_bytes);

#endif
