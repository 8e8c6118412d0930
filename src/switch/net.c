#include "switch/net.h"

#include "base/clock.h"
#include "base/dtype.h"
#include "base/hash.h"
#include "transport/net.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

enum { MAGIC = 0x7472646e, VERSION = 1 };
static const double PAUSE = 200e-6, LOOK_EVERY = 10e-3, HEARSAY = 0.5; /* seconds */

static bool is_cut(const treadle_switch *sw) { return atomic_load(&sw->group->control->cut) != 0; }

static char *slot_of(const treadle_net_state *net, bool out, size_t number) {
  size_t slot = number % TREADLE_NET_SLOTS + (out ? TREADLE_NET_SLOTS : 0);
  return net->base + slot * (size_t)(net->message_bytes + TREADLE_NET_HEAD);
}

static treadle_net_flow *flow_of(treadle_switch *sw, bool out) {
  return out ? &sw->net.out[sw->net.to] : &sw->net.in[sw->net.to];
}

static uint64_t tag_of(const treadle_switch *sw, const treadle_traffic_message *m) {
  return (sw->net.epoch & 0x7ff) << 28 | (uint64_t)(uint32_t)m->number;
}

/* ---- Heads ---- */

static treadle_net_head head_of(const treadle_switch *sw, const treadle_traffic_message *m, int source,
                                const char *payload) {
  return (treadle_net_head){.magic = MAGIC,
                            .version = VERSION,
                            .job = sw->group->job,
                            .epoch = sw->net.epoch,
                            .digest = sw->plan->digest,
                            .sum = treadle_hash_bytes(payload, (size_t)m->bytes, 0),
                            .bytes = m->bytes,
                            .wave = m->wave,
                            .number = m->number,
                            .source = source,
                            .side = (int32_t)sw->net.to};
}

static treadle_status check_head(const treadle_switch *sw, const treadle_traffic_message *m,
                                 const char *slot) {
  treadle_net_head head;
  memcpy(&head, slot, sizeof head);
  const treadle_net_head wanted = head_of(sw, m, m->peer, slot + sizeof head);
  if (memcmp(&head, &wanted, sizeof head) == 0) return TREADLE_OK;
  const char *what = head.magic != MAGIC || head.version != VERSION ? "is none of this version of treadle"
                     : head.job != wanted.job                       ? "is of another job"
                     : head.epoch != wanted.epoch                   ? "is of another attempt"
                     : head.digest != wanted.digest                 ? "is of another plan"
                     : head.sum != wanted.sum ? "has bytes that have not the sum that it says"
                                              : "is another one than was expected";
  return treadle_fail(TREADLE_PEER,
                      "net: a message of %" PRId64 " bytes from rank %d on node %d, in wave %d, %s",
                      m->bytes, m->peer, (int)sw->group->nodes->of[m->peer], m->wave, what);
}

/* ---- Sending ---- */

/* One byte, on purpose. */
static void flip(treadle_switch *sw, const treadle_traffic_message *m, char *slot) {
  treadle_injection *injection = &sw->faults.injection;
  if (injection->what != TREADLE_INJECT_FLIP || m->wave < injection->wave) return;
  slot[TREADLE_NET_HEAD + m->bytes / 2] ^= 0x10;
  injection->what = TREADLE_INJECT_NOTHING;
}

/* Makes the row of blocks that a parcel has codes or scales of, unless it is at hand, and says where they lie. */
static treadle_paged make(treadle_switch *sw, treadle_mode old, const treadle_parcel *parcel) {
  treadle_net_state *net = &sw->net;
  const treadle_ordered *ordered = &flow_of(sw, true)->ordered;
  const treadle_block_row *block_row = &ordered->list.items[parcel->position].block_row;
  if (net->made != parcel->position)
    treadle_switch_block_rows_order(sw, old, block_row, ordered->parts.items + block_row->part_first,
                                    &net->scratch);
  net->made = parcel->position;
  bool codes = parcel->op.from_dtype == TREADLE_FP8_E4M3;
  return treadle_paged_of(codes ? (void *)net->scratch.codes : net->scratch.scales);
}

static treadle_status pack(treadle_switch *sw, const treadle_traffic_message *m, char *slot) {
  const treadle_traffic *traffic = &sw->net.out[sw->net.to].traffic;
  treadle_mode old = sw->net.to == TREADLE_INFER ? TREADLE_TRAIN : TREADLE_INFER;
  const treadle_paged to = treadle_paged_of(slot + TREADLE_NET_HEAD);
  for (size_t i = 0; i < m->count; i++) {
    const treadle_parcel *parcel = &traffic->parcels[m->first + i];
    const treadle_op *op = &parcel->op;
    const treadle_paged from =
        parcel->position >= 0 ? make(sw, old, parcel) : treadle_own_view(sw, old, op->from);
    sw->device.ops->copy(&sw->device, op, &from, &to);
    sw->net.sent_bytes += (size_t)op->elems * treadle_dtype_bytes((treadle_dtype)op->to_dtype);
  }
  sw->device.ops->fence(&sw->device);
  const treadle_net_head head = head_of(sw, m, sw->group->rank, slot + TREADLE_NET_HEAD);
  memcpy(slot, &head, sizeof head);
  flip(sw, m, slot);
  return TREADLE_OK;
}

