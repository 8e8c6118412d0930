/* src/core/io/torch_dist.c and torch_chunks.c: a recorded checkpoint, damaged ones, chunks that do not fill a
 * tensor. */
#include "test.h"

#include "base/dtype.h"
#include "io/dist_parse.h"
#include "io/file.h"
#include "io/torch_chunks.h"

#include <sys/stat.h>

#define DIST TREADLE_SOURCE_DIR "/tests/data/torch/dist"

static float element(treadle_dtype dtype, const void *data, int64_t i) {
  float value;
  size_t bytes = treadle_dtype_bytes(dtype);
  treadle_dtype_convert(&value, TREADLE_FP32, (const char *)data + (size_t)i * bytes, dtype, 1);
  return value;
}

static void reads(void **state) {
  (void)state;
  treadle_torch_dist *dist = NULL;
  assert_ok(treadle_torch_dist_open(DIST, "_extra_state", &dist));
  assert_int_equal(dist->count, 3);
  assert_int_equal(dist->skipped, 3);
  assert_int_equal(dist->file_count, 2);
  assert_int_equal(dist->total_bytes, 24 * 2 + 10 * 4 + 4);
  const treadle_dist_tensor *weight = &dist->tensors[0], *embedding = &dist->tensors[1],
                            *scalar = &dist->tensors[2];
  assert_string_equal(weight->key, "decoder.layers.weight");
  assert_int_equal(weight->dtype, TREADLE_BF16);
  assert_int_equal(weight->ndim, 3);
  assert_int_equal(weight->shape[1], 4);
  assert_int_equal(weight->chunk_count, 4);
  for (int c = 0; c < 4; c++) { /* chunk (layer, half of the rows): values count through the whole tensor */
    const treadle_dist_box *chunk = &weight->chunks[c];
    assert_true(chunk->contiguous);
    assert_int_equal(chunk->bytes, 12);
    for (int64_t i = 0; i < 6; i++)
      assert_true(element(weight->dtype, chunk->data, i) ==
                  (float)(chunk->offset[0] * 12 + chunk->offset[1] * 3 + i));
  }
  assert_string_equal(embedding->key, "embedding.weight");
  assert_int_equal(embedding->chunks[1].offset[0], 3);
  assert_true(element(embedding->dtype, embedding->chunks[1].data, 0) == 106);
  assert_int_equal(scalar->ndim, 0);
  assert_true(element(scalar->dtype, scalar->chunks[0].data, 0) == 4);
  treadle_torch_dist_close(dist);

  assert_ok(treadle_torch_dist_open(DIST, NULL, &dist));
  assert_int_equal(dist->count, 4); /* the extra state that is a tensor */
  assert_int_equal(dist->skipped, 2);
  treadle_torch_dist_close(dist);
  assert_fails(TREADLE_SYSTEM, ".metadata: cannot open", treadle_torch_dist_open("/tmp", NULL, &dist));
  assert_null(dist);
}

static treadle_status open_again(void) {
  treadle_torch_dist *dist = NULL;
  treadle_status status = treadle_torch_dist_open(DIST, NULL, &dist);
  treadle_torch_dist_close(dist);
  return status;
}

static void fails_without_memory(void **state) {
  (void)state;
  TEST_EACH_ALLOCATION(open_again());
}

static treadle_status parse(const char *image, size_t bytes) {
  treadle_torch_dist *dist = NULL;
  treadle_status status = dist_parse("m", image, bytes, "_extra_state", &dist);
  treadle_torch_dist_close(dist);
  return status;
}

/* The place of some bytes in the image. */
static char *where(char *image, size_t bytes, const char *part, size_t part_bytes) {
  char *at = memmem(image, bytes, part, part_bytes);
  assert_non_null(at);
  return at;
}

