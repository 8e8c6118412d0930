#include "run/metrics.h"

#include "base/alloc.h"
#include "io/json.h"
#include "run/growing.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct treadle_metrics {
  treadle_growing lines, events;
  treadle_builder text;
};

static double wall_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void make_line(treadle_builder *text, int64_t step, const treadle_metric *values, size_t count) {
  treadle_builder_add(text, "{\"step\":%lld", (long long)step);
  for (size_t i = 0; i < count; i++) {
    char number[40];
    snprintf(number, sizeof number, values[i].is_whole ? "%.0f" : "%.17g", values[i].value);
    const bool is_number = isfinite(values[i].value);
    treadle_builder_add(text, ",");
    treadle_json_add_text(text, values[i].name, strlen(values[i].name)); /* some have names from data */
    treadle_builder_add(text, ":%s%s", is_number ? number : "null",
                        is_number && !values[i].is_whole && !strpbrk(number, ".e") ? ".0" : "");
  }
  treadle_builder_add(text, "}\n");
}

/* ---- TensorBoard's file ---- */

/* A new one each time, named as TensorBoard's own writers do. */
static treadle_status open_events(treadle_growing *file, const char *folder) {
  char host[64] = "localhost";
  if (gethostname(host, sizeof host) != 0) strcpy(host, "localhost");
  host[sizeof host - 1] = 0;
  for (int number = 0; number < 1000; number++) {
    snprintf(file->path, sizeof file->path, "%s/events.out.tfevents.%lld.%s.%ld.%d", folder,
             (long long)time(NULL), host, (long)getpid(), number);
    file->fd = open(file->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    if (file->fd >= 0 || errno != EEXIST) break;
  }
  return file->fd < 0 ? treadle_fail(TREADLE_SYSTEM, "%s: cannot create: %s", file->path, strerror(errno))
                      : TREADLE_OK;
}

static treadle_status begin_events(treadle_metrics *m, int64_t step) {
  m->text.length = 0;
  treadle_event_version(&m->text, wall_seconds());
  if (step >= 0) treadle_event_start(&m->text, wall_seconds(), step + 1);
  return treadle_growing_append(&m->events, &m->text);
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
  TRY(treadle_growing_open(&m->lines, folder, "metrics.jsonl", step));
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
  TRY(treadle_growing_append(&metrics->lines, &metrics->text));
  metrics->text.length = 0;
  treadle_event_values(&metrics->text, wall_seconds(), step, values, count);
  TRY(treadle_growing_append(&metrics->events, &metrics->text));
out:
  return status;
}

void treadle_metrics_note(const treadle_metrics *metrics, char *text, size_t room) {
  treadle_growing_note(&metrics->lines, text, room);
}

void treadle_metrics_close(treadle_metrics *metrics) {
  if (!metrics) return;
  if (metrics->lines.fd >= 0) close(metrics->lines.fd);
  if (metrics->events.fd >= 0) close(metrics->events.fd);
  treadle_builder_release(&metrics->text);
  treadle_free(metrics);
}
