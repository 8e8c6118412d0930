/* The net is opened, and closed again after each attempt that failed: then nothing of it can come later. All ranks are in each epoch, so all
 * have closed it when the next one begins; there they tell each other their new addresses.
 *
 * What a rank sends it finds from the layouts, as its readers find what they read (messages/sends.h, messages/parcels.h): nothing is said about it. */
#include "switch/net.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/larger.h"
#include "net/net.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { LEAST = 64 };

static treadle_status no_memory(void) { return treadle_fail(TREADLE_NO_MEMORY, "switch: memory is out"); }

static bool is_one_node(const treadle_switch *sw) { return treadle_group_node_count(sw->group) == 1; }

/* ---- Staging ---- */

/* Of slots for messages of this many bytes, in whole pages. */
static int64_t staging_of(const treadle_switch *sw, int64_t message) {
  int64_t page = (int64_t)treadle_switch_page_bytes(&sw->terms.options);
  return (2 * TREADLE_NET_SLOTS * (message + TREADLE_NET_HEAD) + page - 1) / page * page;
}

int64_t treadle_net_slots_bytes(const treadle_switch *sw) {
  return sw->net.message_bytes ? staging_of(sw, sw->net.message_bytes) : 0;
}

int64_t treadle_net_area_bytes(const treadle_switch *sw) {
  int64_t page = (int64_t)treadle_switch_page_bytes(&sw->terms.options);
  int64_t bytes = sw->net.in[TREADLE_INFER].inputs.bytes, back = sw->net.in[TREADLE_TRAIN].inputs.bytes;
  bool goes_back = treadle_switch_rebuilds(sw) && !sw->terms.options.one_way;
  if (goes_back && back > bytes) bytes = back;
  return (bytes + page - 1) / page * page;
}

int64_t treadle_net_least(const treadle_switch *sw, bool most) {
  return is_one_node(sw) ? 0 : staging_of(sw, most ? TREADLE_NET_MESSAGE : LEAST);
}

void treadle_net_choose(treadle_switch *sw, int64_t spare) {
  if (is_one_node(sw)) return;
  int64_t page = (int64_t)treadle_switch_page_bytes(&sw->terms.options);
  int64_t bytes = (spare / page * page / (2 * TREADLE_NET_SLOTS) - TREADLE_NET_HEAD) / LEAST * LEAST;
  sw->net.message_bytes = bytes < LEAST ? LEAST : bytes < TREADLE_NET_MESSAGE ? bytes : TREADLE_NET_MESSAGE;
}

treadle_status treadle_net_map(treadle_switch *sw) {
  const treadle_page_tables *tables = &sw->space.tables;
  int64_t own = treadle_staging_bytes(sw) / sw->plan->page_bytes;
  void *base = NULL;
  if (is_one_node(sw)) return TREADLE_OK;
  treadle_status status =
      sw->device.ops->map(sw->space.pool, tables->staging + own, tables->staging_pages - own, &base);
  sw->net.base = base;
  sw->stats.net_staging_bytes = (size_t)(treadle_net_slots_bytes(sw) + treadle_net_area_bytes(sw));
  return status;
}

/* ---- Plans ---- */

static treadle_direction *direction_of(treadle_switch *sw, int side) {
  return side == TREADLE_INFER ? &sw->plan->forward : &sw->plan->back;
}

treadle_status treadle_net_split(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  const treadle_far_input_sources sources = {sw->group->nodes, sw->group->rank};
  for (int side = 0; side < 2; side++) treadle_far_inputs_release(&sw->net.in[side].inputs);
  if (is_one_node(sw)) return TREADLE_OK;
  for (int side = 0; side < 2; side++) {
    treadle_direction *direction = direction_of(sw, side);
    TRY(treadle_far_inputs_make(direction, sw->plan->waves, &sources, &sw->net.in[side].inputs));
    if (direction->ops.count == 0) continue;
    TRY(treadle_parcels_split(direction, sw->plan->waves, sw->group->rank, sw->group->nodes,
                              sw->net.message_bytes));
  }
out:
  return status;
}