static void survives_damage(void **state) {
  (void)state;
  char *image;
  size_t bytes;
  assert_ok(treadle_file_read(DIST "/.metadata", SIZE_MAX, &image, &bytes));
  for (size_t count = 0; count < bytes; count++) {
    char *exact = treadle_alloc(count);
    memcpy(exact, image, count);
    assert_refused("m: ", parse(exact, count));
    treadle_free(exact);
  }
  for (size_t at = 0; at < bytes; at++) {
    static const char xors[] = {1, (char)0x80, (char)0xff};
    for (size_t x = 0; x < sizeof xors; x++) {
      image[at] ^= xors[x];
      treadle_status status = parse(image, bytes);
      assert_true(status == TREADLE_OK || status == TREADLE_REFUSED);
      image[at] ^= xors[x];
    }
  }
#define BAD(reason, part, at, byte)                                                                        \
  do {                                                                                                     \
    char *place = where(image, bytes, part, sizeof(part) - 1) + (at), kept = *place;                       \
    *place = (byte);                                                                                       \
    assert_refused(reason, parse(image, bytes));                                                           \
    *place = kept;                                                                                         \
  } while (0)
  BAD("its element type is not known", "bfloat16", 0, 'x');
  BAD("not a Metadata", "\x8c\x08Metadata", 2, 'N');
  BAD("is neither a tensor nor bytes but a call of", "TensorStorageMetadata", 0, 'X');
  BAD("not a MetadataIndex", "MetadataIndex", 0, 'X');
  BAD("not a file, an offset and a length", "relative_path", 0, 'R');
  BAD("chunk 0 has no offset and size of 3 numbers", "offsets", 0, 'O');
#undef BAD
  treadle_free(image);
}

/* A copy of the recorded folder. */
static const char *copy(void) {
  char command[256];
  const char *folder = test_folder();
  snprintf(command, sizeof command, "cp %s/.metadata %s/* %s", DIST, DIST, folder);
  assert_int_equal(system(command), 0);
  return folder;
}

/* Archives as a writer that makes no sums leaves them: all are 0. */
static void without_sums(char *image, size_t bytes) {
  for (size_t at = 0; at + 20 < bytes; at++)
    if (memcmp(image + at, "PK\1\2", 4) == 0) memset(image + at + 16, 0, 4);
}

static void checks_files(void **state) {
  (void)state;
  treadle_torch_dist *dist = NULL;
  char path[128], *image;
  size_t bytes;
  const char *folder = copy();
  snprintf(path, sizeof path, "%s/__1_0.distcp", folder);
  assert_ok(treadle_file_read(path, SIZE_MAX, &image, &bytes));
  for (size_t count = 0; count < bytes; count += 97) {
    assert_ok(treadle_file_write(path, image, count));
    assert_refused("__1_0.distcp: '", treadle_torch_dist_open(folder, NULL, &dist));
  }
  assert_int_equal(unlink(path), 0);
  assert_fails(TREADLE_SYSTEM, "__1_0.distcp: cannot open", treadle_torch_dist_open(folder, NULL, &dist));
  assert_int_equal(mkdir(path, 0777), 0);
  assert_refused("__1_0.distcp: is a folder", treadle_torch_dist_open(folder, NULL, &dist));
  assert_int_equal(rmdir(path), 0);

  /* Another size than the metadata says. */
  char *place = where(image, bytes, "K\x02K\x03", 4);
  place[1] = 1;
  assert_ok(treadle_file_write(path, image, bytes));
  assert_refused("entry 'archive/data.pkl' is damaged: it has CRC-32",
                 treadle_torch_dist_open(folder, NULL, &dist));
  without_sums(image, bytes);
  assert_ok(treadle_file_write(path, image, bytes));
  assert_refused("has another type or size than the metadata says",
                 treadle_torch_dist_open(folder, NULL, &dist));
  place[1] = 2;
  where(image, bytes, "BFloat16Storage", 15)[14] = 'x';
  assert_ok(treadle_file_write(path, image, bytes));
  assert_refused("'decoder.layers.weight', at byte 0: ", treadle_torch_dist_open(folder, NULL, &dist));
  treadle_free(image);
  test_remove(folder);

  /* A file outside of the folder. */
  folder = copy();
  snprintf(path, sizeof path, "%s/.metadata", folder);
  assert_ok(treadle_file_read(path, SIZE_MAX, &image, &bytes));
  where(image, bytes, "__1_0", 5)[2] = '/';
  assert_ok(treadle_file_write(path, image, bytes));
  assert_refused("'__/_0.distcp' is not a plain file name", treadle_torch_dist_open(folder, NULL, &dist));
  treadle_free(image);
  test_remove(folder);
}

