/* Writing JSON as it comes, so that an answer of any length needs no memory. The top level and lists of
 * objects take a line an item; what is deeper stands on one line. Keys are NULL inside lists.
 *
 * Texts and keys may hold any bytes; what comes out is JSON in UTF-8 all the same. A byte that is not part of a character becomes
 * U+FFFD, as decoders do it; control characters are escaped. */
#ifndef TREADLE_CLI_JSON_OUT_H
#define TREADLE_CLI_JSON_OUT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct treadle_json_out {
  FILE *file;
  bool line; /* all of it on one line, for files of such lines */
  int depth;
  bool filled[8]; /* by depth: something was written there */
  char ends[8];   /* by depth: the bracket that closes it */
} treadle_json_out;

/* '{' or '['; closed with '}' or ']'. A newline follows the end of depth 0. */
void treadle_json_out_open(treadle_json_out *out, const char *key, char bracket);
void treadle_json_out_close(treadle_json_out *out, char bracket);
/* Closes all that is open, an object, with the key `error` in it: what failed in the middle is JSON all the same. */
void treadle_json_out_fail(treadle_json_out *out, const char *message);
void treadle_json_out_text(treadle_json_out *out, const char *key, const char *text); /* NULL: null */
/* A text of known length, which may hold 0 bytes. */
void treadle_json_out_bytes(treadle_json_out *out, const char *key, const char *text, size_t bytes);
/* An array with an item for each line; one of more than 1,299 bytes is cut there. */
void treadle_json_out_lines(treadle_json_out *out, const char *key, const char *lines);
void treadle_json_out_int(treadle_json_out *out, const char *key, int64_t value);
void treadle_json_out_real(treadle_json_out *out, const char *key, double value); /* NaN, infinity: null */
void treadle_json_out_exact(treadle_json_out *out, const char *key,
                            double value); /* the same, with all digits it needs */
void treadle_json_out_bool(treadle_json_out *out, const char *key, bool value);

#endif
