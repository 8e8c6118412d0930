/* Who worked when in the last steps: a track for each rank of each role, and a table of methods. Tracks are boxes of HTML with places in percent, so that letters
 * keep their size in a window of any width. */
#include "cli/report_axes.h"

#include "base/alloc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 3, RANKS_SHOWN = 32, CALLS_MOST = 20000 };
/* Percent of the width: what is merged, what has room for a name, how far labels are from each other. */
static const double THIN = 0.2, LABELLED = 5, APART = 6;

static const struct {
  const char *method, *colour;
} colours[] = {
    {"generate_sequences", "#d98032"},
    {"compute_log_prob", "#9ab8dd"},
    {"update", "#3b6fb6"},
    {"compute_ref_log_prob", "#5f9ea0"},
    {"compute_values", "#c9a227"},
    {"update_critic", "#7a8f3c"},
    {"compute_rm_score", "#b05b6a"},
    {"save", "#8f6bb0"},
    {"save_policy", "#8f6bb0"},
    {"save_critic", "#b79acb"},
    {"enter", "#8a8a8a"},
    {"rest_critic", "#b5b5b5"},
    {"weights_digest", "#5a5a5a"},
};

static const char *colour_of(const treadle_run_trace *trace, int method) {
  for (size_t i = 0; i < sizeof colours / sizeof *colours; i++)
    if (strcmp(trace->methods.all[method], colours[i].method) == 0) return colours[i].colour;
  return treadle_chart_colours[method % TREADLE_CHART_COLOURS];
}

/* What is drawn: calls [count] by role, rank and time, between two moments. */
typedef struct scene {
  const treadle_run_trace *trace;
  const treadle_run_call **calls;
  size_t count;
  int64_t first_step, last_step;
  double left, right; /* seconds */
  size_t drawn;       /* boxes so far */
} scene;

static int compare(const void *a, const void *b) {
  const treadle_run_call *x = *(const treadle_run_call *const *)a, *y = *(const treadle_run_call *const *)b;
  if (x->role != y->role) return x->role < y->role ? -1 : 1;
  if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
  return (x->start > y->start) - (x->start < y->start);
}

static double percent(const scene *s, double seconds) {
  return s->right > s->left ? 100 * (seconds - s->left) / (s->right - s->left) : 0;
}

static size_t count_from(const treadle_run_trace *trace, int64_t step) {
  size_t count = 0;
  for (size_t i = 0; i < trace->count; i++) count += trace->calls[i].step >= step;
  return count;
}

/* The last steps, fewer where they have very many calls. False: there is no memory for them. */
static bool choose(scene *s, const treadle_run_trace *trace) {
  *s = (scene){.trace = trace, .last_step = trace->last_step, .left = INFINITY, .right = 0};
  s->first_step = trace->last_step >= STEPS ? trace->last_step - STEPS + 1 : 1;
  if (s->first_step > s->last_step) s->first_step = s->last_step;
  while (s->first_step < s->last_step && count_from(trace, s->first_step) > CALLS_MOST) s->first_step++;
  s->calls = treadle_alloc_array(count_from(trace, s->first_step) + 1, sizeof *s->calls);
  if (!s->calls) return false;
  for (size_t i = 0; i < trace->count; i++) {
    const treadle_run_call *c = &trace->calls[i];
    if (c->step < s->first_step) continue;
    s->calls[s->count++] = c;
    s->left = fmin(s->left, c->start);
    s->right = fmax(s->right, c->end);
  }
  qsort(s->calls, s->count, sizeof *s->calls, compare);
  return true;
}

/* ---- Tracks ---------------------------------------------------------------------------------------------------- */

/* Where each step begins: the first call that any rank made in it. */
static void find_steps(const scene *s, double begins[STEPS]) {
  for (int i = 0; i < STEPS; i++) begins[i] = NAN;
  for (size_t i = 0; i < s->count; i++) {
    double *begin = &begins[s->calls[i]->step - s->first_step];
    if (!(*begin <= s->calls[i]->start)) *begin = s->calls[i]->start;
  }
}

