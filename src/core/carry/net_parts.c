/* Where the bytes of a message lie: behind its head in its slot, or in the windows themselves, from which and into which long rows go without
 * being copied. Each side decides for itself, parcel by parcel: what travels is the same.
 *
 * A parcel lies in the window if that is host memory and the net takes it, none of its values change, it has few rows for its
 * bytes, and the message has room for their parts; and on the side that writes if the wave's pages may be written when the message begins to be received (c->net.open): else it goes to its slot,
 * and is unpacked when its wave is there. */
#include "carry/carry_parts.h"
#include "carry/net.h"

#include "base/hash.h"
#include "plan/runs.h"

enum { LEAST_RUN = 2048 }; /* bytes, where there are several */

void treadle_net_parts_begin(const treadle_carry *c, const treadle_traffic_message *m, bool out, char *slot,
                             treadle_net_parts *parts) {
  const treadle_net_state *net = &c->net;
  const bool fails =
      out ? c->faults.injection.what == TREADLE_INJECT_FLIP : c->faults.planted != TREADLE_FAULT_NONE;
  int most = net->ops->most_parts < TREADLE_NET_PARTS ? net->ops->most_parts : TREADLE_NET_PARTS;
  *parts = (treadle_net_parts){.slot = slot, .out = out, .most = most, .count = 1};
  parts->items[0] = (treadle_net_part){slot, TREADLE_NET_HEAD};
  /* The processor adds up the bytes of both sides. */
  const bool takes = (net->ops->memory & c->device->ops->net_memory) && treadle_device_is_host(c->device);
  parts->windows = takes && !net->delta.on && !fails && (out || m->wave <= net->open);
}

/* The last part goes on where it can, else there is a new one. False: there is no room. */
static bool add(treadle_net_parts *parts, char *at, size_t bytes) {
  treadle_net_part *last = &parts->items[parts->count - 1];
  if ((char *)last->at + last->bytes == at) {
    last->bytes += bytes;
    return true;
  }
  if (parts->count == parts->most) return false;
  parts->items[parts->count++] = (treadle_net_part){at, bytes};
  return true;
}

/* What is read is not written: a part has one kind of address. */
static char *address_of(const treadle_paged *paged, bool out, int64_t at) {
  if (!out) return treadle_paged_into(paged, at);
  union {
    const char *read;
    char *part;
  } address = {.read = treadle_paged_address(paged, at)};
  return address.part;
}

static bool add_run(const treadle_carry *c, treadle_net_parts *parts, int64_t at, int64_t bytes) {
  const treadle_side to = c->to, from = treadle_side_other(to), mode = parts->out ? from : to;
  const int64_t end = at + bytes;
  while (at < end) {
    const treadle_paged paged = treadle_own_view(c, mode, at);
    const int64_t last = treadle_own_until(&c->own.spans[mode], at);
    const int64_t now = treadle_paged_extent(&paged, at, (last < end ? last + 1 : end) - at);
    if (!add(parts, address_of(&paged, parts->out, at), (size_t)now)) return false;
    at += now;
  }
  return true;
}

/* All of its rows, or nothing. A part stays free for what lies in the slot behind them. */
static bool add_rows(const treadle_carry *c, treadle_net_parts *parts, const treadle_op *op) {
  treadle_runs runs;
  const treadle_net_parts before = *parts;
  if (!treadle_runs_of(op, !parts->out, &runs)) return false;
  if (runs.count > 1 && runs.bytes < LEAST_RUN) return false;
  if (runs.count > parts->most - parts->count) return false;
  for (int64_t i = 0; i < runs.count; i++) {
    if (add_run(c, parts, treadle_runs_at(&runs, i), runs.bytes) && parts->count < parts->most) continue;
    *parts = before;
    return false;
  }
  return true;
}

bool treadle_net_parts_add(const treadle_carry *c, const treadle_parcel *parcel, treadle_net_parts *parts) {
  const treadle_op *op = &parcel->op;
  const int64_t at = parts->out ? op->to : op->from;
  const int64_t bytes =
      op->elems * (int64_t)treadle_dtype_bytes((treadle_dtype)(parts->out ? op->to_dtype : op->from_dtype));
  char *behind = parts->slot + TREADLE_NET_HEAD;
  if (at > parts->done) (void)add(parts, behind + parts->done, (size_t)(at - parts->done));
  parts->done = at + bytes;
  bool lies = parts->out ? parcel->position < 0
                         : parcel->position >= 0; /* neither made, nor an input of block rows */
  if (parts->windows && lies && add_rows(c, parts, op)) return true;
  (void)add(parts, behind + at, (size_t)bytes);
  return false;
}

uint64_t treadle_net_parts_sum(const treadle_net_parts *parts) {
  treadle_hash_piece pieces[TREADLE_NET_PARTS];
  size_t count = 0;
  for (int i = 0; i < parts->count; i++) {
    size_t head = i == 0 ? TREADLE_NET_HEAD : 0;
    if (parts->items[i].bytes > head)
      pieces[count++] =
          (treadle_hash_piece){(const char *)parts->items[i].at + head, parts->items[i].bytes - head};
  }
  return treadle_hash_pieces(pieces, count);
}
