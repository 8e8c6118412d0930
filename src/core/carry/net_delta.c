/* Messages of which only what has changed travels (move/delta.h).
 *
 *   1. The base is the epoch of which all that is kept is. A rank that begins a direction has none until that is committed; so after a failure,
 *      out of mode INFER, in a new group and in a new process there is none.
 *   2. Each rank says its base where an epoch begins. A pair whose bases are the same uses it; any other pair sends all. Both of its ranks know
 *      which, from what they have said.
 *   3. A source keeps what it has packed of each message, narrowed, changed or not. Its reader has the same: in its window, where the
 *      message has what is written there bit for bit, no engine transforms it and it is not the caller's (own tensors); else it keeps the
 *      message, too.
 *   4. Then a message travels in two parts: its head, which says how much there is behind it, and that, where it is not nothing. Both sides begin
 *      the parts of a pair in one order. The head has a sum of the whole message, so a reader whose base is another one after all finds
 *      that out before it writes.
 *
 * A message with changes has a length (32 bits) for each of its runs, and their deltas. A run is parcels that follow each other with elements of
 * one size; what lies between them is zeros on both sides. Where nothing has changed there is nothing behind the head. */
#include "carry/carry_parts.h"
#include "carry/net.h"

#include "base/alloc.h"
#include "base/dtype.h"
#include "base/hash.h"
#include "memory/host.h"
#include "move/delta.h"
#include "net/net.h"

#include <stdio.h>
#include <string.h>

enum { SPARE = 4096 /* for lengths and forms */, ROOM = TREADLE_NET_MESSAGE + SPARE };

static bool is_wanted(const treadle_carry *c) {
  return c->terms.delta && treadle_group_node_count(c->group) > 1;
}

static const treadle_traffic *traffic_of(const treadle_carry *c, bool out) {
  return out ? &c->net.out[TREADLE_SIDE_INFER].traffic : &c->net.in[TREADLE_SIDE_INFER].traffic;
}

/* ---- Memory ---- */

/* Does the reader's window have the bytes that the parcel brings, and nobody else write there? */
static bool window_has(const treadle_carry *c, const treadle_parcel *parcel) {
  return parcel->position >= 0 && parcel->op.from_dtype == parcel->op.to_dtype && parcel->op.add == 0 &&
         !c->terms.transforms && !c->own.any[TREADLE_SIDE_INFER];
}

static bool is_kept(const treadle_carry *c, bool out, const treadle_traffic_message *m) {
  const treadle_traffic *traffic = traffic_of(c, out);
  if (out) return true;
  for (size_t i = 0; i < m->count; i++)
    if (!window_has(c, &traffic->parcels[m->first + i])) return true;
  return false;
}

size_t treadle_net_delta_bytes(const treadle_carry *c) {
  if (!is_wanted(c)) return 0;
  size_t bytes = 2 * ROOM, page = (size_t)c->plan->page_bytes;
  for (int out = 0; out < 2; out++) {
    const treadle_traffic *traffic = traffic_of(c, out);
    for (size_t i = 0; i < traffic->message_count; i++)
      if (is_kept(c, out, &traffic->messages[i])) bytes += (size_t)traffic->messages[i].bytes;
  }
  return (bytes + page - 1) / page * page;
}

/* Where each message is kept; the memory is as large as that. */
static treadle_status place(treadle_carry *c) {
  treadle_net_delta *delta = &c->net.delta;
  int64_t at = 0;
  for (int out = 0; out < 2; out++) {
    const treadle_traffic *traffic = traffic_of(c, out);
    delta->kept[out] = treadle_alloc_array(traffic->message_count + 1, sizeof *delta->kept[out]);
    if (!delta->kept[out]) return treadle_memory_is_out();
    for (size_t i = 0; i < traffic->message_count; i++) {
      const treadle_traffic_message *m = &traffic->messages[i];
      delta->kept[out][i] = is_kept(c, out, m) ? at : -1;
      if (delta->kept[out][i] >= 0) at += m->bytes;
    }
  }
  for (int i = 0; i < 2; i++) delta->room[i] = delta->memory + at + (size_t)i * ROOM;
  return TREADLE_OK;
}

