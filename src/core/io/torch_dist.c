/* Reading checkpoints of torch.distributed.checkpoint: first the metadata alone, then each chunk's
 * archive where it lies, whose tensor must be of the type and size that the metadata says. */
#include "io/torch_dist.h"

#include "base/alloc.h"
#include "io/file.h"
#include "io/file_map.h"
#include "io/torch_dist_metadata.h"

#include <inttypes.h>
#include <string.h>

enum { MOST_METADATA = 1 << 30 };

struct treadle_dist_file {
  const char *path;
  const void *image;
  size_t bytes;
};

/* The file of a chunk, which the first mention maps. `numbers` is from name to number. */
static treadle_status map_file(treadle_dist_reader *r, const char *folder, const char *name,
                               treadle_hash_map *numbers, const struct treadle_dist_file **file_p) {
  treadle_status status = TREADLE_OK;
  int64_t number = treadle_hash_map_get(numbers, name, -1);
  if (number < 0) {
    if (strchr(name, '/') || !*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
      status = treadle_fail(TREADLE_REFUSED, "%s: '%s' is not a plain file name", r->what, name);
      goto out;
    }
    struct treadle_dist_file *file = &r->dist->files[r->dist->file_count];
    file->path = treadle_arena_format(&r->dist->arena, "%s/%s", folder, name);
    if (!file->path) {
      status = treadle_dist_no_memory(r->what);
      goto out;
    }
    TRY(treadle_hash_map_put(numbers, name, r->dist->file_count));
    TRY(treadle_file_map(file->path, &file->image, &file->bytes));
    number = r->dist->file_count++;
  }
  *file_p = &r->dist->files[number];
out:
  return status;
}

static treadle_status open_chunk(const treadle_dist_tensor *tensor, treadle_dist_box *chunk,
                                 const struct treadle_dist_file *file, const treadle_dist_extent *place) {
  treadle_arena scratch = {0};
  treadle_torch_tensor found = {0};
  treadle_status status;
  if ((uint64_t)place->offset > file->bytes ||
      (uint64_t)place->length > file->bytes - (size_t)place->offset) {
    status = treadle_fail(TREADLE_REFUSED,
                          "%s: '%s': a chunk has %" PRId64 " bytes from byte %" PRId64 ", the file has %zu",
                          file->path, tensor->key, place->length, place->offset, file->bytes);
    goto out;
  }
  status = treadle_torch_parse_tensor(file->path, (const unsigned char *)file->image + place->offset,
                                      (size_t)place->length, &scratch, &found);
  treadle_status intact = treadle_file_intact(file->image); /* what is gone is not a bad archive */
  if (intact) {
    status = intact;
    goto out;
  }
  if (status != TREADLE_OK) {
    treadle_fail_in(status, "'%s', at byte %" PRId64 ": ", tensor->key, place->offset);
    goto out;
  }
  if (found.ndim != tensor->ndim || memcmp(found.shape, chunk->size, sizeof found.shape) != 0 ||
      strcmp(found.dtype_text, tensor->dtype_text) != 0) {
    status = treadle_fail(TREADLE_REFUSED,
                          "%s: '%s': the chunk at byte %" PRId64
                          " has another type or size than the metadata says",
                          file->path, tensor->key, place->offset);
    goto out;
  }
  memcpy(chunk->strides, found.strides, sizeof chunk->strides);
  chunk->contiguous = found.contiguous;
  chunk->data = found.data;
  chunk->bytes = found.bytes;
  chunk->storage = found.storage;
  chunk->storage.name = NULL;
  chunk->path = file->path;
out:
  treadle_arena_release(&scratch);
  return status;
}

static treadle_status open_chunks(treadle_dist_reader *r, const char *folder) {
  treadle_hash_map numbers = {0};
  treadle_status status = TREADLE_OK;
  size_t next = 0;
  r->dist->files = treadle_arena_alloc_array(&r->dist->arena, r->chunk_count, sizeof *r->dist->files);
  if (!r->dist->files) {
    status = treadle_dist_no_memory(r->what);
    goto out;
  }
  for (int32_t i = 0; i < r->dist->count; i++) {
    treadle_dist_tensor *tensor = &r->dist->tensors[i];
    for (int32_t c = 0; c < tensor->chunk_count; c++) {
      const treadle_dist_extent *place = r->of_chunk[next++];
      const struct treadle_dist_file *file = NULL;
      TRY(map_file(r, folder, place->file, &numbers, &file));
      TRY(open_chunk(tensor, &tensor->chunks[c], file, place));
    }
  }
out:
  treadle_hash_map_release(&numbers);
  return status;
}

static treadle_status read_all(const char *what, const void *image, size_t bytes, const char *folder,
                               const char *skipped, treadle_torch_dist **dist_p) {
  treadle_dist_reader r = {.what = what, .skipped = skipped};
  treadle_status status;
  *dist_p = NULL;
  r.dist = treadle_alloc(sizeof *r.dist);
  if (!r.dist) {
    status = treadle_dist_no_memory(what);
    goto out;
  }
  TRY(treadle_dist_read_metadata(&r, image, bytes));
  TRY(open_chunks(&r, folder));
  *dist_p = r.dist;
  r.dist = NULL;
out:
  treadle_hash_map_release(&r.places);
  treadle_torch_dist_close(r.dist);
  return status;
}

treadle_status treadle_torch_dist_open(const char *folder, const char *skipped,
                                       treadle_torch_dist **dist_p) {
  treadle_arena scratch = {0};
  char *image = NULL;
  size_t bytes = 0;
  treadle_status status;
  *dist_p = NULL;
  const char *path = treadle_arena_format(&scratch, "%s/.metadata", folder);
  if (!path) {
    status = treadle_dist_no_memory(folder);
    goto out;
  }
  TRY(treadle_file_read(path, MOST_METADATA, &image, &bytes));
  TRY(read_all(path, image, bytes, folder, skipped, dist_p));
out:
  treadle_free(image);
  treadle_arena_release(&scratch);
  return status;
}

const char *treadle_torch_dist_file(const treadle_torch_dist *dist, int32_t number, const void **image_p) {
  *image_p = dist->files[number].image;
  return dist->files[number].path;
}

void treadle_torch_dist_close(treadle_torch_dist *dist) {
  if (!dist) return;
  for (int32_t i = 0; i < dist->file_count; i++)
    treadle_file_unmap(dist->files[i].image, dist->files[i].bytes);
  treadle_arena_release(&dist->arena);
  treadle_free(dist);
}
