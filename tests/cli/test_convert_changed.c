/* treadle convert: inputs that change while they are read, 50 times at random moments: written to in place, cut off, replaced,
 * with the times put back.
 * ctest: stage=gcc timeout=600 */
#include "cli/conversion.h"

#include "base/clock.h"
#include "io/file.h"
#include "test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

static const char model[] = "{\"model_type\": \"qwen3\", \"dtype\": \"bfloat16\", \"vocab_size\": 8000, "
                            "\"hidden_size\": 256, \"num_attention_heads\": 4, \"intermediate_size\": 704, "
                            "\"num_key_value_heads\": 4, \"num_hidden_layers\": 6, \"head_dim\": 64}";
enum { CHANGES = 50, SHARDS = 2, WAYS = 2 };
static const char *const ways[WAYS] = {"megatron:tp=2", "hf:dtype=fp16"};

enum { IN_PLACE, TIMES_PUT_BACK, REPLACED, CUT_OFF, TOKENIZER, KINDS };

/* A shard of a folder. */
static const char *shard_of(const char *folder, int shard) {
  static char paths[4][600];
  static int next;
  char *path = paths[next++ % 4];
  snprintf(path, sizeof paths[0], "%s/model-%05d-of-%05d.safetensors", conversion_at(folder), shard + 1,
           SHARDS);
  return path;
}

/* The result of the inputs as they are: "old0", "new1-0" (shard 1 changed, way 0). */
static const char *result_of(int changed, int way) {
  static char names[4][20];
  static int next;
  char *name = names[next++ % 4];
  if (changed < 0)
    snprintf(name, sizeof names[0], "old%d", way);
  else
    snprintf(name, sizeof names[0], "new%d-%d", changed, way);
  return name;
}

static void restore(int shard) {
  assert_int_equal(conversion_shell("cp -r '%s/.' '%s'", conversion_at("hf"), conversion_at("in")), 0);
  if (shard >= 0)
    assert_int_equal(conversion_shell("cp '%s' '%s'", shard_of("new", shard), shard_of("in", shard)), 0);
}

static int begin(void **state) {
  (void)state;
  if (!getenv("TREADLE")) return 0;
  conversion_make("hf", model, SHARDS, false);
  conversion_change_values("hf", "new");
  assert_int_equal(conversion_shell("mkdir '%s'", conversion_at("in")), 0);
  for (int way = 0; way < WAYS; way++)
    for (int shard = -1; shard < SHARDS; shard++) {
      restore(shard);
      conversion_run("hf", ways[way], "in", result_of(shard, way));
    }
  return 0;
}

/* Writes over a file, piece by piece, as a program that saves does. */
static void write_over(const char *from, const char *to) {
  char *bytes;
  size_t count, step = 1 << 16;
  assert_ok(treadle_file_read(from, SIZE_MAX / 2, &bytes, &count));
  int fd = open(to, O_WRONLY);
  for (size_t at = 0; at < count; at += step) {
    size_t some = count - at < step ? count - at : step;
    assert_int_equal(pwrite(fd, bytes + at, some, (off_t)at), some);
  }
  close(fd);
  treadle_free(bytes);
}