treadle_status treadle_net_delta_arrange(treadle_carry *c) {
  treadle_status status = TREADLE_OK;
  treadle_net_delta *delta = &c->net.delta;
  size_t bytes = treadle_net_delta_bytes(c);
  treadle_net_delta_leave(c);
  if (bytes == 0) return TREADLE_OK;
  if (bytes > delta->bytes) {
    treadle_net_delta_release(c);
    delta->memory = treadle_host_pinned(c->device, bytes, "what was sent to other nodes last");
    if (!delta->memory) return TREADLE_NO_MEMORY;
    delta->bytes = bytes;
    c->figures->host_bytes += bytes;
  }
  delta->shares = treadle_alloc_array((size_t)c->group->size, sizeof *delta->shares);
  if (!delta->shares) TRY(treadle_memory_is_out());
  TRY(place(c));
out:
  return status;
}

void treadle_net_delta_leave(treadle_carry *c) {
  treadle_net_delta *delta = &c->net.delta;
  delta->base = 0;
  delta->on = false;
  treadle_free(delta->shares);
  delta->shares = NULL;
  for (int out = 0; out < 2; out++) {
    treadle_free(delta->kept[out]);
    delta->kept[out] = NULL;
  }
}

void treadle_net_delta_release(treadle_carry *c) {
  treadle_net_delta *delta = &c->net.delta;
  treadle_net_delta_leave(c);
  treadle_host_unpinned(c->device, delta->memory, delta->bytes);
  c->figures->host_bytes -= delta->bytes;
  delta->memory = NULL;
  delta->bytes = 0;
}

/* ---- Epochs ---- */

void treadle_net_delta_begin(treadle_carry *c) {
  treadle_net_delta *delta = &c->net.delta;
  delta->on = delta->shares && c->to == TREADLE_SIDE_INFER;
  delta->dense_bytes = delta->delta_bytes = 0;
  if (delta->on) delta->base = 0;
}

void treadle_net_delta_commit(treadle_carry *c) {
  treadle_net_delta *delta = &c->net.delta;
  if (delta->on) delta->base = c->epoch;
}

/* ---- Runs ---- */

/* Elements of one size, one behind the other in a message. */
typedef struct run {
  size_t at, count, each;
  size_t next; /* parcel */
} run;

static run run_from(const treadle_carry *c, bool out, const treadle_traffic_message *m, size_t first) {
  const treadle_traffic *traffic = traffic_of(c, out);
  run r = {.next = first};
  size_t end = 0;
  for (; r.next < m->count; r.next++) {
    const treadle_op *op = &traffic->parcels[m->first + r.next].op;
    size_t each = treadle_dtype_bytes((treadle_dtype)(out ? op->to_dtype : op->from_dtype));
    size_t at = (size_t)(out ? op->to : op->from);
    if (r.next == first)
      r.at = at, r.each = each;
    else if (each != r.each)
      break;
    end = at + (size_t)op->elems * each;
  }
  r.count = (end - r.at) / r.each;
  return r;
}

static char *kept_of(const treadle_carry *c, bool out, const treadle_traffic_message *m) {
  int64_t at = c->net.delta.kept[out][m - traffic_of(c, out)->messages];
  return at < 0 ? NULL : c->net.delta.memory + at;
}

/* Changes at `to`, which has the message as it was. */
static treadle_status apply(const treadle_carry *c, bool out, const treadle_traffic_message *m,
                            const char *changes, size_t bytes, char *to) {
  size_t at = 0;
  for (size_t parcel = 0; parcel < m->count && bytes > 0;) {
    const run r = run_from(c, out, m, parcel);
    uint32_t length = 0;
    bool fits = bytes - at >= sizeof length;
    if (fits) memcpy(&length, changes + at, sizeof length);
    at += sizeof length;
    if (!fits || length > bytes - at ||
        treadle_delta_apply(changes + at, length, r.count, r.each, to + r.at) != TREADLE_OK)
      return treadle_net_refuse(c, m, "has changes that cannot be");
    at += length;
    parcel = r.next;
  }
  return at == bytes ? TREADLE_OK : treadle_net_refuse(c, m, "has bytes behind its changes");
}

