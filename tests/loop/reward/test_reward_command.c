/* The reward `command`: what processes may do, and what is said of those that do something else. Processes are lines of shell. */
#include "test.h"

#include "base/clock.h"
#include "treadle_loop.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Scores 0.5, whatever comes. */
#define ANSWERS "s/.*\"id\": \"\\([^\"]*\\)\".*/{\"id\": \"\\1\", \"score\": 0.5}/"

enum { SAMPLES = 40 };

static treadle_status open_command(const char *command, int parallel, treadle_reward **reward_p) {
  treadle_reward_options options = TREADLE_INIT(treadle_reward_options);
  options.name = "command";
  options.command = command;
  options.parallel = parallel;
  options.timeout_seconds = 20;
  return treadle_reward_create(&options, reward_p);
}

/* `count` samples with ids 0, 1, .. and this completion. */
static treadle_status score_all(treadle_reward *reward, int count, const char *completion, size_t bytes,
                                double *scores, char **preds) {
  treadle_reward_sample *samples = calloc((size_t)count, sizeof *samples);
  char(*ids)[16] = calloc((size_t)count, sizeof *ids);
  assert_true(samples && ids);
  for (int i = 0; i < count; i++) {
    snprintf(ids[i], sizeof ids[i], "%d", i);
    samples[i] = (treadle_reward_sample){
        .id = ids[i], .completion = completion, .completion_bytes = bytes, .answer = "7"};
  }
  treadle_status status = treadle_reward_start(reward, samples, (size_t)count);
  if (!status) status = treadle_reward_wait(reward, scores, preds);
  free(samples);
  free(ids);
  return status;
}

static treadle_status score_with(const char *command, int parallel, int count) {
  double scores[SAMPLES];
  treadle_reward *reward = NULL;
  treadle_status status = open_command(command, parallel, &reward);
  if (!status) status = score_all(reward, count, "x", 1, scores, NULL);
  for (int i = 0; !status && i < count; i++) assert_true(scores[i] == 0.5);
  treadle_reward_destroy(reward);
  return status;
}

/* More than 64 bits have, and still a number. */
static void test_large(void **state) {
  (void)state;
  double score;
  treadle_reward *reward = NULL;
  assert_ok(
      open_command("read l; echo '{\"id\": \"0\", \"score\": -100000000000000000000}'; cat", 1, &reward));
  assert_ok(score_all(reward, 1, "x", 1, &score, NULL));
  assert_true(score == -1e20);
  treadle_reward_destroy(reward);
}

