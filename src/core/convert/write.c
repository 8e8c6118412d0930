/* Writing the files of weights: which are there already, each from its first byte to its last, and what was made while the
 * inputs were not settled a second time. */
#include "base/dtype.h"
#include "convert/convert_parts.h"
#include "convert/fill.h"
#include "io/file_sum.h"
#include "io/torch_dist.h"

#include <string.h>

enum { TENSOR_OVERHEAD = 1 << 10 }; /* bytes that a tensor takes in a file beside its own, at most */

static treadle_status no_memory(void) { return treadle_fail(TREADLE_NO_MEMORY, "convert: memory is out"); }

/* The types of files as one. */
typedef struct writer {
  treadle_torch_writer *torch;
  treadle_dist_writer *dist;
  treadle_safetensors_writer *safetensors;
} writer;

static treadle_status create_torch(const treadle_convert *c, const char *path, const treadle_out_file *file,
                                   writer *w) {
  treadle_status status;
  int64_t iteration = c->source->iteration;
  const treadle_torch_extra extras[] = {{.name = "iteration", .integer = iteration < 0 ? 0 : iteration},
                                        {.name = "checkpoint_version", .is_real = true, .real = 3.0}};
  treadle_torch_tensor *tensors = treadle_alloc_array((size_t)file->count + 1, sizeof *tensors);
  if (!tensors) return no_memory();
  for (int32_t i = 0; i < file->count; i++) {
    const treadle_stored *about = &file->tensors[i].about;
    tensors[i] = (treadle_torch_tensor){.entry = file->tensors[i].entry,
                                        .name = about->name,
                                        .dtype = about->dtype,
                                        .dtype_text = about->dtype_text,
                                        .ndim = about->ndim};
    memcpy(tensors[i].shape, about->shape, sizeof tensors[i].shape);
  }
  TRY(treadle_torch_create(path, tensors, file->count, extras, 2, &w->torch));
out:
  treadle_free(tensors);
  return status;
}

static treadle_status append(writer *w, const void *bytes, size_t count) {
  return w->torch  ? treadle_torch_append(w->torch, bytes, count)
         : w->dist ? treadle_dist_append(w->dist, bytes, count)
                   : treadle_safetensors_append(w->safetensors, bytes, count);
}

static treadle_status finish(writer *w) {
  return w->torch  ? treadle_torch_finish(w->torch)
         : w->dist ? treadle_dist_finish(w->dist)
                   : treadle_safetensors_finish(w->safetensors);
}

static treadle_status create_safetensors(const char *path, const treadle_out_file *file, writer *w) {
  treadle_status status;
  treadle_stored *tensors = treadle_alloc_array((size_t)file->count + 1, sizeof *tensors);
  if (!tensors) return no_memory();
  for (int32_t i = 0; i < file->count; i++) tensors[i] = file->tensors[i].about;
  TRY(treadle_safetensors_create(path, tensors, file->count, file->header, &w->safetensors));
out:
  treadle_free(tensors);
  return status;
}

/* Sums up what is made while the inputs are not settled. */
typedef struct counting {
  bool on;
  int64_t bytes;
  treadle_file_sums sums;
} counting;

static treadle_status count(treadle_convert *c, counting *n, const void *made, int64_t bytes) {
  treadle_status status;
  TRY(treadle_file_sums_add(&n->sums, made, (size_t)bytes));
  n->bytes += bytes;
  n->on = !treadle_inputs_settled(&c->inputs);
out:
  return status;
}

