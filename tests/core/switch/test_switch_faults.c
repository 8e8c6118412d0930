/* Faults in a switch between processes: ranks that are killed, stopped, slow or out of memory, and engines
 * that fail, in every wave and between all phases. Whoever lives returns in time, names the rank, holds
 * what it is to hold, says the truth about it, leaves nothing behind, and can go on.
 *
 *      test_switch_faults [SEED [CASE]]
 *
 * Each case follows from the seed and its number (faults.c). Most of a case is waiting, so several run at
 * a time. A rank that the machine does not let run within the time limit looks like one that was stopped:
 * a case that goes wrong is tried again, with a longer limit, when another rank than its own was waited
 * for in vain. ctest: stage=gcc timeout=600 */
#include "switch/faults.h"
#include "test.h"
#include "group/ranks.h"

#include "base/clock.h"

#include <dirent.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

enum { AT_A_TIME = 8, TRIES = 4, LONGEST = 200 /* seconds that a case may take */, RETURNS = 5 };

static uint64_t seed = 20250; /* of the gate; another by argument */
static int only = -1;

typedef struct show { /* a case that runs */
  fault_stage *stage;
  char name[48];
  pid_t ids[FAULT_PROCESSES]; /* 0: has ended */
  int results[FAULT_PROCESSES];
  int left, tries;
  bool stopped;
  double end;
} show;

typedef struct tally {
  int cases, again, resumed, kinds[FAULT_UNBIND + 1], modes[TREADLE_HOST + 1];
  double slowest;
} tally;

/* ---- Judging ---- */

static bool names(const char *message, const char *format, int rank) {
  char words[32];
  snprintf(words, sizeof words, format, rank);
  const char *at = strstr(message, words);
  return at && (at[strlen(words)] < '0' || at[strlen(words)] > '9');
}

/* Does it name what it has to? */
static const char *judge_words(const fault_case *c, const fault_sight *sight) {
  const char *m = sight->message;
  bool in_waves = c->point == TREADLE_AT_WAVE;
  if (!names(m, "rank %d", c->rank)) return "does not name the rank";
  if (in_waves && (!strstr(m, "wave ") || !strstr(m, "tensor '"))) return "does not name wave and tensor";
  bool lost = strstr(m, "the weights are lost") != NULL;
  if (lost != (sight->mode == TREADLE_LOST))
    return "does not say that the weights are lost, or says so wrongly";
  char stands[64];
  snprintf(stands, sizeof stands, "the %s weights stand as they were", treadle_mode_text(sight->mode));
  if (!lost && !strstr(m, stands) && !strstr(m, "nothing is bound"))
    return "does not say which weights stand";
  return NULL;
}

static const char *judge_sight(const fault_case *c, const fault_sight *sight) {
  const treadle_switch_options *o = &c->options;
  bool rebuilt = o->offload_train_param == TREADLE_ON && o->keep == TREADLE_KEEP_INFER;
  if (sight->status == TREADLE_OK) return "has not noticed it";
  if (sight->seconds > RETURNS * c->limit / 0.5) return "came back late";
  if (sight->mode == TREADLE_LOST && !rebuilt) return "has lost weights that it keeps";
  if (sight->mode == TREADLE_FORWARD) return "is in forward mode";
  if (!sight->intact) return "holds something else than it did";
  return judge_words(c, sight);
}

/* Did the machine let ranks wait: did one wait in vain for another than that of the case, or longer than
 * it should? */
static bool was_late(const show *s) {
  const fault_case *c = &s->stage->c;
  bool waits = c->kind == FAULT_STALL || c->kind == FAULT_SLOW;
  for (int rank = 0; rank < SCENE_RANKS; rank++) {
    const fault_sight *sight = &s->stage->sights[rank];
    const char *at = strstr(sight->message, "waited ");
    if (at && (!waits || !names(at, "rank %d", c->rank))) return true;
    if (sight->seconds > (waits ? 2.2 : 0.8) * c->limit)
      return true; /* its own end, and that of the others */
  }
  return false;
}

static const char *judge_end(const show *s, int process) {
  const fault_case *c = &s->stage->c;
  if (fault_case_is_gone(c, process))
    return s->results[process] != 128 + SIGKILL     ? "was to be killed"
           : s->stopped != (c->kind == FAULT_STALL) ? "was to be stopped"
                                                    : NULL;
  if (s->results[process] != 0) return "has failed";
  return s->stage->sights[process].leaks ? "leaves descriptors or mappings behind" : NULL;
}

