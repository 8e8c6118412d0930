/* Which ranks of an actor train, and which generate.
 *
 *   all do both       the layouts are for all ranks; an engine's group is the actor's
 *   each does one     both layouts have on=; the group is divided in two, and an engine's layout is the same one without on=,
 *                     for the ranks that on= names. The switch is on the whole group, with the layouts as they are
 *
 * All ranks make all calls. Ranks that do not have the job of a call wait for those that do, which may take long. */
#include "control/actor.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/text.h"
#include "control/divide.h"
#include "group/group.h"
#include "layout/layout.h"
#include "train/coordinate.h"

#include <string.h>

/* ---- Layouts ------------------------------------------------------------------------------------------------ */

static treadle_status refuse_half(const treadle_layout *train, const treadle_layout *infer) {
  const treadle_layout *some = train->owners.runs ? train : infer, *all = some == train ? infer : train;
  REFUSE("layout '%s' is on %lld of %lld ranks, layout '%s' on all of them: trainer and generator share "
         "all ranks, or none; give "
         "both layouts on=, or neither",
         some->text, (long long)some->owners.count, (long long)some->ranks, all->text);
}

/* Each rank is in one of both. */
static treadle_status check_ranks(const treadle_layout *train, const treadle_layout *infer) {
  for (int64_t rank = 0; rank < train->ranks; rank++) {
    const bool trains = treadle_layout_holds(train, rank), generates = treadle_layout_holds(infer, rank);
    if (trains != generates) continue;
    if (trains)
      REFUSE("rank %lld is in on= of layout '%s' and of layout '%s': trainer and generator share all "
             "ranks, or "
             "none",
             (long long)rank, train->text, infer->text);
    REFUSE("rank %lld is in on= of neither layout '%s' nor layout '%s': each of the %lld ranks trains or "
           "generates",
           (long long)rank, train->text, infer->text, (long long)train->ranks);
  }
  return TREADLE_OK;
}

treadle_status treadle_actor_check_sides(const treadle_layout *train, const treadle_layout *infer,
                                         const treadle_layout *reference) {
  treadle_status status;
  if (!train->owners.runs && !infer->owners.runs) return TREADLE_OK;
  if (train->ranks != infer->ranks)
    REFUSE("layout '%s' is for %lld ranks, layout '%s' for %lld: both must be for all ranks of the group",
           train->text, (long long)train->ranks, infer->text, (long long)infer->ranks);
  if (!train->owners.runs || !infer->owners.runs) return refuse_half(train, infer);
  TRY(check_ranks(train, infer));
  if (reference)
    REFUSE("trainer and generator are on ranks of their own ('%s' and '%s'), and such a worker has no "
           "reference: leave it out, and compute its log-probabilities in a role of its own",
           train->text, infer->text);
out:
  return status;
}

void treadle_actor_settle_options(const treadle_layout *train, treadle_actor_options *options) {
  if (!train->owners.runs) return;
  options->offload_train_param = options->offload_train_grad = options->offload_train_optimizer =
      TREADLE_OFF;
}

/* on= is the last key of a layout's text, and none of its value looks like a key. */
static size_t length_without_on(const char *text) {
  const char *on = NULL;
  for (const char *at = text; (at = strstr(at, "on=")) != NULL; at++) on = at;
  return (size_t)(on - text) - 1; /* and the mark before it */
}

treadle_status treadle_actor_layout_alone(const treadle_layout *layout, treadle_layout **alone_p) {
  const size_t length = length_without_on(layout->text);
  char *text = treadle_alloc(length + 1);
  treadle_status status;
  *alone_p = NULL;
  if (!text) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a layout of a worker");
  memcpy(text, layout->text, length);
  text[length] = 0;
  TRY(treadle_layout_create(layout->model, text, layout->owners.count, NULL, alone_p));
  (*alone_p)->order = layout->order; /* the rank map */
  memcpy((*alone_p)->map_text, layout->map_text, sizeof layout->map_text);
out:
  treadle_free(text);
  return status;
}

