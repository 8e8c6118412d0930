#include "rl/loop.h"
treadle_status treadle_rl_report(treadle_rl *rl) {
  (void)rl;
  return TREADLE_OK;
}
