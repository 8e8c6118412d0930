/* Rows of a batch: what they may be, and how they are divided. */
#include "train/gradients.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/larger.h"
#include "base/sized.h"
#include "base/text.h"
#include "group/group.h"
#include "train/context.h"

/* ---- What rows may be ---------------------------------------------------------------------------------- */

/* Of a row whose tokens are predicted, the last one goes through the layers for nothing, and stays away. */
static int64_t tokens_through(const treadle_train_work *w, const treadle_train_row *row) {
  return row->count - (w->find != TREADLE_FIND_SCORES);
}

static treadle_status check_row(const treadle_train_work *w, const treadle_train_row *row, size_t number) {
  const treadle_pass *pass = w->t->pass;
  const treadle_transformer *d = pass->transformer;
  if (tokens_through(w, row) < 1)
    REFUSE("row %zu: %s; %s the least", number, treadle_text_of_count(row->count, "token"),
           w->find == TREADLE_FIND_SCORES ? "1 is" : "2 are");
  if (row->count > pass->options.most_positions)
    REFUSE("row %zu: %lld tokens; at most %lld", number, (long long)row->count,
           (long long)pass->options.most_positions);
  for (int64_t i = 0; i < row->count; i++)
    if (treadle_train_id(row, i) < 0 || treadle_train_id(row, i) >= d->vocabulary)
      REFUSE("row %zu: token %lld is %d; the vocabulary has 0 to %lld", number, (long long)i,
             treadle_train_id(row, i), (long long)d->vocabulary - 1);
  for (int64_t i = 0; row->mask && i < row->count - row->prompt_count; i++)
    if (row->mask[i] > 1) REFUSE("row %zu: mask[%lld] is %d; 0 or 1", number, (long long)i, row->mask[i]);
  if (!row->prompt_count && row->mask && row->mask[0])
    REFUSE("row %zu: its first token cannot count", number);
  return TREADLE_OK;
}

/* ---- What tokens were drawn from --------------------------------------------------------------------------- */

static bool contains(const int32_t *ids, size_t count, int32_t id) {
  size_t low = 0;
  while (low < count) {
    const size_t middle = low + (count - low) / 2;
    if (ids[middle] == id) return true;
    if (ids[middle] < id)
      low = middle + 1;
    else
      count = middle;
  }
  return false;
}

/* Ascending ids of the vocabulary. */
static bool are_ids(const int32_t *ids, size_t count, int64_t vocabulary) {
  for (size_t i = 0; i < count; i++)
    if (ids[i] < (i ? ids[i - 1] + 1 : 0) || ids[i] >= vocabulary) return false;
  return true;
}

static treadle_status check_token(const treadle_train_work *w, size_t number, int64_t token,
                                  int64_t counted) {
  const treadle_train_row *row = &w->rows[number];
  const int64_t vocabulary = w->t->transformer->vocabulary;
  const int32_t id = treadle_train_id(row, token);
  const int32_t *kept = w->kept_first ? w->values.kept + w->kept_first[counted] : NULL;
  const size_t count = kept ? (size_t)w->values.kept_counts[row->first + token - row->prompt_count] : 0;
  if (count && !are_ids(kept, count, vocabulary))
    REFUSE("row %zu: the ids that token %lld was drawn from do not ascend, or are not of the vocabulary, 0 "
           "to %lld",
           number, (long long)token, (long long)vocabulary - 1);
  if (count ? !contains(kept, count, id) : contains(w->forward.never, w->forward.never_count, id))
    REFUSE("row %zu: token %lld is %d, which is none of the ids that it was drawn from", number,
           (long long)token, id);
  return TREADLE_OK;
}

static treadle_status check_drawn(const treadle_train_work *w) {
  const treadle_forward_options *f = &w->forward;
  treadle_status status = TREADLE_OK;
  if (!w->kept_first && !f->never_count) return TREADLE_OK;
  if (f->never_count && !f->never) REFUSE("never_count is %zu, and never is NULL", f->never_count);
  if (!are_ids(f->never, f->never_count, w->t->transformer->vocabulary))
    REFUSE("the ids that are never drawn do not ascend, or are not of the vocabulary, 0 to %lld",
           (long long)w->t->transformer->vocabulary - 1);
  for (size_t r = 0; r < w->count; r++) {
    int64_t number = w->rows[r].number;
    for (int64_t i = w->rows[r].prompt_count; i < w->rows[r].count; i++)
      if (treadle_train_counts(&w->rows[r], i)) TRY(check_token(w, r, i, number++));
  }
out:
  return status;
}

/* ---- Micro batches ---------------------------------------------------------------------------------------- */

/* Rows of a micro batch, by the tokens of each. */
typedef int64_t (*tokens_of)(const void *rows, size_t row);

static int64_t tokens_of_row(const void *rows, size_t row) {
  return ((const treadle_train_row *)rows)[row].count;
}
static int64_t tokens_of_length(const void *lengths, size_t row) { return ((const int64_t *)lengths)[row]; }

