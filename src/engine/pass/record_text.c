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
