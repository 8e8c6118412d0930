/* Kernels as a user asks for them: treadle_tools.h. */
#include "base/sized.h"
#include "nn/gemm.h"
#include "treadle_tools.h"

int32_t treadle_machine_kernel_count(void) {
  int32_t count = 0;
  while (treadle_gemm_kernel_at(count)) count++;
  return count;
}

treadle_status treadle_machine_kernel(int32_t kernel, treadle_kernel_info *info_p) {
  TREADLE_NEED_SIZED(info_p);
  const treadle_gemm_kernel *of = treadle_gemm_kernel_at(kernel);
  if (!of) REFUSE("kernel %d: there are %d", (int)kernel, (int)treadle_machine_kernel_count());
  const char *lacks = of->lacks();
  treadle_kernel_info info = {
      .name = of->name, .needs = of->about, .usable = !lacks, .lacks = lacks ? lacks : ""};
  TREADLE_GIVE(info_p, &info);
  return TREADLE_OK;
}
