/* The picture: stacked areas that change in steps, the bounds as lines, modes and arrows below.
 *
 * Time between arrows is the caller's, and says nothing of the switch; so each mode gets the same small width, and what is
 * left of the picture goes to the arrows, all on one scale. */
#include "cli/timeline.h"

#include "base/clock.h"
#include "base/text.h"
#include "base/utf8.h"
#include "treadle_tools.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 960, HEIGHT = 460, LEFT = 76, RIGHT = 24, TOP = 72, BOTTOM = 96, MODE_WIDTH = 54 };
enum {
  LABEL_ROWS = 3,
  ROW_HEIGHT = 15,
  LETTER = 6
}; /* of words below the picture; a letter's width, about */

static const struct {
  const char *name, *colour;
} classes[TREADLE_CLASSES] = {{"params", "#3b6fb6"},          {"gradients", "#9ab8dd"},
                              {"optimizer state", "#6a9a5b"}, {"infer params", "#d98032"},
                              {"KV cache", "#f2c28b"},        {"work memory", "#8f6bb0"},
                              {"training work", "#b79acb"},   {"reference", "#5f9ea0"}};

/* ---- From seconds and bytes to places ---- */

typedef struct span { /* a mode, or an arrow */
  double begin, end;  /* seconds */
  double left, right; /* in the picture */
  const char *text;
  bool arrow;
} span;

typedef struct frame { /* from seconds and bytes to places in the picture */
  span spans[TREADLE_TIMELINE_NAMES];
  size_t count;
  bool cut;     /* there are later ones */
  double end;   /* of the last span, seconds */
  double scale; /* of the arrows: width of a second */
  double most;  /* bytes at the top */
} frame;

static void make_spans(frame *f, const treadle_timeline *t) {
  double arrows = 0, left = LEFT;
  size_t modes = 0,
         full = t->name_count == TREADLE_TIMELINE_NAMES; /* how long the last one was is not known then */
  f->count = t->name_count - full;
  f->cut = full;
  f->end = full ? t->names[f->count].seconds : treadle_clock_seconds();
  for (size_t i = 0; i < f->count; i++) {
    const treadle_timeline_name_at *n = &t->names[i];
    span *s = &f->spans[i];
    double begin = i == 0 && t->count > 0 ? t->samples[0].seconds : n->seconds;
    *s = (span){.begin = begin,
                .end = i + 1 < f->count ? n[1].seconds : f->end,
                .text = n->text,
                .arrow = treadle_text_starts(n->text, "to ")};
    if (s->arrow) arrows += s->end - s->begin;
    modes += !s->arrow;
  }
  double width = WIDTH - LEFT - RIGHT, mode = 0.6 * width / (double)(modes ? modes : 1);
  if (mode > MODE_WIDTH && arrows > 0) mode = MODE_WIDTH;
  f->scale = arrows > 0 ? (width - mode * (double)modes) / arrows : 0;
  for (size_t i = 0; i < f->count; i++) {
    span *s = &f->spans[i];
    s->left = left;
    left += s->arrow ? (s->end - s->begin) * f->scale : mode;
    s->right = left;
  }
}

static double x_of(const frame *f, double seconds) {
  size_t i = 0;
  while (i + 1 < f->count && seconds >= f->spans[i].end) i++;
  const span *s = &f->spans[i];
  if (seconds <= s->begin || s->end <= s->begin) return s->left;
  return seconds >= s->end ? s->right
                           : s->left + (seconds - s->begin) / (s->end - s->begin) * (s->right - s->left);
}

static double y_of(const frame *f, double bytes) {
  return HEIGHT - BOTTOM - bytes / f->most * (HEIGHT - TOP - BOTTOM);
}

/* What is shown of a text is made of characters that XML has. */
static void write_escaped(FILE *file, const char *text) {
  for (text = treadle_text_shown(text); *text; text++) {
    const char *entity = *text == '<' ? "&lt;" : *text == '>' ? "&gt;" : *text == '&' ? "&amp;" : NULL;
    entity ? fputs(entity, file) : fputc(*text, file);
  }
}

/* "64 MiB" */
static void short_size(size_t bytes, char *text, size_t room) {
  snprintf(text, room, "%s", treadle_text_of_size(bytes));
  char *zeros = strstr(text, ".00 ");
  if (zeros) memmove(zeros, zeros + 3, strlen(zeros + 3) + 1);
}

/* "119 ms" */
static void short_time(double seconds, char *text, size_t room) {
  if (seconds < 1)
    snprintf(text, room, seconds < 0.01 ? "%.2g ms" : "%.0f ms", seconds * 1e3);
  else
    snprintf(text, room, "%.3g s", seconds);
}

