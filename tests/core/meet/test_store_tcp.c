/* A store over TCP between processes: what it keeps, who does not come, who should not come, and what else knocks at the port meanwhile. */
#include "group/ranks.h"
#include "meet/store_place.h"
#include "test.h"
#include "treadle_tools.h"

#include "base/clock.h"
#include "base/random.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

static void nap(double seconds) {
  nanosleep(&(struct timespec){.tv_sec = (time_t)seconds,
                               .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)},
            NULL);
}

static treadle_status open_store(const char *address, int rank, int ranks, double seconds,
                                 treadle_store *store) {
  const treadle_store_options options = store_options(address, rank, ranks, seconds);
  *store = TREADLE_INIT(treadle_store);
  return treadle_store_open(&options, store);
}

static treadle_status set(const treadle_store *store, const char *key, const char *value) {
  return store->set(store->context, key, value, strlen(value));
}

static treadle_status get(const treadle_store *store, const char *key, double seconds, char value[100]) {
  size_t bytes;
  treadle_status status = store->get(store->context, key, seconds, value, 99, &bytes);
  value[status == TREADLE_OK && bytes < 100 ? bytes : 0] = 0;
  return status;
}

/* ---- What it keeps ---- */

enum { LARGE = 1 << 20 };

static int check_limits(treadle_store *store, int rank) {
  char key[253] = "", value[100], *large = malloc(LARGE + 1);
  size_t bytes = 0;
  RANK_TRUE(large);
  memset(key, 'k', 251);
  RANK_FAILS(TREADLE_REFUSED, "a key has 1 to 250 bytes; this one has 251", set(store, key, "x"));
  key[250] = 0;
  key[0] = (char)('0' + rank);
  RANK_OK(set(store, key, "longest"));
  RANK_OK(get(store, key, 1, value));
  RANK_TRUE(strcmp(value, "longest") == 0);
  memset(large, rank, LARGE + 1);
  RANK_FAILS(TREADLE_REFUSED, "a value has at most 1048576 bytes; this one has 1048577",
             store->set(store->context, key, large, LARGE + 1));
  RANK_OK(store->set(store->context, key, large, LARGE));
  memset(large, 77, LARGE);
  RANK_OK(store->get(store->context, key, 1, large, 10,
                     &bytes)); /* what there is room for, and how many there are */
  RANK_TRUE(bytes == LARGE && large[9] == rank && large[10] == 77);
  RANK_OK(store->get(store->context, key, 1, large, LARGE, &bytes));
  RANK_TRUE(bytes == LARGE && large[LARGE - 1] == rank);
  RANK_OK(store->set(store->context, key, "", 0));
  RANK_OK(store->get(store->context, key, 1, large, LARGE, &bytes));
  RANK_TRUE(bytes == 0);
  RANK_FAILS(TREADLE_REFUSED, "1 to 250 bytes; this one has 0", set(store, "", "x"));
  RANK_FAILS(TREADLE_REFUSED, "no key (NULL)", set(store, NULL, "x"));
  free(large);
  return 0;
}

static int share(const char *name, int rank, int size, void *context) {
  treadle_store store;
  char key[32], value[100], wanted[100];
  (void)name;
  if (rank == 0) nap(0.1);
  if (rank == 1) nap(0.2);
  RANK_OK(open_store(context, rank, size, 20, &store));
  RANK_TRUE(strcmp(store.job, "job") == 0);
  for (int round = 0; round < 50; round++) {
    int from = (rank + round) % size;
    snprintf(key, sizeof key, "%d of %d", round, rank);
    snprintf(value, sizeof value, "value %d of %d", round, rank);
    if (round % 10 == rank) nap(0.01); /* so that others wait for the key */
    RANK_OK(set(&store, key, value));
    snprintf(key, sizeof key, "%d of %d", round, from);
    snprintf(wanted, sizeof wanted, "value %d of %d", round, from);
    RANK_OK(get(&store, key, 10, value));
    RANK_TRUE(strcmp(value, wanted) == 0);
  }
  double begin = treadle_clock_seconds();
  RANK_FAILS(TREADLE_TIMEOUT, "nobody has set it in time", get(&store, "never", 0.1, value));
  RANK_TRUE(treadle_clock_seconds() - begin > 0.09 && treadle_clock_seconds() - begin < 5);
  if (check_limits(&store, rank) != 0) return 1;
  if (rank == size - 1) nap(0.2); /* rank 0 closes first, and still serves this one */
  if (rank == size - 1) RANK_OK(get(&store, "49 of 1", 1, value));
  treadle_store_close(&store);
  RANK_TRUE(!store.set && !store.context);
  treadle_store_close(&store);
  return 0;
}

