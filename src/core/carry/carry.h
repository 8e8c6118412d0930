/* The carry: it runs one direction of a plan, wave by wave, between the windows of a rank's node, own tensors and other nodes, and proves
 * that it wrote every byte once. It knows memory, the device, words and the net, and none of what the bytes are for.
 *
 *   run.c           waves, and coverage
 *   flight.c        waves that the device has been asked for and has not done
 *   lists.c         the copies, made ready for the device; copies.c: those that are asked for once, together
 *   block_rows.c    fp8 blocks: quantised and dequantised
 *   turns.c         which pages a wave is the first to write, and when nobody reads any more what lies there
 *   own.c           own tensors: memory of the caller that is read and written where it is
 *   staging.c       what other ranks read of own tensors; handover.c: lists that ranks hand over for that
 *   net.h           messages between nodes
 *   words.h         how far each rank is
 *
 * Its user sets group, device, plan, views, pages, own tensors, terms, hooks and figures, and may change them between two runs. */
#ifndef TREADLE_CARRY_CARRY_H
#define TREADLE_CARRY_CARRY_H

#include "carry/planted.h"
#include "carry/words.h"
#include "group/group.h"
#include "memory/device.h"
#include "messages/parcels.h"
#include "net/net.h"
#include "plan/plan.h"

/* The two windows of a plan. A direction is named by the window that it writes. */
typedef enum treadle_side {
  TREADLE_SIDE_TRAIN = 0, /* the plan's from-window */
  TREADLE_SIDE_INFER = 1  /* and its to-window */
} treadle_side;

static inline treadle_side treadle_side_other(treadle_side side) {
  return side == TREADLE_SIDE_INFER ? TREADLE_SIDE_TRAIN : TREADLE_SIDE_INFER;
}

/* What is agreed on before anything runs. */
typedef struct treadle_carry_terms {
  size_t page_bytes;
  const char *net_devices; /* treadle_net_options; NULL: any */
  bool goes_back;          /* the way back will be run, too */
  bool doubled;            /* the infer window has two sets of pages */
  bool delta;              /* of messages only what has changed travels */
  bool transforms;         /* somebody else writes in the infer window after a run */
} treadle_carry_terms;

/* What is asked of whoever uses it; each gets `context`. */
typedef struct treadle_carry_hooks {
  treadle_status (*check)(void *context); /* TREADLE_CANCELLED: the run is to stop. Called often */
  treadle_status (*before)(void *context, int32_t wave);
  /* Every rank of this node has read what lies on the pages that this wave writes first. So the user may give them to the new window. */
  treadle_status (*reclaim)(void *context, int32_t wave);
  /* All bytes of the wave are written. The others do not know it yet, and messages of the wave may still have to be packed. */
  treadle_status (*after)(void *context, int32_t wave);
} treadle_carry_hooks;

/* ---- What it is made of ---- */

/* Pages of a window that a direction writes, by the wave that first does so. */
typedef struct treadle_turns {
  int32_t *page;  /* of the window */
  int32_t *first; /* [waves + 1] index of the first of each wave */
  int32_t *
      last_use; /* by page of the window: the last wave that reads what the other window has there; -1: none */
} treadle_turns;

/* Own tensors (own.c). */
typedef struct treadle_own {
  treadle_own_spans spans[2]; /* by side: of this rank's windows */
  bool any[2];                /* has any rank some? */
} treadle_own;

/* What other ranks of this node read of this rank's own tensors, and what this rank reads of theirs (staging.c). All NULL if no rank has own
 * tensors. */
typedef struct treadle_staging {
  treadle_own_spans *of[2]; /* by side and rank: own tensors; infer: of others where relays may read them */
  treadle_own_span *spans[2]; /* of all ranks */
  treadle_pull *pulls;        /* this rank's, [pull_count] */
  size_t pull_count;
  int32_t *of_op; /* by op to INFER: number of its pull, or -1 */
  int64_t *at;    /* by pull: where it lies in the slot of its source */
  treadle_outbound outbound;
  uint8_t *readers;    /* by rank: does it read what this rank stages? */
  int64_t *slot_bytes; /* by rank */
  treadle_paged *view; /* by rank: its staging */
} treadle_staging;

