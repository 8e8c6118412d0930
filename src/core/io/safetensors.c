/* Reading one safetensors file: checking its header.
 *
 * The reader believes nothing. Each entry is checked on its own first: exactly the three keys, whole
 * numbers that are not negative, elements and bytes that do not overflow, as many bytes as shape and dtype
 * need. Then the tensors, in order of their offsets, have to follow each other from 0 to the end of the
 * data without hole and overlap; that one sweep also keeps every offset inside the file. */
#include "io/safetensors.h"

#include "base/alloc.h"
#include "base/dtype.h"
#include "io/json.h"
#include "io/safetensors_header.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST_HEADER = 100 * 1000 * 1000 /* that of the safetensors library */ };

/* All element types of the format, with their bits. */
static const struct {
  const char *text;
  int bits;
} raw_types[] = {{"F32", 32},    {"BF16", 16},   {"F16", 16},    {"BOOL", 8},    {"U8", 8},
                 {"I8", 8},      {"I16", 16},    {"U16", 16},    {"I32", 32},    {"U32", 32},
                 {"I64", 64},    {"U64", 64},    {"F64", 64},    {"C64", 64},    {"F4", 4},
                 {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}};

int treadle_safetensors_bits(const char *dtype_text) {
  for (size_t i = 0; i < sizeof raw_types / sizeof *raw_types; i++)
    if (strcmp(raw_types[i].text, dtype_text) == 0) return raw_types[i].bits;
  return 0;
}

const char *treadle_safetensors_shape_text(const treadle_stored *tensor, char *buffer, size_t bytes) {
  size_t used = (size_t)snprintf(buffer, bytes, "[");
  for (int i = 0; i < tensor->ndim; i++)
    used += (size_t)snprintf(buffer + used, bytes - used, i ? ",%" PRId64 : "%" PRId64, tensor->shape[i]);
  snprintf(buffer + used, bytes - used, "]");
  return buffer;
}

treadle_status treadle_safetensors_measure(const char *what, treadle_stored *tensor) {
  char shape[TREADLE_SHAPE_TEXT_BYTES];
  int bits = treadle_safetensors_bits(tensor->dtype_text);
  if (bits == 0)
    return treadle_fail(TREADLE_REFUSED, "%s: tensor '%s': unknown dtype '%s'", what, tensor->name,
                        tensor->dtype_text);
  int64_t elems = 1, total_bits;
  bool overflow = false;
  for (int i = 0; i < tensor->ndim; i++)
    overflow |= __builtin_mul_overflow(elems, tensor->shape[i], &elems);
  overflow |= __builtin_mul_overflow(elems, (int64_t)bits, &total_bits);
  if (overflow)
    return treadle_fail(TREADLE_REFUSED, "%s: tensor '%s': shape %s of %s has more than 2^63 bits", what,
                        tensor->name, treadle_safetensors_shape_text(tensor, shape, sizeof shape),
                        tensor->dtype_text);
  if (total_bits % 8)
    return treadle_fail(TREADLE_REFUSED, "%s: tensor '%s': shape %s of %s is not a whole number of bytes",
                        what, tensor->name, treadle_safetensors_shape_text(tensor, shape, sizeof shape),
                        tensor->dtype_text);
  tensor->elems = elems;
  tensor->bytes = (size_t)total_bits / 8;
  return TREADLE_OK;
}

/* A list of `low` to `high` whole numbers that are not negative. */
static treadle_status read_numbers(const char *what, const char *name, const char *key, const json_t *list,
                                   size_t low, size_t high, int64_t *numbers) {
  size_t count = json_array_size(list);
  if (!json_is_array(list) || count < low || count > high)
    return treadle_fail(TREADLE_REFUSED, "%s: tensor '%s': %s is not a list of %zu to %zu numbers", what,
                        name, key, low, high);
  for (size_t i = 0; i < count; i++) {
    const json_t *item = json_array_get(list, i);
    if (!json_is_integer(item))
      return treadle_fail(TREADLE_REFUSED, "%s: tensor '%s': %s has something that is not a whole number%s",
                          what, name, key, treadle_json_note(item));
    numbers[i] = json_integer_value(item);
    if (numbers[i] < 0)
      return treadle_fail(TREADLE_REFUSED, "%s: tensor '%s': %s has the negative number %" PRId64, what,
                          name, key, numbers[i]);
  }
  return TREADLE_OK;
}