static void put_steps(treadle_builder *page, const scene *s, const double begins[STEPS]) {
  double before = -APART;
  treadle_builder_add(page, "<div class=\"track axis\"><span>step</span><div>");
  for (int i = 0; i < STEPS; i++) {
    const double at = percent(s, begins[i]);
    if (!(at >= before + APART)) continue;
    before = at;
    treadle_builder_add(page, "<s style=\"left:%.2f%%\">%lld</s>", at, (long long)(s->first_step + i));
  }
  treadle_builder_add(page, "</div></div>\n");
}

static void put_seconds(treadle_builder *page, const scene *s) {
  double ticks[TREADLE_CHART_TICKS];
  const int count = treadle_chart_ticks(0, s->right - s->left, "", ticks);
  treadle_builder_add(page, "<div class=\"track axis\"><span>seconds</span><div>");
  for (int k = 0; k < count; k++)
    treadle_builder_add(page, "<s style=\"left:%.2f%%\">%.4g</s>", percent(s, s->left + ticks[k]),
                        ticks[k]);
  treadle_builder_add(page, "</div></div>\n");
}

static bool are_one(const scene *s, const treadle_run_call *a, double end, const treadle_run_call *b) {
  return a->method == b->method && a->step == b->step && b->rank == a->rank && b->role == a->role &&
         percent(s, b->start) - percent(s, end) < THIN / 2 &&
         percent(s, b->end) - percent(s, b->start) < THIN &&
         percent(s, a->end) - percent(s, a->start) < THIN;
}

/* The call at `from`, with those after it that are too thin to be seen apart; the first one after these. */
static size_t put_call(treadle_builder *page, scene *s, size_t from) {
  const treadle_run_call *c = s->calls[from], *last = c;
  double end = c->end;
  size_t next = from + 1;
  while (next < s->count && are_one(s, c, end, s->calls[next])) {
    last = s->calls[next++];
    end = fmax(end, last->end);
  }
  if (s->drawn++ >= CALLS_MOST) return next;
  const double left = percent(s, c->start), width = percent(s, end) - left;
  treadle_builder_add(page, "<i style=\"left:%.3f%%;width:%.3f%%;background:%s\" title=\"", left, width,
                      colour_of(s->trace, c->method));
  treadle_page_text(page, s->trace->methods.all[c->method]);
  if (next - from > 1) treadle_builder_add(page, ", %zu calls", next - from);
  treadle_builder_add(page, ", step %lld: %.4g s, from %.4f s on", (long long)c->step, end - c->start,
                      c->start - s->left);
  if (c->bytes_before >= 0 && last->bytes_after >= 0)
    treadle_builder_add(page, "; %s on the device before, %s after",
                        treadle_page_size((double)c->bytes_before),
                        treadle_page_size((double)last->bytes_after));
  treadle_builder_add(page, "\">");
  if (width >= LABELLED) treadle_page_text(page, s->trace->methods.all[c->method]);
  treadle_builder_add(page, "</i>");
  return next;
}

/* Of the call at `from`: all calls of its rank in its role. */
static size_t put_track(treadle_builder *page, scene *s, size_t from, const double begins[STEPS]) {
  const treadle_run_call *c = s->calls[from];
  treadle_builder_add(page, "<div class=\"track\"><span>rank %d</span><div>", c->rank);
  size_t next = from;
  while (next < s->count && s->calls[next]->rank == c->rank && s->calls[next]->role == c->role)
    next = put_call(page, s, next);
  for (int i = 0; i < STEPS; i++)
    if (begins[i] > s->left)
      treadle_builder_add(page, "<b style=\"left:%.2f%%\"></b>", percent(s, begins[i]));
  treadle_builder_add(page, "</div></div>\n");
  return next;
}

static void put_tracks(treadle_builder *page, scene *s) {
  double begins[STEPS];
  int role = -1, shown = 0, hidden = 0;
  find_steps(s, begins);
  put_steps(page, s, begins);
  for (size_t i = 0; i <= s->count;) {
    const treadle_run_call *c = i < s->count ? s->calls[i] : NULL;
    if (!c || c->role != role) {
      if (hidden)
        treadle_builder_add(page, "<p class=\"more\">and %s more</p>\n",
                            treadle_text_of_count(hidden, "rank"));
      if (!c) break;
      treadle_builder_add(page, "<div class=\"role\">");
      treadle_page_text(page, s->trace->roles.all[c->role]);
      treadle_builder_add(page, "</div>\n");
      role = c->role;
      shown = hidden = 0;
    }
    if (shown < RANKS_SHOWN && s->drawn < CALLS_MOST) {
      i = put_track(page, s, i, begins);
      shown++;
      continue;
    }
    while (i < s->count && s->calls[i]->rank == c->rank && s->calls[i]->role == role) i++;
    hidden++;
  }
  put_seconds(page, s);
}

