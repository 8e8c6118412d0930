/* Running the command as a user does: as a process, with what it prints and its exit status. */
#ifndef TESTS_CLI_COMMAND_H
#define TESTS_CLI_COMMAND_H

#include <jansson.h>
#include <stdbool.h>

typedef struct command_result {
  int exit_status;
  /* What it printed, but for lines that say that weights are made up; ended by command_release(). */
  char *out, *err;
} command_result;

/* A folder for the files of this test program, made at first use; command_end() removes it. */
const char *command_folder(void);
void command_end(void);
/* A teardown of cmocka: command_end(). */
int command_teardown(void **state);

/* A path in it, in one of 8 static buffers; and a file there with this text. */
const char *command_path(const char *name);
const char *command_write(const char *name, const char *text);

/* A small checkpoint in the folder, made at first use with these options of make-model; its path. */
const char *command_model(const char *options);

/* Runs `treadle <arguments>`, the text made as printf does; words are the shell's. */
command_result command_run(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same with `ranks` processes under mpirun. */
command_result command_launch(int ranks, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* From now on each command calls this first, in its own process; when it gives false the exit status is 99. NULL: nothing. */
void command_enter(bool (*enter)(void));
void command_release(command_result *result);

/* Runs, demands the exit status, parses standard output. */
json_t *command_json(int ranks, int exit_status, const char *arguments);
/* A number of an object. */
double command_number(const json_t *object, const char *key);

/* Fails the test unless the exit status is this one and standard error holds `words` exactly `times` times.
 */
void command_expect(const command_result *result, int exit_status, const char *words, int times);

#endif
