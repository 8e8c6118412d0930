#include "pass/record_text.h"

#include "pass/pass_steps.h"

void treadle_record_add_text(treadle_builder *builder, const unsigned char *records, size_t bytes,
                             size_t layers, size_t top) {
  const size_t each = layers * top;
  treadle_builder_add(builder, "[");
  for (size_t i = 0; i < bytes / 2; i++) {
    if (i) treadle_builder_add(builder, ", ");
    treadle_builder_add(builder, "%s%s%d%s%s", i % each == 0 ? "[" : "", i % top == 0 ? "[" : "",
                        treadle_pass_recorded(records, (int64_t)i), i % top == top - 1 ? "]" : "",
                        i % each == each - 1 ? "]" : "");
  }
  treadle_builder_add(builder, "]");
}

static treadle_status read_layer(const char *what, const json_t *layer, size_t token, size_t number,
                                 treadle_record_list *to) {
  treadle_status status = TREADLE_OK;
  if (!json_is_array(layer)) REFUSE("%s: experts[%zu][%zu] is not a list", what, token, number);
  if (!to->top) to->top = json_array_size(layer);
  if (json_array_size(layer) != to->top || !to->top)
    REFUSE("%s: experts[%zu][%zu] has %zu items, and the first list %zu", what, token, number,
           json_array_size(layer), to->top);
  for (size_t k = 0; k < to->top; k++) {
    const json_t *item = json_array_get(layer, k);
    const json_int_t expert = json_integer_value(item);
    if (!json_is_integer(item) || expert < 0 || expert > UINT16_MAX)
      REFUSE("%s: experts[%zu][%zu][%zu] is not the number of an expert, 0 to %d", what, token, number, k,
             UINT16_MAX);
    TRY(treadle_array_push(&to->bytes, (uint8_t)(expert & 255)));
    TRY(treadle_array_push(&to->bytes, (uint8_t)(expert >> 8)));
  }
out:
  return status;
}

treadle_status treadle_record_read_text(const char *what, const json_t *experts, treadle_record_list *to) {
  treadle_status status = TREADLE_OK;
  if (!json_is_array(experts)) REFUSE("%s: it has no list \"experts\"", what);
  for (size_t t = 0; t < json_array_size(experts); t++) {
    const json_t *token = json_array_get(experts, t);
    if (!json_is_array(token)) REFUSE("%s: experts[%zu] is not a list", what, t);
    if (!to->layers) to->layers = json_array_size(token);
    if (json_array_size(token) != to->layers || !to->layers)
      REFUSE("%s: experts[%zu] has %zu layers, and the first token %zu", what, t, json_array_size(token),
             to->layers);
    for (size_t l = 0; l < to->layers; l++) TRY(read_layer(what, json_array_get(token, l), t, l, to));
  }
out:
  return status;
}
