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

/* Of rows [begin, end), a micro batch. */
int64_t treadle_train_tokens_through(const treadle_train_work *w, size_t begin, size_t end) {
  const int64_t last = w->find == TREADLE_FIND_SCORES ? 0 : 1;
  int64_t all = 0;
  for (size_t r = begin; r < end; r++) {
    const treadle_train_row *row = &w->rows[r];
    const int64_t shared = shared_of(w, r, begin, end), own = row->count - last - shared;
    if (shared && (r == begin || !row->shared)) all += shared;
    if (own > 0) all += own;
  }
  return all;
}

/* The last token of a row goes through the layers for nothing, so it stays away; for scores it is the one that counts.
 * Of context parallel ranks, each has the tokens of all in its buffers, and its own rows in the step. */
treadle_train_step treadle_train_micro_batch(treadle_train_work *w, int32_t micro_batch) {
  treadle_train_buffers *own = &w->t->back.buffers;
  size_t begin = treadle_train_first_of(w, micro_batch), end = begin + treadle_train_rows_from(w, begin);
  const bool scores = w->find == TREADLE_FIND_SCORES;
  filling f = {.w = w};
  for (size_t r = begin; r < end; r++) {
    const treadle_train_row *row = &w->rows[r];
    const int64_t shared = shared_of(w, r, begin, end), tokens = row->count - !scores;
    if (shared && (r == begin || !row->shared)) { /* the first that has it */
      f.prompt_table = own->table + f.entries;
      f.prompt_at = f.at;
      add_stretch(&f, row, 0, shared);
    }
    const int64_t first = f.at;
    add_stretch(&f, row, shared, tokens - shared > 0 ? tokens - shared : 0);
    if (scores)
      add_last(&f, r, shared, first);
    else
      add_targets(&f, r, shared, first);
  }
  const treadle_train_context *context = &w->t->back.context;
  const treadle_row_range mine = treadle_context_span(f.at, context->ranks, context->index);
  treadle_context_begin(&w->t->back, f.at);
  return (treadle_train_step){.step = {.tokens = own->tokens + mine.first,
                                       .rows = mine.end - mine.first,
                                       .stretches = own->spans,
                                       .stretch_count = f.spans,
                                       .before = mine.first},
                              .counted = f.counted,
                              .which = own->which,
                              .targets = own->targets,
                              .places = own->places,
                              .work = w};
}
