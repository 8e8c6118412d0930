/* A conversion: opening it, comparing its inputs, looking at them again. Its files are written in write.c, what stands
 * beside them in beside.c. */
#include "convert/convert.h"

#include "base/hash.h"
#include "base/sized.h"
#include "convert/convert_parts.h"
#include "convert/shards.h"
#include "io/file.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum {
  SMALL_BYTES = 1 << 20, /* copies below that are compared in any case */
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

static treadle_status open_model(treadle_convert *c, const treadle_source_type *type) {
  treadle_status status;
  const treadle_convert_options *o = &c->options;
  treadle_model_options options = {.struct_size = sizeof options, .families = o->families};
  const char *path = o->in, *carried;
  if (type == &treadle_source_hf) {
    if (o->model)
      TRY(treadle_fail(TREADLE_REFUSED, "--model is for checkpoints without a config.json; %s has one",
                       o->in));
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
  hash = treadle_hash_more(hash, c->target->is_dist); /* whose layout is called megatron, too */
  hash = treadle_hash_more(hash, c->options.trust);
  c->folder.digest = treadle_inputs_digest(&c->inputs, hash);
  c->folder.in = treadle_hash_text(realpath(c->options.in, real) ? real : c->options.in, 0);
}

static const char *copy_text(treadle_convert *c, const char *text, bool *failed) {
  const char *copy = text ? treadle_arena_copy_text(&c->arena, text) : NULL;
  *failed = *failed || (text && !copy);
  return copy;
}

/* What was given, in memory of the conversion's own. */
static treadle_status take_options(treadle_convert *c, const treadle_convert_options *options) {
  treadle_convert_options *o = &c->options;
  treadle_status status = treadle_sized_take("treadle_convert_open", "options", options, o, sizeof *o);
  if (status) return status;
  const struct {
    const char *name, **text;
    bool needed;
  } texts[] = {{"in", &o->in, true},     {"out", &o->out, true},      {"from", &o->from, true},
               {"to", &o->to, true},     {"model", &o->model, false}, {"families", &o->families, false},
               {"lora", &o->lora, false}};
  bool failed = false;
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    if (texts[i].needed && !*texts[i].text)
      return treadle_refuse_null("treadle_convert_open", texts[i].name);
    *texts[i].text = copy_text(c, *texts[i].text, &failed);
  }
  if (failed) return no_memory();
  if (o->ranks == 0) o->ranks = 1;
  if (o->ranks < 0 || o->rank < 0 || o->rank >= o->ranks)
    return treadle_fail(TREADLE_REFUSED, "treadle_convert_open: rank %d of %d: they are numbered from 0",
                        o->rank, o->ranks);
  c->watch = (treadle_watch){o->watch, o->watch_context};
  return TREADLE_OK;
}

static treadle_status look(treadle_convert *c) {
  treadle_status status = treadle_out_folder_look(&c->folder);
  char line[1024];
  if (status) return status;
  treadle_folder_lock_note(&c->folder.lock, line, sizeof line);
  if (line[0] && c->options.warn) c->options.warn(c->options.warn_context, line);
  return TREADLE_OK;
}

treadle_status treadle_convert_open(const treadle_convert_options *given, treadle_convert **convert_p) {
  TREADLE_NEED(convert_p);
  *convert_p = NULL;
  if (!given) return treadle_refuse_null("treadle_convert_open", "options");
  treadle_status status;
  const treadle_source_type *type;
  treadle_convert *c = treadle_alloc(sizeof *c);
  if (!c) return no_memory();
  const treadle_convert_options *options = &c->options;
  TRY(take_options(c, given));
  c->folder = (treadle_out_folder){.path = options->out,
                                   .from = options->from,
                                   .to = options->to,
                                   .rank = options->rank,
                                   .ranks = options->ranks};
  TRY(treadle_source_type_of(options->from, &type));
  TRY(open_model(c, type));
  TRY(treadle_source_open(type, c->model, &c->inputs, options->in, options->from, &c->source));
  c->source->kept = c->carried;
  TRY(treadle_target_open(c->model, type == &treadle_source_hf, c->carried, options->to,
                          c->source->iteration, &c->target));
  TRY(treadle_convert_open_adapter(c, type == &treadle_source_hf));
  TRY(treadle_convert_check_names(c));
  c->buffer = treadle_alloc(TREADLE_CONVERT_STEP);
  c->kept = treadle_alloc_array((size_t)c->target->file_count + 1, sizeof *c->kept);
  if (!c->buffer || !c->kept) TRY(no_memory());
  c->figures.skipped = c->source->skipped;
  c->figures.opaque = c->source->opaque;
  sum_inputs(c);
  if (options->rank == 0) TRY(look(c));
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
  treadle_adapter_destroy(c->adapter);
  treadle_free(c->adapter_values);
  free(c->adapter_mark);
  treadle_model_close(c->model);
  treadle_inputs_release(&c->inputs);
  treadle_array_release(&c->unsettled);
  treadle_free(c->kept);
  treadle_free(c->buffer);
  treadle_arena_release(&c->arena);
  treadle_free(c);
}

treadle_status treadle_convert_path(treadle_convert *c, const char *name, const char **path_p) {
  *path_p = treadle_arena_format(&c->arena, "%s/%s", c->options.out, name);
  return *path_p ? TREADLE_OK : no_memory();
}

treadle_status treadle_convert_look_again(treadle_convert *c, treadle_status status) {
  char message[2048];
  treadle_status changed = status == TREADLE_NO_MEMORY ? TREADLE_OK : treadle_inputs_check(&c->inputs);
  if (!changed && !c->torn && !c->wrong) return status;
  if (changed) status = changed;
  snprintf(message, sizeof message, "%s", treadle_error_message());
  treadle_out_folder_spoil(&c->folder);
  return treadle_fail(status, "%s", message);
}

const treadle_model *treadle_convert_model(const treadle_convert *c) {
  TREADLE_NEED_OR(c, NULL);
  return c->model;
}

bool treadle_convert_resumes(const treadle_convert *c) {
  TREADLE_NEED_OR(c, false);
  return c->folder.resumed;
}

void treadle_convert_get_figures(const treadle_convert *c, treadle_convert_figures *figures_p) {
  static const treadle_convert_figures nothing = {0};
  TREADLE_NEED_SIZED_ONLY(figures_p);
  TREADLE_GIVE(figures_p, &nothing);
  TREADLE_NEED_ONLY(c);
  TREADLE_GIVE(figures_p, &c->figures);
}

/* ---- Comparing --------------------------------------------------------------------------------- */

treadle_status treadle_convert_compare_files(treadle_convert *c) {
  treadle_status status = TREADLE_OK;
  const treadle_convert_options *o = &c->options;
  if (!c->source->type->compare) return TREADLE_OK;
  for (int32_t t = o->rank; t < c->model->tensor_count; t += o->ranks)
    TRY(c->source->type->compare(c->source, t, o->trust ? SMALL_BYTES : INT64_MAX, &c->figures.bytes_read));
  treadle_source_let_go(c->source);
out:
  return treadle_convert_look_again(c, status);
}
