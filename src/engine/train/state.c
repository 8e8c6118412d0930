/* The state of a trainer as a folder: weights as any Hugging Face folder has them, and of the optimizer three folders of the same form with
 * fp32 values, so that each is read back by whatever layout goes on. The window of gradients, which has no values between two steps, holds
 * each of the three on the way.
 *
 *   huggingface/
 *   optimizer/master/  exp_avg/  exp_avg_sq/  state.json
 *
 * With adapters, which are their own masters, these folders are peft's:
 *
 *   lora_adapter/
 *   optimizer/exp_avg/  exp_avg_sq/  state.json               */
#include "train/trainer.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "group/group.h"
#include "io/file.h"
#include "io/json.h"
#include "model/build.h"
#include "train/saved_values.h"
#include "weights/filled.h"
#include "weights/load.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* What of a trainer is saved. */
typedef struct saved_parts {
  const treadle_train_windows *windows;
  const treadle_train_ranks *ranks;
  treadle_train_optimizer *optimizer;
  treadle_train_adapters *adapters; /* NULL: the weights are */
} saved_parts;

/* ---- Shares ---------------------------------------------------------------------------------------------- */

typedef struct gathering {
  const treadle_train_optimizer *of;
  const float *own; /* of this rank's share */
} gathering;

static treadle_status give_run(void *context, const treadle_train_run *run) {
  const gathering *w = context;
  memcpy(treadle_train_grads(w->of->windows) + run->grad, w->own + run->state,
         (size_t)run->count * sizeof *w->own);
  return TREADLE_OK;
}

/* From all ranks' shares to the whole window of gradients. */
static treadle_status gather_state(const treadle_train_optimizer *o, const float *own) {
  gathering w = {o, own};
  treadle_status status;
  TRY(treadle_train_each_run(o, give_run, &w));
  TRY(treadle_train_bring_state(o));
out:
  treadle_train_tell(o->ranks, status);
  return status;
}

typedef struct state {
  const char *name;
  float *values; /* of this rank's share */
} state;

/* Masters are the weights themselves where these are fp32; adapters are saved by themselves. */
static int states_of(const treadle_train_optimizer *o, state states[3]) {
  int count = 0;
  if (!o->windows->adapter_bytes)
    states[count++] = (state){"master", o->master ? o->master : (float *)(void *)o->windows->weights};
  states[count++] = (state){"exp_avg", o->exp_avg};
  states[count++] = (state){"exp_avg_sq", o->exp_avg_sq};
  return count;
}

/* ---- Saving ---------------------------------------------------------------------------------------------- */

static treadle_status join_path(char to[PATH_MAX], const char *folder, const char *name) {
  if (snprintf(to, PATH_MAX, "%s/%s", folder, name) < PATH_MAX) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED, "%s/%s: too long for a path", folder, name);
}

static treadle_status make_folder(const treadle_group *group, const char *path) {
  if (group && treadle_group_rank(group) > 0) return TREADLE_OK;
  if (mkdir(path, 0777) == 0 || errno == EEXIST) return TREADLE_OK;
  return treadle_fail(TREADLE_SYSTEM, "%s cannot be made: %s", path, strerror(errno));
}

/* Values of the adapters' layout as a folder of peft's. */
static treadle_status save_adapters(const saved_parts *t, const char *path, const void *window) {
  const treadle_save_options options = {
      .struct_size = sizeof options, .shard_bytes = (size_t)1 << 60, .weights_only = true};
  const treadle_group *group = t->ranks->group;
  char from[PATH_MAX], to[PATH_MAX];
  treadle_status status;
  TRY(treadle_layout_save(t->ranks->group, t->windows->grad_layout, window, path, &options));
  if (group && treadle_group_rank(group) > 0) goto out;
  status = join_path(from, path, "model.safetensors");
  if (!status) status = join_path(to, path, TREADLE_ADAPTER_WEIGHTS);
  if (!status && rename(from, to) != 0)
    status = treadle_fail(TREADLE_SYSTEM, "%s cannot be written: %s", to, strerror(errno));
  if (!status) status = treadle_adapter_write_config(t->adapters->adapter, path);
out:
  return treadle_train_agree(t->ranks, status);
}

