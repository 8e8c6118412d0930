#include "control/gather.h"

#include "base/alloc.h"
#include "group/group.h"

#include <string.h>

/* What a rank says first. On one node that is the number alone. */
typedef struct opening {
  uint64_t bytes;
  char small[TREADLE_GROUP_PAYLOAD - sizeof(uint64_t)]; /* the message, if it fits */
} opening;
enum { SMALL = sizeof((opening *)0)->small };

static bool is_near(const treadle_gather *g) { return treadle_group_node_count(g->group) == 1; }

/* How many bytes each rank brings. */
static treadle_status share_lengths(treadle_gather *g, const treadle_message *out) {
  opening mine = {.bytes = out->length};
  const size_t ranks = (size_t)treadle_group_size(g->group);
  treadle_status status = TREADLE_OK;
  if (!g->lengths) {
    g->lengths = treadle_alloc_array(ranks, sizeof *g->lengths);
    if (!g->lengths) status = treadle_fail(TREADLE_NO_MEMORY, "no memory for messages of %zu ranks", ranks);
    status = treadle_group_agree(g->group, status);
    if (status) { /* on all ranks, which ask again at the next call */
      treadle_free(g->lengths);
      g->lengths = NULL;
      goto out;
    }
  }
  if (out->length && out->length <= SMALL && !is_near(g)) memcpy(mine.small, out->bytes, out->length);
  TRY(treadle_group_say(g->group, &mine, is_near(g) ? sizeof mine.bytes : sizeof mine));
  for (size_t rank = 0; rank < ranks; rank++)
    memcpy(&g->lengths[rank], treadle_group_said(g->group, (int)rank), sizeof mine.bytes);
out:
  return status;
}

/* ---- One node ------------------------------------------------------------------------------------------------ */

static bool has_room(const treadle_gather *g) {
  for (int rank = 0; rank < treadle_group_size(g->group); rank++)
    if (!g->board || treadle_board_bytes(g->board, rank) < g->lengths[rank]) return false;
  return true;
}

/* Every part has room for its rank's message, and for half as much more. Collective. */
static treadle_status make_room(treadle_gather *g, treadle_message *out) {
  const int self = treadle_group_rank(g->group);
  const uint64_t before = g->board ? treadle_board_bytes(g->board, self) : 0;
  const uint64_t needed = out->length + out->length / 2;
  treadle_board *board = NULL;
  treadle_status status;
  if (has_room(g)) return TREADLE_OK;
  TRY(treadle_board_create(g->group, needed > before ? needed : before, &board));
  char *to = treadle_board_own(board);
  if (out->length) memcpy(to, out->bytes, out->length); /* perhaps from the board before */
  out->bytes = to;
  treadle_board_destroy(g->board);
  g->board = board;
out:
  return status;
}

static treadle_status collect_near(treadle_gather *g, treadle_message *out) {
  treadle_status status;
  TRY(make_room(g, out));
  char *to = treadle_board_own(g->board);
  if (out->length && out->bytes != to) memcpy(to, out->bytes, out->length);
  treadle_message_lend(out, to, to ? treadle_board_bytes(g->board, treadle_group_rank(g->group)) : 0);
  TRY(treadle_group_agree(g->group, TREADLE_OK)); /* all have written theirs */
out:
  return status;
}

/* ---- Several nodes ------------------------------------------------------------------------------------------- */

static uint64_t begin_of(const treadle_gather *g, int rank) {
  uint64_t begin = 0;
  for (int before = 0; before < rank; before++) begin += g->lengths[before];
  return begin;
}

static bool is_large(const treadle_gather *g, int rank) { return g->lengths[rank] > SMALL; }

static bool any_is_large(const treadle_gather *g) {
  for (int rank = 0; rank < treadle_group_size(g->group); rank++)
    if (is_large(g, rank)) return true;
  return false;
}

/* Memory for all messages, with the small ones, which were said, and this rank's. */
static treadle_status make_far(treadle_gather *g, const treadle_message *out) {
  const int ranks = treadle_group_size(g->group), self = treadle_group_rank(g->group);
  treadle_free(g->far);
  g->far = NULL;
  if (!g->everywhere && self != 0) return TREADLE_OK;
  g->far = treadle_alloc_array((size_t)begin_of(g, ranks) + 1, 1);
  if (!g->far) return treadle_fail(TREADLE_NO_MEMORY, "no memory for messages of %d ranks", ranks);
  for (int rank = 0; rank < ranks; rank++) {
    const opening *said = treadle_group_said(g->group, rank);
    if (!is_large(g, rank)) memcpy(g->far + begin_of(g, rank), said->small, (size_t)g->lengths[rank]);
  }
  if (is_large(g, self)) memcpy(g->far + begin_of(g, self), out->bytes, out->length);
  return TREADLE_OK;
}

/* Large ones of the others, all at once. */
static treadle_status receive_large(treadle_gather *g) {
  int count = 0;
  for (int rank = 1; rank < treadle_group_size(g->group); rank++)
    if (is_large(g, rank))
      g->mailbox->letters[count++] = (treadle_letter){.rank = rank,
                                                      .receives = true,
                                                      .bytes = g->far + begin_of(g, rank),
                                                      .length = (size_t)g->lengths[rank]};
  return treadle_mailbox_move(g->mailbox, count);
}

static treadle_status exchange(treadle_gather *g, const treadle_message *out) {
  const int self = treadle_group_rank(g->group);
  const size_t all = (size_t)begin_of(g, treadle_group_size(g->group));
  treadle_status status = TREADLE_OK;
  if (self == 0)
    TRY(receive_large(g));
  else if (is_large(g, self))
    TRY(treadle_mailbox_send(g->mailbox, 0, out->bytes, out->length));
  if (!g->everywhere) return TREADLE_OK;
  TRY(self == 0 ? treadle_mailbox_send_all(g->mailbox, g->far, all)
                : treadle_mailbox_receive(g->mailbox, 0, g->far, all));
out:
  return status;
}

static treadle_status collect_far(treadle_gather *g, const treadle_message *out) {
  const treadle_status made = make_far(g, out);
  if (!any_is_large(g)) return treadle_group_agree(g->group, made);
  treadle_status status = treadle_mailbox_open(g->mailbox, g->group);
  if (!status) status = made;
  if (!status) status = exchange(g, out);
  return treadle_mailbox_settle(g->mailbox, status);
}

treadle_status treadle_gather_meet(treadle_gather *g, treadle_message *mine) {
  treadle_status status;
  TRY(share_lengths(g, mine));
  TRY(is_near(g) ? collect_near(g, mine) : collect_far(g, mine));
out:
  return status;
}

treadle_message treadle_gather_of(const treadle_gather *g, int rank) {
  return (treadle_message){.given =
                               g->board ? treadle_board_part(g->board, rank) : g->far + begin_of(g, rank),
                           .length = (size_t)g->lengths[rank]};
}

void treadle_gather_release(treadle_gather *g) {
  treadle_board_destroy(g->board);
  treadle_free(g->far);
  treadle_free(g->lengths);
  *g = (treadle_gather){0};
}
