/* A call goes from rank 0 to all: first a head, then the message. On one node a large message lies on a board, where all read it,
 * and a small one is said. Between nodes a small one is in the head, and a large one goes from rank 0 to each other rank
 * (mailbox.h); or each node has its own, which its first rank gets, and the others read on a board of that node. Ranks agree
 * twice: all have received the call, or no rank runs it; and all have run it well. */
#include "control/worker_group.h"

#include "base/alloc.h"
#include "control/worker_relay.h"
#include "group/group.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

enum { PIECE = TREADLE_GROUP_PAYLOAD, NAME = TREADLE_WORKER_NAME };

typedef enum call_type { CALL, END } call_type;
static const uint64_t EACH = UINT64_MAX;

typedef struct head {
  int32_t type;
  int32_t status; /* of END, with its message in place of a name */
  uint64_t bytes; /* EACH: each node has a message of its own, which its leader gets behind its length */
  char name[NAME];
  char message[2000]; /* of CALL between nodes: the message, if it is small */
} head;

/* Of a message in a head. The last byte is that of END, which ends the text. */
enum { SMALL = sizeof((head *)0)->message - 8 };
_Static_assert(offsetof(head, message) % 8 == 0, "arrays of a message are read where they lie");

const treadle_worker_method *treadle_worker_group_find(const treadle_worker_group *g, const char *name) {
  const treadle_worker_method *m = g->methods;
  while (m->name && strcmp(m->name, name) != 0) m++;
  return m->name ? m : NULL;
}

static treadle_status agree(const treadle_worker_group *g, treadle_status mine) {
  return g->group ? treadle_group_agree(g->group, mine) : mine;
}

static treadle_status run(treadle_worker_group *g, const treadle_worker_method *m, treadle_message *in,
                          treadle_message *out) {
  treadle_status status;
  in->at = 0;
  treadle_message_clear(out);
  if (g->watch.before) g->watch.before(g->watch.context, m->name);
  status = m->run(g->worker, in, out);
  if (g->watch.after) g->watch.after(g->watch.context);
  if (!status && out->failed)
    status = treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its result", m->name);
  TRY(agree(g, status));
  if (m->collects && g->group) {
    g->answers.group = g->group;
    g->answers.mailbox = &g->mailbox;
    TRY(treadle_gather_meet(&g->answers, out));
  }
out:
  return status;
}

static treadle_status no_memory(uint64_t bytes) {
  return treadle_fail(TREADLE_NO_MEMORY, "no memory for a call of %llu bytes", (unsigned long long)bytes);
}

/* How a message comes from rank 0. */
typedef enum way { SAID, ON_BOARD, IN_HEAD, BY_MAILBOX } way;

static way way_of(const treadle_worker_group *g, uint64_t bytes) {
  if (treadle_group_node_count(g->group) == 1) return bytes > PIECE ? ON_BOARD : SAID;
  return bytes > SMALL ? BY_MAILBOX : IN_HEAD;
}

/* received: what became of the call on this rank. All have it, or all fail. */
static treadle_status settle(treadle_worker_group *g, uint64_t bytes, treadle_status received) {
  const bool by_mailbox = g->group && way_of(g, bytes) == BY_MAILBOX;
  return by_mailbox ? treadle_mailbox_settle(&g->mailbox, received) : agree(g, received);
}

/* The ranks of this node, whose first one leads them. */
static treadle_group *near_of(const treadle_worker_group *g) {
  return g->group->near ? g->group->near : g->group;
}

static bool leads(const treadle_worker_group *g) { return treadle_group_rank(near_of(g)) == 0; }

/* A board with room for this many bytes of the node's leader, and for half as many more. Collective on the node. */
static treadle_status make_room(treadle_worker_group *g, uint64_t bytes) {
  if (g->board && treadle_board_bytes(g->board, 0) >= bytes) return TREADLE_OK;
  treadle_board_destroy(g->board);
  g->board = NULL;
  treadle_status status = treadle_board_create(near_of(g), leads(g) ? bytes + bytes / 2 : 0, &g->board);
  return status == TREADLE_NO_MEMORY ? no_memory(bytes) : status;
}

/* What a node's leader says of the message that it has for all of them. */
typedef struct note {
  int64_t status;
  uint64_t bytes;
} note;

/* From the leader's memory to a board, where the other ranks of the node read it: *in on all of them. had: how it fared so far. */
static treadle_status share_near(treadle_worker_group *g, treadle_status had, treadle_message *in) {
  treadle_group *near = near_of(g);
  note n = {.status = had, .bytes = in->length};
  treadle_status status;
  if (treadle_group_size(near) == 1) return had;
  near->timeout_seconds = g->group->timeout_seconds;
  TRY(leads(g) ? treadle_group_say(near, &n, sizeof n) : treadle_group_listen(near, 0, "a call"));
  memcpy(&n, treadle_group_said(near, 0), sizeof n);
  if (n.status)
    return had ? had : treadle_fail(TREADLE_PEER, "the first rank of this node has no call to share");
  TRY(make_room(g, n.bytes));
  if (leads(g)) memcpy(treadle_board_own(g->board), in->given ? in->given : in->bytes, (size_t)n.bytes);
  TRY(treadle_group_agree(near, had));
  if (!leads(g))
    *in = (treadle_message){.given = treadle_board_part(g->board, 0), .length = (size_t)n.bytes};
out:
  return status;
}

