#include "convert/megatron_twice.h"

#include "base/alloc.h"
#include "base/array.h"
#include "base/hash.h"
#include "base/sized.h"

#include <stdlib.h>
#include <string.h>

typedef struct mark {
  uint64_t sum; /* of the sums of all tensors */
  int32_t file;
} mark;

static int by_sum(const void *a_, const void *b_) {
  const mark *a = a_, *b = b_;
  if (a->sum != b->sum) return a->sum < b->sum ? -1 : 1;
  return (a->file > b->file) - (a->file < b->file);
}

static bool sum_of(const treadle_megatron_file *file, uint64_t *sum_p) {
  *sum_p = (uint64_t)file->count;
  for (int32_t n = 0; n < file->count; n++) {
    const treadle_torch_entry *storage = &file->tensors[n]->storage;
    if (!storage->summed) return false;
    *sum_p = treadle_hash_more(treadle_hash_more(*sum_p, storage->crc), storage->bytes);
  }
  return file->count > 0;
}

static bool has_same_sums(const treadle_megatron_file *a, const treadle_megatron_file *b) {
  if (a->count != b->count) return false;
  for (int32_t n = 0; n < a->count; n++)
    if (a->tensors[n]->storage.crc != b->tensors[n]->storage.crc ||
        a->tensors[n]->storage.bytes != b->tensors[n]->storage.bytes)
      return false;
  return true;
}

/* Is it one value throughout, so that any part of it is like any other? */
static bool is_constant(const treadle_torch_tensor *tensor) {
  const char *data = tensor->storage.data;
  const size_t step = tensor->elems > 0 ? tensor->bytes / (size_t)tensor->elems : 0;
  return step == 0 || tensor->storage.bytes <= step ||
         memcmp(data, data + step, tensor->storage.bytes - step) == 0;
}

/* Do the pieces of a storage tensor, from begin_a and begin_b on in the windows, hold the same of the model? */
static bool is_same_part(const treadle_pieces *a, const treadle_storage_info *in_a, const treadle_pieces *b,
                         const treadle_storage_info *in_b) {
  size_t i = 0, j = 0;
  for (;; i++, j++) {
    while (i < a->count && ((size_t)a->items[i].offset < in_a->offset_bytes ||
                            (size_t)a->items[i].offset >= in_a->offset_bytes + in_a->bytes))
      i++;
    while (j < b->count && ((size_t)b->items[j].offset < in_b->offset_bytes ||
                            (size_t)b->items[j].offset >= in_b->offset_bytes + in_b->bytes))
      j++;
    if (i == a->count || j == b->count) return i == a->count && j == b->count;
    if (a->items[i].tensor != b->items[j].tensor || !treadle_box_equal(&a->items[i].box, &b->items[j].box))
      return false;
  }
}

static treadle_status compare(const treadle_layout *layout, const treadle_megatron_file *a,
                              const treadle_megatron_file *b) {
  treadle_pieces of_a = {0}, of_b = {0};
  treadle_status status;
  TRY(treadle_layout_pieces(layout, a->rank, &of_a));
  TRY(treadle_layout_pieces(layout, b->rank, &of_b));
  for (int32_t n = 0; n < a->count; n++) {
    treadle_storage_info in_a = TREADLE_INIT(treadle_storage_info), in_b = in_a;
    TRY(treadle_layout_storage(layout, a->rank, n, &in_a));
    TRY(treadle_layout_storage(layout, b->rank, n, &in_b));
    if (is_same_part(&of_a, &in_a, &of_b, &in_b) || is_constant(a->tensors[n])) continue;
    TRY(treadle_fail(
        TREADLE_REFUSED,
        "%s and %s are one file under two names: all %d tensors have the same sums, and layout "
        "'%s' gives them other parts of the model, as of %s: copy the right one again",
        a->path, b->path, (int)a->count, layout->text, in_a.name));
  }
out:
  treadle_array_release(&of_a);
  treadle_array_release(&of_b);
  return status;
}

treadle_status treadle_megatron_check_twice(const treadle_layout *layout,
                                            const treadle_megatron_file *files, int32_t count) {
  mark *marks = treadle_alloc_array((size_t)count + 1, sizeof *marks);
  int32_t known = 0;
  treadle_status status = TREADLE_OK;
  if (!marks) return treadle_fail(TREADLE_NO_MEMORY, "no memory for the sums of %d files", (int)count);
  for (int32_t i = 0; i < count; i++) {
    marks[known].file = i;
    if (sum_of(&files[i], &marks[known].sum)) known++;
  }
  qsort(marks, (size_t)known, sizeof *marks, by_sum);
  for (int32_t i = 1; i < known; i++) {
    const treadle_megatron_file *a = &files[marks[i - 1].file], *b = &files[marks[i].file];
    if (marks[i].sum == marks[i - 1].sum && has_same_sums(a, b)) TRY(compare(layout, a, b));
  }
out:
  treadle_free(marks);
  return status;
}