void treadle_actor_spread(const treadle_layout *layout, const void *of_side, size_t bytes, void *by_rank) {
  memset(by_rank, 0, (size_t)layout->ranks * bytes);
  for (int64_t place = 0; place < layout->owners.count; place++)
    memcpy((char *)by_rank + (size_t)treadle_owners_rank(&layout->owners, place) * bytes,
           (const char *)of_side + (size_t)place * bytes, bytes);
}

/* ---- Sides --------------------------------------------------------------------------------------------------- */

static int64_t rank_of(const treadle_actor *a) { return a->group ? treadle_group_rank(a->group) : 0; }

static treadle_status take_side(treadle_actor *a, treadle_actor_job job, const treadle_layout *layout) {
  treadle_actor_side *side = &a->sides[job];
  treadle_status status = TREADLE_OK;
  side->rank = treadle_owners_find(&layout->owners, rank_of(a));
  side->here = side->rank >= 0;
  side->first = (int)treadle_owners_rank(&layout->owners, 0);
  side->ranks = layout->owners.count;
  if (layout->owners.runs) TRY(treadle_actor_layout_alone(layout, &side->made));
  side->layout = side->made ? side->made : layout;
out:
  return status;
}

treadle_status treadle_actor_take_sides(treadle_actor *a) {
  treadle_status status;
  a->apart = a->train_layout->owners.runs != NULL;
  TRY(take_side(a, TREADLE_ACTOR_TRAINS, a->train_layout));
  TRY(take_side(a, TREADLE_ACTOR_GENERATES, a->infer_layout));
out:
  return status;
}

treadle_status treadle_actor_open_side(treadle_actor *a) {
  const treadle_actor_job job =
      a->sides[TREADLE_ACTOR_TRAINS].here ? TREADLE_ACTOR_TRAINS : TREADLE_ACTOR_GENERATES;
  treadle_status status = TREADLE_OK;
  a->side_group = a->group;
  if (!a->apart) return TREADLE_OK;
  TRY(treadle_group_split(a->group, (int)job, (int)a->sides[job].rank, &a->part));
  a->side_group = treadle_group_size(a->part) > 1 ? a->part : NULL;
out:
  return status;
}

void treadle_actor_close_sides(treadle_actor *a) {
  treadle_group_close(a->part);
  for (int job = 0; job < TREADLE_ACTOR_JOBS; job++) treadle_layout_destroy(a->sides[job].made);
}

/* ---- Agreement ----------------------------------------------------------------------------------------------- */

static treadle_status wait_for_job(const treadle_actor *a, treadle_actor_job job) {
  static const char *const names[] = {"the ranks that train", "the ranks that generate"};
  const char done = 1;
  return a->sides[job].here ? treadle_group_say(a->group, &done, sizeof done)
                            : treadle_group_listen(a->group, a->sides[job].first, names[job]);
}

treadle_status treadle_actor_agree_after(const treadle_actor *a, treadle_actor_job job,
                                         treadle_status status) {
  const treadle_status waited = a->apart ? wait_for_job(a, job) : TREADLE_OK;
  return treadle_actor_agree(a, status ? status : waited);
}

treadle_status treadle_actor_share(const treadle_actor *a, treadle_actor_job job, uint64_t *found) {
  const uint64_t mine = a->sides[job].here ? *found : 0;
  treadle_status status = TREADLE_OK;
  if (!a->apart) return TREADLE_OK;
  TRY(treadle_group_say(a->group, &mine, sizeof mine));
  memcpy(found, treadle_group_said(a->group, a->sides[job].first), sizeof *found);
out:
  return status;
}

/* ---- Rows ---------------------------------------------------------------------------------------------------- */

treadle_status treadle_actor_check_rows(const treadle_actor *a, treadle_actor_job job,
                                        const treadle_batch *batch) {
  const int64_t rows = treadle_batch_rows(batch);
  if (a->sides[job].here || rows == 0) return TREADLE_OK;
  if (job == TREADLE_ACTOR_TRAINS)
    REFUSE("rank %lld has no trainer, and was given %s: treadle_actor_slice gives each rank its own",
           (long long)rank_of(a), treadle_text_of_count(rows, "row"));
  REFUSE(
      "rank %lld has no generator, and was given %s: treadle_actor_slice_prompts gives each rank its own",
      (long long)rank_of(a), treadle_text_of_count(rows, "prompt"));
}

