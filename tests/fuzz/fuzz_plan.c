/* A model, numbers and two layouts (described.h): all is refused with a reason, or makes a plan of one rank whose figures agree:
 * what is moved is the lower bound, peaks are below their bound, every byte of the destination is written once (the coverage), and
 * storage tensors lie in the window. */
#include "described.h"
#include "must.h"

#include "plan/plan.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static void check_storage(const treadle_plan *plan, const treadle_layout *to, int64_t rank,
                          const treadle_plan_info *info) {
  for (int32_t s = 0; s < treadle_layout_storage_count(to, rank); s++) {
    treadle_storage_info storage = TREADLE_INIT(treadle_storage_info);
    MUST(treadle_plan_storage(plan, s, &storage) == TREADLE_OK);
    MUST(storage.bytes <= info->to_bytes && storage.offset_bytes <= info->to_bytes - storage.bytes);
  }
}

/* Bytes pulled from the others add up, and none from oneself. */
static void check_inbound(const treadle_plan *plan, int64_t ranks, int64_t rank, size_t moved) {
  if (ranks > 1 << 16) return;
  size_t *inbound = calloc((size_t)ranks, sizeof *inbound), sum = 0;
  MUST(inbound);
  treadle_plan_inbound(plan, inbound);
  for (int64_t r = 0; r < ranks; r++) sum += inbound[r];
  MUST(sum == moved && inbound[rank] == 0);
  free(inbound);
}

static void check_plan(const treadle_plan *plan, const treadle_layout *to, const described *d) {
  treadle_plan_info info = TREADLE_INIT(treadle_plan_info);
  treadle_plan_get_info(plan, &info);
  MUST(info.moved_bytes == info.lower_bound_bytes);
  MUST(info.back_moved_bytes == info.back_lower_bound_bytes);
  MUST(info.peak_bytes <= info.peak_bound_bytes);
  MUST(info.cap_bytes >= info.cap_min_bytes);
  MUST(info.waves >= 1 && info.waves <= TREADLE_MAX_WAVES);
  MUST(info.infer_bytes <= info.to_bytes && info.copied_bytes + info.aliased_bytes <= info.infer_bytes);
  check_storage(plan, to, d->rank, &info);
  check_inbound(plan, d->ranks, d->rank, info.moved_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  described d;
  treadle_layout *from = NULL, *to = NULL;
  treadle_plan *plan = NULL;
  described_read(bytes, count, &d);
  if (!d.model) goto out;
  treadle_status status = treadle_layout_create(d.model, d.layouts[0], d.ranks, NULL, &from);
  if (!status) status = treadle_layout_create(d.model, d.layouts[1], d.ranks, NULL, &to);
  if (!status) status = treadle_layout_map_ranks(to, from, (treadle_rank_map)(d.map & 1), NULL);
  const treadle_plan_options options = {.struct_size = sizeof(treadle_plan_options),
                                        .page_bytes = (size_t)d.page,
                                        .cap_bytes = (size_t)d.cap,
                                        .alias = d.alias & 1,
                                        .keep_params = d.alias & 2};
  if (!status) status = treadle_plan_create(from, to, d.rank, &options, &plan);
  if (!status)
    check_plan(plan, to, &d);
  else
    MUST((status == TREADLE_REFUSED || status == TREADLE_NO_MEMORY) && *treadle_error_message() && !plan);
out:
  treadle_plan_destroy(plan);
  treadle_layout_destroy(to);
  treadle_layout_destroy(from);
  described_release(&d);
  return 0;
}
