/* Steps of tests of `treadle convert`. Folders are known by short names, and lie in the folder of the test program. */
#ifndef TESTS_CLI_CONVERSION_H
#define TESTS_CLI_CONVERSION_H

#include "cli/command.h"
#include "io/safetensors.h"

#include <stdbool.h>
#include <sys/types.h>

/* The path of a folder, in one of a few static buffers. */
const char *conversion_at(const char *name);
void conversion_remove(const char *name);
/* Makes a small checkpoint of Hugging Face anew (made.h). */
void conversion_make(const char *name, const char *config, int shards, bool copies);

/* Converts a folder to a new one, or fails the test. */
void conversion_run(const char *from, const char *to, const char *in, const char *out);
/* Fails the test unless the conversion ends with this status and says these words, once. */
void conversion_refused(int exit_status, const char *words, const char *from, const char *to,
                        const char *in, const char *out);
/* Fails the test unless all files of two folders are the same. */
void conversion_same(const char *one, const char *other);

/* Opens the safetensors files of a folder; and the tensor NAME + END of them, or NULL. */
treadle_checkpoint *conversion_open(const char *name);
const treadle_stored *conversion_find(const treadle_checkpoint *checkpoint, const char *name,
                                      const char *end);

/* Fails the test unless config.json of a folder is this text without quantization_config, byte for byte. */
void conversion_unquantised(const char *text, const char *name);

/* Runs a command of the shell: its exit status. */
int conversion_shell(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Starts a conversion; what it says goes to the file `said`. It is waited for by conversion_wait(), which gives its exit
 * status, or less than 0 when a signal ended it. */
pid_t conversion_start(const char *from, const char *to, const char *in, const char *out, const char *said);
int conversion_wait(pid_t pid);
/* Are two folders the same in each file, and in their files? */
bool conversion_is(const char *one, const char *other);
/* Has a file the words? */
bool conversion_said(const char *said, const char *words);
/* Sleeps; random moments are the same in each run: numbers from 0 to `below` by a seed. */
void conversion_sleep(double seconds);
uint64_t conversion_draw(uint64_t *seed, uint64_t below);
/* The same checkpoint with other values: every byte of the shards' data is another. */
void conversion_change_values(const char *from, const char *to);

#endif