/* One entry of the header. Offsets are checked against the shape here, against the file in check_order().
 */
static treadle_status read_entry(const char *what, const char *name, const json_t *entry,
                                 treadle_arena *arena, treadle_stored *tensor, int64_t *begin_p) {
  treadle_status status;
  int64_t offsets[2] = {0};
  char shape[TREADLE_SHAPE_TEXT_BYTES];
  const char *dtype_text = json_string_value(json_object_get(entry, "dtype"));
  const json_t *dims = json_object_get(entry, "shape"), *ends = json_object_get(entry, "data_offsets");
  if (!dtype_text || !dims || !ends || json_object_size(entry) != 3)
    return treadle_fail(TREADLE_REFUSED, "%s: tensor '%s': its keys are not dtype, shape and data_offsets",
                        what, name);
  tensor->name = treadle_arena_copy_text(arena, name);
  tensor->dtype_text = treadle_arena_copy_text(arena, dtype_text);
  if (!tensor->name || !tensor->dtype_text)
    return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for a tensor's name", what);
  TRY(read_numbers(what, name, "shape", dims, 0, sizeof tensor->shape / sizeof *tensor->shape,
                   tensor->shape));
  TRY(read_numbers(what, name, "data_offsets", ends, 2, 2, offsets));
  tensor->ndim = (int)json_array_size(dims);
  treadle_dtype dtype;
  if (treadle_dtype_parse(dtype_text, &dtype) && strcmp(treadle_dtype_safetensors(dtype), dtype_text) == 0)
    tensor->dtype = dtype;
  TRY(treadle_safetensors_measure(what, tensor));
  if (offsets[1] < offsets[0] || (uint64_t)(offsets[1] - offsets[0]) != tensor->bytes) {
    status = treadle_fail(TREADLE_REFUSED,
                          "%s: tensor '%s': data_offsets [%" PRId64 ", %" PRId64 "] hold %" PRId64
                          " bytes, shape %s of %s needs %zu",
                          what, name, offsets[0], offsets[1], offsets[1] - offsets[0],
                          treadle_safetensors_shape_text(tensor, shape, sizeof shape), dtype_text,
                          tensor->bytes);
    goto out;
  }
  *begin_p = offsets[0];
out:
  return status;
}

static treadle_status check_metadata(const char *what, json_t *metadata) {
  const char *key;
  json_t *value;
  bool good = treadle_json_is_object(metadata);
  json_object_foreach(metadata, key, value) {
    const char *odd = treadle_json_odd(value); /* a text that nobody reads */
    good = good && (json_is_string(value) || (odd && *odd == '"'));
  }
  return good ? TREADLE_OK : treadle_fail(TREADLE_REFUSED, "%s: __metadata__ is not texts by name", what);
}

typedef struct extent {
  int64_t begin;
  const treadle_stored *tensor;
} extent;

static int compare_extents(const void *a_, const void *b_) {
  const extent *a = a_, *b = b_;
  if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
  return (a->tensor->bytes > b->tensor->bytes) - (a->tensor->bytes < b->tensor->bytes);
}

/* The tensors fill [0, data_bytes), each byte once. */
static treadle_status check_order(const char *what, extent *extents, int32_t count, size_t data_bytes) {
  uint64_t at = 0; /* bytes below are covered */
  const char *before = "the header";
  if (count) qsort(extents, (size_t)count, sizeof *extents, compare_extents);
  for (int32_t i = 0; i < count; i++) {
    const treadle_stored *tensor = extents[i].tensor;
    uint64_t begin = (uint64_t)extents[i].begin, end = begin + tensor->bytes; /* both below 2^63 */
    if (begin < at)
      return treadle_fail(TREADLE_REFUSED,
                          "%s: tensor '%s' begins at byte %" PRIu64 ", inside '%s', which ends at %" PRIu64,
                          what, tensor->name, begin, before, at);
    if (begin > at)
      return treadle_fail(TREADLE_REFUSED,
                          "%s: bytes %" PRIu64 " to %" PRIu64
                          " between %s and tensor '%s' belong to no tensor",
                          what, at, begin, before, tensor->name);
    if (end > data_bytes)
      return treadle_fail(TREADLE_REFUSED,
                          "%s: tensor '%s' ends at byte %" PRIu64 ", the file has %zu bytes of data", what,
                          tensor->name, end, data_bytes);
    at = end;
    before = tensor->name;
  }
  if (at != data_bytes)
    return treadle_fail(TREADLE_REFUSED, "%s: bytes %" PRIu64 " to %zu at its end belong to no tensor",
                        what, at, data_bytes);
  return TREADLE_OK;
}

