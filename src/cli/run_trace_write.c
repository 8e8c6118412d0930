/* A trace as Chrome's trace event format has it (JSON, an object with the list traceEvents):
 *
 *   {"name": "process_name", "ph": "M", "pid": 100001, "tid": 3, "args": {"name": "Critic"}}          a name, of a process or a thread
 *   {"name": "update_critic", "ph": "X", "ts": 8250113, "dur": 1251369, "pid": 100001, "tid": 3, ...}   a call; times are microseconds
 *
 * Perfetto takes a thread 0 for another one, so that rank r is thread r + 1. */
#include "cli/run_trace.h"

#include "base/alloc.h"
#include "cli/json_out.h"
#include "treadle_tools.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  FIRST_PROCESS = 100001
}; /* no rank's thread: that would be its main one, and the first that is shown */

static int process_of(const treadle_run_call *c) { return FIRST_PROCESS + c->role; }

/* Of the process or the thread that makes the call, `what`: its name, and where it stands among others. */
static void put_name(treadle_json_out *out, const char *what, const treadle_run_call *c, const char *name,
                     int place) {
  char key[40];
  for (int order = 0; order < 2; order++) {
    snprintf(key, sizeof key, order ? "%s_sort_index" : "%s_name", what);
    treadle_json_out_open(out, NULL, '{');
    treadle_json_out_text(out, "name", key);
    treadle_json_out_text(out, "ph", "M");
    treadle_json_out_int(out, "pid", process_of(c));
    treadle_json_out_int(out, "tid", c->rank + 1);
    treadle_json_out_open(out, "args", '{');
    if (order)
      treadle_json_out_int(out, "sort_index", place);
    else
      treadle_json_out_text(out, "name", name);
    treadle_json_out_close(out, '}');
    treadle_json_out_close(out, '}');
  }
}

static double microseconds(double seconds) { return round(seconds * 1e9) / 1e3; }

static void put_call(treadle_json_out *out, const treadle_run_trace *trace, const treadle_run_call *c) {
  treadle_json_out_open(out, NULL, '{');
  treadle_json_out_text(out, "name", trace->methods.all[c->method]);
  treadle_json_out_text(out, "cat", trace->roles.all[c->role]);
  treadle_json_out_text(out, "ph", "X");
  treadle_json_out_exact(out, "ts", microseconds(c->start));
  treadle_json_out_exact(out, "dur", microseconds(c->end - c->start));
  treadle_json_out_int(out, "pid", process_of(c));
  treadle_json_out_int(out, "tid", c->rank + 1);
  treadle_json_out_open(out, "args", '{');
  treadle_json_out_int(out, "step", c->step);
  if (c->bytes_before >= 0) treadle_json_out_int(out, "bytes_before", c->bytes_before);
  if (c->bytes_after >= 0) treadle_json_out_int(out, "bytes_after", c->bytes_after);
  treadle_json_out_close(out, '}');
  treadle_json_out_close(out, '}');
}

/* Each role once, and each rank of it: seen [roles * ranks]. */
static void put_names(treadle_json_out *out, const treadle_run_trace *trace, bool *seen, size_t ranks) {
  bool named[TREADLE_RUN_NAMES] = {false};
  char name[40];
  for (size_t i = 0; i < trace->count; i++) {
    const treadle_run_call *c = &trace->calls[i];
    bool *at = &seen[(size_t)c->role * ranks + (size_t)c->rank];
    if (*at) continue;
    if (!named[c->role]) put_name(out, "process", c, trace->roles.all[c->role], c->role);
    snprintf(name, sizeof name, "rank %d", c->rank);
    put_name(out, "thread", c, name, c->rank);
    *at = named[c->role] = true;
  }
}

static size_t ranks_of(const treadle_run_trace *trace) {
  int most = 0;
  for (size_t i = 0; i < trace->count; i++)
    if (trace->calls[i].rank > most) most = trace->calls[i].rank;
  return (size_t)most + 1;
}

treadle_status treadle_run_trace_write(const treadle_run_trace *trace, const char *path) {
  const size_t ranks = ranks_of(trace);
  bool *seen = treadle_alloc_array(ranks, (size_t)trace->roles.count + 1);
  char *text = NULL;
  size_t length = 0;
  treadle_status status = TREADLE_OK;
  FILE *file = seen ? open_memstream(&text, &length) : NULL;
  treadle_json_out out = {.file = file};
  if (file) {
    treadle_json_out_open(&out, NULL, '{');
    treadle_json_out_text(&out, "displayTimeUnit", "ms");
    treadle_json_out_open(&out, "traceEvents", '[');
    put_names(&out, trace, seen, ranks);
    for (size_t i = 0; i < trace->count; i++) put_call(&out, trace, &trace->calls[i]);
    treadle_json_out_close(&out, ']');
    treadle_json_out_close(&out, '}');
  }
  bool good = file && !ferror(file);
  good = file && fclose(file) == 0 && good;
  if (!good) TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for a trace", path));
  TRY(treadle_output_write(path, text, length));
out:
  treadle_free(seen);
  free(text);
  return status;
}