static void all_good(const int *results, int size) {
  for (int rank = 0; rank < size; rank++) assert_int_equal(results[rank], 0);
}

static void test_share(void **state) {
  int results[4];
  (void)state;
  ranks_as_processes(2, 30, share, (void *)(uintptr_t)store_place(), results);
  all_good(results, 2);
  ranks_as_processes(4, 30, share, (void *)(uintptr_t)store_place(), results);
  all_good(results, 4);
}

/* One rank, alone: no memory, no room, and nothing of it is left. */
static treadle_status use_alone(void) {
  treadle_status status = TREADLE_OK;
  treadle_store store;
  char value[100];
  TRY(open_store(store_place(), 0, 1, 5, &store));
  status = set(&store, "a", "1");
  if (status == TREADLE_OK) status = set(&store, "a", "2");
  if (status == TREADLE_OK) status = get(&store, "a", 1, value);
  treadle_store_close(&store);
out:
  return status;
}

static void test_alone(void **state) {
  treadle_store store;
  char key[16], *value = calloc(1, LARGE);
  int files = test_open_files(), threads = store_threads();
  (void)state;
  assert_ok(use_alone());
  TEST_EACH_ALLOCATION(use_alone());
  assert_ok(open_store(store_place(), 0, 1, 5, &store));
  assert_int_equal(store_threads(), threads + 1);
  for (int i = 0; i < 254; i++) {
    snprintf(key, sizeof key, "%d", i);
    assert_ok(store.set(store.context, key, value, LARGE));
    assert_ok(store.set(store.context, "same", value, LARGE));
  }
  assert_refused("the store is full", store.set(store.context, "more", value, LARGE));
  assert_ok(store.set(store.context, "7", value, LARGE / 2)); /* in its place */
  assert_ok(store.set(store.context, "more", value, LARGE / 4));
  treadle_store_close(&store);
  assert_int_equal(test_open_files(), files);
  assert_int_equal(store_threads(), threads);
  free(value);
}

/* ---- Who does not come, and who should not ---- */

typedef struct meeting {
  const char *address;
  const char *said; /* what all ranks hear */
  treadle_status status;
  int missing;    /* this rank does not come; -1: all do */
  double seconds; /* of the rank that has least */
} meeting;

static int hear(const char *name, int rank, int size, void *context) {
  const meeting *m = context;
  treadle_store store;
  (void)name;
  if (rank == m->missing) return 0;
  double begin = treadle_clock_seconds();
  RANK_FAILS(m->status, m->said, open_store(m->address, rank, size, rank == 2 ? m->seconds : 20, &store));
  RANK_TRUE(!store.set && !store.context);
  RANK_TRUE(treadle_clock_seconds() - begin < m->seconds + 5);
  RANK_TRUE(store_threads() == 1);
  return 0;
}

static void test_missing(void **state) {
  int results[4];
  (void)state;
  meeting m = {store_place(), "rank 3 did not come in time", TREADLE_TIMEOUT, 3,
               0.5}; /* the hurry of rank 2 is that of all */
  ranks_as_processes(4, 10, hear, &m, results);
  all_good(results, 4);
  meeting nobody = {store_place(), "rank 0 does not listen there, or not in time", TREADLE_TIMEOUT, 0, 0.3};
  ranks_as_processes(1, 10, hear, &nobody, results);
  treadle_store store;
  double begin = treadle_clock_seconds();
  assert_fails(TREADLE_TIMEOUT, nobody.said, open_store(nobody.address, 1, 2, 0.3, &store));
  assert_fails(TREADLE_TIMEOUT, ": rank 1, 2 did not come in time",
               open_store(nobody.address, 0, 3, 0.3, &store));
  assert_true(treadle_clock_seconds() - begin < 5);
  assert_int_equal(store_threads(), 1);
}

