/* Plans: both directions of one rank, and the sharing of its pages. */
#include "plan/plan.h"

#include "base/dtype.h"
#include "base/hash.h"
#include "base/larger.h"
#include "base/sized.h"
#include "base/text.h"
#include "plan/alias.h"
#include "plan/block_rows.h"
#include "plan/sinks.h"

#include <inttypes.h>

enum { ALGORITHM = 3 }; /* part of the digest: raise it when the same inputs give other plans */

/* Are there tensors whose blocks are codes in one layout and values in the other? */
static bool codes_differ(const treadle_layout *from, const treadle_layout *to) {
  if (from->fp8 != to->fp8) return true;
  for (int32_t t = 0; (from->values || to->values) && t < from->model->tensor_count; t++)
    if (treadle_layout_holds_codes(from, t) != treadle_layout_holds_codes(to, t)) return true;
  return false;
}

treadle_status treadle_plan_check(const treadle_layout *from, const treadle_layout *to, int64_t rank,
                                  int64_t page_bytes) {
  if (from->model != to->model)
    return treadle_fail(TREADLE_REFUSED, "plan: '%s' and '%s' are layouts of two models", from->text,
                        to->text);
  bool differ = codes_differ(from, to);
  if (differ &&
      (from->model->block[0] > TREADLE_BLOCK_ROW_SIDE || from->model->block[1] > TREADLE_BLOCK_ROW_SIDE))
    return treadle_fail(
        TREADLE_REFUSED, "plan: fp8 blocks of %" PRId64 " x %" PRId64 "; %d x %d at the most are quantised",
        from->model->block[0], from->model->block[1], TREADLE_BLOCK_ROW_SIDE, TREADLE_BLOCK_ROW_SIDE);
  const treadle_layout *coded = from->fp8 && (from->blocks_fault || !to->fp8) ? from : to;
  if (differ && coded->blocks_fault)
    return treadle_fail(TREADLE_REFUSED,
                        "plan: '%s': %s: blocks like these are neither made of values nor taken apart",
                        coded->text, coded->blocks_fault);
  if (from->ranks != to->ranks)
    return treadle_fail(TREADLE_REFUSED, "plan: '%s' is of %s and '%s' of %" PRId64, from->text,
                        treadle_text_of_count(from->ranks, "rank"), to->text, to->ranks);
  if (rank < 0 || rank >= from->ranks)
    return treadle_fail(TREADLE_REFUSED, "plan: rank %" PRId64 " is not one of %" PRId64, rank,
                        from->ranks);
  if (page_bytes < 4096 || page_bytes > INT64_C(1) << 40 || (page_bytes & (page_bytes - 1)) != 0)
    return treadle_fail(TREADLE_REFUSED,
                        "plan: a page of %zu bytes is not a power of two from 4 KiB to 1 TiB",
                        (size_t)page_bytes);
  return TREADLE_OK;
}

/* Does every value come back the same? Of all ranks, so that all of them say the same. */
bool treadle_plan_is_lossless(const treadle_layout *from, const treadle_layout *to) {
  const treadle_model *model = from->model;
  if (codes_differ(from, to)) return false;
  for (int32_t t = 0; t < model->tensor_count; t++)
    if (!treadle_dtype_lossless(treadle_layout_dtype(from, &model->tensors[t]),
                                treadle_layout_dtype(to, &model->tensors[t])) ||
        treadle_layout_add(from, t) != treadle_layout_add(to, t))
      return false;
  return true;
}

static treadle_status start_direction(treadle_plan *plan, treadle_direction *direction) {
  direction->first_reclaim = plan->waves;
  direction->need = treadle_arena_alloc_array(&plan->arena, (size_t)plan->waves, sizeof *direction->need);
  if (!direction->need) return treadle_fail(TREADLE_NO_MEMORY, "plan: memory is out");
  for (int32_t w = 0; w < plan->waves; w++) direction->need[w] = -1;
  return TREADLE_OK;
}

static uint64_t digest_of(const treadle_plan *plan) {
  uint64_t hash = treadle_hash_more(ALGORITHM, plan->from->model->digest);
  hash = treadle_hash_more(hash, plan->from->digest);
  hash = treadle_hash_more(hash, plan->to->digest);
  hash = treadle_hash_more(hash, (uint64_t)plan->from->order.f);
  hash = treadle_hash_more(hash, (uint64_t)plan->to->order.f);
  hash = treadle_hash_more(hash, (uint64_t)plan->page_bytes);
  hash = treadle_hash_more(hash, (uint64_t)plan->cap_bytes);
  hash = treadle_hash_more(hash, (uint64_t)plan->alias << 1 | plan->keep_params);
  for (int64_t r = 0; plan->nodes && r < plan->nodes->ranks; r++)
    hash = treadle_hash_more(hash, (uint64_t)plan->nodes->of[r]);
  return treadle_hash_more(hash, (uint64_t)plan->waves);
}

