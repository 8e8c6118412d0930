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
 *   guard.c     protected pages, and pages overwritten for debugging
 *   engine.c    bind, unbind
 *   register.c  the caller's memory in place of windows, copied
 *   own.c       own tensors, memory of the caller that is read and written where it is: taken, and checked
 *   agree.c     how the ranks agree on a plan; attempt.c: with which cap and waves
 *   ready_plan.c     a plan that the caller made before
 *   room.c      whether there is enough memory for all ranks
 *   create.c    how the ranks make their memory
 *   rejoin.c    a switch goes to another group
 *   handle.c    windows in other processes; handle.h has its files
 *   inject.c    faults on purpose, for tests and the command
 *   window_bytes.c   the bytes of a window, read and written for tests and the command
 *   digest.c, prove.c
 */
#ifndef TREADLE_SWITCH_SWITCH_H
#define TREADLE_SWITCH_SWITCH_H

#include "carry/carry.h"
#include "memory/books.h"
#include "memory/device.h"
#include "memory/parking.h"
#include "memory/twins.h"
#include "plan/plan.h"
#include "switch/inject.h"
#include "weights/filled.h"

#include <pthread.h>

/* What each rank publishes of its windows: a header, how far each storage tensor of the infer window is moved, then the
 * physical page of each page of the train window, then of the infer window (-1: there is none, since own tensors lie there), then
 * of staging, then of the infer window's other set, where there are two. */
typedef struct treadle_tables {
  uint64_t magic;
  int64_t page_bytes, physical_pages;
  int64_t shifts;   /* 0: none is moved */
  int64_t pages[2]; /* by mode: TREADLE_TRAIN, TREADLE_INFER */
  int64_t staging;  /* pages of it */
  int64_t other;    /* pages of the other set of the infer window; 0: there is one set */
  int64_t present;  /* of the sets, which one has the present version: 0, or 1, the other one */
  int64_t shift[];  /* then int32_t physical pages */
} treadle_tables;

/* The caller's own memory. */
typedef struct treadle_caller_memory {
  treadle_class which;
  size_t offset, bytes; /* offset: in the window of params */
  char *memory, *twin;  /* twin: of gradients and optimizer state that is copied */
  bool away;            /* what it holds was copied out, and not back yet */
} treadle_caller_memory;

/* What must be found again in the plan that the switch makes, where one was given (ready_plan.c). */
typedef struct treadle_ready_plan {
  bool is; /* was one given? */
  int32_t waves;
  int64_t physical_pages;
  uint64_t digest;
  size_t ops[2], block_rows[2]; /* forward, back */
  uint64_t coverage[2];
} treadle_ready_plan;

/* What the options mean (create.c), unchanged since. */
typedef struct treadle_terms {
  treadle_switch_options options; /* as given; of the plan that was given, where they left it open */
  treadle_ready_plan ready;
  double timeout_seconds;
  bool leaves[TREADLE_TRAIN_CLASSES]; /* the device, in mode INFER */
  bool copied[TREADLE_TRAIN_CLASSES]; /* to its twin when it leaves */
} treadle_terms;

/* What lies on no page, since own tensors lie there (own.c). */
typedef struct treadle_holes {
  uint8_t *marks[2]; /* by mode and page of the window; NULL: there are none */
  int64_t count[2];
  bool taken; /* what the options say was taken */
  treadle_arena arena;
} treadle_holes;

/* What the ranks have agreed on (agree.c), beside the plan. */
typedef struct treadle_agreement {
  treadle_plan_base plan_base;          /* of the plan */
  size_t bound_bytes, pool_bound_bytes; /* treadle_switch_bound, treadle_switch_pool_bound */
  bool returns; /* rejoining in mode INFER, this rank goes to TRAIN by itself: others are there */
} treadle_agreement;

/* The pool and its windows (place.c, create.c), and what the others may be read through. */
typedef struct treadle_space {
  treadle_page_tables tables;
  treadle_pool *pool, *table_pool; /* table_pool: of host memory */
  char *base;                      /* all pages of the pool, in physical order */
  size_t bytes;                    /* of them */
  void *windows[TREADLE_CLASSES];
  uint8_t *aliased; /* by physical page: both windows of parameters lie on it; NULL: none */
  treadle_peer_memory *shared_pools, *shared_tables; /* by rank */
  void *shadow;  /* where the next version is mapped beside the window */
  bool shadowed; /* it lies on the other set, and is entered */
} treadle_space;