treadle_status treadle_actor_no_answers(treadle_batch **out_p) {
  static const int64_t offsets[] = {0};
  const treadle_column ids = {.struct_size = sizeof ids,
                              .name = "ids",
                              .type = TREADLE_COLUMN_INT32,
                              .offsets = offsets},
                       logprobs = {.struct_size = sizeof logprobs,
                                   .name = "rollout_log_probs",
                                   .type = TREADLE_COLUMN_FP32,
                                   .offsets = offsets},
                       finish = {.struct_size = sizeof finish,
                                 .name = "finish",
                                 .type = TREADLE_COLUMN_TEXT,
                                 .offsets = offsets};
  treadle_batch *out;
  treadle_status status;
  *out_p = NULL;
  TRY(treadle_batch_create(0, &out));
  *out_p = out;
  TRY(treadle_batch_add(out, &ids));
  TRY(treadle_batch_add(out, &logprobs));
  TRY(treadle_batch_add(out, &finish));
out:
  return status;
}

/* Replicas have prompts that follow each other, as many as the others or one more. */
treadle_status treadle_actor_slice_prompts(treadle_actor *actor, const treadle_batch *prompts,
                                           treadle_row_range *range_p, bool *leads_p,
                                           treadle_batch **mine_p) {
  treadle_row_range mine = {0, 0};
  treadle_status status;
  TREADLE_NEED(mine_p);
  *mine_p = NULL;
  TREADLE_NEED(actor);
  TREADLE_NEED(prompts);
  if (actor->sides[TREADLE_ACTOR_GENERATES].here)
    mine = treadle_replica_rows(&actor->replica, treadle_batch_rows(prompts));
  TRY(treadle_batch_slice(prompts, mine.first, mine.end, mine_p));
  if (range_p) *range_p = mine;
  if (leads_p) *leads_p = actor->replica.leads;
out:
  return status;
}

treadle_status treadle_actor_slice(treadle_actor *actor, const treadle_batch *batch,
                                   const treadle_forward_options *forward, treadle_row_range *range_p,
                                   treadle_batch **mine_p) {
  treadle_status status;
  TREADLE_NEED(mine_p);
  *mine_p = NULL;
  TREADLE_NEED(actor);
  TREADLE_NEED(batch);
  const treadle_actor_side *side = &actor->sides[TREADLE_ACTOR_TRAINS];
  const treadle_coordinate mine = {.engine = &actor->train, .rank = side->rank, .ranks = side->ranks};
  if (side->here) return treadle_coordinate_slice(&mine, batch, forward, range_p, mine_p);
  TRY(treadle_batch_slice(batch, 0, 0, mine_p));
  if (range_p) *range_p = (treadle_row_range){0, 0};
out:
  return status;
}

treadle_status treadle_actor_divide(const treadle_actor *actor, const int64_t *lengths, int64_t rows,
                                    const treadle_forward_options *forward, treadle_row_range *by_rank) {
  const treadle_actor_side *side = &actor->sides[TREADLE_ACTOR_TRAINS];
  treadle_row_range *of_side;
  treadle_status status;
  if (!side->here)
    REFUSE("rank %lld has no trainer, which says what rows each rank takes: ask rank %d",
           (long long)rank_of(actor), side->first);
  if (!actor->apart)
    return treadle_engine_divide(&actor->train, side->ranks, lengths, rows, forward, by_rank);
  of_side = treadle_alloc_array((size_t)side->ranks, sizeof *of_side);
  if (!of_side)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for the rows of %lld ranks", (long long)side->ranks);
  TRY(treadle_engine_divide(&actor->train, side->ranks, lengths, rows, forward, of_side));
  treadle_actor_spread(actor->train_layout, of_side, sizeof *of_side, by_rank);
out:
  treadle_free(of_side);
  return status;
}
