/* A micro batch, put together: the tokens of its rows, where each of them stands, and which of them count. */
#include "train/gradients.h"

#include "train/context.h"

/* A micro batch while it is put together. */
typedef struct filling {
  const treadle_train_work *w;
  int64_t at, counted;     /* rows of the step; tokens that count */
  int64_t blocks, entries; /* of keys and values; of the table */
  int32_t spans;
  int64_t prompt_at; /* where the tokens lie that the rows at hand have in common */
  const int32_t *prompt_table;
} filling;

static int64_t block_tokens(const treadle_train_work *w) { return w->t->pass->options.block_tokens; }

/* A stretch of `count` tokens from position `from` on; what comes before is the prompt's. */
static void add_stretch(filling *f, const treadle_train_row *row, int64_t from, int64_t count) {
  treadle_train_buffers *own = &f->w->t->back.buffers;
  const int64_t block = block_tokens(f->w), whole = from / block, tail = from % block;
  treadle_pass_span span = {.rows = count,
                            .position = from,
                            .table = own->table + f->entries,
                            .tail_row = f->prompt_at + whole * block,
                            .tail_count = tail};
  if (!count) return;
  for (int64_t i = 0; i < whole; i++) own->table[f->entries++] = f->prompt_table[i];
  for (int64_t i = 0; i < (tail + count + block - 1) / block; i++)
    own->table[f->entries++] = (int32_t)f->blocks++;
  own->spans[f->spans++] = span;
  for (int64_t i = 0; i < count; i++) own->tokens[f->at++] = treadle_train_id(row, from + i);
}

/* Tokens of a row that count: each takes its logits from the row of the one before it. */
static void add_targets(filling *f, size_t number, int64_t from, int64_t first) {
  const treadle_train_work *w = f->w;
  const treadle_train_row *row = &w->rows[number];
  treadle_train_buffers *own = &w->t->back.buffers;
  int64_t n = row->number;
  for (int64_t i = row->prompt_count; i < row->count; i++) {
    if (!treadle_train_counts(row, i)) continue;
    own->which[f->counted] = (int32_t)(i - 1 < from ? f->prompt_at + i - 1 : first + i - 1 - from);
    own->targets[f->counted] = treadle_train_id(row, i);
    own->places[f->counted] = (treadle_train_place){number, (size_t)i, (size_t)n++};
    f->counted++;
  }
}

/* The last token of a row, which has its own row. */
static void add_last(filling *f, size_t number, int64_t from, int64_t first) {
  const treadle_train_row *row = &f->w->rows[number];
  treadle_train_buffers *own = &f->w->t->back.buffers;
  const int64_t last = row->count - 1;
  own->which[f->counted] = (int32_t)(last < from ? f->prompt_at + last : first + last - from);
  own->targets[f->counted] = treadle_train_id(row, last);
  own->places[f->counted++] = (treadle_train_place){number, (size_t)last, number};
}

/* How many tokens row `number`, of a micro batch that begins at `begin` and ends at `end`, has in common with those around it. */
static int64_t shared_of(const treadle_train_work *w, size_t number, size_t begin, size_t end) {
  if (number > begin && w->rows[number].shared) return w->rows[number].shared;
  return number + 1 < end ? w->rows[number + 1].shared : 0;
}

treadle_train_walk treadle_train_walk_from(const treadle_train_work *w, size_t begin) {
  return (treadle_train_walk){
      .work = w, .begin = begin, .end = begin + treadle_train_rows_from(w, begin), .next = begin};
}

bool treadle_train_walk_on(treadle_train_walk *k) {
  const treadle_train_work *w = k->work;
  if (k->next == k->end) return false;
  const treadle_train_row *row = &w->rows[k->next];
  k->row = k->next++;
  k->at += k->own;
  k->shared = shared_of(w, k->row, k->begin, k->end);
  k->brings = k->shared && (k->row == k->begin || !row->shared);
  if (k->brings) k->shared_at = k->at;
  if (k->brings) k->at += k->shared;
  k->own = row->count - (w->find != TREADLE_FIND_SCORES) - k->shared;
  if (k->own < 0) k->own = 0;
  return true;
}

int64_t treadle_train_tokens_through(const treadle_train_work *w, size_t begin) {
  treadle_train_walk k = treadle_train_walk_from(w, begin);
  while (treadle_train_walk_on(&k)) continue;
  return k.at + k.own;
}

/* Of context parallel ranks, each has the tokens of all in its buffers, and its own rows in the step. */
treadle_status treadle_train_micro_batch(treadle_train_work *w, int32_t micro_batch,
                                         treadle_train_step *step_p) {
  treadle_train_buffers *own = &w->t->back.buffers;
  treadle_train_walk k = treadle_train_walk_from(w, treadle_train_first_of(w, micro_batch));
  filling f = {.w = w};
  treadle_sequence_losses_begin(&w->t->routers.sequences);
  while (treadle_train_walk_on(&k)) {
    const treadle_train_row *row = &w->rows[k.row];
    treadle_sequence_losses_add(&w->t->routers.sequences,
                                (treadle_row_range){k.shared_at, k.shared_at + k.shared}, k.brings,
                                (treadle_row_range){k.at, k.at + k.own});
    if (k.brings) {
      f.prompt_table = own->table + f.entries;
      f.prompt_at = k.shared_at;
      add_stretch(&f, row, 0, k.shared);
    }
    add_stretch(&f, row, k.shared, k.own);
    if (w->find == TREADLE_FIND_SCORES)
      add_last(&f, k.row, k.shared, k.at);
    else
      add_targets(&f, k.row, k.shared, k.at);
  }
  const treadle_train_context *context = &w->t->back.context;
  const treadle_row_range mine = treadle_context_span(f.at, context->ranks, context->index);
  *step_p = (treadle_train_step){
      .step = {.tokens = own->tokens + mine.first,
               .rows = mine.end - mine.first,
               .stretches = own->spans,
               .stretch_count = f.spans,
               .before = mine.first,
               .experts = f.at ? treadle_train_given(w, micro_batch, mine.first) : NULL},
      .counted = f.counted,
      .which = own->which,
      .targets = own->targets,
      .places = own->places,
      .work = w};
  return treadle_context_begin(&w->t->back, f.at);
}
