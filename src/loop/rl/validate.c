#include "rl/validate.h"

#include "base/alloc.h"
#include "generate/uniform.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DRAWS = 1000, SEED = 42 };

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The k-th smallest is the best of n draws with probability (k/n)^n - ((k-1)/n)^n. */
double treadle_rl_best(const treadle_rl_judged *judged, int64_t n, double *scores) {
  double sum = 0, before = 0;
  for (int64_t i = 0; i < n; i++) scores[i] = judged[i].score;
  qsort(scores, (size_t)n, sizeof *scores, compare);
  for (int64_t i = 0; i < n; i++) {
    double up_to = pow((double)(i + 1) / (double)n, (double)n);
    sum += (up_to - before) * scores[i];
    before = up_to;
  }
  return sum;
}

/* The score of the answer that `n` of these give most often; of equal ones, the one that came first. */
static double majority_of(const treadle_rl_judged *judged, const int64_t *drawn, int64_t n) {
  int64_t best = 0, most = 0;
  for (int64_t i = 0; i < n; i++) {
    int64_t votes = 0;
    for (int64_t k = 0; k < n; k++) votes += strcmp(judged[drawn[i]].pred, judged[drawn[k]].pred) == 0;
    if (votes <= most) continue;
    most = votes;
    best = drawn[i];
  }
  return judged[best].score;
}

double treadle_rl_majority(const treadle_rl_judged *judged, int64_t n, int64_t *drawn) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++)
    if (!judged[i].pred) return NAN;
  for (int64_t d = 0; d < DRAWS; d++) {
    for (int64_t i = 0; i < n; i++) drawn[i] = (int64_t)(treadle_uniform(SEED, d, i) * (double)n);
    sum += majority_of(judged, drawn, n);
  }
  return sum / DRAWS;
}

/* Sums over the prompts of a source. */
typedef struct sums {
  const char *source;
  double mean, best, majority;
  int64_t prompts, voted;
} sums;

static void take(sums *s, double mean, double best, double majority) {
  s->mean += mean;
  s->best += best;
  s->prompts++;
  if (isnan(majority)) return;
  s->majority += majority;
  s->voted++;
}

static treadle_status put(treadle_rl_verdicts *v, const sums *s, const char *figure, double value) {
  treadle_rl_verdict one = {treadle_arena_format(&v->arena, "val-core/%s/reward/%s", s->source, figure),
                            value};
  return one.name ? treadle_array_push(&v->items, one)
                  : treadle_fail(TREADLE_NO_MEMORY, "no memory for a test");
}

static treadle_status put_all(treadle_rl_verdicts *v, const sums *s, int64_t n) {
  char name[64];
  treadle_status status;
  snprintf(name, sizeof name, "mean@%lld", (long long)n);
  TRY(put(v, s, name, s->mean / (double)s->prompts));
  snprintf(name, sizeof name, "best@%lld/mean", (long long)n);
  TRY(put(v, s, name, s->best / (double)s->prompts));
  snprintf(name, sizeof name, "maj@%lld/mean", (long long)n);
  if (s->voted == s->prompts) TRY(put(v, s, name, s->majority / (double)s->voted));
out:
  return status;
}

treadle_status treadle_rl_validate(const treadle_rl_judged *judged, size_t count, int64_t n,
                                   treadle_rl_verdicts *verdicts_p) {
  TREADLE_ARRAY(sums) sources = {0};
  sums all = {0};
  double *scores = treadle_alloc_array((size_t)n, sizeof *scores);
  int64_t *drawn = treadle_alloc_array((size_t)n, sizeof *drawn);
  treadle_status status = TREADLE_OK;
  *verdicts_p = (treadle_rl_verdicts){.mean = NAN, .best = NAN, .majority = NAN};
  if (!scores || !drawn) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for a test"));
  for (size_t first = 0; first + (size_t)n <= count; first += (size_t)n) {
    double mean = 0, best = treadle_rl_best(judged + first, n, scores),
           majority = treadle_rl_majority(judged + first, n, drawn);
    size_t at = 0;
    for (int64_t i = 0; i < n; i++) mean += judged[first + (size_t)i].score;
    while (at < sources.count && strcmp(sources.items[at].source, judged[first].data_source) != 0) at++;
    if (at == sources.count) TRY(treadle_array_push(&sources, (sums){.source = judged[first].data_source}));
    take(&sources.items[at], mean / (double)n, best, majority);
    take(&all, mean / (double)n, best, majority);
  }
  for (size_t i = 0; i < sources.count; i++) TRY(put_all(verdicts_p, &sources.items[i], n));
  if (!all.prompts) goto out;
  verdicts_p->mean = all.mean / (double)all.prompts;
  verdicts_p->best = all.best / (double)all.prompts;
  verdicts_p->has_majority = all.voted == all.prompts;
  if (verdicts_p->has_majority) verdicts_p->majority = all.majority / (double)all.prompts;
out:
  treadle_array_release(&sources);
  treadle_free(scores);
  treadle_free(drawn);
  return status;
}

void treadle_rl_verdicts_release(treadle_rl_verdicts *verdicts) {
  treadle_array_release(&verdicts->items);
  treadle_arena_release(&verdicts->arena);
}
