/* What other ranks of the node read of own tensors.
 *
 * When the switch is made, each rank says where its own tensors are, lists what its ops pull of those of others, and hears from
 * each where that lies in its staging (messages/outbound.h). Lists are handed over in pools that are gone when all have read them.
 *
 * Wave s: wait until all who read here have finished wave s - 2, which had the same slot; copy the boxes of wave s into it; say that it is
 * staged; then run the ops, which wait for the staging of a rank only when they read there. So staging waits for ops of earlier waves,
 * and ops for the staging of their own wave: there is no cycle of waits.
 *
 * Own infer tensors are read by relays alone. What came from other nodes in wave s is copied to the slot of wave s when it is in the tensors,
 * before it is said to have arrived. */
#include "carry/carry_parts.h"
#include "carry/handover.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/dtype.h"

#include <stdio.h>
#include <string.h>

/* ---- Where own tensors are ---- */

/* Does anybody read own tensors of others? Only relays read those that are written. */
static bool is_read(const treadle_carry *c, int mode) {
  return c->own.any[mode] && (mode == TREADLE_SIDE_TRAIN || treadle_group_node_count(c->group) > 1);
}

static bool is_any_read(const treadle_carry *c) {
  return is_read(c, TREADLE_SIDE_TRAIN) || is_read(c, TREADLE_SIDE_INFER);
}

static treadle_status make_spans(treadle_carry *c) {
  treadle_staging *staging = &c->staging;
  size_t ranks = (size_t)c->group->size;
  for (int mode = 0; mode < 2; mode++) {
    treadle_free(staging->of[mode]);
    treadle_free(staging->spans[mode]);
    staging->spans[mode] = NULL;
    staging->of[mode] = treadle_alloc_array(ranks, sizeof *staging->of[mode]);
    if (!staging->of[mode]) return treadle_memory_is_out();
    staging->of[mode][c->group->rank] = c->own.spans[mode];
  }
  if (!staging->slot_bytes) staging->slot_bytes = treadle_alloc_array(ranks, sizeof *staging->slot_bytes);
  if (!staging->view) staging->view = treadle_alloc_array(ranks, sizeof *staging->view);
  if (!staging->readers) staging->readers = treadle_alloc_array(ranks, sizeof *staging->readers);
  return staging->slot_bytes && staging->view && staging->readers ? TREADLE_OK : treadle_memory_is_out();
}

typedef struct listed { /* by rank: spans, as that rank has them */
  const treadle_own_span *items;
  size_t count;
} listed;

/* Offsets must grow, and not meet: they are searched. */
static treadle_status check_spans(const listed *spans, int rank) {
  int64_t end = 0;
  for (size_t i = 0; i < spans->count; i++) {
    const treadle_own_span *span = &spans->items[i];
    if (span->offset < end || span->bytes < 1 || span->bytes > INT64_MAX - span->offset)
      return treadle_fail(TREADLE_PEER, "switch: rank %d has published own tensors that cannot be right",
                          rank);
    end = span->offset + span->bytes;
  }
  return TREADLE_OK;
}

static treadle_status take_spans(treadle_carry *c, int mode, const listed *all) {
  treadle_status status = TREADLE_OK;
  treadle_staging *staging = &c->staging;
  size_t count = 0;
  for (int rank = 0; rank < c->group->size; rank++) count += all[rank].count;
  treadle_own_span *spans = treadle_alloc_array(count + 1, sizeof *spans);
  staging->spans[mode] = spans;
  if (!spans) return treadle_memory_is_out();
  count = 0;
  for (int rank = 0; rank < c->group->size; rank++) {
    treadle_own_span *mine = &spans[count];
    if (all[rank].count > 0) memcpy(mine, all[rank].items, all[rank].count * sizeof *mine);
    staging->of[mode][rank] = (treadle_own_spans){mine, all[rank].count};
    count += all[rank].count;
    TRY(check_spans(&(listed){mine, all[rank].count}, rank));
  }
out:
  return status;
}

