/* Commands at a terminal: text of a model that is shown and not obeyed, and progress of treadle generate, train and eval. */
#include "cli/command.h"
#include "cli/engine_folder.h"

#include "base/clock.h"
#include "base/text.h"
#include "test.h"
#include "token/text_files.h"

#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>

/* Runs it at a new terminal until it ends or has printed `words`; what it printed. */
static treadle_builder run_at_terminal(const char *arguments, const char *words) {
  treadle_builder out = {0};
  char command[1024], bytes[4096];
  int terminal, ended;
  double end = treadle_clock_seconds() + 60;
  snprintf(command, sizeof command, "exec \"$TREADLE\" %s", arguments);
  pid_t child = forkpty(&terminal, NULL, NULL, NULL);
  assert_true(child >= 0);
  if (child == 0) {
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
  }
  while (treadle_clock_seconds() < end && !(words && out.text && strstr(out.text, words))) {
    struct pollfd ready = {.fd = terminal, .events = POLLIN};
    if (poll(&ready, 1, 1000) <= 0) continue;
    ssize_t got = read(terminal, bytes, sizeof bytes);
    if (got <= 0) break;
    treadle_builder_add_bytes(&out, bytes, (size_t)got);
  }
  kill(child, SIGKILL);
  waitpid(child, &ended, 0);
  close(terminal);
  return out;
}

/* Every token of this tokenizer is an escape that clears the terminal. */
static void test_shown(void **state) {
  (void)state;
  const char *model = engine_folder("qwen2-tied");
  char arguments[300];
  treadle_builder json = {0};
  treadle_builder_add(&json, "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0");
  for (int id = 1; id < ENGINE_VOCABULARY; id++)
    treadle_builder_add(&json, ", \"\\u001b[%dJ\": %d", id, id);
  treadle_builder_add(&json, "}, \"merges\": []}, \"decoder\": {\"type\": \"Fuse\"}}");
  text_write(model, "tokenizer.json", json.text, json.length);
  /* the folder's names tokens that this tokenizer has not */
  text_write(model, "tokenizer_config.json", "{}", 2);
  treadle_builder_release(&json);
  snprintf(arguments, sizeof arguments, "generate --model %s --prompt a --max-new-tokens 5 --ignore-eos",
           model);
  treadle_builder out = run_at_terminal(arguments, NULL);
  if (!strstr(out.text, "\\x1b[") || strchr(out.text, 0x1b) ||
      !strstr(out.text, "J\r\n1 sample, 5 new tokens"))
    fail_msg("printed: %s", out.text);
  treadle_builder_release(&out);
}

/* After two seconds, while there is work. */
static void test_progress(void **state) {
  (void)state;
  char arguments[300];
  snprintf(arguments, sizeof arguments,
           "generate --model %s --file %s --max-new-tokens 200 --n 60000 --ignore-eos --out %s",
           engine_folder("qwen2-tied"), command_write("in.jsonl", "{\"prompt\": \"Hello\"}\n"),
           command_path("never"));
  treadle_builder out = run_at_terminal(arguments, " tokens/s");
  const char *at = out.text ? strstr(out.text, "samples ") : NULL;
  long long done = 0, all = 0, tokens = 0, rate = 0;
  if (!at ||
      sscanf(at, "samples %lld of %lld, %lld tokens, %lld tokens/s", &done, &all, &tokens, &rate) != 4)
    fail_msg("printed: %s", out.text ? out.text : "nothing");
  assert_int_equal(all, 60000);
  assert_true(done < all && tokens > 0 && rate > 0);
  treadle_builder_release(&out);
}

/* Samples of a step, and of a test. */
static void expect_progress(const char *arguments) {
  treadle_builder out = run_at_terminal(arguments, "generating ");
  const char *at = out.text ? strstr(out.text, "generating ") : NULL;
  if (!at) fail_msg("%s printed: %s", arguments, out.text ? out.text : "nothing");
  treadle_builder_release(&out);
}

static void test_rl_progress(void **state) {
  (void)state;
  static const char policy[] = TREADLE_SOURCE_DIR "/examples/sequence/policy";
  static char data[1 << 16], config[2000];
  char arguments[1000];
  size_t length = 0;
  for (int i = 0; i < 900; i++)
    length += (size_t)snprintf(data + length, sizeof data - length,
                               "{\"prompt\": \"%d,%d:9,5\", \"answer\": \"1\"}\n", i % 10, i / 10 % 10);
  char prompts[300];
  snprintf(prompts, sizeof prompts, "%s", command_write("prompts.jsonl", data));
  snprintf(config, sizeof config,
           "megatron_training: {tokenizer_name_or_path: %s, data_path: %s, train_iters: 2, "
           "global_batch_size: 900}\n"
           "actor_config: {model: %s, save: %s, micro_batch_size: 64}\n"
           "generate_config: {sampling_config: {max_tokens: 64}}\n"
           "rl_config: {n_samples_per_prompt: 16, max_prompt_length: 16, verifier_function: [sequence]}\n",
           TREADLE_SOURCE_DIR "/examples/sequence", prompts, policy, command_path("run"));
  snprintf(arguments, sizeof arguments, "train %s --threads 1", command_write("grpo.yaml", config));
  expect_progress(arguments);
  snprintf(arguments, sizeof arguments,
           "eval %s --data %s --reward sequence --n 500 --max-new-tokens 64 --threads 1", policy, prompts);
  expect_progress(arguments);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_shown), cmocka_unit_test(test_progress),
                                     cmocka_unit_test(test_rl_progress)};
  return cmocka_run_group_tests(tests, NULL, command_teardown);
}
