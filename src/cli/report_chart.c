/* Charts as SVG. */
#include "cli/report.h"

#include "base/utf8.h"

#include <math.h>
#include <string.h>

enum { WIDTH = 620, HEIGHT = 200, LEFT = 64, BOTTOM = 26, TOP = 10, RIGHT = 8, POINTS = 400 };

static const char *const colours[] = {"#3b6fb6", "#9ab8dd", "#6a9a5b", "#d98032",
                                      "#f2c28b", "#8f6bb0", "#5f9ea0", "#b05b6a"};
enum { COLOURS = sizeof colours / sizeof *colours };

const char *treadle_page_size(double bytes) {
  return bytes >= 0 && bytes < 0x1p62 ? treadle_text_of_size((size_t)bytes) : "?";
}

void treadle_page_text(treadle_builder *page, const char *text) {
  while (*text) {
    uint32_t code = 0;
    int bytes = treadle_utf8_read(text, &code);
    if (bytes == 0) {
      treadle_builder_add(page, "\\x%02x", (unsigned char)*text++);
      continue;
    }
    if (code == '<' || code == '>' || code == '&' || code == '"' || code == '\'')
      treadle_builder_add(page, "&#%u;", code);
    else if (treadle_utf8_is_plain(code) || code == '\n')
      treadle_builder_add_bytes(page, text, (size_t)bytes);
    else
      for (int i = 0; i < bytes; i++) treadle_builder_add(page, "\\x%02x", (unsigned char)text[i]);
    text += bytes;
  }
}

/* ---- Axes ------------------------------------------------------------------------------------------------------ */

typedef struct axes {
  double left, right, low, high; /* of steps or seconds; of values */
  const char *unit;
} axes;

static double x_of(const axes *a, double at) {
  double span = a->right > a->left ? a->right - a->left : 1;
  return LEFT + (at - a->left) / span * (WIDTH - LEFT - RIGHT);
}

static double y_of(const axes *a, double value) {
  double span = a->high > a->low ? a->high - a->low : 1;
  return TOP + (1 - (value - a->low) / span) * (HEIGHT - TOP - BOTTOM);
}

/* 1, 2 or 5 times a power of ten, and of bytes a power of two: about four are in the span. */
static double tick_of(double span, const char *of) {
  if (strcmp(of, "bytes") == 0) return exp2(ceil(log2(span > 4 ? span / 4 : 1)));
  double unit = pow(10, floor(log10(span > 0 ? span / 4 : 1)));
  double times = span / 4 / unit;
  return unit * (times > 5 ? 10 : times > 2 ? 5 : times > 1 ? 2 : 1);
}

static void put_number(treadle_builder *page, double value, const char *unit) {
  if (strcmp(unit, "bytes") == 0)
    treadle_builder_add(page, "%s", value > 0 ? treadle_page_size(value) : "0");
  else
    treadle_builder_add(page, "%.4g%s%s", fabs(value) < 1e-12 ? 0 : value, *unit ? " " : "", unit);
}

static void begin(treadle_builder *page, const axes *a, const char *title, const char *below) {
  treadle_builder_add(page,
                      "<figure><figcaption>%s</figcaption>\n<svg viewBox=\"0 0 %d %d\" role=\"img\">\n",
                      title, WIDTH, HEIGHT);
  double tick = tick_of(a->high - a->low, a->unit);
  for (double v = ceil(a->low / tick) * tick; v <= a->high + tick * 1e-9; v += tick) {
    treadle_builder_add(page,
                        "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text x=\"%d\" "
                        "y=\"%.1f\" text-anchor=\"end\">",
                        LEFT, WIDTH - RIGHT, y_of(a, v), y_of(a, v), LEFT - 4, y_of(a, v) + 4);
    put_number(page, v, a->unit);
    treadle_builder_add(page, "</text>\n");
  }
  tick = tick_of(a->right - a->left, "");
  for (double v = ceil(a->left / tick) * tick; v <= a->right + tick * 1e-9; v += tick)
    treadle_builder_add(page, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.4g</text>\n", x_of(a, v),
                        HEIGHT - BOTTOM + 15, fabs(v) < 1e-12 ? 0 : v);
  treadle_builder_add(page, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n", WIDTH - RIGHT,
                      HEIGHT - 1, below);
}