static double processor_seconds(void) {
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  return (double)used.ru_utime.tv_sec + (double)used.ru_stime.tv_sec +
         (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

/* What is wrong ends the batch, and is said precisely. */
static void test_refused(void **state) {
  (void)state;
  static const char *const commands[][2] = {
      {"exit 3", "ended with status 3, with 2 samples to answer"},
      {"kill -9 $$", "ended by signal 9, with 2 samples to answer"},
      {"exec >&- <&-; sleep 100", "closed its output, with 2 samples to answer"},
      {"read l; echo nonsense; cat", "wrote 'nonsense': it is not a JSON object"},
      {"read l; echo '[1]'; cat", "wrote '[1]': it is not a JSON object"},
      {"read l; echo '{\"score\": 1}'; cat", "it has no text id"},
      {"read l; echo '{\"id\": 0, \"score\": 1}'; cat", "it has no text id"},
      {"read l; echo '{\"id\": \"x\", \"score\": 1}'; cat", "it was given no sample with this id"},
      {"read l; echo '{\"id\": \"0\\u0000\", \"score\": 1}'; cat", "it was given no sample with this id"},
      {"read l; echo '{\"id\": \"0\", \"score\": 1}'; echo '{\"id\": \"0\", \"score\": 1}'; cat",
       "this sample has its score already"},
      {"read l; echo '{\"id\": \"0\"}'; cat", "its score is not a finite number"},
      {"read l; echo '{\"id\": \"0\", \"score\": \"1\"}'; cat", "its score is not a finite number"},
      {"read l; echo '{\"id\": \"0\", \"score\": NaN}'; cat",
       "'{\"id\": \"0\", \"score\": NaN}': its score is not a finite number"},
      {"read l; echo '{\"id\":\"0\",\"score\":-Infinity}'; cat", "its score is not a finite number"},
      {"read l; echo '{\"score\" : Infinity, \"id\": \"0\"}'; cat", "its score is not a finite number"},
      {"read l; echo '{\"id\": \"0\", \"score\": inf}'; cat", "it is not a JSON object"},
      {"read l; echo '{\"id\": \"0\", \"score\": 1e999}'; cat", "its score is not a finite number"},
      {"read l; echo '{\"id\": \"0\", \"score\": null}'; cat", "its score is not a finite number"},
      {"read l; echo '{\"id\": \"0\", \"score\": -1e39}'; cat", "its score is beyond the range of fp32"},
      {"read l; echo '{\"id\": \"0\", \"score\": 1, \"pred\": NaN}'; cat", "its pred is not a text"},
      {"read l; echo '{\"id\": \"0\", \"score\": 1, \"pred\": 3}'; cat", "its pred is not a text"},
      {"head -c 1200000 /dev/zero | tr '\\0' x; cat", "wrote a line of more than 1048576 bytes"}};
  for (size_t i = 0; i < TEST_COUNT(commands); i++)
    assert_refused(commands[i][1], score_with(commands[i][0], 1, 2));
}

/* Samples of a process are its own: those of another it does not know. */
static void test_own_samples(void **state) {
  (void)state;
  assert_refused(
      "it was given no sample with this id",
      score_with("read l; case $l in *'\"1\"'*) sleep 10;; esac; echo '{\"id\": \"1\", \"score\": 1}'; cat",
                 2, 2));
}

/* A process that has answered all and ended, beside one that takes its time. */
static void test_ended(void **state) {
  (void)state;
  double before = processor_seconds();
  assert_ok(
      score_with("read l; case $l in *'\"1\"'*) sleep 1;; esac; echo \"$l\" | sed '" ANSWERS "'", 2, 2));
  double used = processor_seconds() - before;
  if (used > 0.5) fail_msg("%.2f s of a processor to wait for a second", used);
}

/* The next batch needs it: then it is missed. */
static void test_ended_before(void **state) {
  (void)state;
  double scores[2];
  treadle_reward *reward = NULL;
  assert_ok(open_command("read l; echo \"$l\" | sed '" ANSWERS "'", 1, &reward));
  assert_ok(score_all(reward, 1, "x", 1, scores, NULL));
  assert_refused("ended with status 0, with 1 sample to answer",
                 score_all(reward, 1, "x", 1, scores, NULL));
  assert_ok(score_all(reward, 1, "x", 1, scores, NULL)); /* processes are started again */
  treadle_reward_destroy(reward);
}

/* More than the buffers of a socket hold: answers come before all has been read, and some is never read. */
static void test_does_not_read(void **state) {
  (void)state;
  enum { LONG = 1 << 20 };
  char *text = calloc(1, LONG);
  double scores[SAMPLES];
  treadle_reward *reward = NULL;
  assert_non_null(text);
  memset(text, 'x', LONG);
  assert_ok(open_command(
      "for i in 0 1 2 3 4 5; do echo \"{\\\"id\\\": \\\"$i\\\", \\\"score\\\": 0.5}\"; done", 1, &reward));
  assert_ok(score_all(reward, 6, text, LONG, scores, NULL));
  assert_true(scores[5] == 0.5);
  treadle_reward_destroy(reward);
  assert_ok(open_command("for i in 0 1 2 3 4 5; do echo \"{\\\"id\\\": \\\"$i\\\", \\\"score\\\": 0.5}\"; "
                         "done; cat >/dev/null",
                         1, &reward));
  assert_ok(score_all(reward, 6, text, LONG, scores, NULL));
  treadle_reward_destroy(reward);
  free(text);
}

/* All together have a second to end. */
static void test_end_together(void **state) {
  (void)state;
  treadle_reward *reward = NULL;
  assert_ok(open_command("trap '' TERM; while :; do sleep 1; done", 8, &reward));
  double begin = treadle_clock_seconds();
  treadle_reward_destroy(reward);
  double seconds = treadle_clock_seconds() - begin;
  if (seconds > 4) fail_msg("8 processes took %.1f s to end", seconds);
}

/* In a process of its own: it is killed while the command, and what that has started, sleep. */
static void run_and_die(const char *path, bool scores) {
  char command[500];
  treadle_reward *reward = NULL;
  snprintf(command, sizeof command, "echo $$ >>%s; sleep 1000 & echo $! >>%s; wait", path, path);
  if (open_command(command, 2, &reward)) _exit(1);
  while (access(path, F_OK) != 0) usleep(10000);
  const treadle_reward_sample sample = {.id = "0"};
  if (scores && treadle_reward_start(reward, &sample, 1)) _exit(1);
  usleep(300000);
  raise(SIGKILL);
}

/* Not where it is a zombie, which waits for a parent that may not look soon. */
static bool is_alive(int pid) {
  char path[64], state = 'Z';
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  FILE *file = fopen(path, "r");
  if (!file) return false;
  if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1) state = 'Z';
  fclose(file);
  return state != 'Z' && state != 'X';
}

static void test_killed(void **state) {
  (void)state;
  for (int scores = 0; scores < 2; scores++) {
    char path[100];
    int pids[4], status, count = 0;
    snprintf(path, sizeof path, "%s/pids", test_folder());
    pid_t child = fork();
    if (child == 0) run_and_die(path, scores);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (count < 4 && fscanf(file, "%d", &pids[count]) == 1) count++;
    fclose(file);
    assert_int_equal(count, 4);
    for (int i = 0; i < 4; i++) {
      for (int turn = 0; turn < 300 && is_alive(pids[i]); turn++) usleep(10000);
      if (is_alive(pids[i])) fail_msg("process %d is alive", pids[i]);
    }
    *strrchr(path, '/') = 0;
    test_remove(path);
  }
}

static void test_zero_bytes(void **state) {
  (void)state;
  double scores[1];
  char *preds[1];
  treadle_reward *reward = NULL;
  /* the command sees the six characters \u0000, and answers with them */
  assert_ok(open_command(
      "while read -r l; do case $l in *'\"a\\u0000b\"'*) echo '{\"id\": \"0\", \"score\": 1, \"pred\": "
      "\"c\\u0000d\"}';; *) exit 5;; esac; done",
      1, &reward));
  assert_ok(score_all(reward, 1, "a\0b", 3, scores, preds));
  assert_true(scores[0] == 1);
  assert_true(memcmp(preds[0], "c\0d", 4) == 0);
  free(preds[0]);
  treadle_reward_destroy(reward);
}

/* As many as verifier_parallel takes; and as many as there are files for. */
static void test_many(void **state) {
  (void)state;
  enum { MANY = 1024 };
  static double scores[MANY];
  struct rlimit before, most;
  treadle_reward *reward = NULL;
  getrlimit(RLIMIT_NOFILE, &before);
  most = before;
  most.rlim_cur = 200;
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &most), 0);
  assert_refused("reward 'command': 1024 processes need 1088 open files, and the limit is 200 (ulimit -n)",
                 open_command("cat", MANY, &reward));
  most.rlim_cur = most.rlim_max;
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &most), 0);
  if (most.rlim_cur < MANY + 64) return;
  assert_ok(open_command(
      "read l; l=${l#*: ?}; echo \"{\\\"id\\\": \\\"${l%%\\\"*}\\\", \\\"score\\\": 0.5}\"; cat", MANY,
      &reward));
  assert_ok(score_all(reward, MANY, "x", 1, scores, NULL));
  for (int i = 0; i < MANY; i++) assert_true(scores[i] == 0.5);
  treadle_reward_destroy(reward);
  assert_refused("parallel 1025, 0 to 1024 are taken", open_command("cat", MANY + 1, &reward));
  setrlimit(RLIMIT_NOFILE, &before);
}

static void test_memory(void **state) {
  (void)state;
  TEST_EACH_ALLOCATION(score_with("sed -u '" ANSWERS "'", 2, 3));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_refused),      cmocka_unit_test(test_own_samples),
      cmocka_unit_test(test_large),        cmocka_unit_test(test_ended),
      cmocka_unit_test(test_ended_before), cmocka_unit_test(test_does_not_read),
      cmocka_unit_test(test_end_together), cmocka_unit_test(test_killed),
      cmocka_unit_test(test_zero_bytes),   cmocka_unit_test(test_many),
      cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
