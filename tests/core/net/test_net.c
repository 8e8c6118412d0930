/* The nets "tcp" and "ucx": processes on this machine, over TCP on the loopback.  ctest: stage=gcc timeout=900 */
#include "base/clock.h"
#include "base/random.h"
#include "net/nets.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

static const char *const loopback = "127.0.0.1", *net_name = "tcp";

#if defined(__SANITIZE_ADDRESS__)
#define WITH_LEAKS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_LEAKS 1
#endif
#endif

#ifdef WITH_LEAKS
int __lsan_do_recoverable_leak_check(void);
static int leaks(void) { return __lsan_do_recoverable_leak_check(); }
#else
static int leaks(void) { return 0; }
#endif

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
  RANK_OK(treadle_group_open(name, rank, size, NETS_PATIENCE, &group));
  RANK_OK(nets_open(group, net_name, loopback, NULL, &n));
  int result = j->body(&n, j->context);
  nets_close(&n);
  treadle_group_close(group);
  return result || leaks();
}

static void run_ranks(int size, net_body body, void *context) {
  int results[8];
  job j = {body, context};
  ranks_as_processes(size, 2 * NETS_PATIENCE, run_rank, &j, results);
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
  RANK_OK(nets_meet(n));
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
  RANK_OK(nets_meet(n));
  return 0;
}

static void test_storm(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 3; seed++) {
    printf("seed %llu\n", (unsigned long long)seed);
    run_ranks(seed % 2 ? 2 : 3, storm, &seed);
  }
}

/* ---- Other lengths ---- */

typedef struct lengths {
  size_t sent, wanted;
} lengths;

static int other_length(nets_rank *n, void *context) {
  const lengths *l = context;
  unsigned char *memory = calloc(1, l->sent > l->wanted ? l->sent : l->wanted);
  RANK_TRUE(memory);
  if (n->rank == 0) {
    (void)nets_send(n, 1, 9, memory, l->sent); /* well or not: the other one says it */
  } else {
    char said[60];
    snprintf(said, sizeof said, l->sent > l->wanted ? "%zu" : "has %zu bytes",
             l->sent > l->wanted ? l->wanted : l->sent);
    unsigned char *small = malloc(l->wanted + 1); /* what is written outside of it, a sanitizer sees */
    RANK_TRUE(small);
    RANK_FAILS(TREADLE_PEER, said, nets_receive(n, 0, 9, small, l->wanted));
    free(small);
  }
  free(memory);
  RANK_OK(nets_meet(n));
  return 0;
}

static void test_other_lengths(void **state) {
  (void)state;
  static const lengths all[] = {{10, 11},        {11, 10},       {0, 5},        {5, 0},
                                {7000, 6999},    {6999, 7000},   {9000, 8999},  {100000, 99999},
                                {99999, 100000}, {3000000, 100}, {100, 3000000}};
  for (size_t i = 0; i < TEST_COUNT(all); i++) run_ranks(2, other_length, (void *)(uintptr_t)&all[i]);
}

/* ---- Dead peers ---- */

enum { DYING = 2, HALF = 24, LARGE = 12 << 20 };

typedef struct pending {
  void *request;
  unsigned char *memory;
} pending;

/* All sizes, to and from the rank that dies. */
static const size_t dying_sizes[] = {0, 100, 6000, 30000, 300000, LARGE};

/* Rank 2 has begun everything, has received half of it, and is gone. */
static int die(nets_rank *n, uint64_t seed) {
  treadle_random random = {seed};
  unsigned char *memory = calloc(1, LARGE);
  RANK_TRUE(memory);
  for (int peer = 0; peer < 2; peer++)
    for (uint64_t i = 0; i < HALF; i++) {
      treadle_net_part part = {memory, dying_sizes[i % TEST_COUNT(dying_sizes)]};
      void *request;
      if (i % 3) RANK_OK(n->ops->send(n->net, peer, i, &part, 1, &request));
      if (i % 3 == 0) RANK_OK(n->ops->receive(n->net, peer, 100 + i, &part, 1, &request));
    }
  int steps = (int)treadle_random_below(&random, 200);
  for (int i = 0; i < steps; i++) n->ops->wait(n->net, 1e-4);
  kill(getpid(), SIGKILL);
  return 1;
}

