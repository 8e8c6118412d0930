/* src/core/io/torch_read.c and torch_write.c: archives recorded with a real torch, bad ones made by hand, and
 * what is written. */
#include "test.h"

#include "archive.h"
#include "base/dtype.h"
#include "base/hash.h"
#include "io/file.h"
#include "io/file_map.h"
#include "io/torch.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>

#define DATA TREADLE_SOURCE_DIR "/tests/data/torch/"

static const treadle_torch_options MODEL = {.entry = "model", .skipped = "_extra_state", .check_crc = true};

/* ---- Recorded archives --------------------------------------------------------------------------- */

static const treadle_torch_tensor *find(const treadle_torch *torch, const char *name) {
  for (int32_t i = 0; i < torch->count; i++)
    if (strcmp(torch->tensors[i].name, name) == 0) return &torch->tensors[i];
  fail_msg("no tensor %s", name);
  return NULL;
}

/* Element i of the storage order, as a float. */
static float element(const treadle_torch_tensor *tensor, size_t i) {
  float value;
  size_t bytes = treadle_dtype_bytes(tensor->dtype);
  treadle_dtype_convert(&value, TREADLE_FP32, (const char *)tensor->data + i * bytes, tensor->dtype, 1);
  return value;
}

static void reads_megatron(void **state) {
  (void)state;
  static const struct {
    const char *name;
    treadle_dtype dtype;
    int ndim;
    int64_t shape[2];
    float first;
  } wanted[] = {
      {"a.weight", TREADLE_BF16, 2, {3, 4}, 0},    {"b.fp32", TREADLE_FP32, 1, {5}, 20},
      {"c.fp16", TREADLE_FP16, 2, {2, 2}, 30},     {"d.transposed", TREADLE_FP32, 2, {4, 3}, 0},
      {"e.shared_low", TREADLE_FP32, 1, {4}, 100}, {"f.shared_high", TREADLE_FP32, 2, {2, 2}, 106},
      {"g.scalar", TREADLE_FP32, 0, {0}, 7},       {"h.empty", TREADLE_FP32, 2, {0, 3}, 0},
      {"i.parameter", TREADLE_BF16, 1, {3}, 50},   {"j.int64", TREADLE_DTYPE_NONE, 1, {3}, 0},
  };
  treadle_torch *torch = NULL;
  int64_t iteration = 0;
  assert_ok(treadle_torch_open(DATA "megatron.pt", &MODEL, &torch));
  assert_int_equal(torch->count, TEST_COUNT(wanted));
  assert_int_equal(torch->skipped, 2);
  assert_int_equal(torch->opaque, 2); /* the arguments, and the enum in them */
  for (int32_t i = 0; i < torch->count; i++) {
    const treadle_torch_tensor *tensor = &torch->tensors[i];
    assert_string_equal(tensor->entry, "model");
    assert_string_equal(tensor->name, wanted[i].name);
    assert_int_equal(tensor->dtype, wanted[i].dtype);
    assert_int_equal(tensor->ndim, wanted[i].ndim);
    assert_memory_equal(tensor->shape, wanted[i].shape, sizeof wanted[i].shape);
    assert_int_equal(tensor->contiguous, i != 3);
    for (int64_t k = 0; tensor->dtype && k < tensor->elems; k++)
      assert_true(element(tensor, (size_t)k) == wanted[i].first + (float)k);
  }
  assert_int_equal(find(torch, "d.transposed")->strides[0], 1);
  assert_int_equal(find(torch, "d.transposed")->strides[1], 4);
  assert_string_equal(find(torch, "j.int64")->dtype_text, "I64");
  assert_true(treadle_value_int(treadle_pairs_get(torch->top, "iteration"), &iteration));
  assert_int_equal(iteration, 1200);
  assert_true(treadle_pairs_get(torch->top, "checkpoint_version")->is.real == 3.0);
  const treadle_value *args = treadle_pairs_get(torch->top, "args");
  const treadle_pickle_items *settings =
      treadle_value_pairs(treadle_value_call_of(args, "argparse", "Namespace")->state);
  assert_true(treadle_value_int(treadle_pairs_get(settings, "tensor_model_parallel_size"), &iteration));
  assert_int_equal(iteration, 2);
  treadle_torch_close(torch);

  assert_ok(treadle_torch_open(DATA "chunks.pt", &MODEL, &torch));
  assert_int_equal(torch->count, 2);
  assert_string_equal(torch->tensors[0].entry, "model0");
  assert_string_equal(torch->tensors[1].entry, "model1");
  treadle_torch_close(torch);
  assert_ok(treadle_torch_open(DATA "chunks.pt", &(treadle_torch_options){0}, &torch));
  assert_int_equal(torch->count, 0);
  treadle_torch_close(torch);
  assert_ok(treadle_torch_open(DATA "chunks.pt", &(treadle_torch_options){.entry = "mode"}, &torch));
  assert_int_equal(torch->count, 0); /* "model0" is not "mode" and a number */
  treadle_torch_close(torch);
}

