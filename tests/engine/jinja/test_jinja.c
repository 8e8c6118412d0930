/* src/engine/jinja/jinja*.c: what is refused and how, limits, failing allocations. What is rendered is compared with Jinja2 in
 * test_jinja_golden.c. */
#include "test.h"

#include "jinja/jinja.h"

static const char *const now = "2025-03-14T15:09:26";

static treadle_status render_by(const char *text, size_t length, const char *variables,
                                const treadle_jinja_options *options, char **text_p) {
  treadle_jinja_template *template = NULL;
  json_t *values = json_loads(variables, 0, NULL);
  size_t bytes = 0;
  *text_p = NULL;
  treadle_status status = treadle_jinja_parse("chat", text, length, &template);
  if (status == TREADLE_OK) status = treadle_jinja_render(template, values, options, text_p, &bytes, NULL);
  treadle_jinja_destroy(template);
  json_decref(values);
  return status;
}

static treadle_status render(const char *text) {
  char *out;
  treadle_jinja_options options = {.now = now};
  treadle_status status =
      render_by(text, strlen(text), "{\"d\": {\"a\": 1}, \"xs\": [3, 1, 2]}", &options, &out);
  treadle_free(out);
  return status;
}

static void assert_renders(const char *wanted, const char *text) {
  char *out;
  treadle_jinja_options options = {.now = now};
  assert_ok(render_by(text, strlen(text), "{\"d\": {\"a\": 1}, \"xs\": [3, 1, 2]}", &options, &out));
  assert_string_equal(out, wanted);
  treadle_free(out);
}

/* What the golden file has little of. */
static void renders(void **state) {
  (void)state;
  assert_renders("1267650600228229401496703205376 -1 6 0.1",
                 "{{ 2 ** 100 }} {{ -(10**30) // 10**30 }} {{ -(10**30) % 7 }} {{ 10**29 / 10**30 }}");
  assert_renders("  3|0x1f|1,234.50|a  |00005",
                 "{{ '%3d|%#x' % (3, 31) }}|{{ '{:,.2f}|{:<3}|{:05d}'.format(1234.5, 'a', 5) }}");
  assert_renders(
      "STRASSE|i\xcc\x87|\xce\xb1\xcf\x82|\xc7\x85",
      "{{ 'stra\xc3\x9f"
      "e'.upper() }}|{{ '\xc4\xb0'.lower() }}|{{ '\xce\x91\xce\xa3'.lower() }}|{{ '\xc7\x86'.title() }}");
  assert_renders("E1E", "{% for x in xs %}{% break %}{% else %}E{% endfor %}{% for x in [1] %}{{ x }}{% "
                        "continue %}{% else %}E{% endfor %}");
  assert_renders("True[][1, 3]", "{% set g = xs | select('gt', 5) %}{{ g is iterable }}{{ g | list }}{{ xs "
                                 "| reject('eq', 2) | sort | list }}");
  assert_renders("(1(2))", "{% for x in [[1, [2]]] recursive %}{% if x is iterable %}({{ loop(x) }}){% "
                           "else %}{{ x }}{% endif %}{% endfor %}");
  assert_renders("{\n  \"a\": 1\n}", "{{ d | tojson(indent=2) }}");
  assert_renders("14 Mar 25 073 11 5 Friday PM", "{{ strftime_now('%d %b %y %j %V %u %A %p') }}");
}

static void refuses_with_line(void **state) {
  (void)state;
  static const struct {
    const char *text, *part;
  } bad[] = {
      {"a\n{{ 1 + }}", "chat: line 2: an expression is wanted, and }} stands there"},
      {"{% if x %}\n{% endfor %}",
       "chat: line 2: the tag 'endfor' is not known here, where {% if %} is open"},
      {"{% for x in y %}\na\n", "chat: line 2: the template ends where {% for %} is open"},
      {"\n\n{% nosuch %}", "chat: line 3: the tag 'nosuch' is not known"},
      {"{{ 'abc }}", "line 1: a string is not closed by '"},
      {"{{ (1] }}", "line 1: ']' stands where ')' is wanted"},
      {"{# a", "line 1: a comment is not closed by #}"},
      {"{{ 1 | nosuch }}", "line 1: there is no filter named 'nosuch'"},
      {"{{ 1 is nosuch }}", "line 1: there is no test named 'nosuch'"},
      {"{% break %}", "line 1: break stands outside of a loop"},
      {"{% for loop in [1] %}{% endfor %}", "line 1: inside of a loop the variable 'loop' cannot be set"},
      {"\n{% if xs %}\n{{ nope.x }}\n{% endif %}", "chat: line 3: 'nope' is undefined"},
      {"{{ d.a.b.c }}", "line 1: a value of type int has no 'b'"},
      {"{{ xs.append(1) }}", "line 1: 'append' of a value of type list is not safe to use in a template"},
      {"{{ 'a' + 1 }}", "line 1: '+' does not take values of types str and int"},
      {"{{ 1 / 0 }}", "line 1: a number is divided by zero"},
      {"{{ ['a', 1] | sort }}", "line 1: '<' does not compare values of types int and str"},
      {"{% macro f(a) %}\n{{ a }}\n{% endmacro %}\n{{ f(1, 2) }}",
       "line 4: the macro 'f' takes not more than 1 argument, and has 2"},
      {"{{ 'a'.replace('b') }}", "line 1: 'replace' lacks its argument 'new'"},
      {"{{ 'a' | replace('b', 'c', x=1) }}", "line 1: 'replace' takes no argument 'x'"},
      {"{{ raise_exception('Roles must alternate') }}", "chat: line 1: Roles must alternate"},
      {"{{ range(100001) }}", "a range has more than 100000 numbers"},
      {"{% set d.a = 1 %}", "'d' is not a namespace"},
      {"{{ '\\ud800' }}", "half of a character"},
  };
  for (size_t i = 0; i < TEST_COUNT(bad); i++) assert_refused(bad[i].part, render(bad[i].text));
}

