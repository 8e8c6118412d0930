/* Events: a record is a mark in a stream, and an event has that of its last record. */
#include "cuda/fake_parts.h"

#include <stdlib.h>

struct CUevent_st {
  fake_span span; /* its own address */
  unsigned flags;
  fake_mark *mark; /* NULL: it was never recorded */
};

static fake_table events;

static struct CUevent_st *event_of(CUevent event) { return fake_table_find(&events, fake_address(event)); }

FAKE_API CUresult cuEventCreate(CUevent *event_p, unsigned flags) {
  FAKE_ENTER(cuEventCreate);
  FAKE_LOCKED;
  const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING;
  if (fake_current_device() < 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (!event_p || (flags & ~known)) return CUDA_ERROR_INVALID_VALUE;
  struct CUevent_st *e = calloc(1, sizeof *e);
  if (!e) abort();
  e->span = (fake_span){fake_address(e), 1};
  e->flags = flags;
  fake_table_add(&events, &e->span);
  fake_level_add(&fake_ledger.objects, 1);
  *event_p = e;
  return CUDA_SUCCESS;
}

/* What waits for its record still does. */
FAKE_API CUresult cuEventDestroy_v2(CUevent event) {
  FAKE_ENTER(cuEventDestroy);
  FAKE_LOCKED;
  struct CUevent_st *e = event_of(event);
  if (!e) return CUDA_ERROR_INVALID_HANDLE;
  const size_t i = fake_table_from(&events, e->span.at);
  fake_table_remove(&events, i, i + 1);
  fake_level_add(&fake_ledger.objects, -1);
  fake_mark_leave(e->mark);
  free(e);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuEventRecord(CUevent event, CUstream stream) {
  struct CUstream_st *s;
  FAKE_ENTER(cuEventRecord);
  FAKE_LOCKED;
  struct CUevent_st *e = event_of(event);
  const CUresult result = fake_stream_takes(stream, &s);
  if (result != CUDA_SUCCESS) return result;
  if (!e) return CUDA_ERROR_INVALID_HANDLE;
  fake_mark_leave(e->mark);
  e->mark = calloc(1, sizeof *e->mark);
  if (!e->mark) abort();
  e->mark->users = 1;
  fake_put(s, (fake_work){.marks = fake_mark_use(e->mark)});
  return CUDA_SUCCESS;
}

/* For the record that the event has now. */
FAKE_API CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  struct CUstream_st *s;
  FAKE_ENTER(cuStreamWaitEvent);
  FAKE_LOCKED;
  const struct CUevent_st *e = event_of(event);
  const CUresult result = fake_stream_takes(stream, &s);
  if (result != CUDA_SUCCESS) return result;
  if (!e) return CUDA_ERROR_INVALID_HANDLE;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (e->mark && !e->mark->is_done) fake_put(s, (fake_work){.awaited = fake_mark_use(e->mark)});
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuEventQuery(CUevent event) {
  FAKE_ENTER(cuEventQuery);
  FAKE_LOCKED;
  const struct CUevent_st *e = event_of(event);
  if (!e) return CUDA_ERROR_INVALID_HANDLE;
  fake_mark *mark = fake_mark_use(e->mark);
  fake_look();
  CUresult result = !mark || mark->is_done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  fake_mark_leave(mark);
  if (fake_stuck() != CUDA_SUCCESS) result = fake_stuck();
  return result;
}

FAKE_API CUresult cuEventSynchronize(CUevent event) {
  FAKE_ENTER(cuEventSynchronize);
  FAKE_LOCKED;
  const struct CUevent_st *e = event_of(event);
  if (!e) return CUDA_ERROR_INVALID_HANDLE;
  fake_mark *mark = fake_mark_use(e->mark);
  while (mark && !mark->is_done && fake_advance()) continue;
  fake_mark_leave(mark);
  return fake_stuck();
}

static CUresult elapsed(float *milliseconds_p, CUevent start, CUevent end) {
  FAKE_ENTER(cuEventElapsedTime);
  FAKE_LOCKED;
  const struct CUevent_st *both[2] = {event_of(start), event_of(end)};
  for (int i = 0; i < 2; i++)
    if (!both[i] || !both[i]->mark || (both[i]->flags & CU_EVENT_DISABLE_TIMING))
      return CUDA_ERROR_INVALID_HANDLE;
  if (!both[0]->mark->is_done || !both[1]->mark->is_done) return CUDA_ERROR_NOT_READY;
  *milliseconds_p = (float)(both[1]->mark->nanoseconds - both[0]->mark->nanoseconds) * 1e-6f;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuEventElapsedTime(float *milliseconds_p, CUevent start, CUevent end) {
  return elapsed(milliseconds_p, start, end);
}

FAKE_API CUresult cuEventElapsedTime_v2(float *milliseconds_p, CUevent start, CUevent end) {
  return elapsed(milliseconds_p, start, end);
}
