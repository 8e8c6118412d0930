/* src/core/io/safetensors.c: every refusal of a header, and writing. */
#include "test.h"

#include "base/random.h"
#include "io/file.h"
#include "io/safetensors.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>

/* An image of `header` and data_bytes zero bytes, with `length` in front. */
static treadle_status parse_length(const char *header, size_t data_bytes, uint64_t length) {
  treadle_arena arena = {0};
  treadle_stored *tensors = NULL;
  int32_t count = -1;
  size_t bytes = 8 + strlen(header) + data_bytes;
  unsigned char *image = treadle_alloc(bytes);
  for (int i = 0; i < 8; i++) image[i] = (unsigned char)(length >> (8 * i));
  memcpy(image + 8, header, strlen(header));
  treadle_status status =
      treadle_safetensors_parse("m.safetensors", image, bytes, &arena, &tensors, &count);
  assert_int_equal(count >= 0, status == TREADLE_OK);
  treadle_arena_release(&arena);
  treadle_free(image);
  return status;
}

static treadle_status parse(const char *header, size_t data_bytes) {
  return parse_length(header, data_bytes, strlen(header));
}

/* A tensor of 8 bytes. */
#define T(name, begin, end)                                                                                \
  "\"" name "\":{\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[" #begin "," #end "]}"

