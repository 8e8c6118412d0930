/* The net is opened, and closed again after each attempt that failed: then nothing of it can come later. All ranks are in each epoch, so all
 * have closed it when the next one begins; there they tell each other their new addresses.
 *
 * What a rank sends it finds from the layouts, as its readers find what they read (messages/sends.h, messages/parcels.h): nothing is said about it. */
#include "carry/carry_parts.h"
#include "carry/net.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/larger.h"
#include "memory/host.h"
#include "net/net.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool is_one_node(const treadle_carry *c) { return treadle_group_node_count(c->group) == 1; }

/* ---- Memory ---- */

enum {
  SLOTS = 2 * TREADLE_NET_SLOTS * (TREADLE_NET_MESSAGE + TREADLE_NET_HEAD)
}; /* bytes, of both sides */

size_t treadle_net_bytes(const treadle_carry *c) {
  const int64_t to = c->net.in[TREADLE_SIDE_INFER].inputs.bytes,
                back = c->terms.goes_back ? c->net.in[TREADLE_SIDE_TRAIN].inputs.bytes : 0;
  return is_one_node(c) ? 0 : SLOTS + (size_t)(to > back ? to : back);
}

/* A switch that goes to another group keeps its memory where that is enough. */
static treadle_status make_memory(treadle_carry *c) {
  const size_t bytes = treadle_net_bytes(c);
  if (bytes > c->net.bytes) {
    treadle_net_memory_release(c);
    c->net.base = treadle_host_pinned(c->device, bytes, "messages of other nodes");
    if (!c->net.base) return TREADLE_NO_MEMORY;
    c->net.bytes = c->figures->net_staging_bytes = bytes;
  }
  c->net.area = c->net.base + SLOTS;
  return TREADLE_OK;
}

void treadle_net_memory_release(treadle_carry *c) {
  treadle_host_unpinned(c->device, c->net.base, c->net.bytes);
  c->net.base = c->net.area = NULL;
  c->net.bytes = c->figures->net_staging_bytes = 0;
}

/* ---- Plans ---- */

static treadle_direction *direction_of(treadle_carry *c, int side) {
  return side == TREADLE_SIDE_INFER ? &c->plan->forward : &c->plan->back;
}

