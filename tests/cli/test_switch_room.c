/* treadle switch where there is too little memory: in a control group, under RLIMIT_AS, with pages that are larger than the machine.
 * It is refused with the numbers, before anything is taken; and it is not refused where there is enough.
 * ctest: label=mpi timeout=300 */
#include "cli/command.h"
#include "cli/control_group.h"

#include "test.h"

#include <sys/resource.h>

enum { MIB = 1 << 20, CLIMBS = 8 };

static const char *model;
static char tiny[200];

static int begin(void **state) {
  (void)state;
  model = command_model("--layers 2 --hidden 512 --vocab 6000");
  snprintf(tiny, sizeof tiny, "%s/tiny", command_folder());
  command_result made = command_run("make-model %s --layers 1 --hidden 128 --vocab 128", tiny);
  command_expect(&made, 0, "", 0);
  command_release(&made);
  return 0;
}

static int end(void **state) {
  command_enter(NULL);
  control_group_end();
  return command_teardown(state);
}

static const char *layouts(int ranks) {
  return ranks ? "--train megatron:tp=2 --infer vllm" : "--train hf --infer vllm";
}

static command_result run(int ranks, const char *rest) {
  return ranks ? command_launch(ranks, "switch --model %s %s %s", model, layouts(ranks), rest)
               : command_run("switch --model %s %s %s", model, layouts(ranks), rest);
}

/* The number before "MiB" behind these words, in bytes; 0: it is not there. */
static size_t bytes_behind(const char *text, const char *words) {
  double value = 0;
  const char *at = strstr(text, words);
  if (at) at += strlen(words);
  char unit[4] = "";
  if (!at || sscanf(at, "%lf %3s", &value, unit) != 2) return 0;
  return (size_t)(value * (strcmp(unit, "MiB") == 0   ? MIB
                           : strcmp(unit, "KiB") == 0 ? 1024
                           : strcmp(unit, "GiB") == 0 ? 1024.0 * MIB
                                                      : 1.0));
}

/* What a switch of hardly any weights takes: processes and libraries. */
static size_t least_bytes(int ranks) {
  command_result result =
      ranks ? command_launch(ranks, "switch --model %s %s --cycles 1", tiny, layouts(ranks))
            : command_run("switch --model %s %s --cycles 1", tiny, layouts(ranks));
  command_expect(&result, 0, "", 0);
  command_release(&result);
  size_t peak = control_group_peak();
  return peak ? peak : (size_t)24 * MIB * (size_t)(ranks + 1);
}

/* From far too little upwards: refused with what is needed and what there is, until it is enough. */
static void climb(int ranks, const char *rest) {
  control_group_limit(0);
  size_t limit = least_bytes(ranks) + 4 * MIB, most;
  int tries = 0;
  command_result result = run(ranks, rest);
  command_expect(&result, 0, "", 0);
  command_release(&result);
  most = control_group_peak();
  for (;; tries++) {
    control_group_limit(limit);
    result = run(ranks, rest);
    if (result.exit_status == 0) break;
    command_expect(&result, 2, "treadle switch: ", 1);
    size_t needed = bytes_behind(result.err, ranks ? "ranks need " : "rank 0 needs ");
    const char *leaves = strstr(result.err, " leaves ");
    size_t left = leaves ? bytes_behind(leaves, " leaves ") : 0,
           there = leaves ? bytes_behind(leaves, " of ") : 0;
    if (!strstr(result.err, "control group ") || !needed || needed <= left || !there || tries == CLIMBS)
      fail_msg("try %d, limit %zu: %s", tries, limit, result.err);
    assert_string_equal(result.out, "");
    command_release(&result);
    limit = there - left + needed + 2 * MIB;
  }
  print_message("%d ranks: refused %d times, done with %.1f MiB; without a limit it had %.1f MiB\n", ranks,
                tries, (double)limit / MIB, (double)most / MIB);
  assert_non_null(strstr(result.out, "PASS"));
  command_release(&result);
  assert_true(tries > 0);
  if (most) assert_true(limit < most + most / 20 + 20 * MIB);
}

/* In a group of its own for each number of ranks, whose peak it is. */
static void climb_in_group(int ranks, const char *rest) {
  if (!control_group_begin()) skip();
  command_enter(control_group_enter);
  climb(ranks, rest);
  command_enter(NULL);
  control_group_end();
}

static void control_group(void **state) {
  (void)state;
  if (TEST_SANITIZED) {
    print_message(
        "skipped: what a sanitizer takes beside the program is asked of nobody, and the group ends it\n");
    skip();
  }
  climb_in_group(0, "--cycles 1 --check --offload params,grads,optimizer --keep host");
  climb_in_group(2, "--cycles 1 --check");
  climb_in_group(4, "--cycles 1");
}

static void refuse(const char *rest, const char *words) {
  command_result result = command_run("switch --model %s %s --cycles 1 %s", model, layouts(0), rest);
  command_expect(&result, 2, words, 1);
  assert_non_null(strstr(result.err, " leaves "));
  assert_string_equal(result.out, "");
  command_release(&result);
}

static void addresses(void **state) {
  (void)state;
  struct rlimit before, few;
  if (TEST_SANITIZED) {
    print_message("skipped: a sanitizer needs addresses for itself\n");
    skip();
  }
  assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
  few = before;
  few.rlim_cur = (rlim_t)400 * MIB;
  assert_int_equal(setrlimit(RLIMIT_AS, &few), 0);
  refuse("--offload params,grads,optimizer --keep host", "RLIMIT_AS");
  /* Pages are counted as they will be; a machine that has the memory has not the addresses. */
  few.rlim_cur = (rlim_t)16 << 30;
  assert_int_equal(setrlimit(RLIMIT_AS, &few), 0);
  refuse("--page-size 16GiB", "rank 0 needs ");
  refuse("--page-size 1TiB", "rank 0 needs ");
  refuse("--budget 1TiB", "rank 0 needs ");
  assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(control_group), cmocka_unit_test(addresses)};
  return cmocka_run_group_tests(tests, begin, end);
}
