/* Messages between the ranks of a store over TCP (treadle_store_open), as bytes.
 *
 *                                          <-   challenge: a number that was drawn for this connection
 *     hello    rank, ranks, seconds left   ->   rank 0
 *                                          <-   welcome when all ranks are there, or refusal with a text
 *     set      key, value                  ->
 *     get      key, seconds                ->
 *                                          <-   answer: a status, and the value or a text
 *
 * What messages say of the job is a hash of its name and of the challenge: a hello that somebody has recorded, in this run or an earlier one of the
 * same name, is none on another connection.
 *
 * A message is a head, a key and a value. The head says how long they are; that is checked before memory is taken for them. Numbers are as
 * the processor has them: another order of bytes shows by the magic. Head, hello and refusal stay as they are in later versions, so that
 * another version can be told so. */
#ifndef TREADLE_MEET_STORE_MESSAGE_H
#define TREADLE_MEET_STORE_MESSAGE_H

#include "base/status.h"

enum { TREADLE_STORE_MAGIC = 0x74727331, TREADLE_STORE_VERSION = 2 };
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
  uint32_t magic, version;
  uint64_t job; /* hash of its name and the challenge; challenge: the number */
  int32_t type;
  uint32_t number; /* of a request, which its answer has, too */
  int32_t status;
  uint32_t key_bytes;
  uint64_t bytes; /* of the value */
  double seconds; /* hello, get: how long the sender waits */
  int32_t rank, ranks;
  uint64_t sum; /* of all before it, of key and value */
} treadle_store_message;

uint64_t treadle_store_job(const char *name);
/* What messages of a connection say of the job. */
uint64_t treadle_store_mix(uint64_t job, uint64_t challenge);

/* A message without key and value. */
treadle_store_message treadle_store_say(int type, uint64_t job);
/* When all fields are there; behind: [key_bytes + bytes]. */
void treadle_store_seal(treadle_store_message *head, const void *behind);

/* What the receiver takes. */
typedef struct treadle_store_limit {
  uint64_t job;
  uint32_t key_bytes;
  uint64_t bytes;
} treadle_store_limit;

/* Is it a message at all, of this job, and no longer than the limit? Refused in words about the sender ("sent ..."). */
treadle_status treadle_store_check(const treadle_store_message *head, const treadle_store_limit *limit);
/* The same of a whole message. */
treadle_status treadle_store_check_sum(const treadle_store_message *head, const void *behind);

#endif
