/* golden_check [--data DIR]... FILE...: holds the library against golden files and prints a line a file:
 *
 *   FILE: N cases, E equal, R refused alike, S skipped, D different
 *
 * Golden files are those of layouts (tests/golden), models (an expected.json beside a model, or the folder), real models, tokenizers, chats,
 * Jinja and sampling. Files of layouts are known by their names, others by their fields. Files that a golden file names lie under a
 * DIR, the first one that has them (default: ../shared beside the repository). A case is skipped where its files are missing, where it has
 * a key that is not known or lacks one, and where the library does not do such a thing; a line on standard error says why. So does a
 * line for each difference: the case and what differs.
 *
 * The status is 1 when there is a difference, 2 when a file cannot be read. */
#include "golden_support/golden.h"
#include "golden_support/golden_data.h"

#include <string.h>

int main(int argc, char **argv) {
  int files = 0;
  bool different = false, unread = false;
  for (int i = 1; i < argc; i++) {
    golden_counts counts;
    if (strcmp(argv[i], "--data") == 0 && i + 1 < argc) {
      golden_data_add(argv[++i]);
      continue;
    }
    files++;
    if (!golden_check_file(argv[i], &golden_library, stderr, &counts)) {
      unread = true;
      continue;
    }
    printf("%s: %d cases, %d equal, %d refused alike, %d skipped, %d different\n", argv[i], counts.cases,
           counts.equal, counts.refused, counts.skipped, counts.different);
    different = different || counts.different > 0;
  }
  if (!files) fputs("usage: golden_check [--data DIR]... FILE...\n", stderr);
  return !files || unread ? 2 : different ? 1 : 0;
}
