/* The picture: stacked areas that change in steps, the bound as a line, the modes below. */
#include "cli/timeline.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MOST_SAMPLES = 1 << 15, MOST_NAMES = 64 };
enum { WIDTH = 960, HEIGHT = 420, LEFT = 84, RIGHT = 24, TOP = 64, BOTTOM = 56, LEAST_LABEL = 34 };

typedef struct sample {
  double seconds;
  size_t bytes[TREADLE_CLASSES];
} sample;

typedef struct name {
  double seconds;
  const char *text;
} name;

struct treadle_timeline {
  sample *samples;
  size_t count;
  name names[MOST_NAMES];
  size_t name_count;
};

static const struct {
  const char *name, *colour;
} classes[TREADLE_CLASSES] = {{"params", "#3b6fb6"},
                              {"gradients", "#9ab8dd"},
                              {"optimizer state", "#6a9a5b"},
                              {"infer params", "#d98032"},
                              {"KV cache", "#f2c28b"}};

treadle_status treadle_timeline_create(treadle_timeline **timeline_p) {
  treadle_timeline *t = treadle_alloc(sizeof *t);
  if (t) t->samples = treadle_alloc_array(MOST_SAMPLES, sizeof *t->samples);
  *timeline_p = t;
  return t && t->samples ? TREADLE_OK : treadle_fail(TREADLE_NO_MEMORY, "no memory for a timeline");
}

void treadle_timeline_destroy(treadle_timeline *t) {
  if (t) treadle_free(t->samples);
  treadle_free(t);
}

static size_t sum_of(const sample *s) {
  size_t sum = 0;
  for (int c = 0; c < TREADLE_CLASSES; c++) sum += s->bytes[c];
  return sum;
}

/* When there is no more room, every other sample goes, but for the fuller one of each two. */
static void thin_out(treadle_timeline *t) {
  for (size_t i = 0; i < t->count / 2; i++) {
    const sample *a = &t->samples[2 * i], *b = a + 1;
    t->samples[i] = sum_of(a) > sum_of(b) ? *a : *b;
  }
  t->count /= 2;
}

void treadle_timeline_watch(void *timeline, const size_t bytes[TREADLE_CLASSES]) {
  treadle_timeline *t = timeline;
  if (t->count > 0 && memcmp(t->samples[t->count - 1].bytes, bytes, sizeof t->samples->bytes) == 0) return;
  if (t->count == MOST_SAMPLES) thin_out(t);
  sample *s = &t->samples[t->count++];
  s->seconds = treadle_clock_seconds();
  memcpy(s->bytes, bytes, sizeof s->bytes);
}

void treadle_timeline_name(treadle_timeline *t, const char *text) {
  if (t->name_count < MOST_NAMES) t->names[t->name_count++] = (name){treadle_clock_seconds(), text};
}

size_t treadle_timeline_peak(const treadle_timeline *t) {
  size_t peak = 0;
  for (size_t i = 0; i < t->count; i++)
    if (sum_of(&t->samples[i]) > peak) peak = sum_of(&t->samples[i]);
  return peak;
}

/* ---- The file ---- */

treadle_status treadle_timeline_check(const char *path) {
  const char *slash = strrchr(path, '/');
  char folder[4096] = ".";
  if (slash) snprintf(folder, sizeof folder, "%.*s", slash == path ? 1 : (int)(slash - path), path);
  if (access(folder, W_OK) == 0 && (access(path, F_OK) != 0 || access(path, W_OK) == 0)) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED, "--timeline: '%s' cannot be written: %s", path, strerror(errno));
}

typedef struct frame { /* from seconds and bytes to places in the picture */
  double begin, end, most;
} frame;

static double x_of(const frame *f, double seconds) {
  double span = f->end > f->begin ? f->end - f->begin : 1;
  return LEFT + (seconds - f->begin) / span * (WIDTH - LEFT - RIGHT);
}

static double y_of(const frame *f, double bytes) {
  return HEIGHT - BOTTOM - bytes / f->most * (HEIGHT - TOP - BOTTOM);
}

