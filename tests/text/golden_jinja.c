/* jinja.json: snippets with their variables, and what Jinja2 made of them. */
#include "text/golden_text.h"

#include "base/alloc.h"
#include "text/jinja.h"

#include <string.h>

static bool ends_with(const char *text, const char *end) {
  size_t length = strlen(text), more = strlen(end);
  return length >= more && strcmp(text + length - more, end) == 0;
}

/* What the case's error asks of the message: NULL, or what is missing in it. */
static const char *missing_in(const char *message, json_t *error) {
  static char wanted[64];
  const char *type = json_string_value(json_object_get(error, "type"));
  const char *text = json_string_value(json_object_get(error, "message"));
  json_t *line = json_object_get(error, "line");
  if (strcmp(type, "TemplateError") == 0 && !ends_with(message, text)) return text;
  snprintf(wanted, sizeof wanted, "line %d: ", (int)json_integer_value(line));
  return json_is_integer(line) && !strstr(message, wanted) ? wanted : NULL;
}

static treadle_status render(json_t *one, const char *now, char **text_p, size_t *length_p) {
  json_t *text = json_object_get(one, "template");
  treadle_jinja_template *template;
  treadle_jinja_options options = {.now = now};
  treadle_status status =
      treadle_jinja_parse("snippet", json_string_value(text), json_string_length(text), &template);
  if (status == TREADLE_OK)
    status =
        treadle_jinja_render(template, json_object_get(one, "context"), &options, text_p, length_p, NULL);
  treadle_jinja_destroy(template);
  return status;
}

static void check(json_t *one, const char *now, size_t number, FILE *differences, golden_counts *counts) {
  json_t *output = json_object_get(one, "output"), *error = json_object_get(one, "error");
  char *text = NULL;
  size_t length = 0;
  treadle_status status = render(one, now, &text, &length);
  const char *message = status == TREADLE_OK ? "" : treadle_error_message();
  const char *missing = status == TREADLE_REFUSED && error ? missing_in(message, error) : NULL;
  counts->cases++;
  if (output && status == TREADLE_OK && length == json_string_length(output) &&
      memcmp(text, json_string_value(output), length) == 0)
    counts->equal++;
  else if (error && status == TREADLE_REFUSED && !missing)
    counts->refused++;
  else {
    counts->different++;
    char *wanted = json_dumps(error ? error : output, JSON_ENCODE_ANY);
    fprintf(differences, "snippet %zu: %s\n  wanted %s%s%s\n  got    %s\n", number,
            json_string_value(json_object_get(one, "template")), wanted, missing ? ", with " : "",
            missing ? missing : "", status == TREADLE_OK ? text : message);
    free(wanted);
  }
  treadle_free(text);
}

bool golden_jinja_file(const char *path, FILE *differences, golden_counts *counts_p) {
  json_t *root = golden_load(path), *cases = json_object_get(root, "cases"), *one;
  json_t *now = json_object_get(root, "now");
  size_t i;
  *counts_p = (golden_counts){0};
  json_array_foreach(cases, i, one) {
    check(one, json_is_string(now) ? json_string_value(now) : "2025-03-14T15:09:26", i, differences,
          counts_p);
  }
  json_decref(root);
  return counts_p->cases > 0;
}
