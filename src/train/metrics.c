#include "train/metrics.h"

#include "base/alloc.h"
#include "io/file.h"
#include "io/file_look.h"
#include "io/json.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const size_t LINES_MOST = (size_t)1 << 32; /* bytes of metrics.jsonl */

typedef struct growing { /* a file to which lines are appended */
  int fd;
  char path[4096];
} growing;

struct treadle_metrics {
  growing lines, events;
  treadle_builder text;
};

static treadle_status system_says(const char *path, const char *verb) {
  return treadle_fail(TREADLE_SYSTEM, "%s: cannot %s: %s", path, verb, strerror(errno));
}

static double wall_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* All bytes, or none. */
static treadle_status append(growing *file, treadle_builder *text) {
  struct stat before;
  if (text->failed) return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for a line", file->path);
  if (fstat(file->fd, &before) != 0) return system_says(file->path, "be looked at");
  for (size_t done = 0; done < text->length;) {
    ssize_t put = write(file->fd, text->text + done, text->length - done);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) {
      treadle_status status = system_says(file->path, "write");
      if (ftruncate(file->fd, before.st_size) != 0)
        return treadle_fail(TREADLE_SYSTEM, "%s: cannot write, nor take back a part of a line: %s",
                            file->path, strerror(errno));
      return status;
    }
    done += (size_t)put;
  }
  return TREADLE_OK;
}

/* ---- metrics.jsonl ---- */

static treadle_status step_of(const char *path, int64_t number, const char *line, size_t bytes,
                              int64_t *step_p) {
  json_t *root = json_loadb(line, bytes, JSON_REJECT_DUPLICATES, NULL);
  json_t *step = json_object_get(root, "step");
  treadle_status status = TREADLE_OK;
  if (!json_is_integer(step))
    status = treadle_fail(TREADLE_REFUSED, "%s, line %lld: is no object with a whole number \"step\"", path,
                          (long long)number);
  *step_p = json_integer_value(step);
  json_decref(root);
  return status;
}

/* Where the first line of a later step, or one without an end, begins. */
static treadle_status find_end(const growing *file, int64_t step, size_t *end_p) {
  char *text = NULL;
  size_t bytes;
  treadle_status status;
  *end_p = 0;
  TRY(treadle_file_read(file->path, LINES_MOST, &text, &bytes));
  for (int64_t number = 1; *end_p < bytes; number++) {
    const char *line = text + *end_p, *close = memchr(line, '\n', bytes - *end_p);
    int64_t found;
    if (!close) break;
    TRY(step_of(file->path, number, line, (size_t)(close - line), &found));
    if (found > step) break;
    *end_p += (size_t)(close - line) + 1;
  }
out:
  treadle_free(text);
  return status;
}

static treadle_status open_lines(growing *file, const char *folder, int64_t step) {
  treadle_status status;
  size_t end = 0;
  snprintf(file->path, sizeof file->path, "%s/metrics.jsonl", folder);
  TRY(treadle_file_check_plain(file->path));
  file->fd = open(file->path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (file->fd < 0) return system_says(file->path, "open");
  if (step >= 0) TRY(find_end(file, step, &end));
  if (ftruncate(file->fd, (off_t)end) != 0) return system_says(file->path, "cut off");
out:
  return status;
}

static void make_line(treadle_builder *text, int64_t step, const treadle_metric *values, size_t count) {
  treadle_builder_add(text, "{\"step\":%lld", (long long)step);
  for (size_t i = 0; i < count; i++) {
    char number[40];
    snprintf(number, sizeof number, values[i].is_whole ? "%.0f" : "%.17g", values[i].value);
    treadle_builder_add(text, ",\"%s\":%s%s", values[i].name, isfinite(values[i].value) ? number : "null",
                        isfinite(values[i].value) && !values[i].is_whole && !strpbrk(number, ".e") ? ".0"
                                                                                                   : "");
  }
  treadle_builder_add(text, "}\n");
}

/* ---- TensorBoard's file ---- */

/* A new one each time, named as TensorBoard's own writers do. */
static treadle_status open_events(growing *file, const char *folder) {
  char host[64] = "localhost";
  if (gethostname(host, sizeof host) != 0) strcpy(host, "localhost");
  host[sizeof host - 1] = 0;
  for (int number = 0; number < 1000; number++) {
    snprintf(file->path, sizeof file->path, "%s/events.out.tfevents.%lld.%s.%ld.%d", folder,
             (long long)time(NULL), host, (long)getpid(), number);
    file->fd = open(file->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    if (file->fd >= 0 || errno != EEXIST) break;
  }
  return file->fd < 0 ? system_says(file->path, "create") : TREADLE_OK;
}

static treadle_status begin_events(treadle_metrics *m, int64_t step) {
  m->text.length = 0;
  treadle_event_version(&m->text, wall_seconds());
  if (step >= 0) treadle_event_start(&m->text, wall_seconds(), step + 1);
  return append(&m->events, &m->text);
}

/* ---- Both ---- */

treadle_status treadle_metrics_open(const char *folder, int64_t step, treadle_metrics **metrics_p) {
  treadle_status status;
  treadle_metrics *m = treadle_alloc(sizeof *m);
  *metrics_p = NULL;
  if (!m) return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for metrics", folder);
  m->lines.fd = m->events.fd = -1;
  if (strlen(folder) + 200 > sizeof m->lines.path)
    TRY(treadle_fail(TREADLE_REFUSED, "%s: the path is too long", folder));
  TRY(open_lines(&m->lines, folder, step));
  TRY(open_events(&m->events, folder));
  TRY(begin_events(m, step));
  *metrics_p = m;
  m = NULL;
out:
  treadle_metrics_close(m);
  return status;
}

treadle_status treadle_metrics_write(treadle_metrics *metrics, int64_t step, const treadle_metric *values,
                                     size_t count) {
  treadle_status status;
  metrics->text.length = 0;
  make_line(&metrics->text, step, values, count);
  TRY(append(&metrics->lines, &metrics->text));
  metrics->text.length = 0;
  treadle_event_values(&metrics->text, wall_seconds(), step, values, count);
  TRY(append(&metrics->events, &metrics->text));
out:
  return status;
}

void treadle_metrics_close(treadle_metrics *metrics) {
  if (!metrics) return;
  if (metrics->lines.fd >= 0) close(metrics->lines.fd);
  if (metrics->events.fd >= 0) close(metrics->events.fd);
  treadle_builder_release(&metrics->text);
  treadle_free(metrics);
}
