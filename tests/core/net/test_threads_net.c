/* The net "threads", and what its tests plant. Run under TSan too.  ctest: label=threads timeout=600 */
#include "base/clock.h"
#include "net/net_threads.h"
#include "net/nets.h"

#include <time.h>

typedef int (*net_body)(nets_rank *n, void *context);

typedef struct job {
  treadle_net_hub *hub;
  net_body body;
  void *context;
} job;

static int run_rank(treadle_group *group, void *context) {
  const job *j = context;
  nets_rank n;
  RANK_OK(nets_open(group, "threads", NULL, j->hub, &n));
  int result = j->body(&n, j->context);
  if (treadle_group_barrier(group) != TREADLE_OK) result = 1;
  nets_close(&n);
  return result;
}

static void run_ranks(int size, net_body body, void *context) {
  job j = {NULL, body, context};
  assert_ok(treadle_net_hub_create(size, &j.hub));
  ranks_as_threads(size, NETS_PATIENCE, 0, run_rank, &j);
  treadle_net_hub_destroy(j.hub);
}

static int storm(nets_rank *n, void *context) {
  return nets_storm(n, *(uint64_t *)context, TEST_SANITIZED ? 3 : 10, 10, 60000);
}

static void test_storm(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 4; seed++) run_ranks(2 + (int)seed % 3, storm, &seed);
}

/* ---- What goes wrong ---- */

static int other_lengths(nets_rank *n, void *context) {
  (void)context;
  static const size_t sizes[][2] = {{10, 11},        {11, 10},     {0, 1},
                                    {100000, 99999}, {10, 100000}, {100000, 10}};
  unsigned char *memory = calloc(1, 100001);
  RANK_TRUE(memory);
  for (size_t i = 0; i < TEST_COUNT(sizes); i++) {
    if (n->rank == 0)
      RANK_OK(nets_send(n, 1, i, memory, sizes[i][0]));
    else
      RANK_FAILS(TREADLE_PEER, "were to come", nets_receive(n, 0, i, memory, sizes[i][1]));
  }
  free(memory);
  return 0;
}

static int cancelled(nets_rank *n, void *context) {
  (void)context;
  unsigned char *memory = calloc(1, 100000), word;
  treadle_net_part part = {memory, 100000};
  void *requests[2];
  RANK_TRUE(memory);
  if (n->rank == 0) {
    RANK_OK(n->ops->send(n->net, 1, 1, &part, 1, &requests[0]));
    RANK_OK(n->ops->receive(n->net, 1, 2, &part, 1, &requests[1]));
    RANK_OK(treadle_group_barrier(n->group));
    for (int i = 0; i < 2; i++) n->ops->cancel(n->net, requests[i]);
    memset(memory, 3, 100000);
    free(memory);
    RANK_FAILS(TREADLE_PEER, "rank 1 cannot be reached", nets_send(n, 1, 3, &word, 1));
  } else {
    RANK_OK(n->ops->receive(n->net, 0, 7, &part, 1, &requests[0]));
    RANK_OK(treadle_group_barrier(n->group));
    RANK_FAILS(TREADLE_PEER, "rank 0 cannot be reached", nets_finish(n, requests[0], NETS_PATIENCE));
    free(memory);
  }
  RANK_OK(treadle_group_barrier(n->group));
  return 0;
}

/* Begins much, and goes. */
static int closes(nets_rank *n, void *context) {
  (void)context;
  static unsigned char memory[2][50000];
  treadle_net_part part = {memory[n->rank], sizeof memory[0]};
  void *requests[20];
  for (uint64_t i = 0; i < 20; i++)
    RANK_OK((i % 2 ? n->ops->send : n->ops->receive)(n->net, 1 - n->rank, i, &part, 1, &requests[i]));
  RANK_OK(treadle_group_barrier(n->group));
  if (n->rank == 0) {
    for (int i = 0; i < 10; i++) n->ops->wait(n->net, 1e-3);
    nets_close(n);
  } else {
    for (uint64_t i = 0; i < 20; i++)
      RANK_FAILS(TREADLE_PEER, "rank 0 cannot be reached", nets_finish(n, requests[i], NETS_PATIENCE));
  }
  return 0;
}

static void test_failures(void **state) {
  (void)state;
  run_ranks(2, other_lengths, NULL);
  run_ranks(2, cancelled, NULL);
  run_ranks(2, closes, NULL);
}

/* ---- What is refused ---- */