/* Rank 0 and 1 of 3 meet; another process comes as what `stranger` says, and is refused; then rank 2 does not come, and rank 0 has seen it. */
typedef struct stranger {
  const char *address, *job;
  int rank, ranks;
  const char *hears, *seen;
} stranger;

static int refuse(const char *name, int rank, int size, void *context) {
  const stranger *s = context;
  treadle_store store;
  treadle_store_options options = store_options(s->address, s->rank, s->ranks, 10);
  (void)name, (void)size;
  options.job = s->job;
  store = TREADLE_INIT(treadle_store);
  if (rank == 2) {
    nap(0.3); /* rank 1 is there */
    double begin = treadle_clock_seconds();
    RANK_FAILS(TREADLE_REFUSED, s->hears, treadle_store_open(&options, &store));
    RANK_TRUE(treadle_clock_seconds() - begin < 5);
    return 0;
  }
  RANK_FAILS(TREADLE_TIMEOUT, s->seen, open_store(s->address, rank, 3, 1, &store));
  return 0;
}

static void test_refused(void **state) {
  static const stranger strangers[] = {
      {NULL, "job", 1, 3, "refused: this process wants to be rank 1, which another process is already",
       "rank 2 did not come in time; a process at 127."},
      {NULL, "job", 2, 4, "this process wants a store of 4 ranks; rank 0 has one of 3",
       "wants a store of 4 ranks; rank 0 has one of 3"},
      {NULL, "other", 2, 3, "refused: this process is of another job", "is of another job"}};
  int results[3];
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(strangers); i++) {
    stranger s = strangers[i];
    s.address = store_place();
    ranks_as_processes(3, 10, refuse, &s, results);
    all_good(results, 3);
  }
}

static int come_twice(const char *name, int rank, int size, void *context) {
  treadle_store store;
  (void)name, (void)size;
  if (rank == 0) {
    RANK_OK(open_store(context, 0, 1, 5, &store));
    nap(0.5);
    treadle_store_close(&store);
    return 0;
  }
  nap(0.2);
  RANK_FAILS(TREADLE_REFUSED, "the port is in use on this machine", open_store(context, 0, 2, 5, &store));
  RANK_FAILS(TREADLE_REFUSED, "rank 0 has one of 1", open_store(context, 1, 2, 5, &store));
  return 0;
}

static void test_addresses(void **state) {
  treadle_store store;
  int results[2];
  (void)state;
  ranks_as_processes(2, 10, come_twice, (void *)(uintptr_t)store_place(), results);
  all_good(results, 2);
  assert_refused("store 192.0.2.7:7000: this is not an address of this machine, and rank 0 listens there",
                 open_store("192.0.2.7:7000", 0, 2, 5, &store));
  assert_refused("the address '0.0.0.0:7000' is not one address of one machine",
                 open_store("0.0.0.0:7000", 0, 2, 5, &store));
  assert_refused("the address '127.0.0.1' has no port", open_store("127.0.0.1", 0, 2, 5, &store));
  assert_refused("[::1]:7000", open_store("::1:7000", 0, 2, 5, &store));
  assert_fails(TREADLE_SYSTEM, "the host of 'no such host:7000' is not known here",
               open_store("no such host:7000", 0, 2, 0.2, &store));
  assert_fails(TREADLE_SYSTEM, "the host of 'no such host:7000' is not known here",
               open_store("no such host:7000", 1, 2, 0.2, &store));
}

