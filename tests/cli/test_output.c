/* What the command prints and writes, whatever bytes it was given: JSON that parsers take, text that a terminal shows and
 * does not obey, files that replace nothing but files.
 * ctest: label=mpi */
#include "cli/command.h"

#include "test.h"

#include "base/utf8.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* Controls, a delete, bytes that are no UTF-8, overlong forms, a surrogate, C1 controls, quotes: all in one name. */
#define ODD "o\x01\x1b[2J\n\r\t\x7f\x80\xff\xc0\xaf\xed\xa0\x80\xc2\x9b\"\\\xe2\x82\xac"

static char odd[128]; /* a folder of that name, with a model */

static void write_bytes(const char *path, const void *bytes, size_t count) {
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, count, file), count);
  fclose(file);
}

static int setup(void **state) {
  (void)state;
  snprintf(odd, sizeof odd, "%s/" ODD, command_folder());
  assert_int_equal(mkdir(odd, 0777), 0);
  command_result made = command_run("make-model '%s/m' --layers 2 --hidden 128 --vocab 300", odd);
  if (made.exit_status) fail_msg("%s", made.err);
  command_release(&made);
  return 0;
}

/* `text` with each %M replaced; in a static buffer. */
static const char *fill(const char *text, const char *model) {
  static char filled[2000];
  size_t length = 0;
  for (; *text && length + strlen(model) + 2 < sizeof filled; text++)
    if (text[0] == '%' && text[1] == 'M') {
      length += (size_t)sprintf(filled + length, "%s", model);
      text++;
    } else {
      filled[length++] = *text;
    }
  filled[length] = 0;
  return filled;
}

/* Lines of characters that a terminal does not obey. Returns how many. */
static int check_shown(const char *what, const char *text) {
  int lines = 0;
  for (int length; *text; text += length) {
    uint32_t code;
    length = treadle_utf8_read(text, &code);
    if (*text == '\n')
      lines++;
    else if (length == 0 || !treadle_utf8_is_plain(code))
      fail_msg("%s: printed byte 0x%02x, in: %.40s", what, (unsigned char)*text, text);
  }
  return lines;
}

/* ---- JSON ---- */

static void json_is_json(void **state) {
  (void)state;
  static const struct {
    int ranks;
    const char *arguments; /* %M: the model */
  } rows[] = {{0, "inspect '%M'"},
              {0, "plan --model '%M' --from megatron:tp=2 --to vllm:tp=1 --ranks 2"},
              {0, "layout --model '%M' --layout vllm --ranks 1 --rank 0 --runs"},
              {0, "convert --from hf --to megatron '%M' '%M-out'"},
              {0, "switch --model '%M' --train hf --infer vllm --cycles 1 --timeline '%M.svg'"},
              {0, "doctor"}};
  char model[160];
  snprintf(model, sizeof model, "%s/m", odd);
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    json_decref(command_json(rows[i].ranks, 0, fill(rows[i].arguments, model)));
  }
  char wanted[300];
  json_t *root = command_json(0, 0, fill("inspect '%M'", model));
#define R "\xef\xbf\xbd" /* each byte that is not part of a character */
  snprintf(wanted, sizeof wanted,
           "%s/o\x01\x1b[2J\n\r\t\x7f" R R R R R R R "\xc2\x9b\"\\\xe2\x82\xac/m/model.safetensors",
           command_folder());
  assert_string_equal(json_string_value(json_array_get(json_object_get(root, "files"), 0)), wanted);
  json_decref(root);
}

/* ---- Text ---- */

static void a_name_does_not_break_a_table(void **state) {
  (void)state;
  static const char *const rows[] = {"inspect '%M'", "family check '%M'",
                                     "plan --model '%M' --from hf --to vllm --ranks 1",
                                     "convert --from hf --to megatron '%M' '%M-text'"};
  char plain[128], model[160], command[400];
  snprintf(model, sizeof model, "%s/m", odd);
  snprintf(plain, sizeof plain, "%s/plain", command_folder());
  snprintf(command, sizeof command, "cp -r '%s' '%s'", model, plain);
  assert_int_equal(system(command), 0);
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    int lines[2];
    for (int o = 0; o < 2; o++) {
      command_result result = command_run("%s", fill(rows[i], o ? model : plain));
      if (result.exit_status) fail_msg("%s: %s", rows[i], result.err);
      lines[o] = check_shown(rows[i], result.out);
      check_shown(rows[i], result.err);
      command_release(&result);
    }
    assert_int_equal(lines[0], lines[1]);
  }
}