/* ---- Rank 0 ------------------------------------------------------------------------------------------------ */

/* A message that was written on the board is there already; the next one will be. */
static treadle_status send_on_board(treadle_worker_group *g, treadle_message *in) {
  treadle_status status = make_room(g, in->length);
  if (status) treadle_message_lend(in, NULL, 0); /* the board that it was lent is gone */
  TRY(status);
  char *to = treadle_board_own(g->board);
  if (in->bytes != to) memcpy(to, in->bytes, in->length);
  treadle_message_lend(in, to, treadle_board_bytes(g->board, 0));
out:
  return status;
}

static treadle_status send_said(treadle_worker_group *g, const treadle_message *in) {
  char piece[PIECE] = {0};
  if (!in->length) return TREADLE_OK;
  memcpy(piece, in->bytes, in->length);
  return treadle_group_say(g->group, piece, PIECE);
}

static treadle_status send_by_mailbox(treadle_worker_group *g, const treadle_message *in) {
  treadle_status status;
  TRY(treadle_mailbox_open(&g->mailbox, g->group));
  TRY(treadle_mailbox_send_all(&g->mailbox, in->bytes, in->length));
out:
  return status;
}

static treadle_status send(treadle_worker_group *g, treadle_message *in) {
  switch (way_of(g, in->length)) {
  case SAID: return send_said(g, in);
  case ON_BOARD: return send_on_board(g, in);
  case IN_HEAD: return TREADLE_OK;
  case BY_MAILBOX: break;
  }
  return send_by_mailbox(g, in);
}

/* To the leader of each other node its message. */
static treadle_status send_each(treadle_worker_group *g, const treadle_message *const *by_node) {
  const int nodes = treadle_group_node_count(g->group);
  uint64_t *lengths = treadle_alloc_array((size_t)nodes, sizeof *lengths);
  treadle_status status = treadle_mailbox_open(&g->mailbox, g->group);
  if (!status && !lengths)
    status = treadle_fail(TREADLE_NO_MEMORY, "no memory for calls of %d nodes", nodes);
  TRY(status);
  for (int node = 1; node < nodes; node++) {
    lengths[node] = by_node[node]->length;
    g->mailbox.letters[node - 1] = (treadle_letter){.rank = treadle_nodes_leader(g->group->nodes, node),
                                                    .bytes = &lengths[node],
                                                    .length = sizeof *lengths};
  }
  TRY(treadle_mailbox_move(&g->mailbox, nodes - 1));
  for (int node = 1; node < nodes; node++)
    g->mailbox.letters[node - 1] = (treadle_letter){.rank = treadle_nodes_leader(g->group->nodes, node),
                                                    .bytes = by_node[node]->bytes,
                                                    .length = by_node[node]->length};
  TRY(treadle_mailbox_move(&g->mailbox, nodes - 1));
out:
  treadle_free(lengths);
  return status;
}

treadle_status treadle_worker_group_call_nodes(treadle_worker_group *group, const char *name,
                                               treadle_message *in, const treadle_message *const *by_node,
                                               treadle_message *out) {
  const treadle_worker_method *method = treadle_worker_group_find(group, name);
  head h = {.type = CALL, .bytes = EACH};
  treadle_status status;
  assert(method && strlen(name) < NAME);
  strcpy(h.name, name);
  TRY(treadle_group_say(group->group, &h, sizeof h));
  TRY(settle(group, EACH, share_near(group, send_each(group, by_node), in)));
  TRY(run(group, method, in, out));
out:
  return status;
}

treadle_status treadle_worker_group_call(treadle_worker_group *group, const char *name, treadle_message *in,
                                         treadle_message *out) {
  const treadle_worker_method *method = treadle_worker_group_find(group, name);
  head h = {.type = CALL, .bytes = in->length};
  treadle_status status = TREADLE_OK, sent = TREADLE_OK;
  assert(method && strlen(name) < NAME);
  if (in->failed) return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its call", name);
  if (group->relay) return treadle_worker_relay_ask(group->relay, name, in, out);
  if (group->group) {
    strcpy(h.name, name);
    if (in->length && way_of(group, in->length) == IN_HEAD) memcpy(h.message, in->bytes, in->length);
    TRY(treadle_group_say(group->group, &h, sizeof h));
    sent = send(group, in);
  }
  TRY(settle(group, in->length, sent));
  TRY(run(group, method, in, out));
out:
  return status;
}

int treadle_worker_group_ranks(const treadle_worker_group *group) {
  if (group->relay) return group->relay->ranks;
  return group->group ? treadle_group_size(group->group) : 1;
}

