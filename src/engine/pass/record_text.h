/* Records of the experts that tokens chose, as JSON: [[[..], ..], ..], of each token, of each layer that has experts. As bytes they are what
 * treadle_pass_read_record gives. */
#ifndef TREADLE_PASS_RECORD_TEXT_H
#define TREADLE_PASS_RECORD_TEXT_H

#include "base/array.h"
#include "base/status.h"
#include "base/text.h"

#include <jansson.h>
#include <stdint.h>

void treadle_record_add_text(treadle_builder *builder, const unsigned char *records, size_t bytes,
                             size_t layers, size_t top);

/* Records that were read, one after the other. A zeroed struct is ready. */
typedef struct treadle_record_list {
  TREADLE_ARRAY(uint8_t) bytes;
  size_t layers, top; /* of each token: as the first one has them */
} treadle_record_list;

/* Adds those of a row. Refused: lists of another shape, and numbers that experts cannot have; what: names the row in messages. */
treadle_status treadle_record_read_text(const char *what, const json_t *experts, treadle_record_list *to);

#endif