/* Memory of the device for block rows: `slots` of each kind, each for one block row. */
typedef struct treadle_scratch {
  char *values, *codes, *scales;
  int64_t value_bytes, code_bytes, scale_bytes; /* of a slot */
  int slots;
} treadle_scratch;

/* Ops that are asked for together (copies.c). */
enum { TREADLE_COPIES = 64, TREADLE_STRIPS = 64 };
typedef struct treadle_copies {
  bool packs; /* by the device's `pack` */
  size_t count;
  treadle_op ops[TREADLE_COPIES];
  treadle_paged from[TREADLE_COPIES], to[TREADLE_COPIES];
} treadle_copies;

/* Block rows that are: copies to scratch, blocks, copies from scratch (block_rows.c). */
typedef struct treadle_block_batch {
  treadle_copies in, out;
  treadle_strip strips[TREADLE_STRIPS];
  size_t strip_count;
  int slot; /* of scratch, the first that none of them has */
} treadle_block_batch;

/* What was really written by a run of block rows. */
typedef struct treadle_written_blocks {
  uint64_t mark;
  uint32_t times;
  int32_t wave; /* in which they were made */
} treadle_written_blocks;

/* The ops of a direction as the device has them, for one set of pages of the infer window (lists.c). */
typedef struct treadle_op_list {
  treadle_work *work;         /* NULL: none */
  treadle_op *ops;            /* NULL: those of the plan */
  const treadle_paged *views; /* of infer windows with that set: which one it is */
} treadle_op_list;

/* Waves from `landed` to `begun` are under way, and what is staged of those from `staged` to `filled` (flight.c). */
enum { TREADLE_FLIGHT = 8 };
typedef struct treadle_flight {
  treadle_ticket tickets[TREADLE_FLIGHT], staging[TREADLE_FLIGHT]; /* by wave, modulo that */
  int32_t begun, landed, filled, staged;
  bool finishes; /* a wave that has landed: that may wait, and look */
  int32_t most;  /* under way at a time */
} treadle_flight;

/* What runs a direction (run.c, flight.c, lists.c, block_rows.c). */
typedef struct treadle_carry_state {
  treadle_flight flight;
  treadle_op_list lists[2][2];    /* by side, and set */
  treadle_written *written;       /* [ops of the longer direction] */
  treadle_written_blocks *blocks; /* [block rows of the longer direction] */
  treadle_block_batch *batch;
  treadle_copies *staged;  /* what is laid down for others */
  treadle_scratch scratch; /* of the largest block row of both directions */
} treadle_carry_state;

/* Messages in one direction. Those before `ended` are done. Those from `ended` to `begun` are under way, and each has a slot. */
typedef struct treadle_net_flow {
  treadle_traffic traffic;
  treadle_far_inputs inputs; /* of a reader's block rows */
  treadle_ordered ordered;   /* what a source makes */
  size_t begun, ended;
  void *requests[TREADLE_NET_FLIGHT]; /* by slot; NULL: it has ended */
  bool windows[TREADLE_NET_FLIGHT];   /* by slot: parts of it lie in windows (net_parts.c) */
} treadle_net_flow;

/* What is kept of messages, so that only what has changed need travel (net_delta.c). All zeros where the terms do not ask for it. */
typedef struct treadle_net_delta {
  uint64_t base;   /* the epoch whose messages are kept; 0: nothing is kept */
  uint8_t *shares; /* by rank: has it the same base, in the epoch at hand? */
  int64_t *kept
      [2]; /* in, out; by message: where it lies in `memory`; -1: nowhere, since the window has all of it */
  char *memory; /* pinned host memory: messages, then `room` */
  size_t bytes;
  char *room[2];                   /* one message each: as it is without a delta; a delta that is written */
  bool on;                         /* in the direction that runs */
  bool second[TREADLE_NET_FLIGHT]; /* in, by slot: has the head come? */
  void *behind
      [TREADLE_NET_FLIGHT]; /* out, by slot: the second part's request; NULL: none, or it is that of the flow */
  size_t dense_bytes, delta_bytes;
} treadle_net_delta;