/* One class on top of those before it. */
static void draw_class(FILE *file, const treadle_timeline *t, const frame *f, int which) {
  size_t count = 0;
  while (count < t->count && (count == 0 || t->samples[count].seconds < f->end)) count++;
  if (count == 0) return;
  fprintf(file, "<path fill=\"%s\" d=\"", classes[which].colour);
  for (int back = 0; back < 2; back++) {
    for (size_t k = 0; k < count; k++) {
      size_t i = back ? count - 1 - k : k;
      double low = 0, begin = x_of(f, t->samples[i].seconds),
             end = x_of(f, i + 1 < count ? t->samples[i + 1].seconds : f->end);
      for (int c = 0; c < which + !back; c++) low += (double)t->samples[i].bytes[c];
      fprintf(file, "%c%.1f %.1fL%.1f %.1f", k == 0 && !back ? 'M' : 'L', back ? end : begin, y_of(f, low),
              back ? begin : end, y_of(f, low));
    }
  }
  fprintf(file, "Z\"><title>%s</title></path>\n", classes[which].name);
}

/* Is there ever anything of a class? */
static bool has_class(const treadle_timeline *t, int which) {
  size_t i = 0;
  while (i < t->count && !t->samples[i].bytes[which]) i++;
  return i < t->count;
}

/* Behind the areas: where arrows are, and lines for round sizes. */
static void draw_plan_base(FILE *file, const frame *f) {
  char text[40];
  for (size_t i = 0; i < f->count; i++) {
    const span *s = &f->spans[i];
    if (s->arrow)
      fprintf(file, "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"#ededea\"/>\n", s->left,
              TOP, s->right - s->left, HEIGHT - BOTTOM - TOP);
    fprintf(file, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\" stroke=\"#333\"%s/>\n", s->left,
            s->right, HEIGHT - BOTTOM, HEIGHT - BOTTOM, s->arrow ? "" : " stroke-dasharray=\"2 3\"");
  }
  size_t step = 4096;
  while (f->most / (double)step > 6) step *= 2;
  for (size_t bytes = 0; (double)bytes <= f->most; bytes += step) {
    double y = y_of(f, (double)bytes);
    short_size(bytes, text, sizeof text);
    fprintf(file,
            "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#bbb\" stroke-width=\"0.5\"/>"
            "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
            LEFT, WIDTH - RIGHT, y, y, LEFT - 6, y + 4, text);
  }
}

/* Names of modes, where they have room, in the first row; arrows and how long they took in those below, each in the first
 * that has room. */
static void draw_names(FILE *file, const frame *f) {
  double taken[LABEL_ROWS] = {0};
  char text[80], time[24];
  for (size_t i = 0; i < f->count; i++) {
    const span *s = &f->spans[i];
    double middle = (s->left + s->right) / 2, half;
    int row = 0;
    if (s->arrow) {
      short_time(s->end - s->begin, time, sizeof time);
      snprintf(text, sizeof text, "%s, %s", s->text, time);
      half = LETTER * (double)strlen(text) / 2;
      if (middle + half > WIDTH - RIGHT) middle = WIDTH - RIGHT - half;
      while (row < LABEL_ROWS && middle - half < taken[row] + LETTER) row++;
      if (row < LABEL_ROWS) taken[row] = middle + half;
      row++;
    } else {
      snprintf(text, sizeof text, "%s", s->text);
      if (LETTER * (double)strlen(text) > s->right - s->left) continue;
    }
    if (row <= LABEL_ROWS)
      fprintf(file, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\"%s>%s</text>\n", middle,
              HEIGHT - BOTTOM + 16 + row * ROW_HEIGHT, s->arrow ? " fill=\"#555\"" : "", text);
  }
}

/* A round time as a bar. */
static void draw_scale(FILE *file, const frame *f) {
  static const double factors[] = {2, 2.5, 2}; /* 1, 2, 5, 10, ... */
  double seconds = 1e-6;
  char text[24];
  int y = HEIGHT - 12;
  for (int i = 0; seconds * f->scale < 50 && seconds < 1e6; i++) seconds *= factors[i % 3];
  short_time(seconds, text, sizeof text);
  fprintf(file, "<text x=\"%d\" y=\"%d\" fill=\"#555\">time in modes is cut; arrows (grey) are to scale",
          LEFT, y);
  if (f->scale > 0)
    fprintf(file,
            ":</text><path fill=\"none\" stroke=\"#333\" d=\"M%d %dv8m0 -4h%.1fm0 -4v8\"/>"
            "<text x=\"%.1f\" y=\"%d\" fill=\"#555\">%s%s",
            LEFT + 290, y - 8, seconds * f->scale, LEFT + 298 + seconds * f->scale, y, text,
            f->cut ? "; later arrows are not drawn" : "");
  fprintf(file, "</text>\n");
}

