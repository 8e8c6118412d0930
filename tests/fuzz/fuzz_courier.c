/* Any bytes as what a courier receives, in pieces; with a first byte that is odd, also as the contents of messages that are whole and of the
 * job. A courier that takes them in has three nodes of which it is the second. The word of its node goes along its arrows alone. */
#include "group/courier.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

enum { KEY = 77, RANKS = 4, NODES = 3 };

typedef struct stage {
  treadle_nodes nodes;
  treadle_group group;
  treadle_courier courier;
  treadle_courier_peer peers[NODES];
} stage;

/* Without connections: it says nothing to anybody. */
static void stage_init(stage *s) {
  static const int32_t of[RANKS] = {0, 1, 1, 2};
  size_t bytes = (treadle_control_bytes(RANKS) + 63) / 64 * 64;
  memset(s, 0, sizeof *s);
  if (treadle_nodes_make(of, RANKS, &s->nodes) != TREADLE_OK) abort();
  s->group = (treadle_group){.rank = 1, .size = RANKS, .nodes = &s->nodes};
  s->group.control = aligned_alloc(64, bytes);
  if (!s->group.control) abort();
  memset(s->group.control, 0, bytes);
  treadle_group_limit(&s->group, 100);
  for (int node = 0; node < NODES; node++) s->peers[node].wire.socket = -1;
  s->courier = (treadle_courier){.group = &s->group, .node = 1, .key = KEY, .peers = s->peers};
}

static void stage_release(stage *s) {
  free(s->group.control);
  treadle_nodes_release(&s->nodes);
}

static void check_word(treadle_outcome before, treadle_outcome now) {
  assert(now.epoch >= before.epoch && now.rank >= 0 && now.rank < RANKS);
  if (now.epoch == before.epoch && now.state != before.state)
    assert(before.state == TREADLE_OPEN || before.state == TREADLE_VOTED);
  assert(now.state != TREADLE_COMMITTED || (now.epoch == before.epoch)); /* after a vote of this node */
}

/* Everything that is there: false when it is none of this protocol. */
static bool take_all(stage *s, treadle_wire *wire) {
  const treadle_frame_rule rule = treadle_mail_rule(KEY);
  for (;;) {
    treadle_mail_head head;
    const char *content = NULL;
    size_t lacks;
    treadle_outcome before = treadle_outcome_now(s->group.control);
    treadle_status status = treadle_wire_take(wire, &rule, &head, &content, &lacks);
    assert(status == TREADLE_OK || (status == TREADLE_REFUSED && *treadle_error_message()));
    if (status != TREADLE_OK) return false;
    if (lacks) return true;
    int32_t node = head.node == 2 ? 2 : 0;
    if (!treadle_courier_take(&s->courier, node, &head, content)) return false;
    treadle_courier_vote(&s->courier);
    check_word(before, treadle_outcome_now(s->group.control));
    for (int rank = 0; rank < RANKS; rank++)
      assert(memchr(s->group.control->lines[rank].text, 0, TREADLE_GROUP_MESSAGE));
  }
}

/* The bytes as they are, in pieces. */
static void try_stream(const uint8_t *bytes, size_t count) {
  stage s;
  treadle_wire wire = treadle_wire_on(-1);
  stage_init(&s);
  for (size_t at = 0, piece; at < count; at += piece) {
    piece = 1 + bytes[at] % 97u < count - at ? 1 + bytes[at] % 97u : count - at;
    char *room = treadle_wire_buffer_room(&wire.in, piece);
    if (!room) abort();
    memcpy(room, bytes + at, piece);
    wire.in.count += piece;
    if (!take_all(&s, &wire)) break;
  }
  treadle_wire_close(&wire, false);
  stage_release(&s);
}

/* Messages: a byte each for type, node, rank, epoch and length, and what the node does meanwhile; then the content. */
static void try_messages(const uint8_t *bytes, size_t count) {
  stage s;
  treadle_wire wire = treadle_wire_on(-1);
  const treadle_frame_rule rule = treadle_mail_rule(KEY);
  stage_init(&s);
  for (size_t at = 0; count - at > 6;) {
    const uint8_t *m = bytes + at;
    size_t most = count - at - 6, length = (size_t)m[4] * (m[0] & 16 ? 16 : 1);
    uint64_t epoch = 1 + m[3] % 4u, now = treadle_outcome_now(s.group.control).epoch;
    if (length > most) length = most;
    treadle_mail_head head = {.frame.type = 1 + m[0] % 8u,
                              .node = m[1] % 8 ? m[1] % 2 * 2 : m[1] % 3,
                              .rank = m[2] % 16 < 12 ? m[2] % 4 : m[2] - 128,
                              .epoch = m[3] & 128 ? (uint64_t)m[3] << 50 : epoch};
    char *room = treadle_wire_buffer_room(&wire.in, sizeof head + length);
    if (!room) abort();
    treadle_frame_seal(&rule, &head, m + 6, length);
    memcpy(room, &head, sizeof head);
    memcpy(room + sizeof head, m + 6, length);
    wire.in.count += sizeof head + length;
    if (m[5] % 4 == 1) treadle_outcome_open(&s.group, epoch);
    if (m[5] % 4 == 2 && now > 0) (void)treadle_outcome_settle(&s.group, now, TREADLE_COMMITTED);
    if (m[5] % 4 == 3) (void)treadle_outcome_settle(&s.group, epoch, TREADLE_FAILED);
    if (!take_all(&s, &wire)) break;
    at += 6 + length;
  }
  treadle_wire_close(&wire, false);
  stage_release(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  try_stream(bytes, count);
  if (count > 1 && bytes[0] % 2) try_messages(bytes + 1, count - 1);
  return 0;
}
