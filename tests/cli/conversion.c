/* Steps of tests of `treadle convert`. */
#include "cli/conversion.h"

#include "cli/made.h"
#include "io/file.h"
#include "test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

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

/* ---- Beside one another ------------------------------------------------------------------------- */

pid_t conversion_start(const char *from, const char *to, const char *in, const char *out,
                       const char *said) {
  const char *command = getenv("TREADLE");
  char paths[3][256];
  snprintf(paths[0], sizeof paths[0], "%s", conversion_at(in));
  snprintf(paths[1], sizeof paths[1], "%s", conversion_at(out));
  snprintf(paths[2], sizeof paths[2], "%s", conversion_at(said));
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    dup2(open("/dev/null", O_RDWR), 1);
    dup2(open(paths[2], O_WRONLY | O_CREAT | O_TRUNC, 0666), 2);
    execl(command, command, "convert", "--from", from, "--to", to, paths[0], paths[1], (char *)NULL);
    _exit(127);
  }
  return pid;
}

int conversion_wait(pid_t pid) {
  int ended;
  assert_int_equal(waitpid(pid, &ended, 0), pid);
  return WIFEXITED(ended) ? WEXITSTATUS(ended) : -WTERMSIG(ended);
}

bool conversion_is(const char *one, const char *other) {
  return conversion_shell("diff -rq '%s' '%s' >/dev/null 2>&1", conversion_at(one), conversion_at(other)) ==
         0;
}

bool conversion_said(const char *said, const char *words) {
  return conversion_shell("grep -qF -e '%s' '%s'", words, conversion_at(said)) == 0;
}

void conversion_sleep(double seconds) {
  struct timespec time = {.tv_sec = (time_t)seconds};
  time.tv_nsec = (long)((seconds - (double)time.tv_sec) * 1e9);
  nanosleep(&time, NULL);
}

uint64_t conversion_draw(uint64_t *seed, uint64_t below) { /* xorshift */
  *seed ^= *seed << 13, *seed ^= *seed >> 7, *seed ^= *seed << 17;
  return *seed % below;
}

void conversion_change_values(const char *from, const char *to) {
  conversion_remove(to);
  assert_int_equal(conversion_shell("cp -r '%s' '%s'", conversion_at(from), conversion_at(to)), 0);
  treadle_checkpoint *checkpoint = conversion_open(from);
  for (int32_t f = 0; f < checkpoint->file_count; f++) {
    const treadle_header header = treadle_checkpoint_header(checkpoint, f);
    char path[600], *bytes;
    size_t count;
    snprintf(path, sizeof path, "%s/%s", conversion_at(to), header.file);
    assert_ok(treadle_file_read(path, SIZE_MAX / 2, &bytes, &count));
    for (size_t i = count - header.data_bytes; i < count; i++) bytes[i] = (char)(bytes[i] ^ 1);
    assert_ok(treadle_file_write(path, bytes, count));
    treadle_free(bytes);
  }
  treadle_checkpoint_close(checkpoint);
}
