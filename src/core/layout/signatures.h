/* Which ranks are equal: a rank's share of each tensor in two layouts, without its place in the tensor.
 *
 * Ranks of one layer group hold different experts, ranks of different stages different layers, and what a switch
 * costs them is mostly the same. Two ranks' shares of a tensor are equal when their pieces have the same sizes, lie in the
 * same way in memory, and are cut in the same places, counted from where the pieces begin. A share is computed once for all
 * tensors whose cells are the same in both layouts and all ranks that hold the same boxes, so that a rank
 * costs a look at a table for each tensor of its windows. Shares are compared as 64-bit hashes. */
#ifndef TREADLE_LAYOUT_SIGNATURES_H
#define TREADLE_LAYOUT_SIGNATURES_H

#include "base/hash_index.h"
#include "layout/holdings.h"
#include "layout/piece_index.h"

enum { TREADLE_FROM, TREADLE_TO, TREADLE_SIDES };

/* What a rank has of one tensor in both layouts. */
typedef struct treadle_signature {
  /* By layout: its pieces, by address, and how the cells of both layouts cut them. */
  uint64_t cuts[TREADLE_SIDES];
  uint64_t common;       /* how much of the pieces is in others of the same rank, in both layouts */
  uint64_t pairs;        /* where pieces of both layouts meet */
  int64_t inbound_bytes; /* its lower bound, from -> to */
} treadle_signature;

typedef struct treadle_signatures {
  const treadle_layout *layouts[TREADLE_SIDES];
  uint64_t *kin;                 /* by tensor */
  int64_t rank;                  /* the rank at hand */
  uint64_t place[TREADLE_SIDES]; /* its places */
  bool placed[TREADLE_SIDES];
  treadle_holdings holdings[TREADLE_SIDES]; /* of the rank at hand */
  TREADLE_ARRAY(treadle_signature) shares;  /* how one layout's pieces are cut is there, too */
  treadle_hash_index share_of;
  int64_t cuts;                                   /* parts that were looked at, of all ranks so far */
  treadle_pieces pieces[TREADLE_SIDES];           /* room to work in */
  treadle_piece_index piece_index[TREADLE_SIDES]; /* these pieces, of the tensor at hand */
  treadle_cells own_cells, other_cells;
  treadle_boxes rest, spare;
} treadle_signatures;

/* A number that is equal for tensors of a pattern and shape that lie on the same places in both layouts. */
uint64_t treadle_tensor_kin(const treadle_layout *from, const treadle_layout *to, int32_t tensor);

/* The same of tensors whose cells are the same in both layouts and that have the same types there: by tensor, to be freed. */
treadle_status treadle_kin_list(const treadle_layout *from, const treadle_layout *to, uint64_t **kin_p);

/* The rank maps of the layouts may change while it lives. */
treadle_status treadle_signatures_create(const treadle_layout *from, const treadle_layout *to,
                                         treadle_signatures *signatures);
void treadle_signatures_release(treadle_signatures *signatures);

/* Lists the holdings of a rank; what the last rank had alike stays. */
treadle_status treadle_signatures_take(treadle_signatures *signatures, int64_t rank);
/* The share of the rank at hand in a tensor of its holdings. It lives until the next call. */
treadle_status treadle_signatures_share(treadle_signatures *signatures, int32_t tensor,
                                        const treadle_signature **share_p);

/* After the first of `places` ranks: refused when parts as many as it has, for each of them, are far beyond what a report
 * looks at. Most ranks have much in common, which is looked at once: hence the distance. */
treadle_status treadle_signatures_check(const treadle_signatures *signatures, int64_t places);

typedef struct treadle_rank_signature { /* of a rank in both layouts: equal places hold the same pieces */
  uint64_t place[TREADLE_SIDES];
  int64_t rank;
} treadle_rank_signature;

/* Fills places ([ranks]) so that ranks with equal places stand together, ascending, and the layout with fewer places
 * changes seldom. */
void treadle_rank_signatures_sort(const treadle_layout *from, const treadle_layout *to,
                                  treadle_rank_signature *places);
static inline bool treadle_rank_signatures_equal(const treadle_rank_signature *a,
                                                 const treadle_rank_signature *b) {
  return a->place[TREADLE_FROM] == b->place[TREADLE_FROM] && a->place[TREADLE_TO] == b->place[TREADLE_TO];
}

#endif