/* What goes over the net (net.c, net_meet.c, net_parts.c, net_delta.c). */
typedef struct treadle_net_state {
  const struct treadle_net_ops *ops;
  void *net;   /* NULL: closed */
  bool talks;  /* there are several nodes, and it is known who has something for whom */
  bool is_new; /* opened for the epoch at hand */
  char *base;  /* pinned host memory, [bytes]: slots of `in`, slots of `out`, the area */
  size_t bytes;
  char *area;                     /* what block rows read in a wave */
  treadle_copies *copies;         /* what is packed, or unpacked */
  treadle_scratch scratch;        /* of what is ordered */
  uint8_t *peers;                 /* by rank: are there messages to or from it? */
  treadle_net_flow in[2], out[2]; /* by side */
  treadle_net_delta delta;
  /* Of the direction that runs: */
  bool running;
  int32_t open; /* the wave whose pages may be written */
  size_t sent_bytes, window_bytes;
  size_t near_bytes; /* copied in this node since messages were moved on */
  double seconds, pack_seconds, wire_seconds, unpack_seconds; /* waits and unpacking; and each on its own */
  int64_t made; /* which of what is ordered lies in scratch; -1: none */
} treadle_net_state;

/* ---- The value ---- */

struct treadle_carry {
  treadle_group *group;
  const treadle_device *device;
  treadle_plan *plan;
  treadle_carry_terms terms;
  const treadle_carry_hooks *hooks;
  void *context; /* of hooks */
  treadle_switch_stats *figures;

  treadle_paged *views[2]; /* by side and rank: windows of the ranks of this node */
  treadle_paged *others;   /* by rank: infer windows in their other sets of pages */
  const int32_t *pages[2]; /* by side: physical page of each page of this rank's window */
  treadle_turns turns[2];  /* by side */
  treadle_own own;
  treadle_staging staging;
  treadle_carry_state run;
  treadle_net_state net;
  treadle_faults faults;

  treadle_side to; /* of the direction that runs, or ran last */
  uint64_t epoch;  /* 0: none ran in this group */
};

static inline const treadle_direction *treadle_carry_direction(const treadle_carry *c, treadle_side to) {
  return to == TREADLE_SIDE_INFER ? &c->plan->forward : &c->plan->back;
}

/* May this rank go on, whatever the others do? TREADLE_CANCELLED: it is to stop. */
static inline treadle_status treadle_carry_look(const treadle_carry *c) {
  return c->hooks->check(c->context);
}

/* Is that rank's memory on another node? */
static inline bool treadle_net_is(const treadle_carry *c, int32_t rank) {
  return rank >= 0 && !treadle_group_is_near(c->group, rank);
}

/* ---- run.c, flight.c ---- */

/* Counters and scratch for both directions of the plan, touched. */
treadle_status treadle_carry_create(treadle_carry *c);
/* Ends them, and turns, staging and views; lists and messages are ended before. */
void treadle_carry_release(treadle_carry *c);

/* Runs the waves that write the window of a side, and proves that every byte was written. Not collective by itself: the caller tells the
 * others when it fails. */
treadle_status treadle_carry_run(treadle_carry *c, treadle_side to, uint64_t epoch);

/* Waits until all that was asked of the device is done, and moves messages meanwhile; ends as treadle_carry_check does. */
treadle_status treadle_carry_settle(treadle_carry *c, const char *what);

/* "wave 12 (tensor 'model.layers.3.mlp.up_proj.weight')": a wave, and the first tensor that this rank writes in it. Returns room. */
const char *treadle_carry_words(const treadle_carry *c, treadle_side to, int32_t wave, char *room,
                                size_t bytes);

/* ---- lists.c ---- */

/* Lists of both directions, as windows are shared now. */
treadle_status treadle_carry_lists_make(treadle_carry *c);
void treadle_carry_lists_release(treadle_carry *c);

