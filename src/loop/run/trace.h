/* Who worked when. Each rank records the methods that it runs, in room that is taken once; rank 0 gets what all have recorded once a step, as bytes, and
 * appends it to RUN/trace.jsonl, a line a call:
 *
 *   {"rank":1,"role":"Critic","method":"update_critic","step":3,"start":8.25,"end":9.5,"bytes_before":4096,"bytes_after":8192}
 *
 * Seconds are those since the controller started, by its clock. The bytes are what the rank has on its device, of all roles together. To record a call is to look at the
 * clock twice. */
#ifndef TREADLE_RUN_TRACE_H
#define TREADLE_RUN_TRACE_H

#include "base/status.h"
#include "treadle.h"

#include <stddef.h>
#include <stdint.h>

enum { TREADLE_TRACE_ROOM = 2048, TREADLE_TRACE_ROLE = 24, TREADLE_TRACE_METHOD = 48 };

typedef struct treadle_trace_call {
  char role[TREADLE_TRACE_ROLE], method[TREADLE_TRACE_METHOD]; /* with their 0 */
  double start, end;
  uint64_t bytes_before, bytes_after; /* of the device */
  int64_t rank;                       /* of the whole run */
} treadle_trace_call;

/* ---- Recording; of each rank ---- */

typedef struct treadle_trace treadle_trace;

/* zero: when the controller started, by the clock of this rank (treadle_clock_seconds). */
treadle_status treadle_trace_create(int rank, double zero, treadle_trace **trace_p);
void treadle_trace_destroy(treadle_trace *trace);
/* A call begins, and ends: one at a time. What has no room for it, TREADLE_TRACE_ROOM calls, is counted. Longer names are cut. */
void treadle_trace_begin(treadle_trace *trace, const char *role, const char *method, uint64_t bytes);
void treadle_trace_end(treadle_trace *trace, uint64_t bytes);
/* Seconds since the controller started, of a moment of this rank's clock. */
double treadle_trace_seconds(const treadle_trace *trace, double clock);
/* What was recorded since the last time, as bytes, which are good until the next call begins. */
const void *treadle_trace_take(treadle_trace *trace, size_t *length_p);

/* ---- What one rank has recorded ---- */

typedef struct treadle_trace_part {
  const char *bytes; /* [count] calls, wherever they lie */
  size_t count;
  int64_t rank;
  int64_t lost; /* calls that had no room, and their seconds */
  double lost_seconds;
} treadle_trace_part;

/* The part lies in the bytes. Refused (TREADLE_PEER): what no recorder has made. */
treadle_status treadle_trace_read(const void *bytes, size_t length, treadle_trace_part *part_p);
treadle_trace_call treadle_trace_at(const treadle_trace_part *part, size_t which);
/* Seconds of the span in which the rank ran a method; those of calls that had no room count as if they were in it. */
double treadle_trace_busy(const treadle_trace_part *part, double from, double to);

/* ---- The file; of rank 0 ---- */

typedef struct treadle_trace_file treadle_trace_file;

/* As treadle_growing_open, of trace.jsonl. */
treadle_status treadle_trace_open(const char *folder, int64_t step, treadle_trace_file **file_p);
void treadle_trace_close(treadle_trace_file *file);
/* The latest end in what the file kept: an earlier start came so far. 0: it kept nothing. */
double treadle_trace_kept(const treadle_trace_file *file);
/* Calls without a line, since they had no room when they were recorded. */
int64_t treadle_trace_lost(const treadle_trace_file *file);
/* As treadle_growing_note. */
void treadle_trace_note(const treadle_trace_file *file, char *text, size_t room);
/* Lines for the next write: of step `step`, which began at `began`; calls whose middle was before that are of the step before it. */
void treadle_trace_add(treadle_trace_file *file, const treadle_trace_part *part, int64_t step,
                       double began);
treadle_status treadle_trace_write(treadle_trace_file *file);

/* ---- Clocks ---- */

/* A rank asks rank 0 for its time, and hears it: `asked` and `heard` are by its own clock, `told` by that of rank 0. */
typedef struct treadle_trace_trip {
  double asked, told, heard;
} treadle_trace_trip;

/* By how much the own clock is ahead of that of rank 0, as the shortest trip has it: its time was told in the middle, give or take half of the trip. 0: there is no
 * trip. */
double treadle_trace_offset(const treadle_trace_trip *trips, size_t count);
/* Makes `count` of them. Collective. */
treadle_status treadle_trace_travel(treadle_group *group, treadle_trace_trip *trips, size_t count);

#endif
