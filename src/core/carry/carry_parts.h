/* What the files of the carry share. */
#ifndef TREADLE_CARRY_CARRY_PARTS_H
#define TREADLE_CARRY_CARRY_PARTS_H

#include "carry/carry.h"
#include "memory/books.h"

/* ---- run.c ---- */

/* All that a wave was to do is done: its copies are counted, and others hear of it. */
treadle_status treadle_carry_finish(treadle_carry *c, int32_t wave);

/* ---- flight.c ---- */

/* All of the wave has been asked for; all that is staged in it. They may wait for an earlier one to end. */
treadle_status treadle_flight_start(treadle_carry *c, int32_t wave);
treadle_status treadle_flight_stage(treadle_carry *c, int32_t wave);
/* Finishes what is done; and waits until a wave and all before it are, where they were started. */
treadle_status treadle_flight_look(treadle_carry *c);
treadle_status treadle_flight_land(treadle_carry *c, int32_t wave);
static inline bool treadle_flight_is_on(const treadle_carry *c) {
  const treadle_flight *flight = &c->run.flight;
  return flight->landed < flight->begun || flight->staged < flight->filled;
}

/* ---- lists.c ---- */

/* The ops of the direction that runs. */
const treadle_work *treadle_carry_list(const treadle_carry *c);
/* What op `position` of a direction reads; it is changed where it reads staging. A fill, and what comes in a message: nothing. */
treadle_paged treadle_carry_source_of(const treadle_carry *c, treadle_side to, size_t position,
                                      treadle_op *op);

/* ---- copies.c ---- */

/* None so far. */
static inline void treadle_copies_begin(treadle_copies *copies, bool packs) {
  copies->packs = packs;
  copies->count = 0;
}
/* It may ask for what is there, if there is no more room. */
void treadle_copies_add(const treadle_carry *c, treadle_copies *copies, const treadle_op *op,
                        const treadle_paged *from, const treadle_paged *to);
void treadle_copies_ask(const treadle_carry *c, treadle_copies *copies);

/* ---- block_rows.c ---- */

/* When a block row is made in its wave: at its start; when all messages of the wave are there; after all copies, of what these have
 * written in this window. */
typedef enum treadle_turn { TREADLE_TURN_NEAR, TREADLE_TURN_FAR, TREADLE_TURN_TWIN } treadle_turn;

treadle_status treadle_carry_block_rows_create(treadle_carry *c);
void treadle_carry_block_rows_release(treadle_carry *c);
/* A direction starts. */
void treadle_carry_block_rows_begin(treadle_carry *c);
/* Carries out the block rows of a wave that have this turn. */
treadle_status treadle_carry_block_rows_run(treadle_carry *c, int32_t wave, treadle_turn turn);
/* Makes codes and scales, all in scratch, of values in windows of this node that the direction reads. */
void treadle_carry_block_rows_order(treadle_carry *c, const treadle_block_row *block_row,
                                    const treadle_block_row_part *parts, const treadle_scratch *scratch);
/* Adds what block rows have written to *sum_p; fails when one did not do it once, in its own wave. */
treadle_status treadle_carry_block_rows_check(const treadle_carry *c, uint64_t *sum_p);

treadle_status treadle_scratch_create(const treadle_device *device, int64_t values, int64_t codes,
                                      int64_t scales, int slots, treadle_scratch *scratch_p);
void treadle_scratch_release(const treadle_device *device, treadle_scratch *scratch);

/* ---- turns.c ---- */

/* Have all others of this node read what lies on the pages that the wave is the first to write? Fails by name where one has not. */
treadle_status treadle_turns_check(const treadle_carry *c, int32_t wave);

/* ---- own.c ---- */

/* Adds the copies from this rank's window of a side, or into it, of what may lie in several own tensors: the half of an op that another node
 * has the other half of. */
void treadle_own_copy_from(const treadle_carry *c, treadle_copies *copies, treadle_side side,
                           const treadle_op *op, const treadle_paged *into);
void treadle_own_copy_into(const treadle_carry *c, treadle_copies *copies, treadle_side side,
                           const treadle_op *op, const treadle_paged *from);

/* ---- staging.c ---- */

/* Lays down what others read of own train tensors in a wave; treadle_flight_look says so when it is there. */
treadle_status treadle_staging_fill(treadle_carry *c, int32_t wave);
/* Lays down what relays read of own infer tensors, when what came from other nodes is in them; take_in says so by
 * ARRIVED. */
treadle_status treadle_staging_relay(treadle_carry *c, int32_t wave);
/* Has the op a pull? Then it reads here: the op is changed so that it does. */
bool treadle_staging_has(const treadle_carry *c, treadle_side to, size_t position);
treadle_paged treadle_staging_view(const treadle_carry *c, size_t position, treadle_op *op);
/* Waits until what a rank stages in a wave is there. */
treadle_status treadle_staging_wait(treadle_carry *c, int32_t rank, int32_t wave);

#endif
