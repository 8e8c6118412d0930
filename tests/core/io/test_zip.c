/* src/core/io/zip.c and zip_write.c: what is written reads back; every refusal. */
#include "test.h"

#include "archive.h"
#include "io/file.h"
#include "io/file_map.h"
#include "io/zip.h"
#include "io/zip_format.h"

#include <dirent.h>

static archive_image image;

static void two_entries(void) {
  image = (archive_image){0};
  archive_add(&image, "f/b", "hello", 5);
  archive_add(&image, "f/a", "", 0);
}

/* In a block of its own size: the sanitizer sees a read beyond it. */
static treadle_status parse_some(size_t count) {
  treadle_arena arena = {0};
  treadle_zip zip = {0};
  unsigned char *exact = treadle_alloc(count);
  memcpy(exact, image.bytes, count);
  treadle_status status = treadle_zip_parse("z", exact, count, &arena, &zip);
  treadle_arena_release(&arena);
  treadle_free(exact);
  return status;
}

static treadle_status parse(void) { return parse_some(image.count); }

static void reads(void **state) {
  (void)state;
  treadle_arena arena = {0};
  treadle_zip zip;
  const unsigned char *content;
  char text[3000];
  memset(text, 'x', sizeof text);
  two_entries();
  archive_add_deflated(&image, "f/packed", text, sizeof text);
  archive_end(&image);
  assert_ok(treadle_zip_parse("z", image.bytes, image.count, &arena, &zip));
  assert_int_equal(zip.count, 3);
  assert_string_equal(zip.entries[0].name, "f/a");
  assert_null(treadle_zip_find(&zip, "f/c"));
  const treadle_zip_member *entry = treadle_zip_find(&zip, "f/b");
  assert_ok(treadle_zip_content("z", entry, 5, &arena, &content));
  assert_ptr_equal(content, image.bytes + 33); /* in place */
  assert_memory_equal(content, "hello", 5);
  assert_ok(treadle_zip_check("z", entry, content));
  assert_refused("entry 'f/b' has 5 bytes, at most 4 are read",
                 treadle_zip_content("z", entry, 4, &arena, &content));
  entry = treadle_zip_find(&zip, "f/packed");
  assert_true(entry->deflated && entry->stored_bytes < 100);
  assert_ok(treadle_zip_content("z", entry, 3000, &arena, &content));
  assert_memory_equal(content, text, 3000);
  assert_ok(treadle_zip_check("z", entry, content));
  treadle_arena_release(&arena);
}

/* Offset of a field of the directory record of an entry. */
static unsigned char *record(int number, size_t field) {
  size_t at = image.directory_at;
  for (int i = 0; i < number; i++) at += ZIP_CENTRAL_BYTES + strlen(image.entries[i].name);
  return image.bytes + at + field;
}

static void refuses(void **state) {
  (void)state;
#define BAD(part, before, after)                                                                           \
  do {                                                                                                     \
    two_entries();                                                                                         \
    before;                                                                                                \
    archive_end(&image);                                                                                   \
    after;                                                                                                 \
    assert_refused(part, parse());                                                                         \
  } while (0)
  BAD("has entry 'f/b' twice", archive_add(&image, "f/b", "hello", 5), );
  BAD("is encrypted", image.entries[0].flags = 1, );
  BAD("is packed by method 12", image.entries[0].method = 12, );
  BAD("is not its header", image.entries[0].method = 8, );
  BAD("is not its header", image.entries[1].at = 0, );
  BAD("is not its header", image.bytes[0] = 'x', );
  BAD("is not its header", image.bytes[30] = 'x', );
  BAD("is not its header",
      zip_put(image.bytes + 28, 0xffff, 2), ); /* an extra field that leaves the file */
  BAD("entry 'f/b' begins at byte 4000", image.entries[0].at = 4000, );
  BAD("should have 4", image.entries[0].bytes = 4, );
  BAD("has 5000 bytes from byte 33", image.entries[0].stored_bytes = image.entries[0].bytes = 5000, );
  BAD("entry 'f/a' begins at byte 38, inside 'f/b', which ends at 39",
      image.entries[0].stored_bytes = image.entries[0].bytes = 6, );
  BAD("lacks its zip64 sizes", image.entries[0].stored_bytes = image.entries[0].bytes = ZIP_IN_64, );
  BAD("no directory record", , *record(0, 0) = 0);
  BAD("no directory record", , zip_put(image.bytes + image.count - 10, 94, 4));
  BAD("60000 entries in a directory", , zip_put(image.bytes + image.count - 12, 60000, 2);
      zip_put(image.bytes + image.count - 14, 60000, 2));
  BAD("is cut off", , zip_put(record(0, 28), 0xffff, 2));
  BAD("with a zero byte", , *record(0, 47) = 0);
  BAD("of several files", , zip_put(image.bytes + image.count - 18, 1, 2));
  BAD("does not lie before its end record", , zip_put(image.bytes + image.count - 6, 100000, 4));
  BAD("has no zip64 end record", , zip_put(image.bytes + image.count - 6, ZIP_IN_64, 4));
  BAD("no end record", , zip_put(image.bytes + image.count - 2, 1, 2)); /* a comment that is not there */
#undef BAD
}

