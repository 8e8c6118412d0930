/* Meshes and rank maps: against plain loops over ranks, and the groups that other projects' tables state.
 */
#include "test.h"

#include "base/random.h"
#include "layout/mesh.h"
#include "plan/small.h"

#include <inttypes.h>

/* A mesh of random sizes, fastest first. */
static treadle_mesh draw_mesh(treadle_random *random) {
  static const char *const names[] = {"tp", "cp", "ep", "dp", "pp"};
  treadle_mesh mesh = {0};
  int64_t stride = 1;
  for (int i = 0; i < 5; i++) {
    int64_t size = treadle_random_between(random, 1, 4);
    treadle_mesh_add(&mesh, names[i], size, stride);
    stride *= size;
  }
  mesh.ranks = stride * treadle_random_between(random, 1, 3); /* what no dimension names: replicas */
  return mesh;
}

static void check_set(const treadle_mesh *mesh, const treadle_dim *first, int64_t a,
                      const treadle_dim *second, int64_t b) {
  treadle_rank_set set = treadle_mesh_select(mesh, (const treadle_fixed[]){{first, a}, {second, b}}, 2);
  int64_t count = 0;
  for (int64_t rank = 0; rank < mesh->ranks; rank++) {
    bool in = (!first || treadle_dim_index(first, rank) == a) &&
              (!second || treadle_dim_index(second, rank) == b);
    if (in) {
      assert_int_equal(treadle_rank_set_get(&set, count), rank); /* ascending */
      assert_int_equal(treadle_rank_set_find(&set, rank), count);
      count++;
    } else {
      assert_int_equal(treadle_rank_set_find(&set, rank), -1);
    }
  }
  assert_int_equal(treadle_rank_set_count(&set), count);
  assert_int_equal(treadle_rank_set_find(&set, -1), -1);
  assert_int_equal(treadle_rank_set_find(&set, mesh->ranks), -1);
}

static void sets_against_loops(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 60; seed++) {
    treadle_random random = {seed};
    treadle_mesh mesh = draw_mesh(&random);
    check_set(&mesh, NULL, 0, NULL, 0);
    for (int i = 0; i < mesh.count; i++) {
      const treadle_dim *one = &mesh.dims[i];
      for (int64_t a = 0; a < one->size; a++) {
        check_set(&mesh, one, a, NULL, 0);
        check_set(&mesh, NULL, 0, one, a);
        for (int k = 0; k < mesh.count; k++)
          for (int64_t b = 0; k != i && b < mesh.dims[k].size; b++)
            check_set(&mesh, one, a, &mesh.dims[k], b);
      }
    }
  }
}

/* Dimensions of two digits, and four fixed at once: every rank asked, in meshes as the engines and Megatron have them. */
static void fixed_against_loops(void **state) {
  (void)state;
  treadle_random random = {77};
  for (int round = 0; round < 400; round++) {
    treadle_mesh mesh = {0};
    int64_t size[5], stride[6] = {1};
    for (int i = 0; i < 5; i++) {
      size[i] = treadle_random_between(&random, 1, 4);
      stride[i + 1] = stride[i] * size[i];
    }
    mesh.ranks = stride[5];
    treadle_mesh_add(&mesh, "b", size[1], stride[1]);
    treadle_mesh_add_digits(&mesh, "ac", size[0], 1, size[2], stride[2]); /* around b */
    treadle_mesh_add(&mesh, "d", size[3], stride[3]);
    treadle_mesh_add(&mesh, "e", size[4], stride[4]);
    treadle_fixed fixed[4];
    int count = (int)treadle_random_between(&random, 0, 4);
    for (int i = 0; i < count; i++) {
      const treadle_dim *dim = &mesh.dims[i];
      bool free_one = treadle_random_below(&random, 5) == 0;
      fixed[i] = (treadle_fixed){free_one ? NULL : dim, treadle_random_below(&random, dim->size)};
    }
    treadle_rank_set set = treadle_mesh_select(&mesh, fixed, count);
    int64_t position = 0;
    for (int64_t r = 0; r < mesh.ranks; r++) {
      bool is = true;
      int64_t ac = r % size[0] + size[0] * (r / stride[2] % size[2]);
      assert_int_equal(treadle_dim_index(&mesh.dims[1], r), ac);
      for (int i = 0; i < count; i++)
        is = is && (!fixed[i].dim || treadle_dim_index(fixed[i].dim, r) == fixed[i].index);
      assert_int_equal(treadle_rank_set_find(&set, r), is ? position : -1);
      if (is) assert_int_equal(treadle_rank_set_get(&set, position++), r);
    }
    assert_int_equal(treadle_rank_set_count(&set), position);
  }
}

