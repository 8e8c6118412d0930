/* The updates of `treadle switch --update N`: in mode INFER, a stand-in for a step of training before each of them.
 *
 * A step changes the sign of every weight. That is the same before and after a cast, in either layout and in fp8 codes, so what an update must
 * leave in the infer window is known: the copy that it is compared with, with the signs changed. Scales of fp8 blocks and padding stay as
 * they are. A version differs from the one before it everywhere, and is that of two updates ago. Where a layout stores a value plus
 * something, this works only for pairs that lose nothing: there the stored bits are moved.
 *
 * With --changed F a step changes a share F of the elements. Which ones depends on the step, the tensor and the element alone, so all ranks
 * change the same ones. Where both layouts store all tensors as the model has them, any bits of them change, and some become NaN. */
#include "cli/compare.h"
#include "cli/switch_job.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 64 << 10 }; /* bytes */

/* Which elements a step changes, and how. */
typedef struct change {
  uint64_t seed;
  bool some, any_bits; /* some: with --changed; else all elements, and their signs */
  double share;
  int64_t *count; /* of elements that were changed */
} change;

/* A window of the switch, or (memory) a copy of one. */
typedef struct turning {
  const treadle_job *job;
  const treadle_layout *layout;
  treadle_class which;
  char *memory; /* NULL: the window itself */
  change how;
} turning;

/* Elements of a tensor that follow each other in a window: element number i of them is number start + i * stride. */
typedef struct stretch {
  uint64_t tensor;
  int64_t start, stride;
  size_t at, count, each; /* bytes: where it begins, of all, of an element */
} stretch;

static bool is_scale(const char *name) {
  static const char end[] = "_scale_inv";
  size_t length = strlen(name);
  return length >= sizeof end - 1 && strcmp(name + length - (sizeof end - 1), end) == 0;
}

/* Little-endian: the sign is in the last byte. It changes in any case. */
static void turn_element(char *bytes, size_t each, uint64_t mask) {
  for (size_t i = 0; i < each; i++) bytes[i] = (char)(bytes[i] ^ (char)(mask >> 8 * i));
  bytes[each - 1] = (char)(bytes[each - 1] ^ (~(mask >> 8 * (each - 1)) & 0x80));
}

/* `count` bytes at `bytes`, which are those of the stretch from byte `done` on. */
static void turn_bytes(const change *how, const stretch *s, size_t done, char *bytes, size_t count) {
  const uint64_t seed = treadle_hash_more(how->seed, s->tensor);
  int64_t element = s->start + (int64_t)(done / s->each) * s->stride, changed = 0;
  for (size_t i = 0; i < count; i += s->each, element += s->stride) {
    uint64_t draw = how->some ? treadle_hash_more(seed, (uint64_t)element) : 0;
    if ((double)(draw >> 11) * 0x1p-53 >= how->share) continue;
    turn_element(bytes + i, s->each, how->any_bits ? treadle_mix64(draw) : 0);
    changed++;
  }
  if (how->count) *how->count += changed;
}

