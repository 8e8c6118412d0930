/* What a window must hold after a switch: treadle_testing.h. */
#include "base/argument.h"
#include "memory/device.h"
#include "plan/plan.h"
#include "treadle_testing.h"
#include "weights/load.h"

treadle_status treadle_plan_expect(const treadle_plan *plan, void *window) {
  TREADLE_NEED(plan);
  if (plan->arrangement.window_bytes > 0) TREADLE_NEED(window);
  return treadle_layout_load_from(plan->to, plan->from, plan->rank, plan->arrangement.shift,
                                  treadle_device_at(window), window);
}