/* From here on the infer windows of all ranks are those of their other sets of pages; or back again. */
void treadle_carry_turn(treadle_carry *c);

/* Of a side's window. */
static inline int64_t treadle_carry_pages(const treadle_carry *c, treadle_side side) {
  return side == TREADLE_SIDE_INFER ? c->plan->to_pages : c->plan->from_pages;
}

/* ---- turns.c ---- */

/* From plan and pages. physical: pages of the pool. */
treadle_status treadle_turns_create(treadle_carry *c, int64_t physical);
void treadle_turns_release(treadle_carry *c);
/* "rank 1: wave 3, tensor '...' (page 7 of the infer window): WHAT", of the window that is written. */
treadle_status treadle_turns_fail(const treadle_carry *c, int32_t wave, int32_t page, const char *what);

/* ---- own.c ---- */

/* Where byte `at` of this rank's window lies, and what is in the same storage tensor. */
treadle_paged treadle_own_view(const treadle_carry *c, treadle_side side, int64_t at);

/* Those that lie in host memory are pinned for the device; and no more, once nothing is under way. */
treadle_status treadle_own_pin(const treadle_carry *c);
void treadle_own_unpin(const treadle_carry *c);

/* ---- staging.c ---- */

/* All ranks learn where the others of their node have own tensors. Collective. */
treadle_status treadle_staging_meet(treadle_carry *c);
/* The plan's ops, split where own tensors need that, and what they pull. */
treadle_status treadle_staging_list(treadle_carry *c);
/* What this rank gives, and where the others put what it pulls. Collective. */
treadle_status treadle_staging_arrange(treadle_carry *c);
/* The same of all ranks [ranks] by one that meets nobody. */
treadle_status treadle_staging_meet_alone(treadle_carry *const *all, int ranks);
treadle_status treadle_staging_arrange_alone(treadle_carry *const *all, int ranks);
/* Bytes of its pages. */
int64_t treadle_staging_bytes(const treadle_carry *c);
/* The staging of a rank: that many pages in this view. Refused where it is too small. */
treadle_status treadle_staging_take(treadle_carry *c, int rank, treadle_paged view, int64_t pages);
void treadle_staging_release(treadle_carry *c);

/* ---- net_meet.c, net_delta.c ---- */

/* Host memory for messages; 0: one node. With what block rows read of other nodes in a wave, once treadle_net_split was called. */
size_t treadle_net_bytes(const treadle_carry *c);
/* The ops of the plan, split as messages need it, and what block rows read of other nodes. */
treadle_status treadle_net_split(treadle_carry *c);
/* That memory, where it is not there yet; opens the net, and makes the messages of both directions. Collective. */
treadle_status treadle_net_arrange(treadle_carry *c);
/* What this rank receives and sends in both directions, from its plan alone. Nothing where it was made before. */
treadle_status treadle_net_traffic(treadle_carry *c);
/* Beside the first meeting of an epoch: what this rank says (at most TREADLE_GROUP_PAYLOAD bytes), and what it has heard then. */
void treadle_net_say(treadle_carry *c, void *words);
treadle_status treadle_net_hear(treadle_carry *c);
/* After a failure: whatever is under way is cancelled, and the net is closed. */
void treadle_net_stop(treadle_carry *c);
/* The end of net and messages; and of the memory. */
void treadle_net_release(treadle_carry *c);
void treadle_net_memory_release(treadle_carry *c);

/* Host memory for what is kept of messages, once these are made; 0: none is. And that memory, where it is not there yet; and its end. */
size_t treadle_net_delta_bytes(const treadle_carry *c);
treadle_status treadle_net_delta_arrange(treadle_carry *c);
void treadle_net_delta_release(treadle_carry *c);
/* The last run was committed: it is the base of the next one. Or the infer window is left. */
void treadle_net_delta_commit(treadle_carry *c);
static inline void treadle_net_delta_forget(treadle_carry *c) { c->net.delta.base = 0; }

#endif
