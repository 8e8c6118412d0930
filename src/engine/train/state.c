/* The state of a trainer as a folder: weights as any Hugging Face folder has them, and of the optimizer three folders of the same form with
 * fp32 values, so that each is read back by whatever layout goes on. The window of gradients, which has no values between two steps, holds
 * each of the three on the way.
 *
 *   huggingface/
 *   optimizer/master/  exp_avg/  exp_avg_sq/  state.json      */
#include "train/trainer.h"

#include "base/argument.h"
#include "io/file.h"
#include "io/json.h"
#include "model/build.h"
#include "train/saved_values.h"
#include "group/group.h"
#include "weights/load.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

/* ---- Shares ---------------------------------------------------------------------------------------------- */

static float *gradients(const treadle_trainer *t) { return (float *)(void *)t->grad_window; }

/* From all replicas' shares to the whole window of gradients. */
static treadle_status gather_state(treadle_trainer *t, const float *own) {
  const treadle_row_span mine = treadle_train_share(t, t->replica.number);
  const int64_t most = (int64_t)t->ranks.room.pieces;
  int64_t others;
  treadle_status status = TREADLE_OK;
  memcpy(gradients(t) + mine.begin, own, (size_t)(mine.end - mine.begin) * sizeof *own);
  for (int64_t replica = 0; t->optimizer.distributed && t->ranks.replicas && replica < t->replica.count;
       replica++) {
    const treadle_row_span share = treadle_train_share(t, replica);
    bool speaks = replica == t->replica.number;
    for (int64_t at = share.begin; at < share.end; at += most) {
      int64_t some = share.end - at < most ? share.end - at : most;
      const treadle_exchange_part part = {.of = 1, .end = speaks, .rows = 1, .columns = some};
      if (speaks)
        memcpy(treadle_exchange_room(t->ranks.replicas), gradients(t) + at, (size_t)some * sizeof *own);
      TRY(treadle_parallel_slots(t->ranks.replicas, &part, "the optimizer's state"));
      if (!speaks)
        memcpy(gradients(t) + at, treadle_parallel_slot(t->ranks.replicas, 0, &others),
               (size_t)some * sizeof *own);
    }
  }
out:
  treadle_train_tell(t, status);
  return status;
}

typedef struct state {
  const char *name;
  float *values; /* of this rank's share */
} state;

/* Masters are the weights themselves where these are fp32. */
static int states_of(const treadle_trainer *t, state states[3]) {
  const treadle_train_optimizer *o = &t->optimizer;
  int count = 0;
  states[count++] = (state){"master", o->master ? o->master : (float *)(void *)t->weights};
  states[count++] = (state){"exp_avg", o->exp_avg};
  states[count++] = (state){"exp_avg_sq", o->exp_avg_sq};
  return count;
}

/* ---- Saving ---------------------------------------------------------------------------------------------- */

static treadle_status join_path(char to[PATH_MAX], const char *folder, const char *name) {
  if (snprintf(to, PATH_MAX, "%s/%s", folder, name) < PATH_MAX) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED, "%s/%s: too long for a path", folder, name);
}

static treadle_status make_folder(const treadle_trainer *t, const char *path) {
  if (t->ranks.group && treadle_group_rank(t->ranks.group) > 0) return TREADLE_OK;
  if (mkdir(path, 0777) == 0 || errno == EEXIST) return TREADLE_OK;
  return treadle_fail(TREADLE_SYSTEM, "%s cannot be made: %s", path, strerror(errno));
}

static treadle_status save_steps(const treadle_trainer *t, const char *folder) {
  char path[PATH_MAX], text[64];
  treadle_status status;
  if (t->ranks.group && treadle_group_rank(t->ranks.group) > 0) return TREADLE_OK;
  TRY(join_path(path, folder, "state.json"));
  snprintf(text, sizeof text, "{\"step\": %lld}\n", (long long)t->optimizer.steps);
  TRY(treadle_file_write(path, text, strlen(text)));
out:
  return status;
}

static treadle_status save_state(treadle_trainer *t, const char *folder, const state *one) {
  const treadle_save_options options = TREADLE_INIT(treadle_save_options);
  bool whole = one->values == (float *)(void *)t->weights; /* the same places as gradients */
  char path[PATH_MAX];
  treadle_status status;
  TRY(treadle_train_agree(t, join_path(path, folder, one->name)));
  if (!whole) TRY(treadle_train_agree(t, gather_state(t, one->values)));
  TRY(treadle_layout_save(t->ranks.group, t->grad_layout, whole ? t->weights : t->grad_window, path,
                          &options));
out:
  return status;
}