static void end(treadle_builder *page) { treadle_builder_add(page, "</svg>\n"); }

static void put_key(treadle_builder *page, const char *colour, const char *label) {
  treadle_builder_add(page, "<span class=\"key\"><i style=\"background:%s\"></i>", colour);
  treadle_page_text(page, label);
  treadle_builder_add(page, "</span>\n");
}

/* ---- Figures of steps -------------------------------------------------------------------------------------------- */

static bool is_there(const treadle_run_files *run, const char *name) {
  for (size_t i = 0; i < run->count; i++)
    if (!isnan(treadle_run_value(run, i, name))) return true;
  return false;
}

static void widen(axes *a, double value) {
  if (isnan(value)) return;
  if (!(a->low <= value)) a->low = value;
  if (!(a->high >= value)) a->high = value;
}

/* What is drawn of a line at a step: with those below it, where lines are stacked. */
static double height_of(const treadle_run_files *run, const treadle_chart *chart, size_t line, int which) {
  double value = treadle_run_value(run, line, chart->lines[which].name);
  for (int i = 0; chart->stacked && i < which; i++) {
    double below = treadle_run_value(run, line, chart->lines[i].name);
    if (!isnan(below)) value = (isnan(value) ? 0 : value) + below;
  }
  return value;
}

static axes axes_of(const treadle_run_files *run, const treadle_chart *chart) {
  axes a = {.left = treadle_run_value(run, 0, "step"),
            .right = treadle_run_value(run, run->count - 1, "step"),
            .low = chart->stacked ? 0 : NAN,
            .high = NAN,
            .unit = chart->unit};
  for (size_t i = 0; i < run->count; i++) {
    for (int l = 0; chart->lines[l].name; l++) widen(&a, height_of(run, chart, i, l));
    if (chart->low) widen(&a, treadle_run_value(run, i, chart->low));
    if (chart->high) widen(&a, treadle_run_value(run, i, chart->high));
  }
  if (isnan(a.high)) a.low = a.high = 0;
  if (a.high <= a.low) a.high = a.low + 1;
  return a;
}

static size_t stride_of(const treadle_run_files *run) { return run->count / POINTS + 1; }

static void draw_band(treadle_builder *page, const treadle_run_files *run, const treadle_chart *chart,
                      const axes *a) {
  const size_t stride = stride_of(run);
  treadle_builder_add(page, "<polygon fill=\"%s\" fill-opacity=\"0.15\" points=\"", chart->lines[0].colour);
  for (int back = 0; back < 2; back++)
    for (size_t k = 0; k * stride < run->count; k++) {
      size_t i = back ? run->count - 1 - k * stride : k * stride;
      double value = treadle_run_value(run, i, back ? chart->low : chart->high);
      if (!isnan(value))
        treadle_builder_add(page, "%.1f,%.1f ", x_of(a, treadle_run_value(run, i, "step")), y_of(a, value));
    }
  treadle_builder_add(page, "\"/>\n");
}

/* Of stacked lines, what is between one and those below it. */
static void draw_area(treadle_builder *page, const treadle_run_files *run, const treadle_chart *chart,
                      int l, const axes *a) {
  const size_t stride = stride_of(run);
  treadle_builder_add(page, "<polygon fill=\"%s\" points=\"", chart->lines[l].colour);
  for (int back = 0; back < 2; back++)
    for (size_t k = 0; k * stride < run->count; k++) {
      size_t i = back ? (run->count - 1) / stride * stride - k * stride : k * stride;
      double value = !back ? height_of(run, chart, i, l) : l ? height_of(run, chart, i, l - 1) : 0;
      treadle_builder_add(page, "%.1f,%.1f ", x_of(a, treadle_run_value(run, i, "step")),
                          y_of(a, isnan(value) ? 0 : value));
    }
  treadle_builder_add(page, "\"><title>");
  treadle_page_text(page, chart->lines[l].label);
  treadle_builder_add(page, "</title></polygon>\n");
}

