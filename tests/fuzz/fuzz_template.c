/* A template, a 0 byte, its variables as JSON: neither a crash nor a template without an end. What is refused has a reason, and what
 * is rendered is rendered again to the same text. */
#include "base/alloc.h"
#include "jinja/jinja.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static const treadle_jinja_options limits = {
    .steps = 300000, .memory = 8 << 20, .output = 1 << 18, .now = "2025-03-14T15:09:26"};

static treadle_status render(const treadle_jinja_template *template, json_t *variables, char **text_p,
                             size_t *length_p) {
  treadle_jinja_spans spans = {0};
  treadle_status status = treadle_jinja_render(template, variables, &limits, text_p, length_p, &spans);
  for (size_t i = 0; i < spans.count; i++)
    if (spans.items[i].start > spans.items[i].end) __builtin_trap();
  treadle_array_release(&spans);
  return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  const char *text = (const char *)bytes;
  const char *end = memchr(bytes, 0, count);
  size_t length = end ? (size_t)(end - text) : count, first_length, second_length;
  json_t *variables = end ? json_loadb(end + 1, count - length - 1, 0, NULL) : NULL;
  if (!json_is_object(variables)) {
    json_decref(variables);
    variables = json_object();
  }
  treadle_jinja_template *template = NULL;
  char *first = NULL, *second = NULL;
  treadle_status status = treadle_jinja_parse("fuzz", text, length, &template);
  if (status == TREADLE_OK) status = render(template, variables, &first, &first_length);
  if (status != TREADLE_OK && !*treadle_error_message()) __builtin_trap();
  if (status == TREADLE_OK && (render(template, variables, &second, &second_length) != TREADLE_OK ||
                               first_length != second_length || memcmp(first, second, first_length) != 0))
    __builtin_trap();
  treadle_free(first);
  treadle_free(second);
  treadle_jinja_destroy(template);
  json_decref(variables);
  return 0;
}
