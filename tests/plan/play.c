/* The interpreter: plays the plans of all ranks in plain memory and compares with the oracle. */
#include "base/dtype.h"
#include "layout/agree.h"
#include "model/model.h"
#include "plan/pairs.h"

#include "test.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096 };

typedef struct window { /* of one rank, seen through a page table */
  uint8_t *pages;
  const int32_t *table;
} window;

static uint8_t *byte_at(const window *w, int64_t at) {
  return w->pages + (int64_t)w->table[at / PAGE] * PAGE + at % PAGE;
}

static void read_elem(const window *w, int64_t at, void *value, size_t size) {
  for (size_t i = 0; i < size; i++) ((uint8_t *)value)[i] = *byte_at(w, at + (int64_t)i);
}

static void write_elem(const window *w, int64_t at, const void *value, size_t size) {
  for (size_t i = 0; i < size; i++) *byte_at(w, at + (int64_t)i) = ((const uint8_t *)value)[i];
}

static const treadle_tensor *tensor_of(const pair *p, int32_t tensor) {
  return &p->model->tensors[p->tensors[tensor]];
}

/* Is it stored plus something on a side? */
static bool is_shifted(const pair *p, int32_t tensor) {
  return treadle_layout_add(p->from.layout, p->tensors[tensor]) != 0 ||
         treadle_layout_add(p->to.layout, p->tensors[tensor]) != 0;
}

/* The bits of a canonical element in its tensor's dtype: any bits but those of infinities and NaN. What is stored
 * less 1 somewhere is of [0.5, 2) with few bits, so that no dtype rounds it or what is left of it. */
static void canonical_value(const pair *p, int32_t tensor, int64_t index, treadle_dtype dtype,
                            void *value) {
  uint64_t hash = oracle_value(p->oracle, tensor, index);
  uint32_t wide = (uint32_t)hash & 0xbfffffffu;
  uint16_t half = (uint16_t)hash & 0xbfffu;
  float shifted = 0.5f + (float)(hash % 96) / 64;
  if (is_shifted(p, tensor))
    treadle_dtype_convert(value, dtype, &shifted, TREADLE_FP32, 1);
  else if (dtype == TREADLE_FP32)
    memcpy(value, &wide, 4);
  else
    memcpy(value, &half, 2);
}

/* The bits of a local element: from the tensor's dtype to that of the source, and then to that of the storage. */
static void expected_value(const pair *p, int32_t tensor, int64_t index, treadle_dtype through,
                           treadle_dtype dtype, int add, void *value) {
  treadle_dtype own = tensor_of(p, tensor)->dtype;
  uint64_t first = 0, second = 0;
  float shifted;
  canonical_value(p, tensor, index, own, &first);
  if (add) {
    treadle_dtype_convert(&shifted, TREADLE_FP32, &first, own, 1);
    shifted += (float)add;
    treadle_dtype_convert(value, dtype, &shifted, TREADLE_FP32, 1);
    return;
  }
  treadle_dtype_convert(&second, through, &first, own, 1);
  treadle_dtype_convert(value, dtype, &second, through, 1);
}

typedef struct rank_state {
  treadle_plan *plan;
  uint8_t *pages;
  uint8_t *written; /* by byte of the destination window */
  int32_t done;
} rank_state;

typedef struct play {
  pair *p;
  rank_state *ranks;
  bool back;
  treadle_random random;
} play;

static window window_of(const play *player, int64_t rank, bool of_to) {
  const rank_state *state = &player->ranks[rank];
  return (window){state->pages, of_to ? state->plan->to_page : state->plan->from_page};
}

static const treadle_direction *direction_of(const play *player, int64_t rank) {
  const treadle_plan *plan = player->ranks[rank].plan;
  return player->back ? &plan->back : &plan->forward;
}

