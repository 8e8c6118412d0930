/* src/core/io/tensor_list.c: good lists, plain and gzipped, and bad ones refused by line. */
#include "test.h"

#include "io/file.h"
#include "io/safetensors.h"

#include <zlib.h>

static const char GOOD[] = "b\tBF16\t2x3\na\tF32\t\nc.weight_scale_inv\tF8_E4M3\t4\n";

/* Writes the text to a file and opens that as a list. */
static treadle_status open_list(const char *text, size_t length, bool zipped, size_t cut,
                                treadle_checkpoint **checkpoint_p) {
  char path[200];
  const char *folder = test_folder();
  snprintf(path, sizeof path, "%s/list.tsv%s", folder, zipped ? ".gz" : "");
  if (zipped) {
    gzFile file = gzopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, text, (unsigned)length), (int)length);
    assert_int_equal(gzclose(file), Z_OK);
  } else {
    assert_ok(treadle_file_write(path, text, length));
  }
  if (cut) assert_int_equal(truncate(path, (off_t)cut), 0);
  treadle_status status = treadle_checkpoint_open_list(path, checkpoint_p);
  test_remove(folder);
  return status;
}

static treadle_status open_text(const char *text) {
  treadle_checkpoint *checkpoint = NULL;
  treadle_status status = open_list(text, strlen(text), false, 0, &checkpoint);
  treadle_checkpoint_close(checkpoint);
  return status;
}

static void good(void **state) {
  (void)state;
  for (int zipped = 0; zipped < 2; zipped++) {
    treadle_checkpoint *list;
    assert_ok(
        open_list(GOOD, sizeof GOOD - 1 - (size_t)zipped, zipped, 0, &list)); /* the last end is optional */
    assert_int_equal(list->count, 3);
    const treadle_stored *b = treadle_checkpoint_find(list, "b"), *a = treadle_checkpoint_find(list, "a");
    assert_int_equal(b->ndim, 2);
    assert_int_equal(b->shape[1], 3);
    assert_int_equal(b->bytes, 12);
    assert_int_equal(b->dtype, TREADLE_BF16);
    assert_null(b->data);
    assert_int_equal(a->ndim, 0);
    assert_int_equal(a->elems, 1);
    treadle_checkpoint_close(list);
  }
}

/* Lines may end as Windows ends them. */
static void carriage_returns(void **state) {
  (void)state;
  static const char text[] = "b\tBF16\t2x3\r\na\tF32\t\r\n";
  treadle_checkpoint *list;
  assert_ok(open_list(text, sizeof text - 1, false, 0, &list));
  assert_int_equal(list->count, 2);
  assert_int_equal(treadle_checkpoint_find(list, "b")->shape[1], 3);
  assert_int_equal(treadle_checkpoint_find(list, "a")->ndim, 0);
  treadle_checkpoint_close(list);
}

static void bad(void **state) {
  (void)state;
  assert_refused("list.tsv: line 2: is not name, dtype and shape", open_text("a\tF32\t2\nb F32 2\n"));
  assert_refused("line 1: is not name", open_text("a\tF32\t2\tmore\n"));
  assert_refused("line 1: is not name", open_text("\tF32\t2\n"));
  assert_refused("line 2: is not name", open_text("a\tF32\t2\n\nb\tF32\t2\n"));
  assert_refused("line 1: tensor 'a': unknown dtype 'F31'", open_text("a\tF31\t2\n"));
  static const char *const shapes[] = {
      "x", "2x", "x2", "2xx2", "-2", "2 x 2", "2,2", "99999999999999999999", "2\r\r"};
  for (size_t i = 0; i < TEST_COUNT(shapes); i++) {
    char text[100];
    snprintf(text, sizeof text, "a\tF32\t2\nb\tF32\t%s\n", shapes[i]);
    assert_refused("line 2: the shape of 'b' is not whole numbers", open_text(text));
  }
  assert_refused("line 1: 'a' has more than 8 dimensions", open_text("a\tF32\t1x1x1x1x1x1x1x1x1\n"));
  assert_refused("more than 2^63 bits", open_text("a\tF32\t9999999999x9999999999\n"));
  assert_refused("line 3: 'a' stands in line 1 already", open_text("a\tF32\t2\nb\tF32\t2\na\tF32\t2\n"));
  assert_refused("has no line", open_text(""));
  treadle_checkpoint *list = NULL;
  assert_refused("has a zero byte", open_list("a\tF32\t2\0\n", 9, false, 0, &list));
  assert_refused("list.tsv.gz: ", open_list(GOOD, sizeof GOOD - 1, true, 30, &list));
}

/* Writes gzip members and what stands behind them. */
static treadle_status open_members(int members, const char *behind, size_t behind_bytes) {
  char path[200];
  const char *folder = test_folder();
  snprintf(path, sizeof path, "%s/list.tsv.gz", folder);
  for (int i = 0; i < members; i++) {
    gzFile file = gzopen(path, "ab");
    assert_non_null(file);
    assert_true(gzprintf(file, "t%d\tF32\t2\n", i) > 0);
    assert_int_equal(gzclose(file), Z_OK);
  }
  FILE *file = fopen(path, "ab");
  assert_int_equal(fwrite(behind, 1, behind_bytes, file), behind_bytes);
  fclose(file);
  treadle_checkpoint *list = NULL;
  treadle_status status = treadle_checkpoint_open_list(path, &list);
  if (!status) assert_int_equal(list->count, members);
  treadle_checkpoint_close(list);
  test_remove(folder);
  return status;
}

static void behind_the_end(void **state) {
  (void)state;
  assert_ok(open_members(1, "", 0));
  assert_ok(open_members(3, "", 0));
  assert_refused("list.tsv.gz: the last 7 of its", open_members(2, "garbage", 7));
  assert_refused("the last 1 of its", open_members(1, "\0", 1));
  assert_refused("ends in the middle", open_members(1, "\x1f\x8b\x08", 3));
  assert_refused("cannot be read: ", open_members(1, "\x1f\x8b\x63\x63", 4));
}

static treadle_status open_and_close(const char *path) {
  treadle_checkpoint *list = NULL;
  treadle_status status = treadle_checkpoint_open_list(path, &list);
  treadle_checkpoint_close(list);
  return status;
}

static void without_memory(void **state) {
  (void)state;
  char path[200];
  const char *folder = test_folder();
  snprintf(path, sizeof path, "%s/list.tsv", folder);
  assert_ok(treadle_file_write(path, GOOD, sizeof GOOD - 1));
  TEST_EACH_ALLOCATION(open_and_close(path));
  test_remove(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(good), cmocka_unit_test(carriage_returns),
                                     cmocka_unit_test(bad), cmocka_unit_test(behind_the_end),
                                     cmocka_unit_test(without_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
