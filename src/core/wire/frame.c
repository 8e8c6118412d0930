/* A frame is checked as soon as it can be: who speaks in its first bytes, lengths before memory is taken for them, then the sum. */
#include "wire/frame.h"

#include "base/hash.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

enum { EARLY = offsetof(treadle_frame, fields) }; /* bytes that say whose it is */

/* Content: [bytes]. */
static uint64_t sum_of(const treadle_frame_rule *rule, const char *head, const void *content,
                       uint64_t bytes) {
  uint64_t sum = treadle_hash_bytes(head, offsetof(treadle_frame, sum), 0);
  if (rule->head_bytes > sizeof(treadle_frame))
    sum = treadle_hash_bytes(head + sizeof(treadle_frame), rule->head_bytes - sizeof(treadle_frame), sum);
  return rule->open || !bytes ? sum : treadle_hash_bytes(content, (size_t)bytes, sum);
}

void treadle_frame_seal(const treadle_frame_rule *rule, void *head, const void *content, uint64_t bytes) {
  treadle_frame *frame = head;
  frame->magic = rule->magic;
  frame->version = rule->version;
  frame->fields = rule->head_bytes - (uint32_t)sizeof *frame;
  frame->bytes = bytes;
  frame->key = rule->key;
  frame->sum = sum_of(rule, head, content, bytes);
}

static treadle_status check_sender(const treadle_frame_rule *rule, const treadle_frame *frame) {
  if (frame->magic != rule->magic) REFUSE("sent something that is not a message of treadle");
  if (rule->refusal && frame->type == rule->refusal) return TREADLE_OK;
  if (frame->version != rule->version)
    REFUSE("speaks version %u of treadle's messages, not %u", frame->version, rule->version);
  return TREADLE_OK;
}

static treadle_status check_head(const treadle_frame_rule *rule, const treadle_frame *frame) {
  bool refusal = rule->refusal && frame->type == rule->refusal;
  if (frame->key != rule->key && !refusal) REFUSE("is of another job");
  if (frame->type < 1 || frame->type > rule->types)
    REFUSE("sent a message of type %d, which there is not", (int)frame->type);
  if (frame->fields != rule->head_bytes - sizeof *frame)
    REFUSE("sent a message with a head of %" PRIu64 " bytes, not %u",
           sizeof *frame + (uint64_t)frame->fields, rule->head_bytes);
  if (frame->bytes > rule->most)
    REFUSE("sent a message of %" PRIu64 " bytes; at most %" PRIu64 " are taken", frame->bytes, rule->most);
  return TREADLE_OK;
}

treadle_status treadle_frame_read(const treadle_frame_rule *rule, const void *bytes, size_t count,
                                  void *head_p, size_t *lacks_p) {
  treadle_status status = TREADLE_OK;
  treadle_frame *frame = head_p;
  size_t there = count < rule->head_bytes ? count : rule->head_bytes;
  assert(rule->open || rule->most <= SIZE_MAX / 2);
  memset(head_p, 0, rule->head_bytes);
  if (there) memcpy(head_p, bytes, there);
  *lacks_p = rule->head_bytes - there;
  if (count >= EARLY) TRY(check_sender(rule, frame));
  if (*lacks_p) return TREADLE_OK;
  TRY(check_head(rule, frame));
  if (!rule->open && frame->bytes > count - there) {
    *lacks_p = (size_t)frame->bytes - (count - there);
    return TREADLE_OK;
  }
  if (frame->sum != sum_of(rule, head_p, (const char *)bytes + there, frame->bytes))
    REFUSE("sent a message whose bytes have changed on their way");
out:
  return status;
}