static size_t rows_from(const treadle_forward_options *f, const void *rows, tokens_of tokens, size_t first,
                        size_t count) {
  size_t end = first, most = f->micro_batch_size ? (size_t)f->micro_batch_size : count;
  int64_t all = 0; /* at most max_tokens_per_micro, or the first row's */
  while (end < count && end - first < most) {
    const int64_t more = f->max_tokens_per_micro ? tokens(rows, end) : 0;
    if (more > f->max_tokens_per_micro - all && end > first) break;
    all += more;
    end++;
  }
  return end - first;
}

size_t treadle_train_rows_from(const treadle_train_work *w, size_t first) {
  const int64_t *of = w->values.micro_batch;
  size_t end = first + 1;
  if (first >= w->count) return 0;
  if (!of) return rows_from(&w->forward, w->rows, tokens_of_row, first, w->count);
  while (end < w->count && of[end] == of[first]) end++;
  return end - first;
}

size_t treadle_train_first_of(const treadle_train_work *w, int64_t number) {
  size_t first = 0;
  if (w->forward.micro_batch_size && !w->values.micro_batch)
    return (size_t)treadle_smaller(number * w->forward.micro_batch_size, (int64_t)w->count);
  while (number-- > 0 && first < w->count) first += treadle_train_rows_from(w, first);
  return first;
}

static treadle_status check_batch(const treadle_train_work *w, size_t first, size_t count) {
  int64_t tokens = 0, all = 0;
  for (size_t r = first; r < first + count; r++) {
    tokens += tokens_through(w, &w->rows[r]);
    all += w->rows[r].count;
  }
  if (w->forward.max_tokens_per_micro && all > w->forward.max_tokens_per_micro) {
    if (count == 1)
      REFUSE("row %zu has %lld tokens, and a micro batch at most %lld", first, (long long)all,
             (long long)w->forward.max_tokens_per_micro);
    REFUSE("rows %zu to %zu, micro_batch %lld, have %lld tokens; at most %lld (max_tokens_per_micro)",
           first, first + count - 1, (long long)w->values.micro_batch[first], (long long)all,
           (long long)w->forward.max_tokens_per_micro);
  }
  if (w->forward.micro_batch_size && (int64_t)count > w->forward.micro_batch_size)
    REFUSE("rows %zu to %zu, micro_batch %lld, are %zu; at most %lld (micro_batch_size)", first,
           first + count - 1, (long long)w->values.micro_batch[first], count,
           (long long)w->forward.micro_batch_size);
  if ((int64_t)count > w->t->most_sequences)
    REFUSE("rows %zu to %zu, a micro batch, are %zu; at most %lld", first, first + count - 1, count,
           (long long)w->t->most_sequences);
  if (tokens > w->t->back.context.rows)
    REFUSE("rows %zu to %zu, a micro batch, have %lld tokens; at most %lld", first, first + count - 1,
           (long long)tokens, (long long)w->t->back.context.rows);
  return TREADLE_OK;
}

treadle_status treadle_train_check_rows(const treadle_train_work *w) {
  treadle_status status = TREADLE_OK;
  for (size_t r = 0; r < w->count; r++) TRY(check_row(w, &w->rows[r], r));
  TRY(check_drawn(w));
  for (size_t first = 0; first < w->count; first += treadle_train_rows_from(w, first))
    TRY(check_batch(w, first, treadle_train_rows_from(w, first)));
out:
  return status;
}

/* Is there memory for this many micro batches under way? */
static treadle_status check_pipeline(const treadle_train_work *w) {
  treadle_pipeline pipeline = w->t->stage.pipeline;
  treadle_pipeline_memory needs;
  treadle_status status;
  pipeline.micro_batches = w->micro_batches;
  TRY(treadle_pipeline_play(&pipeline, w->t->stage.number, &needs));
  if (needs.kept > w->t->back.kept_count || (pipeline.stages > 1 && needs.slots > w->t->ranks.room.slots))
    REFUSE("a step of %d micro batches keeps %d of them at a time; the trainer was made for %lld "
           "(most_micro_batches %d)",
           w->micro_batches, needs.kept, (long long)w->t->back.kept_count,
           w->t->stage.pipeline.micro_batches);
out:
  return status;
}

/* ---- All ranks --------------------------------------------------------------------------------------------- */

typedef struct counts {
  int64_t data_rank, tokens, sequences, batches, through,
      given; /* given: tokens whose experts may be recorded */
} counts;

static counts count(const treadle_train_work *w) {
  counts c = {.data_rank = w->t->data_rank, .tokens = w->counted};
  for (size_t r = 0; r < w->count; r++)
    c.sequences += (r + 1 < w->count ? w->rows[r + 1].number : w->counted) > w->rows[r].number;
  for (size_t first = 0, some; first < w->count; first += some, c.batches++) {
    some = treadle_train_rows_from(w, first);
    c.through += treadle_train_tokens_through(w, first);
  }
  if (w->choices.given) c.given = c.through;
  return c;
}

