/* Limits as a user asks for them: treadle_tools.h. */
#include "base/sized.h"
#include "memory/limits.h"
#include "treadle_tools.h"

#include <string.h>

/* The machine has number 0. */
static const treadle_limit *tightest(const treadle_limits *limits, bool machine) {
  const treadle_limit *found = NULL;
  for (int32_t i = 0; i < limits->count; i++) {
    const treadle_limit *limit = &limits->memory[i];
    if ((limit->id == 0) == machine && (!found || limit->left < found->left)) found = limit;
  }
  return found;
}

treadle_status treadle_machine_limit(treadle_limit_kind kind, treadle_limit_info *info_p) {
  treadle_status status;
  treadle_limits limits;
  treadle_limit_info info = {0};
  _Static_assert(sizeof info.text == TREADLE_LIMIT_TEXT, "all of a limit's name");
  TREADLE_NEED_SIZED(info_p);
  TRY(TREADLE_CHECK_ENUM(kind, TREADLE_OF_ADDRESSES + 1));
  treadle_limits_read("", &limits);
  const treadle_limit *limit = kind != TREADLE_OF_ADDRESSES ? tightest(&limits, kind == TREADLE_OF_MACHINE)
                               : limits.has_addresses       ? &limits.addresses
                                                            : NULL;
  if (limit) {
    info.limited = true;
    info.bytes = limit->bytes;
    info.left = limit->left;
    memcpy(info.text, limit->text, sizeof info.text);
  }
  TREADLE_GIVE(info_p, &info);
out:
  return status;
}
