/* Any bytes as what a rank receives of other nodes in a switch: its messages, whole or in two parts (carry/net.h). The reader is a carry made by
 * hand, with messages of four kinds; a net plays their sources.
 *
 *   first byte  bit 0: bytes go into slots as they are; else they script messages whose heads and sums are right, and maybe spoilt in one bit
 *               bit 1: rank 0 shares the base; bit 2: so does rank 2; bit 3: the window was written since
 *               bit 4: nothing is kept, and what can be goes right into the window
 *
 * The scripts' messages that are right are taken, to the last bit as the test itself applies them; what is spoilt is refused, and a message
 * that was refused has written nothing, but for what goes right into the window. */
#include "carry/net.h"

#include "base/hash.h"
#include "move/delta.h"
#include "must.h"
#include "net/net.h"
#include "plan/plan.h"

#include <sanitizer/asan_interface.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

enum { RANK = 1, RANKS = 3, JOB = 77, EPOCH = 5, DIGEST = 99, MESSAGES = 4, PARCELS = 5, RUNS = 2 };
enum { PARTS = 8, MOST = 128, WINDOW = 512, AREA = 64, MAGIC = 0x7472646e, VERSION = 1 };

/* Of a message: elements of one size, one behind the other. */
typedef struct run_of {
  size_t count, each;
} run_of;

static const struct {
  int peer, wave, number;
  size_t first, count; /* parcels */
  int64_t bytes;
  run_of runs[RUNS];
} plans[MESSAGES] = {{0, 0, 0, 0, 1, 128, {{64, 2}}},       /* lies in the window as it comes */
                     {2, 0, 0, 1, 2, 24, {{9, 1}, {3, 4}}}, /* codes, zeros, scales */
                     {0, 0, 1, 3, 1, 64, {{16, 4}}},        /* goes to the area, and is kept */
                     {2, 1, 1, 4, 1, 32, {{16, 2}}}};       /* becomes fp32, and is kept */

static treadle_op op_of(treadle_dtype from_dtype, treadle_dtype to_dtype, int64_t elems, int64_t from,
                        int64_t to) {
  int64_t from_each = (int64_t)treadle_dtype_bytes(from_dtype),
          to_each = (int64_t)treadle_dtype_bytes(to_dtype);
  return (treadle_op){.source = 0,
                      .ndim = 1,
                      .from_dtype = (uint8_t)from_dtype,
                      .to_dtype = (uint8_t)to_dtype,
                      .from = from,
                      .to = to,
                      .size = {elems},
                      .from_stride = {from_each},
                      .to_stride = {to_each},
                      .elems = elems};
}

typedef struct reader {
  treadle_nodes nodes;
  treadle_group group;
  treadle_plan plan;
  treadle_paged paged[RANKS];
  treadle_switch_stats figures;
  treadle_traffic_message messages[MESSAGES];
  treadle_parcel parcels[PARCELS];
  treadle_carry carry;
  treadle_copies copies;
  char window[WINDOW], area[AREA];
  size_t taken; /* parcels */
} reader;

static reader r;

/* ---- The net ---- */

/* What is received: a message, or its second part. */
typedef struct request {
  size_t message, bytes;
  bool second, begun;
  int count;
  treadle_net_part parts[PARTS];
} request;

static struct {
  const uint8_t *bytes;
  size_t left;
  bool raw;
  request requests[MESSAGES][2];
  char behind[MESSAGES][MOST]; /* what a script sends behind a head, */
  size_t behind_bytes[MESSAGES];
  bool spoilt[MESSAGES];
  char wanted[MESSAGES][MOST]; /* and what the message is then, dense */
} source;

static char base[MESSAGES][MOST]; /* what each was before, */
static char held[MESSAGES][MOST]; /* and what the reader has of that */

static size_t take_bytes(void *to, size_t most) {
  size_t count = source.left < most ? source.left : most;
  memcpy(to, source.bytes, count);
  source.bytes += count;
  source.left -= count;
  return count;
}

static unsigned take_byte(void) {
  uint8_t byte = 0;
  (void)take_bytes(&byte, 1);
  return byte;
}

static bool is_shared(int peer) { return r.carry.net.delta.on && r.carry.net.delta.shares[peer]; }

/* Applies what is behind a head to the message as it was. False: it cannot be. */
static bool apply(size_t message, const char *from, size_t bytes, char *values) {
  size_t at = 0, to = 0;
  for (int i = 0; i < RUNS && bytes > 0 && plans[message].runs[i].count; i++) {
    const run_of run = plans[message].runs[i];
    uint32_t length;
    if (bytes - at < sizeof length) return false;
    memcpy(&length, from + at, sizeof length);
    at += sizeof length;
    if (i) to = (to + run.each - 1) / run.each * run.each;
    if (length > bytes - at ||
        treadle_delta_apply(from + at, length, run.count, run.each, values + to) != TREADLE_OK)
      return false;
    at += length;
    to += run.count * run.each;
  }
  return at == bytes;
}