/* Whatever is quoted, a message is one line. */
static void messages_are_lines(void **state) {
  (void)state;
  static const char *const rows[] = {"'" ODD "'",
                                     "inspect '/" ODD "'",
                                     "inspect --'" ODD "'",
                                     "inspect -'" ODD "'",
                                     "plan --model '/" ODD "' --from hf --to hf --ranks 1",
                                     "plan --model '%M' --from 'hf:" ODD "' --to hf --ranks 1",
                                     "plan --model '%M' --from 'pieces:@/" ODD "' --to hf --ranks 1",
                                     "plan --model '%M' --from hf --to hf --ranks '" ODD "'",
                                     "plan --model '%M' --from hf --to hf --ranks 1 --cap '1" ODD "'",
                                     "plan --model '%M' --from hf --to hf --ranks 1 --rank-map '" ODD "'",
                                     "plan --model '%M' --from hf --to hf --ranks 1 --families '/" ODD "'",
                                     "family show '" ODD "'",
                                     "make-model /tmp/treadle-none/x --family '" ODD "'",
                                     "make-model '/treadle-none/" ODD "'",
                                     "make-model /tmp/treadle-none/x --dtype '" ODD "'",
                                     "convert --from hf --to megatron '/" ODD "' '/" ODD "'",
                                     "switch --model '%M' --train hf --infer hf --fault '" ODD "'",
                                     "switch --model '%M' --train hf --infer hf --timeline '/" ODD "/x'"};
  char model[160];
  snprintf(model, sizeof model, "%s/m", odd);
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    command_result result = command_run("%s", fill(rows[i], model));
    if (result.exit_status != 2)
      fail_msg("%s: exit status %d: %s", rows[i], result.exit_status, result.err);
    if (check_shown(rows[i], result.err) != 1) fail_msg("%s: not one line: %s", rows[i], result.err);
    command_release(&result);
  }
}

/* Names of tensors come from a file's header. */
static void names_of_tensors_are_shown(void **state) {
  (void)state;
  static const char header[] = "{\"\\u001b]0;x\\u0007\\nb\\u009b\":{\"dtype\":\"BF16\",\"shape\":[1],"
                               "\"data_offsets\":[0,2]}}";
  char folder[128], path[400], bytes[8 + sizeof header + 1] = {(char)(sizeof header - 1)};
  snprintf(folder, sizeof folder, "%s/named", command_folder());
  snprintf(path, sizeof path, "cp -r '%s/m' '%s'", odd, folder);
  assert_int_equal(system(path), 0);
  memcpy(bytes + 8, header, sizeof header - 1);
  snprintf(path, sizeof path, "%s/model.safetensors", folder);
  write_bytes(path, bytes, 8 + sizeof header - 1 + 2);
  command_result result = command_run("family check %s", folder);
  command_expect(&result, 1, "left over: \\x1b]0;x\\x07\\x0ab\\xc2\\x9b\n", 1);
  check_shown("family check", result.err);
  command_release(&result);
  result = command_run("inspect %s", folder);
  command_expect(&result, 2, "\\x1b]0;x\\x07\\x0ab\\xc2\\x9b", 1);
  assert_int_equal(check_shown("inspect", result.err), 1);
  command_release(&result);
}

/* ---- Files ---- */

static void outputs_replace_files_alone(void **state) {
  (void)state;
  static const struct {
    const char *make, *name, *words;
  } rows[] = {
      {"ln -s target link.svg", "link.svg", "link.svg: is a symbolic link"},
      {"ln -s nothing dangling.svg", "dangling.svg", "is a symbolic link"},
      {"mknod null.svg c 1 3 || ln -s /dev/null null.svg", "null.svg", "and only a plain file is replaced"},
      {"true", "none/x.svg", "its folder"}};
  char command[500];
  snprintf(command, sizeof command, "cd '%s' && echo kept >target", command_folder());
  assert_int_equal(system(command), 0);
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    struct stat before, after;
    char path[200];
    snprintf(command, sizeof command, "cd '%s' && %s", command_folder(), rows[i].make);
    assert_int_equal(system(command), 0);
    snprintf(path, sizeof path, "%s/%s", command_folder(), rows[i].name);
    int there = lstat(path, &before);
    command_result result =
        command_run("switch --model '%s/m' --train hf --infer vllm --cycles 1 --timeline '%s'", odd, path);
    command_expect(&result, 2, rows[i].words, 1);
    assert_string_equal(result.out, "");
    command_release(&result);
    assert_int_equal(lstat(path, &after), there);
    if (there == 0) assert_true(before.st_mode == after.st_mode && before.st_ino == after.st_ino);
  }
  snprintf(command, sizeof command, "test \"$(cat '%s/target')\" = kept", command_folder());
  assert_int_equal(system(command), 0);
}

static void make_model_replaces_no_links(void **state) {
  (void)state;
  static const char *const names[] = {"config.json", "model.safetensors"};
  for (size_t i = 0; i < TEST_COUNT(names); i++) {
    char command[400];
    snprintf(command, sizeof command, "cd '%s'; mkdir into%zu; echo kept >kept; ln -s ../kept into%zu/%s",
             command_folder(), i, i, names[i]);
    assert_int_equal(system(command), 0);
    command_result result =
        command_run("make-model '%s/into%zu' --layers 1 --hidden 64", command_folder(), i);
    command_expect(&result, 2, i ? "is a symbolic link" : "there is a model already", 1);
    command_release(&result);
    snprintf(command, sizeof command,
             "cd '%s' && test \"$(cat kept)\" = kept && test \"$(ls into%zu)\" = %s", command_folder(), i,
             names[i]);
    assert_int_equal(system(command), 0);
  }
}