static void runs_nothing(void **state) {
  (void)state;
  treadle_torch *torch = NULL;
  assert_ok(treadle_torch_open(DATA "evil_beside.pt", &MODEL, &torch));
  assert_int_equal(torch->count, 1);
  assert_int_equal(torch->opaque, 1);
  treadle_torch_close(torch);
  assert_refused("evil_inside.pt: 'y' is not a tensor but a call of posix.system",
                 treadle_torch_open(DATA "evil_inside.pt", &MODEL, &torch));
  assert_null(torch);
  assert_false(treadle_file_exists("treadle-was-here"));
}

static void refuses_other_files(void **state) {
  (void)state;
  treadle_torch *torch = NULL;
  assert_refused("before 1.6", treadle_torch_open(DATA "old_format.pt", &MODEL, &torch));
  assert_refused("its top is not a dict but a call of torch._utils._rebuild_tensor_v2",
                 treadle_torch_open(DATA "tensor.pt", &MODEL, &torch));
  assert_refused("is not a zip archive", treadle_torch_open(DATA "record.py", &MODEL, &torch));
  assert_refused("is not a zip archive", treadle_torch_parse("x", "", 0, &MODEL, &torch));
  assert_refused("is a folder", treadle_torch_open(DATA, &MODEL, &torch));
  assert_fails(TREADLE_SYSTEM, "cannot open", treadle_torch_open(DATA "none.pt", &MODEL, &torch));
  treadle_torch_tensor tensor;
  treadle_arena arena = {0};
  const void *image;
  size_t bytes;
  assert_ok(treadle_file_map(DATA "tensor.pt", &image, &bytes));
  assert_ok(treadle_torch_parse_tensor("t", image, bytes, &arena, &tensor));
  assert_int_equal(tensor.elems, 2);
  assert_true(element(&tensor, 1) == 1);
  treadle_arena_release(&arena);
  treadle_file_unmap(image, bytes);
}

/* Every beginning of a good file is refused; each changed byte is read or refused. */
static void survives_damage(void **state) {
  (void)state;
  treadle_torch *torch = NULL;
  char *image;
  size_t bytes;
  assert_ok(treadle_file_read(DATA "megatron.pt", SIZE_MAX, &image, &bytes));
  for (size_t count = 0; count < bytes; count++) {
    char *exact = treadle_alloc(count);
    memcpy(exact, image, count);
    assert_refused("m: ", treadle_torch_parse("m", exact, count, &MODEL, &torch));
    treadle_free(exact);
  }
  for (size_t at = 0; at < bytes; at++) {
    static const char xors[] = {1, (char)0x80, (char)0xff};
    for (size_t x = 0; x < sizeof xors; x++) {
      image[at] ^= xors[x];
      treadle_status status = treadle_torch_parse("m", image, bytes, &MODEL, &torch);
      assert_true(status == TREADLE_OK || status == TREADLE_REFUSED);
      treadle_torch_close(torch);
      image[at] ^= xors[x];
    }
  }
  treadle_free(image);
}

static treadle_status open_again(void) {
  treadle_torch *torch = NULL;
  treadle_status status = treadle_torch_open(DATA "megatron.pt", &MODEL, &torch);
  treadle_torch_close(torch);
  return status;
}

static void fails_without_memory(void **state) {
  (void)state;
  TEST_EACH_ALLOCATION(open_again());
}

/* ---- Archives made by hand ----------------------------------------------------------------------- */