/* Who may touch what (guard.c). */
typedef struct treadle_guards {
  treadle_parking parking; /* of params, while the engine has pages of theirs */
  bool shared;             /* pages of params that the engine has are read-only */
} treadle_guards;

/* The inference engine (engine.c). */
typedef struct treadle_binding {
  treadle_engine_hooks hooks;
  bool binds;    /* a rank of the group has an engine */
  bool bound;    /* in mode INFER: the ranks have agreed that all engines are bound */
  bool here;     /* this rank's engine is bound */
  bool attached; /* it knows this switch */
  double since;  /* when it was unbound, in seconds of the clock */
} treadle_binding;

/* What readers in other processes are served with (handle.c). */
typedef struct treadle_outlet treadle_outlet;

enum { TREADLE_HELM_MESSAGE = 1024 };

/* Who is at the switch now (helm.c). All of it is under the lock but for `cancelled`, which whoever runs the arrow looks at. */
typedef struct treadle_helm {
  pthread_mutex_t lock;
  bool taken;    /* a call changes the switch, or an arrow was started and nobody has waited for it */
  bool arrow;    /* it is an arrow that has not ended */
  bool started;  /* by treadle_switch_start, on the way to `aim`, */
  bool waited;   /* a thread is in treadle_switch_wait for it */
  pthread_t who; /* the thread that runs it */
  int aim;       /* a mode, or TREADLE_AIM_UPDATE */
  treadle_status result; /* of a started arrow that has ended, and its message */
  char message[TREADLE_HELM_MESSAGE];
  int rank;
  const treadle_switch_stats *now;
  treadle_switch_stats stats; /* as they were told last, for other threads */
  atomic_bool cancelled;
} treadle_helm;

