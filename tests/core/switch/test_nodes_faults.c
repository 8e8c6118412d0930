/* Faults in a switch between processes on several nodes: ranks and nodes that are killed, stopped or cut off, and bytes that are changed on
 * their way, in every wave and between all phases. Whoever lives is back in time with its old weights; nobody is bound to a version that
 * another knows to have failed; then a new group, in which new processes have the places of the dead, switches.
 *
 *      test_nodes_faults [CASE]
 *
 * Most of a case is waiting, so several run at a time. A case in which a rank is late, or that the machine did not let run in time, is tried
 * again with a longer limit; a wrong weight, or two outcomes, never is.  ctest: timeout=600 */
#include "seeds.h"
#include "switch/faults.h"
#include "switch/node_faults.h"
#include "test.h"
#include "net/net.h"
#include "group/ranks.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

enum { AT_A_TIME = 8, TRIES = 4, LONGEST = 100 /* seconds that a case may take */, RETURNS = 5 };

static int only = -1;

typedef struct show { /* a case that runs */
  node_stage *stage;
  pid_t ids[NODE_PROCESSES]; /* 0: has ended, or has not begun */
  int results[NODE_PROCESSES];
  bool stopped[NODE_RANKS], helped;
  int left, tries;
  double end;
} show;

typedef struct tally {
  int cases, again, idle, adrift, bound, kinds[NODE_FAULTS], waves[NODE_PAIRS];
  double slowest;
} tally;

static bool is_gone(const node_case *c, int rank) {
  bool goes = c->kind == NODE_KILL || c->kind == NODE_STALL || c->kind == NODE_KILL_ALL;
  return goes && node_case_hits(c, rank);
}

static bool is_stopped(const node_case *c, int rank) {
  bool stops = c->kind == NODE_STALL || c->kind == NODE_CONTINUE || c->kind == NODE_STALL_ALL;
  return stops && node_case_hits(c, rank);
}

/* ---- Judging ---- */

static bool is_adrift(const node_sight *sight) {
  return strstr(sight->message, "knows of no outcome") != NULL;
}

/* What is never right, however late anybody was. */
static const char *judge_outcomes(const show *s, int *rank_p) {
  const node_case *c = &s->stage->c;
  const node_sight *bound = NULL, *last = NULL, *newest = NULL;
  for (int rank = 0; rank < c->ranks; rank++) {
    const node_sight *sight = &s->stage->sights[rank];
    *rank_p = rank;
    if (!atomic_load(&sight->back)) continue;
    if (sight->bound && bound && bound->bound_version != sight->bound_version)
      return "is bound to another version";
    if (sight->bound) bound = sight;
    if (!last || sight->fell > last->fell) last = sight;
    if (!newest || sight->version > newest->version) newest = sight;
    if (!sight->intact) return "has not its old weights in mode train";
    if (sight->waves != NODE_WAVES && sight->waves < 4) return "has too few waves";
  }
  /* An arrow is committed for all or for nobody; but who has voted may not know. */
  for (int rank = 0; last && rank < c->ranks; rank++) {
    const node_sight *sight = &s->stage->sights[rank];
    *rank_p = rank;
    if (!atomic_load(&sight->back) || is_adrift(sight)) continue;
    if (sight->fell < last->fell) return "says that an arrow failed that another has finished";
    if (sight->version < newest->version) return "says that a version failed that another has committed";
  }
  return NULL;
}

static bool names(const char *message, const char *format, int number) {
  char words[32];
  snprintf(words, sizeof words, format, number);
  for (const char *at = message; (at = strstr(at, words)); at++)
    if (at[strlen(words)] < '0' || at[strlen(words)] > '9') return true;
  return false;
}

static const char *judge_sight(const node_case *c, int rank, const node_sight *sight) {
  if (c->kind == NODE_FLIP && sight->status != TREADLE_PEER) return "has not noticed a changed byte";
  if (sight->status == TREADLE_OK) return "has not noticed it";
  if (!is_stopped(c, rank) && sight->seconds > RETURNS * c->limit) return "came back late";
  if (c->kind == NODE_FLIP &&
      (!names(sight->message, "from rank %d", c->who) || !strstr(sight->message, "in wave ")))
    return "does not name the rank and the wave of a changed byte";
  if (!strstr(sight->message, "weights stand as they were") && !strstr(sight->message, "nothing is bound"))
    return "does not say which weights stand";
  return NULL;
}

static const char *judge_process(const show *s, int process) {
  const node_case *c = &s->stage->c;
  int rank = process % NODE_RANKS;
  const node_sight *sight = &s->stage->sights[process];
  if (rank >= c->ranks || (process >= NODE_RANKS && !is_gone(c, rank))) return NULL;
  if (process == rank && is_stopped(c, rank) && !s->stopped[rank]) return "was to be stopped";
  if (process == rank && is_gone(c, rank))
    return s->results[process] == 128 + SIGKILL ? NULL : "was to be killed";
  if (process == rank) {
    const char *why = judge_sight(c, rank, sight);
    if (why) return why;
  }
  if (s->results[process] != 0) return "has failed";
  if (!sight->resumed) return "has not resumed";
  return sight->leaks ? "leaves descriptors or mappings behind" : NULL;
}

