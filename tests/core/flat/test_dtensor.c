/* DTensor placements and FSDP2 shards: against lists of rows cut as torch.chunk cuts, the vectors of
 * docs/rules.md 10.3, and the matrices that others test their resharding with. */
#include "test.h"

#include "base/random.h"
#include "layout/placed.h"

#include <inttypes.h>

/* ---- DTensor against plain lists ------------------------------------------------------------- */

enum { MAX_ROWS = 32 };

typedef struct list {
  int count, at[MAX_ROWS];
} list;

/* Part `index` of torch.chunk(rows, count). */
static list chunk(const list *from, int64_t count, int64_t index) {
  list part = {0};
  int64_t size = (from->count + count - 1) / count;
  for (int i = 0; i < from->count; i++)
    if (size > 0 && i / size == index) part.at[part.count++] = from->at[i];
  return part;
}

static list place(const list *from, const treadle_mesh_placement *by) {
  if (by->placement.type == 'S') return chunk(from, by->size, by->index);
  list all = {0};
  for (int64_t s = 0; s < by->placement.split; s++) {
    list outer = chunk(from, by->placement.split, s), inner = chunk(&outer, by->size, by->index);
    for (int i = 0; i < inner.count; i++) all.at[all.count++] = inner.at[i];
  }
  return all;
}

/* Every element of the local tensor comes from the row and column that the lists say. */
static bool has_elements(const treadle_strideds *boxes, const list *of) {
  int seen[MAX_ROWS][MAX_ROWS] = {{0}};
  int64_t elems = 0;
  for (size_t b = 0; b < boxes->count; b++) {
    const treadle_strided *part = &boxes->items[b];
    for (int64_t i = 0; i < part->box.size[0]; i++)
      for (int64_t k = 0; k < part->box.size[1]; k++) {
        int64_t at = part->offset + i * part->stride[0] + k * part->stride[1];
        if (at < 0 || at >= (int64_t)of[0].count * of[1].count) return false;
        int64_t r = at / of[1].count, column = at % of[1].count;
        if (of[0].at[r] != part->box.start[0] + i || of[1].at[column] != part->box.start[1] + k)
          return false;
        if (seen[r][column]++) return false;
        elems++;
      }
  }
  return elems == (int64_t)of[0].count * of[1].count;
}

static void random_placements(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 3000; seed++) {
    treadle_random random = {seed};
    int64_t shape[2], local[TREADLE_MAX_AXES];
    list of[2] = {{0}};
    for (int d = 0; d < 2; d++) {
      shape[d] = treadle_random_between(&random, 1, 20);
      for (int i = 0; i < shape[d]; i++) of[d].at[of[d].count++] = i;
    }
    treadle_mesh_placement places[3];
    int count = (int)treadle_random_between(&random, 0, 3);
    for (int m = 0; m < count; m++) {
      places[m] = (treadle_mesh_placement){{"STR"[treadle_random_below(&random, 3)],
                                            (int)treadle_random_below(&random, 2),
                                            treadle_random_between(&random, 1, 6)},
                                           treadle_random_between(&random, 1, 5),
                                           0};
      places[m].index = treadle_random_below(&random, places[m].size);
      list *cut = &of[places[m].placement.dim];
      if (places[m].placement.type != 'R') *cut = place(cut, &places[m]);
    }
    treadle_strideds boxes = {0};
    assert_ok(treadle_dtensor_shard(shape, 2, places, count, local, &boxes));
    bool good = local[0] == of[0].count && local[1] == of[1].count && has_elements(&boxes, of);
    treadle_array_release(&boxes);
    if (!good) fail_msg("seed %" PRIu64, seed);
  }
}