struct treadle_switch {
  treadle_group *group;
  treadle_device device;            /* of the pool and its windows */
  const treadle_layout *layouts[2]; /* by mode: TREADLE_TRAIN, TREADLE_INFER */
  treadle_carry carry;              /* has the plan, the views of windows, own tensors, staging, messages */
  treadle_terms terms;
  treadle_agreement agreed;
  treadle_space space;
  treadle_holes holes;
  treadle_books books;
  treadle_guards guards;
  treadle_binding engine;
  treadle_outlet *outlet; /* NULL: no handle was made yet */
  treadle_twins twins;
  char *reference;                  /* host memory of reference_bytes; NULL: none */
  size_t reference_twin;            /* bytes of it */
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
  return mode == TREADLE_INFER ? TREADLE_INFER_PARAMS : TREADLE_PARAMS;
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

/* Has a class of training a twin? */
static inline bool treadle_twin_is_wanted(const treadle_terms *terms, treadle_class which) {
  const treadle_switch_options *o = &terms->options;
  if (which == TREADLE_PARAMS) return o->host || (terms->leaves[which] && o->keep == TREADLE_KEEP_HOST);
  if (terms->leaves[which]) return terms->copied[which];
  return o->host || (which == TREADLE_OPTIMIZER && o->reference_bytes);
}

/* Are params rebuilt by the reverse plan? Else they stay on the device, or a twin has them. */
static inline bool treadle_switch_rebuilds(const treadle_switch *sw) {
  return sw->terms.leaves[TREADLE_PARAMS] && !sw->terms.copied[TREADLE_PARAMS];
}

/* What an arrow aims at beside the modes: the next version, from mode INFER to mode INFER. */
enum { TREADLE_AIM_UPDATE = 8 };

/* "infer", ..., "the next version": after "switch to". */
static inline const char *treadle_aim_text(int aim) {
  return aim == TREADLE_AIM_UPDATE ? "the next version" : treadle_mode_text((treadle_mode)aim);
}

/* Bytes of the trainer's work memory that a mode has. */
static inline size_t treadle_work_of_mode(const treadle_switch_options *o, treadle_mode mode) {
  return mode == TREADLE_TRAIN ? o->train_work_bytes : mode == TREADLE_FORWARD ? o->forward_work_bytes : 0;
}

/* The window that an arrow's waves write, where it has waves. */
static inline treadle_side treadle_aim_side(int aim) {
  return aim == TREADLE_INFER || aim == TREADLE_AIM_UPDATE ? TREADLE_SIDE_INFER : TREADLE_SIDE_TRAIN;
}

/* The same of the next arrow with waves, whatever it is. */
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

/* ---- helm.c ---- */

/* A call that changes the switch, and no arrow, begins and ends; TREADLE_STATE where another is under way, or an arrow. `what` is
 * for the message. */
treadle_status treadle_helm_take(treadle_helm *helm, const char *what);
void treadle_helm_leave(treadle_helm *helm);
/* Of a rank, whose stats are there as long as the helm; NULL: memory is out. */
treadle_helm *treadle_helm_create(int rank, const treadle_switch_stats *stats);
void treadle_helm_destroy(treadle_helm *helm);
/* A whole arrow in this thread. */
treadle_status treadle_helm_go(treadle_switch *sw, int aim);
/* TREADLE_CANCELLED when the arrow that this thread runs was cancelled, or this thread's watcher ends it. */
treadle_status treadle_helm_check(treadle_helm *helm);
/* What stats say now is what other threads get. */
void treadle_helm_tell(treadle_helm *helm);

/* ---- epoch.c ---- */

/* Enters an epoch of an arrow: all ranks are in it, in the same mode, on the same way. */
treadle_status treadle_epoch_enter(treadle_switch *sw, int aim);
/* From here on this rank writes on pages that others count on if the epoch fails: of the old mode, or of the version before an
 * update. Or, where that version has pages of its own, unbinds its engine. */
treadle_status treadle_epoch_reclaim(const treadle_carry *c, uint64_t epoch);
/* One more epoch without meeting: all ranks are known to have committed the last one. */
treadle_status treadle_epoch_next(treadle_carry *c);
/* All ranks have written every byte of the next version beside the present one. What they have done so far can be undone. */
treadle_status treadle_epoch_prove(treadle_carry *c, const char *what);
/* All ranks have done their part of the present epoch, and so the word says committed. */
treadle_status treadle_epoch_commit(treadle_carry *c, const char *what);
/* This rank failed with `status`, or heard that another did. TREADLE_OK: the epoch is committed all the same. Else all
 * living ranks have stopped, and *reclaimed_p is whether any of them had called treadle_epoch_reclaim; it is the same on all. */
treadle_status treadle_epoch_fail(treadle_carry *c, treadle_status status, bool *reclaimed_p);

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

/* Has any rank given out handles? Asked after entering an epoch, and the same on all ranks. */
bool treadle_epoch_has_handles(const treadle_switch *sw);

/* ---- handle.c ---- */

/* The window of infer parameters is about to be taken away: no version is valid any more, and nobody holds one. TREADLE_TIMEOUT
 * names who does after the switch's time limit. epoch: 0: none. Whether it fails or not, treadle_holds_settle follows in the end. */
treadle_status treadle_holds_end(treadle_switch *sw, uint64_t epoch);
/* Readers hear of the version that is there as mode and version now say. */
void treadle_holds_settle(treadle_switch *sw);
void treadle_outlet_release(treadle_switch *sw);

/* ---- ready_plan.c ---- */

/* Settles the terms by options.plan, where there is one and the switch can run it; that one is not looked at again. */
treadle_status treadle_ready_plan_take(treadle_terms *terms, const treadle_layout *train,
                                       const treadle_layout *infer, int rank);
/* Is the plan the one that was given? */
treadle_status treadle_ready_plan_check(const treadle_terms *terms, const treadle_plan *plan);

/* ---- agree.c, create.c, run.c ---- */

/* Makes sw->carry.plan, with the cap and the waves that all agree on, and the bounds; version and mode are the same on all.
 * Collective; one rank's refusal is everybody's. */
treadle_status treadle_switch_plan_together(treadle_switch *sw);

/* What options and hooks mean: sw->terms, and sw->engine.hooks. */
void treadle_switch_resolve(treadle_switch *sw, const treadle_switch_options *options,
                            const treadle_engine_hooks *engine);

/* As treadle_switch_plan_together, of all ranks [ranks] by one that meets nobody. Each has a group of its own, with one control block. */
treadle_status treadle_switch_plan_alone(treadle_switch *all, int ranks);

/* The page size that the options give. */
size_t treadle_switch_page_bytes(const treadle_switch_options *options);

/* Bytes of the page tables that others read, in whole pages of the system. */
size_t treadle_switch_tables_bytes(const treadle_switch *sw);
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

/* ---- own.c ---- */

/* That the ranks agree on what own tensors ask for: params stay where there are own train tensors, nothing is aliased. From what each
 * has said, a treadle_own_words. */
typedef struct treadle_own_words {
  uint64_t count[2]; /* by mode */
  uint64_t leaves, host, kept;
} treadle_own_words;
treadle_own_words treadle_own_say(const treadle_switch *sw);
treadle_status treadle_own_settle(treadle_switch *sw);
/* Takes the own tensors of the options, once. */
treadle_status treadle_own_take(treadle_switch *sw);
void treadle_own_release(treadle_switch *sw);
/* Is all of their memory still there? */
treadle_status treadle_own_check(const treadle_switch *sw);
/* The own tensor that memory overlaps, as a text for messages; NULL: none. Returns room. */
const char *treadle_own_overlaps(const treadle_switch *sw, const void *memory, size_t bytes, char *room,
                                 size_t room_bytes);
/* Bytes of the pages that a window has, holes left out; of its layout, before it is arranged. */
size_t treadle_own_held_bytes(const treadle_switch *sw, treadle_mode mode);

/* ---- waves.c ---- */

/* The carry of a switch that has group and device: what it asks of the switch, and its terms as the options have them now. */
void treadle_switch_carry_begin(treadle_switch *sw);
void treadle_switch_carry_settle(treadle_switch *sw);
/* The books, in which nobody holds a page yet, the turns, and twins without memory. */
treadle_status treadle_switch_open_books(treadle_switch *sw);
/* Where its windows' pages lie. */
void treadle_switch_place_windows(treadle_switch *sw);
/* Runs the waves towards the weights of a mode. */
treadle_status treadle_switch_run(treadle_switch *sw, treadle_mode to);

/* ---- place.c ---- */

/* Pages of a class, without holes. */
int64_t treadle_place_held(const treadle_page_tables *place, treadle_class which);
/* Settles the physical page of each page of each window, from sw->carry.plan; the pool has at least `least` pages. */
treadle_status treadle_stage_choice_make(treadle_switch *sw, int64_t least);
/* The bound of the pool is that of its pages, where these are more. */
void treadle_place_bound(treadle_switch *sw);

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

treadle_status treadle_reference_create(treadle_switch *sw);
void treadle_reference_release(treadle_switch *sw);
/* Before mode FORWARD is left: it is hidden, and what left for it is back. */
treadle_status treadle_reference_leave(treadle_switch *sw);

/* ---- register.c ---- */

/* Is all memory that was registered still there? */
treadle_status treadle_caller_memory_check(const treadle_switch *sw);
/* The caller's params to the window; gradients and optimizer state to their twins. Back: what was copied out. */
treadle_status treadle_caller_memory_out(treadle_switch *sw, treadle_class which);
/* In mode TRAIN: the caller's params are in the window, for who reads it there. */
treadle_status treadle_caller_memory_show(treadle_switch *sw);
treadle_status treadle_caller_memory_back(treadle_switch *sw, treadle_class which);
void treadle_caller_memory_release(treadle_switch *sw);

/* ---- engine.c ---- */

treadle_status treadle_switch_bind_engine(treadle_switch *sw);
treadle_status treadle_switch_unbind_engine(treadle_switch *sw);

/* ---- guard.c ---- */

/* What is never to be written through a window, once; and what it takes to close the window of params. */
treadle_status treadle_guard_create(treadle_switch *sw);
void treadle_guard_release(treadle_switch *sw);
/* How a window may be used in the present mode, but for pages that both windows of parameters share. */
treadle_access treadle_guard_use(const treadle_switch *sw, treadle_class which);
/* Windows may be used as the mode says. With guard_pages: pages of nobody are spoiled, windows without pages
 * cannot be touched. */
void treadle_guard_settle(treadle_switch *sw);
/* Spoils a page that is about to be written. */
void treadle_guard_spoil(treadle_switch *sw, int32_t physical);

#endif
