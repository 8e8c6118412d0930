/* What a rank has to give: the boxes that others read of its own tensors (own.h), by wave, and where they come to lie in its staging.
 *
 * Own tensors cannot be read by other ranks. So in each wave their owner copies what others read then to staging, memory of the pool
 * that all ranks of its node can read; boxes lie there densely, in the order in which their elements lie in the tensor. Staging is a ring of
 * slots, one for a wave, each as large as the fullest wave needs. Of own tensors that are written, others read what came from other nodes
 * (plan/near.h): these boxes are copied when it is there.
 *
 * Readers know what they read: each lists its pulls, and the owner makes its boxes of the pulls of all. A box that several ranks pull
 * lies there once. Pure functions; who hands lists from rank to rank is none of their business. */
#ifndef TREADLE_MESSAGES_OUTBOUND_H
#define TREADLE_MESSAGES_OUTBOUND_H

#include "messages/own.h"

enum { TREADLE_STAGING_SLOTS = 2, TREADLE_STAGING_ALIGNMENT = 64 };

/* What an op reads of another rank's own tensor. Dimensions from slow to fast as they lie there; those of one element are left
 * out, and neighbours that are one run are one. */
typedef struct treadle_pull {
  int32_t source, wave;
  int32_t dtype, ndim;
  int64_t twin;                                             /* 1: of the source's to-window, a relay */
  int64_t from;                                             /* bytes in that window */
  int64_t size[TREADLE_MAX_AXES], stride[TREADLE_MAX_AXES]; /* stride: bytes */
} treadle_pull;

typedef struct treadle_pulls {
  const treadle_pull *items; /* in the order of a reader's ops */
  size_t count;
} treadle_pulls;

/* The pull of an op. */
treadle_pull treadle_pull_of(const treadle_op *op);
int64_t treadle_pull_bytes(const treadle_pull *pull);
/* The op that reads the same elements where they lie densely, from byte `at` on; and the op that lays them down there. */
treadle_op treadle_pull_read(const treadle_op *op, int64_t at);
treadle_op treadle_pull_copy(const treadle_pull *pull, int64_t at);

/* Lists the pulls of the ops of a direction: pulls [*count_p], and by op the number of its pull, -1: none. to, from: the spans of each
 * rank of the node, none of others. What is made is freed by treadle_free. */
treadle_status treadle_pulls_list(const treadle_direction *direction, int64_t rank,
                                  const treadle_own_spans *to, const treadle_own_spans *from,
                                  treadle_pull **pulls_p, size_t *count_p, int32_t **of_op_p);

/* A box of one wave, and where it lies in its slot. */
typedef struct treadle_outbound_box {
  treadle_pull pull;
  int64_t at;
} treadle_outbound_box;

/* A zeroed struct has nothing to give. */
typedef struct treadle_outbound {
  treadle_outbound_box *boxes; /* by wave; of its to-window last */
  int32_t *wave_first;         /* [waves + 1] */
  int64_t slot_bytes;
  int64_t *
      at; /* of each pull of this rank's own tensors, the pulls of rank 0 first: where it lies in its slot */
  size_t *first; /* [ranks + 1] where those of a rank begin */
} treadle_outbound;

/* What `rank` gives, from the pulls of all ranks [ranks]. mine: its spans, of the from-window and of the to-window. TREADLE_PEER names a rank
 * whose pull cannot be: no bytes of one span, or no wave. */
treadle_status treadle_outbound_make(int64_t rank, int64_t ranks, int32_t waves,
                                     const treadle_own_spans mine[2], const treadle_pulls *pulls,
                                     treadle_outbound *outbound);
void treadle_outbound_release(treadle_outbound *outbound);

#endif
