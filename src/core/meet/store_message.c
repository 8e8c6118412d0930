/* What messages of a store must be. */
#include "meet/store_message.h"

#include "base/hash.h"

#include <math.h>
#include <string.h>

uint64_t treadle_store_job(const char *name) { return treadle_hash_text(name, TREADLE_STORE_MAGIC); }

uint64_t treadle_store_mix(uint64_t job, uint64_t challenge) {
  return treadle_hash_bytes(&job, sizeof job, challenge);
}

treadle_frame_rule treadle_store_rule(uint64_t job, uint64_t most) {
  return (treadle_frame_rule){.magic = TREADLE_STORE_MAGIC,
                              .version = TREADLE_STORE_VERSION,
                              .types = TREADLE_STORE_CHALLENGE,
                              .refusal = TREADLE_STORE_REFUSAL,
                              .head_bytes = sizeof(treadle_store_message),
                              .key = job,
                              .most = most};
}

static treadle_status check(const treadle_store_message *m, const char *content) {
  bool request = m->frame.type == TREADLE_STORE_SET || m->frame.type == TREADLE_STORE_GET;
  if (m->key_bytes > (request ? TREADLE_STORE_KEY : 0) || m->key_bytes > m->frame.bytes ||
      m->frame.bytes - m->key_bytes > TREADLE_STORE_VALUE)
    REFUSE("sent a message of %d bytes with a key of %u", (int)m->frame.bytes, m->key_bytes);
  if (!isfinite(m->seconds) || m->seconds < 0) REFUSE("sent a message with a time that is none");
  if (m->key_bytes && memchr(content, 0, m->key_bytes)) REFUSE("sent a key with a 0 byte in it");
  return TREADLE_OK;
}

treadle_status treadle_store_hear(treadle_store_stream *stream, uint64_t most, bool *whole_p) {
  treadle_status status = TREADLE_OK;
  const treadle_frame_rule rule = treadle_store_rule(stream->job, most);
  TRY(treadle_wire_hear(&stream->wire, &rule, &stream->in, &stream->content, whole_p));
  if (*whole_p) TRY(check(&stream->in, stream->content));
out:
  return status;
}
