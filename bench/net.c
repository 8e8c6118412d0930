/* Nets: bytes a second between two ranks over TCP, for sizes of messages and numbers of them in flight.
 *
 *   mpirun -n 2 --mca pml ob1 --mca btl tcp,self bench_net [--host ADDRESS] [--bytes N]
 *
 * One way, and both ways at once (bytes of one way are counted). The nets "tcp" and "ucx"; beside them a plain socket, and MPI's messages of
 * the same sizes, as many at once. The best of 7 runs, by turns, since others may use the machine. MPI's waits take processor time, too. */
#include "ranks.h"

#include "base/text.h"
#include "net/net.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sys/socket.h>

enum { RUNS = 7, WAYS = 4, MOST_DEPTH = 8, ADDRESS = 2048 };

typedef struct bench_net {
  const treadle_net_ops *ops;
  void *net;
} bench_net;

typedef struct bench {
  bench_net nets[2], *now; /* "tcp", "ucx" */
  int rank, socket;
  bool sends, receives;
  size_t size, total; /* of a message, of a way */
  int depth;
  char *out, *in; /* [MOST_DEPTH * size] */
} bench;

static void must_be(bool true_, const char *what) {
  if (!true_) bench_give_up(what);
}

/* ---- The net ---- */

static void open_net(bench *b, bench_net *n, const char *name, const char *host) {
  struct {
    size_t bytes;
    char at[ADDRESS];
  } mine = {.bytes = 0}, all[2];
  treadle_net_options options = {.struct_size = sizeof options, .rank = b->rank, .ranks = 2, .host = host};
  MUST(treadle_net_find(name, &n->ops));
  MUST(n->ops->open(&options, &n->net));
  MUST(n->ops->address(n->net, mine.at, sizeof mine.at, &mine.bytes));
  MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, MPI_COMM_WORLD);
  MUST(n->ops->connect(n->net, 1 - b->rank, all[1 - b->rank].at, all[1 - b->rank].bytes));
}

typedef struct stream {
  bool receives;
  size_t begun, ended, count;
  void *requests[MOST_DEPTH];
} stream;

/* Moves a way on; true: something ended. */
static bool move(bench *b, stream *s) {
  bool moved = false;
  for (; s->begun < s->count && s->begun < s->ended + (size_t)b->depth; s->begun++) {
    size_t place = s->begun % (size_t)b->depth;
    treadle_net_part part = {(s->receives ? b->in : b->out) + place * b->size, b->size};
    MUST((s->receives ? b->now->ops->receive : b->now->ops->send)(b->now->net, 1 - b->rank, s->begun, &part,
                                                                  1, &s->requests[place]));
  }
  while (s->ended < s->begun) { /* in order */
    bool done = false;
    MUST(b->now->ops->test(b->now->net, s->requests[s->ended % (size_t)b->depth], &done));
    if (!done) break;
    s->ended++;
    moved = true;
  }
  return moved;
}

static void run_net(bench *b) {
  size_t count = b->total / b->size;
  stream out = {.count = b->sends ? count : 0}, in = {.receives = true, .count = b->receives ? count : 0};
  while (out.ended < out.count || in.ended < in.count) {
    bool moved = move(b, &out);
    if (!move(b, &in) && !moved) b->now->ops->wait(b->now->net, 1);
  }
}

static void run_tcp(bench *b) {
  b->now = &b->nets[0];
  run_net(b);
}

static void run_ucx(bench *b) {
  b->now = &b->nets[1];
  run_net(b);
}

/* ---- A socket ---- */

static void open_socket(bench *b, const char *host) {
  struct sockaddr_in at = {.sin_family = AF_INET};
  socklen_t bytes = sizeof at;
  inet_pton(AF_INET, host, &at.sin_addr);
  b->socket = socket(AF_INET, SOCK_STREAM, 0);
  if (b->rank == 0) {
    must_be(bind(b->socket, (struct sockaddr *)&at, sizeof at) == 0 && listen(b->socket, 1) == 0 &&
                getsockname(b->socket, (struct sockaddr *)&at, &bytes) == 0,
            "no socket");
  }
  MPI_Bcast(&at, sizeof at, MPI_BYTE, 0, MPI_COMM_WORLD);
  if (b->rank == 0) {
    int listening = b->socket;
    b->socket = accept(listening, NULL, NULL);
    close(listening);
    must_be(b->socket >= 0, "no connection");
  } else {
    must_be(connect(b->socket, (struct sockaddr *)&at, sizeof at) == 0, "no connection");
  }
}

static void *write_all(void *context) {
  bench *b = context;
  for (size_t left = b->total; left > 0;) {
    ssize_t bytes = write(b->socket, b->out, left < b->size ? left : b->size);
    must_be(bytes > 0, "a socket does not write");
    left -= (size_t)bytes;
  }
  return NULL;
}

