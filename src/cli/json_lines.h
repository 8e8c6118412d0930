/* Files of JSON lines: an object a line. */
#ifndef TREADLE_CLI_JSON_LINES_H
#define TREADLE_CLI_JSON_LINES_H

#include "base/status.h"

#include <jansson.h>

/* All lines of a file, read at once. A zeroed struct is ready for treadle_json_lines_open(). */
typedef struct treadle_json_lines {
  const char *path;
  char *text; /* [bytes] */
  size_t bytes, at;
  int64_t number; /* of the line that was read last, from 1 */
} treadle_json_lines;

/* The path is kept. */
treadle_status treadle_json_lines_open(treadle_json_lines *lines, const char *path);
/* The object of the next line, ended by json_decref(); NULL: there is no line left. Texts in it may hold 0 bytes. */
treadle_status treadle_json_lines_next(treadle_json_lines *lines, json_t **object_p);
/* Refuses a key of the object that is none of `keys`, ended by NULL. */
treadle_status treadle_json_lines_check_keys(const treadle_json_lines *lines, json_t *object,
                                             const char *const *keys);
/* Puts the path and the number of the line in front of the message that stands. */
treadle_status treadle_json_lines_fail(const treadle_json_lines *lines, treadle_status status);
void treadle_json_lines_close(treadle_json_lines *lines);

#endif
