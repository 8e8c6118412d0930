/* Reading the small text files in which the system tells of itself: /proc, control groups. `root` stands in front of all
 * paths: "", or a folder of a test. */
#ifndef TREADLE_MEMORY_PROC_H
#define TREADLE_MEMORY_PROC_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct treadle_proc_file {
  FILE *file;
  char *line; /* the present one, without its end */
  size_t room;
} treadle_proc_file;

/* Opens root/folder/name; false when it cannot be. Closed in either case. */
bool treadle_proc_open(treadle_proc_file *f, const char *root, const char *folder, const char *name);
/* Reads the next line; false at the end. */
bool treadle_proc_next(treadle_proc_file *f);
void treadle_proc_close(treadle_proc_file *f);

/* The whole number that is all of a file's first line. */
bool treadle_proc_number(const char *root, const char *folder, const char *name, uint64_t *value_p);
/* The whole number in the line that begins with `word`, with `unit` behind it and nothing else. */
bool treadle_proc_line_of(const char *root, const char *folder, const char *name, const char *word,
                          const char *unit, uint64_t *value_p);

#endif
