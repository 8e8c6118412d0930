/* A safetensors file that several processes fill. */
#include "io/safetensors.h"

#include "base/text.h"
#include "io/safetensors_header.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The order of the file; `file` is where the tensor stands in the caller's. */
static int compare_for_file(const void *a_, const void *b_) {
  const treadle_stored *a = a_, *b = b_;
  int a_bits = treadle_safetensors_bits(a->dtype_text), b_bits = treadle_safetensors_bits(b->dtype_text);
  return a_bits != b_bits ? b_bits - a_bits : a->file < b->file ? -1 : 1;
}

treadle_status treadle_safetensors_plan(const char *path, treadle_stored *tensors, int32_t count,
                                        treadle_builder *beginning, int64_t *file_bytes_p) {
  treadle_arena arena = {0};
  treadle_status status;
  size_t data_bytes;
  int32_t found, kept = 0;
  treadle_stored *checked, *order = treadle_arena_alloc_array(&arena, (size_t)count + 1, sizeof *order);
  if (!order) TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for %d tensors", path, count));
  for (int32_t i = 0; i < count; i++) {
    if (!tensors[i].name) continue;
    TRY(treadle_safetensors_settle(path, &tensors[i]));
    order[kept] = tensors[i];
    order[kept++].file = i;
  }
  if (kept) qsort(order, (size_t)kept, sizeof *order, compare_for_file);
  TRY(treadle_safetensors_make_header(path, order, kept, beginning, &data_bytes));
  const treadle_header made = {path, beginning->text + TREADLE_HEADER_LENGTH_BYTES,
                               beginning->length - TREADLE_HEADER_LENGTH_BYTES, data_bytes};
  TRY(treadle_safetensors_read_header(path, &made, NULL, &arena, &checked, &found));
  int64_t at = (int64_t)beginning->length;
  for (int32_t i = 0; i < kept; i++) {
    tensors[order[i].file].begin = (size_t)at;
    at += (int64_t)order[i].bytes;
  }
  *file_bytes_p = at;
out:
  treadle_arena_release(&arena);
  return status;
}

static treadle_status system_says(const char *path, const char *verb, int why) {
  return treadle_fail(TREADLE_SYSTEM, "%s: cannot %s: %s", path, verb, strerror(why));
}

treadle_status treadle_safetensors_make(const char *path, const treadle_builder *beginning,
                                        int64_t file_bytes) {
  treadle_status status = TREADLE_OK;
  int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0) return system_says(path, "create", errno);
  int why = posix_fallocate(file, 0, (off_t)file_bytes);
  if (why) TRY(system_says(path, "get the room for it", why));
  for (size_t done = 0; done < beginning->length;) {
    ssize_t put = pwrite(file, beginning->text + done, beginning->length - done, (off_t)done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) TRY(system_says(path, "write", errno));
    done += (size_t)put;
  }
out:
  close(file);
  if (status) unlink(path);
  return status;
}