/* Each ends, well or with rank 2 in the message, after that rank is gone. */
static int survive(nets_rank *n) {
  pending all[3 * HALF];
  int count = 0, lost = 0;
  for (uint64_t i = 0; i < HALF; i++) {
    size_t bytes = dying_sizes[i % TEST_COUNT(dying_sizes)];
    const uint64_t tags[] = {i, 100 + i,
                             1000 + i}; /* sent or not, received or not, and one of which nobody knows */
    for (int kind = 0; kind < 3; kind++) {
      pending *p = &all[count++];
      p->memory = calloc(1, bytes + 1);
      RANK_TRUE(p->memory);
      treadle_net_part part = {p->memory, bytes};
      treadle_status got =
          (kind == 1 ? n->ops->send : n->ops->receive)(n->net, DYING, tags[kind], &part, 1, &p->request);
      if (got == TREADLE_PEER)
        p->request = NULL, lost++; /* gone already */
      else
        RANK_OK(got);
    }
  }
  double end = treadle_clock_seconds() + NETS_PATIENCE;
  int left = 0;
  for (int i = 0; i < count; i++) left += all[i].request != NULL;
  while (left > 0) {
    RANK_TRUE(treadle_clock_seconds() < end);
    for (int i = 0; i < count; i++) {
      bool done = false;
      if (!all[i].request) continue;
      treadle_status got = n->ops->test(n->net, all[i].request, &done);
      if (got == TREADLE_OK && !done) continue;
      if (got != TREADLE_OK) RANK_FAILS(TREADLE_PEER, "rank 2 cannot be reached", got);
      lost += got != TREADLE_OK;
      all[i].request = NULL;
      left--;
    }
    n->ops->wait(n->net, 0.01);
  }
  for (int i = 0; i < count; i++) free(all[i].memory);
  RANK_TRUE(lost >= HALF); /* those that rank 2 knew nothing of */
  return 0;
}

typedef struct dying {
  uint64_t seed;
  struct {
    _Atomic int greeted, done; /* this many ranks */
  } * shared;                  /* by all */
} dying;

/* Says it, and moves on until this many have. */
static int go_on_until(nets_rank *n, _Atomic int *said, int count) {
  ++*said;
  for (double end = treadle_clock_seconds() + NETS_PATIENCE; *said < count; n->ops->wait(n->net, 0.01))
    RANK_TRUE(treadle_clock_seconds() < end);
  return 0;
}

/* All have connections with all. */
static int greet(nets_rank *n, _Atomic int *greeted) {
  char word[8] = "ready";
  for (int peer = 0; peer < n->ranks; peer++)
    if (peer != n->rank) RANK_OK(nets_send(n, peer, 5555, word, sizeof word));
  for (int peer = 0; peer < n->ranks; peer++)
    if (peer != n->rank) RANK_OK(nets_receive(n, peer, 5555, word, sizeof word));
  return go_on_until(n, greeted, n->ranks);
}

static int one_dies(nets_rank *n, void *context) {
  const dying *d = context;
  char word[8] = "ready";
  if (d->seed % 2 && greet(n, &d->shared->greeted)) return 1; /* else it dies while it connects */
  if (n->rank == DYING) return die(n, d->seed);
  if (survive(n)) return 1;
  treadle_net_part part = {word, sizeof word};
  void *request;
  RANK_FAILS(TREADLE_PEER, "rank 2 cannot be reached",
             n->ops->send(n->net, DYING, 7777, &part, 1, &request));
  RANK_FAILS(TREADLE_PEER, "rank 2 cannot be reached",
             n->ops->receive(n->net, DYING, 7777, &part, 1, &request));
  /* The others go on. */
  int other = 1 - n->rank;
  RANK_OK(n->rank ? nets_receive(n, other, 1, word, sizeof word)
                  : nets_send(n, other, 1, word, sizeof word));
  nets_rank two = *n;
  two.ranks = 2;
  if (nets_storm(&two, d->seed, 2, 10, 2 << 20)) return 1;
  return go_on_until(n, &d->shared->done, 2); /* what the other one waits for may still be here */
}

