/* src/core/io/file_look.c: what stands at a path, and what may be written there; and that nothing is said to be missing which
 * may not be looked at. */
#include "test.h"

#include "io/file_look.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

static char folder[32];

static int setup(void **state) {
  (void)state;
  snprintf(folder, sizeof folder, "%s", test_folder());
  return chdir(folder);
}

static int teardown(void **state) {
  (void)state;
  test_remove(folder);
  return 0;
}

static void make(const char *command) { assert_int_equal(system(command), 0); }

static void what_stands_there(void **state) {
  (void)state;
  char longer[6000];
  treadle_file_type type;
  make("echo x >file; mkdir folder; mkfifo pipe; ln -s nothing dangling; ln -s file link; ln -s loop loop");
  const struct {
    const char *path;
    treadle_file_type type;
  } rows[] = {{"file", TREADLE_FILE_PLAIN},      {"link", TREADLE_FILE_PLAIN},
              {"folder", TREADLE_FILE_FOLDER},   {"pipe", TREADLE_FILE_OTHER},
              {"/dev/null", TREADLE_FILE_OTHER}, {"none", TREADLE_FILE_NONE},
              {"none/x", TREADLE_FILE_NONE},     {"", TREADLE_FILE_NONE}};
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    assert_ok(treadle_file_look(rows[i].path, &type));
    assert_int_equal(type, rows[i].type);
  }
  memset(longer, 'a', sizeof longer - 1);
  longer[sizeof longer - 1] = 0;
  assert_refused("dangling: is a symbolic link that leads nowhere", treadle_file_look("dangling", &type));
  assert_fails(TREADLE_SYSTEM, "loop: cannot look there: Too many levels",
               treadle_file_look("loop", &type));
  assert_fails(TREADLE_SYSTEM, "file/x: cannot look there: Not a directory",
               treadle_file_look("file/x", &type));
  assert_fails(TREADLE_SYSTEM, ": cannot look there: File name too long", treadle_file_look(longer, &type));
}

static void what_may_be_written(void **state) {
  (void)state;
  struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "socket"};
  int socket_fd = socket(AF_UNIX, SOCK_STREAM, 0);
  assert_int_equal(bind(socket_fd, (struct sockaddr *)&address, sizeof address), 0);
  close(socket_fd);
  static const struct {
    const char *path, *words;
  } bad[] = {{"link", "link: is a symbolic link, and only a plain file is replaced"},
             {"dangling", "dangling: is a symbolic link"},
             {"loop", "loop: is a symbolic link"},
             {"folder", "folder: is a folder"},
             {"folder/", "is a folder"},
             {".", "is a folder"},
             {"pipe", "pipe: is a pipe"},
             {"socket", "socket: is a socket"},
             {"/dev/full", "/dev/full: is a device"},
             {"new/", "new/: names a folder, not a file"},
             {"none/x", "none/x: its folder none does not exist"},
             {"", "an empty path"}};
  for (size_t i = 0; i < TEST_COUNT(bad); i++)
    assert_refused(bad[i].words, treadle_file_may_write(bad[i].path));
  assert_fails(TREADLE_SYSTEM, "file/x: cannot look there: Not a directory",
               treadle_file_may_write("file/x"));
  static const char *const good[] = {"file", "new", "folder/new", "/tmp/treadle-new", "./new"};
  for (size_t i = 0; i < TEST_COUNT(good); i++) assert_ok(treadle_file_may_write(good[i]));
}

/* As another user than root, who may look everywhere. */
static void locked_is_not_missing(void **state) {
  (void)state;
  make("mkdir locked; echo '{}' >locked/config.json; chmod 000 locked; echo x >kept; chmod 400 kept; chmod "
       "711 .");
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    treadle_model *model = NULL;
    treadle_file_type type;
    if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) _exit(77);
    static const char *const paths[] = {"locked", "locked/config.json"};
    for (int i = 0; i < 2; i++)
      if (treadle_model_open(paths[i], NULL, &model) != TREADLE_SYSTEM ||
          !strstr(treadle_error_message(), "locked/config.json: cannot look there: Permission denied"))
        _exit(1 + i);
    if (treadle_file_look("locked/x", &type) != TREADLE_SYSTEM) _exit(3);
    if (treadle_file_may_write("locked/x") != TREADLE_SYSTEM) _exit(4);
    if (treadle_file_may_write("kept") != TREADLE_REFUSED) _exit(5);
    _exit(0);
  }
  int ended;
  assert_int_equal(waitpid(child, &ended, 0), child);
  assert_true(WIFEXITED(ended));
  if (WEXITSTATUS(ended) == 77) skip();
  assert_int_equal(WEXITSTATUS(ended), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(what_stands_there),
                                     cmocka_unit_test(what_may_be_written),
                                     cmocka_unit_test(locked_is_not_missing)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