static void play_op(const play *player, int64_t rank, const treadle_op *op) {
  window to = window_of(player, rank, !player->back);
  window from = op->twin ? to : window_of(player, op->source < 0 ? rank : op->source, player->back);
  treadle_dtype from_dtype = (treadle_dtype)op->from_dtype, to_dtype = (treadle_dtype)op->to_dtype;
  size_t from_size = treadle_dtype_bytes(from_dtype), to_size = treadle_dtype_bytes(to_dtype);
  int64_t index[TREADLE_MAX_AXES] = {0};
  for (;;) {
    int64_t from_at = op->from, to_at = op->to;
    for (int d = 0; d < op->ndim; d++) {
      from_at += index[d] * op->from_stride[d];
      to_at += index[d] * op->to_stride[d];
    }
    uint64_t value = 0, made = 0;
    if (op->source >= 0) {
      read_elem(&from, from_at, &value, from_size);
      float wide;
      treadle_dtype_convert(&wide, TREADLE_FP32, &value, from_dtype, 1);
      wide += (float)op->add;
      if (op->add)
        treadle_dtype_convert(&made, to_dtype, &wide, TREADLE_FP32, 1);
      else
        treadle_dtype_convert(&made, to_dtype, &value, from_dtype, 1);
    }
    write_elem(&to, to_at, &made, to_size);
    for (size_t i = 0; i < to_size; i++) player->ranks[rank].written[to_at + (int64_t)i]++;
    int d = op->ndim - 1;
    while (d >= 0 && ++index[d] == op->size[d]) index[d--] = 0;
    if (d < 0) break;
  }
}

static int32_t slowest(const play *player) {
  int32_t done = player->ranks[0].done;
  for (int64_t r = 1; r < player->p->ranks; r++)
    if (player->ranks[r].done < done) done = player->ranks[r].done;
  return done;
}

/* Runs all waves, always of a rank drawn from those that may go on. */
static void play_waves(play *player) {
  int64_t ranks = player->p->ranks;
  int32_t waves = player->ranks[0].plan->waves;
  for (int64_t r = 0; r < ranks; r++) {
    rank_state *state = &player->ranks[r];
    int64_t pages = player->back ? state->plan->from_pages : state->plan->to_pages;
    state->done = -1;
    memset(state->written, 0, (size_t)(pages * PAGE));
  }
  while (slowest(player) < waves - 1) {
    int64_t first = treadle_random_below(&player->random, ranks), r = first;
    int32_t all = slowest(player);
    for (;; r = (r + 1) % ranks) { /* the slowest rank can always go on */
      const rank_state *state = &player->ranks[r];
      if (state->done < waves - 1 && direction_of(player, r)->need[state->done + 1] <= all) break;
      if ((r + 1) % ranks == first) fail_msg("%s: no rank can go on", pair_describe(player->p));
    }
    const treadle_direction *direction = direction_of(player, r);
    int32_t wave = ++player->ranks[r].done;
    for (int32_t i = direction->wave_first[wave]; i < direction->wave_first[wave + 1]; i++)
      play_op(player, r, &direction->ops.items[i]);
  }
}

/* Walks a rank's storage tensors beside the oracle's, and hands out each local element. */
typedef void (*visit)(play *player, int64_t rank, const window *w, int64_t at, treadle_dtype dtype,
                      int32_t tensor, int64_t index, int add);

static bool only_padding(const oracle_storage *storage) {
  for (int64_t i = 0; i < storage->elems; i++)
    if (storage->tensor[i] >= 0) return false;
  return true;
}

/* Given layouts name a storage tensor by its chunk as well: takes that apart. `name` keeps the whole. */
static void own_name(const pair_side *side, treadle_storage_info *info, char *name) {
  int used = 0;
  strcpy(name, info->name);
  if (side->given && sscanf(name, "%d.%n", &info->chunk, &used) == 1 && used > 0)
    memmove(info->name, name + used, strlen(name + used) + 1);
}

static void walk_window(play *player, const pair_side *side, bool is_to, visit each) {
  for (int64_t r = 0; r < player->p->ranks; r++) {
    agree_walk walk = {.rank = &side->oracle->rank[r]};
    window w = window_of(player, r, is_to);
    int32_t count = treadle_layout_storage_count(side->layout, r);
    for (int32_t s = 0; s < count; s++) {
      treadle_storage_info info;
      char name[sizeof info.name];
      int64_t first;
      if (treadle_layout_storage(side->layout, r, s, &info) != TREADLE_OK)
        fail_msg("%s: %s", pair_describe(player->p), treadle_error_message());
      own_name(side, &info, name);
      const oracle_storage *storage = agree_find(&walk, side->like, &info, &first);
      int64_t size = (int64_t)treadle_dtype_bytes(info.dtype), elems = (int64_t)info.bytes / size;
      if (!storage || first + elems > storage->elems ||
          (strcmp(side->like, "distopt") != 0 && elems != storage->elems))
        fail_msg("%s: rank %" PRId64 ": %s has %zu bytes, the oracle's %" PRId64 " elements",
                 pair_describe(player->p), r, name, info.bytes, storage ? storage->elems : -1);
      for (int64_t i = 0; i < elems; i++)
        each(player, r, &w, (int64_t)info.offset_bytes + i * size, info.dtype, storage->tensor[first + i],
             storage->index[first + i],
             side->given ? 0 : oracle_add_of(player->p->oracle, storage, first + i));
    }
    int32_t missing = -count;
    for (int s = 0; s < walk.rank->count; s++)
      missing += !side->given || !only_padding(&walk.rank->storages[s]);
    if (strcmp(side->like, "distopt") != 0) assert_int_equal(missing, 0);
  }
}

