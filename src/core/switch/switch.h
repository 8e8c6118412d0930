/* What the files of the switch share. switch.c has the invariants and the picture of the modes.
 *
 *   switch.c    the state machine: modes, arrows, what a user calls
 *   helm.c      which thread may change a switch now: start, test, wait, cancel; what others may read meanwhile
 *   arrows.c    what each arrow does, and what a failure leaves behind
 *   epoch.c     how the ranks enter, commit and fail together
 *   waves.c     the carry, which runs the plan (carry/carry.h), and what happens here between its waves
 *   reference.c parameters of another model
 *   foresee.c   what all ranks will hold, before any of it is there
 *   place.c     which physical page each page of each window lies on
 *   double.c    the infer window of which there are two versions in an update
 *   undo.c      what an arrow overwrites, given back when it fails
 *   guard.c     protected pages, and pages overwritten for debugging
 *   engine.c    bind, unbind
 *   register.c  the caller's memory in place of windows, copied
 *   own.c       own tensors, memory of the caller that is read and written where it is: taken, and checked
 *   agree.c     how the ranks agree on a plan; attempt.c: with which cap and waves
 *   ready_plan.c     a plan that the caller made before
 *   room.c      whether there is enough memory for all ranks
 *   create.c    how the ranks make their memory; tables.c: page tables that they publish; options_check.c: arguments
 *   rejoin.c    a switch goes to another group
 *   handle.c    handles for other processes, of its infer window (attach/outlet.h)
 *   inject.c    faults on purpose, for tests and the command
 *   window_bytes.c   the bytes of a window, read and written for tests and the command
 *   digest.c, prove.c
 */
#ifndef TREADLE_SWITCH_SWITCH_H
#define TREADLE_SWITCH_SWITCH_H

#include "memory/books.h"
#include "memory/device.h"
#include "memory/twins.h"
#include "plan/plan.h"
#include "switch/epoch.h"
#include "switch/helm.h"
#include "switch/inject.h"
#include "switch/own.h"
#include "switch/place.h"
#include "switch/register.h"
#include "switch/tables.h"
#include "switch/terms.h"
#include "switch/undo.h"
#include "weights/filled.h"

/* What the ranks have agreed on (agree.c), beside the plan. */
typedef struct treadle_agreement {
  treadle_plan_base plan_base;          /* of the plan */
  size_t bound_bytes, pool_bound_bytes; /* treadle_switch_bound, treadle_switch_pool_bound */
  bool undoes;                          /* what an update overwrites is kept, on all ranks */
  bool returns; /* rejoining in mode INFER, this rank goes to TRAIN by itself: others are there */
} treadle_agreement;

/* The inference engine (engine.c). */
typedef struct treadle_binding {
  treadle_engine_hooks hooks;
  bool binds;    /* a rank of the group has an engine */
  bool bound;    /* in mode INFER: the ranks have agreed that all engines are bound */
  bool here;     /* this rank's engine is bound */
  bool attached; /* it knows this switch */
  double since;  /* when it was unbound, in seconds of the clock */
} treadle_binding;

/* What readers in other processes are served with (attach/outlet.h). */
typedef struct treadle_outlet treadle_outlet;

struct treadle_switch {
  treadle_group *group;
  treadle_device device;            /* of the pool and its windows */
  const treadle_layout *layouts[2]; /* by mode: TREADLE_TRAIN, TREADLE_INFER */
  treadle_carry carry;              /* has the plan, the views of windows, own tensors, staging, messages */
  treadle_terms terms;
  treadle_agreement agreed;
  treadle_space space;
  treadle_holes holes;
  treadle_undo undo;
  treadle_books books;
  bool shared_closed; /* pages of params that the engine has are read-only (guard.c) */
  treadle_binding engine;
  treadle_outlet *outlet; /* NULL: no handle was made yet */
  treadle_twins twins;
  bool shown;                       /* the reference is on the device */
  bool away[TREADLE_TRAIN_CLASSES]; /* left for it, though they stay otherwise */
  TREADLE_ARRAY(treadle_caller_memory) foreign;
  treadle_filled *filled; /* which of its params were given values */