static treadle_status write_tensor(treadle_convert *c, treadle_filler *filler, const treadle_out_file *file,
                                   const treadle_out_tensor *tensor, writer *w, counting *n) {
  treadle_status status = TREADLE_OK;
  int64_t end;
  for (int64_t at = 0; at < (int64_t)tensor->about.bytes; at = end) {
    end = treadle_fill_end(tensor, at, TREADLE_CONVERT_STEP);
    int64_t bytes = end - at;
    const char *made;
    TRY(treadle_fill(filler, file, tensor, at, end, c->buffer, &made));
    if (n->on) TRY(count(c, n, made, bytes));
    TRY(append(w, made, (size_t)bytes));
    c->done_bytes += bytes;
    c->figures.bytes_written += bytes;
    TRY(treadle_tell(&c->watch, "bytes of files:", c->done_bytes, c->total_bytes));
  }
out:
  return status;
}

/* Notes that a file is whole. */
static treadle_status note_whole(treadle_convert *c, int32_t number, const writer *w, counting *n) {
  treadle_status status = TREADLE_OK;
  treadle_record record = {.path = c->target->paths[number], .unsettled_bytes = n->bytes};
  if (w->torch)
    treadle_torch_writer_sum(w->torch, &record.bytes, &record.sum);
  else if (w->dist)
    treadle_dist_writer_sum(w->dist, &record.bytes, &record.sum);
  else
    treadle_safetensors_writer_sum(w->safetensors, &record.bytes, &record.sum);
  if (n->bytes) {
    TRY(treadle_file_sums_end(&n->sums, record.path, -1, &record.unsettled_sum));
    const treadle_unsettled row = {number, record.unsettled_bytes, record.unsettled_sum};
    TRY(treadle_array_push(&c->unsettled, row));
  }
  TRY(treadle_out_folder_note(&c->folder, &record));
out:
  return status;
}

static treadle_status write_file(treadle_convert *c, int32_t number) {
  treadle_status status;
  treadle_out_file file = {0};
  treadle_filler filler = {.source = c->source, .adapter = c->adapter, .adapter_values = c->adapter_values};
  writer w = {0};
  counting n = {.on = !treadle_inputs_settled(&c->inputs)};
  const treadle_record begun = {.path = c->target->paths[number], .bytes = -1};
  const char *path;
  TRY(treadle_convert_path(c, c->target->paths[number], &path));
  TRY(treadle_target_file(c->target, number, &file));
  TRY(treadle_out_folder_note(&c->folder, &begun));
  TRY(treadle_out_folder_make(&c->folder, file.path));
  TRY(file.type == TREADLE_OUT_TORCH  ? create_torch(c, path, &file, &w)
      : file.type == TREADLE_OUT_DIST ? treadle_dist_create(path, file.parts, file.count, &w.dist)
                                      : create_safetensors(path, &file, &w));
  for (int32_t i = 0; i < file.count; i++) TRY(write_tensor(c, &filler, &file, &file.tensors[i], &w, &n));
  TRY(treadle_entry_sums_end(&c->source->sums));
  TRY(treadle_inputs_intact(&c->inputs));
  TRY(finish(&w));
  TRY(note_whole(c, number, &w, &n));
  c->figures.bytes_read += filler.read_bytes;
out:
  c->wrong = c->wrong || filler.wrong;
  treadle_file_sums_release(&n.sums);
  treadle_torch_writer_destroy(w.torch);
  treadle_dist_writer_destroy(w.dist);
  treadle_safetensors_writer_destroy(w.safetensors);
  treadle_filler_release(&filler);
  treadle_out_file_release(&file);
  treadle_source_let_go(c->source);
  return status;
}

