/* treadle report: a run as one page. report.c reads what the run has left; report_axes.c,
 * report_chart.c, report_memory.c and report_tracks.c draw; report_page.c puts the page together. */
#ifndef TREADLE_CLI_REPORT_H
#define TREADLE_CLI_REPORT_H

#include "base/text.h"
#include "cli/run_trace.h"

#include <jansson.h>

/* The lines of metrics.jsonl, and what stands beside them; NULL: it is not there. */
typedef struct treadle_run_files {
  const char *run;
  json_t **lines; /* [count] of steps, in order */
  size_t count;
  json_t **samples; /* [sample_count] */
  size_t sample_count;
  json_t *memory, *traffic;
  treadle_run_trace trace;
  char *config; /* the text of config.yaml */
} treadle_run_files;

/* A value of a line; NaN: it has none. */
double treadle_run_value(const treadle_run_files *run, size_t line, const char *name);

/* A line of a chart: a figure of each step. */
typedef struct treadle_chart_line {
  const char *name, *label, *colour;
} treadle_chart_line;

typedef struct treadle_chart {
  const char *title, *unit;
  treadle_chart_line lines[10]; /* ended by one without a name */
  const char *low, *high;       /* figures of a band around the first line; NULL: none */
  bool stacked;                 /* lines lie one on the other */
} treadle_chart;

/* Text that is shown: what HTML obeys is escaped, what is not plain is \xNN. */
void treadle_page_text(treadle_builder *page, const char *text);
/* A number of bytes as a file has it, which may be any number. */
const char *treadle_page_size(double bytes);
/* An SVG, where at least one of its figures is there. */
void treadle_chart_draw(treadle_builder *page, const treadle_run_files *run, const treadle_chart *chart);
/* Device bytes through a step; bytes from rank to rank. */
void treadle_chart_memory(treadle_builder *page, const json_t *memory);
/* The figure of who worked when in the last steps; nothing without calls. */
void treadle_chart_tracks(treadle_builder *page, const treadle_run_trace *trace);
void treadle_chart_traffic(treadle_builder *page, const json_t *traffic);

typedef struct treadle_run_summary {
  int64_t steps, differing, compared;
  int64_t reward_steps; /* at each end, of which the two rewards are means */
  double reward_first, reward_last, step_seconds, tokens_per_second, peak_bytes, predicted_bytes;
} treadle_run_summary;

void treadle_run_sum_up(const treadle_run_files *run, treadle_run_summary *summary_p);
void treadle_page_write(treadle_builder *page, const treadle_run_files *run,
                        const treadle_run_summary *summary);

#endif
