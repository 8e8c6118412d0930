/* A plan that the caller has made before the switch.
 *
 * The switch makes its own plan again, for two reasons: placing the reads of other ranks' windows changes a plan, and the caller may
 * destroy its plan. Plans are pure: the same layouts, page size, cap, waves and alias give the same plan. Even so the two are
 * compared: digest, pages, copied bytes, and the coverage that they prove. */
#include "switch/switch.h"

#include <inttypes.h>

static bool is_alike(const treadle_layout *a, const treadle_layout *b) {
  return a == b || (a->digest == b->digest && a->ranks == b->ranks && a->order.f == b->order.f);
}

static treadle_status check_layouts(const treadle_layout *train, const treadle_layout *infer, int rank,
                                    const treadle_plan *plan) {
  if (plan->from->model != train->model && plan->from->model->digest != train->model->digest)
    return treadle_fail(TREADLE_REFUSED, "switch: the plan that was given is of another model");
  if (!is_alike(plan->from, train) || !is_alike(plan->to, infer))
    return treadle_fail(
        TREADLE_REFUSED,
        "switch: the plan that was given is from '%s' to '%s', the switch from '%s' to '%s'",
        treadle_layout_text(plan->from), treadle_layout_text(plan->to), treadle_layout_text(train),
        treadle_layout_text(infer));
  if (plan->rank != rank)
    return treadle_fail(TREADLE_REFUSED,
                        "switch: the plan that was given is of rank %" PRId64 ", this is rank %d",
                        plan->rank, rank);
  return TREADLE_OK;
}

/* 0 leaves a size to the plan. */
static treadle_status settle(size_t *option, int64_t of_plan, const char *name) {
  if (*option != 0 && *option != (size_t)of_plan)
    return treadle_fail(TREADLE_REFUSED,
                        "switch: %s is %zu, and the plan that was given has %" PRId64
                        ": give the same number, or 0",
                        name, *option, of_plan);
  *option = (size_t)of_plan;
  return TREADLE_OK;
}

static treadle_status check_modes(const treadle_terms *terms, const treadle_plan *plan) {
  if (plan->alias != terms->options.alias)
    return treadle_fail(
        TREADLE_REFUSED, "switch: the plan that was given is made %s alias, the switch %s",
        plan->alias ? "with" : "without",
        plan->alias ? "without it (options.alias, own tensors, or an engine that transforms)" : "with it");
  if (plan->keep_params == terms->leaves[TREADLE_PARAMS])
    return treadle_fail(
        TREADLE_REFUSED,
        "switch: in the plan that was given params %s the device (keep_params), in the switch "
        "they %s (offload_train_param)",
        plan->keep_params ? "stay on" : "leave", plan->keep_params ? "leave it" : "stay");
  return TREADLE_OK;
}

static treadle_ready_plan figures_of(const treadle_plan *plan) {
  return (treadle_ready_plan){.is = true,
                              .waves = plan->waves,
                              .physical_pages = plan->physical_pages,
                              .digest = plan->digest,
                              .ops = {plan->forward.ops.count, plan->back.ops.count},
                              .block_rows = {plan->forward.block_rows.count, plan->back.block_rows.count},
                              .coverage = {plan->forward.coverage, plan->back.coverage}};
}

treadle_status treadle_ready_plan_take(treadle_terms *terms, const treadle_layout *train,
                                       const treadle_layout *infer, int rank) {
  treadle_status status = TREADLE_OK;
  treadle_switch_options *options = &terms->options;
  const treadle_plan *plan = options->plan;
  options->plan = NULL; /* the caller's may go */
  if (!plan) return TREADLE_OK;
  TRY(check_layouts(train, infer, rank, plan));
  TRY(settle(&options->page_bytes, plan->page_bytes, "page_bytes"));
  TRY(settle(&options->cap_bytes, plan->cap_bytes, "cap_bytes"));
  TRY(check_modes(terms, plan));
  terms->ready = figures_of(plan);
out:
  return status;
}

treadle_status treadle_ready_plan_check(const treadle_terms *terms, const treadle_plan *plan) {
  const treadle_ready_plan *ready = &terms->ready, made = figures_of(plan);
  if (!ready->is) return TREADLE_OK;
  bool same = ready->waves == made.waves && ready->physical_pages == made.physical_pages &&
              ready->digest == made.digest;
  for (int way = 0; way < 2; way++)
    same = same && ready->ops[way] == made.ops[way] && ready->block_rows[way] == made.block_rows[way] &&
           ready->coverage[way] == made.coverage[way];
  if (same) return TREADLE_OK;
  return treadle_fail(TREADLE_DIFFERENT,
                      "switch: rank %d: the plan of digest %016" PRIx64
                      " that was given is not the one that its layouts give, of digest %016" PRIx64,
                      (int)plan->rank, ready->digest, made.digest);
}
