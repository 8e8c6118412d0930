/* treadle switch --fault under a launcher that lets the others live: a rank is killed or stopped, is slow
 * or out of memory; the survivors return in time, name rank, tensor and wave, and hold what they held; the
 * launcher ends. ctest: label=mpi timeout=600 */
#include "cli/command.h"

#include "base/clock.h"
#include "test.h"

#include <signal.h>
#include <sys/wait.h>

enum { RANKS = 4, NO_LAUNCHER = 77 };

static const char *model;

typedef struct launcher {
  const char *words;
  bool outlives; /* a process that was killed */
} launcher;

static const launcher *mine;

static const char *from_environment(const char *name, const char *otherwise) {
  const char *value = getenv(name);
  return value && *value ? value : otherwise;
}

/* Launchers that let the others live when one fails: Open MPI's, and MPICH's Hydra, which ends all the
 * same whoever is left when one is killed. */
static const launcher launchers[] = {{"--enable-recovery --oversubscribe", true},
                                     {"-disable-auto-cleanup", false}};

static const launcher *find_launcher(void) {
  char command[512];
  for (size_t i = 0; i < TEST_COUNT(launchers); i++) {
    snprintf(command, sizeof command, "'%s' %s -n 1 true >%s/launcher 2>&1 </dev/null",
             from_environment("MPIEXEC", "mpirun"), launchers[i].words, command_folder());
    if (system(command) == 0) return &launchers[i];
  }
  return NULL;
}

static char *read_text(const char *name) {
  char path[200];
  static char text[32768];
  snprintf(path, sizeof path, "%s/%s", command_folder(), name);
  FILE *file = fopen(path, "r");
  text[file ? fread(text, 1, sizeof text - 1, file) : 0] = 0;
  if (file) fclose(file);
  return text;
}

typedef struct fault {
  const char *spec, *keep, *more;
  bool in_waves; /* tensor and wave are to be named */
  bool may_lose; /* pages were used again, and nothing else kept them */
} fault;

static const fault faults[] = {
    {"kill:rank=0,wave=0", "host", "", true, false},
    {"kill:rank=1,wave=2", "host", "--alias off", true, false},
    {"kill:rank=2,wave=5", "host", "--offload params,grads=keep,optimizer", true, false},
    {"kill:rank=3,wave=99", "host", "--offload params,optimizer --alias off", true, false},
    {"kill:rank=0,wave=7", "infer", "", true, true},
    {"kill:rank=3,wave=0", "infer", "", true, false},
    {"kill:rank=1,phase=entry", "host", "", false, false},
    {"kill:rank=2,phase=offload", "host", "--offload params,grads,optimizer", false, false},
    {"kill:rank=3,phase=commit", "host", "--offload params,grads", false, false},
    {"kill:rank=0,phase=committed", "host", "", false, false},
    {"kill:rank=1,phase=bind", "host", "--alias off", false, false},
    {"kill:rank=0,phase=kv", "host", "", false, false},
    {"stall:rank=0,wave=3", "host", "", true, false},
    {"stall:rank=1,wave=0", "host", "--offload params,grads=keep", true, false},
    {"stall:rank=2,wave=99", "host", "--alias off", true, false},
    {"stall:rank=3,wave=4", "infer", "", true, true},
    {"stall:rank=0,phase=entry", "infer", "", false, false},
    {"stall:rank=1,phase=commit", "host", "--offload params,optimizer", false, false},
    {"stall:rank=2,phase=committed", "host", "", false, false},
    {"stall:rank=3,phase=kv", "host", "--offload params,grads=keep,optimizer", false, false},
    {"enomem:rank=1,wave=3", "host", "", true, false},
    {"enomem:rank=0,phase=bind", "host", "", false, false},
    {"slow:rank=2,wave=1", "host", "", true, false},
    {"cancel:rank=2,wave=3", "host", "--offload params,optimizer", false, false},
    {"cancel:rank=1,wave=7", "infer", "", false, true},
    {"cancel:rank=3,phase=committed", "host", "", false, false},
};

/* Runs it; each process says its exit status in a file of its own, and ends as it did. Returns how long
 * that took. */
static double run(const fault *f) {
  static const char wrapper[] =
      "trap : USR1; \"$0\" \"$@\"; r=$?; echo $r >$OUT.${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; "
      "test $r -gt 128 && kill -9 $$; exit $r";
  char command[2048];
  const char *folder = command_folder();
  snprintf(
      command, sizeof command,
      "rm -f %s/rc.*; OUT=%s/rc '%s' %s -n %d sh -c '%s' '%s' switch --model %s "
      "--train megatron:tp=2,pp=2 --infer vllm:tp=4 --page-size 16KiB --cap 2MiB --keep %s %s --fault %s "
      "--timeout 1 --json >%s/out 2>%s/err </dev/null",
      folder, folder, from_environment("MPIEXEC", "mpirun"), mine->words, RANKS, wrapper,
      from_environment("TREADLE", "build/treadle"), model, f->keep, f->more, f->spec, folder, folder);
  double start = treadle_clock_seconds();
  int ended = system(command);
  assert_true(WIFEXITED(ended));
  return treadle_clock_seconds() - start;
}