/* A gap where there is no value; alone, a point. */
static void draw_line(treadle_builder *page, const treadle_run_files *run, const treadle_chart *chart,
                      int l, const axes *a) {
  const treadle_chart_line *line = &chart->lines[l];
  const size_t stride = strncmp(line->name, "val", 3) == 0 ? 1 : stride_of(run);
  bool open = false;
  treadle_builder_add(page, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" d=\"", line->colour);
  for (size_t i = 0; i < run->count; i += stride) {
    double value = height_of(run, chart, i, l), x = x_of(a, treadle_run_value(run, i, "step"));
    if (isnan(value) && strncmp(line->name, "val", 3) == 0) continue;
    if (!isnan(value)) treadle_builder_add(page, "%c%.1f %.1f", open ? 'L' : 'M', x, y_of(a, value));
    open = !isnan(value);
  }
  treadle_builder_add(page, "\"><title>");
  treadle_page_text(page, line->label);
  treadle_builder_add(page, "</title></path>\n");
}

void treadle_chart_draw(treadle_builder *page, const treadle_run_files *run, const treadle_chart *chart) {
  treadle_chart there = *chart;
  int count = 0;
  for (int l = 0; chart->lines[l].name && count < 7; l++)
    if (is_there(run, chart->lines[l].name)) there.lines[count++] = chart->lines[l];
  there.lines[count] = (treadle_chart_line){0};
  if (!count) return;
  for (int l = 0; l < count; l++)
    if (!there.lines[l].colour) there.lines[l].colour = colours[(l * 3) % COLOURS];
  const axes a = axes_of(run, &there);
  begin(page, &a, there.title, "step");
  if (there.low && there.high) draw_band(page, run, &there, &a);
  for (int l = 0; l < count; l++) (there.stacked ? draw_area : draw_line)(page, run, &there, l, &a);
  end(page);
  for (int l = 0; l < count; l++) put_key(page, there.lines[l].colour, there.lines[l].label);
  treadle_builder_add(page, "</figure>\n");
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

static double number_in(const json_t *object, const char *name) {
  const json_t *value = json_object_get(object, name);
  return json_is_number(value) ? json_number_value(value) : 0;
}

/* Of the first `classes` classes together. */
static double sum_of(const json_t *point, size_t classes) {
  const json_t *bytes = json_object_get(point, "bytes");
  double sum = 0;
  for (size_t c = 0; c < classes; c++) sum += json_number_value(json_array_get(bytes, c));
  return sum;
}

/* From each point a step to the next one. */
static void draw_class(treadle_builder *page, const json_t *points, size_t c, const axes *a,
                       const char *name) {
  const size_t count = json_array_size(points);
  treadle_builder_add(page, "<polygon fill=\"%s\" points=\"", colours[c % COLOURS]);
  for (size_t i = 0; i < count; i++) {
    const json_t *p = json_array_get(points, i);
    double next = i + 1 < count ? number_in(json_array_get(points, i + 1), "seconds") : a->right;
    treadle_builder_add(page, "%.1f,%.1f %.1f,%.1f ", x_of(a, number_in(p, "seconds")),
                        y_of(a, sum_of(p, c + 1)), x_of(a, next), y_of(a, sum_of(p, c + 1)));
  }
  for (size_t i = count; i-- > 0;) {
    const json_t *p = json_array_get(points, i);
    double next = i + 1 < count ? number_in(json_array_get(points, i + 1), "seconds") : a->right;
    treadle_builder_add(page, "%.1f,%.1f %.1f,%.1f ", x_of(a, next), y_of(a, sum_of(p, c)),
                        x_of(a, number_in(p, "seconds")), y_of(a, sum_of(p, c)));
  }
  treadle_builder_add(page, "\"><title>");
  treadle_page_text(page, name);
  treadle_builder_add(page, "</title></polygon>\n");
}

static void draw_bound(treadle_builder *page, const axes *a, double bytes, const char *what) {
  if (bytes <= 0 || bytes > a->high) return;
  treadle_builder_add(
      page,
      "<line class=\"bound\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"><title>%s: %s</title></line>\n",
      LEFT, WIDTH - RIGHT, y_of(a, bytes), y_of(a, bytes), what, treadle_page_size(bytes));
}

/* Where a stage begins, with its name: below another one that it would meet. */
static void draw_stages(treadle_builder *page, const json_t *points, const axes *a) {
  enum { ROWS = 4, LETTER = 6, LINE = 12 };
  double ends[ROWS] = {0};
  const char *last = "";
  for (size_t i = 0; i < json_array_size(points); i++) {
    const json_t *p = json_array_get(points, i);
    const char *stage = json_string_value(json_object_get(p, "stage"));
    if (!stage || strcmp(stage, last) == 0) continue;
    last = stage;
    const double x = x_of(a, number_in(p, "seconds"));
    int row = 0;
    while (row + 1 < ROWS && ends[row] > x) row++;
    ends[row] = x + LETTER * (double)strlen(stage);
    treadle_builder_add(page,
                        "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/><text "
                        "class=\"stage\" x=\"%.1f\" y=\"%d\">",
                        x, x, TOP, HEIGHT - BOTTOM, x + 3, TOP + 10 + LINE * row);
    treadle_page_text(page, stage);
    treadle_builder_add(page, "</text>\n");
  }
}

void treadle_chart_memory(treadle_builder *page, const json_t *memory) {
  const json_t *points = json_object_get(memory, "points"), *names = json_object_get(memory, "classes");
  const size_t count = json_array_size(points), classes = json_array_size(names);
  double predicted = number_in(memory, "predicted_bytes"), budget = number_in(memory, "budget_bytes");
  axes a = {.unit = "bytes", .high = predicted > budget ? predicted : budget};
  if (!count || !classes) return;
  for (size_t i = 0; i < count; i++) widen(&a, sum_of(json_array_get(points, i), classes));
  a.right = number_in(json_array_get(points, count - 1), "seconds");
  begin(page, &a, "Device memory of rank 0 through the last step", "seconds");
  for (size_t c = 0; c < classes; c++) {
    const char *name = json_string_value(json_array_get(names, c));
    draw_class(page, points, c, &a, name ? name : "");
  }
  draw_stages(page, points, &a);
  draw_bound(page, &a, predicted, "the peak that was foreseen, of the fullest rank");
  draw_bound(page, &a, budget, "what a rank may use");
  end(page);
  for (size_t c = 0; c < classes; c++) {
    const char *name = json_string_value(json_array_get(names, c));
    put_key(page, colours[c % COLOURS], name ? name : "");
  }
  treadle_builder_add(page, "<span class=\"key\">red: foreseen</span></figure>\n");
}

/* ---- Traffic ------------------------------------------------------------------------------------------------------ */

void treadle_chart_traffic(treadle_builder *page, const json_t *traffic) {
  const json_t *rows = json_object_get(traffic, "inbound");
  const char *train = json_string_value(json_object_get(traffic, "train")),
             *infer = json_string_value(json_object_get(traffic, "infer"));
  size_t count = json_array_size(rows);
  double most = 0;
  treadle_builder_add(page, "<figure><figcaption>The switch: ");
  treadle_page_text(page, train ? train : "?");
  treadle_builder_add(page, " to ");
  treadle_page_text(page, infer ? infer : "?");
  treadle_builder_add(page, "</figcaption><p>%s moved between ranks; %s is the least.</p>\n",
                      treadle_page_size(number_in(traffic, "moved_bytes")),
                      treadle_page_size(number_in(traffic, "lower_bound_bytes")));
  for (size_t i = 0; i < count; i++)
    for (size_t j = 0; j < count; j++)
      most = fmax(most, json_number_value(json_array_get(json_array_get(rows, i), j)));
  if (count) treadle_builder_add(page, "<table class=\"traffic\"><tr><th>to, from</th>");
  for (size_t j = 0; j < count; j++) treadle_builder_add(page, "<th>%zu</th>", j);
  if (count) treadle_builder_add(page, "</tr>\n");
  for (size_t i = 0; i < count; i++) {
    treadle_builder_add(page, "<tr><th>%zu</th>", i);
    for (size_t j = 0; j < count; j++) {
      double bytes = json_number_value(json_array_get(json_array_get(rows, i), j));
      treadle_builder_add(page, "<td style=\"background:rgba(59,111,182,%.2f)\">%s</td>",
                          most > 0 ? 0.8 * bytes / most : 0, bytes > 0 ? treadle_page_size(bytes) : "");
    }
    treadle_builder_add(page, "</tr>\n");
  }
  treadle_builder_add(page, "%s</figure>\n", count ? "</table>" : "");
}