/* What the message will be; false: it must be refused. */
static bool foresee(size_t message, const char *from, size_t bytes) {
  char there[MOST];
  memcpy(source.wanted[message], base[message], MOST);
  memcpy(there, held[message], MOST);
  return apply(message, from, bytes, source.wanted[message]) && apply(message, from, bytes, there) &&
         memcmp(there, source.wanted[message], MOST) == 0;
}

/* Writes a delta of some elements that the script changes. */
static size_t write_delta(size_t message, char *to) {
  size_t bytes = 0, at = 0;
  char now[MOST];
  memcpy(now, base[message], MOST);
  for (unsigned n = take_byte() % 8; n > 0; n--) {
    char *one = &now[take_byte() % (unsigned)plans[message].bytes];
    *one ^= (char)take_byte();
  }
  if (message == 1) now[9] = now[10] = now[11] = 0; /* between its parcels */
  for (int i = 0; i < RUNS && plans[message].runs[i].count; i++) {
    const run_of run = plans[message].runs[i];
    char delta[2 * MOST];
    if (i) at = (at + run.each - 1) / run.each * run.each;
    uint32_t length =
        (uint32_t)treadle_delta_write(base[message] + at, now + at, run.count, run.each, delta);
    if (bytes + sizeof length + length >= (size_t)plans[message].bytes) return 0;
    memcpy(to + bytes, &length, sizeof length);
    memcpy(to + bytes + sizeof length, delta, length);
    bytes += sizeof length + length;
    at += run.count * run.each;
  }
  return bytes;
}

/* A head, and what is behind it. */
static void script(size_t message, treadle_net_head *head) {
  unsigned how = take_byte();
  size_t whole = (size_t)plans[message].bytes, bytes = whole;
  char *behind = source.behind[message];
  bool changes = is_shared(plans[message].peer) && how & 1;
  memset(behind, 0, MOST);
  if (changes && how & 2) {
    bytes = write_delta(message, behind);
  } else {
    if (changes) bytes = take_byte() % whole;
    (void)take_bytes(behind, bytes);
    if (message == 1 && !changes) behind[9] = behind[10] = behind[11] = 0;
  }
  if (!changes) memcpy(source.wanted[message], behind, whole);
  source.spoilt[message] = changes && !foresee(message, behind, bytes);
  source.behind_bytes[message] = bytes;
  *head = (treadle_net_head){.magic = MAGIC,
                             .version = VERSION,
                             .side = TREADLE_INFER,
                             .form = changes ? TREADLE_NET_CHANGED : TREADLE_NET_DENSE,
                             .job = JOB,
                             .epoch = EPOCH,
                             .digest = DIGEST,
                             .sum = treadle_hash_bytes(behind, bytes, 0),
                             .whole = treadle_hash_bytes(source.wanted[message], whole, 0),
                             .bytes = (int32_t)whole,
                             .behind = (int32_t)bytes,
                             .number = plans[message].number,
                             .wave = (uint16_t)plans[message].wave,
                             .source = (uint16_t)plans[message].peer};
  if (how & 0xf0) return;
  source.spoilt[message] = true; /* a bit of the head, or one behind it */
  char *at = how & 8 && bytes ? &behind[take_byte() % bytes] : (char *)head + take_byte() % sizeof *head;
  *at ^= (char)(1 << take_byte() % 8);
}

static treadle_status receive(void *net, int peer, uint64_t tag, const treadle_net_part *parts, int count,
                              void **request_p) {
  (void)net;
  bool second = tag >> 39 & 1;
  size_t message = 0;
  while (message < MESSAGES &&
         (plans[message].peer != peer || plans[message].number != (int)(tag & 0xfffffff)))
    message++;
  MUST(message < MESSAGES && count >= 1 && count <= PARTS);
  request *one = &source.requests[message][second];
  MUST(!one->begun && (!second || source.requests[message][0].begun));
  *one = (request){.message = message, .second = second, .begun = true, .count = count};
  for (int i = 0; i < count; i++) one->bytes += parts[i].bytes;
  MUST(one->bytes <= MOST + TREADLE_NET_HEAD);
  memcpy(one->parts, parts, (size_t)count * sizeof *parts);
  *request_p = one;
  return TREADLE_OK;
}