static void run_socket(bench *b) {
  pthread_t writer;
  if (b->sends && b->receives)
    pthread_create(&writer, NULL, write_all, b);
  else if (b->sends)
    write_all(b);
  for (size_t left = b->receives ? b->total : 0; left > 0;) {
    ssize_t bytes = read(b->socket, b->in, left < b->size ? left : b->size);
    must_be(bytes > 0, "a socket does not read");
    left -= (size_t)bytes;
  }
  if (b->sends && b->receives) pthread_join(writer, NULL);
}

/* ---- MPI ---- */

static void run_mpi(bench *b) {
  size_t count = b->total / b->size;
  int size = (int)b->size, peer = 1 - b->rank;
  MPI_Request requests[2 * MOST_DEPTH];
  for (size_t at = 0; at < count; at += (size_t)b->depth) {
    int used = 0;
    for (size_t i = 0; i < (size_t)b->depth && at + i < count; i++) {
      if (b->receives)
        MPI_Irecv(b->in + i * b->size, size, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &requests[used++]);
      if (b->sends)
        MPI_Isend(b->out + i * b->size, size, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &requests[used++]);
    }
    MPI_Waitall(used, requests, MPI_STATUSES_IGNORE);
  }
}

/* ---- */

typedef struct way {
  void (*run)(bench *b);
  double seconds, processor; /* the best run's; its processor time in all ranks */
} way;

static void measure(bench *b, way *w) {
  MPI_Barrier(MPI_COMM_WORLD);
  double begin = treadle_clock_seconds(), mine = treadle_clock_process_seconds(), both;
  w->run(b);
  mine = treadle_clock_process_seconds() - mine;
  MPI_Barrier(MPI_COMM_WORLD);
  double seconds = treadle_clock_seconds() - begin;
  MPI_Allreduce(&mine, &both, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  if (w->seconds > 0 && w->seconds <= seconds) return;
  w->seconds = seconds;
  w->processor = both;
}

static void measure_all(bench *b, bool two_ways) {
  static const size_t sizes[] = {64 << 10, 1 << 20, 4 << 20};
  static const int depths[] = {1, 4, 8};
  b->sends = two_ways || b->rank == 0;
  b->receives = two_ways || b->rank == 1;
  if (b->rank == 0)
    printf("%s: GB/s a way (processor seconds for 1 GB a way)\n%8s %6s %14s %14s %14s %14s\n",
           two_ways ? "both ways" : "one way", "bytes", "ahead", "tcp", "ucx", "socket", "MPI");
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (size_t j = 0; j < sizeof depths / sizeof *depths; j++) {
      way ways[] = {{.run = run_tcp}, {.run = run_ucx}, {.run = run_socket}, {.run = run_mpi}};
      b->size = sizes[i];
      b->depth = depths[j];
      for (int run = 0; run < RUNS * WAYS; run++) measure(b, &ways[run % WAYS]);
      if (b->rank) continue;
      printf("%8zu %6d", b->size, b->depth);
      for (int k = 0; k < WAYS; k++)
        printf("  %5.2f (%5.2f)", (double)b->total / ways[k].seconds / 1e9,
               ways[k].processor / ((double)b->total / 1e9));
      printf("\n");
      fflush(stdout);
    }
}

int main(int count, char **texts) {
  const char *host = "127.0.0.1", *value;
  int ranks;
  int64_t total = INT64_C(256) << 20;
  bench b = {.socket = -1};
  MPI_Init(NULL, NULL);
  MPI_Comm_rank(MPI_COMM_WORLD, &b.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  must_be(ranks == 2, "start it on 2 ranks");
  for (int at = 1; at < count; at++) {
    if ((value = bench_option(texts, &at, "--host")))
      host = value;
    else if ((value = bench_option(texts, &at, "--bytes")))
      must_be(treadle_text_to_int64(value, &total), "--bytes");
    else
      bench_give_up("unknown option");
  }
  b.total = (size_t)total / (4 << 20) * (4 << 20);
  b.out = bench_allocate(MOST_DEPTH, 4 << 20);
  b.in = bench_allocate(MOST_DEPTH, 4 << 20);
  open_net(&b, &b.nets[0], "tcp", host);
  open_net(&b, &b.nets[1], "ucx", host);
  open_socket(&b, host);
  measure_all(&b, false);
  measure_all(&b, true);
  MPI_Barrier(MPI_COMM_WORLD);
  for (int i = 0; i < 2; i++) b.nets[i].ops->close(b.nets[i].net);
  close(b.socket);
  treadle_free(b.out);
  treadle_free(b.in);
  MPI_Finalize();
  return 0;
}
