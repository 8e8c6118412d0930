/* What every chart of a report stands on: report_axes.c. */
#ifndef TREADLE_CLI_REPORT_AXES_H
#define TREADLE_CLI_REPORT_AXES_H

#include "cli/report.h"

enum {
  TREADLE_CHART_WIDTH = 620,
  TREADLE_CHART_HEIGHT = 200,
  TREADLE_CHART_LEFT = 64,
  TREADLE_CHART_BOTTOM = 26,
  TREADLE_CHART_TOP = 10,
  TREADLE_CHART_RIGHT = 8,
  TREADLE_CHART_COLOURS = 8,
  TREADLE_CHART_TICKS = 12
};

extern const char *const treadle_chart_colours[TREADLE_CHART_COLOURS];

typedef struct treadle_chart_bounds {
  double left, right, low, high; /* of steps or seconds; of values: the two axes */
  const char *unit;
  bool whole; /* whole numbers from left to right */
} treadle_chart_bounds;

/* Round numbers between two, of bytes or another unit; how many there are. Beside a number as large as 1e17 a tick may be too small to be a
 * step: each is another one. */
int treadle_chart_ticks(double low, double high, const char *unit, double ticks[TREADLE_CHART_TICKS]);

double treadle_chart_x(const treadle_chart_bounds *axes, double at);
double treadle_chart_y(const treadle_chart_bounds *axes, double value);
/* So that the value is between the two, which are NaN before the first one. */
void treadle_chart_widen(double *low_p, double *high_p, double value);

/* The figure with its SVG up to the axes; what is drawn comes then; the end of the SVG, keys, and </figure>. */
void treadle_chart_begin(treadle_builder *page, const treadle_chart_bounds *axes, const char *title,
                         const char *below);
void treadle_chart_end(treadle_builder *page);
/* A swatch, as its attribute has it (class="..." or style="..."), and what it stands for. */
void treadle_chart_key(treadle_builder *page, const char *style, const char *label);
void treadle_chart_key_colour(treadle_builder *page, const char *colour, const char *label);

#endif