/* What comes for a request. */
static treadle_status make_bytes(const request *one, char *to) {
  treadle_net_head head;
  const char *behind = source.behind[one->message];
  if (source.raw)
    return take_bytes(to, one->bytes) == one->bytes ? TREADLE_OK
                                                    : treadle_fail(TREADLE_PEER, "net: it has closed");
  if (one->second) {
    if (one->bytes != source.behind_bytes[one->message])
      return treadle_fail(TREADLE_PEER, "net: a message of another length");
    memcpy(to, behind, one->bytes);
    return TREADLE_OK;
  }
  script(one->message, &head);
  memcpy(to, &head, sizeof head);
  memcpy(to + sizeof head, behind, one->bytes - sizeof head);
  return TREADLE_OK;
}

static treadle_status fill(const request *one) {
  char bytes[MOST + TREADLE_NET_HEAD];
  treadle_status status = make_bytes(one, bytes);
  size_t at = 0;
  for (int i = 0; i < one->count && status == TREADLE_OK; at += one->parts[i++].bytes)
    memcpy(one->parts[i].at, bytes + at, one->parts[i].bytes);
  return status;
}

static treadle_status test(void *net, void *of, bool *done_p) {
  (void)net;
  treadle_status status = fill(of);
  *done_p = status == TREADLE_OK;
  return status;
}

static void wait_some(void *net, double seconds) { (void)net, (void)seconds; }
static void cancel(void *net, void *of) {
  (void)net;
  MUST(((request *)of)->begun);
}
static void close_net(void *net) { (void)net; }

static const treadle_net_ops ops = {.struct_size = sizeof ops,
                                    .name = "script",
                                    .memory = TREADLE_NET_HOST,
                                    .most_parts = PARTS,
                                    .receive = receive,
                                    .test = test,
                                    .wait = wait_some,
                                    .cancel = cancel,
                                    .close = close_net};

/* ---- The reader ---- */

static void make_messages(void) {
  r.parcels[0] = (treadle_parcel){op_of(TREADLE_BF16, TREADLE_BF16, 64, 0, 0), 0};
  r.parcels[1] = (treadle_parcel){op_of(TREADLE_FP8_E4M3, TREADLE_FP8_E4M3, 9, 0, 200), 1};
  r.parcels[2] = (treadle_parcel){op_of(TREADLE_FP32, TREADLE_FP32, 3, 12, 240), 2};
  r.parcels[3] = (treadle_parcel){op_of(TREADLE_FP32, TREADLE_FP32, 16, 0, 0), -1};
  r.parcels[4] = (treadle_parcel){op_of(TREADLE_BF16, TREADLE_FP32, 16, 0, 256), 3};
  for (int i = 0; i < MESSAGES; i++)
    r.messages[i] = (treadle_traffic_message){.peer = plans[i].peer,
                                              .wave = plans[i].wave,
                                              .number = plans[i].number,
                                              .first = plans[i].first,
                                              .count = plans[i].count,
                                              .bytes = plans[i].bytes};
  r.carry.net.in[TREADLE_SIDE_INFER].traffic = (treadle_traffic){r.parcels, r.messages, PARCELS, MESSAGES};
}

static treadle_status check(void *context) {
  (void)context;
  return TREADLE_OK;
}

static bool is_alive(treadle_group *group, int rank) {
  (void)group, (void)rank;
  return true;
}

static void make_reader(void) {
  static const treadle_group_ops threads = {.alive = is_alive};
  static const treadle_carry_hooks hooks = {.check = check};
  static const int32_t of[RANKS] = {0, 1, 2};
  size_t bytes = (treadle_control_bytes(RANKS) + 63) / 64 * 64;
  treadle_carry *c = &r.carry;
  MUST(treadle_nodes_make(of, RANKS, &r.nodes) == TREADLE_OK);
  r.group = (treadle_group){.ops = &threads, .rank = RANK, .size = RANKS, .job = JOB, .nodes = &r.nodes};
  r.group.control = aligned_alloc(64, bytes);
  MUST(r.group.control);
  memset(r.group.control, 0, bytes);
  r.plan.page_bytes = 4096;
  r.plan.digest = DIGEST;
  r.paged[RANK] = treadle_paged_of(r.window);
  *c = (treadle_carry){.group = &r.group,
                       .device = treadle_device_host(),
                       .plan = &r.plan,
                       .hooks = &hooks,
                       .figures = &r.figures,
                       .terms.delta = true,
                       .views[TREADLE_SIDE_INFER] = r.paged,
                       .net = {.ops = &ops, .area = r.area, .copies = &r.copies},
                       .to = TREADLE_SIDE_INFER,
                       .epoch = EPOCH};
  c->net.base = calloc(2 * TREADLE_NET_SLOTS, TREADLE_NET_MESSAGE + TREADLE_NET_HEAD);
  MUST(c->net.base);
  for (size_t i = 0; i < 2 * TREADLE_NET_SLOTS; i++) /* nobody touches more than the largest message */
    ASAN_POISON_MEMORY_REGION(treadle_net_slot_of(&c->net, false, 0) +
                                  i * (TREADLE_NET_MESSAGE + TREADLE_NET_HEAD) + MOST + TREADLE_NET_HEAD,
                              TREADLE_NET_MESSAGE - MOST);
  make_messages();
  MUST(treadle_net_delta_arrange(c) == TREADLE_OK);
}

