#include "carry/net.h"
#include "carry/carry_parts.h"

#include "base/clock.h"
#include "base/dtype.h"
#include "base/hash.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <time.h>

enum { MAGIC = 0x7472646e, VERSION = 1 };
static const double PAUSE = 200e-6, LOOK_EVERY = 10e-3, HEARSAY = 0.5; /* seconds */

static bool is_cut(const treadle_carry *c) { return atomic_load(&c->group->control->cut) != 0; }

char *treadle_net_slot_of(const treadle_net_state *net, bool out, size_t number) {
  size_t slot = number % TREADLE_NET_SLOTS + (out ? TREADLE_NET_SLOTS : 0);
  return net->base + slot * (TREADLE_NET_MESSAGE + TREADLE_NET_HEAD);
}

treadle_net_flow *treadle_net_flow_of(treadle_carry *c, bool out) {
  return out ? &c->net.out[c->to] : &c->net.in[c->to];
}

uint64_t treadle_net_tag_of(const treadle_carry *c, const treadle_traffic_message *m, bool second) {
  return (uint64_t)second << 39 | (c->epoch & 0x7ff) << 28 | (uint64_t)(uint32_t)m->number;
}

/* ---- Heads ---- */

/* But for what depends on the bytes. */
static treadle_net_head head_of(const treadle_carry *c, const treadle_traffic_message *m, int source) {
  return (treadle_net_head){.magic = MAGIC,
                            .version = VERSION,
                            .job = c->group->job,
                            .epoch = c->epoch,
                            .digest = c->plan->digest,
                            .bytes = (int32_t)m->bytes,
                            .behind = (int32_t)m->bytes,
                            .number = m->number,
                            .wave = (uint16_t)m->wave,
                            .source = (uint16_t)source,
                            .side = (uint8_t)c->to};
}

treadle_status treadle_net_refuse(const treadle_carry *c, const treadle_traffic_message *m,
                                  const char *what) {
  return treadle_fail(
      TREADLE_PEER, "net: a message of %" PRId64 " bytes from rank %d on node %d, in wave %d, %s", m->bytes,
      treadle_group_called(c->group, m->peer), (int)c->group->nodes->of[m->peer], m->wave, what);
}

treadle_status treadle_net_head_check(const treadle_carry *c, const treadle_traffic_message *m,
                                      const char *slot) {
  treadle_net_head head, wanted = head_of(c, m, m->peer);
  memcpy(&head, slot, sizeof head);
  wanted.sum = head.sum;
  wanted.whole = head.sum;
  if (treadle_net_delta_is(c, m) && head.form == TREADLE_NET_CHANGED) {
    wanted.form = head.form;
    wanted.whole = head.whole;
    if (head.behind >= 0 && head.behind < head.bytes) wanted.behind = head.behind;
  }
  if (memcmp(&head, &wanted, sizeof head) == 0) return TREADLE_OK;
  const char *what = head.magic != MAGIC || head.version != VERSION ? "is none of this version of treadle"
                     : head.job != wanted.job                       ? "is of another job"
                     : head.epoch != wanted.epoch                   ? "is of another attempt"
                     : head.digest != wanted.digest                 ? "is of another plan"
                                                                    : "is another one than was expected";
  return treadle_net_refuse(c, m, what);
}

/* Where the bytes of a message that lies in its slot are, dense, when they were proved; of one with parts in windows they are in their places. */
static treadle_status check(treadle_carry *c, const treadle_traffic_message *m, const char *slot,
                            const treadle_net_parts *parts, const char **bytes_p) {
  treadle_status status = TREADLE_OK;
  treadle_net_head head;
  TRY(treadle_net_head_check(c, m, slot));
  memcpy(&head, slot, sizeof head);
  *bytes_p = slot + sizeof head;
  uint64_t sum =
      parts ? treadle_net_parts_sum(parts) : treadle_hash_bytes(*bytes_p, (size_t)head.behind, 0);
  if (sum != head.sum) TRY(treadle_net_refuse(c, m, "has bytes that have not the sum that it says"));
  if (c->net.delta.on) TRY(treadle_net_delta_read(c, m, slot, bytes_p));
out:
  return status;
}

