/* The switch, inside: what its files share. The essay is in switch.c.
 *
 *   switch.c   the state machine: modes, outcome, what a failure leaves behind
 *   agree.c    how the ranks agree on a plan
 *   create.c   how they make their memory
 *   run.c      one direction of the plan, wave by wave, and its coverage
 *   run_bands.c  its fp8 blocks: quantised and dequantised
 *   account.c  how many pages each class holds, wave by wave
 *   digest.c, load.c, prove.c
 */
#ifndef TREADLE_SWITCH_SWITCH_H
#define TREADLE_SWITCH_SWITCH_H

#include "memory/copy.h"
#include "memory/pool.h"
#include "plan/plan.h"
#include "switch/prove.h"
#include "transport/group.h"

enum { TREADLE_DONE_STEP = 8192 }; /* done = epoch * this + 1 + wave; more than TREADLE_MAX_WAVES */

/* What each rank publishes of its windows: a header, then the physical page of each page of the train
 * window, then of the infer window. */
typedef struct treadle_tables {
  uint64_t magic;
  int64_t page_bytes, physical_pages;
  int64_t pages[2]; /* by mode: TREADLE_TRAIN, TREADLE_INFER */
  int32_t table[];
} treadle_tables;

/* Pages whose class changes in a wave. */
typedef struct treadle_turn {
  int32_t fresh; /* pages that nobody held */
  int32_t taken; /* pages of the old mode that are written again */
} treadle_turn;

/* What was really written by an op, or by a run of bands. */
typedef struct treadle_written {
  uint64_t mark;
  uint32_t times;
  int32_t wave; /* of bands: in which they were made */
} treadle_written;

struct treadle_switch {
  treadle_group *group;
  const treadle_layout *layouts[2]; /* by mode */
  treadle_plan *plan;
  treadle_pool *pool, *table_pool;
  void *windows[2];
  treadle_shared *pools, *tables; /* by rank: what the others may read */
  treadle_view *views[2];         /* by mode and rank */
  treadle_mover mover;
  double timeout_seconds;
  bool one_way;

  treadle_mode mode;
  uint64_t version;

  treadle_turn *turns[2];   /* by the mode that is entered: [waves] */
  int64_t held[2];          /* pages by class */
  treadle_written *written; /* [ops of the longer direction] */
  treadle_written *bands;   /* [bands of the longer direction] what was really written by each */
  void *scratch_values;     /* of the largest band of both directions, as are */
  uint8_t *scratch_codes;
  float *scratch_scales;
  treadle_switch_stats stats;

  treadle_fault fault; /* of the next switch */
  size_t fault_at;     /* which copy, or run of bands */
  treadle_op misplaced;
};

static inline const treadle_direction *treadle_switch_direction(const treadle_switch *sw, treadle_mode to) {
  return to == TREADLE_INFER ? &sw->plan->forward : &sw->plan->back;
}

/* All ranks fared well, or everybody gets the status and the message of the first that did not. Collective.
 */
treadle_status treadle_switch_agree(treadle_group *group, treadle_status mine);

/* Makes sw->plan, with the cap and the waves that all agree on. *bound_p: the bytes that this rank's pool
 * may have. Collective; one rank's refusal is everybody's. */
treadle_status treadle_switch_plan_together(treadle_switch *sw, const treadle_switch_options *options,
                                            int64_t *bound_p);

/* Runs the waves that lead to mode `to`, and proves that every byte was written. Not collective by itself:
 * the caller tells the others when it fails. */
treadle_status treadle_switch_run(treadle_switch *sw, treadle_mode to, uint64_t epoch);

/* Memory for the bands of both directions, made before the first switch. */
treadle_status treadle_switch_bands_create(treadle_switch *sw);
void treadle_switch_bands_release(treadle_switch *sw);
/* Carries out the bands of a wave: those that read what this rank has written in it (twin), or the others. */
void treadle_switch_bands_run(treadle_switch *sw, treadle_mode to, int32_t wave, bool twin);
/* Adds what bands have written to *sum_p; fails when one did not do it once, in its own
 * wave. */
treadle_status treadle_switch_bands_check(const treadle_switch *sw, const treadle_direction *direction,
                                          uint64_t *sum_p);

/* Counts who holds which page in each wave. */
treadle_status treadle_account_create(treadle_switch *sw);
/* Wave `wave` on the way to mode `to` begins; fails when the pool would hold more pages than it has. */
treadle_status treadle_account_wave(treadle_switch *sw, treadle_mode to, int32_t wave);
/* Mode `mode` alone holds pages now. */
void treadle_account_settle(treadle_switch *sw, treadle_mode mode);

#endif
