/* The bytes of descriptions and tables. */
#include "meet/meeting_form.h"

#include "base/hash.h"
#include "group/group.h"

#include <ctype.h>
#include <string.h>

enum { HEAD = sizeof(treadle_meeting_head) };

_Static_assert(sizeof(treadle_meeting_table) + TREADLE_GROUP_MAX * sizeof(treadle_meeting_row) < 1 << 20,
               "a table fits into a store");

void treadle_meeting_seal(void *all, const char *kind, size_t bytes) {
  treadle_meeting_head head = {
      .version = TREADLE_MEETING_VERSION, .library = TREADLE_VERSION_NUMBER, .bytes = bytes};
  memcpy(head.magic, kind, sizeof head.magic);
  head.sum = treadle_hash_bytes((const char *)all + HEAD, bytes - HEAD, bytes);
  memcpy(all, &head, HEAD);
}

static treadle_status check_head(const void *bytes, size_t count, const char *kind, size_t least) {
  treadle_meeting_head head;
  if (count < HEAD || memcmp(bytes, kind, sizeof head.magic) != 0)
    REFUSE("has left %zu bytes that are nothing of treadle", count);
  memcpy(&head, bytes, HEAD);
  if (head.version != TREADLE_MEETING_VERSION || head.library != TREADLE_VERSION_NUMBER)
    REFUSE("has treadle %u (meetings of version %u); this process has %d (version %d)", head.library,
           head.version, TREADLE_VERSION_NUMBER, TREADLE_MEETING_VERSION);
  if (head.bytes != count || count < least)
    REFUSE("has left %zu bytes of %llu", count, (unsigned long long)head.bytes);
  if (head.sum != treadle_hash_bytes((const char *)bytes + HEAD, count - HEAD, count))
    REFUSE("has left bytes whose sum is wrong");
  return TREADLE_OK;
}

bool treadle_meeting_is_host(const char *host, size_t room) {
  size_t length = strnlen(host, room);
  if (length == 0 || length == room || length >= TREADLE_MEETING_HOST) return false;
  for (size_t i = 0; i < length; i++)
    if (!isalnum((unsigned char)host[i]) && !strchr(".:%-_", host[i])) return false;
  return true;
}

static bool is_text(const char text[TREADLE_MEETING_TEXT], int32_t status) {
  return strnlen(text, TREADLE_MEETING_TEXT) < TREADLE_MEETING_TEXT && status <= TREADLE_OK &&
         status >= TREADLE_CANCELLED && (status == TREADLE_OK || *text);
}

treadle_status treadle_meeting_read_call(const void *bytes, size_t count, treadle_meeting_call *call_p) {
  treadle_status status = check_head(bytes, count, TREADLE_MEETING_CALL, sizeof *call_p);
  *call_p = (treadle_meeting_call){0};
  if (count == sizeof *call_p && memcmp(bytes, TREADLE_MEETING_CALL, sizeof call_p->head.magic) == 0)
    memcpy(call_p, bytes, sizeof *call_p);
  if (status == TREADLE_OK && !call_p->nonce) REFUSE("has left a call that is none");
  return status;
}

treadle_status treadle_meeting_read_description(const void *bytes, size_t count,
                                                treadle_description *description_p) {
  treadle_description *d = description_p;
  *d = (treadle_description){0};
  if (count >= HEAD + sizeof d->nonce && memcmp(bytes, TREADLE_MEETING_RANK, sizeof d->head.magic) == 0)
    memcpy(&d->nonce, (const char *)bytes + HEAD, sizeof d->nonce);
  treadle_status status = check_head(bytes, count, TREADLE_MEETING_RANK, sizeof *d);
  if (status != TREADLE_OK) return status;
  memcpy(d, bytes, sizeof *d);
  bool good = count == sizeof *d && d->nonce && is_text(d->text, d->status);
  if (good && d->status == TREADLE_OK)
    good = d->size >= 1 && d->size <= TREADLE_GROUP_MAX && d->rank >= 0 && d->rank < d->size &&
           d->number >= -1 && d->nodes >= 0 && d->nodes <= d->size &&
           treadle_meeting_is_host(d->host, sizeof d->host);
  if (!good) REFUSE("has left a description that is none");
  return TREADLE_OK;
}

treadle_status treadle_meeting_read_table(const void *bytes, size_t count, treadle_meeting_table *table_p,
                                          const void **rows_p) {
  treadle_meeting_table *t = table_p;
  treadle_status status = check_head(bytes, count, TREADLE_MEETING_TABLE, sizeof *t);
  if (status != TREADLE_OK) return status;
  memcpy(t, bytes, sizeof *t);
  if (t->size < 1 || t->size > TREADLE_GROUP_MAX || !is_text(t->text, t->status) ||
      count != sizeof *t + (size_t)t->size * sizeof(treadle_meeting_row))
    REFUSE("has left a table that is none");
  *rows_p = (const char *)bytes + sizeof *t;
  return TREADLE_OK;
}

treadle_meeting_row treadle_meeting_row_at(const void *rows, int32_t rank) {
  treadle_meeting_row row;
  memcpy(&row, (const char *)rows + (size_t)rank * sizeof row, sizeof row);
  return row;
}

treadle_status treadle_meeting_check_row(const treadle_meeting_row *row, int32_t rank) {
  if (!row->nonce || !treadle_meeting_is_host(row->host, sizeof row->host) || row->node < 0)
    REFUSE("has left a table whose row of rank %d is none", rank);
  return TREADLE_OK;
}