static json_t *read_report(const fault *f) {
  json_error_t error;
  const char *text = strchr(read_text("out"), '{');
  json_t *root = text ? json_loads(text, JSON_DISABLE_EOF_CHECK, &error) : NULL;
  if (!root) fail_msg("%s: no JSON in\n%s\n%s", f->spec, read_text("out"), read_text("err"));
  return root;
}

static void check_exits(const fault *f, int victim, bool gone) {
  for (int rank = 0; rank < RANKS; rank++) {
    char name[16];
    snprintf(name, sizeof name, "rc.%d", rank);
    int status = atoi(read_text(name));
    if (status != (gone && rank == victim ? 128 + SIGKILL : 1))
      fail_msg("%s: rank %d has ended with %d\n%s", f->spec, rank, status, read_text("err"));
  }
}

static void check_report(const fault *f, bool gone) {
  json_t *root = read_report(f), *report = json_object_get(root, "fault");
  int survivors = RANKS - gone;
  assert_int_equal(json_object_size(report), 6);
  assert_string_equal(json_string_value(json_object_get(report, "injected")), f->spec);
  assert_int_equal(json_integer_value(json_object_get(report, "survivors")), survivors);
  assert_int_equal(json_integer_value(json_object_get(report, "returned")), survivors);
  assert_int_equal(json_integer_value(json_object_get(report, "leaked")), 0);
  assert_string_equal(json_string_value(json_object_get(root, "check")), "fail");
  double seconds = json_number_value(json_object_get(report, "max_seconds"));
  if (!(seconds > 0 && seconds < 5)) fail_msg("%s: the slowest survivor took %.2f s", f->spec, seconds);
  bool unchanged = json_is_true(json_object_get(report, "digest_unchanged"));
  bool lost = strstr(read_text("err"), "the weights are lost") != NULL;
  if (unchanged == lost || (lost && !f->may_lose))
    fail_msg("%s: unchanged %d, lost %d\n%s", f->spec, unchanged, lost, read_text("err"));
  json_decref(root);
}

/* Each survivor's line names the rank; and where, when that was in a wave. */
static void check_words(const fault *f, int victim, bool gone) {
  char begin[40], named[16], err[32768];
  snprintf(err, sizeof err, "%s", read_text("err"));
  snprintf(named, sizeof named, "rank %d", victim);
  for (int rank = 0; rank < RANKS; rank++) {
    if (gone && rank == victim) continue;
    snprintf(begin, sizeof begin, "treadle switch: rank %d: ", rank);
    char *line = strstr(err, begin), *end = line ? strchr(line, '\n') : NULL;
    if (!end) fail_msg("%s: rank %d says nothing in\n%s", f->spec, rank, err);
    *end = 0;
    line += strlen(begin);
    if (!strstr(line, named) || (f->in_waves && (!strstr(line, "wave ") || !strstr(line, "tensor '"))))
      fail_msg("%s: rank %d says '%s'", f->spec, rank, line);
    *end = '\n';
  }
}

static void survivors_return(void **state) {
  double slowest = 0;
  int count = 0;
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(faults); i++) {
    const fault *f = &faults[i];
    bool gone = f->spec[0] == 'k' || strncmp(f->spec, "stall", 5) == 0;
    int victim = strstr(f->spec, "rank=")[5] - '0';
    if (f->spec[0] == 'k' && !mine->outlives) continue;
    double seconds = run(f);
    count++;
    if (seconds > slowest) slowest = seconds;
    if (!gone || mine->outlives) check_exits(f, victim, gone);
    check_report(f, gone);
    check_words(f, victim, gone);
  }
  print_message("%d of %zu faults, the slowest run took %.1f s\n", count, TEST_COUNT(faults), slowest);
}

static int make_model(void **state) {
  (void)state;
  model = command_model("--layers 4 --hidden 256 --vocab 1000");
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(survivors_return)};
  mine = find_launcher();
  if (!mine) {
    printf("skipped: '%s' knows neither --enable-recovery nor -disable-auto-cleanup, and would end the "
           "survivors\n",
           from_environment("MPIEXEC", "mpirun"));
    command_end();
    return NO_LAUNCHER;
  }
  return cmocka_run_group_tests(tests, make_model, command_teardown);
}