static void draw_bound(FILE *file, const frame *f, size_t bytes, const char *what, bool right) {
  double y = y_of(f, (double)bytes);
  int x = right ? WIDTH - RIGHT - 4 : LEFT + 4;
  fprintf(
      file,
      "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#b3262c\" stroke-width=\"1.5\"%s/>"
      "<text x=\"%d\" y=\"%.1f\" text-anchor=\"%s\" fill=\"#b3262c\" stroke=\"white\" stroke-width=\"3\" "
      "paint-order=\"stroke\">%s %s</text>\n",
      LEFT, WIDTH - RIGHT, y, y, right ? "" : " stroke-dasharray=\"1 4\"", x, y - 5,
      right ? "end" : "start", what, treadle_text_of_size(bytes));
}

/* In front of the areas. That of a switch holds while there are infer parameters and no KV cache and work memory yet, or any more. */
static void draw_bounds(FILE *file, const treadle_timeline *t, const frame *f,
                        treadle_timeline_bounds bounds) {
  double y = y_of(f, (double)bounds.in_switches);
  draw_bound(file, f, bounds.of_pool,
             bounds.in_switches < bounds.of_pool ? "bound of the pool"
                                                 : "bound of the switch, and of the pool",
             true);
  if (bounds.in_switches >= bounds.of_pool) return;
  draw_bound(file, f, bounds.in_switches, "bound of the switch (drawn thick where it holds)", false);
  for (size_t i = 0; i < t->count && t->samples[i].seconds < f->end; i++) {
    const treadle_timeline_sample *s = &t->samples[i];
    if (s->bytes[TREADLE_INFER_PARAMS] == 0 || s->bytes[TREADLE_KV] > 0 || s->bytes[TREADLE_WORK] > 0)
      continue;
    double end = i + 1 < t->count ? s[1].seconds : f->end;
    fprintf(
        file,
        "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#b3262c\" stroke-width=\"3\"/>\n",
        x_of(f, s->seconds), x_of(f, end), y, y);
  }
}

static void draw(FILE *file, const treadle_timeline *t, const char *title, treadle_timeline_bounds bounds) {
  size_t most = treadle_timeline_peak(t);
  if (bounds.of_pool > most) most = bounds.of_pool;
  frame f = {.most = 1.05 * (double)most + 1};
  assert(t->name_count > 0);
  make_spans(&f, t);
  fprintf(file,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
          "font-size=\"11\">\n<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n"
          "<text x=\"%d\" y=\"22\" font-size=\"%d\">",
          WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT, strlen(title) > 100 ? 11 : 14);
  write_escaped(file, title);
  fprintf(file, "</text>\n");
  draw_plan_base(file, &f);
  for (int c = 0; c < TREADLE_CLASSES; c++) draw_class(file, t, &f, c);
  draw_bounds(file, t, &f, bounds);
  draw_names(file, &f);
  draw_scale(file, &f);
  for (int c = 0; c < TREADLE_CLASSES; c++) /* work memory, a reference: only where there is some */
    if (c < TREADLE_WORK || has_class(t, c))
      fprintf(file,
              "<rect x=\"%d\" y=\"36\" width=\"12\" height=\"12\" fill=\"%s\"/><text x=\"%d\" "
              "y=\"46\">%s</text>\n",
              LEFT + c * 130, classes[c].colour, LEFT + c * 130 + 17, classes[c].name);
  fprintf(file, "</svg>\n");
}

/* ---- The file ---- */

treadle_status treadle_timeline_check(const char *path) {
  treadle_status status = treadle_output_ask(path); /* the picture comes when all is done */
  return status ? treadle_fail_in(status, "--timeline: ") : TREADLE_OK;
}

treadle_status treadle_timeline_write(const treadle_timeline *t, const char *path, const char *title,
                                      treadle_timeline_bounds bounds) {
  char *text = NULL;
  size_t length = 0;
  treadle_status status = TREADLE_OK;
  FILE *file = open_memstream(&text, &length);
  if (file) draw(file, t, title, bounds);
  bool good = file && !ferror(file);
  good = file && fclose(file) == 0 && good;
  if (!good) TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for a picture", path));
  TRY(treadle_output_write(path, text, length));
out:
  free(text);
  return status ? treadle_fail_in(status, "--timeline: ") : TREADLE_OK;
}
