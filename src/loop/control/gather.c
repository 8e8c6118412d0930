#include "control/gather.h"

#include "base/alloc.h"
#include "group/group.h"

#include <string.h>

enum { PIECE = TREADLE_GROUP_PAYLOAD };

/* How many bytes each rank brings. */
static treadle_status share_lengths(treadle_gather *g, uint64_t mine) {
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
  TRY(treadle_group_say(g->group, &mine, sizeof mine));
  for (size_t rank = 0; rank < ranks; rank++)
    memcpy(&g->lengths[rank], treadle_group_said(g->group, (int)rank), sizeof mine);
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

static uint64_t piece_of(uint64_t length, uint64_t at) {
  const uint64_t left = at < length ? length - at : 0;
  return left < PIECE ? left : PIECE;
}

/* Each rank says a piece of its message at a time; who reads them puts them together. */
static treadle_status collect_far(treadle_gather *g, const treadle_message *out) {
  const int ranks = treadle_group_size(g->group);
  const bool reads = g->everywhere || treadle_group_rank(g->group) == 0;
  char piece[PIECE] = {0};
  uint64_t most = 0;
  treadle_status status = TREADLE_OK;
  for (int rank = 0; rank < ranks; rank++)
    if (g->lengths[rank] > most) most = g->lengths[rank];
  treadle_free(g->far);
  g->far = reads ? treadle_alloc_array((size_t)begin_of(g, ranks) + 1, 1) : NULL;
  if (reads && !g->far)
    status = treadle_fail(TREADLE_NO_MEMORY, "no memory for messages of %d ranks", ranks);
  TRY(treadle_group_agree(g->group, status));
  for (uint64_t at = 0; at < most; at += PIECE) {
    const uint64_t mine = piece_of(out->length, at);
    if (mine) memcpy(piece, out->bytes + at, (size_t)mine);
    TRY(treadle_group_say(g->group, piece, PIECE));
    for (int rank = 0; reads && rank < ranks; rank++)
      memcpy(g->far + begin_of(g, rank) + at, treadle_group_said(g->group, rank),
             (size_t)piece_of(g->lengths[rank], at));
  }
out:
  return status;
}

treadle_status treadle_gather_meet(treadle_gather *g, treadle_message *mine) {
  treadle_status status;
  TRY(share_lengths(g, mine->length));
  TRY(treadle_group_node_count(g->group) == 1 ? collect_near(g, mine) : collect_far(g, mine));
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
