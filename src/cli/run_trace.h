/* Who worked when in a run: trace.jsonl, read and checked, and as what Perfetto opens. */
#ifndef TREADLE_CLI_RUN_TRACE_H
#define TREADLE_CLI_RUN_TRACE_H

#include "base/arena.h"
#include "base/status.h"

#include <stdint.h>

enum { TREADLE_RUN_NAMES = 256 };

/* Texts that many lines have, by number. */
typedef struct treadle_run_names {
  const char *all[TREADLE_RUN_NAMES];
  int count;
} treadle_run_names;

typedef struct treadle_run_call {
  int rank, role, method; /* role and method: of the trace's names */
  int64_t step;
  double start, end;                 /* seconds */
  int64_t bytes_before, bytes_after; /* of the device; -1: the line does not say */
} treadle_run_call;

/* A zeroed struct is that of a run which has none. */
typedef struct treadle_run_trace {
  treadle_run_call *calls; /* [count] in the order of lines */
  size_t count;
  int64_t last_step;
  treadle_run_names roles, methods;
  treadle_arena texts;
} treadle_run_trace;

/* A last line without an end, as a kill leaves it, is passed over; any other that is not right is refused with file, line and rule. */
treadle_status treadle_run_trace_read(const char *path, treadle_run_trace *trace_p);
void treadle_run_trace_release(treadle_run_trace *trace);

/* Writes FILE.json in Chrome's trace event format, which Perfetto opens: a process a role, a thread a rank, a complete event a call. */
treadle_status treadle_run_trace_write(const treadle_run_trace *trace, const char *path);

#endif