treadle_status treadle_trainer_save(treadle_trainer *t, const char *folder) {
  char path[PATH_MAX];
  state states[3];
  treadle_status status;
  TREADLE_NEED(t);
  TREADLE_NEED(folder);
  const treadle_save_options options = {.struct_size = sizeof options, .companions = t->companions};
  if (!treadle_pass_window(t->pass))
    return treadle_fail(TREADLE_STATE, "treadle_trainer_save: the trainer has no weights");
  TRY(treadle_train_agree(t, join_path(path, folder, "huggingface")));
  TRY(treadle_layout_save(t->ranks.group, t->layout, t->weights, path, &options));
  if (!t->optimizer.exp_avg) goto out;
  status = join_path(path, folder, "optimizer");
  if (!status) status = make_folder(t, path);
  TRY(treadle_train_agree(t, status));
  for (int i = 0, count = states_of(t, states); i < count; i++) TRY(save_state(t, path, &states[i]));
  TRY(treadle_train_agree(t, save_steps(t, path)));
out:
  return status;
}

/* ---- Going on -------------------------------------------------------------------------------------------- */

static treadle_status load_folder(const treadle_trainer *t, const treadle_layout *layout,
                                  const char *folder, const char *name, void *window) {
  char path[PATH_MAX];
  treadle_status status;
  TRY(join_path(path, folder, name));
  TRY(treadle_layout_load_saved(layout, t->rank, path, NULL, window));
out:
  return status;
}

static treadle_status load_steps(treadle_trainer *t, const char *folder) {
  char path[PATH_MAX];
  json_t *root = NULL;
  treadle_status status;
  TRY(join_path(path, folder, "state.json"));
  TRY(treadle_json_load(path, &root));
  TRY(treadle_saved_count(root, path, "step", &t->optimizer.steps));
out:
  json_decref(root);
  return status;
}

static treadle_status load_optimizer(treadle_trainer *t, const char *folder) {
  const treadle_row_span share = treadle_train_share(t, t->replica.number);
  state states[3];
  treadle_status status = TREADLE_OK;
  for (int i = 0, count = states_of(t, states); i < count; i++) {
    bool whole = states[i].values == (float *)(void *)t->weights;
    TRY(load_folder(t, t->grad_layout, folder, states[i].name, whole ? t->weights : t->grad_window));
    if (!whole)
      memcpy(states[i].values, gradients(t) + share.begin,
             (size_t)(share.end - share.begin) * sizeof(float));
  }
  TRY(load_steps(t, folder));
out:
  return status;
}

/* The config beside the saved weights is the second word on what is computed with them; the first one is the model's, which may have changed since.
 * A folder of weights alone says nothing. */
static treadle_status check_config(const treadle_trainer *t, const char *folder) {
  treadle_model *model = NULL;
  treadle_transformer *saved = NULL;
  char path[PATH_MAX];
  json_t *config = NULL;
  treadle_status status;
  TRY(join_path(path, folder, "huggingface/config.json"));
  if (!treadle_file_exists(path)) return TREADLE_OK;
  TRY(treadle_json_load(path, &config));
  TRY(treadle_model_like(t->transformer->model, path, config, &model));
  TRY(treadle_transformer_create(model, &saved));
  status = treadle_transformer_compare(t->transformer, saved);
  if (status)
    status =
        treadle_fail_in(status, "the run began with another model; give it that one, or begin a new run: ");
out:
  treadle_transformer_destroy(saved);
  treadle_model_close(model);
  json_decref(config);
  return status;
}

static treadle_status resume(treadle_trainer *t, const char *folder) {
  char path[PATH_MAX];
  treadle_status status;
  TRY(check_config(t, folder));
  TRY(load_folder(t, t->layout, folder, "huggingface", t->weights));
  TRY(treadle_train_check_weights(t));
  TRY(join_path(path, folder, "optimizer"));
  if (t->optimizer.exp_avg) TRY(load_optimizer(t, path));
  TRY(treadle_train_bind(t));
out:
  return status;
}

treadle_status treadle_trainer_resume(treadle_trainer *t, const char *folder) {
  TREADLE_NEED(t);
  TREADLE_NEED(folder);
  return treadle_train_agree(t, resume(t, folder));
}
