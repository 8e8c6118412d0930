/* src/core/wire/frame.c: what is a frame, and what is none, byte by byte and bit by bit. */
#include "test.h"
#include "wire/frame.h"

typedef struct head {
  treadle_frame frame;
  int32_t one, other;
} head;

enum { TYPES = 3, REFUSAL = 3, MOST = 100 };

static const treadle_frame_rule rule = {
    .magic = 0x11223344, .version = 7, .types = TYPES, .head_bytes = sizeof(head), .key = 99, .most = MOST};

typedef struct bytes {
  char at[sizeof(head) + MOST + 1];
  size_t count;
} bytes;

static bytes frame_of(const treadle_frame_rule *of, uint32_t type, size_t content) {
  bytes b = {.count = of->head_bytes + content};
  head h = {.frame.type = type, .one = 5, .other = -5};
  memset(b.at + sizeof h, 'x', content);
  treadle_frame_seal(of, &h, b.at + sizeof h, content);
  memcpy(b.at, &h, of->head_bytes);
  return b;
}

static void test_byte_by_byte(void **state) {
  (void)state;
  for (size_t content = 0; content <= MOST; content += 50) {
    const bytes b = frame_of(&rule, 2, content);
    for (size_t count = 0; count <= b.count; count++) {
      head h;
      size_t lacks;
      char *copy = malloc(count + 1); /* so that a sanitizer sees what is read beyond it */
      assert_non_null(copy);
      memcpy(copy, b.at, count);
      copy = realloc(copy, count + !count);
      assert_ok(treadle_frame_read(&rule, copy, count, &h, &lacks));
      assert_int_equal(lacks, (count < sizeof h ? sizeof h : b.count) - count);
      assert_memory_equal(&h, b.at, count < sizeof h ? count : sizeof h);
      free(copy);
    }
  }
}

/* Each bit of it: it is refused, or waits for more bytes than there are. */
static void test_altered(void **state) {
  (void)state;
  bytes b = frame_of(&rule, 1, 7);
  for (size_t bit = 0; bit < 8 * b.count; bit++) {
    head h;
    size_t lacks = 0;
    b.at[bit / 8] ^= (char)(1 << bit % 8);
    treadle_status status = treadle_frame_read(&rule, b.at, b.count, &h, &lacks);
    assert_true(status == TREADLE_REFUSED || (status == TREADLE_OK && lacks > 0));
    if (status == TREADLE_OK)
      assert_in_range(bit / 8, offsetof(treadle_frame, bytes), offsetof(treadle_frame, key) - 1);
    b.at[bit / 8] ^= (char)(1 << bit % 8);
  }
}

static void test_refused(void **state) {
  (void)state;
  static const struct {
    uint32_t magic, version, type, more; /* what is added to those of the rule */
    uint64_t key;
    size_t content, enough; /* enough: bytes after which it is refused */
    const char *words;
  } rows[] = {
      {1, 0, 1, 0, 0, 5, 12, "sent something that is not a message of treadle"},
      {0, 1, 1, 0, 0, 5, 12, "speaks version 8 of treadle's messages, not 7"},
      {0, 0, 1, 0, 1, 5, sizeof(head), "is of another job"},
      {0, 0, 0, 0, 0, 5, sizeof(head), "sent a message of type 0, which there is not"},
      {0, 0, TYPES + 1, 0, 0, 5, sizeof(head), "of type 4"},
      {0, 0, 1, 0, 0, MOST + 1, sizeof(head), "sent a message of 101 bytes; at most 100 are taken"},
  };
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    treadle_frame_rule other = rule;
    head h;
    size_t lacks;
    other.magic += rows[i].magic;
    other.version += rows[i].version;
    other.key += rows[i].key;
    const bytes b = frame_of(&other, rows[i].type, rows[i].content);
    assert_ok(treadle_frame_read(&rule, b.at, rows[i].enough - 1, &h, &lacks));
    assert_refused(rows[i].words, treadle_frame_read(&rule, b.at, rows[i].enough, &h, &lacks));
  }
}

/* The longest that there can be, and fields of another length. */
static void test_lengths(void **state) {
  (void)state;
  bytes b = frame_of(&rule, 1, 0);
  head h;
  size_t lacks;
  treadle_frame frame;
  memcpy(&frame, b.at, sizeof frame);
  for (uint64_t length = UINT64_MAX; length > MOST; length /= 2) {
    frame.bytes = length;
    memcpy(b.at, &frame, sizeof frame);
    assert_refused("at most 100", treadle_frame_read(&rule, b.at, b.count, &h, &lacks));
  }
  frame.bytes = 0;
  frame.fields = UINT32_MAX;
  memcpy(b.at, &frame, sizeof frame);
  assert_refused("with a head of 4294967335 bytes, not 48",
                 treadle_frame_read(&rule, b.at, b.count, &h, &lacks));
}

/* Who refuses is heard, whatever it speaks. */
static void test_refusal(void **state) {
  (void)state;
  treadle_frame_rule mine = rule, other = rule;
  head h;
  size_t lacks;
  mine.refusal = REFUSAL;
  other.version++;
  other.key++;
  bytes b = frame_of(&other, REFUSAL, 9);
  assert_ok(treadle_frame_read(&mine, b.at, b.count, &h, &lacks));
  assert_true(lacks == 0 && h.one == 5 && h.frame.bytes == 9);
  assert_refused("version 8", treadle_frame_read(&rule, b.at, b.count, &h, &lacks));
  b.at[b.count - 1] ^= 1;
  assert_refused("changed on their way", treadle_frame_read(&mine, b.at, b.count, &h, &lacks));
  b = frame_of(&other, 1, 9);
  assert_refused("version 8", treadle_frame_read(&mine, b.at, b.count, &h, &lacks));
}

/* An open one ends with its head, and its content may be anything and very long. */
static void test_open(void **state) {
  (void)state;
  treadle_frame_rule open = rule;
  head h = {.frame.type = 1};
  size_t lacks;
  open.open = true;
  open.most = UINT64_MAX;
  treadle_frame_seal(&open, &h, NULL, UINT64_MAX);
  char b[sizeof h];
  memcpy(b, &h, sizeof b);
  assert_ok(treadle_frame_read(&open, b, sizeof b - 1, &h, &lacks));
  assert_int_equal(lacks, 1);
  assert_ok(treadle_frame_read(&open, b, sizeof b, &h, &lacks));
  assert_true(lacks == 0 && h.frame.bytes == UINT64_MAX);
  b[sizeof b - 1] ^= 1; /* of the fields */
  assert_refused("changed on their way", treadle_frame_read(&open, b, sizeof b, &h, &lacks));
}

int main(void) {
  static const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_byte_by_byte), cmocka_unit_test(test_altered), cmocka_unit_test(test_refused),
      cmocka_unit_test(test_lengths),      cmocka_unit_test(test_refusal), cmocka_unit_test(test_open),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
