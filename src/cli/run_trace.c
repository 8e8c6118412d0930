/* Reading trace.jsonl: each line is checked and kept as a few numbers, since a long run has many of them. */
#include "cli/run_trace.h"

#include "base/alloc.h"
#include "base/json.h"
#include "cli/json_lines.h"

#include <string.h>

enum { RANKS_MOST = 65535, NAME_MOST = 64 };
static const int64_t STEPS_MOST = (int64_t)1 << 53, BYTES_MOST = (int64_t)1 << 62;
static const double SECONDS_MOST = 1e9;

/* ---- Values of a line ------------------------------------------------------------------------------------------ */

/* From 0 to `most`; -1: the line lacks it, and may. */
static treadle_status take_whole(const json_t *line, const char *key, int64_t most, bool optional,
                                 int64_t *value_p) {
  const json_t *value = json_object_get(line, key);
  *value_p = -1;
  if (!value && optional) return TREADLE_OK;
  if (!value) REFUSE("has no '%s'", key);
  if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > most)
    REFUSE("'%s' is not a whole number from 0 to %lld%s", key, (long long)most, treadle_json_note(value));
  *value_p = json_integer_value(value);
  return TREADLE_OK;
}

static treadle_status take_seconds(const json_t *line, const char *key, double *value_p) {
  const json_t *value = json_object_get(line, key);
  if (!value) REFUSE("has no '%s'", key);
  *value_p = json_number_value(value);
  if (!json_is_number(value) || !(*value_p >= 0 && *value_p <= SECONDS_MOST))
    REFUSE("'%s' is not a number of seconds from 0 to %.0f%s", key, SECONDS_MOST, treadle_json_note(value));
  return TREADLE_OK;
}

static treadle_status take_name(treadle_run_trace *trace, treadle_run_names *names, const json_t *line,
                                const char *key, int *number_p) {
  const json_t *value = json_object_get(line, key);
  const char *text = json_string_value(value);
  if (!value) REFUSE("has no '%s'", key);
  if (!text || !*text || strlen(text) > NAME_MOST || strlen(text) != json_string_length(value))
    REFUSE("'%s' is not a text of 1 to %d characters%s", key, NAME_MOST, treadle_json_note(value));
  for (*number_p = 0; *number_p < names->count; (*number_p)++)
    if (strcmp(names->all[*number_p], text) == 0) return TREADLE_OK;
  if (names->count == TREADLE_RUN_NAMES)
    REFUSE("'%s' is another one than those of all lines before, which have %d", key, TREADLE_RUN_NAMES);
  names->all[names->count] = treadle_arena_copy_text(&trace->texts, text);
  if (!names->all[names->count]) return treadle_fail(TREADLE_NO_MEMORY, "no memory for its names");
  names->count++;
  return TREADLE_OK;
}

static treadle_status take_call(treadle_run_trace *trace, const json_t *line, treadle_run_call *c) {
  int64_t rank = 0;
  treadle_status status;
  TRY(take_whole(line, "rank", RANKS_MOST, false, &rank));
  TRY(take_name(trace, &trace->roles, line, "role", &c->role));
  TRY(take_name(trace, &trace->methods, line, "method", &c->method));
  TRY(take_whole(line, "step", STEPS_MOST, false, &c->step));
  TRY(take_seconds(line, "start", &c->start));
  TRY(take_seconds(line, "end", &c->end));
  TRY(take_whole(line, "bytes_before", BYTES_MOST, true, &c->bytes_before));
  TRY(take_whole(line, "bytes_after", BYTES_MOST, true, &c->bytes_after));
  c->rank = (int)rank;
  if (c->end < c->start) REFUSE("its end, %.6f, is before its start, %.6f", c->end, c->start);
out:
  return status;
}

/* ---- The file -------------------------------------------------------------------------------------------------- */

static treadle_status add_call(treadle_run_trace *trace, size_t *room_p, const treadle_run_call *c) {
  if (trace->count == *room_p) {
    const size_t room = *room_p ? 2 * *room_p : 1024;
    treadle_run_call *more = treadle_realloc(trace->calls, room * sizeof *more);
    if (!more) return treadle_fail(TREADLE_NO_MEMORY, "no memory for its lines");
    trace->calls = more;
    *room_p = room;
  }
  trace->calls[trace->count++] = *c;
  if (c->step > trace->last_step) trace->last_step = c->step;
  return TREADLE_OK;
}

treadle_status treadle_run_trace_read(const char *path, treadle_run_trace *trace) {
  treadle_json_lines lines = {0};
  size_t room = 0;
  treadle_status status;
  TRY(treadle_json_lines_open(&lines, path));
  while (lines.bytes && lines.text[lines.bytes - 1] != '\n') lines.bytes--;
  for (;;) {
    treadle_run_call call;
    json_t *object;
    TRY(treadle_json_lines_next(&lines, &object));
    if (!object) break;
    status = take_call(trace, object, &call);
    json_decref(object);
    if (!status) status = add_call(trace, &room, &call);
    if (status) TRY(treadle_json_lines_fail(&lines, status));
  }
out:
  treadle_json_lines_close(&lines);
  return status;
}

void treadle_run_trace_release(treadle_run_trace *trace) {
  treadle_free(trace->calls);
  treadle_arena_release(&trace->texts);
  *trace = (treadle_run_trace){0};
}