static treadle_status turn_stretch(const turning *t, const stretch *s) {
  treadle_status status = TREADLE_OK;
  char part[AT_ONCE];
  if (t->memory) {
    turn_bytes(&t->how, s, 0, t->memory + s->at, s->count);
    return TREADLE_OK;
  }
  for (size_t done = 0, some; done < s->count; done += some) {
    some = s->count - done < sizeof part ? s->count - done : sizeof part;
    TRY(treadle_switch_read(t->job->sw, t->which, s->at + done, some, part));
    turn_bytes(&t->how, s, done, part, some);
    TRY(treadle_switch_write(t->job->sw, t->which, s->at + done, some, part));
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
    TRY(turn_stretch(t, &(stretch){.tensor = (uint64_t)runs[i].tensor,
                                   .start = runs[i].start,
                                   .stride = runs[i].stride,
                                   .at = info.offset_bytes + (size_t)runs[i].local_start * each,
                                   .count = (size_t)runs[i].count * each,
                                   .each = each}));
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

/* Step `number`, from 1, of training, and what the windows are compared with after it. Every second one takes back the one before it. */
static treadle_status step(treadle_job *job, int64_t number, bool any_bits, int64_t *changed_p) {
  treadle_status status = TREADLE_OK;
  const bool checks = job->asked->check != TREADLE_CHECK_NONE, some = job->asked->changed != NULL;
  change how = {.seed = (uint64_t)(number + 1) / 2,
                .some = some,
                .any_bits = some && any_bits,
                .share = some ? job->changed : 1,
                .count = changed_p};
  *changed_p = 0;
  TRY(turn(&(turning){job, job->train, TREADLE_PARAMS, NULL, how}));
  how.count = NULL;
  if (checks) TRY(turn(&(turning){job, job->train, TREADLE_PARAMS, job->train_copy, how}));
  if (checks) TRY(turn(&(turning){job, job->infer, TREADLE_INFER_PARAMS, job->infer_copy, how}));
out:
  return status;
}

/* Does this rank store a tensor in another way than the model? */
static treadle_status stores_otherwise(const treadle_job *job, const treadle_layout *layout, bool *is_p) {
  treadle_status status = TREADLE_OK;
  treadle_run *runs = NULL;
  size_t count = 0;
  for (int32_t s = 0; s < treadle_layout_storage_count(layout, job->session.rank) && !*is_p; s++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    treadle_tensor_info tensor = TREADLE_INIT(treadle_tensor_info);
    TRY(treadle_layout_storage(layout, job->session.rank, s, &info));
    TRY(treadle_layout_runs(layout, job->session.rank, s, &runs, &count));
    for (size_t i = 0; i < count; i++) {
      if (runs[i].tensor < 0) continue;
      TRY(treadle_model_tensor(job->model, runs[i].tensor, &tensor));
      *is_p = *is_p || runs[i].add || info.dtype != tensor.dtype;
    }
    free(runs);
    runs = NULL;
  }
out:
  free(runs);
  return status;
}

/* May any bits change? They may if all that happens to them, on any rank, is that they are moved. */
static treadle_status ask_bits(treadle_job *job, bool *any_bits_p) {
  treadle_status status = TREADLE_OK, mine = TREADLE_OK;
  bool otherwise = false;
  double somebody = 0;
  mine = stores_otherwise(job, job->train, &otherwise);
  if (!mine) mine = stores_otherwise(job, job->infer, &otherwise);
  TRY(treadle_session_agree(&job->session, mine));
  TRY(treadle_job_largest(job, otherwise, &somebody));
  *any_bits_p = somebody == 0;
out:
  return status;
}

static treadle_status take(treadle_job *job, treadle_status *found_p) {
  treadle_status status = TREADLE_OK;
  const bool serves = job->asked->doubles && job->asked->check;
  *found_p = TREADLE_OK;
  if (!treadle_interrupt_asked(&job->interrupt))
    return serves ? treadle_job_update_served(job, found_p) : treadle_switch_update(job->sw);
  TRY(treadle_switch_start_update(job->sw));
  (void)treadle_switch_cancel(job->sw);
  status = treadle_switch_wait(job->sw);
out:
  return status;
}

static treadle_status update(treadle_job *job, double *seconds_p, double *unbound_p) {
  treadle_status status = TREADLE_OK, found;
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
  TRY(treadle_group_barrier(job->session.group));
  if (job->timeline) treadle_timeline_name(job->timeline, "update");
  double begin = treadle_clock_seconds();
  TRY(take(job, &found));
  if (job->timeline) treadle_timeline_name(job->timeline, treadle_mode_text(TREADLE_INFER));
  TRY(treadle_group_barrier(job->session.group));
  TRY(treadle_job_largest(job, treadle_clock_seconds() - begin, seconds_p));
  treadle_switch_get_stats(job->sw, &stats);
  TRY(treadle_job_largest(job, stats.unbound_seconds, unbound_p));
  TRY(treadle_session_agree(&job->session, found));
out:
  return status;
}

/* Both windows with their copies, and the digest: every second version has the first one. changed: elements, on the rank that has most. */
static treadle_status check(treadle_job *job, int64_t number, double changed) {
  treadle_status status = TREADLE_OK, mine = TREADLE_OK;
  const treadle_window_source infer = {.sw = job->sw, .which = TREADLE_INFER_PARAMS},
                              train = {.sw = job->sw, .which = TREADLE_PARAMS};
  char when[64];
  uint64_t digest;
  int rank = job->session.rank;
  snprintf(when, sizeof when, "after update %lld", (long long)number);
  if (job->asked->check) {
    mine = treadle_compare_window(job->infer, job->model, rank, treadle_switch_plan(job->sw), &infer,
                                  job->infer_copy, when);
    if (!mine)
      mine = treadle_compare_window(job->train, job->model, rank, NULL, &train, job->train_copy, when);
  }
  TRY(treadle_session_agree(&job->session, mine));
  TRY(treadle_switch_digest(job->sw, &digest));
  if (job->plan.lossless && (digest == job->digest) != (number % 2 == 0 || changed == 0))
    mine = treadle_fail(TREADLE_DIFFERENT, "%s, the digest of the weights is %016llx, %s %016llx", when,
                        (unsigned long long)digest, number % 2 ? "still" : "instead of",
                        (unsigned long long)job->digest);
  TRY(treadle_session_agree(&job->session, mine));
out:
  return status;
}

treadle_status treadle_job_updates(treadle_job *job) {
  treadle_status status = TREADLE_OK;
  int64_t count = job->asked->update, mine;
  double changed;
  bool any_bits = false;
  if (job->asked->changed) TRY(ask_bits(job, &any_bits));
  for (int64_t i = 0; i < count; i++) {
    if (job->session.rank == 0) treadle_progress("update %lld", (long long)i + 1);
    TRY(treadle_session_agree(&job->session, step(job, i + 1, any_bits, &mine)));
    TRY(treadle_job_largest(job, (double)mine, &changed));
    TRY(update(job, &job->to_next[i], &job->unbound[i]));
    job->updated = i + 1;
    TRY(check(job, i + 1, changed));
  }
  job->update_stats = TREADLE_INIT(treadle_switch_stats);
  treadle_switch_get_stats(job->sw, &job->update_stats);
  if (count % 2) /* what follows knows the first version */
    TRY(treadle_session_agree(&job->session, step(job, count + 1, any_bits, &mine)));
out:
  return status;
}