/* The folder says whose adapters its weights have. */
static treadle_status save_mark(const saved_parts *t, const float *all, const char *folder) {
  const treadle_adapter_folders marked = treadle_train_marked(t->windows->layout->model);
  char path[PATH_MAX], *text = NULL;
  treadle_status status = TREADLE_OK;
  if (t->ranks->group && treadle_group_rank(t->ranks->group) > 0) return TREADLE_OK;
  TRY(treadle_adapter_mark(t->adapters->adapter, all, &marked, &text));
  TRY(join_path(path, folder, TREADLE_ADAPTER_MARK));
  TRY(treadle_file_write(path, text, strlen(text)));
out:
  free(text);
  return status;
}

/* The weights with the adapters in them. */
static treadle_status save_merged(const saved_parts *t, const char *folder,
                                  const treadle_save_options *options) {
  const treadle_train_windows *w = t->windows;
  char path[PATH_MAX], *window = treadle_alloc(w->weight_bytes + 1);
  float *all = treadle_alloc_array((size_t)t->adapters->adapter->elems, sizeof *all);
  treadle_status status = window && all ? join_path(path, folder, "huggingface")
                                        : treadle_fail(TREADLE_NO_MEMORY, "no memory for merged weights");
  TRY(treadle_train_agree(t->ranks, status));
  memcpy(window, w->weights, w->weight_bytes);
  TRY(treadle_train_gather_adapters(t->adapters, t->ranks, all));
  TRY(treadle_train_agree(t->ranks,
                          treadle_train_fold_adapters(t->adapters, all, w->layout, w->rank, window)));
  treadle_filled_memory(window, w->weight_bytes);
  TRY(treadle_layout_save(t->ranks->group, w->layout, window, path, options));
  TRY(treadle_train_agree(t->ranks, save_mark(t, all, path)));
out:
  treadle_free(all);
  treadle_free(window);
  return status;
}

static treadle_status save_steps(const saved_parts *t, const char *folder) {
  const treadle_train_optimizer *o = t->optimizer;
  const treadle_group *group = o->ranks->group;
  char path[PATH_MAX], text[96];
  treadle_status status;
  if (group && treadle_group_rank(group) > 0) return TREADLE_OK;
  TRY(join_path(path, folder, "state.json"));
  if (t->adapters)
    snprintf(text, sizeof text, "{\"step\": %lld, \"base\": \"%016llx\"}\n", (long long)o->steps,
             (unsigned long long)t->adapters->base_digest);
  else
    snprintf(text, sizeof text, "{\"step\": %lld}\n", (long long)o->steps);
  TRY(treadle_file_write(path, text, strlen(text)));
out:
  return status;
}

static treadle_status save_state(const saved_parts *t, const char *folder, const state *one) {
  const treadle_train_optimizer *o = t->optimizer;
  const treadle_save_options options = TREADLE_INIT(treadle_save_options);
  const treadle_train_windows *w = o->windows;
  bool whole = one->values == (float *)(void *)w->trained; /* the same places as gradients */
  char path[PATH_MAX];
  treadle_status status;
  TRY(treadle_train_agree(o->ranks, join_path(path, folder, one->name)));
  if (!whole) TRY(treadle_train_agree(o->ranks, gather_state(o, one->values)));
  if (t->adapters) return save_adapters(t, path, w->grads);
  TRY(treadle_layout_save(o->ranks->group, w->grad_layout, whole ? w->weights : w->grads, path, &options));
out:
  return status;
}