/* A rank that leaves before all are there. */
static int leave(const char *name, int rank, int size, void *context) {
  treadle_store store;
  (void)name;
  if (rank == 2) return 0;
  if (rank == 1) {
    int one = store_connect_when(context);
    const treadle_store_message hello = store_hello(one, 1, size);
    store_send(one, &hello, sizeof hello);
    nap(0.1);
    close(one);
    return 0;
  }
  RANK_FAILS(TREADLE_PEER, "rank 1 came, then left or died", open_store(context, rank, size, 10, &store));
  return 0;
}

static void test_leave(void **state) {
  int results[3];
  (void)state;
  ranks_as_processes(3, 5, leave, (void *)(uintptr_t)store_place(), results);
  all_good(results, 3);
}

/* What rank 1 says on one connection is said again on another one, and takes nobody's place: rank 1 comes then. */
static int say_again(const char *name, int rank, int size, void *context) {
  treadle_store store;
  char said[1000] = "";
  (void)name;
  if (rank == 1) {
    int first = store_connect_when(context), one = store_connect_when(context);
    const treadle_store_message hello = store_hello(first, rank, size);
    store_send(one, &hello, sizeof hello);
    RANK_TRUE(store_receive(one, said, sizeof said - 1) > 2 * sizeof hello); /* a challenge, a refusal */
    RANK_TRUE(strstr(said + 2 * sizeof hello, "refused: this process is of another job"));
    close(one);
    close(first);
  }
  RANK_OK(open_store(context, rank, size, 10, &store));
  treadle_store_close(&store);
  return 0;
}

static void test_replay(void **state) {
  int results[2];
  (void)state;
  ranks_as_processes(2, 10, say_again, (void *)(uintptr_t)store_place(), results);
  all_good(results, 2);
}

/* A rank that came and says nothing more: the store's limit is that of the group, too. */
static int come_and_wait(const char *name, int rank, int size, void *context) {
  treadle_store store;
  treadle_group *group;
  (void)name;
  if (rank == 1) {
    int one = store_connect_when(context);
    const treadle_store_message hello = store_hello(one, rank, size);
    store_send(one, &hello, sizeof hello);
    RANK_TRUE(store_is_closed(one));
    close(one);
    return 0;
  }
  RANK_OK(open_store(context, rank, size, 2, &store));
  RANK_FAILS(TREADLE_TIMEOUT, "rank 1 did not come in time",
             treadle_group_nodes(&store, rank, size, size, 600, &group));
  treadle_store_close(&store);
  return 0;
}

static void test_one_limit(void **state) {
  int results[2];
  (void)state;
  ranks_as_processes(2, 60, come_and_wait, (void *)(uintptr_t)store_place(), results);
  all_good(results, 2);
}

/* ---- Strangers ---- */

enum { KINDS = 10 };

/* What knocks, besides. */
static int knock(const char *address, int kind, treadle_random *random) {
  unsigned char bytes[4096];
  int one = store_connect(address);
  if (one < 0) return -1;
  treadle_store_message hello = store_hello(one, 1, 3);
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)treadle_random_next(random);
  switch (kind) {
  case 0: break;                                            /* nothing */
  case 1: store_send(one, bytes, sizeof bytes); break;      /* anything */
  case 2: store_send(one, &hello, sizeof hello / 2); break; /* half a message */
  case 3: store_send(one, &hello, 4); break;                /* the magic */
  case 4: hello.key_bytes = UINT32_MAX; break;
  case 5: hello.seconds = -1; break;
  default: hello.rank = INT32_MIN;
  }
  if (kind >= 4) {
    store_seal(&hello, NULL, 0);
    if (kind == 7) hello.frame.bytes = UINT64_C(1) << 63;
    if (kind == 8) hello.frame.bytes = UINT64_MAX;
    if (kind == 9) hello.frame.version = 99;
    store_send(one, &hello, sizeof hello);
    store_send(one, bytes, sizeof bytes);
  }
  return one;
}

