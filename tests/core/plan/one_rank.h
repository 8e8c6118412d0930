/* The plan of one rank, and figures of it, without alias and kept params: for tests and measurements. */
#ifndef TREADLE_TESTS_ONE_RANK_H
#define TREADLE_TESTS_ONE_RANK_H

#include "plan/plan.h"

/* Makes the plan with a given number of waves; cap_bytes is only noted, cap_min_bytes stays 0. */
static inline treadle_status one_rank_plan(const treadle_layout *from, const treadle_layout *to,
                                           int64_t rank, int64_t page_bytes, int32_t waves,
                                           int64_t cap_bytes, treadle_plan **plan_p) {
  treadle_status status = TREADLE_OK;
  const treadle_plan_base_options options = {.page_bytes = page_bytes};
  treadle_plan_base plan_base;
  *plan_p = NULL;
  TRY(treadle_plan_base_plain(from, to, rank, &options, &plan_base));
  TRY(treadle_plan_make_on(&plan_base, waves, cap_bytes, plan_p));
out:
  return status;
}

/* The smallest cap: the peak at 4096 waves minus the larger window. */
static inline treadle_status one_rank_cap_min(const treadle_layout *from, const treadle_layout *to,
                                              int64_t rank, int64_t page_bytes, int64_t *cap_min_p) {
  treadle_status status = TREADLE_OK;
  const treadle_plan_base_options options = {.page_bytes = page_bytes};
  treadle_plan_base plan_base = {0};
  *cap_min_p = 0;
  TRY(treadle_plan_base_create(from, to, rank, &options, &plan_base));
  *cap_min_p = plan_base.cap_min_bytes;
out:
  treadle_plan_base_release(&plan_base);
  return status;
}

static inline treadle_status one_rank_figures(const treadle_layout *from, const treadle_layout *to,
                                              int64_t rank, int64_t page_bytes, int32_t waves,
                                              treadle_plan_info *info_p) {
  treadle_status status = TREADLE_OK;
  const treadle_plan_base_options options = {.page_bytes = page_bytes};
  treadle_plan_base plan_base;
  TRY(treadle_plan_base_plain(from, to, rank, &options, &plan_base));
  TRY(treadle_plan_measure_on(&plan_base, waves, 0, NULL, NULL, info_p));
out:
  return status;
}

#endif