/* Ops have left out what is aliased, and nothing else. */
static treadle_status finish_direction(treadle_plan *plan, treadle_direction *direction, bool back) {
  treadle_status status = TREADLE_OK;
  int64_t aliased = plan->arrangement.pages * plan->page_bytes;
  direction->coverage += treadle_alias_coverage(&plan->arrangement, back);
  TRY(treadle_op_sink_sort(plan, direction));
  if (direction->aliased_bytes != aliased)
    status = treadle_fail(TREADLE_DIFFERENT,
                          "plan: rank %" PRId64 ": its copies leave out %" PRId64 " bytes, and %" PRId64
                          " are aliased",
                          plan->rank, direction->aliased_bytes, aliased);
out:
  return status;
}

static treadle_status make_directions(treadle_plan *plan, treadle_lanes *lanes,
                                      treadle_window_lives *lives) {
  treadle_status status = TREADLE_OK;
  lanes->waves = plan->waves;
  treadle_op_sink forward = treadle_op_sink_make(plan, lives->to, false, &plan->forward);
  treadle_op_sink back = treadle_op_sink_make(plan, lives->from, true, &plan->back);
  forward.keep = back.keep = true;
  TRY(start_direction(plan, &plan->forward));
  TRY(start_direction(plan, &plan->back));
  TRY(treadle_direction_walk(lanes, plan->from, plan->to, plan->rank, &forward.sink));
  TRY(treadle_layout_inbound(plan->from, plan->to, plan->rank, plan->cuts_of_all,
                             &plan->forward.lower_bound_bytes));
  TRY(finish_direction(plan, &plan->forward, false));
  if (plan->keep_params) {
    TRY(treadle_op_sink_sort(plan, &plan->back));
    goto out;
  }
  TRY(treadle_direction_walk(lanes, plan->to, plan->from, plan->rank, &back.sink));
  TRY(treadle_layout_inbound(plan->to, plan->from, plan->rank, plan->cuts_of_all,
                             &plan->back.lower_bound_bytes));
  TRY(finish_direction(plan, &plan->back, true));
out:
  treadle_op_sink_release(&forward);
  treadle_op_sink_release(&back);
  return status;
}

static treadle_status share_pages(treadle_plan *plan, treadle_window_lives *lives) {
  treadle_arena *arena = &plan->arena;
  plan->from_page =
      treadle_arena_alloc_array(arena, (size_t)lives->from_count + 1, sizeof *plan->from_page);
  plan->to_page = treadle_arena_alloc_array(arena, (size_t)lives->to_count + 1, sizeof *plan->to_page);
  if (!plan->from_page || !plan->to_page) return treadle_fail(TREADLE_NO_MEMORY, "plan: memory is out");
  treadle_window_lives_settle(lives);
  return treadle_window_lives_share(lives, plan->waves, plan->from_page, plan->to_page, &plan->forward,
                                    &plan->back, &plan->physical_pages);
}

treadle_status treadle_plan_make_on(const treadle_plan_base *plan_base, int32_t waves, int64_t cap_bytes,
                                    treadle_plan **plan_p) {
  treadle_status status = TREADLE_OK;
  treadle_lanes lanes = {0};
  treadle_window_lives lives = {0};
  const treadle_arrangement *arrangement = treadle_plan_base_choose(plan_base, cap_bytes);
  *plan_p = NULL;
  treadle_plan *plan = treadle_alloc(sizeof *plan);
  if (!plan) return treadle_fail(TREADLE_NO_MEMORY, "plan: memory is out");
  if (waves < 1 || waves > TREADLE_MAX_WAVES) {
    status =
        treadle_fail(TREADLE_REFUSED, "plan: %d waves; from 1 to %d will do", waves, TREADLE_MAX_WAVES);
    goto out;
  }
  *plan = (treadle_plan){.from = plan_base->from,
                         .to = plan_base->to,
                         .rank = plan_base->rank,
                         .nodes = plan_base->options.nodes,
                         .alias = plan_base->options.alias,
                         .keep_params = plan_base->options.keep_params,
                         .waves = waves,
                         .page_bytes = plan_base->options.page_bytes,
                         .cap_bytes = cap_bytes,
                         .cap_min_bytes = plan_base->cap_min_bytes,
                         .from_pages = arrangement->from_pages,
                         .to_pages = arrangement->to_pages,
                         .plain_to_pages = plan_base->arrangements[0].to_pages,
                         .lossless = treadle_plan_is_lossless(plan_base->from, plan_base->to)};
  TRY(treadle_arrangement_copy(arrangement, &plan->arrangement));
  TRY(treadle_lanes_create(plan->from, plan->to, plan->page_bytes, &lanes));
  TRY(treadle_window_lives_create(plan->from_pages, plan->to_pages, &lives));
  lives.arrangement = &plan->arrangement;
  lives.kept = plan->keep_params;
  TRY(make_directions(plan, &lanes, &lives));
  TRY(share_pages(plan, &lives));
  plan->digest = digest_of(plan);
  *plan_p = plan;
out:
  if (status != TREADLE_OK) treadle_plan_destroy(plan);
  treadle_window_lives_release(&lives);
  treadle_lanes_release(&lanes);
  return status;
}

