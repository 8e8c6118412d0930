/* A reward of the rows of a batch: its column `score`. */
#include "reward/reward.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/argument.h"

#include <string.h>

enum { ID = 24 };

/* The columns that samples are made of; those that are absent have no offsets. */
typedef struct columns {
  treadle_column ids, completion, answer, prompt, data_source;
} columns;

static treadle_status find(const treadle_batch *batch, const char *name, treadle_column_type type,
                           treadle_column *column_p) {
  treadle_status status = TREADLE_OK;
  *column_p = TREADLE_INIT(treadle_column);
  if (!treadle_batch_has(batch, name)) return TREADLE_OK;
  TRY(treadle_batch_column(batch, name, column_p));
  if (column_p->type != type || !column_p->offsets) REFUSE("column '%s' is of another type", name);
out:
  return status;
}

static treadle_status find_columns(const treadle_batch *batch, columns *c) {
  treadle_status status;
  TRY(find(batch, "ids", TREADLE_COLUMN_INT32, &c->ids));
  TRY(find(batch, "completion", TREADLE_COLUMN_TEXT, &c->completion));
  TRY(find(batch, "answer", TREADLE_COLUMN_TEXT, &c->answer));
  TRY(find(batch, "prompt", TREADLE_COLUMN_TEXT, &c->prompt));
  TRY(find(batch, "data_source", TREADLE_COLUMN_TEXT, &c->data_source));
out:
  return status;
}

static const char *bytes_of(const treadle_column *column, int64_t row, size_t *count_p) {
  *count_p = column->offsets ? (size_t)(column->offsets[row + 1] - column->offsets[row]) : 0;
  return column->offsets ? (const char *)column->data + column->offsets[row] : NULL;
}

/* With a 0 behind it; *text_p is NULL where there is no column. */
static treadle_status copy_text(treadle_arena *arena, const treadle_column *column, int64_t row,
                                const char **text_p) {
  size_t count;
  const char *bytes = bytes_of(column, row, &count);
  char *text;
  *text_p = NULL;
  if (!bytes) return TREADLE_OK;
  text = treadle_arena_alloc(arena, count + 1);
  if (!text) return treadle_fail(TREADLE_NO_MEMORY, "no memory for the texts of a sample");
  if (count) memcpy(text, bytes, count);
  text[count] = 0;
  *text_p = text;
  return TREADLE_OK;
}

static treadle_status show(treadle_arena *arena, const columns *c, int64_t row, treadle_reward_sample *s) {
  char *id = treadle_arena_alloc(arena, ID);
  treadle_status status = TREADLE_OK;
  *s = (treadle_reward_sample){.id = id};
  if (!id) return treadle_fail(TREADLE_NO_MEMORY, "no memory for the name of a sample");
  snprintf(id, ID, "%lld", (long long)row);
  s->completion = bytes_of(&c->completion, row, &s->completion_bytes);
  if (c->ids.offsets) s->tokens = c->ids.offsets[row + 1] - c->ids.offsets[row];
  TRY(copy_text(arena, &c->answer, row, &s->answer));
  TRY(copy_text(arena, &c->prompt, row, &s->prompt));
  TRY(copy_text(arena, &c->data_source, row, &s->data_source));
out:
  return status;
}

static treadle_status judge(treadle_reward *reward, const columns *c, treadle_arena *arena, int64_t rows,
                            double *scores) {
  treadle_reward_sample *samples = treadle_arena_alloc_array(arena, (size_t)rows + 1, sizeof *samples);
  treadle_status status = TREADLE_OK;
  if (!samples) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %lld samples", (long long)rows);
  for (int64_t r = 0; r < rows; r++) TRY(show(arena, c, r, &samples[r]));
  TRY(treadle_reward_start(reward, samples, (size_t)rows));
  TRY(treadle_reward_wait(reward, scores, NULL));
out:
  return status;
}

treadle_status treadle_reward_score(treadle_reward *reward, treadle_batch *batch) {
  treadle_column score = {
      .struct_size = sizeof score, .name = "score", .type = TREADLE_COLUMN_FP64, .width = 1};
  treadle_arena arena = {0};
  columns c;
  double *scores = NULL;
  treadle_status status;
  TREADLE_NEED(reward);
  TREADLE_NEED(batch);
  const int64_t rows = treadle_batch_rows(batch);
  TRY(find_columns(batch, &c));
  if (!c.completion.offsets && treadle_reward_judges_texts(reward))
    REFUSE("the reward judges texts, and the batch has no column 'completion'");
  if (!c.ids.offsets && !treadle_reward_judges_texts(reward))
    REFUSE("the reward counts tokens, and the batch has no column 'ids'");
  if (!c.answer.offsets && treadle_reward_needs_answers(reward))
    REFUSE("the reward needs answers, and the batch has no column 'answer'");
  scores = treadle_alloc_array((size_t)rows + 1, sizeof *scores);
  if (!scores) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for %lld scores", (long long)rows));
  if (rows) TRY(judge(reward, &c, &arena, rows, scores));
  score.data = scores;
  TRY(treadle_batch_add(batch, &score));
out:
  treadle_arena_release(&arena);
  treadle_free(scores);
  return status;
}