static void test_one_dies(void **state) {
  (void)state;
  dying d = {.shared =
                 mmap(NULL, sizeof *d.shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)};
  assert_true(d.shared != MAP_FAILED);
  for (d.seed = 1; d.seed <= test_seeds(8); d.seed++) {
    int results[3];
    job j = {one_dies, &d};
    d.shared->greeted = d.shared->done = 0;
    printf("seed %llu\n", (unsigned long long)d.seed);
    ranks_as_processes(3, 2 * NETS_PATIENCE, run_rank, &j, results);
    assert_int_equal(results[DYING], 128 + SIGKILL);
    assert_int_equal(results[0], 0);
    assert_int_equal(results[1], 0);
  }
  munmap(d.shared, sizeof *d.shared);
}

/* ---- Cancelling ---- */

enum { CANCELLED = 8 << 20 };
/* Seconds in which the memory must stay as it is, while the other side goes on. */
static const double watched = 0.1;

/* Rank 0 sends, rank 1 receives; one of them takes back what it began, at whatever point it is. The memory is then used for other
 * things (and freed: a sanitizer sees who writes), and the other side's request ends or is taken back, too. */
typedef struct cancelling {
  size_t bytes;
  int steps;    /* of progress before */
  bool sender;  /* takes it back */
  bool stopped; /* the other one does nothing meanwhile */
} cancelling;

static int cancel_one(nets_rank *n, void *context) {
  const cancelling *c = context;
  bool mine = (n->rank == 0) == c->sender;
  unsigned char *memory = calloc(1, c->bytes + 1);
  RANK_TRUE(memory);
  treadle_net_part part = {memory, c->bytes};
  void *request;
  RANK_OK(treadle_group_barrier(n->group));
  RANK_OK((n->rank == 0 ? n->ops->send : n->ops->receive)(n->net, 1 - n->rank, 3, &part, 1, &request));
  if (!mine && c->stopped) RANK_OK(treadle_group_barrier(n->group));
  if (mine) {
    for (int i = 0; i < c->steps; i++) n->ops->wait(n->net, 1e-5);
    double begin = treadle_clock_processor_seconds(); /* who waited for the other one would turn, or hang */
    n->ops->cancel(n->net, request);
    RANK_TRUE(treadle_clock_processor_seconds() < begin + 2);
    memset(memory, 0x77, c->bytes);
    if (c->stopped) RANK_OK(treadle_group_barrier(n->group));
    for (double end = treadle_clock_seconds() + watched; treadle_clock_seconds() < end;)
      n->ops->wait(n->net, 0.01);
    for (size_t i = 0; i < c->bytes; i++) RANK_TRUE(memory[i] == 0x77);
  } else {
    treadle_status got = nets_finish(n, request, watched);
    RANK_TRUE(got == TREADLE_OK || got == TREADLE_PEER || got == TREADLE_TIMEOUT);
  }
  free(memory);
  RANK_OK(treadle_group_barrier(n->group));
  return 0;
}

static void test_cancel(void **state) {
  (void)state;
  static const size_t sizes[] = {0, 100, 7000, 60000, CANCELLED};
  static const int steps[] = {0, 2, 10};
  for (size_t i = 0; i < TEST_COUNT(sizes); i++)
    for (size_t j = 0; j < TEST_COUNT(steps); j++)
      for (int how = 0; how < 4; how++) {
        cancelling c = {sizes[i], steps[j], how & 1, how & 2};
        run_ranks(2, cancel_one, &c);
      }
}

/* ---- Closing ---- */

