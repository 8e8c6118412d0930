/* Experts of the tokens of rows, from lines of JSON. */
#include "treadle_loop.h"

#include "base/argument.h"
#include "generate/request_lines.h"
#include "pass/pass_steps.h"
#include "pass/record_text.h"

/* Rows one after the other, and where each begins. */
typedef struct reading {
  const treadle_batch *rows;
  treadle_transformer *model; /* NULL: nothing is known of it */
  treadle_record_list records;
  TREADLE_ARRAY(int64_t) offsets;
} reading;

/* Tokens of a row, its prompt's among them. */
static int64_t tokens_of(const treadle_batch *rows, int64_t row) {
  static const char *const names[] = {"prompt_ids", "ids"};
  int64_t tokens = 0;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    treadle_column column = TREADLE_INIT(treadle_column);
    if (treadle_batch_has(rows, names[i]) && !treadle_batch_column(rows, names[i], &column) &&
        column.offsets)
      tokens += column.offsets[row + 1] - column.offsets[row];
  }
  return tokens;
}

/* As many tokens as the row has but the last one, of as many layers and experts as the model has. */
static treadle_status check_shape(const reading *r, const char *what, int64_t row, size_t tokens) {
  const int64_t wanted = tokens_of(r->rows, row) - 1;
  const treadle_record_list *list = &r->records;
  if (row >= treadle_batch_rows(r->rows)) return TREADLE_OK; /* their number is refused behind the last */
  if ((int64_t)tokens != wanted)
    REFUSE("%s: has experts of %zu tokens, and row %lld has %lld before its last one", what, tokens,
           (long long)row, (long long)wanted);
  if (!r->model || !r->model->routing.experts || !tokens) return TREADLE_OK;
  const int64_t top = r->model->routing.top, bytes = treadle_transformer_record_bytes(r->model);
  if ((int64_t)list->top != top || (int64_t)(2 * list->layers * list->top) != bytes)
    REFUSE("%s: has %zu experts in each of %zu layers; the model has %lld in each of %lld", what, list->top,
           list->layers, (long long)top, (long long)(bytes / 2 / top));
  return TREADLE_OK;
}

/* Those of a layer ascend. */
static treadle_status check_experts(const reading *r, const char *what, const uint8_t *records,
                                    size_t tokens) {
  const size_t top = r->records.top, layers = r->records.layers;
  const bool known = r->model && r->model->routing.experts;
  for (size_t i = 0; known && i < tokens * layers * top; i++) {
    const int expert = treadle_pass_recorded(records, (int64_t)i);
    const size_t token = i / top / layers, layer = i / top % layers;
    if (expert >= r->model->routing.experts)
      REFUSE("%s: experts[%zu][%zu][%zu] is %d; the model has 0 to %lld", what, token, layer, i % top,
             expert, (long long)r->model->routing.experts - 1);
    if (i % top && expert <= treadle_pass_recorded(records, (int64_t)i - 1))
      REFUSE("%s: experts[%zu][%zu] do not ascend: %d at [%zu]", what, token, layer, expert, i % top);
  }
  return TREADLE_OK;
}

static treadle_status read_lines(reading *r, treadle_request_reader *reader) {
  bool more;
  treadle_status status;
  TRY(treadle_array_push(&r->offsets, (int64_t)0));
  for (int64_t row = 0;; row++) {
    TRY(treadle_request_reader_next(reader, &more));
    if (!more) break;
    const size_t before = r->records.bytes.count;
    const json_t *experts = json_object_get(reader->object, "experts");
    TRY(treadle_record_read_text(reader->name, experts, &r->records));
    TRY(check_shape(r, reader->name, row, json_array_size(experts)));
    TRY(check_experts(r, reader->name, r->records.bytes.items + before, json_array_size(experts)));
    TRY(treadle_array_push(&r->offsets, (int64_t)r->records.bytes.count));
  }
out:
  return status;
}

treadle_status treadle_train_experts_read(const treadle_model *model, const char *what, const char *text,
                                          size_t bytes, treadle_batch *rows) {
  treadle_request_reader reader = {.what = what ? what : "experts", .text = text, .count = bytes};
  treadle_column column = {.struct_size = sizeof column, .name = "experts", .type = TREADLE_COLUMN_BYTES};
  reading r = {.rows = rows};
  treadle_status status;
  TREADLE_NEED(rows);
  if (bytes) TREADLE_NEED(text);
  if (model) TRY(treadle_transformer_create(model, &r.model));
  TRY(read_lines(&r, &reader));
  if ((int64_t)r.offsets.count - 1 != treadle_batch_rows(rows))
    TRY(treadle_fail(TREADLE_REFUSED, "%s: has experts of %lld rows, and there are %lld", reader.what,
                     (long long)r.offsets.count - 1, (long long)treadle_batch_rows(rows)));
  TRY(treadle_array_push(&r.records.bytes, (uint8_t)0)); /* rows without bytes have memory, too */
  column.offsets = r.offsets.items;
  column.data = r.records.bytes.items;
  TRY(treadle_batch_add(rows, &column));
out:
  treadle_request_reader_release(&reader);
  treadle_transformer_destroy(r.model);
  treadle_array_release(&r.records.bytes);
  treadle_array_release(&r.offsets);
  return status;
}