/* What is wrong, and with which process; NULL: nothing. */
static const char *judge(const show *s, int *process_p) {
  const fault_case *c = &s->stage->c;
  const fault_sight *sights = s->stage->sights, *first = &sights[fault_case_is_gone(c, 0)];
  const char *why = NULL;
  for (int p = 0; p < FAULT_PROCESSES && !why; p++) {
    *process_p = p;
    why = judge_end(s, p);
    if (why || p == FAULT_NEWCOMER || fault_case_is_gone(c, p)) continue;
    why = judge_sight(c, &sights[p]);
    if (!why && (sights[p].mode != first->mode || sights[p].fell != first->fell))
      why = "is elsewhere than the others";
    if (!why && (sights[p].resumed != first->resumed || sights[p].digest != first->digest))
      why = "has not resumed as the others, or has another digest";
  }
  return why;
}

/* ---- Running ---- */

static void begin(show *s) {
  bool needs_newcomer = fault_case_is_gone(&s->stage->c, s->stage->c.rank);
  memset(s->stage->sights, 0, sizeof s->stage->sights);
  memset(s->stage->verdicts, 0, sizeof s->stage->verdicts);
  memset(s->results, 0, sizeof s->results);
  snprintf(s->name, sizeof s->name, "%s", ranks_name());
  s->stopped = false;
  s->left = 0;
  s->tries++;
  s->end = treadle_clock_seconds() + LONGEST;
  fflush(NULL);
  for (int p = 0; p < FAULT_PROCESSES; p++) {
    s->ids[p] = 0;
    if (p == FAULT_NEWCOMER && !needs_newcomer) continue;
    s->ids[p] = fork();
    assert_true(s->ids[p] >= 0);
    if (s->ids[p] == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL); /* one that is stopped would stay for ever */
      signal(SIGSEGV, SIG_DFL);
      signal(SIGABRT, SIG_DFL);
      _exit(fault_live(s->stage, s->name, p));
    }
    s->left++;
  }
}

/* A process has ended or was stopped. */
static void note(show *shows, pid_t id, int how) {
  for (int i = 0; i < AT_A_TIME * FAULT_PROCESSES; i++) {
    show *s = &shows[i / FAULT_PROCESSES];
    int p = i % FAULT_PROCESSES;
    if (s->ids[p] != id) continue;
    if (WIFSTOPPED(how)) {
      s->stopped = true;
      return;
    }
    s->results[p] = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
    s->ids[p] = 0;
    s->left--;
  }
}

static void kill_all(show *s) {
  for (int p = 0; p < FAULT_PROCESSES; p++)
    if (s->ids[p] > 0) kill(s->ids[p], SIGKILL);
}

/* The case is over; is it to be tried again? */
static bool end(show *s, tally *t, int *failed_p) {
  const fault_case *c = &s->stage->c;
  char words[400];
  int process = 0;
  const char *why = judge(s, &process);
  if (why && was_late(s) && s->tries < TRIES) {
    fprintf(stderr, "%s: %s, in a case in which a rank was late: once more\n",
            fault_case_words(c, words, sizeof words), why);
    if (c->kind != FAULT_SLOW) s->stage->c.limit *= 4; /* a slow one is slow by the same limit */
    t->again++;
    return true;
  }
  t->cases++;
  t->kinds[c->kind]++;
  const fault_sight *first = &s->stage->sights[fault_case_is_gone(c, 0)];
  t->modes[first->mode]++;
  t->resumed += first->resumed;
  for (int rank = 0; rank < SCENE_RANKS; rank++)
    if (c->limit == 0.5 && s->stage->sights[rank].seconds > t->slowest)
      t->slowest = s->stage->sights[rank].seconds;
  if (!why && only < 0) return false;
  fprintf(stderr, "%s: %s\n", fault_case_words(c, words, sizeof words), why ? why : "all is well");
  if (why)
    fprintf(stderr, "  process %d of them; again: test_switch_faults %llu %d\n", process,
            (unsigned long long)c->seed, c->number);
  for (int p = 0; p < FAULT_PROCESSES; p++)
    fprintf(stderr, "  %d: ended %d; arrow %d, %.2f s, mode %s, intact %d, resumed %d, leaks %d: %s\n", p,
            s->results[p], s->stage->sights[p].fell, s->stage->sights[p].seconds,
            treadle_mode_text(s->stage->sights[p].mode), s->stage->sights[p].intact,
            s->stage->sights[p].resumed, s->stage->sights[p].leaks, s->stage->sights[p].message);
  *failed_p += why != NULL;
  return false;
}

