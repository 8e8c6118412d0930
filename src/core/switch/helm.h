/* The helm: which thread may change a switch now (helm.c). */
#ifndef TREADLE_SWITCH_HELM_H
#define TREADLE_SWITCH_HELM_H

#include "base/status.h"
#include "treadle_device.h"

#include <pthread.h>
#include <stdatomic.h>

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

/* ---- helm.c ---- */

/* take and leave enclose a call that changes the switch without an arrow. take returns TREADLE_STATE while another call or an arrow runs. `what`
 * names the call in messages. */
treadle_status treadle_helm_take(treadle_helm *helm, const char *what);
void treadle_helm_leave(treadle_helm *helm);
/* The same for a call that asks the switch's device for work: the device begins anew. */
treadle_status treadle_helm_take_device(treadle_helm *helm, const treadle_device *device, const char *what);
/* Of a rank, whose stats are there as long as the helm; NULL: memory is out. */
treadle_helm *treadle_helm_create(int rank, const treadle_switch_stats *stats);
void treadle_helm_destroy(treadle_helm *helm);
/* A whole arrow in this thread. */
treadle_status treadle_helm_go(treadle_switch *sw, int aim);
/* TREADLE_CANCELLED when the arrow that this thread runs was cancelled, or this thread's watcher ends it. */
treadle_status treadle_helm_check(treadle_helm *helm);
/* What stats say now is what other threads get. */
void treadle_helm_tell(treadle_helm *helm);

#endif
