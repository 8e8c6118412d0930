/* Experts of the tokens of rows, from lines of JSON. */
#include "treadle_loop.h"

#include "base/argument.h"
#include "generate/request_lines.h"
#include "pass/record_text.h"

/* Rows one after the other, and where each begins. */
typedef struct reading {
  treadle_record_list records;
  TREADLE_ARRAY(int64_t) offsets;
} reading;

static treadle_status read_lines(reading *r, treadle_request_reader *reader) {
  bool more;
  treadle_status status;
  TRY(treadle_array_push(&r->offsets, (int64_t)0));
  for (;;) {
    TRY(treadle_request_reader_next(reader, &more));
    if (!more) break;
    TRY(treadle_record_read_text(reader->name, json_object_get(reader->object, "experts"), &r->records));
    TRY(treadle_array_push(&r->offsets, (int64_t)r->records.bytes.count));
  }
out:
  return status;
}

treadle_status treadle_train_experts_read(const char *what, const char *text, size_t bytes,
                                          treadle_batch *rows) {
  treadle_request_reader reader = {.what = what ? what : "experts", .text = text, .count = bytes};
  treadle_column column = {.struct_size = sizeof column, .name = "experts", .type = TREADLE_COLUMN_BYTES};
  reading r = {.offsets = {0}};
  treadle_status status;
  TREADLE_NEED(rows);
  if (bytes) TREADLE_NEED(text);
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
  treadle_array_release(&r.records.bytes);
  treadle_array_release(&r.offsets);
  return status;
}
