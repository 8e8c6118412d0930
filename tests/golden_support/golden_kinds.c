/* What a golden file is, by its fields, and what its cases may hold. */
#include "golden_support/golden_recording.h"

#include <stdarg.h>
#include <string.h>
#include <unistd.h>

static void skip_gradients(golden_recording *r) {
  golden_skip(r, 1, "gradients: the library does not train");
}

/* A kind: keys of the file, then of its first case. */
static const struct {
  const char *keys[3], *list, *case_keys[3];
  void (*check)(golden_recording *r);
} kinds[] = {
    {{"tokenizers"}, NULL, {NULL}, golden_check_tokenizers},
    {{"templates", "message_lists"}, NULL, {NULL}, golden_check_chats},
    {{NULL}, "cases", {"template", "context"}, golden_check_jinja},
    {{NULL}, "cases", {"logits", "params"}, golden_check_sampling},
    {{"models"}, "models", {"path", "prompts"}, golden_check_real_models},
    {{"prompts", "tolerance"}, "prompts", {"prompt_token_ids", "gap"}, golden_check_logits},
    {{"loss", "grad_norm", "tensors"}, NULL, {NULL}, skip_gradients},
};

static bool has_all(const json_t *object, const char *const keys[3]) {
  for (int i = 0; i < 3 && keys[i]; i++)
    if (!json_object_get(object, keys[i])) return false;
  return true;
}

bool golden_check_kind(golden_recording *r) {
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    const json_t *list = kinds[k].list ? json_object_get(r->root, kinds[k].list) : NULL;
    if (!has_all(r->root, kinds[k].keys)) continue;
    if (kinds[k].list && !has_all(json_array_get(list, 0), kinds[k].case_keys)) continue;
    kinds[k].check(r);
    return true;
  }
  return false;
}

const char *golden_kind_of_part(const char *path) {
  static const char *const names[] = {"config.json", "model.safetensors", "logits.safetensors",
                                      "grads.safetensors", "rows.jsonl"};
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  char beside[1100];
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (strcmp(name, names[i]) != 0) continue;
    snprintf(beside, sizeof beside, "%.*sexpected.json", (int)(name - path), path);
    if (access(beside, R_OK) == 0) return "it is read with the expected.json beside it";
  }
  return NULL;
}

/* ---- Keys ------------------------------------------------------------------------------------------ */

static bool is_list_of(const json_t *value, char type) {
  if (!json_is_array(value)) return false;
  for (size_t i = 0; i < json_array_size(value); i++) {
    const json_t *one = json_array_get(value, i);
    if (type == 'i' ? !json_is_integer(one) : type == 'f' ? !json_is_number(one) : !json_is_string(one))
      return false;
  }
  return true;
}

static bool is_of_type(const json_t *value, char type) {
  switch (type) {
  case 's': return json_is_string(value);
  case 'n': return json_is_number(value);
  case 'b': return json_is_boolean(value);
  case 'o': return json_is_object(value);
  case 'l': return json_is_array(value);
  case 'x': return true;
  default: return is_list_of(value, type);
  }
}

static bool fail(char *reason, const char *format, ...) {
  va_list values;
  va_start(values, format);
  vsnprintf(reason, GOLDEN_REASON, format, values);
  va_end(values);
  return false;
}

/* Does "s:text ?i:ids" have the key? */
static bool is_listed(const char *keys, const char *key) {
  size_t length = strlen(key);
  for (const char *at = keys; (at = strchr(at, ':')); at++)
    if (strncmp(at + 1, key, length) == 0 && (at[1 + length] == ' ' || !at[1 + length])) return true;
  return false;
}

bool golden_keys(json_t *item, const char *keys, char reason_p[GOLDEN_REASON]) {
  if (!json_is_object(item)) return fail(reason_p, "it is not an object");
  for (const char *at = keys; *at;) {
    char name[64];
    size_t length = strcspn(at, " ");
    bool optional = *at == '?';
    snprintf(name, sizeof name, "%.*s", (int)(length - optional - 2), at + optional + 2);
    const json_t *value = json_object_get(item, name);
    if (!value && !optional) return fail(reason_p, "it has no '%s'", name);
    if (value && !is_of_type(value, at[optional]))
      return fail(reason_p, "its '%s' is of another type", name);
    at += length + (at[length] == ' ');
  }
  const char *key;
  json_t *value;
  json_object_foreach(item, key, value) {
    if (!is_listed(keys, key)) return fail(reason_p, "nobody knows its '%s'", key);
  }
  return true;
}
