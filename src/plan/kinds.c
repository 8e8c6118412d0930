/* Kinds of ranks.
 *
 * A rank's figures follow from two things. Pages, and with them peak and smallest cap: from the wave of every byte of
 * both windows, so from where each tensor begins in the window, how its pieces lie and are cut, and its position in
 * its class. Bytes: from what its pieces have in common, summed over tensors in any order; so a rank that holds layers
 * 0 to 3 while it wants all is like one that holds layers 4 to 7. Whom a rank pulls from is no part of its figures.
 *
 * With alias a third: where in the one window a byte of the other lies. Then layers 0 to 3 are other ones than 4 to 7. */
#include "plan/kinds.h"

#include "base/hash.h"
#include "layout/alike.h"
#include "layout/blocks.h"
#include "plan/classes.h"

#include <string.h>

/* An open hash table of the kinds met so far. */
typedef struct kind_slot {
  uint64_t signature; /* 0: free */
  int32_t kind;
} kind_slot;

/* What is known of a rank: how its windows lie and what its pieces have in common; and with that, where both windows
 * hold the same. */
typedef struct signatures {
  uint64_t plain, paired;
  uint64_t window[TREADLE_SIDES]; /* of each alone */
} signatures;

/* Adds the window of the rank at hand in one layout. */
static treadle_status hash_window(treadle_alike *alike, const treadle_classes *classes, int side,
                                  signatures *hash, uint64_t *common) {
  treadle_status status = TREADLE_OK;
  const treadle_holdings *holdings = &alike->holdings[side];
  uint64_t plain = holdings->window, paired = plain;
  for (size_t i = 0; i < holdings->list.count; i++) {
    const treadle_holding *holding = &holdings->list.items[i];
    uint64_t data = ~holding->pieces, pairs = 0; /* a fill */
    if (holding->tensor >= 0) {
      const treadle_share *share;
      const treadle_position *position = &classes->positions[holding->tensor];
      TRY(treadle_alike_share(alike, holding->tensor, &share));
      data =
          share->cuts[side] ^ treadle_mix64((uint64_t)position->before << 32 | (uint32_t)position->count);
      if (side == TREADLE_TO || alike->holdings[TREADLE_TO].at[holding->tensor] < 0)
        *common += treadle_mix64(share->common);
      if (side == TREADLE_TO &&
          !treadle_is_banded(alike->layouts[TREADLE_FROM], alike->layouts[TREADLE_TO], holding->tensor))
        pairs =
            treadle_hash_more(share->pairs, (uint64_t)alike->holdings[TREADLE_FROM].at[holding->tensor]);
    }
    plain = treadle_hash_more(plain, data);
    paired = treadle_hash_more(paired, data ^ pairs);
  }
  hash->window[side] = plain ? plain : 1;
  hash->plain = treadle_hash_more(hash->plain, plain);
  hash->paired = treadle_hash_more(hash->paired, paired);
out:
  return status;
}

static treadle_status sign(treadle_alike *alike, const treadle_classes *classes, int64_t rank,
                           signatures *of_rank) {
  treadle_status status = TREADLE_OK;
  uint64_t common = 0;
  signatures hash = {0};
  TRY(treadle_alike_take(alike, rank));
  TRY(hash_window(alike, classes, TREADLE_FROM, &hash, &common));
  TRY(hash_window(alike, classes, TREADLE_TO, &hash, &common));
  hash.plain = treadle_hash_more(hash.plain, common);
  hash.paired = treadle_hash_more(hash.paired, common);
  if (hash.plain == 0) hash.plain = 1;
  if (hash.paired == 0) hash.paired = 1;
  *of_rank = hash;
out:
  return status;
}

static kind_slot *find_kind(kind_slot *slots, size_t mask, uint64_t signature) {
  size_t at = (size_t)signature & mask;
  while (slots[at].signature != 0 && slots[at].signature != signature) at = (at + 1) & mask;
  return &slots[at];
}

/* Fills first_p[count]: of each kind, the first one with the same signature. The slots are taken again. */
static treadle_status find_first(int32_t count, const uint64_t *of, kind_slot *slots, size_t capacity,
                                 int32_t **first_p) {
  *first_p = treadle_alloc_array((size_t)count, sizeof **first_p);
  if (!*first_p) return treadle_fail(TREADLE_NO_MEMORY, "plan: memory is out");
  memset(slots, 0, capacity * sizeof *slots);
  for (int32_t kind = 0; kind < count; kind++) {
    kind_slot *slot = find_kind(slots, capacity - 1, of[kind]);
    if (slot->signature == 0) *slot = (kind_slot){of[kind], kind};
    (*first_p)[kind] = slot->kind;
  }
  return TREADLE_OK;
}

