/* What a name in an expression of the family means: what its head has, dims, then fields of the config. */
#include "model/build.h"
#include "model/config.h"

#include <string.h>

int32_t treadle_model_find_dim(const treadle_model *model, const char *name) {
  for (int32_t i = 0; i < model->dim_known; i++)
    if (strcmp(model->family->dim_names[i], name) == 0) return i;
  return -1;
}

const json_t *treadle_model_inner_config(const treadle_model *model) {
  return model->family->config ? json_object_get(model->config, model->family->config) : NULL;
}

bool treadle_model_is_part(const treadle_model *model) { return treadle_model_inner_config(model) != NULL; }

/* Config fields, then those outside the family's object. */
static treadle_status look_up_field(const treadle_model *model, const char *name, const int64_t *member,
                                    int64_t *value_p, bool *found_p) {
  const json_t *inner = treadle_model_inner_config(model);
  const json_t *configs[] = {inner, model->config};
  treadle_status status = TREADLE_OK;
  *found_p = false;
  for (int i = inner ? 0 : 1; i < 2 && !*found_p; i++) {
    bool is_member = false;
    if (!member) {
      TRY(treadle_config_number(configs[i], name, value_p, found_p));
    } else {
      TRY(treadle_config_member(configs[i], name, *member, &is_member, found_p));
      *value_p = is_member;
    }
  }
out:
  return status;
}

/* What the options say, not the config. */
static bool look_up_head(const treadle_model *model, const char *name, int64_t *value_p) {
  const bool scores = model->head.kind == TREADLE_HEAD_SCORE, bias = strcmp(name, "score_bias") == 0;
  if (!bias && strcmp(name, "score_head") != 0) return false;
  *value_p = scores && (!bias || model->head.bias);
  return true;
}

treadle_status treadle_model_look_up(const treadle_model *model, const char *name, const int64_t *member,
                                     int64_t *value_p, bool *found_p) {
  int32_t dim = member ? -1 : treadle_model_find_dim(model, name);
  treadle_status status;
  *found_p = !member && look_up_head(model, name, value_p);
  if (*found_p) return TREADLE_OK;
  if (dim >= 0) {
    *value_p = model->dim_values[dim];
    *found_p = true;
    return TREADLE_OK;
  }
  TRY(look_up_field(model, name, member, value_p, found_p));
  if (*found_p || member || strcmp(name, "mtp") != 0) return TREADLE_OK;
  *value_p = model->mtp_layers;
  *found_p = true;
out:
  return status;
}

treadle_status treadle_model_lookup(const treadle_model *model, const char *name, const int64_t *member,
                                    int64_t *value_p, bool *found_p) {
  treadle_status status = treadle_model_look_up(model, name, member, value_p, found_p);
  return status == TREADLE_OK ? status : treadle_fail_in(status, "%s: ", model->path);
}

bool treadle_model_is_boolean(const treadle_model *model, const char *name) {
  const json_t *inner = treadle_model_inner_config(model);
  return (inner && treadle_config_is_boolean(inner, name)) ||
         treadle_config_is_boolean(model->config, name);
}