  /* The state machine (switch.c, arrows.c). */
  _Atomic treadle_mode mode; /* any thread may read both */
  _Atomic uint64_t version;
  int aim;            /* of the arrow that runs */
  atomic_bool stale;  /* in mode INFER, after an update that failed: the infer window holds no version */
  atomic_bool behind; /* the infer window does not lie on the present one of its two sets of pages yet */
  bool accumulating;  /* gradients */
  bool apart;         /* from any group: to rejoin one has failed */
  treadle_switch_stats stats;
  treadle_helm *helm; /* apart, since to read a switch takes its lock */
};

/* The window that a mode has its weights in. */
static inline treadle_side treadle_side_of(treadle_mode mode) {
  return mode == TREADLE_INFER ? TREADLE_SIDE_INFER : TREADLE_SIDE_TRAIN;
}

static inline treadle_class treadle_class_of_side(treadle_side side) {
  return side == TREADLE_SIDE_INFER ? TREADLE_INFER_PARAMS : TREADLE_PARAMS;
}

/* The class whose window a mode reads and the waves towards it write. */
static inline treadle_class treadle_class_of(treadle_mode mode) {
  return treadle_class_of_side(treadle_side_of(mode));
}

/* The other of the two classes of parameters. */
static inline treadle_class treadle_class_opposite(treadle_class which) {
  return which == TREADLE_PARAMS ? TREADLE_INFER_PARAMS : TREADLE_PARAMS;
}

/* "parameters", "gradients", "optimizer state": of training; "infer parameters", "KV cache", "work memory". */
static inline const char *treadle_class_text(treadle_class which) {
  static const char *const names[TREADLE_CLASSES] = {
      "parameters", "gradients",   "optimizer state",         "infer parameters",
      "KV cache",   "work memory", "work memory of training", "reference"};
  return names[which];
}

/* Are params rebuilt by the reverse plan? Else they stay on the device, or a twin has them. */
static inline bool treadle_switch_rebuilds(const treadle_switch *sw) {
  return sw->terms.leaves[TREADLE_PARAMS] && !sw->terms.copied[TREADLE_PARAMS];
}

/* The window that the waves of the next arrow write, whichever arrow that is. */
static inline treadle_side treadle_switch_next_side(const treadle_switch *sw) {
  return sw->mode == TREADLE_INFER && sw->terms.leaves[TREADLE_PARAMS] ? TREADLE_SIDE_TRAIN
                                                                       : TREADLE_SIDE_INFER;
}

/* ---- switch.c ---- */

/* Can that mode be entered from the present one? aim: a mode, or TREADLE_AIM_UPDATE. */
treadle_status treadle_arrow_check(const treadle_switch *sw, int aim);
/* Enters it, in this thread, which has the helm; it was checked. */
treadle_status treadle_arrow_take(treadle_switch *sw, int aim);
/* Ends a switch that nobody uses. */
void treadle_switch_release(treadle_switch *sw);

/* ---- arrows.c ---- */

treadle_status treadle_arrow_to_infer(treadle_switch *sw);
/* In mode INFER, with nothing bound. */
treadle_status treadle_arrow_bind(treadle_switch *sw);
treadle_status treadle_arrow_from_infer(treadle_switch *sw, treadle_mode aim);
/* The next version, in mode INFER. */
treadle_status treadle_arrow_update(treadle_switch *sw);
treadle_status treadle_arrow_local(treadle_switch *sw, treadle_mode aim);
/* From INFER to TRAIN without the other ranks: params are in the twin or have stayed on the device. */
treadle_status treadle_arrow_return(treadle_switch *sw);
/* The end of an arrow that came to `status`: windows may be used as the mode says. Returns how the arrow ends. */
treadle_status treadle_arrow_settle(treadle_switch *sw, treadle_status status);

/* ---- handle.c ---- */

/* The window of infer parameters is about to be taken away: no version is valid any more, and nobody holds one. TREADLE_TIMEOUT
 * names who does after the switch's time limit. epoch: 0: none. Whether it fails or not, treadle_holds_settle follows in the end. */