/* ---- Opening ---- */

/* What a rank says of its net. */
typedef struct net_words {
  int32_t status; /* not TREADLE_OK: it has none; the text says why */
  uint32_t bytes; /* of its address */
  uint64_t base;  /* of what it keeps (net_delta.c) */
  char text[TREADLE_GROUP_MESSAGE];
  char name[32]; /* of its row */
  char address[2048];
} net_words;

static treadle_status open_net(treadle_switch *sw, net_words *words) {
  treadle_status status = TREADLE_OK;
  treadle_net_state *net = &sw->net;
  const treadle_switch_options *o = &sw->terms.options;
  size_t bytes;
  if (net->net) return TREADLE_OK;
  if (!net->ops) net->ops = sw->group->net_ops;
  if (!net->ops) net->ops = &treadle_net_tcp;
  const treadle_net_options options = {.struct_size = sizeof options,
                                       .rank = sw->group->rank,
                                       .ranks = sw->group->size,
                                       .devices = o->net_devices,
                                       .host = sw->group->host,
                                       .context = sw->group->net_context};
  snprintf(words->name, sizeof words->name, "%s", net->ops->name);
  TRY(net->ops->open(&options, &net->net));
  TRY(net->ops->address(net->net, words->address, sizeof words->address, &bytes));
  words->bytes = (uint32_t)bytes;
out:
  return status;
}

void treadle_net_say(treadle_switch *sw, void *room) {
  net_words *words = room;
  _Static_assert(sizeof *words <= TREADLE_GROUP_PAYLOAD, "what is said fits");
  if (is_one_node(sw) || !sw->net.talks) return;
  memset(words, 0, sizeof *words);
  sw->net.is_new = !sw->net.net;
  treadle_status status = open_net(sw, words);
  words->base = sw->net.delta.base;
  words->status = status;
  if (status != TREADLE_OK) snprintf(words->text, sizeof words->text, "%s", treadle_error_message());
}

treadle_status treadle_net_hear(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  treadle_net_state *net = &sw->net;
  if (is_one_node(sw) || !net->talks) return TREADLE_OK;
  for (int rank = 0; rank < sw->group->size;
       rank++) { /* first of all: this rank may be the one that has none */
    const net_words *words = treadle_group_said(sw->group, rank);
    if (words->status != TREADLE_OK)
      TRY(treadle_fail((treadle_status)words->status, "rank %d: %.*s", rank, (int)sizeof words->text - 1,
                       words->text));
  }
  for (int rank = 0; rank < sw->group->size; rank++) {
    const net_words *words = treadle_group_said(sw->group, rank);
    bool is_new = words->bytes > 0;
    if (net->delta.shares) net->delta.shares[rank] = net->delta.base != 0 && words->base == net->delta.base;
    if (rank != sw->group->rank && is_new != net->is_new)
      TRY(treadle_fail(TREADLE_PEER, "rank %d has %s net, and rank %d %s", rank,
                       is_new ? "a new" : "its old", sw->group->rank,
                       net->is_new ? "a new one" : "its old one"));
    if (is_new && strncmp(words->name, net->ops->name, sizeof words->name - 1) != 0)
      TRY(treadle_fail(TREADLE_DIFFERENT, "rank %d has net %.*s, and rank %d net %s: all need the same",
                       rank, (int)sizeof words->name - 1, words->name, sw->group->rank, net->ops->name));
    if (!is_new || !net->peers[rank]) continue;
    if (words->bytes > sizeof words->address)
      TRY(treadle_fail(TREADLE_PEER, "rank %d has said an address of %" PRIu32 " bytes", rank,
                       words->bytes));
    TRY(net->ops->connect(net->net, rank, words->address, words->bytes));
  }
out:
  return status;
}

static treadle_status meet(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  net_words words;
  treadle_net_say(sw, &words);
  TRY(treadle_group_say(sw->group, &words, sizeof words));
  TRY(treadle_group_agree(sw->group, treadle_net_hear(sw)));
out:
  return status;
}

/* ---- Messages ---- */