/* A net knows ranks alone. */
static treadle_status with_node(const treadle_carry *c, const treadle_net_flow *flow, size_t number,
                                treadle_status status) {
  const int peer = flow->traffic.messages[number].peer;
  return status != TREADLE_PEER
             ? status
             : treadle_fail_in(status, "rank %d on node %d: ", treadle_group_called(c->group, peer),
                               (int)c->group->nodes->of[peer]);
}

/* ---- Sending ---- */

/* One byte, on purpose. */
static void flip(treadle_carry *c, const treadle_traffic_message *m, char *slot) {
  treadle_injection *injection = &c->faults.injection;
  treadle_net_head head;
  if (injection->what != TREADLE_INJECT_FLIP || m->wave < injection->wave) return;
  memcpy(&head, slot, sizeof head);
  slot[head.behind ? TREADLE_NET_HEAD + head.behind / 2 : (int32_t)offsetof(treadle_net_head, whole)] ^=
      0x10;
  injection->what = TREADLE_INJECT_NOTHING;
}

/* Messages that are packed, or unpacked, before the device is waited for. The processor does one after the other, as long as its bytes are in
 * caches; and of what a delta needs there is room for one. */
static size_t most_at_once(const treadle_carry *c) {
  return treadle_device_is_host(c->device) || c->net.delta.on ? 1 : TREADLE_NET_SLOTS;
}

/* Makes the row of blocks that a parcel has codes or scales of, unless it is at hand, and says where they lie. */
static treadle_paged make(treadle_carry *c, const treadle_parcel *parcel) {
  treadle_net_state *net = &c->net;
  const treadle_ordered *ordered = &treadle_net_flow_of(c, true)->ordered;
  const treadle_block_row *block_row = &ordered->list.items[parcel->position].block_row;
  if (net->made != parcel->position) {
    treadle_copies_ask(c, net->copies); /* they read the one that was made last */
    treadle_carry_block_rows_order(c, block_row, ordered->parts.items + block_row->part_first,
                                   &net->scratch);
  }
  net->made = parcel->position;
  bool codes = parcel->op.from_dtype == TREADLE_FP8_E4M3;
  return treadle_paged_of(codes ? net->scratch.codes : net->scratch.scales);
}

/* What is not sent right from the window is to go to the slot. */
static void pack(treadle_carry *c, const treadle_traffic_message *m, treadle_net_parts *parts) {
  const treadle_traffic *traffic = &c->net.out[c->to].traffic;
  const treadle_paged to =
      treadle_paged_of(c->net.delta.on ? treadle_net_delta_room(c, m) : parts->slot + TREADLE_NET_HEAD);
  for (size_t i = 0; i < m->count; i++) {
    const treadle_parcel *parcel = &traffic->parcels[m->first + i];
    const treadle_op *op = &parcel->op;
    c->net.sent_bytes += (size_t)op->elems * treadle_dtype_bytes((treadle_dtype)op->to_dtype);
    if (treadle_net_parts_add(c, parcel, parts)) continue;
    if (parcel->position >= 0) {
      const treadle_paged from = make(c, parcel);
      treadle_copies_add(c, c->net.copies, op, &from, &to);
    } else {
      treadle_own_copy_from(c, c->net.copies, treadle_side_other(c->to), op, &to);
    }
  }
}

/* When its bytes are in the slot. */
static void write_head(treadle_carry *c, const treadle_traffic_message *m, treadle_net_parts *parts) {
  treadle_net_head head = head_of(c, m, c->group->rank);
  if (c->net.delta.on)
    treadle_net_delta_write(c, m, parts->slot, &head);
  else
    head.sum = head.whole = treadle_net_parts_sum(parts);
  memcpy(parts->slot, &head, sizeof head);
  flip(c, m, parts->slot);
}

