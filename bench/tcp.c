/* What bench/nodes compares a switch between two nodes with: plain MPI messages between two ranks, both ways at once, from memory to memory,
 * all of them posted together. Says as JSON what the median of RUNS took, from barrier to barrier.
 *
 *     mpirun -n 2 --mca pml ob1 --mca btl tcp,self bench_tcp BYTES_TO_0 BYTES_TO_1 RUNS */
#include "ranks.h"

enum { MESSAGE = 1 << 20, MOST = 1 << 14, RUNS_MOST = 99 };

/* Of this many bytes, one at a time. Returns how many requests were made. */
static int post(char *memory, int64_t bytes, bool out, int peer, MPI_Request *requests) {
  int count = 0;
  for (int64_t at = 0; at < bytes; at += MESSAGE, count++) {
    int length = bytes - at < MESSAGE ? (int)(bytes - at) : MESSAGE;
    if (out)
      MPI_Isend(memory + at, length, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &requests[count]);
    else
      MPI_Irecv(memory + at, length, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &requests[count]);
  }
  return count;
}

static double run_once(char *in, int64_t in_bytes, char *out, int64_t out_bytes, int peer) {
  static MPI_Request requests[2 * MOST];
  MPI_Barrier(MPI_COMM_WORLD);
  double begin = treadle_clock_seconds();
  int count = post(in, in_bytes, false, peer, requests);
  count += post(out, out_bytes, true, peer, requests + count);
  MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
  MPI_Barrier(MPI_COMM_WORLD);
  return treadle_clock_seconds() - begin;
}

int main(int argc, char **argv) {
  int rank, size;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int64_t bytes[2] = {argc > 1 ? atoll(argv[1]) : 0, argc > 2 ? atoll(argv[2]) : 0};
  int runs = argc > 3 ? atoi(argv[3]) : 0;
  for (int way = 0; way < 2; way++)
    if (bytes[way] <= 0 || bytes[way] > (int64_t)MOST * MESSAGE) runs = 0;
  if (size != 2 || runs < 1 || runs > RUNS_MOST)
    bench_give_up("two ranks, and BYTES_TO_0 BYTES_TO_1 RUNS; up to 16 GiB and 99");
  char *in = bench_allocate((size_t)bytes[rank], 1), *out = bench_allocate((size_t)bytes[1 - rank], 1);
  double seconds[RUNS_MOST];
  run_once(in, bytes[rank], out, bytes[1 - rank], 1 - rank); /* connections are made */
  for (int i = 0; i < runs; i++) {
    double mine = run_once(in, bytes[rank], out, bytes[1 - rank], 1 - rank);
    MPI_Allreduce(&mine, &seconds[i], 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  }
  if (rank == 0) printf("{\"seconds\": %.6f}\n", bench_median(seconds, runs));
  treadle_free(in);
  treadle_free(out);
  MPI_Finalize();
  return 0;
}
