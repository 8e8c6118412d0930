/* Experts of tokens that others have recorded, beside those that the trainer's routers choose (pass/pass_experts.c). Every token that goes through
 * the layers has a place; a prompt that rows share is there once, with the record of the row that brings it.
 *
 * A rank sees the choices of its own layers and rows. In the end ranks of one coordinate put theirs together: bytes are 0 where a rank knows
 * nothing, so they are joined by OR. */
#include "train/gradients.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/text.h"
#include "batch/batch.h"

#include <string.h>

/* ---- The column ------------------------------------------------------------------------------------------- */

static int64_t given_bytes(const treadle_expert_choices *c, size_t row) {
  return c->given_first[row + 1] - c->given_first[row];
}

/* Ascending, and of those that the layer has. */
static treadle_status check_record(const treadle_train_work *w, size_t row, int64_t token,
                                   const unsigned char *record) {
  const treadle_transformer_routing *r = &w->t->transformer->routing;
  for (int64_t i = 0; i < w->choices.record / 2; i++) {
    const int32_t expert = treadle_pass_recorded(record, i);
    if (expert >= r->experts)
      REFUSE("row %zu: token %lld has expert %d in experts; the model has 0 to %lld", row, (long long)token,
             expert, (long long)r->experts - 1);
    if (i % r->top && expert <= treadle_pass_recorded(record, i - 1))
      REFUSE("row %zu: the experts of token %lld do not ascend: %d comes after %d, of %lld in a layer", row,
             (long long)token, expert, treadle_pass_recorded(record, i - 1), (long long)r->top);
  }
  return TREADLE_OK;
}

static treadle_status check_row(const treadle_train_work *w, size_t row) {
  const treadle_expert_choices *c = &w->choices;
  const int64_t tokens = w->rows[row].count - 1, bytes = given_bytes(c, row);
  treadle_status status = TREADLE_OK;
  if (!bytes && tokens > 0 && w->forward.replay_experts)
    REFUSE("row %zu: it has no experts to replay", row);
  if (bytes && bytes != tokens * c->record)
    REFUSE("row %zu: %lld bytes of experts, and %lld tokens before its last one of %lld each", row,
           (long long)bytes, (long long)tokens, (long long)c->record);
  for (int64_t t = 0; t < bytes / c->record; t++)
    TRY(check_record(w, row, t, c->given + c->given_first[row] + t * c->record));
out:
  return status;
}

static treadle_status find_given(treadle_train_work *w, const treadle_batch *batch) {
  treadle_expert_choices *c = &w->choices;
  treadle_column column = TREADLE_INIT(treadle_column);
  treadle_status status;
  if (!treadle_batch_has(batch, "experts")) {
    if (w->forward.replay_experts) REFUSE("replay_experts: the batch has no column 'experts'");
    return TREADLE_OK;
  }
  TRY(treadle_batch_column(batch, "experts", &column));
  if (column.type != TREADLE_COLUMN_BYTES) REFUSE("column 'experts' is not bytes");
  c->given_first = treadle_alloc_array(w->count + 1, sizeof *c->given_first);
  if (!c->given_first)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the experts of %zu rows", w->count));
  for (size_t r = 0; r <= w->count; r++) c->given_first[r] = column.offsets[r] - column.offsets[0];
  c->given = (const unsigned char *)column.data + column.offsets[0];
  for (size_t r = 0; r < w->count; r++) TRY(check_row(w, r));
out:
  return status;
}

/* ---- Room -------------------------------------------------------------------------------------------------- */

/* Where the tokens of each micro batch begin among those of all. */
static treadle_status find_begins(treadle_train_work *w) {
  treadle_expert_choices *c = &w->choices;
  size_t count = 0;
  for (size_t first = 0; first < w->count; first += treadle_train_rows_from(w, first)) count++;
  c->begins = treadle_alloc_array(count + 1, sizeof *c->begins);
  if (!c->begins) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu micro batches", count);
  c->begins[0] = count = 0;
  for (size_t first = 0; first < w->count; first += treadle_train_rows_from(w, first), count++)
    c->begins[count + 1] = c->begins[count] + treadle_train_tokens_through(w, first);
  c->tokens = c->begins[count];
  return TREADLE_OK;
}

static treadle_status take_room(treadle_train_work *w) {
  treadle_expert_choices *c = &w->choices;
  const size_t tokens = (size_t)c->tokens, bytes = w->forward.experts ? tokens * (size_t)c->record : 0;
  const int64_t rows = w->t->back.context.rows;
  c->records = treadle_alloc_array(c->given ? (size_t)rows : 1, sizeof *c->records);
  c->found = treadle_alloc_array(tokens + 1, 1);
  c->chosen = treadle_alloc_array(bytes + 1, 1);
  if (!c->records || !c->found || !c->chosen)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for the experts of %zu tokens", tokens);
  memset(c->found, 0, tokens + 1);
  memset(c->chosen, 0, bytes + 1);
  return TREADLE_OK;
}

