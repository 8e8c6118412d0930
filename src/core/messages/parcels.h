/* Parcels: what ops read of ranks on other nodes, and the messages in which that travels.
 *
 * A reader splits its ops until each fits into a message. Its sources find these ops by themselves (sends.h) and split them alike. So both
 * make the same messages: in a wave a pair's ops come in the order in which they begin in the source's window. A message has ops of one
 * wave, one behind the other, each dense and in the order in which its elements lie at the source; and in the narrower type of the two
 * sides: the source casts what becomes smaller, the reader what becomes larger.
 *
 * All messages of a direction have one order: by wave, then by how far the reader is behind its source in rank numbers, then as the pair has
 * them. Every rank begins its messages in that order, a few at a time. So of all messages that have not arrived, the first is begun by
 * both of its ranks, and no rank waits for ever.
 *
 * Pure functions. */
#ifndef TREADLE_MESSAGES_PARCELS_H
#define TREADLE_MESSAGES_PARCELS_H

#include "messages/far_inputs.h"
#include "messages/net.h"
#include "messages/ordered.h"
#include "messages/outbound.h"
#include "messages/sends.h"

/* A part of a message: an op between a window and the message, in which it begins at byte op.from, or op.to. Of an input the reader's goes to
 * the area (far_inputs.h). Of codes and scales that the source makes, its own reads what it has made: scratch. */
typedef struct treadle_parcel {
  treadle_op op;
  int64_t
      position; /* the reader: of its op in the direction, -1: of an input; the source: of what is made, among those, else -1 */
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
/* The reader's messages; and the source's, with what it makes for them. */
treadle_status treadle_traffic_in(const treadle_direction *direction, const treadle_far_inputs *inputs,
                                  int64_t rank, const treadle_nodes *nodes, int64_t capacity,
                                  treadle_traffic *traffic);
treadle_status treadle_traffic_out(const treadle_sends *sends, treadle_ordered *ordered, int64_t rank,
                                   const treadle_nodes *nodes, int64_t capacity, treadle_traffic *traffic);
/* An op as it reads what has come for it, which lies densely from byte `at` on. */
treadle_op treadle_parcel_read(const treadle_op *op, int64_t at);
void treadle_traffic_release(treadle_traffic *traffic);

#endif