/* Of a message that may become shorter: all that travels first is its head; of others that is all. */
static void shorten(const treadle_carry *c, const treadle_traffic_message *m, treadle_net_parts *parts) {
  if (!treadle_net_delta_is(c, m)) return;
  parts->count = 1;
  parts->items[0].bytes = TREADLE_NET_HEAD;
}

/* The next message, which is packed. */
static treadle_status send_next(treadle_carry *c, treadle_net_parts *parts) {
  treadle_status status = TREADLE_OK, second = TREADLE_OK;
  treadle_net_state *net = &c->net;
  treadle_net_flow *flow = treadle_net_flow_of(c, true);
  const treadle_traffic_message *m = &flow->traffic.messages[flow->begun];
  const size_t number = flow->begun % TREADLE_NET_SLOTS;
  shorten(c, m, parts);
  flow->windows[number] = parts->count > 1;
  TRY(with_node(c, flow, flow->begun,
                net->ops->send(net->net, m->peer, treadle_net_tag_of(c, m, false), parts->items,
                               parts->count, &flow->requests[number])));
  if (treadle_net_delta_is(c, m)) second = treadle_net_delta_send(c, m, flow->begun);
  flow->begun++;
  TRY(second);
out:
  return status;
}

/* Packs the next messages: as many as have slots, and are done at once. */
static treadle_status pack_some(treadle_carry *c, treadle_net_parts *parts, size_t *count_p) {
  treadle_status status = TREADLE_OK;
  const treadle_net_flow *flow = treadle_net_flow_of(c, true);
  const double begin = treadle_clock_seconds();
  size_t count = flow->traffic.message_count - flow->begun,
         slots = TREADLE_NET_SLOTS - (flow->begun - flow->ended);
  if (count > slots) count = slots;
  if (count > most_at_once(c)) count = most_at_once(c);
  *count_p = count;
  if (count == 0) return TREADLE_OK;
  const treadle_traffic_message *next = flow->traffic.messages + flow->begun;
  treadle_copies_begin(c->net.copies, true);
  for (size_t i = 0; i < count; i++) {
    treadle_net_parts_begin(c, &next[i], true, treadle_net_slot_of(&c->net, true, flow->begun + i),
                            &parts[i]);
    pack(c, &next[i], &parts[i]);
  }
  treadle_copies_ask(c, c->net.copies);
  TRY(c->device->ops->fence(c->device)); /* the processor reads them now */
  for (size_t i = 0; i < count; i++) write_head(c, &next[i], &parts[i]);
  c->net.pack_seconds += treadle_clock_seconds() - begin;
out:
  return status;
}

static treadle_status send_some(treadle_carry *c) {
  treadle_status status = TREADLE_OK;
  treadle_net_parts parts[TREADLE_NET_SLOTS];
  for (size_t count = 1; count > 0;) {
    TRY(pack_some(c, parts, &count));
    for (size_t i = 0; i < count; i++) TRY(send_next(c, &parts[i]));
  }
out:
  return status;
}

/* Where the bytes of a message that is received lie: again as they were when it began. */
static void find_parts(const treadle_carry *c, const treadle_traffic_message *m, char *slot,
                       treadle_net_parts *parts) {
  const treadle_traffic *traffic = &c->net.in[c->to].traffic;
  treadle_net_parts_begin(c, m, false, slot, parts);
  for (size_t i = 0; i < m->count; i++)
    (void)treadle_net_parts_add(c, &traffic->parcels[m->first + i], parts);
}

static treadle_status receive_some(treadle_carry *c) {
  treadle_status status = TREADLE_OK;
  treadle_net_state *net = &c->net;
  treadle_net_flow *flow = treadle_net_flow_of(c, false);
  while (flow->begun < flow->traffic.message_count && flow->begun - flow->ended < TREADLE_NET_SLOTS) {
    const treadle_traffic_message *m = &flow->traffic.messages[flow->begun];
    const size_t number = flow->begun % TREADLE_NET_SLOTS;
    treadle_net_parts parts;
    if (treadle_net_delta_is(c, m) && treadle_net_delta_waits(c, m->peer)) break;
    net->delta.second[number] = false;
    find_parts(c, m, treadle_net_slot_of(net, false, flow->begun), &parts);
    shorten(c, m, &parts);
    flow->windows[number] = parts.count > 1;
    TRY(with_node(c, flow, flow->begun,
                  net->ops->receive(net->net, m->peer, treadle_net_tag_of(c, m, false), parts.items,
                                    parts.count, &flow->requests[number])));
    flow->begun++;
  }
out:
  return status;
}

