/* What goes wrong outside treadle, on purpose: for `treadle switch --fault` and for tests. */
#ifndef TREADLE_SWITCH_INJECT_H
#define TREADLE_SWITCH_INJECT_H

#include "base/status.h"

#include <stdint.h>

typedef enum treadle_injected {
  TREADLE_INJECT_NOTHING = 0,
  TREADLE_INJECT_KILL,   /* SIGKILL to this process */
  TREADLE_INJECT_STALL,  /* SIGSTOP to this process */
  TREADLE_INJECT_ENOMEM, /* memory is out */
  TREADLE_INJECT_SLOW,   /* this rank waits until the switch has failed, two seconds at most */
  TREADLE_INJECT_CORRUPT /* one byte of the first copy is flipped after it was made; at waves alone */
} treadle_injected;

/* Where, in the order in which a switch to INFER comes by. */
typedef enum treadle_point {
  TREADLE_AT_ENTRY = 0, /* the ranks have met */
  TREADLE_AT_OFFLOAD,
  TREADLE_AT_WAVE,      /* at the beginning of one */
  TREADLE_AT_COMMIT,    /* all bytes are written, and nothing is said */
  TREADLE_AT_COMMITTED, /* the word says committed, and this rank has not acted on it */
  TREADLE_AT_BIND,
  TREADLE_AT_KV,
  TREADLE_AT_LOAD, /* on the way back */
  TREADLE_POINTS
} treadle_point;

typedef struct treadle_injection {
  treadle_injected what;
  treadle_point point;
  int32_t wave; /* of TREADLE_AT_WAVE; the last wave when there are fewer */
} treadle_injection;

/* It happens the next time that this rank comes by, once. Local. */
void treadle_switch_inject(treadle_switch *sw, treadle_injection injection);

/* "entry", "wave", ... */
const char *treadle_point_text(treadle_point point);

/* Comes by. */
treadle_status treadle_switch_point(treadle_switch *sw, treadle_point point, int32_t wave);

#endif