/* Ranks 0 to 2, and one process that is none of them. */
static int among_strangers(const char *name, int rank, int size, void *context) {
  treadle_store store;
  treadle_random random = {7};
  char value[100];
  int sockets[300], count = 0;
  (void)name, (void)size;
  if (rank < 3) {
    if (rank == 2) nap(1.5); /* so that they are at it */
    double begin = treadle_clock_seconds();
    RANK_OK(open_store(context, rank, 3, 10, &store));
    RANK_TRUE(rank < 2 || treadle_clock_seconds() - begin < 5);
    snprintf(value, sizeof value, "%d", rank);
    RANK_OK(set(&store, value, "there"));
    for (int peer = 0; peer < 3; peer++) {
      snprintf(value, sizeof value, "%d", peer);
      RANK_OK(get(&store, value, 5, value));
    }
    if (rank == 2) RANK_OK(get(&store, "0", 5, value));
    treadle_store_close(&store);
    return 0;
  }
  sockets[count++] = store_connect_when(context);
  for (double end = treadle_clock_seconds() + 2.5; count < 300 && treadle_clock_seconds() < end;) {
    sockets[count] = knock(context, count % KINDS, &random);
    if (sockets[count] < 0) break;
    count++;
    nap(0.008);
  }
  RANK_TRUE(count > KINDS); /* each kind came */
  for (int i = 0; i < count; i++) {
    RANK_TRUE(store_is_closed(sockets[i]));
    close(sockets[i]);
  }
  return 0;
}

static void test_strangers(void **state) {
  int results[4];
  (void)state;
  ranks_as_processes(4, 20, among_strangers, (void *)(uintptr_t)store_place(), results);
  all_good(results, 4);
}

/* One that speaks another version reads why it is refused, though it has sent more than was read; rank 0 says it, too. */
/* Rank 0 may open few files: it says so. */
static int few_files(const char *name, int rank, int size, void *context) {
  treadle_store store;
  (void)name;
  if (rank == 0) {
    const struct rlimit few = {(rlim_t)test_open_files() + 4, (rlim_t)test_open_files() + 4};
    RANK_TRUE(setrlimit(RLIMIT_NOFILE, &few) == 0);
  }
  RANK_FAILS(TREADLE_TIMEOUT,
             rank ? "in time" : "did not come in time; somebody was not taken in: Too many open files",
             open_store(context, rank, size, 1, &store));
  return 0;
}

static void test_few_files(void **state) {
  int results[10];
  (void)state;
  ranks_as_processes(10, 10, few_files, (void *)(uintptr_t)store_place(), results);
  all_good(results, 10);
}

static int other_version(const char *name, int rank, int size, void *context) {
  treadle_store store;
  struct {
    treadle_store_message head;
    char more[100000];
  } *long_one = calloc(1, sizeof *long_one);
  char said[2000] = "";
  (void)name;
  RANK_TRUE(long_one);
  if (rank == 0) {
    free(long_one);
    RANK_FAILS(
        TREADLE_TIMEOUT,
        "rank 1 did not come in time; a process at 127.0.0.1 speaks version 4 of treadle's messages, not 3",
        open_store(context, 0, size, 3, &store));
    return 0;
  }
  int one = store_connect_when(context);
  long_one->head = store_hello(one, 1, size);
  long_one->head.frame.version = 4;
  store_send(one, long_one, sizeof *long_one);
  free(long_one);
  size_t got = store_receive(one, said, sizeof said - 1);
  RANK_TRUE(got > sizeof(treadle_store_message));
  RANK_TRUE(strstr(said + sizeof(treadle_store_message),
                   "refused: this process speaks version 4 of treadle's messages, not 3"));
  close(one);
  return 0;
}

static void test_version(void **state) {
  int results[2];
  (void)state;
  ranks_as_processes(2, 10, other_version, (void *)(uintptr_t)store_place(), results);
  all_good(results, 2);
}