treadle_status treadle_trainer_save(treadle_trainer *t, const char *folder) {
  char path[PATH_MAX];
  state states[3];
  treadle_status status;
  TREADLE_NEED(t);
  TREADLE_NEED(folder);
  const saved_parts of = {&t->windows, &t->ranks, &t->optimizer, t->adapters};
  const treadle_save_options options = {.struct_size = sizeof options, .companions = t->companions};
  status = treadle_pass_window(t->pass)
               ? join_path(path, folder, t->adapters ? "lora_adapter" : "huggingface")
               : treadle_fail(TREADLE_STATE, "treadle_trainer_save: the trainer has no weights");
  TRY(treadle_train_agree_on(&t->ranks, status, &(treadle_group_call){.name = __func__}));
  if (t->adapters)
    TRY(save_adapters(&of, path, t->windows.trained));
  else
    TRY(treadle_layout_save(t->ranks.group, t->windows.layout, t->windows.weights, path, &options));
  if (t->adapters && t->adapters->saves_merged) TRY(save_merged(&of, folder, &options));
  if (!t->optimizer.exp_avg) goto out;
  status = join_path(path, folder, "optimizer");
  if (!status) status = make_folder(t->ranks.group, path);
  TRY(treadle_train_agree(&t->ranks, status));
  for (int i = 0, count = states_of(&t->optimizer, states); i < count; i++)
    TRY(save_state(&of, path, &states[i]));
  TRY(treadle_train_agree(&t->ranks, save_steps(&of, path)));
out:
  return status;
}

/* ---- Going on -------------------------------------------------------------------------------------------- */

/* Values of a folder, into this rank's window of a layout. */
static treadle_status load_folder(const treadle_layout *layout, int64_t rank, const char *folder,
                                  const char *name, void *window) {
  char path[PATH_MAX];
  treadle_status status;
  TRY(join_path(path, folder, name));
  TRY(treadle_layout_load_saved(layout, rank, path, NULL, window));
out:
  return status;
}

/* Adapters go on from the weights that they began beside. */
static treadle_status check_base(const saved_parts *t, const json_t *root, const char *path) {
  uint64_t base;
  treadle_status status;
  if (!t->adapters) return TREADLE_OK;
  TRY(treadle_saved_digest(root, path, "base", &base));
  if (base != t->adapters->base_digest)
    status =
        treadle_fail(TREADLE_REFUSED,
                     "%s: the adapters were trained beside other weights (digest %016llx) than those of %s "
                     "(%016llx); give the run its model",
                     path, (unsigned long long)base, t->windows->layout->model->path,
                     (unsigned long long)t->adapters->base_digest);
out:
  return status;
}

static treadle_status load_steps(const saved_parts *t, const char *folder) {
  char path[PATH_MAX];
  json_t *root = NULL;
  treadle_status status;
  TRY(join_path(path, folder, "state.json"));
  TRY(treadle_json_load(path, &root));
  TRY(treadle_saved_count(root, path, "step", &t->optimizer->steps));
  TRY(check_base(t, root, path));
out:
  json_decref(root);
  return status;
}

static treadle_status load_state(const saved_parts *t, const char *folder, const char *name, void *window) {
  char path[PATH_MAX];
  treadle_status status;
  if (!t->adapters) return load_folder(t->windows->grad_layout, t->windows->rank, folder, name, window);
  if (snprintf(path, PATH_MAX, "%s/%s/" TREADLE_ADAPTER_WEIGHTS, folder, name) >= PATH_MAX)
    REFUSE("%s/%s: too long for a path", folder, name);
  TRY(treadle_train_load_adapters(t->adapters, path, window));
out:
  return status;
}

static treadle_status load_optimizer(const saved_parts *t, const char *folder) {
  treadle_train_optimizer *o = t->optimizer;
  const treadle_train_windows *w = o->windows;
  state states[3];
  treadle_status status = TREADLE_OK;
  for (int i = 0, count = states_of(o, states); i < count; i++) {
    bool whole = states[i].values == (float *)(void *)w->trained;
    TRY(load_state(t, folder, states[i].name, whole ? w->trained : w->grads));
    if (!whole) treadle_train_take_state(o, states[i].values);
  }
  TRY(load_steps(t, folder));
out:
  return status;
}

/* The config beside the saved weights is the second word on what is computed with them; the first one is the model's, which may have changed since.
 * A folder of weights alone says nothing. */