static treadle_status send_some(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  treadle_net_state *net = &sw->net;
  treadle_net_flow *flow = flow_of(sw, true);
  while (flow->begun < flow->traffic.message_count && flow->begun - flow->ended < TREADLE_NET_SLOTS) {
    const treadle_traffic_message *m = &flow->traffic.messages[flow->begun];
    char *slot = slot_of(net, true, flow->begun);
    const treadle_net_part part = {slot, (size_t)m->bytes + TREADLE_NET_HEAD};
    TRY(pack(sw, m, slot));
    TRY(net->ops->send(net->net, m->peer, tag_of(sw, m), &part, 1,
                       &flow->requests[flow->begun % TREADLE_NET_SLOTS]));
    flow->begun++;
  }
out:
  return status;
}

static treadle_status receive_some(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  treadle_net_state *net = &sw->net;
  treadle_net_flow *flow = flow_of(sw, false);
  while (flow->begun < flow->traffic.message_count && flow->begun - flow->ended < TREADLE_NET_SLOTS) {
    const treadle_traffic_message *m = &flow->traffic.messages[flow->begun];
    const treadle_net_part part = {slot_of(net, false, flow->begun), (size_t)m->bytes + TREADLE_NET_HEAD};
    TRY(net->ops->receive(net->net, m->peer, tag_of(sw, m), &part, 1,
                          &flow->requests[flow->begun % TREADLE_NET_SLOTS]));
    flow->begun++;
  }
out:
  return status;
}

/* Tests what is under way: a request that has ended is NULL. */
static treadle_status test_some(treadle_switch *sw, treadle_net_flow *flow) {
  treadle_status status = TREADLE_OK;
  for (size_t i = flow->ended; i < flow->begun; i++) {
    void **request = &flow->requests[i % TREADLE_NET_SLOTS];
    bool done = false;
    if (!*request) continue;
    status = sw->net.ops->test(sw->net.net, *request, &done);
    if (done || status != TREADLE_OK) *request = NULL;
    if (status != TREADLE_OK) break;
  }
  return status;
}

bool treadle_net_is_busy(const treadle_switch *sw) { return sw->net.running; }

/* A peer that cannot be reached may be one that has failed, and says why a moment later by its courier. */
static treadle_status explain(treadle_switch *sw, treadle_status status) {
  char message[TREADLE_GROUP_MESSAGE];
  double end = treadle_clock_seconds() +
               (sw->group->timeout_seconds < 10 * HEARSAY ? sw->group->timeout_seconds / 10 : HEARSAY);
  snprintf(message, sizeof message, "%s", treadle_error_message());
  while (treadle_clock_seconds() < end) {
    treadle_status said = treadle_epoch_check(sw, sw->net.epoch);
    if (said != TREADLE_OK) return said;
    nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
  }
  return treadle_fail(status, "%s", message);
}

static treadle_status move(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  treadle_net_flow *out = flow_of(sw, true);
  TRY(test_some(sw, out));
  while (out->ended < out->begun && !out->requests[out->ended % TREADLE_NET_SLOTS]) out->ended++;
  TRY(send_some(sw));
  TRY(receive_some(sw));
  TRY(test_some(sw, flow_of(sw, false)));
out:
  return status;
}

treadle_status treadle_net_move(treadle_switch *sw) {
  if (!sw->net.running || is_cut(sw)) return TREADLE_OK;
  treadle_status status = move(sw);
  return status == TREADLE_PEER ? explain(sw, status) : status;
}

void treadle_net_pause(treadle_switch *sw) {
  if (!sw->net.running) return;
  if (is_cut(sw))
    nanosleep(&(struct timespec){.tv_nsec = (long)(PAUSE * 1e9)}, NULL);
  else
    sw->net.ops->wait(sw->net.net, PAUSE);
}

/* ---- Waves ---- */

void treadle_net_begin(treadle_switch *sw, treadle_mode to, uint64_t epoch) {
  treadle_net_state *net = &sw->net;
  if (!net->net) return;
  net->to = to;
  net->epoch = epoch;
  net->running = true;
  net->sent_bytes = 0;
  net->seconds = 0;
  net->made = -1;
  for (int out = 0; out < 2; out++) flow_of(sw, out)->begun = flow_of(sw, out)->ended = 0;
}

/* Waits until `is_done`; the rank that is waited for is the peer of the first message that is not done. */
typedef struct net_wait {
  treadle_switch *sw;
  treadle_net_flow *flow;
  const char *what;
  double begin, next_look, deadline;
  size_t seen; /* messages that had ended when something last did */
} net_wait;