static treadle_status add_up(treadle_train_work *w, const counts *mine) {
  treadle_status status;
  TRY(treadle_group_say(w->t->ranks.group, mine, sizeof *mine));
  for (int64_t d = 0; d < w->t->data_ranks; d++) {
    const counts *other = treadle_train_said(&w->t->ranks, d);
    if (!other) continue;
    w->tokens += other->tokens;
    w->sequences += other->sequences;
    w->through += other->through;
    if (other->batches > w->most_batches) w->most_batches = (int32_t)other->batches;
    w->choices.most_given = treadle_larger(w->choices.most_given, other->given);
    w->choices.most = treadle_larger(w->choices.most, other->through);
  }
out:
  return status;
}

treadle_status treadle_train_count(treadle_train_work *w) {
  const counts mine = count(w);
  treadle_status status = TREADLE_OK;
  w->micro_batches = (int32_t)mine.batches;
  w->most_batches = w->micro_batches;
  w->tokens = w->sequences = w->through = 0;
  if (w->t->ranks.board) {
    w->most_batches = 0;
    TRY(add_up(w, &mine));
  } else {
    w->tokens = mine.tokens;
    w->sequences = mine.sequences;
    w->through = mine.through;
  }
  if (treadle_context_has_data_groups(&w->t->back)) w->micro_batches = w->most_batches;
  TRY(treadle_train_agree(&w->t->ranks, w->backward ? check_pipeline(w) : TREADLE_OK));
  w->scale = w->tokens ? (float)(1.0 / (double)w->tokens) : 0;
out:
  return status;
}

/* ---- Coordinates ------------------------------------------------------------------------------------------- */

/* Micro batches that follow each other, as many as the others have or one more. */
static void divide(const int64_t *lengths, size_t rows, const treadle_forward_options *f, int64_t batches,
                   int64_t coordinates, treadle_row_range *by_coordinate) {
  int64_t number = 0, d = 0;
  for (size_t first = 0; d < coordinates; number++) {
    for (; d < coordinates && batches * d / coordinates == number; d++)
      by_coordinate[d].first = (int64_t)first;
    if (first < rows) first += rows_from(f, lengths, tokens_of_length, first, rows);
  }
  for (d = 0; d < coordinates; d++)
    by_coordinate[d].end = d + 1 < coordinates ? by_coordinate[d + 1].first : (int64_t)rows;
}

/* Looked up once: which coordinate each rank has. */
static treadle_status find_coordinates(treadle_trainer *t) {
  const treadle_layout *layout = t->windows.layout;
  const bool sharded = t->shards != NULL;
  treadle_arena arena = {0};
  treadle_status status = TREADLE_OK;
  if (t->data_rank_of) return TREADLE_OK;
  int64_t *of = treadle_arena_alloc_array(&t->arena, (size_t)layout->ranks, sizeof *of);
  if (!of) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %lld ranks", (long long)layout->ranks);
  for (int64_t rank = 0; rank < layout->ranks; rank++) {
    treadle_replica replica = {0};
    treadle_context_rank place;
    if (!sharded) TRY(treadle_replica_find(t->transformer, layout, rank, &arena, &replica));
    TRY(treadle_context_place(layout, t->ulysses_ranks, sharded ? NULL : &replica, rank, &place));
    of[rank] = place.data_rank;
    treadle_arena_release(&arena);
  }
  t->data_rank_of = of;
out:
  treadle_arena_release(&arena);
  return status;
}

treadle_status treadle_trainer_coordinate_of(treadle_trainer *t, const int64_t *lengths, int64_t rows,
                                             const treadle_forward_options *forward,
                                             treadle_row_range *by_rank) {
  treadle_row_range *by_coordinate = NULL;
  treadle_forward_options f;
  int64_t batches = 0;
  treadle_status status;
  TREADLE_NEED(t);
  TREADLE_NEED(lengths);
  TREADLE_NEED(by_rank);
  TRY(TREADLE_TAKE(forward, &f));
  TRY(treadle_train_check_forward(&f));
  TRY(find_coordinates(t));
  if (rows < 0) REFUSE("%lld rows", (long long)rows);
  for (int64_t r = 0; r < rows; r++)
    if (lengths[r] < 0) REFUSE("row %lld: a length of %lld tokens", (long long)r, (long long)lengths[r]);
  by_coordinate = treadle_alloc_array((size_t)t->data_ranks, sizeof *by_coordinate);
  if (!by_coordinate)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the rows of %lld coordinates",
                     (long long)t->data_ranks));
  for (size_t first = 0; first < (size_t)rows; batches++)
    first += rows_from(&f, lengths, tokens_of_length, first, (size_t)rows);
  divide(lengths, (size_t)rows, &f, batches, t->data_ranks, by_coordinate);
  for (int64_t rank = 0; rank < t->windows.layout->ranks; rank++)
    by_rank[rank] = by_coordinate[t->data_rank_of[rank]];
out:
  treadle_free(by_coordinate);
  return status;
}