/* What a case still needs from outside. */
static void attend(show *s) {
  int victim = s->stage->c.rank;
  if (s->left == 1 && s->stopped && s->ids[victim] > 0) kill(s->ids[victim], SIGKILL);
  if (treadle_clock_seconds() > s->end) kill_all(s);
}

/* From one case to the next: odd, so that each kind and each rank comes. */
static int case_step(void) { return test_step(fault_case_count()) | 1; }

static void run_all(const scene *of, tally *t, int *failed_p) {
  show shows[AT_A_TIME] = {{0}};
  int next = only < 0 ? 0 : only, last = only < 0 ? fault_case_count() : only + 1, step = case_step(),
      running = 0;
  while (next < last || running > 0) {
    for (int i = 0; i < AT_A_TIME; i++) {
      show *s = &shows[i];
      if (s->tries > 0 && s->left == 0 && !end(s, t, failed_p)) s->tries = 0, running--;
      if (s->left > 0 || (s->tries == 0 && next >= last)) continue;
      if (!s->stage)
        s->stage = mmap(NULL, sizeof *s->stage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
      assert_true(s->stage != MAP_FAILED);
      if (s->tries == 0) fault_case_draw(seed, next, &s->stage->c), next += step, running++;
      s->stage->s = of;
      begin(s);
    }
    int how = 0;
    pid_t id;
    while ((id = waitpid(-1, &how, WNOHANG | WUNTRACED)) > 0) note(shows, id, how);
    for (int i = 0; i < AT_A_TIME; i++)
      if (shows[i].left > 0) attend(&shows[i]);
    nanosleep(&(struct timespec){.tv_nsec = 500 * 1000}, NULL);
  }
  for (int i = 0; i < AT_A_TIME; i++)
    if (shows[i].stage) munmap(shows[i].stage, sizeof *shows[i].stage);
}

/* ---- The test ---- */

/* Local sockets of groups of this program, and files of anybody's in /dev/shm that are called after
 * treadle. */
static int count_traces(void) {
  int count = 0;
  char line[1024], own[48];
  snprintf(own, sizeof own, "-test%dx", (int)getpid());
  FILE *sockets = fopen("/proc/net/unix", "re");
  while (sockets && fgets(line, sizeof line, sockets)) count += strstr(line, own) != NULL;
  if (sockets) fclose(sockets);
  DIR *folder = opendir("/dev/shm");
  for (struct dirent *entry; folder && (entry = readdir(folder));)
    count += strstr(entry->d_name, "treadle") != NULL;
  if (folder) closedir(folder);
  return count;
}

static void test_faults(void **state) {
  scene s;
  tally t = {0};
  int failed = 0, before = count_traces();
  (void)state;
  scene_init(&s);
  print_message("seed %llu, one of %d of %d cases\n", (unsigned long long)seed, case_step(),
                fault_case_count());
  run_all(&s, &t, &failed);
  scene_release(&s);
  print_message("%d killed, %d stopped, %d without memory, %d slow, %d binds, %d unbinds; %d tried again\n",
                t.kinds[FAULT_KILL], t.kinds[FAULT_STALL], t.kinds[FAULT_ENOMEM], t.kinds[FAULT_SLOW],
                t.kinds[FAULT_BIND], t.kinds[FAULT_UNBIND], t.again);
  print_message(
      "left in train %d, infer %d, host %d, lost %d; %d went on; the slowest survivor took %.1f s\n",
      t.modes[TREADLE_TRAIN], t.modes[TREADLE_INFER], t.modes[TREADLE_HOST], t.modes[TREADLE_LOST],
      t.resumed, t.slowest);
  assert_int_equal(count_traces(), before);
  assert_int_equal(fault_leaks(), 0);
  assert_int_equal(failed, 0);
  assert_true(t.again <= 2 + t.cases / 10); /* or it is not the machine */
  if (only >= 0) return;
  assert_true((t.kinds[FAULT_KILL] + t.kinds[FAULT_STALL]) * case_step() >= 500);
  assert_true(t.modes[TREADLE_TRAIN] && t.modes[TREADLE_INFER] && t.modes[TREADLE_HOST] &&
              t.modes[TREADLE_LOST]);
}

int main(int count, char **arguments) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_faults)};
  if (count > 1) seed = strtoull(arguments[1], NULL, 10);
  if (count > 2) only = atoi(arguments[2]);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