static void release_traffic(treadle_switch *sw) {
  treadle_free(sw->net.peers);
  sw->net.peers = NULL;
  for (int side = 0; side < 2; side++) {
    treadle_traffic_release(&sw->net.in[side].traffic);
    treadle_traffic_release(&sw->net.out[side].traffic);
    treadle_ordered_release(&sw->net.out[side].ordered);
  }
  treadle_scratch_release(sw, &sw->net.scratch);
}

static void note_peers(treadle_switch *sw, const treadle_traffic *traffic) {
  for (size_t i = 0; i < traffic->message_count; i++) sw->net.peers[traffic->messages[i].peer] = 1;
}

/* For what others have ordered. */
static treadle_status make_scratch(treadle_switch *sw) {
  const treadle_ordered *a = &sw->net.out[0].ordered, *b = &sw->net.out[1].ordered;
  if (a->list.count + b->list.count == 0) return TREADLE_OK;
  return treadle_scratch_create(sw, treadle_larger(a->scratch_bytes, b->scratch_bytes),
                                treadle_larger(a->scratch_codes, b->scratch_codes),
                                treadle_larger(a->scratch_scales, b->scratch_scales), &sw->net.scratch);
}

treadle_status treadle_net_traffic(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  treadle_sends sends = {0};
  treadle_net_state *net = &sw->net;
  if (net->peers || is_one_node(sw)) return TREADLE_OK;
  net->peers = treadle_alloc_array((size_t)sw->group->size, sizeof *net->peers);
  if (!net->peers) return no_memory();
  for (int side = 0; side < 2; side++) {
    bool back = side == TREADLE_TRAIN;
    treadle_ordered *ordered = &net->out[side].ordered;
    TRY(treadle_traffic_in(direction_of(sw, side), &net->in[side].inputs, sw->group->rank, sw->group->nodes,
                           net->message_bytes, &net->in[side].traffic));
    TRY(treadle_sends_make(sw->plan, back, &sends));
    TRY(treadle_ordered_begin(sw->plan, back, ordered));
    TRY(treadle_traffic_out(&sends, ordered, sw->group->rank, sw->group->nodes, net->message_bytes,
                            &net->out[side].traffic));
    treadle_ordered_end(ordered);
    treadle_sends_release(&sends);
    note_peers(sw, &net->in[side].traffic);
    note_peers(sw, &net->out[side].traffic);
  }
  TRY(make_scratch(sw));
out:
  treadle_sends_release(&sends);
  if (status != TREADLE_OK) release_traffic(sw);
  return status;
}

/* A switch that goes to another group keeps its pages. */
static treadle_status check_slots(const treadle_switch *sw) {
  int64_t needed = treadle_net_slots_bytes(sw) + treadle_net_area_bytes(sw);
  if (sw->net.base && needed <= (int64_t)sw->stats.net_staging_bytes) return TREADLE_OK;
  return treadle_fail(
      TREADLE_REFUSED,
      "switch: rank %d has %zu bytes of staging for messages between nodes, and a group on %d "
      "nodes needs %" PRId64 ": make a new switch",
      sw->group->rank, sw->net.base ? sw->stats.net_staging_bytes : 0, treadle_group_node_count(sw->group),
      needed);
}

treadle_status treadle_net_arrange(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  if (is_one_node(sw)) return TREADLE_OK;
  TRY(treadle_group_agree(sw->group, check_slots(sw)));
  TRY(treadle_group_agree(sw->group, treadle_net_traffic(sw)));
  TRY(treadle_group_agree(sw->group, treadle_net_delta_arrange(sw)));
  sw->net.area = sw->net.base + treadle_net_slots_bytes(sw);
  sw->net.talks = true;
  TRY(meet(sw));
out:
  if (status != TREADLE_OK) treadle_net_stop(sw);
  return status;
}

void treadle_net_release(treadle_switch *sw) {
  treadle_net_stop(sw);
  treadle_net_delta_leave(sw);
  release_traffic(sw);
  for (int side = 0; side < 2; side++) treadle_far_inputs_release(&sw->net.in[side].inputs);
  sw->net.talks = false;
}
