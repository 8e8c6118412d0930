/* Models to try things out: a Hugging Face checkpoint with hash weights (treadle_tools.h).
 *
 * It is the library's own answer to a config.json alone, written down: the hf layout of one rank, loaded
 * without a checkpoint, is the list of tensors to write. config.json is written last, so that a directory
 * that has one is whole. */
#include "base/alloc.h"
#include "base/checked.h"
#include "base/dtype.h"
#include "base/sized.h"
#include "base/text.h"
#include "base/utf8.h"
#include "io/file.h"
#include "io/file_look.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "layout/layout.h"
#include "memory/device.h"
#include "memory/limits.h"
#include "model/scaled.h"
#include "model/stored.h"
#include "treadle_tools.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_LISTED = 1024 }; /* layers that lists speak of */

/* Fields that only some families look at: with them every family has a small config. DeepSeek's own 8 groups would have an expert each, and
 * a group counts by its best two. */
static treadle_status add_family_fields(const treadle_make_options *o, json_t *config) {
  json_int_t hidden = o->hidden, heads = hidden / 64;
  json_t *more = json_pack(
      "{s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:I, s:I, s:i, s:i, "
      "s:i, s:i, s:i, s:i, s:i, s:I, s:i, s:[i], s:b, s:b, s:i, s:i, s:i, "
      "s:{s:[i,i], s:I, s:i, s:i}, s:I, s:i, "
      "s:i, s:I, s:i, s:i, s:[i,i,i,i], s:i, s:b, s:I, s:i, s:i, s:i}",
      "num_experts", 8, "n_routed_experts", 8, "num_local_experts", 8, "moe_intermediate_size", hidden / 2,
      "shared_expert_intermediate_size", hidden / 2, "q_lora_rank", hidden / 2, "kv_lora_rank", hidden / 4,
      "qk_nope_head_dim", (json_int_t)64, "qk_rope_head_dim", 32, "v_head_dim", 64, "n_shared_experts", 1,
      "first_k_dense_replace", 1, "num_nextn_predict_layers", 1, "mtp_num_hidden_layers", 1,
      "full_attention_interval", 2, "linear_num_key_heads", heads, "linear_num_value_heads", 2 * heads,
      "linear_key_head_dim", 32, "linear_value_head_dim", 32, "attention_bias", 0, "index_n_heads", 4,
      "index_head_dim", 32, "moe_num_experts", 8, "moe_num_shared_experts", 1, "intermediate_size_mlp",
      hidden, "interleave_moe_layer_step", 2, "num_shared_expert", 1, "enable_moe_block", 1,
      "attention_k_eq_v", 1, "global_head_dim", 128, "num_global_key_value_heads", 1,
      "hidden_size_per_layer_input", 0, "linear_attn_config", "kda_layers", 1, 3, "num_heads", heads,
      "head_dim", 32, "short_conv_kernel_size", 4, "routed_expert_hidden_size", hidden / 2,
      "num_shared_experts", 1, "o_groups", 2, "o_lora_rank", hidden / 4, "hc_mult", 2, "num_hash_layers", 1,
      "compress_ratios", 0, 4, 128, 0, "num_experts_per_tok", 2, "add_swa_attention_sink_bias", 1,
      "swa_num_key_value_heads", heads, "swa_head_dim", 32, "n_group", 4, "topk_group", 2);
  if (!more || json_object_update_missing(config, more))
    return json_decref(more), treadle_fail(TREADLE_NO_MEMORY, "no memory for a config");
  json_decref(more);
  return TREADLE_OK;
}

/* Lists with an item for each layer: what they ask for begins with the second layer. */
static treadle_status add_layer_lists(const treadle_make_options *o, json_t *config) {
  json_t *pattern = json_array(), *types = json_array();
  int failed = json_object_set_new(config, "hybrid_layer_pattern", pattern) |
               json_object_set_new(config, "mlp_layer_types", types);
  for (int64_t l = 0; !failed && l < o->layers && l < MOST_LISTED; l++)
    failed = json_array_append_new(pattern, json_integer(l % 2)) |
             json_array_append_new(types, json_string(l > 0 ? "sparse" : "dense"));
  return failed ? treadle_fail(TREADLE_NO_MEMORY, "no memory for a config") : TREADLE_OK;
}