static archive_image image;

static treadle_status parse(void) {
  treadle_torch *torch = NULL;
  treadle_status status = treadle_torch_parse("t", image.bytes, image.count, &MODEL, &torch);
  treadle_torch_close(torch);
  return status;
}

static treadle_status parse_pickle(const char *pickle, size_t bytes) {
  image = (archive_image){0};
  archive_torch(&image, pickle, bytes, 48);
  return parse();
}

/* {"model": {"w": _rebuild_tensor_v2(storage, offset, shape, strides, False, {})}} */
#define TENSOR(storage, offset, shape, strides)                                                            \
  "}X\x05\x00\x00\x00model}X\x01\x00\x00\x00wctorch._utils\n_rebuild_tensor_v2\n(" storage offset shape    \
      strides "\x89}tRss."
#define STORAGE(type, key, elems)                                                                          \
  "(X\x07\x00\x00\x00storage" type "X\x01\x00\x00\x00" key "X\x03\x00\x00\x00"                             \
  "cpu" elems "tQ"
#define FLOATS        STORAGE("ctorch\nFloatStorage\n", "0", "K\x0c") /* 12 elements, 48 bytes */
#define PARSE(pickle) parse_pickle(pickle, sizeof(pickle) - 1)

static void checks_tensors(void **state) {
  (void)state;
  assert_ok(PARSE(TENSOR(FLOATS, "K\x00", "K\x03K\x04\x86", "K\x04K\x01\x86")));
  assert_ok(PARSE(TENSOR(FLOATS, "K\x0b", "K\x01\x85", "K\x01\x85")));
  assert_ok(PARSE(TENSOR(FLOATS, "K\x0b", ")", ")")));
  assert_ok(PARSE(TENSOR(FLOATS, "K\x0c", "K\x00\x85", "K\x01\x85")));
  assert_ok(PARSE(TENSOR(FLOATS, "K\x00", "K\x03\x85", "K\x05\x85")));
  assert_ok(
      PARSE(TENSOR(STORAGE("ctorch\nHalfStorage\n", "0", "K\x18"), "K\x00", "K\x18\x85", "K\x01\x85")));
  assert_ok(PARSE("}X\x06\x00\x00\x00modelsN"
                  "s.")); /* not "model" and a number */
  assert_ok(PARSE("}X\x05\x00\x00\x00model}X\x0e\x00\x00\x00"
                  "a._extra_statecos\nsystem\n)Rss."));
  /* A type without storage class: numel counts bytes. */
#define FP8(type, count)                                                                                   \
  "}X\x05\x00\x00\x00model}X\x01\x00\x00\x00wctorch._utils\n_rebuild_tensor_v3\n(" STORAGE(                \
      "ctorch.storage\nUntypedStorage\n", "0", "K\x30") "K\x00K" count "\x85K\x01\x85\x89}ctorch\n" type   \
                                                        "\ntRss."
  assert_ok(PARSE(FP8("float8_e4m3fn", "\x30")));
  assert_ok(PARSE(FP8("bfloat16", "\x18")));
  assert_refused("leave its storage", PARSE(FP8("float8_e4m3fn", "\x31")));
  assert_refused("leave its storage of 24 elements", PARSE(FP8("bfloat16", "\x19")));
  assert_refused("element type is not known", PARSE(FP8("quint8", "\x30")));
#undef FP8
  /* With attributes of Python's. */
#define TYPED(type)                                                                                        \
  "}X\x05\x00\x00\x00model}X\x01\x00\x00\x00wctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n"      \
  "_rebuild_tensor_v2\n" type "(" FLOATS "K\x00))\x89}t}tRss."
  assert_ok(PARSE(TYPED("ctorch\nTensor\n")));
  assert_ok(PARSE(TYPED("ctorch.nn.parameter\nParameter\n")));
  assert_refused("'w' is not a tensor but a call of torch._tensor._rebuild_from_type_v2",
                 PARSE(TYPED("cother\nTensor\n")));
#undef TYPED
  /* Bounds. */
  assert_refused("tensor 'w': its offset 12, shape and strides leave its storage of 12 elements",
                 PARSE(TENSOR(FLOATS, "K\x0c", "K\x01\x85", "K\x01\x85")));
  assert_refused("leave its storage", PARSE(TENSOR(FLOATS, "K\x0d", "K\x00\x85", "K\x01\x85")));
  assert_refused("leave its storage", PARSE(TENSOR(FLOATS, "K\x00", "K\x0d\x85", "K\x01\x85")));
  assert_refused("leave its storage", PARSE(TENSOR(FLOATS, "K\x00", "K\x03\x85", "K\x06\x85")));
  assert_refused("leave its storage",
                 PARSE(TENSOR(FLOATS, "K\x00", "K\x0d\x85", "K\x00\x85"))); /* expanded */
#define HUGE "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"
  assert_refused("leave its storage", PARSE(TENSOR(FLOATS, "K\x01", "K\x02\x85", HUGE "\x85")));
  assert_refused("leave its storage", PARSE(TENSOR(FLOATS, HUGE, "K\x02\x85", "K\x01\x85")));
  assert_refused("leave its storage", PARSE(TENSOR(FLOATS, "K\x00", HUGE "K\x00\x86", "K\x01K\x01\x86")));
  assert_refused("leave its storage", PARSE(TENSOR(FLOATS, "K\x00", HUGE HUGE "\x86", "K\x01K\x01\x86")));
  assert_refused("too few for 9223372036854775807 elements",
                 PARSE(TENSOR(STORAGE("ctorch\nFloatStorage\n", "0", HUGE), "K\x00", ")", ")")));
  assert_refused("has 48 bytes, too few for 13 elements of float32",
                 PARSE(TENSOR(STORAGE("ctorch\nFloatStorage\n", "0", "K\x0d"), "K\x00", ")", ")")));
  /* What is not a tensor. */
  assert_refused("not numbers from 0 on", PARSE(TENSOR(FLOATS, "K\x00", "K\x01\x85", ")")));
  assert_refused("not numbers from 0 on", PARSE(TENSOR(FLOATS, "K\x00", "N", "N")));
  assert_refused("not numbers from 0 on",
                 PARSE(TENSOR(FLOATS, "K\x00", "J\xff\xff\xff\xff\x85", "K\x01\x85")));
  assert_refused("not numbers from 0 on", PARSE(TENSOR(FLOATS, "J\xff\xff\xff\xff", ")", ")")));
  assert_refused("not numbers from 0 on",
                 PARSE(TENSOR(FLOATS, "K\x00", "(K\x01K\x01K\x01K\x01K\x01K\x01K\x01K\x01K\x01t", ")")));
  assert_refused("there is no storage '7'",
                 PARSE(TENSOR(STORAGE("ctorch\nFloatStorage\n", "7", "K\x01"), "K\x00", ")", ")")));
  assert_refused("of the class or function torch.ComplexFloatStorage, which is not read",
                 PARSE(TENSOR(STORAGE("ctorch\nComplexFloatStorage\n", "0", "K\x01"), "K\x00", ")", ")")));
  assert_refused("which is not read",
                 PARSE(TENSOR(STORAGE("cother\nFloatStorage\n", "0", "K\x01"), "K\x00", ")", ")")));
  assert_refused("which is not read", PARSE(TENSOR(STORAGE("N", "0", "K\x01"), "K\x00", ")", ")")));
  assert_refused("its storage is not", PARSE(TENSOR("N", "K\x00", ")", ")")));
  assert_refused("its storage is not", PARSE(TENSOR("NQ", "K\x00", ")", ")")));
  assert_refused("its storage is not", PARSE(TENSOR(STORAGE("N", "0", "N"), "K\x00", ")", ")")));
  assert_refused("'w' is not a tensor but a number",
                 PARSE("}X\x05\x00\x00\x00model}X\x01\x00\x00\x00wK\x01ss."));
  assert_refused("'w' is not a tensor but None", PARSE("}X\x05\x00\x00\x00model}X\x01\x00\x00\x00wNss."));
  assert_refused("'w' is not a tensor but a dict", PARSE("}X\x05\x00\x00\x00model}X\x01\x00\x00\x00w}ss."));
  assert_refused("'model' is not a dict of tensors but a list", PARSE("}X\x05\x00\x00\x00model]s."));
  assert_refused("'model' has a key that is not a text", PARSE("}X\x05\x00\x00\x00model}K\x01Nss."));
  assert_refused("has 'model' twice", PARSE("}(X\x05\x00\x00\x00model}X\x05\x00\x00\x00model}u."));
  static const char twice[] = "}X\x05\x00\x00\x00model}(X\x01\x00\x00\x00wh\x01X\x01\x00\x00\x00wh\x01us.";
  char pickle[1000], *to = pickle;
  const char tensor[] = "ctorch._utils\n_rebuild_tensor_v2\n(" FLOATS "K\x00))\x89}tRq\x01"
                        "0";
  memcpy(to, tensor, sizeof tensor - 1);
  to += sizeof tensor - 1;
  memcpy(to, twice, sizeof twice - 1);
  to += sizeof twice - 1;
  assert_refused("'model' has tensor 'w' twice", parse_pickle(pickle, (size_t)(to - pickle)));
  assert_refused("not a dict but None", PARSE("N."));
}

