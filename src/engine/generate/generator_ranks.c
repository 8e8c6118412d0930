/* An engine's ranks: a board for all ranks of the group. A board on which a rank has failed is of no use any more: before the next call
 * all ranks meet anew, on another one. */
#include "generate/generator.h"

#include "base/larger.h"
#include "group/group.h"

#include <stdio.h>
#include <string.h>

/* What ranks may not differ in: they would compute other bits, or other steps. */
typedef struct settings {
  char kernels[32];
  int64_t dtype, fast, max_batch, prefill_chunk, block_tokens, max_len, prefix_cache, experts;
} settings;

static const char *const names[] = {"dtype",        "fast",    "max_batch",    "prefill_chunk",
                                    "block_tokens", "max_len", "prefix_cache", "experts"};

static treadle_status compare_settings(treadle_generator *e, const treadle_generator_options *o) {
  settings mine = {.dtype = e->dtype,
                   .fast = e->fast,
                   .max_batch = e->max_batch,
                   .prefill_chunk = e->prefill_chunk,
                   .block_tokens = o->block_tokens,
                   .max_len = e->most_tokens,
                   .prefix_cache = o->prefix_cache,
                   .experts = o->experts};
  const int64_t *own = &mine.dtype;
  treadle_status status;
  snprintf(mine.kernels, sizeof mine.kernels, "%s", treadle_pass_kernels(e->pass));
  TRY(treadle_group_say(e->group, &mine, sizeof mine));
  for (int rank = 0; rank < treadle_group_size(e->group) && !status; rank++) {
    const settings *other = treadle_group_said(e->group, rank);
    const int64_t *theirs = &other->dtype;
    if (strcmp(other->kernels, mine.kernels) != 0)
      status = treadle_fail(TREADLE_REFUSED, "rank %d computes with kernels '%s', this rank with '%s'",
                            treadle_group_called(e->group, rank), other->kernels, mine.kernels);
    for (size_t i = 0; i < sizeof names / sizeof *names && !status; i++)
      if (theirs[i] != own[i])
        status = treadle_fail(TREADLE_REFUSED, "rank %d has %s %lld, this rank %lld",
                              treadle_group_called(e->group, rank), names[i], (long long)theirs[i],
                              (long long)own[i]);
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
    room.between = treadle_larger_size(room.between, other->between);
  }
  *room_p = room;
out:
  return status;
}

static void leave(treadle_generator *e) {
  treadle_pass_part(e->pass);
  treadle_board_destroy(e->board);
  e->board = NULL;
}

/* All counters of a new board are 0. */
static treadle_status join(treadle_generator *e) {
  treadle_pass_board room;
  treadle_status status;
  TRY(largest_room(e, &room));
  TRY(treadle_board_create(e->group, treadle_pass_board_bytes(&room), &e->board));
  TRY(treadle_group_agree(e->group, treadle_pass_join(e->pass, e->board, &room)));
  e->meetings = e->steps = 0;
  e->gate.turns = 0;
  treadle_generator_join_gate(e);
out:
  if (status) leave(e);
  return status;
}

treadle_status treadle_generator_meet(treadle_generator *engine, const treadle_generator_options *options) {
  treadle_status status;
  TRY(compare_settings(engine, options));
  TRY(join(engine));
out:
  return status;
}

bool treadle_generator_has_failed(const treadle_generator *engine) {
  if (!engine->group || treadle_group_size(engine->group) == 1) return false;
  return !engine->board || treadle_board_has_failed(engine->board);
}

treadle_status treadle_generator_meet_anew(treadle_generator *engine) {
  leave(engine);
  treadle_generator_forget(engine);
  return join(engine);
}

void treadle_generator_join_gate(treadle_generator *engine) {
  treadle_gate *gate = &engine->gate;
  gate->board = engine->sw && engine->replica.rank_count > 1 ? engine->board : NULL;
  gate->ranks = engine->replica.ranks;
  gate->count = engine->replica.rank_count;
}

treadle_status treadle_generator_agree(const treadle_generator *engine, treadle_status status) {
  return treadle_generator_agree_on(engine, status, NULL);
}

treadle_status treadle_generator_agree_on(const treadle_generator *engine, treadle_status status,
                                          const treadle_group_call *call) {
  treadle_group_call ours = call ? *call : (treadle_group_call){.name = ""};
  ours.object = engine->number;
  return engine->group ? treadle_group_agree_on(engine->group, status, &ours) : status;
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