int64_t treadle_plan_bound(const treadle_plan *plan) {
  int64_t pages = plan->keep_params ? plan->from_pages + plan->plain_to_pages
                                    : treadle_larger(plan->from_pages, plan->plain_to_pages);
  return pages * plan->page_bytes + plan->cap_bytes;
}

treadle_status treadle_plan_create(const treadle_layout *from, const treadle_layout *to, int64_t rank,
                                   const treadle_plan_options *options, treadle_plan **plan_p) {
  treadle_status status = TREADLE_OK;
  TREADLE_NEED(plan_p);
  *plan_p = NULL;
  TREADLE_NEED(from);
  TREADLE_NEED(to);
  treadle_plan_options o;
  status = TREADLE_TAKE(options, &o);
  if (status) return status;
  int64_t page = (int64_t)(o.page_bytes ? o.page_bytes : treadle_default_page(o.memory)),
          cap = (int64_t)o.cap_bytes;
  treadle_plan_base_options terms = {.page_bytes = page, .alias = o.alias, .keep_params = o.keep_params};
  treadle_plan_base plan_base = {0};
  treadle_nodes nodes = {0};
  if (o.cap_bytes > (size_t)1 << 60)
    return treadle_fail(TREADLE_REFUSED, "plan: a cap of %s is more than 2^60 bytes",
                        treadle_text_of_size(o.cap_bytes));
  if (o.node_of) {
    TRY(treadle_nodes_make(o.node_of, from->ranks, &nodes));
    terms.nodes = &nodes;
  }
  TRY(treadle_plan_base_create(from, to, rank, &terms, &plan_base));
  int64_t cap_min = plan_base.cap_min_bytes;
  if (cap == 0) cap = treadle_larger((int64_t)treadle_default_cap(o.memory), cap_min);
  if (cap < cap_min) {
    status = treadle_fail(TREADLE_REFUSED, "plan: rank %" PRId64 ": a cap of %s is less than cap_min, %s",
                          rank, treadle_text_of_size((size_t)cap), treadle_text_of_size((size_t)cap_min));
    goto out;
  }
  int32_t waves = o.waves ? o.waves : treadle_plan_waves(from, to, page, cap);
  TRY(treadle_plan_make_on(&plan_base, waves, cap, plan_p));
  treadle_plan *plan = *plan_p;
  if (!o.waves && plan->physical_pages * page > treadle_plan_bound(plan)) {
    treadle_plan_destroy(plan);
    TRY(treadle_plan_make_on(&plan_base, TREADLE_MAX_WAVES, cap, plan_p));
    plan = *plan_p;
  }
  if (plan->nodes) {
    plan->own_nodes = nodes;
    plan->nodes = &plan->own_nodes;
    nodes = (treadle_nodes){0};
  }
out:
  treadle_nodes_release(&nodes);
  treadle_plan_base_release(&plan_base);
  return status;
}

void treadle_plan_destroy(treadle_plan *plan) {
  if (!plan) return;
  treadle_array_release(&plan->forward.ops);
  treadle_array_release(&plan->back.ops);
  treadle_array_release(&plan->forward.block_rows);
  treadle_array_release(&plan->back.block_rows);
  treadle_array_release(&plan->forward.block_row_parts);
  treadle_array_release(&plan->back.block_row_parts);
  treadle_arrangement_release(&plan->arrangement);
  treadle_free(plan->placed);
  treadle_nodes_release(&plan->own_nodes);
  treadle_arena_release(&plan->arena);
  treadle_free(plan);
}