/* Gaps have names. */
static void refuses_gaps(void **state) {
  (void)state;
  static const struct {
    const char *text, *part;
  } gaps[] = {
      {"\n{% include 'x' %}", "line 2: the tag 'include' is not supported"},
      {"{% import 'x' as y %}", "the tag 'import' is not supported"},
      {"{% extends 'x' %}", "the tag 'extends' is not supported"},
      {"{% from 'x' import y %}", "the tag 'from' is not supported"},
      {"{% autoescape true %}{% endautoescape %}", "the tag 'autoescape' is not supported"},
      {"{{ xs | random }}", "'random' is not supported"},
      {"{{ 'x' | urlize }}", "'urlize' is not supported"},
      {"{{ 'x' | wordwrap }}", "'wordwrap' is not supported"},
      {"{{ lipsum() }}", "'lipsum' is not supported"},
      {"{{ 'x'.encode() }}", "'encode' is not supported"},
      {"{{ self.x() }}", "'self', the blocks of a template, is not supported"},
      {"{{ '\\N{BULLET}' }}", "\\N{...}, are not supported"},
      {"{{ xs | map('upper') }}", "the filter list makes a list of it"},
      {"{{ range }}", "a value of type function cannot be printed"},
  };
  for (size_t i = 0; i < TEST_COUNT(gaps); i++) assert_refused(gaps[i].part, render(gaps[i].text));
  assert_ok(render("{% if false %}{{ xs | random }}{% endif %}")); /* what does not run is not a gap */
}

static void ends_endless_templates(void **state) {
  (void)state;
  static const struct {
    const char *text, *part;
  } endless[] = {
      {"{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
       "the template takes more than"},
      {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "called by itself, more than 1200 levels deep"},
      {"{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "more than 1200 levels deep"},
      {"{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
       "of memory"},
      {"{{ 'x' * 10 ** 12 }}", "the template takes more than 33554432 bytes of memory"},
      {"{% for i in range(9999) %}{{ 'x' * 9999 }}{% endfor %}",
       "the template writes more than 1048576 bytes"},
      {"{% set a = 'x' * 99999 %}{% for i in range(99999) %}{{ 'y' in a }}{% endfor %}",
       "the template takes more than 3000000 steps"},
      {"{{ 10 ** 5000 }}", "an integer has more than 4300 digits"},
      {"{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}", "more than 1200 levels deep"},
  };
  treadle_jinja_options limits = {.steps = 3000000, .memory = 32 << 20, .output = 1 << 20};
  char *out;
  for (size_t i = 0; i < TEST_COUNT(endless); i++)
    assert_refused(endless[i].part,
                   render_by(endless[i].text, strlen(endless[i].text), "{}", &limits, &out));
  enum { DEEP = 5000 };
  static const char *const nests[] = {"(", "[", "-", "not ", "x.", "x|", "1+", "{%if 1%}", "1 if 1 else "};
  for (size_t i = 0; i < TEST_COUNT(nests); i++) {
    size_t each = strlen(nests[i]), length = 3;
    char *deep = malloc(DEEP * each + 8);
    assert_non_null(deep);
    strcpy(deep, nests[i][0] == '{' ? "abc" : "{{ ");
    for (int n = 0; n < DEEP; n++, length += each) memcpy(deep + length, nests[i], each);
    assert_int_equal(render_by(deep, length, "{}", &limits, &out), TREADLE_REFUSED);
    free(deep);
  }
}

static void refuses_bytes(void **state) {
  (void)state;
  char *out;
  assert_refused("chat: line 3: a byte is not part of a character",
                 render_by("a\nb\n\xff", 5, "{}", NULL, &out));
  assert_refused("chat: line 1", render_by("\xc3", 1, "{}", NULL, &out));
  assert_ok(render_by("a\0{{ 'b\0' }}", 13, "{}", NULL, &out));
  assert_memory_equal(out, "a\0b\0", 5);
  treadle_free(out);
}

static void survives_failing_allocations(void **state) {
  (void)state;
  static const char text[] = "{% macro f(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{% for x in xs | sort %}{{ "
                             "f(x) }}{{ loop.index }}{% endfor %}"
                             "{% set y %}{{ xs | map('string') | join(',') | upper }}{% endset %}{{ y }}{{ "
                             "{'a': 2 ** 99} | tojson(indent=1) }}"
                             "{% generation %}{{ '%5.1f' % 2.5 }}{{ 'a b'.split() }}{% endgeneration %}";
  char *out = NULL;
  TEST_EACH_ALLOCATION(
      (treadle_free(out), out = NULL, render_by(text, strlen(text), "{\"xs\": [3, 1, 2]}", NULL, &out)));
  treadle_free(out);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(renders),
                                     cmocka_unit_test(refuses_with_line),
                                     cmocka_unit_test(refuses_gaps),
                                     cmocka_unit_test(refuses_bytes),
                                     cmocka_unit_test(ends_endless_templates),
                                     cmocka_unit_test(survives_failing_allocations)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
