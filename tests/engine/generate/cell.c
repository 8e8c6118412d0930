#include "generate/cell.h"

#include "group/ranks.h"
#include "test.h"

#include <pthread.h>

typedef struct work {
  const cell *cell;
  const char *lines;
  bool twice, scores;
  pthread_mutex_t lock;
  int done;
  uint64_t digest; /* of the first rank that was done */
  cell_result *result;
  treadle_score_figures *scored;
  char *message;
} work;

/* All ranks ask for answers; the first keeps them. */
static treadle_status keep(void *context, const char *line, size_t bytes) {
  if (context) treadle_builder_add_bytes(context, line, bytes);
  return TREADLE_OK;
}

static treadle_status generate(work *w, machine *m, bool first, uint64_t *digest_p) {
  cell_result *r = w->result;
  treadle_generate_options options = {.struct_size = sizeof options, .seed = 5, .answer = keep};
  treadle_generate_figures figures = TREADLE_INIT(treadle_generate_figures);
  treadle_status status = TREADLE_OK;
  for (int i = 0; i <= w->twice && !status; i++) {
    options.context = first && i == w->twice ? &r->answers : NULL;
    status = treadle_generator_generate_lines(m->engine, w->lines, strlen(w->lines), &options, &figures);
    if (!status && figures.kv_blocks_leaked) status = treadle_fail(TREADLE_DIFFERENT, "blocks were leaked");
  }
  if (first) {
    r->figures = figures;
    if (!status) status = treadle_generator_get_info(m->engine, &r->info);
  }
  *digest_p = figures.digest;
  return status;
}

static treadle_status score(work *w, machine *m, bool first, uint64_t *digest_p) {
  treadle_score_lines_options options = {.struct_size = sizeof options, .check = true};
  treadle_score_figures figures = TREADLE_INIT(treadle_score_figures);
  treadle_status status =
      treadle_generator_score_lines(m->engine, w->lines, strlen(w->lines), &options, &figures);
  if (first) *w->scored = figures;
  *digest_p = figures.digest;
  return status;
}

static int run_rank(treadle_group *group, void *context) {
  work *w = context;
  bool alone = w->cell->ranks == 1, first = alone || treadle_group_rank(group) == 0;
  const machine_spec spec = {.folder = w->cell->folder,
                             .layout = w->cell->layout,
                             .group = alone ? NULL : group,
                             .options = w->cell->options};
  machine m;
  uint64_t digest = 0;
  treadle_status status = machine_open(&m, &spec);
  if (!status) status = w->scores ? score(w, &m, first, &digest) : generate(w, &m, first, &digest);
  pthread_mutex_lock(&w->lock);
  if (!status && w->done++ == 0) w->digest = digest;
  if (!status && digest != w->digest)
    status = treadle_fail(TREADLE_DIFFERENT, "ranks have different digests");
  if (status) snprintf(w->message, 512, "%.511s", treadle_error_message());
  pthread_mutex_unlock(&w->lock);
  machine_close(&m);
  return 0; /* what failed is in the message */
}

static bool run(work *w) {
  *w->message = 0;
  pthread_mutex_init(&w->lock, NULL);
  if (w->cell->ranks == 1)
    run_rank(NULL, w);
  else
    ranks_as_threads(w->cell->ranks, 300, 0, run_rank, w);
  pthread_mutex_destroy(&w->lock);
  return !*w->message;
}

bool cell_generate(const cell *c, const char *lines, bool twice, cell_result *result_p) {
  *result_p = (cell_result){.figures = TREADLE_INIT(treadle_generate_figures),
                            .info = TREADLE_INIT(treadle_generator_info)};
  work w = {.cell = c, .lines = lines, .twice = twice, .result = result_p, .message = result_p->message};
  return run(&w);
}

bool cell_score(const cell *c, const char *answers, treadle_score_figures *figures_p, char message_p[512]) {
  work w = {.cell = c, .lines = answers, .scores = true, .scored = figures_p, .message = message_p};
  return run(&w);
}