static void refuses_truncated(void **state) {
  (void)state;
  two_entries();
  archive_end(&image);
  for (size_t count = 0; count < image.count; count++) assert_refused("z: ", parse_some(count));
  assert_ok(parse());
}

static void refuses_bombs(void **state) {
  (void)state;
  static char zeros[50000];
  treadle_arena arena = {0};
  treadle_zip zip;
  const unsigned char *content;
  for (int i = 0; i < 3; i++) {
    static const size_t said[] = {1 << 30, 50001, 49999}; /* more than deflate can make; a little off */
    image = (archive_image){0};
    archive_entry *entry = archive_add_deflated(&image, "bomb", zeros, sizeof zeros);
    entry->bytes = said[i];
    archive_end(&image);
    assert_ok(treadle_zip_parse("z", image.bytes, image.count, &arena, &zip));
    assert_refused("does not unpack", treadle_zip_content("z", zip.entries, SIZE_MAX, &arena, &content));
    assert_refused("at most 1000 are read", treadle_zip_content("z", zip.entries, 1000, &arena, &content));
  }
  treadle_arena_release(&arena);
}

static void finds_wrong_crc(void **state) {
  (void)state;
  treadle_arena arena = {0};
  treadle_zip zip;
  two_entries();
  archive_end(&image);
  image.bytes[33] = 'j';
  assert_ok(treadle_zip_parse("z", image.bytes, image.count, &arena, &zip));
  const treadle_zip_member *entry = treadle_zip_find(&zip, "f/b");
  assert_refused("the archive says 3610a686", treadle_zip_check("z", entry, entry->data));
  treadle_arena_release(&arena);
}

/* ---- Writing ------------------------------------------------------------------------------------- */

static int files_in(const char *folder) {
  DIR *dir = opendir(folder);
  int count = 0;
  while (readdir(dir)) count++;
  closedir(dir);
  return count - 2;
}

/* Entries of several sizes in pieces of `piece` bytes. */
static treadle_status write_some(const char *path, const unsigned char *bytes, size_t piece) {
  static const size_t sizes[] = {0, 1, 63, 64, 1000, 262144, 300001};
  treadle_zip_writer *writer = NULL;
  treadle_status status;
  char name[100];
  TRY(treadle_zip_create(path, &writer));
  for (size_t i = 0; i < TEST_COUNT(sizes); i++) {
    snprintf(name, sizeof name, "archive/%0*zu", (int)i + 1, i);
    TRY(treadle_zip_begin(writer, name, sizes[i]));
    for (size_t at = 0; at < sizes[i]; at += piece)
      TRY(treadle_zip_append(writer, bytes + at, sizes[i] - at < piece ? sizes[i] - at : piece));
  }
  TRY(treadle_zip_finish(writer));
out:
  treadle_zip_destroy(writer);
  return status;
}

