/* The limits that users read in docs/cli.md are those of the code. */
#include "test.h"

#include "base/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
  const char *what; /* how the row of the table begins */
  int64_t limit;
} limits[] = {
    {"elements of a model", TREADLE_MAX_ELEMS},
    {"bytes of a window", TREADLE_MAX_WINDOW_BYTES},
    {"canonical tensors of a model", TREADLE_MAX_TENSORS},
    {"names of a model's tensors", TREADLE_MAX_NAMES},
    {"storage tensors of all stages", TREADLE_MAX_STORAGES},
    {"fp8 blocks of a tensor", TREADLE_MAX_BLOCKS},
    {"columns of a tensor", TREADLE_MAX_COLUMNS},
    {"pipeline stages", TREADLE_MAX_STAGES},
    {"runs of ranks in `on=`", TREADLE_MAX_OWNER_RUNS},
    {"ranks of explicit pieces", TREADLE_MAX_TABLE_RANKS},
    {"pages of a rank's window", TREADLE_MAX_PAGES},
    {"pages in a report", TREADLE_MAX_REPORT_PAGES},
    {"bytes of all windows", TREADLE_MAX_REPORT_BYTES},
    {"parts in which the ranks", TREADLE_MAX_CELLS},
    {"parts that the windows", TREADLE_MAX_CUTS},
    {"parts that the plans", TREADLE_PLANNED_CUTS},
    {"parts that a report", TREADLE_MAX_REPORT_CUTS},
    {"runs of a storage tensor", TREADLE_MAX_RUNS},
    {"ids of a tokenizer", TREADLE_MAX_TOKENS},
    {"bytes of a text", TREADLE_MAX_TEXT_BYTES},
    {"rows of a batch", TREADLE_MAX_ROWS},
};

static void as_documented(void **state) {
  (void)state;
  char line[1024];
  size_t found = 0;
  FILE *file = fopen(TREADLE_SOURCE_DIR "/docs/cli.md", "r");
  assert_non_null(file);
  while (fgets(line, sizeof line, file))
    for (size_t i = 0; i < TEST_COUNT(limits); i++) {
      if (strncmp(line, "| ", 2) != 0 || strncmp(line + 2, limits[i].what, strlen(limits[i].what)) != 0)
        continue;
      const char *power = strstr(line, "| 2^");
      assert_non_null(power);
      assert_int_equal(INT64_C(1) << atoi(power + 4), limits[i].limit);
      found++;
    }
  fclose(file);
  assert_int_equal(found, TEST_COUNT(limits));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(as_documented)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
