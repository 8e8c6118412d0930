/* src/core/family/expr.c. */
#include "test.h"

#include "family/expr.h"

/* Names a, b, c, big, yes, no; "broken" fails; a list "odd"; everything else is absent. */
static treadle_status look_up(void *context, const char *name, const int64_t *member, int64_t *value_p,
                              bool *found_p) {
  static const struct {
    const char *name;
    int64_t value;
  } names[] = {{"a", 12}, {"b", 4}, {"c", 5}, {"big", INT64_MAX}, {"yes", 1}, {"no", 0}, {"o.a", 3}};
  int *calls = context;
  if (calls) ++*calls;
  *found_p = false;
  if (member) {
    /* the word is at place 5, and so are the numbers */
    bool words = strcmp(name, "places.word") == 0 || strcmp(name, "places.17") == 0 ||
                 strcmp(name, "o.places.4") == 0;
    *found_p = words || strcmp(name, "odd") == 0;
    *value_p = words ? *member == 5 : *member % 2 != 0;
    return TREADLE_OK;
  }
  if (strcmp(name, "broken") == 0) return treadle_fail(TREADLE_REFUSED, "broken is 'x'");
  for (size_t i = 0; i < TEST_COUNT(names); i++)
    if (strcmp(names[i].name, name) == 0) {
      *value_p = names[i].value;
      *found_p = true;
    }
  return TREADLE_OK;
}

static void values(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int64_t value;
  } rows[] = {{"7", 7},
              {"  a\t", 12},
              {"a / b", 3},
              {"a/b*c", 15},
              {"2 + 3 * 4", 14},
              {"(2 + 3) * 4", 20},
              {"10 - 3 - 2", 5},
              {"a % c", 2},
              {"(c + 1) % 3 == 0", 1},
              {"c in odd", 1},
              {"b in odd or a in odd", 0},
              {"c in absent", 0},
              {"c in places.word and not b in places.word", 1},
              {"c in places.other", 0},
              {"c in o.places.4", 1},
              {"b + 1 in o.places.4 and not b in o.places.4", 1},
              {"o.a * 2", 6},
              {"o.gone ?? a", 12},
              {"c in places.17 and not b in places.17", 1},
              {"c in places.1", 0},
              {"not 1 + b in odd", 0},
              {"1 - 2", -1},
              {"a - 2 * c", 2},
              {"big", INT64_MAX},
              {"9223372036854775807", INT64_MAX},
              {"0 - big - 1", INT64_MIN},
              {"true", 1},
              {"false", 0},
              {"not yes", 0},
              {"not not a", 1},
              {"not no or gone", 1},
              {"not a == b", 1},
              {"a == 12", 1},
              {"a != 12", 0},
              {"a < 12", 0},
              {"a <= 12", 1},
              {"a > 11 and a >= 12", 1},
              {"no or yes and no", 0},
              {"(no or yes) and yes", 1},
              {"a or b", 1},
              {"a and b", 1},
              {"nothing", 99}, /* a name that begins with a word; absent, see below */
              {"gone ?? 5", 5},
              {"a ?? 5", 12},
              {"gone ?? a / b", 3},
              {"gone / b ?? 8", 8},
              {"gone ?? lost ?? 6", 6},
              {"a ?? gone", 12},
              {"a ?? broken", 12},
              {"a ?? 1 / 0", 12},
              {"(gone ?? 0) > 0", 0},
              {"gone > 1 ?? yes", 1},
              {"not gone ?? 4", 4},
              {"no and gone", 0},
              {"yes or 1 / 0", 1},
              {"b == 0 or a / b > 2", 1}};
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    int64_t value = 77;
    if (rows[i].value == 99) {
      assert_refused("nothing is missing", treadle_expr_evaluate("t", rows[i].text, look_up, NULL, &value));
      continue;
    }
    treadle_status status = treadle_expr_evaluate("t", rows[i].text, look_up, NULL, &value);
    if (status != TREADLE_OK || value != rows[i].value)
      fail_msg("%s gave %lld, %s", rows[i].text, (long long)value,
               status == TREADLE_OK ? "ok" : treadle_error_message());
  }
}

