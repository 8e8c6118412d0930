/* Messages between the ranks of a store over TCP (treadle_store_open).
 *
 *                                          <-   challenge: a number that was drawn for this connection
 *     hello    rank, ranks, seconds left   ->   rank 0
 *                                          <-   welcome when all ranks are there, or refusal with a text
 *     set      key, value                  ->
 *     get      key, seconds                ->
 *                                          <-   answer: a status, and the value or a text
 *
 * A challenge says nothing of the job. What all other messages say of it (wire/frame.h: key) is a hash of its name and of the challenge: a hello that
 * somebody has recorded, in this run or an earlier one of the same name, is none on another connection. The content is a key and a value. */
#ifndef TREADLE_MEET_STORE_MESSAGE_H
#define TREADLE_MEET_STORE_MESSAGE_H

#include "wire/wire.h"

enum { TREADLE_STORE_MAGIC = 0x74727331, TREADLE_STORE_VERSION = 3 };
enum {
  TREADLE_STORE_KEY = 250,
  TREADLE_STORE_VALUE = 1 << 20,
  TREADLE_STORE_JOB = 200
};                                 /* bytes at most */
enum { TREADLE_STORE_TEXT = 900 }; /* of an answer */

enum {
  TREADLE_STORE_HELLO = 1,
  TREADLE_STORE_WELCOME,
  TREADLE_STORE_REFUSAL,
  TREADLE_STORE_SET,
  TREADLE_STORE_GET,
  TREADLE_STORE_ANSWER,
  TREADLE_STORE_CHALLENGE
};

typedef struct treadle_store_message {
  treadle_frame frame;
  uint32_t number; /* of a request, which its answer has, too */
  int32_t status;
  uint32_t key_bytes; /* of the content; the rest is the value */
  int32_t rank, ranks;
  uint32_t pad;
  double seconds; /* hello, get: how long the sender waits */
  uint64_t challenge;
} treadle_store_message;

uint64_t treadle_store_job(const char *name);
/* What messages of a connection say of the job. */
uint64_t treadle_store_mix(uint64_t job, uint64_t challenge);
/* job: as treadle_store_mix has it, 0 before the challenge; most: bytes of content that are taken. */
treadle_frame_rule treadle_store_rule(uint64_t job, uint64_t most);

/* One connection of a store, and what was heard last on it. */
typedef struct treadle_store_stream {
  treadle_wire wire;
  uint64_t job; /* for treadle_store_rule */
  treadle_store_message in;
  const char *content; /* until the next is heard */
} treadle_store_stream;

/* Takes in what has come, without waiting. *whole_p: `in` and its content are a message that is right. Refused in words about the sender ("sent
 * ..."): what came is none, or longer than `most`; TREADLE_PEER, without words: the other end is gone. */
treadle_status treadle_store_hear(treadle_store_stream *stream, uint64_t most, bool *whole_p);

#endif
