/* The steps of a conversion. */
#include "convert/convert.h"

#include "base/dtype.h"
#include "base/hash.h"
#include "base/text.h"
#include "convert/convert_parts.h"
#include "convert/fill.h"
#include "convert/shards.h"
#include "io/file.h"
#include "io/torch.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

enum {
  STEP_BYTES = 4 << 20,     /* made at once: what is written comes from the processor's cache */
  SMALL_BYTES = 1 << 20,    /* copies below that are compared in any case */
  TENSOR_OVERHEAD = 1 << 10 /* bytes that a tensor takes in a file beside its own, at most */
};

static treadle_status no_memory(void) { return treadle_fail(TREADLE_NO_MEMORY, "convert: memory is out"); }

/* ---- Opening ----------------------------------------------------------------------------------- */

static treadle_status open_model(treadle_convert *c, const treadle_source_kind *kind) {
  treadle_status status;
  const treadle_convert_options *o = &c->options;
  treadle_model_options options = {.families = o->families};
  const char *path = o->in, *carried;
  if (kind == &treadle_source_hf) {
    if (o->model)
      TRY(treadle_fail(TREADLE_REFUSED, "--model is for checkpoints that have none; %s has one", o->in));
    TRY(treadle_model_open(path, &options, &c->model));
  } else {
    path = o->model ? o->model : treadle_arena_format(&c->arena, "%s/hf", o->in);
    if (!path) TRY(no_memory());
    if (!treadle_file_exists(path))
      TRY(treadle_fail(TREADLE_REFUSED,
                       "%s: there is no model: --model DIR|config.json says which one the checkpoint is of",
                       path));
    TRY(treadle_shards_open_model(path, &options, &c->model));
    c->model->is_fp8 = false; /* the model's own files may be, and this checkpoint is not */
    carried = treadle_arena_format(&c->arena, "%s/hf/carried.safetensors", o->in);
    if (!carried) TRY(no_memory());
    if (treadle_file_exists(carried)) TRY(treadle_checkpoint_open(carried, &c->carried));
  }
  *(treadle_file_is_folder(path) ? &c->companions : &c->config) = path;
out:
  return status;
}

/* What the result depends on: the source's files, the layouts, the model. */
static treadle_status sum_inputs(treadle_convert *c) {
  const treadle_source *source = c->source;
  uint64_t hash = treadle_hash_text(source->layout->text, c->model->digest);
  hash = treadle_hash_text(c->target->layout->text, hash);
  hash = treadle_hash_text(TREADLE_VERSION, hash);
  for (int32_t f = 0; f < source->file_count; f++) {
    struct stat about;
    if (stat(source->files[f], &about) != 0)
      return treadle_fail(TREADLE_SYSTEM, "%s: cannot stat: %s", source->files[f], strerror(errno));
    const char *slash = strrchr(source->files[f], '/');
    hash = treadle_hash_text(slash ? slash : source->files[f], hash);
    hash = treadle_hash_more(hash, (uint64_t)about.st_size);
    hash = treadle_hash_more(hash, (uint64_t)about.st_mtim.tv_sec);
    hash = treadle_hash_more(hash, (uint64_t)about.st_mtim.tv_nsec);
  }
  c->folder.digest = hash;
  return TREADLE_OK;
}

treadle_status treadle_convert_open(const treadle_convert_options *options, treadle_convert **convert_p) {
  treadle_status status;
  const treadle_source_kind *kind;
  treadle_convert *c = treadle_alloc(sizeof *c);
  *convert_p = NULL;
  if (!c) return no_memory();
  c->options = *options;
  c->folder =
      (treadle_out_folder){.path = options->out, .from = options->from, .to = options->to, .journal = -1};
  TRY(treadle_source_kind_of(options->from, &kind));
  TRY(open_model(c, kind));
  TRY(treadle_source_open(kind, c->model, options->in, options->from, &c->source));
  c->source->kept = c->carried;
  TRY(treadle_target_open(c->model, kind == &treadle_source_hf, c->carried, options->to,
                          c->source->iteration, &c->target));
  c->buffer = treadle_alloc(STEP_BYTES);
  if (!c->buffer) TRY(no_memory());
  c->figures.skipped = c->source->skipped;
  c->figures.opaque = c->source->opaque;
  TRY(sum_inputs(c));
  if (options->rank == 0) TRY(treadle_out_folder_look(&c->folder));
  *convert_p = c;
  c = NULL;
out:
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
  treadle_free(c->buffer);
  treadle_arena_release(&c->arena);
  treadle_free(c);
}

