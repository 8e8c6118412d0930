/* The experts that tokens chose as a file of JSON lines. Each coordinate's come from the first rank that has them, as text, a piece at a time, to rank
 * 0, which writes them. */
#include "train/trainer.h"

#include "base/argument.h"
#include "group/group.h"
#include "io/file.h"
#include "pass/record_text.h"

#include <string.h>

enum { SAID = 2048 /* bytes of text at a time */ };

typedef struct saving {
  const treadle_trainer *t;
  treadle_builder text;        /* of this rank's rows */
  treadle_file_writer *writer; /* of rank 0 */
  int64_t coordinate;          /* whose text this rank has; -1: nobody's */
} saving;

static treadle_status make_text(saving *s, const treadle_batch *out) {
  const treadle_transformer *d = s->t->transformer;
  const size_t top = (size_t)d->routing.top;
  treadle_column column = TREADLE_INIT(treadle_column);
  treadle_status status;
  s->coordinate = -1;
  if (!out || !treadle_batch_has(out, "experts")) return TREADLE_OK;
  TRY(treadle_batch_column(out, "experts", &column));
  if (column.type != TREADLE_COLUMN_BYTES || !d->routing.experts)
    REFUSE("column 'experts' is not bytes of a model with experts");
  for (int64_t r = 0; r < treadle_batch_rows(out); r++) {
    treadle_builder_add(&s->text, "{\"experts\": ");
    treadle_record_add_text(&s->text, (const unsigned char *)column.data + column.offsets[r],
                            (size_t)(column.offsets[r + 1] - column.offsets[r]),
                            (size_t)treadle_transformer_record_bytes(d) / 2 / top, top);
    treadle_builder_add(&s->text, "}\n");
  }
  s->coordinate = s->t->data_rank;
  if (s->text.failed) return treadle_fail(TREADLE_NO_MEMORY, "no memory for experts as text");
out:
  return status;
}

typedef struct piece {
  int64_t coordinate, left; /* left: of the text, in bytes, with these */
  char bytes[SAID];
} piece;

/* The text of a coordinate. */
static treadle_status append(saving *s, int64_t coordinate) {
  treadle_group *group = s->t->ranks.group;
  piece said;
  treadle_status status = TREADLE_OK;
  for (int64_t at = 0, left = 1; left > 0; at += SAID) {
    const int64_t mine = s->coordinate == coordinate ? (int64_t)s->text.length - at : 0;
    said = (piece){.coordinate = s->coordinate, .left = mine > 0 ? mine : 0};
    if (said.left) memcpy(said.bytes, s->text.text + at, (size_t)(mine < SAID ? mine : SAID));
    TRY(treadle_group_say(group, &said, sizeof said));
    left = 0;
    for (int rank = 0; rank < treadle_group_size(group) && !left; rank++) {
      const piece *other = treadle_group_said(group, rank);
      if (other->coordinate != coordinate || !other->left) continue;
      left = other->left;
      if (s->writer)
        status = treadle_file_writer_append(s->writer, other->bytes, (size_t)(left < SAID ? left : SAID));
    }
    TRY(treadle_group_agree(group, status));
  }
out:
  return status;
}

treadle_status treadle_trainer_save_experts(treadle_trainer *t, const treadle_batch *out,
                                            const char *path) {
  saving s = {.t = t};
  treadle_status status;
  TREADLE_NEED(t);
  TREADLE_NEED(path);
  treadle_group *group = t->ranks.group;
  status = make_text(&s, out);
  if (!status && (!group || treadle_group_rank(group) == 0))
    status = treadle_file_writer_create(path, &s.writer);
  TRY(treadle_train_agree_on(&t->ranks, status, &(treadle_group_call){.name = __func__}));
  for (int64_t d = 0; group && d < t->data_ranks; d++) TRY(append(&s, d));
  if (!group) TRY(treadle_file_writer_append(s.writer, s.text.text, s.text.length));
  TRY(treadle_train_agree(&t->ranks, s.writer ? treadle_file_writer_commit(s.writer) : TREADLE_OK));
out:
  treadle_file_writer_destroy(s.writer);
  treadle_builder_release(&s.text);
  return status;
}