/* Rank 1 asks for much and reads nothing; then it sends half a message; rank 2 sends a wrong sum. The others go on. */
static int misbehave(const char *name, int rank, int size, void *context) {
  treadle_store store;
  char value[100], *large = calloc(1, LARGE);
  (void)name;
  RANK_TRUE(large);
  if (rank == 0 || rank == 3) {
    RANK_OK(open_store(context, rank, size, 10, &store));
    if (rank == 0) RANK_OK(store.set(store.context, "large", large, LARGE));
    RANK_OK(get(&store, "large", 5, value));
    nap(0.3);
    double begin = treadle_clock_seconds();
    for (int i = 0; i < 200; i++) RANK_OK(set(&store, "key", "value"));
    for (int i = 0; i < 200; i++) RANK_OK(get(&store, "key", 1, value));
    RANK_TRUE(treadle_clock_seconds() - begin < 5);
    if (rank == 3) RANK_OK(set(&store, "done", "done"));
    RANK_OK(get(&store, "done", 5, value));
    treadle_store_close(&store);
    free(large);
    return 0;
  }
  int one = store_connect_when(context);
  const treadle_store_message hello = store_hello(one, rank, size);
  treadle_store_message head = {
      .frame = {.type = TREADLE_STORE_GET, .key = hello.frame.key}, .key_bytes = 5, .seconds = 5};
  store_send(one, &hello, sizeof hello);
  RANK_TRUE(store_receive(one, value, sizeof head) == sizeof head); /* welcome */
  store_seal(&head, "large", 5);
  if (rank == 2) head.frame.sum++;
  for (int i = 0; i < (rank == 1 ? 100 : 1); i++) {
    store_send(one, &head, sizeof head);
    store_send(one, "large", 5);
  }
  if (rank == 1) store_send(one, &head, sizeof head / 2);
  if (rank == 1) nap(1.5);
  RANK_TRUE(rank == 1 || store_is_closed(one));
  close(one);
  free(large);
  return 0;
}

static void test_misbehave(void **state) {
  int results[4];
  (void)state;
  ranks_as_processes(4, 10, misbehave, (void *)(uintptr_t)store_place(), results);
  all_good(results, 4);
}

/* ---- Watchers, children, ends ---- */

static bool until(void *context, const char *doing, int64_t done, int64_t total) {
  (void)done, (void)total;
  return *doing && treadle_clock_seconds() < *(double *)context;
}

/* A wait that is cancelled; the store goes on, and an answer that comes late is nobody's. */
static int give_up(const char *name, int rank, int size, void *context) {
  treadle_store store;
  char value[100];
  double end;
  (void)name;
  RANK_OK(open_store(context, rank, size, 10, &store));
  for (int round = 0; round < 3; round++) {
    snprintf(value, sizeof value, "%d of %d", round, rank);
    double begin = treadle_clock_seconds();
    end = begin + 0.1;
    treadle_thread_watch(until, &end);
    RANK_FAILS(TREADLE_CANCELLED, "cancelled: a key of the store", get(&store, value, 5, value));
    RANK_TRUE(treadle_clock_seconds() - begin < 4);
    treadle_thread_watch(NULL, NULL);
    snprintf(value, sizeof value, "%d of %d", round, rank);
    RANK_OK(set(&store, value, value)); /* which it has asked for */
    snprintf(value, sizeof value, "%d of %d", round, 1 - rank);
    RANK_OK(get(&store, value, 5, value));
    RANK_TRUE(value[0] == '0' + round && value[5] == '0' + 1 - rank);
  }
  treadle_store_close(&store);
  return 0;
}

static void test_watch(void **state) {
  int results[2];
  (void)state;
  ranks_as_processes(2, 10, give_up, (void *)(uintptr_t)store_place(), results);
  all_good(results, 2);
  for (int rank = 0; rank < 2; rank++) {
    treadle_store store;
    double begin = treadle_clock_seconds(), end = begin + 0.1;
    treadle_thread_watch(until, &end);
    assert_fails(TREADLE_CANCELLED, "cancelled: ", open_store(store_place(), rank, 2, 10, &store));
    assert_true(treadle_clock_seconds() - begin < 5);
    treadle_thread_watch(NULL, NULL);
  }
  assert_int_equal(store_threads(), 1);
}

