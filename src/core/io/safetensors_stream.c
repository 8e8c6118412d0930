/* Writing one safetensors file as a stream. What the header says is checked by the reader, as when a file is written
 * at once; the bytes that follow are counted. */
#include "io/safetensors.h"

#include "base/alloc.h"
#include "io/file.h"
#include "io/safetensors_header.h"

#include <string.h>

struct treadle_safetensors_writer {
  treadle_file_writer *file;
  char *path;
  size_t left; /* bytes of data still to come */
};

static treadle_status check_header(const char *path, const treadle_stored *order, int32_t count,
                                   const treadle_header *header, treadle_arena *arena) {
  treadle_stored *checked = NULL;
  treadle_hash_map names = {0};
  int32_t found = 0;
  treadle_status status;
  TRY(treadle_safetensors_read_header(path, header, NULL, arena, &checked, &found));
  for (int32_t i = 0; i < found; i++) TRY(treadle_hash_map_put(&names, checked[i].name, i));
  size_t at = 0;
  for (int32_t i = 0; i < count; i++) {
    int64_t number = treadle_hash_map_get(&names, order[i].name, -1);
    const treadle_stored *said = number < 0 ? NULL : &checked[number];
    if (!said || found != count || said->bytes != order[i].bytes || (said->bytes && said->begin != at) ||
        strcmp(said->dtype_text, order[i].dtype_text) != 0) {
      status =
          treadle_fail(TREADLE_REFUSED, "%s: its header does not have tensor '%s' of type %s at byte %zu",
                       path, order[i].name, order[i].dtype_text, at);
      goto out;
    }
    at += order[i].bytes;
  }
out:
  treadle_hash_map_release(&names);
  return status;
}

static treadle_status write_header(treadle_safetensors_writer *writer, const treadle_header *header) {
  unsigned char length[TREADLE_HEADER_LENGTH_BYTES];
  treadle_status status;
  for (int i = 0; i < TREADLE_HEADER_LENGTH_BYTES; i++)
    length[i] = (unsigned char)((uint64_t)header->length >> (8 * i) & 0xff);
  TRY(treadle_file_writer_append(writer->file, length, sizeof length));
  TRY(treadle_file_writer_append(writer->file, header->text, header->length));
out:
  return status;
}

treadle_status treadle_safetensors_create(const char *path, const treadle_stored *tensors, int32_t count,
                                          const treadle_header *header,
                                          treadle_safetensors_writer **writer_p) {
  treadle_arena arena = {0};
  treadle_builder made = {0};
  treadle_header own;
  treadle_status status = TREADLE_OK;
  treadle_safetensors_writer *writer = treadle_alloc(sizeof *writer);
  treadle_stored *order = treadle_arena_alloc_array(&arena, (size_t)count, sizeof *order);
  *writer_p = NULL;
  if (writer) writer->path = treadle_alloc(strlen(path) + 1);
  if (!writer || !writer->path || !order)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for %d tensors", path, count));
  strcpy(writer->path, path);
  for (int32_t i = 0; i < count; i++) {
    order[i] = tensors[i];
    TRY(treadle_safetensors_settle(path, &order[i]));
    writer->left += order[i].bytes;
  }
  if (!header) {
    size_t data_bytes;
    TRY(treadle_safetensors_make_header(path, order, count, &made, &data_bytes));
    own = (treadle_header){path, made.text + TREADLE_HEADER_LENGTH_BYTES,
                           made.length - TREADLE_HEADER_LENGTH_BYTES, data_bytes};
    header = &own;
  }
  TRY(check_header(path, order, count, header, &arena));
  TRY(treadle_file_writer_create(path, &writer->file));
  TRY(write_header(writer, header));
  *writer_p = writer;
  writer = NULL;
out:
  treadle_safetensors_writer_destroy(writer);
  treadle_builder_release(&made);
  treadle_arena_release(&arena);
  return status;
}

treadle_status treadle_safetensors_append(treadle_safetensors_writer *writer, const void *bytes,
                                          size_t count) {
  if (count > writer->left)
    return treadle_fail(TREADLE_STATE, "%s: %zu bytes more than its tensors have", writer->path,
                        count - writer->left);
  writer->left -= count;
  return treadle_file_writer_append(writer->file, bytes, count);
}

treadle_status treadle_safetensors_finish(treadle_safetensors_writer *writer) {
  if (writer->left)
    return treadle_fail(TREADLE_STATE, "%s: its tensors lack %zu bytes", writer->path, writer->left);
  return treadle_file_writer_commit(writer->file);
}

void treadle_safetensors_writer_sum(const treadle_safetensors_writer *writer, int64_t *bytes_p,
                                    uint64_t *sum_p) {
  treadle_file_writer_sum(writer->file, bytes_p, sum_p);
}

void treadle_safetensors_writer_destroy(treadle_safetensors_writer *writer) {
  if (!writer) return;
  treadle_file_writer_destroy(writer->file);
  treadle_free(writer->path);
  treadle_free(writer);
}
