/* What plans of several nodes bring from node to node: bytes by rank and by wave, and the staging that they need.
 *
 * Bytes between nodes travel as messages of at most TREADLE_NET_MESSAGE bytes, of which a rank has at most TREADLE_NET_FLIGHT under way on
 * each side, sending and receiving. A wave's messages are through before the next wave's begin. */
#ifndef TREADLE_MESSAGES_NET_H
#define TREADLE_MESSAGES_NET_H

#include "plan/direction.h"

enum { TREADLE_NET_MESSAGE = 128 << 10, TREADLE_NET_FLIGHT = 8 };

/* Staging of a rank that receives, and sends, this many bytes in its fullest waves. */
int64_t treadle_net_staging(int64_t received, int64_t sent);

/* Bytes of an op, or of a part of a block row, that this rank gets from another node; 0: none. */
int64_t treadle_net_op_bytes(const treadle_nodes *nodes, int64_t rank, const treadle_op *op);
int64_t treadle_net_part_bytes(const treadle_nodes *nodes, int64_t rank, const treadle_block_row *block_row,
                               const treadle_block_row_part *part);

/* What a rank receives from other nodes in the fullest wave of a direction of its plan. */
int64_t treadle_net_received(const treadle_direction *direction, const treadle_nodes *nodes, int64_t rank,
                             int32_t waves);

/* Bytes between nodes of all ranks, in one direction.
 *
 * What a rank sends is known when all have been walked. Waves are needed for staging alone, which has a limit: once some rank reaches it
 * on both sides, nothing is counted by wave any more, and the other ranks are walked in one wave, which is cheaper. */
typedef struct treadle_net_load {
  const treadle_lanes *lanes;      /* with the waves */
  const treadle_layout *from, *to; /* of the direction */
  const treadle_nodes *nodes;
  treadle_cuts_of_all *cuts;
  int64_t *moved, *relayed;   /* [ranks] from other nodes; from ranks of the node that have it from these */
  _Atomic int64_t *sent;      /* [nodes] to other nodes */
  _Atomic uint32_t *in_waves; /* [ranks, waves] that each sends; exact up to where staging is full */
  int64_t *received;          /* [ranks] in the fullest wave */
  _Atomic uint8_t *sides;     /* [ranks] on which side its staging is full: 1 received, 2 sent */
  _Atomic bool full;          /* some rank's is on both */
  bool keeps_waves; /* the pair has block rows: waves are counted all the same, for what these read */
  int64_t *pulled;  /* [ranks] from all other ranks */
  int64_t *area;    /* [ranks] the inputs of block rows in the fullest wave (far_inputs.h) */
} treadle_net_load;

treadle_status treadle_net_load_create(const treadle_lanes *lanes, bool back, const treadle_nodes *nodes,
                                       treadle_net_load *load);
void treadle_net_load_release(treadle_net_load *load);
/* Adds what one rank receives; different ranks may do so in different threads. */
treadle_status treadle_net_load_add(treadle_net_load *load, int64_t rank);
/* The most staging that a rank needs, once all have added theirs. */
int64_t treadle_net_load_staging(const treadle_net_load *load);

#endif
