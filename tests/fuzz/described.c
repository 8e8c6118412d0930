/* A model, ranks and layouts in a few words. */
#include "described.h"

#include "model/build.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* Tensors and experts of a real model are as many as these, and no more: layouts take time by them. */
enum { MOST_TENSORS = 20000, MOST_TEXT = 2000 };

static const char fields[] =
    "{\"vocab_size\": 90, \"hidden_size\": 24, \"num_hidden_layers\": 3, \"num_attention_heads\": 8,"
    " \"num_key_value_heads\": 4, \"head_dim\": 4, \"intermediate_size\": 48, \"torch_dtype\": "
    "\"bfloat16\","
    " \"tie_word_embeddings\": false, \"n_routed_experts\": 8, \"num_local_experts\": 8, \"num_experts\": "
    "8,"
    " \"moe_intermediate_size\": 16, \"shared_expert_intermediate_size\": 16, \"n_shared_experts\": 1,"
    " \"first_k_dense_replace\": 1, \"moe_layer_freq\": 1, \"n_group\": 4, \"q_lora_rank\": 4,"
    " \"kv_lora_rank\": 4, \"qk_nope_head_dim\": 4, \"qk_rope_head_dim\": 2, \"v_head_dim\": 2,"
    " \"full_attention_interval\": 2, \"linear_num_key_heads\": 4, \"linear_num_value_heads\": 8,"
    " \"linear_key_head_dim\": 4, \"linear_value_head_dim\": 4, \"linear_conv_kernel_dim\": 4}";

/* A model whose family those of the type share: families are read once, not for each input. NULL: there is none. */
static const treadle_model *like(const char *type) {
  enum { TYPES = 64 };
  static treadle_model *models[TYPES];
  static char types[TYPES][32];
  int i = 0;
  for (; i < TYPES && *types[i]; i++)
    if (strcmp(types[i], type) == 0) return models[i];
  json_t *config = json_loads(fields, 0, NULL), *name = json_string(type);
  if (i < TYPES && name && strlen(type) < sizeof types[0]) {
    json_object_set(config, "model_type", name);
    if (treadle_model_from_config("config", config, NULL, &models[i]) == TREADLE_OK) strcpy(types[i], type);
  }
  json_decref(name);
  json_decref(config);
  return i < TYPES ? models[i] : NULL;
}

/* The end of a value: a blank outside of brackets and quotes. */
static char *end_of_value(char *at) {
  int depth = 0;
  bool quoted = false;
  for (; *at; at++) {
    if (*at == '"') quoted = !quoted;
    if (!quoted && (*at == '{' || *at == '[')) depth++;
    if (!quoted && (*at == '}' || *at == ']')) depth--;
    if (!quoted && depth <= 0 && *at == ' ') break;
  }
  return at;
}

/* `line` becomes the type alone. */
static json_t *read_config(char *line) {
  json_t *config = json_loads(fields, 0, NULL);
  char *at = line + strcspn(line, " ");
  if (*at) *at++ = 0;
  json_t *name = json_string(line);
  if (name) json_object_set_new(config, "model_type", name);
  while (*at) {
    char *equals = strchr(at, '='), *end = equals ? end_of_value(equals + 1) : NULL;
    if (!end) break;
    bool more = *end;
    *equals = *end = 0;
    json_t *value = json_loads(equals + 1, JSON_DECODE_ANY, NULL);
    if (value)
      json_object_set_new(config, at, value);
    else
      json_object_del(config, at);
    at = more ? end + 1 : end;
  }
  return config;
}

static void read_numbers(char *line, described *d) {
  const struct {
    const char *name;
    int64_t *number;
  } names[] = {{"ranks=", &d->ranks}, {"rank=", &d->rank}, {"page=", &d->page},  {"cap=", &d->cap},
               {"alias=", &d->alias}, {"map=", &d->map},   {"waves=", &d->waves}};
  for (char *rest, *word = strtok_r(line, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
      if (strncmp(word, names[i].name, strlen(names[i].name)) == 0)
        *names[i].number = strtoll(word + strlen(names[i].name), NULL, 10);
}

void described_read(const uint8_t *bytes, size_t count, described *d) {
  *d = (described){.ranks = 1, .page = 4096, .layouts = {"", ""}};
  if (count > MOST_TEXT || memchr(bytes, '@', count)) return; /* no files: they would be of this machine */
  d->text = calloc(count + 1, 1);
  if (!d->text) abort();
  memcpy(d->text, bytes, count);
  char *rest, *line = strtok_r(d->text, "\n", &rest);
  if (!line) return;
  json_t *config = read_config(line);
  const treadle_model *family = like(line);
  line = strtok_r(NULL, "\n", &rest);
  if (line) read_numbers(line, d);
  for (int i = 0; line && i < DESCRIBED_LAYOUTS && (line = strtok_r(NULL, "\n", &rest)); i++)
    d->layouts[i] = line;
  treadle_status status = family ? treadle_model_like(family, "config", config, &d->model)
                                 : treadle_fail(TREADLE_REFUSED, "no such family");
  if (status && (status != TREADLE_REFUSED || !*treadle_error_message() || d->model)) __builtin_trap();
  if (!status && treadle_model_tensor_count(d->model) > MOST_TENSORS) {
    treadle_model_close(d->model);
    d->model = NULL;
  }
  json_decref(config);
}

void described_release(described *d) {
  treadle_model_close(d->model);
  free(d->text);
}