/* Numbers kinds in the order of their lowest ranks, and notes those. known: the signatures of each, as it was numbered. */
static treadle_status number_kinds(treadle_kinds *kinds, int64_t ranks, const signatures *known,
                                   kind_slot *slots, size_t capacity) {
  treadle_status status = TREADLE_OK;
  int32_t *number = treadle_alloc_array((size_t)kinds->count, sizeof *number), count = 0;
  uint64_t *one = treadle_alloc_array((size_t)kinds->count, sizeof *one);
  int32_t *old = treadle_alloc_array((size_t)kinds->count, sizeof *old); /* by new number */
  kinds->first = treadle_alloc_array((size_t)kinds->count, sizeof *kinds->first);
  if (!number || !one || !old || !kinds->first) TRY(treadle_fail(TREADLE_NO_MEMORY, "plan: memory is out"));
  for (int64_t rank = 0; rank < ranks; rank++) {
    int32_t *is = &number[kinds->of[rank]]; /* number + 1 */
    if (*is == 0) {
      old[count] = kinds->of[rank];
      kinds->first[count++] = rank;
      *is = count;
    }
    kinds->of[rank] = *is - 1;
  }
  for (int32_t i = 0; i < count; i++) one[i] = known[old[i]].plain;
  TRY(find_first(count, one, slots, capacity, &kinds->like));
  for (int side = 0; side < TREADLE_SIDES; side++) {
    for (int32_t i = 0; i < count; i++) one[i] = known[old[i]].window[side];
    TRY(find_first(count, one, slots, capacity, &kinds->cut[side]));
  }
out:
  treadle_free(number);
  treadle_free(one);
  treadle_free(old);
  return status;
}

static int64_t count_places(const treadle_places *places, size_t ranks) {
  int64_t count = ranks > 0;
  for (size_t i = 1; i < ranks; i++) count += !treadle_places_equal(&places[i], &places[i - 1]);
  return count;
}

static treadle_status create(const treadle_layout *from, const treadle_layout *to, bool paired,
                             treadle_kinds *kinds) {
  treadle_status status = TREADLE_OK;
  treadle_alike alike = {0};
  treadle_classes classes = {0};
  treadle_places *places = NULL;
  signatures *known = NULL; /* by kind */
  kind_slot *slots = NULL;
  size_t ranks = (size_t)from->ranks, capacity = 16;
  *kinds = (treadle_kinds){0};
  TRY(treadle_layout_check_table(from));
  while (capacity < 2 * ranks) capacity *= 2;
  places = treadle_alloc_array(ranks, sizeof *places);
  known = treadle_alloc_array(ranks, sizeof *known);
  slots = treadle_alloc_array(capacity, sizeof *slots);
  kinds->of = treadle_alloc_array(ranks, sizeof *kinds->of);
  if (!places || !known || !slots || !kinds->of)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "plan: no memory for %zu ranks", ranks));
  TRY(treadle_alike_create(from, to, &alike));
  TRY(treadle_classes_create(from, to, 1, &classes));
  treadle_places_sort(from, to, places);
  int32_t kind = -1;
  for (size_t i = 0; i < ranks; i++) {
    if (i == 0 || !treadle_places_equal(&places[i], &places[i - 1])) {
      signatures of_rank;
      TRY(sign(&alike, &classes, places[i].rank, &of_rank));
      if (i == 0) TRY(treadle_alike_check(&alike, count_places(places, ranks)));
      uint64_t signature = paired ? of_rank.paired : of_rank.plain;
      kind_slot *slot = find_kind(slots, capacity - 1, signature);
      if (slot->signature == 0) {
        known[kinds->count] = of_rank;
        *slot = (kind_slot){signature, kinds->count++};
      }
      kind = slot->kind;
    }
    kinds->of[places[i].rank] = kind;
  }
  TRY(number_kinds(kinds, from->ranks, known, slots, capacity));
out:
  treadle_alike_release(&alike);
  treadle_classes_release(&classes);
  treadle_free(places);
  treadle_free(known);
  treadle_free(slots);
  if (status != TREADLE_OK) treadle_kinds_release(kinds);
  return status;
}

treadle_status treadle_kinds_create(const treadle_layout *from, const treadle_layout *to,
                                    treadle_kinds *kinds) {
  return create(from, to, false, kinds);
}

treadle_status treadle_kinds_create_paired(const treadle_layout *from, const treadle_layout *to,
                                           treadle_kinds *kinds) {
  return create(from, to, true, kinds);
}

void treadle_kinds_release(treadle_kinds *kinds) {
  treadle_free(kinds->of);
  treadle_free(kinds->first);
  treadle_free(kinds->like);
  treadle_free(kinds->cut[TREADLE_FROM]);
  treadle_free(kinds->cut[TREADLE_TO]);
  *kinds = (treadle_kinds){0};
}
