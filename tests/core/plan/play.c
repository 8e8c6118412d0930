/* The interpreter: plays the plans of all ranks in plain memory and compares with the oracle. */
#include "plan/play.h"
#include "base/dtype.h"
#include "base/larger.h"
#include "layout/agree.h"
#include "model/model.h"
#include "plan/one_rank.h"
#include "messages/parcels.h"
#include "messages/sends.h"

#include "test.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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

static treadle_dtype dtype_in(const pair_side *side, const pair *p, int32_t tensor) {
  return treadle_layout_dtype(side->layout, tensor_of(p, tensor));
}

/* The value that a quantised tensor has before, in the type of the source. */
static float value_before(const pair *p, int32_t tensor, int64_t index) {
  uint32_t own = 0, bits = 0;
  float value;
  canonical_value(p, tensor, index, tensor_of(p, tensor)->dtype, &own);
  treadle_dtype_convert(&bits, dtype_in(&p->from, p, tensor), &own, tensor_of(p, tensor)->dtype, 1);
  treadle_dtype_convert(&value, TREADLE_FP32, &bits, dtype_in(&p->from, p, tensor), 1);
  return value;
}

/* The bits of a local element: from the tensor's dtype to that of the storage, by those of the layouts that it has been in
 * before this moment. */
static void expected_value(const play *player, int moment, int32_t tensor, int64_t index,
                           treadle_dtype dtype, int add, void *value) {
  const pair *p = player->p;
  const oracle_tensor *of = &p->oracle->tensors[tensor];
  treadle_dtype now = tensor_of(p, tensor)->dtype;
  uint64_t bits = 0, next = 0;
  float shifted;
  if (player->is_coded && (of->scale || of->weight)) {
    coded_bits(p, &player->truth, moment, tensor, index, dtype, value);
    return;
  }
  canonical_value(p, tensor, index, now, &bits);
  if (add) {
    treadle_dtype_convert(&shifted, TREADLE_FP32, &bits, now, 1);
    shifted += (float)add;
    treadle_dtype_convert(value, dtype, &shifted, TREADLE_FP32, 1);
    return;
  }
  for (int before = 0; before < moment; before++) {
    treadle_dtype to = dtype_in(before % 2 ? &p->to : &p->from, p, tensor);
    treadle_dtype_convert(&next, to, &bits, now, 1);
    bits = next;
    next = 0;
    now = to;
  }
  treadle_dtype_convert(value, dtype, &bits, now, 1);
}