static void refusals(void **state) {
  (void)state;
  static const struct {
    const char *text, *words;
  } rows[] = {{"a / c", "t.yaml line 3: a / c: 12 is not divisible by 5"},
              {"a / 0", "a / 0: 12 is divided by 0"},
              {"a / no", "12 is divided by 0"},
              {"(0 - big - 1) / (0 - 1)", "is not divisible by -1"},
              {"big + 1", "9223372036854775807 + 1 does not fit 64 bits"},
              {"0 - big - 2", "- 2 does not fit 64 bits"},
              {"big * 2", "9223372036854775807 * 2 does not fit 64 bits"},
              {"9223372036854775808", "a number does not fit 64 bits"},
              {"gone", "gone is missing, needed by t.yaml line 3"},
              {"1 + gone * 2", "gone is missing"},
              {"gone and yes", "gone is missing"},
              {"no or gone", "gone is missing"},
              {"gone ?? lost", "lost is missing"},
              {"not gone", "gone is missing"},
              {"broken", "broken is 'x'"},
              {"broken ?? 1", "broken is 'x'"},
              {"", "a value is missing at the end"},
              {"1 +", "a value is missing at the end"},
              {"* 2", "a value is missing at '* 2'"},
              {"and", "a value is missing at 'and'"},
              {"a and or b", "a value is missing at 'or b'"},
              {"(a", "')' is missing at the end"},
              {"a)", "an operator is missing at ')'"},
              {"a b", "an operator is missing at 'b'"},
              {"a < b < c", "an operator is missing at '< c'"},
              {"a ? b", "an operator is missing at '? b'"},
              {"a = b", "an operator is missing at '= b'"},
              {"o.", "a word is missing at the end"},
              {"o.4", "a word is missing at '4'"},
              {"o..a", "a word is missing at '.a'"},
              {"a in o.", "a word is missing at the end"},
              {"3a", "a letter follows a number at 'a'"},
              {"-1", "a value is missing at '-1'"},
              {"1.0", "an operator is missing at '.0'"},
              {"\"x\"", "a value is missing"}};
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    int64_t value;
    assert_refused(rows[i].words,
                   treadle_expr_evaluate("t.yaml line 3", rows[i].text, look_up, NULL, &value));
  }
}

/* Depth is limited, length is not. */
static void depth(void **state) {
  (void)state;
  enum { LONG = 20000 };
  char *text = malloc(2 * LONG + 2);
  int64_t value;
  memset(text, '(', LONG);
  strcpy(text + LONG, "1");
  assert_refused("nested deeper than 32", treadle_expr_evaluate("t", text, look_up, NULL, &value));
  for (int i = 0; i < LONG / 4; i++) memcpy(text + 4 * i, "not ", 5);
  assert_refused("nested deeper than 32", treadle_expr_evaluate("t", text, look_up, NULL, &value));
  for (int i = 0; i < LONG; i++) memcpy(text + 2 * i, "1+", 2);
  strcpy(text + 2 * LONG, "1");
  assert_ok(treadle_expr_evaluate("t", text, look_up, NULL, &value));
  assert_int_equal(value, LONG + 1);
  memset(text, 'x', 64);
  text[64] = 0;
  assert_refused("a name is longer than 63", treadle_expr_evaluate("t", text, look_up, NULL, &value));
  free(text);
}

static treadle_status note(void *context, const char *name) {
  strcat(context, name);
  strcat(context, " ");
  return strcmp(name, "stop") == 0 ? treadle_fail(TREADLE_REFUSED, "stopped") : TREADLE_OK;
}

/* A check computes nothing, looks at both sides of everything and shows all names. */
static void checks(void **state) {
  (void)state;
  char names[200] = "";
  assert_ok(treadle_expr_check("t", "a ?? 1 / 0 + b and (c or not d)", note, names));
  assert_string_equal(names, "a b c d ");
  assert_ok(treadle_expr_check("t", "a / 0", NULL, NULL));
  assert_refused("')' is missing", treadle_expr_check("t", "1 or (a", NULL, NULL));
  assert_refused("stopped", treadle_expr_check("t", "a + stop + b", note, names));

  int calls = 0;
  int64_t value;
  assert_ok(treadle_expr_evaluate("t", "yes or a + b > c", look_up, &calls, &value));
  assert_int_equal(calls, 1);

  assert_true(treadle_expr_is_name("hidden_size"));
  assert_true(treadle_expr_is_name("V"));
  assert_false(treadle_expr_is_name(""));
  assert_false(treadle_expr_is_name("not"));
  assert_false(treadle_expr_is_name("2x"));
  assert_false(treadle_expr_is_name("a b"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(values), cmocka_unit_test(refusals),
                                     cmocka_unit_test(depth), cmocka_unit_test(checks)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
