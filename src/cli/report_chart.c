/* Charts of a report: figures of steps as lines, bands and stacked areas, as SVG. A step that has no value leaves a gap, never a zero,
 * and the axis has the steps that have one; a value without a neighbour is a dot, or a bar. */
#include "cli/report_axes.h"

#include <math.h>
#include <string.h>

enum { POINTS = 400, BAR = 6 };

static bool is_there(const treadle_run_files *run, const char *name) {
  for (size_t i = 0; i < run->count; i++)
    if (!isnan(treadle_run_value(run, i, name))) return true;
  return false;
}

/* Tests are few: a line goes from one to the next over steps without one. */
static bool is_sparse(const char *name) { return strncmp(name, "val", 3) == 0; }

/* What is drawn of a line at a step: with those below it, where lines are stacked. NaN: none of them has a value. */
static double height_of(const treadle_run_files *run, const treadle_chart *chart, size_t at, int which) {
  double value = treadle_run_value(run, at, chart->lines[which].name);
  for (int i = 0; chart->stacked && i < which; i++) {
    double below = treadle_run_value(run, at, chart->lines[i].name);
    if (!isnan(below)) value = (isnan(value) ? 0 : value) + below;
  }
  return value;
}

static treadle_chart_bounds axes_of(const treadle_run_files *run, const treadle_chart *chart) {
  treadle_chart_bounds a = {.left = NAN,
                            .right = NAN,
                            .low = chart->stacked ? 0 : NAN,
                            .high = NAN,
                            .unit = chart->unit,
                            .whole = true};
  for (size_t i = 0; i < run->count; i++) {
    double low = NAN, high = NAN;
    for (int l = 0; chart->lines[l].name; l++)
      treadle_chart_widen(&low, &high, height_of(run, chart, i, l));
    if (chart->low) treadle_chart_widen(&low, &high, treadle_run_value(run, i, chart->low));
    if (chart->high) treadle_chart_widen(&low, &high, treadle_run_value(run, i, chart->high));
    treadle_chart_widen(&a.low, &a.high, low);
    treadle_chart_widen(&a.low, &a.high, high);
    if (!isnan(low)) treadle_chart_widen(&a.left, &a.right, treadle_run_value(run, i, "step"));
  }
  if (!(a.high > a.low)) { /* one value: above or below zero */
    a.low = fmin(a.low, 0);
    a.high = a.low < 0 ? 0 : a.high > 0 ? a.high : 1;
  }
  return a;
}

/* ---- Points -------------------------------------------------------------------------------------------------------- */

/* One shape of a chart: a line, a stacked area, or the band. */
typedef struct plot {
  const treadle_run_files *run;
  const treadle_chart *chart;
  const treadle_chart_bounds *axes;
  int line; /* -1: the band */
} plot;

/* Of a long run some steps are drawn, the first and the last among them. */
static size_t stride_of(const plot *p) {
  return p->line >= 0 && is_sparse(p->chart->lines[p->line].name) ? 1 : p->run->count / POINTS + 1;
}

static size_t point_count(const plot *p) { return (p->run->count + stride_of(p) - 2) / stride_of(p) + 1; }

/* The line of metrics.jsonl of a point. */
static size_t line_of(const plot *p, size_t point) {
  size_t line = point * stride_of(p);
  return line < p->run->count ? line : p->run->count - 1;
}

static double x_of(const plot *p, size_t point) {
  return treadle_chart_x(p->axes, treadle_run_value(p->run, line_of(p, point), "step"));
}

/* The upper edge of a shape at a point; of a line, the line. NaN: a gap. */
static double upper_of(const plot *p, size_t point) {
  if (p->line < 0) return treadle_run_value(p->run, line_of(p, point), p->chart->high);
  return height_of(p->run, p->chart, line_of(p, point), p->line);
}

static double lower_of(const plot *p, size_t point) {
  if (p->line < 0) return treadle_run_value(p->run, line_of(p, point), p->chart->low);
  double below = p->line ? height_of(p->run, p->chart, line_of(p, point), p->line - 1) : 0;
  return isnan(below) ? 0 : below;
}

static bool has_point(const plot *p, size_t point) {
  return point < point_count(p) && !isnan(upper_of(p, point)) && !isnan(lower_of(p, point));
}

/* ---- Shapes -------------------------------------------------------------------------------------------------------- */