static int refused(nets_rank *n, void *context) {
  (void)context;
  char word[8] = "";
  treadle_net_part part = {word, sizeof word}, nowhere = {NULL, 8}, many[65] = {{word, 0}};
  unsigned char address[64];
  size_t bytes;
  void *request;
  RANK_FAILS(TREADLE_REFUSED, "rank 2 of 2", n->ops->send(n->net, 2, 0, &part, 1, &request));
  RANK_FAILS(TREADLE_REFUSED, "rank -1 of 2", n->ops->receive(n->net, -1, 0, &part, 1, &request));
  RANK_FAILS(TREADLE_REFUSED, "below 2^40",
             n->ops->send(n->net, 1 - n->rank, TREADLE_NET_TAGS, &part, 1, &request));
  RANK_FAILS(TREADLE_REFUSED, "65 parts", n->ops->send(n->net, 1 - n->rank, 0, many, 65, &request));
  RANK_FAILS(TREADLE_REFUSED, "nowhere", n->ops->receive(n->net, 1 - n->rank, 0, &nowhere, 1, &request));
  RANK_FAILS(TREADLE_STATE, "not connected", n->ops->send(n->net, n->rank, 0, &part, 1, &request));
  RANK_FAILS(TREADLE_REFUSED, "room for 3", n->ops->address(n->net, address, 3, &bytes));
  RANK_OK(n->ops->address(n->net, address, sizeof address, &bytes));
  RANK_FAILS(TREADLE_STATE, "already", n->ops->connect(n->net, 1 - n->rank, address, bytes));
  RANK_FAILS(TREADLE_REFUSED, "connects to rank", n->ops->connect(n->net, n->rank, address, bytes));
  return 0;
}

static void test_refused(void **state) {
  (void)state;
  const treadle_net_ops *ops;
  void *net, *other;
  unsigned char address[64];
  size_t bytes;
  run_ranks(2, refused, NULL);
  assert_refused("there is no net 'smoke'; there are: ", treadle_net_find("smoke", &ops));
  ops = &treadle_net_threads;
  treadle_net_options options = {.struct_size = sizeof options, .rank = 0, .ranks = 2};
  assert_refused("no hub", ops->open(&options, &net));
  options.rank = 2;
  assert_refused("rank 2 of 2", ops->open(&options, &net));
  treadle_net_hub *hub;
  assert_ok(treadle_net_hub_create(2, &hub));
  options = (treadle_net_options){.struct_size = sizeof options, .rank = 0, .ranks = 3, .context = hub};
  assert_refused("3 ranks on a hub for 2", ops->open(&options, &net));
  options.ranks = 2;
  assert_ok(ops->open(&options, &net));
  assert_fails(TREADLE_STATE, "rank 0 is there already", ops->open(&options, &other));
  assert_ok(ops->address(net, address, sizeof address, &bytes));
  assert_refused("none of its", ops->connect(net, 1, address, bytes)); /* it is that of rank 0 */
  assert_refused("none of its", ops->connect(net, 1, address, bytes - 1));
  ops->close(net);
  treadle_net_hub_destroy(hub);
  options = (treadle_net_options){.struct_size = sizeof options, .ranks = 1};
  assert_ok(ops->open(&options, &net)); /* nobody else is there */
  ops->close(net);
}

/* ---- Faults ---- */

typedef struct planted {
  treadle_net_hub *hub;
  treadle_net_fault_kind kind;
} planted;

static int with_fault(nets_rank *n, void *context) {
  const planted *p = context;
  unsigned char *memory = calloc(1, 20000);
  RANK_TRUE(memory);
  for (uint64_t i = 0; i < 6; i++) {
    size_t bytes = i % 2 ? 20000 : 100;
    double begin = treadle_clock_seconds();
    treadle_net_part part = {memory, bytes};
    void *request;
    treadle_status got =
        (n->rank ? n->ops->receive : n->ops->send)(n->net, 1 - n->rank, i, &part, 1, &request);
    if (got == TREADLE_OK)
      got = nets_finish(n, request, n->rank && i == 3 && p->kind == TREADLE_NET_DROP ? 0.1 : NETS_PATIENCE);
    if (p->kind == TREADLE_NET_CUT && i >= 2 && got != TREADLE_OK) { /* what came before may be lost, too */
      RANK_FAILS(TREADLE_PEER, "cannot be reached", got);
      continue;
    }
    RANK_TRUE(p->kind != TREADLE_NET_CUT || i < 3);
    if (p->kind == TREADLE_NET_DROP && i == 3 && n->rank) {
      RANK_FAILS(TREADLE_TIMEOUT, "has not ended", got);
      continue;
    }
    RANK_OK(got);
    if (!n->rank) continue;
    if (p->kind == TREADLE_NET_DELAY && i == 3) RANK_TRUE(treadle_clock_seconds() - begin >= 0.15);
    int changed = 0;
    for (size_t at = 0; at < bytes; at++) changed += memory[at] != 0;
    RANK_TRUE(changed == (p->kind == TREADLE_NET_FLIP && i == 3));
    memset(memory, 0, bytes);
  }
  free(memory);
  return 0;
}

static void test_faults(void **state) {
  (void)state;
  for (int kind = TREADLE_NET_DROP; kind <= TREADLE_NET_CUT; kind++) {
    planted p = {.kind = (treadle_net_fault_kind)kind};
    job j = {NULL, with_fault, &p};
    assert_ok(treadle_net_hub_create(2, &j.hub));
    treadle_net_hub_plant(j.hub, &(treadle_net_fault){.kind = p.kind,
                                                      .from = 0,
                                                      .to = 1,
                                                      .after = 3,
                                                      .seconds = kind == TREADLE_NET_FLIP ? 0.5 : 0.2});
    ranks_as_threads(2, NETS_PATIENCE, 0, run_rank, &j);
    treadle_net_hub_destroy(j.hub);
  }
}

int main(void) {
  static const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_storm),
      cmocka_unit_test(test_failures),
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_faults),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