/* As after an update: everything is as the base says. */
static void start(unsigned how) {
  treadle_net_delta *delta = &r.carry.net.delta;
  treadle_group_limit(&r.group, 0); /* who has nothing to say is not waited for */
  for (size_t i = 0; i < MESSAGES; i++) {
    for (size_t k = 0; k < MOST; k++) base[i][k] = (char)(i * 31 + k * 7);
    if (i == 1) base[i][9] = base[i][10] = base[i][11] = 0;
    if (delta->kept[0][i] >= 0) memcpy(delta->memory + delta->kept[0][i], base[i], (size_t)plans[i].bytes);
  }
  memcpy(held, base, sizeof held);
  if (how & 8) held[0][5] ^= 1;
  memset(r.window, 0x5a, sizeof r.window);
  memset(r.area, 0, sizeof r.area);
  memcpy(r.window, held[0], 128);
  memcpy(r.window + 200, base[1], 9);
  memcpy(r.window + 240, base[1] + 12, 12);
  r.taken = 0;
  r.carry.net.net = &source;
  treadle_net_begin(&r.carry);
  MUST(delta->on);
  if (how & 16) {
    delta->on = false;
    treadle_net_open(&r.carry, 0); /* not those of wave 1 */
  }
  delta->shares[0] = how >> 1 & 1;
  delta->shares[2] = how >> 2 & 1;
}

static treadle_status take(treadle_carry *c, const treadle_op *op, size_t position,
                           const treadle_paged *from) {
  const treadle_paged into = treadle_paged_of(r.window);
  MUST(position == r.taken);
  MUST(from || !c->net.delta.on);
  if (from) c->device->ops->copy(c->device, op, from, &into, 1);
  r.taken++;
  return TREADLE_OK;
}

/* The window, of messages before `count`. */
static void compare(size_t count) {
  char wanted[WINDOW];
  memset(wanted, 0x5a, sizeof wanted);
  const char *is[MESSAGES];
  for (size_t i = 0; i < MESSAGES; i++) is[i] = i < count ? source.wanted[i] : held[i];
  memcpy(wanted, is[0], 128);
  memcpy(wanted + 200, is[1], 9);
  memcpy(wanted + 240, is[1] + 12, 12);
  for (size_t k = 0; count > 3 && k < 16; k++) {
    memset(wanted + 256 + 4 * k, 0, 2);
    memcpy(wanted + 256 + 4 * k + 2, is[3] + 2 * k, 2);
  }
  /* What has not ended may be on its way into the window already. */
  size_t proved = r.carry.net.delta.on || count > 1 ? sizeof wanted : count > 0 ? 128 : 0;
  MUST(memcmp(r.window, wanted, proved) == 0);
  if (count > 2) MUST(memcmp(r.area, is[2], AREA) == 0);
}

static treadle_status receive_all(const uint8_t *bytes, size_t count) {
  memset(&source, 0, sizeof source);
  source.bytes = bytes + 1;
  source.left = count - 1;
  source.raw = bytes[0] & 1;
  start(bytes[0]);
  treadle_status status = treadle_net_unpack(&r.carry, 0, take);
  return status == TREADLE_OK ? treadle_net_unpack(&r.carry, 1, take) : status;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  if (!r.carry.net.base) make_reader();
  if (count < 1) return 0;
  treadle_status status = receive_all(bytes, count);
  for (int i = 0; i < 5 && status == TREADLE_TIMEOUT; i++) { /* this process did not run for a moment */
    treadle_net_stop(&r.carry);
    status = receive_all(bytes, count);
  }
  size_t ended = r.carry.net.in[TREADLE_SIDE_INFER].ended;
  MUST(status == TREADLE_OK ? ended == MESSAGES
                            : status == TREADLE_PEER && *treadle_error_message() && ended < MESSAGES);
  bool spoilt = false;
  for (size_t i = 0; i < MESSAGES; i++) spoilt = spoilt || source.spoilt[i];
  if (!source.raw) {
    MUST((status != TREADLE_OK) == spoilt);
    compare(ended);
  }
  if (status == TREADLE_OK) MUST(treadle_net_finish(&r.carry) == TREADLE_OK);
  treadle_net_stop(&r.carry);
  return 0;
}