/* Walks a rank's storage tensors beside the oracle's, and hands out each local element. */
typedef void (*visit)(play *player, int64_t rank, const play_window *w, int64_t at, treadle_dtype dtype,
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
    play_window w = play_window_of(player, r, is_to);
    int32_t count = treadle_layout_storage_count(side->layout, r);
    for (int32_t s = 0; s < count; s++) {
      treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
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

static void store(play *player, int64_t rank, const play_window *w, int64_t at, treadle_dtype dtype,
                  int32_t tensor, int64_t index, int add) {
  (void)rank;
  uint64_t value = 0;
  if (tensor >= 0) expected_value(player, 0, tensor, index, dtype, add, &value);
  play_write(w, at, &value, treadle_dtype_bytes(dtype));
}

static void compare(play *player, int64_t rank, const play_window *w, int64_t at, treadle_dtype dtype,
                    int32_t tensor, int64_t index, int add) {
  uint64_t value = 0, expected = 0;
  size_t size = treadle_dtype_bytes(dtype);
  if (tensor >= 0) expected_value(player, player->back ? 2 : 1, tensor, index, dtype, add, &expected);
  play_read(w, at, &value, size);
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

static treadle_status make_plan(const pair *p, int64_t rank, int32_t waves, int64_t cap,
                                treadle_plan **plan_p) {
  const treadle_plan_base_options options = {.page_bytes = PAIR_PAGE,
                                             .nodes = p->nodes.count ? &p->nodes : NULL};
  treadle_plan_base plan_base;
  treadle_status status = treadle_plan_base_plain(p->from.layout, p->to.layout, rank, &options, &plan_base);
  return status ? status : treadle_plan_make_on(&plan_base, waves, cap, plan_p);
}

/* Cap, waves and plans as a switch chooses them. */
static void make_plans(play *player, bool cap_min) {
  pair *p = player->p;
  int64_t cap = 0;
  for (int64_t r = 0; r < p->ranks; r++) {
    int64_t own;
    if (one_rank_cap_min(p->from.layout, p->to.layout, r, PAIR_PAGE, &own) != TREADLE_OK)
      fail_msg("%s: %s", pair_describe(p), treadle_error_message());
    cap = treadle_larger(cap, own);
  }
  if (!cap_min) cap += PAIR_PAGE * treadle_random_below(&player->random, 8);
  int32_t waves = treadle_plan_waves(p->from.layout, p->to.layout, PAIR_PAGE, cap);
  for (bool again = true; again;) {
    again = false;
    for (int64_t r = 0; r < p->ranks; r++) {
      treadle_plan *plan;
      if (make_plan(p, r, waves, cap, &plan) != TREADLE_OK)
        fail_msg("%s: %s", pair_describe(p), treadle_error_message());
      player->ranks[r].plan = plan;
      if (plan->physical_pages * PAIR_PAGE >
          treadle_larger(plan->from_pages, plan->to_pages) * PAIR_PAGE + cap)
        again = true;
    }
    if (!again) break;
    if (waves == TREADLE_MAX_WAVES) fail_msg("%s: the peak is over its bound", pair_describe(p));
    waves = TREADLE_MAX_WAVES;
    for (int64_t r = 0; r < p->ranks; r++) treadle_plan_destroy(player->ranks[r].plan);
  }
}

/* Are all values the same when they have come back? Those that are shifted do, as canonical_value chooses them. */
static bool comes_back(const pair *p) {
  if (p->from.layout->fp8 != p->to.layout->fp8) return false;
  for (int32_t t = 0; t < p->model->tensor_count; t++) {
    const treadle_tensor *tensor = &p->model->tensors[t];
    if (!treadle_dtype_lossless(treadle_layout_dtype(p->from.layout, tensor),
                                treadle_layout_dtype(p->to.layout, tensor)))
      return false;
  }
  return true;
}

/* What enters all nodes together, against the oracle. Where blocks are made or taken apart it is more: scales, what several ranks of a
 * node want of a block in pieces that are cut in other ways, and values of blocks that no rank has whole. */
static void check_nodes(const pair *p, pair_result *result, int64_t back_moved) {
  bool made = p->from.layout->fp8 != p->to.layout->fp8;
  if (p->nodes.count < 2) {
    assert_int_equal(result->node_moved + back_moved + result->relayed, 0);
    return;
  }
  for (int back = 0; back < 2; back++) {
    int64_t moved = back ? back_moved : result->node_moved, bound = play_node_bound(p, back);
    if (made ? moved < bound : moved != bound)
      fail_msg("%s: %d nodes: %s: %" PRId64 " bytes enter nodes, the oracle's bound is %" PRId64,
               pair_describe(p), p->nodes.count, back ? "back" : "forward", moved, bound);
    if (!back) result->node_bound = bound;
  }
}

/* What a rank gets of others: its ops, and the inputs of its block rows. */
typedef struct pull {
  treadle_op op;
  bool input;
} pull;

typedef TREADLE_ARRAY(pull) pulls;

static int by_order(const void *a, const void *b) {
  const pull *x = a, *y = b;
  return treadle_send_order(&x->op, x->input, &y->op, y->input);
}

static bool same_op(const treadle_op *a, const treadle_op *b) {
  size_t bytes = a->ndim * sizeof *a->size;
  return a->wave == b->wave && a->source == b->source && a->twin == b->twin && a->ndim == b->ndim &&
         a->from_dtype == b->from_dtype && a->to_dtype == b->to_dtype && a->add == b->add &&
         a->tensor == b->tensor && a->storage == b->storage && a->from == b->from && a->to == b->to &&
         a->elems == b->elems && a->made == b->made && memcmp(a->size, b->size, bytes) == 0 &&
         memcmp(a->from_stride, b->from_stride, bytes) == 0 &&
         memcmp(a->to_stride, b->to_stride, bytes) == 0;
}

static treadle_status take_input(void *context, const treadle_op *op) {
  return treadle_array_push((pulls *)context, ((pull){*op, true}));
}

/* What a rank pulls from another one in a wave, in the order in which it is sent. */
static void list_pulls(const treadle_direction *direction, int32_t wave, int32_t source, pulls *all) {
  const treadle_far_input_sources sources = {NULL, source};
  all->count = 0;
  for (int32_t i = direction->wave_first[wave]; i < direction->wave_first[wave + 1]; i++) {
    const treadle_op *op = &direction->ops.items[i];
    if (op->source == source && !op->twin) assert_ok(treadle_array_push(all, ((pull){*op, false})));
  }
  for (int32_t i = direction->block_row_first[wave]; i < direction->block_row_first[wave + 1]; i++) {
    const treadle_block_row *run = &direction->block_rows.items[i];
    assert_ok(treadle_far_inputs_walk(&sources, run, direction->block_row_parts.items + run->part_first,
                                      take_input, all));
  }
  if (all->count > 1) qsort(all->items, all->count, sizeof *all->items, by_order);
}

/* All that comes from other nodes. */
static size_t count_pulls(const treadle_direction *direction, const treadle_nodes *nodes, int64_t rank,
                          pair_result *result) {
  const treadle_far_input_sources sources = {nodes, rank};
  pulls inputs = {0};
  for (size_t i = 0; i < direction->block_rows.count; i++) {
    const treadle_block_row *run = &direction->block_rows.items[i];
    assert_ok(treadle_far_inputs_walk(&sources, run, direction->block_row_parts.items + run->part_first,
                                      take_input, &inputs));
  }
  size_t count = inputs.count;
  result->inputs += (int64_t)count;
  treadle_array_release(&inputs);
  for (size_t i = 0; i < direction->ops.count; i++) {
    const treadle_op *op = &direction->ops.items[i];
    count += op->source >= 0 && nodes->of[op->source] != nodes->of[rank];
    result->made += op->made > 0;
  }
  return count;
}

/* Senders know what readers pull, each alone; and have all of the values of what they are to make. */
static void check_sends(const play *player, bool back, pair_result *result) {
  const pair *p = player->p;
  size_t sent = 0, pulled = 0;
  pulls all = {0};
  for (int64_t r = 0; r < p->ranks; r++) {
    const treadle_plan *plan = player->ranks[r].plan;
    pulled += count_pulls(back ? &plan->back : &plan->forward, &p->nodes, r, result);
  }
  for (int64_t r = 0; r < p->ranks; r++) {
    treadle_sends sends;
    treadle_ordered ordered;
    treadle_traffic traffic;
    assert_ok(treadle_sends_make(player->ranks[r].plan, back, &sends));
    for (size_t i = 0; i < sends.list.count; i += all.count) {
      const treadle_send *first = &sends.list.items[i];
      const treadle_plan *reader = player->ranks[first->reader].plan;
      assert_true(p->nodes.of[first->reader] != p->nodes.of[r]);
      list_pulls(back ? &reader->back : &reader->forward, first->op.wave, (int32_t)r, &all);
      assert_true(all.count > 0 && i + all.count <= sends.list.count);
      for (size_t k = 0; k < all.count; k++) {
        assert_int_equal(first[k].reader, first->reader);
        if (!same_op(&first[k].op, &all.items[k].op) || first[k].input != all.items[k].input)
          fail_msg("%s: %s: rank %" PRId64 " sends rank %d something else than that pulls",
                   pair_describe(p), back ? "back" : "forward", r, first->reader);
      }
    }
    sent += sends.list.count;
    assert_ok(treadle_ordered_begin(player->ranks[r].plan, back, &ordered));
    assert_ok(treadle_traffic_out(&sends, &ordered, r, &p->nodes, 1000, &traffic));
    treadle_traffic_release(&traffic);
    treadle_ordered_release(&ordered);
    treadle_sends_release(&sends);
  }
  assert_int_equal(sent, pulled);
  treadle_array_release(&all);
}

pair_result pair_play(pair *p, bool cap_min) {
  pair_result result = {0};
  int64_t back_node_moved = 0;
  play player = {.p = p, .random = {p->seed}};
  player.ranks = calloc((size_t)p->ranks, sizeof *player.ranks);
  assert_non_null(player.ranks);
  player.is_coded = p->from.layout->fp8 || p->to.layout->fp8;
  if (player.is_coded) coded_make(p, value_before, &player.truth);
  int64_t *bounds = play_bounds(p);
  make_plans(&player, cap_min);
  for (int64_t r = 0; r < p->ranks; r++) {
    play_rank *state = &player.ranks[r];
    const treadle_plan *plan = state->plan;
    state->pages = malloc((size_t)(plan->physical_pages * PAIR_PAGE + 1));
    state->written = malloc((size_t)(treadle_larger(plan->from_pages, plan->to_pages) * PAIR_PAGE + 1));
    assert_true(state->pages && state->written);
    memset(state->pages, 0xa5, (size_t)(plan->physical_pages * PAIR_PAGE));
    assert_int_equal(plan->digest, player.ranks[0].plan->digest);
    /* A rank on one of several nodes gets codes that another one has made, without what its blocks have beside. */
    bool by_itself = p->nodes.count < 2 || p->from.layout->fp8 == p->to.layout->fp8;
    if (by_itself && plan->forward.moved_bytes != plan->forward.lower_bound_bytes)
      fail_msg("%s: rank %" PRId64 " moves %" PRId64 " bytes, bound %" PRId64, pair_describe(p), r,
               plan->forward.moved_bytes, plan->forward.lower_bound_bytes);
    if (by_itself && plan->back.moved_bytes != plan->back.lower_bound_bytes)
      fail_msg("%s: rank %" PRId64 " moves %" PRId64 " bytes back, bound %" PRId64, pair_describe(p), r,
               plan->back.moved_bytes, plan->back.lower_bound_bytes);
    if (by_itself && plan->forward.moved_bytes != bounds[r])
      fail_msg("%s: rank %" PRId64 " moves %" PRId64 " bytes, the oracle's bound is %" PRId64,
               pair_describe(p), r, plan->forward.moved_bytes, bounds[r]);
    result.moved += plan->forward.moved_bytes;
    result.node_moved += plan->forward.node_moved_bytes;
    back_node_moved += plan->back.node_moved_bytes;
    result.relayed += plan->forward.relayed_bytes + plan->back.relayed_bytes;
    result.bound += bounds[r];
    result.back_moved += plan->back.moved_bytes;
    result.block_rows += plan->forward.block_rows.count + plan->back.block_rows.count;
    result.waves = plan->waves;
    result.lossless = plan->lossless;
  }
  check_nodes(p, &result, back_node_moved);
  for (int back = 0; back < 2 && p->nodes.count > 1; back++) check_sends(&player, back, &result);
  walk_window(&player, &p->from, false, store);
  play_waves(&player);
  walk_window(&player, &p->to, true, compare);
  result.returned = comes_back(p);
  assert_true(result.returned || !result.lossless);
  player.back = true;
  play_waves(&player);
  walk_window(&player, &p->from, false, compare);
  for (int64_t r = 0; r < p->ranks; r++) {
    treadle_plan_destroy(player.ranks[r].plan);
    free(player.ranks[r].pages);
    free(player.ranks[r].written);
  }
  free(player.ranks);
  free(bounds);
  if (player.is_coded) coded_release(p, &player.truth);
  return result;
}