treadle_status treadle_train_take_choices(treadle_train_work *w, const treadle_batch *batch) {
  const bool asked = w->forward.replay_experts || w->forward.experts;
  treadle_status status = TREADLE_OK;
  if (w->find != TREADLE_FIND_LOGPROBS) return TREADLE_OK;
  w->choices.record = treadle_transformer_record_bytes(w->t->transformer);
  if (!w->choices.record && asked)
    REFUSE("%s: the model has no experts to %s", w->t->transformer->model->path,
           w->forward.replay_experts ? "replay" : "record");
  if (!w->choices.record) return TREADLE_OK;
  TRY(find_given(w, batch));
  if (!w->choices.given && !asked) return TREADLE_OK;
  TRY(find_begins(w));
  TRY(take_room(w));
out:
  return status;
}

void treadle_train_release_choices(treadle_expert_choices *c) {
  treadle_free(c->given_first);
  treadle_free(c->begins);
  treadle_free(c->records);
  treadle_free(c->found);
  treadle_free(c->chosen);
}

/* ---- A micro batch ------------------------------------------------------------------------------------------ */

/* The record of a row's token; NULL: there is none. */
static const unsigned char *record_of(const treadle_expert_choices *c, size_t row, int64_t token) {
  return token * c->record < given_bytes(c, row) ? c->given + c->given_first[row] + token * c->record
                                                 : NULL;
}

/* A row that brings tokens for others need not have records of all of them. */
static void find_records(treadle_expert_choices *c, const treadle_train_walk *k) {
  const unsigned char **shared = c->records + k->shared_at, **own = c->records + k->at;
  for (int64_t i = 0; i < k->shared; i++)
    if (k->brings || !shared[i]) shared[i] = record_of(c, k->row, i);
  for (int64_t i = 0; i < k->own; i++) own[i] = record_of(c, k->row, k->shared + i);
}

const treadle_pass_given *treadle_train_given(treadle_train_work *w, int32_t micro_batch, int64_t first) {
  treadle_expert_choices *c = &w->choices;
  if (!c->begins) return NULL;
  treadle_train_walk k = treadle_train_walk_from(w, treadle_train_first_of(w, micro_batch));
  unsigned char *found = c->found + c->begins[micro_batch];
  while (c->given && treadle_train_walk_on(&k)) find_records(c, &k);
  for (int64_t i = 0; c->given && i < k.at + k.own; i++)
    found[i] |= c->records[i] ? TREADLE_PASS_COMPARED : 0;
  const int64_t token = c->begins[micro_batch] + first;
  c->pass = (treadle_pass_given){.records = c->given ? c->records + first : NULL,
                                 .replays = w->forward.replay_experts,
                                 .found = c->found + token,
                                 .chosen = w->forward.experts ? c->chosen + token * c->record : NULL};
  return &c->pass;
}

/* ---- All ranks ---------------------------------------------------------------------------------------------- */

enum { SAID = 2048 /* bytes at a time */ };

typedef struct piece {
  int64_t coordinate, count;
  unsigned char bytes[SAID];
} piece;

/* Bytes [mine] of this rank become those that all ranks of its coordinate know; most: of the coordinate with the most. */
static treadle_status join_bytes(const treadle_train_work *w, unsigned char *bytes, int64_t mine,
                                 int64_t most) {
  treadle_group *group = w->t->ranks.group;
  piece said = {.coordinate = w->t->data_rank};
  treadle_status status = TREADLE_OK;
  for (int64_t at = 0; at < most; at += SAID) {
    said.count = mine - at < 0 ? 0 : mine - at < SAID ? mine - at : SAID;
    if (said.count) memcpy(said.bytes, bytes + at, (size_t)said.count);
    TRY(treadle_group_say(group, &said, sizeof said));
    for (int rank = 0; rank < treadle_group_size(group); rank++) {
      const piece *other = treadle_group_said(group, rank);
      for (int64_t i = 0; other->coordinate == said.coordinate && i < said.count && i < other->count; i++)
        bytes[at + i] |= other->bytes[i];
    }
  }
out:
  return status;
}

/* Row by row: tokens that have a record, and in by_row[row] those of them that differ. */
static void count_all(const treadle_train_work *w, int64_t *by_row, int64_t *compared_p) {
  const treadle_expert_choices *c = &w->choices;
  int32_t number = 0;
  for (size_t first = 0; first < w->count; first += treadle_train_rows_from(w, first), number++) {
    treadle_train_walk k = treadle_train_walk_from(w, first);
    while (treadle_train_walk_on(&k))
      for (int64_t i = k.brings ? k.shared_at : k.at; i < k.at + k.own; i++) {
        const int found = c->found[c->begins[number] + i];
        *compared_p += (found & TREADLE_PASS_COMPARED) != 0;
        by_row[k.row] += (found & TREADLE_PASS_DIFFERS) != 0;
      }
  }
}

