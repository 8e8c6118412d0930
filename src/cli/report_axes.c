/* What every chart of a report stands on: words and sizes as a page shows them, axes with their ticks, keys. */
#include "cli/report_axes.h"

#include "base/utf8.h"

#include <math.h>
#include <string.h>

const char *const treadle_chart_colours[TREADLE_CHART_COLOURS] = {
    "#3b6fb6", "#9ab8dd", "#6a9a5b", "#d98032", "#f2c28b", "#8f6bb0", "#5f9ea0", "#b05b6a"};

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

/* Where `at` lies between two numbers, from 0 to 1; alone, in the middle. Halves, since two numbers of a file may be further apart than any
 * number. */
static double share_of(double at, double low, double high) {
  double span = high / 2 - low / 2;
  return span > 0 ? (at / 2 - low / 2) / span : 0.5;
}

double treadle_chart_x(const treadle_chart_bounds *a, double at) {
  return TREADLE_CHART_LEFT +
         share_of(at, a->left, a->right) * (TREADLE_CHART_WIDTH - TREADLE_CHART_LEFT - TREADLE_CHART_RIGHT);
}

double treadle_chart_y(const treadle_chart_bounds *a, double value) {
  return TREADLE_CHART_TOP + (1 - share_of(value, a->low, a->high)) *
                                 (TREADLE_CHART_HEIGHT - TREADLE_CHART_TOP - TREADLE_CHART_BOTTOM);
}

void treadle_chart_widen(double *low_p, double *high_p, double value) {
  if (isnan(value)) return;
  if (!(*low_p <= value)) *low_p = value;
  if (!(*high_p >= value)) *high_p = value;
}

/* 1, 2 or 5 times a power of ten, and of bytes a power of two: about four are in the span. */
static double tick_of(double span, const char *of) {
  if (strcmp(of, "bytes") == 0) return exp2(ceil(log2(span > 4 ? span / 4 : 1)));
  double unit = pow(10, floor(log10(span > 0 ? span / 4 : 1)));
  double times = span / 4 / unit;
  return unit * (times > 5 ? 10 : times > 2 ? 5 : times > 1 ? 2 : 1);
}

int treadle_chart_ticks(double low, double high, const char *unit, double ticks[TREADLE_CHART_TICKS]) {
  double tick = tick_of(high - low, unit), first = ceil(low / tick) * tick;
  int count = 0;
  if (!isfinite(tick) || !isfinite(first)) return 0;
  for (int k = 0; k < TREADLE_CHART_TICKS; k++) {
    double v = first + k * tick;
    if (v > high + tick * 1e-9 || (count && !(v > ticks[count - 1]))) break;
    ticks[count++] = fabs(v) < tick * 1e-9 ? 0 : v;
  }
  return count;
}

static void put_number(treadle_builder *page, double value, const char *unit) {
  if (strcmp(unit, "bytes") == 0)
    treadle_builder_add(page, "%s", value > 0 ? treadle_page_size(value) : "0");
  else
    treadle_builder_add(page, "%.4g%s%s", value, *unit ? " " : "", unit);
}

void treadle_chart_begin(treadle_builder *page, const treadle_chart_bounds *a, const char *title,
                         const char *below) {
  double ticks[TREADLE_CHART_TICKS];
  int count = treadle_chart_ticks(a->low, a->high, a->unit, ticks);
  treadle_builder_add(page,
                      "<figure><figcaption>%s</figcaption>\n<svg viewBox=\"0 0 %d %d\" role=\"img\">\n",
                      title, TREADLE_CHART_WIDTH, TREADLE_CHART_HEIGHT);
  for (int k = 0; k < count; k++) {
    double y = treadle_chart_y(a, ticks[k]);
    treadle_builder_add(page,
                        "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text x=\"%d\" "
                        "y=\"%.1f\" text-anchor=\"end\">",
                        TREADLE_CHART_LEFT, TREADLE_CHART_WIDTH - TREADLE_CHART_RIGHT, y, y,
                        TREADLE_CHART_LEFT - 4, y + 4);
    put_number(page, ticks[k], a->unit);
    treadle_builder_add(page, "</text>\n");
  }
  count = treadle_chart_ticks(a->left, a->right, "", ticks);
  for (int k = 0; k < count; k++)
    if (!a->whole || ticks[k] == floor(ticks[k])) /* there is no step 1.5 */
      treadle_builder_add(page, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.*g</text>\n",
                          treadle_chart_x(a, ticks[k]), TREADLE_CHART_HEIGHT - TREADLE_CHART_BOTTOM + 15,
                          a->whole ? 9 : 4, ticks[k]);
  treadle_builder_add(page, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n",
                      TREADLE_CHART_WIDTH - TREADLE_CHART_RIGHT, TREADLE_CHART_HEIGHT - 1, below);
}

void treadle_chart_end(treadle_builder *page) { treadle_builder_add(page, "</svg>\n"); }

void treadle_chart_key(treadle_builder *page, const char *style, const char *label) {
  treadle_builder_add(page, "<span class=\"key\"><i %s></i>", style);
  treadle_page_text(page, label);
  treadle_builder_add(page, "</span>\n");
}

void treadle_chart_key_colour(treadle_builder *page, const char *colour, const char *label) {
  char style[64];
  snprintf(style, sizeof style, "style=\"background:%s\"", colour);
  treadle_chart_key(page, style, label);
}
