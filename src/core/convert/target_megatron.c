/* Megatron's files: what a rank of the layout has, storage tensor by storage tensor. */
#include "convert/target_parts.h"

#include "base/dtype.h"
#include "convert/kept.h"

#include <inttypes.h>
#include <string.h>

static treadle_status no_memory(const char *what) {
  return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its files", what);
}

treadle_status treadle_target_open_megatron(treadle_target *target, int64_t iteration) {
  treadle_status status;
  TRY(treadle_megatron_files_make(target->model, target->text, &target->arena, &target->world));
  target->layout = target->world.layout;
  target->folder =
      iteration < 0 ? "release" : treadle_arena_format(&target->arena, "iter_%07" PRId64, iteration);
  target->file_count = target->world.file_count;
  target->paths =
      treadle_arena_alloc_array(&target->arena, (size_t)target->file_count + 1, sizeof *target->paths);
  if (!target->folder || !target->paths) TRY(no_memory(target->text));
  for (int32_t f = 0; f < target->file_count; f++) {
    target->paths[f] = treadle_arena_format(&target->arena, "%s/%s/model_optim_rng.pt", target->folder,
                                            target->world.names[f]);
    if (!target->paths[f]) TRY(no_memory(target->text));
  }
  TRY(treadle_kept_mark(target));
  if (treadle_target_count_carried(target) > 0)
    target->paths[target->file_count++] = "hf/carried.safetensors";
out:
  return status;
}

/* The pieces of the tensors of a file, of a rank's window; those of stacked experts are cut expert by expert. place: by
 * storage tensor, where in the file it is; -1: it is not. */
static treadle_status add_pieces(const treadle_target *target, int64_t rank, const int32_t *place,
                                 treadle_out_file *file) {
  treadle_status status;
  treadle_pieces window = {0};
  int32_t storages, count = file->count;
  int64_t *next = treadle_alloc_array((size_t)count + 1, sizeof *next);
  const treadle_storage *all = treadle_layout_storages(target->layout, rank, &storages);
  if (!next) return no_memory(file->path);
  TRY(treadle_layout_pieces(target->layout, rank, &window));
  for (int pass = 0; pass < 2; pass++) { /* counts them, then puts each where it belongs */
    for (size_t i = 0; i < window.count; i++) {
      const treadle_piece *piece = &window.items[i];
      const treadle_storage *storage = &all[piece->storage];
      int64_t experts = storage->by_expert ? piece->box.size[0] : 1;
      int64_t slot = storage->by_expert ? (piece->offset - storage->offset) / storage->slot_stride : 0;
      for (int64_t e = 0; e < experts; e++) {
        int32_t number =
            place[storage->public_first + (int32_t)(slot + e) * storage->run + storage->run_at];
        if (number < 0) continue;
        if (pass == 0) {
          file->tensors[number].piece_count++;
          continue;
        }
        treadle_piece one = *piece;
        if (storage->by_expert) {
          one.box.start[0] += e;
          one.box.size[0] = 1;
        }
        one.offset -= storage->offset + slot * storage->slot_stride;
        file->pieces.items[next[number]++] = one;
      }
    }
    if (pass == 1) break;
    size_t total = 0;
    for (int32_t n = 0; n < count; n++) {
      file->tensors[n].first_piece = total;
      next[n] = (int64_t)total;
      total += file->tensors[n].piece_count;
    }
    file->pieces.items = treadle_alloc_array(total + 1, sizeof *file->pieces.items);
    if (!file->pieces.items) TRY(no_memory(file->path));
    file->pieces.count = file->pieces.capacity = total;
  }
out:
  treadle_array_release(&window);
  treadle_free(next);
  return status;
}

treadle_status treadle_target_list_rank(const treadle_target *target, int64_t rank, const int32_t *numbers,
                                        int32_t count, treadle_out_file *file) {
  treadle_status status = TREADLE_OK;
  int32_t all = treadle_layout_storage_count(target->layout, rank);
  int32_t *place = treadle_alloc_array((size_t)all + 1, sizeof *place);
  file->count = count;
  file->tensors = treadle_arena_alloc_array(&file->arena, (size_t)count, sizeof *file->tensors);
  if (!file->tensors || !place) TRY(no_memory(file->path));
  for (int32_t n = 0; n < all; n++) place[n] = -1;
  const char *entry = "model";
  int32_t chunk = -1;
  for (int32_t n = 0; n < count; n++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    treadle_out_tensor *out = &file->tensors[n];
    int32_t number = numbers ? numbers[n] : n;
    place[number] = n;
    TRY(treadle_layout_storage(target->layout, rank, number, &info));
    if (target->world.chunked && info.chunk != chunk)
      entry = treadle_arena_format(&file->arena, "model%d", chunk = info.chunk);
    out->entry = entry;
    out->about = (treadle_stored){.name = treadle_arena_copy_text(&file->arena, info.name),
                                  .dtype = info.dtype,
                                  .dtype_text = treadle_dtype_safetensors(info.dtype),
                                  .ndim = info.ndim,
                                  .bytes = info.bytes};
    memcpy(out->about.shape, info.shape, sizeof info.shape);
    out->about.elems = (int64_t)(info.bytes / treadle_dtype_bytes(info.dtype));
    if (!entry || !out->about.name) TRY(no_memory(file->path));
    file->bytes += (int64_t)info.bytes;
  }
  TRY(add_pieces(target, rank, place, file));
out:
  treadle_free(place);
  return status;
}

treadle_status treadle_target_megatron_file(const treadle_target *target, int32_t number,
                                            treadle_out_file *file) {
  int64_t rank = target->world.ranks[number];
  file->type = TREADLE_OUT_TORCH;
  return treadle_target_list_rank(target, rank, NULL, treadle_layout_storage_count(target->layout, rank),
                                  file);
}
