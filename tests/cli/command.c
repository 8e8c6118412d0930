/* Running the command as a process. */
#include "cli/command.h"

#include "test.h"

#include <sys/wait.h>

static char folder[32];

const char *command_folder(void) {
  if (!folder[0]) snprintf(folder, sizeof folder, "%s", test_folder());
  return folder;
}

void command_end(void) {
  if (folder[0]) test_remove(folder);
}

int command_teardown(void **state) {
  (void)state;
  command_end();
  return 0;
}

const char *command_path(const char *name) {
  static char paths[8][96];
  static int next;
  char *path = paths[next++ % 8];
  snprintf(path, sizeof paths[0], "%s/%s", command_folder(), name);
  return path;
}

const char *command_write(const char *name, const char *text) {
  const char *path = command_path(name);
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  fputs(text, file);
  assert_int_equal(fclose(file), 0);
  return path;
}

static char *read_whole(const char *path) {
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  size_t length = 0, capacity = 4096;
  char *text = malloc(capacity + 1);
  for (size_t got; (got = fread(text + length, 1, capacity - length, file)) > 0;) {
    length += got;
    if (length == capacity) text = realloc(text, (capacity *= 2) + 1);
  }
  text[length] = 0;
  fclose(file);
  return text;
}

/* Without the lines that say that weights are made up, as those of many tests are: tests/found/test_found_weights.sh looks at them. */
static char *without_made_up(char *text) {
  static const char begin[] = "the weights of ", end[] = " are made up, not read from files\n";
  for (char *at = text, *line, *last; (line = strstr(at, begin)); at = line) {
    last = strstr(line, end);
    if (!last || memchr(line, '\n', (size_t)(last - line))) {
      line += strlen(begin);
      continue;
    }
    last += strlen(end);
    memmove(line, last, strlen(last) + 1);
  }
  return text;
}

static const char *from_environment(const char *name, const char *otherwise) {
  const char *value = getenv(name);
  return value && *value ? value : otherwise;
}

static bool (*enters)(void);

void command_enter(bool (*enter)(void)) { enters = enter; }

/* As system(); the exit status, 128 + signal when it was killed. */
static int run_shell(const char *command) {
  int ended = 0;
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    if (enters && !enters()) _exit(99);
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
  }
  assert_true(child > 0);
  assert_int_equal(waitpid(child, &ended, 0), child);
  return WIFEXITED(ended) ? WEXITSTATUS(ended) : 128 + WTERMSIG(ended);
}

static command_result run(int ranks, const char *format, va_list values) {
  char arguments[2048], launcher[256] = "", command[4096], out[128], err[128];
  vsnprintf(arguments, sizeof arguments, format, values);
  if (ranks > 0)
    snprintf(launcher, sizeof launcher, "'%s' -n %d ", from_environment("MPIEXEC", "mpirun"), ranks);
  snprintf(out, sizeof out, "%s/out", command_folder());
  snprintf(err, sizeof err, "%s/err", command_folder());
  snprintf(command, sizeof command, "exec %s'%s' %s >'%s' 2>'%s' </dev/null", launcher,
           from_environment("TREADLE", "build/treadle"), arguments, out, err);
  int exit_status = run_shell(command);
  command_result result = {exit_status, read_whole(out), without_made_up(read_whole(err))};
  return result;
}

command_result command_run(const char *format, ...) {
  va_list values;
  va_start(values, format);
  command_result result = run(0, format, values);
  va_end(values);
  return result;
}

command_result command_launch(int ranks, const char *format, ...) {
  va_list values;
  va_start(values, format);
  command_result result = run(ranks, format, values);
  va_end(values);
  return result;
}

void command_release(command_result *result) {
  free(result->out);
  free(result->err);
}

json_t *command_json(int ranks, int exit_status, const char *arguments) {
  command_result result =
      ranks ? command_launch(ranks, "%s --json", arguments) : command_run("%s --json", arguments);
  if (result.exit_status != exit_status)
    fail_msg("treadle %s: exit status %d\n%s\n%s", arguments, result.exit_status, result.err, result.out);
  json_error_t error;
  json_t *root = json_loads(result.out, JSON_REJECT_DUPLICATES, &error);
  if (!root) fail_msg("treadle %s: %s in line %d of\n%s", arguments, error.text, error.line, result.out);
  command_release(&result);
  return root;
}

const char *command_model(const char *options) {
  static char path[64];
  if (!path[0]) {
    snprintf(path, sizeof path, "%s/model", command_folder());
    command_result result = command_run("make-model %s %s", path, options);
    if (result.exit_status) fail_msg("%s", result.err);
    command_release(&result);
  }
  return path;
}

double command_number(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  if (!json_is_number(value)) fail_msg("%s is not a number", key);
  return json_number_value(value);
}

void command_expect(const command_result *result, int exit_status, const char *words, int times) {
  int found = 0;
  if (!*words) {
    if (result->exit_status != exit_status || *result->err)
      fail_msg("exit status %d instead of %d; nothing was to be said, not:\n%s", result->exit_status,
               exit_status, result->err);
    return;
  }
  for (const char *at = result->err; (at = strstr(at, words)); at++) found++;
  if (result->exit_status != exit_status || found != times)
    fail_msg("exit status %d instead of %d; '%s' %d times instead of %d in:\n%s", result->exit_status,
             exit_status, words, found, times, result->err);
}