static int compare_names(const void *a, const void *b) {
  return strcmp(((const treadle_stored *)a)->name, ((const treadle_stored *)b)->name);
}

treadle_status treadle_safetensors_read_header(const char *what, const treadle_header *header,
                                               const unsigned char *data, treadle_arena *arena,
                                               treadle_stored **tensors_p, int32_t *count_p) {
  json_t *root = NULL, *entry;
  const char *name;
  extent *extents = NULL;
  int32_t count = 0;
  treadle_status status;
  if (header->length > LARGEST_HEADER) {
    status = treadle_fail(TREADLE_REFUSED, "%s: a header of %zu bytes; at most %d are read", what,
                          header->length, LARGEST_HEADER);
    goto out;
  }
  TRY(treadle_json_parse(what, header->text, header->length, &root));
  if (!treadle_json_is_object(root) || header->text[0] != '{') {
    status = treadle_fail(TREADLE_REFUSED, "%s: the header is not a JSON object that begins with {", what);
    goto out;
  }
  size_t names = json_object_size(root); /* at most a name a byte: fits int32_t */
  treadle_stored *tensors = treadle_arena_alloc_array(arena, names, sizeof *tensors);
  extents = treadle_alloc_array(names, sizeof *extents);
  if (!tensors || !extents) {
    status = treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for %zu tensors", what, names);
    goto out;
  }
  json_object_foreach(root, name, entry) {
    if (strcmp(name, "__metadata__") == 0) {
      TRY(check_metadata(what, entry));
      continue;
    }
    if (strstr(name, TREADLE_JSON_ZERO))
      TRY(treadle_fail(TREADLE_REFUSED, "%s: the name of tensor '%.80s' has a zero character", what, name));
    TRY(read_entry(what, name, entry, arena, &tensors[count], &extents[count].begin));
    extents[count].tensor = &tensors[count];
    count++;
  }
  TRY(check_order(what, extents, count, header->data_bytes));
  for (int32_t i = 0; i < count; i++) {
    treadle_stored *tensor = &tensors[extents[i].tensor - tensors];
    tensor->begin = (size_t)extents[i].begin;
    if (data) tensor->data = data + extents[i].begin;
  }
  if (count) qsort(tensors, (size_t)count, sizeof *tensors, compare_names);
  *tensors_p = tensors;
  *count_p = count;
out:
  treadle_free(extents);
  json_decref(root);
  return status;
}

treadle_status treadle_safetensors_parse(const char *what, const void *image, size_t bytes,
                                         treadle_arena *arena, treadle_stored **tensors_p,
                                         int32_t *count_p) {
  const unsigned char *start = image;
  uint64_t length = 0;
  if (bytes < TREADLE_HEADER_LENGTH_BYTES)
    return treadle_fail(TREADLE_REFUSED, "%s: has %zu bytes; the length of the header takes %d", what,
                        bytes, TREADLE_HEADER_LENGTH_BYTES);
  for (int i = 0; i < TREADLE_HEADER_LENGTH_BYTES; i++) length |= (uint64_t)start[i] << (8 * i);
  if (length > bytes - TREADLE_HEADER_LENGTH_BYTES)
    return treadle_fail(TREADLE_REFUSED, "%s: a header of %" PRIu64 " bytes in a file of %zu", what, length,
                        bytes);
  const unsigned char *data = start + TREADLE_HEADER_LENGTH_BYTES + length;
  const treadle_header header = {what, (const char *)start + TREADLE_HEADER_LENGTH_BYTES, (size_t)length,
                                 bytes - TREADLE_HEADER_LENGTH_BYTES - (size_t)length};
  return treadle_safetensors_read_header(what, &header, data, arena, tensors_p, count_p);
}
