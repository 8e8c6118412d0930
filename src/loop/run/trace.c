#include "run/trace.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* What is taken, as it goes to rank 0: this, and `count` calls. */
typedef struct head {
  int64_t count, rank, lost;
  double lost_seconds;
} head;

struct treadle_trace {
  double zero;
  bool open, taken; /* a call is under way; what is here was taken */
  struct {
    head head;
    treadle_trace_call calls[TREADLE_TRACE_ROOM + 1]; /* the last one has room for those that are lost */
  } out;
};

treadle_status treadle_trace_create(int rank, double zero, treadle_trace **trace_p) {
  *trace_p = treadle_alloc(sizeof **trace_p);
  if (!*trace_p) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a trace");
  (*trace_p)->zero = zero;
  (*trace_p)->out.head.rank = rank;
  return TREADLE_OK;
}

void treadle_trace_destroy(treadle_trace *trace) { treadle_free(trace); }

double treadle_trace_seconds(const treadle_trace *t, double clock) {
  return clock > t->zero ? clock - t->zero : 0;
}

static void put_name(char *to, size_t room, const char *name) {
  const size_t length = strnlen(name, room - 1);
  memcpy(to, name, length);
  memset(to + length, 0, room - length);
}

void treadle_trace_begin(treadle_trace *t, const char *role, const char *method, uint64_t bytes) {
  head *h = &t->out.head;
  if (t->taken) *h = (head){.rank = h->rank};
  t->taken = false;
  t->open = true;
  treadle_trace_call *c = &t->out.calls[h->count];
  put_name(c->role, sizeof c->role, role);
  put_name(c->method, sizeof c->method, method);
  c->rank = h->rank;
  c->bytes_before = bytes;
  c->start = treadle_trace_seconds(t, treadle_clock_seconds());
}

void treadle_trace_end(treadle_trace *t, uint64_t bytes) {
  head *h = &t->out.head;
  treadle_trace_call *c = &t->out.calls[h->count];
  if (!t->open) return;
  t->open = false;
  c->end = treadle_trace_seconds(t, treadle_clock_seconds());
  c->bytes_after = bytes;
  if (h->count < TREADLE_TRACE_ROOM) {
    h->count++;
    return;
  }
  h->lost++;
  h->lost_seconds += c->end - c->start;
}

const void *treadle_trace_take(treadle_trace *t, size_t *length_p) {
  assert(!t->open);
  if (t->taken) t->out.head = (head){.rank = t->out.head.rank};
  t->taken = true;
  *length_p = sizeof(head) + (size_t)t->out.head.count * sizeof *t->out.calls;
  return &t->out;
}

/* ---- What one rank has recorded ---- */

static bool is_time(double seconds) { return isfinite(seconds) && seconds >= 0; }

static bool is_call(const treadle_trace_call *c, int64_t rank) {
  return c->rank == rank && is_time(c->start) && is_time(c->end) && c->end >= c->start &&
         memchr(c->role, 0, sizeof c->role) && memchr(c->method, 0, sizeof c->method);
}

treadle_trace_call treadle_trace_at(const treadle_trace_part *part, size_t which) {
  treadle_trace_call c;
  memcpy(&c, part->bytes + which * sizeof c, sizeof c);
  return c;
}

treadle_status treadle_trace_read(const void *bytes, size_t length, treadle_trace_part *part_p) {
  head h = {0};
  if (length >= sizeof h) memcpy(&h, bytes, sizeof h);
  const bool fits = length >= sizeof h && h.count >= 0 && h.count <= TREADLE_TRACE_ROOM &&
                    length == sizeof h + (size_t)h.count * sizeof(treadle_trace_call);
  bool good = fits && h.rank >= 0 && h.lost >= 0 && is_time(h.lost_seconds);
  *part_p = (treadle_trace_part){.rank = h.rank, .lost = h.lost, .lost_seconds = h.lost_seconds};
  if (good) part_p->bytes = (const char *)bytes + sizeof h;
  for (int64_t i = 0; good && i < h.count; i++) {
    const treadle_trace_call c = treadle_trace_at(part_p, (size_t)i);
    good = is_call(&c, h.rank);
  }
  if (!good) return treadle_fail(TREADLE_PEER, "%zu bytes are not what a rank has recorded", length);
  part_p->count = (size_t)h.count;
  return TREADLE_OK;
}

double treadle_trace_busy(const treadle_trace_part *part, double from, double to) {
  double sum = part->lost_seconds;
  for (size_t i = 0; i < part->count; i++) {
    const treadle_trace_call c = treadle_trace_at(part, i);
    const double seconds = fmin(c.end, to) - fmax(c.start, from);
    if (seconds > 0) sum += seconds;
  }
  return fmin(sum, to - from);
}
