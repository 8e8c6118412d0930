/* treadle for tests, of treadle itself or of a program around it: the expected result of a switch, planted mistakes,
 * faults of the machine, and what ranks report after a fault. Nothing here is for training: a planted fault damages
 * weights.
 *
 * The conventions are those of treadle.h. All functions are local, unless they say "collective", and for one thread at
 * a time. */
#ifndef TREADLE_TESTING_H
#define TREADLE_TESTING_H

#include "treadle.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- What a switch should give ----------------------------------------------------------------- */

/* Fills window [to_bytes + padding_bytes of treadle_plan_info] with what the to-window must hold after a switch.
 * Storage tensors lie where the plan puts them; their values are those of the checkpoint, or made up as hashes. If the
 * from-layout has fp8 blocks, values are decoded from these blocks. Bytes between storage tensors do not change. The
 * window may be NULL if it has no bytes, and may be one of a switch, whatever memory that has. */
treadle_status treadle_plan_expect(const treadle_plan *plan, void *window);

/* Copy bytes of a class's window, from `offset`, to host memory and back. They work wherever the window lies; on the
 * host they are a memcpy.
 *
 *   params                      read in TRAIN and FORWARD, written in TRAIN
 *   infer params, KV cache      read and written in INFER
 *   gradients, optimizer state  read and written in TRAIN and FORWARD, if the device has them
 *   what stays on the device    of params (without alias), gradients and optimizer state: read and written in INFER,
 *                               too
 *
 * TREADLE_STATE: another mode, or an arrow runs. Refused: bytes outside of the window; writing a page that both
 * parameter windows share. */
treadle_status treadle_switch_read(treadle_switch *sw, treadle_class which, size_t offset, size_t bytes, void *to);
treadle_status treadle_switch_write(treadle_switch *sw, treadle_class which, size_t offset, size_t bytes,
                                    const void *from);

/* The seconds of a flat copy of this many bytes in the memory of the switch's device, from one block of at most 256 MiB
 * to another: by the device's own copy, or by what copies ops, whichever is faster. It takes memory for both blocks
 * beside the pool, and frees it. TREADLE_NO_MEMORY: there is not enough. Local. */
treadle_status treadle_switch_flat_copy(treadle_switch *sw, size_t bytes, double *seconds_p);

/* Fills the pages that no class except the KV cache holds with random bytes made from `seed`. The next switch writes
 * these pages, so a test sees any byte that it forgets. */
void treadle_switch_noise(treadle_switch *sw, uint64_t seed);

/* Computes treadle_switch_digest for each tensor of the checkpoint: sums [tensors of treadle_model_info], in the order
 * of treadle_model_tensor, without tied tensors (same_as). If n ranks hold an element, it reads copy number turn % n,
 * with turn from 0. Calls with each turn from 0 to the number of ranks - 1 read every copy. Collective. */
treadle_status treadle_switch_digest_entries(treadle_switch *sw, int64_t turn, uint64_t *sums);

/* ---- Planted mistakes of treadle's own --------------------------------------------------------- */

typedef enum treadle_fault {
  TREADLE_FAULT_NONE = 0,
  TREADLE_FAULT_DROP,           /* one copy is not made */
  TREADLE_FAULT_DOUBLE,         /* one copy is made twice */
  TREADLE_FAULT_MISPLACE,       /* one copy is written at a wrong place of the window */
  TREADLE_FAULT_EARLY,          /* pages are reused without waiting for the ranks that read them */
  TREADLE_FAULT_LATE_TWIN,      /* pages are reused before the twin has them */
  TREADLE_FAULT_SKIP_COMMIT,    /* a rank does not wait for the others to commit */
  TREADLE_FAULT_ALIAS,          /* a page is shared with a wrong one */
  TREADLE_FAULT_BLOCK_ROW_DROP, /* a run of block rows (fp8 blocks) is not made */
  TREADLE_FAULT_BLOCK_ROW_LATE, /* a run of block rows is made in the last wave, which is not its own */
  TREADLE_FAULT_BLOCK_ROW_SCALE /* the first scale of each block row of a run is doubled */
} treadle_fault;

