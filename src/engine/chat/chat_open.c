/* Finding the templates and special tokens of a model.
 *
 * Templates of a folder: chat_template.jinja and additional_chat_templates/NAME.jinja; else `chat_template` of tokenizer_config.json, a text or
 * a list of templates with names; else chat_template.json. Special tokens are variables of the template: those of tokenizer_config.json, and
 * of special_tokens_map.json where that says nothing of them. */
#include "chat/chat_parts.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/text.h"
#include "io/file.h"
#include "io/folder.h"
#include "io/json.h"
#include "token/tokenizer.h"

#include <stdio.h>
#include <string.h>

enum { LARGEST_FILE = 16 << 20, MAX_PATH = 4096 };

static treadle_status add_template(treadle_chat *chat, const char *name, const char *what, const char *text,
                                   size_t length) {
  treadle_chat_template one = {0};
  treadle_status status;
  size_t bytes = strlen(name) + 1;
  TRY(treadle_jinja_parse(what, text, length, &one.template));
  one.name = treadle_alloc(bytes);
  if (!one.name) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for chat templates"));
  memcpy(one.name, name, bytes);
  TRY(treadle_array_push(&chat->templates, one));
  return TREADLE_OK;
out:
  treadle_jinja_destroy(one.template);
  treadle_free(one.name);
  return status;
}

/* `chat_template` of a file: a text, or [{"name": ..., "template": ...}, ...]. */
static treadle_status add_of_json(treadle_chat *chat, const char *path, json_t *given) {
  char what[MAX_PATH + 300];
  size_t i;
  json_t *one;
  snprintf(what, sizeof what, "%s: chat_template", path);
  if (json_is_string(given))
    return add_template(chat, "default", what, json_string_value(given), json_string_length(given));
  if (!json_is_array(given)) REFUSE("%s is neither a text nor a list", what);
  json_array_foreach(given, i, one) {
    json_t *name = json_object_get(one, "name"), *text = json_object_get(one, "template");
    if (!json_is_string(name) || !json_is_string(text))
      REFUSE("%s: item %zu has no name or no template", what, i);
    snprintf(what, sizeof what, "%s: chat_template '%.200s'", path, json_string_value(name));
    treadle_status status = add_template(chat, json_string_value(name), what, json_string_value(text),
                                         json_string_length(text));
    if (status != TREADLE_OK) return status;
  }
  return TREADLE_OK;
}

/* A token is a text or an object with its text as `content`. */
static treadle_status add_token(treadle_chat *chat, const char *name, json_t *token) {
  json_t *text = treadle_json_is_object(token) ? json_object_get(token, "content") : token;
  if (treadle_json_odd(text)) REFUSE("%s is not a text%s", name, treadle_json_note(text));
  if (!json_is_string(text)) return TREADLE_OK;
  if (json_object_set(chat->tokens, name, text) == 0) return TREADLE_OK;
  return treadle_fail(TREADLE_NO_MEMORY, "no memory for special tokens");
}

/* Those of a tokenizer of characters (token/tokenizer_chars.c), which the file does not say. */
static treadle_status add_tokens_of_chars(treadle_chat *chat) {
  for (int i = 0; i < TREADLE_CHAR_TOKENS; i++)
    if (json_object_set_new(chat->tokens, treadle_character_tokens[i].name,
                            json_string(treadle_character_tokens[i].text)) != 0)
      return treadle_fail(TREADLE_NO_MEMORY, "no memory for special tokens");
  return TREADLE_OK;
}

/* Keys that end with _token, and those of extra_special_tokens; `beside` has keys that are not looked at. */
static treadle_status add_tokens(treadle_chat *chat, json_t *root, json_t *beside) {
  const char *key;
  json_t *token;
  treadle_status status = TREADLE_OK;
  json_object_foreach(root, key, token) {
    size_t length = strlen(key);
    if (length < 6 || strcmp(key + length - 6, "_token") != 0 || json_object_get(beside, key)) continue;
    TRY(add_token(chat, key, token));
  }
  if (json_object_get(root, "char_ords")) TRY(add_tokens_of_chars(chat));
  json_t *extra = json_object_get(root, "extra_special_tokens");
  json_object_foreach(treadle_json_is_object(extra) ? extra : NULL, key, token) {
    if (!json_object_get(beside, key)) TRY(add_token(chat, key, token));
  }
out:
  return status;
}

/* A file of JSON, an object; NULL where there is none. */
static treadle_status load(const char *path, json_t **root_p) {
  *root_p = NULL;
  if (!treadle_file_exists(path)) return TREADLE_OK;
  treadle_status status = treadle_json_load(path, root_p);
  if (status == TREADLE_OK && !treadle_json_is_object(*root_p)) REFUSE("%s: no object", path);
  return status;
}

static treadle_status open_text(treadle_chat *chat, const char *name, const char *path) {
  char *text = NULL;
  size_t length;
  treadle_status status;
  TRY(treadle_file_read(path, LARGEST_FILE, &text, &length));
  TRY(add_template(chat, name, path, text, length));
out:
  treadle_free(text);
  return status;
}

