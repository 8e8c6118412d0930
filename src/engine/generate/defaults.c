/* What a model's folder says of sampling, and which tokens end a text: the tokenizer's own end token and those of generation_config.json,
 * or of config.json where that has none. */
#include "generate/generator.h"

#include "base/argument.h"
#include "base/text.h"
#include "generate/unheard.h"
#include "io/file_look.h"
#include "io/json.h"
#include "token/tokenizer.h"
#include "treadle_tools.h"

#include <string.h>

/* The folder of a model that was opened by its folder, or by its config.json. */
static char *path_beside(const treadle_model *model, treadle_arena *arena, const char *name) {
  const char *path = model->path;
  size_t length = strlen(path);
  if (length >= 5 && strcmp(path + length - 5, ".json") == 0) {
    const char *slash = strrchr(path, '/');
    return slash ? treadle_arena_format(arena, "%.*s/%s", (int)(slash - path), path, name)
                 : treadle_arena_format(arena, "%s", name);
  }
  return treadle_arena_format(arena, "%s/%s", path, name);
}

/* *root_p is NULL where there is no generation_config.json. */
static treadle_status load_generation(const treadle_model *model, treadle_arena *arena, const char **path_p,
                                      json_t **root_p) {
  treadle_file_type type;
  treadle_status status;
  const char *path = path_beside(model, arena, "generation_config.json");
  if (!path) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a path");
  *path_p = path;
  *root_p = NULL;
  TRY(treadle_file_look(path, &type));
  if (type == TREADLE_FILE_PLAIN) TRY(treadle_json_load(path, root_p));
out:
  return status;
}

/* The tokenizer's end token comes first: generators stop at it whatever the files of the model say. */
static treadle_status put_own(const treadle_transformer *transformer, const treadle_tokenizer *tokenizer,
                              treadle_arena *arena, treadle_eos *eos) {
  int32_t own = tokenizer ? tokenizer->special[TREADLE_EOS] : -1, count = 0;
  if (own < 0) return TREADLE_OK;
  if (own >= transformer->vocabulary)
    REFUSE(
        "the tokenizer's end token (eos_token) has the id %d, and the model of %s has a vocabulary of %lld",
        (int)own, transformer->model->path, (long long)transformer->vocabulary);
  int32_t *ids = treadle_arena_alloc_array(arena, (size_t)eos->count + 1, sizeof *ids);
  if (!ids) return treadle_fail(TREADLE_NO_MEMORY, "no memory for end tokens");
  ids[count++] = own;
  for (int32_t i = 0; i < eos->count; i++)
    if (eos->ids[i] != own) ids[count++] = eos->ids[i];
  *eos = (treadle_eos){ids, count};
  return TREADLE_OK;
}

static treadle_status find_eos(const treadle_transformer *transformer, const treadle_tokenizer *tokenizer,
                               const char *path, const json_t *generation, treadle_arena *arena,
                               treadle_eos *eos_p) {
  const json_t *configs[] = {generation, treadle_transformer_config(transformer),
                             transformer->model->config};
  treadle_status status = TREADLE_OK;
  *eos_p = (treadle_eos){0};
  for (int i = 0; i < 3 && !eos_p->count; i++) {
    const char *what = i ? transformer->model->path : path;
    if (configs[i]) TRY(treadle_eos_read(what, configs[i], arena, eos_p));
    for (int32_t id = 0; id < eos_p->count; id++)
      if (eos_p->ids[id] >= transformer->vocabulary)
        REFUSE("%s: eos_token_id %d is not in the vocabulary of %lld", what, (int)eos_p->ids[id],
               (long long)transformer->vocabulary);
  }
  TRY(put_own(transformer, tokenizer, arena, eos_p));
out:
  return status;
}

treadle_status treadle_transformer_sampling(const treadle_transformer *transformer,
                                            const treadle_tokenizer *tokenizer, treadle_arena *arena,
                                            treadle_sampling_values *sampling_p, treadle_eos *eos_p) {
  json_t *config = NULL;
  const char *path;
  treadle_status status;
  if (sampling_p) treadle_sampling_default(sampling_p);
  TRY(load_generation(transformer->model, arena, &path, &config));
  if (config && sampling_p) TRY(treadle_sampling_read_config(path, config, sampling_p));
  status = find_eos(transformer, tokenizer, path, config, arena, eos_p);
out:
  json_decref(config);
  return status;
}

treadle_status treadle_defaults_check(const treadle_transformer *transformer,
                                      const treadle_tokenizer *tokenizer, bool draws) {
  treadle_arena arena = {0};
  treadle_sampling_values sampling;
  treadle_eos eos;
  treadle_status status =
      treadle_transformer_sampling(transformer, tokenizer, &arena, draws ? &sampling : NULL, &eos);
  treadle_arena_release(&arena);
  return status;
}

treadle_status treadle_model_unheard(const treadle_model *model, char *line, size_t room) {
  treadle_arena arena = {0};
  treadle_builder names = {0};
  json_t *config = NULL;
  const char *path;
  treadle_status status;
  TREADLE_NEED(model);
  TREADLE_NEED(line);
  if (room) *line = 0;
  TRY(load_generation(model, &arena, &path, &config));
  treadle_generation_unheard(config, &names);
  if (names.failed) TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for names", path));
  if (names.text)
    snprintf(line, room, "%s: not heard, though transformers generates other tokens with it: %s", path,
             names.text);
out:
  treadle_builder_release(&names);
  json_decref(config);
  treadle_arena_release(&arena);
  return status;
}
