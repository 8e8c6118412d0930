/* Parcels: what ops read of ranks on other nodes, and the messages in which that travels.
 *
 * A reader splits its ops until each fits into a message. What an op reads, a pull (outbound.h), is known to its source, too: so both make the
 * same messages of the pulls between them, in the reader's order of ops. A message has pulls of one wave, one behind the other, each dense and
 * in the order in which its elements lie at the source; and in the narrower type of the two sides: the source casts what becomes
 * smaller, the reader what becomes larger.
 *
 * All messages of a direction have one order: by wave, then by how far the reader is behind its source in rank numbers, then as the pair has
 * them. Every rank begins its messages in that order, a few at a time. So of all messages that have not arrived, the first is begun by
 * both of its ranks, and no rank waits for ever.
 *
 * Pure functions. */
#ifndef TREADLE_PLAN_PARCELS_H
#define TREADLE_PLAN_PARCELS_H

#include "base/nodes.h"
#include "plan/outbound.h"

/* A pull as readers tell it to sources. */
typedef struct treadle_errand {
  treadle_pull pull;
  int32_t wire_dtype; /* in which it travels */
  int32_t add;        /* what the source adds; 0 where the reader does */
} treadle_errand;

/* A part of a message: an op between a window and the message, in which it begins at byte op.from, or op.to. */
typedef struct treadle_parcel {
  treadle_op op;
  int64_t position; /* the reader: of its op in the direction */
} treadle_parcel;

typedef struct treadle_traffic_message {
  int32_t peer, wave;
  int32_t number;      /* in its pair and direction */
  size_t first, count; /* parcels */
  int64_t bytes;
} treadle_traffic_message;

/* Messages one way, in their order. A zeroed struct has none. */
typedef struct treadle_traffic {
  treadle_parcel *parcels;
  treadle_traffic_message *messages;
  size_t parcel_count, message_count;
} treadle_traffic;

/* Splits ops of the direction that read ranks of other nodes into such of at most `capacity` bytes on the way. */
treadle_status treadle_parcels_split(treadle_direction *direction, int32_t waves, int64_t rank,
                                     const treadle_nodes *nodes, int64_t capacity);
/* What the reader's ops have to be told: errands of `source` [*count_p], freed by treadle_free; and how many there are of each. */
treadle_status treadle_errands_list(const treadle_direction *direction, int32_t source,
                                    treadle_errand **errands_p, size_t *count_p);
void treadle_errands_count(const treadle_direction *direction, int64_t rank, const treadle_nodes *nodes,
                           int32_t *counts);
/* Can that be an errand of a source with a window of so many bytes? */
bool treadle_errand_is_sound(const treadle_errand *errand, int32_t source, int32_t waves,
                             int64_t window_bytes, int64_t capacity);

/* The reader's messages; and the source's, from the errands of each reader [nodes->ranks]. */
treadle_status treadle_traffic_in(const treadle_direction *direction, int64_t rank,
                                  const treadle_nodes *nodes, int64_t capacity, treadle_traffic *traffic);
typedef struct treadle_errands {
  const treadle_errand *items;
  size_t count;
} treadle_errands;
treadle_status treadle_traffic_out(const treadle_errands *errands, int64_t rank, const treadle_nodes *nodes,
                                   int64_t capacity, treadle_traffic *traffic);
void treadle_traffic_release(treadle_traffic *traffic);

#endif