/* Where this rank's memory lies does not concern others. */
static treadle_status without_memory(const treadle_own_spans *spans, treadle_own_span **copy_p) {
  treadle_own_span *copy = treadle_alloc_array(spans->count + 1, sizeof *copy);
  *copy_p = copy;
  if (!copy) return treadle_memory_is_out();
  for (size_t i = 0; i < spans->count; i++) {
    copy[i] = spans->items[i];
    copy[i].memory = NULL;
  }
  return TREADLE_OK;
}

static treadle_status meet_of(treadle_carry *c, int mode) {
  treadle_status status = TREADLE_OK;
  treadle_handover h = {0};
  const treadle_own_spans *mine = &c->own.spans[mode];
  treadle_own_span *copy = NULL;
  listed *all = NULL;
  if (!is_read(c, mode)) return TREADLE_OK;
  all = treadle_alloc_array((size_t)c->group->size, sizeof *all);
  TRY(treadle_group_agree(c->group, all ? without_memory(mine, &copy) : treadle_memory_is_out()));
  TRY(treadle_hand_over(c->group, copy, mine->count, sizeof *copy, &h));
  for (int rank = 0; rank < c->group->size; rank++)
    all[rank].items = treadle_handed(&h, rank, &all[rank].count);
  TRY(treadle_group_agree(c->group, take_spans(c, mode, all)));
out:
  treadle_handover_end(c->group, &h);
  treadle_free(copy);
  treadle_free(all);
  return status;
}

treadle_status treadle_staging_meet(treadle_carry *c) {
  treadle_status status = TREADLE_OK;
  if (!c->own.any[TREADLE_SIDE_TRAIN] && !c->own.any[TREADLE_SIDE_INFER]) return TREADLE_OK;
  TRY(treadle_group_agree(c->group, make_spans(c)));
  TRY(meet_of(c, TREADLE_SIDE_TRAIN));
  TRY(meet_of(c, TREADLE_SIDE_INFER));
out:
  return status;
}

treadle_status treadle_staging_meet_alone(treadle_carry *const *all, int ranks) {
  treadle_status status = TREADLE_OK;
  listed *spans = treadle_alloc_array((size_t)ranks, sizeof *spans);
  if (!spans) return treadle_memory_is_out();
  for (int rank = 0; rank < ranks; rank++)
    spans[rank] = (listed){all[rank]->own.spans[TREADLE_SIDE_TRAIN].items,
                           all[rank]->own.spans[TREADLE_SIDE_TRAIN].count};
  for (int rank = 0; rank < ranks; rank++) {
    if (!all[rank]->own.any[TREADLE_SIDE_TRAIN] && !all[rank]->own.any[TREADLE_SIDE_INFER]) continue;
    TRY(make_spans(all[rank]));
    TRY(take_spans(all[rank], TREADLE_SIDE_TRAIN, spans));
  }
out:
  treadle_free(spans);
  return status;
}

/* ---- What is pulled, and given ---- */

static void forget(treadle_staging *staging) {
  treadle_free(staging->pulls);
  treadle_free(staging->of_op);
  treadle_free(staging->at);
  staging->pulls = NULL;
  staging->of_op = NULL;
  staging->at = NULL;
  staging->pull_count = 0;
  treadle_outbound_release(&staging->outbound);
}

treadle_status treadle_staging_list(treadle_carry *c) {
  treadle_status status = TREADLE_OK;
  treadle_staging *staging = &c->staging;
  forget(staging);
  if (!staging->of[0]) return TREADLE_OK;
  TRY(treadle_own_split(c->plan, staging->of[TREADLE_SIDE_INFER], staging->of[TREADLE_SIDE_TRAIN]));
  TRY(treadle_pulls_list(&c->plan->forward, c->group->rank, staging->of[TREADLE_SIDE_INFER],
                         staging->of[TREADLE_SIDE_TRAIN], &staging->pulls, &staging->pull_count,
                         &staging->of_op));
out:
  return status;
}

