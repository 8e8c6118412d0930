/* Records of the experts that tokens chose, as JSON. */
#ifndef TREADLE_PASS_RECORD_TEXT_H
#define TREADLE_PASS_RECORD_TEXT_H

#include "base/text.h"

/* "[[[..], ..], ..]": of each token, of each layer that has experts; records [bytes] as treadle_pass_read_record gives them. */
void treadle_record_add_text(treadle_builder *builder, const unsigned char *records, size_t bytes,
                             size_t layers, size_t top);

#endif
