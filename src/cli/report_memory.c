/* Charts of a report that are not of steps: device bytes through a step, and what a switch moves from rank to rank. */
#include "cli/report_axes.h"

#include <math.h>
#include <string.h>

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
static void draw_class(treadle_builder *page, const json_t *points, size_t c, const treadle_chart_bounds *a,
                       const char *name) {
  const size_t count = json_array_size(points);
  treadle_builder_add(page, "<polygon fill=\"%s\" points=\"",
                      treadle_chart_colours[c % TREADLE_CHART_COLOURS]);
  for (size_t i = 0; i < count; i++) {
    const json_t *p = json_array_get(points, i);
    double next = i + 1 < count ? number_in(json_array_get(points, i + 1), "seconds") : a->right;
    treadle_builder_add(page, "%.1f,%.1f %.1f,%.1f ", treadle_chart_x(a, number_in(p, "seconds")),
                        treadle_chart_y(a, sum_of(p, c + 1)), treadle_chart_x(a, next),
                        treadle_chart_y(a, sum_of(p, c + 1)));
  }
  for (size_t i = count; i-- > 0;) {
    const json_t *p = json_array_get(points, i);
    double next = i + 1 < count ? number_in(json_array_get(points, i + 1), "seconds") : a->right;
    treadle_builder_add(page, "%.1f,%.1f %.1f,%.1f ", treadle_chart_x(a, next),
                        treadle_chart_y(a, sum_of(p, c)), treadle_chart_x(a, number_in(p, "seconds")),
                        treadle_chart_y(a, sum_of(p, c)));
  }
  treadle_builder_add(page, "\"><title>");
  treadle_page_text(page, name);
  treadle_builder_add(page, "</title></polygon>\n");
}

/* A line across, of that class of the page; false: there is no such bound, or it is above all else. */
static bool draw_bound(treadle_builder *page, const treadle_chart_bounds *a, double bytes,
                       const char *class, const char *what) {
  if (bytes <= 0 || bytes > a->high) return false;
  double y = treadle_chart_y(a, bytes);
  treadle_builder_add(
      page, "<line class=\"%s\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"><title>%s: %s</title></line>\n",
      class, TREADLE_CHART_LEFT, TREADLE_CHART_WIDTH - TREADLE_CHART_RIGHT, y, y, what,
      treadle_page_size(bytes));
  return true;
}

/* Where a stage begins, with its name: below another one that it would meet. */
static void draw_stages(treadle_builder *page, const json_t *points, const treadle_chart_bounds *a) {
  enum { ROWS = 4, LETTER = 6, LINE = 12 };
  double ends[ROWS] = {0};
  const char *last = "";
  for (size_t i = 0; i < json_array_size(points); i++) {
    const json_t *p = json_array_get(points, i);
    const char *stage = json_string_value(json_object_get(p, "stage"));
    if (!stage || strcmp(stage, last) == 0) continue;
    last = stage;
    const double x = treadle_chart_x(a, number_in(p, "seconds"));
    int row = 0;
    while (row + 1 < ROWS && ends[row] > x) row++;
    ends[row] = x + LETTER * (double)strlen(stage);
    treadle_builder_add(page,
                        "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/><text "
                        "class=\"stage\" x=\"%.1f\" y=\"%d\">",
                        x, x, TREADLE_CHART_TOP, TREADLE_CHART_HEIGHT - TREADLE_CHART_BOTTOM, x + 3,
                        TREADLE_CHART_TOP + 10 + LINE * row);
    treadle_page_text(page, stage);
    treadle_builder_add(page, "</text>\n");
  }
}

void treadle_chart_memory(treadle_builder *page, const json_t *memory) {
  const json_t *points = json_object_get(memory, "points"), *names = json_object_get(memory, "classes");
  const size_t count = json_array_size(points), classes = json_array_size(names);
  double predicted = number_in(memory, "predicted_bytes"), budget = number_in(memory, "budget_bytes"),
         most = 0;
  treadle_chart_bounds a = {.unit = "bytes"};
  for (size_t i = 0; i < count; i++) most = fmax(most, sum_of(json_array_get(points, i), classes));
  a.high = fmax(most, fmax(predicted, budget));
  if (!classes || !(most > 0)) return;
  a.right = number_in(json_array_get(points, count - 1), "seconds");
  if (!(a.right > 0)) a.right = 1;
  treadle_chart_begin(page, &a, "Device memory of rank 0 through the last step", "seconds");
  for (size_t c = 0; c < classes; c++) {
    const char *name = json_string_value(json_array_get(names, c));
    draw_class(page, points, c, &a, name ? name : "");
  }
  draw_stages(page, points, &a);
  bool foreseen =
           draw_bound(page, &a, predicted, "bound", "the peak that was foreseen, of the fullest rank"),
       limited = draw_bound(page, &a, budget, "limit", "what a rank may use");
  treadle_chart_end(page);
  for (size_t c = 0; c < classes; c++) {
    const char *name = json_string_value(json_array_get(names, c));
    treadle_chart_key_colour(page, treadle_chart_colours[c % TREADLE_CHART_COLOURS], name ? name : "");
  }
  if (foreseen) treadle_chart_key(page, "class=\"dashes foreseen\"", "foreseen, of the fullest rank");
  if (limited) treadle_chart_key(page, "class=\"dashes limited\"", "what a rank may use");
  treadle_builder_add(page, "</figure>\n");
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
  if (!(most > 0)) count = 0; /* a table of nothing */
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