static void checks_archives(void **state) {
  (void)state;
  static const char good[] = TENSOR(FLOATS, "K\x00", "K\x03\x85", "K\x01\x85");
  static const char zeros[48];
#define BAD(part, ...)                                                                                     \
  do {                                                                                                     \
    image = (archive_image){0};                                                                            \
    __VA_ARGS__;                                                                                           \
    archive_end(&image);                                                                                   \
    assert_refused(part, parse());                                                                         \
  } while (0)
#define PICKLE(folder)  archive_add(&image, folder "/data.pkl", good, sizeof good - 1)
#define STORED(folder)  archive_add(&image, folder "/data/0", zeros, sizeof zeros)
#define VERSION(folder) archive_add(&image, folder "/version", "3\n", 2)
  BAD("it has no data.pkl", STORED("a"), VERSION("a"));
  BAD("it has no data.pkl", archive_add(&image, "data.pkl", good, sizeof good - 1), VERSION("a"));
  BAD("has both 'a/data.pkl' and 'b/data.pkl'", PICKLE("a"), PICKLE("b"), VERSION("a"));
  BAD("format version '(none)'; 1 to 10", PICKLE("a"), STORED("a"), VERSION("b"));
  BAD("format version '11'", PICKLE("a"), STORED("a"), archive_add(&image, "a/version", "11", 2));
  BAD("byte order 'big'; only little", PICKLE("a"), STORED("a"), VERSION("a"),
      archive_add(&image, "a/byteorder", "big", 3));
  BAD("has 65 bytes, at most 64 are read", PICKLE("a"), archive_add(&image, "a/version", good, 65));
  BAD("there is no storage '0'", PICKLE("a"), STORED("b"), VERSION("a"));
  BAD("storage '0' is packed", PICKLE("a"), VERSION("a"),
      archive_add_deflated(&image, "a/data/0", zeros, sizeof zeros));
  BAD("has CRC-32", PICKLE("a"), VERSION("a"), STORED("a")->crc ^= 1);
  BAD("entry 'a/data.pkl' has 8388609 bytes, at most 8388608 are read", VERSION("a"), STORED("a"),
      archive_add_deflated(&image, "a/data.pkl", good, sizeof good - 1)->bytes = (8 << 20) + 1);
  BAD("does not unpack", VERSION("a"), STORED("a"),
      archive_add_deflated(&image, "a/data.pkl", good, sizeof good - 1)->bytes += 5);
#undef BAD
  image = (archive_image){0};
  archive_add_deflated(&image, "any name/data.pkl", good, sizeof good - 1);
  STORED("any name");
  VERSION("any name");
  archive_add(&image, "any name/byteorder", "little", 6);
  archive_add(&image, "any name/.data/serialization_id", "1", 1);
  archive_end(&image);
  assert_ok(parse());
}

