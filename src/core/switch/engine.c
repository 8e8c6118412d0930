/* The inference engine of this process: its binding is an epoch of its own, so that all engines have the new
 * weights or none. */
#include "switch/switch.h"

#include "base/clock.h"
#include "base/thread_watch.h"

#include <stdio.h>
#include <string.h>

/* What the hook itself said, if it said something: ": ..." */
static const char *said_since(const char *before, char *words, size_t bytes) {
  const char *now = treadle_error_message();
  if (strcmp(now, before) == 0) return "";
  snprintf(words, bytes, ": %s", now);
  return words;
}

static treadle_status call_bind(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  const treadle_engine_hooks *engine = &sw->engine.hooks;
  TRY(treadle_switch_point(sw, TREADLE_AT_BIND, -1));
  if (!engine->bind) return TREADLE_OK;
  treadle_thread_ask_soon();
  TRY(treadle_helm_check(sw->helm));
  treadle_helm_tell(sw->helm);
  if (sw->terms.options.guard_pages) TRY(treadle_guard_settle(sw)); /* it may read and write its windows */
  char before[TREADLE_GROUP_MESSAGE], words[TREADLE_GROUP_MESSAGE];
  snprintf(before, sizeof before, "%s", treadle_error_message());
  double begin = treadle_clock_seconds();
  status = engine->bind(engine->context, sw->space.windows[TREADLE_INFER_PARAMS],
                        sw->space.tables.bytes[TREADLE_INFER_PARAMS]);
  sw->stats.bind_seconds += treadle_clock_seconds() - begin;
  if (status != TREADLE_OK)
    treadle_fail(status, "rank %d: the engine's bind of version %llu failed (%s)%s",
                 treadle_group_called(sw->group, sw->group->rank), (unsigned long long)sw->version,
                 treadle_status_text(status), said_since(before, words, sizeof words));
out:
  return status;
}

treadle_status treadle_switch_unbind_engine(treadle_switch *sw) {
  const treadle_engine_hooks *engine = &sw->engine.hooks;
  sw->engine.bound = false;
  if (!sw->engine.here) return TREADLE_OK;
  if (engine->unbind) { /* a request to end counts later: this is called to undo things, too */
    treadle_thread_ask_soon();
    (void)treadle_helm_check(sw->helm);
  }
  char before[TREADLE_GROUP_MESSAGE], words[TREADLE_GROUP_MESSAGE];
  snprintf(before, sizeof before, "%s", treadle_error_message());
  treadle_status status = engine->unbind ? engine->unbind(engine->context) : TREADLE_OK;
  if (status != TREADLE_OK)
    return treadle_fail(status, "rank %d: the engine's unbind failed (%s)%s",
                        treadle_group_called(sw->group, sw->group->rank), treadle_status_text(status),
                        said_since(before, words, sizeof words));
  sw->engine.here = false;
  return TREADLE_OK;
}

treadle_status treadle_switch_bind_engine(treadle_switch *sw) {
  if (sw->engine.here) return TREADLE_OK;
  treadle_status status = call_bind(sw);
  sw->engine.here = status == TREADLE_OK;
  return status;
}
