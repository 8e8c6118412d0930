/* JSON texts as Python writes and reads them, as values of jansson's.
 *
 * Python's json writes what other readers refuse: whole numbers beyond 64 bits, NaN, Infinity, -Infinity, half of a surrogate pair. A file
 * may have such a value under a key that nobody reads. So the reader takes it as an *odd* value: to jansson it is an object, and so
 * neither a number nor a text. Whoever needs a number or a text there refuses it as any other type, with treadle_json_note() in the
 * message; whoever can use one asks for it here. The same goes for texts with a zero character, unless the caller goes by lengths.
 *
 * In keys, a zero character is the two bytes TREADLE_JSON_ZERO, which no character of UTF-8 has. A mark of the byte order at the start is
 * skipped. A key twice in one object and half of a pair in a key are refused. */
#ifndef TREADLE_BASE_JSON_H
#define TREADLE_BASE_JSON_H

#include "base/status.h"

#include <jansson.h>

#define TREADLE_JSON_ZERO "\xc0\x80"
enum { TREADLE_JSON_DEEPEST = 2048 };

typedef struct treadle_json_source {
  const char *what; /* in messages */
  const char *text;
  size_t count;
  int64_t line;   /* of its first byte; 0: a whole text, whose mark of the byte order is skipped */
  bool one_line;  /* `what` says the line: messages add the column alone */
  bool zeros;     /* texts may have zero characters: the caller goes by their lengths */
  size_t *used_p; /* NULL: nothing may stand behind the value; else its end */
} treadle_json_source;

/* The root is an object or a list, ended by json_decref(). */
treadle_status treadle_json_read(const treadle_json_source *source, json_t **root_p);

/* Bytes of the mark of the byte order that a text begins with, 3 or 0. Readers of many lines skip it themselves. */
size_t treadle_json_mark(const char *text, size_t count);

/* An object that is none of the odd values; NULL is none. */
bool treadle_json_is_object(const json_t *value);
/* An odd value as it stands in the file: its digits, NaN, or a text with its quotes. NULL: it is not odd. */
const char *treadle_json_odd(const json_t *value);
/* For the end of a message that refuses a value: "", or of an odd one " (line 5: NaN)"; a buffer of the thread. */
const char *treadle_json_note(const json_t *value);
/* Any number, odd ones too, as Python's float() has it: not finite where it is too large. False: it is none. */
bool treadle_json_to_real(const json_t *value, double *real_p);

/* The bytes of a key: those of TREADLE_JSON_ZERO are a zero character. `to` has room for strlen(key) bytes. Returns how many they are. */
size_t treadle_json_key(const char *key, char *to);

/* As json_dumps() of any value, with odd ones as they stood; flags: JSON_COMPACT or JSON_INDENT(n). Ended by free(). NULL: memory is out. */
char *treadle_json_dump(json_t *value, size_t flags);

/* The reader's part: makes an odd value. NULL: memory is out. */
json_t *treadle_json_make_odd(const char *text, size_t count, int64_t line);

#endif
