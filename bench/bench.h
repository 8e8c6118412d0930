/* What the benches share: a model from the text of its config, medians, options. */
#ifndef TREADLE_BENCH_BENCH_H
#define TREADLE_BENCH_BENCH_H

#include "base/status.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Opens a model from the text of a config.json, by way of a file that is gone afterwards. */
static inline treadle_status bench_open_model(const char *config, treadle_model **model_p) {
  treadle_status status = TREADLE_OK;
  char path[] = "/tmp/treadle-bench-XXXXXX.json";
  int file = mkstemps(path, (int)strlen(".json"));
  if (file < 0) return treadle_fail(TREADLE_SYSTEM, "%s: %s", path, strerror(errno));
  if (write(file, config, strlen(config)) != (ssize_t)strlen(config))
    TRY(treadle_fail(TREADLE_SYSTEM, "%s: %s", path, strerror(errno)));
  TRY(treadle_model_open(path, NULL, model_p));
out:
  unlink(path);
  close(file);
  return status;
}

static inline int bench_ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The median of `count` values, which are sorted on the way. */
static inline double bench_median(double *values, int count) {
  qsort(values, (size_t)count, sizeof *values, bench_ascending);
  return count % 2 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
}

/* The value of an option "--name VALUE" or "--name=VALUE" at texts[*at], NULL when it is another one; *at
 * moves to the last word used. */
static inline const char *bench_option(char **texts, int *at, const char *name) {
  size_t length = strlen(name);
  if (strncmp(texts[*at], name, length) != 0) return NULL;
  if (texts[*at][length] == '=') return texts[*at] + length + 1;
  if (texts[*at][length] || !texts[*at + 1]) return NULL;
  return texts[++*at];
}

#endif
