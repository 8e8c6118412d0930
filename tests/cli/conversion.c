/* Steps of tests of `treadle convert`. */
#include "cli/conversion.h"

#include "cli/made.h"
#include "io/file.h"
#include "test.h"

#include <sys/wait.h>

int conversion_shell(const char *format, ...) {
  char command[2048];
  va_list values;
  va_start(values, format);
  vsnprintf(command, sizeof command, format, values);
  va_end(values);
  int ended = system(command);
  return WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
}

const char *conversion_at(const char *name) {
  static char paths[8][256];
  static int next;
  char *path = paths[next++ % 8];
  snprintf(path, sizeof paths[0], "%s/%s", command_folder(), name);
  return path;
}

void conversion_remove(const char *name) {
  assert_int_equal(conversion_shell("rm -rf '%s'", conversion_at(name)), 0);
}

void conversion_make(const char *name, const char *config, int shards, bool copies) {
  const made_options options = {.shards = shards, .copies = copies};
  conversion_remove(name);
  made_checkpoint(conversion_at(name), config, &options);
}

void conversion_run(const char *from, const char *to, const char *in, const char *out) {
  conversion_remove(out);
  command_result result = command_run("convert --from '%s' --to '%s' '%s' '%s'", from, to,
                                      conversion_at(in), conversion_at(out));
  if (result.exit_status) fail_msg("%s to %s: %s", from, to, result.err);
  command_release(&result);
}

void conversion_refused(int exit_status, const char *words, const char *from, const char *to,
                        const char *in, const char *out) {
  command_result result = command_run("convert --from '%s' --to '%s' '%s' '%s'", from, to,
                                      conversion_at(in), conversion_at(out));
  command_expect(&result, exit_status, words, 1);
  command_release(&result);
}

void conversion_same(const char *one, const char *other) {
  assert_int_equal(conversion_shell("diff -r '%s' '%s' >&2", conversion_at(one), conversion_at(other)), 0);
}

treadle_checkpoint *conversion_open(const char *name) {
  treadle_checkpoint *checkpoint;
  assert_ok(treadle_checkpoint_open(conversion_at(name), &checkpoint));
  assert_non_null(checkpoint);
  return checkpoint;
}

const treadle_stored *conversion_find(const treadle_checkpoint *checkpoint, const char *name,
                                      const char *end) {
  char full[300];
  snprintf(full, sizeof full, "%s%s", name, end);
  return treadle_checkpoint_find(checkpoint, full);
}

void conversion_unquantised(const char *text, const char *name) {
  char path[300], *config, *wanted = strdup(text);
  size_t length;
  char *begin = strstr(wanted, "\"quantization_config\""), *end = strchr(begin, '}') + 2;
  end += strspn(end, " \n");
  memmove(begin, end, strlen(end) + 1);
  snprintf(path, sizeof path, "%s/config.json", conversion_at(name));
  assert_ok(treadle_file_read(path, 1 << 16, &config, &length));
  assert_string_equal(config, wanted);
  treadle_free(config);
  free(wanted);
}