/* Plants a fault in the next switch of `rank`. `seed` chooses which copy, or which run of block rows. Every rank may
 * call it, or `rank` alone; on other ranks it does nothing. Refused on `rank`: a fault that is not possible in its
 * plan. The switch then fails on all ranks with a message that names rank, tensor and wave, and the mode may be LOST. A
 * wrong scale is the exception: it is a wrong value at the right place. So the switch succeeds, and comparing the
 * window must find it. */
treadle_status treadle_switch_plant(treadle_switch *sw, treadle_fault fault, int rank, uint64_t seed);

/* ---- Faults from outside ----------------------------------------------------------------------- */

typedef enum treadle_injection_type {
  TREADLE_INJECT_NOTHING = 0,
  TREADLE_INJECT_KILL,    /* SIGKILL to this process */
  TREADLE_INJECT_STALL,   /* SIGSTOP to this process */
  TREADLE_INJECT_ENOMEM,  /* memory is out */
  TREADLE_INJECT_SLOW,    /* this rank waits until the switch has failed, two seconds at most */
  TREADLE_INJECT_CORRUPT, /* one byte of the first copy is flipped after it was made; only at TREADLE_AT_WAVE */
  TREADLE_INJECT_CANCEL,  /* treadle_switch_cancel is called */
  TREADLE_INJECT_CUT,     /* no byte passes any more between this node and others; set it on all ranks of the node */
  TREADLE_INJECT_FLIP     /* one byte of the next message to another node is flipped on its way */
} treadle_injection_type;

/* The moment of the fault, in the order of a switch to INFER. */
typedef enum treadle_injection_point {
  TREADLE_AT_ENTRY = 0, /* the ranks have met */
  TREADLE_AT_OFFLOAD,
  TREADLE_AT_WAVE,      /* a wave starts */
  TREADLE_AT_COMMIT,    /* all bytes are written, but the rank has not published that */
  TREADLE_AT_COMMITTED, /* the ranks have committed, but this rank has not acted on it */
  TREADLE_AT_BIND,
  TREADLE_AT_KV,
  TREADLE_AT_LOAD, /* on the way back */
  TREADLE_INJECTION_POINTS
} treadle_injection_point;

/* Given by value. Frozen. */
typedef struct treadle_injection {
  treadle_injection_type what;
  treadle_injection_point point;
  int32_t wave; /* for TREADLE_AT_WAVE, from 0; if there are fewer waves, the last one */
} treadle_injection;

/* Makes the fault happen once, the next time that this rank comes to that moment. */
treadle_status treadle_switch_inject(treadle_switch *sw, treadle_injection injection);

/* "entry", "wave", ...; "(none)" for a number that is not a point. Never NULL. */
const char *treadle_injection_point_text(treadle_injection_point point);

/* ---- After a fault ----------------------------------------------------------------------------- */

/* Goes from INFER to TRAIN without the other ranks, which may be dead. TREADLE_STATE: params are neither in host memory
 * nor still on the device. */
treadle_status treadle_switch_return(treadle_switch *sw);

/* treadle_group_last_words leaves a message [bytes], at most 4096 bytes, for the other ranks. After that this rank does
 * not meet them any more. treadle_group_hear waits at most `seconds` for the message of `rank`. The message can be read
 * until the group is closed, also in a group that failed. NULL: the rank left none within the time, or died before it
 * did. */
treadle_status treadle_group_last_words(treadle_group *group, const void *words, size_t bytes);
const void *treadle_group_hear(treadle_group *group, int rank, double seconds);

/* The process id of a rank. Else -1. */
int treadle_group_process(const treadle_group *group, int rank);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