/* Tests what is under way: a request that has ended is NULL. */
static treadle_status test_some(treadle_carry *c, bool out) {
  treadle_status status = TREADLE_OK;
  treadle_net_flow *flow = treadle_net_flow_of(c, out);
  for (size_t i = flow->ended; i < flow->begun; i++) {
    void **request = &flow->requests[i % TREADLE_NET_SLOTS];
    bool done = false;
    if (!*request) continue;
    const double begin = treadle_clock_seconds();
    status = with_node(c, flow, i, c->net.ops->test(c->net.net, *request, &done));
    c->net.wire_seconds += treadle_clock_seconds() - begin;
    if (done || status != TREADLE_OK) *request = NULL;
    if (done && status == TREADLE_OK) status = treadle_net_delta_next(c, out, i, request);
    if (status != TREADLE_OK) break;
  }
  return status;
}

bool treadle_net_is_busy(const treadle_carry *c) { return c->net.running; }

/* A peer that cannot be reached may be one that has failed, and says why a moment later by its courier. */
static treadle_status explain(treadle_carry *c, treadle_status status) {
  char message[TREADLE_GROUP_MESSAGE];
  double end = treadle_clock_seconds() +
               (c->group->timeout_seconds < 10 * HEARSAY ? c->group->timeout_seconds / 10 : HEARSAY);
  snprintf(message, sizeof message, "%s", treadle_error_message());
  while (treadle_clock_seconds() < end) {
    treadle_status said = treadle_carry_check(c, c->epoch);
    if (said != TREADLE_OK) return said;
    nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
  }
  return treadle_fail(status, "%s", message);
}

static treadle_status move(treadle_carry *c) {
  treadle_status status = TREADLE_OK;
  treadle_net_flow *out = treadle_net_flow_of(c, true);
  TRY(test_some(c, true));
  while (out->ended < out->begun && !out->requests[out->ended % TREADLE_NET_SLOTS]) out->ended++;
  TRY(send_some(c));
  TRY(receive_some(c));
  TRY(test_some(c, false));
out:
  return status;
}

treadle_status treadle_net_move(treadle_carry *c) {
  if (!c->net.running || is_cut(c)) return TREADLE_OK;
  treadle_status status = move(c);
  return status == TREADLE_PEER ? explain(c, status) : status;
}

treadle_status treadle_net_move_beside(treadle_carry *c, size_t bytes) {
  c->net.near_bytes += bytes;
  if (c->net.near_bytes < TREADLE_NET_MESSAGE) return TREADLE_OK;
  c->net.near_bytes = 0;
  return treadle_net_move(c);
}

void treadle_net_pause(treadle_carry *c) {
  if (!c->net.running) return;
  const double begin = treadle_clock_seconds();
  if (is_cut(c))
    nanosleep(&(struct timespec){.tv_nsec = (long)(PAUSE * 1e9)}, NULL);
  else
    c->net.ops->wait(c->net.net, PAUSE);
  c->net.wire_seconds += treadle_clock_seconds() - begin;
}

/* ---- Waves ---- */

void treadle_net_begin(treadle_carry *c) {
  treadle_net_state *net = &c->net;
  if (!net->net) return;
  net->running = true;
  net->open = -1;
  net->sent_bytes = net->window_bytes = net->near_bytes = 0;
  net->seconds = net->pack_seconds = net->wire_seconds = net->unpack_seconds = 0;
  net->made = -1;
  for (int out = 0; out < 2; out++)
    treadle_net_flow_of(c, out)->begun = treadle_net_flow_of(c, out)->ended = 0;
  treadle_net_delta_begin(c);
}

