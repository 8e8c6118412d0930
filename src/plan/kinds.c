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
  *of_rank = (signatures){hash.plain ? hash.plain : 1, hash.paired ? hash.paired : 1};
out:
  return status;
}

static kind_slot *find_kind(kind_slot *slots, size_t mask, uint64_t signature) {
  size_t at = (size_t)signature & mask;
  while (slots[at].signature != 0 && slots[at].signature != signature) at = (at + 1) & mask;
  return &slots[at];
}

/* Numbers kinds in the order of their lowest ranks, and notes those. bytes: of each, as it was numbered. The slots are
 * taken again. */
static treadle_status number_kinds(treadle_kinds *kinds, int64_t ranks, const uint64_t *bytes,
                                   kind_slot *slots, size_t capacity) {
  int32_t *number = treadle_alloc_array((size_t)kinds->count, sizeof *number), count = 0;
  kinds->first = treadle_alloc_array((size_t)kinds->count, sizeof *kinds->first);
  kinds->like = treadle_alloc_array((size_t)kinds->count, sizeof *kinds->like);
  memset(slots, 0, capacity * sizeof *slots);
  if (!number || !kinds->first || !kinds->like) {
    treadle_free(number);
    return treadle_fail(TREADLE_NO_MEMORY, "plan: memory is out");
  }
  for (int64_t rank = 0; rank < ranks; rank++) {
    int32_t *known = &number[kinds->of[rank]]; /* number + 1 */
    if (*known == 0) {
      kind_slot *slot = find_kind(slots, capacity - 1, bytes[kinds->of[rank]]);
      if (slot->signature == 0) *slot = (kind_slot){bytes[kinds->of[rank]], count};
      kinds->like[count] = slot->kind;
      kinds->first[count++] = rank;
      *known = count;
    }
    kinds->of[rank] = *known - 1;
  }
  treadle_free(number);
  return TREADLE_OK;
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
  uint64_t *bytes = NULL; /* by kind: the signature without pairs */
  kind_slot *slots = NULL;
  size_t ranks = (size_t)from->ranks, capacity = 16;
  *kinds = (treadle_kinds){0};
  TRY(treadle_layout_check_table(from));
  while (capacity < 2 * ranks) capacity *= 2;
  places = treadle_alloc_array(ranks, sizeof *places);
  bytes = treadle_alloc_array(ranks, sizeof *bytes);
  slots = treadle_alloc_array(capacity, sizeof *slots);
  kinds->of = treadle_alloc_array(ranks, sizeof *kinds->of);
  if (!places || !bytes || !slots || !kinds->of)
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
        bytes[kinds->count] = of_rank.plain;
        *slot = (kind_slot){signature, kinds->count++};
      }
      kind = slot->kind;
    }
    kinds->of[places[i].rank] = kind;
  }
  TRY(number_kinds(kinds, from->ranks, bytes, slots, capacity));
out:
  treadle_alike_release(&alike);
  treadle_classes_release(&classes);
  treadle_free(places);
  treadle_free(bytes);
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
  *kinds = (treadle_kinds){0};
}