static void put_keys(treadle_builder *page, const scene *s) {
  bool there[TREADLE_RUN_NAMES] = {false};
  for (size_t i = 0; i < s->count; i++) there[s->calls[i]->method] = true;
  for (int m = 0; m < s->trace->methods.count; m++)
    if (there[m]) treadle_chart_key_colour(page, colour_of(s->trace, m), s->trace->methods.all[m]);
}

/* ---- The table ------------------------------------------------------------------------------------------------- */

/* A method in the last step, of all ranks of its role. */
typedef struct sums {
  int64_t calls, ranks, before, after; /* before, after: the most; -1: no line says */
  int rank;                            /* the one that was counted last */
  double seconds;
} sums;

/* Calls lie by role and rank. */
static void add_call(sums *sum, const treadle_run_call *c) {
  if (!sum->calls) *sum = (sums){.before = -1, .after = -1, .rank = -1};
  sum->calls++;
  sum->ranks += c->rank != sum->rank;
  sum->rank = c->rank;
  sum->seconds += c->end - c->start;
  if (c->bytes_before > sum->before) sum->before = c->bytes_before;
  if (c->bytes_after > sum->after) sum->after = c->bytes_after;
}

static void put_bytes(treadle_builder *page, int64_t bytes) {
  treadle_builder_add(page, "<td>%s</td>",
                      bytes > 0    ? treadle_page_size((double)bytes)
                      : bytes == 0 ? "0"
                                   : "?");
}

static void put_sums(treadle_builder *page, const char *role, const char *method, const sums *sum) {
  if (!sum->calls) return;
  treadle_builder_add(page, "<tr><td>");
  treadle_page_text(page, role);
  treadle_builder_add(page, "</td><td>");
  treadle_page_text(page, method);
  treadle_builder_add(page, "</td><td>%lld</td><td>%.4g</td><td>%.4g</td>", (long long)sum->ranks,
                      (double)sum->calls / (double)sum->ranks, sum->seconds / (double)sum->ranks);
  put_bytes(page, sum->before);
  put_bytes(page, sum->after);
  treadle_builder_add(page, "</tr>\n");
}

static void put_table(treadle_builder *page, const scene *s) {
  const size_t roles = (size_t)s->trace->roles.count, methods = (size_t)s->trace->methods.count;
  sums *all = treadle_alloc_array(roles * methods, sizeof *all);
  if (!all) {
    page->failed = true;
    return;
  }
  for (size_t i = 0; i < s->count; i++) {
    const treadle_run_call *c = s->calls[i];
    if (c->step == s->last_step) add_call(&all[(size_t)c->role * methods + (size_t)c->method], c);
  }
  treadle_builder_add(page,
                      "<p>Step %lld by role: calls and seconds of a rank, device memory of the fullest "
                      "one</p><div class=\"wide\"><table><tr><th>role</th><th>method</th><th>ranks</th>"
                      "<th>calls</th><th>seconds</th><th>memory before</th><th>memory after</th></tr>\n",
                      (long long)s->last_step);
  for (size_t i = 0; i < roles * methods; i++)
    put_sums(page, s->trace->roles.all[i / methods], s->trace->methods.all[i % methods], &all[i]);
  treadle_builder_add(page, "</table></div>\n");
  treadle_free(all);
}

void treadle_chart_tracks(treadle_builder *page, const treadle_run_trace *trace) {
  scene s;
  if (!trace->count) return;
  if (!choose(&s, trace)) {
    page->failed = true;
    return;
  }
  treadle_builder_add(page, "<figure class=\"tracks\"><figcaption>Who worked when, ");
  if (s.first_step < s.last_step)
    treadle_builder_add(page, "steps %lld to %lld</figcaption>\n", (long long)s.first_step,
                        (long long)s.last_step);
  else
    treadle_builder_add(page, "step %lld</figcaption>\n", (long long)s.last_step);
  put_tracks(page, &s);
  put_keys(page, &s);
  put_table(page, &s);
  treadle_builder_add(page, "</figure>\n");
  treadle_free(s.calls);
}
