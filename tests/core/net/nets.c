/* Nets for tests. */
#include "net/nets.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/random.h"
#include "net/net_threads.h"

enum { ADDRESS = 2048 };

typedef struct address {
  size_t bytes;
  unsigned char at[ADDRESS];
} address;

treadle_status nets_open(treadle_group *group, const char *name, const char *host, void *context,
                         nets_rank *n) {
  treadle_status status = TREADLE_OK;
  address mine = {.bytes = 0}, *all = calloc((size_t)group->size, sizeof *all);
  treadle_net_options options = {.struct_size = sizeof options,
                                 .rank = group->rank,
                                 .ranks = group->size,
                                 .host = host,
                                 .context = context};
  *n = (nets_rank){.rank = group->rank, .ranks = group->size, .group = group};
  if (!all) TRY(treadle_fail(TREADLE_NO_MEMORY, "test: memory is out"));
  if (strcmp(name, treadle_net_threads.name) == 0)
    n->ops = &treadle_net_threads;
  else
    TRY(treadle_net_find(name, &n->ops));
  TRY(n->ops->open(&options, &n->net));
  TRY(n->ops->address(n->net, mine.at, sizeof mine.at, &mine.bytes));
  TRY(treadle_group_gather(group, &mine, sizeof mine, all));
  for (int peer = 0; peer < n->ranks; peer++)
    if (peer != n->rank) TRY(n->ops->connect(n->net, peer, all[peer].at, all[peer].bytes));
  TRY(treadle_group_barrier(group));
out:
  free(all);
  if (status != TREADLE_OK) nets_close(n);
  return status;
}

void nets_close(nets_rank *n) {
  if (n->net) n->ops->close(n->net);
  n->net = NULL;
}

treadle_status nets_finish(nets_rank *n, void *request, double seconds) {
  treadle_status status = TREADLE_OK;
  double end = treadle_clock_seconds() + seconds;
  for (bool done = false;;) {
    TRY(n->ops->test(n->net, request, &done));
    if (done) break;
    if (treadle_clock_seconds() > end) {
      n->ops->cancel(n->net, request);
      TRY(treadle_fail(TREADLE_TIMEOUT, "test: a request has not ended after %.1f s", seconds));
    }
    n->ops->wait(n->net, 0.1);
  }
out:
  return status;
}

static treadle_status move_on(void *context) {
  nets_rank *n = context;
  n->ops->wait(n->net, 0);
  return TREADLE_OK;
}

treadle_status nets_meet(nets_rank *n) {
  return treadle_group_meet(n->group, &(treadle_watch){move_on, n}, "the nets of a test");
}

treadle_status nets_send(nets_rank *n, int to, uint64_t tag, const void *bytes, size_t count) {
  treadle_status status = TREADLE_OK;
  union {
    const void *given;
    void *at;
  } same = {bytes};
  treadle_net_part part = {same.at, count};
  void *request;
  TRY(n->ops->send(n->net, to, tag, &part, 1, &request));
  TRY(nets_finish(n, request, NETS_PATIENCE));
out:
  return status;
}

treadle_status nets_receive(nets_rank *n, int from, uint64_t tag, void *bytes, size_t count) {
  treadle_status status = TREADLE_OK;
  treadle_net_part part = {bytes, count};
  void *request;
  TRY(n->ops->receive(n->net, from, tag, &part, 1, &request));
  TRY(nets_finish(n, request, NETS_PATIENCE));
out:
  return status;
}

/* ---- Many messages ---- */

typedef struct flight {
  int peer;
  bool receives;
  uint64_t tag, seed;
  size_t bytes;
  unsigned char
      *memory; /* [bytes], a heap block of that size alone: what is written outside of it is seen */
  int parts;
  treadle_net_part part[4];
  void *request;
} flight;

/* Both sides know all of a message by its seed. */
static size_t size_of(uint64_t seed, size_t most) {
  treadle_random random = {treadle_mix64(seed)};
  switch (treadle_random_next(&random) % 6) {
  case 0: return 0;
  case 1: return treadle_random_next(&random) % 100;
  case 2: return treadle_random_next(&random) % 20000 % (most + 1);
  case 3: return most - treadle_random_next(&random) % (most / 8 + 1);
  default: return treadle_random_next(&random) % (most + 1);
  }
}

