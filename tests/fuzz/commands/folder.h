/* Folders of a fuzzer: made of links, walked in a fixed order, removed with all that is in them. What goes wrong here is the
 * machine's fault, and ends the program. */
#ifndef TREADLE_TESTS_FUZZ_COMMANDS_FOLDER_H
#define TREADLE_TESTS_FUZZ_COMMANDS_FOLDER_H

#include "commands/bytes.h"

enum { FUZZ_PATH = 512, FUZZ_FILES = 128 };

/* The plain files below a folder, as paths from there, sorted; folders too where `folders`. */
typedef struct fuzz_files {
  int count;
  char names[FUZZ_FILES][160];
} fuzz_files;

void fuzz_folder_list(const char *folder, bool folders, fuzz_files *files);
void fuzz_folder_make(const char *path);
void fuzz_folder_remove(const char *path);
/* `to` is made, with a hard link for each file: who changes one must replace it. */
void fuzz_folder_link(const char *from, const char *to);
void fuzz_file_link(const char *from, const char *to);
bool fuzz_file_read(const char *path, fuzz_bytes *bytes);
void fuzz_file_replace(const char *path, const void *bytes, size_t count);
bool fuzz_exists(const char *path);

/* One file of a folder (all of what is in it, or a file itself) is spoiled: its bytes, its type, its size, its name. */
void fuzz_folder_spoil(treadle_random *random, const char *path);

#endif
