/* The steps of a conversion. */
#include "convert/convert.h"

#include "base/dtype.h"
#include "base/hash.h"
#include "base/text.h"
#include "convert/convert_parts.h"
#include "convert/fill.h"
#include "convert/shards.h"
#include "io/file.h"
#include "io/file_sum.h"
#include "io/torch.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum {
  STEP_BYTES = 4 << 20,      /* made at once: what is written comes from the processor's cache */
  SMALL_BYTES = 1 << 20,     /* copies below that are compared in any case */
  TENSOR_OVERHEAD = 1 << 10, /* bytes that a tensor takes in a file beside its own, at most */
  COMPANION_MAX = 256 << 20
};

static treadle_status no_memory(void) { return treadle_fail(TREADLE_NO_MEMORY, "convert: memory is out"); }

/* ---- Opening ----------------------------------------------------------------------------------- */

/* Looks at what stands beside the weights, before any of it is read. */
static treadle_status add_beside(treadle_convert *c, const char *path) {
  static const char *const others[] = {"model.safetensors.index.json", TREADLE_SHARDS_FILE};
  treadle_status status = TREADLE_OK;
  if (!treadle_file_is_folder(path)) return treadle_inputs_add(&c->inputs, path, "config.json");
  TRY(treadle_inputs_add_companions(&c->inputs, path));
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    const char *other = treadle_arena_format(&c->arena, "%s/%s", path, others[i]);
    if (!other) TRY(no_memory());
    if (treadle_file_exists(other)) TRY(treadle_inputs_add(&c->inputs, other, NULL));
  }
  for (size_t i = 0; i < c->inputs.items.count; i++) {
    const treadle_input *input = &c->inputs.items.items[i];
    if (input->companion && input->stamp.bytes > COMPANION_MAX)
      TRY(treadle_fail(TREADLE_REFUSED, "%s: has %lld bytes; at most %d are carried along beside weights",
                       input->path, (long long)input->stamp.bytes, (int)COMPANION_MAX));
  }
out:
  return status;
}

static treadle_status add_checkpoint(treadle_convert *c, const treadle_checkpoint *checkpoint) {
  treadle_status status = TREADLE_OK;
  for (int32_t f = 0; checkpoint && f < checkpoint->file_count; f++) {
    const void *image = treadle_checkpoint_image(checkpoint, f);
    if (image) TRY(treadle_inputs_add_mapped(&c->inputs, checkpoint->files[f], image));
  }
out:
  return status;
}

static treadle_status open_model(treadle_convert *c, const treadle_source_kind *kind) {
  treadle_status status;
  const treadle_convert_options *o = &c->options;
  treadle_model_options options = {.families = o->families};
  const char *path = o->in, *carried;
  if (kind == &treadle_source_hf) {
    if (o->model)
      TRY(treadle_fail(TREADLE_REFUSED, "--model is for checkpoints that have none; %s has one", o->in));
    if (treadle_file_is_folder(path)) TRY(add_beside(c, path));
    TRY(treadle_model_open(path, &options, &c->model));
  } else {
    path = o->model ? o->model : treadle_arena_format(&c->arena, "%s/hf", o->in);
    if (!path) TRY(no_memory());
    if (!treadle_file_exists(path))
      TRY(treadle_fail(TREADLE_REFUSED,
                       "%s: there is no model: --model DIR|config.json says which one the checkpoint is of",
                       path));
    TRY(add_beside(c, path));
    TRY(treadle_shards_open_model(path, &options, &c->model));
    c->model->is_fp8 = false; /* the model's own files may be, and this checkpoint is not */
    TRY(add_checkpoint(c, c->model->checkpoint));
    carried = treadle_arena_format(&c->arena, "%s/hf/carried.safetensors", o->in);
    if (!carried) TRY(no_memory());
    if (treadle_file_exists(carried)) TRY(treadle_checkpoint_open(carried, &c->carried));
    TRY(add_checkpoint(c, c->carried));
  }
  *(treadle_file_is_folder(path) ? &c->companions : &c->config) = path;
out:
  return status;
}

/* What the result depends on: the inputs, the layouts, the model; and whether copies are compared. */
static void sum_inputs(treadle_convert *c) {
  char real[PATH_MAX];
  uint64_t hash = treadle_hash_text(c->source->layout->text, c->model->digest);
  hash = treadle_hash_text(c->target->layout->text, hash);
  hash = treadle_hash_text(TREADLE_VERSION, hash);
  hash = treadle_hash_more(hash, c->options.trust);
  c->folder.digest = treadle_inputs_digest(&c->inputs, hash);
  c->folder.in = treadle_hash_text(realpath(c->options.in, real) ? real : c->options.in, 0);
}

treadle_status treadle_convert_open(const treadle_convert_options *options, treadle_convert **convert_p) {
  treadle_status status;
  const treadle_source_kind *kind;
  treadle_convert *c = treadle_alloc(sizeof *c);
  *convert_p = NULL;
  if (!c) return no_memory();
  c->options = *options;
  c->folder = (treadle_out_folder){.path = options->out,
                                   .from = options->from,
                                   .to = options->to,
                                   .rank = options->rank,
                                   .ranks = options->ranks,
                                   .lock = {.fd = -1}};
  TRY(treadle_source_kind_of(options->from, &kind));
  TRY(open_model(c, kind));
  TRY(treadle_source_open(kind, c->model, &c->inputs, options->in, options->from, &c->source));
  c->source->kept = c->carried;
  TRY(treadle_target_open(c->model, kind == &treadle_source_hf, c->carried, options->to,
                          c->source->iteration, &c->target));
  TRY(treadle_convert_check_names(c));
  c->buffer = treadle_alloc(STEP_BYTES);
  c->kept = treadle_alloc_array((size_t)c->target->file_count + 1, sizeof *c->kept);
  if (!c->buffer || !c->kept) TRY(no_memory());
  c->figures.skipped = c->source->skipped;
  c->figures.opaque = c->source->opaque;
  sum_inputs(c);
  if (options->rank == 0) TRY(treadle_out_folder_look(&c->folder));
  *convert_p = c;
  c = NULL;
out:
  if (c && c->source) status = treadle_convert_look_again(c, status);
  treadle_convert_close(c);
  return status;
}

