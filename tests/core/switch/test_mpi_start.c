/* Arrows that are started, and cancelled at random moments, between the processes of an MPI launcher: MPI was started for one thread,
 * and its caller goes on with it meanwhile. The digest is what it was after each. ctest: ranks=4 timeout=600 */
#include "switch/scene.h"
#include "test.h"
#include "group/ranks.h"

#include "base/random.h"

#include <mpi.h>
#include <time.h>

enum { ROUNDS = 200, LONGEST = 20 /* bits of nanoseconds */ };

/* Starts the arrow; this rank alone may cancel it; MPI is used until it has ended. */
static treadle_status take(treadle_switch *sw, treadle_mode aim, bool cancels, treadle_random *random) {
  treadle_status status = TREADLE_OK;
  bool done = false;
  int value = 1, sum;
  long pause = (long)treadle_random_below(random, 1 << treadle_random_between(random, 4, LONGEST));
  TRY(treadle_switch_start(sw, aim));
  MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (cancels) nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
  if (cancels && treadle_switch_cancel(sw) != TREADLE_OK &&
      !strstr(treadle_error_message(), "it has ended"))
    return TREADLE_DIFFERENT;
  while (!done) {
    TRY(treadle_switch_test(sw, &done));
    nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
  }
  status = treadle_switch_wait(sw);
out:
  return status;
}

typedef struct tally {
  int arrived, cancelled;
} tally;

static int live(treadle_switch *sw, const scene *s, tally *t) {
  treadle_random common = {20251}, mine = {(uint64_t)sw->group->rank + 1};
  uint64_t first, digest;
  int statuses[SCENE_RANKS];
  RANK_OK(treadle_switch_digest(sw, &first));
  for (int round = 0; round < ROUNDS; round++) {
    treadle_mode old = treadle_switch_mode(sw), aim = old == TREADLE_INFER ? TREADLE_TRAIN : TREADLE_INFER;
    int who = (int)treadle_random_below(&common, SCENE_RANKS + 1), status; /* or nobody */
    status = (int)take(sw, aim, who == sw->group->rank, &mine);
    MPI_Allgather(&status, 1, MPI_INT, statuses, 1, MPI_INT, MPI_COMM_WORLD);
    bool cancelled = who < SCENE_RANKS && statuses[who] != TREADLE_OK;
    for (int rank = 0; rank < SCENE_RANKS; rank++)
      RANK_TRUE(statuses[rank] == (!cancelled    ? TREADLE_OK
                                   : rank == who ? TREADLE_CANCELLED
                                                 : TREADLE_PEER));
    RANK_TRUE(treadle_switch_mode(sw) == (cancelled ? old : aim));
    t->cancelled += cancelled;
    t->arrived += !cancelled;
    RANK_OK(treadle_switch_digest(sw, &digest));
    RANK_TRUE(digest == first);
  }
  if (treadle_switch_mode(sw) == TREADLE_TRAIN) RANK_OK(treadle_switch_to_infer(sw));
  RANK_TRUE(scene_infers(sw));
  RANK_OK(treadle_switch_to_train(sw));
  RANK_TRUE(scene_holds(s->train, sw->group->rank, treadle_switch_train_window(sw)));
  return 0;
}

static int play(int rank) {
  scene s;
  tally t = {0};
  treadle_group *group;
  treadle_switch *sw;
  scene_init(&s);
  RANK_OK(treadle_group_mpi(NULL, 60, &group));
  const treadle_switch_options options = {.struct_size = sizeof options,
                                          .page_bytes = SCENE_PAGE,
                                          .cap_bytes = (size_t)s.cap_min,
                                          .timeout_seconds = 60,
                                          .keep = TREADLE_KEEP_HOST};
  RANK_OK(treadle_switch_create(group, s.train, s.infer, &options, &sw));
  RANK_OK(treadle_layout_load(s.train, rank, treadle_switch_train_window(sw)));
  if (live(sw, &s, &t)) return 1;
  if (rank == 0) printf("%d arrows arrived, %d were cancelled\n", t.arrived, t.cancelled);
  RANK_TRUE(t.arrived >= ROUNDS / 20 && t.cancelled >= ROUNDS / 20);
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  treadle_group_close(group);
  scene_release(&s);
  return 0;
}

int main(int count, char **words) {
  int rank, level, bad, all_bad = 0;
  if (MPI_Init_thread(&count, &words, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS) return 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  bad = play(rank);
  if (bad) MPI_Abort(MPI_COMM_WORLD, 1); /* the others wait in MPI */
  MPI_Allreduce(&bad, &all_bad, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  return all_bad != 0;
}