treadle_status treadle_net_split(treadle_carry *c) {
  treadle_status status = TREADLE_OK;
  const treadle_far_input_sources sources = {c->group->nodes, c->group->rank};
  for (int side = 0; side < 2; side++) treadle_far_inputs_release(&c->net.in[side].inputs);
  if (is_one_node(c)) return TREADLE_OK;
  for (int side = 0; side < 2; side++) {
    treadle_direction *direction = direction_of(c, side);
    TRY(treadle_far_inputs_make(direction, c->plan->waves, &sources, &c->net.in[side].inputs));
    if (direction->ops.count == 0) continue;
    TRY(treadle_parcels_split(direction, c->plan->waves, c->group->rank, c->group->nodes,
                              TREADLE_NET_MESSAGE));
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

static treadle_status open_net(treadle_carry *c, net_words *words) {
  treadle_status status = TREADLE_OK;
  treadle_net_state *net = &c->net;
  size_t bytes;
  if (net->net) return TREADLE_OK;
  if (!net->ops) net->ops = c->group->net_ops;
  if (!net->ops) net->ops = &treadle_net_tcp;
  const treadle_net_options options = {.struct_size = sizeof options,
                                       .rank = c->group->rank,
                                       .ranks = c->group->size,
                                       .devices = c->terms.net_devices,
                                       .host = c->group->host,
                                       .context = c->group->net_context};
  snprintf(words->name, sizeof words->name, "%s", net->ops->name);
  TRY(net->ops->open(&options, &net->net));
  TRY(net->ops->address(net->net, words->address, sizeof words->address, &bytes));
  words->bytes = (uint32_t)bytes;
out:
  return status;
}

void treadle_net_say(treadle_carry *c, void *room) {
  net_words *words = room;
  _Static_assert(sizeof *words <= TREADLE_GROUP_PAYLOAD, "what is said fits");
  if (is_one_node(c) || !c->net.talks) return;
  memset(words, 0, sizeof *words);
  c->net.is_new = !c->net.net;
  treadle_status status = open_net(c, words);
  words->base = c->net.delta.base;
  words->status = status;
  if (status != TREADLE_OK) snprintf(words->text, sizeof words->text, "%s", treadle_error_message());
}

treadle_status treadle_net_hear(treadle_carry *c) {
  treadle_status status = TREADLE_OK;
  treadle_net_state *net = &c->net;
  if (is_one_node(c) || !net->talks) return TREADLE_OK;
  for (int rank = 0; rank < c->group->size;
       rank++) { /* first of all: this rank may be the one that has none */
    const net_words *words = treadle_group_said(c->group, rank);
    if (words->status != TREADLE_OK)
      TRY(treadle_fail((treadle_status)words->status, "rank %d: %.*s", rank, (int)sizeof words->text - 1,
                       words->text));
  }
  for (int rank = 0; rank < c->group->size; rank++) {
    const net_words *words = treadle_group_said(c->group, rank);
    bool is_new = words->bytes > 0;
    if (net->delta.shares) net->delta.shares[rank] = net->delta.base != 0 && words->base == net->delta.base;
    if (rank != c->group->rank && is_new != net->is_new)
      TRY(treadle_fail(TREADLE_PEER, "rank %d has %s net, and rank %d %s", rank,
                       is_new ? "a new" : "its old", c->group->rank,
                       net->is_new ? "a new one" : "its old one"));
    if (is_new && strncmp(words->name, net->ops->name, sizeof words->name - 1) != 0)
      TRY(treadle_fail(TREADLE_DIFFERENT, "rank %d has net %.*s, and rank %d net %s: all need the same",
                       rank, (int)sizeof words->name - 1, words->name, c->group->rank, net->ops->name));
    if (!is_new || !net->peers[rank]) continue;
    if (words->bytes > sizeof words->address)
      TRY(treadle_fail(TREADLE_PEER, "rank %d has said an address of %" PRIu32 " bytes", rank,
                       words->bytes));
    TRY(net->ops->connect(net->net, rank, words->address, words->bytes));
  }
out:
  return status;
}

static treadle_status meet(treadle_carry *c) {
  treadle_status status = TREADLE_OK;
  net_words words;
  treadle_net_say(c, &words);
  TRY(treadle_group_say(c->group, &words, sizeof words));
  TRY(treadle_group_agree(c->group, treadle_net_hear(c)));
out:
  return status;
}

/* ---- Messages ---- */

static void release_traffic(treadle_carry *c) {
  treadle_free(c->net.peers);
  c->net.peers = NULL;
  for (int side = 0; side < 2; side++) {
    treadle_traffic_release(&c->net.in[side].traffic);
    treadle_traffic_release(&c->net.out[side].traffic);
    treadle_ordered_release(&c->net.out[side].ordered);
  }
  treadle_scratch_release(c->device, &c->net.scratch);
}

static void note_peers(treadle_carry *c, const treadle_traffic *traffic) {
  for (size_t i = 0; i < traffic->message_count; i++) c->net.peers[traffic->messages[i].peer] = 1;
}

/* For what others have ordered. */
static treadle_status make_scratch(treadle_carry *c) {
  const treadle_ordered *a = &c->net.out[0].ordered, *b = &c->net.out[1].ordered;
  if (a->list.count + b->list.count == 0) return TREADLE_OK;
  return treadle_scratch_create(c->device, treadle_larger(a->scratch_bytes, b->scratch_bytes),
                                treadle_larger(a->scratch_codes, b->scratch_codes),
                                treadle_larger(a->scratch_scales, b->scratch_scales), 1, &c->net.scratch);
}

treadle_status treadle_net_traffic(treadle_carry *c) {
  treadle_status status = TREADLE_OK;
  treadle_sends sends = {0};
  treadle_net_state *net = &c->net;
  if (net->peers || is_one_node(c)) return TREADLE_OK;
  net->peers = treadle_alloc_array((size_t)c->group->size, sizeof *net->peers);
  if (!net->peers) return treadle_memory_is_out();
  for (int side = 0; side < 2; side++) {
    bool back = side == TREADLE_SIDE_TRAIN;
    treadle_ordered *ordered = &net->out[side].ordered;
    TRY(treadle_traffic_in(direction_of(c, side), &net->in[side].inputs, c->group->rank, c->group->nodes,
                           TREADLE_NET_MESSAGE, &net->in[side].traffic));
    TRY(treadle_sends_make(c->plan, back, &sends));
    TRY(treadle_ordered_begin(c->plan, back, ordered));
    TRY(treadle_traffic_out(&sends, ordered, c->group->rank, c->group->nodes, TREADLE_NET_MESSAGE,
                            &net->out[side].traffic));
    treadle_ordered_end(ordered);
    treadle_sends_release(&sends);
    note_peers(c, &net->in[side].traffic);
    note_peers(c, &net->out[side].traffic);
  }
  TRY(make_scratch(c));
out:
  treadle_sends_release(&sends);
  if (status != TREADLE_OK) release_traffic(c);
  return status;
}

treadle_status treadle_net_arrange(treadle_carry *c) {
  treadle_status status = TREADLE_OK;
  if (is_one_node(c)) return TREADLE_OK;
  TRY(treadle_group_agree(c->group, make_memory(c)));
  TRY(treadle_group_agree(c->group, treadle_net_traffic(c)));
  TRY(treadle_group_agree(c->group, treadle_net_delta_arrange(c)));
  c->net.talks = true;
  TRY(meet(c));
out:
  if (status != TREADLE_OK) treadle_net_stop(c);
  return status;
}

void treadle_net_release(treadle_carry *c) {
  treadle_net_stop(c);
  treadle_net_delta_leave(c);
  release_traffic(c);
  for (int side = 0; side < 2; side++) treadle_far_inputs_release(&c->net.in[side].inputs);
  c->net.talks = false;
}