static int fork_one(const char *name, int rank, int size, void *context) {
  treadle_store store;
  char value[100];
  int how;
  (void)name;
  RANK_OK(open_store(context, rank, size, 10, &store));
  pid_t child = fork();
  if (child == 0) {
    int bad = ranks_said(TREADLE_STATE, set(&store, "a", "b"), "of which this one is a child", "set",
                         __FILE__, __LINE__);
    treadle_store_close(&store); /* neither waits nor hurts */
    _exit(bad);
  }
  RANK_TRUE(waitpid(child, &how, 0) == child && how == 0);
  child = fork(); /* one that lives on, and has all descriptors */
  if (child == 0) {
    nap(20);
    _exit(0);
  }
  snprintf(value, sizeof value, "%d", rank);
  RANK_OK(set(&store, value, value));
  for (int peer = 0; peer < size; peer++) {
    snprintf(value, sizeof value, "%d", peer);
    RANK_OK(get(&store, value, 5, value));
  }
  double begin = treadle_clock_seconds();
  treadle_store_close(&store); /* if it waited for the child, then for its limit, 10 */
  RANK_TRUE(treadle_clock_seconds() - begin < 5);
  RANK_TRUE(store_threads() == 1);
  kill(child, SIGKILL);
  waitpid(child, &how, 0);
  return 0;
}

static void test_fork(void **state) {
  int results[3];
  (void)state;
  ranks_as_processes(3, 10, fork_one, (void *)(uintptr_t)store_place(), results);
  all_good(results, 3);
}

/* Rank 0 dies; rank 1 stands still, and rank 0 closes. */
static int end_badly(const char *name, int rank, int size, void *context) {
  treadle_store store;
  char value[100];
  (void)name;
  RANK_OK(open_store(context, rank, size, 2, &store));
  if (rank == 0) {
    RANK_OK(get(&store, "there", 5, value));
    kill(getpid(), SIGKILL);
  }
  RANK_OK(set(&store, "there", "x"));
  double begin = treadle_clock_seconds();
  RANK_FAILS(TREADLE_PEER, "rank 0 has left or died", get(&store, "never", 5, value));
  RANK_TRUE(treadle_clock_seconds() - begin < 4);
  RANK_FAILS(TREADLE_PEER, "rank 0 has left or died", set(&store, "never", value));
  treadle_store_close(&store);
  return 0;
}

static int stand_still(const char *name, int rank, int size, void *context) {
  treadle_store store;
  (void)name;
  RANK_OK(open_store(context, rank, size, 1.5, &store));
  if (rank == 1) kill(getpid(), SIGSTOP);
  double begin = treadle_clock_seconds();
  if (rank == 2) nap(0.5);
  treadle_store_close(&store);
  RANK_TRUE(treadle_clock_seconds() - begin < 5);
  return 0;
}

static void test_ends(void **state) {
  int results[3], how;
  const char *address = store_place();
  (void)state;
  ranks_as_processes(2, 10, end_badly, (void *)(uintptr_t)store_place(), results);
  assert_int_equal(results[0], 128 + SIGKILL);
  assert_int_equal(results[1], 0);
  pid_t still = fork();
  if (still == 0) _exit(stand_still("", 1, 3, (void *)(uintptr_t)address));
  pid_t other = fork();
  if (other == 0) _exit(stand_still("", 2, 3, (void *)(uintptr_t)address));
  assert_int_equal(stand_still("", 0, 3, (void *)(uintptr_t)address), 0);
  assert_int_equal(waitpid(other, &how, 0), other);
  assert_int_equal(how, 0);
  kill(still, SIGKILL);
  assert_int_equal(waitpid(still, &how, 0), still);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_share),     cmocka_unit_test(test_alone),     cmocka_unit_test(test_missing),
      cmocka_unit_test(test_refused),   cmocka_unit_test(test_addresses), cmocka_unit_test(test_leave),
      cmocka_unit_test(test_replay),    cmocka_unit_test(test_one_limit), cmocka_unit_test(test_strangers),
      cmocka_unit_test(test_few_files), cmocka_unit_test(test_version),   cmocka_unit_test(test_misbehave),
      cmocka_unit_test(test_watch),     cmocka_unit_test(test_fork),      cmocka_unit_test(test_ends)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