static unsigned char byte_of(uint64_t seed, size_t at) {
  return (unsigned char)(treadle_mix64(seed + at / 8) >> at % 8 * 8);
}

static int prepare(flight *f, size_t most, int most_parts, treadle_random *random) {
  f->bytes = size_of(f->seed, most);
  f->memory = malloc(f->bytes ? f->bytes : 1);
  RANK_TRUE(f->memory);
  for (size_t at = 0; at < f->bytes; at++) f->memory[at] = f->receives ? 0xee : byte_of(f->seed, at);
  /* The two sides cut in different ways. */
  f->parts = (int)(treadle_random_next(random) % (TEST_COUNT(f->part) + 1));
  if (f->parts > most_parts) f->parts = most_parts;
  if (f->parts == 0 && f->bytes > 0) f->parts = 1;
  size_t begin = 0;
  for (int i = 0; i < f->parts; i++) {
    size_t left = f->bytes - begin,
           bytes = i + 1 < f->parts ? treadle_random_next(random) % (left + 1) : left;
    f->part[i] = (treadle_net_part){f->memory + begin, bytes};
    begin += bytes;
  }
  return 0;
}

static int check(const flight *f) {
  for (size_t at = 0; at < f->bytes; at++) RANK_TRUE(f->memory[at] == byte_of(f->seed, at));
  return 0;
}

static int run(nets_rank *n, flight *flights, int count) {
  for (int i = 0; i < count; i++) {
    flight *f = &flights[i];
    RANK_OK((f->receives ? n->ops->receive : n->ops->send)(n->net, f->peer, f->tag, f->part, f->parts,
                                                           &f->request));
  }
  int left = count;
  for (double end = treadle_clock_seconds() + NETS_PATIENCE; left > 0;) {
    int before = left;
    RANK_TRUE(treadle_clock_seconds() < end);
    for (int i = 0; i < count; i++) {
      flight *f = &flights[i];
      bool done = false;
      if (!f->request) continue;
      RANK_OK(n->ops->test(n->net, f->request, &done));
      if (!done) continue;
      f->request = NULL;
      if (check(f)) return 1;
      left--;
    }
    if (left < before) end = treadle_clock_seconds() + NETS_PATIENCE;
    if (left > 0) n->ops->wait(n->net, 1);
  }
  return 0;
}

int nets_storm(nets_rank *n, uint64_t seed, int rounds, int count, size_t most) {
  treadle_random random = {seed + (uint64_t)n->rank * 1000};
  int all = 2 * count * (n->ranks - 1), used = 0;
  flight *flights = calloc((size_t)all, sizeof *flights);
  RANK_TRUE(flights);
  for (int round = 0; round < rounds; round++) {
    used = 0;
    for (int peer = 0; peer < n->ranks; peer++)
      for (int i = 0; peer != n->rank && i < 2 * count; i++) {
        flight *f = &flights[used++];
        int from = i % 2 ? peer : n->rank, to = i % 2 ? n->rank : peer;
        uint64_t tag = treadle_mix64((uint64_t)(round * count + i / 2)) >> 24;
        *f = (flight){.peer = peer,
                      .receives = i % 2,
                      .tag = tag,
                      .seed = treadle_mix64(seed ^ tag ^ (uint64_t)(from * 64 + to) << 48)};
        if (prepare(f, most, n->ops->most_parts, &random)) return 1;
      }
    for (int i = used - 1; i > 0; i--) { /* in any order */
      int j = (int)(treadle_random_next(&random) % (uint64_t)(i + 1));
      flight swapped = flights[i];
      flights[i] = flights[j];
      flights[j] = swapped;
    }
    if (run(n, flights, used)) return 1;
    for (int i = 0; i < used; i++) free(flights[i].memory);
  }
  free(flights);
  return 0;
}