/* One side leaves with everything under way; the other one is told. */
static int close_early(nets_rank *n, void *context) {
  (void)context;
  unsigned char *memory = calloc(1, CANCELLED);
  RANK_TRUE(memory);
  pending all[40];
  for (int i = 0; i < 40; i++) {
    treadle_net_part part = {memory, i % 2 ? 100 : CANCELLED};
    RANK_OK((i % 4 < 2 ? n->ops->send : n->ops->receive)(n->net, 1 - n->rank, (uint64_t)i, &part, 1,
                                                         &all[i].request));
  }
  for (int i = 0; i < 20; i++) n->ops->wait(n->net, 1e-4);
  if (n->rank == 0) nets_close(n);
  for (int i = 0; n->rank == 1 && i < 40; i++) {
    treadle_status got = nets_finish(n, all[i].request, NETS_PATIENCE);
    if (got != TREADLE_OK) RANK_FAILS(TREADLE_PEER, "rank 0 cannot be reached", got);
  }
  free(memory);
  RANK_OK(treadle_group_barrier(n->group));
  return 0;
}

static void test_close(void **state) {
  (void)state;
  for (int i = 0; i < 3; i++) run_ranks(2, close_early, NULL);
}

/* ---- What is refused ---- */

static int garbage(nets_rank *n, void *context) {
  (void)context;
  unsigned char address[2048], other[2048];
  size_t bytes, room;
  char word[8] = "";
  treadle_net_part part = {word, sizeof word};
  void *request;
  treadle_random random = {7};
  /* A net whose rank 1 nobody has connected. */
  void *net;
  treadle_net_options options = {.struct_size = sizeof options, .rank = 0, .ranks = 3, .host = loopback};
  if (n->rank == 0) return treadle_group_barrier(n->group) != TREADLE_OK;
  RANK_OK(n->ops->address(n->net, address, sizeof address, &bytes)); /* of rank 1 */
  RANK_FAILS(TREADLE_REFUSED, "room for", n->ops->address(n->net, other, bytes - 1, &room));
  RANK_OK(n->ops->open(&options, &net));
  RANK_FAILS(TREADLE_STATE, "not connected", n->ops->send(net, 1, 0, &part, 1, &request));
  for (size_t cut = 0; cut < bytes; cut++)
    RANK_FAILS(TREADLE_REFUSED, "address of rank 1", n->ops->connect(net, 1, address, cut));
  for (size_t at = 0; at < bytes; at++) {
    memcpy(other, address, bytes);
    other[at] ^= (unsigned char)(1 + treadle_random_below(&random, 255));
    RANK_FAILS(TREADLE_REFUSED, "address of rank 1", n->ops->connect(net, 1, other, bytes));
  }
  for (int i = 0; i < 1000; i++) {
    size_t length = (size_t)treadle_random_below(&random, sizeof other);
    for (size_t at = 0; at < length; at++) other[at] = (unsigned char)treadle_random_next(&random);
    RANK_FAILS(TREADLE_REFUSED, "address of rank 1", n->ops->connect(net, 1, other, length));
  }
  RANK_FAILS(TREADLE_REFUSED, "is that of rank 1", n->ops->connect(net, 2, address, bytes));
  RANK_FAILS(TREADLE_REFUSED, "connects to rank 0", n->ops->connect(net, 0, address, bytes));
  RANK_FAILS(TREADLE_STATE, "already", n->ops->connect(n->net, 0, address, bytes));
  n->ops->close(net);
  options.host = "203.0.113.7";
  RANK_FAILS(TREADLE_REFUSED, "has the address 203.0.113.7", n->ops->open(&options, &net));
  options.host = "here";
  RANK_FAILS(TREADLE_REFUSED, "'here' is not an address", n->ops->open(&options, &net));
  options.devices = "lo,nothing0";
  RANK_FAILS(TREADLE_REFUSED, "'nothing0' is none of this machine's", n->ops->open(&options, &net));
  options.devices = "lo";
  RANK_OK(n->ops->open(&options, &net));
  n->ops->close(net);
  RANK_OK(treadle_group_barrier(n->group));
  return 0;
}

