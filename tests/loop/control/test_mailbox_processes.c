/* A mailbox between processes on three nodes, which meet by a store: messages both ways; and one that is killed in the
 * middle of a message, which the others tell by its rank. */
#include "group/ranks.h"
#include "meet/store_place.h"
#include "test.h"

#include "control/mailbox.h"

#include <signal.h>

enum { RANKS = 4, NODES = 3, VICTIM = 1, MUCH = 20000000 };

typedef struct scene {
  const char *place;
  bool kills;
} scene;

static int meet(const scene *s, int rank, treadle_group **group_p) {
  const treadle_store_options options = store_options(s->place, rank, RANKS, 20);
  treadle_store store = TREADLE_INIT(treadle_store);
  RANK_OK(treadle_store_open(&options, &store));
  RANK_OK(treadle_group_store(&store, rank, RANKS, rank % NODES, 20, group_p));
  treadle_store_close(&store);
  return 0;
}

/* Rank 0 sends to all; each sends it back. */
static int go_round(treadle_mailbox *box, char *bytes, size_t length) {
  if (box->group->rank > 0) {
    RANK_OK(treadle_mailbox_receive(box, 0, bytes, length));
    RANK_OK(treadle_mailbox_send(box, 0, bytes, length));
    return 0;
  }
  for (size_t i = 0; i < length; i++) bytes[i] = (char)(i % 251);
  RANK_OK(treadle_mailbox_send_all(box, bytes, length));
  for (int rank = 1; rank < RANKS; rank++) {
    memset(bytes, 0, length);
    RANK_OK(treadle_mailbox_receive(box, rank, bytes, length));
    for (size_t i = 0; i < length; i++) RANK_TRUE(bytes[i] == (char)(i % 251));
  }
  return 0;
}

static int be_killed(treadle_mailbox *box, char *bytes) {
  const int rank = box->group->rank;
  if (rank == VICTIM) { /* when it has the first of what rank 0 sends */
    RANK_OK(treadle_mailbox_receive(box, 0, bytes, 4 << 20));
    raise(SIGKILL);
  }
  treadle_status status = rank == 0   ? treadle_mailbox_send_all(box, bytes, MUCH)
                          : rank == 2 ? treadle_mailbox_receive(box, VICTIM, bytes, MUCH)
                                      : treadle_mailbox_receive(box, 0, bytes, MUCH);
  if (rank < 3) RANK_TRUE(status == TREADLE_PEER);
  if (rank == 0) RANK_TRUE(strstr(treadle_error_message(), "rank 1"));
  RANK_FAILS(TREADLE_PEER, "rank", treadle_mailbox_settle(box, status));
  RANK_FAILS(TREADLE_PEER, "rank", treadle_mailbox_open(box, box->group));
  return 0;
}

static int live(const char *name, int rank, int size, void *context) {
  static const size_t lengths[] = {0, 1, 5000, MUCH, 3};
  const scene *s = context;
  treadle_group *group;
  treadle_mailbox box = {0};
  char *bytes = calloc(1, MUCH);
  (void)name, (void)size;
  if (meet(s, rank, &group)) return 1;
  RANK_OK(treadle_mailbox_open(&box, group));
  for (size_t i = 0; i < TEST_COUNT(lengths); i++)
    if (go_round(&box, bytes, lengths[i])) return 1;
  if (s->kills) {
    if (be_killed(&box, bytes)) return 1;
  } else {
    RANK_OK(treadle_mailbox_settle(&box, TREADLE_OK));
  }
  treadle_mailbox_release(&box);
  treadle_group_close(group);
  free(bytes);
  return 0;
}

static void run(bool kills) {
  scene s = {store_place(), kills};
  int results[RANKS];
  ranks_as_processes(RANKS, 60, live, &s, results);
  for (int rank = 0; rank < RANKS; rank++)
    assert_int_equal(results[rank], kills && rank == VICTIM ? 128 + SIGKILL : 0);
}

static void test_round(void **state) {
  (void)state;
  run(false);
}

static void test_killed(void **state) {
  (void)state;
  run(true);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_round), cmocka_unit_test(test_killed)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
