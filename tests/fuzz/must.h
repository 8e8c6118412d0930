/* What has to be so, whatever the bytes: else the process ends, and a fuzzer keeps them. */
#ifndef TREADLE_TESTS_FUZZ_MUST_H
#define TREADLE_TESTS_FUZZ_MUST_H

#define MUST(condition)                                                                                    \
  do {                                                                                                     \
    if (!(condition)) __builtin_trap();                                                                    \
  } while (0)

#endif