/* Standard output that is full, or closed: what is opened next does not take its place. */
static void closed_output_is_a_failure(void **state) {
  (void)state;
  static const char *const rows[] = {"switch --model '%M' --train hf --infer vllm --cycles 1 >&-",
                                     "plan --model '%M' --from hf --to vllm --ranks 1 >/dev/full",
                                     "family list >&-"};
  char model[160], command[800];
  snprintf(model, sizeof model, "%s/m", odd);
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    snprintf(command, sizeof command, "'%s' %.400s 2>'%s/said'",
             getenv("TREADLE") ? getenv("TREADLE") : "build/treadle", fill(rows[i], model),
             command_folder());
    int ended = system(command);
    assert_true(WIFEXITED(ended) && WEXITSTATUS(ended) == 1);
    snprintf(command, sizeof command, "grep -q 'the output could not be written' '%s/said'",
             command_folder());
    if (system(command)) fail_msg("%s: nothing was said", rows[i]);
  }
}

/* Files that may not be as long as they must be (ulimit -f): no signal ends the command. */
static void long_files_are_a_failure(void **state) {
  (void)state;
  struct rlimit before, few;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  few = before;
  few.rlim_cur = 64 << 10;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
  command_result made = command_run("make-model '%s/long' --layers 2 --hidden 128", command_folder());
  command_result written =
      command_run("convert --from hf --to megatron:tp=2 '%s/m' '%s/short'", odd, command_folder());
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  command_expect(&written, 1, "File too large", 1);
  command_release(&written);
  command_expect(&made, 1, "RLIMIT_FSIZE (ulimit -f) allows 64.00 KiB", 1);
  command_release(&made);
  char path[200];
  snprintf(path, sizeof path, "%s/long", command_folder());
  assert_int_not_equal(access(path, F_OK), 0);
}

/* ---- Options ---- */

static void numbers_are_refused_with_their_limits(void **state) {
  (void)state;
  enum { PLANS = 6 };
  static const struct {
    const char *option, *words;
  } rows[] = {
      {"--page-size 99999999999999999999",
       "--page-size: '99999999999999999999' is more than 2^63 - 1 bytes"},
      {"--page-size 4194304TiB", "--page-size: '4194304TiB' is more than 1048576TiB"},
      {"--page-size 2TiB", "a page size of 2199023255552 bytes: it must be a power of two from 4096 to "},
      {"--cap 9223372036854775807", "--cap: '9223372036854775807' is more than 1048576TiB"},
      {"--budget 18446744073709551615", "--budget: '18446744073709551615' is more than 2^63 - 1 bytes"},
      {"--ranks 9223372036854775808", "from 1 to 9223372036854775807"},
      {"--cycles 1000001", "--cycles is '1000001', and must be a whole number from 0 to 1000000"},
      {"--timeout 0x10",
       "--timeout is '0x10', and must be a number of seconds above 0: from 0.001 to 1000000"},
      {"--timeout 1e300", "--timeout is '1e300'"},
      {"--fault stall:rank=0,wave=0", "on one rank nobody is left to see it: at least 2 ranks"},
      {"--fault slow:rank=0,wave=1,phase=bind", "names two moments"}};
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    bool plan = i < PLANS, ranks = strncmp(rows[i].option, "--ranks", 7) == 0;
    command_result result =
        plan ? command_run("plan --model '%s/m' --from hf --to vllm %s %s", odd, ranks ? "" : "--ranks 1",
                           rows[i].option)
             : command_run("switch --model '%s/m' --train hf --infer vllm %s", odd, rows[i].option);
    command_expect(&result, 2, rows[i].words, 1);
    command_release(&result);
  }
  command_result result =
      command_run("make-model '%s/wide' --hidden 9223372036854775744", command_folder());
  command_expect(&result, 2, "hidden is 9223372036854775744", 1);
  command_release(&result);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(json_is_json),
                                     cmocka_unit_test(a_name_does_not_break_a_table),
                                     cmocka_unit_test(messages_are_lines),
                                     cmocka_unit_test(names_of_tensors_are_shown),
                                     cmocka_unit_test(outputs_replace_files_alone),
                                     cmocka_unit_test(make_model_replaces_no_links),
                                     cmocka_unit_test(closed_output_is_a_failure),
                                     cmocka_unit_test(long_files_are_a_failure),
                                     cmocka_unit_test(numbers_are_refused_with_their_limits)};
  return cmocka_run_group_tests(tests, setup, command_teardown);
}