typedef struct counts {
  int64_t coordinate, compared, differing;
} counts;

static treadle_status count_own(const treadle_train_work *w, counts *mine) {
  int64_t *by_row;
  if (!w->choices.given) return TREADLE_OK;
  by_row = treadle_alloc_array(w->count + 1, sizeof *by_row);
  if (!by_row) return treadle_fail(TREADLE_NO_MEMORY, "no memory for counts of %zu rows", w->count);
  memset(by_row, 0, (w->count + 1) * sizeof *by_row);
  count_all(w, by_row, &mine->compared);
  for (size_t r = 0; r < w->count; r++) mine->differing += by_row[r];
  treadle_free(by_row);
  return TREADLE_OK;
}

static treadle_status add_up(treadle_train_work *w, const counts *mine) {
  treadle_status status;
  TRY(treadle_group_say(w->t->ranks.group, mine, sizeof *mine));
  for (int64_t d = 0; d < w->t->data_ranks; d++) {
    const counts *other = treadle_train_said(&w->t->ranks, d);
    if (!other) continue;
    w->choices.compared += other->compared;
    w->choices.differing += other->differing;
  }
out:
  return status;
}

treadle_status treadle_train_join_choices(treadle_train_work *w) {
  treadle_expert_choices *c = &w->choices;
  counts mine = {.coordinate = w->t->data_rank};
  const bool divided = w->t->stage.pipeline.stages > 1 || w->t->back.context.ranks > 1;
  treadle_status status = TREADLE_OK;
  if (divided && c->most_given) TRY(join_bytes(w, c->found, c->given ? c->tokens : 0, c->most_given));
  if (divided && w->forward.experts)
    TRY(join_bytes(w, c->chosen, c->tokens * c->record, c->most * c->record));
  if (w->t->ranks.board ? !c->most_given : !c->given) return TREADLE_OK;
  TRY(treadle_train_agree(&w->t->ranks, count_own(w, &mine)));
  if (w->t->ranks.board) return add_up(w, &mine);
  c->compared = mine.compared;
  c->differing = mine.differing;
out:
  return status;
}

/* ---- Columns of `out` ---------------------------------------------------------------------------------------- */

static treadle_status give_differing(const treadle_train_work *w, treadle_batch *out) {
  treadle_column column = {
      .struct_size = sizeof column, .name = "experts_differing", .type = TREADLE_COLUMN_INT64, .width = 1};
  int64_t compared = 0;
  treadle_status status;
  TRY(treadle_batch_add(out, &column));
  TRY(treadle_batch_column(out, column.name, &column));
  count_all(w, column.data, &compared);
out:
  return status;
}

/* Of each row: what was chosen for its tokens, those that it has in common with others among them. */
static void copy_records(const treadle_train_work *w, const int64_t *offsets, unsigned char *to) {
  const treadle_expert_choices *c = &w->choices;
  const size_t each = (size_t)c->record;
  int32_t number = 0;
  for (size_t first = 0; first < w->count; first += treadle_train_rows_from(w, first), number++) {
    const unsigned char *from = c->chosen + c->begins[number] * c->record;
    treadle_train_walk k = treadle_train_walk_from(w, first);
    while (treadle_train_walk_on(&k)) {
      const int64_t tokens = w->rows[k.row].count - 1, shared = k.shared < tokens ? k.shared : tokens;
      memcpy(to + offsets[k.row], from + k.shared_at * c->record, (size_t)shared * each);
      memcpy(to + offsets[k.row] + shared * c->record, from + k.at * c->record, (size_t)k.own * each);
    }
  }
}

static treadle_status give_records(const treadle_train_work *w, treadle_batch *out) {
  treadle_batch_entry entry = {0};
  int64_t bytes = 0, *offsets;
  treadle_status status;
  for (size_t r = 0; r < w->count; r++) bytes += (w->rows[r].count - 1) * w->choices.record;
  TRY(treadle_entry_make("experts", TREADLE_COLUMN_BYTES, 0, (int64_t)w->count, bytes, &entry, &offsets));
  for (size_t r = 0; r < w->count; r++)
    offsets[r + 1] = offsets[r] + (w->rows[r].count - 1) * w->choices.record;
  copy_records(w, offsets, (unsigned char *)entry.data);
  TRY(treadle_batch_take(out, &entry));
out:
  return status;
}

treadle_status treadle_train_give_choices(const treadle_train_work *w, treadle_batch *out) {
  treadle_status status = TREADLE_OK;
  if (!w->choices.begins) return TREADLE_OK;
  if (w->choices.given) TRY(give_differing(w, out));
  if (w->forward.experts) TRY(give_records(w, out));
out:
  return status;
}