/* What lies between the two edges: a subpath for each row of points. A point alone is a bar. */
static void draw_area(treadle_builder *page, const plot *p, const char *colour, const char *more) {
  const size_t count = point_count(p);
  treadle_builder_add(page, "<path fill=\"%s\"%s d=\"", colour, more);
  for (size_t from = 0, end; from < count; from = end) {
    end = from + 1;
    if (!has_point(p, from)) continue;
    while (has_point(p, end)) end++;
    const double half = end - from == 1 ? BAR / 2.0 : 0;
    for (size_t k = from; k < end; k++)
      treadle_builder_add(page, "%c%.1f %.1f", k == from ? 'M' : 'L', x_of(p, k) - half,
                          treadle_chart_y(p->axes, upper_of(p, k)));
    if (half > 0) treadle_builder_add(page, "h%d", BAR);
    for (size_t k = end; k-- > from;)
      treadle_builder_add(page, "L%.1f %.1f", x_of(p, k) + half, treadle_chart_y(p->axes, lower_of(p, k)));
    if (half > 0) treadle_builder_add(page, "h-%d", BAR);
    treadle_builder_add(page, "Z");
  }
  treadle_builder_add(page, "\">");
}

static void draw_line(treadle_builder *page, const plot *p) {
  const treadle_chart_line *line = &p->chart->lines[p->line];
  const size_t count = point_count(p);
  const bool sparse = is_sparse(line->name);
  size_t there = 0;
  bool open = false;
  treadle_builder_add(page, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" d=\"", line->colour);
  for (size_t k = 0; k < count; k++) {
    double value = upper_of(p, k);
    if (isnan(value)) {
      open = open && sparse;
      continue;
    }
    treadle_builder_add(page, "%c%.1f %.1f", open ? 'L' : 'M', x_of(p, k), treadle_chart_y(p->axes, value));
    open = true;
    there++;
  }
  treadle_builder_add(page, "\"><title>");
  treadle_page_text(page, line->label);
  treadle_builder_add(page, "</title></path>\n");
  for (size_t k = 0; k < count; k++) {
    double value = upper_of(p, k);
    bool alone =
        sparse ? there == 1
               : (k == 0 || isnan(upper_of(p, k - 1))) && (k + 1 == count || isnan(upper_of(p, k + 1)));
    if (!isnan(value) && alone)
      treadle_builder_add(page, "<circle fill=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\"/>\n", line->colour,
                          x_of(p, k), treadle_chart_y(p->axes, value));
  }
}

static void draw_shapes(treadle_builder *page, const plot *given) {
  plot p = *given;
  const treadle_chart *chart = p.chart;
  p.line = -1;
  if (chart->low && chart->high) {
    draw_area(page, &p, chart->lines[0].colour, " fill-opacity=\"0.15\"");
    treadle_builder_add(page, "<title>least to most</title></path>\n");
  }
  for (p.line = 0; chart->lines[p.line].name; p.line++) {
    if (!chart->stacked) {
      draw_line(page, &p);
      continue;
    }
    draw_area(page, &p, chart->lines[p.line].colour, "");
    treadle_builder_add(page, "<title>");
    treadle_page_text(page, chart->lines[p.line].label);
    treadle_builder_add(page, "</title></path>\n");
  }
}

static bool is_above_zero(const treadle_run_files *run, const treadle_chart *chart) {
  for (size_t i = 0; i < run->count; i++)
    for (int l = 0; chart->lines[l].name; l++)
      if (height_of(run, chart, i, l) > 0) return true;
  return false;
}

/* The lines that the run has. A band goes with the first line, and is left out where that is. */
void treadle_chart_draw(treadle_builder *page, const treadle_run_files *run, const treadle_chart *chart) {
  treadle_chart there = *chart;
  int count = 0;
  for (int l = 0; chart->lines[l].name; l++)
    if (is_there(run, chart->lines[l].name)) there.lines[count++] = chart->lines[l];
  there.lines[count] = (treadle_chart_line){0};
  if (!count) return;
  if (there.lines[0].name != chart->lines[0].name) there.low = there.high = NULL;
  for (int l = 0; l < count; l++)
    if (!there.lines[l].colour)
      there.lines[l].colour = treadle_chart_colours[(l * 3) % TREADLE_CHART_COLOURS];
  if (there.stacked && !is_above_zero(run, &there)) return; /* nothing that one could see */
  const treadle_chart_bounds a = axes_of(run, &there);
  const plot p = {.run = run, .chart = &there, .axes = &a};
  treadle_chart_begin(page, &a, there.title, "step");
  draw_shapes(page, &p);
  treadle_chart_end(page);
  for (int l = 0; l < count; l++)
    treadle_chart_key_colour(page, there.lines[l].colour, there.lines[l].label);
  treadle_builder_add(page, "</figure>\n");
}
