/* treadle convert: kills, a disk that fills up, and taking up what they left.
 * ctest: timeout=600 */
#include "cli/conversion.h"

#include "test.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#define SIZES                                                                                              \
  "\"vocab_size\": 100, \"hidden_size\": 32, \"num_attention_heads\": 4, \"intermediate_size\": 48, "
static const char tied[] =
    "{\"model_type\": \"llama\", \"dtype\": \"bfloat16\", " SIZES
    "\"num_key_value_heads\": 2, \"num_hidden_layers\": 4, \"tie_word_embeddings\": true}";
static const char long_one[] =
    "{\"model_type\": \"qwen3\", \"dtype\": \"bfloat16\", \"vocab_size\": 4000, "
    "\"hidden_size\": 512, \"num_attention_heads\": 8, \"intermediate_size\": 1408, "
    "\"num_key_value_heads\": 4, \"num_hidden_layers\": 8, \"head_dim\": 64}";

/* Bytes and whole files below a folder. */
static void measure(const char *folder, int64_t *bytes, int *files) {
  DIR *listing = opendir(folder);
  if (!listing) return;
  for (struct dirent *entry; (entry = readdir(listing));) {
    char path[600];
    struct stat about;
    if (entry->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    if (lstat(path, &about)) continue;
    if (S_ISDIR(about.st_mode)) measure(path, bytes, files);
    if (S_ISREG(about.st_mode)) *bytes += about.st_size;
    if (strcmp(entry->d_name, "model_optim_rng.pt") == 0) ++*files;
  }
  closedir(listing);
}

/* Starts a conversion and kills it when the folder holds this many bytes and files. True: it was killed, false: it had
 * ended, well. */
static bool run_and_kill(const char *in, const char *out, int64_t bytes, int files) {
  const char *command = getenv("TREADLE");
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    int null = open("/dev/null", O_RDWR);
    dup2(null, 1);
    dup2(null, 2);
    execl(command, command, "convert", "--from", "hf", "--to", "megatron:tp=4,pp=2", in, out, (char *)NULL);
    _exit(127);
  }
  int ended;
  while (waitpid(pid, &ended, WNOHANG) == 0) {
    int64_t have_bytes = 0;
    int have_files = 0;
    measure(out, &have_bytes, &have_files);
    if (have_bytes >= bytes && have_files >= files) {
      kill(pid, SIGKILL);
      assert_int_equal(waitpid(pid, &ended, 0), pid);
      if (WIFSIGNALED(ended)) return true;
      break;
    }
    nanosleep(&(struct timespec){.tv_nsec = 200 * 1000}, NULL);
  }
  assert_true(WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
  return false;
}

static void killed_and_taken_up(void **state) {
  (void)state;
  enum { KILLS = 20 };
  if (!getenv("TREADLE")) skip();
  conversion_make("hf", long_one, 2, false);
  conversion_run("hf", "megatron:tp=4,pp=2", "hf", "whole");
  int64_t bytes = 0;
  int files = 0;
  measure(conversion_at("whole"), &bytes, &files);
  conversion_remove("there");
  char in[256], out[256];
  snprintf(in, sizeof in, "%s", conversion_at("hf"));
  snprintf(out, sizeof out, "%s", conversion_at("there"));
  bool going = true;
  uint64_t seed = 88172645463325252u; /* xorshift: moments that look random and are the same in each run */
  for (int k = 0; k < KILLS && going; k++) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    going = run_and_kill(in, out, bytes * k / KILLS + (int64_t)(seed % (uint64_t)(bytes / KILLS)), 0);
  }
  int there_files = 0;
  int64_t there_bytes = 0;
  measure(out, &there_bytes, &there_files);
  if (going) {
    char arguments[700];
    snprintf(arguments, sizeof arguments, "convert --from hf --to megatron:tp=4,pp=2 %s %s", in, out);
    json_t *root = command_json(0, 0, arguments);
    json_int_t resumed = json_integer_value(json_object_get(root, "resumed"));
    /* A kill may fall between a file's name and the note that it is whole: that file is made again. */
    assert_true(resumed == there_files || resumed == there_files - 1);
    json_decref(root);
  }
  assert_int_equal(conversion_shell("diff -r '%s' '%s' >&2", conversion_at("whole"), out), 0);
}

/* Other inputs do not take up what these began; nor does the folder of another one count as new. */
static void only_its_own(void **state) {
  (void)state;
  if (!getenv("TREADLE")) skip();
  conversion_make("hf", long_one, 0, false);
  conversion_make("other", tied, 0, false);
  conversion_remove("there");
  char in[256], out[256];
  snprintf(in, sizeof in, "%s", conversion_at("hf"));
  snprintf(out, sizeof out, "%s", conversion_at("there"));
  if (run_and_kill(in, out, 1 << 20, 0)) {
    conversion_refused(2, "of other files or layouts", "hf", "megatron:tp=4,pp=2", "other", "there");
    conversion_refused(2, "of other files or layouts", "hf", "megatron:tp=2", "hf", "there");
  }
  conversion_run("hf", "megatron:tp=2", "hf", "there");
  conversion_refused(2, "is not empty", "hf", "megatron:tp=2", "hf", "there");
}

/* Files may not grow beyond a limit, as on a disk that fills up: nothing half stays, and the next run goes on. */
static void a_disk_fills_up(void **state) {
  (void)state;
  static const char *const layouts[] = {"hf", "megatron:pp=2", "hf"};
  const char *command = getenv("TREADLE");
  if (!command) skip();
  conversion_make("0", long_one, 0, false);
  for (int way = 0; way < 2; way++) { /* both types of files */
    char run[1200], in[2] = {(char)('0' + way), 0}, out[2] = {(char)('1' + way), 0};
    conversion_remove(out);
    snprintf(run, sizeof run, "'%s' convert --from %s --to %s '%s' '%s'", command, layouts[way],
             layouts[way + 1], conversion_at(in), conversion_at(out));
    assert_int_equal(
        conversion_shell("trap '' XFSZ; ulimit -f 4000; %s 2>'%s'", run, conversion_at("said")), 1);
    assert_int_equal(conversion_shell("grep -q 'cannot write' '%s'", conversion_at("said")), 0);
    assert_int_equal(
        conversion_shell("! find '%s' -name '*.tmp' -o -name '*.pt' -o -name '*.safetensors' | "
                         "grep -q .",
                         conversion_at(out)),
        0);
    assert_int_equal(conversion_shell("%s >/dev/null", run), 0);
  }
  conversion_same("0", "2");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(killed_and_taken_up), cmocka_unit_test(only_its_own),
                                     cmocka_unit_test(a_disk_fills_up)};
  return cmocka_run_group_tests(tests, NULL, command_teardown);
}