/* Makes what was made while the inputs were not settled a second time, and compares. */
static treadle_status make_again(treadle_convert *c, const treadle_unsettled *row) {
  treadle_status status;
  treadle_out_file file = {0};
  treadle_filler filler = {.source = c->source, .adapter = c->adapter, .adapter_values = c->adapter_values};
  treadle_file_sums sums = {0};
  int64_t left = row->bytes, end;
  uint64_t sum;
  TRY(treadle_target_file(c->target, row->file, &file));
  for (int32_t i = 0; i < file.count && left > 0; i++)
    for (int64_t at = 0; at < (int64_t)file.tensors[i].about.bytes && left > 0; at = end) {
      const char *made;
      end = treadle_fill_end(&file.tensors[i], at, TREADLE_CONVERT_STEP);
      TRY(treadle_fill(&filler, &file, &file.tensors[i], at, end, c->buffer, &made));
      TRY(treadle_file_sums_add(&sums, made, (size_t)(end - at)));
      left -= end - at;
    }
  TRY(treadle_file_sums_end(&sums, file.path, -1, &sum));
  TRY(treadle_inputs_check(&c->inputs));
  c->torn = left != 0 || sum != row->sum;
  if (c->torn) TRY(treadle_inputs_say_torn(&c->inputs));
out:
  treadle_file_sums_release(&sums);
  treadle_filler_release(&filler);
  treadle_out_file_release(&file);
  treadle_source_let_go(c->source);
  return status;
}

/* Which of this process's files are there, as they were recorded? */
static treadle_status take_up(treadle_convert *c) {
  treadle_status status = TREADLE_OK;
  const treadle_convert_options *o = &c->options;
  for (int32_t f = o->rank; f < c->target->file_count; f += o->ranks) {
    const treadle_record *record;
    TRY(treadle_out_folder_whole(&c->folder, c->target->paths[f], &record));
    c->kept[f] = record != NULL;
    if (!record || record->unsettled_bytes == 0) continue;
    const treadle_unsettled row = {f, record->unsettled_bytes, record->unsettled_sum};
    TRY(treadle_array_push(&c->unsettled, row));
  }
out:
  return status;
}

/* Sums up what is to be done with files first, first + step, ... */
static treadle_status measure(treadle_convert *c, int first, int step, treadle_convert_figures *figures,
                              int64_t *bytes) {
  treadle_status status = TREADLE_OK;
  for (int32_t f = first; f < c->target->file_count; f += step) {
    treadle_out_file file;
    TRY(treadle_target_file(c->target, f, &file));
    figures->tensors += file.count;
    figures->resumed += c->kept[f];
    figures->files += !c->kept[f];
    if (!c->kept[f]) *bytes += file.bytes + (int64_t)file.count * TENSOR_OVERHEAD;
    treadle_out_file_release(&file);
  }
out:
  return status;
}

/* Of files that exist with the recorded length the room is not needed, most likely. */
static treadle_status measure_room(treadle_convert *c, int64_t *bytes) {
  treadle_status status;
  treadle_convert_figures all = {0};
  for (int32_t f = 0; f < c->target->file_count; f++) {
    const treadle_record *record = treadle_records_find(&c->folder.records, c->target->paths[f]);
    c->kept[f] = record && record->bytes >= 0;
  }
  TRY(measure(c, 0, 1, &all, bytes));
out:
  memset(c->kept, 0, (size_t)c->target->file_count * sizeof *c->kept);
  return status;
}

treadle_status treadle_convert_begin_folder(treadle_convert *c) {
  treadle_status status;
  int64_t bytes = 0;
  TRY(treadle_out_folder_begin(&c->folder));
  TRY(measure_room(c, &bytes));
  TRY(treadle_out_folder_room(&c->folder, bytes));
out:
  return status;
}

static treadle_status write_files(treadle_convert *c) {
  treadle_status status = TREADLE_OK;
  const treadle_convert_options *o = &c->options;
  if (o->rank > 0) TRY(treadle_out_folder_join(&c->folder));
  TRY(take_up(c));
  TRY(measure(c, o->rank, o->ranks, &c->figures, &c->total_bytes));
  for (int32_t f = o->rank; f < c->target->file_count; f += o->ranks)
    if (!c->kept[f]) TRY(write_file(c, f));
  for (size_t i = 0; i < c->unsettled.count; i++) TRY(make_again(c, &c->unsettled.items[i]));
out:
  return status;
}

treadle_status treadle_convert_write_files(treadle_convert *c) {
  return treadle_convert_look_again(c, write_files(c));
}