/* Of bytes that were to be changed: had that rank nothing to send from that wave on? */
static bool was_idle(const show *s) {
  const node_case *c = &s->stage->c;
  const node_sight *sight = &s->stage->sights[c->who];
  return c->kind == NODE_FLIP && atomic_load(&sight->back) && sight->idle && sight->status == TREADLE_OK;
}

static const char *judge(const show *s, int *process_p, bool *final_p) {
  const char *why = NULL;
  *final_p = false;
  if (was_idle(s)) return NULL;
  why = judge_outcomes(s, process_p);
  *final_p = why != NULL;
  for (int p = 0; p < NODE_PROCESSES && !why; p++) {
    *process_p = p;
    why = judge_process(s, p);
  }
  return why;
}

/* ---- Running ---- */

/* An address of this machine that UCX knows, and a port that is free: below those that the system gives away. */
static void find_place(char *place, size_t bytes) {
  static unsigned count;
  for (bool found = false; !found;) {
    unsigned port = 20000 + ((unsigned)getpid() * 16 + count++) % 12000;
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(one >= 0);
    found = bind(one, (struct sockaddr *)&at, sizeof at) == 0;
    close(one);
    snprintf(place, bytes, "127.0.0.1:%u", port);
  }
}

static void start(show *s, int process) {
  fflush(NULL);
  s->ids[process] = fork();
  assert_true(s->ids[process] >= 0);
  if (s->ids[process] == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* one that is stopped would stay for ever */
    signal(SIGSEGV, SIG_DFL);
    signal(SIGABRT, SIG_DFL);
    _exit(node_live(s->stage, process));
  }
  s->left++;
}

static void begin(show *s) {
  memset(s->stage->sights, 0, sizeof s->stage->sights);
  memset(s->results, 0, sizeof s->results);
  memset(s->stopped, 0, sizeof s->stopped);
  memset(s->ids, 0, sizeof s->ids);
  for (int i = 0; i < 2; i++) find_place(s->stage->places[i], sizeof s->stage->places[i]);
  s->helped = false;
  s->left = 0;
  s->tries++;
  s->end = treadle_clock_seconds() + LONGEST;
  for (int rank = 0; rank < s->stage->c.ranks; rank++) start(s, rank);
}

/* What has come to one rank of a node comes to all. */
static void hit_node(const show *s, int process, int signal) {
  const node_case *c = &s->stage->c;
  if (process >= NODE_RANKS || s->helped || !node_case_hits(c, process)) return;
  if (c->kind != NODE_KILL_ALL && c->kind != NODE_STALL_ALL) return;
  for (int rank = 0; rank < c->ranks; rank++)
    if (rank != process && node_case_hits(c, rank) && s->ids[rank] > 0 && !s->stopped[rank])
      kill(s->ids[rank], signal);
}

/* A process has ended or was stopped. */
static void note(show *shows, pid_t id, int how) {
  for (int i = 0; i < AT_A_TIME * NODE_PROCESSES; i++) {
    show *s = &shows[i / NODE_PROCESSES];
    int p = i % NODE_PROCESSES;
    if (!s->stage || s->ids[p] != id) continue;
    if (WIFSTOPPED(how)) {
      if (s->helped && !is_gone(&s->stage->c, p))
        kill(id, SIGCONT); /* its node was stopped before it came to its own fault */
      s->stopped[p] = true;
      hit_node(s, p, SIGSTOP);
      return;
    }
    s->results[p] = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
    s->ids[p] = 0;
    s->left--;
    if (WIFSIGNALED(how)) hit_node(s, p, SIGKILL);
  }
}

static void kill_all(const show *s) {
  for (int p = 0; p < NODE_PROCESSES; p++)
    if (s->ids[p] > 0) kill(s->ids[p], SIGKILL);
}

/* When all others are back: who was stopped goes on or is killed, and who is gone is replaced. */
static void attend(show *s) {
  const node_case *c = &s->stage->c;
  if (treadle_clock_seconds() > s->end) kill_all(s);
  if (s->helped) return;
  for (int rank = 0; rank < c->ranks; rank++) {
    bool out = is_gone(c, rank) || is_stopped(c, rank);
    if (!out && !atomic_load(&s->stage->sights[rank].back)) return;
    if (is_stopped(c, rank) && !s->stopped[rank]) return;
    if (is_gone(c, rank) && !is_stopped(c, rank) && s->ids[rank] > 0) return;
  }
  s->helped = true;
  for (int rank = 0; rank < c->ranks; rank++) {
    if (is_stopped(c, rank)) kill(s->ids[rank], is_gone(c, rank) ? SIGKILL : SIGCONT);
    if (is_gone(c, rank)) start(s, NODE_RANKS + rank);
  }
}

