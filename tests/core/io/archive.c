#include "archive.h"

#include "io/zip_format.h"
#include "test.h"

#include <zlib.h>

static archive_entry *add(archive_image *image, archive_entry entry, const void *stored) {
  unsigned char *to = image->bytes + image->count;
  assert_true(image->entry_count < ARCHIVE_MOST_ENTRIES &&
              image->count + entry.stored_bytes + 1000 < ARCHIVE_MOST_BYTES);
  entry.at = image->count;
  to = zip_put(to, ZIP_LOCAL, 4);
  to = zip_put(to, 20, 2);
  to = zip_put(to, 0, 2);
  to = zip_put(to, (uint64_t)entry.method, 2);
  to = zip_put(to, 0, 4);
  to = zip_put(to, entry.crc, 4);
  to = zip_put(to, entry.stored_bytes, 4);
  to = zip_put(to, entry.bytes, 4);
  to = zip_put(to, strlen(entry.name), 2);
  to = zip_put(to, 0, 2);
  memcpy(to, entry.name, strlen(entry.name));
  to += strlen(entry.name);
  if (entry.stored_bytes) memcpy(to, stored, entry.stored_bytes);
  image->count = (size_t)(to + entry.stored_bytes - image->bytes);
  image->entries[image->entry_count] = entry;
  return &image->entries[image->entry_count++];
}

archive_entry *archive_add(archive_image *image, const char *name, const void *content, size_t bytes) {
  archive_entry entry = {.name = name,
                         .stored_bytes = bytes,
                         .bytes = bytes,
                         .crc = (uint32_t)crc32_z(0, content, bytes),
                         .method = ZIP_STORED};
  return add(image, entry, content);
}

archive_entry *archive_add_deflated(archive_image *image, const char *name, const void *content,
                                    size_t bytes) {
  static unsigned char packed[ARCHIVE_MOST_BYTES];
  z_stream stream = {.next_in = (unsigned char *)(uintptr_t)content,
                     .avail_in = (uInt)bytes,
                     .next_out = packed,
                     .avail_out = sizeof packed};
  assert_int_equal(deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 9, Z_DEFAULT_STRATEGY), Z_OK);
  assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
  deflateEnd(&stream);
  archive_entry entry = {.name = name,
                         .stored_bytes = sizeof packed - stream.avail_out,
                         .bytes = bytes,
                         .crc = (uint32_t)crc32_z(0, content, bytes),
                         .method = ZIP_DEFLATED};
  return add(image, entry, packed);
}

void archive_end(archive_image *image) {
  unsigned char *to = image->bytes + image->count;
  image->directory_at = image->count;
  for (int i = 0; i < image->entry_count; i++) {
    const archive_entry *entry = &image->entries[i];
    to = zip_put(to, ZIP_CENTRAL, 4);
    to = zip_put(to, 20, 2);
    to = zip_put(to, 20, 2);
    to = zip_put(to, (uint64_t)entry->flags, 2);
    to = zip_put(to, (uint64_t)entry->method, 2);
    to = zip_put(to, 0, 4);
    to = zip_put(to, entry->crc, 4);
    to = zip_put(to, entry->stored_bytes, 4);
    to = zip_put(to, entry->bytes, 4);
    to = zip_put(to, strlen(entry->name), 2);
    to = zip_put(to, 0, 8);
    to = zip_put(to, 0, 4);
    to = zip_put(to, entry->at, 4);
    memcpy(to, entry->name, strlen(entry->name));
    to += strlen(entry->name);
  }
  size_t directory_bytes = (size_t)(to - image->bytes) - image->directory_at;
  to = zip_put(to, ZIP_END, 4);
  to = zip_put(to, 0, 4);
  to = zip_put(to, (uint64_t)image->entry_count, 2);
  to = zip_put(to, (uint64_t)image->entry_count, 2);
  to = zip_put(to, directory_bytes, 4);
  to = zip_put(to, image->directory_at, 4);
  to = zip_put(to, 0, 2);
  image->count = (size_t)(to - image->bytes);
}

void archive_torch(archive_image *image, const void *pickle, size_t pickle_bytes, size_t storage_bytes) {
  unsigned char storage[256];
  for (size_t i = 0; i < sizeof storage; i++) storage[i] = (unsigned char)i;
  assert_true(storage_bytes <= sizeof storage);
  archive_add(image, "archive/data.pkl", pickle, pickle_bytes);
  archive_add(image, "archive/data/0", storage, storage_bytes);
  archive_add(image, "archive/version", "3\n", 2);
  archive_end(image);
}
