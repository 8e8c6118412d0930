/* src/core/io/pickle.c and pickle_opcodes.c: every type of value, every refusal, and the writer. */
#include "test.h"

#include "io/pickle.h"

static treadle_arena arena;

/* The pickle in a block of its own size: the sanitizer sees a read beyond it. It leaks into no other
 * test. */
static treadle_status read_bytes(const void *bytes, size_t count, treadle_value **value_p) {
  unsigned char *exact = treadle_arena_alloc(&arena, count);
  memcpy(exact, bytes, count);
  return treadle_pickle_read("p", exact, count, &arena, value_p);
}

#define READ(text, value_p) read_bytes(text, sizeof(text) - 1, value_p)

static treadle_value *good(const char *text, size_t count, treadle_pickle_type type) {
  treadle_value *value = NULL;
  assert_ok(read_bytes(text, count, &value));
  assert_int_equal(value->type, type);
  return value;
}

#define GOOD(text, type) good(text, sizeof(text) - 1, type)

static void reads_values(void **state) {
  (void)state;
  GOOD("\x80\x02N.", TREADLE_VALUE_NONE);
  assert_int_equal(GOOD("\x88.", TREADLE_VALUE_BOOL)->is.integer, 1);
  assert_int_equal(GOOD("\x89.", TREADLE_VALUE_BOOL)->is.integer, 0);
  assert_int_equal(GOOD("K\xff.", TREADLE_VALUE_INT)->is.integer, 255);
  assert_int_equal(GOOD("M\xff\xff.", TREADLE_VALUE_INT)->is.integer, 65535);
  assert_int_equal(GOOD("J\xff\xff\xff\xff.", TREADLE_VALUE_INT)->is.integer, -1);
  assert_int_equal(GOOD("\x8a\x00.", TREADLE_VALUE_INT)->is.integer, 0);
  assert_int_equal(GOOD("\x8a\x01\x80.", TREADLE_VALUE_INT)->is.integer, -128);
  assert_int_equal(GOOD("\x8a\x06\x00\x00\x00\x00\x00\x01.", TREADLE_VALUE_INT)->is.integer,
                   (int64_t)1 << 40);
  assert_true(GOOD("\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80.", TREADLE_VALUE_INT)->is.integer ==
              INT64_MIN);
  assert_int_equal(GOOD("\x8b\x09\x00\x00\x00"
                        "123456789.",
                        TREADLE_VALUE_BIG)
                       ->is.bytes.count,
                   9);
  assert_true(GOOD("G\x40\x08\x00\x00\x00\x00\x00\x00.", TREADLE_VALUE_FLOAT)->is.real == 3.0);
  assert_string_equal(treadle_value_text(GOOD("\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00\x8c\x02hi.",
                                              TREADLE_VALUE_TEXT)),
                      "hi");
  assert_string_equal(treadle_value_text(GOOD("X\x02\x00\x00\x00hi.", TREADLE_VALUE_TEXT)), "hi");
  assert_null(treadle_value_text(GOOD("X\x02\x00\x00\x00h\x00.", TREADLE_VALUE_TEXT)));
  assert_memory_equal(GOOD("C\x03"
                           "a\x00"
                           "b.",
                           TREADLE_VALUE_BYTES)
                          ->is.bytes.at,
                      "a\0b", 3);
  assert_int_equal(GOOD("(K\x01K\x02K\x03K\x04t.", TREADLE_VALUE_TUPLE)->is.items.count, 4);
  assert_int_equal(GOOD("K\x01K\x02\x86.", TREADLE_VALUE_TUPLE)->is.items.values[0]->is.integer, 1);
  assert_int_equal(GOOD("](K\x01K\x02"
                        "eK\x03"
                        "a.",
                        TREADLE_VALUE_LIST)
                       ->is.items.count,
                   3);
  assert_int_equal(GOOD("\x8f(K\x01K\x02\x90.", TREADLE_VALUE_SET)->is.items.count, 2);
  assert_int_equal(GOOD("]q\x03"
                        "0h\x03.",
                        TREADLE_VALUE_LIST)
                       ->is.items.count,
                   0);
  assert_int_equal(GOOD("K\x05\x94K\x06\x94\x30\x30h\x01.", TREADLE_VALUE_INT)->is.integer, 6);
  GOOD("N(NN1.", TREADLE_VALUE_NONE);
  const treadle_pickle_items *pairs = treadle_value_pairs(GOOD("}(X\x01\x00\x00\x00"
                                                               "aK\x01X\x01\x00\x00\x00"
                                                               "aK\x02u\x8c\x01"
                                                               "bNs.",
                                                               TREADLE_VALUE_DICT));
  assert_int_equal(pairs->count, 6);
  assert_int_equal(treadle_pairs_get(pairs, "a")->is.integer, 2); /* the last one, as in Python */
  assert_int_equal(treadle_pairs_get(pairs, "b")->type, TREADLE_VALUE_NONE);
  assert_null(treadle_pairs_get(pairs, "c"));
}

