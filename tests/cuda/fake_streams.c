/* Streams: queues of work, which is done when somebody looks.
 *
 * Work has numbers in the order in which it was asked for. The first work of a stream may run if
 * - the mark that it waits for is done, and
 * - the stream is blocking and the device's NULL stream has nothing with a smaller number; or it is the NULL stream,
 *   and no blocking stream of the device has. What is asked for waits only for what was asked for before, so among
 *   all of the work there is always some that may run. It stays the first of its stream while it runs. */
#include "cuda/fake_parts.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static fake_table streams; /* with the NULL streams */
static struct CUstream_st null_streams[FAKE_CARDS];
static uint64_t last_number, random_state;
static bool is_eager;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
_Thread_local int fake_worker;

uint64_t fake_random(void) { /* splitmix64 */
  uint64_t x = random_state += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

static void add_stream(struct CUstream_st *s) {
  s->span = (fake_span){fake_address(s), 1};
  s->last = &s->first;
  fake_table_add(&streams, &s->span);
}

void fake_streams_open(const char *mode, uint64_t seed, int devices) {
  is_eager = mode && strcmp(mode, "eager") == 0;
  random_state = seed;
  for (int d = 0; d < devices; d++) {
    null_streams[d] = (struct CUstream_st){.device = d, .is_null = true};
    add_stream(&null_streams[d]);
  }
}

CUresult fake_stream_of(CUstream given, struct CUstream_st **stream_p) {
  const int device = fake_current_device();
  if (device < 0) return CUDA_ERROR_INVALID_CONTEXT;
  const bool is_null = fake_address(given) <= 1; /* NULL, and CU_STREAM_LEGACY */
  struct CUstream_st *s = is_null ? &null_streams[device] : fake_table_find(&streams, fake_address(given));
  if (!s || s->is_ended) return CUDA_ERROR_INVALID_HANDLE;
  *stream_p = s;
  return CUDA_SUCCESS;
}

/* ---- Marks ---- */

fake_mark *fake_mark_use(fake_mark *mark) {
  if (mark) mark->users++;
  return mark;
}

void fake_mark_leave(fake_mark *mark) {
  if (mark && --mark->users == 0) free(mark);
}

static void set_mark(fake_mark *mark) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  mark->is_done = true;
  mark->nanoseconds = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- Which work may run ---- */

static bool is_after(const struct CUstream_st *s, const struct CUstream_st *other) {
  const bool are_ordered = s->device == other->device &&
                           ((s->is_blocking && other->is_null) || (s->is_null && other->is_blocking));
  return are_ordered && other->first && other->first->number < s->first->number;
}

static bool may_run(const struct CUstream_st *s) {
  if (!s->first || s->is_busy) return false;
  if (s->first->awaited && !s->first->awaited->is_done) return false;
  for (size_t i = 0; i < streams.count; i++)
    if (is_after(s, (const struct CUstream_st *)streams.spans[i])) return false;
  return true;
}

static struct CUstream_st *choose(void) {
  struct CUstream_st *chosen = NULL;
  uint64_t seen = 0;
  for (size_t i = 0; i < streams.count; i++) {
    struct CUstream_st *s = (struct CUstream_st *)streams.spans[i];
    if (may_run(s) && fake_random() % ++seen == 0) chosen = s;
  }
  return chosen;
}

static bool is_any_busy(void) {
  for (size_t i = 0; i < streams.count; i++)
    if (((const struct CUstream_st *)streams.spans[i])->is_busy) return true;
  return false;
}

/* ---- Doing it ---- */

static void end_if_empty(struct CUstream_st *s) {
  if (!s->is_ended || s->first || s->is_busy) return;
  const size_t i = fake_table_from(&streams, s->span.at);
  fake_table_remove(&streams, i, i + 1);
  free(s);
}

static void pop(struct CUstream_st *s) {
  fake_work *w = s->first;
  s->first = w->next;
  if (!s->first) s->last = &s->first;
  s->is_busy = false;
  if (w->marks) set_mark(w->marks);
  fake_mark_leave(w->marks);
  fake_mark_leave(w->awaited);
  free(w->own);
  free(w);
  fake_ledger.waiting--;
  end_if_empty(s);
}

/* Others may ask for work meanwhile, and do that of other streams. */
static void run_first(struct CUstream_st *s) {
  s->is_busy = true;
  fake_worker = s->device;
  if (s->first->run) {
    pthread_mutex_unlock(&fake_mutex);
    s->first->run(s->first);
    pthread_mutex_lock(&fake_mutex);
  }
  pop(s);
  pthread_cond_broadcast(&changed);
}

/* After a failure nothing is done any more. */
bool fake_advance(void) {
  if (fake_stuck() != CUDA_SUCCESS) return false;
  struct CUstream_st *s = choose();
  if (s)
    run_first(s);
  else if (is_any_busy())
    pthread_cond_wait(&changed, &fake_mutex);
  else
    return false;
  return true;
}

void fake_look(void) {
  for (uint64_t steps = 1 + fake_random() % 3; steps > 0; steps--) {
    struct CUstream_st *s = fake_stuck() == CUDA_SUCCESS ? choose() : NULL;
    if (!s) return;
    run_first(s);
  }
}

void fake_finish(const struct CUstream_st *s) {
  while (s->first && fake_advance()) continue;
}

void fake_finish_all(void) {
  while (fake_advance()) continue;
}

void fake_put(struct CUstream_st *s, fake_work given) {
  fake_work *w = malloc(sizeof *w);
  if (!w) abort();
  *w = given;
  w->next = NULL;
  w->number = ++last_number;
  *s->last = w;
  s->last = &w->next;
  fake_ledger.waiting++;
  if (is_eager) fake_finish(s);
}

/* ---- Calls ---- */

FAKE_API CUresult cuStreamCreate(CUstream *stream_p, unsigned flags) {
  FAKE_ENTER(cuStreamCreate);
  FAKE_LOCKED;
  const int device = fake_current_device();
  if (device < 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (!stream_p || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING)) return CUDA_ERROR_INVALID_VALUE;
  struct CUstream_st *s = calloc(1, sizeof *s);
  if (!s) abort();
  *s = (struct CUstream_st){.device = device, .is_blocking = flags == CU_STREAM_DEFAULT};
  add_stream(s);
  fake_level_add(&fake_ledger.objects, 1);
  *stream_p = s;
  return CUDA_SUCCESS;
}

/* The stream goes when its work is done. */
FAKE_API CUresult cuStreamDestroy_v2(CUstream stream) {
  struct CUstream_st *s;
  FAKE_ENTER(cuStreamDestroy);
  FAKE_LOCKED;
  const CUresult result = fake_stream_of(stream, &s);
  if (result != CUDA_SUCCESS) return result;
  if (s->is_null) return CUDA_ERROR_INVALID_HANDLE;
  s->is_ended = true;
  fake_level_add(&fake_ledger.objects, -1);
  end_if_empty(s);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuStreamSynchronize(CUstream stream) {
  struct CUstream_st *s;
  FAKE_ENTER(cuStreamSynchronize);
  FAKE_LOCKED;
  const CUresult result = fake_stream_of(stream, &s);
  if (result != CUDA_SUCCESS) return result;
  fake_finish(s);
  return fake_stuck();
}

FAKE_API CUresult cuStreamQuery(CUstream stream) {
  struct CUstream_st *s;
  FAKE_ENTER(cuStreamQuery);
  FAKE_LOCKED;
  const CUresult result = fake_stream_of(stream, &s);
  if (result != CUDA_SUCCESS) return result;
  fake_look();
  if (fake_stuck() != CUDA_SUCCESS) return fake_stuck();
  return s->first ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

FAKE_API CUresult cuCtxSynchronize(void) {
  FAKE_ENTER(cuCtxSynchronize);
  FAKE_LOCKED;
  if (fake_current_device() < 0) return CUDA_ERROR_INVALID_CONTEXT;
  fake_finish_all();
  return fake_stuck();
}

/* Is one of the streams that wait for this one, the NULL stream, being captured? */
static bool is_captured_by(const struct CUstream_st *null_stream) {
  for (size_t i = 0; null_stream->is_null && i < streams.count; i++) {
    const struct CUstream_st *s = (const struct CUstream_st *)streams.spans[i];
    if (s->is_capturing && s->is_blocking && s->device == null_stream->device) return true;
  }
  return false;
}

CUresult fake_stream_takes(CUstream given, struct CUstream_st **stream_p) {
  const CUresult result = fake_stream_of(given, stream_p);
  if (result != CUDA_SUCCESS) return result;
  if ((*stream_p)->is_capturing) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return is_captured_by(*stream_p) ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

FAKE_API CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  struct CUstream_st *s;
  FAKE_ENTER(cuStreamBeginCapture);
  FAKE_LOCKED;
  const CUresult result = fake_stream_of(stream, &s);
  if (result != CUDA_SUCCESS) return result;
  if (s->is_null || s->is_capturing || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  s->is_capturing = true;
  return CUDA_SUCCESS;
}

/* A graph of nothing. */
FAKE_API CUresult cuStreamEndCapture(CUstream stream, void **graph_p) {
  struct CUstream_st *s;
  FAKE_ENTER(cuStreamEndCapture);
  FAKE_LOCKED;
  const CUresult result = fake_stream_of(stream, &s);
  if (result != CUDA_SUCCESS) return result;
  if (!s->is_capturing) return CUDA_ERROR_INVALID_VALUE;
  s->is_capturing = false;
  *graph_p = NULL;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status_p) {
  struct CUstream_st *s;
  FAKE_ENTER(cuStreamIsCapturing);
  FAKE_LOCKED;
  const CUresult result = fake_stream_of(stream, &s);
  if (result != CUDA_SUCCESS) return result;
  if (is_captured_by(s)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  *status_p = s->is_capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
  static _Thread_local CUstreamCaptureMode current = CU_STREAM_CAPTURE_MODE_GLOBAL;
  FAKE_ENTER(cuThreadExchangeStreamCaptureMode);
  if (!mode || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  const CUstreamCaptureMode before = current;
  current = *mode;
  *mode = before;
  return CUDA_SUCCESS;
}