/* Values that hold one another without end, or many times: counted once each. */
static void counts_opaque(void **state) {
  (void)state;
  treadle_torch *torch = NULL;
  static const char cycle[] = "}q\x01X\x01\x00\x00\x00"
                              "ah\x01sX\x01\x00\x00\x00"
                              "bcm\nn\nh\x01\x85R}X\x01\x00\x00\x00"
                              "xcm\nn\n)Rsbs.";
  image = (archive_image){0};
  archive_torch(&image, cycle, sizeof cycle - 1, 48);
  assert_ok(treadle_torch_parse("t", image.bytes, image.count, &MODEL, &torch));
  assert_int_equal(torch->opaque, 2);
  treadle_torch_close(torch);
}

/* ---- Writing ------------------------------------------------------------------------------------- */

static const treadle_torch_tensor WRITTEN[] = {
    {.entry = "model0", .name = "two", .dtype = TREADLE_BF16, .ndim = 2, .shape = {2, 2}},
    {.entry = "model0", .name = "none", .dtype = TREADLE_FP16, .ndim = 2, .shape = {0, 5}},
    {.entry = "model0", .name = "name \xc3\xa9", .dtype_text = "I64", .ndim = 1, .shape = {1}},
    {.entry = "model1", .name = "scalar", .dtype = TREADLE_FP32},
    {.entry = "model1", .name = "eight", .dtype_text = "F8_E4M3", .ndim = 3, .shape = {1, 3, 300}},
    {.entry = "model1", .name = "empty", .dtype = TREADLE_FP32, .ndim = 1, .shape = {0}},
};
static const treadle_torch_extra EXTRAS[] = {{.name = "iteration", .integer = 300},
                                             {.name = "checkpoint_version", .is_real = true, .real = 3.0}};
