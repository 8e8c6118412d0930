/* How long a search is: of all tests and fuzz replays. */
#ifndef TREADLE_TESTS_SEEDS_H
#define TREADLE_TESTS_SEEDS_H

#include <stdint.h>
#include <stdlib.h>

/* How many seeds of a search: `usual`, or TREADLE_PERCENT of it, at least one. The gate has fewer where the same search was done
 * with another compiler. */
static inline uint64_t test_seeds(uint64_t usual) {
  const char *percent = getenv("TREADLE_PERCENT");
  uint64_t seeds = percent ? usual * strtoul(percent, NULL, 10) / 100 : usual;
  return seeds ? seeds : 1;
}

/* The step through `usual` cases that takes about test_seeds(usual) of them, 1 or more. */
static inline int test_step(int usual) {
  int seeds = (int)test_seeds((uint64_t)usual);
  return seeds < usual ? usual / seeds : 1;
}

#endif