static void takes_headers(void **state) {
  (void)state;
  assert_ok(parse("{}", 0));
  assert_ok(parse("{}   ", 0));
  assert_ok(parse("{\"__metadata__\":{\"format\":\"pt\"}}", 0));
  assert_ok(parse("{" T("b", 8, 16) "," T("a", 0, 8) "}   ", 16));
  assert_ok(parse("{\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4)); /* a scalar */
  assert_ok(parse("{" T("a", 0, 8) ",\"e\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[8,8]}," T(
                      "b", 8, 16) "}",
                  16));
  assert_ok(parse("{\"x\":{\"dtype\":\"F4\",\"shape\":[6],\"data_offsets\":[0,3]}}", 3));
}

static void refuses_lengths(void **state) {
  (void)state;
  treadle_arena arena = {0};
  treadle_stored *tensors;
  int32_t count;
  for (size_t bytes = 0; bytes < 8; bytes++)
    assert_refused("the length of the header takes 8",
                   treadle_safetensors_parse("x", "\0\0\0\0\0\0\0", bytes, &arena, &tensors, &count));
  assert_refused("line 1", treadle_safetensors_parse("x", "\0\0\0\0\0\0\0\0", 8, &arena, &tensors, &count));
  assert_refused("a header of 9223372036854775808 bytes in a file of 10",
                 parse_length("{}", 0, (uint64_t)1 << 63));
  assert_refused("a header of 18446744073709551615 bytes in", parse_length("{}", 0, UINT64_MAX));
  assert_refused("a header of 100000001 bytes; at most 100000000",
                 parse_length("{}", 100000000, 100000001));
  assert_refused("a header of 3 bytes in a file of 10", parse_length("{}", 0, 3));
  assert_refused("line 1", parse_length("{}", 0, 1)); /* cut off */
  treadle_arena_release(&arena);
}

/* Every beginning of a good file is refused. */
static void refuses_truncated(void **state) {
  (void)state;
  static const char header[] = "{" T("a", 0, 8) "," T("b", 8, 16) "}";
  size_t length = strlen(header), bytes = 8 + length + 16;
  unsigned char *image = treadle_alloc(bytes);
  image[0] = (unsigned char)length;
  memcpy(image + 8, header, length);
  for (size_t cut = 0; cut <= bytes; cut++) {
    unsigned char *exact = treadle_alloc(cut); /* its own block: the sanitizer sees a read beyond it */
    memcpy(exact, image, cut);
    treadle_arena arena = {0};
    treadle_stored *tensors;
    int32_t count;
    treadle_status status = treadle_safetensors_parse("x", exact, cut, &arena, &tensors, &count);
    assert_int_equal(status, cut == bytes ? TREADLE_OK : TREADLE_REFUSED);
    treadle_arena_release(&arena);
    treadle_free(exact);
  }
  treadle_free(image);
}

static void refuses_headers(void **state) {
  (void)state;
#define ENTRY(dtype, shape, offsets)                                                                       \
  "{\"x\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
  static const struct {
    const char *header;
    size_t data_bytes;
    const char *part;
  } bad[] = {
      {"[]", 0, "is not a JSON object that begins with {"},
      {" {}", 0, "is not a JSON object that begins with {"},
      {"{}}", 0, "m.safetensors: line 1, column 3"},
      {"{\"x\":1}", 0, "tensor 'x': its keys are not"},
      {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "its keys are not"},
      {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"more\":1}}", 4,
       "its keys are not"},
      {"{\"__metadata__\":[]}", 0, "__metadata__ is not texts by name"},
      {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__ is not texts by name"},
      {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "stands twice in one object"},
      {"{" T("a", 0, 8) "," T("a", 8, 16) "}", 16, "stands twice in one object"},
      /* dtype and shape */
      {ENTRY("\"F33\"", "[1]", "[0,4]"), 4, "tensor 'x': unknown dtype 'F33'"},
      {ENTRY("\"bf16\"", "[1]", "[0,2]"), 2, "unknown dtype 'bf16'"},
      {ENTRY("7", "[1]", "[0,4]"), 4, "its keys are not"},
      {ENTRY("\"F32\"", "1", "[0,4]"), 4, "shape is not a list"},
      {ENTRY("\"F32\"", "[1.0]", "[0,4]"), 4, "shape has something that is not a whole number"},
      {ENTRY("\"F32\"", "[\"1\"]", "[0,4]"), 4, "shape has something that is not a whole number"},
      {ENTRY("\"F32\"", "[-1]", "[0,4]"), 4, "shape has the negative number -1"},
      {ENTRY("\"F32\"", "[-1,-1]", "[0,4]"), 4, "shape has the negative number -1"},
      {ENTRY("\"F32\"", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, "shape is not a list of 0 to 8 numbers"},
      {ENTRY("\"F32\"", "[4294967296,4294967296]", "[0,4]"), 4,
       "shape [4294967296,4294967296] of F32 has more than"},
      {ENTRY("\"F32\"", "[4611686018427387904,4,1]", "[0,0]"), 0, "more than 2^63 bits"},
      {ENTRY("\"F32\"", "[9223372036854775807]", "[0,4]"), 4, "more than 2^63 bits"},
      {ENTRY("\"F32\"", "[9223372036854775807,9223372036854775807,0]", "[0,0]"), 0, "more than 2^63 bits"},
      {ENTRY("\"F32\"", "[9223372036854775808]", "[0,4]"), 4, "beyond 64 bits"},
      {ENTRY("\"F4\"", "[3]", "[0,2]"), 2, "is not a whole number of bytes"},
      /* offsets */
      {ENTRY("\"F32\"", "[2,4]", "[0,12]"), 12,
       "m.safetensors: tensor 'x': data_offsets [0, 12] hold 12 bytes, shape [2,4] of F32 needs 32"},
      {ENTRY("\"F32\"", "[1]", "[0,8]"), 8, "hold 8 bytes, shape [1] of F32 needs 4"},
      {ENTRY("\"F32\"", "[1]", "[4,0]"), 4, "hold -4 bytes"},
      {ENTRY("\"F32\"", "[1]", "[-4,0]"), 4, "data_offsets has the negative number -4"},
      {ENTRY("\"F32\"", "[1]", "[0,4.0]"), 4, "data_offsets has something that is not a whole number"},
      {ENTRY("\"F32\"", "[1]", "[0,\"4\"]"), 4, "data_offsets has something that is not a whole number"},
      {ENTRY("\"F32\"", "[1]", "[0]"), 4, "data_offsets is not a list of 2 to 2"},
      {ENTRY("\"F32\"", "[1]", "[0,4,8]"), 4, "data_offsets is not a list of 2 to 2"},
      {ENTRY("\"F32\"", "[1]", "[0,18446744073709551616]"), 4, "beyond 64 bits"},
      {ENTRY("\"F32\"", "[1]", "[0,4]"), 3, "tensor 'x' ends at byte 4, the file has 3 bytes of data"},
      {ENTRY("\"F32\"", "[1]", "[0,4]"), 0, "the file has 0 bytes of data"},
      {ENTRY("\"U8\"", "[9223372036854775800]", "[0,9223372036854775800]"), 4, "more than 2^63 bits"},
      {ENTRY("\"F32\"", "[1]", "[9223372036854775803,9223372036854775807]"), 4, "belong to no tensor"},
      {ENTRY("\"F32\"", "[0]", "[4,4]"), 4, "bytes 0 to 4 between the header and tensor 'x'"},
      {ENTRY("\"F32\"", "[1]", "[4,8]"), 8, "bytes 0 to 4 between the header and tensor 'x'"},
      {ENTRY("\"F32\"", "[1]", "[0,4]"), 5, "bytes 4 to 5 at its end belong to no tensor"},
      {"{}", 1, "bytes 0 to 1 at its end"},
      {"{" T("a", 0, 8) "," T("b", 4, 12) "}", 12,
       "tensor 'b' begins at byte 4, inside 'a', which ends at 8"},
      {"{" T("a", 0, 8) "," T("b", 0, 8) "}", 8, "begins at byte 0, inside"},
      {"{" T("a", 0, 8) "," T("b", 12, 20) "}", 20, "bytes 8 to 12 between a and tensor 'b'"},
  };
  for (size_t i = 0; i < TEST_COUNT(bad); i++)
    assert_refused(bad[i].part, parse(bad[i].header, bad[i].data_bytes));
}

static void lists_what_it_does_not_move(void **state) {
  (void)state;
  static const char header[] = "{\"x\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[0,16]}}";
  unsigned char image[8 + sizeof header - 1 + 16] = {sizeof header - 1};
  memcpy(image + 8, header, sizeof header - 1);
  treadle_arena arena = {0};
  treadle_stored *tensors;
  int32_t count;
  assert_ok(treadle_safetensors_parse("x", image, sizeof image, &arena, &tensors, &count));
  assert_int_equal(count, 1);
  assert_int_equal(tensors[0].dtype, TREADLE_DTYPE_NONE);
  assert_string_equal(tensors[0].dtype_text, "I64");
  assert_int_equal(tensors[0].elems, 2);
  assert_int_equal(tensors[0].bytes, 16);
  assert_ptr_equal(tensors[0].data, image + 8 + sizeof header - 1);
  treadle_arena_release(&arena);
}

/* ---- Writing ------------------------------------------------------------------------------------- */

static const float ONE[6] = {1, 2, 3, 4, 5, 6};
static const uint16_t TWO[4] = {11, 12, 13, 14};
static const uint8_t THREE[3] = {7, 8, 9};
static const treadle_stored WRITTEN[] = {
    {.name = "two", .dtype = TREADLE_BF16, .ndim = 2, .shape = {2, 2}, .data = TWO},
    {.name = "three \"\\ \xc3\xa9\n", .dtype_text = "U8", .ndim = 1, .shape = {3}, .data = THREE},
    {.name = "one", .dtype = TREADLE_FP32, .ndim = 3, .shape = {1, 2, 3}, .data = ONE},
    {.name = "none", .dtype = TREADLE_FP16, .ndim = 2, .shape = {0, 5}},
};

static int entries(const char *folder) {
  DIR *dir = opendir(folder);
  int count = 0;
  while (readdir(dir)) count++;
  closedir(dir);
  return count - 2;
}

static void writes_what_it_reads(void **state) {
  (void)state;
  char path[128];
  const char *folder = test_folder();
  snprintf(path, sizeof path, "%s/m.safetensors", folder);
  assert_ok(treadle_safetensors_write(path, WRITTEN, 4));
  treadle_checkpoint *checkpoint = NULL;
  assert_ok(treadle_checkpoint_open(path, &checkpoint));
  assert_int_equal(checkpoint->count, 4);
  assert_int_equal(checkpoint->total_bytes, sizeof ONE + sizeof TWO + sizeof THREE);
  for (int i = 0; i < 4; i++) {
    const treadle_stored *want = &WRITTEN[i], *got = treadle_checkpoint_find(checkpoint, want->name);
    assert_non_null(got);
    assert_int_equal(got->dtype, want->dtype);
    assert_int_equal(got->ndim, want->ndim);
    assert_memory_equal(got->shape, want->shape, sizeof want->shape);
    if (got->bytes) assert_memory_equal(got->data, want->data, got->bytes);
    if (got->dtype == TREADLE_FP32) assert_int_equal((uintptr_t)got->data % 4, 0);
    if (i) assert_true(strcmp(checkpoint->tensors[i - 1].name, checkpoint->tensors[i].name) < 0);
  }
  treadle_checkpoint_close(checkpoint);

  assert_ok(treadle_safetensors_write(path, NULL, 0));
  assert_ok(treadle_checkpoint_open(path, &checkpoint));
  assert_int_equal(checkpoint->count, 0);
  assert_null(treadle_checkpoint_find(checkpoint, "one"));
  treadle_checkpoint_close(checkpoint);
  test_remove(folder);
}

static void refuses_to_write(void **state) {
  (void)state;
  char path[128];
  const char *folder = test_folder();
  snprintf(path, sizeof path, "%s/m.safetensors", folder);
  treadle_stored one = WRITTEN[0], pair[2] = {WRITTEN[0], WRITTEN[0]};
#define BAD(part, change)                                                                                  \
  do {                                                                                                     \
    one = WRITTEN[0];                                                                                      \
    change;                                                                                                \
    assert_refused(part, treadle_safetensors_write(path, &one, 1));                                        \
  } while (0)
  BAD("has no data", one.data = NULL);
  BAD("lacks a name or a dtype", one.name = NULL);
  BAD("lacks a name or a dtype", one.dtype = TREADLE_DTYPE_NONE);
  BAD("unknown dtype 'F3'", (one.dtype = TREADLE_DTYPE_NONE, one.dtype_text = "F3"));
  BAD("a shape of 9 numbers", one.ndim = 9);
  BAD("a shape of -1 numbers", one.ndim = -1);
  BAD("not all in", one.shape[1] = -2);
  BAD("more than 2^63 bits", one.shape[1] = INT64_MAX);
  BAD("is not UTF-8", one.name = "\xff");
  BAD("stands twice in one object", one.name = "__metadata__");
#undef BAD
  assert_refused("stands twice in one object", treadle_safetensors_write(path, pair, 2));
  assert_int_equal(entries(folder), 0);
  test_remove(folder);
}

static void failure_leaves_nothing(void **state) {
  (void)state;
  char path[128];
  const char *folder = test_folder();
  snprintf(path, sizeof path, "%s/m.safetensors", folder);
  static float large[50000];
  const treadle_stored tensors[] = {
      WRITTEN[0], {.name = "l", .dtype = TREADLE_FP32, .ndim = 1, .shape = {50000}, .data = large}};
  struct rlimit before, limit;
  signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  for (rlim_t bytes = 0; bytes < 200000; bytes += 50000) { /* stands for a disk that is full */
    limit = before;
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    treadle_status status = treadle_safetensors_write(path, tensors, 2);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_fails(TREADLE_SYSTEM, "cannot write", status);
    assert_int_equal(entries(folder), 0);
  }
  assert_fails(TREADLE_SYSTEM, "cannot", treadle_safetensors_write("/proc/m.safetensors", tensors, 2));
  TEST_EACH_ALLOCATION(treadle_safetensors_write(path, tensors, 2));
  assert_int_equal(entries(folder), 1);
  test_remove(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(takes_headers),
                                     cmocka_unit_test(refuses_lengths),
                                     cmocka_unit_test(refuses_truncated),
                                     cmocka_unit_test(refuses_headers),
                                     cmocka_unit_test(lists_what_it_does_not_move),
                                     cmocka_unit_test(writes_what_it_reads),
                                     cmocka_unit_test(refuses_to_write),
                                     cmocka_unit_test(failure_leaves_nothing)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
