/* jinja.json: snippets with their variables, and what Jinja2 made of them. */
#include "golden_support/golden_recording.h"

#include "base/alloc.h"
#include "jinja/jinja.h"

#include <stdlib.h>
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

static void check(golden_recording *r, json_t *one, const char *now, size_t number) {
  json_t *output = json_object_get(one, "output"), *error = json_object_get(one, "error");
  char *text = NULL;
  size_t length = 0;
  treadle_status status = render(one, now, &text, &length);
  const char *message = status == TREADLE_OK ? "" : treadle_error_message();
  const char *missing = status == TREADLE_REFUSED && error ? missing_in(message, error) : NULL;
  bool equal = output && status == TREADLE_OK && length == json_string_length(output) &&
               memcmp(text, json_string_value(output), length) == 0,
       refused = error && status == TREADLE_REFUSED && !missing;
  golden_count(r, (golden_counts){.equal = equal, .refused = refused, .different = !equal && !refused});
  if (!equal && !refused) {
    char *wanted = json_dumps(error ? error : output, JSON_ENCODE_ANY);
    golden_say(r, "case %zu: %s\n  wanted %s%s%s\n  got    %s", number,
               json_string_value(json_object_get(one, "template")), wanted, missing ? ", with " : "",
               missing ? missing : "", status == TREADLE_OK ? text : message);
    free(wanted);
  }
  treadle_free(text);
}

void golden_check_jinja(golden_recording *r) {
  json_t *cases = json_object_get(r->root, "cases"), *one;
  const json_t *now = json_object_get(r->root, "now");
  size_t i;
  json_array_foreach(cases, i, one) {
    json_t *error = json_object_get(one, "error");
    char reason[GOLDEN_REASON];
    if (!golden_keys(one, "?x:kind s:template o:context ?s:output ?o:error", reason) ||
        (error && !golden_keys(error, "s:type s:message ?x:line", reason)))
      golden_skip(r, 1, "case %zu: %s", i, reason);
    else if (!error == !json_object_get(one, "output"))
      golden_skip(r, 1, "case %zu: it has to have either 'output' or 'error'", i);
    else
      check(r, one, json_is_string(now) ? json_string_value(now) : "2025-03-14T15:09:26", i);
  }
}