/* ---- Sending ---- */

char *treadle_net_delta_room(treadle_carry *c, const treadle_traffic_message *m) {
  char *room = c->net.delta.room[0];
  if (m->count > 1) memset(room, 0, (size_t)m->bytes);
  return room;
}

/* Bytes of the changes; those of the message where they would be as many. */
static size_t write_changes(treadle_carry *c, const treadle_traffic_message *m) {
  const char *old = kept_of(c, true, m), *now = c->net.delta.room[0];
  char *to = c->net.delta.room[1];
  size_t whole = (size_t)m->bytes, bytes = 0;
  if (memcmp(old, now, whole) == 0) return 0;
  for (size_t parcel = 0; parcel < m->count;) {
    const run r = run_from(c, true, m, parcel);
    if (bytes + sizeof(uint32_t) + treadle_delta_most(r.count, r.each) > ROOM) return whole;
    uint32_t length =
        (uint32_t)treadle_delta_write(old + r.at, now + r.at, r.count, r.each, to + bytes + sizeof length);
    memcpy(to + bytes, &length, sizeof length);
    bytes += sizeof length + length;
    if (bytes >= whole) return whole;
    parcel = r.next;
  }
  return bytes;
}

void treadle_net_delta_write(treadle_carry *c, const treadle_traffic_message *m, char *slot,
                             treadle_net_head *head) {
  treadle_net_delta *delta = &c->net.delta;
  char *kept = kept_of(c, true, m);
  size_t whole = (size_t)m->bytes, bytes = treadle_net_delta_is(c, m) ? write_changes(c, m) : whole;
  head->sum = head->whole = treadle_hash_bytes(delta->room[0], whole, 0);
  if (bytes < whole) {
    head->form = TREADLE_NET_CHANGED;
    head->behind = (int32_t)bytes;
    head->sum = treadle_hash_bytes(delta->room[1], bytes, 0);
  }
  memcpy(slot + TREADLE_NET_HEAD, delta->room[bytes < whole], bytes);
  /* Few changes are written sooner than all of it. */
  if (head->form != TREADLE_NET_CHANGED || apply(c, true, m, slot + TREADLE_NET_HEAD, bytes, kept))
    memcpy(kept, delta->room[0], whole);
  delta->dense_bytes += TREADLE_NET_HEAD + whole;
  delta->delta_bytes += TREADLE_NET_HEAD + bytes;
}

/* Bytes behind the head in a slot. */
static treadle_net_part part_behind(char *slot) {
  treadle_net_head head;
  memcpy(&head, slot, sizeof head);
  return (treadle_net_part){slot + sizeof head, (size_t)head.behind};
}

treadle_status treadle_net_delta_send(treadle_carry *c, const treadle_traffic_message *m, size_t number) {
  treadle_net_state *net = &c->net;
  const treadle_net_part part = part_behind(treadle_net_slot_of(net, true, number));
  if (part.bytes == 0) return TREADLE_OK;
  return net->ops->send(net->net, m->peer, treadle_net_tag_of(c, m, true), &part, 1,
                        &net->delta.behind[number % TREADLE_NET_SLOTS]);
}

void treadle_net_delta_stop(treadle_carry *c) {
  treadle_net_state *net = &c->net;
  for (int i = 0; i < TREADLE_NET_SLOTS; i++)
    if (net->delta.behind[i]) net->ops->cancel(net->net, net->delta.behind[i]);
  memset(net->delta.behind, 0, sizeof net->delta.behind);
}

