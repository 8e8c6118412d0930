/* Steps of tests of `treadle convert`. Folders are known by short names, and lie in the folder of the test program. */
#ifndef TESTS_CLI_CONVERSION_H
#define TESTS_CLI_CONVERSION_H

#include "cli/command.h"
#include "io/safetensors.h"

#include <stdbool.h>

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

#endif
