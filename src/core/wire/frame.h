/* Frames: messages as bytes. A message is a head and its content; the head begins with a treadle_frame, and has the protocol's own fields behind it:
 *
 *     typedef struct treadle_mail_head {
 *       treadle_frame frame;
 *       int32_t node, rank;
 *       uint64_t epoch;
 *     } treadle_mail_head;
 *
 * Numbers are as the processor has them: another order of bytes shows by the magic. Frames stay as they are in later versions of a protocol, so
 * that another version can be told so. Pure: bytes from outside may be any. */
#ifndef TREADLE_WIRE_FRAME_H
#define TREADLE_WIRE_FRAME_H

#include "base/status.h"

typedef struct treadle_frame {
  uint32_t magic, version; /* which protocol, and which one of it */
  uint32_t type, fields;   /* fields: bytes of the head behind the frame */
  uint64_t bytes;          /* of the content */
  uint64_t key; /* of the job: who does not know it is a stranger; 0: the protocol has another one */
  uint64_t sum; /* of all before it, of the fields, and of the content if it is not open */
} treadle_frame;

/* What a receiver takes, and a sender says. */
typedef struct treadle_frame_rule {
  uint32_t magic, version;
  uint32_t types; /* they run from 1 to this */
  uint32_t
      refusal; /* this type is heard from any version and with any key, since it says itself what is different; 0: none */
  uint32_t head_bytes; /* frame and fields */
  bool open; /* the content is not of the sum, and goes its own way: frames end with their heads */
  uint64_t key;
  uint64_t most; /* bytes of content */
} treadle_frame_rule;

/* Completes a head [rule->head_bytes] that has its type and fields. */
void treadle_frame_seal(const treadle_frame_rule *rule, void *head, const void *content, uint64_t bytes);

/* Looks at the first bytes of a frame [count]. *lacks_p: this many more are needed before more can be said; 0: it is whole, and right. head_p
 * [rule->head_bytes]: what there is of the head, then zeros. Refused in words about the sender ("sent ..."): no frame, or one that the
 * rule does not allow; for a content that is too long the head is enough. */
treadle_status treadle_frame_read(const treadle_frame_rule *rule, const void *bytes, size_t count,
                                  void *head_p, size_t *lacks_p);

#endif