static treadle_status make_config(const treadle_make_options *o, json_t **config_p) {
  static const char *const torch_names[] = {
      [TREADLE_FP32] = "float32", [TREADLE_BF16] = "bfloat16", [TREADLE_FP16] = "float16"};
  treadle_dtype dtype = o->dtype ? o->dtype : TREADLE_BF16;
  if (TREADLE_CHECK_ENUM(dtype, TREADLE_FP8_E4M3 + 1)) return TREADLE_REFUSED;
  if (dtype == TREADLE_FP8_E4M3) /* wants scales */
    return treadle_fail(TREADLE_REFUSED, "make-model: the type is fp8, and must be bf16, fp16 or fp32");
  if (o->model_type && !treadle_utf8_is_valid(o->model_type)) /* a config.json could not hold it */
    return treadle_fail(TREADLE_REFUSED, "make-model: the family is '%s', which is not UTF-8",
                        o->model_type);
  if (o->layers < 1 || o->vocab < 1 || o->hidden < 64 || o->hidden % 64)
    return treadle_fail(
        TREADLE_REFUSED,
        "make-model: hidden is %lld, and must be a multiple of 64; layers (%lld) and vocab (%lld) "
        "must be at least 1",
        (long long)o->hidden, (long long)o->layers, (long long)o->vocab);
  int64_t intermediate;
  if (!treadle_mul_fits(o->hidden / 64, 176, &intermediate))
    return treadle_fail(TREADLE_REFUSED,
                        "make-model: hidden is %lld, and 176/64 of it, the intermediate size, does not fit",
                        (long long)o->hidden);
  int64_t heads = o->hidden / 64, groups = heads % 4 ? heads : heads / 4 * 2;
  *config_p = json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:i, s:I, s:b}", "model_type",
                        o->model_type ? o->model_type : "llama", "dtype", torch_names[dtype], "hidden_size",
                        (json_int_t)o->hidden, "intermediate_size", (json_int_t)intermediate,
                        "num_hidden_layers", (json_int_t)o->layers, "num_attention_heads",
                        (json_int_t)heads, "num_key_value_heads", (json_int_t)groups, "head_dim", 64,
                        "vocab_size", (json_int_t)o->vocab, "tie_word_embeddings", 0);
  if (!*config_p) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a config");
  treadle_status status = add_family_fields(o, *config_p);
  return status ? status : add_layer_lists(o, *config_p);
}

/* One that is there, perhaps scaled down, or one made of the other options. */
static treadle_status choose_config(const treadle_make_options *o, treadle_arena *arena, json_t **config_p,
                                    const char **changes_p) {
  const treadle_model_options of_model = {
      .struct_size = sizeof of_model, .families = o->families, .scale_down = o->scale_down};
  *changes_p = NULL;
  if (o->config) return treadle_config_open(o->config, &of_model, arena, config_p, changes_p);
  if (o->scale_down) return treadle_fail(TREADLE_REFUSED, "make-model: scaling down needs a config");
  return make_config(o, config_p);
}

/* The storage tensors of the hf layout at `window`, as the writer wants them. */
static treadle_status list_tensors(const treadle_layout *layout, const char *window, treadle_arena *arena,
                                   treadle_stored **tensors_p, int32_t *count_p) {
  treadle_status status = TREADLE_OK;
  int32_t count = treadle_layout_storage_count(layout, 0);
  treadle_stored *tensors = treadle_arena_alloc_array(arena, (size_t)count, sizeof *tensors);
  if (!tensors) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %d tensors", (int)count);
  for (int32_t i = 0; i < count; i++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    TRY(treadle_layout_storage(layout, 0, i, &info));
    treadle_stored *tensor = &tensors[i];
    tensor->name = treadle_arena_copy_text(arena, info.name);
    if (!tensor->name) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for a name"));
    tensor->dtype = info.dtype;
    tensor->dtype_text = treadle_dtype_safetensors(info.dtype);
    tensor->ndim = info.ndim;
    tensor->elems = 1;
    for (int dim = 0; dim < info.ndim; dim++) {
      tensor->shape[dim] = info.shape[dim];
      tensor->elems *= info.shape[dim];
    }
    tensor->data = window + info.offset_bytes;
    tensor->bytes = info.bytes;
  }
  *tensors_p = tensors;
  *count_p = count;
out:
  return status;
}