/* What this rank gives, by the pulls of all. */
static treadle_status give(treadle_carry *c, const treadle_pulls *pulls) {
  treadle_status status = TREADLE_OK;
  treadle_staging *staging = &c->staging;
  int ranks = c->group->size;
  TRY(treadle_outbound_make(c->group->rank, ranks, c->plan->waves, c->own.spans, pulls,
                            &staging->outbound));
  const size_t *first = staging->outbound.first;
  for (int rank = 0; rank < ranks; rank++) staging->readers[rank] = first[rank + 1] > first[rank];
out:
  return status;
}

/* What a rank answers: the bytes of its slots, how many answers there are for each rank, then these, one behind the other. */
static treadle_status answer(const treadle_carry *c, int64_t **answers_p, size_t *count_p) {
  const treadle_outbound *outbound = &c->staging.outbound;
  size_t ranks = (size_t)c->group->size, count = outbound->first[ranks];
  int64_t *answers = treadle_alloc_array(1 + ranks + count, sizeof *answers);
  *answers_p = answers;
  *count_p = 1 + ranks + count;
  if (!answers) return treadle_memory_is_out();
  answers[0] = outbound->slot_bytes;
  for (size_t rank = 0; rank < ranks; rank++)
    answers[1 + rank] = (int64_t)(outbound->first[rank + 1] - outbound->first[rank]);
  memcpy(answers + 1 + ranks, outbound->at, count * sizeof *answers);
  return TREADLE_OK;
}

/* Takes what one rank has answered. */
static treadle_status hear(treadle_carry *c, int rank, const int64_t *answers, size_t count) {
  treadle_staging *staging = &c->staging;
  size_t ranks = (size_t)c->group->size, at = 1 + ranks, end;
  bool sound = count >= at && answers[0] >= 0;
  for (int other = 0; sound && other < c->group->rank; other++) {
    sound = answers[1 + other] >= 0 && (size_t)answers[1 + other] <= count - at;
    if (sound) at += (size_t)answers[1 + other];
  }
  sound = sound && answers[1 + c->group->rank] >= 0 && (size_t)answers[1 + c->group->rank] <= count - at;
  end = sound ? at + (size_t)answers[1 + c->group->rank] : at;
  for (size_t i = 0; sound && i < staging->pull_count; i++) {
    const treadle_pull *pull = &staging->pulls[i];
    if (pull->source != rank) continue;
    sound = at < end && answers[at] >= 0 && answers[at] % TREADLE_STAGING_ALIGNMENT == 0 &&
            answers[at] <= answers[0] - treadle_pull_bytes(pull);
    if (sound) staging->at[i] = answers[at++];
  }
  staging->slot_bytes[rank] = sound ? answers[0] : 0;
  return sound && at == end
             ? TREADLE_OK
             : treadle_fail(TREADLE_PEER, "switch: rank %d has published staging that cannot be right",
                            rank);
}

static treadle_status make_places(treadle_carry *c) {
  treadle_staging *staging = &c->staging;
  staging->at = treadle_alloc_array(staging->pull_count + 1, sizeof *staging->at);
  return staging->at ? TREADLE_OK : treadle_memory_is_out();
}

/* From the pulls of all to what this rank gives; then from all answers to where its own pulls lie. */
static treadle_status take_pulls(treadle_carry *c, const treadle_handover *h) {
  treadle_status status = TREADLE_OK;
  treadle_pulls *pulls = treadle_alloc_array((size_t)c->group->size, sizeof *pulls);
  if (!pulls) return treadle_memory_is_out();
  for (int rank = 0; rank < c->group->size; rank++)
    pulls[rank].items = treadle_handed(h, rank, &pulls[rank].count);
  TRY(give(c, pulls));
out:
  treadle_free(pulls);
  return status;
}

static treadle_status take_answers(treadle_carry *c, const treadle_handover *h) {
  treadle_status status = TREADLE_OK;
  TRY(make_places(c));
  for (int rank = 0; rank < c->group->size; rank++) {
    size_t count;
    const int64_t *answers = treadle_handed(h, rank, &count);
    if (treadle_group_is_near(c->group, rank)) TRY(hear(c, rank, answers, count));
  }
out:
  return status;
}

