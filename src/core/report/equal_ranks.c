/* Sets of equal ranks.
 *
 * A rank's figures follow from two things. Pages, and with them peak and smallest cap: from the wave of every byte of
 * both windows, so from where each tensor begins in the window, how its pieces lie and are cut, and its position in
 * its lane. Bytes: from what its pieces have in common, summed over tensors in any order; so a rank that holds layers
 * 0 to 3 while it wants all is like one that holds layers 4 to 7. Whom a rank pulls from is not part of its figures.
 *
 * With alias a third: where in the one window a byte of the other lies. Then layers 0 to 3 are other ones than 4 to 7. */
#include "report/equal_ranks.h"

#include "base/hash.h"
#include "base/hash_index.h"
#include "layout/blocks.h"
#include "layout/signatures.h"
#include "plan/lanes.h"

/* What is known of a rank: how its windows lie and what its pieces have in common; and with that, where both windows
 * hold the same. */
typedef struct marks {
  uint64_t plain, paired;
  uint64_t window[TREADLE_SIDES]; /* of each alone */
} marks;

/* Adds the window of the rank at hand in one layout. */
static treadle_status hash_window(treadle_signatures *signatures, const treadle_lanes *lanes, int side,
                                  marks *hash, uint64_t *common) {
  treadle_status status = TREADLE_OK;
  const treadle_holdings *holdings = &signatures->holdings[side];
  uint64_t plain = holdings->window, paired = plain;
  for (size_t i = 0; i < holdings->list.count; i++) {
    const treadle_holding *holding = &holdings->list.items[i];
    uint64_t data = ~holding->pieces, pairs = 0; /* a fill */
    if (holding->tensor >= 0) {
      const treadle_signature *share;
      const treadle_position *position = &lanes->positions[holding->tensor];
      TRY(treadle_signatures_share(signatures, holding->tensor, &share));
      data =
          share->cuts[side] ^ treadle_mix64((uint64_t)position->before << 32 | (uint32_t)position->count);
      if (side == TREADLE_TO || signatures->holdings[TREADLE_TO].at[holding->tensor] < 0)
        *common += treadle_mix64(share->common);
      if (side == TREADLE_TO && !treadle_is_in_block_rows(signatures->layouts[TREADLE_FROM],
                                                          signatures->layouts[TREADLE_TO], holding->tensor))
        pairs = treadle_hash_more(share->pairs,
                                  (uint64_t)signatures->holdings[TREADLE_FROM].at[holding->tensor]);
    }
    plain = treadle_hash_more(plain, data);
    paired = treadle_hash_more(paired, data ^ pairs);
  }
  hash->window[side] = plain;
  hash->plain = treadle_hash_more(hash->plain, plain);
  hash->paired = treadle_hash_more(hash->paired, paired);
out:
  return status;
}

static treadle_status sign(treadle_signatures *signatures, const treadle_lanes *lanes, int64_t rank,
                           marks *of_rank) {
  treadle_status status = TREADLE_OK;
  uint64_t common = 0;
  marks hash = {0};
  TRY(treadle_signatures_take(signatures, rank));
  TRY(hash_window(signatures, lanes, TREADLE_FROM, &hash, &common));
  TRY(hash_window(signatures, lanes, TREADLE_TO, &hash, &common));
  hash.plain = treadle_hash_more(hash.plain, common);
  hash.paired = treadle_hash_more(hash.paired, common);
  *of_rank = hash;
out:
  return status;
}

/* Fills first_p[count]: of each set, the first one with the same mark. */
static treadle_status find_first(int32_t count, const uint64_t *of, treadle_hash_index *set_of,
                                 int32_t **first_p) {
  treadle_status status = TREADLE_OK;
  *first_p = treadle_alloc_array((size_t)count, sizeof **first_p);
  if (!*first_p) return treadle_fail(TREADLE_NO_MEMORY, "plan: memory is out");
  treadle_hash_index_clear(set_of);
  for (int32_t set = 0; set < count; set++)
    TRY(treadle_hash_index_put(set_of, of[set], set, &(*first_p)[set]));
out:
  return status;
}

