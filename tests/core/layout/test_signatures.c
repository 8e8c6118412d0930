/* Shares: a rank's lower bound is the sum over what it holds, whichever rank a share was computed for; and ranks stand
 * by places. */
#include "layout/signatures.h"
#include "plan/pairs.h"

#include "test.h"

#include <inttypes.h>

static void check_shares(const treadle_layout *from, const treadle_layout *to) {
  treadle_signatures signatures;
  if (from->fp8 || to->fp8) return; /* the bound of blocks is not a sum of shares */
  assert_ok(treadle_signatures_create(from, to, &signatures));
  for (int64_t rank = 0; rank < from->ranks; rank++) {
    int64_t bytes = 0, bound;
    assert_ok(treadle_signatures_take(&signatures, rank));
    for (size_t i = 0; i < signatures.holdings[TREADLE_TO].list.count; i++) {
      const treadle_signature *share;
      int32_t tensor = signatures.holdings[TREADLE_TO].list.items[i].tensor;
      if (tensor < 0) continue;
      assert_ok(treadle_signatures_share(&signatures, tensor, &share));
      bytes += share->inbound_bytes;
    }
    assert_ok(treadle_layout_inbound(from, to, rank, NULL, &bound));
    assert_int_equal(bytes, bound);
  }
  treadle_signatures_release(&signatures);
}

/* Each rank once, equal places together, and ranks that are alike by place hold the same. */
static void check_places(const treadle_layout *from, const treadle_layout *to) {
  const treadle_layout *layouts[] = {from, to};
  treadle_rank_signature *places = calloc((size_t)from->ranks, sizeof *places);
  bool *seen = calloc((size_t)from->ranks, sizeof *seen);
  treadle_rank_signatures_sort(from, to, places);
  for (int64_t i = 0; i < from->ranks; i++) {
    assert_false(seen[places[i].rank]);
    seen[places[i].rank] = true;
    for (int64_t k = 0; k < i; k++) /* a group does not come again */
      if (treadle_rank_signatures_equal(&places[i], &places[k]))
        assert_true(treadle_rank_signatures_equal(&places[i], &places[i - 1]));
    if (i == 0 || !treadle_rank_signatures_equal(&places[i], &places[i - 1])) continue;
    for (int side = 0; side < TREADLE_SIDES; side++) {
      treadle_pieces mine = {0}, others = {0};
      assert_ok(treadle_layout_pieces(layouts[side], places[i].rank, &mine));
      assert_ok(treadle_layout_pieces(layouts[side], places[i - 1].rank, &others));
      assert_int_equal(mine.count, others.count);
      for (size_t k = 0; k < mine.count; k++) {
        assert_int_equal(mine.items[k].tensor, others.items[k].tensor);
        assert_int_equal(mine.items[k].offset, others.items[k].offset);
        assert_true(treadle_box_equal(&mine.items[k].box, &others.items[k].box));
      }
      treadle_array_release(&mine);
      treadle_array_release(&others);
    }
  }
  free(places);
  free(seen);
}

static void random_pairs(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= test_seeds(300); seed++) {
    pair p;
    pair_make(&p, seed, 12000);
    check_shares(p.from.layout, p.to.layout);
    check_shares(p.to.layout, p.from.layout);
    check_places(p.from.layout, p.to.layout);
    pair_release(&p);
  }
}

/* The pieces of a storage tensor are those that all pieces have of it. */
static void pieces_of_one_storage(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= test_seeds(60); seed++) {
    pair p;
    pair_make(&p, seed, 12000);
    const treadle_layout *layout = seed % 2 ? p.from.layout : p.to.layout;
    for (int64_t rank = 0; rank < p.ranks; rank++) {
      treadle_pieces all = {0}, one = {0};
      int32_t count;
      assert_ok(treadle_layout_pieces(layout, rank, &all));
      treadle_layout_storages(layout, rank, &count);
      for (int32_t s = 0; s < count; s++) assert_ok(treadle_layout_pieces_in(layout, rank, s, &one));
      assert_int_equal(one.count, all.count);
      for (size_t i = 0; i < all.count; i++) {
        assert_int_equal(one.items[i].storage, all.items[i].storage);
        assert_int_equal(one.items[i].tensor, all.items[i].tensor);
        assert_int_equal(one.items[i].offset, all.items[i].offset);
        assert_true(treadle_box_equal(&one.items[i].box, &all.items[i].box));
      }
      treadle_array_release(&all);
      treadle_array_release(&one);
    }
    pair_release(&p);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(random_pairs),
                                     cmocka_unit_test(pieces_of_one_storage)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