const treadle_convert_figures *treadle_convert_result(const treadle_convert *c) { return &c->figures; }

treadle_status treadle_convert_path(treadle_convert *c, const char *name, const char **path_p) {
  *path_p = treadle_arena_format(&c->arena, "%s/%s", c->options.out, name);
  return *path_p ? TREADLE_OK : no_memory();
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
  return status;
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

static treadle_status write_tensor(treadle_convert *c, treadle_filler *filler, const treadle_out_file *file,
                                   const treadle_out_tensor *tensor, writer *w) {
  treadle_status status = TREADLE_OK;
  int64_t end;
  for (int64_t at = 0; at < (int64_t)tensor->about.bytes; at = end) {
    end = treadle_fill_end(tensor, at, STEP_BYTES);
    int64_t bytes = end - at;
    const char *made;
    TRY(treadle_fill(filler, file, tensor, at, end, c->buffer, &made));
    TRY(w->torch ? treadle_torch_append(w->torch, made, (size_t)bytes)
                 : treadle_safetensors_append(w->safetensors, made, (size_t)bytes));
    c->done_bytes += bytes;
    c->figures.bytes_written += bytes;
    if (c->options.progress) c->options.progress(c->done_bytes, c->total_bytes);
  }
out:
  return status;
}

static treadle_status write_file(treadle_convert *c, int32_t number) {
  treadle_status status;
  treadle_out_file file = {0};
  treadle_filler filler = {.source = c->source};
  writer w = {0};
  const char *path;
  TRY(treadle_convert_path(c, c->target->paths[number], &path));
  TRY(treadle_target_file(c->target, number, &file));
  TRY(treadle_out_folder_make(&c->folder, file.path));
  TRY(file.kind == TREADLE_OUT_TORCH ? create_torch(c, path, &file, &w)
                                     : create_safetensors(path, &file, &w));
  for (int32_t i = 0; i < file.count; i++) TRY(write_tensor(c, &filler, &file, &file.tensors[i], &w));
  TRY(w.torch ? treadle_torch_finish(w.torch) : treadle_safetensors_finish(w.safetensors));
  c->figures.bytes_read += filler.read_bytes;
out:
  treadle_torch_writer_destroy(w.torch);
  treadle_safetensors_writer_destroy(w.safetensors);
  treadle_filler_release(&filler);
  treadle_out_file_release(&file);
  treadle_source_let_go(c->source);
  return status;
}

/* Sums up what is to be done by the processes [first, first + count). */
static treadle_status measure(treadle_convert *c, int first, int step, treadle_convert_figures *figures,
                              int64_t *bytes) {
  treadle_status status = TREADLE_OK;
  for (int32_t f = first; f < c->target->file_count; f += step) {
    treadle_out_file file;
    const char *path;
    TRY(treadle_convert_path(c, c->target->paths[f], &path));
    TRY(treadle_target_file(c->target, f, &file));
    bool there = treadle_file_exists(path);
    figures->tensors += file.count;
    figures->resumed += there;
    figures->files += !there;
    if (!there) *bytes += file.bytes + (int64_t)file.count * TENSOR_OVERHEAD;
    treadle_out_file_release(&file);
  }
out:
  return status;
}

treadle_status treadle_convert_begin(treadle_convert *c) {
  treadle_status status;
  treadle_convert_figures all = {0};
  int64_t bytes = 0;
  TRY(treadle_out_folder_begin(&c->folder));
  TRY(measure(c, 0, 1, &all, &bytes));
  TRY(treadle_out_folder_room(&c->folder, bytes));
out:
  return status;
}

treadle_status treadle_convert_write(treadle_convert *c) {
  treadle_status status;
  const treadle_convert_options *o = &c->options;
  TRY(measure(c, o->rank, o->ranks, &c->figures, &c->total_bytes));
  for (int32_t f = o->rank; f < c->target->file_count; f += o->ranks) {
    const char *path;
    TRY(treadle_convert_path(c, c->target->paths[f], &path));
    if (!treadle_file_exists(path)) TRY(write_file(c, f));
  }
out:
  return status;
}