static void change(int type, int shard) {
  const char *path = shard_of("in", shard);
  struct stat about;
  assert_int_equal(stat(path, &about), 0);
  const struct timespec times[2] = {about.st_atim, about.st_mtim};
  switch (type) {
  case TIMES_PUT_BACK:
  case IN_PLACE: write_over(shard_of("new", shard), path); break;
  case REPLACED:
    assert_int_equal(conversion_shell("cp '%s' '%s.next' && mv '%s.next' '%s'", shard_of("new", shard),
                                      path, path, path),
                     0);
    break;
  case CUT_OFF: assert_int_equal(truncate(path, about.st_size / 3), 0); break;
  default:
    assert_int_equal(
        conversion_shell("echo '{\"version\": \"2.0\"}' >'%s/tokenizer.json'", conversion_at("in")), 0);
  }
  if (type == TIMES_PUT_BACK) assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* Nothing says that there is a checkpoint. */
static bool is_not_found(int way) {
  return conversion_shell("cd '%s' 2>/dev/null || exit 0; ! ls %s 2>/dev/null | grep -q .",
                          conversion_at("there"),
                          way == 0 ? "latest_checkpointed_iteration.txt" : "config.json *.index.json") == 0;
}

static void never_torn(void **state) {
  (void)state;
  if (!getenv("TREADLE")) skip();
  uint64_t seed = 521288629;
  int failed = 0, went_well = 0;
  double begun = treadle_clock_seconds();
  restore(-1);
  conversion_run("hf", ways[0], "in", "there");
  double one = treadle_clock_seconds() - begun;
  int changes = 10 + (int)test_seeds(CHANGES - 10); /* each kind twice at least */
  for (int k = 0; k < changes; k++) {
    int type = k % KINDS, way = (int)conversion_draw(&seed, WAYS),
        shard = (int)conversion_draw(&seed, SHARDS);
    bool old_times = conversion_draw(&seed, 2); /* settled inputs, and such that were just written */
    restore(-1);
    if (old_times)
      assert_int_equal(conversion_shell("touch -d '1 hour ago' '%s'/*", conversion_at("in")), 0);
    conversion_remove("there");
    pid_t pid = conversion_start("hf", ways[way], "in", "there", "said");
    conversion_sleep(one * (double)conversion_draw(&seed, 1000) / 1000);
    change(type, shard);
    int ended = conversion_wait(pid);
    bool was = conversion_is("there", result_of(-1, way)),
         is = type != TOKENIZER && type != CUT_OFF && conversion_is("there", result_of(shard, way));
    went_well += ended == 0;
    failed += ended == 1;
    if (ended < 0 || ended > 2) fail_msg("change %d, of kind %d: exit status %d", k, type, ended);
    if (ended == 0 && !was && !is && type != TOKENIZER)
      fail_msg("change %d, of kind %d: a torn checkpoint", k, type);
    if (ended == 0) continue;
    if (ended == 1 && !conversion_said("said", type == TOKENIZER ? "tokenizer.json" : ".safetensors"))
      fail_msg("change %d, of kind %d: does not name the file", k, type);
    if (!is_not_found(way)) fail_msg("change %d, of kind %d: a checkpoint that failed is found", k, type);
    /* What is there now, and stays, is converted as if nothing had been. */
    restore(type == CUT_OFF || type == TOKENIZER ? -1 : shard);
    if (conversion_wait(conversion_start("hf", ways[way], "in", "there", "said")) != 0 ||
        !conversion_is("there", result_of(type == CUT_OFF || type == TOKENIZER ? -1 : shard, way)))
      fail_msg("change %d, of kind %d: not taken up", k, type);
  }
  print_message("%d changes were seen, %d came too early or too late\n", failed, went_well);
  assert_true(failed > 0);
}

/* Killed, then the input changes, then the same command: nothing of the old input is taken over. */
static void changed_in_between(void **state) {
  (void)state;
  if (!getenv("TREADLE")) skip();
  uint64_t seed = 362436069;
  int killed = 0;
  restore(-1);
  double begun = treadle_clock_seconds();
  conversion_run("hf", ways[0], "in", "there");
  double one = treadle_clock_seconds() - begun;
  int kills = 3 + (int)test_seeds(7);
  for (int k = 0; k < kills; k++) {
    int way = k % WAYS, shard = (int)conversion_draw(&seed, SHARDS);
    restore(-1);
    conversion_remove("there");
    pid_t pid = conversion_start("hf", ways[way], "in", "there", "said");
    conversion_sleep(one * (double)conversion_draw(&seed, 1000) / 1000);
    kill(pid, SIGKILL);
    (void)conversion_wait(pid);
    if (!is_not_found(way)) continue;
    killed++;
    change(TIMES_PUT_BACK, shard);
    assert_int_equal(conversion_wait(conversion_start("hf", ways[way], "in", "there", "said")), 0);
    assert_true(conversion_is("there", result_of(shard, way)));
  }
  print_message("%d were killed in time\n", killed);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(never_torn), cmocka_unit_test(changed_in_between)};
  return cmocka_run_group_tests(tests, begin, command_teardown);
}
