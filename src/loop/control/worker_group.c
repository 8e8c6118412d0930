/* A call goes from rank 0 to all: first a head, then the message. On one node a large one lies on a board, where all read it; smaller ones, and
 * those to other nodes, come in pieces, as the group's payload allows. Ranks agree twice: all have received the call, or
 * no rank runs it; and all have run it well. */
#include "control/worker_group.h"

#include "base/alloc.h"
#include "group/group.h"

#include <assert.h>
#include <string.h>

enum { PIECE = TREADLE_GROUP_PAYLOAD, NAME = 48 };

typedef enum call_type { CALL, END } call_type;

typedef struct head {
  int32_t type;
  int32_t status; /* of END, with its message in place of a name */
  uint64_t bytes;
  char name[NAME];
  char message[2000];
} head;

static const treadle_worker_method *find(const treadle_worker_group *g, const char *name) {
  const treadle_worker_method *m = g->methods;
  while (m->name && strcmp(m->name, name) != 0) m++;
  return m->name ? m : NULL;
}

static treadle_status agree(const treadle_worker_group *g, treadle_status mine) {
  return g->group ? treadle_group_agree(g->group, mine) : mine;
}

/* received: what became of the call on this rank. */
static treadle_status run(treadle_worker_group *g, const treadle_worker_method *m, treadle_status received,
                          treadle_message *in, treadle_message *out) {
  treadle_status status;
  TRY(agree(g, received));
  in->at = 0;
  treadle_message_clear(out);
  status = m->run(g->worker, in, out);
  if (!status && out->failed)
    status = treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its result", m->name);
  TRY(agree(g, status));
  if (m->collects && g->group) {
    g->answers.group = g->group;
    TRY(treadle_gather_meet(&g->answers, out));
  }
out:
  return status;
}

static treadle_status no_memory(uint64_t bytes) {
  return treadle_fail(TREADLE_NO_MEMORY, "no memory for a call of %llu bytes", (unsigned long long)bytes);
}

/* Does a message lie on a board, for all to read? */
static bool is_shared(const treadle_worker_group *g, uint64_t bytes) {
  return bytes > PIECE && treadle_group_node_count(g->group) == 1;
}

/* A board with room for this many bytes of rank 0, and for half as many more. Collective. */
static treadle_status make_room(treadle_worker_group *g, uint64_t bytes) {
  if (g->board && treadle_board_bytes(g->board, 0) >= bytes) return TREADLE_OK;
  treadle_board_destroy(g->board);
  g->board = NULL;
  treadle_status status =
      treadle_board_create(g->group, treadle_group_rank(g->group) == 0 ? bytes + bytes / 2 : 0, &g->board);
  return status == TREADLE_NO_MEMORY ? no_memory(bytes) : status;
}

/* ---- Rank 0 ------------------------------------------------------------------------------------------------ */

/* A message that was written on the board is there already; the next one will be. */
static treadle_status send(treadle_worker_group *g, treadle_message *in) {
  char piece[PIECE] = {0};
  treadle_status status = TREADLE_OK;
  if (is_shared(g, in->length)) {
    status = make_room(g, in->length);
    if (status) treadle_message_lend(in, NULL, 0); /* the board that it was lent is gone */
    TRY(status);
    char *to = treadle_board_own(g->board);
    if (in->bytes != to) memcpy(to, in->bytes, in->length);
    treadle_message_lend(in, to, treadle_board_bytes(g->board, 0));
    return TREADLE_OK;
  }
  for (size_t at = 0; at < in->length; at += PIECE) {
    size_t some = in->length - at < PIECE ? in->length - at : PIECE;
    memcpy(piece, in->bytes + at, some);
    TRY(treadle_group_say(g->group, piece, PIECE));
  }
out:
  return status;
}

treadle_status treadle_worker_group_call(treadle_worker_group *group, const char *name, treadle_message *in,
                                         treadle_message *out) {
  const treadle_worker_method *method = find(group, name);
  head h = {.type = CALL, .bytes = in->length};
  treadle_status status = TREADLE_OK, sent = TREADLE_OK;
  assert(method && strlen(name) < NAME);
  if (in->failed) return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its call", name);
  if (group->group) {
    strcpy(h.name, name);
    TRY(treadle_group_say(group->group, &h, sizeof h));
    sent = send(group, in);
  }
  TRY(run(group, method, sent, in, out));
out:
  return status;
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

/* The message is read where it lies; it is there when all agree that they have received it. */
static treadle_status receive(treadle_worker_group *g, uint64_t bytes, treadle_message *in) {
  treadle_message *m = &g->received;
  treadle_status status = TREADLE_OK;
  if (is_shared(g, bytes)) {
    TRY(make_room(g, bytes));
    *in = (treadle_message){.given = treadle_board_part(g->board, 0), .length = (size_t)bytes};
    return TREADLE_OK;
  }
  treadle_message_clear(m);
  char *to = treadle_message_grow(m, (size_t)bytes);
  for (uint64_t at = 0; at < bytes; at += PIECE) { /* also without memory: rank 0 goes on */
    char nothing[1] = {0};
    TRY(treadle_group_say(g->group, nothing, sizeof nothing));
    if (to)
      memcpy(to + at, treadle_group_said(g->group, 0), (size_t)(bytes - at < PIECE ? bytes - at : PIECE));
  }
  if (!to) status = no_memory(bytes);
  *in = (treadle_message){.given = m->bytes, .length = m->length};
out:
  return status;
}

static treadle_status serve_call(treadle_worker_group *g, const head *h, treadle_message *out) {
  treadle_message in = {0}; /* not released: its bytes are others' */
  const treadle_worker_method *method = find(g, h->name);
  treadle_status status = receive(g, h->bytes, &in);
  if (!status && !method)
    status = treadle_fail(TREADLE_PEER, "rank 0 calls '%.40s', which is not a method", h->name);
  return run(g, method, status, &in, out);
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
  if (group->group) return treadle_gather_of(&group->answers, rank);
  return (treadle_message){.given = out->bytes, .length = out->length};
}

void treadle_worker_group_release(treadle_worker_group *group) {
  treadle_board_destroy(group->board);
  treadle_gather_release(&group->answers);
  group->board = NULL;
  treadle_message_release(&group->received);
}