/* From a piece of the window to its place in a file. */
static treadle_op store_op(const treadle_model *model, const treadle_piece *piece,
                           const treadle_stored_box *place) {
  int64_t bytes = (int64_t)treadle_dtype_bytes(place->stored->dtype);
  treadle_op op = {.from_dtype = (uint8_t)piece->dtype,
                   .to_dtype = (uint8_t)place->stored->dtype,
                   .ndim = (uint8_t)model->tensors[piece->tensor].naxes,
                   .from = piece->offset,
                   .to = place->at * bytes,
                   .elems = 1};
  for (int a = 0; a < op.ndim; a++) {
    op.size[a] = place->size[a];
    op.from_stride[a] = piece->stride[a];
    op.to_stride[a] = place->stride[a] * bytes;
    op.from += (place->start[a] - piece->box.start[a]) * piece->stride[a];
    op.elems *= op.size[a];
  }
  return op;
}

/* The same values with the experts stacked, as the family's `packed` rules say. What is made of the single form is
 * found by matching the new tensors with the model, as when a checkpoint is opened. */
static treadle_status stack_experts(const treadle_model *model, const treadle_layout *layout, char *window,
                                    treadle_arena *arena, treadle_stored **tensors_p, int32_t *count_p) {
  treadle_status status = TREADLE_OK;
  char **memory = NULL; /* by stacked tensor */
  treadle_pieces pieces = {0};
  treadle_checkpoint checkpoint = {0};
  treadle_files files = {0};
  treadle_stored_box place;
  TRY(treadle_files_stacked(model, arena, &checkpoint.tensors, &checkpoint.count));
  memory = treadle_arena_alloc_array(arena, (size_t)checkpoint.count + 1, sizeof *memory);
  if (!memory) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for %d tensors", (int)checkpoint.count));
  for (int32_t i = 0; i < checkpoint.count; i++) {
    treadle_stored *stored = &checkpoint.tensors[i];
    TRY(treadle_hash_map_put(&checkpoint.by_name, stored->name, i));
    stored->data = memory[i] = treadle_arena_alloc(arena, stored->bytes);
    if (!stored->data) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for %s", stored->name));
  }
  TRY(treadle_files_match(model, &checkpoint, arena, &files));
  treadle_model filled = *model;
  filled.files = &files;
  TRY(treadle_layout_pieces(layout, 0, &pieces));
  for (size_t p = 0; p < pieces.count; p++)
    for (int32_t next = 0; treadle_model_stored(&filled, pieces.items[p].tensor, pieces.items[p].box.start,
                                                pieces.items[p].box.size, &next, &place);) {
      const treadle_op op = store_op(model, &pieces.items[p], &place);
      const treadle_paged from = {.base = window},
                          to = treadle_paged_of(memory[place.stored - checkpoint.tensors]);
      treadle_device_plain()->ops->copy(treadle_device_plain(), &op, &from, &to, 1);
    }
  *tensors_p = checkpoint.tensors;
  *count_p = checkpoint.count;
out:
  treadle_array_release(&pieces);
  treadle_files_release(&files);
  treadle_hash_map_release(&checkpoint.by_name);
  return status;
}

