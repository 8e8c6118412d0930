/* treadle, for those who test it, or a program around it: what a switch should give, planted mistakes, faults of the machine, and what
 * ranks say after one. treadle.h has the conventions. Nothing here is for training: a planted fault spoils weights.
 *
 * All functions are local unless they say "collective", and for one thread at a time. */
#ifndef TREADLE_TESTING_H
#define TREADLE_TESTING_H

#include "treadle.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- What a switch should give ----------------------------------------------------------------- */

/* Fills `window` with what the to-window of a plan must hold after a switch: the checkpoint's values, or those of the hash, cut
 * directly, at the places where the plan has storage tensors; where the from-layout has fp8 blocks, values are what comes
 * back of them. Bytes between storage tensors are left as they are. The window may be NULL where it has no bytes. */
treadle_status treadle_plan_expect(const treadle_plan *plan, void *window);

/* Bytes of a class's window, from `offset`, to host memory and from there, wherever the window lies. Params are read in modes TRAIN and
 * FORWARD, and written in TRAIN; infer params and the KV cache in INFER; gradients and optimizer state in TRAIN and FORWARD, where
 * the device has them. In other modes, and while an arrow runs, TREADLE_STATE. Refused: bytes outside of the window, and to write a
 * page that both windows of parameters share. */
treadle_status treadle_switch_read(treadle_switch *sw, treadle_class which, size_t offset, size_t bytes,
                                   void *to);
treadle_status treadle_switch_write(treadle_switch *sw, treadle_class which, size_t offset, size_t bytes,
                                    const void *from);

/* Fills the pages that no class but the KV cache holds with noise made from `seed`: what the next switch writes comes to lie
 * on them. */
void treadle_switch_noise(treadle_switch *sw, uint64_t seed);

/* As treadle_switch_digest, for each tensor of the checkpoint: the first of treadle_model_tensor's, those without same_as, of which
 * sums has one each. Of n ranks that hold an element, number turn % n is asked: with turn = 0, 1, ... below the number of ranks
 * every copy is. turn from 0. Collective. */
treadle_status treadle_switch_digest_entries(treadle_switch *sw, int64_t turn, uint64_t *sums);

/* ---- Planted mistakes of treadle's own --------------------------------------------------------- */

typedef enum treadle_fault {
  TREADLE_FAULT_NONE = 0,
  TREADLE_FAULT_DROP,           /* one copy is not made */
  TREADLE_FAULT_DOUBLE,         /* one copy is made twice */
  TREADLE_FAULT_MISPLACE,       /* one copy is written at a wrong place of the window */
  TREADLE_FAULT_EARLY,          /* pages are reclaimed without waiting for who reads them */
  TREADLE_FAULT_LATE_TWIN,      /* pages are reclaimed before the twin has them */
  TREADLE_FAULT_SKIP_COMMIT,    /* a rank does not wait for the others to commit */
  TREADLE_FAULT_ALIAS,          /* a page is shared with another than the plan says */
  TREADLE_FAULT_BLOCK_ROW_DROP, /* a run of block rows (fp8 blocks) is not made */
  TREADLE_FAULT_BLOCK_ROW_LATE, /* a run of block rows is made in the last wave, which is not its own */
  TREADLE_FAULT_BLOCK_ROW_SCALE /* the first scale of each block row of a run is doubled */
} treadle_fault;

/* The next switch of `rank` gets the fault; `seed` chooses which copy, or which run of block rows. Called on every
 * rank or on that one alone; other ranks do nothing. Refused on `rank` when it has nothing to spoil. The switch then
 * fails on all ranks with a message that names rank, tensor and wave; mode may be LOST. But for a wrong scale: that is
 * a wrong value at the right place, so the switch goes on, and comparing the window must find it. */
treadle_status treadle_switch_plant(treadle_switch *sw, treadle_fault fault, int rank, uint64_t seed);

/* ---- Faults from outside ----------------------------------------------------------------------- */

typedef enum treadle_injection_type {
  TREADLE_INJECT_NOTHING = 0,
  TREADLE_INJECT_KILL,    /* SIGKILL to this process */
  TREADLE_INJECT_STALL,   /* SIGSTOP to this process */
  TREADLE_INJECT_ENOMEM,  /* memory is out */
  TREADLE_INJECT_SLOW,    /* this rank waits until the switch has failed, two seconds at most */
  TREADLE_INJECT_CORRUPT, /* one byte of the first copy is flipped after it was made; at waves alone */
  TREADLE_INJECT_CANCEL   /* treadle_switch_cancel is called */
} treadle_injection_type;

/* Where, in the order in which a switch to INFER comes by. */
typedef enum treadle_injection_point {
  TREADLE_AT_ENTRY = 0, /* the ranks have met */
  TREADLE_AT_OFFLOAD,
  TREADLE_AT_WAVE,      /* at the beginning of one */
  TREADLE_AT_COMMIT,    /* all bytes are written, and nothing is said */
  TREADLE_AT_COMMITTED, /* the word says committed, and this rank has not acted on it */
  TREADLE_AT_BIND,
  TREADLE_AT_KV,
  TREADLE_AT_LOAD, /* on the way back */
  TREADLE_INJECTION_POINTS
} treadle_injection_point;

/* Given by value: this struct is frozen. */
typedef struct treadle_injection {
  treadle_injection_type what;
  treadle_injection_point point;
  int32_t wave; /* of TREADLE_AT_WAVE, from 0; the last wave when there are fewer */
} treadle_injection;

/* It happens the next time that this rank comes by, once. */
treadle_status treadle_switch_inject(treadle_switch *sw, treadle_injection injection);

/* "entry", "wave", ...; "(none)" for a number that is none. Never NULL. */
const char *treadle_injection_point_text(treadle_injection_point point);

/* ---- After a fault ----------------------------------------------------------------------------- */

/* From INFER to TRAIN without the other ranks, some of which may be gone: where params are in host memory, or have stayed on
 * the device. Else TREADLE_STATE. */
treadle_status treadle_switch_return(treadle_switch *sw);

/* Last words: what a rank has to say to the others when it will not meet them any more, at most 4096 bytes. They can be read, also
 * of a group that failed, until it is closed; NULL: the rank says none within the time, or has died before it did. */
treadle_status treadle_group_last_words(treadle_group *group, const void *words, size_t bytes);
const void *treadle_group_hear(treadle_group *group, int rank, double seconds);

/* The process of a rank. Else -1. */
int treadle_group_process(const treadle_group *group, int rank);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