static void writes_what_it_reads(void **state) {
  (void)state;
  static unsigned char bytes[300001];
  static const size_t pieces[] = {7, 1000, 262143, 262144, 300001};
  char path[128];
  const char *folder = test_folder();
  snprintf(path, sizeof path, "%s/z.zip", folder);
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(i * 7 + i / 256);
  for (size_t p = 0; p < TEST_COUNT(pieces); p++) {
    treadle_arena arena = {0};
    treadle_zip zip;
    const void *mapped;
    size_t count;
    assert_ok(write_some(path, bytes, pieces[p]));
    assert_int_equal(files_in(folder), 1);
    assert_ok(treadle_file_map(path, &mapped, &count));
    assert_ok(treadle_zip_parse(path, mapped, count, &arena, &zip));
    assert_int_equal(zip.count, 7);
    for (int i = 0; i < zip.count; i++) {
      const treadle_zip_member *entry = &zip.entries[i];
      assert_memory_equal(entry->data, bytes, entry->bytes);
      assert_ok(treadle_zip_check(path, entry, entry->data));
      assert_int_equal((entry->data - (const unsigned char *)mapped) % 64, 0);
    }
    treadle_file_unmap(mapped, count);
    treadle_arena_release(&arena);
  }
  TEST_EACH_ALLOCATION(write_some(path, bytes, 1000));
  assert_int_equal(files_in(folder), 1);
  test_remove(folder);
}

/* Over 65,535 entries: the end record needs zip64. */
static void writes_many(void **state) {
  (void)state;
  char path[128], name[32];
  const char *folder = test_folder();
  treadle_zip_writer *writer = NULL;
  treadle_arena arena = {0};
  treadle_zip zip;
  const void *mapped;
  size_t count;
  snprintf(path, sizeof path, "%s/z.zip", folder);
  assert_ok(treadle_zip_create(path, &writer));
  for (int i = 0; i < 65536; i++) {
    snprintf(name, sizeof name, "%05d", i);
    assert_ok(treadle_zip_begin(writer, name, 0));
  }
  assert_ok(treadle_zip_finish(writer));
  treadle_zip_destroy(writer);
  assert_ok(treadle_file_map(path, &mapped, &count));
  assert_ok(treadle_zip_parse(path, mapped, count, &arena, &zip));
  assert_int_equal(zip.count, 65536);
  assert_string_equal(zip.entries[65535].name, "65535");
  treadle_arena_release(&arena);
  for (size_t less = 1; less <= 98; less++) /* the end records, byte by byte */
    assert_refused("z", treadle_zip_parse(path, mapped, count - less, &arena, &zip));
  treadle_file_unmap(mapped, count);
  treadle_arena_release(&arena);
  test_remove(folder);
}

static void leaves_nothing(void **state) {
  (void)state;
  char path[128];
  const char *folder = test_folder();
  treadle_zip_writer *writer = NULL;
  snprintf(path, sizeof path, "%s/z.zip", folder);
  assert_ok(treadle_zip_create(path, &writer));
  assert_ok(treadle_zip_begin(writer, "a", 10));
  assert_ok(treadle_zip_append(writer, "12345", 5));
  assert_fails(TREADLE_STATE, "6 bytes more for an entry that lacks 5",
               treadle_zip_append(writer, "123456", 6));
  assert_fails(TREADLE_STATE, "entry 'a' lacks 5 of its 10 bytes", treadle_zip_begin(writer, "b", 1));
  assert_fails(TREADLE_STATE, "entry 'a' lacks 5 of its 10 bytes", treadle_zip_finish(writer));
  treadle_zip_destroy(writer);
  assert_int_equal(files_in(folder), 0);
  assert_fails(TREADLE_SYSTEM, "cannot open the folder", treadle_zip_create("/tmp/no/such/z.zip", &writer));
  test_remove(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reads),
      cmocka_unit_test(refuses),
      cmocka_unit_test(refuses_truncated),
      cmocka_unit_test(refuses_bombs),
      cmocka_unit_test(finds_wrong_crc),
      cmocka_unit_test(writes_what_it_reads),
      cmocka_unit_test(writes_many),
      cmocka_unit_test(leaves_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
