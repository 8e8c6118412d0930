/* How a late call ends: after what it was given. The controller does the sums that its workers have done (crew_late.c), and has their words for what is refused. */
#include "control/future.h"

#include "base/alloc.h"

#include <stdio.h>

bool treadle_future_inputs_ended(const treadle_future *f) {
  bool ended = true;
  for (size_t i = 0; i < f->input_count; i++) ended = ended && f->inputs[i]->ended;
  return ended;
}

static treadle_status count_rows(const treadle_future *f, int64_t *rows_p) {
  int64_t rows = f->late->has, one;
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < f->input_count; i++) {
    TRY(treadle_future_rows(f->inputs[i], &one));
    if (rows >= 0 && rows != one)
      REFUSE("expecting all arg share same length: %s has %lld rows, and what was given before it has %lld",
             f->inputs[i]->name, (long long)one, (long long)rows);
    rows = one;
  }
  *rows_p = rows;
out:
  return status;
}

static treadle_status divide(treadle_future *f, int64_t rows) {
  const treadle_dispatch_argument argument = {TREADLE_ARGUMENT_BATCH, rows};
  treadle_dispatch *made = NULL;
  treadle_status status;
  TRY(treadle_call_divide(f->late->method, (int32_t)f->count, f->late->meshes, &argument, 1, &made));
  treadle_dispatch_destroy(f->dispatch);
  f->dispatch = made;
out:
  return status;
}

void treadle_future_settle(treadle_future *f) {
  int64_t rows = 0;
  treadle_status status = count_rows(f, &rows);
  if (!status && rows >= 0 && f->late->needs > rows) /* also where no worker gets it */
    status = treadle_fail(TREADLE_REFUSED, "treadle_workers_call: row %lld of %lld is asked for",
                          (long long)f->late->needs - 1, (long long)rows);
  if (!status && f->late->divides && rows >= 0) status = divide(f, rows);
  if (!status) return;
  f->status = status;
  f->own = 0;
  snprintf(f->message, sizeof f->message, "%s", treadle_error_message());
}

void treadle_future_drop_late(treadle_future *f) {
  if (f->late) treadle_meshes_destroy(f->late->meshes);
  treadle_free(f->late);
}
