/* What follows the last norm: the head of a language model, or a score head, which is that of a critic or a reward model.
 *
 * Family files say `when: score_head` at the tensors of a score head, and `when: not score_head` at the other one. Which of them a model has
 * is not in its config: the caller opens it as the one or the other. Classes of transformers that predict several labels have
 * the same tensors with more rows; those are refused. */
#include "base/dtype.h"
#include "base/json.h"
#include "family/forward.h"
#include "model/build.h"
#include "model/match.h"

#include <string.h>

static bool has_score_head(const treadle_model *model) { return model->head.kind == TREADLE_HEAD_SCORE; }

/* The name of a role's tensor; NULL: the family has none. */
static const char *name_of(const treadle_model *model, treadle_role role) {
  return model->family->forward ? model->family->forward->roles[role].text : NULL;
}

/* ---- What is refused ---- */

static treadle_status check_labels(const json_t *config) {
  static const char rule[] = "a score head has one label";
  const json_t *count = json_object_get(config, "num_labels"), *names = json_object_get(config, "id2label");
  if (count && !json_is_null(count) && !json_is_integer(count))
    return treadle_fail(TREADLE_REFUSED, "num_labels is not a whole number%s: %s", treadle_json_note(count),
                        rule);
  if (json_is_integer(count) && json_integer_value(count) != 1)
    return treadle_fail(TREADLE_REFUSED, "num_labels is %lld: %s", (long long)json_integer_value(count),
                        rule);
  if (names && !json_is_null(names) && !treadle_json_is_object(names))
    return treadle_fail(TREADLE_REFUSED, "id2label is not an object%s: %s", treadle_json_note(names), rule);
  if (treadle_json_is_object(names) && json_object_size(names) != 1)
    return treadle_fail(TREADLE_REFUSED, "id2label has %zu labels: %s", json_object_size(names), rule);
  return TREADLE_OK;
}

treadle_status treadle_model_check_head(const treadle_model *model) {
  const treadle_family *family = model->family;
  const char *untrained = treadle_family_not_trained(family);
  treadle_status status;
  if (!has_score_head(model)) return TREADLE_OK;
  if (untrained)
    return treadle_fail(TREADLE_REFUSED,
                        "the family %s has no score head: treadle does not train its models: %s",
                        family->name, untrained);
  if (!name_of(model, TREADLE_ROLE_SCORE))
    return treadle_fail(TREADLE_REFUSED,
                        "the family %s has no score head: its file says no `score` in forward",
                        family->name);
  TRY(check_labels(model->config));
  TRY(check_labels(treadle_model_inner_config(model)));
out:
  return status;
}

/* ---- Files ---- */

treadle_status treadle_names_score_bias(const treadle_model *model, const treadle_checkpoint *checkpoint,
                                        bool *bias_p) {
  treadle_arena arena = {0};
  treadle_names names = {0};
  treadle_status status = TREADLE_OK;
  *bias_p = false;
  if (!has_score_head(model) || !name_of(model, TREADLE_ROLE_SCORE_BIAS)) return TREADLE_OK;
  TRY(treadle_names_make(model->family, checkpoint, &arena, &names));
  *bias_p = treadle_names_find(&names, name_of(model, TREADLE_ROLE_SCORE_BIAS)) >= 0;
out:
  treadle_names_release(&names);
  treadle_arena_release(&arena);
  return status;
}

void treadle_match_skip_head(treadle_match *match) {
  const char *head = name_of(match->model, TREADLE_ROLE_HEAD);
  const int32_t at = has_score_head(match->model) && head ? treadle_names_find(&match->names, head) : -1;
  if (at >= 0) match->names.roles[at] = TREADLE_ROLE_SKIPPED;
}

/* A language model has neither of the two: a bias without its weight is a mistake. */
bool treadle_match_is_zeros(const treadle_match *match, const treadle_entry *entry) {
  const treadle_model *model = match->model;
  return has_score_head(model) && model->head.zeros && !model->head.bias &&
         strcmp(entry->name, name_of(model, TREADLE_ROLE_SCORE)) == 0;
}

/* Of the type of the first tensor, so that a model has one type. */
static treadle_status make_zeros(const treadle_match *match, const treadle_entry *entry,
                                 const treadle_stored **stored_p) {
  const treadle_tensor *tensor = &match->model->tensors[entry->tensor];
  const treadle_stored *like = match->files->entries[0];
  if (!like || like->dtype == TREADLE_DTYPE_NONE || like->ndim < 0)
    return TREADLE_OK; /* which is refused */
  const size_t bytes = (size_t)tensor->elems * treadle_dtype_bytes(like->dtype);
  treadle_stored *zeros = treadle_arena_alloc(match->arena, sizeof *zeros);
  void *data = treadle_arena_alloc(match->arena, bytes);
  if (!zeros || !data)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for %s of %zu bytes", entry->name, bytes);
  *zeros = (treadle_stored){.name = entry->name,
                            .dtype = like->dtype,
                            .dtype_text = like->dtype_text,
                            .ndim = tensor->ndim,
                            .elems = tensor->elems,
                            .data = data,
                            .bytes = bytes};
  memcpy(zeros->shape, tensor->shape, sizeof tensor->shape);
  *stored_p = zeros;
  return TREADLE_OK;
}

treadle_status treadle_match_zeros(treadle_match *match) {
  treadle_status status = TREADLE_OK;
  if (match->files->missing_count) return TREADLE_OK; /* shapes are not those of the files */
  for (int32_t i = 0; i < match->model->entry_count; i++)
    if (!match->files->entries[i] && treadle_match_is_zeros(match, &match->model->entries[i]))
      TRY(make_zeros(match, &match->model->entries[i], &match->files->entries[i]));
out:
  return status;
}