void treadle_net_open(treadle_carry *c, int32_t wave) { c->net.open = wave; }

/* Waits until `is_done`; the rank that is waited for is the peer of the first message that is not done. */
typedef struct net_wait {
  treadle_carry *c;
  treadle_net_flow *flow;
  const char *what;
  double begin, next_look, deadline;
  size_t seen; /* messages that had ended when something last did */
} net_wait;

static net_wait wait_begins(treadle_carry *c, bool out, const char *what) {
  double now = treadle_clock_seconds();
  treadle_net_flow *flow = treadle_net_flow_of(c, out);
  return (net_wait){c, flow, what, now, now + LOOK_EVERY, now + c->group->timeout_seconds, flow->ended};
}

/* One turn of a wait. The time limit is of a message, not of all. */
static treadle_status wait_on(net_wait *w) {
  treadle_status status = TREADLE_OK;
  treadle_carry *c = w->c;
  TRY(treadle_flight_look(c)); /* others may be waiting for what is done here */
  TRY(treadle_net_move(c));
  TRY(treadle_carry_check(c, c->epoch));
  treadle_net_pause(c);
  double now = treadle_clock_seconds();
  if (w->flow->ended != w->seen) {
    w->seen = w->flow->ended;
    w->deadline = now + c->group->timeout_seconds;
  }
  if (now < w->next_look || w->flow->ended == w->flow->traffic.message_count) return TREADLE_OK;
  w->next_look = now + LOOK_EVERY;
  int peer = w->flow->traffic.messages[w->flow->ended].peer;
  TRY(treadle_group_look(c->group, peer, w->what));
  if (now > w->deadline)
    status = treadle_fail(TREADLE_TIMEOUT, "%s: waited %.1f s for rank %d on node %d", w->what,
                          c->group->timeout_seconds, treadle_group_called(c->group, peer),
                          (int)c->group->nodes->of[peer]);
out:
  return status;
}

/* Is all that is sent of waves up to `wave` in slots, or gone? */
static bool is_packed(const treadle_net_flow *flow, int32_t wave) {
  const treadle_traffic_message *messages = flow->traffic.messages;
  if (flow->begun < flow->traffic.message_count && messages[flow->begun].wave <= wave) return false;
  for (size_t i = flow->ended; i < flow->begun && messages[i].wave <= wave; i++)
    if (flow->windows[i % TREADLE_NET_SLOTS] && flow->requests[i % TREADLE_NET_SLOTS]) return false;
  return true;
}

treadle_status treadle_net_pack(treadle_carry *c, int32_t wave) {
  treadle_status status = TREADLE_OK;
  if (!c->net.running || wave < 0) return TREADLE_OK;
  const treadle_net_flow *flow = treadle_net_flow_of(c, true);
  net_wait w = wait_begins(c, true, "messages that read what is to be written");
  while (!is_packed(flow, wave)) TRY(wait_on(&w));
  c->net.seconds += treadle_clock_seconds() - w.begin;
out:
  return status;
}

typedef treadle_status (*take_op)(treadle_carry *c, const treadle_op *op, size_t position,
                                  const treadle_paged *from);

/* Is message `number` of these waves, and has it come? */
static bool is_next_there(const treadle_net_flow *flow, size_t number, int32_t wave) {
  return number < flow->begun && flow->traffic.messages[number].wave <= wave &&
         !flow->requests[number % TREADLE_NET_SLOTS];
}

