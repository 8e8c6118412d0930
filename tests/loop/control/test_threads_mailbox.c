/* Messages between ranks of two and three nodes: of any length, both ways, in order; a rank that dies, leaves, fails or
 * is silent ends what waits for it; whichever allocation fails, all fail and the next use is good; and a call has as many
 * barriers with much as with little.
 * ctest: label=threads */
#include "group/ranks.h"
#include "test.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "control/worker_group.h"

#include <time.h>

enum { RANKS = 4, ATTEMPTS = 400, MUCH = 20000000 };

static int on_three_nodes(int rank) { return rank % 3; }

static void run_within(double seconds, uint64_t delays, ranks_body body, void *context) {
  int (*const maps[])(int) = {ranks_on_two_nodes, on_three_nodes};
  for (size_t i = 0; i < TEST_COUNT(maps); i++) {
    ranks_nodes = maps[i];
    ranks_as_threads(RANKS, seconds, delays, body, context);
  }
  ranks_nodes = NULL;
}

static void run(ranks_body body, void *context) { run_within(30, 0, body, context); }

/* ---- Bytes that say whose they are ---- */

static char byte_of(int from, int to, size_t at) {
  return (char)(at * 7 % 251 + (size_t)from * 16 + (size_t)to);
}

static char *pattern(int from, int to, size_t length) {
  char *bytes = malloc(length + 1);
  for (size_t i = 0; i < length; i++) bytes[i] = byte_of(from, to, i);
  return bytes;
}

static bool is_pattern(const char *bytes, int from, int to, size_t length) {
  for (size_t i = 0; i < length; i++)
    if (bytes[i] != byte_of(from, to, i)) return false;
  return true;
}

/* ---- Two ranks at a time ---- */

static treadle_status send_pattern(treadle_mailbox *box, int to, size_t length) {
  char *bytes = pattern(box->group->rank, to, length);
  const treadle_status status = treadle_mailbox_send(box, to, bytes, length);
  if (status) (void)treadle_mailbox_settle(box, status);
  free(bytes);
  return status;
}

static treadle_status receive_pattern(treadle_mailbox *box, int from, size_t length) {
  char *bytes = malloc(length + 1);
  treadle_status status = treadle_mailbox_receive(box, from, bytes, length);
  if (status)
    (void)treadle_mailbox_settle(box, status);
  else if (!is_pattern(bytes, from, box->group->rank, length))
    status = treadle_fail(TREADLE_DIFFERENT, "%zu bytes of rank %d", length, from);
  free(bytes);
  return status;
}

/* Each pair, there and back; other ranks have nothing to do. */
static int exchange(treadle_mailbox *box, size_t length) {
  const int self = box->group->rank;
  for (int a = 0; a < RANKS; a++)
    for (int b = 0; b < RANKS; b++) {
      if (a == b) continue;
      if (self == a) RANK_OK(send_pattern(box, b, length));
      if (self == b) RANK_OK(receive_pattern(box, a, length));
    }
  return 0;
}

static int exchange_all(treadle_group *group, void *context) {
  static const size_t lengths[] = {0, 1, 7, 4096, 4097, 100000, 4 << 20, (4 << 20) + 1};
  treadle_mailbox box = {0};
  (void)context;
  for (int use = 0; use < 2; use++) {
    RANK_OK(treadle_mailbox_open(&box, group));
    for (size_t i = 0; i < TEST_COUNT(lengths); i++)
      if (exchange(&box, lengths[i])) return 1;
    RANK_OK(treadle_mailbox_settle(&box, TREADLE_OK));
  }
  treadle_mailbox_release(&box);
  RANK_OK(treadle_group_barrier(group));
  return 0;
}

static void test_pairs(void **state) {
  (void)state;
  run(exchange_all, NULL);
  run_within(30, 3, exchange_all, NULL);
}

/* Large ones between nodes, both ways; many small ones, in order, of which the receiver takes none until all were sent. */
static int exchange_much(treadle_group *group, void *context) {
  treadle_mailbox box = {0};
  int numbers[1000];
  (void)context;
  RANK_OK(treadle_mailbox_open(&box, group));
  if (group->rank == 0) {
    RANK_OK(send_pattern(&box, 1, MUCH));
    RANK_OK(receive_pattern(&box, 1, MUCH));
    for (int i = 0; i < 1000; i++) {
      numbers[i] = i;
      RANK_OK(treadle_mailbox_send(&box, 1, &numbers[i], sizeof numbers[i]));
    }
    RANK_OK(send_pattern(&box, 2, 1));
  } else if (group->rank == 1) {
    RANK_OK(receive_pattern(&box, 0, MUCH));
    RANK_OK(send_pattern(&box, 0, MUCH));
    RANK_OK(receive_pattern(&box, 2, 1));
    for (int i = 0; i < 1000; i++) {
      RANK_OK(treadle_mailbox_receive(&box, 0, &numbers[i], sizeof numbers[i]));
      RANK_TRUE(numbers[i] == i);
    }
  } else if (group->rank == 2) {
    RANK_OK(receive_pattern(&box, 0, 1));
    RANK_OK(send_pattern(&box, 1, 1));
  }
  RANK_OK(treadle_mailbox_settle(&box, TREADLE_OK));
  treadle_mailbox_release(&box);
  RANK_OK(treadle_group_barrier(group));
  return 0;
}