enum { WRITTEN_BYTES = 8 + 8 + 4 + 900 };

static treadle_status write_some(const char *path, const unsigned char *bytes, size_t piece) {
  treadle_torch_writer *writer = NULL;
  treadle_status status;
  TRY(treadle_torch_create(path, WRITTEN, TEST_COUNT(WRITTEN), EXTRAS, TEST_COUNT(EXTRAS), &writer));
  for (size_t at = 0; at < WRITTEN_BYTES; at += piece)
    TRY(treadle_torch_append(writer, bytes + at, WRITTEN_BYTES - at < piece ? WRITTEN_BYTES - at : piece));
  TRY(treadle_torch_finish(writer));
out:
  treadle_torch_writer_destroy(writer);
  return status;
}

static int files_in(const char *folder) {
  DIR *dir = opendir(folder);
  int count = 0;
  while (readdir(dir)) count++;
  closedir(dir);
  return count - 2;
}

static void writes_what_it_reads(void **state) {
  (void)state;
  char path[128];
  unsigned char bytes[WRITTEN_BYTES];
  const char *folder = test_folder();
  snprintf(path, sizeof path, "%s/model_optim_rng.pt", folder);
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(i * 3);
  for (size_t piece = 1; piece < 2000; piece = piece * 3 + 1) {
    treadle_torch *torch = NULL;
    size_t at = 0;
    int64_t iteration = 0;
    assert_ok(write_some(path, bytes, piece));
    assert_ok(treadle_torch_open(path, &MODEL, &torch));
    assert_int_equal(torch->count, TEST_COUNT(WRITTEN));
    for (int32_t i = 0; i < torch->count; i++) {
      const treadle_torch_tensor *got = &torch->tensors[i], *want = &WRITTEN[i];
      assert_string_equal(got->entry, want->entry);
      assert_string_equal(got->name, want->name);
      assert_int_equal(got->ndim, want->ndim);
      assert_memory_equal(got->shape, want->shape, sizeof want->shape);
      if (want->dtype)
        assert_int_equal(got->dtype, want->dtype);
      else
        assert_string_equal(got->dtype_text, want->dtype_text);
      assert_true(got->contiguous);
      assert_int_equal(((const char *)got->data - (const char *)torch->image) % 64, 0);
      if (got->bytes) assert_memory_equal(got->data, bytes + at, got->bytes);
      at += got->bytes;
    }
    assert_int_equal(at, WRITTEN_BYTES);
    assert_true(treadle_value_int(treadle_pairs_get(torch->top, "iteration"), &iteration));
    assert_int_equal(iteration, 300);
    assert_true(treadle_pairs_get(torch->top, "checkpoint_version")->is.real == 3.0);
    assert_int_equal(torch->opaque, 0);
    treadle_torch_close(torch);
  }
  TEST_EACH_ALLOCATION(write_some(path, bytes, 100));
  assert_int_equal(files_in(folder), 1);
  test_remove(folder);
}