static treadle_dtype through_of(const play *player, int32_t tensor) {
  return treadle_layout_dtype(player->p->from.layout, tensor_of(player->p, tensor));
}

static void store(play *player, int64_t rank, const window *w, int64_t at, treadle_dtype dtype,
                  int32_t tensor, int64_t index, int add) {
  (void)rank;
  uint64_t value = 0;
  if (tensor >= 0) expected_value(player->p, tensor, index, dtype, dtype, add, &value);
  write_elem(w, at, &value, treadle_dtype_bytes(dtype));
}

static void compare(play *player, int64_t rank, const window *w, int64_t at, treadle_dtype dtype,
                    int32_t tensor, int64_t index, int add) {
  uint64_t value = 0, expected = 0;
  size_t size = treadle_dtype_bytes(dtype);
  if (tensor >= 0)
    expected_value(player->p, tensor, index, through_of(player, tensor), dtype, add, &expected);
  read_elem(w, at, &value, size);
  if (value != expected)
    fail_msg("%s: %s: rank %" PRId64 " byte %" PRId64 ": %" PRIx64 " for %" PRIx64 " (%s element %" PRId64
             ")",
             pair_describe(player->p), player->back ? "back" : "forward", rank, at, value, expected,
             tensor >= 0 ? player->p->oracle->tensors[tensor].name : "padding", index);
  for (size_t i = 0; i < size; i++)
    if (player->ranks[rank].written[at + (int64_t)i] != 1)
      fail_msg("%s: rank %" PRId64 " byte %" PRId64 " is written %d times", pair_describe(player->p), rank,
               at, player->ranks[rank].written[at + (int64_t)i]);
}

static int64_t largest(int64_t a, int64_t b) { return a > b ? a : b; }

/* Cap, waves and plans as a switch chooses them. */
static void make_plans(play *player, bool cap_min) {
  pair *p = player->p;
  int64_t cap = 0;
  for (int64_t r = 0; r < p->ranks; r++) {
    int64_t own;
    if (treadle_plan_cap_min(p->from.layout, p->to.layout, r, PAGE, &own) != TREADLE_OK)
      fail_msg("%s: %s", pair_describe(p), treadle_error_message());
    cap = largest(cap, own);
  }
  if (!cap_min) cap += PAGE * treadle_random_below(&player->random, 8);
  int32_t waves = treadle_plan_waves(p->from.layout, p->to.layout, PAGE, cap);
  for (bool again = true; again;) {
    again = false;
    for (int64_t r = 0; r < p->ranks; r++) {
      treadle_plan *plan;
      if (treadle_plan_make(p->from.layout, p->to.layout, r, PAGE, waves, cap, &plan) != TREADLE_OK)
        fail_msg("%s: %s", pair_describe(p), treadle_error_message());
      player->ranks[r].plan = plan;
      if (plan->physical_pages * PAGE > largest(plan->from_pages, plan->to_pages) * PAGE + cap)
        again = true;
    }
    if (!again) break;
    if (waves == TREADLE_MAX_WAVES) fail_msg("%s: the peak is over its bound", pair_describe(p));
    waves = TREADLE_MAX_WAVES;
    for (int64_t r = 0; r < p->ranks; r++) treadle_plan_destroy(player->ranks[r].plan);
  }
}

