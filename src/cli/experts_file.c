#include "cli/experts_file.h"

#include "base/array.h"
#include "cli/json_lines.h"

#include <stdlib.h>

/* The experts of all rows, one row after the other. */
typedef struct reading {
  TREADLE_ARRAY(uint8_t) bytes;
  TREADLE_ARRAY(int64_t) offsets;
  size_t layers, top; /* of each token: as the first one has them */
} reading;

static treadle_status read_layer(reading *r, const json_t *layer, size_t token, size_t number) {
  treadle_status status = TREADLE_OK;
  if (!json_is_array(layer)) REFUSE("experts[%zu][%zu] is not a list", token, number);
  if (!r->top) r->top = json_array_size(layer);
  if (json_array_size(layer) != r->top || !r->top)
    REFUSE("experts[%zu][%zu] has %zu items, and the first list %zu", token, number, json_array_size(layer),
           r->top);
  for (size_t k = 0; k < r->top; k++) {
    const json_t *item = json_array_get(layer, k);
    const json_int_t expert = json_integer_value(item);
    if (!json_is_integer(item) || expert < 0 || expert > UINT16_MAX)
      REFUSE("experts[%zu][%zu][%zu] is not a number of an expert, from 0 to %d", token, number, k,
             UINT16_MAX);
    TRY(treadle_array_push(&r->bytes, (uint8_t)(expert & 255)));
    TRY(treadle_array_push(&r->bytes, (uint8_t)(expert >> 8)));
  }
out:
  return status;
}

static treadle_status read_row(reading *r, const json_t *experts) {
  treadle_status status = TREADLE_OK;
  if (!json_is_array(experts))
    REFUSE(
        "it has no list \"experts\", which treadle score --experts and treadle grad --write-experts write");
  for (size_t t = 0; t < json_array_size(experts); t++) {
    const json_t *token = json_array_get(experts, t);
    if (!json_is_array(token)) REFUSE("experts[%zu] is not a list", t);
    if (!r->layers) r->layers = json_array_size(token);
    if (json_array_size(token) != r->layers || !r->layers)
      REFUSE("experts[%zu] has %zu layers, and the first token %zu", t, json_array_size(token), r->layers);
    for (size_t l = 0; l < r->layers; l++) TRY(read_layer(r, json_array_get(token, l), t, l));
  }
out:
  return status;
}

static treadle_status read_lines(reading *r, treadle_json_lines *lines) {
  json_t *object = NULL;
  treadle_status status;
  TRY(treadle_array_push(&r->offsets, (int64_t)0));
  for (;;) {
    TRY(treadle_json_lines_next(lines, &object));
    if (!object) break;
    status = read_row(r, json_object_get(object, "experts"));
    if (status) TRY(treadle_json_lines_fail(lines, status));
    TRY(treadle_array_push(&r->offsets, (int64_t)r->bytes.count));
    json_decref(object);
    object = NULL;
  }
out:
  json_decref(object);
  return status;
}

treadle_status treadle_experts_read(const char *path, treadle_batch *rows) {
  treadle_json_lines lines = {0};
  treadle_column column = {.struct_size = sizeof column, .name = "experts", .type = TREADLE_COLUMN_BYTES};
  reading r = {0};
  treadle_status status;
  TRY(treadle_json_lines_open(&lines, path));
  TRY(read_lines(&r, &lines));
  if ((int64_t)r.offsets.count - 1 != treadle_batch_rows(rows))
    REFUSE("%s: has experts of %lld rows, and there are %lld", path, (long long)r.offsets.count - 1,
           (long long)treadle_batch_rows(rows));
  TRY(treadle_array_push(&r.bytes, (uint8_t)0)); /* rows of no bytes need memory, too */
  column.offsets = r.offsets.items;
  column.data = r.bytes.items;
  TRY(treadle_batch_add(rows, &column));
out:
  treadle_array_release(&r.bytes);
  treadle_array_release(&r.offsets);
  treadle_json_lines_close(&lines);
  return status;
}