static void test_much(void **state) {
  (void)state;
  run(exchange_much, NULL);
}

/* ---- Failures ---- */

typedef enum way { FAILS, LEAVES, IS_SILENT } way;

static void pause_for(double seconds) {
  const time_t whole = (time_t)seconds;
  nanosleep(&(struct timespec){whole, (long)((seconds - (double)whole) * 1e9)}, NULL);
}

/* Rank 1 sends a part of what rank 0 and 3 wait for, and is gone. */
static int vanish(treadle_group *group, void *context) {
  static const char *const words[] = {"rank 1 failed: weary", "rank 1 has left", "for rank 1"};
  const way how = *(const way *)context;
  treadle_mailbox box = {0};
  RANK_OK(treadle_mailbox_open(&box, group));
  const double begin = treadle_clock_seconds();
  if (group->rank == 1) {
    RANK_OK(send_pattern(&box, 0, 100));
    if (how == FAILS) {
      treadle_fail(TREADLE_SYSTEM, "weary");
      treadle_group_fail(group);
    } else if (how == LEAVES) {
      atomic_store(&treadle_group_line(group)->left, TREADLE_LEFT_CLOSED); /* as treadle_group_close does */
      treadle_group_ring_all(group);
    } else {
      pause_for(2);
    }
    treadle_mailbox_release(&box);
    return 0;
  }
  treadle_status status = TREADLE_OK;
  char *bytes = malloc(MUCH);
  if (group->rank == 0) RANK_OK(receive_pattern(&box, 1, 100));
  if (group->rank != 2) {
    status = treadle_mailbox_receive(&box, 1, bytes, MUCH);
    RANK_TRUE(status == TREADLE_PEER && strstr(treadle_error_message(), "rank 1"));
    if (group->rank == 0) RANK_TRUE(how == IS_SILENT || strstr(treadle_error_message(), words[how]));
  }
  status = treadle_mailbox_settle(&box, status);
  RANK_TRUE(status == TREADLE_PEER || (how == IS_SILENT && status == TREADLE_TIMEOUT));
  free(bytes);
  status = treadle_mailbox_open(&box, group); /* and so on, at once */
  RANK_TRUE(status == TREADLE_PEER);
  RANK_TRUE(treadle_mailbox_settle(&box, status) == TREADLE_PEER);
  RANK_TRUE(treadle_clock_seconds() - begin < 10);
  treadle_mailbox_release(&box);
  return 0;
}

static void test_a_rank_is_gone(void **state) {
  (void)state;
  run(vanish, &(way){FAILS});
  run(vanish, &(way){LEAVES});
  run_within(0.7, 0, vanish, &(way){IS_SILENT});
}

/* A rank that fails alone says so: who waits for it does not wait for the time limit, and the group goes on. */
static int give_up(treadle_group *group, void *context) {
  treadle_mailbox box = {0};
  char *bytes = calloc(1, MUCH);
  (void)context;
  for (int which = 0; which < RANKS; which++) {
    treadle_status status = TREADLE_OK;
    const double begin = treadle_clock_seconds();
    RANK_OK(treadle_mailbox_open(&box, group));
    if (group->rank == which)
      status = treadle_fail(TREADLE_SYSTEM, "not today");
    else
      status = which == 0 ? treadle_mailbox_receive(&box, which, bytes, MUCH)
                          : treadle_mailbox_send(&box, which, bytes, MUCH);
    RANK_TRUE(status == TREADLE_SYSTEM);
    RANK_TRUE(treadle_mailbox_settle(&box, status) == TREADLE_SYSTEM);
    RANK_TRUE(treadle_clock_seconds() - begin < 10);
    RANK_OK(treadle_mailbox_open(&box, group));
    if (exchange(&box, 5000)) return 1;
    RANK_OK(treadle_mailbox_settle(&box, TREADLE_OK));
    RANK_OK(treadle_group_barrier(group));
  }
  treadle_mailbox_release(&box);
  RANK_OK(treadle_group_barrier(group));
  free(bytes);
  return 0;
}

