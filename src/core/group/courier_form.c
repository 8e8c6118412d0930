/* What messages between couriers must be. */
#include "group/courier.h"

#include <string.h>

treadle_frame_rule treadle_mail_rule(uint64_t key) {
  return (treadle_frame_rule){.magic = 0x7472646d,
                              .version = 3,
                              .types = TREADLE_MAIL_BYE,
                              .head_bytes = sizeof(treadle_mail_head),
                              .key = key,
                              .most = TREADLE_MAIL_MOST};
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