/* chat_template.jinja, and those of additional_chat_templates/. */
static treadle_status open_texts(treadle_chat *chat, const char *folder, const char *first) {
  char path[MAX_PATH];
  treadle_arena arena = {0};
  treadle_folder_names names = {0};
  treadle_status status = TREADLE_OK;
  if (treadle_file_exists(first)) TRY(open_text(chat, "default", first));
  TRY(treadle_folder_list_templates(folder, &arena, &names));
  for (size_t i = 0; i < names.count; i++) {
    if (snprintf(path, sizeof path, "%s/" TREADLE_TEMPLATES_FOLDER "/%s.jinja", folder, names.items[i]) >=
        MAX_PATH)
      TRY(treadle_fail(TREADLE_REFUSED, "a path is longer than %d bytes", MAX_PATH));
    TRY(open_text(chat, names.items[i], path));
  }
out:
  treadle_array_release(&names);
  treadle_arena_release(&arena);
  return status;
}

/* Without a template it has none afterwards. */
static treadle_status open_folder(treadle_chat *chat, const char *folder) {
  char path[4][MAX_PATH];
  static const char *const names[] = {"tokenizer_config.json", "special_tokens_map.json",
                                      "chat_template.jinja", "chat_template.json"};
  json_t *config = NULL, *map = NULL, *other = NULL;
  treadle_status status = TREADLE_OK;
  for (int i = 0; i < 4; i++)
    if (snprintf(path[i], MAX_PATH, "%s/%s", folder, names[i]) >= MAX_PATH)
      REFUSE("a path is longer than %d bytes", MAX_PATH);
  TRY(load(path[0], &config));
  TRY(load(path[1], &map));
  TRY(add_tokens(chat, config, NULL));
  TRY(add_tokens(chat, map, config));
  json_t *given = json_object_get(config, "chat_template");
  TRY(open_texts(chat, folder, path[2]));
  if (chat->templates.count) goto out;
  if (given && !json_is_null(given))
    TRY(add_of_json(chat, path[0], given));
  else {
    TRY(load(path[3], &other));
    given = json_object_get(other, "chat_template");
    if (given) TRY(add_of_json(chat, path[3], given));
  }
out:
  json_decref(config);
  json_decref(map);
  json_decref(other);
  return status;
}

/* A tokenizer_config.json alone. */
static treadle_status open_config(treadle_chat *chat, const char *path) {
  json_t *config = NULL;
  treadle_status status;
  TRY(treadle_json_load(path, &config));
  TRY(add_tokens(chat, config, NULL));
  json_t *given = json_object_get(config, "chat_template");
  if (!given) TRY(treadle_fail(TREADLE_REFUSED, "%s: there is no chat_template", path));
  TRY(add_of_json(chat, path, given));
out:
  json_decref(config);
  return status;
}

static treadle_status make(treadle_chat **chat_p) {
  treadle_chat *chat = treadle_alloc(sizeof *chat);
  if (chat) chat->tokens = json_object();
  if (chat && chat->tokens) {
    *chat_p = chat;
    return TREADLE_OK;
  }
  treadle_chat_close(chat);
  return treadle_fail(TREADLE_NO_MEMORY, "no memory for a chat");
}

treadle_status treadle_chat_find(const char *path, treadle_chat **chat_p) {
  char folder[MAX_PATH];
  treadle_chat *chat = NULL;
  treadle_status status;
  TREADLE_NEED(chat_p);
  *chat_p = NULL;
  TREADLE_NEED(path);
  if (strlen(path) >= sizeof folder) REFUSE("a path is longer than %d bytes", MAX_PATH);
  strcpy(folder, path);
  if (!treadle_file_is_folder(path)) {
    char *slash = strrchr(folder, '/');
    if (slash)
      slash[slash == folder] = 0;
    else
      strcpy(folder, ".");
  }
  TRY(make(&chat));
  TRY(open_folder(chat, folder));
  if (chat->templates.count == 0) goto out;
  *chat_p = chat;
  chat = NULL;
out:
  treadle_chat_close(chat);
  return status;
}

treadle_status treadle_chat_open(const char *path, treadle_chat **chat_p) {
  treadle_chat *chat = NULL;
  treadle_status status;
  TREADLE_NEED(chat_p);
  *chat_p = NULL;
  TREADLE_NEED(path);
  TRY(make(&chat));
  size_t length = strlen(path);
  bool json = length > 5 && strcmp(path + length - 5, ".json") == 0;
  TRY(treadle_file_is_folder(path) ? open_folder(chat, path)
      : json                       ? open_config(chat, path)
                                   : open_text(chat, "default", path));
  if (chat->templates.count == 0)
    TRY(treadle_fail(TREADLE_REFUSED,
                     "%s: there is no chat template, neither a chat_template.jinja nor a chat_template in "
                     "tokenizer_config.json",
                     path));
  *chat_p = chat;
  chat = NULL;
out:
  treadle_chat_close(chat);
  return status;
}

void treadle_chat_close(treadle_chat *chat) {
  if (!chat) return;
  for (size_t i = 0; i < chat->templates.count; i++) {
    treadle_jinja_destroy(chat->templates.items[i].template);
    treadle_free(chat->templates.items[i].name);
  }
  treadle_array_release(&chat->templates);
  json_decref(chat->tokens);
  treadle_free(chat);
}
