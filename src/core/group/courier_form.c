/* Messages between couriers, as bytes. Nothing of them is used before it was checked: key and lengths first, then the sum. */
#include "group/courier.h"

#include "base/alloc.h"
#include "base/hash.h"

#include <inttypes.h>
#include <string.h>

enum { MAGIC = 0x7472646d, VERSION = 2 };

void treadle_mail_release(treadle_mail *mail) {
  treadle_free(mail->bytes);
  *mail = (treadle_mail){0};
}

char *treadle_mail_room(treadle_mail *mail, size_t bytes) {
  if (mail->begun > 0) {
    memmove(mail->bytes, mail->bytes + mail->begun, mail->count - mail->begun);
    mail->count -= mail->begun;
    mail->begun = 0;
  }
  if (mail->capacity - mail->count < bytes) {
    size_t capacity = 2 * (mail->count + bytes);
    char *more = treadle_alloc(capacity);
    if (!more) return NULL;
    if (mail->count > 0) memcpy(more, mail->bytes, mail->count);
    treadle_free(mail->bytes);
    mail->bytes = more;
    mail->capacity = capacity;
  }
  return mail->bytes + mail->count;
}

/* Of head and content. */
static uint64_t sum_of(treadle_mail_head head, const char *content) {
  head.sum = 0;
  return treadle_hash_bytes(content, head.bytes, treadle_hash_bytes(&head, sizeof head, 0));
}

treadle_status treadle_mail_add(treadle_mail *mail, treadle_mail_head head, const void *content,
                                size_t bytes) {
  char *at = treadle_mail_room(mail, sizeof head + bytes);
  if (!at) return treadle_fail(TREADLE_NO_MEMORY, "courier: memory is out");
  head.magic = MAGIC;
  head.version = VERSION;
  head.bytes = (uint32_t)bytes;
  head.sum = sum_of(head, bytes ? content : "");
  memcpy(at, &head, sizeof head);
  if (bytes > 0) memcpy(at + sizeof head, content, bytes);
  mail->count += sizeof head + bytes;
  return TREADLE_OK;
}

treadle_status treadle_mail_next(treadle_mail *mail, uint64_t key, bool *whole_p, treadle_mail_head *head_p,
                                 const char **content_p) {
  size_t there = mail->count - mail->begun;
  *whole_p = false;
  if (there < sizeof *head_p) return TREADLE_OK;
  const char *at = mail->bytes + mail->begun;
  memcpy(head_p, at, sizeof *head_p);
  if (head_p->magic != MAGIC || head_p->version != VERSION)
    return treadle_fail(TREADLE_PEER, "something that is not a message of this version of treadle");
  if (head_p->key != key) return treadle_fail(TREADLE_PEER, "a message of another job");
  if (head_p->type < TREADLE_MAIL_HELLO || head_p->type > TREADLE_MAIL_BYE ||
      head_p->bytes > TREADLE_MAIL_MOST)
    return treadle_fail(TREADLE_PEER, "a message of type %" PRIu32 " with %" PRIu32 " bytes", head_p->type,
                        head_p->bytes);
  if (there < sizeof *head_p + head_p->bytes) return TREADLE_OK;
  *content_p = at + sizeof *head_p;
  if (head_p->sum != sum_of(*head_p, *content_p))
    return treadle_fail(TREADLE_PEER, "a message whose bytes have not the sum that it says");
  mail->begun += sizeof *head_p + head_p->bytes;
  *whole_p = true;
  return TREADLE_OK;
}

bool treadle_mail_line(const char *content, size_t bytes, treadle_line_copy *copy_p, const char *parts[3]) {
  if (bytes < sizeof *copy_p) return false;
  memcpy(copy_p, content, sizeof *copy_p);
  const uint32_t lengths[3] = {copy_p->left_message, copy_p->said[0], copy_p->said[1]};
  static const uint32_t most[3] = {TREADLE_GROUP_MESSAGE, TREADLE_GROUP_PAYLOAD, TREADLE_GROUP_PAYLOAD};
  size_t at = sizeof *copy_p;
  for (int i = 0; i < 3; i++) {
    if (lengths[i] > most[i] || lengths[i] > bytes - at) return false;
    parts[i] = content + at;
    at += lengths[i];
  }
  return at == bytes && copy_p->left <= TREADLE_LEFT_FAILED;
}