void treadle_convert_close(treadle_convert *c) {
  if (!c) return;
  treadle_out_folder_release(&c->folder);
  treadle_target_close(c->target);
  treadle_source_close(c->source);
  treadle_checkpoint_close(c->carried);
  treadle_model_close(c->model);
  treadle_inputs_release(&c->inputs);
  treadle_array_release(&c->unsettled);
  treadle_free(c->kept);
  treadle_free(c->buffer);
  treadle_arena_release(&c->arena);
  treadle_free(c);
}

const treadle_convert_figures *treadle_convert_result(const treadle_convert *c) { return &c->figures; }

treadle_status treadle_convert_path(treadle_convert *c, const char *name, const char **path_p) {
  *path_p = treadle_arena_format(&c->arena, "%s/%s", c->options.out, name);
  return *path_p ? TREADLE_OK : no_memory();
}

treadle_status treadle_convert_look_again(treadle_convert *c, treadle_status status) {
  char message[2048];
  treadle_status changed = status == TREADLE_NO_MEMORY ? TREADLE_OK : treadle_inputs_check(&c->inputs);
  if (!changed && !c->torn) return status;
  if (changed) status = changed;
  snprintf(message, sizeof message, "%s", treadle_error_message());
  treadle_out_folder_spoil(&c->folder);
  return treadle_fail(status, "%s", message);
}

bool treadle_convert_resumes(const treadle_convert *c) { return c->folder.resumed; }

/* ---- Comparing --------------------------------------------------------------------------------- */

treadle_status treadle_convert_compare(treadle_convert *c) {
  treadle_status status = TREADLE_OK;
  const treadle_convert_options *o = &c->options;
  if (!c->source->kind->compare) return TREADLE_OK;
  for (int32_t t = o->rank; t < c->model->tensor_count; t += o->ranks)
    TRY(c->source->kind->compare(c->source, t, o->trust ? SMALL_BYTES : INT64_MAX, &c->figures.bytes_read));
  treadle_source_let_go(c->source);
out:
  return treadle_convert_look_again(c, status);
}

/* ---- Writing ----------------------------------------------------------------------------------- */

/* The two kinds of files as one. */
typedef struct writer {
  treadle_torch_writer *torch;
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
    end = treadle_fill_end(tensor, at, STEP_BYTES);
    int64_t bytes = end - at;
    const char *made;
    TRY(treadle_fill(filler, file, tensor, at, end, c->buffer, &made));
    if (n->on) TRY(count(c, n, made, bytes));
    TRY(w->torch ? treadle_torch_append(w->torch, made, (size_t)bytes)
                 : treadle_safetensors_append(w->safetensors, made, (size_t)bytes));
    c->done_bytes += bytes;
    c->figures.bytes_written += bytes;
    if (c->options.progress) c->options.progress(c->done_bytes, c->total_bytes);
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
  treadle_filler filler = {.source = c->source};
  writer w = {0};
  counting n = {.on = !treadle_inputs_settled(&c->inputs)};
  const treadle_record begun = {.path = c->target->paths[number], .bytes = -1};
  const char *path;
  TRY(treadle_convert_path(c, c->target->paths[number], &path));
  TRY(treadle_target_file(c->target, number, &file));
  TRY(treadle_out_folder_note(&c->folder, &begun));
  TRY(treadle_out_folder_make(&c->folder, file.path));
  TRY(file.kind == TREADLE_OUT_TORCH ? create_torch(c, path, &file, &w)
                                     : create_safetensors(path, &file, &w));
  for (int32_t i = 0; i < file.count; i++) TRY(write_tensor(c, &filler, &file, &file.tensors[i], &w, &n));
  TRY(treadle_inputs_intact(&c->inputs));
  TRY(w.torch ? treadle_torch_finish(w.torch) : treadle_safetensors_finish(w.safetensors));
  TRY(note_whole(c, number, &w, &n));
  c->figures.bytes_read += filler.read_bytes;
out:
  treadle_file_sums_release(&n.sums);
  treadle_torch_writer_destroy(w.torch);
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
  treadle_filler filler = {.source = c->source};
  treadle_file_sums sums = {0};
  int64_t left = row->bytes, end;
  uint64_t sum;
  TRY(treadle_target_file(c->target, row->file, &file));
  for (int32_t i = 0; i < file.count && left > 0; i++)
    for (int64_t at = 0; at < (int64_t)file.tensors[i].about.bytes && left > 0; at = end) {
      const char *made;
      end = treadle_fill_end(&file.tensors[i], at, STEP_BYTES);
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

/* Of files that are there as long as recorded the room is not needed, most likely. */
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

treadle_status treadle_convert_begin(treadle_convert *c) {
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

treadle_status treadle_convert_write(treadle_convert *c) {
  return treadle_convert_look_again(c, write_files(c));
}
