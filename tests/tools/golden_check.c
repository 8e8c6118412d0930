/* golden_check FILE...: holds the library against golden files (tests/golden) and prints a line a file:
 *
 *   FILE: N cases, E equal, R refused alike, S skipped, D different
 *
 * Each difference is a line on standard error, with the case, the layout text, rank and tensor, and the
 * first run that differs. The status is 1 when there is a difference or a file that cannot be read. */
#include "golden_support/golden.h"

int main(int argc, char **argv) {
  int status = argc < 2;
  if (argc < 2) fputs("usage: golden_check FILE...\n", stderr);
  for (int i = 1; i < argc; i++) {
    golden_counts counts;
    if (!golden_check_file(argv[i], &golden_library, stderr, &counts)) {
      status = 1;
      continue;
    }
    printf("%s: %d cases, %d equal, %d refused alike, %d skipped, %d different\n", argv[i], counts.cases,
           counts.equal, counts.refused, counts.skipped, counts.different);
    status |= counts.different > 0;
  }
  return status;
}