treadle_status treadle_staging_arrange(treadle_carry *c) {
  treadle_status status = TREADLE_OK;
  treadle_handover pulls = {0}, answers = {0};
  int64_t *mine = NULL;
  size_t count;
  if (!is_any_read(c)) return TREADLE_OK;
  TRY(treadle_hand_over(c->group, c->staging.pulls, c->staging.pull_count, sizeof(treadle_pull), &pulls));
  TRY(treadle_group_agree(c->group, take_pulls(c, &pulls)));
  TRY(treadle_group_agree(c->group, answer(c, &mine, &count)));
  TRY(treadle_hand_over(c->group, mine, count, sizeof *mine, &answers));
  TRY(treadle_group_agree(c->group, take_answers(c, &answers)));
out:
  treadle_handover_end(c->group, &pulls);
  treadle_handover_end(c->group, &answers);
  treadle_free(mine);
  return status;
}

treadle_status treadle_staging_arrange_alone(treadle_carry *const *all, int ranks) {
  treadle_status status = TREADLE_OK;
  treadle_pulls *pulls = treadle_alloc_array((size_t)ranks, sizeof *pulls);
  int64_t *answers = NULL;
  if (!pulls) return treadle_memory_is_out();
  for (int rank = 0; rank < ranks; rank++)
    pulls[rank] = (treadle_pulls){all[rank]->staging.pulls, all[rank]->staging.pull_count};
  for (int rank = 0; rank < ranks && all[0]->own.any[TREADLE_SIDE_TRAIN]; rank++) {
    TRY(give(all[rank], pulls));
    TRY(make_places(all[rank]));
  }
  for (int rank = 0; rank < ranks && all[0]->own.any[TREADLE_SIDE_TRAIN]; rank++) {
    size_t count;
    TRY(answer(all[rank], &answers, &count));
    for (int reader = 0; reader < ranks; reader++) TRY(hear(all[reader], rank, answers, count));
    treadle_free(answers);
    answers = NULL;
  }
out:
  treadle_free(answers);
  treadle_free(pulls);
  return status;
}

int64_t treadle_staging_bytes(const treadle_carry *c) {
  int64_t page = c->plan->page_bytes, bytes = TREADLE_STAGING_SLOTS * c->staging.outbound.slot_bytes;
  return (bytes + page - 1) / page * page;
}

treadle_status treadle_staging_take(treadle_carry *c, int rank, treadle_paged view, int64_t pages) {
  treadle_staging *staging = &c->staging;
  if (!staging->of[0]) return TREADLE_OK;
  staging->view[rank] = view;
  if (staging->slot_bytes[rank] <= pages * c->plan->page_bytes / TREADLE_STAGING_SLOTS) return TREADLE_OK;
  return treadle_fail(
      TREADLE_REFUSED, "switch: rank %d has %lld pages of staging, and would need %d slots of %lld bytes",
      rank, (long long)pages, (int)TREADLE_STAGING_SLOTS, (long long)staging->slot_bytes[rank]);
}

void treadle_staging_release(treadle_carry *c) {
  treadle_staging *staging = &c->staging;
  forget(staging);
  for (int mode = 0; mode < 2; mode++) treadle_free(staging->of[mode]), treadle_free(staging->spans[mode]);
  treadle_free(staging->readers);
  treadle_free(staging->slot_bytes);
  treadle_free(staging->view);
  *staging = (treadle_staging){0};
}

/* ---- Waves ---- */

static int64_t slot_of(const treadle_staging *staging, int rank, int32_t wave) {
  return wave % TREADLE_STAGING_SLOTS * staging->slot_bytes[rank];
}