static void strided_shards_by_hand(void **state) {
  (void)state;
  placed tensor = placed_open("9", "4", "T0/2"); /* [0,1,5] [2,3,6] [4,7] [8] */
  static const int64_t starts[4][2] = {{0, 5}, {2, 6}, {4, 7}, {8, -1}}, sizes[4] = {3, 3, 2, 1};
  for (int r = 0; r < 4; r++) {
    const treadle_strideds *boxes = &tensor.shards[r].boxes;
    assert_int_equal(tensor.shards[r].local[0], sizes[r]);
    assert_int_equal(boxes->count, starts[r][1] < 0 ? 1 : 2);
    for (size_t i = 0; i < boxes->count; i++) assert_int_equal(boxes->items[i].box.start[0], starts[r][i]);
  }
  placed_close(&tensor);
  tensor = placed_open("9", "2x2", "S0,S0"); /* 5 / 4, then 3, 2 / 2, 2 */
  static const int64_t nested[] = {3, 2, 2, 2};
  for (int r = 0; r < 4; r++) assert_int_equal(tensor.shards[r].local[0], nested[r]);
  placed_close(&tensor);
}

static void refused_placements(void **state) {
  (void)state;
  static const struct {
    treadle_mesh_placement place;
    const char *message;
  } rows[] = {{{{'P', 0, 0}, 2, 0}, "mesh dimension 0 is Partial: reduce the tensor before it is moved"},
              {{{'X', 0, 0}, 2, 0}, "unknown placement 'X'"},
              {{{'S', 2, 0}, 2, 0}, "cuts dimension 2 of a tensor of 2"},
              {{{'S', -1, 0}, 2, 0}, "cuts dimension -1"},
              {{{'T', 0, 0}, 2, 0}, "split factor 0"},
              {{{'R', 0, 0}, 0, 0}, "index 0 of 0"},
              {{{'S', 0, 0}, 2, 2}, "index 2 of 2"}};
  int64_t shape[] = {4, 4}, empty[] = {4, 0}, huge[] = {INT64_MAX, 2}, local[TREADLE_MAX_AXES];
  treadle_strideds boxes = {0};
  for (size_t i = 0; i < TEST_COUNT(rows); i++)
    assert_refused(rows[i].message, treadle_dtensor_shard(shape, 2, &rows[i].place, 1, local, &boxes));
  assert_refused("dimension 1 of a tensor has 0", treadle_dtensor_shard(empty, 2, NULL, 0, local, &boxes));
  assert_refused("dimension 1", treadle_dtensor_shard(huge, 2, NULL, 0, local, &boxes));
  assert_refused("7 dimensions", treadle_dtensor_shard(shape, 7, NULL, 0, local, &boxes));
  assert_int_equal(boxes.count, 0);
}

/* ---- Resharding matrices --------------------------------------------------------------------- */

static void move(const char *shape, const char *from_mesh, const char *from_placements, const char *to_mesh,
                 const char *to_placements) {
  placed from = placed_open(shape, from_mesh, from_placements);
  placed to = placed_open(shape, to_mesh, to_placements);
  placed_assert_tiles(&from);
  placed_assert_tiles(&to);
  placed_assert_moves(&from, &to);
  placed_assert_moves(&to, &from);
  placed_close(&from);
  placed_close(&to);
}

/* The matrix of NCCL's M2N tests. */
static void nccl_m2n_matrix(void **state) {
  (void)state;
  static const char *const line[] = {"S0", "S1"};
  for (int a = 0; a < 2; a++)
    for (int b = 0; b < 2; b++) {
      move("200x200", "2", line[a], "4", line[b]);
      move("200x200", "3", line[a], "7", line[b]); /* not even */
      move("240x240", "3", line[a], "1", line[b]);
      move("240x240", "1", line[a], "3", line[b]);
      move("64x128x128", "4", line[a], "8", line[b]);
    }
  static const char *const meshes[] = {"2x4", "4x2", "2x2"};
  static const char *const planes[] = {"S0,S1", "S1,S0", "S0,R", "R,S0", "S1,R", "R,S1"};
  static const char *const shapes[] = {"576x576", "3072x3072", "3072x6144", "64x128x128", "128x64x64"};
  for (size_t f = 0; f < TEST_COUNT(meshes) * TEST_COUNT(planes); f++)
    for (size_t t = 0; t < TEST_COUNT(meshes) * TEST_COUNT(planes); t++)
      for (size_t s = 0; s < TEST_COUNT(shapes); s++)
        move(shapes[s], meshes[f % 3], planes[f / 3], meshes[t % 3], planes[t / 3]);
}

