/* Every operation takes steps by what it touches: bytes, characters, items, limbs of numbers. That goes for those that make no memory,
 * too: a template that does one of them again and again ends. */
#include "test.h"

#include "jinja/jinja.h"

#include <jansson.h>

enum { STEPS = 2500 };

/* s and t are texts of 200,000 characters; b is a number of 4,000 digits; p a tuple with 2^40 leaves in 41 tuples. */
static const char setting[] =
    "{% set s = 'a' * 200000 %}{% set t = 'a' * 199999 ~ 'b' %}{% set u = '\xc3\xa9' * 100000 %}"
    "{% set b = 7 ** 4000 %}{% set n = '1' * 4000 %}{% set a = namespace(l=(1,)) %}"
    "{% for i in range(40) %}{% set a.l = (a.l, a.l) %}{% endfor %}{% set p = a.l %}";

static treadle_status render(const char *body, int64_t steps) {
  treadle_jinja_template *template = NULL;
  char text[2000], *out = NULL;
  size_t bytes;
  json_t *none = json_object();
  const treadle_jinja_options options = {.steps = steps};
  int length = snprintf(text, sizeof text, "%s%s", setting, body);
  assert_ok(treadle_jinja_parse("it", text, (size_t)length, &template));
  treadle_status status = treadle_jinja_render(template, none, &options, &out, &bytes, NULL);
  treadle_jinja_destroy(template);
  json_decref(none);
  free(out);
  return status;
}

/* The least steps with which `body` renders. */
static int64_t steps_of(const char *body) {
  int64_t low = 0, high = INT64_C(1) << 22;
  while (high - low > 1) {
    int64_t middle = low + (high - low) / 2;
    if (render(body, middle) == TREADLE_OK)
      high = middle;
    else
      low = middle;
  }
  return high;
}

static void operations_count(void **state) {
  (void)state;
  static const char *const operations[] = {"s.isalpha()",
                                           "s.isdigit() or s.isalnum()",
                                           "s is lower",
                                           "s is upper or t is lower",
                                           "s.islower()",
                                           "s.istitle()",
                                           "s.strip('a')",
                                           "s.lstrip('ab')",
                                           "s.rstrip('ba')",
                                           "s|trim('a')",
                                           "s.startswith(t)",
                                           "s.endswith(t)",
                                           "s.removeprefix(t)",
                                           "s.replace('a', '')",
                                           "s|replace('a', '')",
                                           "s.count('aa')",
                                           "s.count('x')",
                                           "u.count('')",
                                           "s.find('b')",
                                           "s.rfind('b')",
                                           "s.rfind('ab')",
                                           "s.index('b', 3) if 'b' in s",
                                           "'b' in s",
                                           "t == s",
                                           "t < s",
                                           "s is eq(t)",
                                           "[s]|sort == [t]",
                                           "[t, s]|min == 1",
                                           "[s].count(t)",
                                           "t in [s]",
                                           "{s: 1}[s]",
                                           "t in {s: 1}",
                                           "s|wordcount",
                                           "s.split('b')|length",
                                           "s.rsplit('b')|length",
                                           "s.splitlines()|length",
                                           "s.partition('b')|length",
                                           "s|title|length",
                                           "s|lower|length",
                                           "s|truncate(199000)|length",
                                           "(' ' * 200000)|int",
                                           "(' ' * 200000)|float",
                                           "u|last",
                                           "u[5]",
                                           "u[5:6]",
                                           "u.find('a', 5)",
                                           "[[1]]|map(attribute=s)|list|length",
                                           "[[1]]|sort(attribute=s)|length",
                                           "s|urlencode|length",
                                           "s|e|length",
                                           "s|tojson|length",
                                           "[s]|string|length",
                                           "s.expandtabs()|length"};
  int64_t before = steps_of("");
  for (size_t i = 0; i < TEST_COUNT(operations); i++) {
    char body[300];
    snprintf(body, sizeof body, "{%% set x = %s %%}", operations[i]);
    if (render(body, before + STEPS) == TREADLE_OK)
      fail_msg("%s takes less than %d steps", operations[i], STEPS);
    assert_non_null(strstr(treadle_error_message(), "steps"));
  }
}

static void numbers_count(void **state) {
  (void)state;
  static const struct {
    const char *operation;
    int64_t least;
  } operations[] = {{"b // 7", 1000},
                    {"b % 7", 1000},
                    {"n|int", 10000},
                    {"b|string", 10000},
                    {"b // (b // 3)", 10000},
                    {"0.1234567890123456|string", 100},
                    {"3.14159|round(300)", 100},
                    {"'%.300f' % 0.1", 100},
                    {"1234.5|filesizeformat", 100}};
  int64_t before = steps_of("");
  for (size_t i = 0; i < TEST_COUNT(operations); i++) {
    char body[300];
    snprintf(body, sizeof body, "{%% set x = %s %%}", operations[i].operation);
    if (render(body, before + operations[i].least) == TREADLE_OK)
      fail_msg("%s takes less than %lld steps", operations[i].operation, (long long)operations[i].least);
    assert_ok(render(body, before + 10000000));
  }
}

/* Shared tuples are few in memory and endless to go through. */
static void shared_tuples_end(void **state) {
  (void)state;
  static const char *const bodies[] = {"{% set x = {p: 1}[p] %}",
                                       "{% set x = p in {1: 2} %}",
                                       "{% set x = [p, p]|unique|list %}",
                                       "{% set x = {}.get(p) %}",
                                       "{% set x = dict([(p, 1)]) %}",

                                       "{% set x = (p, 1) < (p, 2) %}",
                                       "{{ p }}",
                                       "{{ p|tojson }}",
                                       "{{ p|pprint }}"};
  for (size_t i = 0; i < TEST_COUNT(bodies); i++)
    assert_refused("takes more than", render(bodies[i], 5000000));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(operations_count), cmocka_unit_test(numbers_count),
                                     cmocka_unit_test(shared_tuples_end)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