static net_wait wait_begins(treadle_switch *sw, bool out, const char *what) {
  double now = treadle_clock_seconds();
  treadle_net_flow *flow = flow_of(sw, out);
  return (net_wait){sw, flow, what, now, now + LOOK_EVERY, now + sw->group->timeout_seconds, flow->ended};
}

/* One turn of a wait. The time limit is of a message, not of all. */
static treadle_status wait_on(net_wait *w) {
  treadle_status status = TREADLE_OK;
  treadle_switch *sw = w->sw;
  TRY(treadle_net_move(sw));
  TRY(treadle_epoch_check(sw, sw->net.epoch));
  treadle_net_pause(sw);
  double now = treadle_clock_seconds();
  if (w->flow->ended != w->seen) {
    w->seen = w->flow->ended;
    w->deadline = now + sw->group->timeout_seconds;
  }
  if (now < w->next_look || w->flow->ended == w->flow->traffic.message_count) return TREADLE_OK;
  w->next_look = now + LOOK_EVERY;
  int peer = w->flow->traffic.messages[w->flow->ended].peer;
  TRY(treadle_group_look(sw->group, peer, w->what));
  if (now > w->deadline)
    status = treadle_fail(TREADLE_TIMEOUT, "%s: waited %.1f s for rank %d on node %d", w->what,
                          sw->group->timeout_seconds, peer, (int)sw->group->nodes->of[peer]);
out:
  return status;
}

treadle_status treadle_net_pack(treadle_switch *sw, int32_t wave) {
  treadle_status status = TREADLE_OK;
  if (!sw->net.running || wave < 0) return TREADLE_OK;
  const treadle_net_flow *flow = flow_of(sw, true);
  net_wait w = wait_begins(sw, true, "messages that read what is to be written");
  while (flow->begun < flow->traffic.message_count && flow->traffic.messages[flow->begun].wave <= wave)
    TRY(wait_on(&w));
  sw->net.seconds += treadle_clock_seconds() - w.begin;
out:
  return status;
}

typedef treadle_status (*take_op)(treadle_switch *sw, const treadle_op *op, size_t position,
                                  const treadle_paged *from);

static treadle_status unpack(treadle_switch *sw, const treadle_traffic_message *m, const char *slot,
                             take_op take) {
  treadle_status status = TREADLE_OK;
  const treadle_traffic *traffic = &sw->net.in[sw->net.to].traffic;
  const treadle_paged from = {.base = slot + TREADLE_NET_HEAD};
  TRY(check_head(sw, m, slot));
  for (size_t i = 0; i < m->count; i++) {
    const treadle_parcel *parcel = &traffic->parcels[m->first + i];
    if (parcel->position >= 0) {
      TRY(take(sw, &parcel->op, (size_t)parcel->position, &from));
    } else {
      const treadle_paged area = treadle_paged_of(sw->net.area);
      sw->device.ops->copy(&sw->device, &parcel->op, &from, &area);
    }
  }
out:
  return status;
}

treadle_status treadle_net_unpack(treadle_switch *sw, int32_t wave, take_op take) {
  treadle_status status = TREADLE_OK;
  if (!sw->net.running) return TREADLE_OK;
  treadle_net_flow *flow = flow_of(sw, false);
  const treadle_traffic_message *messages = flow->traffic.messages;
  net_wait w = wait_begins(sw, false, "messages of other nodes");
  while (flow->ended < flow->traffic.message_count && messages[flow->ended].wave <= wave) {
    if (flow->ended < flow->begun && !flow->requests[flow->ended % TREADLE_NET_SLOTS]) {
      TRY(unpack(sw, &messages[flow->ended], slot_of(&sw->net, false, flow->ended), take));
      flow->ended++;
      TRY(treadle_net_move(sw));
    } else {
      TRY(wait_on(&w));
    }
  }
  sw->net.seconds += treadle_clock_seconds() - w.begin;
out:
  return status;
}

treadle_status treadle_net_finish(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  if (!sw->net.running) return TREADLE_OK;
  const treadle_net_flow *flow = flow_of(sw, true);
  net_wait w = wait_begins(sw, true, "the end of messages");
  while (flow->ended < flow->traffic.message_count) TRY(wait_on(&w));
  sw->net.running = false;
  sw->net.seconds += treadle_clock_seconds() - w.begin;
out:
  return status;
}

void treadle_net_stop(treadle_switch *sw) {
  treadle_net_state *net = &sw->net;
  for (int out = 0; net->running && out < 2; out++) {
    treadle_net_flow *flow = flow_of(sw, out);
    for (size_t i = flow->ended; i < flow->begun; i++)
      if (flow->requests[i % TREADLE_NET_SLOTS])
        net->ops->cancel(net->net, flow->requests[i % TREADLE_NET_SLOTS]);
    memset(flow->requests, 0, sizeof flow->requests);
    flow->begun = flow->ended = 0;
  }
  net->running = false;
  if (net->net) net->ops->close(net->net);
  net->net = NULL;
}