/* Sets what a rank holds. */
static void mark(const oracle_layout *layout, int64_t rank, bool *flags) {
  for (int s = 0; s < layout->rank[rank].count; s++) {
    const oracle_storage *storage = &layout->rank[rank].storages[s];
    for (int64_t e = 0; e < storage->elems; e++)
      if (storage->tensor[e] >= 0)
        flags[layout->model->tensors[storage->tensor[e]].first + storage->index[e]] = true;
  }
}

/* Bytes that a rank has in `to` and not in `from`: each element once, in the narrower type. */
static int64_t bound_of(const pair *p, int64_t rank) {
  bool *has = calloc((size_t)p->oracle->elems, 1), *wants = calloc((size_t)p->oracle->elems, 1);
  int64_t bytes = 0;
  assert_true(has && wants);
  mark(p->from.oracle, rank, has);
  mark(p->to.oracle, rank, wants);
  for (int32_t t = 0; t < p->oracle->tensor_count; t++) {
    const oracle_tensor *tensor = &p->oracle->tensors[t];
    size_t a = treadle_dtype_bytes(treadle_layout_dtype(p->from.layout, tensor_of(p, t)));
    size_t b = treadle_dtype_bytes(treadle_layout_dtype(p->to.layout, tensor_of(p, t)));
    int64_t elems = 0;
    for (int64_t e = tensor->first; e < tensor->first + tensor->elems; e++) elems += wants[e] && !has[e];
    bytes += elems * (int64_t)(a < b ? a : b);
  }
  free(has);
  free(wants);
  return bytes;
}

/* Do all values come back? Those that are shifted do, as canonical_value chooses them. */
static bool comes_back(const pair *p) {
  for (int32_t t = 0; t < p->model->tensor_count; t++) {
    const treadle_tensor *tensor = &p->model->tensors[t];
    if (!treadle_dtype_lossless(treadle_layout_dtype(p->from.layout, tensor),
                                treadle_layout_dtype(p->to.layout, tensor)))
      return false;
  }
  return true;
}

pair_result pair_play(pair *p, bool cap_min) {
  pair_result result = {0};
  play player = {.p = p, .random = {p->seed}};
  player.ranks = calloc((size_t)p->ranks, sizeof *player.ranks);
  assert_non_null(player.ranks);
  make_plans(&player, cap_min);
  for (int64_t r = 0; r < p->ranks; r++) {
    rank_state *state = &player.ranks[r];
    const treadle_plan *plan = state->plan;
    state->pages = malloc((size_t)(plan->physical_pages * PAGE + 1));
    state->written = malloc((size_t)(largest(plan->from_pages, plan->to_pages) * PAGE + 1));
    assert_true(state->pages && state->written);
    memset(state->pages, 0xa5, (size_t)(plan->physical_pages * PAGE));
    assert_int_equal(plan->digest, player.ranks[0].plan->digest);
    if (plan->forward.moved_bytes != plan->forward.lower_bound_bytes)
      fail_msg("%s: rank %" PRId64 " moves %" PRId64 " bytes, bound %" PRId64, pair_describe(p), r,
               plan->forward.moved_bytes, plan->forward.lower_bound_bytes);
    if (plan->back.moved_bytes != plan->back.lower_bound_bytes)
      fail_msg("%s: rank %" PRId64 " moves %" PRId64 " bytes back, bound %" PRId64, pair_describe(p), r,
               plan->back.moved_bytes, plan->back.lower_bound_bytes);
    int64_t truth = bound_of(p, r);
    if (plan->forward.moved_bytes != truth)
      fail_msg("%s: rank %" PRId64 " moves %" PRId64 " bytes, the oracle's bound is %" PRId64,
               pair_describe(p), r, plan->forward.moved_bytes, truth);
    result.moved += plan->forward.moved_bytes;
    result.bound += truth;
    result.back_moved += plan->back.moved_bytes;
    result.waves = plan->waves;
    result.lossless = plan->lossless;
  }
  walk_window(&player, &p->from, false, store);
  play_waves(&player);
  walk_window(&player, &p->to, true, compare);
  result.returned = comes_back(p);
  assert_true(result.returned || !result.lossless);
  if (result.returned) {
    player.back = true;
    play_waves(&player);
    walk_window(&player, &p->from, false, compare);
  }
  for (int64_t r = 0; r < p->ranks; r++) {
    treadle_plan_destroy(player.ranks[r].plan);
    free(player.ranks[r].pages);
    free(player.ranks[r].written);
  }
  free(player.ranks);
  return result;
}