/* One class on top of those before it. */
static void draw_class(FILE *file, const treadle_timeline *t, const frame *f, int which) {
  fprintf(file, "<path fill=\"%s\" d=\"", classes[which].colour);
  for (int back = 0; back < 2; back++) {
    for (size_t k = 0; k < t->count; k++) {
      size_t i = back ? t->count - 1 - k : k;
      double low = 0, begin = x_of(f, t->samples[i].seconds),
             end = x_of(f, i + 1 < t->count ? t->samples[i + 1].seconds : f->end);
      for (int c = 0; c < which + !back; c++) low += (double)t->samples[i].bytes[c];
      fprintf(file, "%c%.2f %.2fL%.2f %.2f", k == 0 && !back ? 'M' : 'L', back ? end : begin, y_of(f, low),
              back ? begin : end, y_of(f, low));
    }
  }
  fprintf(file, "Z\"><title>%s</title></path>\n", classes[which].name);
}

static void draw_scale(FILE *file, const frame *f) {
  for (int i = 0; i <= 4; i++) {
    double bytes = f->most * i / 4, y = y_of(f, bytes);
    fprintf(file,
            "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ccc\" stroke-width=\"0.5\"/>"
            "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
            LEFT, WIDTH - RIGHT, y, y, LEFT - 6, y + 4, treadle_text_of_size((size_t)bytes));
    double seconds = f->begin + (f->end - f->begin) * i / 4;
    fprintf(file, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.3f s</text>\n", x_of(f, seconds),
            HEIGHT - 12, seconds - f->begin);
  }
}

/* Names of modes, those that have room for it. */
static void draw_names(FILE *file, const treadle_timeline *t, const frame *f) {
  for (size_t i = 0; i < t->name_count; i++) {
    double begin = x_of(f, t->names[i].seconds < f->begin ? f->begin : t->names[i].seconds);
    double end = x_of(f, i + 1 < t->name_count ? t->names[i + 1].seconds : f->end);
    fprintf(
        file,
        "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\" stroke=\"#666\" stroke-dasharray=\"2 3\"/>\n",
        begin, begin, TOP, HEIGHT - BOTTOM + 6);
    if (end - begin >= LEAST_LABEL)
      fprintf(file, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", (begin + end) / 2,
              HEIGHT - BOTTOM + 18, t->names[i].text);
  }
}

static void draw(FILE *file, const treadle_timeline *t, const char *title, size_t bound) {
  size_t peak = treadle_timeline_peak(t);
  frame f = {.begin = t->count ? t->samples[0].seconds : 0,
             .end = treadle_clock_seconds(),
             .most = 1.05 * (double)(peak > bound ? peak : bound) + 1};
  fprintf(file,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
          "font-size=\"11\">\n<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n"
          "<text x=\"%d\" y=\"20\" font-size=\"14\">%s</text>\n",
          WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT, title);
  draw_scale(file, &f);
  for (int c = 0; c < TREADLE_CLASSES; c++) draw_class(file, t, &f, c);
  draw_names(file, t, &f);
  double y = y_of(&f, (double)bound);
  fprintf(file,
          "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#b3262c\" stroke-width=\"1.5\"/>"
          "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\" fill=\"#b3262c\">bound of a switch %s</text>\n",
          LEFT, WIDTH - RIGHT, y, y, WIDTH - RIGHT - 4, y - 5, treadle_text_of_size(bound));
  for (int c = 0; c < TREADLE_CLASSES; c++)
    fprintf(file,
            "<rect x=\"%d\" y=\"32\" width=\"12\" height=\"12\" fill=\"%s\"/><text x=\"%d\" "
            "y=\"42\">%s</text>\n",
            LEFT + c * 130, classes[c].colour, LEFT + c * 130 + 17, classes[c].name);
  fprintf(file, "</svg>\n");
}

treadle_status treadle_timeline_write(const treadle_timeline *t, const char *path, const char *title,
                                      size_t bound) {
  char part[4200];
  snprintf(part, sizeof part, "%.4100s.part", path);
  FILE *file = fopen(part, "we");
  if (!file)
    return treadle_fail(TREADLE_SYSTEM, "--timeline: '%s' cannot be written: %s", part, strerror(errno));
  draw(file, t, title, bound);
  bool good = fflush(file) == 0 && !ferror(file);
  good = fclose(file) == 0 && good;
  if (good && rename(part, path) == 0) return TREADLE_OK;
  treadle_status status =
      treadle_fail(TREADLE_SYSTEM, "--timeline: '%s' cannot be written: %s", path, strerror(errno));
  unlink(part);
  return status;
}
