/* Counting parts. */
#include "layout/cuts.h"

#include "base/limits.h"

#include <inttypes.h>

/* Of all ranks: a large model has many parts, and a report of it may take its time. */
static int64_t most_of_all(const treadle_model *model) {
  return TREADLE_PLANNED_CUTS + treadle_model_bytes(model) / TREADLE_BYTES_OF_A_CUT;
}

enum { AT_ONCE = 1024 }; /* this many are told together: the count of all is everybody's */

treadle_status treadle_cuts_add(treadle_cuts *cuts, size_t count) {
  cuts->count += (int64_t)count;
  if (cuts->count - cuts->told < AT_ONCE) return TREADLE_OK;
  int64_t news = cuts->count - cuts->told;
  cuts->told = cuts->count;
  if (cuts->count > TREADLE_MAX_CUTS)
    return treadle_fail(TREADLE_REFUSED,
                        "plan: '%s' and '%s' cut the window of rank %" PRId64
                        " in more than %d parts, too many for a plan",
                        cuts->from->text, cuts->to->text, cuts->rank, TREADLE_MAX_CUTS);
  if (cuts->all && atomic_fetch_add(cuts->all, news) + news > most_of_all(cuts->from->model))
    return treadle_fail(TREADLE_REFUSED,
                        "a report over all ranks (%" PRId64 ") of '%s' and '%s' plans more than %" PRId64
                        " parts; one rank can be asked for alone (--rank)",
                        cuts->from->ranks, cuts->from->text, cuts->to->text,
                        most_of_all(cuts->from->model));
  return TREADLE_OK;
}