static void test_one_gives_up(void **state) {
  (void)state;
  run(give_up, NULL);
}

/* Allocation `nth` of all ranks fails. What a net or a courier lacks it may get by without. */
static int starve(treadle_group *group, long nth, bool *failed_p) {
  treadle_mailbox box = {0};
  char bytes[RANKS][5000] = {0};
  RANK_OK(treadle_group_barrier(group));
  const long before = treadle_alloc_count();
  RANK_OK(treadle_group_barrier(group));
  if (group->rank == 0) treadle_alloc_fail_at(nth);
  RANK_OK(treadle_group_barrier(group));
  treadle_status status = treadle_mailbox_open(&box, group);
  if (!status && group->rank == 0) status = treadle_mailbox_send_all(&box, bytes[0], sizeof bytes[0]);
  if (!status && group->rank > 0) status = treadle_mailbox_receive(&box, 0, bytes[0], sizeof bytes[0]);
  status = treadle_mailbox_settle(&box, status);
  RANK_OK(treadle_group_barrier(group));
  *failed_p = treadle_alloc_count() - before >= nth;
  RANK_OK(treadle_group_barrier(group));
  if (group->rank == 0) treadle_alloc_fail_at(0);
  RANK_OK(treadle_group_barrier(group));
  RANK_TRUE(status == TREADLE_OK || (*failed_p && (status == TREADLE_NO_MEMORY || status == TREADLE_PEER)));
  RANK_OK(treadle_mailbox_open(&box, group));
  if (exchange(&box, 100)) return 1;
  RANK_OK(treadle_mailbox_settle(&box, TREADLE_OK));
  treadle_mailbox_release(&box);
  return 0;
}

static int starve_each(treadle_group *group, void *context) {
  bool failed = true;
  (void)context;
  for (long nth = 1; failed; nth++) {
    RANK_TRUE(nth < ATTEMPTS);
    if (starve(group, nth, &failed)) return 1;
  }
  return 0;
}

static void test_no_memory(void **state) {
  (void)state;
  run(starve_each, NULL);
}

/* ---- Barriers of a call ---- */

/* Answers as many bytes as it is told, of which rank 0 has `filling` more than is needed. */
static treadle_status answer(void *context, treadle_message *in, treadle_message *out) {
  int64_t length;
  treadle_status status;
  (void)context;
  TRY(treadle_message_int(in, "length", &length));
  char *to = treadle_message_grow(out, (size_t)length);
  if (to) memset(to, 1, (size_t)length);
out:
  return status;
}

static const treadle_worker_method methods[] = {{"answer", answer, true}, {NULL, NULL, false}};

/* Barriers of a call with as many bytes, and as many in each answer. */
static int count_barriers(treadle_worker_group *workers, size_t bytes, uint64_t *count_p) {
  treadle_message in = {0}, out = {0};
  const uint64_t before = workers->group->barriers;
  treadle_message_put_int(&in, (int64_t)bytes);
  char *to = treadle_message_grow(&in, bytes);
  memset(to, 2, bytes);
  RANK_OK(treadle_worker_group_call(workers, "answer", &in, &out));
  *count_p = workers->group->barriers - before;
  for (int rank = 0; rank < RANKS; rank++) {
    const treadle_message its = treadle_worker_group_answer(workers, rank, &out);
    RANK_TRUE(its.length == (bytes + 7) / 8 * 8 && its.given[0] == 1 && its.given[bytes - 1] == 1);
  }
  treadle_message_release(&in);
  treadle_message_release(&out);
  return 0;
}

static int call(treadle_group *group, void *context) {
  treadle_worker_group workers = {.group = group, .methods = methods};
  uint64_t little = 0, some = 0, much = 0;
  (void)context;
  if (group->rank > 0) {
    RANK_OK(treadle_worker_group_serve(&workers));
  } else {
    if (count_barriers(&workers, 5000, &some)) return 1; /* it opens the net */
    for (int i = 0; i < 3; i++) {
      if (count_barriers(&workers, 1000, &little) || count_barriers(&workers, 5000, &some) ||
          count_barriers(&workers, 10000000, &much))
        return 1;
      RANK_TRUE(little == some && some == much);
    }
    RANK_OK(treadle_worker_group_end(&workers, TREADLE_OK));
  }
  treadle_worker_group_release(&workers);
  return 0;
}

static void test_barriers(void **state) {
  (void)state;
  run(call, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_pairs),          cmocka_unit_test(test_much),
      cmocka_unit_test(test_a_rank_is_gone), cmocka_unit_test(test_one_gives_up),
      cmocka_unit_test(test_no_memory),      cmocka_unit_test(test_barriers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