treadle_status treadle_holds_end(treadle_switch *sw, uint64_t epoch);
/* Readers hear of the version that is there as mode and version now say. */
void treadle_holds_settle(treadle_switch *sw);
void treadle_outlet_release(treadle_switch *sw);

/* ---- agree.c, create.c ---- */

/* Makes sw->carry.plan, with the cap and the waves that all agree on, and the bounds; version and mode are the same on all.
 * Collective; one rank's refusal is everybody's. */
treadle_status treadle_switch_plan_together(treadle_switch *sw);

/* What options and hooks mean: sw->terms, and sw->engine.hooks. */
void treadle_switch_resolve(treadle_switch *sw, const treadle_switch_options *options,
                            const treadle_engine_hooks *engine);

/* As treadle_switch_plan_together, of all ranks [ranks] by one that meets nobody. Each has a group of its own, with one control block. */
treadle_status treadle_switch_plan_alone(treadle_switch *all, int ranks);

/* The arguments of treadle_switch_create, as far as one rank can tell (options_check.c); *o and *engine get what was given,
 * or zeros. */
treadle_status treadle_switch_check_arguments(const treadle_layout *train, const treadle_layout *infer,
                                              const treadle_switch_options *options,
                                              treadle_switch **switch_p, treadle_switch_options *o,
                                              treadle_engine_hooks *engine);

/* Pools and tables of the others are mapped, and how they have arranged them is known. Collective. */
treadle_status treadle_switch_share(treadle_switch *sw);
/* Lets go of what others share with this rank. */
void treadle_switch_unshare(treadle_switch *sw);

/* ---- waves.c ---- */

/* The carry of a switch that has group and device: what it asks of the switch, and its terms as the options have them now. */
void treadle_switch_carry_begin(treadle_switch *sw);
void treadle_switch_carry_terms(treadle_switch *sw);
/* Settles where pages lie. */
treadle_status treadle_switch_place(treadle_switch *sw);
/* The bound of the pool is that of its pages, where these are more. */
void treadle_switch_bound_pool(treadle_switch *sw);
/* The books, in which nobody holds a page yet, the turns, and twins without memory. */
treadle_status treadle_switch_open_books(treadle_switch *sw);
/* Where its windows' pages lie. */
void treadle_switch_show_pages(treadle_carry *c, const treadle_page_tables *tables);
/* Runs the waves towards the weights of a mode. */
treadle_status treadle_switch_run(treadle_switch *sw, treadle_mode to);

/* ---- double.c ---- */

/* May there be two sets of pages for the infer window? As far as this rank can tell, once its own tensors are known. */
treadle_status treadle_double_check(const treadle_switch *sw);
/* A second place for the window; and both sets can be mapped in both places, since each was, once. */
treadle_status treadle_double_map(treadle_switch *sw);
/* Before it is turned to, the other set is mapped in the second place, where it is not yet. */
treadle_status treadle_double_ready(treadle_space *space, const treadle_device *device);
/* From here on the waves write the other set, and others read it as the window that they write; or back again. The window itself stays on
 * the pages that it is on. */
void treadle_double_turn(treadle_switch *sw);
/* The window lies on the set that was turned to, where it did not yet (sw->behind). */
treadle_status treadle_double_show(treadle_switch *sw);

/* ---- reference.c ---- */

/* Before mode FORWARD is left: it is hidden, and what left for it is back. */
treadle_status treadle_reference_leave(treadle_switch *sw);

/* ---- engine.c ---- */

treadle_status treadle_switch_bind_engine(treadle_switch *sw);
treadle_status treadle_switch_unbind_engine(treadle_switch *sw);

/* ---- guard.c ---- */

/* What is never to be written through a window, once. */
treadle_status treadle_guard_create(treadle_switch *sw);
/* How a window may be used in the present mode, but for pages that both windows of parameters share. */
treadle_access treadle_guard_use(const treadle_switch *sw, treadle_class which);
/* Windows may be used as the mode says. With guard_pages: pages of nobody are spoiled, windows without pages
 * cannot be touched. Fails where the device does. */
treadle_status treadle_guard_settle(treadle_switch *sw);
/* Spoils a page that is about to be written. */
void treadle_guard_spoil(treadle_switch *sw, int32_t physical);

#endif