static void say(const show *s, const char *why, int process) {
  const node_case *c = &s->stage->c;
  char words[200];
  fprintf(stderr, "%s: %s\n", node_case_words(c, words, sizeof words), why ? why : "all is well");
  if (why) fprintf(stderr, "  process %d of them; again: test_nodes_faults %d\n", process, c->number);
  for (int p = 0; p < NODE_PROCESSES; p++) {
    const node_sight *sight = &s->stage->sights[p];
    if (p % NODE_RANKS >= c->ranks || (p >= NODE_RANKS && !is_gone(c, p % NODE_RANKS))) continue;
    fprintf(stderr,
            "  %d: ended %d; %d waves; arrow %d, %.2f s, mode %s, version %d%s, intact %d, resumed %d, "
            "leaks %d: %s\n",
            p, s->results[p], sight->waves, sight->fell, sight->seconds, treadle_mode_text(sight->mode),
            (int)sight->version, sight->bound ? " bound" : "", sight->intact, sight->resumed, sight->leaks,
            sight->message);
  }
}

static void count(const show *s, tally *t) {
  const node_case *c = &s->stage->c;
  bool adrift = false, bound = false;
  t->cases++;
  t->kinds[c->kind]++;
  t->idle += was_idle(s);
  for (int rank = 0; rank < c->ranks; rank++) {
    const node_sight *sight = &s->stage->sights[rank];
    if (is_gone(c, rank) || is_stopped(c, rank)) continue;
    adrift = adrift || is_adrift(sight);
    bound = bound || sight->bound;
    if (c->limit == 1 && sight->seconds > t->slowest) t->slowest = sight->seconds;
  }
  t->adrift += adrift;
  t->bound += bound;
  t->waves[c->pair] = s->stage->sights[0].waves;
}

/* The case is over; is it to be tried again? */
static bool end(show *s, tally *t, int *failed_p) {
  int process = 0;
  bool final;
  const char *why = judge(s, &process, &final);
  if (why && !final && s->tries < TRIES) {
    say(s, why, process);
    fprintf(stderr, "  once more, with a limit of %.0f s\n", s->stage->c.limit * 3);
    s->stage->c.limit *= 3;
    t->again++;
    return true;
  }
  count(s, t);
  if (why || only >= 0) say(s, why, process);
  *failed_p += why != NULL;
  return false;
}

static void run_all(const node_scene *of, tally *t, int *failed_p) {
  static show shows[AT_A_TIME];
  int step = test_step(node_case_count()) | 1; /* odd, so that each phase comes */
  int next = only < 0 ? 0 : only, last = only < 0 ? node_case_count() : only + 1, running = 0;
  while (next < last || running > 0) {
    for (int i = 0; i < AT_A_TIME; i++) {
      show *s = &shows[i];
      if (s->tries > 0 && s->left == 0 && !end(s, t, failed_p)) s->tries = 0, running--;
      if (s->left > 0 || (s->tries == 0 && next >= last)) continue;
      if (!s->stage)
        s->stage = mmap(NULL, sizeof *s->stage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
      assert_true(s->stage != MAP_FAILED);
      if (s->tries == 0) node_case_draw(next, &s->stage->c), next += step, running++;
      s->stage->s = of;
      begin(s);
    }
    int how = 0;
    pid_t id;
    while ((id = waitpid(-1, &how, WNOHANG | WUNTRACED)) > 0) note(shows, id, how);
    for (int i = 0; i < AT_A_TIME; i++)
      if (shows[i].left > 0) attend(&shows[i]);
    nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
  }
  for (int i = 0; i < AT_A_TIME; i++)
    if (shows[i].stage) munmap(shows[i].stage, sizeof *shows[i].stage);
}

/* ---- The test ---- */

static void test_faults(void **state) {
  node_scene s;
  tally t = {0};
  int failed = 0;
  (void)state;
  node_scene_init(&s);
  run_all(&s, &t, &failed);
  node_scene_release(&s);
  print_message("%d cases of %d: %d ranks killed, %d stopped, %d stopped for a while; nodes: %d killed, %d "
                "stopped, %d cut off; "
                "%d bytes changed, %d of them on no message; %d tried again\n",
                t.cases, node_case_count(), t.kinds[NODE_KILL], t.kinds[NODE_STALL], t.kinds[NODE_CONTINUE],
                t.kinds[NODE_KILL_ALL], t.kinds[NODE_STALL_ALL], t.kinds[NODE_CUT], t.kinds[NODE_FLIP],
                t.idle, t.again);
  print_message(
      "%d, %d and %d waves; in %d cases somebody did not know the outcome, in %d somebody was bound; the "
      "slowest survivor took %.1f s\n",
      t.waves[0], t.waves[1], t.waves[2], t.adrift, t.bound, t.slowest);
  assert_int_equal(fault_leaks(), 0);
  assert_int_equal(failed, 0);
  assert_true(t.again <= 2 + t.cases / 10); /* or it is not the machine */
  assert_true(t.idle == 0 || t.idle < t.kinds[NODE_FLIP]);
}

int main(int count, char **arguments) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_faults)};
  if (count > 1) only = atoi(arguments[1]);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
