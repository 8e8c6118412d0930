#include "train/back_attend.h"

/* Where the positions lie that come before a stretch and are another one's, of which rows[first] is the first; count 0:
 * it begins alone. */
typedef struct prefix {
  int64_t first, count;
} prefix;

typedef struct attention {
  const treadle_back *back;
  const treadle_pass_step *step;
  const treadle_back_attention *view;
} attention;

static void back_head(const attention *w, int64_t first, int64_t rows, int64_t head, prefix before,
                      void *scratch) {
  const treadle_back_attention *view = w->view;
  treadle_attention_back one = view->first;
  one.k += head * view->k_step;
  one.v += head * view->v_step;
  one.dk += head * view->dk_step;
  one.dv += head * view->dv_step;
  one.before = before.count;
  one.before_k = one.k + before.first * one.k_stride;
  one.before_v = one.v + before.first * one.v_stride;
  one.before_dk = one.dk + before.first * one.dk_stride;
  one.before_dv = one.dv + before.first * one.dv_stride;
  one.rows = rows;
  one.k += first * one.k_stride;
  one.v += first * one.v_stride;
  one.dk += first * one.dk_stride;
  one.dv += first * one.dv_stride;
  one.q += first * one.q_stride + head * view->q_step;
  one.dq += first * one.dq_stride + head * view->q_step;
  one.out += first * one.out_stride + head * view->out_step;
  one.dout += first * one.dout_stride + head * view->out_step;
  treadle_attention_back_run(&one, w->back->pass->options.kernels, scratch);
}

/* Sequences that follow stretch `s`, which begins at row `first`, and go on from it: their positions before are its
 * rows. */
static void back_family(const attention *w, int32_t s, int64_t first, int64_t head, void *scratch) {
  const treadle_pass_span *spans = w->step->stretches;
  const prefix shared = {first, spans[s].rows};
  back_head(w, first, spans[s].rows, head, (prefix){first, 0}, scratch);
  for (first += spans[s++].rows; s < w->step->stretch_count && spans[s].position; first += spans[s++].rows)
    back_head(w, first, spans[s].rows, head, shared, scratch);
}

/* An item is a sequence, with those that go on from it, and a key and value head; threads take them in turn. */
static void back_items(void *context, int32_t index, int32_t count) {
  const attention *w = context;
  char *scratch = w->back->buffers.scratch + (size_t)index * w->back->buffers.scratch_bytes;
  int64_t first = 0, item = 0;
  for (int32_t s = 0; s < w->step->stretch_count; first += w->step->stretches[s++].rows)
    for (int64_t head = 0; head < w->view->heads && !w->step->stretches[s].position; head++)
      if (item++ % count == index) back_family(w, s, first, head, scratch);
}

void treadle_back_attend(const treadle_back *back, const treadle_pass_step *step,
                         const treadle_back_attention *view) {
  attention w = {back, step, view};
  treadle_team_run(back->pass->team, back_items, &w);
}
