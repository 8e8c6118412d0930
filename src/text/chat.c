/* Chats: finding the templates and special tokens of a model, and rendering.
 *
 * Templates of a folder: chat_template.jinja and additional_chat_templates/NAME.jinja; else `chat_template` of tokenizer_config.json, a text or a list of templates with names;
 * else chat_template.json. Special tokens are variables of the template: those of tokenizer_config.json, and of
 * special_tokens_map.json where that says nothing of them. */
#include "text/chat.h"

#include "base/alloc.h"
#include "base/sized.h"
#include "base/text.h"
#include "io/file.h"
#include "io/folder.h"
#include "io/json.h"
#include "text/tokenizer.h"

#include "text/jinja_time.h"

#include <stdio.h>
#include <string.h>

enum { LARGEST_FILE = 16 << 20, MAX_PATH = 4096 };

typedef struct named_template {
  char *name;
  treadle_jinja_template *template;
} named_template;

struct treadle_chat {
  TREADLE_ARRAY(named_template) templates;
  json_t *tokens; /* special tokens: an object of texts */
};

/* ---- Opening --------------------------------------------------------------------------------------- */

static treadle_status add_template(treadle_chat *chat, const char *name, const char *what, const char *text,
                                   size_t length) {
  named_template one = {0};
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

/* Those of a tokenizer of characters (tokenizer_chars.c), which the file does not say. */
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

/* ---- Rendering ------------------------------------------------------------------------------------- */

static const treadle_jinja_template *find_template(const treadle_chat *chat, const char *name) {
  for (size_t i = chat->templates.count; i > 0;
       i--) /* of a name that stands twice the last counts, as in Python */
    if (strcmp(chat->templates.items[i - 1].name, name) == 0) return chat->templates.items[i - 1].template;
  return NULL;
}

/* A word without a sign of Jinja is the name of a template that is not there. */
static treadle_status check_is_template(const treadle_chat *chat, const char *text, size_t bytes) {
  treadle_builder names = {0};
  if (bytes == 0) return TREADLE_OK;
  for (size_t i = 0; i < bytes; i++)
    if (memchr(" \t\r\n{", text[i], 5)) return TREADLE_OK;
  for (size_t i = 0; i < chat->templates.count; i++)
    treadle_builder_add(&names, "%s'%.60s'", i ? ", " : "", chat->templates.items[i].name);
  treadle_status status = treadle_fail(
      TREADLE_REFUSED, "chat_template '%.60s' is neither a template nor the name of one; there is %.200s",
      text, names.text ? names.text : "none");
  treadle_builder_release(&names);
  return status;
}

/* The one that `chat_template` names, or is (*made_p, to be destroyed); that for tools; the default. */
static treadle_status choose(const treadle_chat *chat, json_t *variables, treadle_jinja_template **made_p,
                             const treadle_jinja_template **template_p) {
  json_t *given = json_object_get(variables, "chat_template"), *tools = json_object_get(variables, "tools");
  *template_p = NULL;
  if (given && !json_is_null(given)) {
    if (!json_is_string(given)) REFUSE("chat_template is no text");
    *template_p = find_template(chat, json_string_value(given));
    if (*template_p) return TREADLE_OK;
    treadle_status status = check_is_template(chat, json_string_value(given), json_string_length(given));
    if (status) return status;
    status =
        treadle_jinja_parse("chat_template", json_string_value(given), json_string_length(given), made_p);
    *template_p = *made_p;
    return status;
  }
  if (tools && !json_is_null(tools)) *template_p = find_template(chat, "tool_use");
  if (!*template_p) *template_p = find_template(chat, "default");
  if (*template_p) return TREADLE_OK;
  REFUSE("none of the %zu chat templates is named 'default' (the first is '%s'): chat_template names one",
         chat->templates.count, chat->templates.items[0].name);
}

/* Takes a flag out of the variables. */
static treadle_status take_flag(json_t *variables, const char *name, bool *flag_p) {
  json_t *flag = json_object_get(variables, name);
  *flag_p = json_is_true(flag);
  if (flag && !json_is_boolean(flag) && !json_is_null(flag)) REFUSE("%s is true or false", name);
  return TREADLE_OK;
}

/* Special tokens, then the caller's options, then the messages; what a template always sees. */
static treadle_status make_variables(const treadle_chat *chat, json_t *options, json_t *messages,
                                     json_t **variables_p) {
  json_t *all = json_copy(chat->tokens);
  *variables_p = all;
  bool made = all && json_object_set_new(all, "tools", json_null()) == 0 &&
              json_object_set_new(all, "documents", json_null()) == 0 &&
              json_object_set_new(all, "add_generation_prompt", json_false()) == 0 &&
              (!options || json_object_update(all, options) == 0) &&
              json_object_set(all, "messages", messages) == 0;
  json_object_del(all, "chat_template");
  json_object_del(all, "continue_final_message");
  return made ? TREADLE_OK : treadle_fail(TREADLE_NO_MEMORY, "no memory for the variables of a chat");
}

static treadle_status parse_options(const treadle_chat_options *o, json_t **options_p) {
  treadle_status status = TREADLE_OK;
  if (!o->variables) return TREADLE_OK;
  const treadle_json_source source = {
      .what = "options of the chat", .text = o->variables, .count = strlen(o->variables), .zeros = true};
  status = treadle_json_read(&source, options_p);
  if (status != TREADLE_OK) return status;
  if (!treadle_json_is_object(*options_p)) REFUSE("options of the chat are no object");
  if (json_object_get(*options_p, "messages"))
    REFUSE("options of the chat have 'messages', which are given beside them");
  return TREADLE_OK;
}

treadle_status treadle_chat_render_spans(const treadle_chat *chat, const char *messages,
                                         const treadle_chat_options *options, char **text_p,
                                         size_t *bytes_p, treadle_jinja_spans *spans_p) {
  treadle_chat_options o;
  json_t *list = NULL, *given = NULL, *variables = NULL;
  treadle_jinja_template *made = NULL;
  const treadle_jinja_template *template;
  char *content = NULL, *text = NULL;
  bool goes_on, prompted;
  treadle_status status;
  TRY(treadle_sized_take("treadle_chat_render", "options", options, &o, sizeof o));
  if (o.now && !treadle_jinja_is_time(o.now))
    TRY(treadle_fail(TREADLE_REFUSED, "'%.60s' is no time: 2025-03-14T15:09:26 is one", o.now));
  const treadle_json_source source = {
      .what = "messages", .text = messages, .count = strlen(messages), .zeros = true};
  TRY(treadle_json_read(&source, &list));
  TRY(parse_options(&o, &given));
  TRY(treadle_chat_prepare(list));
  TRY(choose(chat, given, &made, &template));
  TRY(take_flag(given, "continue_final_message", &goes_on));
  TRY(take_flag(given, "add_generation_prompt", &prompted));
  if (goes_on && prompted)
    TRY(treadle_fail(TREADLE_REFUSED,
                     "continue_final_message and add_generation_prompt exclude each other"));
  if (goes_on) TRY(treadle_chat_mark_end(list, &content));
  TRY(make_variables(chat, given, list, &variables));
  treadle_jinja_options limits = {.now = o.now};
  TRY(treadle_jinja_render(template, variables, &limits, &text, bytes_p, spans_p));
  if (goes_on) TRY(treadle_chat_cut(text, bytes_p, content));
  *text_p = text;
  text = NULL;
out:
  json_decref(list);
  json_decref(given);
  json_decref(variables);
  treadle_jinja_destroy(made);
  treadle_free(content);
  treadle_free(text);
  return status;
}

treadle_status treadle_chat_render(const treadle_chat *chat, const char *messages,
                                   const treadle_chat_options *options, char **text_p, size_t *bytes_p) {
  TREADLE_NEED(text_p);
  *text_p = NULL;
  TREADLE_NEED(bytes_p);
  *bytes_p = 0;
  TREADLE_NEED(chat);
  TREADLE_NEED(messages);
  return treadle_chat_render_spans(chat, messages, options, text_p, bytes_p, NULL);
}
