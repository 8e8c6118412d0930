/* Ranks as threads and as processes. */
#include "group/ranks.h"

#include "base/clock.h"
#include "base/random.h"
#include "group/thread_nodes.h"
#include "test.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

int ranks_said(treadle_status wanted, treadle_status got, const char *part, const char *call,
               const char *file, int line) {
  const char *message = got == TREADLE_OK ? "" : treadle_error_message();
  if (got == wanted && (!part || strstr(message, part))) return 0;
  fprintf(stderr, "%s:%d: %s\n  wanted %s%s%s\n  got    %s: %s\n", file, line, call,
          treadle_status_text(wanted), part ? " with: " : "", part ? part : "", treadle_status_text(got),
          message);
  return 1;
}

void ranks_delay(void *context, const char *where) {
  treadle_random *random = context;
  (void)where;
  uint64_t draw = treadle_random_next(random);
  if (draw % 4 == 0) sched_yield();
  if (draw % 16 == 1) nanosleep(&(struct timespec){.tv_nsec = (long)(draw >> 32) % 300000}, NULL);
}

/* ---- Threads ---- */

int (*ranks_nodes)(int rank);

int ranks_in_pairs(int rank) { return rank / 2; }
int ranks_on_two_nodes(int rank) { return rank % 2; }

typedef struct thread {
  pthread_t id;
  treadle_thread_nodes *nodes; /* NULL: there is a group already */
  int rank;
  treadle_group *group;
  ranks_body body;
  void *context;
  treadle_random random;
  int result;
} thread;

static void *run_thread(void *context) {
  thread *t = context;
  t->result = 1;
  if (t->nodes && ranks_said(TREADLE_OK, treadle_thread_nodes_open(t->nodes, t->rank, &t->group), NULL,
                             "open", __FILE__, __LINE__))
    return NULL;
  if (t->random.state) {
    t->group->delay = ranks_delay;
    t->group->delay_context = &t->random;
  }
  t->result = t->body(t->group, t->context);
  return NULL;
}

static treadle_thread_nodes *make_nodes(int size, double timeout_seconds) {
  treadle_thread_nodes *nodes;
  int32_t of[TREADLE_GROUP_MAX];
  for (int rank = 0; rank < size; rank++) of[rank] = ranks_nodes(rank);
  assert_ok(treadle_thread_nodes_make(of, size, timeout_seconds, &nodes));
  return nodes;
}

void ranks_as_threads(int size, double timeout_seconds, uint64_t delays, ranks_body body, void *context) {
  treadle_group **groups = calloc((size_t)size, sizeof(*groups));
  thread *threads = calloc((size_t)size, sizeof *threads);
  treadle_thread_nodes *nodes = ranks_nodes ? make_nodes(size, timeout_seconds) : NULL;
  assert_non_null(groups);
  assert_non_null(threads);
  if (!nodes) assert_ok(treadle_group_threads(size, timeout_seconds, groups));
  for (int rank = 0; rank < size; rank++) {
    threads[rank] =
        (thread){.nodes = nodes, .rank = rank, .group = groups[rank], .body = body, .context = context};
    threads[rank].random.state = delays ? delays + (uint64_t)rank : 0;
    assert_int_equal(pthread_create(&threads[rank].id, NULL, run_thread, &threads[rank]), 0);
  }
  int bad = 0;
  for (int rank = 0; rank < size; rank++) {
    pthread_join(threads[rank].id, NULL);
    if (threads[rank].result == 0) continue;
    fprintf(stderr, "rank %d of %d failed\n", rank, size);
    bad++;
  }
  for (int rank = 0; rank < size; rank++) treadle_group_close(threads[rank].group);
  treadle_thread_nodes_destroy(nodes);
  free(groups);
  free(threads);
  assert_int_equal(bad, 0);
}

/* ---- Processes ---- */

const char *ranks_name(void) {
  static char name[48];
  static int count;
  snprintf(name, sizeof name, "test%dx%d", (int)getpid(), count++);
  return name;
}

void ranks_as_processes(int size, double limit, ranks_process body, void *context, int *results) {
  const char *name = ranks_name();
  pid_t *ids = calloc((size_t)size, sizeof *ids);
  assert_non_null(ids);
  fflush(NULL);
  for (int rank = 0; rank < size; rank++) {
    ids[rank] = fork();
    assert_true(ids[rank] >= 0);
    if (ids[rank] == 0) {
      signal(SIGSEGV, SIG_DFL);
      signal(SIGABRT, SIG_DFL);
      _exit(body(name, rank, size, context));
    }
  }
  double end = treadle_clock_seconds() + limit;
  int left = size, late = 0;
  while (left > 0) {
    int how, rank = 0;
    pid_t id = waitpid(-1, &how, WNOHANG);
    while (id > 0 && rank < size && ids[rank] != id) rank++;
    if (id > 0 && rank < size) {
      results[rank] = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
      ids[rank] = 0;
      left--;
    } else if (id <= 0) {
      nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
    }
    if (left == 0 || late || treadle_clock_seconds() < end) continue;
    late = left;
    for (rank = 0; rank < size; rank++)
      if (ids[rank] > 0) kill(ids[rank], SIGKILL);
  }
  free(ids);
  if (late) fail_msg("%d of %d ranks were still there after %.0f s", late, size, limit);
}

int ranks_over_nodes(const struct CMUnitTest *tests, size_t count) {
  static const struct {
    const char *name;
    int (*nodes)(int rank);
  } maps[] = {{"over nodes of two", ranks_in_pairs}, {"over two nodes", ranks_on_two_nodes}};
  int failed = 0;
  for (size_t i = 0; i < TEST_COUNT(maps); i++) {
    ranks_nodes = maps[i].nodes;
    failed += _cmocka_run_group_tests(maps[i].name, tests, count, NULL, NULL);
  }
  ranks_nodes = NULL;
  return failed;
}
