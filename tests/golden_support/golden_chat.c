/* Chats (chat.json.gz): chat templates, lists of messages, and what transformers made of them. Each template is opened as that of a folder, from
 * a tokenizer_config.json. */
#include "golden_support/golden_recording.h"

#include "base/alloc.h"
#include "chat/chat.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct template_work {
  golden_recording *r;
  json_t *lists;
  const char *now, *name;
} template_work;

static treadle_chat *open_chat(json_t *one) {
  char folder[] = "/tmp/treadle-golden-XXXXXX", path[64];
  treadle_chat *chat = NULL;
  json_t *config = json_copy(json_object_get(one, "special_tokens"));
  json_object_set(config, "chat_template", json_object_get(one, "template"));
  if (mkdtemp(folder)) {
    snprintf(path, sizeof path, "%s/tokenizer_config.json", folder);
    if (json_dump_file(config, path, 0) == 0) treadle_chat_open(folder, &chat);
    unlink(path);
    rmdir(folder);
  }
  json_decref(config);
  return chat;
}

static bool same_spans(json_t *wanted, const treadle_jinja_spans *spans) {
  if (!wanted) return true;
  if (json_array_size(wanted) != spans->count) return false;
  for (size_t i = 0; i < spans->count; i++) {
    json_t *span = json_array_get(wanted, i);
    if ((size_t)json_integer_value(json_array_get(span, 0)) != spans->items[i].start ||
        (size_t)json_integer_value(json_array_get(span, 1)) != spans->items[i].end)
      return false;
  }
  return true;
}

/* An error is refused; the text of raise_exception ends the message. */
static bool same_error(json_t *error, treadle_status status) {
  const char *message = treadle_error_message(),
             *text = json_string_value(json_object_get(error, "message"));
  if (status != TREADLE_REFUSED) return false;
  if (strcmp(json_string_value(json_object_get(error, "type")), "TemplateError") != 0) return true;
  size_t length = strlen(message), more = strlen(text);
  return length >= more && strcmp(message + length - more, text) == 0;
}

static const char *missing_in(const template_work *w, json_t *one, char reason_p[GOLDEN_REASON]) {
  json_t *error = json_object_get(one, "error"), *messages = json_object_get(one, "messages");
  if (!golden_keys(one, "x:messages o:options ?s:output ?o:error ?l:generation", reason_p) ||
      (error && !golden_keys(error, "s:type s:message", reason_p)))
    return reason_p;
  if (!error == !json_object_get(one, "output")) return "it has to have either 'output' or 'error'";
  if (!json_is_integer(messages) ||
      !json_is_array(
          json_object_get(json_array_get(w->lists, (size_t)json_integer_value(messages)), "messages")))
    return "its 'messages' names no list";
  return NULL;
}

static void check(const template_work *w, const treadle_chat *chat, json_t *one, size_t number) {
  size_t list = (size_t)json_integer_value(json_object_get(one, "messages"));
  json_t *messages = json_object_get(json_array_get(w->lists, list), "messages");
  json_t *output = json_object_get(one, "output"), *error = json_object_get(one, "error");
  char *given = json_dumps(messages, 0), *variables = json_dumps(json_object_get(one, "options"), 0),
       *text = NULL;
  size_t bytes = 0;
  treadle_jinja_spans spans = {0};
  treadle_chat_options options = {sizeof options, variables, w->now};
  treadle_status status = treadle_chat_render_spans(chat, given, &options, &text, &bytes, &spans);
  bool equal = output && status == TREADLE_OK && bytes == json_string_length(output) &&
               memcmp(text, json_string_value(output), bytes) == 0 &&
               same_spans(json_object_get(one, "generation"), &spans),
       refused = error && same_error(error, status);
  golden_count(w->r, (golden_counts){.equal = equal, .refused = refused, .different = !equal && !refused});
  if (!equal && !refused)
    golden_say(w->r, "%s case %zu, messages %zu, %s\n  got %s", w->name, number, list, variables,
               status == TREADLE_OK ? text : treadle_error_message());
  treadle_array_release(&spans);
  treadle_free(text);
  free(variables);
  free(given);
}

static void check_template(template_work *w, json_t *one, size_t number) {
  json_t *cases = json_object_get(one, "cases"), *each;
  char reason[GOLDEN_REASON];
  size_t i;
  w->name = json_string_value(json_object_get(one, "name"));
  if (!golden_keys(one, "s:name ?x:source ?x:licence ?x:note o:special_tokens s:template l:cases",
                   reason)) {
    golden_skip(w->r, 1, "template %zu: %s", number, reason);
    return;
  }
  treadle_chat *chat = open_chat(one);
  if (!chat) golden_say(w->r, "%s: %s", w->name, treadle_error_message());
  json_array_foreach(cases, i, each) {
    const char *missing = missing_in(w, each, reason);
    if (missing)
      golden_skip(w->r, 1, "%s case %zu: %s", w->name, i, missing);
    else if (!chat)
      golden_count(w->r, (golden_counts){.different = 1});
    else
      check(w, chat, each, i);
  }
  treadle_chat_close(chat);
}

void golden_check_chats(golden_recording *r) {
  json_t *templates = json_object_get(r->root, "templates"), *one;
  template_work w = {r, json_object_get(r->root, "message_lists"),
                     json_string_value(json_object_get(r->root, "now")), NULL};
  size_t i;
  if (!w.now) {
    golden_refuse(r, "it has no 'now'");
    return;
  }
  json_array_foreach(templates, i, one) check_template(&w, one, i);
}
