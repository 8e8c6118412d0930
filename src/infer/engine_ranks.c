/* An engine's group: a board for all ranks, with room for what the passes bring. */
#include "infer/engine.h"

#include "transport/group.h"

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* What each rank of the group says, at most 4 KiB. */
static treadle_status largest_room(treadle_engine *e, treadle_pass_board *room_p) {
  treadle_pass_board room;
  treadle_status status;
  treadle_pass_measure_board(e->pass, &room);
  TRY(treadle_group_say(e->group, &room, sizeof room));
  for (int rank = 0; rank < treadle_group_size(e->group); rank++) {
    const treadle_pass_board *other = treadle_group_said(e->group, rank);
    room.within = larger(room.within, other->within);
    room.across = larger(room.across, other->across);
  }
  *room_p = room;
out:
  return status;
}

treadle_status treadle_engine_meet(treadle_engine *engine) {
  treadle_pass_board room;
  treadle_status status;
  TRY(largest_room(engine, &room));
  TRY(treadle_board_create(engine->group, treadle_pass_board_bytes(&room), &engine->board));
  TRY(treadle_group_agree(engine->group, treadle_pass_join(engine->pass, engine->board, &room)));
out:
  return status;
}

treadle_status treadle_engine_least(treadle_engine *engine, size_t *value) {
  size_t least = *value;
  treadle_status status;
  TRY(treadle_group_say(engine->group, value, sizeof *value));
  for (int rank = 0; rank < treadle_group_size(engine->group); rank++) {
    const size_t *other = treadle_group_said(engine->group, rank);
    if (*other < least) least = *other;
  }
  *value = least;
out:
  return status;
}
