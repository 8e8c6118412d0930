/* RLinf's text of a placement: the rows of its own tests of the grammar, and what is refused. */
#include "run/placement_text.h"
#include "test.h"

/* The accelerators of each process: "0 0 1 1", "0-1 2-3". */
static void check(const char *text, const char *wanted) {
  treadle_placement_text placement;
  char found[256] = "";
  assert_ok(treadle_placement_parse("head", text, &placement));
  for (size_t i = 0; i < placement.count; i++) {
    const treadle_placement_part *part = &placement.parts[i];
    for (int64_t p = part->process; p < part->process + part->processes; p++) {
      int64_t count;
      const int64_t first = treadle_placement_resource(part, p, &count);
      snprintf(found + strlen(found), sizeof found - strlen(found), "%s%lld", *found ? " " : "",
               (long long)first);
      if (count > 1)
        snprintf(found + strlen(found), sizeof found - strlen(found), "-%lld",
                 (long long)(first + count - 1));
    }
  }
  if (placement.is_all) snprintf(found, sizeof found, "all");
  assert_string_equal(found, wanted);
}

static void texts(void **state) {
  (void)state;
  check("0-3", "0 1 2 3");
  check("0-2,5,7", "0 1 2 5 7");
  check("0-1:0-3", "0 0 1 1"); /* four processes */
  check("0-3:0-1", "0-1 2-3"); /* two accelerators each */
  check("3", "3");
}

static void parts(void **state) {
  (void)state;
  check("0-1:0-3,3-5", "0 0 1 1 3 4 5");
  check(" 0-1 : 0-1 , 4 ", "0 1 4");
  check("0-1:0-1,2-5:2-3", "0 1 2-3 4-5");
  check("ALL", "all");
  check("4,0-1", "4 0 1");
}

static void refusals(void **state) {
  (void)state;
  static const struct {
    const char *text, *why;
  } rows[] = {
      {"0-1,1-2", "head is '0-1,1-2': Resource ranks must be unique, and 1 is named twice"},
      {"0,0", "Resource ranks must be unique, and 0 is named twice"},
      {"0-7,2", "Resource ranks must be unique, and 2 is named twice"},
      {"0-0:0,1-1:2", "Process ranks must be in ascending order and without a gap, from 1 here"},
      {"0-1:1-2", "Process ranks must be in ascending order and without a gap, from 0 here"},
      {"0-1:0-1,2:0", "Process ranks must be in ascending order and without a gap, from 2 here"},
      {"0-2:0-1", "2 processes on 3 accelerators, of which neither number divides the other"},
      {"0-1:x", "processes are a number or a range"},
      {"3-1", "3-1 ends before it begins"},
      {"", "head must not be empty"},
      {" , ", "head must not be empty"},
      {"some", "head is 'some': a placement is accelerators"},
      {"-1", "a placement is accelerators"},
      {"0-", "a placement is accelerators"},
      {"all:0-3", "a placement is accelerators"},
      {"all,0", "all accelerators are named, and some again"},
      {"99999999999", "a placement is accelerators"},
  };
  treadle_placement_text placement;
  for (size_t i = 0; i < TEST_COUNT(rows); i++)
    assert_refused(rows[i].why, treadle_placement_parse("head", rows[i].text, &placement));
  char many[3 * TREADLE_PLACEMENT_PARTS + 8] = "";
  for (int i = 0; i <= TREADLE_PLACEMENT_PARTS; i++)
    snprintf(many + strlen(many), sizeof many - strlen(many), "%d,", i);
  assert_refused("head has more than 64 parts", treadle_placement_parse("head", many, &placement));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(texts), cmocka_unit_test(parts),
                                     cmocka_unit_test(refusals)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
