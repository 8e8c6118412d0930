/* chat.json.gz: chat templates, lists of messages, and what transformers made of them. Each template is opened as that of a folder, from
 * a tokenizer_config.json. */
#include "text/golden_text.h"

#include "base/alloc.h"
#include "text/chat.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct file {
  json_t *lists;
  const char *now, *name;
  FILE *differences;
  golden_counts *counts;
} file;

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

static void check(const file *f, const treadle_chat *chat, json_t *one) {
  size_t list = (size_t)json_integer_value(json_object_get(one, "messages"));
  json_t *messages = json_object_get(json_array_get(f->lists, list), "messages");
  json_t *output = json_object_get(one, "output"), *error = json_object_get(one, "error");
  char *given = json_dumps(messages, 0), *variables = json_dumps(json_object_get(one, "options"), 0),
       *text = NULL;
  size_t bytes = 0;
  treadle_jinja_spans spans = {0};
  treadle_chat_options options = {sizeof options, variables, f->now};
  treadle_status status = treadle_chat_render_spans(chat, given, &options, &text, &bytes, &spans);
  f->counts->cases++;
  if (output && status == TREADLE_OK && bytes == json_string_length(output) &&
      memcmp(text, json_string_value(output), bytes) == 0 &&
      same_spans(json_object_get(one, "generation"), &spans))
    f->counts->equal++;
  else if (error && same_error(error, status))
    f->counts->refused++;
  else {
    f->counts->different++;
    fprintf(f->differences, "%s, messages %zu, %s\n  got %s\n", f->name, list, variables,
            status == TREADLE_OK ? text : treadle_error_message());
  }
  treadle_array_release(&spans);
  treadle_free(text);
  free(variables);
  free(given);
}

static void check_template(file *f, json_t *one) {
  json_t *cases = json_object_get(one, "cases"), *each;
  size_t i;
  f->name = json_string_value(json_object_get(one, "name"));
  treadle_chat *chat = open_chat(one);
  if (!chat) {
    f->counts->cases += (int)json_array_size(cases);
    f->counts->different += (int)json_array_size(cases);
    fprintf(f->differences, "%s: %s\n", f->name, treadle_error_message());
    return;
  }
  json_array_foreach(cases, i, each) check(f, chat, each);
  treadle_chat_close(chat);
}

bool golden_chat_file(const char *path, FILE *differences, golden_counts *counts_p) {
  json_t *root = golden_load(path), *templates = json_object_get(root, "templates"), *one;
  size_t i;
  *counts_p = (golden_counts){0};
  file f = {json_object_get(root, "message_lists"), json_string_value(json_object_get(root, "now")), NULL,
            differences, counts_p};
  json_array_foreach(templates, i, one) check_template(&f, one);
  json_decref(root);
  return counts_p->cases > 0;
}