static void keeps_calls(void **state) {
  (void)state;
  char words[100];
  treadle_value *value = GOOD("cos\nsystem\nX\x02\x00\x00\x00ls\x85R.", TREADLE_VALUE_CALL);
  const treadle_pickle_call *call = treadle_value_call_of(value, "os", "system");
  assert_string_equal(treadle_value_text(call->arguments->is.items.values[0]), "ls");
  assert_string_equal(treadle_value_words(value, words, sizeof words), "a call of os.system");
  assert_null(treadle_value_call_of(value, "os", "popen"));
  value = GOOD("\x8c\x01m\x8c\x01n\x93)\x81}b(NNuNa.", TREADLE_VALUE_CALL);
  call = treadle_value_call_of(value, "m", "n");
  assert_int_equal(call->state->type, TREADLE_VALUE_DICT);
  assert_int_equal(call->pairs.count, 2);
  assert_int_equal(call->appended.count, 1);
  value = GOOD("cm\nn\n)}\x92.", TREADLE_VALUE_CALL);
  assert_int_equal(value->is.call->keywords->type, TREADLE_VALUE_DICT);
  value = GOOD("cm\nn\n)R)R.", TREADLE_VALUE_CALL);
  assert_string_equal(treadle_value_words(value, words, sizeof words),
                      "a call of something that is made by a call");
  value = GOOD("K\x07Q.", TREADLE_VALUE_PERSISTENT);
  assert_int_equal(value->is.call->arguments->is.integer, 7);
  value = GOOD("ccollections\nOrderedDict\n)R(X\x01\x00\x00\x00"
               "aK\x01u}b.",
               TREADLE_VALUE_CALL);
  assert_int_equal(treadle_pairs_get(treadle_value_pairs(value), "a")->is.integer, 1);
  assert_null(treadle_value_pairs(GOOD("ccollections\nOrderedDict\n]\x85R.", TREADLE_VALUE_CALL)));
  assert_int_equal(
      treadle_value_sequence(GOOD("ctorch\nSize\nK\x01K\x02\x86\x85R.", TREADLE_VALUE_CALL))->count, 2);
  assert_null(treadle_value_sequence(GOOD("ctorch\nSize\nNR.", TREADLE_VALUE_CALL)));
}

static void refuses(void **state) {
  (void)state;
  treadle_value *value;
#define BAD(part, text) assert_refused(part, READ(text, &value))
  BAD("p: pickle: ends after 0 bytes", "");
  BAD("ends after 1 bytes", "N");
  BAD("the stack is empty", ".");
  BAD("leaves values on the stack", "NN.");
  BAD("leaves values on the stack", "(N.");
  BAD("opcode 0x49 at byte 1: is not read", "NI01\n.");
  BAD("opcode 0x82 at byte 0: is not read", "\x82\x01."); /* extension code */
  BAD("opcode 0x97 at byte 0: is not read", "\x97.");     /* buffer outside */
  BAD("opcode 0x69 at byte 1: is not read", "(i");
  BAD("a protocol that is not 2 to 5", "\x80\x01N.");
  BAD("a protocol that is not 2 to 5", "\x80\x06N.");
  BAD("cut off", "\x95\x09\x00\x00\x00\x00\x00\x00\x00N.");
  BAD("cut off", "X\xff\xff\xff\xffhi.");
  BAD("cut off", "\x8d\xff\xff\xff\xff\xff\xff\xff\xffhi.");
  BAD("cut off", "\x8b\xff\xff\xff\x7f"
                 "1.");
  BAD("cut off", "\x8b\xff\xff\xff\xff"
                 "1.");
  BAD("cut off", "cos\nsystem");
  BAD("a name with a zero byte", "cos\nsys\x00tem\n.");
  BAD("names are not texts", "K\x01K\x02\x93.");
  BAD("the stack is empty", "K\x01\x86.");
  BAD("the stack is empty", "K\x01(\x86.");
  BAD("the stack is empty", "(R.");
  BAD("the stack is empty", "Na.");
  BAD("the stack is empty", "NNs.");
  BAD("the stack is empty", "2.");
  BAD("the stack is empty", "(0.");
  BAD("there is no mark", "Nt.");
  BAD("there is no mark", "1.");
  BAD("a key without a value", "}(Nu.");
  BAD("a key without a value", "(Nd.");
  BAD("takes none", "N(NNu.");
  BAD("takes none", "}Na.");
  BAD("takes none", "](NNu.");
  BAD("takes none", ")Na.");
  BAD("gives a state to something that has none", "}}b.");
  BAD("gives a state to something that has none", "cm\nn\n}b.");
  BAD("nothing was kept under", "h\x00.");
  BAD("nothing was kept under", "j\xff\xff\xff\xff.");
  BAD("a memo number larger than the pickle", "Nr\xff\xff\xff\x7f.");
#undef BAD
}

/* `begin`, then count times `again`, then `end`. */
static treadle_status repeat(const char *begin, const char *again, size_t count, const char *end) {
  treadle_value *value;
  size_t each = strlen(again), at = strlen(begin);
  char *bytes = treadle_alloc(at + each * count + strlen(end) + 1);
  memcpy(bytes, begin, at);
  for (size_t i = 0; i < count; i++, at += each) memcpy(bytes + at, again, each);
  strcpy(bytes + at, end);
  treadle_arena own = {0};
  treadle_status status = treadle_pickle_read("p", bytes, at + strlen(end), &own, &value);
  treadle_arena_release(&own);
  treadle_free(bytes);
  return status;
}