/* ---- Chunks -------------------------------------------------------------------------------------- */

static treadle_status check(int ndim, const int64_t *shape, treadle_dist_box *chunks, int32_t count) {
  treadle_dist_tensor tensor = {
      .key = "w", .ndim = ndim, .elems = 1, .chunks = chunks, .chunk_count = count};
  for (int i = 0; i < ndim; i++) tensor.elems *= tensor.shape[i] = shape[i];
  return treadle_torch_check_chunks("m", &tensor);
}

static void checks_chunks(void **state) {
  (void)state;
  static const int64_t shape[] = {3, 3};
  treadle_dist_box pinwheel[] = {{.offset = {0, 0}, .size = {1, 2}}, {.offset = {0, 2}, .size = {2, 1}},
                                 {.offset = {2, 1}, .size = {1, 2}}, {.offset = {1, 0}, .size = {2, 1}},
                                 {.offset = {1, 1}, .size = {1, 1}}, {.offset = {3, 3}, .size = {0, 0}}};
  assert_ok(check(2, shape, pinwheel, 6)); /* no straight cut goes through */
  assert_refused("its 4 chunks have 8 of its 9 elements", check(2, shape, pinwheel, 4));
  pinwheel[4].size[1] = 2;
  assert_refused("chunks 1 and 4 overlap", check(2, shape, pinwheel, 6));
  pinwheel[4].offset[1] = 2;
  assert_refused("chunk 4 has 2 from 2 of dimension 1, which has 3", check(2, shape, pinwheel, 6));
  pinwheel[4].offset[1] = INT64_MAX;
  assert_refused("chunk 4 has 2 from", check(2, shape, pinwheel, 6));
  treadle_dist_box scalar[2] = {0};
  assert_ok(check(0, NULL, scalar, 1));
  assert_refused("overlap", check(0, NULL, scalar, 2));
  assert_refused("its 0 chunks have 0 of its 1 elements", check(0, NULL, NULL, 0));
  assert_ok(check(1, (const int64_t[]){0}, NULL, 0));
}

/* As many as a large mixture of experts has: [layers, experts, rows] cut along all three. */
static void checks_many_chunks(void **state) {
  (void)state;
  enum { LAYERS = 32, EXPERTS = 64, PARTS = 16, COUNT = LAYERS * EXPERTS * PARTS };
  static const int64_t shape[] = {LAYERS, EXPERTS, PARTS * 5};
  treadle_dist_box *chunks = treadle_alloc_array(COUNT, sizeof *chunks);
  for (int i = 0; i < COUNT; i++)
    chunks[i] = (treadle_dist_box){.offset = {i / (EXPERTS * PARTS), i / PARTS % EXPERTS, i % PARTS * 5},
                                   .size = {1, 1, 5}};
  assert_ok(check(3, shape, chunks, COUNT));
  chunks[COUNT / 2].offset[2] = 0;
  chunks[COUNT / 2].offset[1] = 7;
  assert_refused("overlap", check(3, shape, chunks, COUNT));
  treadle_free(chunks);
}

/* ---- Writing ---- */

static const treadle_dist_part parts[] = {
    {.key = "a", .dtype = TREADLE_BF16, .ndim = 2, .shape = {2, 70}, .size = {1, 70}},
    {.key = "a", .dtype = TREADLE_BF16, .ndim = 2, .shape = {2, 70}, .offset = {1}, .size = {1, 70}},
    {.key = "empty", .dtype = TREADLE_FP32, .ndim = 1},
    {.key = "scalar", .dtype = TREADLE_FP32},
    {.key = "codes", .dtype = TREADLE_FP8_E4M3, .ndim = 1, .shape = {5}, .size = {5}},
};
enum { PARTS = sizeof parts / sizeof *parts, PART_BYTES = 2 * 140 + 4 + 5 };

