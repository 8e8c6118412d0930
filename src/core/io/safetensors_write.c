/* Writing one safetensors file.
 *
 * The header is put together as text, and the reader checks it before a byte is written: what cannot be
 * read back is not written, and rules and messages exist once. */
#include "io/safetensors.h"

#include "base/dtype.h"
#include "base/text.h"
#include "io/file.h"
#include "io/json.h"
#include "io/safetensors_header.h"

#include <stdlib.h>
#include <string.h>

/* The largest elements first, so that every tensor is aligned to its elements; equals by name. */
static int compare_for_file(const void *a_, const void *b_) {
  const treadle_stored *a = a_, *b = b_;
  int a_bits = treadle_safetensors_bits(a->dtype_text), b_bits = treadle_safetensors_bits(b->dtype_text);
  return a_bits != b_bits ? b_bits - a_bits : strcmp(a->name, b->name);
}

/* A text in JSON's quotes. */
static treadle_status add_quoted(treadle_builder *header, const char *path, const char *text) {
  json_t *string = json_string(text);
  char *quoted = string ? json_dumps(string, JSON_ENCODE_ANY) : NULL;
  json_decref(string);
  if (!quoted) return treadle_fail(TREADLE_REFUSED, "%s: a tensor's name is not UTF-8", path);
  treadle_builder_add(header, "%s", quoted);
  free(quoted);
  return TREADLE_OK;
}

treadle_status treadle_safetensors_make_header(const char *path, const treadle_stored *order, int32_t count,
                                               treadle_builder *header, size_t *data_bytes_p) {
  char shape[TREADLE_SHAPE_TEXT_BYTES];
  size_t at = 0;
  treadle_status status = TREADLE_OK;
  treadle_builder_add(header, "%*s", TREADLE_HEADER_LENGTH_BYTES, "");
  /* Readers of the transformers library ask for this line. */
  treadle_builder_add(header, "{\"__metadata__\":{\"format\":\"pt\"}");
  for (int32_t i = 0; i < count; i++) {
    treadle_builder_add(header, ",");
    TRY(add_quoted(header, path, order[i].name));
    treadle_builder_add(header, ":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                        order[i].dtype_text, treadle_safetensors_shape_text(&order[i], shape, sizeof shape),
                        at, at + order[i].bytes);
    at += order[i].bytes;
  }
  treadle_builder_add(header, "}");
  while (!header->failed && header->length % 8) treadle_builder_add(header, " ");
  if (header->failed) {
    status = treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for the header", path);
    goto out;
  }
  uint64_t length = header->length - TREADLE_HEADER_LENGTH_BYTES;
  for (int i = 0; i < TREADLE_HEADER_LENGTH_BYTES; i++) header->text[i] = (char)(length >> (8 * i) & 0xff);
  *data_bytes_p = at;
out:
  return status;
}

/* What the header cannot show to the reader: the caller's struct itself. */
static treadle_status check_caller(const char *path, const treadle_stored *tensor) {
  bool good = tensor->name && tensor->dtype_text && tensor->ndim >= 0 && tensor->ndim <= 8;
  for (int i = 0; good && i < tensor->ndim; i++) good = tensor->shape[i] >= 0;
  return good ? TREADLE_OK
              : treadle_fail(TREADLE_REFUSED,
                             "%s: tensor '%s' lacks a name or a dtype, or has a shape of %d numbers "
                             "that are not all in [0, 2^63)",
                             path, tensor->name ? tensor->name : "", tensor->ndim);
}

treadle_status treadle_safetensors_settle(const char *path, treadle_stored *tensor) {
  treadle_status status;
  if (tensor->dtype != TREADLE_DTYPE_NONE) tensor->dtype_text = treadle_dtype_safetensors(tensor->dtype);
  TRY(check_caller(path, tensor));
  TRY(treadle_safetensors_measure(path, tensor));
out:
  return status;
}

treadle_status treadle_safetensors_write(const char *path, const treadle_stored *tensors, int32_t count) {
  treadle_arena arena = {0};
  treadle_builder header = {0};
  treadle_status status;
  size_t data_bytes = 0;
  treadle_stored *order = treadle_arena_alloc_array(&arena, (size_t)count, sizeof *order), *checked;
  treadle_file_part *parts = treadle_arena_alloc_array(&arena, (size_t)count + 1, sizeof *parts);
  if (!order || !parts) {
    status = treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for %d tensors", path, count);
    goto out;
  }
  for (int32_t i = 0; i < count; i++) {
    order[i] = tensors[i];
    TRY(treadle_safetensors_settle(path, &order[i]));
    if (order[i].bytes && !order[i].data) {
      status = treadle_fail(TREADLE_REFUSED, "%s: tensor '%s' has no data", path, order[i].name);
      goto out;
    }
  }
  if (count) qsort(order, (size_t)count, sizeof *order, compare_for_file);
  TRY(treadle_safetensors_make_header(path, order, count, &header, &data_bytes));
  const treadle_header made = {path, header.text + TREADLE_HEADER_LENGTH_BYTES,
                               header.length - TREADLE_HEADER_LENGTH_BYTES, data_bytes};
  TRY(treadle_safetensors_read_header(path, &made, NULL, &arena, &checked, &count));
  parts[0] = (treadle_file_part){header.text, header.length};
  for (int32_t i = 0; i < count; i++) parts[i + 1] = (treadle_file_part){order[i].data, order[i].bytes};
  TRY(treadle_file_write_parts(path, parts, (size_t)count + 1));
out:
  treadle_builder_release(&header);
  treadle_arena_release(&arena);
  return status;
}