/* torchstore's resharding tests. */
static void torchstore_matrix(void **state) {
  (void)state;
  static const char *const line[] = {"S0", "S1"};
  for (int a = 0; a < 2; a++)
    for (int b = 0; b < 2; b++) {
      move("512x512", "4", line[a], "2", line[b]);
      move("512x512", "2", line[a], "4", line[b]);
    }
  move("512x512", "2x2", "S1,S1", "2x2", "S0,S1");
  move("512x512", "2x2", "S1,S0", "2x2", "S1,S0");
  move("512x512", "2x2", "S0,S0", "2x2", "S0,S1");
  move("512x512", "2x2", "S1,S1", "2x2", "S0,S0");
  move("512x512", "4", "S0", "2x2", "S0,S1");
  move("512x512", "4", "S1", "2x2", "S1,S0");
  move("512x512", "2", "R", "4", "R");
  move("512x512", "2x2", "R,S0", "4", "S1");
}

/* ---- FSDP2 ----------------------------------------------------------------------------------- */

static treadle_box fsdp2(int64_t rows, const treadle_fsdp2_rule *rule, int64_t t, int64_t r,
                         int64_t *stored) {
  treadle_box box = {{0}, {0}};
  int64_t shape[] = {rows, 2};
  assert_ok(treadle_fsdp2_shard(shape, 2, rule, t, r, &box, stored));
  return box;
}

static void fsdp2_by_hand(void **state) {
  (void)state;
  static const struct {
    int64_t rows, sizes[4];
  } chunks[] = {{9, {3, 3, 3, 0}}, {5, {2, 2, 1, 0}}, {2, {1, 1, 0, 0}}};
  treadle_fsdp2_rule rule = {.tp_dim = -1, .tp = 1, .fsdp_dim = 0, .fsdp = 4};
  int64_t stored[TREADLE_MAX_AXES];
  for (size_t i = 0; i < TEST_COUNT(chunks); i++)
    for (int r = 0; r < 4; r++) {
      assert_int_equal(fsdp2(chunks[i].rows, &rule, 0, r, stored).size[0], chunks[i].sizes[r]);
      assert_int_equal(stored[0], chunks[i].sizes[0]);
      assert_int_equal(stored[1], 2);
    }
  /* 9 rows, TP2 on the same dimension: [dp][tp] = {first, count} */
  static const int64_t two[2][2][2] = {{{0, 3}, {5, 2}}, {{3, 2}, {7, 2}}};
  rule = (treadle_fsdp2_rule){.tp_dim = 0, .tp = 2, .fsdp_dim = 0, .fsdp = 2};
  for (int r = 0; r < 2; r++)
    for (int t = 0; t < 2; t++) {
      treadle_box box = fsdp2(9, &rule, t, r, stored);
      assert_int_equal(box.start[0], two[r][t][0]);
      assert_int_equal(box.size[0], two[r][t][1]);
    }
  rule.fsdp = 4; /* where the placements mislead */
  assert_int_equal(fsdp2(9, &rule, 0, 3, stored).size[0], 0);
  treadle_box last = fsdp2(9, &rule, 1, 3, stored);
  assert_int_equal(last.start[0], 8);
  assert_int_equal(last.size[0], 1);
}