static void test_garbage(void **state) {
  (void)state;
  run_ranks(2, garbage, NULL);
}

/* ---- What a net does to the rest of the process ---- */

static void on_signal(int number) { (void)number; }

/* A rank whose environment asks for other things, and which looks at what changed. */
static int guest(const char *name, int rank, int size, void *context) {
  static const int signals[] = {SIGSEGV, SIGBUS, SIGHUP, SIGFPE, SIGILL, SIGINT};
  job j = {send_one, NULL};
  char path[] = "/tmp/treadle-test-XXXXXX";
  int out = mkstemp(path);
  RANK_TRUE(out >= 0 && dup2(out, STDOUT_FILENO) >= 0);
  unlink(path);
  setenv("UCX_TLS", "posix,sysv,self", 1);
  setenv("UCX_NET_DEVICES", "nothing0", 1);
  setenv("UCX_RNDV_THRESH", "inf", 1);
  setenv("UCX_TCP_MAX_POLL", "16", 1);
  setenv("UCX_UNKNOWN", "1", 1);
  for (size_t i = 0; i < TEST_COUNT(signals); i++) signal(signals[i], on_signal);
  if (run_rank(name, rank, size, &j)) return 1;
  for (size_t i = 0; i < TEST_COUNT(signals); i++) RANK_TRUE(signal(signals[i], SIG_DFL) == on_signal);
  (void)context;
  fflush(stdout);
  RANK_TRUE(lseek(out, 0, SEEK_END) == 0); /* nothing was printed */
  return 0;
}

static void test_guest(void **state) {
  (void)state;
  int results[2];
  ranks_as_processes(2, 2 * NETS_PATIENCE, guest, NULL, results);
  for (int rank = 0; rank < 2; rank++) assert_int_equal(results[rank], 0);
}

/* A child that closes what it has from its parent leaves the parent's connections alone. */
static int forked(nets_rank *n, void *context) {
  char word[8] = "one";
  treadle_net_part part = {word, sizeof word};
  void *request;
  RANK_OK(n->ops->receive(n->net, 1 - n->rank, 99, &part, 1, &request));
  if (send_one(n, context)) return 1;
  pid_t child = fork();
  RANK_TRUE(child >= 0);
  if (child == 0) {
    nets_close(n);
    _exit(0);
  }
  int how;
  RANK_TRUE(waitpid(child, &how, 0) == child && how == 0);
  n->ops->cancel(n->net, request);
  return send_one(n, context);
}

static void test_fork(void **state) {
  (void)state;
  run_ranks(2, forked, NULL);
}

/* Nets are opened only in children: a process that has UCX should not fork. */
static int is_there(const char *name, int rank, int size, void *context) {
  (void)name, (void)context;
  const treadle_net_ops *ops;
  void *net;
  treadle_net_options options = {
      .struct_size = sizeof options, .rank = rank, .ranks = size, .host = loopback};
  if (treadle_net_find(net_name, &ops) == TREADLE_OK && ops->open(&options, &net) == TREADLE_OK) {
    ops->close(net);
    return 0;
  }
  printf("%s\n", treadle_error_message());
  fflush(stdout);
  return 77;
}

int main(void) {
  static const char *const names[] = {"tcp", "ucx"};
  static const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_one),      cmocka_unit_test(test_storm),  cmocka_unit_test(test_other_lengths),
      cmocka_unit_test(test_one_dies), cmocka_unit_test(test_cancel), cmocka_unit_test(test_close),
      cmocka_unit_test(test_garbage),  cmocka_unit_test(test_guest),  cmocka_unit_test(test_fork),
  };
  int failed = 0;
  for (size_t i = 0; i < TEST_COUNT(names); i++) {
    int result = 0;
    net_name = names[i];
    printf("net %s\n", net_name);
    fflush(stdout);
    ranks_as_processes(1, NETS_PATIENCE, is_there, NULL, &result);
    if (result != 77 || i == 0) failed += cmocka_run_group_tests_name(net_name, tests, NULL, NULL);
  }
  return failed;
}