/* A head has come: what it says is behind it is received. */
static treadle_status receive_behind(treadle_carry *c, const treadle_traffic_message *m, size_t number,
                                     void **request) {
  treadle_status status = TREADLE_OK;
  treadle_net_state *net = &c->net;
  char *slot = treadle_net_slot_of(net, false, number);
  TRY(treadle_net_head_check(c, m, slot));
  net->delta.second[number % TREADLE_NET_SLOTS] = true;
  const treadle_net_part part = part_behind(slot);
  if (part.bytes > 0)
    TRY(net->ops->receive(net->net, m->peer, treadle_net_tag_of(c, m, true), &part, 1, request));
out:
  return status;
}

treadle_status treadle_net_delta_next(treadle_carry *c, bool out, size_t number, void **request) {
  treadle_net_delta *delta = &c->net.delta;
  const treadle_traffic_message *m = &treadle_net_flow_of(c, out)->traffic.messages[number];
  size_t slot = number % TREADLE_NET_SLOTS;
  if (!treadle_net_delta_is(c, m)) return TREADLE_OK;
  if (!out) return delta->second[slot] ? TREADLE_OK : receive_behind(c, m, number, request);
  *request = delta->behind[slot];
  delta->behind[slot] = NULL;
  return TREADLE_OK;
}

bool treadle_net_delta_waits(const treadle_carry *c, int peer) {
  const treadle_net_flow *flow = &c->net.in[c->to];
  for (size_t i = flow->ended; i < flow->begun; i++)
    if (flow->traffic.messages[i].peer == peer && !c->net.delta.second[i % TREADLE_NET_SLOTS]) return true;
  return false;
}

/* ---- Reading ---- */

/* Where byte `at` of this rank's infer window lies in the version of the base. */
static treadle_paged view_of_base(const treadle_carry *c, int64_t at) {
  return c->terms.doubled ? c->others[c->group->rank] : treadle_own_view(c, TREADLE_SIDE_INFER, at);
}

/* What the message was in the base. */
static treadle_status read_base(treadle_carry *c, const treadle_traffic_message *m, char *to) {
  const treadle_traffic *traffic = traffic_of(c, false);
  const treadle_paged into = treadle_paged_of(to);
  const char *kept = kept_of(c, false, m);
  if (kept) {
    memcpy(to, kept, (size_t)m->bytes);
    return TREADLE_OK;
  }
  (void)treadle_net_delta_room(c, m);
  treadle_copies_begin(c->net.copies, false);
  for (size_t i = 0; i < m->count; i++) {
    treadle_op op = traffic->parcels[m->first + i].op, back = op;
    back.from = op.to;
    back.to = op.from;
    memcpy(back.from_stride, op.to_stride, sizeof back.from_stride);
    memcpy(back.to_stride, op.from_stride, sizeof back.to_stride);
    const treadle_paged from = view_of_base(c, op.to);
    treadle_copies_add(c, c->net.copies, &back, &from, &into);
  }
  treadle_copies_ask(c, c->net.copies);
  return c->device->ops->fence(c->device);
}

treadle_status treadle_net_delta_read(treadle_carry *c, const treadle_traffic_message *m, const char *slot,
                                      const char **bytes_p) {
  treadle_status status = TREADLE_OK;
  treadle_net_head head;
  char *room = c->net.delta.room[0], *kept = kept_of(c, false, m);
  memcpy(&head, slot, sizeof head);
  *bytes_p = slot + sizeof head;
  if (head.form == TREADLE_NET_CHANGED) {
    TRY(read_base(c, m, room));
    TRY(apply(c, false, m, slot + sizeof head, (size_t)head.behind, room));
    if (treadle_hash_bytes(room, (size_t)m->bytes, 0) != head.whole)
      TRY(treadle_net_refuse(
          c, m,
          "has changes of other bytes than this rank holds: its infer window was written "
          "after the last update; an engine that does so must say it (transforms)"));
    *bytes_p = room;
  }
  if (kept) memcpy(kept, *bytes_p, (size_t)m->bytes);
out:
  return status;
}
