/* The net "ucx": processes on this machine, over TCP on the loopback.  ctest: timeout=300 */
#include "base/clock.h"
#include "transport/nets.h"

static const char *const loopback = "127.0.0.1";

typedef int (*net_body)(nets_rank *n, void *context);

typedef struct job {
  net_body body;
  void *context;
} job;

/* A rank: a group, a net, the body. */
static int run_rank(const char *name, int rank, int size, void *context) {
  const job *j = context;
  treadle_group *group;
  nets_rank n;
  RANK_OK(treadle_group_open(name, rank, size, 60, &group));
  RANK_OK(nets_open(group, "ucx", loopback, NULL, &n));
  int result = j->body(&n, j->context);
  nets_close(&n);
  treadle_group_close(group);
  return result;
}

static void run_ranks(int size, net_body body, void *context) {
  int results[8];
  job j = {body, context};
  ranks_as_processes(size, 100, run_rank, &j, results);
  for (int rank = 0; rank < size; rank++) assert_int_equal(results[rank], 0);
}

/* ---- Messages ---- */

static int send_one(nets_rank *n, void *context) {
  (void)context;
  char text[32] = "";
  if (n->rank == 0)
    RANK_OK(nets_send(n, 1, 5, "over the net", 13));
  else
    RANK_OK(nets_receive(n, 0, 5, text, 13));
  RANK_TRUE(n->rank == 0 || strcmp(text, "over the net") == 0);
  RANK_OK(treadle_group_barrier(n->group));
  return 0;
}

static void test_one(void **state) {
  (void)state;
  run_ranks(2, send_one, NULL);
}

static int storm(nets_rank *n, void *context) {
  const uint64_t *seed = context;
  if (nets_storm(n, *seed, 6, 12, 20000)) return 1;
  if (nets_storm(n, *seed + 1, 2, 6, (size_t)8 << 20)) return 1;
  RANK_OK(treadle_group_barrier(n->group));
  return 0;
}

static void test_storm(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 3; seed++) {
    printf("seed %llu\n", (unsigned long long)seed);
    run_ranks(seed % 2 ? 2 : 3, storm, &seed);
  }
}

/* UCX is found only in children: a process that has it should not fork. */
static int is_there(const char *name, int rank, int size, void *context) {
  (void)name, (void)context;
  const treadle_net_ops *ops;
  void *net;
  treadle_net_options options = {
      .struct_size = sizeof options, .rank = rank, .ranks = size, .host = loopback};
  if (treadle_net_find("ucx", &ops) == TREADLE_OK && ops->open(&options, &net) == TREADLE_OK) {
    ops->close(net);
    return 0;
  }
  printf("%s\n", treadle_error_message());
  fflush(stdout);
  return 77;
}

int main(void) {
  int result = 0;
  ranks_as_processes(1, 60, is_there, NULL, &result);
  if (result == 77) return 77;
  static const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_one),
      cmocka_unit_test(test_storm),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
