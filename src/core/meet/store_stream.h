/* One connection of a store: messages out and in, without ever waiting. One message at a time in each direction. */
#ifndef TREADLE_MEET_STORE_STREAM_H
#define TREADLE_MEET_STORE_STREAM_H

#include "meet/store_message.h"

/* Bytes that several have, such as a value that many ranks are sent. */
typedef struct treadle_store_bytes {
  size_t bytes;
  int32_t users;
  char data[];
} treadle_store_bytes;

treadle_store_bytes *treadle_store_bytes_make(size_t bytes); /* with one user; NULL: memory is out */
treadle_store_bytes *treadle_store_bytes_share(treadle_store_bytes *b);
void treadle_store_bytes_drop(treadle_store_bytes *b); /* the last user's drop ends it; NULL: nothing */

typedef struct treadle_store_stream {
  int socket;   /* -1: none */
  uint64_t job; /* what its messages say of it, when it has a challenge */
  treadle_store_message in, out;
  treadle_store_bytes *in_behind, *out_behind; /* key and value; NULL: none */
  size_t in_used, out_used;                    /* bytes of head and what is behind it that have passed */
  bool sends;                                  /* there is a message out on its way */
} treadle_store_stream;

/* Takes over the socket, which must not block. */
void treadle_store_stream_start(treadle_store_stream *stream, int socket);
/* `ours`: false in a child made by fork, which must not end its parent's connection. */
void treadle_store_stream_end(treadle_store_stream *stream, bool ours);

/* Begins to send, when nothing is on its way; `behind` is shared. */
void treadle_store_stream_put(treadle_store_stream *stream, const treadle_store_message *head,
                              treadle_store_bytes *behind);
/* Sends what passes now; TREADLE_PEER: nobody is there any more. */
treadle_status treadle_store_stream_send(treadle_store_stream *stream);
/* Takes in what has come. *whole_p: `in` and `in_behind` are a message that is right, until treadle_store_stream_next. Refused: what came is none,
 * or longer than the limit; TREADLE_PEER: the other end is closed. */
treadle_status treadle_store_stream_receive(treadle_store_stream *stream, const treadle_store_limit *limit,
                                            bool *whole_p);
void treadle_store_stream_next(treadle_store_stream *stream);

/* The address of one end, as numbers, without the port: text [bytes]. */
enum { TREADLE_STORE_HOST = 64 };
void treadle_store_stream_name(int socket, bool other_end, char text[TREADLE_STORE_HOST]);

#endif