static void names_are_found(void **state) {
  (void)state;
  treadle_mesh mesh = {.ranks = 12};
  treadle_mesh_add(&mesh, "tp", 4, 1);
  treadle_mesh_add(&mesh, "attn_tp", 2, 1); /* dimensions may overlap */
  treadle_mesh_add(&mesh, "pp", 3, 4);
  assert_ptr_equal(treadle_mesh_find(&mesh, "attn_tp"), &mesh.dims[1]);
  assert_ptr_equal(treadle_mesh_find(&mesh, "pp"), &mesh.dims[2]);
  assert_null(treadle_mesh_find(&mesh, "t"));
  assert_null(treadle_mesh_find(&mesh, "tpp"));
  assert_int_equal(treadle_dim_index(&mesh.dims[1], 7), 1);
  assert_int_equal(treadle_dim_index(&mesh.dims[2], 7), 1);
}

static void orders_have_an_inverse(void **state) {
  (void)state;
  for (int64_t tp = 1; tp <= 6; tp++)
    for (int64_t f = 1; f <= 6; f++)
      for (int64_t blocks = 1; blocks <= 3; blocks++) {
        treadle_rank_order order = {tp, f};
        int64_t ranks = tp * f * blocks;
        for (int64_t i = 0; i < ranks; i++) {
          int64_t physical = treadle_order_physical(&order, i), g = i / tp, t = i % tp;
          assert_int_equal(treadle_order_layout(&order, physical), i);
          assert_int_equal(physical, g / f * (f * tp) + g % f + f * t); /* mesh.h's own words */
          assert_true(physical / (tp * f) == i / (tp * f));             /* stays in its block */
          if (f == 1) assert_int_equal(physical, i);
        }
      }
}

/* ---- Generation groups as other projects state them ---- */

typedef struct group_row {
  const char *name;
  int64_t ranks;
  const char *train, *infer;
  treadle_rank_map map;
  const char *groups; /* tp groups of generation, members in order of their tp index; first of all groups */
} group_row;

/* Writes the tp groups as "[0,2][1,3]": by engine, as the layout numbers them. */
static void groups_of(const treadle_layout *infer, int64_t ranks, int64_t first, char *text) {
  int64_t tp = infer->tp;
  for (int64_t group = 0; group < ranks / tp; group++) {
    text += sprintf(text, "[");
    for (int64_t t = 0; t < tp; t++)
      text += sprintf(text, t ? ",%" PRId64 : "%" PRId64,
                      first + treadle_order_physical(&infer->order, group * tp + t));
    text += sprintf(text, "]");
  }
}

static const group_row group_rows[] = {
    /* HybridFlow, figure 8 (T1), counted from 0 here */
    {"T1", 8, "megatron:tp=4", "vllm:tp=2", TREADLE_BEST, "[0,2][1,3][4,6][5,7]"},
    /* MindSpeed-RL 2.0.0: strided (world; tp, pp of training, tp of generation) */
    {"8; 4,1,2", 8, "megatron:tp=4", "vllm:tp=2", TREADLE_STRIDED, "[0,2][1,3][4,6][5,7]"},
    {"8; 4,2,2", 8, "megatron:tp=4,pp=2", "vllm:tp=2", TREADLE_STRIDED, "[0,2][1,3][4,6][5,7]"},
    {"8; 4,1,1", 8, "megatron:tp=4", "vllm:tp=1", TREADLE_STRIDED, "[0][1][2][3][4][5][6][7]"},
    {"8; 2,1,2", 8, "megatron:tp=2", "vllm:tp=2", TREADLE_STRIDED, "[0,1][2,3][4,5][6,7]"},
    /* HEAD: contiguous; where generation splits, both are */
    {"8; 4,1,2", 8, "megatron:tp=4", "vllm:tp=2", TREADLE_CONTIGUOUS, "[0,1][2,3][4,5][6,7]"},
    {"8; 4,2,2", 8, "megatron:tp=4,pp=2", "vllm:tp=2", TREADLE_CONTIGUOUS, "[0,1][2,3][4,5][6,7]"},
    {"8; 2,2,4", 8, "megatron:tp=2,pp=2", "vllm:tp=4", TREADLE_CONTIGUOUS, "[0,1,2,3][4,5,6,7]"},
    {"8; 2,1,8", 8, "megatron:tp=2", "vllm:tp=8", TREADLE_CONTIGUOUS, "[0,1,2,3,4,5,6,7]"},
    {"8; 1,1,4", 8, "megatron", "vllm:tp=4", TREADLE_CONTIGUOUS, "[0,1,2,3][4,5,6,7]"},
};

