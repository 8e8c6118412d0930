/* The updates of `treadle switch --update N`: in mode INFER, a stand-in for a step of training before each of them.
 *
 * A step changes the sign of every weight. That is the same before and after a cast, in either layout and in fp8 codes, so what an update must
 * leave in the infer window is known: the copy that it is compared with, with the signs changed. Scales of fp8 blocks and padding stay as
 * they are. A version differs from the one before it everywhere, and is that of two updates ago. Where a layout stores a value plus
 * something, this works only for pairs that lose nothing: there the stored bits are moved. */
#include "cli/compare.h"
#include "cli/switch_job.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/dtype.h"

#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 64 << 10 }; /* bytes */

/* A window of the switch, or (memory) a copy of one. */
typedef struct turning {
  const treadle_job *job;
  const treadle_layout *layout;
  treadle_class which;
  char *memory; /* NULL: the window itself */
} turning;

static bool is_scale(const char *name) {
  static const char end[] = "_scale_inv";
  size_t length = strlen(name);
  return length >= sizeof end - 1 && strcmp(name + length - (sizeof end - 1), end) == 0;
}

/* Little-endian: the sign is in the last byte. */
static void turn_bytes(char *bytes, size_t count, size_t each) {
  for (size_t i = each - 1; i < count; i += each) bytes[i] = (char)(bytes[i] ^ 0x80);
}

static treadle_status turn_range(const turning *t, size_t at, size_t count, size_t each) {
  treadle_status status = TREADLE_OK;
  char part[AT_ONCE];
  if (t->memory) {
    turn_bytes(t->memory + at, count, each);
    return TREADLE_OK;
  }
  for (size_t done = 0, some; done < count; done += some) {
    some = count - done < sizeof part ? count - done : sizeof part;
    TRY(treadle_switch_read(t->job->sw, t->which, at + done, some, part));
    turn_bytes(part, some, each);
    TRY(treadle_switch_write(t->job->sw, t->which, at + done, some, part));
  }
out:
  return status;
}

static treadle_status turn_storage(const turning *t, int32_t number) {
  treadle_status status = TREADLE_OK;
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  treadle_tensor_info tensor = TREADLE_INIT(treadle_tensor_info);
  treadle_run *runs = NULL;
  size_t count = 0;
  TRY(treadle_layout_storage(t->layout, t->job->session.rank, number, &info));
  TRY(treadle_layout_runs(t->layout, t->job->session.rank, number, &runs, &count));
  if (t->which == TREADLE_INFER_PARAMS)
    TRY(treadle_plan_storage(treadle_switch_plan(t->job->sw), number, &info));
  size_t each = treadle_dtype_bytes(info.dtype);
  for (size_t i = 0; i < count; i++) {
    if (runs[i].tensor < 0) continue;
    TRY(treadle_model_tensor(t->job->model, runs[i].tensor, &tensor));
    if (is_scale(tensor.name)) continue;
    if (runs[i].add && !t->job->plan.lossless)
      TRY(treadle_fail(
          TREADLE_REFUSED,
          "--update: '%s' stores %s plus %d, and this pair of layouts loses bits, so what an update must "
          "give is not known",
          treadle_layout_text(t->layout), tensor.name, runs[i].add));
    TRY(turn_range(t, info.offset_bytes + (size_t)runs[i].local_start * each, (size_t)runs[i].count * each,
                   each));
  }
out:
  free(runs);
  return status;
}

static treadle_status turn(const turning *t) {
  treadle_status status = TREADLE_OK;
  int32_t count = treadle_layout_storage_count(t->layout, t->job->session.rank);
  for (int32_t i = 0; i < count; i++) TRY(turn_storage(t, i));
out:
  return status;
}

/* A step of training, and what the windows are compared with after it. */
static treadle_status step(treadle_job *job) {
  treadle_status status = TREADLE_OK;
  const bool checks = job->arguments->check != TREADLE_CHECK_NONE;
  TRY(turn(&(turning){job, job->train, TREADLE_PARAMS, NULL}));
  if (checks) TRY(turn(&(turning){job, job->train, TREADLE_PARAMS, job->train_copy}));
  if (checks) TRY(turn(&(turning){job, job->infer, TREADLE_INFER_PARAMS, job->infer_copy}));
out:
  return status;
}

static treadle_status take(treadle_job *job) {
  treadle_status status = TREADLE_OK;
  if (!treadle_interrupt_asked(&job->interrupt)) return treadle_switch_update(job->sw);
  TRY(treadle_switch_start_update(job->sw));
  (void)treadle_switch_cancel(job->sw);
  status = treadle_switch_wait(job->sw);
out:
  return status;
}

static treadle_status update(treadle_job *job, double *seconds_p) {
  treadle_status status = TREADLE_OK;
  TRY(treadle_group_barrier(job->session.group));
  if (job->timeline) treadle_timeline_name(job->timeline, "update");
  double begin = treadle_clock_seconds();
  TRY(take(job));
  if (job->timeline) treadle_timeline_name(job->timeline, treadle_mode_text(TREADLE_INFER));
  TRY(treadle_group_barrier(job->session.group));
  TRY(treadle_job_largest(job, treadle_clock_seconds() - begin, seconds_p));
out:
  return status;
}

/* Both windows with their copies, and the digest: every second version has the first one. */
static treadle_status check(treadle_job *job, int64_t number) {
  treadle_status status = TREADLE_OK, mine = TREADLE_OK;
  const treadle_window_source infer = {.sw = job->sw, .which = TREADLE_INFER_PARAMS},
                              train = {.sw = job->sw, .which = TREADLE_PARAMS};
  char when[64];
  uint64_t digest;
  int rank = job->session.rank;
  snprintf(when, sizeof when, "after update %lld", (long long)number);
  if (job->arguments->check) {
    mine = treadle_compare_window(job->infer, job->model, rank, treadle_switch_plan(job->sw), &infer,
                                  job->infer_copy, when);
    if (!mine)
      mine = treadle_compare_window(job->train, job->model, rank, NULL, &train, job->train_copy, when);
  }
  TRY(treadle_session_agree(&job->session, mine));
  TRY(treadle_switch_digest(job->sw, &digest));
  if (job->plan.lossless && (digest == job->digest) != (number % 2 == 0))
    mine = treadle_fail(TREADLE_DIFFERENT, "%s, the digest of the weights is %016llx, %s %016llx", when,
                        (unsigned long long)digest, number % 2 ? "still" : "instead of",
                        (unsigned long long)job->digest);
  TRY(treadle_session_agree(&job->session, mine));
out:
  return status;
}

treadle_status treadle_job_updates(treadle_job *job) {
  treadle_status status = TREADLE_OK;
  int64_t count = job->arguments->update;
  for (int64_t i = 0; i < count; i++) {
    if (job->session.rank == 0) treadle_progress("update %lld", (long long)i + 1);
    TRY(treadle_session_agree(&job->session, step(job)));
    TRY(update(job, &job->to_next[i]));
    job->updated = i + 1;
    TRY(check(job, i + 1));
  }
  if (count % 2)
    TRY(treadle_session_agree(&job->session, step(job))); /* what follows knows the first version */
out:
  return status;
}
