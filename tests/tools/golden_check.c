/* golden_check [--data DIR]... FILE...: holds the library against golden files (tests/golden) and prints a line a file:
 *
 *   FILE: N cases, E equal, R refused alike, S skipped, D different
 *
 * Files that a golden file names lie under a DIR, the first one that has them (default: ../shared beside the repository); cases whose
 * files are missing are skipped. Each difference is a line on standard error, with the case and what differs: for layouts the layout
 * text, rank and tensor, and the first run. The status is 1 when there is a difference or a file that cannot be read. */
#include "golden_support/golden.h"
#include "golden_support/golden_data.h"

#include <string.h>

int main(int argc, char **argv) {
  int status = 0, files = 0;
  for (int i = 1; i < argc; i++) {
    golden_counts counts;
    if (strcmp(argv[i], "--data") == 0 && i + 1 < argc) {
      golden_data_add(argv[++i]);
      continue;
    }
    files++;
    if (!golden_check_file(argv[i], &golden_library, stderr, &counts)) {
      status = 1;
      continue;
    }
    printf("%s: %d cases, %d equal, %d refused alike, %d skipped, %d different\n", argv[i], counts.cases,
           counts.equal, counts.refused, counts.skipped, counts.different);
    status |= counts.different > 0;
  }
  if (!files) fputs("usage: golden_check [--data DIR]... FILE...\n", stderr);
  return files ? status : 1;
}