/* Numbers sets in the order of their lowest ranks, and notes those. known: the marks of each, as it was numbered. */
static treadle_status number_sets(treadle_equal_ranks *equal_ranks, int64_t ranks, const marks *known,
                                  treadle_hash_index *set_of) {
  treadle_status status = TREADLE_OK;
  int32_t *number = treadle_alloc_array((size_t)equal_ranks->count, sizeof *number), count = 0;
  uint64_t *one = treadle_alloc_array((size_t)equal_ranks->count, sizeof *one);
  int32_t *old = treadle_alloc_array((size_t)equal_ranks->count, sizeof *old); /* by new number */
  equal_ranks->first = treadle_alloc_array((size_t)equal_ranks->count, sizeof *equal_ranks->first);
  if (!number || !one || !old || !equal_ranks->first)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "plan: memory is out"));
  for (int64_t rank = 0; rank < ranks; rank++) {
    int32_t *is = &number[equal_ranks->of[rank]]; /* number + 1 */
    if (*is == 0) {
      old[count] = equal_ranks->of[rank];
      equal_ranks->first[count++] = rank;
      *is = count;
    }
    equal_ranks->of[rank] = *is - 1;
  }
  for (int32_t i = 0; i < count; i++) one[i] = known[old[i]].plain;
  TRY(find_first(count, one, set_of, &equal_ranks->like));
  for (int side = 0; side < TREADLE_SIDES; side++) {
    for (int32_t i = 0; i < count; i++) one[i] = known[old[i]].window[side];
    TRY(find_first(count, one, set_of, &equal_ranks->cut[side]));
  }
out:
  treadle_free(number);
  treadle_free(one);
  treadle_free(old);
  return status;
}

static int64_t count_places(const treadle_rank_signature *places, size_t ranks) {
  int64_t count = ranks > 0;
  for (size_t i = 1; i < ranks; i++) count += !treadle_rank_signatures_equal(&places[i], &places[i - 1]);
  return count;
}

static treadle_status create(const treadle_layout *from, const treadle_layout *to, bool paired,
                             treadle_equal_ranks *equal_ranks) {
  treadle_status status = TREADLE_OK;
  treadle_signatures signatures = {0};
  treadle_lanes lanes = {0};
  treadle_rank_signature *places = NULL;
  marks *known = NULL;             /* by set */
  treadle_hash_index set_of = {0}; /* by mark */
  size_t ranks = (size_t)from->ranks;
  *equal_ranks = (treadle_equal_ranks){0};
  TRY(treadle_layout_check_table(from));
  places = treadle_alloc_array(ranks, sizeof *places);
  known = treadle_alloc_array(ranks, sizeof *known);
  equal_ranks->of = treadle_alloc_array(ranks, sizeof *equal_ranks->of);
  if (!places || !known || !equal_ranks->of)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "plan: no memory for %zu ranks", ranks));
  TRY(treadle_signatures_create(from, to, &signatures));
  TRY(treadle_lanes_create(from, to, 1, &lanes));
  treadle_rank_signatures_sort(from, to, places);
  int32_t set = -1;
  for (size_t i = 0; i < ranks; i++) {
    if (i == 0 || !treadle_rank_signatures_equal(&places[i], &places[i - 1])) {
      marks of_rank;
      TRY(sign(&signatures, &lanes, places[i].rank, &of_rank));
      if (i == 0) TRY(treadle_signatures_check(&signatures, count_places(places, ranks)));
      TRY(treadle_hash_index_put(&set_of, paired ? of_rank.paired : of_rank.plain, equal_ranks->count,
                                 &set));
      if (set == equal_ranks->count) known[equal_ranks->count++] = of_rank;
    }
    equal_ranks->of[places[i].rank] = set;
  }
  TRY(number_sets(equal_ranks, from->ranks, known, &set_of));
out:
  treadle_signatures_release(&signatures);
  treadle_lanes_release(&lanes);
  treadle_free(places);
  treadle_free(known);
  treadle_hash_index_release(&set_of);
  if (status != TREADLE_OK) treadle_equal_ranks_release(equal_ranks);
  return status;
}

treadle_status treadle_equal_ranks_create(const treadle_layout *from, const treadle_layout *to,
                                          treadle_equal_ranks *equal_ranks) {
  return create(from, to, false, equal_ranks);
}

treadle_status treadle_equal_ranks_create_paired(const treadle_layout *from, const treadle_layout *to,
                                                 treadle_equal_ranks *equal_ranks) {
  return create(from, to, true, equal_ranks);
}

void treadle_equal_ranks_release(treadle_equal_ranks *equal_ranks) {
  treadle_free(equal_ranks->of);
  treadle_free(equal_ranks->first);
  treadle_free(equal_ranks->like);
  treadle_free(equal_ranks->cut[TREADLE_FROM]);
  treadle_free(equal_ranks->cut[TREADLE_TO]);
  *equal_ranks = (treadle_equal_ranks){0};
}