/* Byte for byte what torch 1.13.1 opened (tools/check-torch): two entries, bf16 and fp32, a number
 * beside them. When the bytes change on purpose, open the new ones with torch before changing the
 * digest. */
static void writes_what_torch_opened(void **state) {
  (void)state;
  static const treadle_torch_tensor tensors[] = {
      {.entry = "model0", .name = "a", .dtype = TREADLE_BF16, .ndim = 2, .shape = {2, 3}},
      {.entry = "model0", .name = "b", .dtype = TREADLE_FP32, .ndim = 1, .shape = {2}},
      {.entry = "model1", .name = "c", .dtype = TREADLE_FP16},
      {.entry = "model1", .name = "d", .dtype = TREADLE_FP32, .ndim = 2, .shape = {0, 2}}};
  static const uint16_t bytes[] = {0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0,           0x40c0, /* 1 to 6 */
                                   0,      0x40e0, 0,      0x4100, /* 7, 8 */ 0x4880 /* 9 */};
  char path[128], *written;
  size_t count;
  const char *folder = test_folder();
  treadle_torch_writer *writer = NULL;
  snprintf(path, sizeof path, "%s/m.pt", folder);
  assert_ok(treadle_torch_create(path, tensors, TEST_COUNT(tensors), EXTRAS, 1, &writer));
  assert_ok(treadle_torch_append(writer, bytes, sizeof bytes));
  assert_ok(treadle_torch_finish(writer));
  treadle_torch_writer_destroy(writer);
  assert_ok(treadle_file_read(path, SIZE_MAX, &written, &count));
  assert_int_equal(treadle_hash_bytes(written, count, 0), 0xdf313c8070d19a12);
  treadle_free(written);
  test_remove(folder);
}

static void refuses_to_write(void **state) {
  (void)state;
  char path[128];
  unsigned char bytes[WRITTEN_BYTES] = {0};
  const char *folder = test_folder();
  treadle_torch_writer *writer = NULL;
  treadle_torch_tensor one = WRITTEN[0];
  snprintf(path, sizeof path, "%s/m.pt", folder);
#define BAD(change)                                                                                        \
  do {                                                                                                     \
    one = WRITTEN[0];                                                                                      \
    change;                                                                                                \
    assert_refused("or shape cannot be written", treadle_torch_create(path, &one, 1, NULL, 0, &writer));   \
    assert_null(writer);                                                                                   \
  } while (0)
  BAD(one.name = NULL);
  BAD(one.entry = NULL);
  BAD(one.dtype = TREADLE_DTYPE_NONE);
  BAD((one.dtype = TREADLE_DTYPE_NONE, one.dtype_text = "F3"));
  BAD(one.ndim = 9);
  BAD(one.ndim = -1);
  BAD(one.shape[1] = -1);
  BAD(one.shape[1] = INT64_MAX);
#undef BAD
  one = WRITTEN[0];
  assert_ok(treadle_torch_create(path, &one, 1, NULL, 0, &writer));
  assert_fails(TREADLE_STATE, "lacks 8 of its 8 bytes", treadle_torch_finish(writer));
  assert_fails(TREADLE_STATE, "1 bytes more than its tensors have", treadle_torch_append(writer, bytes, 9));
  treadle_torch_writer_destroy(writer);
  struct rlimit before, limit; /* stands for a disk that is full */
  signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  for (rlim_t room = 0; room < 1500; room += 500) {
    limit = before;
    limit.rlim_cur = room;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    treadle_status status = write_some(path, bytes, 100);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_fails(TREADLE_SYSTEM, "cannot write", status);
  }
  assert_int_equal(files_in(folder), 0);
  test_remove(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reads_megatron),       cmocka_unit_test(runs_nothing),
      cmocka_unit_test(refuses_other_files),  cmocka_unit_test(survives_damage),
      cmocka_unit_test(fails_without_memory), cmocka_unit_test(checks_tensors),
      cmocka_unit_test(checks_archives),      cmocka_unit_test(counts_opaque),
      cmocka_unit_test(writes_what_it_reads), cmocka_unit_test(writes_what_torch_opened),
      cmocka_unit_test(refuses_to_write),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
