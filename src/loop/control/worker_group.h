/* A worker group: one program on many ranks. Rank 0 calls methods of the workers by name, with a message; the other ranks wait for calls.
 *
 *   rank 0                                        the others
 *   treadle_worker_group_call("update", &in)      treadle_worker_group_serve(): receive, run, receive, ...
 *   ...
 *   treadle_worker_group_end(status)              serve returns
 *
 * A method runs on all ranks with the same message (one to all; it only reads it). Each takes the rows of its coordinate from it, and rank 0 gets
 * what it answered itself, or what all answered. A method that fails on one rank fails on all, with that rank's message, and
 * the group goes on. Between two calls rank 0 may take any time, as long as it lives. What rank 0 knows alone (data, rewards, metrics) no
 * other rank needs.
 *
 * A call has as many barriers with few bytes as with many, but for the first large one between nodes, which opens a net.
 *
 * Inside a method ranks may meet. Then all must come: what can fail on one rank alone before they meet, such as taking memory, they agree
 * on first (treadle_group_agree). The end of a method is agreed on here. */
#ifndef TREADLE_CONTROL_WORKER_GROUP_H
#define TREADLE_CONTROL_WORKER_GROUP_H

#include "control/gather.h"
#include "control/mailbox.h"

enum { TREADLE_WORKER_NAME = 48 }; /* bytes of a method's name, with the 0 */

typedef struct treadle_worker_method {
  const char *name;
  /* `out` is what this rank answers. */
  treadle_status (*run)(void *worker, treadle_message *in, treadle_message *out);
  bool collects; /* rank 0 gets what all ranks answer (treadle_worker_group_answer); else its own alone */
} treadle_worker_method;

/* Told of each method that this rank runs, before and after; a zeroed struct is nobody. */
typedef struct treadle_worker_watch {
  void (*before)(void *context, const char *method);
  void (*after)(void *context);
  void *context;
} treadle_worker_watch;

typedef struct treadle_worker_group {
  treadle_group *group;                 /* NULL: one rank */
  const treadle_worker_method *methods; /* ended by a row without a name */
  void *worker;
  treadle_worker_watch watch;
  treadle_message received; /* but for those on the board */
  treadle_board
      *board; /* of this node: its first rank's part has large messages; NULL: there was none yet */
  treadle_mailbox mailbox; /* several nodes: for large messages and answers */
  treadle_gather answers;
  struct treadle_worker_relay
      *relay; /* of a controller that is none of the ranks: there is no group here; NULL: there is */
} treadle_worker_group;

/* NULL: there is none of this name. */
const treadle_worker_method *treadle_worker_group_find(const treadle_worker_group *group, const char *name);
/* The number of ranks; also of those behind a relay. */
int treadle_worker_group_ranks(const treadle_worker_group *group);

/* Rank 0 alone. An unknown name is a mistake of the program (assert). Rewinds `in`, clears `out` first. */
treadle_status treadle_worker_group_call(treadle_worker_group *group, const char *name, treadle_message *in,
                                         treadle_message *out);
/* The same where the ranks are on several nodes, with a message for each node, by_node [nodes]; `in` is that of the first. They are not
 * rewound. */
treadle_status treadle_worker_group_call_nodes(treadle_worker_group *group, const char *name,
                                               treadle_message *in, const treadle_message *const *by_node,
                                               treadle_message *out);
/* The other ranks: until rank 0 ends it, with its status and message, or the group has failed. */
treadle_status treadle_worker_group_serve(treadle_worker_group *group);
/* Rank 0, after a call that collects: what a rank answered, to be read; it lives until the next call. */
treadle_message treadle_worker_group_answer(const treadle_worker_group *group, int rank,
                                            const treadle_message *out);
/* Rank 0: no more calls. */
treadle_status treadle_worker_group_end(treadle_worker_group *group, treadle_status status);
/* All ranks. */
void treadle_worker_group_release(treadle_worker_group *group);

#endif
