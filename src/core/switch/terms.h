/* What the options of a switch mean. */
#ifndef TREADLE_SWITCH_TERMS_H
#define TREADLE_SWITCH_TERMS_H

#include "memory/books.h"
#include "plan/plan.h"

/* What must be found again in the plan that the switch makes, where one was given (ready_plan.c). */
typedef struct treadle_ready_plan {
  bool is; /* was one given? */
  int32_t waves;
  int64_t physical_pages;
  uint64_t digest;
  size_t ops[2], block_rows[2]; /* forward, back */
  uint64_t coverage[2];
} treadle_ready_plan;

/* What the options mean (create.c). The ranks may change them while they agree (own.c, ready_plan.c). */
typedef struct treadle_terms {
  treadle_switch_options options; /* as given; of the plan that was given, where they left it open */
  treadle_ready_plan ready;
  double timeout_seconds;
  bool leaves[TREADLE_TRAIN_CLASSES]; /* the device, in mode INFER */
  bool copied[TREADLE_TRAIN_CLASSES]; /* to its twin when it leaves */
} treadle_terms;

/* Has a class of training a twin? */
static inline bool treadle_twin_is_wanted(const treadle_terms *terms, treadle_class which) {
  const treadle_switch_options *o = &terms->options;
  if (which == TREADLE_PARAMS) return o->host || (terms->leaves[which] && o->keep == TREADLE_KEEP_HOST);
  if (terms->leaves[which]) return terms->copied[which];
  return o->host || (which == TREADLE_OPTIMIZER && o->reference_bytes);
}

/* Bytes of the trainer's work memory that a mode has. */
static inline size_t treadle_work_of_mode(const treadle_switch_options *o, treadle_mode mode) {
  return mode == TREADLE_TRAIN ? o->train_work_bytes : mode == TREADLE_FORWARD ? o->forward_work_bytes : 0;
}

/* The page size that the options give (agree.c). */
size_t treadle_switch_page_bytes(const treadle_switch_options *options);
/* What the budget leaves for windows; 0: there is none. */
size_t treadle_switch_windows_budget(const treadle_switch_options *options);

/* ---- ready_plan.c ---- */

/* Settles the terms by options.plan, where there is one and the switch can run it; that one is not looked at again. */
treadle_status treadle_ready_plan_take(treadle_terms *terms, const treadle_layout *train,
                                       const treadle_layout *infer, int rank);
/* Is the plan the one that was given? */
treadle_status treadle_ready_plan_check(const treadle_terms *terms, const treadle_plan *plan);

#endif