static void generation_groups(void **state) {
  (void)state;
  static const small_config config = {.V = 512, .H = 32, .L = 2, .nh = 24, .ng = 24, .hd = 2, .I = 48};
  treadle_model *model = small_model(&config);
  for (size_t i = 0; i < TEST_COUNT(group_rows); i++) {
    const group_row *row = &group_rows[i];
    treadle_layout *train, *infer;
    char text[128];
    assert_ok(treadle_layout_create(model, row->train, row->ranks, NULL, &train));
    assert_ok(treadle_layout_create(model, row->infer, row->ranks, NULL, &infer));
    assert_ok(treadle_layout_map_ranks(infer, train, row->map, NULL));
    groups_of(infer, row->ranks, 0, text);
    if (strcmp(text, row->groups) != 0)
      fail_msg("%s, %s: %s, not %s", row->name, treadle_layout_rank_map(infer), text, row->groups);
    for (int64_t group = 0; group < row->ranks / infer->tp;
         group++) /* the layout says the same of each rank */
      for (int64_t t = 0; t < infer->tp; t++) {
        int64_t index, rank = treadle_order_physical(&infer->order, group * infer->tp + t);
        assert_ok(treadle_layout_coordinate(infer, rank, "tp", &index));
        assert_int_equal(index, t);
      }
    if (strcmp(row->name, "T1") == 0) {
      groups_of(infer, row->ranks, 1, text);
      assert_string_equal(text, "[1,3][2,4][5,7][6,8]"); /* as the paper counts */
    }
    treadle_layout_destroy(train);
    treadle_layout_destroy(infer);
  }
  treadle_model_close(model);
}

static void groups_that_cannot_be(void **state) {
  (void)state;
  static const small_config config = {.V = 192, .H = 32, .L = 4, .nh = 12, .ng = 12, .hd = 2, .I = 48};
  treadle_model *model = small_model(&config);
  treadle_layout *train, *infer;
  assert_ok(treadle_layout_create(model, "megatron:tp=4", 12, NULL, &train));
  assert_ok(treadle_layout_create(model, "vllm:tp=3", 12, NULL, &infer)); /* 4 % 3 */
  assert_refused("tp=4 of 'megatron:tp=4' is not a multiple of tp=3 of 'vllm:tp=3'",
                 treadle_layout_map_ranks(infer, train, TREADLE_STRIDED, NULL));
  assert_ok(treadle_layout_map_ranks(infer, train, TREADLE_BEST, NULL)); /* 4 groups: strides 1, 2, 4 */
  treadle_layout_destroy(infer);
  assert_ok(treadle_layout_create(model, "vllm:tp=6", 12, NULL,
                                  &infer)); /* growth: MindSpeed splits, in rank order */
  assert_refused("not a multiple", treadle_layout_map_ranks(infer, train, TREADLE_STRIDED, NULL));
  treadle_layout_destroy(infer);
  assert_refused("8 ranks are not divisible",
                 treadle_layout_create(model, "vllm:tp=3", 8, NULL, &infer)); /* 8; 4,1,3 */
  assert_null(infer);
  treadle_layout_destroy(train);
  treadle_model_close(model);
}

/* Of the strides that divide, best is one with the smallest maximum, then mean: seen by trying all. */
static void best_is_best(void **state) {
  (void)state;
  static const small_config config = {.V = 384, .H = 32, .L = 4, .nh = 12, .ng = 12, .hd = 2, .I = 48};
  static const struct {
    int64_t ranks;
    const char *train, *infer;
  } rows[] = {{8, "megatron:tp=4", "vllm:tp=2"},
              {12, "megatron:tp=6,pp=2", "vllm:tp=2"},
              {12, "megatron:tp=2,pp=3,first=1,last=1", "vllm:tp=4"},
              {8, "megatron:pp=4", "vllm:tp=4"},
              {8, "hf:root=3", "vllm:tp=2"},
              {12, "megatron:tp=4", "vllm:tp=3,dp=2"}};
  treadle_model *model = small_model(&config);
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    treadle_layout *train, *infer;
    assert_ok(treadle_layout_create(model, rows[i].train, rows[i].ranks, NULL, &train));
    if (treadle_layout_create(model, rows[i].infer, rows[i].ranks, NULL, &infer) != TREADLE_OK)
      fail_msg("%s", treadle_error_message());
    int64_t groups = rows[i].ranks / infer->tp, best_f = 0, best_most = 0, best_sum = 0;
    for (int64_t f = 1; f <= groups; f++) {
      if (groups % f != 0) continue;
      int64_t most = 0, sum = 0;
      infer->order = (treadle_rank_order){infer->tp, f};
      for (int64_t r = 0; r < rows[i].ranks; r++) {
        int64_t bytes;
        assert_ok(treadle_layout_inbound(train, infer, r, NULL, &bytes));
        most = bytes > most ? bytes : most;
        sum += bytes;
      }
      if (best_f == 0 || most < best_most || (most == best_most && sum < best_sum))
        best_f = f, best_most = most, best_sum = sum;
    }
    assert_ok(treadle_layout_map_ranks(infer, train, TREADLE_BEST, NULL));
    assert_int_equal(infer->order.f, best_f);
    char text[32];
    snprintf(text, sizeof text, best_f == 1 ? "contiguous" : "strided:%" PRId64, best_f);
    assert_string_equal(treadle_layout_rank_map(infer), text);
    treadle_layout_destroy(train);
    treadle_layout_destroy(infer);
  }
  treadle_model_close(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sets_against_loops), cmocka_unit_test(fixed_against_loops),
      cmocka_unit_test(names_are_found),    cmocka_unit_test(orders_have_an_inverse),
      cmocka_unit_test(generation_groups),  cmocka_unit_test(groups_that_cannot_be),
      cmocka_unit_test(best_is_best),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