static void limits(void **state) {
  (void)state;
  assert_ok(repeat("N", "\x85", 1000, "."));
  assert_refused("more than 1000 deep", repeat("N", "\x85", 1001, "."));
  assert_refused("more than 1000 deep", repeat("N", "\x85", 1000000, "."));
  assert_refused("more than 1000 deep", repeat("cm\nn\n", ")R", 2000000, "."));
  assert_refused("more than 1000 deep",
                 repeat("cm\nn\n)R", "2b", 2000, ".")); /* holds itself again and again */
  assert_refused("more than 1000 deep", repeat("]q1", "h1a", 2000, "."));
  assert_refused("more than 1000 marks", repeat("", "(", 1000000, "."));
  assert_refused("leaves values", repeat("", "N", 1000000, "."));
  assert_ok(repeat("]", "Na", 1000000, "."));
  assert_ok(repeat("(", "N", 1000000, "t."));
  assert_ok(repeat("Nq00",
                   "h0h0\x86q0"
                   "0",
                   900, "h0.")); /* 2^900 leaves, 900 values */
  assert_ok(repeat("]q\x01h\x01"
                   "a",
                   "", 0, ".")); /* a list that holds itself */
}

static void refuses_truncated(void **state) {
  (void)state;
  static const char bytes[] = "\x80\x02}q\x00(X\x01\x00\x00\x00"
                              "aq\x01K\x01X\x01\x00\x00\x00"
                              "bq\x02]q\x03(M\x01\x02J\x01\x02\x03\x04\x8a"
                              "\x01\x05G\x40\x08\x00\x00\x00\x00\x00\x00"
                              "eX\x01\x00\x00\x00"
                              "cq\x04"
                              "cmodule\nname\nq\x05)\x81q\x06}b"
                              "C\x02xyh\x01u.";
  treadle_value *value;
  for (size_t count = 0; count < sizeof bytes - 1; count++)
    assert_refused("p: pickle: ", read_bytes(bytes, count, &value));
  assert_ok(READ(bytes, &value));
}

static treadle_status read_again(void) {
  static const char bytes[] = "\x80\x02}(X\x01\x00\x00\x00"
                              "a](K\x01K\x02"
                              "eq\x20X\x01\x00\x00\x00"
                              "bcm\nn\n)Ru.";
  treadle_arena own = {0};
  treadle_value *value;
  treadle_status status = treadle_pickle_read("p", bytes, sizeof bytes - 1, &own, &value);
  treadle_arena_release(&own);
  return status;
}

static void fails_without_memory(void **state) {
  (void)state;
  TEST_EACH_ALLOCATION(read_again());
}

static void writes(void **state) {
  (void)state;
  static const int64_t numbers[] = {0,         255,      256, -1, INT32_MAX, INT32_MIN, (int64_t)1 << 31,
                                    INT64_MIN, INT64_MAX};
  treadle_pickle pickle = {0};
  treadle_value *value;
  char text[1000] = {0};
  memset(text, 'x', sizeof text - 1);
  treadle_pickle_op(&pickle, '(');
  for (size_t i = 0; i < TEST_COUNT(numbers); i++) treadle_pickle_int(&pickle, numbers[i]);
  treadle_pickle_float(&pickle, -0.1);
  treadle_pickle_text(&pickle, text);
  treadle_pickle_put(&pickle, 200);
  treadle_pickle_get(&pickle, 200);
  treadle_pickle_global(&pickle, "m", "n");
  treadle_pickle_op(&pickle, 't');
  treadle_pickle_op(&pickle, '.');
  assert_false(pickle.failed);
  assert_ok(read_bytes(pickle.bytes, pickle.count, &value));
  treadle_value **items = value->is.items.values;
  for (size_t i = 0; i < TEST_COUNT(numbers); i++) assert_true(items[i]->is.integer == numbers[i]);
  assert_true(items[9]->is.real == -0.1);
  assert_string_equal(treadle_value_text(items[10]), text);
  assert_ptr_equal(items[10], items[11]);
  assert_true(treadle_value_is_global(items[12], "m", "n"));
  treadle_pickle_release(&pickle);
  treadle_alloc_fail_at(1);
  treadle_pickle_int(&pickle, 1);
  treadle_pickle_int(&pickle, 1);
  treadle_alloc_fail_at(0);
  assert_true(pickle.failed);
  treadle_pickle_release(&pickle);
}

static int release(void **state) {
  (void)state;
  treadle_arena_release(&arena);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reads_values),
      cmocka_unit_test(keeps_calls),
      cmocka_unit_test(refuses),
      cmocka_unit_test(limits),
      cmocka_unit_test(refuses_truncated),
      cmocka_unit_test(fails_without_memory),
      cmocka_unit_test(writes),
  };
  return cmocka_run_group_tests(tests, NULL, release);
}