treadle_status treadle_worker_group_end(treadle_worker_group *group, treadle_status status) {
  head h = {.type = END, .status = status};
  if (!group->group) return status;
  if (status) snprintf(h.message, sizeof h.message, "%s", treadle_error_message());
  treadle_status said = treadle_group_say(group->group, &h, sizeof h);
  if (status) return treadle_fail(status, "%s", h.message);
  return said;
}

/* ---- The others -------------------------------------------------------------------------------------------- */

static treadle_status receive_on_board(treadle_worker_group *g, uint64_t bytes, treadle_message *in) {
  treadle_status status;
  TRY(make_room(g, bytes));
  *in = (treadle_message){.given = treadle_board_part(g->board, 0), .length = (size_t)bytes};
out:
  return status;
}

static treadle_status receive_said(treadle_worker_group *g, uint64_t bytes) {
  char *to = treadle_message_grow(&g->received, (size_t)bytes);
  treadle_status status = TREADLE_OK;
  if (bytes) TRY(treadle_group_say(g->group, NULL, 0)); /* also without memory: rank 0 goes on */
  if (!to) TRY(no_memory(bytes));
  if (bytes) memcpy(to, treadle_group_said(g->group, 0), (size_t)bytes);
out:
  return status;
}

static treadle_status receive_by_mailbox(treadle_worker_group *g, uint64_t bytes) {
  treadle_status status;
  TRY(treadle_mailbox_open(&g->mailbox, g->group));
  if (bytes == EACH && !leads(g)) goto out;
  if (bytes == EACH) TRY(treadle_mailbox_receive(&g->mailbox, 0, &bytes, sizeof bytes));
  char *to = treadle_message_grow(&g->received, (size_t)bytes);
  if (!to) TRY(no_memory(bytes));
  TRY(treadle_mailbox_receive(&g->mailbox, 0, to, (size_t)bytes));
out:
  return status;
}

/* Into this rank's own memory; or, of a message of the node, into the leader's. */
static treadle_status receive_copy(treadle_worker_group *g, uint64_t bytes, treadle_message *in) {
  treadle_status status;
  treadle_message_clear(&g->received);
  status = way_of(g, bytes) == BY_MAILBOX ? receive_by_mailbox(g, bytes) : receive_said(g, bytes);
  *in = (treadle_message){.given = g->received.bytes, .length = g->received.length};
  return bytes == EACH ? share_near(g, status, in) : status;
}

/* The message is read where it lies; it is there when all agree that they have received it. */
static treadle_status receive(treadle_worker_group *g, const head *h, treadle_message *in) {
  switch (way_of(g, h->bytes)) {
  case ON_BOARD: return receive_on_board(g, h->bytes, in);
  case IN_HEAD: *in = (treadle_message){.given = h->message, .length = (size_t)h->bytes}; return TREADLE_OK;
  case SAID:
  case BY_MAILBOX: break;
  }
  return receive_copy(g, h->bytes, in);
}

static treadle_status serve_call(treadle_worker_group *g, const head *h, treadle_message *out) {
  treadle_message in = {0}; /* not released: its bytes are others' */
  const treadle_worker_method *method = treadle_worker_group_find(g, h->name);
  treadle_status status = receive(g, h, &in);
  if (!status && !method)
    status = treadle_fail(TREADLE_PEER, "rank 0 calls '%.40s', which is not a method", h->name);
  TRY(settle(g, h->bytes, status));
  TRY(run(g, method, &in, out));
out:
  return status;
}

treadle_status treadle_worker_group_serve(treadle_worker_group *group) {
  treadle_message out = {0};
  treadle_status status;
  for (;;) {
    head h;
    TRY(treadle_group_listen(group->group, 0, "the next call")); /* rank 0 may be busy for days */
    memcpy(&h, treadle_group_said(group->group, 0), sizeof h);
    h.name[NAME - 1] = h.message[sizeof h.message - 1] = 0;
    if (h.type == END) {
      if (h.status) status = treadle_fail((treadle_status)h.status, "%s", h.message);
      break;
    }
    (void)serve_call(group, &h, &out); /* rank 0 decides what becomes of a failure */
    if (treadle_group_check_rank(group->group, treadle_group_rank(group->group), "calls")) {
      status = TREADLE_PEER;
      break;
    }
  }
out:
  treadle_message_release(&out);
  return status;
}

treadle_message treadle_worker_group_answer(const treadle_worker_group *group, int rank,
                                            const treadle_message *out) {
  if (group->relay) return treadle_worker_relay_answer(group->relay, rank);
  if (group->group) return treadle_gather_of(&group->answers, rank);
  return (treadle_message){.given = out->bytes, .length = out->length};
}

void treadle_worker_group_release(treadle_worker_group *group) {
  treadle_board_destroy(group->board);
  treadle_gather_release(&group->answers);
  treadle_mailbox_release(&group->mailbox);
  group->board = NULL;
  treadle_message_release(&group->received);
}
