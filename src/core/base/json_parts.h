/* Parts of the reader of JSON: what json_read.c and json_scan.c share. */
#ifndef TREADLE_BASE_JSON_PARTS_H
#define TREADLE_BASE_JSON_PARTS_H

#include "base/json.h"
#include "base/text.h"

typedef struct treadle_json_reader {
  const treadle_json_source *source;
  const char *text;
  size_t at, end;
  size_t counted; /* where `line` is */
  int64_t line;
  int depth;
  treadle_builder text_room; /* of a text with escapes */
  treadle_builder keys;      /* of the open objects, each with a 0 behind it */
} treadle_json_reader;

typedef struct treadle_json_bytes {
  const char *bytes; /* valid until the next text */
  size_t count;
  bool zero, half; /* has a zero character, half of a pair */
} treadle_json_bytes;

int64_t treadle_json_line(treadle_json_reader *reader, size_t at);
treadle_status treadle_json_no_memory(const treadle_json_reader *reader);
treadle_status treadle_json_fail_at(treadle_json_reader *reader, size_t at, const char *why);
/* Something else stands where `wanted` must. */
treadle_status treadle_json_expected(treadle_json_reader *reader, const char *wanted);

/* Is one of the two next? */
bool treadle_json_is_at(const treadle_json_reader *reader, char one, char other);
void treadle_json_skip_space(treadle_json_reader *reader);
/* reader->at is behind the quote, and then behind the other. */
treadle_status treadle_json_scan_text(treadle_json_reader *reader, treadle_json_bytes *text_p);
/* A number of JSON's; *value_p: NULL where 64 bits or a double cannot hold it. */
treadle_status treadle_json_scan_number(treadle_json_reader *reader, json_t **value_p);

#endif