/* What is in the way is said before anything is made. *made_p: there was no folder. */
static treadle_status make_folder(const char *path, const char *weights, const char *config, bool *made_p) {
  treadle_status status = TREADLE_OK;
  treadle_file_type type;
  *made_p = false;
  TRY(treadle_file_check_folder(path));
  *made_p = mkdir(path, 0777) == 0;
  if (!*made_p && errno != EEXIST)
    return treadle_fail(TREADLE_REFUSED, "%s: the folder cannot be made: %s", path, strerror(errno));
  TRY(treadle_file_look(path, &type));
  if (type != TREADLE_FILE_FOLDER) TRY(treadle_fail(TREADLE_REFUSED, "%s: is not a folder", path));
  TRY(treadle_file_look(config, &type));
  if (type != TREADLE_FILE_NONE) TRY(treadle_fail(TREADLE_REFUSED, "%s: there is a model already", path));
  TRY(treadle_file_may_write(config));
  TRY(treadle_file_may_write(weights));
out:
  return status;
}

static treadle_status write_model(const char *path, json_t *config, const treadle_model *model,
                                  bool packed) {
  treadle_status status = TREADLE_OK;
  treadle_arena arena = {0};
  treadle_layout *layout = NULL;
  treadle_stored *tensors = NULL;
  int32_t count = 0;
  char *window = NULL, *text = NULL;
  bool made = false;
  TRY(treadle_layout_create(model, "hf", 1, NULL, &layout));
  uint64_t bytes = treadle_layout_window_bytes(layout, 0); /* less than 2^54 */
  TRY(treadle_limits_ask(packed ? 2 * bytes : bytes, "a model of that size"));
  text = treadle_json_dump(config, JSON_INDENT(2));
  const char *weights_path = treadle_arena_format(&arena, "%s/model.safetensors", path);
  const char *config_path = treadle_arena_format(&arena, "%s/config.json", path);
  if (!text || !weights_path || !config_path) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for a path"));
  TRY(make_folder(path, weights_path, config_path, &made));
  TRY(treadle_file_room(path, bytes, bytes));
  window = treadle_alloc(bytes);
  if (!window)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for a model of %s", treadle_text_of_size(bytes)));
  TRY(treadle_layout_load(layout, 0, window));
  TRY(packed ? stack_experts(model, layout, window, &arena, &tensors, &count)
             : list_tensors(layout, window, &arena, &tensors, &count));
  TRY(treadle_safetensors_write(weights_path, tensors, count));
  TRY(treadle_file_write(config_path, text, strlen(text)));
out:
  if (status != TREADLE_OK && made) (void)rmdir(path);
  free(text);
  treadle_free(window);
  treadle_layout_destroy(layout);
  treadle_arena_release(&arena);
  return status;
}

treadle_status treadle_make_model(const char *folder, const treadle_make_options *options,
                                  treadle_model **model_p) {
  treadle_status status;
  treadle_make_options o;
  treadle_arena arena = {0};
  json_t *config = NULL;
  treadle_model *model = NULL;
  const char *changes;
  TREADLE_NEED(model_p);
  *model_p = NULL;
  TREADLE_NEED(folder);
  TRY(TREADLE_TAKE(options, &o));
  if (!o.layers) o.layers = 8;
  if (!o.hidden) o.hidden = 512;
  if (!o.vocab) o.vocab = 8000;
  if (o.scale_down < 0)
    TRY(treadle_fail(TREADLE_REFUSED, "make-model: cannot scale down to %lld elements",
                     (long long)o.scale_down));
  const treadle_model_options of_model = {.struct_size = sizeof of_model, .families = o.families};
  status = choose_config(&o, &arena, &config, &changes);
  TRY(treadle_as_refusal(status));
  TRY(treadle_model_from_config("the config of make-model", config, &of_model, &model));
  if (changes && !(model->changes = treadle_arena_copy_text(&model->arena, changes)))
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for a text"));
  TRY(write_model(folder, config, model, o.stacked));
  *model_p = model;
  model = NULL;
out:
  treadle_model_close(model);
  json_decref(config);
  treadle_arena_release(&arena);
  return status;
}
