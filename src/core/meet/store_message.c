/* The bytes of a message. */
#include "meet/store_message.h"

#include "base/hash.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

uint64_t treadle_store_job(const char *name) { return treadle_hash_text(name, TREADLE_STORE_MAGIC); }

uint64_t treadle_store_mix(uint64_t job, uint64_t challenge) {
  return treadle_hash_bytes(&job, sizeof job, challenge);
}

treadle_store_message treadle_store_say(int type, uint64_t job) {
  return (treadle_store_message){
      .magic = TREADLE_STORE_MAGIC, .version = TREADLE_STORE_VERSION, .job = job, .type = type};
}

static uint64_t sum_of(const treadle_store_message *head, const void *behind) {
  uint64_t seed = treadle_hash_bytes(head, offsetof(treadle_store_message, sum), 0);
  size_t bytes = head->key_bytes + (size_t)head->bytes;
  return bytes ? treadle_hash_bytes(behind, bytes, seed) : seed;
}

void treadle_store_seal(treadle_store_message *head, const void *behind) {
  head->sum = sum_of(head, behind);
}

treadle_status treadle_store_check(const treadle_store_message *head, const treadle_store_limit *limit) {
  if (head->magic != TREADLE_STORE_MAGIC) REFUSE("sent something that is not a message of treadle");
  bool refusal = head->type == TREADLE_STORE_REFUSAL; /* says itself what is different */
  bool challenge = head->type == TREADLE_STORE_CHALLENGE;
  if (head->version != TREADLE_STORE_VERSION && !refusal)
    REFUSE("speaks version %u of treadle's messages, not %d", head->version, TREADLE_STORE_VERSION);
  if (head->job != limit->job && !refusal && !challenge) REFUSE("is of another job");
  if (head->type < TREADLE_STORE_HELLO || head->type > TREADLE_STORE_CHALLENGE)
    REFUSE("sent a message of type %d, which there is not", head->type);
  if (head->key_bytes > limit->key_bytes || head->bytes > limit->bytes)
    REFUSE("sent a message with a key of %u bytes and a value of %" PRIu64 "; at most %u and %" PRIu64
           " are taken",
           head->key_bytes, head->bytes, limit->key_bytes, limit->bytes);
  if (!isfinite(head->seconds) || head->seconds < 0) REFUSE("sent a message with a time that is none");
  return TREADLE_OK;
}

treadle_status treadle_store_check_sum(const treadle_store_message *head, const void *behind) {
  if (sum_of(head, behind) != head->sum) REFUSE("sent a message whose bytes have changed on their way");
  if (head->key_bytes && memchr(behind, 0, head->key_bytes)) REFUSE("sent a key with a 0 byte in it");
  return TREADLE_OK;
}