/* Its bytes are right, and are to go to their places. */
static treadle_status unpack(treadle_carry *c, const treadle_traffic_message *m, char *slot, bool windows,
                             take_op take) {
  treadle_status status = TREADLE_OK;
  const treadle_traffic *traffic = &c->net.in[c->to].traffic;
  const char *bytes;
  treadle_net_parts parts;
  if (windows) find_parts(c, m, slot, &parts);
  TRY(check(c, m, slot, windows ? &parts : NULL, &bytes));
  if (windows) treadle_net_parts_begin(c, m, false, slot, &parts);
  const treadle_paged from = {.base = bytes};
  for (size_t i = 0; i < m->count; i++) {
    const treadle_parcel *parcel = &traffic->parcels[m->first + i];
    const bool lies = windows && treadle_net_parts_add(c, parcel, &parts);
    if (lies)
      c->net.window_bytes +=
          (size_t)parcel->op.elems * treadle_dtype_bytes((treadle_dtype)parcel->op.to_dtype);
    if (parcel->position >= 0) {
      TRY(take(c, &parcel->op, (size_t)parcel->position, lies ? NULL : &from));
    } else {
      const treadle_paged area = treadle_paged_of(c->net.area);
      treadle_copies_add(c, c->net.copies, &parcel->op, &from, &area);
    }
  }
out:
  return status;
}

/* The next messages of waves up to `wave`, as many as are there and are done at once. */
static treadle_status unpack_some(treadle_carry *c, int32_t wave, take_op take) {
  treadle_status status = TREADLE_OK;
  treadle_net_flow *flow = treadle_net_flow_of(c, false);
  const treadle_traffic_message *messages = flow->traffic.messages;
  const double begin = treadle_clock_seconds();
  const size_t most = most_at_once(c);
  size_t end = flow->ended;
  if (!is_next_there(flow, end, wave)) return TREADLE_OK;
  treadle_copies_begin(c->net.copies, false);
  do {
    TRY(unpack(c, &messages[end], treadle_net_slot_of(&c->net, false, end),
               flow->windows[end % TREADLE_NET_SLOTS], take));
    end++;
  } while (end - flow->ended < most && is_next_there(flow, end, wave));
  treadle_copies_ask(c, c->net.copies);
  TRY(c->device->ops->fence(c->device)); /* the slots are free then */
  flow->ended = end;
  c->net.unpack_seconds += treadle_clock_seconds() - begin;
out:
  return status;
}

treadle_status treadle_net_unpack(treadle_carry *c, int32_t wave, take_op take) {
  treadle_status status = TREADLE_OK;
  if (!c->net.running) return TREADLE_OK;
  const treadle_net_flow *flow = treadle_net_flow_of(c, false);
  const treadle_traffic_message *messages = flow->traffic.messages;
  net_wait w = wait_begins(c, false, "messages of other nodes");
  while (flow->ended < flow->traffic.message_count && messages[flow->ended].wave <= wave) {
    const size_t ended = flow->ended;
    TRY(unpack_some(c, wave, take));
    TRY(flow->ended > ended ? treadle_net_move(c) : wait_on(&w));
  }
  c->net.seconds += treadle_clock_seconds() - w.begin;
out:
  return status;
}

treadle_status treadle_net_finish(treadle_carry *c) {
  treadle_status status = TREADLE_OK;
  if (!c->net.running) return TREADLE_OK;
  const treadle_net_flow *flow = treadle_net_flow_of(c, true);
  net_wait w = wait_begins(c, true, "the end of messages");
  while (flow->ended < flow->traffic.message_count) TRY(wait_on(&w));
  c->net.running = false;
  c->net.seconds += treadle_clock_seconds() - w.begin;
out:
  return status;
}

void treadle_net_stop(treadle_carry *c) {
  treadle_net_state *net = &c->net;
  for (int out = 0; net->running && out < 2; out++) {
    treadle_net_flow *flow = treadle_net_flow_of(c, out);
    for (size_t i = flow->ended; i < flow->begun; i++)
      if (flow->requests[i % TREADLE_NET_SLOTS])
        net->ops->cancel(net->net, flow->requests[i % TREADLE_NET_SLOTS]);
    if (out) treadle_net_delta_stop(c);
    memset(flow->requests, 0, sizeof flow->requests);
    flow->begun = flow->ended = 0;
  }
  net->running = false;
  if (net->net) net->ops->close(net->net);
  net->net = NULL;
}
