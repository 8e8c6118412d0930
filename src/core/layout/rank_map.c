/* Rank maps: which rank takes which place of the inference layout, and how one is chosen. */
#include "base/argument.h"
#include "base/nodes.h"
#include "base/text.h"
#include "layout/inbound_nodes.h"
#include "layout/signatures.h"

#include <inttypes.h>
#include <stdio.h>

enum { MAX_STRIDE = 64 };

typedef struct score { /* the smallest, in this order */
  double between;      /* bytes that enter nodes */
  int64_t largest;
  double sum;
} score;

static bool is_less(const score *a, const score *b) {
  if (a->between != b->between) return a->between < b->between;
  if (a->largest != b->largest) return a->largest < b->largest;
  return a->sum < b->sum;
}

/* Bounds of nodes, each once for all nodes and maps with the same pieces. */
typedef struct known_bounds {
  treadle_hash_index of_place;
  TREADLE_ARRAY(int64_t) bytes;
} known_bounds;

/* Bytes that enter nodes, all together. */
static treadle_status score_nodes(const treadle_signatures *signatures, const treadle_nodes *nodes,
                                  known_bounds *known, double *between_p) {
  treadle_status status = TREADLE_OK;
  const treadle_layout *from = signatures->layouts[TREADLE_FROM], *to = signatures->layouts[TREADLE_TO];
  *between_p = 0;
  for (int32_t node = 0; node < nodes->count; node++) {
    uint64_t place;
    int32_t number, fresh = (int32_t)known->bytes.count;
    TRY(treadle_node_place(from, to, nodes, node, &place));
    TRY(treadle_hash_index_put(&known->of_place, place, fresh, &number));
    if (number == fresh) {
      int64_t bytes;
      TRY(treadle_layout_inbound_node(from, to, nodes, node, &bytes));
      TRY(treadle_array_push(&known->bytes, bytes));
    }
    *between_p += (double)known->bytes.items[number];
  }
out:
  return status;
}

/* Inbound bytes over all ranks; `places` has room for all. */
static treadle_status score_ranks(treadle_signatures *signatures, treadle_rank_signature *places,
                                  score *score_p) {
  treadle_status status = TREADLE_OK;
  const treadle_layout *to = signatures->layouts[TREADLE_TO];
  int64_t bytes = 0;
  treadle_rank_signatures_sort(signatures->layouts[TREADLE_FROM], to, places);
  for (int64_t i = 0; i < to->ranks; i++) {
    if (i == 0 || !treadle_rank_signatures_equal(&places[i], &places[i - 1])) {
      bytes = 0;
      TRY(treadle_signatures_take(signatures, places[i].rank));
      for (size_t k = 0; k < signatures->holdings[TREADLE_TO].list.count; k++) {
        const treadle_signature *share;
        if (signatures->holdings[TREADLE_TO].list.items[k].tensor < 0) continue;
        TRY(treadle_signatures_share(signatures, signatures->holdings[TREADLE_TO].list.items[k].tensor,
                                     &share));
        bytes += share->inbound_bytes;
      }
    }
    if (bytes > score_p->largest) score_p->largest = bytes;
    score_p->sum += (double)bytes;
  }
out:
  return status;
}

/* Contiguous first, then every stride up to MAX_STRIDE that divides the ranks: the first with the fewest bytes between nodes, then the
 * smallest maximum, then the smallest mean. */
static treadle_status choose_best(treadle_layout *infer, const treadle_layout *train,
                                  const treadle_nodes *nodes, int64_t *f_p) {
  treadle_status status = TREADLE_OK;
  int64_t groups = infer->owners.count / infer->tp;
  treadle_rank_order before = infer->order;
  score best = {-1, 0, 0}; /* none yet */
  treadle_rank_signature *places = NULL;
  known_bounds known = {0};
  treadle_signatures signatures = {0};
  TRY(treadle_layout_check_table(infer));
  places = treadle_alloc_array((size_t)infer->ranks, sizeof *places);
  if (!places) return treadle_fail(TREADLE_NO_MEMORY, "layout: memory is out");
  TRY(treadle_signatures_create(train, infer, &signatures));
  for (int64_t f = 1; f <= groups && f <= MAX_STRIDE; f++) {
    if (groups % f != 0) continue;
    score now = {0};
    infer->order = (treadle_rank_order){infer->tp, f};
    if (nodes && nodes->count > 1) status = score_nodes(&signatures, nodes, &known, &now.between);
    if (status == TREADLE_OK) status = score_ranks(&signatures, places, &now);
    infer->order = before;
    TRY(status);
    if (best.between < 0 || is_less(&now, &best)) {
      best = now;
      *f_p = f;
    }
  }
out:
  treadle_signatures_release(&signatures);
  treadle_hash_index_release(&known.of_place);
  treadle_array_release(&known.bytes);
  treadle_free(places);
  return status;
}

treadle_status treadle_layout_map_ranks(treadle_layout *infer, const treadle_layout *train,
                                        treadle_rank_map map, const treadle_nodes *nodes) {
  treadle_status status = TREADLE_OK;
  int64_t f = 1;
  TREADLE_NEED(infer);
  TREADLE_NEED(train);
  TRY(TREADLE_CHECK_ENUM(map, TREADLE_BEST + 1));
  if (infer->model != train->model)
    return treadle_fail(TREADLE_REFUSED, "layouts '%s' and '%s' are of two models", train->text,
                        infer->text);
  if (infer->ranks != train->ranks)
    return treadle_fail(TREADLE_REFUSED, "layouts '%s' and '%s' are of %" PRId64 " and %s", train->text,
                        infer->text, train->ranks, treadle_text_of_count(infer->ranks, "rank"));
  if (map == TREADLE_STRIDED) {
    if (train->tp % infer->tp != 0)
      return treadle_fail(TREADLE_REFUSED,
                          "rank map strided: tp=%" PRId64 " of '%s' is not a multiple of tp=%" PRId64
                          " of '%s'",
                          train->tp, train->text, infer->tp, infer->text);
    f = train->tp / infer->tp;
    if (infer->owners.count % (f * infer->tp) != 0)
      return treadle_fail(TREADLE_REFUSED, "rank map strided: %s not divisible by blocks of %" PRId64,
                          treadle_text_count_is(infer->owners.count, "rank"), f * infer->tp);
  }
  if (map == TREADLE_BEST) TRY(choose_best(infer, train, nodes, &f));
  infer->order = (treadle_rank_order){infer->tp, f};
  if (f == 1 && map != TREADLE_STRIDED)
    snprintf(infer->map_text, sizeof infer->map_text, "contiguous");
  else if (map == TREADLE_STRIDED)
    snprintf(infer->map_text, sizeof infer->map_text, "strided");
  else
    snprintf(infer->map_text, sizeof infer->map_text, "strided:%" PRId64, f);
out:
  return status;
}
