/* Rendering of chats. Special tokens are variables of the template, then the caller's options, then the messages. */
#include "chat/chat_parts.h"

#include "base/alloc.h"
#include "base/sized.h"
#include "base/text.h"
#include "io/json.h"

#include "jinja/jinja_time.h"

#include <string.h>

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
    if (!json_is_string(given)) REFUSE("chat_template is not a text");
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
    TRY(treadle_fail(TREADLE_REFUSED, "'%.60s' is not a time: 2025-03-14T15:09:26 is one", o.now));
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
