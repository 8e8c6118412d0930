/* treadle convert: two at once into one folder, 200 times at random moments, or fewer with TREADLE_PERCENT. One has the folder, the other leaves it be.
 * ctest: stage=gcc timeout=600 */
#include "cli/conversion.h"

#include "base/clock.h"
#include "seeds.h"
#include "test.h"

#include <signal.h>
#include <sys/stat.h>

#define SIZES                                                                                              \
  "\"vocab_size\": 2000, \"hidden_size\": 128, \"num_attention_heads\": 4, \"intermediate_size\": 256, "
static const char model[] =
    "{\"model_type\": \"llama\", \"dtype\": \"bfloat16\", " SIZES
    "\"num_key_value_heads\": 2, \"num_hidden_layers\": 4, \"tie_word_embeddings\": false}";
static const char from[] = "hf", to[] = "megatron";
enum { STARTS = 200 };

static const char *const inputs[] = {"a", "b"}, *const results[] = {"result-a", "result-b"},
                         *const said[] = {"said-a", "said-b"};

static int begin(void **state) {
  (void)state;
  if (!getenv("TREADLE")) return 0;
  conversion_make("a", model, 0, false);
  conversion_change_values("a", "b"); /* the same shapes */
  for (int i = 0; i < 2; i++) conversion_run(from, to, inputs[i], results[i]);
  assert_false(conversion_is(results[0], results[1]));
  return 0;
}

static double seconds_of_one(void) {
  double begun = treadle_clock_seconds();
  conversion_run(from, to, "a", "there");
  return treadle_clock_seconds() - begun;
}

static void one_has_the_folder(void **state) {
  (void)state;
  if (!getenv("TREADLE")) skip();
  uint64_t seed = 88172645463325252u;
  double one = seconds_of_one();
  int blocked = 0, late = 0;
  for (int k = 0; k < (int)test_seeds(STARTS); k++) {
    int first = (int)conversion_draw(&seed, 2), exits[2];
    pid_t pids[2];
    conversion_remove("there"); /* new, or empty */
    if (conversion_draw(&seed, 2)) assert_int_equal(mkdir(conversion_at("there"), 0777), 0);
    pids[first] = conversion_start(from, to, inputs[first], "there", said[first]);
    conversion_sleep(one * (double)conversion_draw(&seed, 1000) / 1000);
    pids[!first] = conversion_start(from, to, inputs[!first], "there", said[!first]);
    for (int i = 0; i < 2; i++) exits[i] = conversion_wait(pids[i]);
    int winner = exits[0] == 0 ? 0 : 1, loser = !winner;
    bool held = exits[loser] == 2 && conversion_said(said[loser], "another treadle writes here");
    bool done = exits[loser] == 2 && conversion_said(said[loser], "is not empty");
    blocked += held;
    late += done;
    if (exits[winner] != 0 || held == done || !conversion_is("there", results[winner]))
      fail_msg("start %d: exit statuses %d and %d, %s", k, exits[0], exits[1],
               conversion_is("there", results[winner]) ? "the winner's result" : "no one's result");
  }
  print_message("%d were kept out, %d came late\n", blocked, late);
  assert_true(blocked > 0);
}

/* A run that does not get far leaves what it found. */
static void leaves_nothing(void **state) {
  (void)state;
  if (!getenv("TREADLE")) skip();
  conversion_remove("none");
  conversion_refused(2, "has no experts", from, "megatron:ep=3", "a", "none");
  assert_int_not_equal(access(conversion_at("none"), F_OK), 0);
  assert_int_equal(
      conversion_shell("mkdir '%s' && touch '%s/mine'", conversion_at("none"), conversion_at("none")), 0);
  conversion_refused(2, "is not empty (it has mine)", from, to, "a", "none");
  assert_int_equal(conversion_shell("test \"$(ls -A '%s')\" = mine", conversion_at("none")), 0);
}

/* Whoever is killed keeps nobody out, and what it has written is taken up, or, by another's hand, refused. */
static void killed(void **state) {
  (void)state;
  if (!getenv("TREADLE")) skip();
  uint64_t seed = 362436069;
  double one = seconds_of_one();
  for (int k = 0; k < 20; k++) {
    conversion_remove("there");
    pid_t pid = conversion_start(from, to, "a", "there", "said-a");
    conversion_sleep(one * (double)conversion_draw(&seed, 1000) / 1000);
    kill(pid, SIGKILL);
    if (conversion_wait(pid) == 0) continue;
    bool unfinished = conversion_shell("test -e '%s/treadle-convert.json'", conversion_at("there")) == 0;
    bool found =
        conversion_shell("test -e '%s/latest_checkpointed_iteration.txt'", conversion_at("there")) == 0;
    if (found && !unfinished) { /* all was done, but for the lock */
      assert_int_equal(conversion_shell("rm -f '%s/treadle.lock'", conversion_at("there")), 0);
      conversion_same("there", "result-a");
      continue;
    }
    if (unfinished) conversion_refused(2, "of other files or layouts", from, to, "b", "there");
    assert_int_equal(conversion_wait(conversion_start(from, to, "a", "there", "said-a")), 0);
    conversion_same("there", "result-a");
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(one_has_the_folder), cmocka_unit_test(leaves_nothing),
                                     cmocka_unit_test(killed)};
  return cmocka_run_group_tests(tests, begin, command_teardown);
}