static treadle_status check_config(const treadle_transformer *transformer, const char *folder) {
  treadle_model *model = NULL;
  treadle_transformer *saved = NULL;
  char path[PATH_MAX];
  json_t *config = NULL;
  treadle_status status;
  TRY(join_path(path, folder, "huggingface/config.json"));
  if (!treadle_file_exists(path)) return TREADLE_OK;
  TRY(treadle_json_load(path, &config));
  TRY(treadle_model_like(transformer->model, path, config, &model));
  TRY(treadle_transformer_create(model, &saved));
  status = treadle_transformer_compare(transformer, saved);
  if (status)
    status =
        treadle_fail_in(status, "the run began with another model; give it that one, or begin a new run: ");
out:
  treadle_transformer_destroy(saved);
  treadle_model_close(model);
  json_decref(config);
  return status;
}

/* The base is that of the model; then the adapters. */
static treadle_status resume_adapters(const saved_parts *t, const char *folder) {
  char path[PATH_MAX];
  treadle_status status;
  TRY(join_path(path, folder, "lora_adapter"));
  TRY(treadle_train_open_adapter_folder(t->adapters, path, false));
  TRY(join_path(path, folder, "optimizer"));
  if (t->optimizer->exp_avg) TRY(load_optimizer(t, path));
out:
  return status;
}

/* A checkpoint of weights does not go on with adapters, nor one of adapters with weights. */
static treadle_status check_kind(const saved_parts *t, const char *folder) {
  char path[PATH_MAX], whole[PATH_MAX];
  treadle_status status;
  TRY(join_path(path, folder, "lora_adapter"));
  TRY(join_path(whole, folder, "huggingface"));
  const bool has_adapters = treadle_file_exists(path), has_weights = treadle_file_exists(whole);
  if (t->adapters && !has_adapters && has_weights)
    REFUSE("%s: the checkpoint is of a run that trained the weights, and this one trains adapters, with "
           "lora_rank %lld: leave lora_rank out, or begin a new run of adapters with %s as its model",
           folder, (long long)t->adapters->adapter->rank, whole);
  if (!t->adapters && has_adapters && (t->optimizer->exp_avg || !has_weights))
    REFUSE("%s: the checkpoint is of a run that trained adapters, and this one trains the weights: give it "
           "that run's lora_rank, or begin a new run with merged weights as its model (convert --lora %s)",
           folder, path);
out:
  return status;
}

static treadle_status load_base(const treadle_train_windows *w) {
  treadle_status status;
  if (treadle_model_weights(w->layout->model) != TREADLE_WEIGHTS_FILES)
    REFUSE("%s: adapters go on beside the weights that they began beside, and these were made up",
           w->layout->model->path);
  TRY(treadle_layout_load(w->layout, w->rank, w->weights));
  TRY(treadle_train_check_weights(w));
out:
  return status;
}

static treadle_status resume(treadle_trainer *t, const char *folder) {
  const saved_parts of = {&t->windows, &t->ranks, &t->optimizer, t->adapters};
  char path[PATH_MAX];
  treadle_status status;
  if (t->adapters) {
    TRY(resume_adapters(&of, folder));
    return treadle_train_bind(t);
  }
  TRY(check_config(t->transformer, folder));
  TRY(load_folder(t->windows.layout, t->windows.rank, folder, "huggingface", t->windows.weights));
  TRY(treadle_train_check_weights(&t->windows));
  TRY(join_path(path, folder, "optimizer"));
  if (t->optimizer.exp_avg) TRY(load_optimizer(&of, path));
  TRY(treadle_train_bind(t));
out:
  return status;
}

treadle_status treadle_trainer_resume(treadle_trainer *t, const char *folder) {
  treadle_status status;
  TREADLE_NEED(t);
  TREADLE_NEED(folder);
  const saved_parts of = {&t->windows, &t->ranks, &t->optimizer, t->adapters};
  TRY(treadle_train_agree_on(&t->ranks, check_kind(&of, folder), &(treadle_group_call){.name = __func__}));
  if (t->adapters) {
    TRY(treadle_train_agree(&t->ranks, load_base(&t->windows)));
    TRY(treadle_train_find_base(&t->ranks, t->adapters));
  }
  TRY(treadle_train_agree(&t->ranks, resume(t, folder)));
out:
  return status;
}