/* All shards are the rows, each once, however uneven. */
static void fsdp2_covers(void **state) {
  (void)state;
  for (int64_t n = 1; n <= 24; n++)
    for (int64_t tp = 1; tp <= 5; tp++)
      for (int64_t fsdp = 1; fsdp <= 6; fsdp++) {
        treadle_fsdp2_rule rule = {.tp_dim = 0, .tp = tp, .fsdp_dim = 0, .fsdp = fsdp};
        int64_t next = 0, stored[TREADLE_MAX_AXES];
        for (int64_t t = 0; t < tp; t++)
          for (int64_t r = 0; r < fsdp; r++) {
            treadle_box box = fsdp2(n, &rule, t, r, stored);
            assert_true(box.size[0] <= stored[0]);
            if (box.size[0] == 0) continue;
            assert_int_equal(box.start[0], next);
            next += box.size[0];
          }
        assert_int_equal(next, n);
      }
}

static void fsdp2_refused(void **state) {
  (void)state;
  int64_t shape[] = {4, 6}, stored[TREADLE_MAX_AXES];
  treadle_box box;
  treadle_fsdp2_rule rule = {.tp_dim = -1, .tp = 1, .fsdp_dim = 1, .fsdp = 4};
  assert_refused("dimension 1 has 6 elements, which are not divisible by 4 ranks",
                 treadle_fsdp2_shard(shape, 2, &rule, 0, 0, &box, stored));
  rule.fsdp = 3;
  assert_ok(treadle_fsdp2_shard(shape, 2, &rule, 0, 2, &box, stored));
  assert_int_equal(box.start[1], 4);
  rule = (treadle_fsdp2_rule){.tp_dim = 1, .tp = 4, .fsdp_dim = 1, .fsdp = 2}; /* TP pieces of 2, 2, 2, 0 */
  assert_ok(treadle_fsdp2_shard(shape, 2, &rule, 3, 1, &box, stored));
  rule = (treadle_fsdp2_rule){.tp_dim = 1, .tp = 5, .fsdp_dim = 1, .fsdp = 2};
  assert_ok(treadle_fsdp2_shard(shape, 2, &rule, 3, 1, &box, stored));
  rule = (treadle_fsdp2_rule){.tp_dim = 1, .tp = 2, .fsdp_dim = 1, .fsdp = 2};
  assert_refused("has 3 elements", treadle_fsdp2_shard(shape, 2, &rule, 0, 0, &box, stored));
  shape[1] = 7; /* TP pieces of 4 and 3: refused on all ranks, not only where the 3 are */
  assert_refused("has 3 elements", treadle_fsdp2_shard(shape, 2, &rule, 0, 0, &box, stored));
  shape[1] = 6;
  rule = (treadle_fsdp2_rule){.tp_dim = 0, .tp = 3, .fsdp_dim = 1, .fsdp = 2};
  assert_refused("TP index 3 of 3", treadle_fsdp2_shard(shape, 2, &rule, 3, 0, &box, stored));
  assert_refused("FSDP index 2 of 2", treadle_fsdp2_shard(shape, 2, &rule, 0, 2, &box, stored));
  rule.tp_dim = 2;
  assert_refused("on dimension 2 of a tensor of 2",
                 treadle_fsdp2_shard(shape, 2, &rule, 0, 0, &box, stored));
}

static treadle_status shard_once(void) {
  static const treadle_mesh_placement places[] = {{{'T', 0, 4}, 3, 1}, {{'S', 1, 0}, 2, 1}};
  int64_t shape[] = {60, 8}, local[TREADLE_MAX_AXES];
  treadle_strideds boxes = {0};
  treadle_status status = treadle_dtensor_shard(shape, 2, places, 2, local, &boxes);
  treadle_array_release(&boxes);
  return status;
}

static void failing_allocations(void **state) {
  (void)state;
  TEST_EACH_ALLOCATION(shard_once());
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_placements),   cmocka_unit_test(strided_shards_by_hand),
      cmocka_unit_test(refused_placements),  cmocka_unit_test(nccl_m2n_matrix),
      cmocka_unit_test(torchstore_matrix),   cmocka_unit_test(fsdp2_by_hand),
      cmocka_unit_test(fsdp2_covers),        cmocka_unit_test(fsdp2_refused),
      cmocka_unit_test(failing_allocations),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
