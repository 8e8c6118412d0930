/* Any bytes as what ranks leave for each other where they meet: a call, a description, a table; as a message of a store over TCP that comes in
 * pieces; as an address. With a first byte that is odd, heads are put right, so that what is behind them is looked at. What is taken can be
 * used; what is refused says why. */
#include "group/group.h"
#include "meet/nodes_meet.h"
#include "meet/store_address.h"
#include "meet/store_message.h"

#include <assert.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static void said(treadle_status status) {
  assert(status == TREADLE_OK || (status == TREADLE_REFUSED && *treadle_error_message()));
}

/* ---- Meeting ---- */

static void use_description(const treadle_description *d) {
  int32_t of[3];
  treadle_description all[3] = {*d, *d, *d};
  if (d->status != TREADLE_OK) return;
  for (int rank = 0; rank < 3; rank++) {
    all[rank].rank = rank;
    all[rank].size = 3;
    if (all[rank].nodes > 3) all[rank].nodes = 3;
    said(treadle_meeting_check(&all[0], &all[rank], rank));
  }
  said(treadle_meeting_check(d, &all[1], 1));
  if (treadle_meeting_divide(all, 3, of) != TREADLE_OK) return;
  for (int rank = 0; rank < 3; rank++)
    assert(of[rank] >= 0 && of[rank] <= rank && of[of[rank]] == of[rank]);
}

static void use_table(const treadle_meeting_table *t, const void *rows) {
  assert(t->size >= 1 && t->size <= TREADLE_GROUP_MAX && t->status <= TREADLE_OK);
  for (int32_t rank = 0; rank < t->size; rank++) {
    const treadle_meeting_row row = treadle_meeting_row_at(rows, rank);
    if (treadle_meeting_check_row(&row, rank) == TREADLE_OK)
      assert(row.node >= 0 && strlen(row.host) < TREADLE_MEETING_HOST);
  }
}

static void read_all(const void *bytes, size_t count) {
  treadle_meeting_call call;
  treadle_description d;
  treadle_meeting_table table;
  const void *rows;
  treadle_status status = treadle_meeting_read_call(bytes, count, &call);
  said(status);
  assert(status != TREADLE_OK || call.nonce);
  status = treadle_meeting_read_description(bytes, count, &d);
  said(status);
  if (status == TREADLE_OK) use_description(&d);
  status = treadle_meeting_read_table(bytes, count, &table, &rows);
  said(status);
  if (status == TREADLE_OK) use_table(&table, rows);
}

static void try_meeting(const uint8_t *bytes, size_t count) {
  static const char *const kinds[] = {TREADLE_MEETING_CALL, TREADLE_MEETING_RANK, TREADLE_MEETING_TABLE};
  static uint64_t room[(sizeof(treadle_meeting_table) + 4 * sizeof(treadle_meeting_row)) / 8 + 1];
  treadle_meeting_table *t = (void *)room;
  read_all(bytes, count);
  if (count < 2 || bytes[0] % 2 == 0) return;
  static const size_t sizes[] = {sizeof(treadle_meeting_call), sizeof(treadle_description), 0};
  int kind = bytes[0] / 2 % 3;
  size_t size = sizes[kind];
  memset(room, 0, sizeof room);
  memcpy((char *)room + sizeof t->head, bytes + 1,
         count - 1 < sizeof room - sizeof t->head ? count - 1 : sizeof room - sizeof t->head);
  if (kind == 2) { /* as many rows as fit */
    t->size = t->size % 4 < 1 ? 1 : t->size % 4;
    size = sizeof *t + (size_t)t->size * sizeof(treadle_meeting_row);
  }
  treadle_meeting_seal(room, kinds[kind], size);
  read_all(room, size);
}

/* ---- A store ---- */

/* The bytes as they come, piece by piece, to who takes little and to who takes much. */
static void try_stream(const uint8_t *bytes, size_t count, uint64_t most) {
  int ends[2];
  treadle_status status = TREADLE_OK;
  bool whole = false;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) return;
  treadle_store_stream stream = {.wire = treadle_wire_on(ends[0]), .job = 1};
  for (size_t at = 0, piece; at < count && status == TREADLE_OK; at += piece) {
    piece = 1 + bytes[at] % 64u < count - at ? 1 + bytes[at] % 64u : count - at;
    assert(send(ends[1], bytes + at, piece, MSG_NOSIGNAL) == (ssize_t)piece);
    do {
      status = treadle_store_hear(&stream, most, &whole);
      said(status);
      assert(treadle_wire_buffer_used(&stream.wire.in) <= sizeof stream.in + most);
      if (!whole || status != TREADLE_OK) continue;
      assert(stream.in.frame.bytes <= most && stream.in.key_bytes <= TREADLE_STORE_KEY);
      assert(stream.in.frame.bytes - stream.in.key_bytes <= TREADLE_STORE_VALUE);
      treadle_wire_buffer_release(&stream.wire.in);
    } while (whole && status == TREADLE_OK);
  }
  treadle_wire_close(&stream.wire, true);
  close(ends[1]);
}

static void try_store(const uint8_t *bytes, size_t count) {
  enum { MUCH = TREADLE_STORE_KEY + TREADLE_STORE_VALUE };
  static uint8_t room[4096];
  treadle_store_message head;
  const treadle_frame_rule rule = treadle_store_rule(1, MUCH);
  try_stream(bytes, count < sizeof room ? count : sizeof room, 0);
  try_stream(bytes, count < sizeof room ? count : sizeof room, MUCH);
  if (count < 1 + sizeof head || count > sizeof room || bytes[0] % 2 == 0) return;
  memcpy(room, bytes + 1, count - 1);
  memcpy(&head, room, sizeof head);
  head.frame.type = 1 + (head.frame.type & 7);
  uint64_t length = head.frame.bytes;
  if (bytes[0] % 4 == 3) { /* lengths that are right, too, and the sum */
    length = count - 1 - sizeof head;
    head.key_bytes %= (uint32_t)length + 1;
    treadle_frame_seal(&rule, &head, room + sizeof head, length);
  } else {
    treadle_frame_seal(&rule, &head, NULL, 0);
    head.frame.bytes = length;
  }
  memcpy(room, &head, sizeof head);
  try_stream(room, count - 1, 0);
  try_stream(room, count - 1, MUCH);
}

static void try_address(const uint8_t *bytes, size_t count) {
  char text[400];
  treadle_store_address address;
  size_t length = count < sizeof text - 1 ? count : sizeof text - 1;
  memcpy(text, bytes, length);
  text[length] = 0;
  treadle_status status = treadle_store_address_read(text, &address);
  said(status);
  if (status != TREADLE_OK) return;
  assert(*address.host && strlen(address.host) < sizeof address.host && !strpbrk(address.host, "[]"));
  assert(strlen(address.port) >= 1 && strspn(address.port, "0123456789") == strlen(address.port));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  try_meeting(bytes, count);
  try_store(bytes, count);
  try_address(bytes, count);
  return 0;
}
