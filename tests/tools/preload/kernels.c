/* Limits the kernels of every treadle in the processes of a test: LD_PRELOAD has this library, and TREADLE_KERNELS says the best set that they may
 * take: plain, avx2, avx512, amx. The library itself never reads the environment. Test programs and the command let the function be found
 * by name (CMakeLists.txt); in processes without one, bash or mpirun, nothing happens. tools/test-kernels sets both. */
#include "base/processor.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((constructor)) static void limit_kernels(void) {
  static const char *const sets[] = {"plain", "avx2", "avx512",
                                     "amx"}; /* in the order of treadle_processor_set */
  void (*limit)(treadle_processor_set most);
  *(void **)&limit = dlsym(RTLD_DEFAULT, "treadle_processor_limit");
  const char *name = getenv("TREADLE_KERNELS");
  if (!limit) return;
  for (size_t i = 0; name && i < sizeof sets / sizeof *sets; i++)
    if (strcmp(name, sets[i]) == 0) {
      limit((treadle_processor_set)i);
      return;
    }
  fprintf(stderr, "TREADLE_KERNELS is '%s', and must be plain, avx2, avx512 or amx\n", name ? name : "");
  _exit(2);
}