static treadle_status write_parts(const char *folder, size_t step, int32_t split, size_t lacking) {
  treadle_status status;
  char path[300];
  unsigned char bytes[PART_BYTES];
  treadle_dist_writer *writer = NULL;
  treadle_pickle pickle = {0};
  const treadle_dist_written files[] = {{"one.distcp", parts, split},
                                        {"two.distcp", parts + split, PARTS - split}};
  for (size_t i = 0; i < PART_BYTES; i++) bytes[i] = (unsigned char)i;
  for (size_t f = 0, at = 0; f < 2; f++) {
    size_t end = f == 1 ? PART_BYTES - lacking : split == 1 ? 140 : 280;
    snprintf(path, sizeof path, "%s/%s", folder, files[f].path);
    TRY(treadle_dist_create(path, files[f].parts, files[f].count, &writer));
    for (size_t some; at < end; at += some) {
      some = end - at < step ? end - at : step;
      TRY(treadle_dist_append(writer, bytes + at, some));
    }
    TRY(treadle_dist_finish(writer));
    treadle_dist_writer_destroy(writer);
    writer = NULL;
  }
  TRY(treadle_dist_metadata_make("files", files, 2, &pickle));
  snprintf(path, sizeof path, "%s/.metadata", folder);
  TRY(treadle_file_write(path, pickle.bytes, pickle.count));
out:
  treadle_dist_writer_destroy(writer);
  treadle_pickle_release(&pickle);
  return status;
}

/* In pieces of any size; a tensor in one file or in two. */
static void writes(void **state) {
  (void)state;
  static const size_t steps[] = {1, 7, 140, 1000};
  for (size_t s = 0; s < sizeof steps / sizeof *steps; s++)
    for (int32_t split = 1; split < 3; split++) {
      const char *folder = test_folder();
      treadle_torch_dist *dist;
      size_t at = 0;
      assert_ok(write_parts(folder, steps[s], split, 0));
      assert_ok(treadle_torch_dist_open(folder, NULL, &dist));
      assert_int_equal(dist->count, 4);
      for (int32_t t = 0, part = 0; t < dist->count; t++) {
        const treadle_dist_tensor *tensor = &dist->tensors[t];
        assert_string_equal(tensor->key, parts[part].key);
        assert_int_equal(tensor->dtype, parts[part].dtype);
        assert_int_equal(tensor->ndim, parts[part].ndim);
        assert_memory_equal(tensor->shape, parts[part].shape, sizeof tensor->shape);
        for (int32_t c = 0; c < tensor->chunk_count; c++, part++) {
          const unsigned char *data = tensor->chunks[c].data;
          assert_int_equal(tensor->chunks[c].offset[0], parts[part].offset[0]);
          assert_true(tensor->chunks[c].contiguous);
          for (size_t i = 0; i < tensor->chunks[c].bytes; i++)
            assert_int_equal(data[i], (unsigned char)at++);
        }
      }
      assert_int_equal(at, PART_BYTES);
      treadle_torch_dist_close(dist);
      test_remove(folder);
    }
}

static void wrong_writes(void **state) {
  (void)state;
  const char *folder = test_folder();
  char path[300];
  treadle_dist_writer *writer;
  static const char zeros[200];
  assert_fails(TREADLE_STATE, "'codes' lacks 3 bytes", write_parts(folder, 50, 2, 3));
  snprintf(path, sizeof path, "%s/two.distcp", folder);
  assert_false(treadle_file_exists(path));
  assert_ok(treadle_dist_create(path, parts, 1, &writer));
  assert_fails(TREADLE_STATE, "60 bytes more", treadle_dist_append(writer, zeros, 200));
  treadle_dist_writer_destroy(writer);
  assert_false(treadle_file_exists(path));
  TEST_EACH_ALLOCATION(write_parts(folder, 50, 2, 0));
  test_remove(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reads),           cmocka_unit_test(fails_without_memory),
      cmocka_unit_test(survives_damage), cmocka_unit_test(checks_files),
      cmocka_unit_test(checks_chunks),   cmocka_unit_test(checks_many_chunks),
      cmocka_unit_test(writes),          cmocka_unit_test(wrong_writes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