/* The slot is free when all who read here have finished the wave that had it. */
static treadle_status wait_for_slot(treadle_carry *c, int32_t wave) {
  treadle_status status = TREADLE_OK;
  treadle_group *group = c->group;
  char what[80];
  if (wave < TREADLE_STAGING_SLOTS) return TREADLE_OK;
  uint64_t value = treadle_done_of(c->epoch, wave - TREADLE_STAGING_SLOTS);
  double begin = treadle_clock_seconds(), deadline = begin + group->timeout_seconds;
  snprintf(what, sizeof what, "the staging of wave %d", wave);
  for (int rank = 0; rank < group->size; rank++)
    if (c->staging.readers[rank] && treadle_word_of(group, rank, TREADLE_WORD_DONE) < value)
      TRY(treadle_word_wait(c, rank, TREADLE_WORD_DONE, value, c->epoch, deadline, what));
  c->figures->wait_seconds += treadle_clock_seconds() - begin;
out:
  return status;
}

/* Boxes of a wave that lie in the window of a mode. */
static treadle_status fill(treadle_carry *c, treadle_side mode, int32_t wave) {
  treadle_status status = TREADLE_OK;
  const treadle_staging *staging = &c->staging;
  const treadle_outbound *outbound = &staging->outbound;
  int rank = c->group->rank;
  bool waited = false;
  treadle_copies_begin(c->run.staged, false);
  for (int32_t i = outbound->wave_first[wave]; i < outbound->wave_first[wave + 1]; i++) {
    const treadle_outbound_box *box = &outbound->boxes[i];
    if ((box->pull.twin ? TREADLE_SIDE_INFER : TREADLE_SIDE_TRAIN) != mode) continue;
    if (!waited) TRY(wait_for_slot(c, wave));
    waited = true;
    const treadle_op op = treadle_pull_copy(&box->pull, slot_of(staging, rank, wave) + box->at);
    const treadle_paged from = treadle_own_view(c, mode, op.from);
    TRY(treadle_carry_look(c));
    treadle_copies_add(c, c->run.staged, &op, &from, &staging->view[rank]);
    c->figures->staged_bytes += (size_t)treadle_pull_bytes(&box->pull);
  }
  treadle_copies_ask(c, c->run.staged);
out:
  return status;
}

treadle_status treadle_staging_fill(treadle_carry *c, int32_t wave) {
  treadle_status status = TREADLE_OK;
  if (c->staging.outbound.slot_bytes == 0) return TREADLE_OK;
  TRY(fill(c, TREADLE_SIDE_TRAIN, wave));
  TRY(treadle_flight_stage(c, wave));
out:
  return status;
}

treadle_status treadle_staging_relay(treadle_carry *c, int32_t wave) {
  if (c->staging.outbound.slot_bytes == 0) return TREADLE_OK;
  return fill(c, TREADLE_SIDE_INFER, wave);
}

bool treadle_staging_has(const treadle_carry *c, treadle_side to, size_t position) {
  return to == TREADLE_SIDE_INFER && c->staging.of_op && c->staging.of_op[position] >= 0;
}

treadle_paged treadle_staging_view(const treadle_carry *c, size_t position, treadle_op *op) {
  const treadle_staging *staging = &c->staging;
  const int32_t rank = op->source;
  *op = treadle_pull_read(op, slot_of(staging, rank, op->wave) + staging->at[staging->of_op[position]]);
  return staging->view[rank];
}

treadle_status treadle_staging_wait(treadle_carry *c, int32_t rank, int32_t wave) {
  treadle_status status = TREADLE_OK;
  const uint64_t value = treadle_done_of(c->epoch, wave);
  if (treadle_word_of(c->group, rank, TREADLE_WORD_STAGED) >= value) return TREADLE_OK;
  char what[80];
  double begin = treadle_clock_seconds();
  snprintf(what, sizeof what, "its staging of wave %d", wave);
  TRY(treadle_word_wait(c, rank, TREADLE_WORD_STAGED, value, c->epoch, begin + c->group->timeout_seconds,
                        what));
  c->figures->wait_seconds += treadle_clock_seconds() - begin;
out:
  return status;
}
