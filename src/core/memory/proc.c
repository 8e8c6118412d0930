/* The system's small files: any of them may be missing, or hold what was not expected. */
#include "memory/proc.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

bool treadle_proc_open(treadle_proc_file *f, const char *root, const char *folder, const char *name) {
  char path[PATH_MAX];
  *f = (treadle_proc_file){0};
  if (snprintf(path, sizeof path, "%s%s/%s", root, folder, name) < (int)sizeof path)
    f->file = fopen(path, "re");
  return f->file != NULL;
}

bool treadle_proc_next(treadle_proc_file *f) {
  ssize_t length = f->file ? getline(&f->line, &f->room, f->file) : -1;
  if (length > 0 && f->line[length - 1] == '\n') f->line[length - 1] = 0;
  return length >= 0;
}

void treadle_proc_close(treadle_proc_file *f) {
  if (f->file) fclose(f->file);
  free(f->line);
}

/* A whole number, and nothing but `unit` behind it. */
static bool to_number(const char *text, const char *unit, uint64_t *value_p) {
  char *end;
  while (*text == ' ' || *text == '\t') text++;
  if (!isdigit((unsigned char)*text)) return false;
  errno = 0;
  unsigned long long value = strtoull(text, &end, 10);
  if (errno || strcmp(end, unit) != 0) return false;
  *value_p = value;
  return true;
}

bool treadle_proc_number(const char *root, const char *folder, const char *name, uint64_t *value_p) {
  treadle_proc_file f;
  bool read =
      treadle_proc_open(&f, root, folder, name) && treadle_proc_next(&f) && to_number(f.line, "", value_p);
  treadle_proc_close(&f);
  return read;
}

bool treadle_proc_line_of(const char *root, const char *folder, const char *name, const char *word,
                          const char *unit, uint64_t *value_p) {
  treadle_proc_file f;
  bool found = false;
  size_t length = strlen(word);
  if (treadle_proc_open(&f, root, folder, name))
    while (!found && treadle_proc_next(&f))
      found = strncmp(f.line, word, length) == 0 && to_number(f.line + length, unit, value_p);
  treadle_proc_close(&f);
  return found;
}
