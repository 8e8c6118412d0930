/* An engine's ranks: a board for all ranks of the group. */
#include "generate/generator.h"

#include "base/larger.h"
#include "group/group.h"

#include <stdio.h>
#include <string.h>

/* What ranks may not differ in: they would compute other bits, or other steps. */
typedef struct settings {
  char kernels[32];
  int64_t dtype, fast, max_batch, prefill_chunk, block_tokens, max_len, prefix_cache;
} settings;

static const char *const names[] = {"dtype",        "fast",    "max_batch",   "prefill_chunk",
                                    "block_tokens", "max_len", "prefix_cache"};

static treadle_status compare_settings(treadle_generator *e, const treadle_generator_options *o) {
  settings mine = {.dtype = e->dtype,
                   .fast = e->fast,
                   .max_batch = e->max_batch,
                   .prefill_chunk = e->prefill_chunk,
                   .block_tokens = o->block_tokens,
                   .max_len = e->most_tokens,
                   .prefix_cache = o->prefix_cache};
  const int64_t *own = &mine.dtype;
  treadle_status status;
  snprintf(mine.kernels, sizeof mine.kernels, "%s", treadle_pass_kernels(e->pass));
  TRY(treadle_group_say(e->group, &mine, sizeof mine));
  for (int rank = 0; rank < treadle_group_size(e->group) && !status; rank++) {
    const settings *other = treadle_group_said(e->group, rank);
    const int64_t *theirs = &other->dtype;
    if (strcmp(other->kernels, mine.kernels) != 0)
      status = treadle_fail(TREADLE_REFUSED, "rank %d computes with kernels '%s', this rank with '%s'",
                            rank, other->kernels, mine.kernels);
    for (size_t i = 0; i < sizeof names / sizeof *names && !status; i++)
      if (theirs[i] != own[i])
        status = treadle_fail(TREADLE_REFUSED, "rank %d has %s %lld, this rank %lld", rank, names[i],
                              (long long)theirs[i], (long long)own[i]);
  }
  TRY(treadle_group_agree(e->group, status));
out:
  return status;
}

/* The largest room that any rank needs. */
static treadle_status largest_room(treadle_generator *e, treadle_pass_board *room_p) {
  treadle_pass_board room;
  treadle_status status;
  treadle_pass_measure_board(e->pass, &room);
  TRY(treadle_group_say(e->group, &room, sizeof room));
  for (int rank = 0; rank < treadle_group_size(e->group); rank++) {
    const treadle_pass_board *other = treadle_group_said(e->group, rank);
    room.within = treadle_larger_size(room.within, other->within);
    room.across = treadle_larger_size(room.across, other->across);
  }
  *room_p = room;
out:
  return status;
}

treadle_status treadle_generator_meet(treadle_generator *engine, const treadle_generator_options *options) {
  treadle_pass_board room;
  treadle_status status;
  TRY(compare_settings(engine, options));
  TRY(largest_room(engine, &room));
  TRY(treadle_board_create(engine->group, treadle_pass_board_bytes(&room), &engine->board));
  TRY(treadle_group_agree(engine->group, treadle_pass_join(engine->pass, engine->board, &room)));
out:
  return status;
}

treadle_status treadle_generator_check_ranks(const treadle_generator *engine, const char *what) {
  if (!engine->board) return TREADLE_OK;
  return treadle_board_wait(engine->board, treadle_group_rank(engine->group), 0, 0, what);
}

treadle_status treadle_generator_agree(const treadle_generator *engine, treadle_status status) {
  return engine->board ? treadle_group_agree(engine->group, status) : status;
}

treadle_status treadle_generator_least(treadle_generator *engine, size_t *value) {
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
