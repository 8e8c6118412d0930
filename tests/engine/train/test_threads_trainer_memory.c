/* The n-th allocation of all ranks fails while they make their trainers, for each n: no rank has one then, and the group goes on.
 * ctest: label=threads */
#include "group/ranks.h"
#include "test.h"

#include "treadle_builtin.h"

enum { RANKS = 4 };

typedef struct scene {
  treadle_model *model;
  treadle_layout *layout;
} scene;

/* Each of the first ones, the rest by leaps. */
static long next_of(long n) { return n < 60 ? n + 1 : n + n / 12; }

static int starve(treadle_group *group, void *context) {
  const scene *s = context;
  const treadle_trainer_options options = {.struct_size = sizeof options,
                                           .threads = 1,
                                           .most_rows = 32,
                                           .most_tokens = 32,
                                           .most_micro_batches = 2,
                                           .optimizer = true};
  bool last = false;
  for (long n = 1; !last; n = next_of(n)) {
    treadle_trainer *trainer = NULL;
    int made[RANKS] = {0}, mine;
    RANK_OK(treadle_group_barrier(group));
    const long before = treadle_alloc_count();
    RANK_OK(treadle_group_barrier(group));
    if (group->rank == 0) treadle_alloc_fail_at(n);
    RANK_OK(treadle_group_barrier(group));
    const treadle_status status = treadle_trainer_create(group, s->layout, &options, &trainer);
    RANK_OK(treadle_group_barrier(group));
    last = treadle_alloc_count() - before < n;
    RANK_OK(treadle_group_barrier(group));
    if (group->rank == 0) treadle_alloc_fail_at(0);
    mine = trainer != NULL;
    RANK_OK(treadle_group_gather(group, &mine, sizeof mine, made));
    for (int rank = 0; rank < RANKS; rank++) RANK_TRUE(made[rank] == mine);
    RANK_TRUE(mine == (status == TREADLE_OK) && (mine || !last));
    treadle_trainer_destroy(trainer);
  }
  return 0;
}

static void test_no_memory(void **state) {
  static const char *const layouts[] = {"megatron:tp=2", "megatron:tp=2,pp=2", "megatron:pp=2",
                                        "megatron:pp=2,cp=2", "fsdp2:dp=4"};
  scene s = {0};
  (void)state;
  assert_ok(treadle_model_open(TREADLE_SOURCE_DIR "/tests/golden/models/qwen2-tied", NULL, &s.model));
  for (size_t i = 0; i < TEST_COUNT(layouts); i++) {
    assert_ok(treadle_layout_create(s.model, layouts[i], RANKS, NULL, &s.layout));
    ranks_as_threads(RANKS, 20, 0, starve, &s);
    treadle_layout_destroy(s.layout);
  }
  treadle_model_close(s.model);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
